"""What not every machine has: the libraries with which the examples work, which `make frameworks` installs; and IPv6.

Where one may not be installed nothing else could stand in for it: its tests are skipped, each with the name of what is missing.
"""

import socket
import sys

import pytest

from cluster import EXAMPLES, TREE

sys.path.append(str(TREE / "scripts"))
import fetch_frameworks  # noqa: E402


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        return True
    except OSError:
        return False


# IPv6 may be switched off in the kernel. IPv4 is tested everywhere.
IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6 loopback address")


def example(name, framework):
    """The example's program, which is built where the framework is installed."""
    program = EXAMPLES / name
    if not program.exists():  # it is built against the framework's headers, which nothing stands in for
        assert not fetch_frameworks.is_there(framework), f"{framework} is installed, but examples/{name} was not built: make examples"
        pytest.skip(f"{framework} is not installed, and so examples/{name} was not built: make frameworks")
    return program


def folder_of_nvshmem():
    if not fetch_frameworks.is_there("NVSHMEM"):  # the plug-in itself is what the test loads
        pytest.skip("NVSHMEM's bootstrap plug-in is not here: make frameworks")
    return fetch_frameworks.NVSHMEM.parent


def python_with(framework):
    """The interpreter that has this package."""
    python = fetch_frameworks.python(framework)
    if python is None:  # the framework's own package is what the test runs
        pytest.skip(f"{framework} is not installed: make frameworks")
    return python
