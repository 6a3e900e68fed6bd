/* The rank that is named, and where: the failing call's sentence, muster_failure, muster_cluster_error and
 * muster_group_failure tell one first cause, on every rank. Every rank is a process. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 4, ALL = 0xf, LIMIT_MS = 30000, ATTEMPTS = 20 };

static void leave(muster_cluster_t *cluster) {
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
}

static void pause_ms(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Sentence and structs of one rank agree; of a group that is over, and of the cluster. */
static void check_alike(const struct note *note) {
    CHECK_IS(MUSTER_OK, note->failure_status);
    CHECK_IS(MUSTER_OK, note->group_status);
    CHECK_IS(note->status, note->failure.status);
    CHECK(memcmp(&note->failure, &note->group_failure, sizeof note->failure) == 0);
    CHECK(strcmp(note->words, note->cluster_words) == 0);
    CHECK_CONTAINS(note->words, note->failure.cause);
}

/* Two ranks were told the same. */
static void check_same(const struct ranks *ranks, const struct note *one, const struct note *other) {
    if (strcmp(one->words, other->words) != 0) {
        fprintf(stderr, "    rank %d: \"%s\"\n", (int)(one - ranks->note), one->words);
        fprintf(stderr, "    rank %d: \"%s\"\n", (int)(other - ranks->note), other->words);
    }
    CHECK(strcmp(one->words, other->words) == 0);
    CHECK(memcmp(&one->failure, &other->failure, sizeof one->failure) == 0);
}

/* These ranks were told the same, and it names this one (-1: nobody). */
static void check_all(const struct ranks *ranks, unsigned who, muster_status_t status, int culprit) {
    const struct note *first = NULL;
    for (int i = 0; i < ranks->size; i++) {
        const struct note *note = &ranks->note[i];
        if ((who >> i & 1) == 0) {
            continue;
        }
        if (note->status != status || note->failure.rank != culprit) {
            fprintf(stderr, "    rank %d: \"%s\"\n", i, note->words);
        }
        first = first == NULL ? note : first;
        CHECK_IS(status, note->status);
        check_alike(note);
        CHECK_IS(culprit, note->failure.rank);
        CHECK_IS(culprit < 0 ? 0 : MUSTER_ROLE_WORKER, note->failure.role);
        CHECK_IS(culprit < 0 ? 0 : ranks->pid[culprit], note->failure.pid);
        check_same(ranks, first, note);
    }
}

static void await_all(struct ranks *ranks) {
    for (int i = 0; i < ranks->size; i++) {
        ranks_await(ranks, i);
    }
}

/* Waits until a group is over, as this rank hears. */
static muster_status_t await_failure(muster_group_t *group) {
    muster_failure_t failure;
    double limit = now_s() + 30 * patience();
    while (muster_group_failure(group, &failure, sizeof failure) == MUSTER_ERR_NOT_FOUND) {
        CHECK(now_s() < limit);
        pause_ms(1);
    }
    return failure.status;
}

/* A made group is cancelled, others want the next epoch, and one rank calls late. */
static void calls_late(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *world = muster_world(cluster), *group = NULL;
    const int32_t members[SIZE] = {3, 1, 2, 0};
    muster_failure_t failure;
    CHECK_OK(muster_group_create(world, members, SIZE, &group));
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_group_failure(group, &failure, sizeof failure));
    CHECK_OK(muster_barrier(world));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go); /* all have come out of the barrier, which somebody's muster_recover would end */
    if (rank == 0) {
        muster_request_t *request = NULL;
        CHECK_OK(muster_ibarrier(group, &request));
        CHECK_OK(muster_request_cancel(request));
        CHECK_IS(MUSTER_ERR_ABORTED, muster_request_wait(request, -1));
        muster_request_free(request);
    }
    if (rank == 2) {
        CHECK_IS(MUSTER_ERR_ABORTED, await_failure(group)); /* a rank that wants the next epoch sooner would be the cause */
    }
    if (rank == 3) {
        CHECK_IS(MUSTER_ERR_REVOKED, await_failure(world)); /* others want the next epoch */
    }
    if (rank != 2) { /* which never calls it again */
        muster_status_t status = muster_barrier(group);
        keep_failure(note, cluster, status);
        note->group_status = muster_group_failure(group, &note->group_failure, sizeof note->group_failure);
    }
    CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
    if (muster_group_failure(group, &failure, sizeof failure) == MUSTER_OK) {
        fprintf(stderr, "    rank %d, after muster_recover: \"%s\"\n", rank, failure.cause);
    }
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_group_failure(group, &failure, sizeof failure));
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_failure(cluster, &failure, sizeof failure));
    CHECK_OK(muster_barrier(group));
    muster_group_free(group);
    leave(cluster);
}

