/* If there is no memory for what grows by a count or a size that the caller gives, the call says so, and the process goes
 * on. This is tried with endless requests of each kind, a value for the store, and the wide copies of an average. */
#include "check.h"
#include "nodes.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { REQUESTS_LIMIT = 1000000 };

static struct rlimit before;
static atomic_int ready, limited; /* the ranks that have come; whether the limit holds */

/* The address space that this process has, in bytes. */
static size_t space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

/* From now on this process gets so much more address space than it has, and no more. Another thread may take its first
 * memory, an arena of 64 MiB, between the look and the limit: then it is done once more. */
static void limit_to(size_t more) {
    size_t had;
    do {
        had = space();
        struct rlimit limit = {had + more, before.rlim_max};
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    } while (space() != had);
}

static void no_limit(void) {
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
}

static void says_memory(muster_status_t status) {
    CHECK_IS(MUSTER_ERR_MEMORY, status);
    CHECK(strstr(muster_last_error(), "memory") != NULL);
}

typedef muster_status_t (*starter)(muster_group_t *world, int32_t *number, muster_request_t **request);

static muster_status_t receive(muster_group_t *world, int32_t *number, muster_request_t **request) {
    return muster_irecv(world, number, 1, MUSTER_INT32, 0, 2, NULL, 0, request);
}

static muster_status_t send_unasked(muster_group_t *world, int32_t *number, muster_request_t **request) {
    return muster_isend(world, number, 1, MUSTER_INT32, 0, 3, request);
}

static muster_status_t sum(muster_group_t *world, int32_t *number, muster_request_t **request) {
    return muster_iallreduce(world, number, number, 1, MUSTER_INT32, MUSTER_SUM, request);
}

static void works(muster_group_t *world) {
    int32_t box = 0, number = 7;
    CHECK_OK(muster_sendrecv(world, &number, 1, MUSTER_INT32, 0, 1, &box, 1, MUSTER_INT32, 0, 1, NULL, 0));
    CHECK_IS(7, box);
    CHECK_OK(muster_allreduce(world, &number, &box, 1, MUSTER_INT32, MUSTER_SUM));
    CHECK_IS(7, box);
}

/* Starts requests until there is no memory for one more. Returns how many; the caller was told why the last one failed. */
static size_t start_without_end(muster_group_t *world, starter start, int32_t *number, muster_request_t **made) {
    size_t count = 0;
    muster_status_t status = MUSTER_OK;
    limit_to(16 << 20);
    while (count < REQUESTS_LIMIT && status == MUSTER_OK) {
        status = start(world, number, &made[count]);
        count += status == MUSTER_OK;
    }
    says_memory(status);
    CHECK(count > 1000 && count < REQUESTS_LIMIT);
    return count;
}

/* Receives that nobody ever sends to, and messages that nobody has asked for: then all else works as before. */
static void messages(muster_cluster_t *cluster, muster_request_t **made) {
    muster_group_t *world = muster_world(cluster);
    int32_t number = 5, box = 0;
    works(world);
    size_t count = start_without_end(world, receive, &number, made);
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(muster_request_cancel(made[i]));
        CHECK_IS(MUSTER_ERR_ABORTED, muster_request_wait(made[i], -1));
        muster_request_free(made[i]);
    }
    no_limit();
    works(world);
    count = start_without_end(world, send_unasked, &number, made);
    no_limit();
    for (size_t i = 0; i < count; i++) {
        box = 0;
        CHECK_OK(muster_recv(world, &box, 1, MUSTER_INT32, 0, 3, NULL, 0));
        CHECK_IS(5, box);
        CHECK_OK(muster_request_wait(made[i], -1));
        muster_request_free(made[i]);
    }
    works(world);
}

/* A collective that cannot begin ends its group, for others may be in it. */
static void collectives(muster_cluster_t *cluster, muster_request_t **made) {
    muster_group_t *world = muster_world(cluster);
    int32_t number = 0;
    works(world);
    size_t count = start_without_end(world, sum, &number, made);
    no_limit();
    for (size_t i = 0; i < count; i++) {
        muster_status_t status = muster_request_wait(made[i], -1); /* the last may not have had their turn */
        CHECK(status == MUSTER_OK || status == MUSTER_ERR_MEMORY);
        muster_request_free(made[i]);
    }
    says_memory(muster_allreduce(world, &number, &number, 1, MUSTER_INT32, MUSTER_SUM));
}

static void store(muster_cluster_t *cluster, muster_request_t **made) {
    (void)made;
    size_t length = 16 << 20;
    char *value = calloc(1, length);
    void *found = NULL;
    size_t found_length = 0;
    CHECK(value != NULL);
    /* More than the store takes is refused before any of it is copied. */
    void *huge = calloc(1, (size_t)1 << 30);
    CHECK(huge != NULL);
    limit_to(20 << 20);
    CHECK_IS(MUSTER_ERR_LIMIT, muster_store_set(cluster, "huge", huge, (size_t)1 << 30));
    no_limit();
    free(huge);
    limit_to(20 << 20);
    says_memory(muster_store_set(cluster, "large", value, length));
    says_memory(muster_store_compare_set(cluster, "large", NULL, 0, value, length, NULL, NULL));
    no_limit();
    CHECK_OK(muster_store_set(cluster, "large", value, length));
    limit_to(20 << 20);
    says_memory(muster_store_get(cluster, "large", -1, &found, &found_length));
    CHECK(found == NULL && found_length == 0);
    CHECK_OK(muster_store_set(cluster, "small", value, 8));
    no_limit();
    CHECK_OK(muster_store_get(cluster, "large", -1, &found, &found_length));
    CHECK(found_length == length);
    muster_free(found);
    free(value);
}

static void alone(void (*body)(muster_cluster_t *cluster, muster_request_t **made)) {
    muster_cluster_t *cluster = NULL;
    muster_request_t **made = calloc(REQUESTS_LIMIT, sizeof *made);
    CHECK(made != NULL);
    CHECK_OK(muster_init(NULL, &cluster));
    body(cluster, made);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    free(made);
}

/* The ranks are threads of one process, so that all of them lack the memory. */
static void average(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    size_t length = 48 << 20;
    char *data = calloc(1, length);
    (void)context;
    CHECK(data != NULL);
    CHECK_OK(muster_allreduce(world, data, data, 1000, MUSTER_INT8, MUSTER_AVG));
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < 2) { /* no barrier: the other's next call may revoke the group before this one has left it */
        usleep(100); /* a look at a variable, without a lock that may need memory */
    }
    if (index == 0) {
        limit_to(24 << 20);
        atomic_store(&limited, 1);
    }
    while (!atomic_load(&limited)) {
        usleep(100);
    }
    says_memory(muster_allreduce(world, data, data, length, MUSTER_INT8, MUSTER_AVG));
    no_limit();
    free(data);
}

int main(void) {
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    CHECK(mallopt(M_MMAP_THRESHOLD, 128 << 10) == 1); /* else what was freed before may do for what comes */
    alone(store); /* first, for what the others free would do for it */
    alone(messages);
    alone(collectives);
    struct plan two = {.workers = 2, .node_ids = rank_ids, .body = average};
    run_nodes(&two);
    return 0;
}
