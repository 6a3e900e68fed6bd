/* Exact sums: the same bits whichever rank brings the addends, and in whatever order. They are compared with integers and
 * with a table. If the caller changes its floating-point environment, neither these nor plain sums change. */
#include "check.h"
#include "nodes.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

__extension__ typedef __int128 wide_int;

enum { MOST = 8 };

/* The bits of the right sum of some addends. */
static const struct sum {
    const char *name;
    int32_t dtype;
    uint64_t sum;
    int count;
    uint64_t addends[MOST];
} table[] = {
    {"nothing", MUSTER_FLOAT32, 0, 0, {0}},
    {"cancellation", MUSTER_FLOAT32, 0x3f800000, 3, {0x7f7fffff, 0x3f800000, 0xff7fffff}},
    {"a tie, to even", MUSTER_FLOAT32, 0x3f800000, 2, {0x3f800000, 0x33800000}},
    {"a tie, up to even", MUSTER_FLOAT32, 0x3f800002, 2, {0x3f800001, 0x33800000}},
    {"a little more than a tie", MUSTER_FLOAT32, 0x3f800001, 3, {0x3f800000, 0x33800000, 0x00000001}},
    {"a little less than a tie", MUSTER_FLOAT32, 0x3f800000, 3, {0x3f800000, 0x33800000, 0x80000001}},
    {"subnormals", MUSTER_FLOAT32, 0x00800000, 2, {0x00400000, 0x00400000}},
    {"no overflow in between", MUSTER_FLOAT32, 0x7f7fffff, 3, {0x7f7fffff, 0x7f7fffff, 0xff7fffff}},
    {"overflow", MUSTER_FLOAT32, 0x7f800000, 2, {0x7f7fffff, 0x7f7fffff}},
    {"infinity", MUSTER_FLOAT32, 0xff800000, 3, {0x3f800000, 0xff800000, 0x7f7fffff}},
    {"infinities", MUSTER_FLOAT32, 0x7fc00000, 2, {0x7f800000, 0xff800000}},
    {"NaN", MUSTER_FLOAT32, 0x7fc00000, 2, {0xffc12345, 0x3f800000}},
    {"-0 alone", MUSTER_FLOAT32, 0x80000000, 2, {0x80000000, 0x80000000}},
    {"both zeros", MUSTER_FLOAT32, 0, 2, {0x80000000, 0}},
    {"opposites", MUSTER_FLOAT32, 0, 2, {0xbf800000, 0x3f800000}},
    {"cancellation", MUSTER_FLOAT64, 1, 3, {0x7fefffffffffffff, 1, 0xffefffffffffffff}},
    {"a tie, to even", MUSTER_FLOAT64, 0x3ff0000000000000, 2, {0x3ff0000000000000, 0x3ca0000000000000}},
    {"more than a tie", MUSTER_FLOAT64, 0x3ff0000000000001, 3, {0x3ff0000000000000, 0x3ca0000000000000, 1}},
    {"subnormals", MUSTER_FLOAT64, 3, 2, {1, 2}},
    {"no overflow in between", MUSTER_FLOAT64, 0x3ff0000000000000, 5,
     {0x7fefffffffffffff, 0x7fefffffffffffff, 0x3ff0000000000000, 0xffefffffffffffff, 0xffefffffffffffff}},
    {"-0 alone", MUSTER_FLOAT64, 0x8000000000000000, 2, {0x8000000000000000, 0x8000000000000000}},
    {"infinities", MUSTER_FLOAT64, 0x7ff8000000000000, 2, {0x7ff0000000000000, 0xfff0000000000000}},
    {"rounded once, not twice", MUSTER_FLOAT16, 0x3c01, 3, {0x3c00, 0x1000, 0x0001}},
    {"no overflow in between", MUSTER_FLOAT16, 0x0001, 5, {0x7bff, 0x7bff, 0x0001, 0xfbff, 0xfbff}},
    {"subnormals", MUSTER_FLOAT16, 0x0400, 2, {0x0200, 0x0200}},
    {"rounded once, not twice", MUSTER_BFLOAT16, 0x3f81, 3, {0x3f80, 0x3b80, 0x0001}},
    {"a tie, to even", MUSTER_BFLOAT16, 0x3f80, 2, {0x3f80, 0x3b80}},
    {"overflow", MUSTER_BFLOAT16, 0x7f80, 2, {0x7f7f, 0x7f7f}},
    {"NaN", MUSTER_BFLOAT16, 0x7fc0, 2, {0x7f81, 0}},
};

