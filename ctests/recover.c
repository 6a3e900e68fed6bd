/* A cluster that has lost nobody is made whole again: groups that were revoked work as new under the same handles. A rank
 * that does not come is named. A cluster that cannot be mended is not mended. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, WORKERS = 4, NO_LIMIT_MS = 60000 };

/* Collectives and messages of the group give what they should. */
static void works(muster_group_t *group) {
    int rank = muster_group_rank(group), size = muster_group_size(group), next = (rank + 1) % size;
    int32_t sum = 0, mine = rank, other = -1;
    int32_t *large = malloc(2 * 64 * KIB * sizeof *large), *most = large + 64 * KIB;
    CHECK(large != NULL);
    CHECK_OK(muster_allreduce(group, &mine, &sum, 1, MUSTER_INT32, MUSTER_SUM));
    CHECK_IS(size * (size - 1) / 2, sum);
    for (int i = 0; i < 64 * KIB; i++) {
        large[i] = i ^ rank;
    }
    CHECK_OK(muster_allreduce(group, large, most, 64 * KIB, MUSTER_INT32, MUSTER_MAX));
    for (int i = 0; i < 64 * KIB; i++) {
        int32_t expected = i;
        for (int r = 1; r < size; r++) {
            expected = (i ^ r) > expected ? i ^ r : expected;
        }
        CHECK(most[i] == expected);
    }
    free(large);
    CHECK_OK(muster_sendrecv(group, &mine, 1, MUSTER_INT32, next, 9, &other, 1, MUSTER_INT32, MUSTER_ANY_SOURCE, 9, NULL, 0));
    CHECK_IS((rank + size - 1) % size, other);
}

/* Waits until all ranks are here: over the store, which no epoch ends. */
static void meet(muster_cluster_t *cluster, const char *where, int count) {
    char key[64];
    int64_t here = 0;
    snprintf(key, sizeof key, "meet/%s/%lld", where, (long long)muster_epoch(cluster));
    CHECK_OK(muster_store_add(cluster, key, 1, &here));
    if (here == count) {
        strcat(key, "/all");
        CHECK_OK(muster_store_set(cluster, key, "1", 1));
    } else {
        const char *keys[1];
        strcat(key, "/all");
        keys[0] = key;
        CHECK_OK(muster_store_wait(cluster, keys, 1, NO_LIMIT_MS * patience()));
    }
}

/* How often the ranks mend a cluster: less often where helgrind watches. */
static int rounds(void) { return less_where_watched(12, 4); }

/* One rank calls something else: that revokes the world; then all mend it, again and again. */
static void mends(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster), *universe = muster_universe(cluster), *half = NULL, *pair = NULL;
    int rank = muster_rank(cluster), descriptors[2] = {0, 0};
    bool worker = muster_role(cluster) == MUSTER_ROLE_WORKER;
    muster_failure_t failure;
    (void)context;
    (void)index;
    if (worker) {
        CHECK_OK(muster_group_split(world, rank % 2, -rank, &half));
        CHECK_OK(muster_group_set_timeout(half, 12345));
    }
    for (int round = 1; round <= rounds(); round++) {
        CHECK_IS(round, muster_epoch(cluster));
        if (worker) {
            works(world);
            works(half);
            int32_t mine = rank;
            muster_status_t status =
                rank == round % WORKERS ? muster_barrier(world) : muster_broadcast(world, &mine, 1, MUSTER_INT32, 0);
            CHECK(status == MUSTER_OK || status == MUSTER_ERR_MISMATCH); /* a broadcast's root may have returned */
            while (status == MUSTER_OK) {
                status = muster_barrier(world);
            }
            CHECK_IS(MUSTER_ERR_MISMATCH, status);
            CHECK_OK(muster_failure(cluster, &failure, sizeof failure));
            CHECK_IS(MUSTER_ERR_MISMATCH, failure.status);
            CHECK_IS(round, failure.epoch);
        }
        meet(cluster, "broken", WORKERS + 1); /* a rank that is early would be the cause */
        CHECK_OK(muster_recover(cluster, NO_LIMIT_MS * patience()));
        CHECK_IS(round + 1, muster_epoch(cluster));
        CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_failure(cluster, &failure, sizeof failure));
        works(universe);
        if (worker) {
            works(half);
            works(world);
            CHECK_IS((WORKERS - 1 - rank) / 2, muster_group_rank(half));
        }
        if (worker && round % 3 == 0) { /* groups are made and freed in the new epoch as before */
            int32_t ranks[2] = {0, WORKERS - 1};
            CHECK_OK(muster_group_create(world, ranks, 2, &pair));
            if (pair != NULL) {
                works(pair);
            }
            muster_group_free(pair);
        }
        meet(cluster, "round", WORKERS + 1);
        if (!worker && (round == 2 || round == rounds())) { /* one alone counts: that takes a descriptor too */
            descriptors[round != 2] = own_descriptors(); /* of all ranks, of which none does anything now */
        }
        meet(cluster, "counted", WORKERS + 1);
    }
    CHECK(descriptors[1] <= descriptors[0]);
    muster_group_free(half);
}

