/* What ends a wait before its time: muster_interrupt, and the hook of a configuration. Each call that can be interrupted is
 * interrupted in both ways, once it sleeps. Then the test looks at what has become of it, here and on the other rank. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { BIG = 8 << 20 };

static const struct plan two = {.workers = 2, .node_ids = rank_ids};
static const char *const nobody_sets_this[] = {"nobody sets this"};
static char big[BIG];

/* What the hook answers, and how often it was asked. */
static struct {
    atomic_int answer;
    atomic_int asked;
} hook;

static int32_t ask(void *ctx) {
    CHECK(ctx == &hook);
    atomic_fetch_add(&hook.asked, 1);
    return atomic_load(&hook.answer);
}

/* A configuration of a node, or of a scheduler, that asks the hook. */
static muster_config_t *hooked(const char *role, const char *port, const char *workers, const char *id) {
    muster_config_t *config = NULL;
    const char *const settings[][2] = {{"role", role},     {"worker_num", workers}, {"sched_host", "127.0.0.1"},
                                       {"sched_port", port}, {"node_id", id},         {"cluster_timeout", "300"}};
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (settings[i][1] != NULL) {
            CHECK_OK(muster_config_set(config, settings[i][0], settings[i][1]));
        }
    }
    CHECK_OK(muster_config_set_interrupt(config, ask, &hook));
    return config;
}

/* A call on a thread of its own. */
struct call {
    muster_status_t (*body)(void *of);
    void *of;
    pthread_t thread;
    int tid;
    muster_status_t status;
    char words[512];
};

static void *run_call(void *argument) {
    struct call *call = argument;
    own_thread_calls(&call->tid);
    call->status = call->body(call->of);
    snprintf(call->words, sizeof call->words, "%s", muster_last_error());
    return NULL;
}

static void start(struct call *call, muster_status_t (*body)(void *), void *of) {
    *call = (struct call){.body = body, .of = of};
    CHECK(pthread_create(&call->thread, NULL, run_call, call) == 0);
}

static void finish(struct call *call, muster_status_t status, const char *words) {
    CHECK(pthread_join(call->thread, NULL) == 0);
    CHECK_CONTAINS(call->words, words);
    CHECK_IS(status, call->status);
}

static void finish_well(struct call *call) { finish(call, MUSTER_OK, ""); }

enum way { BY_CALL, BY_HOOK, WAYS };

static void interrupt(enum way way, muster_cluster_t *cluster) {
    if (way == BY_CALL) {
        CHECK_OK(muster_interrupt(cluster));
    } else {
        atomic_store(&hook.answer, 7);
    }
}

static const char *const why[WAYS] = {"was interrupted: muster_interrupt was called",
                                      "was interrupted: the hook of muster_config_set_interrupt returned 7"};

/* ---- a cluster of two, whose rank 0 has the hook ---- */

struct pair {
    char port[8];
    muster_scheduler_t *scheduler; /* NULL: rank 0 hosts it */
    muster_config_t *config;       /* of rank 0 */
    muster_cluster_t *cluster[2];
};

static muster_status_t join_hooked(void *of) {
    struct pair *pair = of;
    return muster_init(pair->config, &pair->cluster[0]);
}

static void form(struct pair *pair) {
    struct call first;
    pair->scheduler = start_scheduler(&two, pair->port);
    pair->config = hooked("MS_WORKER", pair->port, "2", "0");
    start(&first, join_hooked, pair);
    pair->cluster[1] = join(&two, pair->port, 1);
    finish_well(&first);
}

static void dissolve(struct pair *pair) {
    for (int i = 0; i < 2; i++) {
        CHECK_OK(muster_finalize(pair->cluster[i]));
        muster_cluster_free(pair->cluster[i]);
    }
    if (pair->scheduler != NULL) {
        CHECK_OK(muster_scheduler_wait(pair->scheduler, 60000 * patience()));
        muster_scheduler_free(pair->scheduler);
    }
    muster_config_free(pair->config);
}

static muster_status_t barrier(void *of) { return muster_barrier(muster_world(of)); }

static muster_status_t recover(void *of) { return muster_recover(of, -1); }

/* Both ranks call it, and nothing interrupts them. */
static void both(struct pair *pair, muster_status_t (*body)(void *)) {
    struct call first;
    start(&first, body, pair->cluster[0]);
    CHECK_OK(body(pair->cluster[1]));
    finish_well(&first);
}

/* ---- calls that wait for rank 1 ---- */

