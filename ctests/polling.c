/* How waiting threads share the processors: which ones poll and for how long, what makes all of them stop, and what a
 * caller that only tests gives away. Every yield of the process comes here and is counted. */
#include "check.h"
#include "nodes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

/* SOON_MS, LONG_MS: how late the other rank comes. LATE_MS: how late a yield comes back beside a program that computes.
 * FEW: yields that a wait of LONG_MS may make then; one that went on polling would make LONG_MS / LATE_MS. */
enum { SOON_MS = 20, LONG_MS = 300, LATE_MS = 5, FEW = 10, ATTEMPTS = 500, PIECE_OF_WORK = 5000 };

static atomic_long yields;
static atomic_int is_late;

static void pause_ms(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&pause, NULL); /* the awaited rank comes late: this is what the test is about */
}

int sched_yield(void) {
    atomic_fetch_add(&yields, 1);
    if (atomic_load(&is_late)) {
        pause_ms(LATE_MS);
    }
    return (int)syscall(SYS_sched_yield);
}

/* The ways to wait, each of which another thread carries out: the caller of a collective, that of a message, the progress thread. */
static void in_collective(muster_group_t *world, int rank) {
    (void)rank;
    CHECK_OK(muster_barrier(world));
}

static void in_message(muster_group_t *world, int rank) {
    uint8_t byte = 0;
    if (rank == 0) {
        CHECK_OK(muster_recv(world, &byte, 1, MUSTER_UINT8, 1, 0, NULL, 0));
    } else {
        CHECK_OK(muster_send(world, &byte, 1, MUSTER_UINT8, 0, 0));
    }
}

static void in_request(muster_group_t *world, int rank) {
    muster_request_t *request = NULL;
    (void)rank;
    CHECK_OK(muster_ibarrier(world, &request));
    CHECK_OK(muster_request_wait(request, -1));
    muster_request_free(request);
}

static double thread_s(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Rank 0 does nothing but test; or it computes in between. */
static void test_only(muster_group_t *world, int rank, int work) {
    muster_request_t *request = NULL;
    muster_status_t status;
    CHECK_OK(muster_ibarrier(world, &request));
    while (rank == 0 && (status = muster_request_test(request)) != MUSTER_OK) {
        CHECK_IS(MUSTER_IN_PROGRESS, status);
        for (volatile int i = 0; i < work; i++) {
        }
    }
    CHECK_OK(muster_request_wait(request, -1));
    muster_request_free(request);
}

static void by_testing(muster_group_t *world, int rank) { test_only(world, rank, 0); }
static void between_pieces_of_work(muster_group_t *world, int rank) { test_only(world, rank, PIECE_OF_WORK); }

typedef void (*way)(muster_group_t *world, int rank);
static const way all_ways[] = {in_collective, in_message, in_request};
static pthread_barrier_t meeting;

static void meet(void) { pthread_barrier_wait(&meeting); }

/* How many yields there are while rank 0 waits in this way for rank 1; both are told. */
static long counted(way wait, muster_group_t *world, int rank, long late_ms) {
    meet();
    long before = atomic_load(&yields);
    meet();
    if (rank == 1) {
        pause_ms(late_ms);
    }
    wait(world, rank);
    meet();
    long after = atomic_load(&yields);
    meet();
    return after - before;
}

static void warm(muster_group_t *world, int rank) {
    for (size_t i = 0; i < sizeof all_ways / sizeof *all_ways; i++) {
        counted(all_ways[i], world, rank, 0); /* a rank that has heard nothing of a peer yet does not poll for it */
    }
}

static void never(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    (void)context;
    warm(world, rank);
    for (size_t i = 0; i < sizeof all_ways / sizeof *all_ways; i++) {
        CHECK_IS(0, counted(all_ways[i], world, rank, SOON_MS));
    }
    if (patience() > 1) {
        return; /* what follows counts on a test that takes less than 250 ns */
    }
    CHECK(counted(by_testing, world, rank, LONG_MS) > 0);
    CHECK_IS(0, counted(between_pieces_of_work, world, rank, LONG_MS));
    atomic_store(&is_late, 1);
    double before_s = thread_s();
    CHECK(counted(by_testing, world, rank, LONG_MS) <= FEW);
    CHECK(thread_s() - before_s < LONG_MS / 1e3 / 2); /* it sleeps, mostly */
    meet();
    atomic_store(&is_late, 0);
}

static void for_a_second(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    (void)context;
    warm(world, rank);
    for (size_t i = 0; i < sizeof all_ways / sizeof *all_ways; i++) {
        int attempts = 0; /* a yield that was late indeed ends polling for up to 1.3 s; under Valgrind each is late */
        while (counted(all_ways[i], world, rank, SOON_MS) == 0 && patience() < 10) {
            CHECK(++attempts < ATTEMPTS);
        }
    }
    meet();
    atomic_store(&is_late, 1);
    for (size_t i = 0; i < sizeof all_ways / sizeof *all_ways; i++) {
        CHECK(counted(all_ways[i], world, rank, LONG_MS) <= FEW);
    }
    meet();
    atomic_store(&is_late, 0);
}

int main(void) {
    const char *none[] = {"poll_us", "0", NULL}, *long_enough[] = {"poll_us", "1000000", NULL};
    CHECK(pthread_barrier_init(&meeting, NULL, 2) == 0);
    run_nodes(&(struct plan){.workers = 2, .node_ids = rank_ids, .settings = none, .body = never});
    run_nodes(&(struct plan){.workers = 2, .node_ids = rank_ids, .settings = long_enough, .body = for_a_second});
    return 0;
}
