/* Ranks of one host that share memory: results are those of TCP, whatever happens to a rank or to its memory. Every rank is a
 * process. Other tests share memory, too, where the ranks are on one host: CMakeLists.txt lists those that do not. */
#include "shared_memory.h"
#include "check.h"
#include "own.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, LIMIT_S = 30 };

const char *const required[] = {"shm", "require", "node_timeout", "1", NULL};
static const char *const checked[] = {"shm", "require", "checksums", "all", "node_timeout", "1", NULL};

int segments(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        found += strstr(line, "/memfd:muster") != NULL;
    }
    fclose(maps);
    return found;
}

void meet(struct ranks *ranks, int rank) {
    CHECK(sem_post(&ranks->note[rank].ready) == 0);
    await(&ranks->note[rank].go);
}

void first_calls(muster_group_t *group, struct ranks *ranks, int rank) {
    warm_up(group);
    meet(ranks, rank);
}

void leave(muster_cluster_t *cluster) {
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    CHECK_IS(0, segments());
    CHECK(own_threads_are(1) && !own_sockets());
}

void run(const char *what, rank_body body, const char *const *settings, int meetings, muster_status_t status) {
    fprintf(stderr, "%s\n", what);
    struct ranks *ranks = ranks_start(SIZE, body, settings);
    for (int i = 0; i < meetings; i++) {
        ranks_await_ready(ranks);
        ranks_go(ranks);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_IS(status, ranks_await_scheduler(ranks));
    ranks_free(ranks);
}

/* ---- results ---- */

/* Neither commutative nor associative. */
static void mixes(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    const int32_t *lower = in;
    int32_t *higher = inout;
    (void)dtype, (void)ctx;
    for (size_t i = 0; i < count; i++) {
        higher[i] = (int32_t)((uint32_t)lower[i] * 31u + (uint32_t)higher[i] * 17u + 1u);
    }
}

/* The first three calls go over TCP. All after them give the same. */
static void gets_the_same_of_every_call(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    static const size_t counts[] = {1, 1000, 100003};
    muster_group_t *parent = muster_world(cluster);
    int32_t op = 0, members[SIZE] = {0, 1, 2, 3};
    CHECK_OK(muster_op_create(cluster, mixes, NULL, 0, &op));
    meet(ranks, rank);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t bytes = counts[i] * sizeof(int32_t);
        int32_t *in = malloc(bytes), *first = malloc(bytes), *out = malloc(bytes);
        muster_group_t *group = NULL;
        CHECK(in != NULL && first != NULL && out != NULL);
        CHECK_OK(muster_group_create(parent, members, SIZE, &group));
        for (size_t at = 0; at < counts[i]; at++) {
            in[at] = (int32_t)(at * 7 + (size_t)rank * 13);
        }
        for (int call = 1; call <= 6; call++) {
            CHECK_OK(muster_allreduce(group, in, call == 1 ? first : out, counts[i], MUSTER_INT32, op));
            CHECK(call == 1 || memcmp(first, out, bytes) == 0);
        }
        CHECK(segments() > 0);
        muster_group_free(group);
        free(in), free(first), free(out);
    }
    CHECK_OK(muster_op_free(cluster, op));
    leave(cluster);
}

/* Calls that do not wait take their turns among those that do. */
static void starts_and_waits(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    enum { UNDER_WAY = 6 };
    muster_group_t *world = muster_world(cluster);
    int32_t values[UNDER_WAY], sum = rank;
    muster_request_t *requests[UNDER_WAY];
    first_calls(world, ranks, rank);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < UNDER_WAY; i++) {
            values[i] = rank + i;
            CHECK_OK(muster_iallreduce(world, &values[i], &values[i], 1, MUSTER_INT32, MUSTER_SUM, &requests[i]));
        }
        sum = rank;
        CHECK_OK(muster_allreduce(world, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM));
        CHECK_IS(6, sum);
        for (int i = 0; i < UNDER_WAY; i++) {
            CHECK_OK(muster_request_wait(requests[i], -1));
            muster_request_free(requests[i]);
            CHECK_IS(6 + SIZE * i, values[i]);
        }
    }
    CHECK_IS(1, segments());
    leave(cluster);
}

