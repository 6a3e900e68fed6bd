"""Under real launchers: two jobs side by side do not mix, and the program may use MPI itself."""

import pytest

import mpi

pytestmark = pytest.mark.xdist_group("mpi")  # Open MPI's sessions are the user's


@pytest.fixture(params=mpi.LAUNCHERS)
def launcher(request):
    return mpi.demand(request.param)


def test_two_jobs_side_by_side_do_not_mix(launcher):
    mpi.pairs_do_not_mix(launcher, pairs=4)


@pytest.mark.parametrize("how", ["before", "after"])
def test_the_program_may_use_mpi_itself(launcher, how):
    """muster_init before and after MPI_Init: the launcher's own connection to the rank (PMI_FD, say) is the program's."""
    program = mpi.compiled(launcher, with_mpi=True)
    with mpi.Job(launcher, program, 7, ranks=2, how=how) as job:
        job.succeeds()


def test_a_job_of_one_rank_needs_nobody(launcher):
    program = mpi.compiled(launcher, with_mpi=False)
    with mpi.Job(launcher, program, 7, ranks=1) as one, mpi.Job(launcher, program, 8, ranks=1) as other:
        one.succeeds()
        other.succeeds()
