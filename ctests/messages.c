/* Messages between two members of a group: which receive gets which message, in which order, and that everything goes on by
 * itself. */
#include "check.h"
#include "nodes.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { KIB = 1 << 10, MIB = 1 << 20, EAGER_MAX = 64 * KIB };

static uint8_t byte_at(size_t seed, size_t i) { return (uint8_t)(seed * 31 + i * 7 + (i >> 8) * 13 + (i >> 16)); }

static uint8_t *filled(size_t seed, size_t count) {
    uint8_t *bytes = malloc(count + 1);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = byte_at(seed, i);
    }
    return bytes;
}

static void check_filled(const uint8_t *bytes, size_t seed, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != byte_at(seed, i)) {
            fprintf(stderr, "    byte %zu of %zu, seed %zu\n", i, count, seed);
            CHECK(bytes[i] == byte_at(seed, i));
        }
    }
}

static uint8_t *empty(size_t count) {
    uint8_t *bytes = malloc(count + 1);
    CHECK(bytes != NULL);
    memset(bytes, 0xee, count + 1);
    return bytes;
}

static void done(muster_request_t *request) {
    CHECK_OK(muster_request_wait(request, -1));
    muster_request_free(request);
}

static muster_request_t *irecv(muster_group_t *group, void *out, size_t count, int from, int tag) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_irecv(group, out, count, MUSTER_UINT8, from, tag, NULL, 0, &request));
    return request;
}

static muster_request_t *isend(muster_group_t *group, const void *in, size_t count, int to, int tag) {
    muster_request_t *request = NULL;
    CHECK_OK(muster_isend(group, in, count, MUSTER_UINT8, to, tag, &request));
    return request;
}

/* Every size around the limits, blocking, to a receive with more room; the report tells what came. */
static void sizes(muster_cluster_t *cluster, int rank, void *context) {
    static const size_t sizes[] = {0, 1, 63, EAGER_MAX - 1, EAGER_MAX, EAGER_MAX + 1, 256 * KIB, 256 * KIB + 1, 3 * MIB + 5};
    muster_group_t *world = muster_world(cluster);
    (void)context;
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        size_t size = sizes[at];
        if (rank == 0) {
            uint8_t *bytes = filled(at, size);
            CHECK_OK(muster_send(world, size == 0 ? NULL : bytes, size, MUSTER_UINT8, 1, (int)at));
            free(bytes);
        } else {
            muster_received_t received;
            uint8_t *bytes = empty(size + 100);
            CHECK_OK(muster_recv(world, bytes, size + 100, MUSTER_UINT8, 0, (int)at, &received, sizeof received));
            CHECK(received.source == 0 && received.tag == (int)at && received.count == size);
            CHECK(received.dtype == MUSTER_UINT8);
            check_filled(bytes, at, size);
            CHECK(bytes[size] == 0xee && bytes[size + 99] == 0xee);
            free(bytes);
        }
    }
    CHECK_OK(muster_barrier(world));
}

/* Two ranks that both receive, then send 64 MiB, make progress. So do rings, and all ranks that send to all. */
static void both_ways(muster_cluster_t *cluster, int rank, void *context) {
    enum { SIZE = 64 * MIB };
    muster_group_t *world = muster_world(cluster);
    uint8_t *in = filled((size_t)rank, SIZE), *out = empty(SIZE);
    (void)context;
    muster_request_t *coming = irecv(world, out, SIZE, 1 - rank, 5);
    muster_request_t *going = isend(world, in, SIZE, 1 - rank, 5);
    done(going);
    done(coming);
    check_filled(out, (size_t)(1 - rank), SIZE);
    CHECK_OK(muster_sendrecv(world, in, 5 * MIB, MUSTER_UINT8, 1 - rank, 1, out, SIZE, MUSTER_UINT8, 1 - rank, 1, NULL, 0));
    check_filled(out, (size_t)(1 - rank), 5 * MIB);
    free(in);
    free(out);
}

