/* Groups that their members make alone: which ranks get one, which rank is named if one does not come, and what ends the
 * wait. A rank that comes back after its loss has its groups again. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WORKERS = 4, LIMIT_MS = 60000 };

static muster_group_t *made(muster_cluster_t *cluster, const int32_t *ranks, size_t n, const char *tag) {
    muster_group_t *group = NULL;
    CHECK_OK(muster_group_create_members(cluster, ranks, n, tag, -1, &group));
    CHECK(group != NULL && muster_group_size(group) == (int32_t)n);
    CHECK_IS(ranks[muster_group_rank(group)], muster_rank(cluster));
    return group;
}

static void sums(muster_group_t *group, int32_t expected) {
    int32_t one = 1, sum = 0;
    CHECK_OK(muster_allreduce(group, &one, &sum, 1, MUSTER_INT32, MUSTER_SUM));
    CHECK_IS(expected, sum);
}

/* Fails with this, and gives nothing out. */
static void fails(muster_cluster_t *cluster, const int32_t *ranks, size_t n, const char *tag, int64_t timeout_ms,
                  muster_status_t status, const char *words) {
    muster_group_t *group = (muster_group_t *)(uintptr_t)64;
    CHECK_FAILS(status, if_told_in_time(words), muster_group_create_members(cluster, ranks, n, tag, timeout_ms, &group));
    CHECK(group == (muster_group_t *)(uintptr_t)64);
}

static void until(muster_cluster_t *cluster, const char *key) {
    CHECK_OK(muster_store_wait(cluster, (const char *const[]){key}, 1, -1));
}

static void proceed(muster_cluster_t *cluster, const char *key) { CHECK_OK(muster_store_set(cluster, key, "", 0)); }

static void of_some(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t turned[] = {2, 0}, all[] = {0, 1, 2, 3};
    muster_group_t *world = muster_world(cluster);
    int32_t rank = index;
    (void)context;
    if (index == WORKERS) { /* the server */
        fails(cluster, all, WORKERS, "", -1, MUSTER_ERR_INVALID, "a server, is not among them");
        return;
    }
    if (rank % 2 == 0) { /* nobody else knows of it */
        muster_group_t *pair = made(cluster, turned, 2, "x"), *again = made(cluster, turned, 2, "x"), *other;
        CHECK_IS(2, muster_group_to_world(pair, 0));
        sums(pair, 2);
        sums(again, 2); /* another group: its collectives count for themselves */
        muster_group_free(pair);
        sums(again, 2);
        CHECK_OK(muster_group_split(again, rank, 0, &other)); /* as of any group */
        sums(other, 1);
        muster_group_free(other);
        muster_group_free(again);
    } else {
        fails(cluster, turned, 2, "x", -1, MUSTER_ERR_INVALID, "is not among them");
    }
    /* A ring of pairs: each makes the one with the lower neighbour first, so that they wait for each other in a row. */
    for (int32_t first = 0; first + 1 < WORKERS; first++) {
        if (rank == first || rank == first + 1) {
            const int32_t ranks[] = {first, first + 1};
            muster_group_t *pair = made(cluster, ranks, 2, "ring");
            sums(pair, 2);
            muster_group_free(pair);
        }
    }
    muster_group_t *alone = made(cluster, &rank, 1, "");
    sums(alone, 1);
    muster_group_free(alone);
    muster_group_t *everybody = made(cluster, all, WORKERS, "");
    sums(everybody, WORKERS);
    muster_group_free(everybody);
    CHECK_OK(muster_barrier(world));
}

static void in_vain(muster_cluster_t *cluster, int rank, void *context) {
    static const int32_t pair[] = {0, 1}, one[] = {0, 1, 2}, other[] = {0, 2, 1};
    muster_group_t *group;
    (void)context;
    if (rank == 0) {
        fails(cluster, pair, 2, "late", 50, MUSTER_ERR_TIMEOUT, "has not asked for the group of ranks 0, 1");
        CHECK_CONTAINS(muster_last_error(), if_told_in_time("rank 1 ("));
        fails(cluster, pair, 2, "late", 0, MUSTER_ERR_TIMEOUT, "rank 1 (");
        proceed(cluster, "timed out");
    } else if (rank == 1) {
        until(cluster, "timed out");
    }
    if (rank < 2) {
        group = made(cluster, pair, 2, "late");
        sums(group, 2);
        muster_group_free(group);
        fails(cluster, rank == 0 ? one : other, 3, "list", -1, MUSTER_ERR_MISMATCH, "rank 0 (");
        CHECK_CONTAINS(muster_last_error(), "rank 1 (");
        CHECK_CONTAINS(muster_last_error(), "ranks 0, 2, 1 with the tag \"list\"");
    }
    CHECK_OK(muster_barrier(muster_world(cluster))); /* no other group is over because of that */
    if (rank == 3) { /* it leaves without them */
        return;
    }
    const int32_t with_it[] = {rank, 3};
    fails(cluster, with_it, 2, "left", -1, MUSTER_ERR_PEER_LEFT, "rank 3 (");
}

struct waiting {
    muster_cluster_t *cluster;
    muster_status_t status;
    char words[512];
    int tid;
};

