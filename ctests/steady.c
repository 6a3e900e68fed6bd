/* What a call costs once its group is warm: no allocation, no page fault; and no processor time while it waits. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { RANKS = 4, KIB = 1 << 10, MIB = 1 << 20, LARGEST = 4 * MIB, WARM = 10, WINDOWS = 4, COUNTED = 15, FEW = 5,
       UNDER_WAY = 8, LATE_S = 10 };

/* Every allocation of the program and of its libraries comes here: counted for each thread by itself, and for all. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
static __thread long allocations;
static atomic_long all_allocations;

static void note(void) {
    allocations++;
    atomic_fetch_add_explicit(&all_allocations, 1, memory_order_relaxed);
}

void *malloc(size_t bytes) {
    note();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    note();
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    note();
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    note();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    note();
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL ? 12 : 0; /* ENOMEM */
}

static long page_faults(int whose) {
    struct rusage usage;
    CHECK(getrusage(whose, &usage) == 0);
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

/* Adds the bytes of elements of 24. */
static void add(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    const uint8_t *other = in;
    uint8_t *mine = inout;
    (void)dtype;
    (void)ctx;
    for (size_t i = 0; i < count * 24; i++) {
        mine[i] = (uint8_t)(mine[i] + other[i]);
    }
}

/* The call is in rank order every other time, and in place every other two times. */
static muster_status_t allreduce_with(struct memory *memory, size_t bytes, int nth) {
    return muster_allreduce_with(memory->world, nth / 2 % 2 == 0 ? memory->in : memory->out, memory->out, bytes / 24,
                                 MUSTER_ELEMENT + 24, add, NULL, nth % 2);
}

/* The buffers lie in an order that is not the ranks'. */
static muster_status_t allgather_list(struct memory *memory, size_t bytes, int nth) {
    void *outs[RANKS];
    (void)nth;
    for (int rank = 0; rank < RANKS; rank++) {
        outs[rank] = memory->out + (size_t)((rank * 3 + 1) % RANKS) * bytes;
    }
    return muster_allgather_list(memory->world, memory->in, bytes / 4, outs, NULL, MUSTER_FLOAT32);
}

static muster_status_t reduce_scatter_list(struct memory *memory, size_t bytes, int nth) {
    const void *ins[RANKS];
    (void)nth;
    for (int rank = 0; rank < RANKS; rank++) {
        ins[rank] = memory->in + (size_t)((rank * 3 + 1) % RANKS) * bytes;
    }
    return muster_reduce_scatter_list(memory->world, ins, NULL, memory->out, bytes / 4, MUSTER_FLOAT32, MUSTER_SUM);
}

static muster_status_t overlapping(struct memory *memory, size_t bytes, int nth) {
    (void)nth;
    return muster_alltoall(memory->world, memory->out, memory->out + 4, bytes / 8, MUSTER_FLOAT32);
}

static const struct {
    const char *name;
    call call;
} calls[] = {{"allreduce", allreduce}, {"allgather", allgather},           {"broadcast", broadcast}, {"barrier", barrier},
             {"reduce", reduce},       {"reduce_scatter", reduce_scatter}, {"alltoall", alltoall},   {"allgatherv", allgatherv},
             {"gatherv", gatherv},     {"scatterv", scatterv},             {"alltoallv", alltoallv}, {"reduce_scatterv", reduce_scatterv},
             {"allreduce_with", allreduce_with},           {"allgather_list", allgather_list},
             {"reduce_scatter_list", reduce_scatter_list}, {"alltoall of what overlaps", overlapping}};

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
            /* What is needed only once (a buffer that fills further than ever before) shows in one window. What each call
             * takes shows in all windows. */
            long allocated = 1000000, faults = 1000000;
            for (int window = 0; window < WINDOWS; window++) {
                long allocated_before = allocations, faults_before = page_faults(RUSAGE_THREAD);
                for (int nth = 0; nth < COUNTED; nth++) {
                    CHECK_OK(calls[kind].call(&memory, sizes[size], nth));
                }
                allocated = least(allocated, allocations - allocated_before);
                faults = least(faults, page_faults(RUSAGE_THREAD) - faults_before);
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

/* What is posted by now ends well, and its requests are freed. */
static muster_status_t end(muster_request_t **requests, int count) {
    muster_status_t first = MUSTER_OK;
    for (int i = 0; i < count; i++) {
        muster_status_t status = muster_request_wait(requests[i], -1);
        first = first == MUSTER_OK ? status : first;
        muster_request_free(requests[i]);
    }
    return first;
}

static int next(const struct memory *memory) {
    return (memory->rank + 1) % RANKS;
}

static int previous(const struct memory *memory) {
    return (memory->rank + RANKS - 1) % RANKS;
}

static muster_status_t sendrecv(struct memory *memory, size_t bytes, int nth) {
    muster_received_t received;
    muster_status_t status =
        muster_sendrecv(memory->world, memory->in, bytes, MUSTER_UINT8, next(memory), nth, memory->out, bytes, MUSTER_UINT8,
                        previous(memory), nth, &received, sizeof received);
    CHECK(status != MUSTER_OK || received.count == bytes);
    return status;
}

static muster_status_t send_and_recv(struct memory *memory, size_t bytes, int nth) {
    for (int half = 0; half < 2; half++) {
        int sends = (memory->rank + half) % 2 == 0;
        muster_status_t status =
            sends ? muster_send(memory->world, memory->in, bytes, MUSTER_UINT8, memory->rank ^ 1, nth)
                  : muster_recv(memory->world, memory->out, bytes, MUSTER_UINT8, memory->rank ^ 1, nth, NULL, 0);
        if (status != MUSTER_OK) {
            return status;
        }
    }
    return MUSTER_OK;
}

static muster_status_t recv_from_any(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_isend(memory->world, memory->in, bytes, MUSTER_UINT8, next(memory), nth, &request));
    CHECK_OK(muster_recv(memory->world, memory->out, bytes, MUSTER_UINT8, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, NULL, 0));
    return end(&request, 1);
}

static muster_status_t isendrecv(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_isendrecv(memory->world, memory->in, bytes, MUSTER_UINT8, next(memory), nth, memory->out, bytes,
                              MUSTER_UINT8, previous(memory), nth, NULL, 0, &request));
    while (muster_request_test(request) == MUSTER_IN_PROGRESS) { /* it gives way itself */
    }
    return end(&request, 1);
}

