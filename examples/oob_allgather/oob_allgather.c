/* An out-of-band all-gather: the shape in which other libraries (UCC, NVIDIA's math libraries) ask the program for
 * their first exchange. They want three plain functions and a `void *`: one that starts an all-gather of bytes, one that
 * tests whether it is done, and one that frees what it left. The adapter below is all that is needed; what follows it plays the
 * library that calls them, in every order that it may.
 *
 * Started once with MS_ROLE=MS_SCHED and N times with MS_ROLE=MS_WORKER.
 */
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What such a library defines: 0 is done, 1 is still going on, anything below is an error. */
struct oob {
    int (*allgather)(void *mine, void *all, size_t length, void *info, void **request);
    int (*test)(void *request);
    int (*free)(void *request);
    void *info;
    uint32_t ranks;
    uint32_t rank;
};

/* ---- The adapter. `info` is the group. muster's MUSTER_OK and MUSTER_IN_PROGRESS are 0 and 1, its errors negative. */

static int oob_allgather(void *mine, void *all, size_t length, void *info, void **request) {
    muster_request_t *started = NULL;
    muster_status_t status = muster_iallgather(info, mine, all, length, MUSTER_UINT8, &started);
    if (status == MUSTER_OK) {
        *request = started;
    }
    return status;
}

static int oob_test(void *request) { return muster_request_test(request); }

static int oob_free(void *request) {
    muster_request_free(request);
    return MUSTER_OK;
}

static struct oob oob_of(muster_group_t *group) {
    struct oob oob = {oob_allgather, oob_test, oob_free, group, 0, 0};
    oob.ranks = (uint32_t)muster_group_size(group);
    oob.rank = (uint32_t)muster_group_rank(group);
    return oob;
}

/* ---- The library's side: it knows nothing of muster, but for the words of an error. */

enum { FLIGHT = 6, LONGEST = 100000 };

struct gathering {
    unsigned char *mine;
    unsigned char *all;
    size_t length;
    void *request;
};

static void give_up(const char *what) {
    fprintf(stderr, "oob_allgather: %s: %s\n", what, muster_last_error());
    exit(EXIT_FAILURE);
}

static unsigned char byte_of(uint32_t rank, size_t at, size_t length) {
    return (unsigned char)(rank * 31 + at * 7 + length);
}

static struct gathering start(const struct oob *oob, size_t length) {
    struct gathering one = {malloc(length + 1), malloc(length * oob->ranks + 1), length, NULL};
    if (one.mine == NULL || one.all == NULL) {
        give_up("no memory");
    }
    for (size_t at = 0; at < length; at++) {
        one.mine[at] = byte_of(oob->rank, at, length);
    }
    if (oob->allgather(one.mine, one.all, length, oob->info, &one.request) < 0) {
        give_up("allgather");
    }
    return one;
}

/* Tests once. Returns whether it is done. */
static int is_done(const struct oob *oob, const struct gathering *one) {
    int status = oob->test(one->request);
    if (status < 0) {
        give_up("test");
    }
    return status == 0;
}

/* Checks every byte, and frees what is done. */
static void finish(const struct oob *oob, struct gathering *one) {
    for (uint32_t rank = 0; rank < oob->ranks; rank++) {
        for (size_t at = 0; at < one->length; at++) {
            if (one->all[rank * one->length + at] != byte_of(rank, at, one->length)) {
                fprintf(stderr, "oob_allgather: byte %zu of rank %u is wrong\n", at, rank);
                exit(EXIT_FAILURE);
            }
        }
    }
    if (oob->free(one->request) < 0) {
        give_up("free");
    }
    free(one->mine);
    free(one->all);
}

static void one_after_another(const struct oob *oob) {
    static const size_t lengths[] = {1, 0, 8, 128, 4108, LONGEST};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct gathering one = start(oob, lengths[i]);
        while (!is_done(oob, &one)) {
        }
        if (!is_done(oob, &one)) { /* it stays done */
            give_up("test after it was done");
        }
        finish(oob, &one);
    }
}

/* Several are in flight; they are tested from the last to the first, and freed in yet another order. */
static void several_in_flight(const struct oob *oob) {
    struct gathering flight[FLIGHT];
    for (size_t i = 0; i < FLIGHT; i++) {
        flight[i] = start(oob, 1 + i * i * i * 97);
    }
    for (int left = FLIGHT; left > 0;) {
        left = 0;
        for (int i = FLIGHT - 1; i >= 0; i--) {
            left += !is_done(oob, &flight[i]);
        }
    }
    for (size_t i = 0; i < FLIGHT; i++) {
        finish(oob, &flight[(i * 5 + 2) % FLIGHT]);
    }
}

/* Rank 0 starts and tests before anybody else has started: it must be told that it goes on, and must not wait. */
static int before_the_others(const struct oob *oob, muster_cluster_t *cluster, int round) {
    char key[32];
    const char *keys[] = {key};
    snprintf(key, sizeof key, "oob tested %d", round);
    if (oob->rank != 0 && muster_store_wait(cluster, keys, 1, -1) != MUSTER_OK) {
        give_up("muster_store_wait");
    }
    struct gathering one = start(oob, 64);
    int early = oob->rank == 0 && oob->ranks > 1 && !is_done(oob, &one);
    if (oob->rank == 0 && muster_store_set(cluster, key, "", 0) != MUSTER_OK) {
        give_up("muster_store_set");
    }
    while (!is_done(oob, &one)) {
    }
    finish(oob, &one);
    return early;
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    muster_status_t status = muster_init(NULL, &cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        give_up("muster_init");
    }
    struct oob oob = oob_of(muster_world(cluster));
    int early = 0;
    one_after_another(&oob);
    several_in_flight(&oob);
    for (int round = 0; round < 3; round++) {
        early += before_the_others(&oob, cluster, round);
    }
    printf("rank %u of %u: one after another, %d in flight, %d tested before the others had started: all right\n", oob.rank,
           oob.ranks, FLIGHT, early);
    if (muster_finalize(cluster) != MUSTER_OK) {
        give_up("muster_finalize");
    }
    muster_cluster_free(cluster);
    return EXIT_SUCCESS;
}
