/* How long until everybody knows. Kills a rank with SIGKILL, again and again, while the others wait for it, and measures
 * the time until the call of each survivor returns. Then starts it again, and measures the time until all have passed a
 * barrier of the next epoch. Does so in a barrier, in a receive, and in a barrier while each processor has something else
 * to do all the time. Then kills the scheduler, again and again. Measures allreduces while it is there, once more, and
 * while it is away; and the time from its restart until every rank's write into the store is acknowledged.
 *
 *   detection [KILLS=200] [RANKS=8] [SEED=1]     prints a table, as CSV; `make detection` builds it and runs it. KILLS: of each kind
 *
 * Fails if a bound is missed, a wrong rank is blamed, or the scheduler's absence slows allreduces more than they ever vary
 * by themselves. */
#include "timing.h"

#include <dirent.h>

enum { FIRST_CALLS = 4 };
enum { RANKS_MAX = 64, CYCLES = 20, STEPS = 500, REDUCTIONS = CYCLES * STEPS };
/* When allreduces are measured, in each cycle. */
enum { THERE, STILL_THERE, AWAY, TIMES };
/* The call in which the survivors wait. */
enum { IN_BARRIER, IN_RECV, WITH_COMPETITORS, WAYS };

struct rank {
    atomic_int rounds; /* that it has begun: it is about to wait for the victim */
    atomic_int told;   /* how many losses it was told of */
    atomic_int whole;  /* how many epochs it has passed a barrier in */
    double told_s, whole_s;
    atomic_int measured, stored;
    double reduction_s[TIMES][REDUCTIONS];
    double stored_s;
    int blamed, status;
};

static struct {
    int ranks;
    char port[8], path[64];
    atomic_int victim; /* of the round that is under way */
    atomic_int round;  /* which one; 0: all go on to the next barrier */
    atomic_int way;
    atomic_int over;
    atomic_int measures; /* how many measurements of allreduces have begun */
    atomic_int asked; /* how many writes into the store are to be made */
    atomic_int leave;
    struct rank rank[RANKS_MAX];
} *shared;

static muster_config_t *settings(const char *role) {
    muster_config_t *config = NULL;
    char number[16];
    check(muster_config_new(MUSTER_ABI_VERSION, &config) == MUSTER_OK, "settings");
    snprintf(number, sizeof number, "%d", shared->ranks);
    const char *pairs[][2] = {{"role", role}, {"worker_num", number}, {"sched_host", "127.0.0.1"},
                              {"sched_port", shared->port}, {"enable_recovery", "1"}, {"recovery_path", shared->path}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        set(config, pairs[i][0], pairs[i][1]);
    }
    return config;
}

/* Times allreduces of one number. */
static void reduce(muster_group_t *world, double *took) {
    for (int i = 0; i < STEPS; i++) {
        int64_t one = 1;
        double begun = now_s();
        check(muster_allreduce(world, &one, &one, 1, MUSTER_INT64, MUSTER_SUM) == MUSTER_OK, "an allreduce");
        check(one == shared->ranks, "no step is lost");
        took[i] = now_s() - begun;
    }
}

/* Waits for the victim of each round, and for its next life. */
static void lose_and_recover(muster_cluster_t *cluster, int index) {
    struct rank *own = &shared->rank[index];
    muster_group_t *world = muster_world(cluster);
    while (!atomic_load(&shared->over)) {
        check(muster_barrier(world) == MUSTER_OK, "the barrier of a whole cluster");
        own->whole_s = now_s();
        for (int call = 2; call <= FIRST_CALLS; call++) { /* in those that follow, ranks share memory */
            check(muster_barrier(world) == MUSTER_OK, "a barrier before the loss");
        }
        int round = atomic_fetch_add(&own->whole, 1) + 1;
        while (atomic_load(&shared->round) < round && !atomic_load(&shared->over)) {
            nap_ms(1);
        }
        if (atomic_load(&shared->over)) {
            return;
        }
        atomic_store(&own->rounds, round);
        if (atomic_load(&shared->victim) == index) {
            for (;;) {
                pause(); /* to be killed */
            }
        }
        int32_t victim = atomic_load(&shared->victim), nothing = 0;
        own->status = atomic_load(&shared->way) == IN_RECV
                        ? muster_recv(world, &nothing, 1, MUSTER_INT32, victim, 0, NULL, 0)
                        : muster_barrier(world);
        own->told_s = now_s();
        muster_failure_t failure;
        own->blamed = muster_failure(cluster, &failure, sizeof failure) == MUSTER_OK ? failure.rank : -1;
        atomic_fetch_add(&own->told, 1);
        check(muster_recover(cluster, 1000 * LIMIT_S) == MUSTER_OK, "muster_recover");
    }
}

