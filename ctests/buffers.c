/* What the library does with the caller's memory: an input may be read-only, nothing has to be aligned, and a buffer's
 * neighbours stay as they are. */
#include "check.h"
#include "nodes.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { COUNT = 70001, SIZE = 3 };

static const char greeting[] = "in read-only memory";

/* Pages that can be read, and not written. */
static float *sealed(int rank) {
    size_t bytes = COUNT * sizeof(float);
    float *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(values != MAP_FAILED);
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 100 + (size_t)rank);
    }
    CHECK(mprotect(values, bytes, PROT_READ) == 0);
    return values;
}

static void inputs_are_only_read(muster_group_t *world, int rank) {
    float *in = sealed(rank);
    float *out = malloc(COUNT * SIZE * sizeof(float));
    char text[sizeof greeting] = "";
    CHECK(out != NULL);
    CHECK_OK(muster_allreduce(world, in, out, COUNT, MUSTER_FLOAT32, MUSTER_SUM));
    CHECK(out[COUNT - 1] == (float)((COUNT - 1) % 100 * SIZE + 0 + 1 + 2));
    CHECK_OK(muster_allreduce(world, in, out, 3, MUSTER_FLOAT32, MUSTER_SUM)); /* another algorithm */
    CHECK(out[2] == 2 * SIZE + 3);
    CHECK_OK(muster_allgather(world, in, out, COUNT, MUSTER_FLOAT32));
    for (int r = 0; r < SIZE; r++) {
        CHECK(out[(size_t)r * COUNT] == (float)r);
    }
    CHECK_OK(muster_broadcast(world, rank == 1 ? (void *)(uintptr_t)greeting : text, sizeof text, MUSTER_UINT8, 1));
    CHECK(rank == 1 || strcmp(text, greeting) == 0);
    CHECK_OK(muster_broadcast(world, rank == 0 ? in : out, COUNT, MUSTER_FLOAT32, 0));
    CHECK(rank == 0 || out[COUNT - 1] == (float)((COUNT - 1) % 100));
    free(out);
    CHECK(munmap(in, COUNT * sizeof(float)) == 0);
}

/* Elements at odd addresses, and the bytes before and behind them. */
static void odd_addresses(muster_group_t *world, int rank, size_t count, int32_t dtype, size_t width) {
    size_t bytes = count * width;
    for (size_t shift = 1; shift < width; shift += 2) {
        unsigned char *in = malloc(bytes + 32);
        unsigned char *out = malloc(bytes * SIZE + 32);
        CHECK(in != NULL && out != NULL);
        memset(in, 0, bytes + 32);
        memset(out, 0xee, bytes * SIZE + 32);
        for (size_t i = 0; i < count; i++) {
            double wide = (double)(i % 50 + (size_t)rank);
            float narrow = (float)wide;
            memcpy(in + shift + i * width, width == 8 ? (void *)&wide : (void *)&narrow, width);
        }
        CHECK_OK(muster_allreduce(world, in + shift, out + shift, count, dtype, MUSTER_SUM));
        for (size_t i = 0; i < count; i++) {
            double wide = 0;
            float narrow = 0;
            memcpy(width == 8 ? (void *)&wide : (void *)&narrow, out + shift + i * width, width);
            CHECK((width == 8 ? wide : (double)narrow) == (double)(i % 50 * SIZE + 0 + 1 + 2));
        }
        CHECK(out[shift - 1] == 0xee && out[shift + bytes] == 0xee);
        CHECK_OK(muster_allgather(world, in + shift, out + shift, count, dtype));
        CHECK(memcmp(out + shift + bytes * (size_t)rank, in + shift, bytes) == 0);
        CHECK(out[shift - 1] == 0xee && out[shift + bytes * SIZE] == 0xee);
        free(in);
        free(out);
    }
}

static void body(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    (void)index, (void)context;
    inputs_are_only_read(world, rank);
    odd_addresses(world, rank, 5, MUSTER_FLOAT32, 4);
    odd_addresses(world, rank, 5, MUSTER_FLOAT64, 8);
    odd_addresses(world, rank, COUNT, MUSTER_FLOAT32, 4);
    odd_addresses(world, rank, COUNT, MUSTER_FLOAT64, 8);
}

int main(void) {
    struct plan plan = {.workers = SIZE, .node_ids = rank_ids, .body = body};
    run_nodes(&plan);
    return 0;
}
