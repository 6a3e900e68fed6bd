/* What the others get when a rank dies, leaves, is absent, calls something else, or aborts: one first cause, the same
 * for all, which names the culprit. Every rank is a process. */
#include "check.h"
#include "ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { SIZE = 4, CULPRIT = 2 };

/* In a rank: everyone has met once. The culprit goes on when the parent lets it. */
static void meet(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&ranks->note[rank].ready) == 0);
    if (rank == CULPRIT) {
        await(&ranks->note[rank].go);
    }
}

/* In the parent: waits until all have met. */
static void await_meeting(struct ranks *ranks) {
    for (int i = 0; i < ranks->size; i++) {
        await(&ranks->note[i].ready);
    }
}

/* In the parent: lets the culprit go on, and waits for the end of all. */
static void let_go_and_await(struct ranks *ranks) {
    CHECK(sem_post(&ranks->note[CULPRIT].go) == 0);
    for (int i = 0; i < ranks->size; i++) {
        ranks_await(ranks, i);
    }
}

/* The arguments that can only be wrong where there is a failure to be told. */
static void check_arguments(muster_cluster_t *cluster) {
    char buf[16] = "untouched";
    size_t needed = 0;
    muster_failure_t failure;
    memset(&failure, 0x77, sizeof failure);
    CHECK_FAILS(MUSTER_ERR_INVALID, "out", muster_failure(cluster, NULL, sizeof failure));
    CHECK_FAILS(MUSTER_ERR_INVALID, "size", muster_failure(cluster, &failure, 0));
    CHECK_OK(muster_failure(cluster, &failure, sizeof failure.status)); /* an older caller's smaller struct */
    CHECK(failure.status < 0 && failure.role == 0x77777777);
    CHECK_FAILS(MUSTER_ERR_INVALID, "buf", muster_cluster_error(cluster, NULL, sizeof buf, &needed));
    CHECK_FAILS(MUSTER_ERR_LIMIT, "bytes", muster_cluster_error(cluster, buf, sizeof buf, &needed));
    CHECK(needed > sizeof buf && strcmp(buf, "untouched") == 0);
    CHECK_OK(muster_cluster_error(cluster, NULL, 0, &needed));
}

/* Makes the failing call's note, and calls the group once more: the cause stays. */
static void keep(struct note *note, muster_cluster_t *cluster, muster_status_t status) {
    keep_failure(note, cluster, status);
    note->again = muster_barrier(muster_world(cluster));
    snprintf(note->words_again, sizeof note->words_again, "%s", muster_last_error());
    check_arguments(cluster);
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
}

/* All but the culprit were told the same, and were told it again. */
static void check_told(const struct ranks *ranks, muster_status_t status, const char *words, int culprit) {
    const struct note *first = &ranks->note[culprit == 0 ? 1 : 0];
    for (int i = 0; i < ranks->size; i++) {
        const struct note *note = &ranks->note[i];
        if (i == culprit) {
            continue;
        }
        if (note->status != status) {
            fprintf(stderr, "    rank %d: \"%s\"\n", i, note->words);
        }
        CHECK_IS(status, note->status);
        CHECK_CONTAINS(note->words, words);
        CHECK_IS(status, note->again);
        CHECK_IS(MUSTER_OK, note->failure_status);
        CHECK_IS(status, note->failure.status);
        CHECK_IS(MUSTER_OK, note->group_status);
        CHECK(memcmp(&note->failure, &note->group_failure, sizeof note->failure) == 0);
        CHECK_CONTAINS(note->words, first->words); /* the same sentence on every rank, */
        CHECK_CONTAINS(note->words_again, first->words); /* from every later call, */
        CHECK_CONTAINS(note->cluster_words, first->words); /* and from the cluster */
    }
}

