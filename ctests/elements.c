/* Elements of the caller's own size: moved, reduced by functions of the caller's, and never split. Each element shows
 * whether it is whole: the bytes behind its first eight follow from those. */
#include "arithmetic.h"
#include "check.h"
#include "nodes.h"

#include <stdlib.h>

enum { MOST = 8, SIZES = 4, COUNTS = 3 };

/* Sizes in bytes; counts of few, of more than two pieces of a schedule, and of more than two of a frame on each link. */
static const struct {
    size_t bytes, counts[COUNTS];
} sizes[SIZES] = {
    {16, {1, 20001, 70003}}, {11, {3, 30001, 100003}}, {8094, {1, 41, 150}}, {MUSTER_ELEMENT_BYTES_MAX, {1, 5, 17}},
};

/* The context that a function gets. */
struct expected {
    size_t bytes;
    int ordered;
};

static void put_element(void *at, size_t bytes, uint64_t value) {
    unsigned char *to = at;
    memcpy(to, &value, 8);
    for (size_t i = 8; i < bytes; i++) {
        to[i] = (unsigned char)((value >> (i % 8 * 8)) + i * 7);
    }
}

static uint64_t whole_element(const void *at, size_t bytes) {
    const unsigned char *from = at;
    uint64_t value;
    memcpy(&value, from, 8);
    for (size_t i = 8; i < bytes; i++) {
        CHECK(from[i] == (unsigned char)((value >> (i % 8 * 8)) + i * 7)); /* else it is torn */
    }
    return value;
}

static uint64_t combined(int ordered, uint64_t lower, uint64_t higher) {
    return ordered ? compose(8, lower, higher) : lower + higher;
}

static void reduce(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    const struct expected *expected = ctx;
    size_t bytes = expected->bytes;
    CHECK_IS(MUSTER_ELEMENT + (int32_t)bytes, dtype);
    CHECK(bytes % 8 != 0 || ((uintptr_t)in % 8 == 0 && (uintptr_t)inout % 8 == 0)); /* one may cast them to what they are */
    for (size_t i = 0; i < count; i++) {
        const unsigned char *lower = (const unsigned char *)in + i * bytes;
        unsigned char *higher = (unsigned char *)inout + i * bytes;
        put_element(higher, bytes, combined(expected->ordered, whole_element(lower, bytes), whole_element(higher, bytes)));
    }
}

/* Element `i` of a rank; odd in its upper half, so that a composition can be undone. */
static uint64_t value(int rank, size_t i) {
    uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(rank + 1) * 0xbf58476d1ce4e5b9u;
    return (bits ^ bits >> 29) | (uint64_t)1 << 32;
}

static uint64_t result(int size, int ordered, size_t i) {
    uint64_t all = value(0, i);
    for (int rank = 1; rank < size; rank++) {
        all = combined(ordered, all, value(rank, i));
    }
    return all;
}

static unsigned char *elements(size_t count, size_t bytes) {
    unsigned char *at = malloc(count * bytes + 1);
    CHECK(at != NULL);
    memset(at, 0xee, count * bytes + 1);
    return at;
}

static void fill(unsigned char *to, size_t bytes, int rank, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put_element(to + i * bytes, bytes, value(rank, i));
    }
}

static void check_results(const unsigned char *at, size_t bytes, int size, int ordered, size_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK(whole_element(at + i * bytes, bytes) == result(size, ordered, first + i));
    }
    CHECK(at[count * bytes] == 0xee); /* nothing is written behind the end */
}

/* The i-form and its end. */
#define AND_WAIT(call)                                                                                                    \
    do {                                                                                                                  \
        muster_request_t *request = NULL;                                                                                 \
        CHECK_OK(call);                                                                                                   \
        CHECK_OK(muster_request_wait(request, -1));                                                                       \
        muster_request_free(request);                                                                                     \
    } while (0)

