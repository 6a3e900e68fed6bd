/* How messages end that do not arrive: what ends only one call, and what ends them all, with one true cause. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>

enum { KIB = 1 << 10, MIB = 1 << 20, RANKS = 3, MEMORY = 64 * MIB };

/* What is in it does not matter here. */
static uint8_t memories[RANKS][MEMORY];

static muster_request_t *irecv(muster_group_t *group, size_t count, int from, int tag) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_irecv(group, memories[muster_group_rank(group)] + MEMORY - MIB, count, MUSTER_UINT8, from, tag, NULL, 0, &request));
    return request;
}

static muster_request_t *isend(muster_group_t *group, size_t count, int to, int tag) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_isend(group, memories[muster_group_rank(group)], count, MUSTER_UINT8, to, tag, &request));
    return request;
}

/* The messages of the group still go both ways, and so do its collectives. */
static void still_works(muster_group_t *world, int rank) {
    int32_t mine = rank, other = -1, size = muster_group_size(world), next = (rank + 1) % size;
    CHECK_OK(muster_sendrecv(world, &mine, 1, MUSTER_INT32, next, 99, &other, 1, MUSTER_INT32, MUSTER_ANY_SOURCE, 99, NULL, 0));
    CHECK(other == (rank + size - 1) % size);
    CHECK_OK(muster_barrier(world));
}

/* A message that does not fit ends its receive alone; its sender hears of it where it still waits. */
static void misfits(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *memory = memories[rank];
    (void)context;
    for (int early = 0; early < 2; early++) { /* the receive comes first, or the message */
        for (int large = 0; large < 2; large++) {
            size_t count = large ? MIB : KIB;
            if (rank == 0) {
                CHECK_OK(early ? muster_recv(world, NULL, 0, MUSTER_INT8, 1, 50, NULL, 0) : MUSTER_OK);
                for (int other = 0; other < 3; other++) {
                    muster_status_t status = muster_send(world, memory, count / 4, MUSTER_FLOAT32, 1, 1);
                    CHECK_IS(large ? MUSTER_ERR_MISMATCH : MUSTER_OK, status);
                    if (large) {
                        CHECK_CONTAINS(muster_last_error(), "sent 262144 float32 where rank 1 (node id \"1\"");
                    }
                }
            } else {
                muster_request_t *requests[2];
                muster_received_t told[2];
                memset(told, 0x77, sizeof told);
                for (int other = 0; other < 2; other++) {
                    CHECK_OK(muster_irecv(world, memory, count / 4 - (other ? 1 : 0), other ? MUSTER_FLOAT32 : MUSTER_INT32, 0,
                                          1, &told[other], sizeof told[other], &requests[other]));
                }
                CHECK_OK(early ? muster_send(world, NULL, 0, MUSTER_INT8, 0, 50) : MUSTER_OK);
                CHECK_FAILS(MUSTER_ERR_MISMATCH, "receives at most", muster_request_wait(requests[0], -1));
                CHECK_CONTAINS(muster_last_error(), " int32");
                CHECK_FAILS(MUSTER_ERR_MISMATCH, large ? "receives at most 262143 float32" : "receives at most 255 float32",
                            muster_request_wait(requests[1], -1));
                for (int other = 0; other < 2; other++) { /* the call fails, and tells of the message all the same */
                    CHECK(told[other].source == 0 && told[other].tag == 1 && told[other].dtype == MUSTER_FLOAT32);
                    CHECK(told[other].count == count / 4);
                }
                muster_request_free(requests[0]);
                muster_request_free(requests[1]);
                memset(told, 0x77, sizeof told); /* a receive that waits tells as much */
                CHECK_FAILS(MUSTER_ERR_MISMATCH, "receives at most 1 float32",
                            muster_recv(world, memory, 1, MUSTER_FLOAT32, MUSTER_ANY_SOURCE, 1, told, sizeof *told));
                CHECK(told->source == 0 && told->tag == 1 && told->dtype == MUSTER_FLOAT32 && told->count == count / 4);
            }
            still_works(world, rank);
        }
    }
}

