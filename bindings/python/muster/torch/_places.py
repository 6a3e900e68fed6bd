"""Where the ranks of other hosts find rank 0's host, whose own name may lead to its loopback (docs/networking.md).

The rule is the library's, `beyond_loopback` of net/interface.rs; but of a host without a route to others it finds addresses of IPv4
alone. The library cannot apply it here: it is told roles and ranks, and so does not ask torch's launcher whether there are other hosts.
"""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import warnings
from typing import Any, Iterator, List, Optional

# No host has these addresses, which are for documentation: only a default route leads there.
_ANYWHERE = ("192.0.2.1", "2001:db8::1")
# Linux's ioctls on an interface, and its flags: up, with a carrier, and not the loopback.
_SIOCGIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8915
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40


def towards_others(host: str, size: int, binds: bool = False) -> str:
    """An address in place of a name that leads this host to its loopback, if there are ranks on other hosts; else the host as it is.

    With `binds` the scheduler binds it, and a warning tells of an address that the name does not have.
    """
    if not _has_other_hosts(size) or host.lower() == "localhost" or _is_address(host):
        return host
    found = _addresses(host)
    beyond = [address for address in found if not _is_loopback(address)]
    if len(beyond) == len(found):
        return host
    if beyond:
        return next((address for address in beyond if _own_towards(address) == address), beyond[0])
    usual = _usual()
    if usual is None:
        return host
    if binds:
        warnings.warn(
            f'the scheduler\'s host is "{host}", which leads this host to {", ".join(found)}, and ranks of other hosts can\'t come to its '
            f"loopback: the scheduler binds {usual}; if they don't find it there, set MUSTER_SCHED_HOST to this host's address",
            RuntimeWarning,
        )
    return usual


def _has_other_hosts(size: int) -> bool:
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return local.isdecimal() and int(local) < size


def is_loopback(host: str) -> bool:
    """Whether it is an address of a loopback."""
    return _is_address(host) and _is_loopback(host)


def own_loopback() -> str:
    """What the processes have in common that reach each other by the loopback: the host's start, and the network namespace.

    Nothing where the system does not tell.
    """
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as start:
        return f"{start.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _addresses(name: str) -> List[str]:
    """Those for which the name stands here. None where it is unknown: what is wrong with it the library says."""
    try:
        return list(dict.fromkeys(_numeric(found[4]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)))
    except (OSError, UnicodeError):
        return []


def _numeric(place: Any) -> str:
    """The address of a socket's place, with its scope."""
    return socket.getnameinfo(place, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]


def _own_towards(address: str) -> Optional[str]:
    """This host's address from which packets to that one leave. None is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((address, 9))  # a port is needed, and any will do
        return _numeric(asking.getsockname())
    return None


def _usual() -> Optional[str]:
    """The address that this host uses towards any other host. None where it has its loopback alone."""
    routed = filter(None, map(_own_towards, _ANYWHERE))
    return next((address for address in (*routed, *_listed()) if not _is_loopback(address)), None)


def _listed() -> Iterator[str]:
    """The addresses of the interfaces that are up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s24x", name.encode())
            with contextlib.suppress(OSError):  # it has no address
                flags, = struct.unpack_from("H", fcntl.ioctl(asking, _SIOCGIFFLAGS, request), 16)
                address = socket.inet_ntoa(fcntl.ioctl(asking, _SIOCGIFADDR, request)[20:24])
                if flags & (_UP | _RUNNING | _LOOPBACK) == _UP | _RUNNING:
                    yield address