static muster_status_t make_group(void *of) {
    muster_group_t *group = NULL;
    return muster_group_create(muster_world(of), (const int32_t[]){0, 1}, 2, &group);
}

static muster_status_t receive(void *of) {
    char here;
    return muster_recv(muster_world(of), &here, 1, MUSTER_UINT8, 1, 5, NULL, 0);
}

static muster_status_t send_big(void *of) { return muster_send(muster_world(of), big, BIG, MUSTER_UINT8, 1, 5); }

static muster_status_t exchange(void *of) {
    char here;
    return muster_sendrecv(muster_world(of), big, BIG, MUSTER_UINT8, 1, 5, &here, 1, MUSTER_UINT8, 1, 5, NULL, 0);
}

static muster_status_t exchange_with_any(void *of) {
    char here;
    return muster_sendrecv(muster_world(of), big, BIG, MUSTER_UINT8, 1, 5, &here, 1, MUSTER_UINT8, MUSTER_ANY_SOURCE, 5, NULL, 0);
}

static muster_status_t probe(void *of) {
    muster_received_t received;
    return muster_probe(muster_world(of), 1, 5, &received, sizeof received);
}

static muster_status_t get(void *of) {
    void *value = NULL;
    size_t len = 0;
    return muster_store_get(of, nobody_sets_this[0], INT64_MAX, &value, &len);
}

static muster_status_t wait_for_keys(void *of) { return muster_store_wait(of, nobody_sets_this, 1, -1); }

static muster_request_t *begun;

static void begin(void *of) {
    if (begun == NULL) {
        CHECK_OK(muster_ibarrier(muster_world(of), &begun));
    }
}

static muster_status_t wait_for_request(void *of) {
    begin(of);
    return muster_request_wait(begun, -1);
}

static muster_status_t wait_for_any(void *of) {
    size_t index = 0;
    begin(of);
    return muster_request_wait_any(&begun, 1, -1, &index);
}

static muster_status_t wait_for_all(void *of) {
    begin(of);
    return muster_request_wait_all(&begun, 1, -1);
}

/* What a call leaves behind when it was interrupted. */
enum leaves { NOTHING, GROUP_OVER, REQUEST, EPOCH_OVER };

static const struct row {
    const char *name;
    muster_status_t (*body)(void *);
    enum leaves leaves;
} rows[] = {
    {"barrier #1 on world", barrier, GROUP_OVER},
    {"group_create #1 on world", make_group, GROUP_OVER},
    {"recv with rank 1", receive, NOTHING},
    {"send with rank 1", send_big, NOTHING},
    {"sendrecv with rank 1", exchange, NOTHING},
    {" and from any rank on world", exchange_with_any, NOTHING},
    {"probe", probe, NOTHING},
    {"store get of \"nobody sets this\"", get, NOTHING},
    {"store wait for \"nobody sets this\"", wait_for_keys, NOTHING},
    {"the wait for a request", wait_for_request, REQUEST},
    {"the wait for any request", wait_for_any, REQUEST},
    {"the wait for all requests", wait_for_all, REQUEST},
    {"recover", recover, EPOCH_OVER},
};

static void look_at_what_is_left(struct pair *pair, const struct row *row) {
    muster_failure_t failure;
    switch (row->leaves) {
    case NOTHING:
        both(pair, barrier);
        break;
    case GROUP_OVER:
        for (int i = 1; i >= 0; i--) {
            CHECK_FAILS(MUSTER_ERR_ABORTED, "was interrupted in", muster_barrier(muster_world(pair->cluster[i])));
            CHECK_CONTAINS(muster_last_error(), "rank 0");
            CHECK_CONTAINS(muster_last_error(), row->name);
            CHECK_OK(muster_failure(pair->cluster[i], &failure, sizeof failure));
            CHECK_IS(MUSTER_ERR_ABORTED, failure.status);
        }
        both(pair, recover);
        both(pair, barrier);
        break;
    case REQUEST:
        CHECK_OK(muster_barrier(muster_world(pair->cluster[1])));
        CHECK_OK(muster_request_wait(begun, -1));
        muster_request_free(begun);
        begun = NULL;
        break;
    case EPOCH_OVER:
        CHECK_IS(1, muster_epoch(pair->cluster[0]));
        both(pair, recover);
        CHECK_IS(2, muster_epoch(pair->cluster[0]));
        both(pair, barrier);
    }
}