static void *wait_for_rank_1(void *argument) {
    static const int32_t pair[] = {0, 1};
    struct waiting *waiting = argument;
    muster_group_t *group = NULL;
    own_thread_calls(&waiting->tid);
    waiting->status = muster_group_create_members(waiting->cluster, pair, 2, "waiting", INT64_MAX, &group);
    snprintf(waiting->words, sizeof waiting->words, "%s", muster_last_error());
    return NULL;
}

/* What ends a wait of rank 0: the program, another rank that calls muster_recover. */
static void ended(muster_cluster_t *cluster, int rank, void *context) {
    static const int32_t pair[] = {0, 1};
    struct waiting waiting = {.cluster = cluster};
    pthread_t thread;
    (void)context;
    if (rank == 0) {
        CHECK(pthread_create(&thread, NULL, wait_for_rank_1, &waiting) == 0);
        own_thread_sleeps(&waiting.tid);
        fails(cluster, pair, 2, "waiting", -1, MUSTER_ERR_STATE, "another thread");
        CHECK_OK(muster_interrupt(cluster));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_IS(MUSTER_ERR_INTERRUPTED, waiting.status);
        CHECK_CONTAINS(waiting.words, "group_create_members with the tag \"waiting\" was interrupted");
        proceed(cluster, "interrupted");
        fails(cluster, pair, 2, "waiting", -1, MUSTER_ERR_REVOKED, "muster_recover");
    } else {
        until(cluster, "interrupted");
    }
    CHECK_OK(muster_recover(cluster, LIMIT_MS));
    muster_group_t *kept = rank < 2 ? made(cluster, pair, 2, "waiting") : NULL;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_recover(cluster, LIMIT_MS)); /* it goes on in the next epoch */
    if (kept != NULL) {
        sums(kept, 2);
        muster_group_t *next = made(cluster, pair, 2, "waiting");
        sums(next, 2);
        muster_group_free(next);
        sums(kept, 2);
        muster_group_free(kept);
    }
}

static void run(int workers, int servers, node_body body) {
    const struct plan plan = {.workers = workers, .servers = servers, .body = body,
                              .node_ids = (const char *const[]){"0", "1", "2", "3", "a server"}};
    run_nodes(&plan);
}

/* With recovery: a rank is lost, and comes back. It makes its groups again, one of them in vain before. */
static void comes_back(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    static const int32_t pair[] = {0, 1}, others[] = {1, 2};
    struct note *note = &ranks->note[rank];
    int64_t epoch = muster_epoch(cluster);
    muster_group_t *first = rank < 2 ? made(cluster, pair, 2, "a") : NULL;
    muster_group_t *second = rank > 0 ? made(cluster, others, 2, "b") : NULL;
    if (epoch == 1) {
        if (first != NULL) {
            sums(first, 2);
        }
        CHECK(sem_post(&note->ready) == 0);
        while (rank == 1) { /* it is killed here */
            pause();
        }
        keep_failure(note, cluster, muster_barrier(muster_world(cluster)));
        CHECK_IS(MUSTER_ERR_PEER_LOST, note->status);
        if (rank == 0) {
            fails(cluster, pair, 2, "a", -1, MUSTER_ERR_PEER_LOST, "rank 1");
        }
        CHECK_OK(muster_recover(cluster, LIMIT_MS));
    }
    CHECK_IS(2, muster_epoch(cluster));
    if (first != NULL) {
        sums(first, 2);
        muster_group_t *next = made(cluster, pair, 2, "a");
        sums(next, 2);
        muster_group_free(next);
    }
    if (second != NULL) {
        sums(second, 2);
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    muster_group_free(first);
    muster_group_free(second);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void after_a_loss(void) {
    char path[] = "/tmp/muster-members-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *const settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    struct ranks *ranks = ranks_start(3, comes_back, settings);
    ranks_await_ready(ranks);
    ranks_kill(ranks, 1);
    ranks_await(ranks, 1);
    ranks_start_rank(ranks, 1);
    for (int rank = 0; rank < 3; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

/* One member cannot make the group, which the other has. When both have freed it and ask again, they ask for the same one. */
static void is_short(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    static const int32_t pair[] = {0, 1};
    int32_t one = 1, sum;
    muster_group_t *group = NULL;
    struct rlimit before, none;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    if (rank == 1) {
        int next = open("/dev/null", O_RDONLY);
        CHECK(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
        none = (struct rlimit){(rlim_t)next, before.rlim_max};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        CHECK_IS(MUSTER_ERR_SYSTEM, muster_group_create_members(cluster, pair, 2, "d", -1, &group));
        CHECK(group == NULL && setrlimit(RLIMIT_NOFILE, &before) == 0);
        until(cluster, "it is freed");
    } else {
        group = made(cluster, pair, 2, "d");
        CHECK(muster_allreduce(group, &one, &sum, 1, MUSTER_INT32, MUSTER_SUM) != MUSTER_OK);
        muster_group_free(group);
        proceed(cluster, "it is freed");
    }
    group = made(cluster, pair, 2, "d");
    sums(group, 2);
    muster_group_free(group);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    (void)ranks;
}

static void after_a_shortage(void) {
    struct ranks *ranks = ranks_start(2, is_short, NULL);
    for (int rank = 0; rank < 2; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    ranks_free(ranks);
}

int main(void) {
    after_a_loss(); /* first: it forks */
    after_a_shortage();
    run(WORKERS, 1, of_some);
    run(WORKERS, 0, in_vain);
    run(3, 0, ended);
    return 0;
}
