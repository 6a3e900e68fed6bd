/* No settings at all: the process is a cluster of one, and every call works. */
#include "check.h"
#include "own.h"

#include <poll.h>
#include <stdlib.h>

enum { COUNT = 1000, ELEMENT_MAX = 8, LARGE = 1 << 20 };

static const size_t element_bytes[] = {1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};

static void queries(muster_cluster_t *cluster) {
    size_t count = 99;
    muster_failure_t failure;
    muster_hccl_cm_t cm;
    CHECK_IS(MUSTER_ROLE_WORKER, muster_role(cluster));
    CHECK_IS(0, muster_rank(cluster));
    CHECK_IS(1, muster_size(cluster));
    CHECK_IS(0, muster_local_rank(cluster));
    CHECK_IS(1, muster_local_size(cluster));
    CHECK_IS(0, muster_restarts(cluster));
    CHECK_IS(1, muster_epoch(cluster));
    CHECK(muster_node_id(cluster) != NULL && muster_node_id(cluster)[0] != 0);
    CHECK_OK(muster_failed_ranks(cluster, NULL, 0, &count));
    CHECK(count == 0);
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_failure(cluster, &failure, sizeof failure));
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_cluster_error(cluster, NULL, 0, &count));
    CHECK_OK(muster_hccl_cm(cluster, &cm, sizeof cm));
    CHECK_IS(1, cm.worker_size);
    CHECK_IS(0, cm.chief_device);
    CHECK(cm.chief_port > 1 && cm.chief_ip[0] != 0 && cm.worker_ip[0] != 0);
}

static void groups(muster_cluster_t *cluster) {
    muster_group_t *world = muster_world(cluster);
    muster_group_t *servers = muster_servers(cluster);
    muster_member_t member;
    CHECK(world != NULL && servers != NULL && muster_universe(cluster) != NULL);
    CHECK_IS(1, muster_group_size(world));
    CHECK_IS(0, muster_group_rank(world));
    CHECK_IS(1, muster_group_size(muster_universe(cluster)));
    CHECK_IS(0, muster_group_to_world(muster_universe(cluster), 0));
    CHECK_IS(0, muster_group_from_world(world, 0));
    CHECK_IS(0, muster_group_size(servers));
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_group_rank(servers));
    CHECK_IS(MUSTER_ERR_INVALID, muster_barrier(servers));
    CHECK_OK(muster_group_set_timeout(world, 0)); /* what can be done at once */
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_group_set_timeout(world, -1));
    CHECK_OK(muster_group_member(world, 0, &member, sizeof member));
    CHECK_IS(getpid(), member.pid);
    CHECK(strcmp(member.node_id, muster_node_id(cluster)) == 0);
    CHECK(member.host[0] != 0 && strchr(member.address, ':') != NULL && member.state == 0);
}

/* The result of one rank's data is that data, whatever the type and the operation. */
static void collectives(muster_group_t *world) {
    unsigned char in[COUNT * ELEMENT_MAX];
    unsigned char out[COUNT * ELEMENT_MAX];
    CHECK_OK(muster_barrier(world));
    for (int32_t dtype = MUSTER_INT8; dtype <= MUSTER_FLOAT64; dtype++) {
        size_t bytes = COUNT * element_bytes[dtype];
        for (size_t i = 0; i < bytes; i++) {
            in[i] = (unsigned char)(i % 60); /* no exponent of these is a NaN's */
        }
        memcpy(out, in, bytes);
        CHECK_OK(muster_broadcast(world, out, COUNT, dtype, 0));
        CHECK(memcmp(in, out, bytes) == 0);
        memset(out, 0xee, sizeof out);
        CHECK_OK(muster_allgather(world, in, out, COUNT, dtype));
        CHECK(memcmp(in, out, bytes) == 0);
        CHECK_OK(muster_allgather(world, out, out, COUNT, dtype)); /* in place */
        CHECK(memcmp(in, out, bytes) == 0);
        for (int32_t op = MUSTER_SUM; op <= MUSTER_AVG; op++) {
            memset(out, 0xee, sizeof out);
            CHECK_OK(muster_allreduce(world, in, out, COUNT, dtype, op));
            CHECK(memcmp(in, out, bytes) == 0);
            CHECK_OK(muster_allreduce(world, out, out, COUNT, dtype, op));
            CHECK(memcmp(in, out, bytes) == 0);
            CHECK_OK(muster_allreduce(world, NULL, NULL, 0, dtype, op));
        }
        CHECK_OK(muster_broadcast(world, NULL, 0, dtype, 0));
        CHECK_OK(muster_allgather(world, NULL, NULL, 0, dtype));
    }
}

static void store(muster_cluster_t *cluster) {
    void *value = NULL;
    size_t len = 0;
    int64_t sum = 0;
    int32_t existed = -1;
    const char *keys[] = {"a", "n"};
    CHECK_OK(muster_store_set(cluster, "a", "one", 3));
    CHECK_OK(muster_store_get(cluster, "a", -1, &value, &len));
    CHECK(len == 3 && strcmp(value, "one") == 0); /* a zero byte stands behind it */
    muster_free(value);
    CHECK_OK(muster_store_add(cluster, "n", 5, &sum));
    CHECK(sum == 5);
    CHECK_OK(muster_store_wait(cluster, keys, 2, 0));
    CHECK_OK(muster_store_compare_set(cluster, "a", "one", 3, "two", 3, &value, &len));
    CHECK(len == 3 && strcmp(value, "two") == 0);
    muster_free(value);
    CHECK_OK(muster_store_delete(cluster, "a", &existed));
    CHECK(existed == 1);
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_store_get(cluster, "a", 0, &value, &len));
}