/* What muster_failure says while nothing is broken: the newest message whose time was up. */
static void late_for(muster_cluster_t *cluster, int rank, const char *words) {
    muster_failure_t failure;
    CHECK_OK(muster_failure(cluster, &failure, sizeof failure));
    CHECK(failure.status == MUSTER_ERR_TIMEOUT && failure.rank == rank && failure.group == 0 && failure.epoch == 1);
    CHECK_CONTAINS(failure.cause, words);
}

/* A time-out ends only one call, says which message did not come and from whom, and leaves nothing behind. */
static void times_out(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *memory = memories[rank];
    (void)context;
    if (rank == 0) {
        CHECK_OK(muster_group_set_timeout(world, 300));
        double before = now_s();
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "no such message has come within the 0.3 s",
                    muster_recv(world, memory, 10, MUSTER_UINT8, 1, 5, NULL, 0));
        CHECK_CONTAINS(muster_last_error(), "recv(10 uint8, tag 5) from rank 1 (node id \"1\"");
        CHECK_CONTAINS(muster_last_error(), "on world");
        late_for(cluster, 1, "is awaited in recv(10 uint8, tag 5) from rank 1");
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "from any rank on world",
                    muster_recv(world, memory, 10, MUSTER_UINT8, MUSTER_ANY_SOURCE, 5, NULL, 0));
        late_for(cluster, -1, "recv(10 uint8, tag 5) from any rank");
        muster_received_t untold = {.source = 77};
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "probe(tag 5) from rank 1 (node id \"1\"",
                    muster_probe(world, 1, 5, &untold, sizeof untold));
        CHECK(untold.source == 77);
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "it is not received", muster_send(world, memory, MIB, MUSTER_UINT8, 1, 5));
        late_for(cluster, 1, "it is not received");
        CHECK(now_s() - before < 10 * patience());
        CHECK_OK(muster_group_set_timeout(world, 0));
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "no such message", muster_recv(world, memory, 1, MUSTER_UINT8, 1, 6, NULL, 0));
        CHECK_OK(muster_group_set_timeout(world, -1));
        CHECK_OK(muster_send(world, memory, 0, MUSTER_UINT8, 1, 1));
        /* What comes now meets this receive, and none of those before. */
        muster_received_t received;
        CHECK_OK(muster_recv(world, memory, MIB, MUSTER_UINT8, 1, 5, &received, sizeof received));
        CHECK(received.count == 7);
        CHECK_OK(muster_send(world, memory, 2 * MIB, MUSTER_UINT8, 1, 5));
    } else {
        muster_received_t received;
        CHECK_OK(muster_recv(world, memory, 1, MUSTER_UINT8, 0, 1, NULL, 0));
        CHECK_OK(muster_send(world, memory, 7, MUSTER_UINT8, 0, 5));
        /* The message that was given up is not there. */
        CHECK_OK(muster_recv(world, memory, 2 * MIB, MUSTER_UINT8, 0, 5, &received, sizeof received));
        CHECK(received.count == 2 * MIB);
    }
    still_works(world, rank);
}

static void is_cancelled(muster_request_t *request) {
    CHECK_OK(muster_request_cancel(request));
    CHECK_FAILS(MUSTER_ERR_ABORTED, "was cancelled", muster_request_wait(request, -1));
    muster_request_free(request);
}

/* An operation that has not met its other half can be cancelled, and is gone. One that has ended stays as it ended. */
static void cancelled(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *memory = memories[rank];
    muster_request_t *request = NULL;
    (void)context;
    if (rank == 0) {
        is_cancelled(irecv(world, 100, 1, 5));
        is_cancelled(irecv(world, 100, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG));
        is_cancelled(isend(world, MIB, 1, 5));
        CHECK_OK(muster_isendrecv(world, memory, MIB, MUSTER_UINT8, 1, 5, memory + 32 * MIB, 1, MUSTER_UINT8, 1, 5, NULL, 0,
                                  &request));
        is_cancelled(request);
        CHECK_OK(muster_send(world, memory, 0, MUSTER_UINT8, 1, 6));
        CHECK_OK(muster_send(world, memory, 3, MUSTER_UINT8, 1, 5));
        request = irecv(world, 100, 1, 5);
        CHECK_OK(muster_request_wait(request, -1));
        CHECK_OK(muster_request_cancel(request));
        CHECK_OK(muster_request_test(request));
        muster_request_free(request);
    } else {
        /* Nothing is asked for before all is cancelled: what had met its other half by then would go on. */
        muster_received_t received;
        CHECK_OK(muster_recv(world, memory, 0, MUSTER_UINT8, 0, 6, NULL, 0));
        CHECK_OK(muster_recv(world, memory, MIB, MUSTER_UINT8, 0, 5, &received, sizeof received));
        CHECK(received.count == 3);
        CHECK_OK(muster_send(world, memory, 4, MUSTER_UINT8, 0, 5));
    }
    still_works(world, rank);
}

