/* openmpi: times Open MPI's collectives as `muster bench` times ours.
 *
 *   mpirun -n N openmpi allreduce:8 allgather:65536 broadcast:128 barrier:0
 *
 * Float32; allreduce is a sum in place, broadcast has each rank as root in turn. The first result of each case is checked.
 * Prints a line per case: collective, ranks, bytes per rank, iterations, median on rank 0, median on the slowest rank.
 */
#include "case.h"

#include <mpi.h>

static int rank, ranks;
static float *input, *output;

static void call(const struct bench_case *what, size_t nth) {
    int count = (int)(what->bytes / sizeof(float));
    if (strcmp(what->name, "allreduce") == 0)
        MPI_Allreduce(MPI_IN_PLACE, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(what->name, "allgather") == 0)
        MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, MPI_COMM_WORLD);
    else if (strcmp(what->name, "broadcast") == 0)
        MPI_Bcast(output, count, MPI_FLOAT, (int)(nth % (size_t)ranks), MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
}

static int known(const struct bench_case *what) {
    const char *names[] = {"allreduce", "allgather", "broadcast", "barrier"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(what->name, names[i]) == 0) return what->algorithm[0] == 0;
    return 0;
}

static size_t output_count(const struct bench_case *what) {
    size_t count = what->bytes / sizeof(float);
    return strcmp(what->name, "allgather") == 0 ? count * (size_t)ranks : count;
}

static void fill(const struct bench_case *what) {
    size_t count = what->bytes / sizeof(float), all = output_count(what);
    int is_input = strcmp(what->name, "allreduce") == 0 || (strcmp(what->name, "broadcast") == 0 && rank == 0);
    for (size_t i = 0; i < count; i++) input[i] = case_value(rank, i);
    for (size_t i = 0; i < all; i++) output[i] = is_input ? case_value(rank, i) : 99;
}

static float expected(const struct bench_case *what, size_t at) {
    size_t count = what->bytes / sizeof(float);
    if (strcmp(what->name, "allreduce") == 0) return case_sum(ranks, at);
    if (strcmp(what->name, "allgather") == 0) return case_value((int)(at / count), at % count);
    return case_value(0, at);
}

static void check(const struct bench_case *what) {
    for (size_t i = 0; i < output_count(what); i++) {
        if (output[i] == expected(what, i)) continue;
        fprintf(stderr, "%s of %zu bytes: element %zu is %g on rank %d\n", what->name, what->bytes, i, output[i], rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void measure(const struct bench_case *what) {
    fill(what);
    call(what, 0);
    check(what);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = case_now_us();
    for (size_t nth = 0; nth < CASE_WARM_UP; nth++) call(what, nth);
    double guess = case_iterations((case_now_us() - begun) / CASE_WARM_UP);
    MPI_Bcast(&guess, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    size_t iterations = (size_t)guess;
    double *took = malloc(iterations * sizeof *took), *all = malloc((size_t)ranks * sizeof *all);
    if (!took || !all) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t nth = 0; nth < iterations; nth++) {
        begun = case_now_us();
        call(what, nth);
        took[nth] = case_now_us() - begun;
    }
    double mine = case_median(took, iterations);
    MPI_Gather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) case_print(what->name, ranks, what->bytes, iterations, all);
    free(took);
    free(all);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t in = 0, out = 0;
    struct bench_case what;
    for (int i = 1; i < argc; i++) {
        if (!case_of(argv[i], &what) || !known(&what)) {
            fprintf(stderr, "%s is no case: expected collective:bytes, as allreduce:8\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        in = what.bytes > in ? what.bytes : in;
        out = output_count(&what) * sizeof(float) > out ? output_count(&what) * sizeof(float) : out;
    }
    input = calloc(1, in + 1);
    output = calloc(1, out + 1);
    if (!input || !output) MPI_Abort(MPI_COMM_WORLD, 1);
    if (rank == 0) case_print_head();
    for (int i = 1; i < argc; i++)
        if (case_of(argv[i], &what)) measure(&what);
    MPI_Finalize();
    return 0;
}
