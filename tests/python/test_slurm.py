"""Under a real Slurm: steps and batch jobs on two nodes, without any setting."""

import json
import os
import re
import signal
import sys
import textwrap

import pytest

import mpi
import torches
from cluster import EXAMPLES, TREE, Process, complaints
from launch import until
from named_hosts import NAMES
from nodes import node
from pages import Page, prepare
from slurm import Slurm, demand
from test_launchers import ports_of
from test_train_digits import trained_well

# The port of Slurm's own daemons is in a network of the test's own, but a CPU is not: one such cluster at a time.
pytestmark = [pytest.mark.launchers, pytest.mark.xdist_group("slurm")]

SECONDS = 120  # for a step that takes one or two, where others keep the processors busy
SPREAD = ["--nodes=2", "--ntasks-per-node=2"]
# What each rank says of itself; the ports are those at which its own process listens.
TALK = """
    sys.path.append(os.environ["PYTHONPATH"])
    import nodes, socket
    c = join()
    ports = sorted(nodes.listening_ports(os.getpid()))
    step = os.environ.get("SLURM_JOB_ID", "") + "/" + os.environ.get("SLURM_STEP_ID", "")
    jobs = c.world.allgather(int(os.environ.get("JOB", "0")))
    say(host=socket.gethostname(), ports=ports, step=step, everyone=c.world.allgather(c.rank), job=jobs)
    c.leave()
"""
PLACES = {0: ("host1", 0), 1: ("host1", 1), 2: ("host2", 0), 3: ("host2", 1)}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    demand()
    with Slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def env(**more):
    return {"PYTHONPATH": TREE / "tests" / "python", **more}


def said(text):
    """What each task of a labelled output said, by its number."""
    words = {}
    for task, line in re.findall(r"^ *(\d+): (\{.*\})$", text, re.M):
        words.setdefault(int(task), {}).update(json.loads(line))
    return words


def well(step):
    """What the tasks of a step said that ended well, and of which nobody complained."""
    assert step.wait(SECONDS) == 0, step.describe()
    assert complaints(step.stderr) == [], step.stderr
    return said(step.stdout)


def spread_well(words):
    assert sorted(words) == list(PLACES), words
    for task, (host, local) in PLACES.items():
        told = words[task]
        assert (told["rank"], told["size"], told["host"]) == (task, 4, host)
        assert (told["local_rank"], told["local_size"], told["everyone"]) == (local, 2, [0, 1, 2, 3])


@pytest.mark.parametrize("pmi", ["none", "pmi2"])
def test_a_step_on_two_nodes_needs_no_setting(slurm, pmi):
    with slurm.srun([f"--mpi={pmi}", *SPREAD], node(TALK), env()) as step:
        words = well(step)
    spread_well(words)
    of_job = set(ports_of(f"Slurm {words[0]['step']}"))
    listening = {task for task, told in words.items() if of_job & set(told["ports"])}
    assert listening == {0}, "the scheduler is in rank 0's process, at a port of the step's own"


