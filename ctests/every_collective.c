/* Every collective over real links: each with every element type and every operation that the type allows, on 1 to 16
 * ranks, compared with answers computed here, to the bit. What the header leaves free is drawn by seed: counts (so that
 * every threshold between algorithms is crossed), where buffers begin, gaps and order of parts, the root; in place, apart
 * or overlapping; one buffer or a list of them; waited for at once or later; a user's operation made before, or brought by
 * the call. Memory that a call may not write must be as it was before.
 *
 * `every_collective [seed]`: a seed decides everything but the threads' timing. */
#include "every_collective.h"
#include "arithmetic.h"
#include "chance.h"
#include "check.h"
#include "nodes.h"

#include <stdlib.h>

enum {
    ROUNDS = 2,         /* of every operation with every type */
    ROUNDS_WITHOUT = 4, /* of every type, where nothing is reduced */
    BARRIERS = 8,
    CALLS = 1500,       /* more than there are on one size */
    GUARD = 64          /* bytes before and behind every buffer */
};

/* What a kind of call reads and writes. */
static const struct traits {
    const char *name;
    int reduces;
    int many_in, many_out;  /* the buffer has a part for every rank */
    int from_root, to_root; /* only the root gives, or takes */
    int unequal;            /* the parts' counts are given one by one */
} kinds[KINDS] = {
    [BROADCAST] = {.name = "broadcast", .from_root = 1},
    [ALLREDUCE] = {.name = "allreduce", .reduces = 1},
    [REDUCE] = {.name = "reduce", .reduces = 1, .to_root = 1},
    [ALLGATHER] = {.name = "allgather", .many_out = 1},
    [ALLGATHERV] = {.name = "allgatherv", .many_out = 1, .unequal = 1},
    [GATHER] = {.name = "gather", .many_out = 1, .to_root = 1},
    [GATHERV] = {.name = "gatherv", .many_out = 1, .to_root = 1, .unequal = 1},
    [SCATTER] = {.name = "scatter", .many_in = 1, .from_root = 1},
    [SCATTERV] = {.name = "scatterv", .many_in = 1, .from_root = 1, .unequal = 1},
    [REDUCE_SCATTER] = {.name = "reduce_scatter", .reduces = 1, .many_in = 1},
    [REDUCE_SCATTERV] = {.name = "reduce_scatterv", .reduces = 1, .many_in = 1, .unequal = 1},
    [ALLTOALL] = {.name = "alltoall", .many_in = 1, .many_out = 1},
    [ALLTOALLV] = {.name = "alltoallv", .many_in = 1, .many_out = 1, .unequal = 1},
    [BARRIER] = {.name = "barrier"},
};

static const char *const op_names[OPS] = {
    "sum", "prod", "min", "max", "avg", "and", "or", "xor", "a user's commutative", "a user's ordered",
};

static uint64_t seed = 1;

/* All calls on one size, in order. */
struct program {
    int size;
    int calls;
    int entered; /* into barriers, by all ranks together */
    struct call call[CALLS];
};

/* A user's operations: one of either kind for each type, to see that each is called for its own only. */
struct users {
    int op;
    int32_t dtype;
};

static void users_function(const void *in, void *inout, size_t count, int32_t dtype, void *ctx) {
    const struct users *users = ctx;
    size_t width = types[users->dtype].width;
    CHECK_IS(users->dtype, dtype);
    CHECK((uintptr_t)in % width == 0 && (uintptr_t)inout % width == 0); /* one may cast them to what they are */
    for (size_t i = 0; i < count; i++) {
        put(inout, i, width, combine(users->op, dtype, get(in, i, width), get(inout, i, width)));
    }
}

/* The parts of a buffer. */
struct parts {
    int number;
    size_t counts[MOST], displs[MOST];
    size_t firsts[MOST];                     /* where each would begin if they followed each other */
    size_t extent;                           /* where the last ends */
    const size_t *pass_counts, *pass_displs; /* what the call is given */
};

