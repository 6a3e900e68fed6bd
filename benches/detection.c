/* How long until everybody knows: kills a rank with SIGKILL, again and again, while the others wait for it in a barrier, and
 * takes the time until the call of each survivor returns; then starts it again, and takes the time until all have passed a
 * barrier of the next epoch. Then kills the scheduler, and takes the time of allreduces with it and without.
 *
 *   detection [KILLS=200] [RANKS=8] [SEED=1]     prints a table, as CSV; `make detection` builds it and runs it */
#define _GNU_SOURCE
#include <muster.h>

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64, LIMIT_S = 60, REDUCTIONS = 4000 };

struct rank {
    atomic_int rounds; /* that it has begun: it is about to wait for the victim */
    atomic_int told;   /* how many losses it was told of */
    atomic_int whole;  /* how many epochs it has passed a barrier in */
    double told_s, whole_s;
    atomic_int measured;
    double reduction_s[2][REDUCTIONS]; /* with the scheduler, and without */
    int blamed, status;
};

static struct {
    int ranks;
    char port[8], path[64];
    atomic_int victim; /* of the round that is under way */
    atomic_int round;  /* which one; 0: all go on to the next barrier */
    atomic_int over;
    atomic_int is_away; /* the scheduler */
    struct rank rank[RANKS_MAX];
} *shared;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "detection: pid %d: %s: %s\n", (int)getpid(), what, muster_last_error());
        exit(1);
    }
}

static void nap(void) {
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

static muster_config_t *settings(const char *role) {
    muster_config_t *config = NULL;
    char number[16];
    check(muster_config_new(MUSTER_ABI_VERSION, &config) == MUSTER_OK, "settings");
    snprintf(number, sizeof number, "%d", shared->ranks);
    const char *pairs[][2] = {{"role", role}, {"worker_num", number}, {"sched_host", "127.0.0.1"},
                              {"sched_port", shared->port}, {"enable_recovery", "1"}, {"recovery_path", shared->path}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        check(muster_config_set(config, pairs[i][0], pairs[i][1]) == MUSTER_OK, "settings");
    }
    return config;
}

/* Times allreduces of one number. */
static void reduce(muster_group_t *world, double *took) {
    for (int i = 0; i < REDUCTIONS; i++) {
        int64_t one = 1;
        double begun = now_s();
        check(muster_allreduce(world, &one, &one, 1, MUSTER_INT64, MUSTER_SUM) == MUSTER_OK, "an allreduce");
        took[i] = now_s() - begun;
    }
}

static void be_rank(int index) {
    struct rank *own = &shared->rank[index];
    muster_config_t *config = settings("MS_WORKER");
    muster_cluster_t *cluster = NULL;
    char id[16];
    snprintf(id, sizeof id, "%d", index);
    check(muster_config_set(config, "node_id", id) == MUSTER_OK, "settings");
    check(muster_init(config, &cluster) == MUSTER_OK, "muster_init");
    muster_config_free(config);
    muster_group_t *world = muster_world(cluster);
    while (!atomic_load(&shared->over)) {
        check(muster_barrier(world) == MUSTER_OK, "the barrier of a whole cluster");
        own->whole_s = now_s();
        int round = atomic_fetch_add(&own->whole, 1) + 1;
        while (atomic_load(&shared->round) < round && !atomic_load(&shared->over)) {
            nap();
        }
        if (atomic_load(&shared->over)) {
            break;
        }
        atomic_store(&own->rounds, round);
        if (atomic_load(&shared->victim) == index) {
            for (;;) {
                pause(); /* to be killed */
            }
        }
        own->status = muster_barrier(world);
        own->told_s = now_s();
        muster_failure_t failure;
        own->blamed = muster_failure(cluster, &failure, sizeof failure) == MUSTER_OK ? failure.rank : -1;
        atomic_fetch_add(&own->told, 1);
        check(muster_recover(cluster, 1000 * LIMIT_S) == MUSTER_OK, "muster_recover");
    }
    for (int away = 0; away < 2; away++) {
        while (atomic_load(&shared->is_away) < away) {
            nap();
        }
        reduce(world, own->reduction_s[away]);
        atomic_fetch_add(&own->measured, 1);
    }
    while (atomic_load(&shared->is_away) < 2) {
        nap();
    }
    check(muster_finalize(cluster) == MUSTER_OK, "muster_finalize");
    muster_cluster_free(cluster);
}

static pid_t start(int index) {
    pid_t parent = getpid(), pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        if (index >= 0) {
            be_rank(index);
            _exit(0);
        }
        muster_config_t *config = settings("MS_SCHED");
        muster_scheduler_t *scheduler = NULL;
        char address[MUSTER_ADDRESS_BYTES];
        check(muster_scheduler_start(config, &scheduler) == MUSTER_OK, "the scheduler");
        check(muster_scheduler_address(scheduler, address, sizeof address, NULL) == MUSTER_OK, "its address");
        snprintf(shared->port, sizeof shared->port, "%s", strrchr(address, ':') + 1);
        atomic_store(&shared->victim, -1);
        muster_scheduler_wait(scheduler, INT64_MAX);
        _exit(0);
    }
    return pid;
}