static size_t width_of(int32_t dtype) { return dtype == MUSTER_FLOAT64 ? 8 : dtype == MUSTER_FLOAT32 ? 4 : 2; }

/* Each row of the table, its addends dealt out from another rank on each time. (All machines that this runs on are
 * little-endian.) */
static void rows(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster), size = muster_size(cluster);
    (void)index, (void)context;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct sum *row = &table[i];
        size_t width = width_of(row->dtype);
        for (int first = 0; first < size; first++) {
            unsigned char own[MOST * 8] = {0}, out[8] = {0};
            size_t addends = 0;
            uint64_t sum = 0;
            for (int at = 0; at < row->count; at++) {
                if ((first + at * 3) % size == rank) {
                    memcpy(own + width * addends++, &row->addends[at], width);
                }
            }
            if (first % 2 == 0) {
                CHECK_OK(muster_allreduce_addends(world, own, addends, out, 1, row->dtype));
            } else { /* in place */
                muster_request_t *request = NULL;
                CHECK_OK(muster_iallreduce_addends(world, own, addends, own, 1, row->dtype, &request));
                CHECK_OK(muster_request_wait(request, -1));
                muster_request_free(request);
                memcpy(out, own, width);
            }
            memcpy(&sum, out, width);
            if (sum != row->sum) {
                fprintf(stderr, "%s of type %d: %llx\n", row->name, (int)row->dtype, (unsigned long long)sum);
            }
            CHECK(sum == row->sum);
        }
    }
}

/* Numbers whose sums are known as integers: so many times 2^-60. */
static wide_int drawn(uint64_t *state, int32_t dtype) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = *state >> 8;
    int fraction = dtype == MUSTER_FLOAT64 ? 50 : 24;
    wide_int number = (wide_int)(bits & (((uint64_t)1 << fraction) - 1)) << (bits >> 51 & 31);
    return bits >> 50 & 1 ? -number : number;
}

static void store(void *data, size_t at, int32_t dtype, wide_int number) {
    double wide = ldexp((double)number, -60); /* one rounding: it scales by a power of two */
    float narrow = ldexpf((float)number, -60);
    if (dtype == MUSTER_FLOAT32) {
        memcpy((float *)data + at, &narrow, sizeof narrow);
    } else {
        memcpy((double *)data + at, &wide, sizeof wide);
    }
}

struct buffers {
    char *in, *out, *expected;
    size_t bytes;
};

static struct buffers filled(int32_t dtype, size_t count, int rank, int size) {
    size_t width = width_of(dtype);
    struct buffers it = {malloc(count * width), malloc(count * width), malloc(count * width), count * width};
    CHECK(it.in != NULL && it.out != NULL && it.expected != NULL);
    memset(it.out, 0xa5, it.bytes);
    for (size_t i = 0; i < count; i++) {
        wide_int sum = 0;
        for (int from = 0; from < size; from++) {
            uint64_t state = (uint64_t)i * 977 + (uint64_t)from * 77777 + count;
            wide_int number = drawn(&state, dtype);
            sum += number;
            if (from == rank) {
                store(it.in, i, dtype, number);
            }
        }
        store(it.expected, i, dtype, sum);
    }
    return it;
}

static void end(struct buffers *it) { free(it->in), free(it->out), free(it->expected); }

static void is_sum(struct buffers *it, const void *found, size_t from, size_t bytes) {
    CHECK(memcmp(found, it->expected + from, bytes) == 0);
    memset(it->out, 0xa5, it->bytes);
}

static void finish(muster_request_t *request) {
    CHECK_OK(muster_request_wait(request, -1));
    muster_request_free(request);
}

