/* Long sequences of collectives drawn by chance, every answer computed here: kinds, types, sizes, roots and groups
 * follow each other in every order, with ranks that come early and late. A failure prints the seed; `sequence
 * <seed>` plays it. */
#include "check.h"
#include "nodes.h"

#include <stdlib.h>

enum { STEPS = 600, COUNT_MAX = 40000 };

struct draw {
    uint64_t state;
};

static uint32_t below(struct draw *draw, uint32_t limit) {
    draw->state = draw->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((draw->state >> 33) % limit);
}

/* Mostly small, sometimes none, sometimes large. */
static size_t draw_count(struct draw *draw) {
    return below(draw, 1u << (1 + below(draw, 15))) % COUNT_MAX;
}

static int64_t element(uint32_t salt, int rank, size_t i) {
    return (int64_t)((salt + (uint32_t)rank * 7919u + (uint32_t)i * 104729u) % 1000);
}

struct buffers {
    int64_t *in;
    int64_t *out;
};

static void reduce(muster_group_t *group, struct buffers *buffers, struct draw *draw, uint32_t salt) {
    static const int32_t ops[] = {MUSTER_SUM, MUSTER_MIN, MUSTER_MAX};
    size_t count = draw_count(draw);
    int32_t op = ops[below(draw, 3)];
    int in_place = (int)below(draw, 2);
    int rank = muster_group_rank(group);
    int size = muster_group_size(group);
    int64_t *in = in_place ? buffers->out : buffers->in;
    for (size_t i = 0; i < count; i++) {
        in[i] = element(salt, rank, i);
    }
    CHECK_OK(muster_allreduce(group, in, buffers->out, count, MUSTER_INT64, op));
    for (size_t i = 0; i < count; i++) {
        int64_t expected = element(salt, 0, i);
        for (int r = 1; r < size; r++) {
            int64_t other = element(salt, r, i);
            expected = op == MUSTER_SUM ? expected + other
                                        : ((op == MUSTER_MIN) == (other < expected) ? other : expected);
        }
        CHECK(buffers->out[i] == expected);
    }
}

static void gather(muster_group_t *group, struct buffers *buffers, struct draw *draw, uint32_t salt) {
    size_t count = draw_count(draw) / 4;
    int in_place = (int)below(draw, 2);
    int rank = muster_group_rank(group);
    int64_t *in = in_place ? buffers->out + count * (size_t)rank : buffers->in;
    for (size_t i = 0; i < count; i++) {
        in[i] = element(salt, rank, i);
    }
    CHECK_OK(muster_allgather(group, in, buffers->out, count, MUSTER_INT64));
    for (int r = 0; r < muster_group_size(group); r++) {
        for (size_t i = 0; i < count; i++) {
            CHECK(buffers->out[(size_t)r * count + i] == element(salt, r, i));
        }
    }
}

static void broadcast(muster_group_t *group, struct buffers *buffers, struct draw *draw, uint32_t salt) {
    size_t count = draw_count(draw);
    int root = (int)below(draw, (uint32_t)muster_group_size(group));
    for (size_t i = 0; i < count; i++) {
        buffers->out[i] = muster_group_rank(group) == root ? element(salt, root, i) : -1;
    }
    CHECK_OK(muster_broadcast(group, buffers->out, count, MUSTER_INT64, root));
    for (size_t i = 0; i < count; i++) {
        CHECK(buffers->out[i] == element(salt, root, i));
    }
}

static void play(muster_cluster_t *cluster, int index, void *context) {
    struct draw draw = {*(uint64_t *)context}; /* the same on every rank */
    struct draw own = {draw.state + (uint64_t)index};
    int size = muster_group_size(muster_universe(cluster));
    struct buffers buffers = {malloc(COUNT_MAX * sizeof(int64_t)), malloc(COUNT_MAX * sizeof(int64_t) * (size_t)size)};
    CHECK(buffers.in != NULL && buffers.out != NULL);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t kind = below(&draw, 8);
        uint32_t where = below(&draw, 3);
        muster_group_t *group = where == 0   ? muster_universe(cluster)
                                : where == 1 ? muster_servers(cluster)
                                             : muster_world(cluster);
        struct draw call = {draw.state};
        if (muster_group_rank(group) < 0) {
            continue;
        }
        for (uint32_t i = below(&own, 4); i > 0; i--) {
            usleep(1); /* some come later than others; beside other programs a yield may cost a turn of each of them */
        }
        switch (kind) {
        case 0: CHECK_OK(muster_barrier(group)); break;
        case 1: case 2: broadcast(group, &buffers, &call, step); break;
        case 3: case 4: gather(group, &buffers, &call, step); break;
        default: reduce(group, &buffers, &call, step); break;
        }
    }
    free(buffers.in);
    free(buffers.out);
}

static void run(uint64_t seed) {
    static const char *const without_checksums[] = {"checksums", "0", NULL};
    struct draw draw = {seed};
    int workers = 1 + (int)below(&draw, 7);
    int servers = (int)below(&draw, 4);
    struct plan plan = {.workers = workers, .servers = servers, .body = play, .context = &seed};
    plan.settings = below(&draw, 2) == 0 ? without_checksums : NULL;
    printf("seed %llu: %d workers, %d servers, checksums %s\n", (unsigned long long)seed, workers, servers,
           plan.settings == NULL ? "on" : "off");
    fflush(stdout);
    run_nodes(&plan);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        run(strtoull(argv[1], NULL, 10));
        return 0;
    }
    for (uint64_t seed = 1; seed <= 12; seed++) {
        run(seed);
    }
    return 0;
}
