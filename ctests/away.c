/* The scheduler's process dies. Without recovery, too, the job goes on while its nodes live: collectives work, what
 * needs the scheduler says that it is away, and leaving ends in bounded time. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>

enum { SIZE = 3 };

static void reduce(muster_cluster_t *cluster, int rounds) {
    muster_group_t *world = muster_world(cluster);
    for (int round = 0; round < rounds; round++) {
        int64_t sum = muster_rank(cluster) + round;
        CHECK_OK(muster_allreduce(world, &sum, &sum, 1, MUSTER_INT64, MUSTER_SUM));
        CHECK_IS(0 + 1 + 2 + SIZE * round, sum);
        CHECK_OK(muster_barrier(world));
    }
}

static void go_on(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    void *value = NULL;
    size_t len = 0;
    reduce(cluster, 10);
    CHECK_OK(muster_store_set(cluster, "there", "yes", 3));
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    reduce(cluster, 100);
    double begin = now_s();
    CHECK_FAILS(MUSTER_ERR_UNREACHABLE, "scheduler", muster_store_get(cluster, "there", 200, &value, &len));
    CHECK(value == NULL && now_s() - begin < 10);
    reduce(cluster, 10); /* that the store is away revokes nothing */
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_failure(cluster, &note->failure, sizeof note->failure));
    int32_t failed[SIZE];
    size_t count = SIZE;
    CHECK_OK(muster_failed_ranks(cluster, failed, SIZE, &count));
    CHECK(count == 0); /* the scheduler is no rank */
    begin = now_s();
    CHECK_OK(muster_finalize(cluster));
    note->took_s = now_s() - begin;
    muster_cluster_free(cluster);
}

int main(void) {
    static const char *const settings[] = {"finalize_timeout", "3", NULL};
    struct ranks *ranks = ranks_start(SIZE, go_on, settings);
    for (int i = 0; i < SIZE; i++) {
        await(&ranks->note[i].ready);
    }
    CHECK(kill(ranks->scheduler, SIGKILL) == 0);
    await_child(ranks->scheduler);
    for (int i = 0; i < SIZE; i++) {
        CHECK(sem_post(&ranks->note[i].go) == 0);
    }
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
        CHECK(ranks->note[i].took_s < 5);
    }
    return 0;
}