/* One rank mends while the others are in collectives, or wait for messages: it need not wait until those calls time out. */
static void gives_up(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster), *all = NULL;
    int rank = muster_rank(cluster);
    int32_t mine = 0, other = 0;
    muster_request_t *request = NULL, *late = NULL;
    (void)context;
    (void)index;
    CHECK_OK(muster_group_split(world, 0, 0, &all));
    CHECK_OK(muster_irecv(all, &other, 1, MUSTER_INT32, MUSTER_ANY_SOURCE, 77, NULL, 0, &late));
    if (rank != 1) {
        CHECK_OK(muster_iallreduce(all, &rank, &mine, 1, MUSTER_INT32, MUSTER_SUM, &request));
    }
    meet(cluster, "begun", 3); /* before that nobody mends anything */
    if (rank == 1) {
        CHECK_OK(muster_recover(cluster, -1));
    } else {
        CHECK_FAILS(MUSTER_ERR_REVOKED, "rank 1 (node id \"1\"", muster_barrier(world));
        CHECK_CONTAINS(muster_last_error(), "called muster_recover, which ends epoch 1");
        CHECK_FAILS(MUSTER_ERR_REVOKED, "called muster_recover, which ends epoch 1", muster_request_wait(request, NO_LIMIT_MS * patience()));
        CHECK_FAILS(MUSTER_ERR_REVOKED, "called muster_recover", muster_barrier(all));
        CHECK_FAILS(MUSTER_ERR_REVOKED, "called muster_recover", muster_send(world, &mine, 1, MUSTER_INT32, 1, 0));
        CHECK_OK(muster_recover(cluster, -1));
        CHECK_FAILS(MUSTER_ERR_REVOKED, "called muster_recover, which ends epoch 1", muster_request_test(request));
        muster_request_free(request);
    }
    CHECK_FAILS(MUSTER_ERR_REVOKED, "epoch", muster_request_wait(late, NO_LIMIT_MS * patience()));
    CHECK_IS(0, other);
    works(world);
    works(all);
    muster_group_free(all);
    muster_request_free(late);
}

/* The rank that is awaited is named, and when it comes in the end all go on. */
static void is_awaited(muster_cluster_t *cluster, int index, void *context) {
    int rank = muster_rank(cluster);
    (void)context;
    (void)index;
    if (rank != 2) {
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, if_told_in_time("has not called muster_recover in time"),
                    muster_recover(cluster, rank == 0 ? 0 : 300));
        CHECK_CONTAINS(muster_last_error(), if_told_in_time("rank 2 (node id \"2\""));
        CHECK_IS(1, muster_epoch(cluster));
        CHECK_FAILS(MUSTER_ERR_REVOKED, "called muster_recover", muster_barrier(muster_world(cluster)));
    }
    meet(cluster, "gave up", 3);
    for (int epoch = 2; epoch <= 4; epoch++) {
        CHECK_OK(muster_recover(cluster, INT64_MAX));
        CHECK_IS(epoch, muster_epoch(cluster));
    }
    works(muster_world(cluster));
}

/* A rank that has left will not come. */
static void has_left(muster_cluster_t *cluster, int index, void *context) {
    int rank = muster_rank(cluster);
    (void)context;
    (void)index;
    if (rank == 1) {
        return;
    }
    CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "rank 1 (node id \"1\"", muster_recover(cluster, NO_LIMIT_MS * patience()));
    CHECK_CONTAINS(muster_last_error(), "has left the cluster, which cannot be made whole again without it");
    CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "rank 1 (node id \"1\"", muster_recover(cluster, 0)); /* at once, by now */
    CHECK_IS(1, muster_epoch(cluster));
}

static void *inside(void *cluster) {
    const char *keys[] = {"rank 0 has looked"};
    if (muster_rank(cluster) == 1) {
        CHECK_OK(muster_store_wait(cluster, keys, 1, NO_LIMIT_MS * patience()));
    }
    muster_status_t status;
    do {
        status = muster_recover(cluster, NO_LIMIT_MS * patience());
    } while (status == MUSTER_ERR_STATE); /* the main thread was in it */
    CHECK_OK(status);
    return NULL;
}

struct reducer {
    muster_group_t *group;
    int tid; /* once it is about to make its last call */
};

