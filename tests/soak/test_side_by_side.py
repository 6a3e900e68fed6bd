"""Two jobs of one launcher, side by side, fifty times."""

import pytest

import mpi

PAIRS = 50


@pytest.mark.parametrize("launcher", mpi.LAUNCHERS)
def test_fifty_pairs_of_jobs_do_not_mix(launcher):
    mpi.pairs_do_not_mix(mpi.demand(launcher), PAIRS)