static void ring(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    int size = muster_size(cluster), next = (rank + 1) % size, before = (rank + size - 1) % size;
    (void)context;
    static const size_t counts[] = {8, 5000, EAGER_MAX + 1, MIB + 3};
    for (size_t at = 0; at < 4; at++) {
        size_t count = counts[at];
        uint8_t *in = filled((size_t)rank, count), *out = empty(count);
        muster_received_t received;
        for (int round = 0; round < 10; round++) {
            CHECK_OK(muster_sendrecv(world, in, count, MUSTER_UINT8, next, round, out, count, MUSTER_UINT8, before, round,
                                     &received, sizeof received));
            CHECK(received.source == before && received.tag == round && received.count == count);
            check_filled(out, (size_t)before, count);
        }
        free(in);
        free(out);
    }
}

static size_t between(int from, int to, int tag) { return (size_t)(from * 7 + to * 3 + tag * 5) % 11 * 17000; }

static void all_to_all(muster_cluster_t *cluster, int rank, void *context) {
    enum { MOST = 8, TAGS = 3 };
    muster_group_t *world = muster_world(cluster);
    int size = muster_size(cluster);
    muster_request_t *requests[2 * MOST * TAGS];
    uint8_t *buffers[2 * MOST * TAGS];
    int count = 0;
    (void)context;
    for (int tag = 0; tag < TAGS; tag++) {
        for (int peer = 0; peer < size; peer++) {
            /* Receives from oneself come first, for a long message to oneself needs one. */
            buffers[count] = empty(between(peer, rank, tag));
            requests[count] = irecv(world, buffers[count], between(peer, rank, tag), peer, tag);
            count++;
            buffers[count] = filled((size_t)(rank * 100 + peer * 10 + tag), between(rank, peer, tag));
            requests[count] = isend(world, buffers[count], between(rank, peer, tag), peer, tag);
            count++;
        }
    }
    for (int at = count - 1; at >= 0; at--) {
        done(requests[at]);
    }
    for (int tag = 0, at = 0; tag < TAGS; tag++) {
        for (int peer = 0; peer < size; peer++, at += 2) {
            check_filled(buffers[at], (size_t)(peer * 100 + rank * 10 + tag), between(peer, rank, tag));
        }
    }
    for (int at = 0; at < count; at++) {
        free(buffers[at]);
    }
}

/* Messages do not overtake each other, short or long; and a tag that is asked for is found behind others. */
static void order(muster_cluster_t *cluster, int rank, void *context) {
    enum { COUNT = 60 };
    muster_group_t *world = muster_world(cluster);
    uint8_t *bytes = filled(9, 200 * KIB);
    (void)context;
    if (rank == 0) {
        muster_request_t *requests[COUNT];
        for (int at = 0; at < COUNT; at++) {
            requests[at] = isend(world, bytes, at % 3 == 1 ? 200 * KIB : (size_t)at, 1, at % 4);
        }
        for (int at = 0; at < COUNT; at++) {
            done(requests[at]);
        }
    } else {
        for (int at = 3; at < COUNT; at += 4) { /* tag 3 first, from the middle of the others */
            muster_received_t received;
            CHECK_OK(muster_recv(world, bytes, 200 * KIB, MUSTER_UINT8, 0, 3, &received, sizeof received));
            CHECK(received.count == (at % 3 == 1 ? 200 * KIB : (size_t)at));
        }
        for (int at = 0; at < COUNT; at++) {
            muster_received_t received;
            if (at % 4 != 3) {
                CHECK_OK(muster_recv(world, bytes, 200 * KIB, MUSTER_UINT8, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, &received,
                                     sizeof received));
                CHECK(received.tag == at % 4 && received.source == 0);
                CHECK(received.count == (at % 3 == 1 ? 200 * KIB : (size_t)at));
            }
        }
    }
    free(bytes);
}