/* How many elements go from one rank to another. */
static size_t amount(const struct call *call, int from, int to) {
    const struct traits *kind = &kinds[call->kind];
    int which = kind->many_in ? to : from;
    if (!kind->unequal) {
        return call->count;
    }
    if (kind->many_in && kind->many_out) {
        which = call->alike && from > to ? to * MOST + from : from * MOST + to;
    }
    uint64_t bits = mix(call->key ^ (uint64_t)(which + 1) * 0xd6e8feb86659fd93u);
    return bits % 4 == 0 ? 0 : (size_t)((bits >> 8) % (2 * call->count + 1));
}

/* One behind the other; or in any order, and with gaps. */
static void lay_out(struct parts *parts, int anyhow, uint64_t *random) {
    int order[MOST];
    parts->extent = 0;
    for (int i = 0; i < parts->number; i++) {
        parts->firsts[i] = i == 0 ? 0 : parts->firsts[i - 1] + parts->counts[i - 1];
        int at = anyhow ? (int)below(random, (size_t)i + 1) : i;
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < parts->number; i++) {
        parts->displs[order[i]] = parts->extent + (anyhow ? below(random, 6) : 0);
        parts->extent = parts->displs[order[i]] + parts->counts[order[i]];
    }
    parts->pass_counts = parts->counts;
    parts->pass_displs = anyhow || one_in(random, 2) ? parts->displs : NULL;
}

/* Lists that are not used here may hold anything. */
static void make_void(struct parts *parts, uint64_t *random) {
    memset(parts->counts, 0xff, sizeof parts->counts);
    memset(parts->displs, 0xff, sizeof parts->displs);
    parts->pass_counts = one_in(random, 2) ? parts->counts : NULL;
    parts->pass_displs = one_in(random, 2) ? parts->displs : NULL;
}

/* A buffer with guards around it; and what all of it must be after the call. */
struct block {
    unsigned char *bytes, *at, *expected;
    size_t length;
};

static void make_block(struct block *block, size_t elements, size_t width, uint64_t *random) {
    size_t before = GUARD + width * below(random, GUARD / width);
    block->length = before + elements * width + GUARD;
    block->bytes = malloc(block->length);
    block->expected = malloc(block->length);
    CHECK(block->bytes != NULL && block->expected != NULL);
    memset(block->bytes, 0x5a, block->length);
    block->at = block->bytes + before;
}

/* One rank's part in a call, from its preparation until it has been checked. */
struct turn {
    const struct call *call;
    int number; /* of the call in its program */
    int rank;
    int gives, takes;
    int in_place, overlaps, listed; /* the last: the parts' buffers are passed one by one */
    int blocking, later; /* the latter: it is waited for only when the next has begun */
    struct parts in, out;
    struct block in_block, out_block; /* the latter has no bytes where the former is both */
    unsigned char *in_at, *out_at;
    void *list[MOST]; /* where the parts are, if it is listed */
    muster_request_t *request;
};

static void say(const struct turn *turn) {
    const struct call *call = turn->call;
    fprintf(stderr, "    seed %llu, %d ranks, rank %d, call %d: %s%s%s of %s, %s%s, count %zu, root %d%s\n",
            (unsigned long long)seed, call->size, turn->rank, turn->number, turn->blocking ? "" : "i",
            kinds[call->kind].name, turn->listed ? " on a list" : "", types[call->dtype].name,
            kinds[call->kind].reduces ? op_names[call->op] : "no operation", call->given ? " with the call" : "",
            call->count, (int)call->root, turn->in_place ? ", in place" : turn->overlaps ? ", overlapping" : "");
}

