/* How ranks are given out, and what every query answers, in clusters of several nodes. */
#include "check.h"
#include "nodes.h"

#include <stdlib.h>

enum { NODES = 5 };

/* What each node found, by the index of its thread. */
struct found {
    int32_t rank[16];
};

static void check_sizes(muster_cluster_t *cluster, int workers, int servers) {
    int own = muster_role(cluster) == MUSTER_ROLE_WORKER ? workers : servers;
    CHECK_IS(own, muster_size(cluster));
    CHECK_IS(own, muster_local_size(cluster)); /* all are on this host */
    CHECK_IS(muster_rank(cluster), muster_local_rank(cluster));
    CHECK_IS(0, muster_restarts(cluster));
    CHECK_IS(1, muster_epoch(cluster));
    CHECK_IS(workers, muster_group_size(muster_world(cluster)));
    CHECK_IS(servers, muster_group_size(muster_servers(cluster)));
    CHECK_IS(workers + servers, muster_group_size(muster_universe(cluster)));
}

static void check_whole(muster_cluster_t *cluster) {
    int32_t ranks[4] = {-7, -7, -7, -7};
    size_t count = 9;
    size_t needed = 9;
    muster_failure_t failure;
    memset(&failure, 0x5a, sizeof failure);
    CHECK_OK(muster_failed_ranks(cluster, ranks, 4, &count));
    CHECK(count == 0 && ranks[0] == -7);
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_failure(cluster, &failure, sizeof failure));
    CHECK(failure.status == 0x5a5a5a5a);
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_cluster_error(cluster, NULL, 0, &needed));
}

static void check_hccl(muster_cluster_t *cluster, int workers) {
    muster_hccl_cm_t cm;
    CHECK_OK(muster_hccl_cm(cluster, &cm, sizeof cm));
    CHECK_IS(workers, cm.worker_size);
    CHECK_IS(0, cm.chief_device);
    CHECK(strcmp(cm.chief_ip, "127.0.0.1") == 0);
    CHECK(cm.worker_ip[0] != 0 && cm.chief_port > 1024);
}

/* World and universe agree on which rank is which node. */
static void check_members(muster_cluster_t *cluster, int workers, int servers) {
    muster_group_t *world = muster_world(cluster);
    muster_group_t *universe = muster_universe(cluster);
    int is_server = muster_role(cluster) == MUSTER_ROLE_SERVER;
    CHECK_IS(is_server ? workers + muster_rank(cluster) : muster_rank(cluster), muster_group_rank(universe));
    CHECK_IS(is_server ? MUSTER_ERR_NOT_FOUND : muster_rank(cluster), muster_group_rank(world));
    CHECK_IS(is_server ? muster_rank(cluster) : MUSTER_ERR_NOT_FOUND, muster_group_rank(muster_servers(cluster)));
    for (int i = 0; i < workers + servers; i++) {
        muster_member_t member;
        CHECK_OK(muster_group_member(universe, i, &member, sizeof member));
        CHECK_IS(i < workers ? MUSTER_ROLE_WORKER : MUSTER_ROLE_SERVER, member.role);
        CHECK_IS(i < workers ? i : i - workers, member.rank);
        CHECK_IS(member.rank, member.local_rank);
        CHECK_IS(getpid(), member.pid);
        CHECK_IS(0, member.state);
        CHECK(member.host[0] != 0 && strchr(member.address, ':') != NULL);
        CHECK_IS(i < workers ? i : MUSTER_ERR_NOT_FOUND, muster_group_to_world(universe, i));
        if (i == muster_group_rank(universe)) {
            CHECK(strcmp(member.node_id, muster_node_id(cluster)) == 0);
        }
    }
    for (int i = 0; i < workers; i++) {
        CHECK_IS(i, muster_group_from_world(world, i));
        CHECK_IS(i, muster_group_from_world(universe, i));
        CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_group_from_world(muster_servers(cluster), i));
    }
    for (int i = 0; i < servers; i++) {
        CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_group_to_world(muster_servers(cluster), i));
    }
}

static void look_around(muster_cluster_t *cluster, int index, void *context) {
    struct found *found = context;
    int workers = muster_group_size(muster_world(cluster));
    int servers = muster_group_size(muster_servers(cluster));
    found->rank[index] = muster_rank(cluster);
    check_sizes(cluster, workers, servers);
    check_whole(cluster);
    check_hccl(cluster, workers);
    check_members(cluster, workers, servers);
    CHECK_OK(muster_barrier(muster_universe(cluster)));
    check_whole(cluster);
}

static void look_around_as_worker(muster_cluster_t *cluster, int index, void *context) {
    CHECK_IS(MUSTER_ROLE_WORKER, muster_role(cluster));
    look_around(cluster, index, context);
}

