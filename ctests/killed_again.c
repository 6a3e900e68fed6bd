/* With recovery: one that was lost is started again, and killed once more before muster_init has returned. Its third life is
 * let in at once: whichever of the tokens of those before it holds, it has that. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 3, LOST = 2, EPOCHS = 4, LIMIT_MS = 25000, SOON_S = 10 };

/* What the scheduler has said of the lost one. */
static struct heard {
    sem_t is_back;
    sem_t has_begun; /* another epoch */
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

static void lives(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *world = muster_world(cluster);
    if (rank == LOST && muster_epoch(cluster) > 1) {
        CHECK(muster_restarts(cluster) >= 1);
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

static void await_all(struct ranks *ranks) {
    for (int rank = 0; rank < SIZE; rank++) {
        await(&ranks->note[rank].ready);
    }
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

int main(void) {
    char path[] = "/tmp/muster-again-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    heard = mmap(NULL, sizeof *heard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(heard != MAP_FAILED);
    CHECK(sem_init(&heard->is_back, 1, 0) == 0 && sem_init(&heard->has_begun, 1, 0) == 0);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_WARNING, listen_to, NULL)); /* the children's, too */
    struct ranks *ranks = ranks_start(SIZE, lives, settings);
    await_all(ranks);

    /* The second life is killed while it waits for the others: the first one's token holds. */
    kill_lost(ranks);
    comes_back(ranks);
    kill_lost(ranks);
    comes_back(ranks);
    survivors_go_on(ranks);
    await(&heard->has_begun);
    await_all(ranks);

    /* It stands still while the epoch begins, and is killed before it has heard so: its own token holds. */
    kill_lost(ranks);
    comes_back(ranks);
    stop_process(ranks->pid[LOST]);
    survivors_go_on(ranks);
    await(&heard->has_begun);
    kill_lost(ranks);
    comes_back(ranks);
    survivors_go_on(ranks);
    await(&heard->has_begun);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
    return 0;
}
