/* fork: the child cannot use what it inherited, may free it, and keeps nothing open; the parent goes on as if nothing
 * had happened. A child that lives on does not hide the death of its parent. */
#include "check.h"
#include "own.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { SIZE = 3 };

static muster_cluster_t *cluster = NULL;
static muster_group_t *made = NULL;
static muster_scheduler_t *scheduler = NULL;
static muster_config_t *config = NULL;

#define FORKED(call) CHECK_FAILS(MUSTER_ERR_FORKED, "fork", call)

static void queries_are_refused(void) {
    size_t count = 0;
    muster_failure_t failure;
    muster_hccl_cm_t cm;
    char buf[64];
    FORKED(muster_role(cluster));
    FORKED(muster_rank(cluster));
    FORKED(muster_size(cluster));
    FORKED(muster_local_rank(cluster));
    FORKED(muster_local_size(cluster));
    FORKED(muster_restarts(cluster));
    FORKED(muster_epoch(cluster));
    CHECK(muster_node_id(cluster) == NULL);
    FORKED(muster_failed_ranks(cluster, NULL, 0, &count));
    FORKED(muster_failure(cluster, &failure, sizeof failure));
    FORKED(muster_cluster_error(cluster, buf, sizeof buf, NULL));
    FORKED(muster_hccl_cm(cluster, &cm, sizeof cm));
    FORKED(muster_scheduler_address(scheduler, buf, sizeof buf, NULL));
    FORKED(muster_scheduler_wait(scheduler, 0));
    FORKED(muster_scheduler_stop(scheduler));
    FORKED(muster_config_set(config, "worker_num", "1"));
}

static void work_is_refused(void) {
    muster_group_t *world = muster_world(cluster);
    muster_member_t member;
    void *value = NULL;
    size_t len = 0;
    int32_t number = 0;
    const char *keys[] = {"a"};
    muster_group_t *group = NULL;
    FORKED(muster_group_rank(world));
    FORKED(muster_group_size(world));
    FORKED(muster_group_to_world(world, 0));
    FORKED(muster_group_from_world(world, 0));
    FORKED(muster_group_member(world, 0, &member, sizeof member));
    FORKED(muster_group_set_timeout(world, 1));
    FORKED(muster_barrier(world));
    FORKED(muster_broadcast(world, &number, 1, MUSTER_INT32, 0));
    FORKED(muster_allreduce(world, &number, &number, 1, MUSTER_INT32, MUSTER_SUM));
    FORKED(muster_allgather(world, &number, &number, 1, MUSTER_INT32));
    FORKED(muster_group_create(made, &number, 1, &group));
    FORKED(muster_group_split(world, 0, 0, &group));
    FORKED(muster_barrier(made));
    FORKED(muster_store_set(cluster, "a", "b", 1));
    FORKED(muster_store_get(cluster, "a", 0, &value, &len));
    FORKED(muster_store_add(cluster, "a", 1, NULL));
    FORKED(muster_store_compare_set(cluster, "a", "", 0, "b", 1, NULL, NULL));
    FORKED(muster_store_delete(cluster, "a", NULL));
    FORKED(muster_store_append(cluster, "a", 1, "b", 1, NULL));
    FORKED(muster_store_wait(cluster, keys, 1, 0));
    FORKED(muster_finalize(cluster));
    FORKED(muster_abort(cluster, 1, "from the child"));
}

/* A child may form a cluster of its own. */
static void child_starts_anew(void) {
    muster_cluster_t *own = NULL;
    CHECK_OK(muster_init(NULL, &own));
    CHECK_OK(muster_barrier(muster_world(own)));
    CHECK_OK(muster_finalize(own));
    muster_cluster_free(own);
}

/* In a child of a program with threads, what was on their stacks is lost: LeakSanitizer asks this whether to look. */
static int is_child = 0;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

static void be_child(void) {
    is_child = 1;
    CHECK(!own_sockets());
    CHECK_IS(1, own_threads());
    queries_are_refused();
    work_is_refused();
    muster_group_free(made);
    muster_cluster_free(cluster);
    muster_scheduler_free(scheduler);
    muster_config_free(config);
    child_starts_anew();
    CHECK(!own_sockets());
}

