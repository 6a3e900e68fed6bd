/* Signals without pause (handlers without SA_RESTART) while nodes form, exchange, wait and leave: every call
 * succeeds, and no thread of the library runs the program's handlers. And no SIGPIPE, although its disposition is the
 * default: a rank that sends to one that dies gets an error and lives. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

enum { NODES = 3, ROUNDS = 300 };

static volatile sig_atomic_t alarms = 0;
static volatile sig_atomic_t users = 0;

static void count_signal(int signal) {
    if (signal == SIGALRM) {
        alarms++;
    } else {
        users++;
    }
}

/* The nodes' threads, which SIGUSR1 is aimed at. */
static struct {
    pthread_mutex_t lock;
    pthread_t thread[NODES];
    int live[NODES];
    int stop;
} targets = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set_target(int index, int live) {
    pthread_mutex_lock(&targets.lock);
    targets.thread[index] = pthread_self();
    targets.live[index] = live;
    pthread_mutex_unlock(&targets.lock);
}

static void *bombard(void *argument) {
    struct timespec pause = {.tv_nsec = 200000};
    int stop = 0;
    (void)argument;
    while (!stop) {
        pthread_mutex_lock(&targets.lock);
        for (int i = 0; i < NODES; i++) {
            if (targets.live[i]) {
                CHECK(pthread_kill(targets.thread[i], SIGUSR1) == 0);
            }
        }
        stop = targets.stop;
        pthread_mutex_unlock(&targets.lock);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void use_store(muster_cluster_t *cluster, int index) {
    static const char value[200000];
    char key[32];
    void *found = NULL;
    size_t len = 0;
    snprintf(key, sizeof key, "from %d", index);
    CHECK_OK(muster_store_set(cluster, key, value, sizeof value));
    snprintf(key, sizeof key, "from %d", (index + 1) % NODES);
    CHECK_OK(muster_store_get(cluster, key, -1, &found, &len));
    CHECK(len == sizeof value);
    muster_free(found);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(muster_store_add(cluster, "sum", 1, NULL));
    }
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_store_get(cluster, "nobody sets this", 100, &found, &len));
}

static void use_collectives(muster_cluster_t *cluster) {
    static const size_t bytes = 1 << 20;
    muster_group_t *world = muster_world(cluster);
    unsigned char *buf = malloc(bytes * NODES);
    CHECK(buf != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int32_t sum = 1;
        CHECK_OK(muster_allreduce(world, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM));
        CHECK_IS(NODES, sum);
        CHECK_OK(muster_barrier(world));
    }
    for (int round = 0; round < 10; round++) {
        memset(buf, 1, bytes * NODES);
        CHECK_OK(muster_allreduce(world, buf, buf, bytes, MUSTER_UINT8, MUSTER_SUM));
        CHECK(buf[0] == NODES && buf[bytes - 1] == NODES);
        CHECK_OK(muster_broadcast(world, buf, bytes, MUSTER_UINT8, round % NODES));
        CHECK_OK(muster_allgather(world, buf + bytes * (size_t)muster_rank(cluster), buf, bytes, MUSTER_UINT8));
    }
    free(buf);
}

static char port[8];
static const struct plan plan = {.workers = NODES, .node_ids = rank_ids};

static void *run_node(void *argument) {
    int index = *(int *)argument;
    set_target(index, 1); /* init and finalize are bombarded too */
    muster_cluster_t *cluster = join(&plan, port, index);
    use_collectives(cluster);
    use_store(cluster, index);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    set_target(index, 0);
    return NULL;
}

static void under_fire(void) {
    struct sigaction action = {.sa_handler = count_signal};
    struct itimerval every = {{0, 200}, {0, 200}};
    struct itimerval never = {{0, 0}, {0, 0}};
    pthread_t gun;
    pthread_t threads[NODES];
    int index[NODES];
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    CHECK(pthread_create(&gun, NULL, bombard, NULL) == 0);
    for (int i = 0; i < NODES; i++) {
        index[i] = i;
        CHECK(pthread_create(&threads[i], NULL, run_node, &index[i]) == 0);
    }
    CHECK_OK(muster_scheduler_wait(scheduler, 60000)); /* this thread takes most of the alarms */
    for (int i = 0; i < NODES; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    muster_scheduler_free(scheduler);
    pthread_mutex_lock(&targets.lock);
    targets.stop = 1;
    pthread_mutex_unlock(&targets.lock);
    CHECK(pthread_join(gun, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(alarms > 100 && users > 100);
}

/* A signal to the process is the program's: it waits for one of the program's threads, and no thread of the library
 * runs its handler. */
static void left_to_the_program(void) {
    struct sigaction action = {.sa_handler = count_signal};
    muster_cluster_t *cluster = NULL;
    sigset_t set;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK_OK(muster_init(NULL, &cluster)); /* now the library has threads, made while the signal was not blocked */
    users = 0;
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR2) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    CHECK_OK(muster_store_add(cluster, "every thread", 1, NULL)); /* has run since */
    CHECK_IS(0, users);
    CHECK(sigpending(&set) == 0 && sigismember(&set, SIGUSR2) == 1);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR2) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK_IS(1, users);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* Both send all the time, so that the one that lives is in the middle of it. */
static void send_for_ever(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    size_t bytes = 8 << 20;
    unsigned char *buf = calloc(1, bytes);
    struct sigaction action;
    muster_status_t status = MUSTER_OK;
    CHECK(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    for (int round = 0; status == MUSTER_OK; round++) {
        status = muster_allreduce(muster_world(cluster), buf, buf, bytes, MUSTER_UINT8, MUSTER_SUM);
        if (round == 2) {
            CHECK(sem_post(&ranks->note[rank].ready) == 0);
        }
    }
    keep_failure(&ranks->note[rank], cluster, status);
    CHECK(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    muster_finalize(cluster);
    muster_cluster_free(cluster);
    free(buf);
}

static void no_sigpipe(void) {
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    for (int round = 0; round < 3; round++) {
        struct ranks *ranks = ranks_start(2, send_for_ever, NULL);
        await(&ranks->note[0].ready);
        await(&ranks->note[1].ready);
        ranks_kill(ranks, 1);
        ranks_await(ranks, 1);
        int status = await_child(ranks->pid[0]);
        CHECK(status == 0); /* no signal has ended it */
        CHECK_IS(MUSTER_ERR_PEER_LOST, ranks->note[0].status);
        CHECK_CONTAINS(ranks->note[0].words, "rank 1");
        CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
    }
}

int main(void) {
    no_sigpipe(); /* first: it must fork before the library is used here */
    under_fire();
    left_to_the_program();
    return 0;
}