static void a_bystander(void) {
    struct ranks *ranks = ranks_start(SIZE, calls_late, NULL);
    ranks_await_ready(ranks);
    ranks_go(ranks);
    await_all(ranks);
    check_all(ranks, 0xb, MUSTER_ERR_ABORTED, 0);
    CHECK_CONTAINS(ranks->note[3].words, "cancelled barrier #1 on group 3");
    CHECK_IS(MUSTER_OK, ranks_finish(ranks));
}

/* The rank that calls something else than the others. If there are two odd ranks, the other one is the last. */
static int odd, others_odd;

static void calls_another(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = 1, sum = 0;
    int is_odd = rank == odd || (others_odd && rank == SIZE - 1);
    muster_status_t status =
        is_odd ? muster_barrier(world) : muster_allreduce(world, &value, &sum, 1, MUSTER_INT32, MUSTER_SUM);
    keep_failure(&ranks->note[rank], cluster, status);
    leave(cluster);
}

/* A rank waits 250 ms for the scheduler's word. If the scheduler says nothing in that time, the rank tells what it found
 * itself: what two ranks called, or that one has left. */
static bool has_own_words(const struct note *note) {
    return strstr(note->words, ", but ") != NULL || strstr(note->words, " needs it") != NULL;
}

/* The scheduler asks all what they called, and gives them 100 ms. If too few had called by then, nobody is named, and all
 * are told so. And a rank, or the scheduler, may be so slow that it has words of its own. Then it is tried again. Even so
 * each rank tells one cause, which names nobody wrongly, and what the scheduler says is the same everywhere. */
static bool some_were_slow(struct ranks *ranks, unsigned who, int culprit) {
    static int attempts;
    const struct note *first = NULL;
    bool slow = false;
    for (int i = 0; i < SIZE; i++) {
        const struct note *note = &ranks->note[i];
        if ((who >> i & 1) == 0) {
            continue;
        }
        CHECK(note->status == MUSTER_ERR_MISMATCH || (note->status == MUSTER_ERR_PEER_LEFT && has_own_words(note)));
        check_alike(note);
        CHECK(note->failure.rank == culprit || note->failure.rank < 0);
        slow = slow || has_own_words(note) || note->failure.rank != culprit;
        if (!has_own_words(note)) {
            first = first == NULL ? note : first;
            check_same(ranks, first, note);
        }
    }
    if (slow) {
        CHECK(++attempts < ATTEMPTS * patience());
        ranks_finish(ranks);
    }
    return slow;
}

static void the_odd_one(void) {
    for (odd = 0; odd < SIZE; odd++) {
        struct ranks *ranks = ranks_start(SIZE, calls_another, NULL);
        char words[64];
        await_all(ranks);
        if (some_were_slow(ranks, ALL, odd)) {
            odd--;
            continue;
        }
        check_all(ranks, ALL, MUSTER_ERR_MISMATCH, odd);
        snprintf(words, sizeof words, "on world, rank %d (", odd);
        CHECK(strncmp(ranks->note[0].words, "3 of 4 ranks called allreduce(", 30) == 0);
        CHECK_CONTAINS(ranks->note[0].words, words);
        CHECK_IS(0, ranks->note[0].failure.group);
        CHECK_IS(1, ranks->note[0].failure.sequence);
        ranks_finish(ranks);
    }
    odd = 1;
    others_odd = 1; /* two of four are not most */
    struct ranks *ranks;
    do {
        ranks = ranks_start(SIZE, calls_another, NULL);
        await_all(ranks);
    } while (some_were_slow(ranks, ALL, -1));
    check_all(ranks, ALL, MUSTER_ERR_MISMATCH, -1);
    ranks_finish(ranks);
}

/* The last rank comes to a broadcast when the others have all called what follows, one of them another thing. Nobody need be awaited
 * for that broadcast any more, and the last rank's next call is needed to know which rank is odd. */