/* What this process has heard of that rank. */
static int32_t state_of(muster_group_t *group, int rank) {
    muster_member_t member;
    CHECK_OK(muster_group_member(group, rank, &member, sizeof member));
    return member.state;
}

/* A rank that has left is missed only by those that need it; what it sent before still counts. */
static void left(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *memory = memories[rank];
    muster_received_t received;
    (void)context;
    if (rank == 1) {
        CHECK_OK(muster_send(world, memory, 11, MUSTER_UINT8, 0, 1));
        CHECK_OK(muster_send(world, memory, 12, MUSTER_UINT8, 0, 2));
    } else if (rank == 0) {
        CHECK_OK(muster_recv(world, memory, 100, MUSTER_UINT8, 1, 2, &received, sizeof received));
        muster_request_t *any = irecv(world, 100, MUSTER_ANY_SOURCE, 7);
        CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "rank 1 (node id \"1\"", muster_recv(world, memory, 100, MUSTER_UINT8, 1, 3, NULL, 0));
        CHECK_CONTAINS(muster_last_error(), "has left the cluster");
        CHECK_IS(MUSTER_MEMBER_LEFT, state_of(world, 1));
        CHECK_IS(MUSTER_MEMBER_LEFT, state_of(muster_universe(cluster), 1));
        CHECK_IS(MUSTER_MEMBER_PRESENT, state_of(world, 2));
        CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "has left the cluster", muster_probe(world, 1, 3, &received, sizeof received));
        CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "has left the cluster", muster_iprobe(world, 1, 3, &received, sizeof received));
        CHECK_OK(muster_probe(world, 1, MUSTER_ANY_TAG, &received, sizeof received)); /* what it sent before */
        CHECK(received.tag == 1 && received.count == 11);
        CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "has left the cluster", muster_send(world, memory, 1, MUSTER_UINT8, 1, 3));
        CHECK_OK(muster_recv(world, memory, 100, MUSTER_UINT8, 1, 1, &received, sizeof received));
        CHECK(received.count == 11);
        CHECK_IS(MUSTER_IN_PROGRESS, muster_request_test(any));
        CHECK_OK(muster_send(world, memory, 1, MUSTER_UINT8, 2, 7));
        CHECK_OK(muster_request_wait(any, -1));
        muster_request_free(any);
    } else {
        CHECK_OK(muster_recv(world, memory, 100, MUSTER_UINT8, 0, 7, NULL, 0));
        CHECK_OK(muster_send(world, memory, 100, MUSTER_UINT8, 0, 7));
    }
}

/* A revoked group: its messages end with its first cause, and so does every later one. */
static void revoked(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *memory = memories[rank];
    (void)context;
    muster_failure_t failure;
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_failure(cluster, &failure, sizeof failure));
    CHECK_OK(muster_group_set_timeout(world, 100));
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recv(world, memory, 1, MUSTER_UINT8, (rank + 1) % 3, 77, NULL, 0));
    late_for(cluster, (rank + 1) % 3, "no such message has come");
    CHECK_OK(muster_group_set_timeout(world, -1));
    muster_request_t *never = irecv(world, 10, MUSTER_ANY_SOURCE, 9);
    muster_request_t *large = isend(world, MIB, (rank + 1) % 3, 8);
    if (rank == 2) {
        CHECK_IS(MUSTER_ERR_MISMATCH, muster_barrier(world));
    } else {
        int32_t value = 0;
        CHECK_IS(MUSTER_ERR_MISMATCH, muster_allreduce(world, &value, &value, 1, MUSTER_INT32, MUSTER_SUM));
    }
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "barrier()", muster_request_wait(never, -1));
    muster_request_free(never);
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "barrier()", muster_request_wait(large, -1));
    muster_request_free(large);
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "barrier()", muster_send(world, memory, 1, MUSTER_UINT8, rank, 1));
    muster_received_t untold = {.source = 77};
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "barrier()", muster_probe(world, 0, 1, &untold, sizeof untold));
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "barrier()", muster_iprobe(world, 0, 1, &untold, sizeof untold));
    CHECK(untold.source == 77);
    CHECK_OK(muster_failure(cluster, &failure, sizeof failure));
    CHECK(failure.status == MUSTER_ERR_MISMATCH); /* what broke it, and no longer what was late */
}