static void await(atomic_int *counter, int least, const char *what) {
    double limit = now_s() + LIMIT_S;
    while (atomic_load(counter) < least) {
        check(now_s() < limit, what);
        nap();
    }
}

static void remove_all(const char *path) {
    DIR *directory = opendir(path);
    check(directory != NULL, "opendir");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        check(entry->d_name[0] == '.' || unlink(name) == 0, "unlink");
    }
    closedir(directory);
    check(rmdir(path) == 0, "rmdir");
}

static int ascending(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static void row(const char *name, double *times, size_t count) {
    qsort(times, count, sizeof *times, ascending);
    printf("%s,%zu,%.3f,%.3f,%.3f\n", name, count, 1e3 * times[count / 2], 1e3 * times[count * 95 / 100],
           1e3 * times[count - 1]);
}

int main(int argc, char **argv) {
    int kills = argc > 1 ? atoi(argv[1]) : 200, ranks = argc > 2 ? atoi(argv[2]) : 8;
    unsigned seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 1;
    if (kills < 1 || ranks < 2 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: %s [KILLS] [RANKS, 2 to %d] [SEED]\n", argv[0], RANKS_MAX);
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap");
    shared->ranks = ranks;
    strcpy(shared->port, "0");
    strcpy(shared->path, "/tmp/muster-detection-XXXXXX");
    check(mkdtemp(shared->path) != NULL, "mkdtemp");
    atomic_store(&shared->victim, -2);
    pid_t scheduler = start(-1), pid[RANKS_MAX];
    await(&shared->victim, -1, "the scheduler does not start");
    for (int i = 0; i < ranks; i++) {
        pid[i] = start(i);
    }
    double *told = calloc((size_t)kills * (size_t)ranks, sizeof *told), *last = calloc((size_t)kills, sizeof *last);
    double *whole = calloc((size_t)kills, sizeof *whole);
    size_t count = 0;
    int wrong = 0;
    srand(seed);
    for (int round = 1; round <= kills; round++) {
        for (int i = 0; i < ranks; i++) {
            await(&shared->rank[i].whole, round, "the cluster is not whole");
        }
        int victim = rand() % ranks;
        atomic_store(&shared->victim, victim);
        atomic_store(&shared->round, round);
        for (int i = 0; i < ranks; i++) {
            await(&shared->rank[i].rounds, round, "a rank does not go on");
        }
        struct timespec pause = {.tv_nsec = 5000000 + rand() % 20000000}; /* by then they sleep in the barrier */
        nanosleep(&pause, NULL);
        double killed_s = now_s();
        check(kill(pid[victim], SIGKILL) == 0 && waitpid(pid[victim], NULL, 0) == pid[victim], "kill");
        for (int i = 0; i < ranks; i++) {
            if (i == victim) {
                continue;
            }
            await(&shared->rank[i].told, 1, "a survivor is not told");
            double took = shared->rank[i].told_s - killed_s;
            told[count++] = took;
            last[round - 1] = took > last[round - 1] ? took : last[round - 1];
            wrong += shared->rank[i].status != MUSTER_ERR_PEER_LOST || shared->rank[i].blamed != victim;
            atomic_store(&shared->rank[i].told, 0);
        }
        double started_s = now_s();
        atomic_store(&shared->rank[victim].rounds, round);
        pid[victim] = start(victim);
        await(&shared->rank[victim].whole, round + 1, "the cluster is not whole again");
        whole[round - 1] = shared->rank[victim].whole_s - started_s;
    }
    atomic_store(&shared->over, 1);
    for (int away = 0; away < 2; away++) {
        for (int i = 0; i < ranks; i++) {
            await(&shared->rank[i].measured, away + 1, "the allreduces do not end");
        }
        if (away == 0) {
            check(kill(scheduler, SIGKILL) == 0 && waitpid(scheduler, NULL, 0) == scheduler, "kill");
            struct timespec second = {.tv_sec = 1};
            nanosleep(&second, NULL);
            atomic_store(&shared->is_away, 1);
        }
    }
    atomic_store(&shared->victim, -2);
    scheduler = start(-1);
    await(&shared->victim, -1, "the scheduler does not start again");
    atomic_store(&shared->is_away, 2);
    for (int i = 0; i < ranks; i++) {
        check(waitpid(pid[i], NULL, 0) == pid[i], "waitpid");
    }
    check(waitpid(scheduler, NULL, 0) == scheduler, "waitpid");
    printf("what,count,p50_ms,p95_ms,most_ms\n");
    row("each survivor's call returns", told, count);
    row("the last survivor's call returns", last, (size_t)kills);
    row("from the restart to the first step", whole, (size_t)kills);
    row("allreduce with the scheduler", shared->rank[0].reduction_s[0], REDUCTIONS);
    row("allreduce without it", shared->rank[0].reduction_s[1], REDUCTIONS);
    printf("wrong culprits,%d,,,\n", wrong);
    remove_all(shared->path);
    return wrong != 0;
}
