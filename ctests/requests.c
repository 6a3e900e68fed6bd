/* Collectives that go on while their caller does something else: in order, beside blocking ones, tested, waited for,
 * cancelled, freed while they go on; and what becomes of them when the group breaks. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <stdlib.h>

enum { SIZE = 4, FLIGHT = 12, BIG = 1 << 20 };

static void in_flight(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int64_t values[FLIGHT], sums[FLIGHT];
    muster_request_t *requests[FLIGHT];
    (void)context;
    for (int i = 0; i < FLIGHT; i++) {
        values[i] = i * 10 + index;
        CHECK_OK(muster_iallreduce(world, &values[i], &sums[i], 1, MUSTER_INT64, MUSTER_SUM, &requests[i]));
    }
    /* A blocking call takes its place behind them: when it is done, so are they. */
    CHECK_OK(muster_barrier(world));
    for (int i = FLIGHT - 1; i >= 0; i--) {
        CHECK_OK(muster_request_test(requests[i]));
        CHECK_OK(muster_request_wait(requests[i], 0));
        CHECK(sums[i] == i * 10 * SIZE + 6);
        muster_request_free(requests[i]);
    }
}

static void kinds(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    static const size_t counts[SIZE] = {1, 0, 2, 3}, displs[SIZE] = {6, 6, 0, 3};
    int32_t mine[SIZE], all[SIZE], parts[8], own[3];
    muster_request_t *request[5];
    (void)context;
    for (int i = 0; i < SIZE; i++) {
        mine[i] = index * 10 + i;
    }
    for (int i = 0; i < 3; i++) {
        own[i] = 100 * index + i;
    }
    memset(parts, 0x77, sizeof parts);
    int32_t from_root = index == 2 ? 42 : 0, sum[1];
    CHECK_OK(muster_ialltoall(world, mine, all, 1, MUSTER_INT32, &request[0]));
    CHECK_OK(muster_iallgatherv(world, own, counts[index], parts, counts, displs, MUSTER_INT32, &request[1]));
    CHECK_OK(muster_ibroadcast(world, &from_root, 1, MUSTER_INT32, 2, &request[2]));
    CHECK_OK(muster_ireduce_scatter(world, mine, sum, 1, MUSTER_INT32, MUSTER_SUM, &request[3]));
    CHECK_OK(muster_ibarrier(world, &request[4]));
    for (int i = 4; i >= 0; i--) {
        CHECK_OK(muster_request_wait(request[i], -1));
        muster_request_free(request[i]);
    }
    for (int from = 0; from < SIZE; from++) {
        CHECK(all[from] == from * 10 + index);
        for (size_t i = 0; i < counts[from]; i++) {
            CHECK(parts[displs[from] + i] == 100 * from + (int32_t)i);
        }
    }
    CHECK(parts[2] == 0x77777777 && parts[7] == 0x77777777); /* gaps are left alone */
    CHECK(from_root == 42);
    CHECK(sum[0] == 60 + 4 * index);
}

static void late(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    muster_request_t *request = NULL;
    (void)context;
    if (index == 0) {
        CHECK_OK(muster_ibarrier(world, &request));
        CHECK_IS(MUSTER_IN_PROGRESS, muster_request_test(request));
        double before = now_s();
        CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait(request, 50));
        CHECK(now_s() - before >= 0.05);
        CHECK_OK(muster_store_set(cluster, "go", "", 0));
        CHECK_OK(muster_request_wait(request, INT64_MAX));
    } else {
        CHECK_OK(muster_store_wait(cluster, (const char *const[]){"go"}, 1, -1));
        CHECK_OK(muster_ibarrier(world, &request));
    }
    muster_request_free(request); /* waits where it goes on */
}

/* A call that waits behind another keeps the time-out that the group had when the call was started. */
static void keeps_its_time_out(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int64_t value = index, sum = 0;
    muster_request_t *requests[2];
    (void)context;
    if (index == SIZE - 1) {
        CHECK_OK(muster_store_wait(cluster, (const char *const[]){"begin"}, 1, -1));
    }
    CHECK_OK(muster_ibarrier(world, &requests[0]));
    CHECK_OK(muster_iallreduce(world, &value, &sum, 1, MUSTER_INT64, MUSTER_SUM, &requests[1]));
    CHECK_OK(muster_group_set_timeout(world, 1));
    if (index == 0) {
        CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait(requests[1], 50)); /* so 1 ms is over before the call begins */
        CHECK_OK(muster_store_set(cluster, "begin", "", 0));
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(muster_request_wait(requests[i], INT64_MAX));
        muster_request_free(requests[i]);
    }
    CHECK(sum == 6);
    CHECK_OK(muster_group_set_timeout(world, -1));
}

static void big_and_freed(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    float *in = malloc(BIG * sizeof *in), *out = malloc(BIG * sizeof *out);
    muster_request_t *request = NULL;
    (void)context;
    for (int i = 0; i < BIG; i++) {
        in[i] = (float)(i % 100 + index);
    }
    CHECK_OK(muster_iallreduce(world, in, out, BIG, MUSTER_FLOAT32, MUSTER_SUM, &request));
    muster_request_free(request); /* when it returns nothing touches the buffers, and the result is there */
    for (int i = 0; i < BIG; i++) {
        CHECK(out[i] == (float)(SIZE * (i % 100) + 6));
    }
    free(in);
    free(out);
}

