/* muster_abort while there is no scheduler: the rank that ends the job tells every other one itself. Their pending calls, and
 * their next ones, return with its rank, code and reason. Whom it does not reach it counts, and with recovery a scheduler that
 * is started again tells that one. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>

enum { SIZE = 4, ABORTS = 1, RECEIVES = 2, ODD = 3, CODE = 7, SOON_S = 5 };

/* What is the matter with the odd one while the job is ended. */
static enum { WELL, DEAD, STOPPED } odd_is = WELL;

static const char *const why = "code 7: the disk is gone";

/* This call has heard of it, and so do those after it. */
static void check_told(muster_cluster_t *cluster, struct note *note, muster_status_t status) {
    keep_failure(note, cluster, status);
    CHECK_IS(MUSTER_ERR_ABORTED, status);
    CHECK_CONTAINS(note->words, why);
    CHECK_CONTAINS(note->words, "rank 1 (");
    CHECK_IS(MUSTER_ERR_ABORTED, note->failure.status);
    CHECK_IS(ABORTS, note->failure.rank);
    CHECK_FAILS(MUSTER_ERR_ABORTED, why, muster_recover(cluster, 0));
}

static muster_status_t ends_the_job(muster_cluster_t *cluster) {
    double begun = now_s();
    if (odd_is == WELL) {
        CHECK_OK(muster_abort(cluster, CODE, "the disk is gone"));
    } else {
        CHECK_FAILS(MUSTER_ERR_UNREACHABLE, "1 of 3 other nodes", muster_abort(cluster, CODE, "the disk is gone"));
    }
    CHECK(now_s() - begun < SOON_S * patience());
    CHECK_OK(muster_abort(cluster, CODE + 1, "once more")); /* it is over already */
    return muster_barrier(muster_world(cluster));
}

static void body(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *world = muster_world(cluster);
    int32_t value = 0;
    CHECK_OK(muster_barrier(world));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    muster_status_t status;
    switch (rank) {
    case ABORTS: status = ends_the_job(cluster); break;
    case RECEIVES: status = muster_recv(world, &value, 1, MUSTER_INT32, 0, 0, NULL, 0); break;
    /* Nobody but the scheduler tells it, if it was not reached. */
    case ODD: status = odd_is == STOPPED ? muster_recover(cluster, 30000 * patience()) : muster_barrier(world); break;
    default: status = muster_barrier(world);
    }
    check_told(cluster, note, status);
    if (rank != ODD) {
        CHECK_FAILS(MUSTER_ERR_ABORTED, why, muster_barrier(world));
    }
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    double begun = now_s();
    CHECK_OK(muster_finalize(cluster));
    CHECK(now_s() - begun < SOON_S * patience());
    muster_cluster_free(cluster);
}

static void go(struct ranks *ranks, int rank) { CHECK(sem_post(&ranks->note[rank].go) == 0); }

/* Lets one go on, and waits until it has come to the next place. */
static void go_and_wait(struct ranks *ranks, int rank) {
    go(ranks, rank);
    await(&ranks->note[rank].ready);
}

static struct ranks *without_scheduler(const char *const *settings) {
    struct ranks *ranks = ranks_start(SIZE, body, settings);
    for (int rank = 0; rank < SIZE; rank++) {
        await(&ranks->note[rank].ready);
    }
    CHECK(kill(ranks->scheduler, SIGKILL) == 0);
    await_child(ranks->scheduler);
    return ranks;
}

static void let_them_leave(struct ranks *ranks) {
    for (int rank = 0; rank < SIZE; rank++) {
        go(ranks, rank);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
}

/* Two wait in calls while a third ends the job, and the fourth calls afterwards. */
static void all_are_well(void) {
    odd_is = WELL;
    struct ranks *ranks = without_scheduler(NULL);
    go(ranks, 0);
    go(ranks, RECEIVES);
    go_and_wait(ranks, ABORTS);
    await(&ranks->note[0].ready);
    await(&ranks->note[RECEIVES].ready);
    go_and_wait(ranks, ODD);
    let_them_leave(ranks);
}

static void one_is_dead(void) {
    odd_is = DEAD;
    struct ranks *ranks = without_scheduler(NULL);
    ranks_kill(ranks, ODD);
    ranks_await(ranks, ODD);
    go_and_wait(ranks, ABORTS);
    go_and_wait(ranks, 0);
    go_and_wait(ranks, RECEIVES);
    for (int rank = 0; rank < ODD; rank++) {
        go(ranks, rank);
        ranks_await(ranks, rank);
    }
}

static void a_scheduler_comes_back(void) {
    char path[] = "/tmp/muster-abort-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    odd_is = STOPPED;
    struct ranks *ranks = without_scheduler(settings);
    stop_process(ranks->pid[ODD]);
    go_and_wait(ranks, ABORTS);
    go_and_wait(ranks, 0);
    go_and_wait(ranks, RECEIVES);
    CHECK(kill(ranks->pid[ODD], SIGCONT) == 0);
    ranks_start_scheduler(ranks);
    go_and_wait(ranks, ODD);
    let_them_leave(ranks);
    CHECK_IS(MUSTER_ERR_ABORTED, ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

int main(void) {
    all_are_well();
    one_is_dead();
    a_scheduler_comes_back();
    return 0;
}
