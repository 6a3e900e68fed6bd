/* A storm of messages: on several groups at once, from and to several threads of every rank, of every size, blocking and
 * not, to receives that name their sender and tag and to others that take whatever comes, with receives and sends that
 * are cancelled and begun anew, messages that do not fit, and collectives of the same groups meanwhile. What goes where is
 * drawn by seed, so that every rank knows all of it: the owner of each message, its place among those with its sender and
 * tag, and each of its bytes.
 *
 * It cannot get stuck, whatever the threads' timing: each thread sends or receives in the order of one list, and one that
 * takes whatever comes takes nothing else. `message_storm [seed]` */
#include "chance.h"
#include "check.h"
#include "nodes.h"
#include "own.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum {
    KIB = 1 << 10,
    MIB = 1 << 20,
    EAGER_MAX = 64 * KIB,  /* a longer message asks first */
    PIECE = 256 * KIB,     /* in which it travels */
    MOST = 6,              /* ranks */
    MESSAGES = 160,        /* times ranks */
    ROUNDS = 24,           /* of sendrecv, and of collectives */
    PART_WHERE_WATCHED = 3, /* of the messages and rounds */
    WINDOW = 6,            /* operations that a thread has under way */
    GUARD = 64,            /* bytes behind every receive's room */
    MADE = 3,              /* groups that the storm is on; the universe's beside them is for sendrecv */
    GROUPS = MADE + 1,
    SENDERS = 2,           /* threads of each rank */
    NAMING = 1, TAKING = 2, /* those that receive: by sender and tag, or what comes */
    RECEIVERS = NAMING + TAKING,
    TAGS = 6,
    NEVER = 77, LAST = 88, ROUND = 1000
};

static const int32_t tags[TAGS] = {0, 1, 2, 7, 1000000, INT32_MAX};
static const struct { int32_t dtype; size_t width; } types[] = {
    {MUSTER_UINT8, 1}, {MUSTER_BFLOAT16, 2}, {MUSTER_FLOAT32, 4}, {MUSTER_INT64, 8},
};

static uint64_t seed = 1;

static int here(int count) { return less_where_watched(count, count / PART_WHERE_WATCHED); }

struct message {
    int group, from, to; /* the latter two by their ranks in the world */
    int tag;             /* its place in `tags` */
    int sender, receiver; /* the threads */
    int type;             /* its place in `types` */
    size_t count;
    int misfit; /* its receive has not the room, or is of another type */
    uint64_t key;
};

/* What a thread that takes what comes asks for; -1: any. */
struct wish {
    int group, from, tag;
};

struct storm {
    int size, count;
    struct wish wishes[MOST][TAKING];
    struct message messages[MESSAGES * MOST];
};

/* One thread of one rank. */
struct part {
    const struct storm *storm;
    muster_group_t *groups[GROUPS];
    int rank, thread;
    uint64_t random;
};

static size_t length(uint64_t *random) {
    switch (below(random, 16)) {
    case 0: return 0;
    case 1: case 2: return EAGER_MAX - 8 + below(random, 17);
    case 3: return PIECE - 8 + below(random, 17);
    case 4: case 5: return EAGER_MAX + below(random, 4 * PIECE);
    case 6: return one_in(random, 3) ? below(random, 3 * MIB) : below(random, PIECE);
    case 7: case 8: case 9: return below(random, 20 * KIB);
    default: return below(random, 200);
    }
}

/* Contents. */

static uint64_t word(uint64_t key, size_t at) { return (key + at) * 0x9e3779b97f4a7c15u; }

static unsigned char *filled(uint64_t key, size_t bytes) {
    unsigned char *memory = malloc(bytes + 8);
    CHECK(memory != NULL);
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t bits = word(key, at);
        memcpy(memory + at, &bits, 8);
    }
    return memory;
}

/* The buffer is the caller's again: if it is still read or written, that shows elsewhere. */
static void give_back(unsigned char *memory, size_t bytes) {
    memset(memory, 0xdd, bytes);
    free(memory);
}

static unsigned char *empty(size_t room) {
    unsigned char *memory = malloc(room + GUARD);
    CHECK(memory != NULL);
    memset(memory, 0xee, room + GUARD);
    return memory;
}

