"""One `muster run` for many hosts: what each host is told, whose output and failures come back, and that nothing is left of it."""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time

import pytest

from cluster import EXAMPLES, MUSTER, clean_environment, command_line, stop
from launch import Launch, until
from many_hosts import LIMIT, FarHosts, children_of, lines_by_rank, plain
from nodes import node
from terminal import Terminal
from test_train_digits import REPORT_LINE

pytestmark = [pytest.mark.launchers, pytest.mark.xdist_group("hosts")]

SAYS = """
    c = join()
    say(hosts=c.world.allgather(c.local_rank), colour=os.environ.get("COLOUR"), secret=len(os.environ["MUSTER_JOB_SECRET"]),
        name=os.uname().nodename, folder=os.getcwd(), other=os.environ.get("NOT_PASSED"))
    c.leave()
"""
HOLDS = "c = join(); c.store_get('nobody sets this'); c.leave()"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with FarHosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


def said(launch):
    """For each rank: all that it said."""
    words = {}
    for rank, lines in lines_by_rank(launch.stdout).items():
        words[rank] = {}
        for line in lines:
            words[rank].update(json.loads(line))
    return words


def all_run(launch, ranks):
    """Waits until so many have joined."""
    until(lambda: len(re.findall('"joined"', launch.stdout)) == ranks, LIMIT, f"{ranks} ranks have joined: {launch.stdout}")


