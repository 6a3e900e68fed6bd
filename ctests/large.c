/* 64 ranks: links are opened when they are needed, and no others. */
#include "check.h"
#include "nodes.h"
#include "own.h"

#include <pthread.h>
#include <sys/resource.h>

enum { SIZE = 64, ROUNDS = 6 /* log2 SIZE */ };

static pthread_barrier_t here;

static int descriptors_of_all(int index) {
    static int counted;
    pthread_barrier_wait(&here);
    if (index == 0) {
        counted = own_descriptors();
    }
    pthread_barrier_wait(&here);
    return counted;
}

static void reduce(muster_cluster_t *cluster, int index, void *context) {
    int before = descriptors_of_all(index);
    int64_t sum = index;
    (void)context;
    CHECK_OK(muster_allreduce(muster_world(cluster), &sum, &sum, 1, MUSTER_INT64, MUSTER_SUM));
    CHECK(sum == SIZE * (SIZE - 1) / 2);
    int after = descriptors_of_all(index);
    /* Recursive doubling: one link to each of ROUNDS peers, with two ends in this process; a full mesh would take SIZE - 1. */
    CHECK_IS(SIZE * ROUNDS, after - before);
    CHECK_OK(muster_allreduce(muster_world(cluster), &sum, &sum, 1, MUSTER_INT64, MUSTER_MAX));
    CHECK_IS(after, descriptors_of_all(index)); /* and they are kept */
}

int main(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(pthread_barrier_init(&here, NULL, SIZE) == 0);
    /* Where ranks outnumber processors a tree would do it over fewer links. */
    const char *const settings[] = {"thresholds", "allreduce_tree_ranks=65", NULL};
    struct plan plan = {.workers = SIZE, .node_ids = rank_ids, .body = reduce, .settings = settings};
    run_nodes(&plan);
    CHECK(!own_sockets());
    return 0;
}
