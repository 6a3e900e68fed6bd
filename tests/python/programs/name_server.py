"""A name server over UDP: it answers with the addresses that a file names, which it reads again for each question.

    name_server.py ADDRESS FILE        the file: {"sched.test": ["10.77.0.1", "fd77::1"]}; a name that is not there does not exist
"""

import ipaddress
import json
import pathlib
import socket
import struct
import sys

PORT, HEADER, TYPES = 53, 12, {1: 4, 28: 6}
RESPONSE, NO_SUCH_NAME = 0x8580, 3


def question(packet):
    """The name, the type, and the bytes of the question."""
    labels, at = [], HEADER
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    kind, _ = struct.unpack("!HH", packet[at + 1:at + 5])
    return ".".join(labels).lower(), kind, packet[HEADER:at + 5]


def answer(packet, names):
    name, kind, asked = question(packet)
    found = [ipaddress.ip_address(text) for text in names.get(name, [])]
    found = [address.packed for address in found if address.version == TYPES.get(kind)]
    flags = RESPONSE | (0 if name in names else NO_SUCH_NAME)
    records = b"".join(struct.pack("!HHHIH", 0xC000 | HEADER, kind, 1, 0, len(raw)) + raw for raw in found)
    return packet[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0) + asked + records


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], PORT))
    print("answers", flush=True)
    while True:
        packet, client = server.recvfrom(4096)
        print("asked for", question(packet)[0], flush=True)
        server.sendto(answer(packet, json.loads(pathlib.Path(sys.argv[2]).read_text())), client)


if __name__ == "__main__":
    main()