static void make_blocks(struct turn *turn, uint64_t *random) {
    const struct traits *kind = &kinds[turn->call->kind];
    size_t width = types[turn->call->dtype].width, unused = below(random, 8);
    if (turn->in_place && turn->gives && turn->takes) {
        size_t extent = turn->in.extent > turn->out.extent ? turn->in.extent : turn->out.extent;
        make_block(&turn->in_block, extent, width, random);
        turn->in_at = turn->out_at = turn->in_block.at;
        if (kind->many_out && !kind->many_in) {
            turn->in_at += turn->out.displs[turn->rank] * width;
        } else if (kind->many_in && !kind->many_out) {
            turn->out_at += turn->in.displs[turn->rank] * width;
        }
        return;
    }
    if (turn->overlaps) {
        /* Anywhere, so that none, some or all bytes are of both; or, by chance, as in place. */
        size_t most = turn->in.extent > turn->out.extent ? turn->in.extent : turn->out.extent, shift = below(random, most + 1);
        make_block(&turn->in_block, 2 * most, width, random);
        turn->in_at = turn->in_block.at + (one_in(random, 2) ? shift * width : 0);
        turn->out_at = turn->in_block.at + (turn->in_at == turn->in_block.at ? shift * width : 0);
        return;
    }
    make_block(&turn->in_block, turn->gives ? turn->in.extent : unused, width, random);
    make_block(&turn->out_block, turn->takes ? turn->out.extent : unused, width, random);
    turn->in_at = turn->in_block.at;
    turn->out_at = turn->out_block.at;
    if (!turn->gives) {
        make_void(&turn->in, random);
        turn->in_at = turn->in_place ? turn->out_at : one_in(random, 2) ? NULL : turn->in_at;
    } else if (turn->in.extent == 0 && one_in(random, 2)) {
        turn->in_at = NULL;
    }
    if (!turn->takes) {
        make_void(&turn->out, random);
        turn->out_at = turn->in_place ? turn->in_at : one_in(random, 2) ? NULL : turn->out_at;
    } else if (turn->out.extent == 0 && one_in(random, 2)) {
        turn->out_at = NULL;
    }
}

/* Where a byte of a buffer stands in what is expected of its block. */
static unsigned char *expected_at(struct block *block, const unsigned char *at) {
    return block->expected + (at - block->bytes);
}

/* Writes what this rank gives. */
static void fill(struct turn *turn, const struct period *period) {
    const struct call *call = turn->call;
    const struct traits *kind = &kinds[call->kind];
    size_t width = types[call->dtype].width;
    for (int to = 0; turn->gives && turn->in_at != NULL && to < turn->in.number; to++) {
        unsigned char *at = turn->in_at + turn->in.displs[to] * width;
        if (kind->reduces) {
            repeat(at, period->given, width, turn->in.firsts[to], turn->in.counts[to]);
        } else {
            contents(at, stream(call, turn->rank, kind->many_in ? to : 0), turn->in.counts[to] * width);
        }
    }
}

/* Everything as it is now, but for what the call is to write. */
static void expect(struct turn *turn, const struct period *period) {
    const struct call *call = turn->call;
    const struct traits *kind = &kinds[call->kind];
    struct block *block = turn->out_block.bytes == NULL ? &turn->in_block : &turn->out_block;
    size_t width = types[call->dtype].width;
    memcpy(turn->in_block.expected, turn->in_block.bytes, turn->in_block.length);
    if (turn->out_block.bytes != NULL) {
        memcpy(turn->out_block.expected, turn->out_block.bytes, turn->out_block.length);
    }
    for (int part = 0; turn->takes && turn->out_at != NULL && part < turn->out.number; part++) {
        unsigned char *at = expected_at(block, turn->out_at + turn->out.displs[part] * width);
        int from = kind->many_out ? part : call->root;
        if (kind->reduces) {
            repeat(at, period->result, width, kind->many_in ? turn->in.firsts[turn->rank] : 0, turn->out.counts[part]);
        } else {
            contents(at, stream(call, from, kind->many_in ? turn->rank : 0), turn->out.counts[part] * width);
        }
    }
}

/* Both buffers' parts, and whether one of them lies within the other. */
static void lay_out_both(struct turn *turn, uint64_t *random) {
    const struct call *call = turn->call;
    const struct traits *kind = &kinds[call->kind];
    turn->listed = (call->kind == ALLGATHERV || (call->kind == REDUCE_SCATTERV && !call->given)) && one_in(random, 2);
    int anyhow = kind->unequal && (!kind->reduces || turn->listed);
    turn->in_place = call->kind == BROADCAST || (one_in(random, 3) && (call->kind != ALLTOALLV || call->alike));
    turn->overlaps = !turn->in_place && turn->gives && turn->takes && one_in(random, 3);
    turn->in.number = kind->many_in ? call->size : 1;
    turn->out.number = kind->many_out ? call->size : 1;
    for (int other = 0; other < call->size; other++) {
        turn->in.counts[other] = amount(call, turn->rank, other);
        turn->out.counts[other] = amount(call, other, turn->rank);
    }
    lay_out(&turn->in, anyhow && kind->many_in && !one_in(random, 4), random);
    lay_out(&turn->out, anyhow && kind->many_out && !one_in(random, 4), random);
    if (kind->many_in && kind->many_out && turn->in_place) {
        memcpy(turn->out.displs, turn->in.displs, sizeof turn->in.displs);
        turn->out.extent = turn->in.extent;
        turn->out.pass_displs = turn->in.pass_displs == NULL ? NULL : turn->out.displs;
    }
}

