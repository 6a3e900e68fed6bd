/* The calls of any_order that a group has: collectives, messages, and what is asked of their requests. */
#include "any_order.h"

#include <stdlib.h>

enum { COUNT_MAX = 3000, TAGS = 3 };

static int64_t draw_timeout(struct draw *draw) {
    static const int64_t timeouts[] = {0, 1, 20, 100, -1, -2};
    return timeouts[below(draw, 6)];
}

static int32_t draw_type(struct draw *draw) {
    return once_in(draw, 30) ? (int32_t)below(draw, 40) - 10 : (int32_t)below(draw, MUSTER_FLOAT64 + 1);
}

muster_group_t *draw_group(struct caller *caller, struct draw *draw) {
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

void first_of_two(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
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

void let_go(struct held *held) {
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

/* A collective that was drawn, and its buffers. */
struct drawn {
    muster_group_t *group;
    size_t count, own; /* elements of each part; of this rank's */
    int32_t type, op, root;
    uint32_t kind;
    struct held used;
    size_t *counts, *at;
    void **ins, **outs;
    muster_request_t *request;
};

static void make_buffers(struct drawn *drawn, size_t size) {
    size_t count = drawn->count;
    drawn->used.in = room(count * 8 * size);
    drawn->used.out = room(count * 8 * size);
    drawn->counts = room(size * sizeof *drawn->counts);
    drawn->at = room(size * sizeof *drawn->at);
    drawn->ins = room(size * sizeof *drawn->ins);
    drawn->outs = room(size * sizeof *drawn->outs);
    for (size_t i = 0; i < size; i++) {
        drawn->counts[i] = i % 2 == 0 ? count : count / 2;
        drawn->at[i] = i * count;
        drawn->ins[i] = (char *)drawn->used.in + i * count * 8;
        drawn->outs[i] = (char *)drawn->used.out + i * count * 8;
    }
    int32_t rank = muster_group_rank(drawn->group);
    drawn->own = rank < 0 ? 0 : drawn->counts[rank];
}

/* The even kinds: a call that is waited for. */
static muster_status_t call_at_once(struct drawn *drawn) {
    muster_group_t *group = drawn->group;
    void *in = drawn->used.in, *out = drawn->used.out;
    size_t count = drawn->count, own = drawn->own;
    int32_t type = drawn->type, op = drawn->op, root = drawn->root;
    switch (drawn->kind) {
    case 0: return muster_barrier(group);
    case 2: return muster_broadcast(group, out, count, type, root);
    case 4: return muster_allreduce(group, in, out, count, type, op);
    case 6: return muster_allgather(group, in, out, count, type);
    case 8: return muster_alltoall(group, in, out, count, type);
    case 10: return muster_reduce_scatter(group, in, out, count, type, op);
    case 12: return muster_gather(group, in, out, count, type, root);
    case 14: return muster_allgatherv(group, in, own, out, drawn->counts, drawn->at, type);
    case 16: return muster_allreduce(group, out, out, count, type, op);
    case 18: return muster_allreduce_with(group, in, out, count, MUSTER_ELEMENT + 7, first_of_two, NULL, 0);
    default: return muster_allgather_list(group, in, own, drawn->outs, drawn->counts, type);
    }
}

/* The odd ones: a call with a request. */
static muster_status_t start(struct drawn *drawn) {
    muster_group_t *group = drawn->group;
    void *in = drawn->used.in, *out = drawn->used.out;
    const void *const *ins = (const void *const *)drawn->ins;
    size_t count = drawn->count, own = drawn->own;
    int32_t type = drawn->type, op = drawn->op, root = drawn->root;
    muster_request_t **request = &drawn->request;
    switch (drawn->kind) {
    case 1: return muster_ibarrier(group, request);
    case 3: return muster_ibroadcast(group, out, count, type, root, request);
    case 5: return muster_iallreduce(group, in, out, count, type, op, request);
    case 7: return muster_iallgather(group, in, out, count, type, request);
    case 9: return muster_ialltoall(group, in, out, count, type, request);
    case 11: return muster_ireduce(group, in, out, count, type, op, root, request);
    case 13: return muster_iscatter(group, in, out, count, type, root, request);
    case 15: return muster_iallgatherv(group, in, own, out, drawn->counts, drawn->at, type, request);
    case 19: return muster_iallreduce_with(group, in, out, count, type, first_of_two, NULL, 1, request);
    case 21: return muster_ireduce_scatter_list(group, ins, drawn->counts, out, own, type, op, request);
    default: return muster_iallreduce(group, NULL, NULL, 0, type, op, request);
    }
}

void collective(struct caller *caller, struct draw *draw, muster_group_t *group) {
    struct drawn drawn = {.group = group};
    int32_t group_size = muster_group_size(group);
    size_t size = group_size < 1 ? 1 : (size_t)group_size;
    drawn.count = below(draw, 1u << (1 + below(draw, 12))) % COUNT_MAX;
    drawn.type = draw_type(draw);
    drawn.op = once_in(draw, 20) ? (int32_t)below(draw, 20) - 5 : (int32_t)below(draw, MUSTER_MAX + 1);
    drawn.root = once_in(draw, 30) ? (int32_t)below(draw, 20) - 10 : (int32_t)below(draw, (uint32_t)size);
    drawn.kind = below(draw, 22);
    struct held *place = free_place(caller);
    int had_left = __atomic_load_n(&caller->node->left, __ATOMIC_SEQ_CST);
    if (caller->op >= 0 && drawn.kind == 4) {
        drawn.op = caller->op;
    }
    if (place == NULL) {
        drawn.kind &= ~1u; /* one that is waited for */
    }
    make_buffers(&drawn, size);
    muster_status_t status = drawn.kind % 2 == 0 ? call_at_once(&drawn) : start(&drawn);
    began(had_left, drawn.kind, status, drawn.request);
    CHECK(group != NULL || status == MUSTER_ERR_INVALID);
    CHECK(drawn.request == NULL || status == MUSTER_OK);
    free(drawn.counts);
    free(drawn.at);
    free(drawn.ins);
    free(drawn.outs);
    keep(place, drawn.request, drawn.used);
}

void message(struct caller *caller) {
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

void request(struct caller *caller) {
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