/* Whether a message has come, and nothing else was written. */
static int holds(const unsigned char *memory, uint64_t key, size_t bytes, size_t room) {
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t bits = word(key, at);
        if (memcmp(memory + at, &bits, bytes - at < 8 ? bytes - at : 8) != 0) {
            fprintf(stderr, "    byte %zu or one of the seven after it, of %zu\n", at, bytes);
            return 0;
        }
    }
    for (size_t at = bytes; at < room + GUARD; at++) {
        if (memory[at] != 0xee) {
            fprintf(stderr, "    byte %zu, behind a message of %zu in room for %zu\n", at, bytes, room);
            return 0;
        }
    }
    return 1;
}

/* The plan. */

/* A rank's place in a group: the world, all in reverse, and those with as even a rank in reverse. */
static int place(const struct storm *storm, int group, int rank) {
    switch (group) {
    case 1: return storm->size - 1 - rank;
    case 2: return (storm->size - 1 - rank) / 2;
    default: return rank;
    }
}

static int meets(const struct wish *wish, const struct message *message) {
    return wish->group == message->group && (wish->from < 0 || wish->from == message->from)
        && (wish->tag < 0 || wish->tag == message->tag);
}

static void plan_wishes(struct storm *storm, uint64_t *random) {
    for (int rank = 0; rank < storm->size; rank++) {
        struct wish *wishes = storm->wishes[rank];
        int first = (int)below(random, MADE), step = 1 + (int)below(random, MADE - 1);
        int from = one_in(random, 2) ? -1 : (int)below(random, (size_t)storm->size);
        wishes[0] = (struct wish){first, from, -1};
        wishes[1] = (struct wish){(first + step) % MADE, -1, (int)below(random, TAGS)};
    }
}

static void plan(struct storm *storm, int size) {
    uint64_t random = mix(seed) + (uint64_t)size;
    storm->size = size;
    storm->count = here(MESSAGES) * size;
    plan_wishes(storm, &random);
    for (int at = 0; at < storm->count; at++) {
        struct message *message = &storm->messages[at];
        int group = (int)below(&random, MADE), from = (int)below(&random, (size_t)size), to = from;
        do {
            to = (int)below(&random, (size_t)size);
        } while (group == 2 && (from - to) % 2 != 0);
        *message = (struct message){.group = group, .from = from, .to = to, .tag = (int)below(&random, TAGS),
                                    .key = next(&random)};
        message->sender = message->tag % SENDERS; /* those with one tag are one thread's, in order */
        for (int taker = TAKING - 1; taker >= 0; taker--) {
            if (meets(&storm->wishes[to][taker], message)) {
                message->receiver = NAMING + taker;
            }
        }
        message->type = (group + to + message->receiver) % 4; /* of one kind for all that a thread takes */
        size_t bytes = length(&random);
        message->count = (from == to && bytes > EAGER_MAX ? bytes % EAGER_MAX : bytes) / types[message->type].width;
        message->misfit = message->receiver < NAMING && one_in(&random, 12);
    }
}

static size_t bytes_of(const struct message *message) { return message->count * types[message->type].width; }

static void say(const struct storm *storm, const struct message *message) {
    fprintf(stderr, "    seed %llu, %d ranks, message %td: rank %d to %d on group %d, tag %d, %zu times %zu bytes%s\n",
            (unsigned long long)seed, storm->size, message - storm->messages, message->from, message->to, message->group,
            (int)tags[message->tag], message->count, types[message->type].width, message->misfit ? ", a misfit" : "");
}

#define CHECK_OF(condition) ((condition) ? (void)0 : (say(part->storm, message), CHECK(condition)))

static muster_status_t end(muster_request_t *request) {
    muster_status_t status = muster_request_wait(request, -1);
    muster_request_free(request);
    return status;
}

static muster_status_t cancel(muster_request_t *request) {
    CHECK_OK(muster_request_cancel(request));
    return end(request);
}

/* Senders. */

struct going {
    const struct message *message;
    unsigned char *bytes;
    muster_request_t *request;
};

