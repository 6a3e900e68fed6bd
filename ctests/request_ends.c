/* How a program with an event loop hears of the end of requests: a function that is called, a descriptor that can be read,
 * waits for any or all of several. This includes requests that fail or are freed, two clusters, and a forked child. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { SIZE = 2, MANY = 5 };

/* What a function was told. */
struct told {
    sem_t called;
    atomic_int times;
    muster_status_t status;
    pthread_t by;
    muster_request_t *frees; /* to be freed by the function */
    muster_cluster_t *cluster;
};

static void be_told(muster_status_t status, void *ctx) {
    struct told *told = ctx;
    told->status = status;
    told->by = pthread_self();
    if (told->cluster != NULL) { /* it may wait for the library */
        CHECK_OK(muster_store_add(told->cluster, "told", 1, NULL));
    }
    if (told->frees != NULL) {
        CHECK_IS(status, muster_request_test(told->frees));
        muster_request_free(told->frees);
    }
    atomic_fetch_add(&told->times, 1);
    CHECK(sem_post(&told->called) == 0);
}

static void prepare(struct told *told) {
    *told = (struct told){.status = MUSTER_IN_PROGRESS};
    CHECK(sem_init(&told->called, 0, 0) == 0);
}

static void heard(struct told *told, muster_status_t status) {
    await(&told->called);
    CHECK_IS(status, told->status);
    CHECK_IS(1, atomic_load(&told->times));
    CHECK(!pthread_equal(told->by, pthread_self()));
}

/* Rank 1 does this much of what rank 0 waits for. */
static void send_to_rank_0(muster_cluster_t *cluster, int32_t tag) {
    CHECK_OK(muster_send(muster_world(cluster), &tag, 1, MUSTER_INT32, 0, tag));
}

static muster_request_t *receive(muster_cluster_t *cluster, int32_t from, int32_t tag, int32_t *value) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_irecv(muster_world(cluster), value, 1, MUSTER_INT32, from, tag, NULL, 0, &request));
    return request;
}

static void proceed(muster_cluster_t *cluster, const char *key) { CHECK_OK(muster_store_set(cluster, key, "", 0)); }

static void until(muster_cluster_t *cluster, const char *key) {
    CHECK_OK(muster_store_wait(cluster, (const char *const[]){key}, 1, -1));
}

static void functions(muster_cluster_t *cluster, int rank, void *context) {
    int32_t values[4] = {0};
    struct told told[4];
    (void)context;
    if (rank == 1) {
        until(cluster, "asked");
        for (int32_t tag = 0; tag < 3; tag++) {
            send_to_rank_0(cluster, tag);
        }
        until(cluster, "done");
        return;
    }
    muster_request_t *requests[4];
    for (int32_t i = 0; i < 4; i++) {
        prepare(&told[i]);
        requests[i] = receive(cluster, 1, i, &values[i]);
    }
    told[0].cluster = cluster;
    told[1].frees = requests[1];
    for (int i = 0; i < 4; i++) {
        CHECK_OK(muster_request_notify(requests[i], be_told, &told[i]));
        CHECK_IS(0, atomic_load(&told[i].times));
    }
    CHECK_FAILS(MUSTER_ERR_STATE, "a function already", muster_request_notify(requests[0], be_told, &told[0]));
    proceed(cluster, "asked");
    muster_request_free(requests[2]); /* waits for the message, and for the function */
    CHECK_IS(1, atomic_load(&told[2].times));
    for (int i = 0; i < 3; i++) {
        heard(&told[i], MUSTER_OK);
        CHECK_IS(i, values[i]);
    }
    CHECK_OK(muster_request_cancel(requests[3])); /* nobody sends this one */
    heard(&told[3], MUSTER_ERR_ABORTED);
    CHECK_FAILS(MUSTER_ERR_ABORTED, "cancelled", muster_request_test(requests[3]));
    muster_request_free(requests[3]);
    /* A request that has ended is told of at once, and not by the caller. */
    struct told late;
    prepare(&late);
    CHECK_OK(muster_request_wait(requests[0], -1));
    muster_request_free(requests[0]);
    muster_request_t *ended = receive(cluster, 0, 9, &values[0]);
    CHECK_OK(muster_send(muster_world(cluster), &values[1], 1, MUSTER_INT32, 0, 9));
    CHECK_OK(muster_request_wait(ended, -1));
    CHECK_OK(muster_request_notify(ended, be_told, &late));
    heard(&late, MUSTER_OK);
    muster_request_free(ended);
    proceed(cluster, "done");
}

