"""The commands of docs/launching.md for one machine, for many hosts from one command, for each host, and with variables by hand,
pasted as a reader does it."""

import contextlib
import re
import shlex

import pytest

from cluster import Process, reserved_port
from many_hosts import LIMIT, FarHosts, plain
from pages import Page, paste, prepare
from test_train_digits import REPORT_LINE

PAGE = Page("docs", "launching.md")
BUILD, = PAGE.section("What all hosts need", "sh")
HERE, = PAGE.section("One machine", "sh")
FILE, WORDS = PAGE.section("Many hosts from one command", "sh")
EACH = PAGE.section("One command for each host", "sh")
BY_HAND = PAGE.section("Variables by hand", "sh")
OUTPUT, = PAGE.of("text")
# The tree is built, and `make build` takes minutes.
PATH = BUILD.removeprefix("make build\n")

over_hosts = [pytest.mark.launchers, pytest.mark.xdist_group("hosts")]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with FarHosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


def trained(*shells):
    """The ranks that have reported, and the weights with which they ended."""
    found = []
    for shell in shells:
        assert shell.wait(LIMIT) == 0, shell.describe()
        found += REPORT_LINE.findall(plain(shell.stdout))
    ranks, weights = sorted(int(report[0]) for report in found), {report[-1] for report in found}
    assert len(weights) == 1, found
    return ranks


def said_by_rank_0(text):
    """What the page promises, without what another processor may compute."""
    report, = re.findall(r"^rank 0 of 8: samples used: \d+", text, re.M)
    equal, = re.findall(r"^the weights of .*", text, re.M)
    return report, equal


def test_one_machine(tmp_path):
    with reserved_port() as port, paste(PATH + HERE, prepare(tmp_path), port) as shell:
        assert trained(shell) == [0, 1, 2, 3]


def on(hosts, host, commands, folder):
    """A shell on this host that finds the command, and the hosts' ssh."""
    lines = f"cd {shlex.quote(str(folder))}; export PATH={shlex.quote(str(hosts.folder))}:$PATH\n{PATH}{commands}"
    return Process(hosts.command(host, ["bash", "-euo", "pipefail", "-c", lines]), name=f"shell on host {host}")


@pytest.mark.parametrize("commands, ranks", [pytest.param(FILE, 8, marks=over_hosts), pytest.param(WORDS, 6, marks=over_hosts)])
def test_many_hosts_from_one_command(hosts, commands, ranks, tmp_path):
    with on(hosts, 0, commands, prepare(tmp_path)) as shell:
        assert trained(shell) == list(range(ranks))
        assert ranks != 8 or said_by_rank_0(OUTPUT) == said_by_rank_0(plain(shell.stdout))
        assert "[host2] muster: worker 4 has pid " in shell.stderr


def on_both(hosts, commands, folder):
    """A shell on each host, with a folder of its own. All ranks train. What each launcher said comes back."""
    with contextlib.ExitStack() as stack:
        shells = []
        for host, own in enumerate(commands):
            (folder / str(host)).mkdir()
            shells.append(stack.enter_context(on(hosts, host, own, prepare(folder / str(host)))))
        assert trained(*shells) == list(range(8))
        return [shell.stderr for shell in shells]


@pytest.mark.parametrize("how", [pytest.param("with --node_rank", marks=over_hosts), pytest.param("without", marks=over_hosts)])
def test_one_command_for_each_host(hosts, how, tmp_path):
    first, second = EACH if how != "without" else [EACH[0].replace("--node_rank 0 ", "")] * 2
    assert first.replace("--node_rank 0", "--node_rank 1") == second
    on_both(hosts, (first, second), tmp_path)


@pytest.mark.launchers
@pytest.mark.xdist_group("hosts")
def test_variables_by_hand(hosts, tmp_path):
    on_both(hosts, BY_HAND, tmp_path)


@pytest.mark.parametrize("place", [pytest.param("--node_rank 0 ", marks=over_hosts), pytest.param("", id="without", marks=over_hosts)])
def test_a_first_host_whose_own_name_leads_to_its_loopback_is_reached(hosts, place, tmp_path):
    """The host resolves its own name as on Debian; the other host knows its address."""
    first, second = (commands.replace("--node_rank 0 ", place) for commands in EACH)
    if not place:
        second = second.replace("--node_rank 1 ", "")
    with hosts.own_name("127.0.1.1"):
        told, _ = on_both(hosts, (first, second), tmp_path)
    assert f"muster: the scheduler is here: {hosts.addresses[0]} port" in told