/* Starts the sends of several messages, with a tag each. */
static void send_several(struct memory *memory, size_t bytes, muster_request_t **requests) {
    for (int tag = 0; tag < UNDER_WAY; tag++) {
        CHECK_OK(muster_isend(memory->world, memory->in + (size_t)tag * bytes, bytes, MUSTER_UINT8, next(memory), tag,
                              &requests[tag]));
    }
}

static muster_status_t under_way(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *requests[2 * UNDER_WAY];
    (void)nth;
    for (int tag = 0; tag < UNDER_WAY; tag++) {
        CHECK_OK(muster_irecv(memory->world, memory->out + (size_t)tag * bytes, bytes, MUSTER_UINT8, previous(memory), tag,
                              NULL, 0, &requests[UNDER_WAY + tag]));
    }
    send_several(memory, bytes, requests);
    return end(requests, 2 * UNDER_WAY);
}

/* If a rank has the message that was sent last, it has, or has been offered, all messages before it: nobody has asked for
 * those. */
static muster_status_t unasked(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *requests[UNDER_WAY];
    uint8_t last = 0;
    (void)nth;
    send_several(memory, bytes, requests);
    CHECK_OK(muster_send(memory->world, &last, 1, MUSTER_UINT8, next(memory), UNDER_WAY));
    CHECK_OK(muster_recv(memory->world, &last, 1, MUSTER_UINT8, previous(memory), UNDER_WAY, NULL, 0));
    for (int tag = UNDER_WAY - 1; tag >= 0; tag--) {
        CHECK_OK(muster_recv(memory->world, memory->out + (size_t)tag * bytes, bytes, MUSTER_UINT8, previous(memory), tag,
                             NULL, 0));
    }
    return end(requests, UNDER_WAY);
}

static muster_status_t to_oneself(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *request = NULL;
    uint8_t small = 0;
    CHECK_OK(muster_irecv(memory->world, memory->out, bytes, MUSTER_UINT8, memory->rank, nth, NULL, 0, &request));
    CHECK_OK(muster_send(memory->world, memory->in, bytes, MUSTER_UINT8, memory->rank, nth));
    CHECK_OK(muster_send(memory->world, memory->in, 1, MUSTER_UINT8, memory->rank, nth));
    CHECK_OK(muster_recv(memory->world, &small, 1, MUSTER_UINT8, memory->rank, nth, NULL, 0));
    return end(&request, 1);
}

static muster_status_t iallreduce(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *request = NULL;
    (void)nth;
    CHECK_OK(muster_iallreduce(memory->world, memory->out, memory->out, bytes / 4, MUSTER_FLOAT32, MUSTER_SUM, &request));
    return end(&request, 1);
}

