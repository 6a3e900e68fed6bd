/* Every collective against an answer that is computed here, on 1 to 64 ranks, each a thread with its own handle. */
#include "check.h"
#include "nodes.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { SIZES = 5, DTYPES = 5, RANKS_LIMIT = 64, LARGE = 64 << 20 };

static const size_t counts[SIZES] = {0, 1, 7, 1000, 100003};
static const int32_t dtypes[DTYPES] = {MUSTER_INT32, MUSTER_INT64, MUSTER_UINT8, MUSTER_FLOAT32, MUSTER_FLOAT64};
static const size_t widths[DTYPES] = {4, 8, 1, 4, 8};

/* Where the ranks leave what they got, for the first to compare. */
struct shared {
    int size;
    uint64_t hash[RANKS_LIMIT];
};

static uint64_t hash_of(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 1099511628211u;
    }
    return hash;
}

/* Element `i` of a rank: small enough that a product over 8 ranks is exact in every type but the 8-bit one, which
 * wraps. */
static double element(int rank, size_t i, int32_t op) {
    size_t mixed = i * 2654435761u + (size_t)rank * 40503u;
    if (op == MUSTER_PROD) {
        return (double)(1 + (mixed >> 7) % 3);
    }
    return (double)((mixed >> 5) % 100);
}

static void put(void *buf, size_t i, int32_t dtype, double value) {
    switch (dtype) {
    case MUSTER_INT32: ((int32_t *)buf)[i] = (int32_t)value; break;
    case MUSTER_INT64: ((int64_t *)buf)[i] = (int64_t)value; break;
    case MUSTER_UINT8: ((uint8_t *)buf)[i] = (uint8_t)(uint64_t)value; break;
    case MUSTER_FLOAT32: ((float *)buf)[i] = (float)value; break;
    default: ((double *)buf)[i] = value; break;
    }
}

static double get(const void *buf, size_t i, int32_t dtype) {
    switch (dtype) {
    case MUSTER_INT32: return (double)((const int32_t *)buf)[i];
    case MUSTER_INT64: return (double)((const int64_t *)buf)[i];
    case MUSTER_UINT8: return (double)((const uint8_t *)buf)[i];
    case MUSTER_FLOAT32: return (double)((const float *)buf)[i];
    default: return ((const double *)buf)[i];
    }
}

/* What an allreduce must give for element `i`. */
static double answer(int size, size_t i, int32_t dtype, int32_t op) {
    double result = element(0, i, op);
    for (int rank = 1; rank < size; rank++) {
        double other = element(rank, i, op);
        switch (op) {
        case MUSTER_PROD: result *= other; break;
        case MUSTER_MIN: result = other < result ? other : result; break;
        case MUSTER_MAX: result = other > result ? other : result; break;
        default: result += other; break;
        }
    }
    if (op == MUSTER_AVG) {
        result /= size;
    }
    if (dtype == MUSTER_FLOAT32 || dtype == MUSTER_FLOAT64) {
        return result;
    }
    /* Integers truncate; eight bits wrap, but for an average's. */
    result = trunc(result);
    return dtype == MUSTER_UINT8 ? (double)((uint64_t)result & 0xff) : result;
}

static void check_sums(const void *out, size_t count, int size, int32_t dtype, int32_t op) {
    for (size_t i = 0; i < count; i++) {
        double expected = answer(size, i, dtype, op);
        double actual = get(out, i, dtype);
        double share = dtype == MUSTER_FLOAT32 ? 1e-6 : dtype == MUSTER_FLOAT64 ? 1e-14 : 0;
        double allowed = share * fabs(expected);
        if (fabs(actual - expected) > allowed) {
            fprintf(stderr, "    %d ranks, type %d, op %d: element %zu of %zu is %.17g, expected %.17g\n", size,
                    (int)dtype, (int)op, i, count, actual, expected);
        }
        CHECK(fabs(actual - expected) <= allowed);
    }
}

/* Every rank has got the same bits. */
static void check_bits(muster_group_t *world, struct shared *shared, int rank, const void *out, size_t bytes) {
    shared->hash[rank] = hash_of(out, bytes);
    CHECK_OK(muster_barrier(world));
    for (int other = 0; other < shared->size; other++) {
        CHECK(shared->hash[other] == shared->hash[rank]);
    }
    CHECK_OK(muster_barrier(world));
}

static void allreduces(muster_group_t *world, struct shared *shared, int rank, int kind, size_t count) {
    int32_t dtype = dtypes[kind];
    size_t bytes = count * widths[kind];
    void *in = malloc(bytes + 1);
    void *before = malloc(bytes + 1);
    void *out = malloc(bytes + 1);
    CHECK(in != NULL && before != NULL && out != NULL);
    for (int32_t op = MUSTER_SUM; op <= MUSTER_AVG; op++) {
        for (size_t i = 0; i < count; i++) {
            put(in, i, dtype, element(rank, i, op));
        }
        memcpy(before, in, bytes);
        memset(out, 0xee, bytes + 1);
        CHECK_OK(muster_allreduce(world, in, out, count, dtype, op));
        CHECK(memcmp(in, before, bytes) == 0);           /* the input is only read */
        CHECK(((unsigned char *)out)[bytes] == 0xee);    /* nothing is written behind the end */
        check_sums(out, count, shared->size, dtype, op);
        CHECK_OK(muster_allreduce(world, in, in, count, dtype, op)); /* in place: the same bits */
        CHECK(memcmp(in, out, bytes) == 0);
        check_bits(world, shared, rank, out, bytes);
    }
    free(in);
    free(before);
    free(out);
}