def test_two_steps_of_a_job_side_by_side_do_not_meet(slurm, tmp_path):
    """Neither begins before the other does: each of both has a file that the other waits for."""
    step = ["srun", "--label", "--exact", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--mem=0"]
    line = f"{{ JOB=1 {' '.join(step)} \"$@\" & JOB=2 {' '.join(step)} \"$@\" & wait; }}"
    meet = "pathlib.Path(os.environ['HOLD_FOLDER'], os.environ['JOB']).touch(); hold(str(3 - int(os.environ['JOB'])))\n"
    program = [sys.executable, *node(meet + textwrap.dedent(TALK))]
    command = ["salloc", "--quiet", *SPREAD, "bash", "-c", line, "bash", *program]
    with slurm.process(command, env(HOLD_FOLDER=tmp_path), "salloc") as job:
        assert job.wait(SECONDS) == 0, job.describe()
        assert complaints(job.stderr) == [], job.stderr
        told = [json.loads(line) for line in re.findall(r"^ *\d+: (\{.*\"job\".*\})$", job.stdout, re.M)]
    assert sorted(words["job"] for words in told) == [[1, 1], [1, 1], [2, 2], [2, 2]]
    assert len({words["step"] for words in told}) == 2


def test_one_node_meets_on_loopback(slurm):
    """The node's own name need not be known to it."""
    with slurm.srun(["--nodes=1", "--ntasks=2"], node(TALK), env(MUSTER_LOG="info")) as step:
        assert step.wait(SECONDS) == 0, step.describe()
        assert {told["size"] for told in said(step.stdout).values()} == {2}
        assert re.search(r"the scheduler listens at 127\.0\.0\.1:\d+, for the job \"Slurm", step.stderr), step.stderr


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("launcher, pmi", [("MPICH", "pmi2"), ("Open MPI", "pmix")])
def test_a_program_with_mpi_of_its_own_under_srun(slurm, launcher, pmi, how):
    """PMI_FD, or PMIx's connection, is the program's own MPI's. On one node: both MPIs take two network namespaces of a machine
    for one host, and look for memory that these do not share."""
    mpi.demand(launcher)
    program = mpi.compiled(launcher, with_mpi=True)
    with slurm.process(["srun", f"--mpi={pmi}", "--nodes=1", "--ntasks=4", program, 7, 4, how]) as step:
        assert step.wait(SECONDS) == 0, step.describe()
        assert sorted(step.stdout.splitlines()) == [f"job 7: rank {rank} of 4" for rank in range(4)]


def test_a_batch_scripts_own_process_is_alone(slurm, tmp_path):
    words = [*SPREAD, f"--output={tmp_path}/out", "--wrap", f"exec {sys.executable} {node(TALK)[0]} \"$LINES_TO_RUN\""]
    number = slurm.submit(*words, env=env(LINES_TO_RUN=node(TALK)[1]))
    slurm.wait(number, SECONDS)
    lines = (tmp_path / "out").read_text().splitlines()
    told = {name: value for line in lines for name, value in json.loads(line).items()}
    assert told["size"] == 1


def steps_of_a_torchrun(slurm, program, environment):
    """A step for each node, as `srun torchrun` is written in batch scripts: what they said."""
    options = "--label --nodes=1 --ntasks=1 --exact --mem=0"
    first, second = (f'NODE={at} srun {options} --nodelist={name} "$@" &' for at, name in enumerate(NAMES))
    script = ["bash", "-c", f"{first} one=$!; {second} other=$!; wait $one && wait $other", "bash"]
    command = ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=1", *script, *program]
    with slurm.process(command, environment, "salloc") as job:
        assert job.wait(SECONDS + torches.TIMEOUT_S) == 0, job.describe()
        return job.stdout, job.stderr


@pytest.mark.parametrize("named", [True, False], ids=["with an address", "without"])
def test_torchruns_variables_in_steps_that_differ_are_one_job(slurm, named):
    """Rank 0's node is the job's first one, or the one that MASTER_ADDR names."""
    variables = "os.environ.update(RANK=os.environ['NODE'], WORLD_SIZE='2', LOCAL_RANK='0', TORCHELASTIC_RUN_ID='r')\n"
    lines = variables + textwrap.dedent(TALK)
    address = {"MASTER_ADDR": slurm.hosts.addresses[0], "MASTER_PORT": 29500} if named else {}
    out, err = steps_of_a_torchrun(slurm, [sys.executable, *node(lines)], env(**address))
    told = [json.loads(line) for line in re.findall(r"\{[^{}]*\"step\"[^{}]*\}", out)]
    assert sorted((words["host"], words["everyone"]) for words in told) == [("host1", [0, 1]), ("host2", [0, 1])]
    assert len({words["step"] for words in told}) == 2
    assert complaints(err) == [], err


def test_a_real_torchrun_in_steps_that_differ(slurm):
    interpreter = torches.python(torches.fetch_torch.VERSIONS[-1])
    torchrun = f"exec {interpreter} -m torch.distributed.run --nnodes=2 --nproc_per_node=2 --node_rank=$NODE --rdzv_id=r " \
               f"--master_addr={slurm.hosts.addresses[0]} --master_port=29500 \"$@\""
    out, _ = steps_of_a_torchrun(slurm, ["bash", "-c", torchrun, "bash", *node(TALK)], env(OMP_NUM_THREADS=1))
    told = [json.loads(line) for line in re.findall(r"\{[^{}]*\"step\"[^{}]*\}", out)]
    assert sorted(words["host"] for words in told) == ["host1", "host1", "host2", "host2"]
    assert all(words["everyone"] == [0, 1, 2, 3] for words in told)


STEP, BATCH, TORCHRUN = Page("docs", "launching.md").section("Slurm", "sh")
TRAIN = TREE / "deploy" / "slurm" / "train.sbatch"
REPORT = re.compile(r"^ *(\d+): rank (\d+) of 8: .*, weights hash: ([0-9a-f]{16})$", re.M)
# Enough steps for a kill in the middle, and a checkpoint of each few.
DIGITS = ["--epochs", "40", "--checkpoint_interval", "10"]


def weights(text):
    """Each rank's, of the last life."""
    found = {int(rank): digest for task, rank, digest in REPORT.findall(text) if task == rank}
    assert sorted(found) == list(range(8)), text
    assert "the weights of the 8 ranks are equal, bit for bit" in text
    return set(found.values())


@pytest.fixture(scope="module")
def undisturbed(slurm):
    """The weights to which eight ranks on two nodes come where nothing dies."""
    with slurm.srun(["--nodes=2", "--ntasks-per-node=4"], [EXAMPLES / "train_digits", *DIGITS[:2]]) as step:
        assert step.wait(SECONDS) == 0, step.describe()
        digest, = weights(step.stdout)
        return digest


def newest_checkpoint(folder):
    """The step of the newest checkpoint there, by its name."""
    return max((int(step) for file in folder.glob("*.ckpt") for step in re.findall(r"-step-(\d+)\.", file.name)), default=0)


def submitted(slurm, folder):
    """The job's number, its log, and the folder where it keeps what it must remember."""
    checkpoints = folder / "checkpoints"
    number = slurm.submit(TRAIN, EXAMPLES / "train_digits", *DIGITS, "--checkpoint", checkpoints, cwd=folder)
    until(lambda: newest_checkpoint(checkpoints) >= 50, SECONDS, "the training is under way")
    journal = folder / f"train-{number}" / "recovery" / "scheduler.journal"
    assert journal.exists() and journal.stat().st_size > 0, "its recovery is on: without it the trainer would go on, too"
    return number, folder / f"train-{number}.log"


def goes_on(text):
    """From which steps ranks have gone on."""
    return {int(step) for step in re.findall(r"goes on from step (\d+)$", text, re.M)}


def pasted(slurm, folder, commands, path=""):
    """What a reader sees who has pasted this in the source tree."""
    prepare(folder)
    (folder / "deploy").symlink_to(TREE / "deploy")
    settings = {"SLURM_CONF": slurm.conf, "PATH": f"{path}:{os.environ['PATH']}", "OMP_NUM_THREADS": 1}
    with Process(slurm.hosts.command(0, ["bash", "-euo", "pipefail", "-c", commands]), settings, "shell", cwd=folder) as shell:
        assert shell.wait(SECONDS + torches.TIMEOUT_S) == 0, shell.describe()
        return shell.stdout


def test_the_page_trains_by_srun(slurm, tmp_path):
    trained_well(pasted(slurm, tmp_path, STEP))


def test_the_page_trains_by_sbatch(slurm, tmp_path):
    number = re.fullmatch(r"Submitted batch job (\d+)\n", pasted(slurm, tmp_path, BATCH))[1]
    slurm.wait(number, SECONDS)
    assert len(weights((tmp_path / f"train-{number}.log").read_text())) == 1
    assert (tmp_path / f"train-{number}" / "secret").stat().st_mode & 0o077 == 0


def test_the_page_trains_by_torchrun_under_srun(slurm, tmp_path):
    folder = torches.on_path(tmp_path / "bin")
    (tmp_path / "tree").mkdir()
    trained_well(pasted(slurm, tmp_path / "tree", TORCHRUN, folder))


def test_a_batch_job_gives_up_after_some_restarts(slurm, tmp_path):
    number = slurm.submit("--nodes=1", "--ntasks-per-node=1", TRAIN, "sh", "-c", "exit 7", cwd=tmp_path)
    slurm.wait(number, SECONDS, state="FAILED")
    assert slurm.job(number)["ExitCode"] == "7:0"
    text = (tmp_path / f"train-{number}.log").read_text()
    assert re.findall(r"after (\d) of 3 restarts", text) == ["0", "1", "2", "3"]


def test_a_batch_jobs_ranks_have_what_the_script_sets_whatever_sbatch_exports(slurm, tmp_path):
    line = 'echo "secret $MUSTER_JOB_SECRET_FILE, recovery $MS_ENABLE_RECOVERY $MS_RECOVERY_PATH"'
    number = slurm.submit("--export=NONE", "--nodes=1", "--ntasks-per-node=1", TRAIN, "sh", "-c", line, cwd=tmp_path)
    slurm.wait(number, SECONDS)
    state = tmp_path / f"train-{number}"
    assert f"secret {state}/secret, recovery 1 {state}/recovery\n" in (tmp_path / f"train-{number}.log").read_text()


def test_a_rank_of_a_batch_job_is_killed_and_all_go_on(slurm, undisturbed, tmp_path):
    number, log = submitted(slurm, tmp_path)
    os.kill(next(slurm.pids(number, 5)), signal.SIGKILL)
    slurm.wait(number, SECONDS)
    text = log.read_text()
    assert "after 0 of 3 restarts" in text and "after 1 of 3 restarts" not in text
    steps = goes_on(text)
    assert steps and min(steps) >= 40, f"not from the beginning\n{text}"
    assert weights(text) == {undisturbed}


def test_a_node_of_a_batch_job_dies_and_the_job_is_put_back_into_the_queue(slurm, undisturbed, tmp_path):
    number, log = submitted(slurm, tmp_path)
    slurm.kill_node(1)
    # What slurmctld finds out by itself after SlurmdTimeout, which is five minutes as a rule.
    slurm.ask("scontrol", "update", "nodename=host2", "state=down", "reason=it was killed")
    slurm.start_node(1)
    slurm.wait(number, SECONDS)
    text = log.read_text()
    assert "it was put back into the queue 1 times" in text
    steps = goes_on(text)
    assert steps and min(steps) >= 40, f"not from the beginning\n{text}"
    assert weights(text) == {undisturbed}
    slurm.idle()


@pytest.mark.parametrize("launcher", mpi.COMMANDS)
def test_mpirun_in_a_job_of_slurms_needs_no_address(slurm, launcher):
    """It starts its own steps, in which Slurm's variables are those of its proxies."""
    mpi.demand(launcher)
    command, needs = mpi.mpirun(launcher, 4, [sys.executable, *node(TALK)], options=[])
    with slurm.process(["salloc", "--quiet", *SPREAD, *command], env(**needs), "salloc") as job:
        assert job.wait(SECONDS) == 0, job.describe()
        assert complaints(job.stderr) == [], job.stderr
        told = [json.loads(line) for line in re.findall(r"\{[^{}]*\}", job.stdout)]
    assert sorted(words["host"] for words in told if "host" in words) == ["host1", "host1", "host2", "host2"]
    assert all(words["everyone"] == [0, 1, 2, 3] for words in told if "everyone" in words)


@pytest.mark.parametrize("launcher", mpi.COMMANDS)
def test_mpirun_in_a_job_of_slurms_trains(slurm, launcher):
    mpi.demand(launcher)
    command, needs = mpi.mpirun(launcher, 8, [EXAMPLES / "train_digits"], options=mpi.UNBOUND.get(launcher, []))
    with slurm.process(["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=4", *command], env(**needs), "salloc") as job:
        assert job.wait(SECONDS) == 0, job.describe()
        assert complaints(job.stderr) == [], job.stderr
        trained_well(job.stdout)