/* The struct names the culprit: rank, node id, process. */
static void check_named(const struct ranks *ranks, int culprit) {
    char id[16];
    char pid[16];
    snprintf(id, sizeof id, "%d", culprit);
    snprintf(pid, sizeof pid, "%d", (int)ranks->pid[culprit]);
    for (int i = 0; i < ranks->size; i++) {
        const muster_failure_t *failure = &ranks->note[i].failure;
        if (i == culprit) {
            continue;
        }
        CHECK_IS(culprit, failure->rank);
        CHECK_IS(MUSTER_ROLE_WORKER, failure->role);
        CHECK_IS(ranks->pid[culprit], failure->pid);
        CHECK_IS(1, failure->epoch);
        CHECK(strcmp(failure->node_id, id) == 0);
        CHECK(failure->host[0] != 0 && failure->cause[0] != 0);
        CHECK_CONTAINS(ranks->note[i].words, "rank 2");
        CHECK_CONTAINS(ranks->note[i].words, pid);
        CHECK_CONTAINS(ranks->note[i].words, failure->host);
    }
}

static void wait_in_barrier(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    int32_t lost[4] = {-1, -1, -1, -1};
    size_t count = 0;
    meet(cluster, rank, ranks); /* the culprit is killed in it */
    muster_status_t status = muster_barrier(muster_world(cluster));
    CHECK_OK(muster_failed_ranks(cluster, lost, 4, &count));
    CHECK(count == 1 && lost[0] == CULPRIT && lost[1] == -1);
    keep(&ranks->note[rank], cluster, status);
}

static void killed(void) {
    struct ranks *ranks = ranks_start(SIZE, wait_in_barrier, NULL);
    await_meeting(ranks);
    double begin = now_s();
    ranks_kill(ranks, CULPRIT);
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
    }
    CHECK(now_s() - begin < 5); /* at once, not after a time-out of 5 s */
    check_told(ranks, MUSTER_ERR_PEER_LOST, "lost", CULPRIT);
    check_named(ranks, CULPRIT);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

/* Leaving the program without finalize is a loss, even with exit code 0. */
static void exit_silently(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    meet(cluster, rank, ranks);
    if (rank == CULPRIT) {
        exit(0);
    }
    keep(&ranks->note[rank], cluster, muster_barrier(muster_world(cluster)));
}

/* And so is freeing the handle. */
static void free_silently(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    meet(cluster, rank, ranks);
    if (rank == CULPRIT) {
        muster_cluster_free(cluster);
        await(&ranks->note[rank].go); /* its process lives on until the others have been told */
        return;
    }
    keep(&ranks->note[rank], cluster, muster_barrier(muster_world(cluster)));
    if (rank == 0) {
        CHECK(sem_post(&ranks->note[CULPRIT].go) == 0);
    }
}