static void note(muster_status_t status, void *ctx) {
    *(muster_status_t *)ctx = status;
}

/* An operation that needs nobody else has ended when it has been started: no thread carries it out. */
static void requests(muster_group_t *world) {
    int threads = own_threads();
    float in[] = {1, 2, 3}, out[] = {0, 0, 0};
    float *much = calloc(LARGE, sizeof *much), *sum = calloc(LARGE, sizeof *sum);
    muster_status_t told = 1;
    muster_request_t *request = NULL;
    struct pollfd ended;
    CHECK(much != NULL && sum != NULL);
    for (int round = 0; round < 100; round++) {
        in[0] = (float)round;
        CHECK_OK(muster_iallreduce(world, in, out, 3, MUSTER_FLOAT32, MUSTER_SUM, &request));
        CHECK_OK(muster_request_test(request));
        CHECK(memcmp(in, out, sizeof in) == 0);
        CHECK_OK(muster_request_cancel(request)); /* too late: the group is as it was */
        CHECK_OK(muster_request_wait(request, -1));
        muster_request_free(request);
        CHECK_OK(muster_barrier(world));
    }
    CHECK_OK(muster_ibarrier(world, &request));
    ended.fd = muster_request_descriptor(request);
    ended.events = POLLIN;
    CHECK_IS(1, poll(&ended, 1, 0));
    CHECK_IS(threads, own_threads());
    CHECK_OK(muster_request_notify(request, note, &told));
    muster_request_free(request); /* waits for the function */
    CHECK_OK(told);
    threads = own_threads(); /* one calls functions now */
    /* A long operation goes on while this thread does something else. A short one behind it comes after it. */
    muster_request_t *both[] = {NULL, NULL};
    much[LARGE - 1] = 7;
    CHECK_OK(muster_iallreduce(world, much, sum, LARGE, MUSTER_FLOAT32, MUSTER_SUM, &both[0]));
    CHECK_IS(threads + 1, own_threads());
    CHECK_OK(muster_iallreduce(world, &sum[LARGE - 1], out, 1, MUSTER_FLOAT32, MUSTER_SUM, &both[1]));
    CHECK_OK(muster_request_wait_all(both, 2, -1));
    CHECK(out[0] == 7);
    muster_request_free(both[0]);
    muster_request_free(both[1]);
    free(much);
    free(sum);
}

static void after_leaving(muster_cluster_t *cluster) {
    void *value = NULL;
    size_t len = 0;
    CHECK_OK(muster_finalize(cluster));
    CHECK_OK(muster_finalize(cluster));
    CHECK_IS(MUSTER_ERR_STATE, muster_barrier(muster_world(cluster)));
    CHECK_IS(MUSTER_ERR_STATE, muster_store_get(cluster, "a", -1, &value, &len));
    CHECK_IS(MUSTER_ERR_STATE, muster_store_set(cluster, "a", "one", 3));
    CHECK_IS(0, muster_rank(cluster));
    CHECK_IS(1, muster_size(cluster));
    CHECK(muster_node_id(cluster) != NULL);
}

/* Where all is slow, the library has said so, and the log's thread is one more. */
static bool has_threads(int count) {
    return own_threads_are(count) || (patience() > 1 && own_threads_are(count + 1));
}

static const char *kept;

/* What runs at the end of the process has the last sentence, and gets new ones. */
static void at_end(void) {
    bool holds = strcmp(kept, "group is NULL: expected a pointer to something") == 0;
    holds = holds && muster_store_set(NULL, "a", "one", 3) == MUSTER_ERR_INVALID;
    if (!holds || strstr(muster_last_error(), "cluster is NULL") == NULL) {
        fprintf(stderr, "the last sentence at the end: %s\n", muster_last_error());
        _exit(1);
    }
}

int main(void) {
    int threads = own_threads();
    int descriptors = own_descriptors();
    muster_cluster_t *cluster = NULL;
    CHECK(muster_last_error()[0] == 0);
    CHECK_OK(muster_init(NULL, &cluster));
    CHECK(has_threads(threads + 2)); /* the agent's and, as this process hosts it, the scheduler's */
    queries(cluster);
    groups(cluster);
    collectives(muster_world(cluster));
    collectives(muster_universe(cluster));
    CHECK(has_threads(threads + 2)); /* the thread that calls a collective drives it */
    requests(muster_world(cluster));
    store(cluster);
    after_leaving(cluster);
    muster_cluster_free(cluster);
    CHECK(own_threads_are(threads));
    CHECK_IS(descriptors, own_descriptors());
    CHECK_IS(MUSTER_ERR_INVALID, muster_barrier(NULL));
    kept = muster_last_error();
    CHECK(atexit(at_end) == 0);
    return 0;
}
