"""The store from Python."""

from cluster import Cluster
from nodes import said
from packaged import packaged


def test_every_call_of_the_store():
    lines = """
        import numpy as np
        with muster.init() as c:
            s, w = c.store, c.world
            if c.rank == 0:
                s.set("text", "grüße")
                s.set("numbers", np.arange(3, dtype=np.int32))
                s.set("nothing", b"")
            s.wait(["text", "numbers", "nothing"])
            assert s.get("text").decode() == "grüße" and s.get("nothing") == b""
            assert np.frombuffer(s.get("numbers"), np.int32).tolist() == [0, 1, 2]
            s.add("counter"); s.add("counter", 4)
            w.barrier()
            assert s.add("counter", 0) == 10 and s.get("counter", timeout=0) == b"10"
            winners = w.allgather_object(s.compare_set("leader", "", str(c.rank)) == str(c.rank).encode())
            assert winners.count(True) == 1 and s.get("leader") == str(winners.index(True)).encode()
            w.barrier()
            deleted = w.allgather_object(s.delete("leader"))
            assert sorted(deleted) == [False, True]
            missing = told(s.get, "leader", timeout=0)
            assert missing["error"] == "NotFoundError" and "leader" in missing["sentence"]
            late = told(s.wait, ["text", "never"], timeout=0.05)
            assert late["error"] == "TimeoutError" and "never" in late["sentence"]
            assert told(s.set, "", b"")["error"] == "InvalidError"
            assert told(s.set, 7, b"")["error"] == "InvalidError"
            for call in (s.check, s.wait, s.multi_get):
                for key in ("an", b"an"):
                    words = told(call, key)
                    assert words["error"] == "InvalidError" and f"[{key!r}]" in words["sentence"], words
            for call in (lambda: s.set("k\\udc80", b""), lambda: s.set("k", "\\udc80"), lambda: s.check(["\\udc80"]),
                         lambda: c.create_group([c.rank], "\\udc80"), lambda: muster.Scheduler(job_id="\\udc80")):
                words = told(call)
                assert words["error"] == "InvalidError" and "UTF-8" in words["sentence"], words
            w.barrier()
            if c.rank == 0:
                s.set("k\\0l", b"1"); s.set(b"k\\0m", b"\\0")
            s.wait(["k\\0l", b"k\\0m"])
            assert s.multi_get([b"k\\0l", "k\\0m"]) == [b"1", b"\\0"]
            assert s.list("k") == [b"k\\0l", b"k\\0m"] and s.list("none") == []
            assert s.check(["text", "never", b"k\\0l"]) == [True, False, True] and s.count() == 6
            w.barrier()
            s.append("list", f"{c.rank},")
            w.barrier()
            assert sorted(s.get("list")) == sorted(b"0,1,") and s.append("list", b"") == 4
            if c.rank == 1:
                s.multi_set({"a/1": "one", b"a/2": np.arange(2, dtype=np.int8), "a/3": b""})
            assert s.multi_get(["a/3", "a/2", "a/1"]) == [b"", b"\\0\\1", b"one"] and len(s.list("a/")) == 3
            assert s.compare_set("gone", b"x", b"y") == b"" and s.compare_set("gone", b"x", b"y", c10d=True) == b"x"
            assert s.multi_get([]) == [] and s.check([]) == []
            assert told(s.add, "text")["error"] == "InvalidError"
            for length in range(1, 100):  # whatever place the text's bytes have in Python's memory
                s.set(f"mine/{c.rank}", "a" * length)
                assert s.compare_set(f"mine/{c.rank}", "a" * length, "b" * length) == b"b" * length
            say(ended=True)
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        assert all(said(worker)["ended"] for worker in cluster.succeed(timeout=60))