static void sent(struct part *part, struct going *going, muster_status_t status) {
    const struct message *message = going->message;
    int long_one = bytes_of(message) > EAGER_MAX;
    /* A short message that does not fit was announced if there was no credit left. */
    CHECK_OF(status == (message->misfit && long_one ? MUSTER_ERR_MISMATCH : MUSTER_OK)
             || (message->misfit && status == MUSTER_ERR_MISMATCH));
    give_back(going->bytes, bytes_of(message));
    going->message = NULL;
}

static void isend(struct part *part, struct going *going) {
    const struct message *message = going->message;
    int to = place(part->storm, message->group, message->to);
    CHECK_OK(muster_isend(part->groups[message->group], going->bytes, message->count, types[message->type].dtype, to,
                          tags[message->tag], &going->request));
}

static void *send_all(void *argument) {
    struct part *part = argument;
    const struct storm *storm = part->storm;
    struct going window[WINDOW] = {{NULL, NULL, NULL}};
    for (int at = 0; at < storm->count; at++) {
        const struct message *message = &storm->messages[at];
        if (message->from != part->rank || message->sender != part->thread) {
            continue;
        }
        struct going *going = &window[below(&part->random, WINDOW)];
        if (going->message != NULL) {
            sent(part, going, end(going->request));
        }
        *going = (struct going){message, filled(message->key, bytes_of(message)), NULL};
        if (one_in(&part->random, 3)) {
            int to = place(storm, message->group, message->to);
            sent(part, going, muster_send(part->groups[message->group], going->bytes, message->count,
                                          types[message->type].dtype, to, tags[message->tag]));
            continue;
        }
        isend(part, going);
        /* A message that does not fit may have been refused already, and that ends its receive. */
        while (going->message != NULL && !message->misfit && one_in(&part->random, 4)) {
            muster_status_t status = cancel(going->request);
            if (status == MUSTER_ERR_ABORTED) {
                isend(part, going); /* as if it had never been */
            } else {
                sent(part, going, status);
            }
        }
    }
    for (int at = 0; at < WINDOW; at++) {
        if (window[at].message != NULL) {
            sent(part, &window[at], end(window[at].request));
        }
    }
    return NULL;
}

/* Receivers. */

struct coming {
    const struct message *message; /* none where it takes what comes */
    muster_group_t *group;
    int32_t from, tag, dtype;
    size_t count, room; /* the latter in bytes */
    unsigned char *bytes;
    muster_received_t received, *report;
    muster_request_t *request;
};

static void irecv(struct coming *coming) {
    CHECK_OK(muster_irecv(coming->group, coming->bytes, coming->count, coming->dtype, coming->from, coming->tag,
                          coming->report, sizeof coming->received, &coming->request));
}

/* Begins a receive. Now and then takes it back and begins it again, while it is the newest of its thread. */
static muster_status_t receive(struct part *part, struct coming *coming) {
    coming->bytes = empty(coming->room);
    coming->received = (muster_received_t){-7, -7, 7, -7};
    if (one_in(&part->random, 3)) {
        return muster_recv(coming->group, coming->bytes, coming->count, coming->dtype, coming->from, coming->tag,
                           coming->report, sizeof coming->received);
    }
    irecv(coming);
    while (one_in(&part->random, 5)) {
        muster_status_t status = cancel(coming->request);
        if (status != MUSTER_ERR_ABORTED) {
            return status;
        }
        irecv(coming);
    }
    return MUSTER_IN_PROGRESS;
}

static void came(struct part *part, struct coming *coming, const struct message *message, muster_status_t status) {
    if (message->misfit) {
        CHECK_OF(status == MUSTER_ERR_MISMATCH);
    } else {
        const muster_received_t *received = &coming->received;
        CHECK_OF(status == MUSTER_OK);
        CHECK_OF(holds(coming->bytes, message->key, bytes_of(message), coming->room));
        if (coming->report != NULL) {
            CHECK_OF(received->source == place(part->storm, message->group, message->from));
            CHECK_OF(received->tag == tags[message->tag] && received->count == message->count);
            CHECK_OF(received->dtype == types[message->type].dtype);
        }
    }
    give_back(coming->bytes, coming->room + GUARD);
    coming->bytes = NULL;
}