static muster_status_t iallgatherv(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *request = NULL;
    size_t counts[RANKS], displs[RANKS];
    (void)nth;
    divide(bytes, counts, displs);
    CHECK_OK(muster_iallgatherv(memory->world, memory->in, counts[memory->rank], memory->out, counts, displs, MUSTER_FLOAT32,
                                &request));
    return end(&request, 1);
}

/* The blocking one takes its place behind the others. */
static muster_status_t collectives_under_way(struct memory *memory, size_t bytes, int nth) {
    muster_request_t *requests[UNDER_WAY];
    (void)nth;
    for (int i = 0; i < UNDER_WAY; i++) {
        CHECK_OK(muster_iallreduce(memory->world, memory->in, memory->out + (size_t)i * bytes, bytes / 4, MUSTER_FLOAT32,
                                   MUSTER_SUM, &requests[i]));
    }
    CHECK_OK(muster_barrier(memory->world));
    return end(requests, UNDER_WAY);
}

static const struct {
    const char *name;
    call call;
} shared_calls[] = {{"sendrecv", sendrecv},
                    {"send and recv", send_and_recv},
                    {"recv from any rank", recv_from_any},
                    {"isendrecv", isendrecv},
                    {"isend and irecv, several", under_way},
                    {"recv of what was not asked for", unasked},
                    {"send to oneself", to_oneself},
                    {"iallreduce", iallreduce},
                    {"iallgatherv", iallgatherv},
                    {"iallreduce, several", collectives_under_way}};

/* Other threads of the library take part in these, so all ranks together are counted for: between two barriers nothing
 * is allocated in the whole process. (Its heartbeats would be: they are put off.) */
static void shared_work_takes_nothing(muster_cluster_t *cluster, int rank, void *context) {
    static const size_t sizes[] = {8, 4 * KIB, 64 * KIB, MIB};
    struct memory memory = {.world = muster_world(cluster), .rank = rank};
    (void)context;
    CHECK((memory.in = malloc((size_t)UNDER_WAY * MIB)) != NULL);
    CHECK((memory.out = malloc((size_t)UNDER_WAY * MIB)) != NULL);
    memset(memory.in, 0, (size_t)UNDER_WAY * MIB);
    memset(memory.out, 0, (size_t)UNDER_WAY * MIB);
    for (size_t kind = 0; kind < sizeof shared_calls / sizeof *shared_calls; kind++) {
        for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
            for (int nth = 0; nth < WARM; nth++) {
                CHECK_OK(shared_calls[kind].call(&memory, sizes[size], nth));
            }
            /* How many messages wait at a time is chance, and a window may see more of them than ever before. */
            long allocated = 1000000, faults = 1000000;
            for (int window = 0; window < 4 * WINDOWS; window++) {
                CHECK_OK(muster_barrier(memory.world));
                long allocated_before = atomic_load(&all_allocations), faults_before = page_faults(RUSAGE_SELF);
                CHECK_OK(muster_barrier(memory.world)); /* nobody begins before it has been noted */
                for (int nth = 0; nth < FEW; nth++) {
                    CHECK_OK(shared_calls[kind].call(&memory, sizes[size], nth));
                }
                CHECK_OK(muster_barrier(memory.world));
                allocated = least(allocated, atomic_load(&all_allocations) - allocated_before);
                faults = least(faults, page_faults(RUSAGE_SELF) - faults_before);
            }
            if (allocated != 0 || faults != 0) {
                fprintf(stderr, "all ranks together, as seen by rank %d: %d calls of %s with %zu bytes: %ld allocations, %ld page faults\n", rank, FEW,
                        shared_calls[kind].name, sizes[size], allocated, faults);
            }
            CHECK_IS(0, allocated);
            CHECK_IS(0, faults);
        }
    }
    CHECK_OK(muster_barrier(memory.world));
    free(memory.in);
    free(memory.out);
}

/* All wait for a rank that comes late: in a collective, in a receive, and for a request. */
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

static void run(node_body body, const char *const *settings) {
    struct plan plan = {.workers = RANKS, .node_ids = rank_ids, .settings = settings, .body = body};
    run_nodes(&plan);
}

int main(void) {
    static const char *const rare_heartbeats[] = {"node_timeout", "3000", NULL};
    run(takes_nothing, NULL);
    run(shared_work_takes_nothing, rare_heartbeats);
    double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    run(waits_asleep, NULL);
    /* Scheduler, agents, progress threads and their heartbeats, forming and leaving included. */
    double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
    if (took >= RANKS * 0.050) {
        fprintf(stderr, "all: %.0f ms of processor time\n", 1000 * took);
    }
    CHECK(took < RANKS * 0.050);
    return 0;
}
