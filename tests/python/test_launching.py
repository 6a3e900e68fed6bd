"""The commands of docs/launching.md for one machine, for many hosts from one command, and for each host, pasted as a reader does it."""

import contextlib
import shlex

import pytest

from cluster import Process, reserved_port
from many_hosts import LIMIT, FarHosts, plain
from pages import Page, paste, prepare
from test_train_digits import REPORT_LINE

PAGE = Page("docs", "launching.md")
HERE, = PAGE.section("One machine", "sh")
FILE, WORDS = PAGE.section("Many hosts from one command", "sh")
EACH = PAGE.section("One command for each host", "sh")
PATH = "export PATH=$PWD/target/release:$PATH\n"

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
        assert "[host2] muster: worker 4 has pid " in shell.stderr


@pytest.mark.parametrize("how", [pytest.param("with --node_rank", marks=over_hosts), pytest.param("without", marks=over_hosts)])
def test_one_command_for_each_host(hosts, how, tmp_path):
    first, second = EACH if how != "without" else [EACH[0].replace("--node_rank 0 ", "")] * 2
    assert first.replace("--node_rank 0", "--node_rank 1") == second
    folders = [prepare(folder) for folder in (tmp_path / "one", tmp_path / "two") if folder.mkdir() is None]
    with contextlib.ExitStack() as stack:
        shells = [stack.enter_context(on(hosts, host, commands, folders[host])) for host, commands in enumerate((first, second))]
        assert trained(*shells) == list(range(8))