/* A receive of what nobody sends is cancelled for certain. */
static void receive_never(struct part *part) {
    muster_request_t *request = NULL;
    unsigned char byte = 0xee;
    muster_group_t *group = part->groups[below(&part->random, MADE)];
    int from = one_in(&part->random, 2) ? MUSTER_ANY_SOURCE : (int)below(&part->random, (size_t)muster_group_size(group));
    CHECK_OK(muster_irecv(group, &byte, 1, MUSTER_UINT8, from, NEVER, NULL, 0, &request));
    CHECK_FAILS(MUSTER_ERR_ABORTED, "was cancelled", cancel(request));
    CHECK(byte == 0xee);
}

/* The receivers that name sender and tag, in the order of the plan. Their receives are waited for in any order. */
static void *receive_named(void *argument) {
    struct part *part = argument;
    const struct storm *storm = part->storm;
    struct coming window[WINDOW] = {{.bytes = NULL}};
    for (int at = 0; at < storm->count; at++) {
        const struct message *message = &storm->messages[at];
        if (message->to != part->rank || message->receiver != part->thread) {
            continue;
        }
        struct coming *coming = &window[below(&part->random, WINDOW)];
        if (coming->bytes != NULL) {
            came(part, coming, coming->message, end(coming->request));
        }
        int type = message->type;
        size_t count = message->count + (one_in(&part->random, 2) ? below(&part->random, 100) : 0);
        if (message->misfit && message->count > 0 && one_in(&part->random, 2)) {
            count = message->count - 1;
        } else if (message->misfit) {
            type = (type + 1) % 4;
        }
        *coming = (struct coming){.message = message, .group = part->groups[message->group], .tag = tags[message->tag],
                                  .from = place(storm, message->group, message->from), .dtype = types[type].dtype,
                                  .count = count, .room = count * types[type].width};
        coming->report = one_in(&part->random, 3) ? NULL : &coming->received;
        muster_status_t status = receive(part, coming);
        if (status != MUSTER_IN_PROGRESS) {
            came(part, coming, message, status);
        }
        if (one_in(&part->random, 8)) {
            receive_never(part);
        }
    }
    for (int at = 0; at < WINDOW; at++) {
        if (window[at].bytes != NULL) {
            came(part, &window[at], window[at].message, end(window[at].request));
        }
    }
    return NULL;
}

/* The message that a taker must have got: the next of that sender with that tag. */
static const struct message *whose(const struct part *part, const struct wish *wish, const muster_received_t *received,
                                   int *read) {
    const struct storm *storm = part->storm;
    for (int from = 0; from < storm->size; from++) {
        for (int tag = 0; tag < TAGS; tag++) {
            if (place(storm, wish->group, from) != received->source || tags[tag] != received->tag
                || (wish->group == 2 && (from - part->rank) % 2 != 0)) {
                continue;
            }
            for (int *at = &read[from * TAGS + tag]; *at < storm->count; ++*at) {
                const struct message *message = &storm->messages[*at];
                if (message->to == part->rank && message->receiver == part->thread && message->from == from
                    && message->tag == tag) {
                    ++*at;
                    return message;
                }
            }
        }
    }
    fprintf(stderr, "    seed %llu, %d ranks: rank %d got tag %d from rank %d on group %d\n", (unsigned long long)seed,
            storm->size, part->rank, received->tag, received->source, wish->group);
    CHECK(!"what comes is what was sent");
    return NULL;
}

/* The receivers that take whatever comes, in the order in which their receives were posted. */
static void *receive_what_comes(void *argument) {
    struct part *part = argument;
    const struct storm *storm = part->storm;
    const struct wish *wish = &storm->wishes[part->rank][part->thread - NAMING];
    struct coming window[WINDOW];
    int read[MOST * TAGS] = {0}, expected = 0, type = 0, begun = 0, wide = 1 + (int)below(&part->random, WINDOW);
    size_t most = 0;
    for (int at = 0; at < storm->count; at++) {
        const struct message *message = &storm->messages[at];
        if (message->to == part->rank && message->receiver == part->thread) {
            expected++;
            type = message->type;
            most = message->count > most ? message->count : most;
        }
    }
    struct coming blank = {.group = part->groups[wish->group], .count = most, .room = most * types[type].width,
                           .from = wish->from < 0 ? MUSTER_ANY_SOURCE : place(storm, wish->group, wish->from),
                           .tag = wish->tag < 0 ? MUSTER_ANY_TAG : tags[wish->tag], .dtype = types[type].dtype};
    muster_status_t statuses[WINDOW];
    for (int done = 0; done < expected; done++) {
        for (; begun < expected && begun - done < wide; begun++) {
            struct coming *coming = &window[begun % WINDOW];
            *coming = blank;
            coming->report = &coming->received;
            statuses[begun % WINDOW] = receive(part, coming);
        }
        struct coming *coming = &window[done % WINDOW];
        muster_status_t status = statuses[done % WINDOW];
        CHECK_OK(status == MUSTER_IN_PROGRESS ? end(coming->request) : status);
        came(part, coming, whose(part, wish, &coming->received, read), MUSTER_OK);
    }
    return NULL;
}

