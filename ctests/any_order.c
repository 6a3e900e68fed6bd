/* Calls in any order, drawn by chance: collectives, messages, requests, groups, store, operations, queries. Arguments may
 * be wrong, and several threads call; calls also come after an abort, a loss or muster_finalize, and in a forked child. The
 * test computes only what a call may answer. Sanitizers say the rest: `make sanitize` runs this under AddressSanitizer, and
 * under Valgrind.
 *
 * A failure prints the seed; `any_order <seed>` plays it. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>

enum { ROUNDS = 40, ROUNDS_WHERE_SLOW = 6, STEPS = 80, COUNT_MAX = 3000, THREADS = 3, HELD = 6, NODES = 5, TAGS = 3 };

struct draw {
    uint64_t state;
};

static uint32_t below(struct draw *draw, uint32_t limit) {
    draw->state = draw->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((draw->state >> 33) % limit);
}

static int once_in(struct draw *draw, uint32_t times) { return below(draw, times) == 0; }

/* A request, with what it uses. */
struct held {
    muster_request_t *request;
    muster_status_t end; /* MUSTER_IN_PROGRESS until it was told */
    void *in;
    void *out;
    muster_received_t *received;
};

/* A cluster's handle, and the threads that use it. */
struct node {
    muster_cluster_t *cluster;
    uint64_t seed;   /* of this node alone */
    uint64_t agreed; /* of all */
    int breaks_after; /* the step after which its first thread no longer calls what the others' do */
    int ends;         /* how it goes */
    int left;         /* muster_finalize has returned */
};

/* One thread of a node. */
struct caller {
    struct node *node;
    int nth;
    struct draw own;
    struct draw agreed;
    muster_group_t *made[HELD];
    struct held held[HELD];
    int32_t op; /* of this process's own making, or -1 */
};

/* What a call answers is a status of the header, with a sentence if it is an error. */
static muster_status_t answered(muster_status_t status) {
    CHECK(strstr(muster_status_string(status), "unknown") == NULL);
    CHECK(status != MUSTER_ERR_INTERNAL && status != MUSTER_ERR_MEMORY && status != MUSTER_ERR_FORKED);
    CHECK(status >= 0 || muster_last_error()[0] != 0);
    return status;
}

/* So is a number that a query answers, if it is negative. */
static void numbered(int32_t number) {
    if (number < 0) {
        answered(number);
    }
}

/* Whatever begins after muster_finalize does not succeed any more. If there is a request, that says so. */
static void began(int had_left, uint32_t kind, muster_status_t status, const muster_request_t *request) {
    if (had_left && status == MUSTER_OK && request == NULL) {
        fprintf(stderr, "    it was call %u of its kind\n", kind);
        CHECK(!"a call after muster_finalize fails");
    }
    answered(status);
}

static int64_t draw_timeout(struct draw *draw) {
    static const int64_t timeouts[] = {0, 1, 20, 100, -1, -2};
    return timeouts[below(draw, 6)];
}

static int32_t draw_type(struct draw *draw) {
    return once_in(draw, 30) ? (int32_t)below(draw, 40) - 10 : (int32_t)below(draw, MUSTER_FLOAT64 + 1);
}

static muster_group_t *draw_group(struct caller *caller, struct draw *draw) {
    switch (below(draw, 8)) {
    case 0:
        return muster_servers(caller->node->cluster); /* of none, or of others */
    case 1:
        return muster_universe(caller->node->cluster);
    case 2:
        return caller->made[below(draw, HELD)];
    default:
        return muster_world(caller->node->cluster);
    }
}

static void *room(size_t bytes) {
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    CHECK(memory != NULL);
    return memory;
}

static void first_of_two(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    (void)in, (void)inout, (void)count, (void)dtype, (void)ctx;
}

static struct held *free_place(struct caller *caller) {
    for (int i = 0; i < HELD; i++) {
        if (caller->held[i].request == NULL) {
            return &caller->held[i];
        }
    }
    return NULL;
}

