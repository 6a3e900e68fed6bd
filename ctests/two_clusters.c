/* Two clusters of different sizes in one process at once: every thread is a node of both. */
#include "check.h"
#include "nodes.h"

#include <pthread.h>

struct both {
    struct plan small;
    struct plan large;
    char small_port[8];
    char large_port[8];
};

struct member {
    struct both *both;
    int index;
    pthread_t thread;
};

static int64_t sum_of(muster_cluster_t *cluster, int64_t mine) {
    int64_t sum = -1;
    CHECK_OK(muster_allreduce(muster_world(cluster), &mine, &sum, 1, MUSTER_INT64, MUSTER_SUM));
    return sum;
}

static void store_apart(muster_cluster_t *cluster, const char *text) {
    void *value = NULL;
    size_t len = 0;
    if (muster_rank(cluster) == 0) {
        CHECK_OK(muster_store_set(cluster, "which", text, strlen(text)));
    }
    CHECK_OK(muster_store_get(cluster, "which", -1, &value, &len));
    CHECK(strcmp(value, text) == 0);
    muster_free(value);
}

static void *run(void *argument) {
    struct member *member = argument;
    struct both *both = member->both;
    int in_small = member->index < both->small.workers;
    muster_cluster_t *large = join(&both->large, both->large_port, member->index);
    muster_cluster_t *small = in_small ? join(&both->small, both->small_port, member->index) : NULL;
    for (int round = 0; round < 50; round++) {
        CHECK_IS(0 + 10 + 20 + 30 + 40, sum_of(large, 10 * muster_rank(large)));
        if (in_small) {
            CHECK_IS(1 + 2, sum_of(small, 1 + muster_rank(small)));
        }
    }
    store_apart(large, "large");
    if (in_small) {
        store_apart(small, "small");
        CHECK_IS(2, muster_size(small));
        CHECK_OK(muster_finalize(small));
        muster_cluster_free(small);
    }
    /* The other cluster does not notice that one has ended. */
    CHECK_IS(5, sum_of(large, 1));
    CHECK_IS(5, muster_size(large));
    CHECK_OK(muster_finalize(large));
    muster_cluster_free(large);
    return NULL;
}

int main(void) {
    struct both both = {.small = {.workers = 2, .node_ids = rank_ids}, .large = {.workers = 5, .node_ids = rank_ids}};
    struct member members[5];
    muster_scheduler_t *small = start_scheduler(&both.small, both.small_port);
    muster_scheduler_t *large = start_scheduler(&both.large, both.large_port);
    for (int i = 0; i < 5; i++) {
        members[i].both = &both;
        members[i].index = i;
        CHECK(pthread_create(&members[i].thread, NULL, run, &members[i]) == 0);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_join(members[i].thread, NULL) == 0);
    }
    CHECK_OK(muster_scheduler_wait(small, 20000 * patience()));
    CHECK_OK(muster_scheduler_wait(large, 20000 * patience()));
    muster_scheduler_free(small);
    muster_scheduler_free(large);
    return 0;
}