def test_each_host_has_its_ranks_and_all_is_shown_here(hosts, tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("host1 slots=2  # the first has the scheduler\nhost2:3\n")
    words = ["--hostfile", hostfile, "-n", "4", "-x", "COLOUR=blue sky", *node(SAYS)]
    with hosts.launch(*words, env={"NOT_PASSED": 1}, cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 0, launch.describe()
        words = said(launch)
        assert [words[rank]["rank"] for rank in range(4)] == [0, 1, 2, 3]
        assert [words[rank]["name"] for rank in range(4)] == ["host1", "host1", "host2", "host2"]
        for rank in range(4):
            assert words[rank]["hosts"] == [0, 1, 0, 1]
            assert (words[rank]["colour"], words[rank]["folder"], words[rank]["other"]) == ("blue sky", str(tmp_path), None)
            assert words[rank]["secret"] == 64, "the run has a secret of its own, which all hosts know"
        assert sorted(path.name for path in launch.logs.glob("*.log")) == ["scheduler.log", *(f"worker_{rank}.log" for rank in range(4))]
        launch.nothing_left(LIMIT)


def test_a_terminal_shows_how_far_forming_is_and_then_each_ranks_output_in_its_colour(hosts, tmp_path):
    late = node("""
        if os.environ["RANK_ID"] == "3":
            hold("go")
        c = join()
        print("hello from", c.rank, flush=True)
        hold("end")  # until the launcher has asked once more
        c.leave()
    """)
    words = hosts.command(0, [MUSTER, "run", f"--ssh={hosts.ssh}", "-H", "host1:2,host2:2", f"--log_dir={tmp_path}/logs",
                              "-x", f"HOLD_FOLDER={tmp_path}", *command_line(late)])
    with Terminal(["/usr/bin/env", *words]) as terminal:
        row = r"\r\x1b\[Kmuster: forming since [^\r]*: 3 of 4 workers have come; missing: rank 3; those that came: (?=[^\r]*host1)[^\r]*host2"
        terminal.wait_for(row, LIMIT)
        seen = len(terminal.said)
        terminal.wait_for(rf"(?s).{{{seen}}}.*{row}", LIMIT)  # it goes on
        assert "] muster: forming" not in terminal.said, "the row is not a line of a host"
        (tmp_path / "go").touch()
        terminal.wait_for(r"\r\x1b\[Kmuster: the cluster has formed\r\n", LIMIT)
        (tmp_path / "end").touch()
        assert terminal.wait(LIMIT) == 0
        colours = [re.search(rf"\x1b\[(\d+)m\[rank {rank}\]\x1b\[0m hello from {rank}\r\n", terminal.said) for rank in range(4)]
        assert len({colour[1] for colour in colours}) == 4


def test_the_digits_trainer_ends_with_equal_weights_on_both_hosts(hosts, tmp_path):
    with hosts.launch("-H", "host1:4,host2:4", EXAMPLES / "train_digits", "--epochs", "2", cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 0, launch.describe()
        reports = REPORT_LINE.findall(plain(launch.stdout))
        assert sorted(int(report[0]) for report in reports) == list(range(8))
        assert len({report[-1] for report in reports}) == 1, reports


def test_a_first_host_whose_own_name_leads_to_its_loopback_is_reached(hosts, tmp_path):
    """The host resolves its own name as on Debian; the others know its address."""
    words = ["-H", "host1:2,host2:2", *node("c = join(); c.world.barrier(); c.leave()")]
    with hosts.own_name("127.0.1.1"), hosts.launch("--cluster_time_out=40", *words, cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 0, launch.describe()
        assert f"[host1] muster: the scheduler is here: {hosts.addresses[0]} port" in launch.stderr
        assert len(said(launch)) == 4


def summary(launch):
    """What the launcher says of all hosts in the end."""
    lines = launch.stderr.splitlines()
    return [line for line in lines if not re.match(r"\[host\d\]", line)]


@pytest.mark.parametrize("end, code", [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_failure_is_told_first_and_by_host_and_ends_the_others(hosts, tmp_path, end, code):
    """All other ranks fail because of it, those of the scheduler's host, too; and each would say something else."""
    lines = f"""
        c = join()
        if c.rank == 3:
            {end}
        say(**fails(c.store_get, "nobody sets this"))
        os._exit(9)
    """
    with hosts.launch("-H", "host1:2,host2:2", *node(lines), cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == code, launch.describe()
        told = summary(launch)
        assert told[0] == "muster: host host2:"
        assert told[1].startswith("muster: first failure: worker 3 (pid "), told
        assert any(line.startswith("muster: the scheduler says: rank 3 (node id \"3\", host host2") for line in told), told
        assert len([line for line in told if "first failure" in line]) == 1, told
        assert "muster: then host host1: worker" in "\n".join(told)
        launch.nothing_left(LIMIT)


def test_one_that_ends_with_0_without_leaving_and_alone_on_its_host_is_told_first(hosts, tmp_path):
    """Its launcher has ended by then, and well."""
    lines = """
        c = join()
        if c.rank == 1:
            os._exit(0)
        say(**fails(c.store_get, "nobody sets this"))
        os._exit(9)
    """
    with hosts.launch("-H", "host1:1,host2:1", *node(lines), cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 1, launch.describe()
        told = summary(launch)
        assert told[0] == "muster: host host2:"
        # Or it has just heard from the scheduler that its worker is to blame.
        assert re.match(r'muster: first failure: (rank 1 \(node id "1", host host2|worker 1 \(pid \d+\) exited with code 0, )', told[1]), told
        launch.nothing_left(LIMIT)


def test_one_that_had_left_and_fails_is_told_first_and_not_who_was_stopped_for_it(hosts, tmp_path):
    """On a busy machine the scheduler's answer to the launcher's question can come too late: after the others are told to end."""
    leaves = node("c = join(); c.rank == 3 and (c.leave(), os._exit(6)); c.store_get('nobody sets this')")
    told = []
    for _ in range(3):
        with hosts.launch("-H", "host1:2,host2:2", *leaves, cwd=tmp_path) as launch:
            assert launch.wait(LIMIT) == 6, launch.describe()
            launch.nothing_left(LIMIT)
            told.append("\n".join(summary(launch)))
            if re.match(r"muster: host host2:\nmuster: first failure: worker 3 \(pid \d+\) exited with code 6", told[-1]) \
                    and "is lost" not in told[-1]:
                return
    pytest.fail("\n---\n".join(told))


def test_one_that_ends_with_0_without_joining_and_alone_on_its_host_ends_the_wait_of_the_others(hosts, tmp_path):
    lines = """
        if os.environ["RANK_ID"] == "1":
            hold("go")
            sys.exit()
        join()
    """
    with hosts.launch("-H", "host1:1,host2:1", "-x", f"HOLD_FOLDER={tmp_path}", *node(lines), cwd=tmp_path) as launch:
        launch.wait_for_log("scheduler.log", "forming since .*: 1 of 2 workers have come", LIMIT)
        (tmp_path / "go").touch()
        assert launch.wait(LIMIT) == 1, launch.describe()
        assert re.search(r"\[host2\] muster: worker 1 \(pid \d+\) exited with code 0 without joining the cluster, for which 1 other waits\n", launch.stderr)
        assert summary(launch)[0] == "muster: host host2:", launch.describe()
        launch.nothing_left(LIMIT)


def test_the_address_of_another_host_of_the_list_is_refused(hosts, tmp_path):
    with hosts.launch("-H", "host1,host2", f"--master_addr={hosts.addresses[1]}", *node(), cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 2, launch.describe()
        said = f'[host2] muster: --master_addr (if it is not given, the first host\'s name) is "{hosts.addresses[1]}", an address of this host, but'
        assert said in launch.stderr, launch.stderr
        launch.nothing_left(LIMIT)


def test_a_failure_of_a_program_that_does_not_look_at_the_cluster_ends_the_other_hosts(hosts, tmp_path):
    with hosts.launch("-H", "host1,host2", "--", "sh", "-c", '[ "$RANK" = 0 ] && exec sleep 600; exit 5', cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 5, launch.describe()
        assert "muster: then host host1" not in launch.stderr, "it was told to end"
        launch.nothing_left(LIMIT)


def test_a_program_that_never_joins_ends_as_well(hosts, tmp_path):
    with hosts.launch("-H", "host1,host2", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE", cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 0, launch.describe()
        assert lines_by_rank(launch.stdout) == {0: ["0 of 2"], 1: ["1 of 2"]}
        assert "all 2 workers ended with code 0, but no cluster ever formed" in launch.stderr


def test_only_chosen_ranks_are_shown_and_a_dry_run_shows_each_host(hosts, tmp_path):
    script = ["--", "sh", "-c", "echo here is $RANK"]
    with hosts.launch("-H", "host1:2,host2:2", "--tail_worker_log=1,2", *script, cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 0, launch.describe()
        assert lines_by_rank(launch.stdout) == {1: ["here is 1"], 2: ["here is 2"]}
    for more, shown in ([], [0, 1, 2, 3]), (["--sim_rank_id=3"], [3]):
        with hosts.launch("-H", "host1:2,host2:2", "--sim_level=1", *more, *script, cwd=tmp_path) as launch:
            assert launch.wait(LIMIT) == 0, launch.describe()
            assert sorted(int(rank) for rank in re.findall(r"^# worker (\d+)$", launch.stdout, re.M)) == shown
            assert "has pid" not in launch.stderr


def test_a_signal_reaches_all_hosts(hosts, tmp_path):
    with hosts.launch("-H", "host1:2,host2:2", *node(HOLDS), cwd=tmp_path) as launch:
        all_run(launch, 4)
        launch.signal(signal.SIGINT)
        assert launch.wait(LIMIT) == 130, launch.describe()
        assert summary(launch) == ["muster: stopped by signal 2; the processes on all hosts have ended"]
        launch.nothing_left(LIMIT)


def test_with_the_launcher_that_leads_all_ends(hosts, tmp_path):
    with hosts.launch("-H", "host1:2,host2:2", *node(HOLDS), cwd=tmp_path) as launch:
        all_run(launch, 4)
        workers = [pid for host in (0, 1) for pid in children_of(launch, host).values()]
        assert len(workers) == 4
        launch.kill()
        launch.wait(LIMIT)
        launch.nothing_left(LIMIT)


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_hosts_launcher_that_stands_still_is_ended_with_the_one_that_leads(hosts, tmp_path):
    """It hears no request."""
    with hosts.launch("-H", "host1:1,host2:1", *node(HOLDS), cwd=tmp_path) as launch:
        all_run(launch, 2)
        stop(parent_of(children_of(launch, 1)[1]))
        launch.kill()
        launch.wait(LIMIT)
        launch.nothing_left(LIMIT)


def test_where_a_host_is_not_reached_nothing_starts(hosts, tmp_path):
    mark = tmp_path / "started"
    with hosts.launch("-H", "host1,host3,host2,host4", "--", "touch", mark, cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 1, launch.describe()
        told = summary(launch)
        assert [line.split(":")[1] for line in told[:2]] == [" host host3", " host host4"], told
        assert told[2] == "muster: 2 of 4 hosts can't be used, so nothing was started"
        assert not mark.exists()
        launch.nothing_left(LIMIT)


def ssh_but_for_host3(hosts, folder, command):
    """A program in ssh's place that does this where it is to reach host3."""
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\n[ $1 = host3 ] && {command}\nexec {hosts.ssh} "$@"\n')
    ssh.chmod(0o755)
    return ssh


def test_a_host_that_does_not_answer_is_told_of_while_it_is_waited_for(hosts, tmp_path):
    with hosts.launch("-H", "host1,host3", "true", ssh=ssh_but_for_host3(hosts, tmp_path, "exec sleep 600"), cwd=tmp_path) as launch:
        launch.wait_for("muster: 1 of 2 hosts have not answered yet: host3; each has 60 s to answer", LIMIT)
        launch.signal(signal.SIGINT)
        assert launch.wait(LIMIT) == 130, launch.describe()
        launch.nothing_left(LIMIT)


def test_a_host_that_says_something_else_without_an_end_is_not_waited_for(hosts, tmp_path):
    with hosts.launch("-H", "host1,host3", "true", ssh=ssh_but_for_host3(hosts, tmp_path, "exec yes"), cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 1, launch.stderr[-1000:]
        assert "muster: host host3: what it says is not muster's" in launch.stderr
        launch.nothing_left(LIMIT)


def test_what_is_missing_on_the_hosts_is_told_by_host(hosts, tmp_path):
    with hosts.launch("-H", "host1,host2", "no-such-program", cwd=tmp_path) as launch:
        assert launch.wait(LIMIT) == 127, launch.describe()
        assert '[host1] muster: "no-such-program" was not found in PATH' in launch.stderr
        assert summary(launch)[0] == "muster: first failure: the launcher on host host1 exited with code 127"
        launch.nothing_left(LIMIT)


def test_a_host_that_is_this_one_needs_no_ssh(tmp_path):
    """Nothing on this machine is root's, or another program's."""
    name = os.uname().nodename
    with Launch("-H", f"{name}:2", "-x", "COLOUR=red", *node(SAYS), cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}) as launch:
        assert launch.wait(LIMIT) == 0, launch.describe()
        words = said(launch)
        assert [(words[rank]["colour"], words[rank]["size"]) for rank in (0, 1)] == [("red", 2)] * 2
        launch.nothing_left(LIMIT)


def test_a_slow_reader_gets_all_output(tmp_path):
    """It is far more than waits here for a reader: the rest waits on the host, also where all else there has ended."""
    numbers = 2_000_000
    expected = b"".join(b"[rank 0] %d\n" % number for number in range(1, numbers + 1))
    command = [MUSTER, "run", "-H", f"{os.uname().nodename}:1", f"--log_dir={tmp_path}/logs", "--", "seq", str(numbers)]
    shown = bytearray()
    with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path) as launcher:
        try:
            while len(shown) < len(expected) and select.select([launcher.stdout], [], [], LIMIT)[0]:
                piece = os.read(launcher.stdout.fileno(), 1 << 16)
                if not piece:
                    break
                shown += piece
                time.sleep(0.01)  # a slow reader: a busy machine only makes it slower
            assert launcher.wait(LIMIT) == 0
        finally:
            launcher.kill()
    assert len(shown) == len(expected) and shown == expected