static void ask(struct held *held, muster_status_t status) {
    answered(status);
    if (held->end != MUSTER_IN_PROGRESS) {
        CHECK_IS(held->end, status); /* it says the same each time */
    }
    held->end = status;
}

static void let_go(struct held *held) {
    muster_request_free(held->request);
    free(held->in);
    free(held->out);
    free(held->received);
    memset(held, 0, sizeof *held);
}

/* Keeps a request with its buffers. Frees the buffers of a call that had no request, or that has not begun. */
static void keep(struct held *place, muster_request_t *request, struct held used) {
    if (request == NULL) {
        let_go(&used);
        return;
    }
    used.request = request;
    used.end = MUSTER_IN_PROGRESS;
    *place = used;
}

static void collective(struct caller *caller, struct draw *draw, muster_group_t *group) {
    int32_t group_size = muster_group_size(group);
    size_t size = group_size < 1 ? 1 : (size_t)group_size;
    size_t count = below(draw, 1u << (1 + below(draw, 12))) % COUNT_MAX;
    int32_t type = draw_type(draw);
    int32_t op = once_in(draw, 20) ? (int32_t)below(draw, 20) - 5 : (int32_t)below(draw, MUSTER_MAX + 1);
    int32_t root = once_in(draw, 30) ? (int32_t)below(draw, 20) - 10 : (int32_t)below(draw, (uint32_t)size);
    uint32_t kind = below(draw, 22);
    struct held *place = free_place(caller);
    struct held used = {0};
    muster_request_t *request = NULL;
    int had_left = __atomic_load_n(&caller->node->left, __ATOMIC_SEQ_CST);
    if (caller->op >= 0 && kind == 4) {
        op = caller->op;
    }
    if (place == NULL) {
        kind &= ~1u; /* one that is waited for */
    }
    used.in = room(count * 8 * size);
    used.out = room(count * 8 * size);
    size_t *counts = room(size * sizeof *counts);
    size_t *at = room(size * sizeof *at);
    void **ins = room(size * sizeof *ins), **outs = room(size * sizeof *outs);
    for (size_t i = 0; i < size; i++) {
        counts[i] = i % 2 == 0 ? count : count / 2;
        at[i] = i * count;
        ins[i] = (char *)used.in + i * count * 8;
        outs[i] = (char *)used.out + i * count * 8;
    }
    int32_t rank = muster_group_rank(group);
    size_t own = rank < 0 ? 0 : counts[rank];
    muster_status_t status = MUSTER_OK;
    switch (kind) {
    case 0:
        status = muster_barrier(group);
        break;
    case 1:
        status = muster_ibarrier(group, &request);
        break;
    case 2:
        status = muster_broadcast(group, used.out, count, type, root);
        break;
    case 3:
        status = muster_ibroadcast(group, used.out, count, type, root, &request);
        break;
    case 4:
        status = muster_allreduce(group, used.in, used.out, count, type, op);
        break;
    case 5:
        status = muster_iallreduce(group, used.in, used.out, count, type, op, &request);
        break;
    case 6:
        status = muster_allgather(group, used.in, used.out, count, type);
        break;
    case 7:
        status = muster_iallgather(group, used.in, used.out, count, type, &request);
        break;
    case 8:
        status = muster_alltoall(group, used.in, used.out, count, type);
        break;
    case 9:
        status = muster_ialltoall(group, used.in, used.out, count, type, &request);
        break;
    case 10:
        status = muster_reduce_scatter(group, used.in, used.out, count, type, op);
        break;
    case 11:
        status = muster_ireduce(group, used.in, used.out, count, type, op, root, &request);
        break;
    case 12:
        status = muster_gather(group, used.in, used.out, count, type, root);
        break;
    case 13:
        status = muster_iscatter(group, used.in, used.out, count, type, root, &request);
        break;
    case 14:
        status = muster_allgatherv(group, used.in, own, used.out, counts, at, type);
        break;
    case 15:
        status = muster_iallgatherv(group, used.in, own, used.out, counts, at, type, &request);
        break;
    case 16:
        status = muster_allreduce(group, used.out, used.out, count, type, op);
        break;
    case 18:
        status = muster_allreduce_with(group, used.in, used.out, count, MUSTER_ELEMENT + 7, first_of_two, NULL, 0);
        break;
    case 19:
        status = muster_iallreduce_with(group, used.in, used.out, count, type, first_of_two, NULL, 1, &request);
        break;
    case 20:
        status = muster_allgather_list(group, used.in, own, outs, counts, type);
        break;
    case 21:
        status = muster_ireduce_scatter_list(group, (const void *const *)ins, counts, used.out, own, type, op, &request);
        break;
    default:
        status = muster_iallreduce(group, NULL, NULL, 0, type, op, &request);
        break;
    }
    began(had_left, kind, status, request);
    CHECK(group != NULL || status == MUSTER_ERR_INVALID);
    CHECK(request == NULL || status == MUSTER_OK);
    free(counts);
    free(at);
    free(ins);
    free(outs);
    keep(place, request, used);
}