/* Requests outlive the groups and clusters that they were made on. A request that had not ended says that this process has
 * left. */
static void outlived(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *group = NULL;
    (void)context;
    CHECK_OK(muster_group_split(muster_world(cluster), 0, rank, &group));
    muster_request_t *request = irecv(group, 10, 1 - rank, 5);
    muster_group_free(group);
    muster_status_t status = muster_request_wait(request, -1);
    CHECK(status == MUSTER_ERR_STATE || status == MUSTER_ERR_PEER_LEFT);
    muster_request_free(request);
    request = irecv(muster_world(cluster), 10, 1 - rank, 5);
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_finalize(cluster));
    status = muster_request_wait(request, -1);
    CHECK(status == MUSTER_ERR_STATE || status == MUSTER_ERR_PEER_LEFT);
    muster_request_free(request);
}

static void run(int workers, node_body body) {
    static const char *const settings[] = {"timeout", "30", NULL};
    struct plan plan = {.workers = workers, .node_ids = rank_ids, .settings = settings, .body = body};
    run_nodes(&plan);
}

enum { KILLED = 1 };

/* Everybody waits for a message, from the one that is killed or from another; it is in the middle of a long one. */
static void until_killed(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *memory = memories[rank];
    struct note *note = &ranks->note[rank];
    if (rank == KILLED) {
        muster_request_t *request = isend(world, MEMORY, 0, 5);
        CHECK_OK(muster_barrier(world));
        CHECK(sem_post(&note->ready) == 0);
        CHECK_OK(muster_request_wait(request, -1));
        CHECK_OK(muster_recv(world, memory, 1, MUSTER_UINT8, 0, 6, NULL, 0)); /* never */
    }
    CHECK_OK(muster_barrier(world));
    CHECK(sem_post(&note->ready) == 0);
    /* Rank 2 waits for nothing of the killed one. */
    int from = rank == 0 ? KILLED : 0;
    double before = now_s();
    muster_status_t status = muster_recv(world, memory, MEMORY, MUSTER_UINT8, from, 7, NULL, 0);
    note->took_s = now_s() - before;
    keep_failure(note, cluster, status);
    muster_cluster_free(cluster);
}

static void killed(void) {
    static const char *const settings[] = {"timeout", "30", NULL};
    struct ranks *ranks = ranks_start(3, until_killed, settings);
    for (int rank = 0; rank < 3; rank++) {
        await(&ranks->note[rank].ready);
    }
    ranks_kill(ranks, KILLED);
    for (int rank = 0; rank < 3; rank++) {
        ranks_await(ranks, rank);
        if (rank != KILLED) {
            const struct note *note = &ranks->note[rank];
            CHECK_IS(MUSTER_ERR_PEER_LOST, note->status);
            CHECK_CONTAINS(note->words, "rank 1 (node id \"1\"");
            CHECK_CONTAINS(note->words, patience() >= 10 ? "lost" : "is lost"); /* if the scheduler is slow: "is probably lost" */
            CHECK(note->failure.rank == KILLED && note->took_s < 5 * patience());
        }
    }
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

int main(void) {
    killed(); /* forks, so first */
    run(2, misfits);
    run(2, times_out);
    run(2, cancelled);
    run(3, left);
    run(3, revoked);
    run(2, outlived);
    return 0;
}
