"""muster.torch.Store: torch's store on the cluster's, with the newest torch and with Debian's old one."""

import pytest

from cluster import Cluster
from pages import Page
from torches import PROGRAM, TIMEOUT_S, fetch_torch, python, said

VERSIONS = (fetch_torch.DEBIAN, fetch_torch.VERSIONS[-1])
PROGRAM_OF_THE_PAGE, = Page("docs", "pytorch.md").section("The store", "python")


def succeed(tmp_path, version, lines, workers=2):
    """Runs the lines on workers of a cluster; the scheduler's process runs a program without torch."""
    env = fetch_torch.installed(tmp_path)
    scheduler = [python(version), "-c", "import muster; muster.init()"]
    with Cluster([python(version), PROGRAM, lines], workers, scheduler=scheduler, env=env) as cluster:
        return [said(worker) for worker in cluster.succeed(TIMEOUT_S)]


GLOO = """
from muster.torch import Store
store = Store()
rank, size = store.cluster.rank, store.cluster.size
dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
x = torch.full((3,), float(rank + 1))
dist.all_reduce(x)
pair = dist.new_group([0, 1])
dist.barrier()
dist.destroy_process_group()
store.cluster.finalize()
say(sum=x.tolist())
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_gloo_runs_on_it(tmp_path, version):
    assert succeed(tmp_path, version, GLOO) == [{"sum": [3.0] * 3}] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_the_pages_program_runs(tmp_path, version):
    succeed(tmp_path, version, PROGRAM_OF_THE_PAGE)


CALLS = """
from datetime import timedelta
from muster.torch import Store
store = Store(timeout=timedelta(seconds=60))
rank = store.cluster.rank
kept = dist.PrefixStore("mine", store)            # torch's own code calls ours
if rank == 0:
    kept.set("key", "value")
    store.set("bytes", "a")
assert kept.get("key") == b"value" and store.get("mine/key") == b"value"
store.wait(["bytes"])
store.wait(["bytes"], timedelta(seconds=1))
assert kept.add("count", 2) in (2, 4)
if rank == 0:
    assert store.compare_set("word", "", "first") == b"first"
    assert store.compare_set("word", "wrong", "second") == b"first"
    assert store.compare_set("word", "first", "second") == b"second"
    assert store.compare_set("absent", "something", "else") == b"something"
    assert kept.compare_set("word", "", "mine") == b"mine" == dist.PrefixStore("within", kept).compare_set("word", "", "mine")
    assert kept.compare_set("word", "mine", "next") == b"next" and kept.delete_key("word") and store.delete_key("mine/within/word")
    assert store.check(["word"]) and not store.check(["word", "absent"])
    assert store.delete_key("word") and not store.delete_key("word")
    assert store.multi_get(["bytes", "mine/key"]) == [b"a", b"value"]
    if store.has_extended_api() and hasattr(dist.Store, "append"):
        kept.multi_set(["a", "b"], ["1", "2"])
        kept.append("a", "0")
        assert kept.multi_get(["a", "b"]) == [b"10", b"2"] and kept.delete_key("a") and kept.delete_key("b")
    say(keys=store.num_keys(), names=store.list_keys(), **{"wait 0.1": told(kept.wait, ["never"], timedelta(milliseconds=100))})
    if hasattr(dist.PrefixStore, "list_keys"):
        assert told(kept.list_keys)["error"] == "NotImplementedError"  # the page says so
    store.set_timeout(timedelta(milliseconds=200))
    say(**{"get 0.2": told(store.get, "never")})
    kept.set_timeout(timedelta(milliseconds=300))  # torch's own code changes it, without ours
    say(**{"get 0.3": told(kept.get, "never"), "wait 0.3": told(kept.wait, ["never"]), "multi_get 0.3": told(store.multi_get, ["never"])})
    store.set("done", "yes")
store.wait(["done"], timedelta(seconds=60))
store.cluster.finalize()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_its_calls_are_torchs(tmp_path, version):
    words = succeed(tmp_path, version, CALLS)[0]
    for call, seconds in (("wait", 0.1), ("get", 0.2), ("get", 0.3), ("wait", 0.3), ("multi_get", 0.3)):
        error = words[f"{call} {seconds}"]
        assert "RuntimeError" in error["kinds"] and error["sentence"].endswith(f'never": nobody has set it within {seconds} s, as far as this node has heard'), error
    assert words["keys"] == 3 and words["names"] == ["bytes", "mine/count", "mine/key"]


WITHOUT_LIMIT = """
import time
from datetime import timedelta
from muster.torch import Store
store = Store(timeout=timedelta(0))
waits = {
    "get": lambda key: store.get(key),
    "wait": lambda key: store.wait([key]),
    "wait of its own": lambda key: store.wait([key], timedelta(0)),
    "multi_get": lambda key: store.multi_get([key]),
}
for key, wait in waits.items():
    if store.cluster.rank == 0:
        store.set(f"asks for {key}", "")
        wait(key)
    else:
        store.wait([f"asks for {key}"])
        time.sleep(0.3)  # most of the time it waits by then; if not, the test holds as well
        store.set(key, "")
say(negative=told(store.set_timeout, timedelta(seconds=-1)), made=told(Store, timeout=timedelta(seconds=-1)), kept=store.timeout == timedelta(0))
store.cluster.finalize()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_time_out_of_0_is_no_limit_and_a_negative_one_is_refused(tmp_path, version):
    for words in succeed(tmp_path, version, WITHOUT_LIMIT):
        assert words["negative"]["error"] == words["made"]["error"] == "InvalidError" and words["kept"], words


def test_the_backend_takes_its_cluster(tmp_path):
    lines = GLOO.replace('"gloo"', '"muster"')
    assert succeed(tmp_path, VERSIONS[-1], lines) == [{"sum": [3.0] * 3}] * 2


def test_the_backend_takes_the_cluster_that_the_program_has_joined(tmp_path):
    words = succeed(tmp_path, VERSIONS[-1], """
import muster
with muster.init() as cluster:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if cluster.rank == 0 else None
    port = cluster.world.broadcast_object(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, wait_for_workers=False)
    dist.init_process_group("muster", store=store, rank=cluster.rank, world_size=cluster.size)
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    say(sum=x.item(), ours=cluster.world.allgather_object("still here"))
    wrong = told(dist.init_process_group, "muster", store=store, rank=1 - cluster.rank, world_size=cluster.size)
    say(wrong=wrong)
    cluster.world.barrier()
""")
    for rank, said_by in enumerate(words):
        assert said_by["sum"] == 2 and said_by["ours"] == ["still here"] * 2
        assert f"this process is rank {rank} of 2" in said_by["wrong"]["sentence"]