static void message(struct caller *caller) {
    struct draw *draw = &caller->own;
    muster_group_t *group = draw_group(caller, draw);
    int32_t group_size = muster_group_size(group);
    size_t count = once_in(draw, 10) ? 9000 + below(draw, 9000) : below(draw, 100);
    int32_t type = draw_type(draw);
    int32_t other = group_size < 1 || once_in(draw, 20) ? (int32_t)below(draw, 20) - 10
                                                        : (int32_t)below(draw, (uint32_t)group_size);
    int32_t from = once_in(draw, 3) ? MUSTER_ANY_SOURCE : other;
    int32_t tag = (int32_t)below(draw, TAGS) - once_in(draw, 20) * TAGS;
    int32_t asked = once_in(draw, 3) ? MUSTER_ANY_TAG : tag;
    struct held *place = free_place(caller);
    struct held used = {0};
    muster_request_t *request = NULL;
    uint32_t kind = below(draw, place == NULL ? 5 : 8);
    int had_left = __atomic_load_n(&caller->node->left, __ATOMIC_SEQ_CST);
    used.in = room(count * 8);
    used.out = room(count * 8);
    used.received = room(sizeof *used.received);
    muster_status_t status = MUSTER_OK;
    switch (kind) {
    case 0:
        status = muster_send(group, used.in, count, type, other, tag);
        break;
    case 1:
        status = muster_recv(group, used.out, count, type, from, asked, used.received, sizeof *used.received);
        break;
    case 2:
        status = muster_sendrecv(group, used.in, count, type, other, tag, used.out, count, type, from, asked,
                                 used.received, sizeof *used.received);
        break;
    case 3:
        status = muster_probe(group, from, asked, used.received, sizeof *used.received);
        break;
    case 4:
        status = muster_iprobe(group, from, asked, used.received, sizeof *used.received);
        break;
    case 5:
        status = muster_isend(group, used.in, count, type, other, tag, &request);
        break;
    case 6:
        status = muster_irecv(group, used.out, count, type, from, asked, used.received, sizeof *used.received, &request);
        break;
    default:
        status = muster_isendrecv(group, used.in, count, type, other, tag, used.out, count, type, from, asked,
                                  used.received, sizeof *used.received, &request);
        break;
    }
    began(had_left, kind, status, request);
    if (status == MUSTER_OK && kind >= 1 && kind <= 4) {
        CHECK(used.received->count <= count || kind > 2);
        CHECK(used.received->source >= 0 && used.received->source < group_size);
    }
    keep(place, request, used);
}

static int told;

static void be_told(muster_status_t status, void *ctx) {
    CHECK(status != MUSTER_IN_PROGRESS && ctx == &told);
    __atomic_fetch_add(&told, 1, __ATOMIC_SEQ_CST);
}

