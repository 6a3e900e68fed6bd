"""LightGBM, JAX and XGBoost start from the Python package's cluster: the example programs, with the real frameworks."""

import re
import signal

import pytest

from cluster import TREE, Cluster
from nodes import said
from optional import python_with
from packaged import packaged

EXAMPLES = TREE / "examples"
DIGITS = EXAMPLES / "train_digits" / "data" / "digits.csv"
PACKAGE = {"PYTHONPATH": TREE / "bindings" / "python"}
RANKS = 4
TIMEOUT_S = 240  # JAX alone takes ten seconds to load where processors are short


def last_lines(framework, example, *words, ranks=RANKS, env=None):
    """What each rank of the example says in the end."""
    program = [python_with(framework), EXAMPLES / example / f"{example}.py", *words]
    with Cluster(program, workers=ranks, env={**PACKAGE, **(env or {})}) as cluster:
        return [worker.stdout.splitlines()[-1] for worker in cluster.succeed(TIMEOUT_S)]


def one_model(lines, pattern):
    """All ranks have the same model; returns what share of all images it knows. A rank that learns from its own half of them
    alone, or from less, knows 0.97 at most."""
    found = [re.fullmatch(pattern, line) for line in lines]
    assert all(found), lines
    assert [match["rank"] for match in found] == [str(rank) for rank in range(len(lines))]
    assert len({match["model"] for match in found}) == 1
    share, = {float(match["right"]) for match in found}
    return share


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_lightgbm_trains_one_model(ranks):
    lines = last_lines("LightGBM", "lightgbm_network", DIGITS, ranks=ranks)
    pattern = rf"rank (?P<rank>\d) of {ranks}: 200 trees, (?P<right>\S+) of all images right, model (?P<model>\w+)"
    assert one_model(lines, pattern) > 0.98


def test_lightgbm_ends_with_a_lost_rank():
    """Its own functions cannot fail: the process ends, and says why."""
    program = [python_with("LightGBM"), EXAMPLES / "lightgbm_network" / "lightgbm_network.py", DIGITS, 1000000]
    with Cluster(program, workers=RANKS, env=PACKAGE) as cluster:
        for worker in cluster.workers:
            worker.wait_for("total number of machines: 4", TIMEOUT_S)
        cluster.workers[2].kill()
        workers = cluster.wait(TIMEOUT_S)
        assert workers[2].returncode == -signal.SIGKILL
        for rank in (0, 1, 3):
            assert workers[rank].returncode == 1
            assert re.search(r'rank 2 \(node id "2", .* is lost', workers[rank].stderr)


# JAX has a ClusterEnv of its own for Open MPI, which answers where there is this variable.
@pytest.mark.parametrize("env", [{}, {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://192.0.2.1:1"}], ids=["alone", "under mpirun"])
def test_jax_makes_processes_of_the_ranks(env):
    total = 3 * sum(range(1, RANKS + 1))
    assert last_lines("JAX", "jax_cluster", env=env) == [
        f"process {rank} of {RANKS}: ranks {list(range(RANKS))}, sum {float(total)}" for rank in range(RANKS)
    ]


# The class alone, without JAX: what it announces is what it tells JAX to listen at.
ANNOUNCED = """
import sys, types
for name in ("jax", "jax.numpy", "jax._src", "jax._src.clusters", "jax.experimental", "jax.experimental.multihost_utils"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["jax._src.clusters"].ClusterEnv = object
sys.path.insert(0, str(TREE / "examples" / "jax_cluster"))
from jax_cluster import MusterCluster
MusterCluster.cluster = muster.init()
found = []
for _ in range(2):
    found.append([MusterCluster.get_coordinator_address(60, None), os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")])
MusterCluster.cluster.finalize()
say(found=found)
"""


@pytest.mark.parametrize("of_the_user", [None, "192.0.2.1:1"])
def test_jax_listens_where_it_is_announced_each_time_that_it_starts(of_the_user):
    with Cluster(packaged(ANNOUNCED), workers=2, env={"JAX_COORDINATOR_BIND_ADDRESS": of_the_user}) as cluster:
        first, second = [said(worker)["found"] for worker in cluster.succeed(timeout=60)]
    announced = [address for address, _ in first]
    assert [address for address, _ in second] == announced and announced[0] != announced[1]
    assert [bound for _, bound in first] == ([of_the_user] * 2 if of_the_user else announced)


def test_xgboost_trains_one_model_with_the_ranks_of_the_cluster():
    lines = last_lines("XGBoost", "xgboost_tracker", DIGITS)
    pattern = (rf"rank (?P<rank>\d) of {RANKS}: XGBoost's rank is the same, (?P<right>\S+) of all images right, "
               r"model (?P<model>\w+)")
    assert one_model(lines, pattern) > 0.98
