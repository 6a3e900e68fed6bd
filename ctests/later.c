/* Without a scheduler the members tell each other that a group is over. A rank that calls after the others have given up is
 * told so by that very call, whatever it calls and whatever of theirs it finds waiting for it; by those who heard it, in the
 * same words. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SHORT_MS = 500, SMALL = 1, MIDDLE = 5 << 10, LARGE = 200 << 10, COUNTS = 3, KINDS = 13, GROUPS = KINDS * COUNTS + 1, MAILED = GROUPS - 1 };

static const size_t counts[COUNTS] = {SMALL, MIDDLE, LARGE};

/* What differs from run to run: who comes late, and who is the one with little time. */
static int size = 0;
static int late = 0;
static int hasty = 0;
static bool used_before = false;

/* The collective with this number; which of the two ranks that matter is the root is part of it. */
static muster_status_t start(muster_group_t *group, int kind, size_t count, int32_t *in, int32_t *out, muster_request_t **request) {
    int root = kind % 2 ? late : hasty;
    const int32_t type = MUSTER_INT32;
    switch (kind) {
    case 0: return muster_ibarrier(group, request);
    case 1:
    case 2: return muster_ibroadcast(group, out, count, type, root, request);
    case 3:
    case 4: return muster_ireduce(group, in, out, count, type, MUSTER_SUM, root, request);
    case 5:
    case 6: return muster_igather(group, in, out, count, type, root, request);
    case 7:
    case 8: return muster_iscatter(group, in, out, count, type, root, request);
    case 9: return muster_iallreduce(group, in, out, count, type, MUSTER_SUM, request);
    case 10: return muster_iallgather(group, in, out, count, type, request);
    case 11: return muster_ireduce_scatter(group, in, out, count, type, MUSTER_SUM, request);
    default: return muster_ialltoall(group, in, out, count, type, request);
    }
}

static void finish(muster_request_t *request, muster_status_t expected) {
    CHECK_IS(expected, muster_request_wait(request, 30000 * patience()));
    muster_request_free(request);
}

/* Those who are there begin everything, and behind each collective that could end without the late one a barrier. */
static void give_up(muster_group_t **groups, int rank, int32_t *in, int32_t *out) {
    muster_request_t *calls[MAILED], *barriers[MAILED], *last = NULL;
    for (int i = 0; i < MAILED; i++) {
        size_t count = counts[i / KINDS];
        CHECK_OK(start(groups[i], i % KINDS, count, in, out + (size_t)i * (size_t)size * LARGE, &calls[i]));
        CHECK_OK(muster_ibarrier(groups[i], &barriers[i]));
    }
    /* One group more, in which only one calls a collective, and the others wait for a message. */
    if (rank == hasty) {
        CHECK_OK(muster_ibarrier(groups[MAILED], &last));
    } else {
        CHECK_OK(muster_irecv(groups[MAILED], out, 1, MUSTER_INT32, late, 0, NULL, 0, &last));
    }
    finish(last, MUSTER_ERR_TIMEOUT);
    for (int i = 0; i < MAILED; i++) {
        muster_status_t status = muster_request_wait(calls[i], 30000 * patience());
        if (status != MUSTER_OK) {
            CHECK_FAILS(MUSTER_ERR_TIMEOUT, "s that it may take", status);
        }
        muster_request_free(calls[i]);
        finish(barriers[i], MUSTER_ERR_TIMEOUT);
    }
}

static void come_late(muster_group_t **groups, int32_t *in, int32_t *out) {
    char words[64];
    snprintf(words, sizeof words, "%g s that it may take", SHORT_MS * patience() / 1000.0);
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, words, muster_send(groups[MAILED], in, 1, MUSTER_INT32, hasty, 0));
    for (int i = 0; i < MAILED; i++) {
        muster_request_t *request = NULL;
        muster_status_t status = start(groups[i], i % KINDS, counts[i / KINDS], in, out, &request);
        if (status == MUSTER_OK) {
            status = muster_request_wait(request, 30000 * patience());
            muster_request_free(request);
        }
        if (status != MUSTER_ERR_TIMEOUT) {
            fprintf(stderr, "    collective %d of %zu elements on %d ranks, %d being late\n", i % KINDS, counts[i / KINDS], size, late);
        }
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, words, status);
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, words, muster_barrier(groups[i]));
    }
}

static void body(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *groups[GROUPS];
    size_t elements = (size_t)size * LARGE;
    int32_t *in = calloc(elements, sizeof *in);
    int32_t *out = calloc(elements * GROUPS, sizeof *out); /* what is not written takes no memory */
    CHECK(in != NULL && out != NULL);
    for (int i = 0; i < GROUPS; i++) {
        CHECK_OK(muster_group_split(muster_world(cluster), 0, rank, &groups[i]));
        if (rank == hasty) {
            CHECK_OK(muster_group_set_timeout(groups[i], SHORT_MS * patience()));
        }
        if (used_before && i != MAILED) {
            muster_request_t *request = NULL;
            CHECK_OK(start(groups[i], i % KINDS, counts[i / KINDS], in, out, &request));
            finish(request, MUSTER_OK);
        }
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    if (rank == late) {
        come_late(groups, in, out);
    } else {
        give_up(groups, rank, in, out);
    }
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    CHECK_OK(muster_finalize(cluster));
    for (int i = 0; i < GROUPS; i++) {
        muster_group_free(groups[i]);
    }
    muster_cluster_free(cluster);
    free(in);
    free(out);
}

/* Lets this rank go on, and waits until it has come to the next place. */
static void on_and_wait(struct ranks *ranks, bool those_who_are_late) {
    for (int i = 0; i < size; i++) {
        if ((i == late) == those_who_are_late) {
            CHECK(sem_post(&ranks->note[i].go) == 0);
        }
    }
    for (int i = 0; i < size; i++) {
        if ((i == late) == those_who_are_late) {
            await(&ranks->note[i].ready);
        }
    }
}

static void play(int ranks_in_all, int who_is_late, bool links_are_open) {
    static const char *const settings[] = {"finalize_timeout", "1", NULL};
    size = ranks_in_all;
    late = who_is_late;
    hasty = (who_is_late + 1) % size;
    used_before = links_are_open;
    struct ranks *ranks = ranks_start(size, body, settings);
    for (int i = 0; i < size; i++) {
        await(&ranks->note[i].ready);
    }
    CHECK(kill(ranks->scheduler, SIGKILL) == 0);
    await_child(ranks->scheduler);
    on_and_wait(ranks, false);
    on_and_wait(ranks, true);
    for (int i = 0; i < size; i++) {
        CHECK(sem_post(&ranks->note[i].go) == 0);
    }
    for (int i = 0; i < size; i++) {
        ranks_await(ranks, i);
    }
}

int main(void) {
    play(2, 1, true);
    play(2, 0, false);
    play(3, 2, true);
    play(3, 0, false);
    play(5, 4, true);
    play(5, 1, true);
    play(5, 2, false);
    return 0;
}