/* All requests of the thread at once, where some are NULL. */
static void several(struct caller *caller) {
    muster_request_t *all[HELD];
    size_t index = HELD;
    int64_t timeout = (int64_t)below(&caller->own, 20);
    for (int i = 0; i < HELD; i++) {
        all[i] = caller->held[i].request;
    }
    if (once_in(&caller->own, 2)) {
        answered(muster_request_wait_all(all, HELD, timeout));
        return;
    }
    muster_status_t status = muster_request_wait_any(all, HELD, timeout, &index);
    if (index < HELD) {
        ask(&caller->held[index], status);
    } else {
        answered(status);
    }
}

static void request(struct caller *caller) {
    struct held *held = &caller->held[below(&caller->own, HELD)];
    if (held->request == NULL) {
        CHECK_IS(MUSTER_ERR_INVALID, muster_request_test(held->request));
        CHECK_IS(MUSTER_ERR_INVALID, muster_request_wait(held->request, 0));
        CHECK_IS(MUSTER_ERR_INVALID, muster_request_cancel(held->request));
        return;
    }
    switch (below(&caller->own, 8)) {
    case 0:
        ask(held, muster_request_test(held->request));
        break;
    case 4:
        several(caller);
        break;
    case 5:
        answered(muster_request_notify(held->request, be_told, &told));
        break;
    case 6:
        CHECK(muster_request_descriptor(held->request) > 2);
        break;
    case 1:
    case 2: {
        int64_t timeout = draw_timeout(&caller->own);
        muster_status_t status = muster_request_wait(held->request, timeout);
        if (timeout >= -1) {
            ask(held, status);
        } else {
            CHECK_IS(MUSTER_ERR_INVALID, status);
        }
        break;
    }
    case 3:
        answered(muster_request_cancel(held->request));
        break;
    default:
        let_go(held);
        break;
    }
}

static void store(struct caller *caller) {
    static const char *const keys[] = {"a", "b", "a number", "", "\xff", NULL};
    struct draw *draw = &caller->own;
    muster_cluster_t *cluster = once_in(draw, 20) ? NULL : caller->node->cluster;
    const char *key = keys[below(draw, once_in(draw, 5) ? 6 : 3)];
    const char *wanted[] = {"a", key};
    int64_t timeout = once_in(draw, 2) ? 0 : (int64_t)below(draw, 50);
    int had_left = __atomic_load_n(&caller->node->left, __ATOMIC_SEQ_CST);
    void *value = NULL;
    size_t length = 0;
    int64_t number = 0;
    int32_t existed = 7;
    muster_status_t status = MUSTER_OK;
    uint32_t kind = below(draw, 10);
    muster_bytes_t some[] = {{"a", 1}, {key, key == NULL ? 0 : strlen(key)}}, *found = NULL;
    uint32_t count = 1 + below(draw, 2);
    size_t total = 0;
    int32_t exists[2] = {7, 7};
    switch (kind) {
    case 0:
        status = muster_store_set(cluster, key, "some text", below(draw, 10));
        break;
    case 1:
        status = muster_store_get(cluster, key, timeout, &value, &length);
        CHECK((status == MUSTER_OK) == (value != NULL));
        CHECK(value == NULL || ((char *)value)[length] == 0);
        break;
    case 2:
        status = muster_store_add(cluster, key, (int64_t)below(draw, 9) - 4, once_in(draw, 2) ? NULL : &number);
        break;
    case 3:
        status = muster_store_compare_set(cluster, key, "1", below(draw, 2), "2", 1, &value, &length);
        break;
    case 4:
        status = muster_store_delete(cluster, key, &existed);
        CHECK(status != MUSTER_OK || existed == 0 || existed == 1);
        break;
    case 5:
        status = muster_store_append(cluster, some[1].data, some[1].len, "1", below(draw, 2), &total);
        break;
    case 6:
        status = muster_store_multi_set(cluster, some, some, count);
        break;
    case 7:
        status = once_in(draw, 2) ? muster_store_multi_get(cluster, some, count, timeout, &found)
                                  : muster_store_list(cluster, some[1].data, some[1].len, &found, &total);
        CHECK((status == MUSTER_OK) == (found != NULL));
        break;
    case 8:
        status = muster_store_check(cluster, some, count, exists);
        CHECK(status != MUSTER_OK || exists[0] == 0 || exists[0] == 1);
        break;
    default:
        status = muster_store_wait(cluster, wanted, count, timeout);
        break;
    }
    muster_free(found);
    CHECK(cluster != NULL || status == MUSTER_ERR_INVALID);
    began(had_left, kind, status, NULL);
    muster_free(value);
}

