/* Ranks that are there and say nothing, or several that go at a time. A stopped process is lost after the heartbeat
 * time-out, and learns of it when it goes on. If two die at once, one is the first cause, the same for all survivors. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>

enum { SIZE = 5, FIRST = 1, SECOND = 3 };

static void keep(struct note *note, muster_cluster_t *cluster, muster_status_t status) {
    keep_failure(note, cluster, status);
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
}

static void meet_until_broken(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_status_t status = MUSTER_OK;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    while (status == MUSTER_OK) {
        float values[4000] = {0};
        status = muster_allreduce(muster_world(cluster), values, values, 4000, MUSTER_FLOAT32, MUSTER_SUM);
    }
    note->took_s = now_s();
    keep(note, cluster, status);
}

static void await_all(struct ranks *ranks) {
    ranks_await_ready(ranks);
}

static void stopped(void) {
    static const char *const settings[] = {"node_timeout", "0.5", NULL};
    struct ranks *ranks = ranks_start(3, meet_until_broken, settings);
    await_all(ranks);
    double begin = now_s();
    stop_process(ranks->pid[FIRST]);
    for (int i = 0; i < 3; i++) {
        if (i != FIRST) {
            ranks_await(ranks, i);
            CHECK_IS(MUSTER_ERR_PEER_LOST, ranks->note[i].status);
            CHECK_IS(FIRST, ranks->note[i].failure.rank);
            CHECK_IS(ranks->pid[FIRST], ranks->note[i].failure.pid);
            CHECK(ranks->note[i].took_s - begin >= 0.3 && ranks->note[i].took_s - begin < 5 * patience());
        }
    }
    CHECK(strcmp(ranks->note[0].words, ranks->note[2].words) == 0);
    CHECK(kill(ranks->pid[FIRST], SIGCONT) == 0);
    ranks_await(ranks, FIRST); /* its call ends, too */
    CHECK(ranks->note[FIRST].status < 0 && ranks->note[FIRST].words[0] != 0);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

static void two_at_once(void) {
    struct ranks *ranks = ranks_start(SIZE, meet_until_broken, NULL);
    await_all(ranks);
    ranks_kill(ranks, FIRST);
    ranks_kill(ranks, SECOND);
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
    }
    for (int i = 0; i < SIZE; i += 2) { /* the survivors: 0, 2, 4 */
        const struct note *note = &ranks->note[i];
        CHECK_IS(MUSTER_ERR_PEER_LOST, note->status);
        CHECK(note->failure.rank == FIRST || note->failure.rank == SECOND);
        if (strcmp(note->words, ranks->note[0].words) != 0) {
            fprintf(stderr, "    rank 0: %s\n    rank %d: %s\n", ranks->note[0].words, i, note->words);
        }
        CHECK(strcmp(note->words, ranks->note[0].words) == 0);
        CHECK(strcmp(note->cluster_words, ranks->note[0].words) == 0);
    }
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

int main(void) {
    stopped();
    for (int round = 0; round < 5; round++) {
        two_at_once();
    }
    return 0;
}