/* Workers ask a parameter server, which serves any that comes, over the universe group; with long answers, too. */
static void servers(muster_cluster_t *cluster, int index, void *context) {
    enum { WORKERS = 3, ROUNDS = 20, LONG = 100000 };
    muster_group_t *universe = muster_universe(cluster);
    double *values = malloc(LONG * sizeof *values);
    (void)index;
    (void)context;
    if (muster_role(cluster) == MUSTER_ROLE_SERVER) {
        for (int round = 0; round < WORKERS * ROUNDS; round++) {
            muster_received_t received;
            double asked;
            CHECK_OK(muster_recv(universe, &asked, 1, MUSTER_FLOAT64, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, &received,
                                 sizeof received));
            size_t count = received.tag % 2 == 0 ? 1 : LONG;
            for (size_t i = 0; i < count; i++) {
                values[i] = asked + (double)i;
            }
            CHECK_OK(muster_send(universe, values, count, MUSTER_FLOAT64, received.source, received.tag));
        }
    } else {
        int32_t rank = muster_group_rank(universe);
        for (int round = 0; round < ROUNDS; round++) {
            double asked = rank * 1000 + round;
            muster_received_t received;
            CHECK_OK(muster_send(universe, &asked, 1, MUSTER_FLOAT64, WORKERS, round));
            CHECK_OK(muster_recv(universe, values, LONG, MUSTER_FLOAT64, WORKERS, round, &received, sizeof received));
            CHECK(received.count == (round % 2 == 0 ? 1 : LONG) && received.dtype == MUSTER_FLOAT64);
            CHECK(values[0] == asked && values[received.count - 1] == asked + (double)(received.count - 1));
        }
    }
    free(values);
}

/* Messages that nobody receives are bounded and keep nothing else from going on. Received later, they are all there. */
static void flood(muster_cluster_t *cluster, int rank, void *context) {
    enum { COUNT = 1500, SIZE = 20 * KIB, LONG = 3 * MIB };
    muster_group_t *world = muster_world(cluster);
    static muster_request_t *requests[COUNT];
    uint8_t *bytes = filled(1, SIZE), *other = filled(2, LONG);
    (void)context;
    if (rank == 0) {
        for (int at = 0; at < COUNT; at++) {
            requests[at] = isend(world, bytes, SIZE, 1, 1);
        }
        /* A long message the other way must be cleared to send past all that. */
        CHECK_OK(muster_recv(world, other, LONG, MUSTER_UINT8, 1, 2, NULL, 0));
        check_filled(other, 3, LONG);
        int gone = 0;
        for (int at = 0; at < COUNT; at++) {
            gone += muster_request_test(requests[at]) == MUSTER_OK;
        }
        CHECK(gone > 0 && gone <= 16 * MIB / SIZE); /* no more is kept for one sender */
        CHECK_OK(muster_send(world, NULL, 0, MUSTER_UINT8, 1, 3));
        for (int at = 0; at < COUNT; at++) {
            done(requests[at]);
        }
    } else {
        uint8_t *mine = filled(3, LONG);
        CHECK_OK(muster_send(world, mine, LONG, MUSTER_UINT8, 0, 2));
        free(mine);
        CHECK_OK(muster_recv(world, NULL, 0, MUSTER_UINT8, 0, 3, NULL, 0)); /* past all that, too */
        for (int at = 0; at < COUNT; at++) {
            uint8_t *out = empty(SIZE);
            CHECK_OK(muster_recv(world, out, SIZE, MUSTER_UINT8, 0, 1, NULL, 0));
            check_filled(out, 1, SIZE);
            free(out);
        }
    }
    free(bytes);
    free(other);
}

