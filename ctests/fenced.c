/* With recovery: one life of a rank at most is a member.
 * - A rank that is stopped is given up within the heartbeat time-out and one interval, and replaced. When it goes on,
 *   before that or afterwards, it is fenced, whatever it calls, and ends nothing.
 * - A newcomer whose place belongs to a living process is refused by name, and harms nobody.
 * - A rank may come back and be killed or stopped before muster_init has returned. It is replaced in its turn, at once,
 *   whichever of the earlier lives' tokens the next life holds. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 3, STOPPED = 1, LOST = 2, EPOCHS = 5, LIMIT_MS = 25000, SOON_S = 10 };
/* What a machine that is busy may add to the time until a rank is given up. */
static const double SLACK_S = 2;

static atomic_int *may_go_on;

static void stops_or_goes_on(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
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
            CHECK_CONTAINS(muster_last_error(), "taken for lost");
            CHECK_IS(MUSTER_ERR_FENCED, muster_recover(cluster, LIMIT_MS));
            CHECK_FAILS(MUSTER_ERR_FENCED, "taken for lost", muster_abort(cluster, 1, "too late"));
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

/* One more process with the id of rank 2. It gets this status from muster_init. */
static void newcomer(const struct ranks *ranks, const char *const *settings, muster_status_t status, const char *words) {
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
    CHECK_FAILS(status, words, muster_init(config, &cluster));
    muster_config_free(config);
}

/* The process that was stopped goes on, and ends. */
static void goes_on(pid_t stopped) {
    atomic_store(may_go_on, 1);
    CHECK(kill(stopped, SIGCONT) == 0);
    int status = await_child(stopped);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void is_given_up(int early) {
    char path[] = "/tmp/muster-fenced-XXXXXX", elsewhere[] = "/tmp/muster-fenced-XXXXXX", command[128];
    CHECK(mkdtemp(path) != NULL && mkdtemp(elsewhere) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, "node_timeout", "0.5", NULL};
    const char *strange[] = {"enable_recovery", "1", "recovery_path", elsewhere, NULL};
    atomic_store(may_go_on, 0);
    struct ranks *ranks = ranks_start(SIZE, stops_or_goes_on, settings);
    ranks_await_ready(ranks);
    newcomer(ranks, strange, MUSTER_ERR_REJECTED, "lives");
    CHECK_CONTAINS(muster_last_error(), "rank 2");
    pid_t stopped = ranks->pid[STOPPED];
    double stopped_s = now_s(), time_out_s = 0.5 * patience();
    stop_process(stopped);
    for (int rank = 0; rank < SIZE; rank += 2) {
        await(&ranks->note[rank].ready);
        CHECK(ranks->note[rank].took_s - stopped_s <= time_out_s * 6 / 5 + SLACK_S * patience());
    }
    if (early) {
        goes_on(stopped);
    }
    ranks_start_rank(ranks, STOPPED);
    ranks_await_ready(ranks);
    if (!early) {
        goes_on(stopped);
    }
    ranks_go(ranks);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s %s", path, elsewhere);
    CHECK(system(command) == 0);
}

/* What the scheduler has said of the lost one. */
static struct heard {
    sem_t is_back;
    sem_t has_begun; /* another epoch */
    atomic_int restarts;
} *heard;

static void listen_to(int32_t level, const char *target, const char *message, void *context) {
    (void)level;
    (void)target;
    (void)context;
    if (strncmp(message, "rank 2 (", 8) == 0 && strstr(message, ") is back, ") != NULL) {
        CHECK(sem_post(&heard->is_back) == 0);
    }
    if (strncmp(message, "epoch ", 6) == 0 && strstr(message, " has begun: ") != NULL) {
        CHECK(sem_post(&heard->has_begun) == 0);
    }
}

static void is_lost_again(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *world = muster_world(cluster);
    if (rank == LOST) {
        CHECK_IS(atomic_load(&heard->restarts), muster_restarts(cluster));
    }
    while (muster_epoch(cluster) < EPOCHS) {
        int64_t epoch = muster_epoch(cluster);
        muster_status_t status = muster_barrier(world);
        if (status == MUSTER_OK) {
            CHECK(sem_post(&note->ready) == 0);
            if (rank == LOST) {
                await(&note->go); /* it is killed here */
            }
            status = muster_barrier(world);
        }
        CHECK_IS(MUSTER_ERR_PEER_LOST, status);
        keep_failure(note, cluster, status);
        CHECK_IS(LOST, note->failure.rank);
        await(&note->go);
        CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
        CHECK_IS(epoch + 1, muster_epoch(cluster));
    }
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void kill_lost(struct ranks *ranks) {
    ranks_kill(ranks, LOST);
    ranks_await(ranks, LOST);
}

/* Starts the lost one, and waits until the scheduler has let it in. */
static void comes_back(struct ranks *ranks) {
    double begun = now_s();
    ranks_start_rank(ranks, LOST);
    await(&heard->is_back);
    CHECK(now_s() - begun < SOON_S * patience()); /* without a token it would be 30 s */
}

static void survivors_go_on(struct ranks *ranks) {
    for (int rank = 0; rank < LOST; rank++) {
        CHECK(sem_post(&ranks->note[rank].go) == 0);
    }
}

/* A life that is fenced when it goes on, while it waits in muster_init. */
static pid_t second_life(const struct ranks *ranks, const char *const *settings) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        newcomer(ranks, settings, MUSTER_ERR_FENCED, "another process has its place");
        _exit(0);
    }
    await(&heard->is_back);
    return pid;
}

static void an_epoch_begins(struct ranks *ranks) {
    survivors_go_on(ranks);
    await(&heard->has_begun);
}

static void one_is_lost_again(void) {
    char path[] = "/tmp/muster-again-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    heard = mmap(NULL, sizeof *heard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(heard != MAP_FAILED);
    CHECK(sem_init(&heard->is_back, 1, 0) == 0 && sem_init(&heard->has_begun, 1, 0) == 0);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_WARNING, listen_to, NULL)); /* the children's, too */
    struct ranks *ranks = ranks_start(SIZE, is_lost_again, settings);
    ranks_await_ready(ranks);

    /* The second life is stopped while it waits for the others, and a third one takes its place. */
    atomic_store(&heard->restarts, 1);
    kill_lost(ranks);
    pid_t second = second_life(ranks, settings);
    stop_process(second);
    comes_back(ranks);
    an_epoch_begins(ranks);
    ranks_await_ready(ranks);
    goes_on(second);

    /* The second life is killed while it waits for the others: the first one's token holds. */
    atomic_store(&heard->restarts, 2);
    kill_lost(ranks);
    comes_back(ranks);
    kill_lost(ranks);
    comes_back(ranks);
    an_epoch_begins(ranks);
    ranks_await_ready(ranks);

    /* It stands still while the epoch begins, and is killed before it has heard of that: its own token holds. */
    atomic_store(&heard->restarts, 4);
    kill_lost(ranks);
    comes_back(ranks);
    stop_process(ranks->pid[LOST]);
    an_epoch_begins(ranks);
    kill_lost(ranks);
    comes_back(ranks);
    an_epoch_begins(ranks);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

int main(void) {
    may_go_on = mmap(NULL, sizeof *may_go_on, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(may_go_on != MAP_FAILED);
    is_given_up(0);
    is_given_up(1);
    one_is_lost_again();
    return 0;
}