/* Where the parts are, each by itself; an empty one may be nowhere. */
static void make_list(struct turn *turn, uint64_t *random) {
    const struct parts *parts = turn->call->kind == ALLGATHERV ? &turn->out : &turn->in;
    unsigned char *at = turn->call->kind == ALLGATHERV ? turn->out_at : turn->in_at;
    size_t width = types[turn->call->dtype].width;
    for (int part = 0; turn->listed && part < parts->number; part++) {
        turn->list[part] = parts->counts[part] == 0 && one_in(random, 2) ? NULL : at + parts->displs[part] * width;
    }
}

static void prepare(struct turn *turn, const struct program *program, int number, int rank, uint64_t *random) {
    const struct call *call = &program->call[number];
    const struct traits *kind = &kinds[call->kind];
    struct period period;
    *turn = (struct turn){.call = call, .number = number, .rank = rank};
    turn->gives = !kind->from_root || rank == call->root;
    turn->takes = !kind->to_root || rank == call->root;
    turn->blocking = !one_in(random, 3); /* each rank as it likes */
    turn->later = one_in(random, 2);
    if (call->kind == BARRIER) {
        return;
    }
    lay_out_both(turn, random);
    make_blocks(turn, random);
    if (kind->reduces) {
        reckon(&period, call, rank, turn->in.extent);
    }
    fill(turn, &period);
    expect(turn, &period);
    make_list(turn, random);
}

#define EITHER(name, ...) (turn->blocking ? muster_##name(__VA_ARGS__) : muster_i##name(__VA_ARGS__, &turn->request))

static muster_status_t start_given(struct turn *turn, muster_group_t *group, struct users *ours) {
    const struct call *call = turn->call;
    const void *in = turn->in_at;
    void *out = turn->out_at;
    int32_t dtype = call->dtype, commutes = call->op == COMMUTATIVE;
    muster_reduce_fn fn = users_function;
    switch (call->kind) {
    case ALLREDUCE: return EITHER(allreduce_with, group, in, out, call->count, dtype, fn, ours, commutes);
    case REDUCE: return EITHER(reduce_with, group, in, out, call->count, dtype, fn, ours, commutes, call->root);
    case REDUCE_SCATTER: return EITHER(reduce_scatter_with, group, in, out, call->count, dtype, fn, ours, commutes);
    default: return EITHER(reduce_scatterv_with, group, in, out, turn->in.pass_counts, dtype, fn, ours, commutes);
    }
}

static muster_status_t start_reduction(struct turn *turn, muster_group_t *group, int32_t op) {
    const struct call *call = turn->call;
    const void *in = turn->in_at;
    void *out = turn->out_at;
    int32_t dtype = call->dtype;
    if (turn->listed) {
        return EITHER(reduce_scatter_list, group, (const void *const *)turn->list, turn->in.pass_counts, out,
                      turn->in.counts[turn->rank], dtype, op);
    }
    switch (call->kind) {
    case ALLREDUCE: return EITHER(allreduce, group, in, out, call->count, dtype, op);
    case REDUCE: return EITHER(reduce, group, in, out, call->count, dtype, op, call->root);
    case REDUCE_SCATTER: return EITHER(reduce_scatter, group, in, out, call->count, dtype, op);
    default: return EITHER(reduce_scatterv, group, in, out, turn->in.pass_counts, dtype, op);
    }
}

