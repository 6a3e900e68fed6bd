/* With recovery: a rank is stopped, given up within the heartbeat time-out and one interval, and replaced; when it goes on, before
 * that or afterwards, it is fenced, whatever it calls, and ends nothing. A newcomer whose place is held by one that lives is refused
 * by name, and harms nobody. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 3, STOPPED = 1, LIMIT_MS = 25000 };
/* What a machine that is busy may add to the time until a rank is given up. */
static const double SLACK_S = 2;

static atomic_int *may_go_on;

static void lives(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *world = muster_world(cluster);
    muster_status_t status = MUSTER_OK;
    int64_t epoch = muster_epoch(cluster);
    if (epoch == 1) {
        CHECK_OK(muster_barrier(world));
        CHECK(sem_post(&note->ready) == 0);
        if (rank == STOPPED) {
            for (;;) { /* the parent stops it here, and lets it go on */
                struct timespec pause = {.tv_nsec = 1000000};
                nanosleep(&pause, NULL);
                if (atomic_load(may_go_on)) {
                    break;
                }
            }
            CHECK(muster_store_set(cluster, "late", "x", 1) != MUSTER_OK);
            status = muster_barrier(world);
            CHECK_IS(MUSTER_ERR_FENCED, status);
            CHECK_CONTAINS(muster_last_error(), "given up");
            CHECK_IS(MUSTER_ERR_FENCED, muster_recover(cluster, LIMIT_MS));
            CHECK_FAILS(MUSTER_ERR_FENCED, "given up", muster_abort(cluster, 1, "given up by the others"));
            CHECK_OK(muster_finalize(cluster));
            muster_cluster_free(cluster);
            return;
        }
        status = muster_barrier(world);
        note->took_s = now_s(); /* from the stop on, which the parent knows */
        CHECK_IS(MUSTER_ERR_PEER_LOST, status);
        keep_failure(note, cluster, status);
        CHECK_IS(STOPPED, note->failure.rank);
        int32_t failed[SIZE];
        size_t count = 0;
        CHECK_OK(muster_failed_ranks(cluster, failed, SIZE, &count));
        CHECK(count == 1 && failed[0] == STOPPED);
        CHECK(sem_post(&note->ready) == 0);
        CHECK_OK(muster_recover(cluster, LIMIT_MS));
        CHECK_OK(muster_failed_ranks(cluster, failed, SIZE, &count));
        CHECK(count == 0);
    }
    CHECK_IS(2, muster_epoch(cluster));
    CHECK_IS(rank == STOPPED ? 1 : 0, muster_restarts(cluster));
    CHECK_OK(muster_barrier(world));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    CHECK_OK(muster_barrier(world));
    int32_t existed = 1;
    if (rank == 0) {
        CHECK_OK(muster_store_delete(cluster, "late", &existed));
        CHECK_IS(0, existed);
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* One more with the id of a rank that lives. */
static void newcomer(struct ranks *ranks, const char *const *settings) {
    muster_config_t *config = NULL;
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    for (; *settings != NULL; settings += 2) {
        CHECK_OK(muster_config_set(config, settings[0], settings[1]));
    }
    CHECK_OK(muster_config_set(config, "role", "MS_WORKER"));
    CHECK_OK(muster_config_set(config, "worker_num", "3"));
    CHECK_OK(muster_config_set(config, "sched_host", "127.0.0.1"));
    CHECK_OK(muster_config_set(config, "sched_port", ranks->port));
    CHECK_OK(muster_config_set(config, "node_id", "2"));
    CHECK_IS(MUSTER_ERR_REJECTED, muster_init(config, &cluster));
    CHECK_CONTAINS(muster_last_error(), "lives");
    CHECK_CONTAINS(muster_last_error(), "rank 2");
    muster_config_free(config);
}

/* The one that was stopped goes on, and ends. */
static void goes_on(pid_t stopped) {
    atomic_store(may_go_on, 1);
    CHECK(kill(stopped, SIGCONT) == 0);
    int status = await_child(stopped);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void play(int early) {
    char path[] = "/tmp/muster-fenced-XXXXXX", elsewhere[] = "/tmp/muster-fenced-XXXXXX", command[128];
    CHECK(mkdtemp(path) != NULL && mkdtemp(elsewhere) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, "node_timeout", half_a_second(), NULL};
    const char *strange[] = {"enable_recovery", "1", "recovery_path", elsewhere, NULL};
    atomic_store(may_go_on, 0);
    struct ranks *ranks = ranks_start(SIZE, lives, settings);
    for (int rank = 0; rank < SIZE; rank++) {
        await(&ranks->note[rank].ready);
    }
    newcomer(ranks, strange);
    pid_t stopped = ranks->pid[STOPPED];
    double stopped_s = now_s(), time_out_s = atof(half_a_second());
    stop_process(stopped);
    for (int rank = 0; rank < SIZE; rank += 2) {
        await(&ranks->note[rank].ready);
        CHECK(ranks->note[rank].took_s - stopped_s <= time_out_s * 6 / 5 + SLACK_S * patience());
    }
    if (early) {
        goes_on(stopped);
    }
    ranks_start_rank(ranks, STOPPED);
    for (int rank = 0; rank < SIZE; rank++) {
        await(&ranks->note[rank].ready);
    }
    if (!early) {
        goes_on(stopped);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        CHECK(sem_post(&ranks->note[rank].go) == 0);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s %s", path, elsewhere);
    CHECK(system(command) == 0);
}

int main(void) {
    may_go_on = mmap(NULL, sizeof *may_go_on, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(may_go_on != MAP_FAILED);
    play(0);
    play(1);
    return 0;
}
