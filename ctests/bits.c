/* Every rank gets the same bits, and the same from run to run, even if rounding makes the order count. What is special
 * about floating point comes out as the header says. Averages of narrow types do not overflow on the way. */
#include "check.h"
#include "nodes.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS_LIMIT = 8, RESULTS = 64 };

static const size_t counts[] = {1, 3, 500, 5001, 120007};

/* The hash of every result of every rank, in a run. */
struct run {
    uint64_t hash[RANKS_LIMIT][RESULTS];
};

static uint64_t hash_of(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 1099511628211u;
    }
    return hash;
}

/* Numbers of very different size, so that a sum depends on the order in which it is made. */
static double rough(uint64_t *state, int near_one) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    double fraction = (double)(*state >> 11) / 9007199254740992.0 + 0.5;
    if (near_one) {
        return fraction;
    }
    return ldexp(*state & 1024 ? fraction : -fraction, (int)(*state >> 3 & 15) - 8);
}

static void reduce(muster_group_t *world, struct run *run, int rank, int *results, int32_t dtype, size_t count) {
    size_t width = dtype == MUSTER_FLOAT64 ? 8 : 4;
    void *in = malloc(count * width);
    void *out = malloc(count * width);
    CHECK(in != NULL && out != NULL);
    for (int32_t op = MUSTER_SUM; op <= MUSTER_AVG; op++) {
        uint64_t state = (uint64_t)rank * 977 + count + (uint64_t)op;
        for (size_t i = 0; i < count; i++) {
            double value = rough(&state, op == MUSTER_PROD);
            float narrow = (float)value;
            memcpy((char *)in + i * width, width == 8 ? (void *)&value : (void *)&narrow, width);
        }
        CHECK_OK(muster_allreduce(world, in, out, count, dtype, op));
        CHECK_OK(muster_allreduce(world, in, in, count, dtype, op));
        CHECK(memcmp(in, out, count * width) == 0); /* in place or not */
        CHECK(*results < RESULTS);
        run->hash[rank][(*results)++] = hash_of(out, count * width);
    }
    free(in);
    free(out);
}

static void body(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    int results = 0;
    (void)index;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        reduce(world, context, rank, &results, MUSTER_FLOAT32, counts[i]);
        reduce(world, context, rank, &results, MUSTER_FLOAT64, counts[i]);
    }
}

static void run_on(int size, struct run *run) {
    struct plan plan = {.workers = size, .node_ids = rank_ids, .body = body, .context = run};
    memset(run, 0, sizeof *run);
    run_nodes(&plan);
    for (int rank = 1; rank < size; rank++) {
        CHECK(memcmp(run->hash[0], run->hash[rank], sizeof run->hash[0]) == 0);
    }
}

/* NaN is passed on by min and max wherever it comes from; of the two zeros -0 is the smaller. */
static void special(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    (void)index, (void)context;
    for (int32_t op = MUSTER_SUM; op <= MUSTER_AVG; op++) {
        for (int from = 0; from < muster_size(cluster); from++) {
            float value = rank == from ? NAN : 1;
            double wide = rank == from ? NAN : 1;
            CHECK_OK(muster_allreduce(world, &value, &value, 1, MUSTER_FLOAT32, op));
            CHECK(isnan(value));
            CHECK_OK(muster_allreduce(world, &wide, &wide, 1, MUSTER_FLOAT64, op));
            CHECK(isnan(wide));
            float zeros[2] = {rank == from ? -0.0f : 0.0f, rank == from ? INFINITY : 0.0f};
            CHECK_OK(muster_allreduce(world, zeros, zeros, 2, MUSTER_FLOAT32, op));
            CHECK(zeros[0] == 0 && (op != MUSTER_MIN || signbit(zeros[0])) && (op != MUSTER_MAX || !signbit(zeros[0])));
            CHECK(op == MUSTER_PROD ? isnan(zeros[1]) : op == MUSTER_MIN ? zeros[1] == 0 : isinf(zeros[1]));
        }
    }
}

/* Integers wrap in sums and products, and truncate toward zero in averages. */
static void integers(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    int32_t wrapped = INT32_MAX;
    int32_t average[2] = {rank == 0 ? -7 : 0, rank == 0 ? 7 : 0};
    uint8_t small = 200;
    (void)index, (void)context;
    CHECK_OK(muster_allreduce(world, &wrapped, &wrapped, 1, MUSTER_INT32, MUSTER_SUM));
    CHECK_IS(INT32_MAX - 2, wrapped); /* of three */
    CHECK_OK(muster_allreduce(world, average, average, 2, MUSTER_INT32, MUSTER_AVG));
    CHECK(average[0] == -2 && average[1] == 2);
    CHECK_OK(muster_allreduce(world, &small, &small, 1, MUSTER_UINT8, MUSTER_SUM));
    CHECK_IS(600 % 256, small);
}