static void allgathers(muster_group_t *world, int size, int rank, int kind, size_t count) {
    int32_t dtype = dtypes[kind];
    size_t bytes = count * widths[kind];
    unsigned char *in = malloc(bytes + 1);
    unsigned char *out = malloc(bytes * (size_t)size + 1);
    unsigned char *expected = malloc(bytes * (size_t)size + 1);
    CHECK(in != NULL && out != NULL && expected != NULL);
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < bytes; i++) {
            expected[(size_t)r * bytes + i] = (unsigned char)(i * 7 + (size_t)r * 31 + 1);
        }
    }
    memcpy(in, expected + (size_t)rank * bytes, bytes);
    memset(out, 0xee, bytes * (size_t)size + 1);
    CHECK_OK(muster_allgather(world, in, out, count, dtype));
    CHECK(memcmp(out, expected, bytes * (size_t)size) == 0 && out[bytes * (size_t)size] == 0xee);
    memset(out, 0xee, bytes * (size_t)size);
    memcpy(out + (size_t)rank * bytes, in, bytes);
    CHECK_OK(muster_allgather(world, out + (size_t)rank * bytes, out, count, dtype)); /* in place */
    CHECK(memcmp(out, expected, bytes * (size_t)size) == 0 && out[bytes * (size_t)size] == 0xee);
    free(in);
    free(out);
    free(expected);
}

static void broadcast(muster_group_t *world, int rank, int root, size_t bytes) {
    unsigned char *buf = malloc(bytes + 1);
    CHECK(buf != NULL);
    memset(buf, 0xee, bytes + 1);
    for (size_t i = 0; rank == root && i < bytes; i++) {
        buf[i] = (unsigned char)(i * 5 + (i >> 8) + (size_t)root);
    }
    CHECK_OK(muster_broadcast(world, buf, bytes, MUSTER_UINT8, root));
    for (size_t i = 0; i < bytes; i++) {
        if (buf[i] != (unsigned char)(i * 5 + (i >> 8) + (size_t)root)) {
            fprintf(stderr, "    byte %zu of %zu is wrong\n", i, bytes);
            CHECK(!"what the root sent");
        }
    }
    CHECK(buf[bytes] == 0xee);
    free(buf);
}

static void everything(muster_cluster_t *cluster, int index, void *context) {
    static const size_t lengths[] = {0, 1, 128, 4108, 300001};
    struct shared *shared = context;
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    (void)index;
    CHECK_OK(muster_barrier(world));
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int root = 0; root < shared->size; root++) {
            broadcast(world, rank, root, lengths[i]);
        }
    }
    for (int kind = 0; kind < DTYPES; kind++) {
        for (int i = 0; i < SIZES; i++) {
            allreduces(world, shared, rank, kind, counts[i]);
            allgathers(world, shared->size, rank, kind, counts[i]);
        }
    }
}

/* 64 MiB, as of weights and their gradients. */
static void large(muster_cluster_t *cluster, int index, void *context) {
    struct shared *shared = context;
    muster_group_t *world = muster_world(cluster);
    size_t count = LARGE / sizeof(float);
    int rank = muster_rank(cluster);
    float *values = malloc(LARGE);
    (void)index;
    CHECK(values != NULL);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)((i + (size_t)rank * 3) % 1000);
    }
    CHECK_OK(muster_allreduce(world, values, values, count, MUSTER_FLOAT32, MUSTER_SUM));
    for (size_t i = 0; i < count; i++) {
        float expected = 0;
        for (int r = 0; r < shared->size; r++) {
            expected += (float)((i + (size_t)r * 3) % 1000);
        }
        CHECK(values[i] == expected); /* whole numbers: exact */
    }
    free(values);
    broadcast(world, rank, shared->size - 1, LARGE);
    /* Every operation, by the schedules for more than a MiB, with blocks of unequal length. */
    allreduces(world, shared, rank, 0, 300007);
    allreduces(world, shared, rank, 4, 300007);
}

/* After a barrier no rank can find that another has not entered it. */
static void barriers(muster_cluster_t *cluster, int rounds) {
    muster_group_t *world = muster_world(cluster);
    for (int round = 1; round <= rounds; round++) {
        char key[32];
        int64_t entered = 0;
        snprintf(key, sizeof key, "round %d", round);
        CHECK_OK(muster_store_add(cluster, key, 1, NULL));
        CHECK_OK(muster_barrier(world));
        CHECK_OK(muster_store_add(cluster, key, 0, &entered));
        CHECK_IS(muster_size(cluster), entered);
    }
}

static void many(muster_cluster_t *cluster, int index, void *context) {
    struct shared *shared = context;
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    (void)index;
    barriers(cluster, 2);
    for (int i = 0; i < 4; i++) { /* not the largest: the arithmetic of 64 ranks is checked on two cores */
        size_t count = counts[i];
        int64_t in[1000];
        int64_t out[1000];
        for (size_t j = 0; j < count; j++) {
            in[j] = (int64_t)element(rank, j, MUSTER_SUM);
        }
        CHECK_OK(muster_allreduce(world, in, out, count, MUSTER_INT64, MUSTER_SUM));
        check_sums(out, count, shared->size, MUSTER_INT64, MUSTER_SUM);
        check_bits(world, shared, rank, out, count * sizeof out[0]);
    }
}

static void few(muster_cluster_t *cluster, int index, void *context) {
    barriers(cluster, 5);
    everything(cluster, index, context);
}

static void on(int size, node_body body) {
    static struct shared shared;
    struct plan plan = {.workers = size, .node_ids = rank_ids, .body = body, .context = &shared};
    shared.size = size;
    run_nodes(&plan);
}

int main(void) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        on(sizes[i], few);
    }
    on(2, large);
    on(3, large);
    on(RANKS_LIMIT, many);
    return 0;
}
