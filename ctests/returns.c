/* With recovery: ranks and the scheduler are killed and started again, one, several, all; the others call muster_recover,
 * and all go on from the newest step that everyone has. Ranks, groups, store and sums are what they were. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 4, PHASES = 6, STEPS = 30, LIMIT_MS = 25000, PAUSE_NS = 5000000 };

/* What outlives a rank: its checkpoint, and what the parent looks at. */
struct kept {
    atomic_int go_on_to; /* the step at which ranks wait for the parent */
    atomic_int step[SIZE];
    int64_t sum[SIZE];
    atomic_int restarts[SIZE], recoveries[SIZE], stood[SIZE];
    atomic_llong epoch[SIZE];
};

static struct kept *kept;

static void rest(void) {
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    nanosleep(&pause, NULL);
}

/* One step; it adds the same to everybody's sum, whoever has died meanwhile. */
static muster_status_t step(muster_group_t *world, muster_group_t *half, int rank, int64_t number, int64_t *sum) {
    int64_t mine = number * (rank + 1), all = 0, few = 0;
    muster_status_t status = muster_allreduce(world, &mine, &all, 1, MUSTER_INT64, MUSTER_SUM);
    if (status == MUSTER_OK) {
        CHECK_IS(number * SIZE * (SIZE + 1) / 2, all);
        status = muster_allreduce(half, &mine, &few, 1, MUSTER_INT64, MUSTER_SUM);
    }
    if (status == MUSTER_OK) {
        CHECK_IS(number * (rank % 2 == 0 ? 1 + 3 : 2 + 4), few);
        *sum += all;
    }
    return status;
}

/* All go back to the newest step that everyone has. */
static muster_status_t agree(muster_group_t *world, int rank, int64_t *number, int64_t *sum) {
    int64_t own = atomic_load(&kept->step[rank]), agreed = 0;
    muster_status_t status = muster_allreduce(world, &own, &agreed, 1, MUSTER_INT64, MUSTER_MIN);
    if (status == MUSTER_OK) {
        CHECK(agreed == own || agreed == own - 1); /* a step ends for all or is repeated by all */
        *sum = kept->sum[rank] - (own - agreed) * own * SIZE * (SIZE + 1) / 2;
        *number = agreed;
    }
    return status;
}

static void works(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster), *half = NULL, *two = NULL;
    int32_t pair[] = {3, 0};
    int64_t number = 0, sum = 0, limit = 0;
    (void)ranks;
    CHECK_IS(rank, muster_rank(cluster));
    int64_t epoch = muster_epoch(cluster);
    atomic_store(&kept->restarts[rank], muster_restarts(cluster));
    atomic_store(&kept->epoch[rank], epoch);
    muster_status_t status = MUSTER_OK;
    bool agreed = false;
    while (number < STEPS * PHASES) {
        if (status == MUSTER_OK && half == NULL) {
            status = muster_group_split(world, rank % 2, rank, &half);
        }
        if (status == MUSTER_OK && two == NULL && (rank == 0 || rank == 3)) {
            status = muster_group_create(world, pair, 2, &two);
        } else if (status == MUSTER_OK && two == NULL) {
            muster_group_t *none = NULL;
            status = muster_group_create(world, pair, 2, &none);
            two = world; /* it is in none */
        }
        if (status == MUSTER_OK && !agreed) {
            status = agree(world, rank, &number, &sum);
            agreed = status == MUSTER_OK;
        }
        if (status == MUSTER_OK && number >= limit) { /* so does everybody; who dies meanwhile is noticed */
            int64_t seen = atomic_load(&kept->go_on_to);
            atomic_store(&kept->stood[rank], (int)number);
            rest();
            status = muster_allreduce(world, &seen, &limit, 1, MUSTER_INT64, MUSTER_MIN);
            continue;
        }
        if (status == MUSTER_OK) {
            status = step(world, half, rank, number + 1, &sum);
        }
        if (status == MUSTER_OK) {
            kept->sum[rank] = sum;
            atomic_store(&kept->step[rank], (int)++number);
            continue;
        }
        CHECK(status == MUSTER_ERR_PEER_LOST || status == MUSTER_ERR_REVOKED);
        status = muster_recover(cluster, LIMIT_MS);
        CHECK_OK(status);
        CHECK(muster_epoch(cluster) > epoch);
        epoch = muster_epoch(cluster);
        atomic_store(&kept->epoch[rank], epoch);
        atomic_fetch_add(&kept->recoveries[rank], 1);
        agreed = false;
        limit = 0;
    }
    if (two != world) {
        CHECK_IS(rank == 3 ? 0 : 1, muster_group_rank(two));
        CHECK_OK(muster_barrier(two));
    }
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* All ranks have done the steps of a phase. */
static void await_phase(int phase) {
    double limit = now_s() + 40 * patience();
    for (int rank = 0; rank < SIZE; rank++) {
        while (atomic_load(&kept->stood[rank]) < phase * STEPS) {
            CHECK(now_s() < limit);
            rest();
        }
    }
}

