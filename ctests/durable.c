/* The scheduler is killed again and again while ranks write into the store. What was acknowledged is there. What is added,
 * or set on a condition, happens once. The journal does not grow without end. A second scheduler on the same journal, and
 * the journal of another job, are refused by name. If a disk refuses, that is reported. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* LOG: after so many numbers in one key the next gets them, so that the journal stays short. LEAST: how often each rank writes, and takes a turn, however slow the machine is. */
enum { SIZE = 2, KILLS = 6, KEYS = 8, VALUE = 2000, LIMIT_MS = 20000, LEAST = 60, LOG = 50 };

static atomic_int *is_over;

/* What two ranks count up in turns, each on the condition that the other did not come between: which rank did so last, and
 * how often in all. */
struct turns {
    int64_t by, nth, all;
};

/* One attempt; whether it was this rank that set it. */
static bool takes_a_turn(muster_cluster_t *cluster, int rank, struct turns *seen, int64_t *taken) {
    struct turns wanted = {.by = rank, .nth = *taken + 1, .all = seen->all + 1};
    void *found = NULL;
    size_t length = 0, known = seen->all == 0 ? 0 : sizeof *seen;
    CHECK_OK(muster_store_compare_set(cluster, "turns", seen, known, &wanted, sizeof wanted, &found, &length));
    CHECK(length == sizeof *seen);
    memcpy(seen, found, length);
    muster_free(found);
    bool is_set = seen->by == wanted.by && seen->nth == wanted.nth;
    *taken += is_set;
    return is_set;
}

/* The i-th bytes of this rank, behind those before, and two keys that always say the same. */
static void appends(muster_cluster_t *cluster, int rank, uint32_t i) {
    char names[3][16];
    size_t total = 0;
    snprintf(names[0], sizeof names[0], "log/%d/%u", rank, (unsigned)(i / LOG));
    CHECK_OK(muster_store_append(cluster, names[0], strlen(names[0]), &i, sizeof i, &total));
    CHECK_IS((i / LOG == 0 ? i : i % LOG + 1) * sizeof i, total); /* each once */
    muster_bytes_t pair[2], value[2] = {{&i, sizeof i}, {&i, sizeof i}}, *found = NULL;
    for (int at = 0; at < 2; at++) {
        snprintf(names[1 + at], sizeof names[0], "pair/%d", at);
        pair[at] = (muster_bytes_t){names[1 + at], strlen(names[1 + at])};
    }
    CHECK_OK(muster_store_multi_set(cluster, pair, value, 2));
    CHECK_OK(muster_store_multi_get(cluster, pair, 2, 0, &found));
    CHECK(found[0].len == sizeof i && memcmp(found[0].data, found[1].data, sizeof i) == 0);
    muster_free(found);
}

static void writes(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    char key[32], value[VALUE];
    int64_t added = 0, sum = 0, own = 0, taken = 0;
    struct turns turns = {0};
    uint32_t last[KEYS] = {0};
    (void)ranks;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    for (uint32_t i = 1; !atomic_load(is_over) || i <= LEAST || taken < LEAST; i++) {
        memset(value, (int)(i & 0x7f), sizeof value);
        memcpy(value, &i, sizeof i);
        snprintf(key, sizeof key, "%d/%u", rank, (unsigned)(i % KEYS));
        CHECK_OK(muster_store_set(cluster, key, value, sizeof value));
        last[i % KEYS] = i;
        CHECK_OK(muster_store_add(cluster, "sum", 1, &sum));
        appends(cluster, rank, i);
        snprintf(key, sizeof key, "own/%d", rank);
        CHECK_OK(muster_store_add(cluster, key, 1, &own));
        CHECK_IS(++added, own);
        for (int attempt = 0; attempt < 3 && !takes_a_turn(cluster, rank, &turns, &taken); attempt++) {
        }
    }
    for (int at = 0; at < KEYS; at++) {
        void *found = NULL;
        size_t length = 0;
        snprintf(key, sizeof key, "%d/%d", rank, at);
        if (last[at] != 0) {
            CHECK_OK(muster_store_get(cluster, key, LIMIT_MS, &found, &length));
            CHECK(length == VALUE && memcmp(found, &last[at], sizeof last[at]) == 0);
            muster_free(found);
        }
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_store_add(cluster, "own/0", 0, &own));
    CHECK_OK(muster_store_add(cluster, "own/1", 0, &added));
    CHECK_OK(muster_store_add(cluster, "sum", 0, &sum));
    CHECK_IS(own + added, sum);
    CHECK(sum >= SIZE * LEAST);
    int64_t all = 0;
    CHECK_OK(muster_allreduce(muster_world(cluster), &taken, &all, 1, MUSTER_INT64, MUSTER_SUM));
    void *last_turn = NULL;
    size_t length = 0;
    CHECK_OK(muster_store_get(cluster, "turns", LIMIT_MS, &last_turn, &length));
    CHECK(length == sizeof turns);
    memcpy(&turns, last_turn, length);
    muster_free(last_turn);
    CHECK_IS(all, turns.all); /* what was set counts once; what is called not set was not set */
    CHECK(all >= SIZE * LEAST);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* A scheduler with these settings cannot start. */
static void refused(const char *path, const char *workers, const char *port, muster_status_t status, const char *words) {
    muster_config_t *config = NULL;
    muster_scheduler_t *scheduler = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    const char *pairs[][2] = {{"role", "MS_SCHED"}, {"worker_num", workers}, {"sched_host", "127.0.0.1"},
                              {"sched_port", port}, {"enable_recovery", "1"}, {"recovery_path", path}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        CHECK_OK(muster_config_set(config, pairs[i][0], pairs[i][1]));
    }
    CHECK_IS(status, muster_scheduler_start(config, &scheduler));
    CHECK(scheduler == NULL);
    CHECK_CONTAINS(muster_last_error(), words);
    CHECK_CONTAINS(muster_last_error(), path);
    muster_config_free(config);
}

static long long length_of(const char *path, const char *name) {
    char whole[256];
    struct stat about;
    snprintf(whole, sizeof whole, "%s/%s", path, name);
    CHECK(stat(whole, &about) == 0);
    return (long long)about.st_size;
}

int main(void) {
    char path[] = "/tmp/muster-durable-XXXXXX", file[64], command[128], owner[32];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    is_over = mmap(NULL, sizeof *is_over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(is_over != MAP_FAILED);
    struct ranks *ranks = ranks_start(SIZE, writes, settings);
    snprintf(owner, sizeof owner, "pid %d", (int)ranks->scheduler);
    refused(path, "2", "0", MUSTER_ERR_JOURNAL, owner);
    srand(7);
    for (int i = 0; i < KILLS; i++) {
        int pause_ms = (100 + rand() % 700) * patience();
        struct timespec pause = {.tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
        CHECK(kill(ranks->scheduler, SIGKILL) == 0);
        await_child(ranks->scheduler);
        if (i == 0) {
            refused(path, "3", "0", MUSTER_ERR_JOURNAL, "another job");
        }
        ranks_start_scheduler(ranks);
    }
    struct timespec pause = {.tv_sec = patience() / 2, .tv_nsec = patience() % 2 * 500000000};
    nanosleep(&pause, NULL);
    atomic_store(is_over, 1);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    CHECK(length_of(path, "scheduler.journal") < 3 << 19); /* it is rewritten beyond a MiB */
    snprintf(file, sizeof file, "%s/scheduler.journal", path);
    refused(file, "2", "0", MUSTER_ERR_JOURNAL, "directory");
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
    return 0;
}
