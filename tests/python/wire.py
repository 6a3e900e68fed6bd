"""A small second implementation of the control plane, made from docs/protocol.md: enough to speak to a scheduler by hand.

    with wire.connect(port) as stranger:
        stranger.send(wire.REGISTER, wire.register(protocol=(7, 9)))
        kind, payload = stranger.receive(timeout=5)
        assert wire.rejected(payload) == (wire.ERR_REJECTED, "...")
"""

import functools
import hashlib
import hmac
import os
import socket
import struct
import zlib

MAGIC = b"MUST"
VERSION = 1
HEADER = struct.Struct("<4sBBHIQ")  # the checksum follows
PIECE = 262_144

REGISTER, REJECTED, FORMED, HEARTBEAT, HEARTBEAT_ECHO = 1, 2, 3, 4, 5
LEAVE, BYE, SUSPECT, PEER_REPORT, VERDICT = 8, 9, 10, 11, 12
STATUS_QUERY, STATUS_PART = 30, 31
STORE_BEGIN, STORE_PIECE, STORE_CANCEL, STORE_REPLY = 32, 33, 34, 35
CHILD_ENDED, ABANDONED = 36, 37
LINK_HELLO, LINK_ACCEPT, LINK_REJECT, DATA, MESSAGE, KEEP_ALIVE = 64, 65, 66, 67, 70, 71
PROOF_ASK, PROOF_CHALLENGE, PROOF = 80, 81, 82
WORKER, SERVER = 1, 2
LINK_STRANGER = 2  # why a LinkReject
STORE_SET, STORE_GET = 1, 2
STORE_CHECK, STORE_COUNT, STORE_LIST, STORE_APPEND, STORE_MULTI_SET, STORE_MULTI_GET, STORE_TRY_MULTI_GET = range(8, 15)
ERR_INVALID, ERR_LIMIT, ERR_NOT_FOUND, ERR_REJECTED, ERR_FENCED = -1, -5, -6, -7, -18
NONE = 0xFFFFFFFF  # no operation


class Malformed(Exception):
    """Bytes that are not this protocol."""


def checksum(data):
    return struct.pack("<I", zlib.crc32(data))


def header(kind, length, node=0, flags=0):
    fields = HEADER.pack(MAGIC, VERSION, kind, flags, node, length)
    return fields + checksum(fields)


def frame(kind, payload=b"", node=0):
    pieces = (payload[at : at + PIECE] for at in range(0, len(payload), PIECE))
    return header(kind, len(payload), node) + b"".join(piece + checksum(piece) for piece in pieces)


def text(value):
    data = value.encode()
    return struct.pack("<H", len(data)) + data


def option(encoded):
    return b"\0" if encoded is None else b"\1" + encoded


def address(host, port):
    if ":" in host:
        return b"\6" + socket.inet_pton(socket.AF_INET6, host) + struct.pack("<H", port)
    return b"\4" + socket.inet_pton(socket.AF_INET, host) + struct.pack("<H", port)


def register(
    protocol=(1, 1),
    features=0,
    version="0.1.0",
    job_id=None,
    role=WORKER,
    node_id="",
    node_id_given=True,
    rank=None,
    incarnation=None,
    host=("by-hand", "by-hand/0"),
    process=(1, 1, 1),
    addresses=(("127.0.0.1", 9),),
    workers=1,
    servers=0,
    recovery=False,
    instance=None,
    told=(0, 0, 0),
    device=None,
    device_ip=None,
    tokens=(),
    next_token=None,
    launch=None,
    derived_job=None,
):
    """The payload of a Register."""
    return b"".join(
        [
            struct.pack("<HHQ", *protocol, features),
            text(version),
            option(None if job_id is None else text(job_id)),
            struct.pack("<B", role),
            text(node_id),
            struct.pack("<?", node_id_given),
            option(None if rank is None else struct.pack("<I", rank)),
            os.urandom(16) if incarnation is None else incarnation,
            text(host[0]),
            text(host[1]),
            struct.pack("<IQQ", *process),
            struct.pack("<I", len(addresses)),
            *(address(*each) for each in addresses),
            struct.pack("<II?", workers, servers, recovery),
            option(instance),
            struct.pack("<QQI", *told),
            option(None if device is None else struct.pack("<I", device)),
            option(None if device_ip is None else address(device_ip, 0)[:-2]),
            option(None if next_token is None else struct.pack("<I", len(tokens)) + b"".join(tokens) + next_token),
            option(launch),
            option(None if derived_job is None else text(derived_job)),
        ]
    )