/* Every reduction, of functions that come with the call, and of one that was made before. */
static void reductions(muster_cluster_t *cluster, int rank, size_t bytes, size_t count, int ordered) {
    muster_group_t *world = muster_world(cluster);
    int size = muster_size(cluster), commutes = !ordered;
    int32_t dtype = MUSTER_ELEMENT + (int32_t)bytes, op = 0;
    struct expected expected = {bytes, ordered};
    size_t each = count / (size_t)size, counts[MOST], own = 0, before = 0;
    unsigned char *in = elements(count, bytes), *out = elements(count, bytes);
    fill(in, bytes, rank, count);
    CHECK_OK(muster_allreduce_with(world, in, out, count, dtype, reduce, &expected, commutes));
    check_results(out, bytes, size, ordered, 0, count);
    memset(out, 0xee, count * bytes);
    AND_WAIT(muster_iallreduce_with(world, in, out, count, dtype, reduce, &expected, commutes, &request));
    check_results(out, bytes, size, ordered, 0, count);
    memset(out, 0xee, count * bytes);
    CHECK_OK(muster_op_create(cluster, reduce, &expected, commutes, &op));
    CHECK_OK(muster_allreduce(world, in, out, count, dtype, op));
    check_results(out, bytes, size, ordered, 0, count);
    CHECK_OK(muster_op_free(cluster, op));
    for (int root = 0; root < size; root += 3) {
        unsigned char *to = rank == root ? out : NULL;
        memset(out, 0xee, count * bytes);
        if (root == 0) {
            CHECK_OK(muster_reduce_with(world, in, to, count, dtype, reduce, &expected, commutes, root));
        } else {
            AND_WAIT(muster_ireduce_with(world, in, to, count, dtype, reduce, &expected, commutes, root, &request));
        }
        check_results(out, bytes, size, ordered, 0, rank == root ? count : 0);
    }
    unsigned char *part = elements(each, bytes);
    CHECK_OK(muster_reduce_scatter_with(world, in, part, each, dtype, reduce, &expected, commutes));
    check_results(part, bytes, size, ordered, each * (size_t)rank, each);
    AND_WAIT(muster_ireduce_scatter_with(world, in, part, each, dtype, reduce, &expected, commutes, &request));
    check_results(part, bytes, size, ordered, each * (size_t)rank, each);
    free(part);
    for (int other = 0; other < size; other++) { /* of different sizes, one of them empty */
        counts[other] = other == 1 ? 0 : each;
        own = other == rank ? counts[other] : own;
        before += other < rank ? counts[other] : 0;
    }
    part = elements(own, bytes);
    CHECK_OK(muster_reduce_scatterv_with(world, in, part, counts, dtype, reduce, &expected, commutes));
    check_results(part, bytes, size, ordered, before, own);
    AND_WAIT(muster_ireduce_scatterv_with(world, in, part, counts, dtype, reduce, &expected, commutes, &request));
    check_results(part, bytes, size, ordered, before, own);
    free(part);
    fill(out, bytes, rank, count); /* in place */
    CHECK_OK(muster_allreduce_with(world, out, out, count, dtype, reduce, &expected, commutes));
    check_results(out, bytes, size, ordered, 0, count);
    free(in);
    free(out);
}

/* A list's buffers are where they are, and are reduced and filled there. */
static void lists(muster_cluster_t *cluster, int rank, size_t bytes, size_t count) {
    muster_group_t *world = muster_world(cluster);
    int size = muster_size(cluster);
    int32_t dtype = MUSTER_ELEMENT + (int32_t)bytes, op = 0;
    struct expected expected = {bytes, 1};
    void *outs[MOST], *ins[MOST];
    unsigned char *in = elements(count, bytes), *out = elements(count, bytes);
    for (int other = 0; other < size; other++) {
        outs[other] = elements(count, bytes);
        fill(ins[other] = elements(count, bytes), bytes, rank, count);
    }
    fill(in, bytes, rank, count);
    CHECK_OK(muster_allgather_list(world, in, count, outs, NULL, dtype));
    for (int other = 0; other < size; other++) {
        for (size_t i = 0; i < count; i++) {
            CHECK(whole_element((unsigned char *)outs[other] + i * bytes, bytes) == value(other, i));
        }
        CHECK(((unsigned char *)outs[other])[count * bytes] == 0xee);
    }
    CHECK_OK(muster_op_create(cluster, reduce, &expected, 0, &op));
    AND_WAIT(muster_ireduce_scatter_list(world, (const void *const *)ins, NULL, out, count, dtype, op, &request));
    check_results(out, bytes, size, 1, 0, count);
    CHECK_OK(muster_reduce_scatter_list(world, (const void *const *)ins, NULL, ins[rank], count, dtype, op)); /* in place */
    check_results(ins[rank], bytes, size, 1, 0, count);
    CHECK_OK(muster_op_free(cluster, op));
    for (int other = 0; other < size; other++) {
        free(outs[other]);
        free(ins[other]);
    }
    free(in);
    free(out);
}

/* To the rank above, from the one below; and to everyone. */
static void moved(muster_cluster_t *cluster, int rank, size_t bytes, size_t count) {
    muster_group_t *world = muster_world(cluster);
    int size = muster_size(cluster), from = (rank + size - 1) % size;
    int32_t dtype = MUSTER_ELEMENT + (int32_t)bytes;
    muster_received_t received = {0};
    unsigned char *in = elements(count, bytes), *out = elements(count, bytes), *all = elements(count * (size_t)size, bytes);
    fill(in, bytes, rank, count);
    CHECK_OK(muster_sendrecv(world, in, count, dtype, (rank + 1) % size, 5, out, count, dtype, from, 5, &received,
                             sizeof received));
    CHECK(received.dtype == dtype && received.count == count && received.source == from);
    for (size_t i = 0; i < count; i++) {
        CHECK(whole_element(out + i * bytes, bytes) == value(from, i));
    }
    CHECK_OK(muster_allgather(world, in, all, count, dtype));
    for (size_t i = 0; i < count * (size_t)size; i++) {
        CHECK(whole_element(all + i * bytes, bytes) == value((int)(i / count), i % count));
    }
    CHECK_OK(muster_alltoall(world, all, all, count, dtype)); /* part r of everyone's, which is rank r's own */
    CHECK_OK(muster_broadcast(world, out, count, dtype, size - 1));
    for (size_t i = 0; i < count * (size_t)size; i++) {
        CHECK(whole_element(all + i * bytes, bytes) == value(rank, i % count));
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(whole_element(out + i * bytes, bytes) == value((2 * size - 2) % size, i));
    }
    free(in);
    free(out);
    free(all);
}