static void be_rank(int index) {
    struct rank *own = &shared->rank[index];
    muster_config_t *config = settings("MS_WORKER");
    muster_cluster_t *cluster = NULL;
    char id[16];
    snprintf(id, sizeof id, "%d", index);
    set(config, "node_id", id);
    check(muster_init(config, &cluster) == MUSTER_OK, "muster_init");
    muster_config_free(config);
    lose_and_recover(cluster, index);
    for (int measured = 0, stored = 0; !atomic_load(&shared->leave);) {
        if (measured < atomic_load(&shared->measures)) {
            reduce(muster_world(cluster), own->reduction_s[measured % TIMES] + measured / TIMES * STEPS);
            atomic_store(&own->measured, ++measured);
        } else if (stored < atomic_load(&shared->asked)) {
            check(muster_store_set(cluster, id, &stored, sizeof stored) == MUSTER_OK, "a write into the store");
            own->stored_s = now_s();
            atomic_store(&own->stored, ++stored);
        } else {
            nap_ms(1);
        }
    }
    check(muster_finalize(cluster) == MUSTER_OK, "muster_finalize");
    muster_cluster_free(cluster);
}

static pid_t start(int index) {
    pid_t pid = child();
    if (pid != 0) {
        return pid;
    }
    be_rank(index);
    _exit(0);
}

static pid_t start_scheduler(void) {
    atomic_store(&shared->victim, -2);
    pid_t pid = child();
    if (pid == 0) {
        muster_config_t *config = settings("MS_SCHED");
        muster_scheduler_t *scheduler = serve(config, shared->port, sizeof shared->port);
        atomic_store(&shared->victim, -1);
        muster_scheduler_wait(scheduler, INT64_MAX);
        _exit(0);
    }
    await(&shared->victim, -1, "the scheduler does not start");
    return pid;
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

/* Something else to do for every processor, at the same priority. */
static int compete(pid_t *competitors, int most) {
    int count = (int)sysconf(_SC_NPROCESSORS_ONLN) < most ? (int)sysconf(_SC_NPROCESSORS_ONLN) : most;
    for (int i = 0; i < count; i++) {
        competitors[i] = child();
        for (volatile unsigned spins = 0; competitors[i] == 0;) {
            spins++;
        }
    }
    return count;
}

static const struct way {
    const char *each, *last, *whole;
    struct bounds bounds; /* of the first */
    double back_ms;       /* of the last */
} ways[WAYS] = {
    {"in a barrier: each survivor's call returns", "in a barrier: the last survivor's call returns",
     "in a barrier: from the restart to the first step", {10, 50, 0}, 1000},
    {"in muster_recv: each survivor's call returns", "in muster_recv: the last survivor's call returns",
     "in muster_recv: from the restart to the first step", {10, 50, 0}, 1000},
    {"with competitors on every core: each survivor's call returns",
     "with competitors on every core: the last survivor's call returns",
     "with competitors on every core: from the restart to the first step", {50, 250, 0}, 5000},
};

/* One round: the time of each survivor's call is added to `told`. Returns how many blamed another rank. */
static int kill_one(int round, pid_t *pid, double *told, double *last, double *whole) {
    int ranks = shared->ranks, wrong = 0;
    for (int i = 0; i < ranks; i++) {
        await(&shared->rank[i].whole, round, "the cluster is not whole");
    }
    int victim = rand() % ranks;
    atomic_store(&shared->victim, victim);
    atomic_store(&shared->round, round);
    for (int i = 0; i < ranks; i++) {
        await(&shared->rank[i].rounds, round, "a rank does not go on");
    }
    nap_ms(5 + rand() % 20); /* by then they sleep in their call */
    double killed_s = now_s();
    end(pid[victim]);
    for (int i = 0; i < ranks; i++) {
        if (i == victim) {
            continue;
        }
        await(&shared->rank[i].told, 1, "a survivor is not told");
        double took = shared->rank[i].told_s - killed_s;
        *told++ = took;
        *last = took > *last ? took : *last;
        wrong += shared->rank[i].status != MUSTER_ERR_PEER_LOST || shared->rank[i].blamed != victim;
        atomic_store(&shared->rank[i].told, 0);
    }
    double started_s = now_s();
    atomic_store(&shared->rank[victim].rounds, round);
    pid[victim] = start(victim);
    await(&shared->rank[victim].whole, round + 1, "the cluster is not whole again");
    *whole = shared->rank[victim].whole_s - started_s;
    return wrong;
}

/* The rounds of kills in one of the ways, which begin with this round. The number of ranks that blamed another is added to
 * `wrong`. */
static int kill_ranks(int way, int first, int kills, pid_t *pid, int *wrong) {
    size_t survivors = (size_t)shared->ranks - 1, count = (size_t)kills;
    double *told = calloc(count * survivors, sizeof *told), *last = calloc(count, sizeof *last);
    double *whole = calloc(count, sizeof *whole);
    pid_t competitors[RANKS_MAX];
    check(told != NULL && last != NULL && whole != NULL, "calloc");
    atomic_store(&shared->way, way);
    int competing = way == WITH_COMPETITORS ? compete(competitors, RANKS_MAX) : 0;
    for (size_t at = 0; at < count; at++) {
        *wrong += kill_one(first + (int)at, pid, told + at * survivors, last + at, whole + at);
    }
    while (competing > 0) {
        end(competitors[--competing]);
    }
    int missed = row(ways[way].each, told, count * survivors, ways[way].bounds);
    missed |= row(ways[way].last, last, count, (struct bounds){0, 0, 0});
    missed |= row(ways[way].whole, whole, count, (struct bounds){0, 0, ways[way].back_ms});
    free(told);
    free(last);
    free(whole);
    return missed;
}

static void measure(void) {
    int measures = atomic_fetch_add(&shared->measures, 1) + 1;
    for (int i = 0; i < shared->ranks; i++) {
        await(&shared->rank[i].measured, measures, "the allreduces do not end");
    }
}

/* Kills the scheduler, and starts it again; the time until a write of every rank, made while it was away, is acknowledged. */
static double restart(pid_t *scheduler) {
    double took_s = 0;
    measure();
    measure();
    end(*scheduler);
    nap_ms(1000);
    measure();
    int asked = atomic_fetch_add(&shared->asked, 1) + 1;
    double started_s = now_s();
    *scheduler = start_scheduler();
    for (int i = 0; i < shared->ranks; i++) {
        await(&shared->rank[i].stored, asked, "a write into the store is not acknowledged");
        double own_s = shared->rank[i].stored_s - started_s;
        took_s = own_s > took_s ? own_s : took_s;
    }
    return took_s;
}

/* A line with the median, the least and the most. */
static void line(const char *name, double *numbers, int digits) {
    qsort(numbers, CYCLES, sizeof *numbers, ascending);
    printf("%s,%d,%.*f,%.*f,%.*f,", name, CYCLES, digits, numbers[CYCLES / 2], digits, numbers[0], digits,
           numbers[CYCLES - 1]);
}

/* Steps per second; each cycle's are compared with each other, for machines have their moods. */
static int compare_rates(void) {
    static const char *const names[] = {"with the scheduler", "with it once more", "without it"};
    double rates[TIMES][CYCLES], alike[CYCLES], away[CYCLES];
    for (int at = 0; at < TIMES * CYCLES; at++) {
        double sum = 0;
        for (int i = 0; i < STEPS; i++) {
            sum += shared->rank[0].reduction_s[at / CYCLES][at % CYCLES * STEPS + i];
        }
        rates[at / CYCLES][at % CYCLES] = STEPS / sum;
    }
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        alike[cycle] = rates[STILL_THERE][cycle] / rates[THERE][cycle];
        away[cycle] = 2 * rates[AWAY][cycle] / (rates[THERE][cycle] + rates[STILL_THERE][cycle]);
    }
    printf("steps per second,cycles,median,least,most,\n");
    for (int time = 0; time < TIMES; time++) {
        line(names[time], rates[time], 0);
        printf("\n");
    }
    line("with it / with it", alike, 2);
    printf("\n");
    line("without it / with it", away, 2);
    int missed = away[CYCLES / 2] < alike[0];
    printf("%s\n", missed ? "MISSED" : "");
    return missed;
}