/* ---- what a process does beside ---- */

static void forks(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    first_calls(world, ranks, rank);
    CHECK_IS(1, segments());
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool refused = muster_barrier(world) == MUSTER_ERR_FORKED;
        muster_cluster_free(cluster);
        _exit(refused && segments() == 0 ? 0 : 1);
    }
    CHECK_IS(0, await_child(child));
    first_calls(world, ranks, rank);
    CHECK_IS(1, segments());
    leave(cluster);
}

/* Ranks that wait long for another take no processor time, and are woken. The wait is so long that one that does not sleep gets more than
 * the limit from a processor that it shares with many. */
static void comes_late(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    first_calls(world, ranks, rank);
    if (rank == CULPRIT) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* this is the coming late */
    }
    struct timespec before, after;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before) == 0);
    CHECK_OK(muster_barrier(world));
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after) == 0);
    double took_s = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    CHECK(took_s < 0.05);
    leave(cluster);
}

/* ---- what goes wrong ---- */

/* Ranks that call something else are told so, and go on together afterwards, in new memory. */
static void disagrees(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    static int32_t values[MIB / 4];
    first_calls(world, ranks, rank);
    for (int round = 0; round < 3; round++) {
        size_t other = round == 0 ? 1 : round == 1 ? MIB / 8 : MIB / 4; /* in a line, or in pieces */
        size_t count = rank == CULPRIT ? other : 2;
        muster_status_t status = muster_allreduce(world, values, values, count, MUSTER_INT32, MUSTER_MAX);
        CHECK_IS(MUSTER_ERR_MISMATCH, status);
        CHECK_CONTAINS(muster_last_error(), "called allreduce(count");
        CHECK_OK(muster_recover(cluster, 1000 * LIMIT_S));
        CHECK_IS(0, segments());
        first_calls(world, ranks, rank);
        CHECK_IS(1, segments());
    }
    leave(cluster);
}

/* One rank calls something that the others have no part in: its ranks tell each other first how much they bring. */
static void is_elsewhere(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = rank, all[SIZE] = {0};
    size_t counts[SIZE] = {1, 1, 1, 1}, displs[SIZE] = {0, 1, 2, 3};
    first_calls(world, ranks, rank);
    muster_status_t status = rank == CULPRIT
        ? muster_gatherv(world, &value, 1, all, counts, displs, MUSTER_INT32, CULPRIT)
        : muster_barrier(world);
    CHECK_IS(MUSTER_ERR_MISMATCH, status);
    CHECK_CONTAINS(muster_last_error(), "gatherv");
    CHECK_OK(muster_recover(cluster, 1000 * LIMIT_S));
    first_calls(world, ranks, rank);
    leave(cluster);
}

static void brings_addends(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    float value = (float)rank, sum = 0;
    first_calls(world, ranks, rank);
    muster_status_t status = rank == CULPRIT
        ? muster_allreduce_addends(world, &value, 1, &sum, 1, MUSTER_FLOAT32)
        : muster_allreduce(world, &value, &sum, 1, MUSTER_FLOAT32, MUSTER_SUM_EXACT);
    CHECK_IS(MUSTER_ERR_MISMATCH, status);
    CHECK_CONTAINS(muster_last_error(), "allreduce");
    CHECK_OK(muster_recover(cluster, 1000 * LIMIT_S));
    first_calls(world, ranks, rank);
    leave(cluster);
}

/* One does not come in time. */
static void stays_away(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    static int32_t values[MIB / 4];
    first_calls(world, ranks, rank);
    if (rank == CULPRIT) {
        muster_failure_t failure;
        double limit = now_s() + LIMIT_S;
        while (muster_group_failure(world, &failure, sizeof failure) == MUSTER_ERR_NOT_FOUND) {
            CHECK(now_s() < limit);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    } else {
        CHECK_OK(muster_group_set_timeout(world, 300));
    }
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_allreduce(world, values, values, 1, MUSTER_INT32, MUSTER_MAX));
    CHECK_CONTAINS(muster_last_error(), "0.3 s");
    CHECK_OK(muster_group_set_timeout(world, -1));
    CHECK_OK(muster_recover(cluster, 1000 * LIMIT_S));
    first_calls(world, ranks, rank);
    leave(cluster);
}

