/* mpi: times the collectives of an MPI (Open MPI, MPICH, Intel MPI) as `muster bench` times ours.
 *
 *   mpirun -n N mpi allreduce:8 allgather:65536 broadcast:128 reduce_scatter:8 barrier:0
 *
 * Float32; allreduce is a sum in place, broadcast has each rank as root in turn. The first result of each case is checked.
 * Prints a line per case: collective, ranks, bytes per rank, iterations, median on rank 0 and on the slowest rank, mean on rank 0
 * and on the slowest rank. BENCH_SECONDS says for how long a case is timed (0.25).
 */
#include "timed.h"

#include <mpi.h>

static void call(const struct bench_case *what, size_t nth) {
    int count = (int)(what->bytes / sizeof(float));
    if (is(what, "allreduce"))
        MPI_Allreduce(MPI_IN_PLACE, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (is(what, "allgather"))
        MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, MPI_COMM_WORLD);
    else if (is(what, "reduce_scatter"))
        MPI_Reduce_scatter_block(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (is(what, "broadcast"))
        MPI_Bcast(output, count, MPI_FLOAT, (int)(nth % (size_t)ranks), MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

static void fill_typed(const struct bench_case *what) { (void)what; /* MPI has no such case */ }

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

static double of_rank_0(double mine) {
    MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return mine;
}

static void gather_times(struct case_times mine, struct case_times *all) {
    MPI_Gather(&mine, 2, MPI_DOUBLE, all, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void give_up(void) { MPI_Abort(MPI_COMM_WORLD, 2); }

static int known(const struct bench_case *what) { return case_known(what) && what->algorithm[0] == 0; }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    measure_all(argc, argv, known);
    MPI_Finalize();
    return 0;
}