/* Sendrecv, with a partner to send to and one to receive from that change from round to round. */
static void shift(muster_group_t *group, int step, int32_t tag, uint64_t key, uint64_t *random) {
    int rank = muster_group_rank(group), size = muster_group_size(group);
    int to = (rank + step) % size, from = (rank + size - step % size) % size;
    uint64_t out_key = mix(key + (uint64_t)rank), in_key = mix(key + (uint64_t)from), out_size = out_key, in_size = in_key;
    size_t going = length(&out_size), coming = length(&in_size);
    unsigned char *out = filled(out_key, going), *in = empty(coming);
    muster_received_t received;
    int32_t source = one_in(random, 2) ? MUSTER_ANY_SOURCE : from;
    if (one_in(random, 2)) {
        CHECK_OK(muster_sendrecv(group, out, going, MUSTER_UINT8, to, tag, in, coming, MUSTER_UINT8, source, tag, &received,
                                 sizeof received));
    } else {
        muster_request_t *request = NULL;
        muster_status_t status;
        CHECK_OK(muster_isendrecv(group, out, going, MUSTER_UINT8, to, tag, in, coming, MUSTER_UINT8, source, tag,
                                  &received, sizeof received, &request));
        while ((status = muster_request_test(request)) == MUSTER_IN_PROGRESS) { /* at most for the group's time-out */
            sched_yield();
        }
        CHECK_OK(status);
        muster_request_free(request);
    }
    CHECK(received.source == from && received.tag == tag && received.count == coming);
    CHECK(holds(in, in_key, coming, coming));
    give_back(out, going);
    give_back(in, coming);
}

static void *shift_around(void *argument) {
    struct part *part = argument;
    muster_group_t *group = part->groups[MADE];
    uint64_t shared = mix(seed + 1000) + (uint64_t)part->storm->size;
    for (int round = 0; round < here(ROUNDS); round++) {
        int step = (int)below(&shared, (size_t)part->storm->size);
        shift(group, step, ROUND + round, next(&shared), &part->random);
        if (one_in(&part->random, 3)) { /* what nobody receives is cancelled for certain, if it is long */
            unsigned char *bytes = filled(1, 2 * EAGER_MAX);
            muster_request_t *request = NULL;
            CHECK_OK(muster_isend(group, bytes, 2 * EAGER_MAX, MUSTER_UINT8, (part->rank + 1) % part->storm->size, NEVER,
                                  &request));
            CHECK_FAILS(MUSTER_ERR_ABORTED, "was cancelled", cancel(request));
            give_back(bytes, 2 * EAGER_MAX);
        }
    }
    return NULL;
}

/* Collectives of all the groups; and groups that are made, used and freed meanwhile. */
static void *reckon(void *argument) {
    struct part *part = argument;
    for (int round = 0; round < here(ROUNDS); round++) {
        muster_group_t *group = part->groups[round % GROUPS];
        int64_t size = muster_group_size(group), mine = muster_group_rank(group) + round, sum = -1;
        if (round % 2 == 0) {
            CHECK_OK(muster_allreduce(group, &mine, &sum, 1, MUSTER_INT64, MUSTER_SUM));
        } else {
            muster_request_t *request = NULL;
            CHECK_OK(muster_iallreduce(group, &mine, &sum, 1, MUSTER_INT64, MUSTER_SUM, &request));
            CHECK_OK(end(request));
        }
        CHECK(sum == size * (size - 1) / 2 + size * round);
        if (round % 8 == 7) {
            muster_group_t *brief = NULL;
            CHECK_OK(muster_group_split(group, part->rank % 2, part->rank, &brief));
            shift(brief, 1, NEVER, mix(seed + (uint64_t)round), &part->random);
            muster_group_free(brief);
        }
    }
    return NULL;
}