static void query(struct caller *caller) {
    muster_cluster_t *cluster = once_in(&caller->own, 10) ? NULL : caller->node->cluster;
    muster_group_t *group = draw_group(caller, &caller->own);
    muster_failure_t failure;
    muster_member_t member;
    char text[512];
    size_t needed = 0;
    int32_t ranks[NODES];
    int32_t size = muster_group_size(group);
    CHECK((size >= 0) == (group != NULL));
    numbered(muster_role(cluster));
    numbered(muster_rank(cluster));
    numbered(muster_local_rank(cluster));
    numbered(muster_restarts(cluster));
    CHECK((muster_size(cluster) > 0) == (cluster != NULL));
    CHECK(muster_epoch(cluster) > 0 || cluster == NULL);
    CHECK((muster_node_id(cluster) != NULL) == (cluster != NULL));
    answered(muster_failed_ranks(cluster, ranks, below(&caller->own, NODES + 1), &needed));
    answered(muster_failure(cluster, &failure, once_in(&caller->own, 10) ? 1 : sizeof failure));
    answered(muster_group_failure(group, &failure, sizeof failure));
    answered(muster_cluster_error(cluster, text, below(&caller->own, sizeof text), &needed));
    answered(muster_rank_table(cluster, text, below(&caller->own, sizeof text), &needed));
    numbered(muster_group_rank(group));
    numbered(muster_group_to_world(group, (int32_t)below(&caller->own, 12) - 3));
    numbered(muster_group_from_world(group, (int32_t)below(&caller->own, 12) - 3));
    answered(muster_group_member(group, (int32_t)below(&caller->own, 12) - 3, &member, sizeof member));
}

/* Groups of a thread's own; `draw` says whether the others call the same. */
static void make_group(struct caller *caller, struct draw *draw) {
    muster_group_t **place = &caller->made[below(draw, HELD)];
    int had_left = __atomic_load_n(&caller->node->left, __ATOMIC_SEQ_CST);
    muster_group_free(*place);
    *place = NULL;
    int32_t ranks[] = {0, (int32_t)below(draw, 3)};
    int32_t colour = (int32_t)below(&caller->own, 3) - 1;
    muster_status_t status = once_in(draw, 2)
                                 ? muster_group_create(muster_world(caller->node->cluster), ranks, below(draw, 3), place)
                                 : muster_group_split(muster_world(caller->node->cluster), colour, 0, place);
    began(had_left, 0, status, NULL);
    CHECK(status == MUSTER_OK || *place == NULL);
}

static void operation(struct caller *caller) {
    if (caller->op >= 0) {
        answered(muster_op_free(caller->node->cluster, caller->op));
        CHECK_IS(MUSTER_ERR_INVALID, muster_op_free(caller->node->cluster, caller->op));
        caller->op = -1;
        return;
    }
    if (answered(muster_op_create(caller->node->cluster, first_of_two, NULL, once_in(&caller->own, 2), &caller->op))
        != MUSTER_OK) {
        caller->op = -1;
    }
}

