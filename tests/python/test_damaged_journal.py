"""The scheduler's journal is damaged while no scheduler runs. In the middle: the next one says where, ends, and touches nothing.
At its end, as by a crash in the middle of a write: that is cut off, with a line, and the job goes on with all that was promised."""

import struct

from cluster import MUSTER
from nodes import node, said
from recovering import LIMIT_SECONDS, Recovering

# The code of `muster scheduler --help`: it could not serve the job.
UNABLE = 4
WRITES = 12
HEAD_BYTES = 28
RECORD_HEAD = struct.Struct("<QQII")
MARK = 0xFFFFFFFF

LINES = f"""
    c = join()
    for number in range({WRITES}):
        c.store_set(f"{{c.rank}}/{{number}}", b"%d" % number * 100)
    c.world.barrier()
    say(has_written=True)
    hold("go")
    for rank in range(c.size):
        for number in range({WRITES}):
            assert c.store_get(f"{{rank}}/{{number}}", 0) == b"%d" % number * 100, (rank, number)
    say(found=True)
    c.leave()
"""


def records(journal):
    """Offset, synced offset and length of each, in order, as src/journal/record.rs lays them out."""
    at = HEAD_BYTES
    while at < len(journal):
        offset, synced, length, _ = RECORD_HEAD.unpack_from(journal, at)
        assert offset == at
        length = 0 if length == MARK else length
        yield offset, synced, length
        at += RECORD_HEAD.size + length


def flipped(journal, at):
    return journal[:at] + bytes([journal[at] ^ 0x40]) + journal[at + 1 :]


def test_it_is_refused_where_what_was_promised_is_damaged_and_goes_on_without_what_was_not(tmp_path):
    with Recovering(node(LINES), workers=2, folder=tmp_path, scheduler=[MUSTER, "scheduler"]) as job:
        job.await_all("has_written")
        job.lose_scheduler()
        path = job.recovery / "scheduler.journal"
        whole = path.read_bytes()
        all_of_it = list(records(whole))
        proven = [offset for offset, _, length in all_of_it if length and offset < all_of_it[-1][1]]
        middle = proven[len(proven) // 2]
        damages = {
            middle: flipped(whole, middle + RECORD_HEAD.size + 3),
            proven[-1]: flipped(whole, proven[-1] + 17),  # its length
            proven[0]: flipped(whole, proven[0] + RECORD_HEAD.size),
        }
        for offset, damaged in damages.items():
            path.write_bytes(damaged)
            scheduler = job.start_scheduler()
            assert scheduler.wait(LIMIT_SECONDS) == UNABLE
            assert f"the journal {path} is damaged at offset {offset}" in scheduler.stderr, scheduler.stderr
            assert path.read_bytes() == damaged
        torn = b"\x17" * 37
        path.write_bytes(whole + torn)
        job.start_scheduler()
        words = f"{path}: {len(torn)} bytes at offset {len(whole)} were being written when the scheduler ended, and are cut off"
        job.let("go")
        for worker in job.workers:
            assert worker.wait(LIMIT_SECONDS) == 0, worker.describe()
            assert said(worker)["found"]
        assert job.scheduler.wait(LIMIT_SECONDS) == 0
        assert words in job.scheduler.stderr, job.scheduler.stderr
