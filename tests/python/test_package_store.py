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
            assert told(s.set, "cut\\0off", b"")["error"] == told(s.get, b"bytes")["error"] == "InvalidError"
            assert told(s.add, "text")["error"] == "InvalidError"
            say(ended=True)
    """
    with Cluster(packaged(lines), workers=2) as cluster:
        assert all(said(worker)["ended"] for worker in cluster.succeed(timeout=60))