/* An operation that the end of its group ends, with the function's own cluster going on. */
static void a_group_that_ends(muster_cluster_t *cluster, int rank, void *context) {
    int32_t value = 0;
    (void)context;
    if (rank == 0) {
        struct told told;
        prepare(&told);
        muster_request_t *request = receive(cluster, 1, 1, &value);
        CHECK_OK(muster_request_notify(request, be_told, &told));
        proceed(cluster, "asked");
        heard(&told, MUSTER_ERR_REVOKED);
        CHECK_FAILS(MUSTER_ERR_REVOKED, "muster_recover", muster_request_test(request));
        muster_request_free(request);
    } else {
        until(cluster, "asked");
    }
    CHECK_OK(muster_recover(cluster, -1));
    CHECK_OK(muster_barrier(muster_world(cluster)));
}

static bool readable(int fd) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, 0) == 1 && polled.revents == POLLIN;
}

static void descriptors(muster_cluster_t *cluster, int rank, void *context) {
    int32_t values[2] = {0};
    (void)context;
    if (rank == 1) {
        until(cluster, "asked");
        send_to_rank_0(cluster, 0);
        until(cluster, "done"); /* a rank that leaves ends what waits for it */
        return;
    }
    muster_request_t *request = receive(cluster, 1, 0, &values[0]), *other = receive(cluster, 1, 1, &values[1]);
    int fd = muster_request_descriptor(request), second = muster_request_descriptor(other);
    CHECK(fd > 2 && second > 2 && fd != second);
    CHECK(!readable(fd) && !readable(second));
    proceed(cluster, "asked");
    struct pollfd polled[] = {{.fd = second, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    CHECK_IS(1, poll(polled, 2, -1));
    CHECK(polled[1].revents == POLLIN);
    CHECK_OK(muster_request_test(request));
    CHECK(readable(fd) && muster_request_descriptor(request) == fd);
    muster_request_free(request);
    CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    CHECK_OK(muster_request_cancel(other));
    CHECK_IS(MUSTER_ERR_ABORTED, muster_request_wait(other, -1));
    CHECK(readable(second));
    muster_request_free(other);
    proceed(cluster, "done");
}

static void any_and_all(muster_cluster_t *cluster, int rank, void *context) {
    muster_request_t *requests[MANY] = {NULL};
    int32_t values[MANY] = {0};
    size_t index = 77;
    (void)context;
    if (rank == 1) {
        for (int32_t tag = MANY - 1; tag >= 0; tag--) { /* the last first, each when the one before was heard of */
            char key[16];
            snprintf(key, sizeof key, "send %d", (int)tag);
            until(cluster, key);
            send_to_rank_0(cluster, tag);
        }
        until(cluster, "done");
        return;
    }
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "none of the 5", muster_request_wait_any(requests, MANY, -1, &index));
    CHECK_OK(muster_request_wait_all(requests, MANY, -1));
    for (int32_t i = 0; i < MANY; i++) {
        requests[i] = receive(cluster, 1, i, &values[i]);
    }
    CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait_any(requests, MANY, 0, &index));
    CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait_any(requests, MANY, 20, &index));
    CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait_all(requests, MANY, 20));
    CHECK(index == 77);
    for (int32_t i = MANY - 1; i >= 2; i--) {
        char key[16];
        snprintf(key, sizeof key, "send %d", (int)i);
        proceed(cluster, key);
        CHECK_OK(muster_request_wait_any(requests, MANY, -1, &index));
        CHECK_IS(i, index);
        CHECK_IS(i, values[i]);
        muster_request_free(requests[i]);
        requests[i] = NULL;
    }
    requests[2] = receive(cluster, 1, 99, &values[2]);
    CHECK_OK(muster_request_cancel(requests[2]));
    CHECK_FAILS(MUSTER_ERR_ABORTED, "cancelled", muster_request_wait_any(requests, MANY, -1, &index));
    CHECK_IS(2, index);
    proceed(cluster, "send 1");
    proceed(cluster, "send 0");
    CHECK_FAILS(MUSTER_ERR_ABORTED, "cancelled", muster_request_wait_all(requests, MANY, -1));
    CHECK_OK(muster_request_test(requests[0])); /* it has waited for the others nevertheless */
    CHECK_OK(muster_request_test(requests[1]));
    CHECK(values[0] == 0 && values[1] == 1);
    muster_request_free(requests[2]);
    requests[2] = NULL;
    CHECK_OK(muster_request_wait_all(requests, MANY, -1));
    muster_request_free(requests[0]);
    muster_request_free(requests[1]);
    proceed(cluster, "done");
}