/* Sums of 64 bit integers wrap, also on the way to an average. */
static void wide_averages(muster_cluster_t *cluster) {
    muster_group_t *world = muster_world(cluster);
    int64_t wrapped = INT64_MAX;
    uint64_t unsigned_wrapped = UINT64_MAX;
    float large = 3e38f;
    CHECK_OK(muster_allreduce(world, &wrapped, &wrapped, 1, MUSTER_INT64, MUSTER_AVG));
    CHECK(wrapped == (INT64_MAX - 2) / 3); /* of three */
    CHECK_OK(muster_allreduce(world, &unsigned_wrapped, &unsigned_wrapped, 1, MUSTER_UINT64, MUSTER_AVG));
    CHECK(unsigned_wrapped == (UINT64_MAX - 2) / 3);
    CHECK_OK(muster_allreduce(world, &large, &large, 1, MUSTER_FLOAT32, MUSTER_AVG));
    CHECK(isinf(large));
}

/* What every rank gives; the average is the same number. */
struct average {
    int32_t dtype;
    size_t width;
    uint64_t bits;
};

static const struct average averages[] = {
    {MUSTER_INT8, 1, 100},        {MUSTER_INT8, 1, 0x80},         {MUSTER_UINT8, 1, 0xff},
    {MUSTER_INT16, 2, 0x7fff},    {MUSTER_INT16, 2, 0x8000},      {MUSTER_UINT16, 2, 0xffff},
    {MUSTER_INT32, 4, INT32_MAX}, {MUSTER_INT32, 4, 0x80000000u}, {MUSTER_UINT32, 4, UINT32_MAX},
    {MUSTER_FLOAT16, 2, 0x7b53},  {MUSTER_FLOAT16, 2, 0xfbff},    {MUSTER_BFLOAT16, 2, 0x7f7f},
    {MUSTER_BFLOAT16, 2, 0x0001},
};

/* An average that the type can hold is computed, whatever the sum would be: in all calls, of sizes that all schedules meet.
 * */
static void narrow_averages(muster_cluster_t *cluster, int index, void *context) {
    static const size_t lengths[] = {1, 7, 3000, 40000, 300001};
    muster_group_t *world = muster_world(cluster);
    size_t size = (size_t)muster_size(cluster), rank = (size_t)muster_rank(cluster);
    (void)index, (void)context;
    for (size_t i = 0; i < sizeof averages / sizeof averages[0] * (sizeof lengths / sizeof lengths[0]); i++) {
        const struct average *one = &averages[i / (sizeof lengths / sizeof lengths[0])];
        size_t count = lengths[i % (sizeof lengths / sizeof lengths[0])], bytes = count * one->width;
        char *in = malloc(bytes * size), *out = malloc(bytes);
        size_t *counts = malloc(size * sizeof *counts);
        CHECK(in != NULL && out != NULL && counts != NULL);
        for (size_t at = 0; at < bytes * size; at += one->width) {
            memcpy(in + at, &one->bits, one->width); /* little-endian, as all that it runs on */
        }
        for (size_t r = 0; r < size; r++) {
            counts[r] = r % 2 == 0 ? count : count / 2;
        }
        CHECK_OK(muster_allreduce(world, in, out, count, one->dtype, MUSTER_AVG));
        CHECK(memcmp(in, out, bytes) == 0);
        memset(out, 0, bytes);
        CHECK_OK(muster_reduce(world, in, rank == size - 1 ? out : NULL, count, one->dtype, MUSTER_AVG, (int)size - 1));
        CHECK(rank != size - 1 || memcmp(in, out, bytes) == 0);
        memset(out, 0, bytes);
        CHECK_OK(muster_reduce_scatter(world, in, out, count, one->dtype, MUSTER_AVG));
        CHECK(memcmp(in, out, bytes) == 0);
        memset(out, 0, bytes);
        CHECK_OK(muster_reduce_scatterv(world, in, out, counts, one->dtype, MUSTER_AVG));
        CHECK(memcmp(in, out, counts[rank] * one->width) == 0);
        CHECK_OK(muster_allreduce(world, in, in, count, one->dtype, MUSTER_AVG));
        CHECK(memcmp(in, in + bytes, bytes) == 0);
        free(in), free(out), free(counts);
    }
    if (size == 3) {
        wide_averages(cluster);
    }
}

int main(void) {
    static struct run first;
    static struct run second;
    static const int sizes[] = {2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        run_on(sizes[i], &first);
        run_on(sizes[i], &second);
        CHECK(memcmp(&first, &second, sizeof first) == 0);
    }
    struct plan three = {.workers = 3, .node_ids = rank_ids, .body = special};
    run_nodes(&three);
    three.body = integers;
    run_nodes(&three);
    for (int size = 2; size <= 4; size++) {
        struct plan some = {.workers = size, .node_ids = rank_ids, .body = narrow_averages};
        run_nodes(&some);
    }
    return 0;
}
