/* muster_recover keeps to its time and to its word: a reduction function that has not returned holds nobody up, and an epoch that begins
 * after the call has given up is not used before the next call has returned it. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>

enum { WORKERS = 2, LIMIT_MS = 60000, SHORT_MS = 300, COUNT = 4 };

static int32_t limit_ms(void) { return (int32_t)(LIMIT_MS * patience()); }

static void leave(muster_cluster_t *cluster) {
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* ---- a function that does not return ---- */

static sem_t entered; /* in each rank */

static void held(const void *in, void *inout, size_t count, int32_t dtype, void *context) {
    const int32_t *from = in;
    int32_t *to = inout;
    CHECK_IS(MUSTER_INT32, dtype);
    CHECK(sem_post(&entered) == 0);
    await(context);
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void is_in_a_function(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    int32_t in[COUNT] = {1, 2, 3, 4}, out[COUNT] = {0};
    muster_request_t *request = NULL;
    CHECK(sem_init(&entered, 0, 0) == 0);
    CHECK_OK(muster_iallreduce_with(world, in, out, COUNT, MUSTER_INT32, held, &note->go, 1, &request));
    await(&entered);
    CHECK_OK(muster_recover(cluster, limit_ms()));
    CHECK_IS(2, muster_epoch(cluster));
    CHECK_OK(muster_barrier(world));
    CHECK(sem_post(&note->ready) == 0);
    muster_status_t status = muster_request_wait(request, limit_ms());
    if (status == MUSTER_OK) { /* the ranks had exchanged all before the epoch ended */
        CHECK_IS(2 * in[COUNT - 1], out[COUNT - 1]);
    } else {
        CHECK_IS(MUSTER_ERR_REVOKED, status);
    }
    muster_request_free(request);
    leave(cluster);
}

static void a_function_holds_nobody_up(void) {
    struct ranks *ranks = ranks_start(WORKERS, is_in_a_function, NULL);
    ranks_await_ready(ranks); /* both are in the next epoch, and no function has returned */
    for (int i = 0; i < COUNT; i++) { /* the function may be called for each element */
        ranks_go(ranks);
    }
    for (int rank = 0; rank < WORKERS; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_IS(MUSTER_OK, ranks_finish(ranks));
}

/* ---- an epoch that begins behind the program's back ---- */

static void gives_up(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    muster_failure_t failure;
    if (rank == 1) {
        CHECK_OK(muster_recover(cluster, limit_ms()));
        CHECK(sem_post(&note->ready) == 0);
    } else {
        CHECK_IS(MUSTER_ERR_REVOKED, muster_barrier(world)); /* the scheduler has heard of the other's call */
        CHECK(sem_post(&note->ready) == 0);
        await(&note->go); /* the scheduler stands still */
        CHECK_IS(MUSTER_ERR_TIMEOUT, muster_recover(cluster, SHORT_MS));
        CHECK(sem_post(&note->ready) == 0);
        await(&note->go); /* the other is in the next epoch, and this node is in it for the scheduler */
        CHECK_IS(1, muster_epoch(cluster));
        CHECK_IS(MUSTER_ERR_REVOKED, muster_barrier(world));
        CHECK_OK(muster_group_failure(world, &failure, sizeof failure));
        CHECK_IS(MUSTER_ERR_REVOKED, failure.status);
        static const int32_t both[WORKERS] = {0, 1};
        muster_group_t *made = NULL;
        CHECK_IS(MUSTER_ERR_REVOKED, muster_group_create_members(cluster, both, 1, "own", limit_ms(), &made));
        CHECK(made == NULL);
        CHECK_OK(muster_group_set_timeout(world, SHORT_MS)); /* for the groups of later epochs, too */
        CHECK_OK(muster_recover(cluster, limit_ms()));
    }
    CHECK_IS(2, muster_epoch(cluster));
    CHECK_OK(muster_barrier(muster_universe(cluster)));
    if (rank == 0) {
        CHECK_IS(MUSTER_ERR_TIMEOUT, muster_barrier(world)); /* alone */
        CHECK(sem_post(&note->ready) == 0);
    } else {
        await(&note->go); /* rank 0 has waited alone */
    }
    leave(cluster);
}

static void an_epoch_is_used_once_it_was_returned(void) {
    struct ranks *ranks = ranks_start(WORKERS, gives_up, NULL);
    struct note *late = &ranks->note[0];
    await(&late->ready);
    stop_process(ranks->scheduler);
    CHECK(sem_post(&late->go) == 0);
    await(&late->ready);
    CHECK(kill(ranks->scheduler, SIGCONT) == 0);
    await(&ranks->note[1].ready);
    CHECK(sem_post(&late->go) == 0);
    await(&late->ready);
    CHECK(sem_post(&ranks->note[1].go) == 0);
    for (int rank = 0; rank < WORKERS; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_IS(MUSTER_OK, ranks_finish(ranks));
}

int main(void) {
    a_function_holds_nobody_up();
    an_epoch_is_used_once_it_was_returned();
    return 0;
}