static muster_status_t start(struct turn *turn, muster_group_t *group, int32_t op, struct users *ours) {
    const struct call *call = turn->call;
    const void *in = turn->in_at;
    void *out = turn->out_at;
    const size_t *in_counts = turn->in.pass_counts, *in_displs = turn->in.pass_displs;
    const size_t *out_counts = turn->out.pass_counts, *out_displs = turn->out.pass_displs;
    size_t count = call->count, gives = amount(call, turn->rank, 0), takes = amount(call, 0, turn->rank);
    int32_t dtype = call->dtype, root = call->root;
    if (call->given) {
        return start_given(turn, group, ours);
    }
    if (turn->listed && call->kind == ALLGATHERV) {
        return EITHER(allgather_list, group, in, gives, turn->list, out_counts, dtype);
    }
    switch (call->kind) {
    case BARRIER: return EITHER(barrier, group);
    case BROADCAST: return EITHER(broadcast, group, out, count, dtype, root);
    case ALLGATHER: return EITHER(allgather, group, in, out, count, dtype);
    case ALLGATHERV: return EITHER(allgatherv, group, in, gives, out, out_counts, out_displs, dtype);
    case GATHER: return EITHER(gather, group, in, out, count, dtype, root);
    case GATHERV: return EITHER(gatherv, group, in, gives, out, out_counts, out_displs, dtype, root);
    case SCATTER: return EITHER(scatter, group, in, out, count, dtype, root);
    case SCATTERV: return EITHER(scatterv, group, in, in_counts, in_displs, out, takes, dtype, root);
    case ALLTOALL: return EITHER(alltoall, group, in, out, count, dtype);
    case ALLTOALLV:
        return EITHER(alltoallv, group, in, in_counts, in_displs, out, out_counts, out_displs, dtype);
    default: return start_reduction(turn, group, op);
    }
}

static void begin(struct turn *turn, muster_group_t *group, struct program *program, int32_t op, struct users *ours) {
    if (turn->call->kind == BARRIER) {
        __atomic_add_fetch(&program->entered, 1, __ATOMIC_SEQ_CST);
    }
    muster_status_t status = start(turn, group, op, ours);
    if (status != MUSTER_OK) {
        say(turn);
    }
    CHECK_OK(status);
    /* The lists were read, and are the caller's again. */
    memset(turn->list, 0xff, sizeof turn->list);
    memset(turn->in.counts, 0xff, sizeof turn->in.counts);
    memset(turn->in.displs, 0xff, sizeof turn->in.displs);
    memset(turn->out.counts, 0xff, sizeof turn->out.counts);
    memset(turn->out.displs, 0xff, sizeof turn->out.displs);
}

static void check_block(const struct turn *turn, struct block *block, const char *name) {
    if (block->bytes != NULL && memcmp(block->bytes, block->expected, block->length) != 0) {
        size_t at = 0;
        while (block->bytes[at] == block->expected[at]) {
            at++;
        }
        say(turn);
        fprintf(stderr, "    byte %td of %s (%zu of its block's %zu) is 0x%02x, expected 0x%02x\n",
                block->bytes + at - block->at, name, at, block->length, block->bytes[at], block->expected[at]);
        CHECK(!"a buffer is as expected");
    }
    free(block->bytes);
    free(block->expected);
}

/* Waits for its end, if that has not come, and checks what has become of the buffers. */
static void end(struct turn *turn, struct program *program) {
    const struct call *call = turn->call;
    if (turn->request != NULL) {
        muster_status_t status = muster_request_wait(turn->request, -1);
        if (status != MUSTER_OK) {
            say(turn);
        }
        CHECK_OK(status);
        muster_request_free(turn->request);
    }
    check_block(turn, &turn->in_block, turn->out_block.bytes == NULL ? "in and out" : "in");
    check_block(turn, &turn->out_block, "out");
    size_t entered = (size_t)__atomic_load_n(&program->entered, __ATOMIC_SEQ_CST);
    if (call->kind == BARRIER && entered < call->count * (size_t)call->size) {
        say(turn);
        CHECK(!"nobody gets through a barrier before everybody has come");
    }
    turn->call = NULL;
}