static void comes_late(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = rank == 0 ? 7 : 0, sum = 0;
    if (rank == SIZE - 1) {
        for (int i = 0; i < SIZE - 1; i++) {
            await(&ranks->note[rank].go);
        }
        pause_ms(10); /* the others' words about each other are to be there, and nothing tells that they are */
    }
    muster_status_t status = muster_broadcast(world, &value, 1, MUSTER_INT32, 0);
    if (status == MUSTER_OK) {
        CHECK_IS(7, value);
        CHECK(rank == SIZE - 1 || sem_post(&ranks->note[SIZE - 1].go) == 0);
        status = rank == 1 ? muster_barrier(world) : muster_allreduce(world, &value, &sum, 1, MUSTER_INT32, MUSTER_SUM);
    } /* else the scheduler's time for that was over */
    keep_failure(&ranks->note[rank], cluster, status);
    leave(cluster);
}

static void a_late_one(void) {
    struct ranks *ranks;
    do {
        ranks = ranks_start(SIZE, comes_late, NULL);
        await_all(ranks);
    } while (some_were_slow(ranks, ALL, 1));
    check_all(ranks, ALL, MUSTER_ERR_MISMATCH, 1);
    CHECK(strncmp(ranks->note[0].words, "3 of 4 ranks called allreduce(", 30) == 0);
    CHECK_IS(2, ranks->note[0].failure.sequence);
    ranks_finish(ranks);
}

/* One rank calls a reduce, which returns, and leaves. The others call a barrier. */
static void reduces_and_leaves(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = 1, sum = 0;
    if (rank == 1) {
        CHECK_OK(muster_reduce(world, &value, &sum, 1, MUSTER_INT32, MUSTER_SUM, 0));
        CHECK_OK(muster_finalize(cluster));
        muster_cluster_free(cluster);
        for (int i = 0; i < SIZE; i++) {
            CHECK(sem_post(&ranks->note[i].go) == 0);
        }
        await(&ranks->note[1].ready); /* its process is there until all have been told */
        return;
    }
    await(&ranks->note[rank].go);
    keep_failure(&ranks->note[rank], cluster, muster_barrier(world));
    leave(cluster);
}

static void one_that_left(void) {
    for (int round = 0; round < 6; round++) {
        struct ranks *ranks = ranks_start(SIZE, reduces_and_leaves, NULL);
        for (int i = 0; i < SIZE; i++) {
            if (i != 1) {
                ranks_await(ranks, i);
            }
        }
        CHECK(sem_post(&ranks->note[1].ready) == 0);
        ranks_await(ranks, 1);
        if (some_were_slow(ranks, 0xd, 1)) {
            round--;
            continue;
        }
        check_all(ranks, 0xd, MUSTER_ERR_MISMATCH, 1);
        CHECK(strncmp(ranks->note[0].words, "3 of 4 ranks called barrier()", 29) == 0);
        CHECK_CONTAINS(ranks->note[0].words, "called reduce(");
        ranks_finish(ranks);
    }
}

/* One is killed in a collective. */
static void is_killed(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    CHECK_OK(muster_barrier(world));
    CHECK(sem_post(&ranks->note[rank].ready) == 0);
    if (rank == 0) {
        await(&ranks->note[rank].go); /* so that the barrier goes on */
    }
    muster_status_t status;
    do {
        status = muster_barrier(world); /* what the victim had sent may be enough for one */
    } while (status == MUSTER_OK);
    keep_failure(&ranks->note[rank], cluster, status);
    leave(cluster);
}

static void a_loss(void) {
    const char *settings[] = {"node_timeout", "2", NULL};
    struct ranks *ranks = ranks_start(SIZE, is_killed, settings);
    ranks_await_ready(ranks);
    pause_ms(2000L * patience()); /* each says where it waits with a heartbeat; one that is not heard so long would be lost */
    ranks_kill(ranks, 2);
    CHECK(sem_post(&ranks->note[0].go) == 0);
    await_all(ranks);
    check_all(ranks, 0xb, MUSTER_ERR_PEER_LOST, 2);
    CHECK_CONTAINS(ranks->note[0].words, "; last heard in barrier #2 on world, ");
    CHECK_CONTAINS(ranks->note[0].words, " s before");
    CHECK_IS(0, ranks->note[0].failure.group);
    CHECK_IS(2, ranks->note[0].failure.sequence);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

int main(void) {
    a_bystander();
    the_odd_one();
    a_late_one();
    one_that_left();
    a_loss();
    return 0;
}
