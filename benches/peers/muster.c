/* muster: times our collectives as mpi.c times those of an MPI, by the same loop.
 *
 *   muster run --worker_num N --local_worker_num N --master_port 0 --join True --tail_worker_log 0 muster_peer allreduce:8 barrier:0
 *
 * `muster bench` prints no mean, and no algorithm stands for a type of elements there: allreduce/bfloat16:8 is a plain sum out of
 * place, allreduce/bfloat16_exact:8 an exact one (float32, bfloat16, float64). Without a type it is float32, a sum in place.
 */
#include "timed.h"

#include <muster.h>

#include <stdint.h>

static muster_cluster_t *cluster;
static muster_group_t *world;

static void ok(muster_status_t status) {
    if (status >= 0) return;
    fprintf(stderr, "rank %d: %s\n", rank, muster_last_error());
    give_up();
}

static int dtype_of(const char *name) {
    if (strncmp(name, "bfloat16", 8) == 0) return MUSTER_BFLOAT16;
    return strncmp(name, "float64", 7) == 0 ? MUSTER_FLOAT64 : MUSTER_FLOAT32;
}

static size_t bytes_of(int dtype) { return dtype == MUSTER_BFLOAT16 ? 2 : dtype == MUSTER_FLOAT64 ? 8 : 4; }

/* Numbers as gradients are: of either sign, and of like size. */
static void fill_typed(const struct bench_case *what) {
    int dtype = dtype_of(what->algorithm);
    uint64_t state = (uint64_t)rank * 7919 + 1;
    for (size_t at = 0; at < what->bytes / bytes_of(dtype); at++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double value = (double)(int64_t)state / 0x1p63 * (1 << (state >> 20 & 7));
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        uint16_t half = (uint16_t)(bits >> 16);
        if (dtype == MUSTER_FLOAT64) memcpy((double *)(void *)input + at, &value, sizeof value);
        else if (dtype == MUSTER_FLOAT32) input[at] = narrow;
        else memcpy((uint16_t *)(void *)input + at, &half, sizeof half);
    }
}

static void sum(const struct bench_case *what) {
    if (is_in_place(what)) {
        ok(muster_allreduce(world, output, output, what->bytes / sizeof(float), MUSTER_FLOAT32, MUSTER_SUM));
        return;
    }
    int dtype = dtype_of(what->algorithm), op = strstr(what->algorithm, "_exact") ? MUSTER_SUM_EXACT : MUSTER_SUM;
    ok(muster_allreduce(world, input, output, what->bytes / bytes_of(dtype), dtype, op));
}

static void call(const struct bench_case *what, size_t nth) {
    size_t count = what->bytes / sizeof(float);
    if (is(what, "allreduce"))
        sum(what);
    else if (is(what, "allgather"))
        ok(muster_allgather(world, input, output, count, MUSTER_FLOAT32));
    else if (is(what, "reduce_scatter"))
        ok(muster_reduce_scatter(world, input, output, count, MUSTER_FLOAT32, MUSTER_SUM));
    else if (is(what, "broadcast"))
        ok(muster_broadcast(world, output, count, MUSTER_FLOAT32, (int32_t)(nth % (size_t)ranks)));
    else
        ok(muster_barrier(world));
}

static void meet(void) { ok(muster_barrier(world)); }

static double of_rank_0(double mine) {
    ok(muster_broadcast(world, &mine, 1, MUSTER_FLOAT64, 0));
    return mine;
}

static void gather_times(struct case_times mine, struct case_times *all) { ok(muster_allgather(world, &mine, all, 2, MUSTER_FLOAT64)); }

static void give_up(void) { exit(2); }

static int known(const struct bench_case *what) {
    const char *types[] = {"float32", "bfloat16", "float64"};
    char exact[40];
    if (what->algorithm[0] == 0) return case_known(what);
    for (size_t i = 0; is(what, "allreduce") && i < sizeof types / sizeof *types; i++) {
        snprintf(exact, sizeof exact, "%s_exact", types[i]);
        if (strcmp(what->algorithm, types[i]) == 0 || strcmp(what->algorithm, exact) == 0) return what->bytes % 8 == 0;
    }
    return 0;
}

int main(int argc, char **argv) {
    muster_status_t status = muster_init(NULL, &cluster);
    if (status != MUSTER_OK) return status < 0; /* the scheduler's process ends here, too */
    world = muster_world(cluster);
    rank = muster_rank(cluster), ranks = muster_size(cluster);
    measure_all(argc, argv, known);
    ok(muster_finalize(cluster));
    muster_cluster_free(cluster);
    return 0;
}