static void cancelled(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    muster_request_t *first = NULL, *second = NULL;
    int32_t values[2] = {1, 1};
    (void)context;
    if (index == 3) { /* the others wait for it */
        CHECK_OK(muster_store_wait(cluster, (const char *const[]){"cancelled"}, 1, -1));
        CHECK_FAILS(MUSTER_ERR_ABORTED, "cancelled", muster_barrier(world));
        CHECK_CONTAINS(muster_last_error(), "rank 1");
        return;
    }
    CHECK_OK(muster_iallreduce(world, &values[0], &values[0], 1, MUSTER_INT32, MUSTER_SUM, &first));
    CHECK_OK(muster_iallreduce(world, &values[1], &values[1], 1, MUSTER_INT32, MUSTER_SUM, &second));
    if (index == 1) {
        CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait(second, 50));
        CHECK_OK(muster_request_cancel(second));
        CHECK_OK(muster_request_cancel(second));
        CHECK_OK(muster_store_set(cluster, "cancelled", "", 0));
    }
    CHECK_FAILS(MUSTER_ERR_ABORTED, "cancelled allreduce #2 on world", muster_request_wait(first, -1));
    CHECK_CONTAINS(muster_last_error(), "rank 1");
    CHECK_FAILS(MUSTER_ERR_ABORTED, "rank 1", muster_request_wait(second, -1));
    CHECK_FAILS(MUSTER_ERR_ABORTED, "rank 1", muster_barrier(world));
    muster_request_t *third = (muster_request_t *)(uintptr_t)64;
    CHECK_FAILS(MUSTER_ERR_ABORTED, "rank 1", muster_ibarrier(world, &third));
    CHECK(third == (muster_request_t *)(uintptr_t)64);
    muster_request_free(first);
    muster_request_free(second);
}

/* Requests that outlive their cluster, finalized or not. */
static void outlives(muster_cluster_t *cluster, int index, void *context) {
    muster_request_t **kept = context;
    if (index > 0) {
        CHECK_OK(muster_store_wait(cluster, (const char *const[]){"begun"}, 1, -1));
        return; /* they leave, and never call it */
    }
    CHECK_OK(muster_ibarrier(muster_world(cluster), &kept[0]));
    CHECK_IS(MUSTER_IN_PROGRESS, muster_request_test(kept[0]));
    CHECK_OK(muster_store_set(cluster, "begun", "", 0));
}

/* A user's operation that does not commute: the functions x -> a x + b, one after the other, in bytes. */
static void compose(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    const uint32_t *low = in;
    uint32_t *high = inout;
    CHECK(dtype == MUSTER_UINT64 && *(int *)ctx == 77);
    for (size_t i = 0; i < count; i++) {
        uint32_t factor = low[2 * i] * high[2 * i], addend = high[2 * i] * low[2 * i + 1] + high[2 * i + 1];
        high[2 * i] = factor;
        high[2 * i + 1] = addend;
    }
}

static void users_operation(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    static const size_t sizes[] = {0, 1, 7, 1000, 100003};
    int32_t op = 0, size = muster_size(cluster);
    (void)context;
    int ours = 77;
    CHECK_OK(muster_op_create(cluster, compose, &ours, 0, &op));
    CHECK(op >= 256);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t count = sizes[s];
        uint32_t *in = malloc(count * 8 + 1), *out = malloc(count * 8 + 1);
        for (size_t i = 0; i < count; i++) {
            in[2 * i] = (uint32_t)(2 * i + 3 + (size_t)index);
            in[2 * i + 1] = (uint32_t)(i * 7 + (size_t)index * 11);
        }
        for (int32_t root = -1; root < size; root++) {
            memset(out, 0x55, count * 8);
            if (root < 0) {
                CHECK_OK(muster_allreduce(world, in, out, count, MUSTER_UINT64, op));
            } else {
                CHECK_OK(muster_reduce(world, in, out, count, MUSTER_UINT64, op, root));
            }
            for (size_t i = 0; i < count && (root < 0 || root == index); i++) {
                uint32_t factor = 1, addend = 0;
                for (uint32_t rank = 0; rank < (uint32_t)size; rank++) {
                    uint32_t a = (uint32_t)(2 * i + 3) + rank, b = (uint32_t)(i * 7) + rank * 11;
                    addend = a * addend + b;
                    factor *= a;
                }
                CHECK(out[2 * i] == factor && out[2 * i + 1] == addend);
            }
        }
        free(in);
        free(out);
    }
    CHECK_OK(muster_op_free(cluster, op));
}

int main(void) {
    struct plan plan = {.workers = SIZE, .node_ids = rank_ids, .body = in_flight};
    run_nodes(&plan);
    plan.body = kinds;
    run_nodes(&plan);
    plan.body = late;
    run_nodes(&plan);
    plan.body = keeps_its_time_out;
    run_nodes(&plan);
    plan.body = big_and_freed;
    run_nodes(&plan);
    for (plan.workers = 1; plan.workers <= 6; plan.workers++) {
        plan.body = users_operation;
        run_nodes(&plan);
    }
    plan.workers = SIZE;
    plan.body = cancelled;
    run_nodes(&plan);
    muster_request_t *kept[1] = {NULL};
    plan.body = outlives;
    plan.context = kept;
    run_nodes(&plan);
    muster_status_t ended = muster_request_wait(kept[0], -1);
    CHECK(ended == MUSTER_ERR_PEER_LEFT || ended == MUSTER_ERR_STATE);
    muster_request_free(kept[0]);
    return 0;
}
