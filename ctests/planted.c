/* Faults that must be found: `make sanitize` runs each alone, and passes only if it is reported. Not a test of the
 * library, and built for nothing else. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <stdlib.h>
#include <time.h>

enum { SIZE = 3, COUNT = 100000 };

static long counted = 0;

/* Called by the threads of all ranks, with no lock. */
static void count_and_add(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    const int32_t *low = in;
    int32_t *high = inout;
    (void)dtype, (void)ctx;
    for (size_t i = 0; i < count; i++) {
        high[i] += low[i];
    }
    counted++;
}

static void callback_race(muster_cluster_t *cluster, int index, void *context) {
    int32_t op = 0, value = index;
    (void)context;
    CHECK_OK(muster_op_create(cluster, count_and_add, NULL, 1, &op));
    CHECK_OK(muster_allreduce(muster_world(cluster), &value, &value, 1, MUSTER_INT32, op));
    CHECK_OK(muster_op_free(cluster, op));
}

/* The caller writes what the library reads. It waits for nothing meanwhile: a waiting caller carries the call out itself. */
static void buffer_race(muster_cluster_t *cluster, int index, void *context) {
    int32_t *in = calloc(COUNT, sizeof *in), *out = calloc(COUNT, sizeof *out);
    muster_request_t *request = NULL;
    (void)context;
    CHECK_OK(muster_iallreduce(muster_world(cluster), in, out, COUNT, MUSTER_INT32, MUSTER_SUM, &request));
    for (int i = 0; i < 50; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        in[COUNT / 2] = index;
    }
    CHECK_OK(muster_request_wait(request, -1));
    muster_request_free(request);
    free(in);
    free(out);
}

/* The buffer is shorter than the caller says. */
static void overflow(muster_cluster_t *cluster, int index, void *context) {
    int32_t *values = calloc(COUNT - 1, sizeof *values);
    (void)index, (void)context;
    CHECK_OK(muster_allreduce(muster_world(cluster), values, values, COUNT, MUSTER_INT32, MUSTER_SUM));
    free(values);
}

static void leak(void) {
    muster_config_t *config = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
}

/* A rank's process ends in another way than its parent's. */
static void leak_in_a_rank(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    (void)ranks;
    if (rank == 1) {
        leak();
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

int main(int argc, char **argv) {
    struct plan plan = {.workers = SIZE, .node_ids = rank_ids};
    CHECK(argc == 2);
    if (strcmp(argv[1], "leak") == 0) {
        leak();
        return 0;
    }
    if (strcmp(argv[1], "leak_in_a_rank") == 0) {
        struct ranks *ranks = ranks_start(SIZE, leak_in_a_rank, NULL);
        for (int i = 0; i < SIZE; i++) {
            ranks_await(ranks, i);
        }
        CHECK_OK(ranks_finish(ranks));
        return 0;
    }
    plan.body = strcmp(argv[1], "callback_race") == 0 ? callback_race
                : strcmp(argv[1], "buffer_race") == 0 ? buffer_race
                                                      : overflow;
    run_nodes(&plan);
    return 0;
}