static void configuration(struct draw *draw) {
    static const char *const pairs[][2] = {
        {"worker_num", "1"}, {"worker_num", "none"}, {"sched_port", "0"},  {"role", "MS_SCHED"}, {"timeout", "0.2"},
        {"nothing", "1"},    {"node_id", ""},        {"log", "loud"},   {"sched_host", "::1"},
    };
    muster_config_t *config = NULL;
    muster_scheduler_t *scheduler = NULL;
    char text[64];
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    for (uint32_t i = below(draw, 5); i > 0; i--) {
        const char *const *pair = pairs[below(draw, 9)];
        answered(muster_config_set(config, pair[0], pair[1]));
        answered(muster_config_get(config, pair[0], text, below(draw, sizeof text), NULL));
    }
    if (once_in(draw, 4) && answered(muster_scheduler_start(config, &scheduler)) == MUSTER_OK) {
        answered(muster_scheduler_address(scheduler, text, below(draw, sizeof text), NULL));
        CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 0));
        if (once_in(draw, 2)) {
            answered(muster_scheduler_stop(scheduler));
        }
    }
    muster_scheduler_free(scheduler);
    muster_config_free(config);
}

/* In a child the parent's handles say that they are the parent's, and can be freed. */
static void in_a_child(struct caller *caller) {
    muster_group_t *world = muster_world(caller->node->cluster);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_IS(MUSTER_ERR_FORKED, muster_barrier(world));
        CHECK_IS(MUSTER_ERR_FORKED, muster_store_set(caller->node->cluster, "a", "b", 1));
        CHECK_IS(MUSTER_ERR_FORKED, muster_finalize(caller->node->cluster));
        for (int i = 0; i < HELD; i++) {
            muster_request_free(caller->held[i].request);
            muster_group_free(caller->made[i]);
        }
        /* What the parent's other threads had belongs to nobody here, and is no leak: nothing looks for the memory of
         * another program. */
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(await_child(child) == 0);
}

/* With some rank, or alone; it comes at that moment, or does not. */
static void with_members(struct caller *caller) {
    struct draw *draw = &caller->own;
    int32_t ranks[2] = {muster_rank(caller->node->cluster), (int32_t)below(draw, NODES)};
    muster_group_t *group = NULL;
    size_t n = 1 + below(draw, 2);
    muster_status_t status =
        answered(muster_group_create_members(caller->node->cluster, ranks, n, "", (int64_t)below(draw, 20), &group));
    CHECK((status == MUSTER_OK) == (group != NULL));
    muster_group_free(group);
}

static void end_a_cluster(struct caller *caller) {
    struct node *node = caller->node;
    switch (below(&caller->own, 4)) {
    case 0:
        answered(muster_abort(node->cluster, 3, once_in(&caller->own, 2) ? "by chance" : NULL));
        break;
    case 1:
        answered(muster_recover(node->cluster, (int64_t)below(&caller->own, 60)));
        break;
    default:
        answered(muster_finalize(node->cluster));
        __atomic_store_n(&node->left, 1, __ATOMIC_SEQ_CST);
        break;
    }
}

/* A step that the first threads of all nodes take alike. */
static void step_together(struct caller *caller) {
    struct draw *draw = &caller->agreed;
    if (once_in(draw, 8)) {
        make_group(caller, draw);
    } else {
        collective(caller, draw, muster_world(caller->node->cluster));
    }
}

static void step_alone(struct caller *caller) {
    struct draw *draw = &caller->own;
    switch (below(draw, 16)) {
    case 0:
    case 1:
    case 2:
        store(caller);
        break;
    case 3:
    case 4:
    case 5:
        message(caller);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        request(caller);
        break;
    case 10:
    case 11:
        query(caller);
        break;
    case 12:
        operation(caller);
        break;
    case 13:
        configuration(draw);
        break;
    case 14:
        answered(muster_group_set_timeout(draw_group(caller, draw), (int64_t)below(draw, 200) - 1));
        break;
    default:
        if (once_in(draw, 3)) {
            with_members(caller);
        } else if (once_in(draw, 6)) {
            in_a_child(caller);
        } else if (once_in(draw, 40)) {
            end_a_cluster(caller);
        }
        break;
    }
}

