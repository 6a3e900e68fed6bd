/* Nobody waits in vain: a call that waits for the store hears of a loss at once, and a node that dies while the cluster
 * forms makes room for another. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { SIZE = 3, VICTIM = 1 };

static void wait_for_value(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    const char *keys[] = {"nobody sets this", "nor this"};
    void *value = NULL;
    size_t len = 0;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    muster_status_t status = rank == 0 ? muster_store_get(cluster, keys[0], INT64_MAX, &value, &len)
                                       : muster_store_wait(cluster, keys, 2, -1);
    note->took_s = now_s();
    keep_failure(note, cluster, status);
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
}

static void told_of_a_loss(void) {
    struct ranks *ranks = ranks_start(SIZE, wait_for_value, NULL);
    ranks_await_ready(ranks);
    double begin = now_s();
    ranks_kill(ranks, VICTIM);
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
        if (i != VICTIM) {
            CHECK_IS(MUSTER_ERR_PEER_LOST, ranks->note[i].status);
            CHECK_CONTAINS(ranks->note[i].words, "rank 1");
            CHECK(ranks->note[i].took_s - begin < 2 * patience());
        }
    }
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

/* What the parent, which runs the scheduler, shares with the nodes that it has forked before. */
struct forming {
    char port[8];
    sem_t go[SIZE];
};

static const struct plan two = {.workers = 2, .node_ids = rank_ids};

/* Started before the library is used; joins as rank `index` when told to. */
static pid_t start_node(struct forming *forming, int place, int index) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        await(&forming->go[place]);
        muster_cluster_t *cluster = join(&two, forming->port, index);
        CHECK_IS(index, muster_rank(cluster));
        CHECK_OK(muster_barrier(muster_world(cluster)));
        CHECK_OK(muster_finalize(cluster));
        muster_cluster_free(cluster);
        _exit(0);
    }
    return pid;
}

/* What the scheduler says of the forming cluster. */
struct heard {
    sem_t one_has_come;
    sem_t place_is_free;
};

static void listen_to(int32_t level, const char *target, const char *message, void *ctx) {
    struct heard *heard = ctx;
    (void)level, (void)target;
    if (strstr(message, "1 of 2") != NULL) {
        sem_post(&heard->one_has_come);
    }
    if (strstr(message, "its place is free") != NULL) {
        sem_post(&heard->place_is_free);
    }
}

/* A node that dies while the cluster forms makes room for another with its id and rank. */
static void replaced_while_forming(void) {
    struct forming *forming = mmap(NULL, sizeof *forming, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct heard heard;
    pid_t pid[SIZE];
    CHECK(forming != MAP_FAILED);
    for (int i = 0; i < SIZE; i++) {
        CHECK(sem_init(&forming->go[i], 1, 0) == 0);
        pid[i] = start_node(forming, i, i == 2 ? 1 : 0); /* two want to be rank 0, one after the other */
    }
    CHECK(sem_init(&heard.one_has_come, 0, 0) == 0 && sem_init(&heard.place_is_free, 0, 0) == 0);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_INFO, listen_to, &heard));
    muster_scheduler_t *scheduler = start_scheduler(&two, forming->port);
    CHECK(sem_post(&forming->go[0]) == 0);
    await(&heard.one_has_come); /* the scheduler says so from the third second on */
    CHECK(kill(pid[0], SIGKILL) == 0);
    await_child(pid[0]);
    await(&heard.place_is_free);
    CHECK(sem_post(&forming->go[1]) == 0 && sem_post(&forming->go[2]) == 0);
    for (int i = 1; i < SIZE; i++) {
        int status = await_child(pid[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK_OK(muster_scheduler_wait(scheduler, 20000 * patience()));
    muster_scheduler_free(scheduler);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_INFO, NULL, NULL));
}

int main(void) {
    told_of_a_loss();
    replaced_while_forming();
    return 0;
}