/* With a time-out of 0 a rank does what it need wait for nobody to do: the root of a broadcast lays it down. */
static void waits_for_nobody(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    static char pieces[8 * KIB];
    first_calls(world, ranks, rank);
    if (rank == 0) {
        memset(pieces, 7, sizeof pieces);
        CHECK_OK(muster_group_set_timeout(world, 0));
    }
    CHECK_OK(muster_broadcast(world, pieces, sizeof pieces, MUSTER_UINT8, 0));
    CHECK(pieces[0] == 7 && pieces[sizeof pieces - 1] == 7);
    CHECK_OK(muster_group_set_timeout(world, -1));
    CHECK_OK(muster_barrier(world));
    leave(cluster);
}

static void cancels(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = rank;
    muster_request_t *request = NULL;
    first_calls(world, ranks, rank);
    if (rank == 0) {
        CHECK_OK(muster_iallreduce(world, &value, &value, 1, MUSTER_INT32, MUSTER_SUM, &request));
        CHECK_OK(muster_request_cancel(request));
        CHECK_OK(muster_store_set(cluster, "cancelled", "", 0));
        CHECK(muster_request_wait(request, -1) < 0);
        muster_request_free(request);
    } else if (rank != CULPRIT) {
        CHECK(muster_allreduce(world, &value, &value, 1, MUSTER_INT32, MUSTER_SUM) < 0);
    } else { /* it does not come, and ends nothing itself before that */
        void *set = NULL;
        size_t length = 0;
        CHECK_OK(muster_store_get(cluster, "cancelled", 1000 * LIMIT_S, &set, &length));
        muster_free(set);
    }
    CHECK_OK(muster_recover(cluster, 1000 * LIMIT_S));
    first_calls(world, ranks, rank);
    CHECK_IS(1, segments());
    leave(cluster);
}

/* Calls of every length, until something breaks. Some ranks are ahead of others: a root does not wait. */
static muster_status_t calls_on(muster_group_t *world) {
    static int32_t values[2 * MIB / 4], others[2 * MIB / 4];
    static const size_t counts[] = {1, 700, 20000, MIB / 4};
    for (int call = 0;; call++) {
        size_t count = counts[call % 4];
        muster_status_t status = MUSTER_OK;
        switch (call / 4 % 5) {
        case 0: status = muster_allreduce(world, values, others, count, MUSTER_INT32, MUSTER_SUM); break;
        case 1: status = muster_broadcast(world, values, count, MUSTER_INT32, call % SIZE); break;
        case 2: status = muster_allgather(world, values, others, count / SIZE + 1, MUSTER_INT32); break;
        case 3: status = muster_reduce(world, values, others, count, MUSTER_INT32, MUSTER_MAX, call % SIZE); break;
        default: status = muster_alltoall(world, values, others, count / SIZE + 1, MUSTER_INT32); break;
        }
        if (status != MUSTER_OK) {
            return status;
        }
    }
}

static void is_struck(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    first_calls(muster_world(cluster), ranks, rank);
    muster_status_t status = calls_on(muster_world(cluster));
    note->took_s = now_s();
    keep_failure(note, cluster, status);
    muster_finalize(cluster);
    muster_cluster_free(cluster);
    CHECK_IS(0, segments());
}