def registered(payload):
    """Node id and incarnation of a Register."""
    at = 12

    def take(count):
        nonlocal at
        at += count
        return payload[at - count:at]

    def take_text():
        return take(int.from_bytes(take(2), "little")).decode()

    take_text()  # the version
    if take(1) == b"\1":
        take_text()  # the job id
    take(1)  # the role
    node_id = take_text()
    take(1)
    if take(1) == b"\1":
        take(4)  # the rank
    return node_id, take(16)


def heartbeat(sequence, echoed=0, carriers=()):
    """The payload of a Heartbeat of a node that waits for nothing; `carriers` are groups, each with a number and words."""
    listed = b"".join(struct.pack("<IB", group, carrier) + text(words) for group, carrier, words in carriers)
    told = struct.pack("<I", len(carriers)) + listed if carriers else b""
    return struct.pack("<QQIII", sequence, echoed, 0, 0, 0) + told


def parts(*values):
    """Several byte strings as one value of the store."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def parts_of(value):
    """The byte strings of such a value."""
    values = []
    while value:
        (length,) = struct.unpack_from("<I", value)
        values.append(value[4:4 + length])
        value = value[4 + length:]
    return values


def store_begin(request, operation, *keys, value_bytes=0):
    """The payload of a StoreBegin."""
    numbers = struct.pack("<QQBI", request, 0, operation, len(keys))
    return numbers + parts(*keys) + struct.pack("<qQQ", 0, 0, value_bytes)


def store_piece(request, data):
    """The payload of a StorePiece."""
    return struct.pack("<QI", request, len(data)) + data


def store_reply(payload):
    """Request, status and reason of a StoreReply."""
    request, status, length = struct.unpack_from("<QiH", payload)
    return request, status, payload[14:14 + length].decode()


def store_numbers(payload):
    """Number, change and value bytes of a StoreReply."""
    (length,) = struct.unpack_from("<H", payload, 12)
    return struct.unpack_from("<qQQ", payload, 14 + length)


def store_bytes(payload):
    """Request and bytes of a StorePiece."""
    request, length = struct.unpack_from("<QI", payload)
    return request, payload[12:12 + length]


def suspect(peer, evidence):
    """The payload of a Suspect."""
    return struct.pack("<I", peer) + text(evidence)


def child_ended(host, process, killed, number, launch=None):
    """The payload of a ChildEnded."""
    ended = struct.pack("<IQQBi", *process, 2 if killed else 1, number)
    return text(host[0]) + text(host[1]) + ended + option(launch)


def abandoned(host, processes, launches=()):
    """The payload of an Abandoned."""
    listed = b"".join(struct.pack("<IQQ", *process) for process in processes)
    known = struct.pack("<I", len(launches)) + b"".join(launches)
    return text(host[0]) + text(host[1]) + struct.pack("<I", len(processes)) + listed + known


def status_query(protocol=(1, 1)):
    """The payload of a StatusQuery."""
    return struct.pack("<HH", *protocol)


FORMED_HEAD = struct.Struct("<16sQQIIIIII32s")


def formed(payload):
    """The beginning of a Formed, by name."""
    names = "instance generation epoch index rank local_rank local_size worker_num server_num secret"
    return dict(zip(names.split(), FORMED_HEAD.unpack_from(payload)))


def link_hello(epoch, group, channel, dialler, wanted, incarnation, proof, features=0):
    """The payload of a LinkHello; incarnation and proof have 16 bytes each."""
    return struct.pack("<QIBII", epoch, group, channel, dialler, wanted) + incarnation + proof + struct.pack("<Q", features)


def elements(data, size):
    """The number of the element type, which a call also signs, and the count: of uint8, or of own elements of this size."""
    count = len(data) // size
    return (4, 4, count) if size == 1 else (12, 0x100000 + size, size - 1 << 48 | count)


def broadcast_of_bytes(epoch, sequence, root, data, size=1):
    """A Data frame on world: all of a broadcast of so many uint8, or own elements of this size."""
    dtype, signed, count = elements(data, size)
    call = struct.pack("<BBI?IQQ", 2, dtype, NONE, True, root, count, 0)
    signature = 0xCBF29CE484222325
    for byte in struct.pack("<6Q", 2, signed, NONE, root, len(data) // size, 0):
        signature = (signature ^ byte) * 0x100000001B3 % 2**64
    return behind_header(DATA, struct.pack("<QIQQ", epoch, 0, sequence, signature) + call, data)


def eager_bytes(epoch, number, data, size=1):
    """A Message frame on world: so many uint8, or own elements of this size, tag 0."""
    dtype, _, count = elements(data, size)
    return behind_header(MESSAGE, struct.pack("<QIBBiQQ", epoch, 0, 1, dtype, 0, number, count), data)


def behind_header(kind, fields, data):
    fields = fields.ljust(60, b"\0")
    return header(kind, len(data)) + fields + checksum(fields) + data + checksum(data)


def rejected(payload):
    """Status and reason of a Rejected."""
    status, length = struct.unpack_from("<iH", payload)
    reason = payload[6 : 6 + length]
    if len(payload) != 6 + length:
        raise Malformed(f"a Rejected of {len(payload)} bytes with a reason of {length}")
    return status, reason.decode()


def read_frame(read):
    """Kind, node and payload of the next frame; `read(n)` gives exactly n bytes."""
    fields = read(HEADER.size)
    if read(4) != checksum(fields):
        raise Malformed("a frame header with a wrong checksum")
    magic, version, kind, flags, node, length = HEADER.unpack(fields)
    if (magic, version, flags) != (MAGIC, VERSION, 0):
        raise Malformed(f"a frame with magic {magic!r}, version {version}, flags {flags}")
    payload = b""
    while len(payload) < length:
        piece = read(min(PIECE, length - len(payload)))
        if read(4) != checksum(piece):
            raise Malformed("a piece with a wrong checksum")
        payload += piece
    return kind, node, payload


SECRET_LABEL = b"muster job secret, version 1: "


def mac(secret, label, *parts):
    """An HMAC under a job's secret."""
    return hmac.new(secret.encode(), SECRET_LABEL + label + b"".join(parts), hashlib.sha256).digest()