static void whole(muster_cluster_t *cluster, int rank, void *context) {
    int size = muster_size(cluster);
    (void)context;
    for (int i = 0; i < SIZES; i++) {
        for (int c = 0; c < COUNTS; c++) {
            size_t bytes = sizes[i].bytes, count = sizes[i].counts[c];
            for (int ordered = 0; ordered < 2; ordered++) {
                reductions(cluster, rank, bytes, count, ordered);
            }
            lists(cluster, rank, bytes, count / (size_t)size + 1);
            moved(cluster, rank, bytes, count / (size_t)size + 1);
        }
    }
}

/* Ranks must agree on this, and one says otherwise. */
enum which { SIZE, COMMUTATIVE_OR_NOT, FUNCTION_OR_OPERATION, LIST_OR_NOT, WHICH };

static void disagree(muster_cluster_t *cluster, int rank, void *context) {
    static const char *const words[WHICH] = {
        "elements of 24 bytes", "user's function in rank order", "user's operation 0", "allgatherv",
    };
    muster_group_t *world = muster_world(cluster);
    enum which which = *(enum which *)context;
    struct expected expected = {16, 0};
    unsigned char in[48], out[144];
    void *outs[] = {out, out + 48, out + 96};
    int odd = rank == 2;
    int32_t dtype = MUSTER_ELEMENT + (which == SIZE && odd ? 24 : 16), op = 0;
    muster_status_t status;
    expected.bytes = (size_t)(dtype - MUSTER_ELEMENT);
    fill(in, expected.bytes, rank, 2);
    if (which == LIST_OR_NOT) {
        status = odd ? muster_allgather_list(world, in, 2, outs, NULL, dtype) : muster_allgather(world, in, out, 2, dtype);
    } else if (which == FUNCTION_OR_OPERATION && odd) {
        CHECK_OK(muster_op_create(cluster, reduce, &expected, 1, &op));
        status = muster_allreduce(world, in, out, 1, dtype, op);
    } else {
        status = muster_allreduce_with(world, in, out, 1, dtype, reduce, &expected, which != COMMUTATIVE_OR_NOT || !odd);
    }
    CHECK_IS(MUSTER_ERR_MISMATCH, status);
    CHECK_CONTAINS(muster_last_error(), words[which]);
}

/* A message of elements of another size is dropped, and ends its receive alone. */
static void other_size(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    unsigned char element[24] = {0};
    (void)context;
    if (rank == 0) {
        CHECK_OK(muster_send(world, element, 1, MUSTER_ELEMENT + 16, 1, 0));
    } else {
        CHECK_FAILS(MUSTER_ERR_MISMATCH, "1 elements of 16 bytes where",
                    muster_recv(world, element, 1, MUSTER_ELEMENT + 24, 0, 0, NULL, 0));
        CHECK_CONTAINS(muster_last_error(), "receives at most 1 elements of 24 bytes");
    }
    CHECK_OK(muster_barrier(world));
}

/* Buffers of a list that share bytes: none of them could be right. */
static void shared_outputs(muster_cluster_t *cluster, int rank, void *context) {
    static const size_t counts[] = {2, 0, 2};
    muster_group_t *world = muster_world(cluster);
    int32_t in[4] = {rank, rank, rank, rank}, out[8] = {0};
    void *outs[] = {out + 3, out + 1, out}, *apart[] = {out + 4, out + 1, out};
    (void)context;
    CHECK_FAILS(MUSTER_ERR_INVALID, "outs: the buffers of ranks 1 and 2 overlap",
                muster_allgather_list(world, in, 4, outs, NULL, MUSTER_INT32));
    CHECK_OK(muster_allgather_list(world, in, counts[rank], apart, counts, MUSTER_INT32)); /* rank 1 has no part to share */
    CHECK(out[4] == 0 && out[5] == 0 && out[0] == 2 && out[1] == 2 && out[2] == 0 && out[6] == 0);
}

int main(void) {
    struct plan plan = {.node_ids = rank_ids, .body = whole};
    static const int workers[] = {1, 2, 3, 4, 5, MOST};
    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        plan.workers = workers[i];
        run_nodes(&plan);
    }
    plan.workers = 3;
    plan.body = shared_outputs;
    run_nodes(&plan);
    plan.body = disagree;
    for (enum which which = SIZE; which < WHICH; which++) {
        plan.context = &which;
        run_nodes(&plan);
    }
    plan.workers = 2;
    plan.body = other_size;
    run_nodes(&plan);
    return 0;
}
