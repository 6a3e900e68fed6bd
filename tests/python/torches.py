"""PyTorch for the tests of muster.torch: which interpreter has it, and ranks of a short program. `make torch` installs it.

    with Ranks(python("2.15.0"), "say(rank=dist.get_rank())", ranks=2) as ranks:
        assert [said(rank)["rank"] for rank in ranks.succeed(timeout=60)] == [0, 1]

Ranks get what torchrun would give them, without torchrun. Where a torch may not be installed its tests are skipped by name.
"""

import json
import sys
import textwrap

import pytest

from cluster import TREE, Cluster, Process

sys.path.append(str(TREE / "scripts"))
import fetch_torch  # noqa: E402

PROGRAM = TREE / "tests" / "python" / "programs" / "torched.py"
TIMEOUT_S = 300  # torch alone takes ten seconds to load where processors are short


def python(version):
    """The interpreter that has this torch."""
    found = fetch_torch.python(version)
    if found is None:
        pytest.skip(f"torch {version} is not installed: make torch")
    return found


def on_path(folder):
    """A folder with a torchrun, for commands that a reader pastes. Torch's own script knows its interpreter by where it was installed."""
    folder.mkdir()
    script = folder / "torchrun"
    script.write_text(f"#!/bin/sh\nexec {python(fetch_torch.VERSIONS[-1])} -m torch.distributed.run \"$@\"\n")
    script.chmod(0o755)
    return folder


def said(process):
    """What a rank's program said, all of its lines together."""
    words = {}
    for line in process.stdout.splitlines():
        if line.startswith("{"):
            words.update(json.loads(line))
    return words


class Ranks(Cluster):
    """Ranks as torch's own launcher starts them: RANK, WORLD_SIZE, and an address for torch's store."""

    def __init__(self, interpreter, lines, env, ranks=2, words=()):
        program = [interpreter, PROGRAM, textwrap.dedent(lines), *words]
        super().__init__(program, workers=ranks, scheduler=False, started=0, keeps_port=True)
        self._ranks = ranks
        self._env_of_ranks = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": self.port, "WORLD_SIZE": ranks, **env}

    def __enter__(self):
        for rank in range(self._ranks):
            env = {**self._env_of_ranks, "RANK": rank, "LOCAL_RANK": rank}
            self.workers.append(Process(self.program, env, f"rank {rank}"))
        return self