def epoch_secret(secret, instance, epoch):
    """What stands in an epoch's secret's place where the job has a secret."""
    return mac(secret, b"epoch", instance, struct.pack("<Q", epoch))


def link_mac(secret, hello):
    """What makes the proofs of a link that begins with this Hello."""
    epoch, mark = hello[:8], hello[-24:-8]
    key = mac(secret, b"link", mark, epoch)
    return lambda label, *parts: hmac.new(key, SECRET_LABEL + label + b"".join(parts), hashlib.sha256).digest()


class Connection:
    """A TCP connection that speaks in frames."""

    def __init__(self, connected):
        self.socket = connected

    def send(self, kind, payload=b"", node=0):
        self.socket.sendall(frame(kind, payload, node))

    def prove(self, secret, kind, payload=b"", timeout=5):
        """The first message of one that knows this job secret. Returns what checks the proof behind the answer."""
        nonce, first = os.urandom(32), frame(kind, payload)
        self.send(PROOF_ASK, nonce)
        answer, theirs = self.receive(timeout)
        if answer != PROOF_CHALLENGE:
            raise Malformed(f"a message of kind {answer} in place of a challenge")
        proof = link_mac(secret, payload) if kind == LINK_HELLO else functools.partial(mac, secret)
        own = proof(b"the dialler's first message", nonce, theirs, first)
        self.socket.sendall(first + frame(PROOF, own))

        def is_proved_by(kind, payload, shown):
            return shown == proof(b"the accepter's first message", nonce, theirs, own, frame(kind, payload))

        return is_proved_by

    def receive(self, timeout):
        """Kind and payload of the next frame. EOFError when the connection ends, TimeoutError when nothing comes."""
        self.socket.settimeout(timeout)
        kind, _, payload = read_frame(self._exactly)
        return kind, payload

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the connection has ended")
            data += more
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def connect(port, host="127.0.0.1", timeout=5):
    return Connection(socket.create_connection((host, port), timeout=timeout))