static void lost_without_a_signal(rank_body body) {
    struct ranks *ranks = ranks_start(SIZE, body, NULL);
    await_meeting(ranks);
    let_go_and_await(ranks);
    check_told(ranks, MUSTER_ERR_PEER_LOST, "lost", CULPRIT);
    check_named(ranks, CULPRIT);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

/* A rank that the others need has left in order. */
static void leave_early(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    meet(cluster, rank, ranks);
    if (rank == CULPRIT) {
        CHECK_OK(muster_finalize(cluster));
        muster_cluster_free(cluster);
        return;
    }
    keep(&ranks->note[rank], cluster, muster_barrier(muster_world(cluster)));
}

static void left(void) {
    struct ranks *ranks = ranks_start(SIZE, leave_early, NULL);
    await_meeting(ranks);
    let_go_and_await(ranks);
    check_told(ranks, MUSTER_ERR_PEER_LEFT, "has left", CULPRIT);
    check_named(ranks, CULPRIT);
    ranks_finish(ranks);
}

/* A rank that lives, but never comes. */
static void stay_away(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    float values[16] = {0};
    meet(cluster, rank, ranks);
    if (rank == CULPRIT) { /* it has completed all that it called, and is told all the same */
        keep(note, cluster, muster_barrier(world));
        return;
    }
    CHECK_OK(muster_group_set_timeout(world, 300));
    double begin = now_s();
    muster_status_t status = muster_allreduce(world, values, values, 16, MUSTER_FLOAT32, MUSTER_SUM);
    note->took_s = now_s() - begin;
    keep_failure(note, cluster, status);
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    keep(note, cluster, status);
}

static void absent(void) {
    struct ranks *ranks = ranks_start(SIZE, stay_away, NULL);
    double longest = 0;
    await_meeting(ranks);
    for (int i = 0; i < SIZE; i++) {
        if (i != CULPRIT) {
            await(&ranks->note[i].ready);
            longest = ranks->note[i].took_s > longest ? ranks->note[i].took_s : longest;
        }
    }
    CHECK(longest >= 0.3 && longest < 5); /* whoever entered last may have waited less */
    for (int i = 0; i < SIZE; i++) {
        CHECK(i == CULPRIT || sem_post(&ranks->note[i].go) == 0);
    }
    let_go_and_await(ranks);
    check_told(ranks, MUSTER_ERR_TIMEOUT, "never entered allreduce #2 on world", -1);
    check_named(ranks, CULPRIT);
    ranks_finish(ranks);
}

/* One rank passes another count, or calls another collective altogether. */
static void other_count(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    int32_t values[8] = {0};
    size_t count = rank == CULPRIT ? 7 : 8;
    muster_status_t status = muster_allreduce(muster_world(cluster), values, values, count, MUSTER_INT32, MUSTER_SUM);
    keep(&ranks->note[rank], cluster, status);
}

static void other_call(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    int32_t values[8 * SIZE] = {0};
    muster_group_t *world = muster_world(cluster);
    muster_status_t status = rank == CULPRIT ? muster_allgather(world, values + 8 * CULPRIT, values, 8, MUSTER_INT32)
                                             : muster_allreduce(world, values, values, 8, MUSTER_INT32, MUSTER_SUM);
    keep(&ranks->note[rank], cluster, status);
}

/* A rank that takes itself for the root sends its broadcast and goes on: the others find out, and so does it. */
static void other_root(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    char byte = 0;
    int root = rank == CULPRIT ? CULPRIT : 0;
    muster_status_t status = muster_broadcast(muster_world(cluster), &byte, 1, MUSTER_UINT8, root);
    if (status == MUSTER_OK) {
        status = muster_barrier(muster_world(cluster));
    }
    keep(&ranks->note[rank], cluster, status);
}

/* Each waits for the other's broadcast: no frame ever meets another. */
static void both_wait(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    char byte = 0;
    double begin = now_s();
    muster_status_t status = muster_broadcast(muster_world(cluster), &byte, 1, MUSTER_UINT8, 1 - rank);
    ranks->note[rank].took_s = now_s() - begin;
    CHECK(ranks->note[rank].took_s < 5); /* a heartbeat or two, and no time-out */
    keep(&ranks->note[rank], cluster, status);
}

static void mismatch(int size, rank_body body, const char *words, const char *other_words) {
    struct ranks *ranks = ranks_start(size, body, NULL);
    for (int i = 0; i < size; i++) {
        ranks_await(ranks, i);
    }
    check_told(ranks, MUSTER_ERR_MISMATCH, words, -1);
    if (size == SIZE) {
        check_named(ranks, CULPRIT); /* three of four called the same */
    }
    CHECK_CONTAINS(ranks->note[0].words, other_words);
    ranks_finish(ranks);
}

/* One rank gives up, and says why. */
static void give_up(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    meet(cluster, rank, ranks);
    if (rank == CULPRIT) {
        CHECK_OK(muster_abort(cluster, 42, "the loss is not a number"));
    }
    keep(&ranks->note[rank], cluster, muster_barrier(muster_world(cluster)));
}

static void aborted(void) {
    struct ranks *ranks = ranks_start(SIZE, give_up, NULL);
    await_meeting(ranks);
    let_go_and_await(ranks);
    check_told(ranks, MUSTER_ERR_ABORTED, "the loss is not a number", -1);
    CHECK_CONTAINS(ranks->note[0].words, "42");
    check_named(ranks, CULPRIT);
    CHECK_IS(MUSTER_ERR_ABORTED, ranks_finish(ranks));
}

int main(void) {
    killed();
    lost_without_a_signal(exit_silently);
    lost_without_a_signal(free_silently);
    left();
    absent();
    mismatch(SIZE, other_count, "7", "8");
    mismatch(SIZE, other_call, "allgather", "allreduce");
    mismatch(SIZE, other_root, "root 2", "root 0");
    mismatch(2, both_wait, "root 0", "root 1");
    aborted();
    return 0;
}