/* The last message of every rank to every rank. A message that is left over would come before it. */
static void close_with(muster_group_t *group) {
    int size = muster_group_size(group), seen[MOST] = {0};
    muster_request_t *request = NULL;
    unsigned char byte = 0;
    for (int to = 0; to < size; to++) {
        CHECK_OK(muster_send(group, &byte, 1, MUSTER_UINT8, to, LAST));
    }
    for (int at = 0; at < size; at++) {
        muster_received_t received;
        CHECK_OK(muster_recv(group, &byte, 1, MUSTER_UINT8, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, &received, sizeof received));
        CHECK(received.tag == LAST && received.count == 1 && seen[received.source]++ == 0);
    }
    CHECK_OK(muster_irecv(group, &byte, 1, MUSTER_UINT8, MUSTER_ANY_SOURCE, MUSTER_ANY_TAG, NULL, 0, &request));
    CHECK_FAILS(MUSTER_ERR_ABORTED, "was cancelled", cancel(request));
    CHECK_OK(muster_barrier(group)); /* nobody leaves before: a receive from ranks that have all left ends with that */
}

static void be_in_it(muster_cluster_t *cluster, int index, void *context) {
    struct storm *storm = context;
    int rank = muster_rank(cluster), threads = 0, reverse[MOST];
    struct part all = {.storm = storm, .rank = rank}, parts[SENDERS + RECEIVERS + 2];
    pthread_t running[SENDERS + RECEIVERS + 2];
    void *(*works[SENDERS + RECEIVERS + 2])(void *);
    (void)index;
    for (int at = 0; at < storm->size; at++) {
        reverse[at] = storm->size - 1 - at;
    }
    all.groups[0] = muster_world(cluster);
    all.groups[MADE] = muster_universe(cluster);
    CHECK_OK(muster_group_create(all.groups[0], reverse, (size_t)storm->size, &all.groups[1]));
    CHECK_OK(muster_group_split(all.groups[0], rank % 2, -rank, &all.groups[2]));
    for (int group = 0; group < GROUPS; group++) {
        CHECK_IS(place(storm, group, rank), muster_group_rank(all.groups[group]));
    }
    for (int thread = 0; thread < SENDERS; thread++) {
        works[threads++] = send_all;
    }
    for (int thread = 0; thread < RECEIVERS; thread++) {
        works[threads++] = thread < NAMING ? receive_named : receive_what_comes;
    }
    works[threads++] = shift_around;
    works[threads++] = reckon;
    for (int at = 0; at < threads; at++) {
        parts[at] = all;
        parts[at].thread = at < SENDERS ? at : at - SENDERS;
        parts[at].random = mix(seed * 1000003 + (uint64_t)((storm->size * MOST + rank) * 16 + at));
        CHECK(pthread_create(&running[at], NULL, works[at], &parts[at]) == 0);
    }
    receive_never(&all);
    for (int at = 0; at < threads; at++) {
        CHECK(pthread_join(running[at], NULL) == 0);
    }
    CHECK_OK(muster_barrier(all.groups[0])); /* from here on nobody else takes whatever comes */
    for (int group = 0; group < GROUPS; group++) {
        close_with(all.groups[group]);
    }
    muster_group_free(all.groups[1]);
    muster_group_free(all.groups[2]);
}

int main(int argc, char **argv) {
    static char limit[16];
    static const char *const settings[] = {"timeout", limit, NULL};
    snprintf(limit, sizeof limit, "%d", 40 * patience());
    static struct storm storm;
    int descriptors = own_descriptors();
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (int size = 2; size <= (patience() > 1 ? 3 : MOST); size++) {
        struct plan nodes = {.workers = size, .node_ids = rank_ids, .settings = settings, .body = be_in_it,
                             .context = &storm};
        plan(&storm, size);
        run_nodes(&nodes);
        CHECK(own_threads_are(1));
        CHECK_IS(descriptors, own_descriptors());
    }
    CHECK(!own_sockets());
    return 0;
}
