/* Calls in any order, drawn by chance: collectives, messages, requests, groups, store, operations, queries. Arguments may
 * be wrong, and several threads call; calls also come after an abort, a loss or muster_finalize, and in a forked child. The
 * test computes only what a call may answer. Sanitizers say the rest: `make sanitize` runs this under AddressSanitizer, and
 * under Valgrind. The calls that a group has stand in any_order_calls.c.
 *
 * A failure prints the seed; `any_order <seed>` plays it. */
#include "any_order.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>

enum { ROUNDS = 40, ROUNDS_WHERE_SLOW = 6, STEPS = 80, THREADS = 3, NODES = 5 };

/* A number that a query answers is a status, too, if it is negative. */
static void numbered(int32_t number) {
    if (number < 0) {
        answered(number);
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