static void run(node_body body) {
    const struct plan plan = {.workers = SIZE, .node_ids = rank_ids, .body = body};
    run_nodes(&plan);
}

/* ---- two clusters of one in this process ---- */

struct both {
    muster_request_t *requests[2];
    size_t index;
    muster_status_t status;
    int tid;
};

static void *wait_for_either(void *argument) {
    struct both *both = argument;
    own_thread_calls(&both->tid);
    both->status = muster_request_wait_any(both->requests, 2, -1, &both->index);
    return NULL;
}

static void two_clusters(void) {
    muster_cluster_t *cluster[2];
    int32_t values[2] = {0}, sent = 5;
    struct both both = {.index = 2};
    struct told told;
    pthread_t thread;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(muster_init(NULL, &cluster[i]));
        both.requests[i] = receive(cluster[i], 0, 0, &values[i]);
    }
    for (int i = 0; i < 2; i++) { /* it listens to both */
        both.tid = 0;
        CHECK(pthread_create(&thread, NULL, wait_for_either, &both) == 0);
        own_thread_sleeps(&both.tid);
        CHECK_OK(muster_interrupt(cluster[i]));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_IS(MUSTER_ERR_INTERRUPTED, both.status);
        CHECK_IS(2, both.index);
    }
    both.tid = 0;
    CHECK(pthread_create(&thread, NULL, wait_for_either, &both) == 0);
    own_thread_sleeps(&both.tid);
    CHECK_OK(muster_send(muster_world(cluster[1]), &sent, 1, MUSTER_INT32, 0, 0));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(both.status);
    CHECK(both.index == 1 && values[1] == 5);
    /* A cluster that goes ends what goes on, and tells of it before it is gone. */
    prepare(&told);
    CHECK_OK(muster_request_notify(both.requests[0], be_told, &told));
    CHECK_OK(muster_finalize(cluster[0]));
    muster_cluster_free(cluster[0]);
    CHECK_IS(1, atomic_load(&told.times));
    CHECK_IS(MUSTER_ERR_STATE, told.status);
    CHECK_IS(MUSTER_ERR_STATE, muster_request_wait_all(both.requests, 2, -1));
    muster_request_free(both.requests[0]);
    CHECK_OK(muster_finalize(cluster[1]));
    muster_cluster_free(cluster[1]);
    CHECK_FAILS(MUSTER_ERR_STATE, "has been freed", muster_request_notify(both.requests[1], be_told, &told));
    muster_request_free(both.requests[1]);
    CHECK(own_threads_are(1) && !own_sockets());
}

static void a_forked_child(void) {
    muster_cluster_t *cluster = NULL;
    struct told told;
    int32_t value = 0;
    size_t index = 0;
    CHECK_OK(muster_init(NULL, &cluster));
    muster_request_t *request = receive(cluster, 0, 0, &value);
    prepare(&told);
    CHECK_OK(muster_request_notify(request, be_told, &told));
    int fd = muster_request_descriptor(request);
    CHECK(fd > 2);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK_IS(MUSTER_ERR_FORKED, muster_request_notify(request, be_told, &told));
        CHECK_IS(MUSTER_ERR_FORKED, muster_request_descriptor(request));
        CHECK_IS(MUSTER_ERR_FORKED, muster_request_wait_any(&request, 1, -1, &index));
        CHECK_IS(MUSTER_ERR_FORKED, muster_request_wait_all(&request, 1, -1));
        CHECK_IS(MUSTER_ERR_FORKED, muster_interrupt(cluster));
        muster_request_free(request); /* touches nothing, and waits for nobody */
        muster_cluster_free(cluster);
        CHECK(fcntl(fd, F_GETFD) == -1);
        CHECK_IS(0, atomic_load(&told.times));
        _exit(0);
    }
    int status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(!readable(fd));
    CHECK_OK(muster_send(muster_world(cluster), &value, 1, MUSTER_INT32, 0, 0));
    heard(&told, MUSTER_OK);
    CHECK(readable(fd));
    muster_request_free(request);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

int main(void) {
    a_forked_child();
    run(functions);
    run(a_group_that_ends);
    run(descriptors);
    run(any_and_all);
    two_clusters();
    return 0;
}