static void to_oneself(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    uint8_t *in = filled(4, MIB), *out = empty(MIB);
    muster_received_t received;
    (void)context;
    CHECK_OK(muster_send(world, in, 100, MUSTER_UINT8, rank, 7));
    memset(in, 0, 100); /* it is the sender's again */
    CHECK_FAILS(MUSTER_ERR_STATE, "needs a posted receive", muster_send(world, in, EAGER_MAX + 1, MUSTER_UINT8, rank, 7));
    CHECK_OK(muster_recv(world, out, 100, MUSTER_UINT8, MUSTER_ANY_SOURCE, 7, &received, sizeof received));
    CHECK(received.source == rank && received.count == 100);
    check_filled(out, 4, 100);
    for (int i = 0; i < 100; i++) {
        in[i] = byte_at(4, (size_t)i);
    }
    muster_request_t *request = irecv(world, out, MIB, rank, MUSTER_ANY_TAG);
    CHECK_OK(muster_send(world, in, MIB, MUSTER_UINT8, rank, 8));
    CHECK_OK(muster_request_test(request));
    muster_request_free(request);
    check_filled(out, 4, MIB);
    memset(out, 0, MIB);
    CHECK_OK(muster_sendrecv(world, in, MIB, MUSTER_UINT8, rank, 1, out, MIB, MUSTER_UINT8, rank, 1, NULL, 0));
    check_filled(out, 4, MIB);
    request = irecv(world, out, 100, rank, 2);
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "receives at most 100 uint8", muster_send(world, in, MIB, MUSTER_UINT8, rank, 2));
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "receives at most 100 uint8", muster_request_test(request));
    muster_request_free(request);
    /* The true length is told, whichever way the end is heard of. */
    for (int way = 0; way < 4; way++) {
        size_t index = 1;
        memset(&received, 0, sizeof received);
        CHECK_OK(muster_irecv(world, out, 100, MUSTER_UINT8, rank, 2, &received, sizeof received, &request));
        CHECK_FAILS(MUSTER_ERR_MISMATCH, "receives at most 100 uint8", muster_send(world, in, MIB, MUSTER_UINT8, rank, 2));
        muster_status_t heard = way == 0   ? muster_request_test(request)
                                : way == 1 ? muster_request_wait(request, -1)
                                : way == 2 ? muster_request_wait_any(&request, 1, -1, &index)
                                           : muster_request_wait_all(&request, 1, -1);
        CHECK_FAILS(MUSTER_ERR_MISMATCH, "receives at most 100 uint8", heard);
        CHECK(received.count == MIB && received.source == rank && received.tag == 2 && (way != 2 || index == 0));
        muster_request_free(request);
    }
    muster_status_t status = MUSTER_OK;
    for (int at = 0; at < 400 && status == MUSTER_OK; at++) {
        status = muster_send(world, in, EAGER_MAX, MUSTER_UINT8, rank, 9);
    }
    CHECK_FAILS(MUSTER_ERR_LIMIT, "fill the", status);
    CHECK_OK(muster_barrier(world));
    free(in);
    free(out);
}

/* How many bytes all have allocated and not freed. How much of the process is resident depends on what the allocator keeps.
 * */
static size_t allocated(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* What is kept of a sender's messages takes no more memory than it may, even if they are many empty messages, each with
 * another tag. */
static void empty_ones(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster);
    muster_status_t status = MUSTER_OK;
    /* Where helgrind watches, all that fit take half an hour. */
    int32_t count = 0, most = patience() >= 20 ? 10001 : INT32_MAX;
    (void)context;
    size_t before = allocated();
    while (status == MUSTER_OK && count < most) {
        status = muster_send(world, NULL, 0, MUSTER_UINT8, rank, count);
        count += status == MUSTER_OK;
    }
    if (count < most) {
        CHECK_FAILS(MUSTER_ERR_LIMIT, "fill the", status);
    }
    CHECK(count > 10000);
    CHECK(patience() > 1 || allocated() - before < 20 * MIB); /* what checks accesses has an allocator of its own */
    for (int32_t tag = count - 1; tag >= 0; tag--) {
        CHECK_OK(muster_recv(world, NULL, 0, MUSTER_UINT8, rank, tag, NULL, 0));
    }
}

