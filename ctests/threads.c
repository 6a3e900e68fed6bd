/* One handle, several threads: calls on different groups run side by side, errors belong to the thread that made
 * them, and leaving or aborting ends what other threads wait for. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>

enum { SIZE = 3, ROUNDS = 200 };

struct side {
    muster_group_t *group;
    int size;
};

static void *reduce_often(void *argument) {
    const struct side *side = argument;
    float values[1000];
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = round % 10 == 0 ? 1000 : 1;
        for (size_t i = 0; i < count; i++) {
            values[i] = (float)round;
        }
        CHECK_OK(muster_allreduce(side->group, values, values, count, MUSTER_FLOAT32, MUSTER_SUM));
        CHECK(values[count - 1] == (float)(round * side->size));
    }
    return NULL;
}

static void two_groups(muster_cluster_t *cluster, int index, void *context) {
    struct side world = {muster_world(cluster), SIZE};
    struct side universe = {muster_universe(cluster), SIZE};
    pthread_t thread;
    (void)index, (void)context;
    CHECK(pthread_create(&thread, NULL, reduce_often, &world) == 0);
    reduce_often(&universe);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *fail_elsewhere(void *argument) {
    CHECK(muster_last_error()[0] == 0); /* a new thread has no error */
    CHECK_FAILS(MUSTER_ERR_INVALID, "dtype", muster_broadcast(argument, NULL, 0, 99, 0));
    return NULL;
}

static void own_errors(muster_cluster_t *cluster, int index, void *context) {
    pthread_t thread;
    (void)index, (void)context;
    CHECK_FAILS(MUSTER_ERR_INVALID, "group is NULL", muster_barrier(NULL));
    const char *words = muster_last_error();
    CHECK(pthread_create(&thread, NULL, fail_elsewhere, muster_world(cluster)) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(muster_barrier(muster_world(cluster))); /* a success changes nothing */
    CHECK(words == muster_last_error());
    CHECK_CONTAINS(words, "group is NULL");
}

/* What a thread that waits is told. */
struct waiter {
    muster_cluster_t *cluster;
    sem_t about_to_wait;
    muster_status_t status;
    char words[WORDS_BYTES];
};

static void *wait_for_value(void *argument) {
    struct waiter *waiter = argument;
    void *value = NULL;
    size_t len = 0;
    CHECK(sem_post(&waiter->about_to_wait) == 0);
    waiter->status = muster_store_get(waiter->cluster, "nobody sets this", INT64_MAX, &value, &len);
    snprintf(waiter->words, sizeof waiter->words, "%s", muster_last_error());
    return NULL;
}

static void *wait_for_all(void *argument) {
    struct waiter *waiter = argument;
    CHECK(sem_post(&waiter->about_to_wait) == 0);
    waiter->status = muster_barrier(muster_universe(waiter->cluster));
    snprintf(waiter->words, sizeof waiter->words, "%s", muster_last_error());
    return NULL;
}

static void start_waiter(struct waiter *waiter, pthread_t *thread, muster_cluster_t *cluster, void *(*run)(void *)) {
    waiter->cluster = cluster;
    CHECK(sem_init(&waiter->about_to_wait, 0, 0) == 0);
    CHECK(pthread_create(thread, NULL, run, waiter) == 0);
    await(&waiter->about_to_wait);
}

/* Finalize ends a get that another thread waits in. (That thread may also come too late to wait: the outcome is the same.)
 * */
static void leave_a_get(muster_cluster_t *cluster, int index, void *context) {
    struct waiter waiter;
    pthread_t thread;
    (void)index, (void)context;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    start_waiter(&waiter, &thread, cluster, wait_for_value);
    CHECK_OK(muster_finalize(cluster));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_IS(MUSTER_ERR_STATE, waiter.status);
}

/* Nobody but this one thread enters the barrier; finalize ends it, too. */
static void leave_a_barrier(muster_cluster_t *cluster, int index, void *context) {
    struct waiter waiter;
    pthread_t thread;
    (void)context;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    if (index == 1) {
        start_waiter(&waiter, &thread, cluster, wait_for_all);
        CHECK_OK(muster_finalize(cluster));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(waiter.status == MUSTER_ERR_STATE || waiter.status == MUSTER_ERR_PEER_LEFT);
    }
}

/* An abort by one node ends whatever any thread of the others waits in. */
static void abort_all(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct waiter get;
    struct waiter all;
    pthread_t getting;
    pthread_t meeting;
    if (rank == 0) {
        for (int i = 1; i < SIZE; i++) {
            await(&ranks->note[i].ready);
        }
        muster_status_t confirmed = muster_abort(cluster, 7, "enough");
        CHECK(confirmed == MUSTER_OK || (patience() > 1 && confirmed == MUSTER_ERR_UNREACHABLE)); /* not in its time */
        muster_cluster_free(cluster);
        return;
    }
    start_waiter(&get, &getting, cluster, wait_for_value);
    start_waiter(&all, &meeting, cluster, wait_for_all);
    CHECK(sem_post(&ranks->note[rank].ready) == 0);
    CHECK(pthread_join(getting, NULL) == 0 && pthread_join(meeting, NULL) == 0);
    CHECK_IS(MUSTER_ERR_ABORTED, get.status);
    CHECK_IS(MUSTER_ERR_ABORTED, all.status);
    CHECK_CONTAINS(get.words, "enough");
    CHECK_CONTAINS(all.words, "enough");
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
}

static void aborted(void) {
    struct ranks *ranks = ranks_start(SIZE, abort_all, NULL);
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
    }
    CHECK_IS(MUSTER_ERR_ABORTED, ranks_finish(ranks));
}

int main(void) {
    aborted(); /* first: it must fork before the library is used here */
    struct plan plan = {.workers = SIZE, .node_ids = rank_ids, .body = two_groups};
    run_nodes(&plan);
    plan.body = own_errors;
    run_nodes(&plan);
    plan.body = leave_a_get;
    run_nodes(&plan);
    plan.body = leave_a_barrier;
    run_nodes(&plan);
    return 0;
}
