/* With recovery: how a cluster that lacks a rank ends. It is aborted; or its scheduler is stopped; or a survivor leaves; or
 * a rank that was given up tidies up, which ends nothing. Nobody waits in muster_recover for something that will not come.
 * */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 3, LOST = 2, LIMIT_MS = 25000, SOON_S = 10 };

static void lose(muster_cluster_t *cluster, struct note *note) {
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    if (muster_rank(cluster) == LOST) {
        await(&note->go); /* it is killed here */
    }
    muster_status_t status = muster_barrier(muster_world(cluster));
    CHECK_IS(MUSTER_ERR_PEER_LOST, status);
    keep_failure(note, cluster, status);
    CHECK_IS(LOST, note->failure.rank);
}

static void recovers_in_vain(muster_cluster_t *cluster, muster_status_t expected) {
    double begun = now_s();
    CHECK_IS(expected, muster_recover(cluster, -1));
    CHECK(now_s() - begun < SOON_S * patience());
}

/* Rank 1 aborts while rank 0 waits for the lost one. */
static void aborts(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    lose(cluster, &ranks->note[rank]);
    if (rank == 1) {
        await(&ranks->note[1].go);
        CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recover(cluster, 0));
        CHECK_OK(muster_abort(cluster, 7, "it is not worth it"));
        CHECK(sem_post(&ranks->note[1].ready) == 0);
    } else {
        CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recover(cluster, 0));
        CHECK(sem_post(&ranks->note[1].go) == 0);
        recovers_in_vain(cluster, MUSTER_ERR_ABORTED);
        CHECK_CONTAINS(muster_last_error(), "it is not worth it");
    }
    for (int time = 0; time < 2; time++) {
        recovers_in_vain(cluster, MUSTER_ERR_ABORTED);
        CHECK_CONTAINS(muster_last_error(), "code 7");
        CHECK_IS(MUSTER_ERR_PEER_LOST, muster_barrier(muster_world(cluster))); /* what failed keeps its first cause */
        if (time == 0 && rank == 0) {
            await(&ranks->note[1].ready);
            CHECK(kill(ranks->scheduler, SIGKILL) == 0); /* nobody is left who could say so */
        }
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* Rank 1 leaves while rank 0 waits. */
static void leaves(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    lose(cluster, &ranks->note[rank]);
    if (rank == 1) {
        await(&ranks->note[1].go);
    } else {
        CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recover(cluster, 0));
        CHECK_CONTAINS(muster_last_error(), "rank 1");
        CHECK(sem_post(&ranks->note[1].go) == 0);
        recovers_in_vain(cluster, MUSTER_ERR_PEER_LEFT);
        CHECK_CONTAINS(muster_last_error(), "rank 1");
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void await_loss(struct ranks *ranks) {
    ranks_await_ready(ranks);
}

static void ends(rank_body body, const char *const *settings, muster_status_t expected) {
    struct ranks *ranks = ranks_start(SIZE, body, settings);
    await_loss(ranks);
    ranks_kill(ranks, LOST);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    if (expected == MUSTER_OK) {
        await_child(ranks->scheduler); /* it was killed */
    } else {
        CHECK_IS(expected, ranks_finish(ranks));
    }
}

/* The lost rank is stopped, hears that it is given up, and tidies up before another process has its place. */
static void tidies_up(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    if (muster_epoch(cluster) == 1 && rank == LOST) {
        CHECK_OK(muster_barrier(world));
        CHECK(sem_post(&ranks->note[rank].ready) == 0);
        await(&ranks->note[rank].go); /* it is stopped here */
        CHECK_IS(MUSTER_ERR_FENCED, muster_barrier(world));
        recovers_in_vain(cluster, MUSTER_ERR_FENCED);
        CHECK(muster_store_set(cluster, "late", "x", 1) != MUSTER_OK);
        CHECK_OK(muster_finalize(cluster));
        muster_cluster_free(cluster);
        return;
    }
    if (muster_epoch(cluster) == 1) {
        lose(cluster, &ranks->note[rank]);
        CHECK(sem_post(&ranks->note[rank].ready) == 0);
        CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
    }
    CHECK_IS(2, muster_epoch(cluster));
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void one_that_was_given_up(const char *const *settings) {
    struct ranks *ranks = ranks_start(SIZE, tidies_up, settings);
    await_loss(ranks);
    pid_t stopped = ranks->pid[LOST];
    stop_process(stopped);
    for (int rank = 0; rank < LOST; rank++) {
        await(&ranks->note[rank].ready);
    }
    CHECK(sem_post(&ranks->note[LOST].go) == 0);
    CHECK(kill(stopped, SIGCONT) == 0);
    int status = await_child(stopped);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* Three heartbeat time-outs: the scheduler must not have taken that goodbye for a member's. */
    struct timespec pause = {.tv_sec = patience() >= 20 ? 30 : 1, .tv_nsec = 500000000};
    nanosleep(&pause, NULL);
    ranks_start_rank(ranks, LOST);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
}

struct waiter {
    muster_cluster_t *cluster;
    pthread_barrier_t *begun;
    const struct plan *plan;
    const char *port;
    int index;
};

static void *waits(void *argument) {
    struct waiter *waiter = argument;
    muster_cluster_t *cluster = join(waiter->plan, waiter->port, waiter->index);
    if (waiter->index == 0) {
        CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recover(cluster, 0)); /* the others' groups are revoked from here on */
        pthread_barrier_wait(waiter->begun);
        recovers_in_vain(cluster, MUSTER_ERR_ABORTED);
        CHECK_CONTAINS(muster_last_error(), "stopped by its program");
    } else {
        pthread_barrier_wait(waiter->begun);
        void *value = NULL;
        size_t length = 0;
        CHECK_IS(MUSTER_ERR_ABORTED, muster_store_get(cluster, "never", INT64_MAX, &value, &length));
    }
    recovers_in_vain(cluster, MUSTER_ERR_ABORTED);
    muster_cluster_free(cluster);
    return NULL;
}

/* The program that hosts the scheduler stops it, while a node waits for the next epoch. */
static void the_scheduler_is_stopped(const char *const *settings) {
    struct plan plan = {.workers = 2, .node_ids = rank_ids, .settings = settings};
    char port[8] = "";
    pthread_t thread[2];
    struct waiter waiter[2];
    pthread_barrier_t begun;
    CHECK(pthread_barrier_init(&begun, NULL, 3) == 0);
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    for (int i = 0; i < 2; i++) {
        waiter[i] = (struct waiter){.begun = &begun, .plan = &plan, .port = port, .index = i};
        CHECK(pthread_create(&thread[i], NULL, waits, &waiter[i]) == 0);
    }
    pthread_barrier_wait(&begun);
    CHECK_OK(muster_scheduler_stop(scheduler));
    CHECK_IS(MUSTER_ERR_ABORTED, muster_scheduler_wait(scheduler, 0));
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
    }
    muster_scheduler_free(scheduler);
    pthread_barrier_destroy(&begun);
}

/* Whatever the store accepts must fit into the journal: otherwise the first long value would end the scheduler. */
static void a_store_too_large(const char *path) {
    muster_config_t *config = NULL;
    muster_scheduler_t *scheduler = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    const char *settings[] = {"worker_num", "1", "enable_recovery", "1", "recovery_path", path, NULL};
    for (const char *const *setting = settings; *setting != NULL; setting += 2) {
        CHECK_OK(muster_config_set(config, setting[0], setting[1]));
    }
    CHECK_OK(muster_config_set(config, "store_value_limit", "67108864"));
    CHECK_FAILS(MUSTER_ERR_CONFIG, "67108864", muster_scheduler_start(config, &scheduler));
    CHECK_OK(muster_config_set(config, "store_value_limit", "60000000"));
    CHECK_OK(muster_scheduler_start(config, &scheduler));
    muster_scheduler_free(scheduler);
    muster_config_free(config);
}

int main(void) {
    char command[160];
    char path[4][32];
    const char *settings[4][7];
    for (int i = 0; i < 4; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/muster-endings-XXXXXX");
        CHECK(mkdtemp(path[i]) != NULL);
        const char *these[] = {"enable_recovery", "1", "recovery_path", path[i], "node_timeout", "0.5", NULL};
        memcpy(settings[i], these, sizeof these);
    }
    one_that_was_given_up(settings[0]);
    ends(leaves, settings[1], MUSTER_ERR_PEER_LOST);
    ends(aborts, settings[2], MUSTER_OK); /* forks, as those above, so before the library is used here */
    the_scheduler_is_stopped(settings[3]);
    a_store_too_large(path[1]);
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command, "rm -r %s", path[i]);
        CHECK(system(command) == 0);
    }
    return 0;
}