static void make_ops(muster_cluster_t *cluster, struct users users[OPS][TYPES], int32_t ops[OPS][TYPES]) {
    for (int op = 0; op < OPS; op++) {
        for (int32_t dtype = 0; dtype < TYPES; dtype++) {
            struct users *ours = &users[op][dtype];
            *ours = (struct users){op, dtype};
            ops[op][dtype] = op;
            if (op >= COMMUTATIVE) {
                CHECK_OK(muster_op_create(cluster, users_function, ours, op == COMMUTATIVE, &ops[op][dtype]));
            }
        }
    }
}

static void play(muster_cluster_t *cluster, int index, void *context) {
    struct program *program = context;
    muster_group_t *world = muster_world(cluster);
    int rank = muster_rank(cluster);
    uint64_t random = mix(seed * 1000003 + (uint64_t)(program->size * MOST + rank));
    struct users users[OPS][TYPES];
    int32_t ops[OPS][TYPES];
    struct turn turns[2] = {{.call = NULL}, {.call = NULL}};
    (void)index;
    CHECK_IS(program->size, muster_size(cluster));
    make_ops(cluster, users, ops);
    for (int i = 0; i < program->calls; i++) {
        struct turn *turn = &turns[i % 2], *before = &turns[1 - i % 2];
        prepare(turn, program, i, rank, &random);
        begin(turn, world, program, ops[turn->call->op][turn->call->dtype], &users[turn->call->op][turn->call->dtype]);
        if (before->call != NULL) {
            end(before, program);
        }
        if (turn->blocking || !turn->later || i == program->calls - 1) {
            end(turn, program);
        }
    }
    for (int op = COMMUTATIVE; op < OPS; op++) {
        for (int32_t dtype = 0; dtype < TYPES; dtype++) {
            CHECK_OK(muster_op_free(cluster, ops[op][dtype]));
        }
    }
}

/* Elements of the longest buffer: of every twelve calls one has around a MiB, two have around 64 and 128 KiB. */
static size_t elements(uint64_t *random, int turn, size_t width) {
    if (turn % 12 == 0) {
        return ((700 << 10) + below(random, 700 << 10)) / width;
    }
    if (turn % 12 <= 2) {
        return ((40 << 10) + below(random, 120 << 10)) / width;
    }
    return one_in(random, 12) ? 0 : one_in(random, 4) ? below(random, 64) : below(random, 5000);
}

static void add(struct program *program, uint64_t *random, enum kind kind, int32_t dtype, int op, int turn) {
    size_t size = (size_t)program->size, all = elements(random, turn, types[dtype].width);
    CHECK(program->calls < CALLS);
    program->call[program->calls++] = (struct call){
        .kind = kind, .dtype = dtype, .op = op, .root = (int32_t)below(random, size), .size = program->size,
        .count = kinds[kind].many_in || kinds[kind].many_out ? all / size : all, .alike = one_in(random, 2),
        .key = next(random), .given = op >= COMMUTATIVE && one_in(random, 2),
    };
}

static void write_program(struct program *program, int size) {
    uint64_t random = mix(seed) + (uint64_t)size;
    size_t barriers = 0;
    program->size = size;
    program->calls = program->entered = 0;
    for (enum kind kind = BROADCAST; kind < KINDS; kind++) {
        int reduces = kinds[kind].reduces, shift = (int)below(&random, 12);
        int times = kind == BARRIER ? BARRIERS : TYPES * (reduces ? OPS * ROUNDS : ROUNDS_WITHOUT);
        for (int i = 0; i < times; i++) {
            int32_t dtype = i % TYPES;
            int op = reduces ? i / TYPES % OPS : 0;
            if (types[dtype].exact == 0 || op < MUSTER_AND || op > MUSTER_XOR) {
                add(program, &random, kind, dtype, op, shift + i % TYPES + i / TYPES * 5);
            }
        }
    }
    for (int i = 0; i < program->calls; i++) {
        struct call *call = &program->call[i], kept = *call;
        struct call *other = call + below(&random, (size_t)(program->calls - i));
        *call = *other;
        *other = kept;
        call->count = call->kind == BARRIER ? ++barriers : call->count;
    }
}

int main(int argc, char **argv) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, MOST};
    static struct program program;
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 0);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct plan plan = {.workers = sizes[i], .node_ids = rank_ids, .body = play, .context = &program};
        write_program(&program, sizes[i]);
        run_nodes(&plan);
    }
    return 0;
}