static void kill_rank(struct ranks *ranks, int rank) {
    ranks_kill(ranks, rank);
    ranks_await(ranks, rank);
}

static void kill_scheduler(struct ranks *ranks) {
    CHECK(kill(ranks->scheduler, SIGKILL) == 0);
    await_child(ranks->scheduler);
}

static void remove_all(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[512];
        struct stat about;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') {
            CHECK(stat(name, &about) == 0 && (about.st_mode & 077) == 0); /* whoever reads a token can take a place */
            CHECK(unlink(name) == 0);
        }
    }
    closedir(directory);
    CHECK(rmdir(path) == 0);
}

int main(void) {
    char path[] = "/tmp/muster-returns-XXXXXX";
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, "node_timeout", "2", NULL};
    kept = mmap(NULL, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(kept != MAP_FAILED);
    atomic_store(&kept->go_on_to, STEPS);
    struct ranks *ranks = ranks_start(SIZE, works, settings);
    await_phase(1);
    kill_rank(ranks, 2);
    ranks_start_rank(ranks, 2);
    atomic_store(&kept->go_on_to, 2 * STEPS);
    await_phase(2);
    CHECK_IS(1, atomic_load(&kept->restarts[2]));
    CHECK_IS(1, atomic_load(&kept->recoveries[0]));
    kill_scheduler(ranks);
    atomic_store(&kept->go_on_to, 3 * STEPS);
    await_phase(3); /* nobody needs it */
    CHECK_IS(1, atomic_load(&kept->recoveries[0]));
    ranks_start_scheduler(ranks);
    kill_rank(ranks, 0);
    kill_rank(ranks, 3);
    ranks_start_rank(ranks, 3);
    ranks_start_rank(ranks, 0);
    atomic_store(&kept->go_on_to, 4 * STEPS);
    await_phase(4);
    kill_scheduler(ranks);
    kill_rank(ranks, 1);
    ranks_start_rank(ranks, 1);
    ranks_start_scheduler(ranks);
    atomic_store(&kept->go_on_to, 5 * STEPS);
    await_phase(5);
    kill_scheduler(ranks);
    for (int rank = 0; rank < SIZE; rank++) {
        kill_rank(ranks, rank);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_start_rank(ranks, rank);
    }
    ranks_start_scheduler(ranks);
    atomic_store(&kept->go_on_to, PHASES * STEPS);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
        int64_t steps = PHASES * STEPS;
        CHECK_IS(steps * (steps + 1) / 2 * SIZE * (SIZE + 1) / 2, kept->sum[rank]);
        CHECK_IS(kept->epoch[0], kept->epoch[rank]);
    }
    CHECK_OK(ranks_finish(ranks));
    remove_all(path);
    return 0;
}
