/* With recovery: what is pending when a rank is lost. Messages and collectives that are not waited for end with the loss.
 * So does a wait for a key of the store. A change of the store that is under way is answered. In the next epoch all work
 * again, even while another scheduler takes over. Time-outs and operations stay what they were. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 3, LOST = 2, LIMIT_MS = 25000, TIMEOUT_MS = 4000 };

/* A key that nobody sets before the loss: the rank that would set it may be the one that is lost. */
static void *gets(void *argument) {
    muster_cluster_t *cluster = argument;
    void *value = NULL;
    size_t length = 0;
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_store_get(cluster, "answer", LIMIT_MS * patience(), &value, &length));
    return NULL;
}

static void *gets_again(void *argument) {
    muster_cluster_t *cluster = argument;
    void *value = NULL;
    size_t length = 0;
    CHECK_OK(muster_store_get(cluster, "answer", LIMIT_MS * patience(), &value, &length));
    CHECK(length == 2 && strcmp(value, "42") == 0);
    muster_free(value);
    const char *keys[] = {"answer", "last"};
    CHECK_OK(muster_store_wait(cluster, keys, 2, LIMIT_MS * patience()));
    return NULL;
}

struct adder {
    muster_cluster_t *cluster;
    int64_t done;
};

/* Adds until it is told that somebody is lost: then it must know how often it has added. */
static void *adds(void *argument) {
    struct adder *adder = argument;
    muster_status_t status;
    int64_t number = 0;
    while ((status = muster_store_add(adder->cluster, "count", 1, &number)) == MUSTER_OK) {
        adder->done++;
    }
    CHECK_IS(MUSTER_ERR_PEER_LOST, status);
    return NULL;
}

static void largest(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    (void)dtype;
    CHECK_IS(7, *(int *)ctx);
    for (size_t i = 0; i < count; i++) {
        if (((const int64_t *)in)[i] > ((int64_t *)inout)[i]) {
            ((int64_t *)inout)[i] = ((const int64_t *)in)[i];
        }
    }
}

static void ends_with_the_loss(muster_request_t *request) {
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_request_wait(request, LIMIT_MS * patience()));
    CHECK_CONTAINS(muster_last_error(), "rank 2");
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_request_test(request));
}

static void reduces(muster_group_t *world, int32_t op, int rank) {
    int64_t mine = rank * 10, most = 0;
    CHECK_OK(muster_allreduce(world, &mine, &most, 1, MUSTER_INT64, op));
    CHECK_IS((SIZE - 1) * 10, most);
}

/* Everything that is pending when the rank is lost: all of it ends with the loss. */
static void is_there_before_the_loss(muster_cluster_t *cluster, int rank, struct ranks *ranks, struct adder *adder) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    pthread_t thread, adding;
    if (rank == LOST) {
        CHECK(sem_post(&note->ready) == 0);
        await(&note->go); /* it is killed here */
    }
    CHECK(pthread_create(&thread, NULL, gets, cluster) == 0);
    CHECK(pthread_create(&adding, NULL, adds, adder) == 0);
    int64_t in[3] = {0}, out[4] = {0};
    muster_request_t *sent = NULL, *received = NULL, *any = NULL, *reduced = NULL;
    static char large[4 << 20];
    CHECK_OK(muster_irecv(world, &in[0], 1, MUSTER_INT64, LOST, 1, NULL, 0, &received));
    CHECK_OK(muster_irecv(world, &in[1], 1, MUSTER_INT64, MUSTER_ANY_SOURCE, 2, NULL, 0, &any));
    CHECK_OK(muster_isend(world, large, sizeof large, MUSTER_UINT8, LOST, 3, &sent));
    CHECK_OK(muster_iallreduce(world, &out[0], &out[1], 1, MUSTER_INT64, MUSTER_SUM, &reduced));
    CHECK(sem_post(&note->ready) == 0);
    ends_with_the_loss(reduced);
    ends_with_the_loss(received);
    ends_with_the_loss(any);
    ends_with_the_loss(sent);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_join(adding, NULL) == 0);
    CHECK(sem_post(&note->ready) == 0);
    CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_request_test(sent)); /* what has ended stays so */
    muster_request_free(reduced);
    muster_request_free(received);
    muster_request_free(any);
    muster_request_free(sent);
    /* The group's time-out is what it was. */
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recv(world, &in[2], 1, MUSTER_INT64, LOST, 9, NULL, 0));
}

static void works(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    static int seven = 7;
    int32_t op = 0;
    CHECK_OK(muster_op_create(cluster, largest, &seven, 0, &op));
    pthread_t thread;
    struct adder adder = {.cluster = cluster};
    int64_t number = 0;
    if (muster_epoch(cluster) == 1) {
        CHECK_OK(muster_group_set_timeout(world, TIMEOUT_MS * patience()));
        reduces(world, op, rank);
        CHECK_OK(muster_barrier(world));
        is_there_before_the_loss(cluster, rank, ranks, &adder);
    }
    CHECK_IS(2, muster_epoch(cluster));
    int64_t mine = rank, theirs = -1;
    muster_request_t *request = NULL;
    CHECK_OK(muster_isend(world, &mine, 1, MUSTER_INT64, (rank + 1) % SIZE, 1, &request));
    CHECK_OK(muster_recv(world, &theirs, 1, MUSTER_INT64, (rank + 2) % SIZE, 1, NULL, 0));
    CHECK_IS((rank + 2) % SIZE, theirs);
    CHECK_OK(muster_request_wait(request, -1));
    muster_request_free(request);
    reduces(world, op, rank);
    int64_t sum = 0;
    CHECK_OK(muster_allreduce(world, &adder.done, &sum, 1, MUSTER_INT64, MUSTER_SUM));
    CHECK_OK(muster_store_add(cluster, "count", 0, &number));
    CHECK_IS(sum, number); /* what was added counts once; what is called not added was not added */
    if (rank != LOST) {
        CHECK(pthread_create(&thread, NULL, gets_again, cluster) == 0);
    }
    CHECK(sem_post(&note->ready) == 0);
    await(&ranks->note[1].go); /* the parent has started another scheduler */
    CHECK_OK(muster_barrier(world));
    if (rank == LOST) {
        CHECK_OK(muster_store_set(cluster, "answer", "42", 2));
        CHECK_OK(muster_store_set(cluster, "last", "", 0));
    } else {
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void await_all(struct ranks *ranks, int count) {
    for (int rank = 0; rank < count; rank++) {
        await(&ranks->note[rank].ready);
    }
}

int main(void) {
    char path[] = "/tmp/muster-pending-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, "node_timeout", "2", NULL};
    struct ranks *ranks = ranks_start(SIZE, works, settings);
    await_all(ranks, SIZE);
    ranks_kill(ranks, LOST);
    ranks_await(ranks, LOST);
    await_all(ranks, LOST);
    ranks_start_rank(ranks, LOST);
    await_all(ranks, SIZE);
    ranks_kill_scheduler(ranks);
    ranks_start_scheduler(ranks);
    for (int rank = 0; rank < SIZE; rank++) {
        CHECK(sem_post(&ranks->note[1].go) == 0);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
    return 0;
}