static void *reduce_often(void *argument) {
    for (int32_t round = 0; round < 200; round++) {
        int32_t value = round;
        CHECK_OK(muster_allreduce(argument, &value, &value, 1, MUSTER_INT32, MUSTER_SUM));
        CHECK(value == round * 3);
    }
    return NULL;
}

/* Collectives of the same group, from another thread, meanwhile. */
static void beside_collectives(muster_cluster_t *cluster, int rank, void *context) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reduce_often, muster_world(cluster)) == 0);
    ring(cluster, rank, context);
    all_to_all(cluster, rank, context);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Groups that are made have messages of their own. */
static void on_groups(muster_cluster_t *cluster, int rank, void *context) {
    muster_group_t *world = muster_world(cluster), *group = NULL;
    int32_t number = rank, other = -1;
    (void)context;
    CHECK_OK(muster_group_split(world, rank % 2, -rank, &group));
    int32_t mine = muster_group_rank(group), size = muster_group_size(group);
    CHECK_OK(muster_isend(world, &number, 1, MUSTER_INT32, (rank + 2) % 4, 1, (muster_request_t **)&context));
    CHECK_OK(muster_sendrecv(group, &number, 1, MUSTER_INT32, (mine + 1) % size, 1, &other, 1, MUSTER_INT32,
                             (mine + 1) % size, 1, NULL, 0));
    CHECK(other == (rank + 2) % 4);
    other = -1;
    CHECK_OK(muster_recv(world, &other, 1, MUSTER_INT32, MUSTER_ANY_SOURCE, 1, NULL, 0));
    CHECK(other == (rank + 2) % 4);
    done(context);
    CHECK_OK(muster_barrier(group));
    muster_group_free(group);
}

static void sends_to(muster_group_t *world, int to, int tag, size_t count) {
    uint8_t *bytes = filled((size_t)tag, count);
    CHECK_OK(muster_send(world, bytes, count, MUSTER_UINT8, to, tag));
    free(bytes);
}

/* The receiver knows nothing of a message: it asks, makes room for it, and takes it. */
static void takes_what_it_found(muster_group_t *world, int from, int tag, const muster_received_t *found) {
    muster_received_t received;
    uint8_t *bytes = empty(found->count);
    CHECK(from == MUSTER_ANY_SOURCE || found->source == from);
    CHECK(tag == MUSTER_ANY_TAG || found->tag == tag);
    CHECK(found->dtype == MUSTER_UINT8);
    CHECK_OK(muster_recv(world, bytes, found->count, MUSTER_UINT8, from, tag, &received, sizeof received));
    CHECK(received.source == found->source && received.tag == found->tag && received.count == found->count);
    check_filled(bytes, (size_t)found->tag, found->count);
    free(bytes);
}

