/* What a call costs once its group is warm: no allocation, no page fault; and no processor time while it waits. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { RANKS = 4, KIB = 1 << 10, MIB = 1 << 20, LARGEST = 4 * MIB, WARM = 10, WINDOWS = 4, COUNTED = 15, LATE_S = 10 };

/* Every allocation of the program and of its libraries comes here: counted for each thread by itself. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
static __thread long allocations;

void *malloc(size_t bytes) {
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    allocations++;
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    allocations++;
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    allocations++;
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL ? 12 : 0; /* ENOMEM */
}

static long page_faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_minflt + usage.ru_majflt;
}

static long least(long one, long other) {
    return one < other ? one : other;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct memory {
    muster_group_t *world;
    uint8_t *in;  /* as much as all ranks give */
    uint8_t *out; /* likewise */
    int rank;
};

typedef muster_status_t (*call)(struct memory *memory, size_t bytes, int nth);

static muster_status_t allreduce(struct memory *memory, size_t bytes, int nth) {
    (void)nth;
    return muster_allreduce(memory->world, memory->out, memory->out, bytes / 4, MUSTER_FLOAT32, MUSTER_SUM);
}

static muster_status_t allgather(struct memory *memory, size_t bytes, int nth) {
    (void)nth;
    return muster_allgather(memory->world, memory->in, memory->out, bytes / 4, MUSTER_FLOAT32);
}

static muster_status_t broadcast(struct memory *memory, size_t bytes, int nth) {
    return muster_broadcast(memory->world, memory->out, bytes / 4, MUSTER_FLOAT32, nth % RANKS);
}

static muster_status_t reduce_scatter(struct memory *memory, size_t bytes, int nth) {
    (void)nth;
    return muster_reduce_scatter(memory->world, memory->in, memory->out, bytes / 4, MUSTER_FLOAT32, MUSTER_SUM);
}

static muster_status_t reduce(struct memory *memory, size_t bytes, int nth) {
    return muster_reduce(memory->world, memory->in, memory->out, bytes / 4, MUSTER_FLOAT32, MUSTER_SUM, nth % RANKS);
}

static muster_status_t alltoall(struct memory *memory, size_t bytes, int nth) {
    (void)nth;
    return muster_alltoall(memory->world, memory->in, memory->out, bytes / 4, MUSTER_FLOAT32);
}

static muster_status_t barrier(struct memory *memory, size_t bytes, int nth) {
    (void)bytes;
    (void)nth;
    return muster_barrier(memory->world);
}

/* Parts of different sizes, which lie one behind the other. */
static void divide(size_t bytes, size_t *counts, size_t *displs) {
    size_t end = 0;
    for (size_t rank = 0; rank < RANKS; rank++) {
        counts[rank] = bytes / 4 * rank / RANKS;
        displs[rank] = end;
        end += counts[rank];
    }
}

static muster_status_t allgatherv(struct memory *memory, size_t bytes, int nth) {
    size_t counts[RANKS], displs[RANKS];
    (void)nth;
    divide(bytes, counts, displs);
    return muster_allgatherv(memory->world, memory->in, counts[memory->rank], memory->out, counts, displs, MUSTER_FLOAT32);
}

static muster_status_t gatherv(struct memory *memory, size_t bytes, int nth) {
    size_t counts[RANKS], displs[RANKS];
    divide(bytes, counts, displs);
    return muster_gatherv(memory->world, memory->in, counts[memory->rank], memory->out, counts, displs, MUSTER_FLOAT32,
                          nth % RANKS);
}

static muster_status_t scatterv(struct memory *memory, size_t bytes, int nth) {
    size_t counts[RANKS], displs[RANKS];
    divide(bytes, counts, displs);
    return muster_scatterv(memory->world, memory->in, counts, displs, memory->out, counts[memory->rank], MUSTER_FLOAT32,
                           nth % RANKS);
}

static muster_status_t reduce_scatterv(struct memory *memory, size_t bytes, int nth) {
    size_t counts[RANKS], displs[RANKS];
    (void)nth;
    divide(bytes, counts, displs);
    return muster_reduce_scatterv(memory->world, memory->in, memory->out, counts, MUSTER_FLOAT32, MUSTER_SUM);
}

static muster_status_t alltoallv(struct memory *memory, size_t bytes, int nth) {
    size_t to[RANKS], from[RANKS], displs[RANKS];
    (void)nth;
    divide(bytes, from, displs);
    for (int rank = 0; rank < RANKS; rank++) {
        to[rank] = from[memory->rank];
    }
    return muster_alltoallv(memory->world, memory->in, to, NULL, memory->out, from, displs, MUSTER_FLOAT32);
}

static const struct {
    const char *name;
    call call;
} calls[] = {{"allreduce", allreduce}, {"allgather", allgather},           {"broadcast", broadcast}, {"barrier", barrier},
             {"reduce", reduce},       {"reduce_scatter", reduce_scatter}, {"alltoall", alltoall},   {"allgatherv", allgatherv},
             {"gatherv", gatherv},     {"scatterv", scatterv},             {"alltoallv", alltoallv}, {"reduce_scatterv", reduce_scatterv}};

/* All ranks call everything in every size until it is warm; then it takes nothing more. */
static void takes_nothing(muster_cluster_t *cluster, int rank, void *context) {
    static const size_t sizes[] = {8, KIB, 64 * KIB, MIB, LARGEST};
    struct memory memory = {.world = muster_world(cluster), .rank = rank};
    (void)context;
    CHECK((memory.in = malloc((size_t)RANKS * LARGEST)) != NULL);
    CHECK((memory.out = malloc((size_t)RANKS * LARGEST)) != NULL);
    memset(memory.in, 0, (size_t)RANKS * LARGEST);
    memset(memory.out, 0, (size_t)RANKS * LARGEST);
    for (size_t kind = 0; kind < sizeof calls / sizeof *calls; kind++) {
        for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
            for (int nth = 0; nth < WARM; nth++) {
                CHECK_OK(calls[kind].call(&memory, sizes[size], nth));
            }
            /* What is needed once (a buffer that fills further than ever before) shows in one window, what each call
             * takes in all. */
            long allocated = 1000000, faults = 1000000;
            for (int window = 0; window < WINDOWS; window++) {
                long allocated_before = allocations, faults_before = page_faults();
                for (int nth = 0; nth < COUNTED; nth++) {
                    CHECK_OK(calls[kind].call(&memory, sizes[size], nth));
                }
                allocated = least(allocated, allocations - allocated_before);
                faults = least(faults, page_faults() - faults_before);
            }
            if (allocated != 0 || faults != 0) {
                fprintf(stderr, "rank %d: %d calls of %s with %zu bytes: %ld allocations, %ld page faults\n", rank, COUNTED,
                        calls[kind].name, sizes[size], allocated, faults);
            }
            CHECK_IS(0, allocated);
            CHECK_IS(0, faults);
        }
    }
    free(memory.in);
    free(memory.out);
}

