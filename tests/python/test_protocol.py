"""The second implementation against the golden bytes of docs/protocol.md, which the library's own tests hold to the library."""

import io
import pathlib
import re

import pytest

import wire

DOCUMENT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()


def golden(heading):
    """The first example bytes after `heading`."""
    found = re.search(r"^    ([0-9a-f]+)$", DOCUMENT[DOCUMENT.index(heading) :], re.MULTILINE)
    return bytes.fromhex(found[1])


def reader(data):
    return io.BytesIO(data).read


def test_register_has_the_documented_bytes():
    payload = wire.register(
        job_id="job",
        node_id="3",
        rank=3,
        incarnation=bytes(range(0x10, 0x20)),
        host=("a", "a/boot"),
        process=(812, 4711, 0xF0000001),
        addresses=[("10.0.0.1", 4000)],
        workers=4,
        instance=bytes(range(0x30, 0x40)),
        told=(2, 7, 3),
        device=5,
        device_ip="10.0.0.9",
        tokens=[bytes([2] * 32)],
        next_token=bytes([3] * 32),
        launch=bytes([4] * 16),
        derived_job="Open MPI 7",
    )
    assert payload == golden("**1 Register**")


def test_link_hello_has_the_documented_bytes():
    proof, incarnation = bytes(range(0x80, 0x90)), bytes(range(0x10, 0x20))
    assert wire.link_hello(1, 0, 1, 0, 1, incarnation, proof) == golden("**64 Hello**")


def test_rejected_is_read_as_documented():
    assert wire.rejected(golden("**2 Rejected**")) == (wire.ERR_REJECTED, 'job id "a", not "b"')


def test_formed_is_read_as_documented():
    formed = wire.formed(golden("**3 Formed**"))
    assert (formed["epoch"], formed["index"], formed["local_size"], formed["worker_num"]) == (1, 1, 2, 2)
    assert formed["secret"] == bytes(range(0x80, 0xA0))


def test_suspect_has_the_documented_bytes():
    assert wire.suspect(3, "its link ended") == golden("**10 Suspect**")


def test_child_ended_has_the_documented_bytes():
    payload = wire.child_ended(("a", "a/boot"), (812, 4711, 0xF0000001), killed=True, number=9, launch=bytes([4] * 16))
    assert payload == golden("**36 ChildEnded**")


def test_abandoned_has_the_documented_bytes():
    payload = wire.abandoned(("a", "a/boot"), [(812, 4711, 0xF0000001)], [bytes([4] * 16)])
    assert payload == golden("**37 Abandoned**")


def test_status_query_has_the_documented_bytes():
    assert wire.status_query() == golden("The payload of a question")


def test_frames_have_the_documented_bytes():
    documented = golden("The frame in which node 1 asks")
    assert wire.frame(17, golden("**17 Locate**"), node=1) == documented
    assert wire.read_frame(reader(documented)) == (17, 1, golden("**17 Locate**"))


def test_long_payloads_travel_in_pieces():
    encoded = wire.frame(33, bytes(wire.PIECE + 1), node=1)
    head, first, last = re.findall(r"^    ([0-9a-f]+)$", DOCUMENT, re.MULTILINE)[1:4]
    assert encoded[:24].hex() == head
    assert encoded[24 + wire.PIECE :].hex() == first + last
    assert wire.read_frame(reader(encoded)) == (33, 1, bytes(wire.PIECE + 1))


@pytest.mark.parametrize("at", range(32))
def test_damage_is_noticed(at):
    damaged = bytearray(golden("The frame in which node 1 asks"))
    damaged[at] ^= 0x10
    with pytest.raises(wire.Malformed):
        wire.read_frame(reader(bytes(damaged)))