/* The next receive gets the message that a probe finds, whether it comes as one frame or waits for its receive. */
static void probes(muster_cluster_t *cluster, int rank, void *context) {
    static const size_t sizes[] = {0, 5, EAGER_MAX, EAGER_MAX + 1, 3 * MIB};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    muster_group_t *world = muster_world(cluster);
    muster_received_t found = {.source = 77};
    (void)context;
    if (rank == 0) {
        CHECK_IS(MUSTER_IN_PROGRESS, muster_iprobe(world, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, &found, sizeof found));
        CHECK(found.source == 77);
    }
    CHECK_OK(muster_barrier(world));
    for (int waits = 0; waits < 2; waits++) {
        for (int at = 0; at < SIZES; at++) {
            int any = at % 2, from = any ? MUSTER_ANY_SOURCE : 1, tag = any ? MUSTER_ANY_TAG : at;
            if (rank == 1) {
                sends_to(world, 0, at, sizes[at]);
                continue;
            }
            muster_status_t status = waits ? muster_probe(world, from, tag, &found, sizeof found) : MUSTER_IN_PROGRESS;
            while (status == MUSTER_IN_PROGRESS) {
                status = muster_iprobe(world, from, tag, &found, sizeof found);
            }
            CHECK_OK(status);
            CHECK(found.source == 1 && found.tag == at && found.count == sizes[at]);
            muster_received_t again;
            CHECK_OK(muster_iprobe(world, from, tag, &again, sizeof again));
            CHECK(again.source == 1 && again.tag == at && again.count == sizes[at]);
            CHECK_IS(MUSTER_IN_PROGRESS, muster_iprobe(world, 1, 1000, &again, sizeof again));
            takes_what_it_found(world, from, tag, &found);
        }
    }
    CHECK_OK(muster_barrier(world));
    /* A posted receive gets the first, the probe tells of the second. */
    if (rank == 1) {
        sends_to(world, 0, 7, 10);
        sends_to(world, 0, 7, 20);
    } else {
        uint8_t bytes[10];
        muster_request_t *posted = irecv(world, bytes, 10, 1, 7);
        CHECK_OK(muster_probe(world, 1, 7, &found, sizeof found));
        CHECK(found.count == 20);
        done(posted);
        takes_what_it_found(world, 1, 7, &found);
    }
    /* To oneself. */
    sends_to(world, rank, 3, 100);
    CHECK_OK(muster_probe(world, rank, MUSTER_ANY_TAG, &found, sizeof found));
    CHECK(found.source == rank && found.tag == 3 && found.count == 100);
    takes_what_it_found(world, rank, 3, &found);
}

struct prober {
    muster_group_t *world;
    int tag;
};

static void *waits_for_one(void *argument) {
    struct prober *prober = argument;
    muster_received_t found;
    CHECK_OK(muster_probe(prober->world, MUSTER_ANY_SOURCE, prober->tag, &found, sizeof found));
    CHECK(found.tag == prober->tag && found.count == (size_t)prober->tag);
    takes_what_it_found(prober->world, found.source, prober->tag, &found);
    return NULL;
}

/* Several threads wait at a time, each for its own. */
static void probes_in_threads(muster_cluster_t *cluster, int rank, void *context) {
    enum { THREADS = 5 };
    muster_group_t *world = muster_world(cluster);
    (void)context;
    if (rank == 1) {
        CHECK_OK(muster_recv(world, NULL, 0, MUSTER_UINT8, 0, 0, NULL, 0));
        for (int tag = THREADS; tag > 0; tag--) {
            sends_to(world, 0, tag, (size_t)tag);
        }
        return;
    }
    struct prober probers[THREADS];
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) {
        probers[at] = (struct prober){world, at + 1};
        CHECK(pthread_create(&threads[at], NULL, waits_for_one, &probers[at]) == 0);
    }
    CHECK_OK(muster_send(world, NULL, 0, MUSTER_UINT8, 1, 0));
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
}

static void run(int workers, int parameter_servers, node_body body) {
    struct plan plan = {.workers = workers, .servers = parameter_servers, .node_ids = rank_ids, .body = body};
    if (parameter_servers > 0) {
        plan.node_ids = NULL;
    }
    run_nodes(&plan);
}

int main(void) {
    run(2, 0, sizes);
    run(2, 0, both_ways);
    run(1, 0, ring);
    run(2, 0, ring);
    run(5, 0, ring);
    run(1, 0, all_to_all);
    run(4, 0, all_to_all);
    run(8, 0, all_to_all);
    run(2, 0, order);
    run(3, 1, servers);
    run(2, 0, flood);
    run(1, 0, to_oneself);
    run(3, 0, to_oneself);
    run(1, 0, empty_ones);
    run(3, 0, beside_collectives);
    run(4, 0, on_groups);
    run(2, 0, probes);
    run(2, 0, probes_in_threads);
    return 0;
}