/* Ids that are plain numbers are the ranks. */
static void explicit_ranks(void) {
    static const char *const ids[NODES] = {"4", "2", "0", "1", "3"};
    struct found found;
    struct plan plan = {.workers = NODES, .node_ids = ids, .body = look_around_as_worker, .context = &found};
    run_nodes(&plan);
    for (int i = 0; i < NODES; i++) {
        CHECK_IS(atoi(ids[i]), found.rank[i]);
    }
}

/* Other ids take the free ranks in natural order, and those without an id come last. */
static void natural_order(void) {
    static const char *const ids[NODES] = {"worker_10", NULL, "worker_2", "1", "worker_9"};
    static const int32_t ranks[NODES] = {3, 4, 0, 1, 2};
    struct found found;
    struct plan plan = {.workers = NODES, .node_ids = ids, .body = look_around_as_worker, .context = &found};
    run_nodes(&plan);
    for (int i = 0; i < NODES; i++) {
        CHECK_IS(ranks[i], found.rank[i]);
    }
}

/* Nodes that say nothing of themselves get every rank once. */
static void no_ids(void) {
    struct found found;
    struct plan plan = {.workers = NODES, .body = look_around_as_worker, .context = &found};
    int seen[NODES] = {0};
    run_nodes(&plan);
    for (int i = 0; i < NODES; i++) {
        CHECK(found.rank[i] >= 0 && found.rank[i] < NODES && seen[found.rank[i]]++ == 0);
    }
}

/* Servers have ranks of their own. */
static void with_servers(void) {
    static const char *const ids[NODES] = {"b", "a", "c", "s_2", "s_1"};
    static const int32_t ranks[NODES] = {1, 0, 2, 1, 0};
    struct found found;
    struct plan plan = {.workers = 3, .servers = 2, .node_ids = ids, .body = look_around, .context = &found};
    run_nodes(&plan);
    for (int i = 0; i < NODES; i++) {
        CHECK_IS(ranks[i], found.rank[i]);
    }
}

/* One node too many is refused at once, in a sentence that names both sides; the others go on. */
static void refuse(muster_cluster_t *cluster, int index, void *context) {
    (void)context;
    if (index == 0) {
        muster_config_t *config = NULL;
        muster_cluster_t *none = NULL;
        muster_hccl_cm_t cm;
        char port[16];
        CHECK_OK(muster_hccl_cm(cluster, &cm, sizeof cm));
        snprintf(port, sizeof port, "%d", cm.chief_port - 1);
        CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
        CHECK_OK(muster_config_set(config, "role", "MS_WORKER"));
        CHECK_OK(muster_config_set(config, "sched_host", "127.0.0.1"));
        CHECK_OK(muster_config_set(config, "sched_port", port));
        CHECK_OK(muster_config_set(config, "worker_num", "2"));
        CHECK_OK(muster_config_set(config, "node_id", "surplus"));
        CHECK_FAILS(MUSTER_ERR_REJECTED, "surplus", muster_init(config, &none));
        CHECK_OK(muster_config_set(config, "worker_num", "3"));
        CHECK_FAILS(MUSTER_ERR_REJECTED, "expects 3 workers", muster_init(config, &none));
        CHECK_CONTAINS(muster_last_error(), "job has 2:");
        CHECK(none == NULL);
        muster_config_free(config);
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
}

static void one_too_many(void) {
    struct plan plan = {.workers = 2, .body = refuse};
    run_nodes(&plan);
}

/* One node too few: all fail when the time is up, and are told how many came. */
static void one_too_few(void) {
    const char *const settings[] = {"cluster_timeout", "0.5", NULL};
    struct plan plan = {.workers = 2, .settings = settings};
    char port[8] = "", limit[16];
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    muster_config_t *config = NULL;
    muster_cluster_t *none = NULL;
    snprintf(limit, sizeof limit, "%g", 0.5 * patience());
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_set(config, "role", "MS_WORKER"));
    CHECK_OK(muster_config_set(config, "sched_host", "127.0.0.1"));
    CHECK_OK(muster_config_set(config, "sched_port", port));
    CHECK_OK(muster_config_set(config, "worker_num", "2"));
    CHECK_OK(muster_config_set(config, "cluster_timeout", limit));
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, "1 of 2", muster_init(config, &none));
    CHECK(none == NULL);
    muster_config_free(config);
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, "1 of 2", muster_scheduler_wait(scheduler, 20000 * patience()));
    muster_scheduler_free(scheduler);
}

int main(void) {
    explicit_ranks();
    natural_order();
    no_ids();
    with_servers();
    one_too_many();
    one_too_few();
    return 0;
}