static void inherited_handles(void) {
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_set(config, "worker_num", "1"));
    CHECK_OK(muster_scheduler_start(config, &scheduler));
    CHECK_OK(muster_init(NULL, &cluster));
    CHECK_OK(muster_group_split(muster_world(cluster), 0, 0, &made));
    for (int round = 0; round < 3; round++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            be_child();
            exit(0);
        }
        int status = await_child(pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        /* Neither the child's frees nor its end touched the parent. */
        CHECK_OK(muster_barrier(muster_world(cluster)));
        CHECK_OK(muster_barrier(made));
        CHECK_OK(muster_store_add(cluster, "rounds", 1, NULL));
        CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 0));
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    CHECK_OK(muster_scheduler_stop(scheduler));
    muster_scheduler_free(scheduler);
    muster_config_free(config);
    muster_group_free(made);
}

/* On world and on a group that was made of it, in turns. */
static void reduce(muster_cluster_t *node, muster_group_t *group, int rounds) {
    for (int round = 0; round < rounds; round++) {
        int64_t sum = muster_rank(node) + round;
        CHECK_OK(muster_allreduce(round % 2 ? group : muster_world(node), &sum, &sum, 1, MUSTER_INT64, MUSTER_SUM));
        CHECK_IS(0 + 1 + 2 + SIZE * round, sum);
    }
}

/* A child of each rank frees what it inherited, while its parent is in the middle of collectives. The parent keeps its
 * links, its agent thread and its connection to the scheduler. */
static void outlive_a_free(muster_cluster_t *node, int rank, struct ranks *ranks) {
    void *value = NULL;
    size_t len = 0;
    int64_t rounds = 0;
    muster_group_t *group = NULL;
    (void)rank, (void)ranks;
    CHECK_OK(muster_group_split(muster_world(node), 0, 0, &group));
    reduce(node, group, 10); /* opens the links, and so does each other algorithm that is used below */
    CHECK_OK(muster_barrier(muster_world(node)));
    int threads = own_threads();
    int descriptors = own_descriptors();
    for (int round = 1; round <= 5; round++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            is_child = 1;
            muster_group_free(group);
            muster_cluster_free(node);
            CHECK(!own_sockets());
            CHECK_IS(1, own_threads());
            exit(0);
        }
        reduce(node, group, 100);
        int status = await_child(pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        reduce(node, group, 10);
        CHECK_IS(threads, own_threads());
        CHECK_IS(descriptors, own_descriptors());
        CHECK_OK(muster_store_add(node, "rounds", 1, NULL));
        CHECK_OK(muster_barrier(muster_world(node)));
        CHECK_OK(muster_store_add(node, "rounds", 0, &rounds));
        CHECK_IS(SIZE * round, rounds);
        CHECK_OK(muster_barrier(muster_world(node)));
    }
    /* Over two heartbeat time-outs nobody is given up: the agent threads go on with theirs. */
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_store_get(node, "nobody sets this", 1000, &value, &len));
    reduce(node, group, 10);
    muster_group_free(group);
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_cluster_error(node, NULL, 0, &len));
    CHECK_OK(muster_finalize(node));
    muster_cluster_free(node);
}

static void parents_outlive_a_free(void) {
    const char *const settings[] = {"node_timeout", "0.5", NULL};
    struct ranks *ranks = ranks_start(SIZE, outlive_a_free, settings);
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
    }
    CHECK_OK(ranks_finish(ranks));
}

/* Rank 1 starts a child that outlives it, and is killed. */
static void leave_a_child(muster_cluster_t *node, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    CHECK_OK(muster_barrier(muster_world(node)));
    if (rank == 1) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            await(&note->go); /* until the other rank has been told */
            _exit(0);
        }
        CHECK(sem_post(&note->ready) == 0);
        await_child(pid); /* it is killed here */
    }
    CHECK(sem_post(&note->ready) == 0);
    muster_status_t status = muster_barrier(muster_world(node));
    note->took_s = now_s();
    keep_failure(note, node, status);
    muster_finalize(node);
    muster_cluster_free(node);
}

static void death_is_not_hidden(void) {
    struct ranks *ranks = ranks_start(2, leave_a_child, NULL);
    await(&ranks->note[0].ready);
    await(&ranks->note[1].ready);
    double begin = now_s();
    ranks_kill(ranks, 1);
    ranks_await(ranks, 0);
    const struct note *note = &ranks->note[0];
    CHECK(note->took_s - begin < 2 * patience());
    CHECK_IS(MUSTER_ERR_PEER_LOST, note->status);
    CHECK_CONTAINS(note->words, "rank 1");
    CHECK_IS(1, note->failure.rank);
    CHECK_IS(ranks->pid[1], note->failure.pid);
    CHECK(sem_post(&ranks->note[1].go) == 0); /* the child lived until now */
    ranks_await(ranks, 1);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

int main(void) {
    death_is_not_hidden(); /* these two first: they must fork before the library is used here */
    parents_outlive_a_free();
    inherited_handles();
    return 0;
}
