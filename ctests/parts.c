/* Collectives whose parts differ in size, over real links, against computed answers; and ranks that disagree about a count. */
#include "check.h"
#include "nodes.h"

#include <stdlib.h>

enum { MOST = 7, MOST_WHERE_WATCHED = 4 };

/* How many elements go from one rank to another: anything from none to a few thousand. */
static size_t between(int from, int to) {
    return (size_t)((from * 31 + to * 17) % 5) * (size_t)(from + 2 * to + 1) * 37;
}

static int64_t element(int from, int to, size_t i) { return (int64_t)from * 1000000 + (int64_t)to * 10000 + (int64_t)i; }

/* Parts in an order that is not that of the ranks, with gaps. Returns how long the buffer must be. */
static size_t lay_out(int size, const size_t *counts, size_t *displs) {
    size_t end = 3;
    for (int at = 0; at < size; at++) {
        int rank = size % 2 == 0 ? size - 1 - at : (at * 2 + 1) % size;
        displs[rank] = end;
        end += counts[rank] + 2;
    }
    return end;
}

struct block {
    int64_t *bytes;
    size_t length;
};

static struct block block(size_t length) {
    struct block block = {malloc(length * sizeof(int64_t) + 1), length};
    CHECK(block.bytes != NULL);
    memset(block.bytes, 0x5a, length * sizeof(int64_t));
    return block;
}

/* Every element of `out` that belongs to a part is what `from` sent; the rest is untouched. */
static void check_parts(struct block out, int size, int to, const size_t *counts, const size_t *displs, int for_all) {
    char *seen = calloc(out.length + 1, 1);
    for (int from = 0; from < size; from++) {
        for (size_t i = 0; i < counts[from]; i++) {
            CHECK(out.bytes[displs[from] + i] == element(from, for_all ? 0 : to, i));
            seen[displs[from] + i] = 1;
        }
    }
    for (size_t i = 0; i < out.length; i++) {
        CHECK(seen[i] || out.bytes[i] == 0x5a5a5a5a5a5a5a5a);
    }
    free(seen);
}

static void vectors(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    int size = muster_size(cluster);
    size_t give[MOST], give_at[MOST], take[MOST], take_at[MOST];
    (void)context;
    for (int peer = 0; peer < size; peer++) {
        give[peer] = between(rank, peer);
        take[peer] = between(peer, rank);
    }
    struct block in = block(lay_out(size, give, give_at)), out = block(lay_out(size, take, take_at));
    for (int peer = 0; peer < size; peer++) {
        for (size_t i = 0; i < give[peer]; i++) {
            in.bytes[give_at[peer] + i] = element(rank, peer, i);
        }
    }
    CHECK_OK(muster_alltoallv(world, in.bytes, give, give_at, out.bytes, take, take_at, MUSTER_INT64));
    check_parts(out, size, rank, take, take_at, 0);
    free(in.bytes);
    free(out.bytes);

    /* What each rank gives to all: gathered by everyone, and by each root in turn; and scattered back. */
    size_t counts[MOST], displs[MOST];
    for (int peer = 0; peer < size; peer++) {
        counts[peer] = between(peer, 1);
    }
    size_t length = lay_out(size, counts, displs);
    struct block own = block(counts[rank]);
    for (size_t i = 0; i < counts[rank]; i++) {
        own.bytes[i] = element(rank, 0, i);
    }
    for (int root = -1; root < size; root++) {
        struct block all = block(length);
        muster_request_t *request = NULL;
        if (root < 0) {
            CHECK_OK(muster_allgatherv(world, own.bytes, counts[rank], all.bytes, counts, displs, MUSTER_INT64));
        } else if (root % 2 == 0) {
            CHECK_OK(muster_gatherv(world, own.bytes, counts[rank], all.bytes, counts, displs, MUSTER_INT64, root));
        } else {
            CHECK_OK(muster_igatherv(world, own.bytes, counts[rank], rank == root ? all.bytes : NULL,
                                     rank == root ? counts : NULL, rank == root ? displs : NULL,
                                     MUSTER_INT64, root, &request));
            CHECK_OK(muster_request_wait(request, -1));
            muster_request_free(request);
        }
        if (root < 0 || root == rank) {
            check_parts(all, size, rank, counts, displs, 1);
        }
        if (root >= 0) {
            struct block back = block(counts[rank]);
            CHECK_OK(muster_scatterv(world, all.bytes, counts, displs, back.bytes, counts[rank], MUSTER_INT64, root));
            CHECK(memcmp(back.bytes, own.bytes, counts[rank] * sizeof(int64_t)) == 0);
            free(back.bytes);
        }
        free(all.bytes);
    }
    free(own.bytes);
}

/* One rank has another count than the others think. */
enum which { GATHER, SCATTER, ALL_TO_ALL, ALL_GATHER, REDUCE_SCATTER, WHICH };

static void disagree(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    size_t counts[] = {4, 4, 4}, other[] = {4, 4, 4};
    int32_t in[16] = {0}, out[16];
    enum which which = *(enum which *)context;
    muster_status_t status = MUSTER_OK;
    if (rank == 2) {
        counts[2] = which == ALL_GATHER || which == REDUCE_SCATTER ? 5 : counts[2];
        counts[0] = which == ALL_TO_ALL ? 5 : counts[0];
    }
    if (which == GATHER) {
        status = muster_gatherv(world, in, rank == 2 ? 3 : 4, out, counts, NULL, MUSTER_INT32, 0);
    } else if (which == SCATTER) {
        status = muster_scatterv(world, in, counts, NULL, out, rank == 2 ? 3 : 4, MUSTER_INT32, 0);
    } else if (which == ALL_TO_ALL) {
        status = muster_alltoallv(world, in, counts, NULL, out, other, NULL, MUSTER_INT32);
    } else if (which == ALL_GATHER) {
        status = muster_allgatherv(world, in, counts[rank], out, counts, NULL, MUSTER_INT32);
    } else {
        status = muster_reduce_scatterv(world, in, out, counts, MUSTER_INT32, MUSTER_SUM);
    }
    if (status == MUSTER_OK) { /* it needed no rank that disagrees: the next call says so */
        status = muster_barrier(world);
    }
    CHECK_IS(MUSTER_ERR_MISMATCH, status);
    CHECK_CONTAINS(muster_last_error(), "rank 2");
    char words[1024];
    CHECK_OK(muster_cluster_error(cluster, words, sizeof words, NULL));
    CHECK_CONTAINS(words, which == GATHER || which == SCATTER || which == ALL_TO_ALL ? " elements in " : "counts ");
}

int main(void) {
    struct plan plan = {.node_ids = rank_ids, .body = vectors};
    for (plan.workers = 1; plan.workers <= less_where_watched(MOST, MOST_WHERE_WATCHED); plan.workers++) {
        run_nodes(&plan);
    }
    plan.workers = 3;
    plan.body = disagree;
    for (enum which which = GATHER; which < WHICH; which++) {
        plan.context = &which;
        run_nodes(&plan);
    }
    return 0;
}