static void a_call_that_sleeps_is_interrupted(const struct row *row, enum way way) {
    struct pair pair;
    struct call call;
    form(&pair);
    /* From the fifth collective on a thread that waits for one carries it out itself. */
    for (int i = 0; row->leaves == REQUEST && i < 4; i++) {
        both(&pair, barrier);
    }
    start(&call, row->body, pair.cluster[0]);
    own_thread_sleeps(&call.tid);
    interrupt(way, pair.cluster[0]);
    finish(&call, MUSTER_ERR_INTERRUPTED, why[way]);
    CHECK_CONTAINS(call.words, row->name);
    atomic_store(&hook.answer, 0);
    look_at_what_is_left(&pair, row);
    dissolve(&pair);
}

/* A call whose group another thread's call may have ended, because that was interrupted. */
static void was_interrupted_or_found_it(const struct call *call, const char *own, const char *other) {
    CHECK(call->status == MUSTER_ERR_INTERRUPTED || call->status == MUSTER_ERR_ABORTED);
    CHECK_CONTAINS(call->words, call->status == MUSTER_ERR_INTERRUPTED ? own : other);
}

/* One thread is in a collective, another waits for its turn behind it. */
static void so_is_one_whose_turn_has_not_come(enum way way) {
    struct pair pair;
    struct call first, second;
    form(&pair);
    start(&first, barrier, pair.cluster[0]);
    own_thread_sleeps(&first.tid);
    start(&second, barrier, pair.cluster[0]);
    own_thread_sleeps(&second.tid);
    interrupt(way, pair.cluster[0]);
    /* Whichever thread hears it first ends the group. The other may find that before it hears it itself. */
    CHECK(pthread_join(first.thread, NULL) == 0 && pthread_join(second.thread, NULL) == 0);
    CHECK(first.status == MUSTER_ERR_INTERRUPTED || second.status == MUSTER_ERR_INTERRUPTED);
    was_interrupted_or_found_it(&first, "barrier #1 on world", "barrier #2 on world");
    was_interrupted_or_found_it(&second, "barrier #2 on world", "barrier #1 on world");
    atomic_store(&hook.answer, 0);
    CHECK_FAILS(MUSTER_ERR_ABORTED, "rank 0", muster_barrier(muster_world(pair.cluster[1])));
    dissolve(&pair);
}

static void nothing_else_is_disturbed(void) {
    struct pair pair;
    muster_request_t *request = NULL;
    form(&pair);
    CHECK_OK(muster_interrupt(pair.cluster[0])); /* nobody waits: it is not remembered */
    both(&pair, barrier);
    CHECK_OK(muster_ibarrier(muster_world(pair.cluster[0]), &request));
    CHECK_OK(muster_barrier(muster_world(pair.cluster[1])));
    CHECK_OK(muster_request_wait(request, -1));
    /* What has ended is not waited for: nobody is asked. */
    atomic_store(&hook.asked, 0);
    atomic_store(&hook.answer, 7);
    CHECK_OK(muster_request_wait(request, -1));
    CHECK_OK(muster_request_test(request));
    CHECK_IS(0, atomic_load(&hook.asked));
    /* A request's operation is not its caller's wait: the library's own threads ask nobody. */
    struct call other;
    muster_request_free(request);
    CHECK_OK(muster_ibarrier(muster_world(pair.cluster[0]), &request));
    CHECK_FAILS(MUSTER_ERR_INTERRUPTED, "the wait for a request", muster_request_wait(request, -1));
    CHECK_OK(muster_interrupt(pair.cluster[0]));
    CHECK_IS(MUSTER_IN_PROGRESS, muster_request_test(request));
    atomic_store(&hook.answer, 0);
    start(&other, barrier, pair.cluster[1]);
    CHECK_OK(muster_request_wait(request, -1));
    finish_well(&other);
    muster_request_free(request);
    dissolve(&pair);
}

/* ---- joining, and leaving ---- */

static void a_node_that_joins(void) {
    struct pair pair;
    struct call first;
    pair.scheduler = start_scheduler(&two, pair.port);
    pair.config = hooked("MS_WORKER", pair.port, "2", "0");
    pair.cluster[0] = (muster_cluster_t *)(uintptr_t)64;
    start(&first, join_hooked, &pair);
    own_thread_sleeps(&first.tid);
    interrupt(BY_HOOK, NULL);
    finish(&first, MUSTER_ERR_INTERRUPTED, "init was interrupted: the hook");
    CHECK(pair.cluster[0] == (muster_cluster_t *)(uintptr_t)64);
    atomic_store(&hook.answer, 0);
    start(&first, join_hooked, &pair); /* its place is free */
    pair.cluster[1] = join(&two, pair.port, 1);
    finish_well(&first);
    both(&pair, barrier);
    dissolve(&pair);
}