/* All wait for one that comes late: in a collective, in a receive, and for a request. */
static void waits_asleep(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = 0, other = 0;
    muster_request_t *request = NULL;
    (void)context;
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_sendrecv(world, &value, 1, MUSTER_INT32, (rank + 1) % RANKS, 0, &other, 1, MUSTER_INT32,
                             (rank + RANKS - 1) % RANKS, 0, NULL, 0));
    if (rank == 0) {
        sleep(LATE_S);
        CHECK_OK(muster_send(world, &value, 1, MUSTER_INT32, 2, 1));
        CHECK_OK(muster_barrier(world));
        return;
    }
    double before = seconds(CLOCK_THREAD_CPUTIME_ID);
    if (rank == 1) {
        CHECK_OK(muster_barrier(world));
    } else if (rank == 2) {
        CHECK_OK(muster_recv(world, &value, 1, MUSTER_INT32, 0, 1, NULL, 0));
    } else {
        CHECK_OK(muster_ibarrier(world, &request));
        CHECK_OK(muster_request_wait(request, -1));
        muster_request_free(request);
    }
    double took = seconds(CLOCK_THREAD_CPUTIME_ID) - before;
    if (took >= 0.050) {
        fprintf(stderr, "rank %d: %.0f ms of processor time\n", rank, 1000 * took);
    }
    CHECK(took < 0.050);
    if (rank == 2) {
        CHECK_OK(muster_barrier(world));
    }
}

static void run(node_body body) {
    struct plan plan = {.workers = RANKS, .node_ids = rank_ids, .body = body};
    run_nodes(&plan);
}

int main(void) {
    run(takes_nothing);
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    run(waits_asleep);
    /* Scheduler, agents, progress threads and their heartbeats, forming and leaving included. */
    double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
    if (took >= RANKS * 0.050) {
        fprintf(stderr, "all: %.0f ms of processor time\n", 1000 * took);
    }
    CHECK(took < RANKS * 0.050);
    return 0;
}