/* All calls that reduce, blocking and not, on so many elements for each rank of some. */
static void calls(muster_group_t *world, int32_t dtype, size_t each) {
    int rank = muster_group_rank(world), size = muster_group_size(world), root = size / 2;
    size_t ranks = (size_t)size, count = each * ranks, width = width_of(dtype);
    size_t own_at = (size_t)rank * each * width, own = each * width;
    struct buffers it = filled(dtype, count, rank, size);
    size_t *counts = malloc(ranks * sizeof *counts);
    muster_request_t *request = NULL;
    CHECK(counts != NULL);
    CHECK_OK(muster_allreduce(world, it.in, it.out, count, dtype, MUSTER_SUM_EXACT));
    is_sum(&it, it.out, 0, it.bytes);
    CHECK_OK(muster_iallreduce(world, it.in, it.out, count, dtype, MUSTER_SUM_EXACT, &request));
    finish(request);
    is_sum(&it, it.out, 0, it.bytes);
    CHECK_OK(muster_reduce(world, it.in, rank == root ? it.out : NULL, count, dtype, MUSTER_SUM_EXACT, root));
    is_sum(&it, rank == root ? it.out : it.expected, 0, it.bytes);
    CHECK_OK(muster_ireduce(world, it.in, rank == root ? it.out : NULL, count, dtype, MUSTER_SUM_EXACT, root, &request));
    finish(request);
    is_sum(&it, rank == root ? it.out : it.expected, 0, it.bytes);
    CHECK_OK(muster_reduce_scatter(world, it.in, it.out, each, dtype, MUSTER_SUM_EXACT));
    is_sum(&it, it.out, own_at, own);
    CHECK_OK(muster_ireduce_scatter(world, it.in, it.out, each, dtype, MUSTER_SUM_EXACT, &request));
    finish(request);
    is_sum(&it, it.out, own_at, own);
    size_t before = 0; /* the last rank gets what the others get less */
    for (size_t r = 0; r < ranks; r++) {
        counts[r] = r + 1 < ranks ? each / (r + 1) : count - before;
        before += counts[r];
    }
    before = 0;
    for (int r = 0; r < rank; r++) {
        before += counts[r];
    }
    CHECK_OK(muster_reduce_scatterv(world, it.in, it.out, counts, dtype, MUSTER_SUM_EXACT));
    is_sum(&it, it.out, before * width, counts[rank] * width);
    CHECK_OK(muster_ireduce_scatterv(world, it.in, it.out, counts, dtype, MUSTER_SUM_EXACT, &request));
    finish(request);
    is_sum(&it, it.out, before * width, counts[rank] * width);
    CHECK_OK(muster_reduce_scatterv(world, it.in, it.in + before * width, counts, dtype, MUSTER_SUM_EXACT));
    is_sum(&it, it.in + before * width, before * width, counts[rank] * width);
    free(counts), end(&it);
}

/* In place, lists of buffers, and the same addends on all ranks, on one, and two by two. */
static void other_forms(muster_group_t *world, int32_t dtype, size_t each) {
    int rank = muster_group_rank(world), size = muster_group_size(world);
    size_t ranks = (size_t)size, count = each * ranks, width = width_of(dtype), own = each * width;
    struct buffers it = filled(dtype, count, rank, size);
    const void *ins[MOST];
    for (size_t r = 0; r < ranks; r++) {
        ins[r] = it.in + (ranks - 1 - r) * own;
    }
    CHECK_OK(muster_reduce_scatter_list(world, ins, NULL, it.out, each, dtype, MUSTER_SUM_EXACT));
    is_sum(&it, it.out, (ranks - 1 - (size_t)rank) * own, own);
    char *all = malloc(ranks * it.bytes);
    CHECK(all != NULL);
    CHECK_OK(muster_allgather(world, it.in, all, it.bytes, MUSTER_UINT8));
    for (int owner = 0; owner < size; owner++) {
        CHECK_OK(muster_allreduce_addends(world, all, rank == owner ? ranks : 0, it.out, count, dtype));
        is_sum(&it, it.out, 0, it.bytes);
    }
    size_t mine = rank % 2 == 1 ? 2 : rank == size - 1 ? 1 : 0;
    size_t first = (size_t)rank - (mine == 2 ? 1 : 0);
    CHECK_OK(muster_allreduce_addends(world, all + first * it.bytes, mine, it.out, count, dtype));
    is_sum(&it, it.out, 0, it.bytes);
    /* In place: the sum takes the place of the first vector, where there is one. */
    char *sum = mine > 0 ? all + first * it.bytes : it.out;
    CHECK_OK(muster_allreduce_addends(world, sum, mine, sum, count, dtype));
    is_sum(&it, sum, 0, it.bytes);
    CHECK_OK(muster_allreduce(world, it.in, it.in, count, dtype, MUSTER_SUM_EXACT));
    is_sum(&it, it.in, 0, it.bytes);
    free(all), end(&it);
}

static void body(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t dtypes[] = {MUSTER_FLOAT32, MUSTER_FLOAT64};
    static const size_t sizes[] = {0, 1, 7, 3000, 20011};
    muster_group_t *world = muster_world(cluster);
    (void)index, (void)context;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            calls(world, dtypes[i], sizes[j]);
            other_forms(world, dtypes[i], sizes[j]);
        }
    }
    if (muster_size(cluster) == 2) { /* a part of several pieces */
        calls(world, MUSTER_FLOAT32, 1100003);
    }
}