int main(int argc, char **argv) {
    int kills = argc > 1 ? atoi(argv[1]) : 200, ranks = argc > 2 ? atoi(argv[2]) : 8;
    if (kills < 1 || ranks < 2 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: %s [KILLS] [RANKS, 2 to %d] [SEED]\n", argv[0], RANKS_MAX);
        return 2;
    }
    srand(argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 1);
    shared = share(sizeof *shared);
    shared->ranks = ranks;
    strcpy(shared->port, "0");
    strcpy(shared->path, "/tmp/muster-detection-XXXXXX");
    check(mkdtemp(shared->path) != NULL, "mkdtemp");
    pid_t scheduler = start_scheduler(), pid[RANKS_MAX];
    for (int i = 0; i < ranks; i++) {
        pid[i] = start(i);
    }
    head();
    int wrong = 0, missed = 0;
    for (int way = 0; way < WAYS; way++) {
        missed |= kill_ranks(way, 1 + way * kills, kills, pid, &wrong);
        fflush(stdout);
    }
    atomic_store(&shared->over, 1);
    double attached[CYCLES];
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        attached[cycle] = restart(&scheduler);
    }
    atomic_store(&shared->leave, 1);
    for (int i = 0; i < ranks; i++) {
        check(waitpid(pid[i], NULL, 0) == pid[i], "waitpid");
    }
    check(waitpid(scheduler, NULL, 0) == scheduler, "waitpid");
    struct bounds none = {0, 0, 0};
    missed |= row("from the scheduler's restart to every rank's write", attached, CYCLES, none);
    printf("wrong culprits,%d,,,,%s\n", wrong, wrong ? "MISSED" : "");
    missed |= compare_rates();
    missed |= row("allreduce with the scheduler", shared->rank[0].reduction_s[THERE], REDUCTIONS, none);
    missed |= row("allreduce without it", shared->rank[0].reduction_s[AWAY], REDUCTIONS, none);
    remove_all(shared->path);
    return missed || wrong;
}