static int listening(char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    snprintf(port, 8, "%d", ntohs(address.sin_port));
    return fd;
}

static muster_status_t serve(void *config) {
    muster_cluster_t *cluster = NULL;
    return muster_init(config, &cluster);
}

static muster_status_t wait_for_the_scheduler(void *scheduler) { return muster_scheduler_wait(scheduler, -1); }

/* A process that is the scheduler serves inside muster_init; a job whose scheduler is interrupted is over. */
static void a_scheduler_that_serves(void) {
    static const struct plan one = {.workers = 1, .node_ids = rank_ids};
    char port[8], number[16];
    struct call serving;
    int fd = listening(port);
    muster_config_t *config = hooked("MS_SCHED", port, "1", NULL);
    snprintf(number, sizeof number, "%d", fd);
    CHECK_OK(muster_config_set(config, "sched_fd", number));
    start(&serving, serve, config);
    muster_cluster_t *cluster = join(&one, port, 0);
    interrupt(BY_HOOK, NULL);
    finish(&serving, MUSTER_ERR_INTERRUPTED, "the scheduler was interrupted: the hook");
    CHECK_IS(MUSTER_ERR_ABORTED, wait_for_keys(cluster));
    atomic_store(&hook.answer, 0);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    muster_config_free(config);
}

static void a_wait_for_a_scheduler(void) {
    muster_config_t *config = hooked("MS_SCHED", NULL, "1", NULL);
    muster_scheduler_t *scheduler = NULL;
    struct call waiting;
    CHECK_OK(muster_scheduler_start(config, &scheduler));
    muster_config_free(config);
    start(&waiting, wait_for_the_scheduler, scheduler);
    own_thread_sleeps(&waiting.tid);
    interrupt(BY_HOOK, NULL);
    finish(&waiting, MUSTER_ERR_INTERRUPTED, "the wait for the scheduler was interrupted: the hook");
    CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 0));
    atomic_store(&hook.answer, 0);
    muster_scheduler_free(scheduler);
}

static muster_status_t finalize(void *of) { return muster_finalize(of); }

/* What torchrun tells a rank of two. */
static muster_config_t *launched(const char *rank, const char *port) {
    muster_config_t *config = NULL;
    char master[16];
    snprintf(master, sizeof master, "%d", atoi(port) - 2);
    const char *const variables[][2] = {{"RANK", rank},        {"LOCAL_RANK", rank},   {"WORLD_SIZE", "2"},
                                        {"MASTER_PORT", master}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}};
    const size_t count = sizeof variables / sizeof *variables;
    for (size_t i = 0; i < count; i++) {
        CHECK(setenv(variables[i][0], variables[i][1], 1) == 0);
    }
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_load_env(config));
    CHECK_OK(muster_config_set(config, "finalize_timeout", "600"));
    for (size_t i = 0; i < count; i++) {
        CHECK(unsetenv(variables[i][0]) == 0);
    }
    return config;
}

/* A process that hosts the scheduler waits for the others when it leaves. */
static void a_node_that_leaves(enum way way) {
    struct pair pair = {.scheduler = NULL};
    struct call first;
    close(listening(pair.port)); /* a port that was free just now */
    pair.config = launched("0", pair.port);
    CHECK_OK(muster_config_set_interrupt(pair.config, ask, &hook));
    start(&first, join_hooked, &pair);
    muster_config_t *config = launched("1", pair.port);
    CHECK_OK(muster_init(config, &pair.cluster[1]));
    muster_config_free(config);
    finish_well(&first);
    for (int i = 0; i < 2; i++) { /* again, too, for it has not left before the other has */
        start(&first, finalize, pair.cluster[0]);
        own_thread_sleeps(&first.tid);
        interrupt(way, pair.cluster[0]);
        finish(&first, MUSTER_ERR_INTERRUPTED, "finalize was interrupted");
        atomic_store(&hook.answer, 0);
    }
    start(&first, finalize, pair.cluster[0]);
    CHECK_OK(muster_finalize(pair.cluster[1]));
    finish_well(&first);
    dissolve(&pair);
}

int main(void) {
    for (enum way way = BY_CALL; way < WAYS; way++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            a_call_that_sleeps_is_interrupted(&rows[i], way);
        }
        so_is_one_whose_turn_has_not_come(way);
        a_node_that_leaves(way);
    }
    nothing_else_is_disturbed();
    a_node_that_joins();
    a_scheduler_that_serves();
    a_wait_for_a_scheduler();
    return 0;
}
