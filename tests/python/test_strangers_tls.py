"""A flood of TLS handshakes that come to nothing, at the scheduler's port and at a node's: no living node is suspected, and calls
go on."""

import contextlib
import re
import socket
import ssl
import threading

from attacks import each_is_told_once
from certificates import Certificates
from cluster import Cluster
from nodes import await_joined, listening_ports, node, said

LIMIT = 120
HELLOS = 3000  # at each port
FORGED = 500
AT_ONCE = 8
# A heartbeat every 0.4 s. The flood lasts for many time-outs.
TIMEOUT_SECONDS = 2

WORK = """
    c = join()
    rounds, over = 0, False
    while not over:
        over = c.world.allreduce([int(os.path.exists(os.environ["RELEASE"]))])[0] > 0
        rounds += 1
        if rounds % 100 == 0:
            say(rounds=rounds)
    say(failed=list(c.failed_ranks()), rounds=rounds)
    c.leave()
"""


def recorded_hello():
    """The first message of a client, as it goes out."""
    out = ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def says_hello(port, hello):
    """The other end signs its answer, and nobody goes on. Returns whether it has answered."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connected:
        connected.sendall(hello)
        return connected.recv(1) != b""
    return False  # it was put out to make room


def shows(port, context):
    """A certificate that names the right CA and is signed by another. Returns whether it was refused for that."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as plain, context.wrap_socket(plain) as connected:
            connected.recv(1)
    except ssl.SSLError as error:
        return "UNKNOWN_CA" in str(error).upper().replace(" ", "_") or "decrypt error" in str(error)
    except OSError:
        return False  # it was put out to make room
    return False


def flood(count, act):
    """So often, a few at once. What each returned."""
    returned, left = [], iter(range(count))
    lock = threading.Lock()

    def go_on():
        while True:
            with lock:
                if next(left, None) is None:
                    return
            returned.append(act())

    threads = [threading.Thread(target=go_on) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return returned


def rounds(worker):
    return max((int(count) for count in re.findall(r'"rounds": (\d+)', worker.stdout)), default=0)


def test_handshakes_that_come_to_nothing_make_no_living_node_suspected(tmp_path):
    files, forged = Certificates(tmp_path / "files"), Certificates(tmp_path / "forged")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(forged.folder / "client.pem")
    release = tmp_path / "release"
    env = {**files.env(), "MS_NODE_TIMEOUT": TIMEOUT_SECONDS, "RELEASE": release}
    with Cluster(node(WORK), workers=2, env=env) as cluster:
        await_joined(*cluster.workers, timeout=LIMIT)
        hello = recorded_hello()
        for process in (cluster.scheduler, cluster.workers[0]):
            port, = listening_ports(process.pid)
            before = rounds(cluster.workers[1])
            answered = flood(HELLOS, lambda port=port: says_hello(port, hello))
            assert sum(answered) > HELLOS / 2, f"{sum(answered)} of {HELLOS} were answered"
            refused = flood(FORGED, lambda port=port: shows(port, context))
            assert sum(refused) > FORGED / 2, f"{sum(refused)} of {FORGED} came as far as that"
            assert rounds(cluster.workers[1]) > before, "no call went on"
        release.touch()
        for worker in cluster.succeed(timeout=LIMIT):
            assert said(worker)["failed"] == [], said(worker)
        told = "".join(process.stderr for process in cluster.processes)
        assert not re.search("suspect|is lost|was lost|gave no sign|has been silent", told), told
        for process in (cluster.scheduler, cluster.workers[0]):
            each_is_told_once(process)
