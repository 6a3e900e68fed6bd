/* How long until everybody knows that ranks disagree. They call different collectives, again and again. Each measures the
 * time from when the last of them has entered (the next call, if they had returned) until its own call returns. Then all
 * make the cluster whole again.
 *
 *   disagreement [ROUNDS=50]     prints a table, as CSV; `make detection` builds it and runs it
 *
 * Fails where it takes longer than a second, or a call returns anything but MUSTER_ERR_MISMATCH. */
#include "timing.h"

enum { RANKS = 4, ODD = 3 };

/* What they call. One rank has another number of elements, so that frames meet. Or each waits for the next one's broadcast,
 * so that nobody sends anything. Or one believes that it is the root of a broadcast: that holds up nobody, for none waits
 * for its part. All return, and then come to a barrier. */
enum { FRAMES_MEET, NO_FRAMES, ALL_RETURN, WAYS };

static struct {
    char port[8];
    atomic_int serves, whole, leave;
    atomic_int round, returned, told;
    int way, to_return;
    double entered_s[RANKS], told_s[RANKS];
    int status[RANKS];
} *shared;

static muster_config_t *settings(const char *role) {
    muster_config_t *config = NULL;
    char number[8];
    check(muster_config_new(MUSTER_ABI_VERSION, &config) == MUSTER_OK, "settings");
    snprintf(number, sizeof number, "%d", RANKS);
    set(config, "role", role);
    set(config, "worker_num", number);
    set(config, "sched_host", "127.0.0.1");
    set(config, "sched_port", shared->port);
    return config;
}

static void be_scheduler(void) {
    muster_config_t *config = settings("MS_SCHED");
    muster_scheduler_t *scheduler = serve(config, shared->port, sizeof shared->port);
    atomic_store(&shared->serves, 1);
    muster_scheduler_wait(scheduler, INT64_MAX);
}

static int disagree(muster_group_t *world, int rank) {
    int64_t numbers[2] = {1, 1};
    if (shared->way == FRAMES_MEET) {
        return muster_allreduce(world, numbers, numbers, rank == ODD ? 2 : 1, MUSTER_INT64, MUSTER_SUM);
    }
    if (shared->way == NO_FRAMES) {
        return muster_broadcast(world, numbers, 2, MUSTER_INT64, (rank + 1) % RANKS);
    }
    check(muster_broadcast(world, numbers, 2, MUSTER_INT64, rank == ODD ? ODD : 0) == MUSTER_OK, "a small broadcast");
    atomic_fetch_add(&shared->returned, 1);
    await(&shared->returned, shared->to_return, "a rank does not return");
    shared->entered_s[rank] = now_s();
    return muster_barrier(world);
}

static void be_rank(int rank) {
    muster_config_t *config = settings("MS_WORKER");
    muster_cluster_t *cluster = NULL;
    char id[16];
    snprintf(id, sizeof id, "%d", rank);
    set(config, "node_id", id);
    check(muster_init(config, &cluster) == MUSTER_OK, "muster_init");
    for (int round = 1;; round++) {
        check(muster_barrier(muster_world(cluster)) == MUSTER_OK, "the barrier of a whole cluster");
        atomic_fetch_add(&shared->whole, 1);
        while (atomic_load(&shared->round) < round && !atomic_load(&shared->leave)) {
            nap_ms(1);
        }
        if (atomic_load(&shared->leave)) {
            break;
        }
        nap_ms(rand() % 20); /* not all at once */
        shared->entered_s[rank] = now_s();
        shared->status[rank] = disagree(muster_world(cluster), rank);
        shared->told_s[rank] = now_s();
        atomic_fetch_add(&shared->told, 1);
        check(muster_recover(cluster, 1000 * LIMIT_S) == MUSTER_OK, "muster_recover");
    }
    check(muster_finalize(cluster) == MUSTER_OK, "muster_finalize");
    muster_cluster_free(cluster);
}

/* Adds the times of one round. Returns how many ranks were told anything else. */
static int take(double *times) {
    double last_s = 0;
    int wrong = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        last_s = shared->entered_s[rank] > last_s ? shared->entered_s[rank] : last_s;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        /* A rank that was alone with another call may have been told of the disagreement before the last one came. */
        times[rank] = shared->told_s[rank] > last_s ? shared->told_s[rank] - last_s : 0;
        wrong += shared->status[rank] != MUSTER_ERR_MISMATCH;
    }
    return wrong;
}

int main(int argc, char **argv) {
    static const char *const names[WAYS] = {
        "a mismatch where frames meet", "a mismatch where nobody sends any", "a mismatch after which all have returned"};
    int rounds = argc > 1 ? atoi(argv[1]) : 50, missed = 0, wrong = 0, round = 0;
    check(rounds > 0, "usage: disagreement [ROUNDS]");
    shared = share(sizeof *shared);
    strcpy(shared->port, "0");
    pid_t pid[1 + RANKS];
    for (int i = 0; i <= RANKS; i++) {
        pid[i] = child();
        if (pid[i] == 0) {
            srand((unsigned)i);
            if (i == 0) {
                be_scheduler();
            } else {
                be_rank(i - 1);
            }
            _exit(0);
        }
        await(&shared->serves, 1, "the scheduler does not start");
    }
    head();
    for (int way = 0; way < WAYS; way++) {
        double *times = calloc((size_t)rounds * RANKS, sizeof *times);
        check(times != NULL, "calloc");
        for (int i = 0; i < rounds; i++) {
            await(&shared->whole, RANKS * ++round, "the cluster is not whole");
            shared->way = way;
            shared->to_return = RANKS * (i + 1); /* the last way's rounds only count */
            atomic_store(&shared->round, round);
            await(&shared->told, RANKS * round, "a rank is not told");
            wrong += take(times + i * RANKS);
        }
        missed |= row(names[way], times, (size_t)rounds * RANKS, (struct bounds){0, 0, 1000});
        free(times);
    }
    await(&shared->whole, RANKS * (round + 1), "the cluster is not whole");
    atomic_store(&shared->leave, 1);
    for (int i = RANKS; i >= 0; i--) {
        check(waitpid(pid[i], NULL, 0) == pid[i], "waitpid");
    }
    printf("other errors,%d,,,,%s\n", wrong, wrong ? "MISSED" : "");
    return missed || wrong;
}