/* Reduces. The last time rank 2 does not, so that the others are in that call when the epoch ends. */
static void *reduces(void *context) {
    static int32_t in[MIB], out[WORKERS][MIB];
    struct reducer *reducer = context;
    int32_t *mine = out[muster_group_rank(reducer->group)];
    size_t count = patience() >= 20 ? MIB / 16 : MIB; /* helgrind looks at each access */
    for (int i = 0; i < 20; i++) {
        CHECK_OK(muster_allreduce(reducer->group, in, mine, count, MUSTER_INT32, MUSTER_SUM));
    }
    if (muster_group_rank(reducer->group) != 2) {
        own_thread_calls(&reducer->tid);
        CHECK_IS(MUSTER_ERR_REVOKED, muster_allreduce(reducer->group, in, mine, count, MUSTER_INT32, MUSTER_SUM));
    }
    return NULL;
}

/* Threads that are in other calls meanwhile: each ends with the epoch, one alone may mend it. */
static void others_go_on(muster_cluster_t *cluster, int index, void *context) {
    pthread_t mender, thread;
    struct reducer reducer = {NULL, 0};
    muster_group_t *world = muster_world(cluster), *all = NULL;
    (void)context;
    (void)index;
    CHECK_OK(muster_group_split(world, 0, 0, &all));
    meet(cluster, "made", 3);
    reducer.group = all;
    CHECK(pthread_create(&thread, NULL, reduces, &reducer) == 0);
    for (int i = 0; i < 20; i++) {
        CHECK_OK(muster_barrier(world));
    }
    if (muster_rank(cluster) != 2) {
        own_thread_sleeps(&reducer.tid); /* one that enters later does so in the next epoch */
    }
    meet(cluster, "warm", 3);
    CHECK(pthread_create(&mender, NULL, inside, cluster) == 0);
    if (muster_rank(cluster) == 0) {
        muster_status_t status;
        do { /* until the other thread is in it, for which it needs a moment when this one is not */
            usleep(1000);
            status = muster_recover(cluster, 0);
        } while (status == MUSTER_ERR_TIMEOUT);
        CHECK_IS(MUSTER_ERR_STATE, status);
        CHECK_OK(muster_store_set(cluster, "rank 0 has looked", "", 0));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_join(mender, NULL) == 0);
    works(all);
    works(world);
    muster_group_free(all);
}

static void alone(muster_cluster_t *cluster, int index, void *context) {
    (void)context;
    (void)index;
    for (int epoch = 2; epoch < 10; epoch++) {
        CHECK_OK(muster_recover(cluster, epoch % 2 ? -1 : NO_LIMIT_MS * patience()));
        CHECK_IS(epoch, muster_epoch(cluster));
        works(muster_world(cluster));
    }
    CHECK_FAILS(MUSTER_ERR_INVALID, "timeout_ms is -2", muster_recover(cluster, -2));
    CHECK_OK(muster_finalize(cluster));
    CHECK_FAILS(MUSTER_ERR_STATE, "this process has left its cluster", muster_recover(cluster, -1));
}

/* A lost rank is not mended: everybody gets the first cause, each time. */
static void is_lost(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go); /* all have passed the barrier; rank 1 never does: it is killed here */
    note->status = muster_recover(cluster, NO_LIMIT_MS * patience());
    keep_failure(note, cluster, note->status);
    note->again = muster_recover(cluster, NO_LIMIT_MS * patience());
    snprintf(note->words_again, sizeof note->words_again, "%s", muster_last_error());
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void loss(void) {
    struct ranks *ranks = ranks_start(3, is_lost, NULL);
    for (int rank = 0; rank < 3; rank++) {
        await(&ranks->note[rank].ready);
    }
    for (int rank = 0; rank < 3; rank += 2) {
        CHECK(sem_post(&ranks->note[rank].go) == 0);
    }
    ranks_kill(ranks, 1);
    for (int rank = 0; rank < 3; rank++) {
        ranks_await(ranks, rank);
        if (rank != 1) {
            const struct note *note = &ranks->note[rank];
            CHECK_IS(MUSTER_ERR_PEER_LOST, note->status);
            CHECK_IS(MUSTER_ERR_PEER_LOST, note->again);
            CHECK_CONTAINS(note->words, "rank 1 (node id \"1\"");
            CHECK(strcmp(note->words, note->words_again) == 0);
        }
    }
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

static void run_with(int workers, int servers, node_body body, const char *const *settings) {
    struct plan plan = {.workers = workers, .servers = servers, .body = body, .node_ids = rank_ids, .settings = settings};
    run_nodes(&plan);
    CHECK(own_threads_are(1));
    CHECK(!own_sockets());
}

static void run(int workers, int servers, node_body body) { run_with(workers, servers, body, NULL); }

/* The same with recovery, where lost ranks could come back. */
static void run_with_recovery(int workers, int servers, node_body body) {
    char path[] = "/tmp/muster-recover-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    run_with(workers, servers, body, settings);
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

int main(void) {
    loss(); /* forks, so first */
    run(1, 0, alone);
    run(WORKERS, 1, mends);
    run(3, 0, gives_up);
    run(3, 0, is_awaited);
    run(3, 0, has_left);
    run(3, 0, others_go_on);
    run_with_recovery(3, 0, gives_up);
    return 0;
}