static void *call(void *argument) {
    struct caller *caller = argument;
    struct node *node = caller->node;
    for (int step = 0; step < STEPS; step++) {
        if (caller->nth > 0) {
            step_alone(caller);
        } else if (step < node->breaks_after) {
            step_together(caller);
            request(caller);
        } else if (once_in(&caller->own, 3)) {
            collective(caller, &caller->own, draw_group(caller, &caller->own));
        } else if (once_in(&caller->own, 10)) {
            make_group(caller, &caller->own);
        } else {
            step_alone(caller);
        }
    }
    return NULL;
}

/* All that a thread holds goes, before its cluster or after it. */
static void give_back(struct caller *caller) {
    for (int i = 0; i < HELD; i++) {
        let_go(&caller->held[i]);
        muster_group_free(caller->made[i]);
        caller->made[i] = NULL;
    }
}

static void *run_node(void *argument) {
    struct node *node = argument;
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    memset(callers, 0, sizeof callers);
    for (int i = 0; i < THREADS; i++) {
        callers[i].node = node;
        callers[i].nth = i;
        callers[i].own.state = node->seed * 31 + (uint64_t)i;
        callers[i].agreed.state = node->agreed;
        callers[i].op = -1;
        below(&callers[i].own, 2);
        CHECK(pthread_create(&threads[i], NULL, call, &callers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (node->ends < 3) {
        answered(muster_finalize(node->cluster));
        answered(muster_finalize(node->cluster));
        CHECK(muster_barrier(muster_world(node->cluster)) != MUSTER_OK);
    }
    if (node->ends % 2 == 0) {
        for (int i = 0; i < THREADS; i++) {
            give_back(&callers[i]);
        }
    }
    muster_cluster_free(node->cluster);
    for (int i = 0; i < THREADS; i++) {
        give_back(&callers[i]);
    }
    return NULL;
}

struct joining {
    const struct plan *plan;
    const char *port;
    struct node *node;
    int index;
};

static void *join_and_run(void *argument) {
    struct joining *joining = argument;
    joining->node->cluster = join(joining->plan, joining->port, joining->index);
    return run_node(joining->node);
}

static void play(uint64_t seed) {
    struct draw draw = {seed};
    char times[16];
    snprintf(times, sizeof times, "%d", 1 * patience());
    const char *const settings[] = {"timeout", times, "finalize_timeout", times, "log", "error", NULL};
    below(&draw, 2);
    struct plan plan = {.workers = 2 + (int)below(&draw, 3), .servers = (int)below(&draw, 2), .settings = settings};
    struct node nodes[NODES];
    struct joining joining[NODES];
    pthread_t threads[NODES];
    char port[8];
    uint64_t agreed = seed + 1;
    int count = plan.workers + plan.servers;
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    for (int i = 0; i < count; i++) {
        memset(&nodes[i], 0, sizeof nodes[i]);
        nodes[i].seed = seed * 1000 + (uint64_t)i;
        nodes[i].agreed = agreed;
        nodes[i].breaks_after = (int)below(&draw, STEPS);
        nodes[i].ends = (int)below(&draw, 4);
        joining[i] = (struct joining){&plan, port, &nodes[i], i};
        CHECK(pthread_create(&threads[i], NULL, join_and_run, &joining[i]) == 0);
    }
    for (int i = 0; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (once_in(&draw, 2)) {
        answered(muster_scheduler_stop(scheduler));
    }
    muster_scheduler_free(scheduler);
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? 1 : patience() > 1 ? ROUNDS_WHERE_SLOW : ROUNDS;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : round + 1;
        fprintf(stderr, "any_order %llu\n", (unsigned long long)seed);
        play(seed);
    }
    return 0;
}