/* A rank is killed, or stopped, in the middle of whatever it does. */
static void struck(bool stops, long after_ns) {
    char place[32];
    fprintf(stderr, "%s after %ld ms\n", stops ? "stopped" : "killed", after_ns / 1000000);
    struct ranks *ranks = ranks_start(SIZE, is_struck, required);
    ranks_await_ready(ranks);
    ranks_go(ranks);
    nanosleep(&(struct timespec){.tv_nsec = after_ns}, NULL); /* anywhere: nothing is waited for */
    double begun = now_s();
    if (stops) {
        stop_process(ranks->pid[CULPRIT]);
    } else {
        ranks_kill(ranks, CULPRIT);
    }
    snprintf(place, sizeof place, "rank %d (node id \"%d\"", CULPRIT, CULPRIT);
    for (int rank = 0; rank < SIZE; rank++) {
        if (rank != CULPRIT) {
            ranks_await(ranks, rank);
            CHECK_IS(MUSTER_ERR_PEER_LOST, ranks->note[rank].status);
            CHECK_IS(CULPRIT, ranks->note[rank].failure.rank);
            CHECK_CONTAINS(ranks->note[rank].words, place);
            CHECK(ranks->note[rank].took_s - begun < (stops ? 4 : 2) * patience());
        }
    }
    if (stops) {
        CHECK(kill(ranks->pid[CULPRIT], SIGCONT) == 0);
    }
    ranks_await(ranks, CULPRIT);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_await_scheduler(ranks));
    ranks_free(ranks);
}

/* Where the memory that the ranks share begins, and where it ends. */
static void find_segment(unsigned long *begin, unsigned long *end) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL && strstr(line, "/memfd:muster") == NULL) {
    }
    fclose(maps);
    CHECK(sscanf(line, "%lx-%lx", begin, end) == 2);
}

/* One rank writes nonsense wherever it can. The calls of all end, sooner or later with an error, and nobody crashes. */
static void scribbles(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    static int32_t values[MIB / 4], others[MIB / 4];
    uint64_t draw = 88172645463325252u + (uint64_t)ranks->pid[CULPRIT];
    first_calls(world, ranks, rank);
    CHECK_OK(muster_group_set_timeout(world, 1000));
    muster_status_t status = MUSTER_OK;
    for (int call = 0; status == MUSTER_OK; call++) {
        CHECK(call < 100000);
        if (rank == CULPRIT && call % 4 == 3) {
            unsigned long begin = 0, end = 0;
            find_segment(&begin, &end);
            for (unsigned long at = begin; at < end; at += 64) { /* some words of each line */
                draw ^= draw << 13, draw ^= draw >> 7, draw ^= draw << 17;
                *(volatile uint64_t *)(at + draw % 8 * 8) = draw % 3 == 0 ? draw : draw % 100;
            }
        }
        size_t count = call % 2 == 0 ? 100 : MIB / 8;
        status = muster_allreduce(world, values, others, count, MUSTER_INT32, MUSTER_SUM);
    }
    CHECK(status == MUSTER_ERR_TIMEOUT || status == MUSTER_ERR_MISMATCH || status == MUSTER_ERR_CORRUPT);
    CHECK_OK(muster_group_set_timeout(world, -1));
    CHECK_OK(muster_recover(cluster, 1000 * LIMIT_S));
    first_calls(world, ranks, rank);
    leave(cluster);
}

/* With checksums of all that lies there, the result of a call is right, or it is an error. Rank 0 writes bytes of nonsense
 * wherever it likes, from a thread of its own. So some come between a check and the use of what was checked. */
static struct {
    unsigned long begin, end;
    atomic_bool is_over;
} nonsense;

static void *writes_nonsense(void *unused) {
    uint64_t draw = 88172645463325252u + (uint64_t)getpid();
    while (!atomic_load(&nonsense.is_over)) {
        draw ^= draw << 13, draw ^= draw >> 7, draw ^= draw << 17;
        *(volatile uint8_t *)(nonsense.begin + draw % (nonsense.end - nonsense.begin)) = (uint8_t)(draw >> 40);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL); /* some calls are to end well: that is what is looked at */
    }
    return unused;
}

static atomic_int *damaged; /* shared: how many ranks were told of damage */

/* What rank `of` brings at a place to a call. */
static int32_t brought(int of, int call, size_t at) { return of * 1000000 + (int32_t)at * 7 + call; }

