/* Collectives, operations, requests and messages with arguments that are not right (see refused.h). */
#include "refused.h"

static void collective_arguments(muster_group_t *world) {
    char in[64] = "in";
    char out[64] = "untouched";
    INVALID("group", muster_barrier(NULL));
    INVALID("group", muster_broadcast(NULL, out, 1, MUSTER_UINT8, 0));
    INVALID("group", muster_allreduce(NULL, in, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("group", muster_allgather(NULL, in, out, 1, MUSTER_UINT8));
    INVALID("buf", muster_broadcast(world, NULL, 1, MUSTER_UINT8, 0));
    INVALID("in is NULL", muster_allreduce(world, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("out is NULL", muster_allreduce(world, in, NULL, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("in is NULL", muster_allgather(world, NULL, out, 1, MUSTER_UINT8));
    INVALID("out is NULL", muster_allgather(world, in, NULL, 1, MUSTER_UINT8));
    for (int i = 0; i < ODD; i++) {
        int32_t odd = odd_numbers[i];
        INVALID("root", muster_broadcast(world, out, 1, MUSTER_UINT8, odd));
        INVALID("dtype", muster_broadcast(world, out, 1, odd, 0));
        INVALID("dtype", muster_allreduce(world, in, out, 1, odd, MUSTER_SUM));
        INVALID("op", muster_allreduce(world, in, out, 1, MUSTER_UINT8, odd));
        INVALID("dtype", muster_allgather(world, in, out, 1, odd));
        /* A wrong constant is wrong even if there is nothing to do. */
        INVALID("root", muster_broadcast(world, NULL, 0, MUSTER_UINT8, odd));
        INVALID("dtype", muster_allreduce(world, NULL, NULL, 0, odd, MUSTER_SUM));
        INVALID("op", muster_allreduce(world, NULL, NULL, 0, MUSTER_UINT8, odd));
        INVALID("dtype", muster_allgather(world, NULL, NULL, 0, odd));
    }
    HOLDS(strcmp(out, "untouched") == 0);
}

/* Counts that are more than any memory holds, also where count times size wraps around to something small. */
static void collective_counts(muster_group_t *world) {
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 8 + 1, (size_t)1 << 61, (size_t)1 << 63};
    char in[64] = "in";
    char out[64] = "untouched";
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
        INVALID("count", muster_broadcast(world, out, absurd[i], MUSTER_FLOAT64, 0));
        INVALID("count", muster_allreduce(world, in, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM));
        INVALID("count", muster_allreduce(world, out, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM));
        INVALID("count", muster_allgather(world, in, out, absurd[i], MUSTER_FLOAT64));
    }
    HOLDS(strcmp(out, "untouched") == 0);
}

/* A copy makes them right. What two ranks' outputs share nothing makes right. */
static void collective_overlap(muster_group_t *world) {
    static const char text[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    static const size_t eight = 8;
    char buf[64] = "";
    void *outs[] = {buf};
    memcpy(buf, text, sizeof text);
    CHECK_OK(muster_allreduce(world, buf, buf + 1, 8, MUSTER_UINT8, MUSTER_SUM));
    HOLDS(strcmp(buf, "0012345679abcdefghijklmnopqrstuvwxyz") == 0);
    CHECK_OK(muster_allreduce(world, buf + 1, buf, 8, MUSTER_UINT8, MUSTER_SUM));
    HOLDS(strcmp(buf, "0123456779abcdefghijklmnopqrstuvwxyz") == 0);
    CHECK_OK(muster_allgather(world, buf, buf + 7, 4, MUSTER_INT32));
    HOLDS(strcmp(buf, "01234560123456779abcdefnopqrstuvwxyz") == 0);
    memcpy(buf, text, sizeof text);
    CHECK_OK(muster_allgather_list(world, buf + 3, 8, outs, NULL, MUSTER_UINT8));
    HOLDS(strcmp(buf, "3456789a89abcdefghijklmnopqrstuvwxyz") == 0);
    CHECK_OK(muster_alltoallv(world, buf, &eight, NULL, buf + 4, &eight, NULL, MUSTER_UINT8));
    HOLDS(strcmp(buf, "34563456789acdefghijklmnopqrstuvwxyz") == 0);
    CHECK_OK(muster_allreduce(world, buf, buf + 8, 8, MUSTER_UINT8, MUSTER_SUM)); /* next to each other */
    CHECK_OK(muster_allgather(world, buf + 32, buf, 8, MUSTER_INT32));
    CHECK_OK(muster_allreduce(world, anywhere, anywhere, 0, MUSTER_UINT8, MUSTER_SUM)); /* nothing at all */
}

static void no_reduction(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    (void)in, (void)inout, (void)count, (void)dtype, (void)ctx;
}

static void operations(muster_cluster_t *cluster) {
    int32_t op = 0x777;
    INVALID("cluster", muster_op_create(NULL, no_reduction, NULL, 1, &op));
    INVALID("fn", muster_op_create(cluster, NULL, NULL, 1, &op));
    INVALID("op", muster_op_create(cluster, no_reduction, NULL, 1, NULL));
    INVALID("cluster", muster_op_free(NULL, 256));
    for (int i = 0; i < ODD; i++) {
        int32_t odd = odd_numbers[i];
        INVALID("commutative", muster_op_create(cluster, no_reduction, NULL, odd, &op));
        INVALID("op", muster_op_free(cluster, odd));
    }
    INVALID("op", muster_op_free(cluster, MUSTER_SUM));
    HOLDS(op == 0x777);
    CHECK_OK(muster_op_create(cluster, no_reduction, NULL, 1, &op));
    HOLDS(op == 256);
    CHECK_OK(muster_op_free(cluster, op));
    INVALID("op", muster_op_free(cluster, op));
    int32_t in[1] = {1}, out[1] = {2};
    INVALID("op is 256", muster_allreduce(muster_world(cluster), in, out, 1, MUSTER_INT32, op));
}

/* A cluster has a number for each operation that is ever made, and there are only so many numbers. */
static void numbers_of_operations(muster_cluster_t *cluster) {
    enum { NUMBERS = 65536, MADE_BEFORE = 1 };
    int32_t op = 0;
    for (int i = MADE_BEFORE; i < NUMBERS; i++) {
        CHECK_OK(muster_op_create(cluster, no_reduction, NULL, 1, &op));
        CHECK_OK(muster_op_free(cluster, op));
    }
    CHECK(op == 256 + NUMBERS - 1);
    CHECK(muster_op_create(cluster, no_reduction, NULL, 1, &op) == MUSTER_ERR_LIMIT);
    CHECK(strstr(muster_last_error(), "65536 operations") != NULL);
    CHECK(op == 256 + NUMBERS - 1);
}

/* A function and its context that come with the call; and elements that only such functions know. */
static void given(muster_group_t *world) {
    enum { OWN = MUSTER_ELEMENT + 3 };
    static const size_t one = 1;
    enum { TOO_LARGE = MUSTER_ELEMENT + MUSTER_ELEMENT_BYTES_MAX + 1 };
    static const int32_t no_types[] = {MUSTER_ELEMENT, MUSTER_ELEMENT - 1, TOO_LARGE, 12, 255};
    muster_request_t *request = anywhere;
    char in[16] = "in", out[16] = "untouched";
    INVALID("group", muster_allreduce_with(NULL, in, out, 1, OWN, no_reduction, NULL, 1));
    INVALID("group", muster_reduce_with(NULL, in, out, 1, OWN, no_reduction, NULL, 1, 0));
    INVALID("group", muster_reduce_scatter_with(NULL, in, out, 1, OWN, no_reduction, NULL, 1));
    INVALID("group", muster_reduce_scatterv_with(NULL, in, out, &one, OWN, no_reduction, NULL, 1));
    INVALID("fn is NULL", muster_allreduce_with(world, in, out, 1, OWN, NULL, NULL, 1));
    INVALID("fn is NULL", muster_reduce_with(world, in, out, 1, OWN, NULL, NULL, 1, 0));
    INVALID("fn is NULL", muster_reduce_scatter_with(world, in, out, 1, OWN, NULL, NULL, 1));
    INVALID("fn is NULL", muster_reduce_scatterv_with(world, in, out, &one, OWN, NULL, NULL, 1));
    INVALID("fn is NULL", muster_iallreduce_with(world, in, out, 1, OWN, NULL, NULL, 1, &request));
    INVALID("fn is NULL", muster_ireduce_with(world, in, out, 1, OWN, NULL, NULL, 1, 0, &request));
    INVALID("fn is NULL", muster_ireduce_scatter_with(world, in, out, 1, OWN, NULL, NULL, 1, &request));
    INVALID("fn is NULL", muster_ireduce_scatterv_with(world, in, out, &one, OWN, NULL, NULL, 1, &request));
    INVALID("counts is NULL", muster_reduce_scatterv_with(world, in, out, NULL, OWN, no_reduction, NULL, 1));
    INVALID("request", muster_iallreduce_with(world, in, out, 1, OWN, no_reduction, NULL, 1, NULL));
    INVALID("root is 1", muster_reduce_with(world, in, out, 1, OWN, no_reduction, NULL, 1, 1));
    INVALID("in is NULL", muster_allreduce_with(world, NULL, out, 1, OWN, no_reduction, NULL, 1));
    INVALID("elements of 3 bytes", muster_allreduce(world, in, out, 1, OWN, MUSTER_SUM));
    INVALID("op is xor", muster_iallreduce(world, in, out, 1, OWN, MUSTER_XOR, &request));
    INVALID("muster_allreduce_with", muster_reduce(world, in, out, 1, OWN, MUSTER_AVG, 0));
    INVALID("op is sum_exact, and dtype is int32", muster_allreduce(world, in, out, 1, MUSTER_INT32, MUSTER_SUM_EXACT));
    INVALID("expected a float type", muster_reduce(world, in, out, 1, MUSTER_UINT8, MUSTER_SUM_EXACT, 0));
    INVALID("elements of 3 bytes", muster_reduce_scatter(world, in, out, 1, OWN, MUSTER_SUM_EXACT));
    INVALID("op is 254", muster_allreduce(world, in, out, 1, MUSTER_UINT8, 254)); /* that of addends on the wire */
    INVALID("group", muster_allreduce_addends(NULL, in, 1, out, 1, MUSTER_FLOAT32));
    INVALID("dtype is int64", muster_allreduce_addends(world, in, 1, out, 1, MUSTER_INT64));
    INVALID("in is NULL", muster_allreduce_addends(world, NULL, 1, out, 1, MUSTER_FLOAT32));
    INVALID("out is NULL", muster_allreduce_addends(world, in, 1, NULL, 1, MUSTER_FLOAT32));
    REFUSED(MUSTER_ERR_LIMIT, "addends is", muster_allreduce_addends(world, in, SIZE_MAX, out, 2, MUSTER_FLOAT32));
    REFUSED(MUSTER_ERR_LIMIT, "addends is 65537", muster_allreduce_addends(world, NULL, 65537, out, 1, MUSTER_FLOAT32));
    INVALID("addends is 65536 and count", muster_allreduce_addends(world, in, 65536, out, SIZE_MAX / 4, MUSTER_FLOAT32));
    INVALID("request", muster_iallreduce_addends(world, in, 1, out, 1, MUSTER_FLOAT32, NULL));
    CHECK_IS(MUSTER_ERR_LIMIT, muster_allreduce_addends(world, in, 65537, out, 0, MUSTER_FLOAT32));
    INVALID("op is 255", muster_allreduce(world, in, out, 1, MUSTER_UINT8, 255)); /* that of such a function on the wire */
    for (int i = 0; i < ODD; i++) {
        int32_t odd = odd_numbers[i];
        INVALID("commutative is", muster_allreduce_with(world, in, out, 1, OWN, no_reduction, NULL, odd));
        INVALID("commutative is", muster_reduce_with(world, in, out, 1, OWN, no_reduction, NULL, odd, 0));
        INVALID("commutative is", muster_ireduce_scatter_with(world, in, out, 1, OWN, no_reduction, NULL, odd, &request));
        INVALID("dtype is", muster_allreduce_with(world, in, out, 1, odd, no_reduction, NULL, 1));
    }
    for (size_t i = 0; i < sizeof no_types / sizeof no_types[0]; i++) {
        INVALID("plus the bytes of an element, 1 to 65536", muster_broadcast(world, out, 1, no_types[i], 0));
        INVALID("dtype is", muster_send(world, in, 1, no_types[i], 0, 0));
    }
    INVALID("more than any memory", muster_broadcast(world, out, (size_t)1 << 47, MUSTER_ELEMENT + 1, 0));
    INVALID("more than any memory", muster_send(world, in, (size_t)1 << 46, OWN, 0, 0));
    INVALID("more than any memory", muster_recv(world, out, SIZE_MAX, OWN, 0, 0, NULL, 0));
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere);
}

static void lists(muster_group_t *world) {
    static const size_t one = 1, two = 2, absurd = SIZE_MAX / 8 + 1;
    muster_request_t *request = anywhere;
    char in[16] = "in", out[16] = "untouched";
    const void *ins[] = {in}, *no_ins[] = {NULL};
    void *outs[] = {out}, *no_outs[] = {NULL};
    INVALID("group", muster_allgather_list(NULL, in, 1, outs, &one, MUSTER_UINT8));
    INVALID("outs is NULL", muster_allgather_list(world, in, 1, NULL, &one, MUSTER_UINT8));
    INVALID("outs[0] is NULL, but its count is 1", muster_allgather_list(world, in, 1, no_outs, NULL, MUSTER_UINT8));
    INVALID("in is NULL", muster_allgather_list(world, NULL, 1, outs, &one, MUSTER_UINT8));
    INVALID("this rank, 0, gives 1 elements", muster_allgather_list(world, in, 1, outs, &two, MUSTER_UINT8));
    INVALID("dtype is 99", muster_allgather_list(world, in, 1, outs, &one, 99));
    INVALID("more than any memory", muster_allgather_list(world, in, absurd, outs, NULL, MUSTER_FLOAT64));
    INVALID("more than any memory", muster_allgather_list(world, in, absurd, outs, &absurd, MUSTER_FLOAT64));
    INVALID("group", muster_iallgather_list(NULL, in, 1, outs, &one, MUSTER_UINT8, &request));
    INVALID("request", muster_iallgather_list(world, in, 1, outs, &one, MUSTER_UINT8, NULL));
    INVALID("group", muster_reduce_scatter_list(NULL, ins, &one, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("ins is NULL", muster_reduce_scatter_list(world, NULL, &one, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("ins[0] is NULL, but its count is 1",
            muster_reduce_scatter_list(world, no_ins, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("out is NULL", muster_reduce_scatter_list(world, ins, &one, NULL, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("this rank, 0, gives 2 elements",
            muster_reduce_scatter_list(world, ins, &one, out, 2, MUSTER_UINT8, MUSTER_SUM));
    INVALID("op is 99", muster_reduce_scatter_list(world, ins, &one, out, 1, MUSTER_UINT8, 99));
    INVALID("more than any memory", muster_reduce_scatter_list(world, ins, NULL, out, absurd, MUSTER_FLOAT64, MUSTER_SUM));
    INVALID("group", muster_ireduce_scatter_list(NULL, ins, &one, out, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("request", muster_ireduce_scatter_list(world, ins, &one, out, 1, MUSTER_UINT8, MUSTER_SUM, NULL));
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere);
    CHECK_OK(muster_allgather_list(world, NULL, 0, no_outs, NULL, MUSTER_UINT8)); /* nothing at all */
    CHECK_OK(muster_reduce_scatter_list(world, no_ins, NULL, NULL, 0, MUSTER_UINT8, MUSTER_SUM));
}

static void requests(muster_cluster_t *cluster) {
    muster_request_t *request = anywhere;
    muster_group_t *world = muster_world(cluster);
    INVALID("request", muster_request_test(NULL));
    INVALID("request", muster_request_wait(NULL, 0));
    INVALID("request", muster_request_cancel(NULL));
    INVALID("request", muster_request_notify(NULL, NULL, NULL));
    INVALID("request", muster_request_descriptor(NULL));
    muster_request_free(NULL);
    INVALID("group", muster_ibarrier(NULL, &request));
    INVALID("request", muster_ibarrier(world, NULL));
    HOLDS(request == anywhere);
    CHECK_OK(muster_ibarrier(world, &request));
    INVALID("timeout_ms", muster_request_wait(request, -2));
    INVALID("timeout_ms", muster_request_wait(request, INT64_MIN));
    size_t index = 0;
    INVALID("fn", muster_request_notify(request, NULL, NULL));
    INVALID("requests", muster_request_wait_any(NULL, 1, -1, &index));
    INVALID("requests", muster_request_wait_any(&request, SIZE_MAX, -1, &index));
    INVALID("index", muster_request_wait_any(&request, 1, -1, NULL));
    INVALID("timeout_ms", muster_request_wait_any(&request, 1, -2, &index));
    INVALID("requests", muster_request_wait_all(NULL, 1, -1));
    INVALID("timeout_ms", muster_request_wait_all(&request, 1, -2));
    CHECK_OK(muster_request_wait(request, -1));
    CHECK_OK(muster_request_test(request));
    CHECK_OK(muster_request_cancel(request)); /* too late: it stays what it was */
    CHECK_OK(muster_request_wait(request, 0));
    muster_request_free(request);
}

/* What one rank gives to all, or gets from all. */
static void missing_with_a_root(muster_group_t *world) {
    static const size_t counts[] = {1}, displs[] = {0};
    muster_request_t *request = anywhere;
    char in[64] = "in";
    char out[64] = "untouched";
    INVALID("group", muster_reduce(NULL, in, out, 1, MUSTER_UINT8, MUSTER_SUM, 0));
    INVALID("in is NULL", muster_reduce(world, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM, 0));
    INVALID("out is NULL", muster_reduce(world, in, NULL, 1, MUSTER_UINT8, MUSTER_SUM, 0));
    INVALID("integer", muster_reduce(world, in, out, 1, MUSTER_FLOAT32, MUSTER_XOR, 0));
    INVALID("group", muster_ireduce(NULL, in, out, 1, MUSTER_UINT8, MUSTER_SUM, 0, &request));
    INVALID("in is NULL", muster_ireduce(world, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM, 0, &request));
    INVALID("out is NULL", muster_ireduce(world, in, NULL, 1, MUSTER_UINT8, MUSTER_SUM, 0, &request));
    INVALID("integer", muster_ireduce(world, in, out, 1, MUSTER_FLOAT32, MUSTER_XOR, 0, &request));
    INVALID("group", muster_gather(NULL, in, out, 1, MUSTER_UINT8, 0));
    INVALID("in is NULL", muster_gather(world, NULL, out, 1, MUSTER_UINT8, 0));
    INVALID("out is NULL", muster_gather(world, in, NULL, 1, MUSTER_UINT8, 0));
    INVALID("group", muster_igather(NULL, in, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("in is NULL", muster_igather(world, NULL, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("out is NULL", muster_igather(world, in, NULL, 1, MUSTER_UINT8, 0, &request));
    INVALID("group", muster_gatherv(NULL, in, 1, out, counts, displs, MUSTER_UINT8, 0));
    INVALID("in is NULL", muster_gatherv(world, NULL, 1, out, counts, displs, MUSTER_UINT8, 0));
    INVALID("out is NULL", muster_gatherv(world, in, 1, NULL, counts, displs, MUSTER_UINT8, 0));
    INVALID("counts is NULL", muster_gatherv(world, in, 1, out, NULL, displs, MUSTER_UINT8, 0));
    INVALID("group", muster_igatherv(NULL, in, 1, out, counts, displs, MUSTER_UINT8, 0, &request));
    INVALID("in is NULL", muster_igatherv(world, NULL, 1, out, counts, displs, MUSTER_UINT8, 0, &request));
    INVALID("out is NULL", muster_igatherv(world, in, 1, NULL, counts, displs, MUSTER_UINT8, 0, &request));
    INVALID("counts is NULL", muster_igatherv(world, in, 1, out, NULL, displs, MUSTER_UINT8, 0, &request));
    INVALID("group", muster_scatter(NULL, in, out, 1, MUSTER_UINT8, 0));
    INVALID("in is NULL", muster_scatter(world, NULL, out, 1, MUSTER_UINT8, 0));
    INVALID("out is NULL", muster_scatter(world, in, NULL, 1, MUSTER_UINT8, 0));
    INVALID("group", muster_iscatter(NULL, in, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("in is NULL", muster_iscatter(world, NULL, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("out is NULL", muster_iscatter(world, in, NULL, 1, MUSTER_UINT8, 0, &request));
    INVALID("group", muster_scatterv(NULL, in, counts, displs, out, 1, MUSTER_UINT8, 0));
    INVALID("in is NULL", muster_scatterv(world, NULL, counts, displs, out, 1, MUSTER_UINT8, 0));
    INVALID("out is NULL", muster_scatterv(world, in, counts, displs, NULL, 1, MUSTER_UINT8, 0));
    INVALID("counts is NULL", muster_scatterv(world, in, NULL, displs, out, 1, MUSTER_UINT8, 0));
    INVALID("group", muster_iscatterv(NULL, in, counts, displs, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("in is NULL", muster_iscatterv(world, NULL, counts, displs, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("out is NULL", muster_iscatterv(world, in, counts, displs, NULL, 1, MUSTER_UINT8, 0, &request));
    INVALID("counts is NULL", muster_iscatterv(world, in, NULL, displs, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("group", muster_ibroadcast(NULL, out, 1, MUSTER_UINT8, 0, &request));
    INVALID("buf is NULL", muster_ibroadcast(world, NULL, 1, MUSTER_UINT8, 0, &request));
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere);
}

static void missing_without_a_root(muster_group_t *world) {
    static const size_t counts[] = {1}, displs[] = {0};
    muster_request_t *request = anywhere;
    char in[64] = "in";
    char out[64] = "untouched";
    INVALID("group", muster_allgatherv(NULL, in, 1, out, counts, displs, MUSTER_UINT8));
    INVALID("in is NULL", muster_allgatherv(world, NULL, 1, out, counts, displs, MUSTER_UINT8));
    INVALID("out is NULL", muster_allgatherv(world, in, 1, NULL, counts, displs, MUSTER_UINT8));
    INVALID("counts is NULL", muster_allgatherv(world, in, 1, out, NULL, displs, MUSTER_UINT8));
    INVALID("group", muster_iallgatherv(NULL, in, 1, out, counts, displs, MUSTER_UINT8, &request));
    INVALID("in is NULL", muster_iallgatherv(world, NULL, 1, out, counts, displs, MUSTER_UINT8, &request));
    INVALID("out is NULL", muster_iallgatherv(world, in, 1, NULL, counts, displs, MUSTER_UINT8, &request));
    INVALID("counts is NULL", muster_iallgatherv(world, in, 1, out, NULL, displs, MUSTER_UINT8, &request));
    INVALID("group", muster_reduce_scatter(NULL, in, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("in is NULL", muster_reduce_scatter(world, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("out is NULL", muster_reduce_scatter(world, in, NULL, 1, MUSTER_UINT8, MUSTER_SUM));
    INVALID("integer", muster_reduce_scatter(world, in, out, 1, MUSTER_FLOAT32, MUSTER_XOR));
    INVALID("group", muster_ireduce_scatter(NULL, in, out, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("in is NULL", muster_ireduce_scatter(world, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("out is NULL", muster_ireduce_scatter(world, in, NULL, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("integer", muster_ireduce_scatter(world, in, out, 1, MUSTER_FLOAT32, MUSTER_XOR, &request));
    INVALID("group", muster_reduce_scatterv(NULL, in, out, counts, MUSTER_UINT8, MUSTER_SUM));
    INVALID("in is NULL", muster_reduce_scatterv(world, NULL, out, counts, MUSTER_UINT8, MUSTER_SUM));
    INVALID("out is NULL", muster_reduce_scatterv(world, in, NULL, counts, MUSTER_UINT8, MUSTER_SUM));
    INVALID("counts is NULL", muster_reduce_scatterv(world, in, out, NULL, MUSTER_UINT8, MUSTER_SUM));
    INVALID("integer", muster_reduce_scatterv(world, in, out, counts, MUSTER_FLOAT32, MUSTER_XOR));
    INVALID("group", muster_ireduce_scatterv(NULL, in, out, counts, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("in is NULL", muster_ireduce_scatterv(world, NULL, out, counts, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("out is NULL", muster_ireduce_scatterv(world, in, NULL, counts, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("counts is NULL", muster_ireduce_scatterv(world, in, out, NULL, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("integer", muster_ireduce_scatterv(world, in, out, counts, MUSTER_FLOAT32, MUSTER_XOR, &request));
    INVALID("group", muster_alltoall(NULL, in, out, 1, MUSTER_UINT8));
    INVALID("in is NULL", muster_alltoall(world, NULL, out, 1, MUSTER_UINT8));
    INVALID("out is NULL", muster_alltoall(world, in, NULL, 1, MUSTER_UINT8));
    INVALID("group", muster_ialltoall(NULL, in, out, 1, MUSTER_UINT8, &request));
    INVALID("in is NULL", muster_ialltoall(world, NULL, out, 1, MUSTER_UINT8, &request));
    INVALID("out is NULL", muster_ialltoall(world, in, NULL, 1, MUSTER_UINT8, &request));
    INVALID("group", muster_alltoallv(NULL, in, counts, displs, out, counts, displs, MUSTER_UINT8));
    INVALID("in is NULL", muster_alltoallv(world, NULL, counts, displs, out, counts, displs, MUSTER_UINT8));
    INVALID("out is NULL", muster_alltoallv(world, in, counts, displs, NULL, counts, displs, MUSTER_UINT8));
    INVALID("in_counts is NULL", muster_alltoallv(world, in, NULL, displs, out, NULL, displs, MUSTER_UINT8));
    INVALID("group", muster_ialltoallv(NULL, in, counts, displs, out, counts, displs, MUSTER_UINT8, &request));
    INVALID("in is NULL", muster_ialltoallv(world, NULL, counts, displs, out, counts, displs, MUSTER_UINT8, &request));
    INVALID("out is NULL", muster_ialltoallv(world, in, counts, displs, NULL, counts, displs, MUSTER_UINT8, &request));
    INVALID("in_counts is NULL", muster_ialltoallv(world, in, NULL, displs, out, NULL, displs, MUSTER_UINT8, &request));
    INVALID("group", muster_iallreduce(NULL, in, out, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("in is NULL", muster_iallreduce(world, NULL, out, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("out is NULL", muster_iallreduce(world, in, NULL, 1, MUSTER_UINT8, MUSTER_SUM, &request));
    INVALID("integer", muster_iallreduce(world, in, out, 1, MUSTER_FLOAT32, MUSTER_XOR, &request));
    INVALID("group", muster_iallgather(NULL, in, out, 1, MUSTER_UINT8, &request));
    INVALID("in is NULL", muster_iallgather(world, NULL, out, 1, MUSTER_UINT8, &request));
    INVALID("out is NULL", muster_iallgather(world, in, NULL, 1, MUSTER_UINT8, &request));
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere);
}

static void odd_parts(muster_group_t *world) {
    static const size_t counts[] = {1}, displs[] = {0};
    muster_request_t *request = anywhere;
    char in[64] = "in";
    char out[64] = "untouched";
    for (int i = 0; i < ODD; i++) {
        int32_t odd = odd_numbers[i];
        INVALID("dtype", muster_reduce(world, in, out, 1, odd, MUSTER_SUM, 0));
        INVALID("op", muster_reduce(world, in, out, 1, MUSTER_UINT8, odd, 0));
        INVALID("root", muster_reduce(world, in, out, 1, MUSTER_UINT8, MUSTER_SUM, odd));
        INVALID("dtype", muster_ireduce(world, in, out, 1, odd, MUSTER_SUM, 0, &request));
        INVALID("op", muster_ireduce(world, in, out, 1, MUSTER_UINT8, odd, 0, &request));
        INVALID("root", muster_ireduce(world, in, out, 1, MUSTER_UINT8, MUSTER_SUM, odd, &request));
        INVALID("dtype", muster_allgatherv(world, in, 1, out, counts, displs, odd));
        INVALID("dtype", muster_iallgatherv(world, in, 1, out, counts, displs, odd, &request));
        INVALID("dtype", muster_gather(world, in, out, 1, odd, 0));
        INVALID("root", muster_gather(world, in, out, 1, MUSTER_UINT8, odd));
        INVALID("dtype", muster_igather(world, in, out, 1, odd, 0, &request));
        INVALID("root", muster_igather(world, in, out, 1, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_gatherv(world, in, 1, out, counts, displs, odd, 0));
        INVALID("root", muster_gatherv(world, in, 1, out, counts, displs, MUSTER_UINT8, odd));
        INVALID("dtype", muster_igatherv(world, in, 1, out, counts, displs, odd, 0, &request));
        INVALID("root", muster_igatherv(world, in, 1, out, counts, displs, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_scatter(world, in, out, 1, odd, 0));
        INVALID("root", muster_scatter(world, in, out, 1, MUSTER_UINT8, odd));
        INVALID("dtype", muster_iscatter(world, in, out, 1, odd, 0, &request));
        INVALID("root", muster_iscatter(world, in, out, 1, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_scatterv(world, in, counts, displs, out, 1, odd, 0));
        INVALID("root", muster_scatterv(world, in, counts, displs, out, 1, MUSTER_UINT8, odd));
        INVALID("dtype", muster_iscatterv(world, in, counts, displs, out, 1, odd, 0, &request));
        INVALID("root", muster_iscatterv(world, in, counts, displs, out, 1, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_reduce_scatter(world, in, out, 1, odd, MUSTER_SUM));
        INVALID("op", muster_reduce_scatter(world, in, out, 1, MUSTER_UINT8, odd));
        INVALID("dtype", muster_ireduce_scatter(world, in, out, 1, odd, MUSTER_SUM, &request));
        INVALID("op", muster_ireduce_scatter(world, in, out, 1, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_reduce_scatterv(world, in, out, counts, odd, MUSTER_SUM));
        INVALID("op", muster_reduce_scatterv(world, in, out, counts, MUSTER_UINT8, odd));
        INVALID("dtype", muster_ireduce_scatterv(world, in, out, counts, odd, MUSTER_SUM, &request));
        INVALID("op", muster_ireduce_scatterv(world, in, out, counts, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_alltoall(world, in, out, 1, odd));
        INVALID("dtype", muster_ialltoall(world, in, out, 1, odd, &request));
        INVALID("dtype", muster_alltoallv(world, in, counts, displs, out, counts, displs, odd));
        INVALID("dtype", muster_ialltoallv(world, in, counts, displs, out, counts, displs, odd, &request));
        INVALID("dtype", muster_ibroadcast(world, out, 1, odd, 0, &request));
        INVALID("root", muster_ibroadcast(world, out, 1, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_iallreduce(world, in, out, 1, odd, MUSTER_SUM, &request));
        INVALID("op", muster_iallreduce(world, in, out, 1, MUSTER_UINT8, odd, &request));
        INVALID("dtype", muster_iallgather(world, in, out, 1, odd, &request));
    }
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere);
}

static void absurd_parts(muster_group_t *world) {
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 8 + 1, (size_t)1 << 61, (size_t)1 << 63};
    static const size_t counts[] = {1}, displs[] = {0};
    muster_request_t *request = anywhere;
    char in[64] = "in";
    char out[64] = "untouched";
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
        INVALID("reduce", muster_reduce(world, in, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM, 0));
        INVALID("reduce", muster_ireduce(world, in, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM, 0, &request));
        INVALID("allgatherv", muster_allgatherv(world, in, absurd[i], out, counts, displs, MUSTER_FLOAT64));
        INVALID("more than any memory", muster_allgatherv(world, in, absurd[i], out, &absurd[i], NULL, MUSTER_FLOAT64));
        INVALID("allgatherv", muster_iallgatherv(world, in, absurd[i], out, counts, displs, MUSTER_FLOAT64, &request));
        INVALID("more than any memory", muster_iallgatherv(world, in, absurd[i], out, &absurd[i], NULL, MUSTER_FLOAT64, &request));
        INVALID("gather", muster_gather(world, in, out, absurd[i], MUSTER_FLOAT64, 0));
        INVALID("gather", muster_igather(world, in, out, absurd[i], MUSTER_FLOAT64, 0, &request));
        INVALID("gatherv", muster_gatherv(world, in, absurd[i], out, counts, displs, MUSTER_FLOAT64, 0));
        INVALID("more than any memory", muster_gatherv(world, in, absurd[i], out, &absurd[i], NULL, MUSTER_FLOAT64, 0));
        INVALID("gatherv", muster_igatherv(world, in, absurd[i], out, counts, displs, MUSTER_FLOAT64, 0, &request));
        INVALID("more than any memory", muster_igatherv(world, in, absurd[i], out, &absurd[i], NULL, MUSTER_FLOAT64, 0, &request));
        INVALID("scatter", muster_scatter(world, in, out, absurd[i], MUSTER_FLOAT64, 0));
        INVALID("scatter", muster_iscatter(world, in, out, absurd[i], MUSTER_FLOAT64, 0, &request));
        INVALID("scatterv", muster_scatterv(world, in, counts, displs, out, absurd[i], MUSTER_FLOAT64, 0));
        INVALID("more than any memory", muster_scatterv(world, in, &absurd[i], NULL, out, absurd[i], MUSTER_FLOAT64, 0));
        INVALID("scatterv", muster_iscatterv(world, in, counts, displs, out, absurd[i], MUSTER_FLOAT64, 0, &request));
        INVALID("more than any memory", muster_iscatterv(world, in, &absurd[i], NULL, out, absurd[i], MUSTER_FLOAT64, 0, &request));
        INVALID("reduce_scatter", muster_reduce_scatter(world, in, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM));
        INVALID("reduce_scatter", muster_ireduce_scatter(world, in, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM, &request));
        INVALID("more than any memory", muster_reduce_scatterv(world, in, out, &absurd[i], MUSTER_FLOAT64, MUSTER_SUM));
        INVALID("more than any memory", muster_ireduce_scatterv(world, in, out, &absurd[i], MUSTER_FLOAT64, MUSTER_SUM, &request));
        INVALID("alltoall", muster_alltoall(world, in, out, absurd[i], MUSTER_FLOAT64));
        INVALID("alltoall", muster_ialltoall(world, in, out, absurd[i], MUSTER_FLOAT64, &request));
        INVALID("more than any memory", muster_alltoallv(world, in, &absurd[i], NULL, out, &absurd[i], NULL, MUSTER_FLOAT64));
        INVALID("more than any memory", muster_ialltoallv(world, in, &absurd[i], NULL, out, &absurd[i], NULL, MUSTER_FLOAT64, &request));
        INVALID("broadcast", muster_ibroadcast(world, out, absurd[i], MUSTER_FLOAT64, 0, &request));
        INVALID("allreduce", muster_iallreduce(world, in, out, absurd[i], MUSTER_FLOAT64, MUSTER_SUM, &request));
        INVALID("allgather", muster_iallgather(world, in, out, absurd[i], MUSTER_FLOAT64, &request));
    }
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere);
}

/* Counts that do not say what this rank gives itself. */
static void other_parts(muster_group_t *world) {
    static const size_t counts[] = {1}, two[] = {2}, displs[] = {0};
    char in[64] = "in";
    char out[64] = "untouched";
    INVALID("this rank, 0, gives 1 elements", muster_allgatherv(world, in, 1, out, two, displs, MUSTER_UINT8));
    INVALID("this rank, 0, gives 1 elements", muster_gatherv(world, in, 1, out, two, displs, MUSTER_UINT8, 0));
    INVALID("this rank, 0, gives 1 elements", muster_scatterv(world, in, two, displs, out, 1, MUSTER_UINT8, 0));
    INVALID("this rank, 0, gives 1 elements",
            muster_alltoallv(world, in, counts, displs, out, two, displs, MUSTER_UINT8));
    HOLDS(strcmp(out, "untouched") == 0);
}

static void parts(muster_group_t *world) {
    missing_with_a_root(world);
    missing_without_a_root(world);
    odd_parts(world);
    absurd_parts(world);
    other_parts(world);
}

static void messages(muster_group_t *world) {
    static const int32_t odd_tags[] = {-2, -3, INT32_MIN}, odd_ranks[] = {1, 2, -2, INT32_MAX, INT32_MIN};
    muster_request_t *request = anywhere;
    muster_received_t received = {77, 77, 77, 77};
    char in[64] = "in", out[64] = "untouched";
    INVALID("group", muster_send(NULL, in, 1, MUSTER_UINT8, 0, 0));
    INVALID("in is NULL", muster_send(world, NULL, 1, MUSTER_UINT8, 0, 0));
    INVALID("to is -1", muster_send(world, in, 1, MUSTER_UINT8, MUSTER_ANY_SOURCE, 0));
    INVALID("tag is -1", muster_send(world, in, 1, MUSTER_UINT8, 0, MUSTER_ANY_TAG));
    INVALID("group", muster_isend(NULL, in, 1, MUSTER_UINT8, 0, 0, &request));
    INVALID("request", muster_isend(world, in, 1, MUSTER_UINT8, 0, 0, NULL));
    INVALID("in is NULL", muster_isend(world, NULL, 1, MUSTER_UINT8, 0, 0, &request));
    INVALID("group", muster_recv(NULL, out, 1, MUSTER_UINT8, 0, 0, &received, sizeof received));
    INVALID("out is NULL", muster_recv(world, NULL, 1, MUSTER_UINT8, 0, 0, &received, sizeof received));
    INVALID("size is 3", muster_recv(world, out, 1, MUSTER_UINT8, 0, 0, &received, 3));
    INVALID("group", muster_probe(NULL, 0, 0, &received, sizeof received));
    INVALID("out is NULL", muster_probe(world, 0, 0, NULL, sizeof received));
    INVALID("size is 3", muster_probe(world, 0, 0, &received, 3));
    INVALID("group", muster_iprobe(NULL, 0, 0, &received, sizeof received));
    INVALID("out is NULL", muster_iprobe(world, 0, 0, NULL, sizeof received));
    INVALID("size is 0", muster_iprobe(world, 0, 0, &received, 0));
    INVALID("group", muster_irecv(NULL, out, 1, MUSTER_UINT8, 0, 0, &received, sizeof received, &request));
    INVALID("request", muster_irecv(world, out, 1, MUSTER_UINT8, 0, 0, &received, sizeof received, NULL));
    INVALID("size is 0", muster_irecv(world, out, 1, MUSTER_UINT8, 0, 0, &received, 0, &request));
    INVALID("group", muster_sendrecv(NULL, in, 1, MUSTER_UINT8, 0, 0, out, 1, MUSTER_UINT8, 0, 0, NULL, 0));
    INVALID("in_tag is -2", muster_sendrecv(world, in, 1, MUSTER_UINT8, 0, -2, out, 1, MUSTER_UINT8, 0, 0, NULL, 0));
    INVALID("out_tag is -2", muster_sendrecv(world, in, 1, MUSTER_UINT8, 0, 0, out, 1, MUSTER_UINT8, 0, -2, NULL, 0));
    INVALID("in_dtype is 99", muster_sendrecv(world, in, 1, 99, 0, 0, out, 1, MUSTER_UINT8, 0, 0, NULL, 0));
    INVALID("out_dtype is 99", muster_sendrecv(world, in, 1, MUSTER_UINT8, 0, 0, out, 1, 99, 0, 0, NULL, 0));
    INVALID("but in_count is 1", muster_sendrecv(world, NULL, 1, MUSTER_UINT8, 0, 0, out, 1, MUSTER_UINT8, 0, 0, NULL, 0));
    INVALID("but out_count is 1", muster_sendrecv(world, in, 1, MUSTER_UINT8, 0, 0, NULL, 1, MUSTER_UINT8, 0, 0, NULL, 0));
    INVALID("group", muster_isendrecv(NULL, in, 1, MUSTER_UINT8, 0, 0, out, 1, MUSTER_UINT8, 0, 0, NULL, 0, &request));
    INVALID("request", muster_isendrecv(world, in, 1, MUSTER_UINT8, 0, 0, out, 1, MUSTER_UINT8, 0, 0, NULL, 0, NULL));
    INVALID("more than any", muster_send(world, in, SIZE_MAX, MUSTER_INT16, 0, 0));
    INVALID("more than any", muster_recv(world, out, SIZE_MAX / 4, MUSTER_FLOAT64, 0, 0, NULL, 0));
    for (int i = 0; i < 5; i++) {
        int32_t odd = odd_ranks[i];
        INVALID("to is", muster_send(world, in, 1, MUSTER_UINT8, odd, 0));
        INVALID("to is", muster_isend(world, in, 1, MUSTER_UINT8, odd, 0, &request));
        INVALID("from is", muster_recv(world, out, 1, MUSTER_UINT8, odd, 0, NULL, 0));
        INVALID("from is", muster_probe(world, odd, 0, &received, sizeof received));
        INVALID("from is", muster_iprobe(world, odd, 0, &received, sizeof received));
        INVALID("from is", muster_irecv(world, out, 1, MUSTER_UINT8, odd, 0, NULL, 0, &request));
        INVALID("to is", muster_sendrecv(world, in, 1, MUSTER_UINT8, odd, 0, out, 1, MUSTER_UINT8, 0, 0, NULL, 0));
        INVALID("from is", muster_sendrecv(world, in, 1, MUSTER_UINT8, 0, 0, out, 1, MUSTER_UINT8, odd, 0, NULL, 0));
    }
    for (int i = 0; i < 3; i++) {
        int32_t odd = odd_tags[i];
        INVALID("tag is", muster_send(world, in, 1, MUSTER_UINT8, 0, odd));
        INVALID("tag is", muster_isend(world, in, 1, MUSTER_UINT8, 0, odd, &request));
        INVALID("tag is", muster_recv(world, out, 1, MUSTER_UINT8, 0, odd, NULL, 0));
        INVALID("tag is", muster_probe(world, 0, odd, &received, sizeof received));
        INVALID("tag is", muster_iprobe(world, 0, odd, &received, sizeof received));
        INVALID("tag is", muster_irecv(world, out, 1, MUSTER_UINT8, 0, odd, NULL, 0, &request));
    }
    for (int i = 0; i < ODD; i++) {
        INVALID("dtype", muster_send(world, in, 1, odd_numbers[i], 0, 0));
        INVALID("dtype", muster_recv(world, out, 1, odd_numbers[i], 0, 0, NULL, 0));
    }
    HOLDS(strcmp(out, "untouched") == 0 && request == anywhere && received.count == 77 && received.source == 77);
    /* None of these was posted: what is sent now is what is received. */
    CHECK_OK(muster_send(world, in, 3, MUSTER_UINT8, 0, 0));
    CHECK_OK(muster_recv(world, out, 64, MUSTER_UINT8, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, &received, sizeof received));
    HOLDS(received.count == 3 && received.source == 0 && received.tag == 0);
    /* Data in an overlapping buffer is sent from a copy. */
    strcpy(out, "0123456789");
    CHECK_OK(muster_sendrecv(world, out, 8, MUSTER_UINT8, 0, 0, out + 1, 8, MUSTER_UINT8, 0, 0, &received,
                             sizeof received));
    HOLDS(strcmp(out, "0012345679") == 0 && received.count == 8);
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster_init(NULL, &cluster));
    collective_arguments(muster_world(cluster));
    collective_counts(muster_world(cluster));
    collective_overlap(muster_world(cluster));
    operations(cluster);
    given(muster_world(cluster));
    lists(muster_world(cluster));
    requests(cluster);
    parts(muster_world(cluster));
    messages(muster_world(cluster));
    numbers_of_operations(cluster);
    CHECK_OK(muster_barrier(muster_world(cluster))); /* no mistake has revoked the group */
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    return mistakes == 0 ? 0 : 1;
}