/* A user's sum. */
static void add(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    (void)ctx;
    for (size_t i = 0; i < count; i++) {
        if (dtype == MUSTER_FLOAT32) {
            ((float *)inout)[i] = ((const float *)in)[i] + ((float *)inout)[i];
        } else {
            ((double *)inout)[i] = ((const double *)in)[i] + ((double *)inout)[i];
        }
    }
}

/* An allreduce that waits, or one that another thread may carry out. */
static muster_status_t reduce(muster_group_t *group, const void *in, void *out, size_t count, int32_t dtype, int32_t op,
                              int waits) {
    muster_request_t *request = NULL;
    if (waits) {
        return muster_allreduce(group, in, out, count, dtype, op);
    }
    muster_status_t status = muster_iallreduce(group, in, out, count, dtype, op, &request);
    return status == MUSTER_OK ? muster_request_wait(request, -1) : status;
}

/* The sums of subnormals and of what must be rounded, plain, exact and a user's, and an average. */
static void environment(muster_cluster_t *cluster, int index, void *context) {
    enum { COUNT = 2000, OPS = 5 };
    int32_t ops[OPS] = {MUSTER_SUM, MUSTER_SUM_EXACT, MUSTER_AVG, MUSTER_MAX};
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    static const int roundings[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    (void)index, (void)context;
    CHECK_OK(muster_op_create(cluster, add, NULL, 1, &ops[OPS - 1]));
    float in[COUNT];
    double wide[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = i % 2 == 0 ? (float)(i + rank) * 1e-43f : 1.0f + (float)(i * 7919 + rank * 31) * 3e-7f;
        wide[i] = i % 2 == 0 ? (double)(i + rank) * 1e-320 : 1.0 + (double)(i * 7919 + rank * 31) * 3e-16;
    }
    float expected[OPS][COUNT], out[COUNT];
    double wide_expected[OPS][COUNT], wide_out[COUNT];
    for (int turn = 0; turn < 5; turn++) {
        for (int op = 0; op < OPS; op++) {
            int waits = turn < 3;
            /* Each rank has an environment of its own. */
            CHECK(fesetround(roundings[turn == 0 ? 0 : (turn + rank) % 4]) == 0);
#ifdef __SSE2__
            unsigned usual = _mm_getcsr();
            _mm_setcsr(usual | (turn > 0 && (turn + rank) % 2 == 0 ? 0x8040 : 0)); /* flush to zero, denormals are zero */
            unsigned own = _mm_getcsr();
#endif
            muster_status_t status = reduce(world, in, out, COUNT, MUSTER_FLOAT32, ops[op], waits);
            muster_status_t wide_status = reduce(world, wide, wide_out, COUNT, MUSTER_FLOAT64, ops[op], waits);
#ifdef __SSE2__
            unsigned after = _mm_getcsr();
            _mm_setcsr(usual);
            CHECK((after & ~0x3fu) == (own & ~0x3fu)); /* it is the caller's still */
#endif
            CHECK(fegetround() == roundings[turn == 0 ? 0 : (turn + rank) % 4]);
            CHECK(fesetround(FE_TONEAREST) == 0);
            CHECK_OK(status);
            CHECK_OK(wide_status);
            if (turn == 0) {
                memcpy(expected[op], out, sizeof out);
                memcpy(wide_expected[op], wide_out, sizeof wide_out);
                CHECK(out[2] > 0 && wide_out[2] > 0); /* subnormal, and not lost */
            }
            CHECK(memcmp(expected[op], out, sizeof out) == 0);
            CHECK(memcmp(wide_expected[op], wide_out, sizeof wide_out) == 0);
        }
    }
}

/* A sum of addends is another call than an allreduce. */
static void disagreement(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    float value = 1;
    (void)index, (void)context;
    if (muster_rank(cluster) == 0) {
        CHECK_IS(MUSTER_ERR_MISMATCH, muster_allreduce(world, &value, &value, 1, MUSTER_FLOAT32, MUSTER_SUM_EXACT));
    } else {
        CHECK_IS(MUSTER_ERR_MISMATCH, muster_allreduce_addends(world, &value, 1, &value, 1, MUSTER_FLOAT32));
    }
    CHECK(strstr(muster_last_error(), "sum_exact of addends") != NULL);
}

int main(void) {
    for (int size = 1; size <= MOST; size++) {
        struct plan plan = {.workers = size, .node_ids = rank_ids, .body = rows};
        run_nodes(&plan);
        if (size <= 5) {
            plan.body = body;
            run_nodes(&plan);
        }
    }
    struct plan three = {.workers = 3, .node_ids = rank_ids, .body = environment};
    run_nodes(&three);
    three.body = disagreement;
    run_nodes(&three);
    return 0;
}