/* One call, of one kind after another; what it gives is right, if it ends well. */
static muster_status_t calls(muster_group_t *world, int call, int rank, size_t count) {
    static int32_t in[MIB / 2], out[MIB / 2];
    for (size_t at = 0; at < count * SIZE; at++) {
        in[at] = brought(rank, call, at);
    }
    muster_status_t status;
    switch (call % 5) {
    case 0: status = muster_allreduce(world, in, out, count, MUSTER_INT32, MUSTER_SUM); break;
    case 1: status = muster_allgather(world, in, out, count, MUSTER_INT32); break;
    case 2: status = muster_alltoall(world, in, out, count, MUSTER_INT32); break;
    case 3: status = muster_reduce_scatter(world, in, out, count, MUSTER_INT32, MUSTER_MAX); break;
    default: status = muster_broadcast(world, rank == 1 ? in : out, count, MUSTER_INT32, 1); break;
    }
    for (size_t at = 0; status == MUSTER_OK && at < count; at++) {
        size_t own = (size_t)rank * count + at;
        switch (call % 5) {
        case 0: CHECK_IS(6000000 + SIZE * brought(0, call, at), out[at]); break;
        case 3: CHECK_IS(brought(SIZE - 1, call, own), out[at]); break;
        case 4: CHECK_IS(brought(1, call, at), (rank == 1 ? in : out)[at]); break;
        default:
            for (int of = 0; of < SIZE; of++) {
                CHECK_IS(brought(of, call, call % 5 == 1 ? at : own), out[(size_t)of * count + at]);
            }
        }
    }
    return status;
}

static void is_told_of_nonsense(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    static const size_t counts[] = {1, 100, 2000, MIB / 8};
    muster_group_t *world = muster_world(cluster);
    muster_status_t status = MUSTER_OK;
    pthread_t writer;
    first_calls(world, ranks, rank);
    CHECK_OK(muster_group_set_timeout(world, 2000));
    if (rank == 0) {
        find_segment(&nonsense.begin, &nonsense.end);
        CHECK(pthread_create(&writer, NULL, writes_nonsense, NULL) == 0);
    }
    for (int call = 0; status == MUSTER_OK; call++) {
        CHECK(call < 1000000);
        status = calls(world, call, rank, counts[call / 5 % 4]);
    }
    CHECK(status == MUSTER_ERR_TIMEOUT || status == MUSTER_ERR_MISMATCH || status == MUSTER_ERR_CORRUPT);
    if (strstr(muster_last_error(), "wrote to shared memory was damaged") != NULL) {
        CHECK_IS(MUSTER_ERR_CORRUPT, status);
        atomic_fetch_add(damaged, 1);
    }
    if (rank == 0) {
        atomic_store(&nonsense.is_over, true);
        CHECK(pthread_join(writer, NULL) == 0);
    }
    leave(cluster);
}

static void nonsense_is_found(void) {
    damaged = mmap(NULL, sizeof *damaged, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(damaged != MAP_FAILED);
    for (int round = 0; round < 8; round++) {
        run("nonsense, with checksums", is_told_of_nonsense, checked, 1, MUSTER_OK);
    }
    CHECK(*damaged > 0);
    munmap(damaged, sizeof *damaged);
}

int main(void) {
    run("the same results", gets_the_same_of_every_call, required, 1, MUSTER_OK);
    run("requests", starts_and_waits, required, 1, MUSTER_OK);
    run("a fork", forks, required, 2, MUSTER_OK);
    run("late ranks", comes_late, required, 1, MUSTER_OK);
    run("a disagreement", disagrees, required, 4, MUSTER_OK);
    run("a call of counts", is_elsewhere, required, 2, MUSTER_OK);
    run("a call of addends", brings_addends, required, 2, MUSTER_OK);
    run("an absent rank", stays_away, required, 2, MUSTER_OK);
    run("a root that waits for nobody", waits_for_nobody, required, 1, MUSTER_OK);
    run("a cancelled call", cancels, required, 2, MUSTER_OK);
    run("the same results, with checksums", gets_the_same_of_every_call, checked, 1, MUSTER_OK);
    run("nonsense", scribbles, required, 2, MUSTER_OK);
    if (patience() < 10) { /* helgrind finds what this does, which is a race on purpose */
        nonsense_is_found();
    }
    for (long nth = 0; nth < 6; nth++) {
        struck(nth >= 4, nth * 7000000 + 1);
    }
    where_it_cannot_be_had();
    return 0;
}
