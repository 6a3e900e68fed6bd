/* What waiting in muster_finalize and muster_recover costs, and when they end: within their limits whatever others do, and
 * with hardly any processor time. Every rank has used messages on many groups before, each of which has a thread. */
#include "check.h"
#include "own.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

enum { GROUPS = 32, GROUPS_WHERE_WATCHED = 8, LIMIT_S = 2, KIB = 1 << 10, MIB = 1 << 20 };

static const char *const settings[] = {"finalize_timeout", "2", "timeout", "60", NULL};
/* The limit for calls that end long before it. */
static const char *const patient[] = {"finalize_timeout", "60", "timeout", "60", NULL};
static muster_group_t *made[GROUPS];
static uint8_t memory[64 * MIB];

/* How many of them are made. */
static int groups(void) { return less_where_watched(GROUPS, GROUPS_WHERE_WATCHED); }

/* The processor time of all threads of this process. */
static double processor_s(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A thread whose bell rings without end takes seconds of processor time. */
static void hardly_any(double since_s) { CHECK(processor_s() - since_s < 0.5 * patience()); }

static void exchange(muster_group_t *group) {
    int32_t rank = muster_group_rank(group), size = muster_group_size(group), other = -1;
    CHECK_OK(muster_sendrecv(group, &rank, 1, MUSTER_INT32, (rank + 1) % size, 1, &other, 1, MUSTER_INT32, (rank + size - 1) % size,
                             1, NULL, 0));
}

static void use_groups(muster_cluster_t *cluster, int rank) {
    muster_group_t *world = muster_world(cluster);
    exchange(world);
    for (int i = 0; i < groups(); i++) {
        CHECK_OK(muster_group_split(world, 0, rank, &made[i]));
        exchange(made[i]);
    }
    CHECK_OK(muster_barrier(world));
}

/* This rank is where the test wants it, and goes on when it is told to. */
static void meet(struct note *note) {
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
}

static void finalize_within(muster_cluster_t *cluster, double limit_s) {
    double before_s = now_s(), processor_before_s = processor_s();
    CHECK_OK(muster_finalize(cluster));
    CHECK(now_s() - before_s < limit_s + 2 * patience());
    hardly_any(processor_before_s);
}

static void free_all(muster_cluster_t *cluster) {
    for (int i = 0; i < groups(); i++) {
        muster_group_free(made[i]);
    }
    muster_cluster_free(cluster);
}

static void leave(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    use_groups(cluster, rank);
    meet(&ranks->note[rank]);
    finalize_within(cluster, LIMIT_S);
    free_all(cluster);
}

static struct ranks *all_ready(int size, rank_body body, const char *const *settings) {
    struct ranks *ranks = ranks_start(size, body, settings);
    ranks_await_ready(ranks);
    return ranks;
}

static void go_on(struct ranks *ranks, int rank) {
    CHECK(sem_post(&ranks->note[rank].go) == 0);
    ranks_await(ranks, rank);
}

/* If the scheduler stands still, leaving takes its whole limit, asleep. */
static void scheduler_stands_still(void) {
    struct ranks *ranks = all_ready(2, leave, settings);
    stop_process(ranks->scheduler);
    CHECK(sem_post(&ranks->note[1].go) == 0);
    go_on(ranks, 0);
    ranks_await(ranks, 1);
    CHECK(kill(ranks->scheduler, SIGCONT) == 0);
    CHECK_OK(ranks_finish(ranks)); /* their good-byes were there */
}

static void killed_then_left(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    use_groups(cluster, rank);
    meet(&ranks->note[rank]);
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_recv(made[0], memory, 1, MUSTER_UINT8, 1, 1, NULL, 0));
    finalize_within(cluster, LIMIT_S);
    free_all(cluster);
}

static void after_a_kill(void) {
    struct ranks *ranks = all_ready(3, killed_then_left, patient);
    ranks_kill(ranks, 1);
    ranks_await(ranks, 1);
    CHECK(sem_post(&ranks->note[2].go) == 0);
    go_on(ranks, 0);
    ranks_await(ranks, 2);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_finish(ranks));
}

/* Rank 0 goes on when rank 1 has passed its last barrier. Otherwise rank 1 might still be in it when rank 0 ends the epoch.
 * */
static void await_rank_1(int rank, struct ranks *ranks) {
    if (rank == 0) {
        await(&ranks->note[1].ready);
    } else {
        CHECK(sem_post(&ranks->note[1].ready) == 0);
    }
}

static void recover_late(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    use_groups(cluster, rank);
    await_rank_1(rank, ranks);
    for (int i = 0; rank == 0 && i < groups(); i++) { /* all are over, and each has a thread for messages */
        muster_request_t *request = NULL;
        CHECK_OK(muster_ibarrier(made[i], &request));
        muster_request_cancel(request);
        muster_request_free(request);
    }
    if (rank == 0) {
        double before_s = processor_s();
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, if_told_in_time("rank 1"), muster_recover(cluster, 2000));
        hardly_any(before_s);
        CHECK(sem_post(&ranks->note[1].go) == 0);
    } else {
        await(&ranks->note[rank].go);
    }
    CHECK_OK(muster_recover(cluster, -1));
    exchange(made[0]);
    CHECK_OK(muster_barrier(muster_world(cluster)));
    finalize_within(cluster, LIMIT_S);
    free_all(cluster);
}

static void recovery_that_waits(void) {
    struct ranks *ranks = ranks_start(2, recover_late, settings);
    ranks_await(ranks, 0);
    ranks_await(ranks, 1);
    CHECK_OK(ranks_finish(ranks));
}

/* A thread that sends to a rank which stands still, more than the sockets accept. */
static void send_to_one_that_stands_still(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    use_groups(cluster, rank);
    muster_request_t *receive = NULL, *send = NULL, *eager[GROUPS] = {NULL};
    if (rank == 1) {
        CHECK_OK(muster_irecv(made[0], memory, sizeof memory, MUSTER_UINT8, 0, 5, NULL, 0, &receive));
    }
    CHECK_OK(muster_barrier(made[0]));
    meet(&ranks->note[rank]);
    if (rank == 0) {
        CHECK_OK(muster_isend(made[0], memory, sizeof memory, MUSTER_UINT8, 1, 5, &send));
        for (int i = 0; i < groups(); i++) {
            CHECK_OK(muster_isend(made[i], memory, 64 * KIB, MUSTER_UINT8, 1, 6, &eager[i]));
        }
    }
    finalize_within(cluster, LIMIT_S);
    if (send != NULL) {
        CHECK(muster_request_wait(send, 0) != MUSTER_IN_PROGRESS);
    }
    muster_request_free(receive);
    muster_request_free(send);
    for (int i = 0; i < groups(); i++) {
        muster_request_free(eager[i]);
    }
    free_all(cluster);
}

static void a_peer_stands_still(void) {
    struct ranks *ranks = all_ready(2, send_to_one_that_stands_still, settings);
    stop_process(ranks->pid[1]);
    go_on(ranks, 0);
    CHECK(kill(ranks->pid[1], SIGCONT) == 0);
    go_on(ranks, 1);
    CHECK_OK(ranks_finish(ranks));
}

/* The call that another thread is in when its process leaves. */
enum place { IN_RECV, IN_ANY_RECV, IN_BARRIER, IN_SPLIT, IN_RECOVER, IN_STORE, IN_FUNCTION, PLACES };

struct other {
    muster_cluster_t *cluster;
    enum place place;
    int32_t op;
    muster_status_t status;
    int tid; /* of the thread that is about to call */
};

static int inside, released;

/* A user's function that does not return. */
static void stuck(const void *in, void *in_out, size_t count, int32_t dtype, void *context) {
    (void)in, (void)in_out, (void)count, (void)dtype, (void)context;
    __atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&released, __ATOMIC_SEQ_CST)) {
        usleep(1000); /* it may not call the library, whose waits would be what is tested */
    }
}

/* Waits until so many calls are in that function. */
static void await_inside(int calls) {
    while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) < calls) {
        usleep(1000); /* a function of reduction can tell nobody that it was called */
    }
}

static void *be_in(void *argument) {
    struct other *other = argument;
    muster_group_t *group = NULL;
    int64_t value = 0, sum = 0;
    own_thread_calls(&other->tid);
    switch (other->place) {
        case IN_RECV: other->status = muster_recv(made[0], memory, 1, MUSTER_UINT8, 0, 9, NULL, 0); break;
        case IN_ANY_RECV: other->status = muster_recv(made[0], memory, 1, MUSTER_UINT8, MUSTER_ANY_SOURCE, 9, NULL, 0); break;
        case IN_BARRIER: other->status = muster_barrier(made[0]); break;
        case IN_SPLIT: other->status = muster_group_split(made[0], 0, 0, &group); break;
        case IN_RECOVER: other->status = muster_recover(other->cluster, -1); break;
        case IN_STORE: other->status = muster_store_wait(other->cluster, (const char *const[]){"never"}, 1, 60000); break;
        case IN_FUNCTION: other->status = muster_allreduce(made[0], &value, &sum, 1, MUSTER_INT64, other->op); break;
        case PLACES: break;
    }
    return NULL;
}

static enum place place;

static void leave_while_another_is_inside(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct other other = {.cluster = cluster, .place = place};
    pthread_t thread;
    static muster_request_t *request, *own; /* rank 1's end with the process */
    int64_t value = 0, sum = 0, own_sum = 0; /* two operations at a time may not write into one */
    use_groups(cluster, rank);
    await_rank_1(rank, ranks);
    CHECK_OK(muster_op_create(cluster, stuck, NULL, 1, &other.op));
    if (rank == 1) {
        if (place == IN_FUNCTION) {
            __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
            CHECK_OK(muster_iallreduce(made[0], &value, &own_sum, 1, MUSTER_INT64, other.op, &own));
            CHECK_OK(muster_iallreduce(made[1], &value, &sum, 1, MUSTER_INT64, other.op, &request));
        }
        await(&ranks->note[rank].go);
        finalize_within(cluster, LIMIT_S);
        muster_cluster_free(cluster); /* its groups and requests end with the process */
        return;
    }
    if (place == IN_FUNCTION) { /* a caller's thread, and the library's own */
        CHECK_OK(muster_iallreduce(made[1], &value, &sum, 1, MUSTER_INT64, other.op, &request));
    }
    CHECK(pthread_create(&thread, NULL, be_in, &other) == 0);
    await_inside(place == IN_FUNCTION ? 2 : 0);
    own_thread_sleeps(&other.tid);
    finalize_within(cluster, LIMIT_S);
    __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(place == IN_FUNCTION || other.status == MUSTER_ERR_STATE);
    muster_request_free(request);
    free_all(cluster);
    CHECK(sem_post(&ranks->note[1].go) == 0);
}

static void while_another_thread_is_inside(void) {
    for (place = IN_RECV; place < PLACES; place++) {
        struct ranks *ranks = ranks_start(2, leave_while_another_is_inside, settings);
        ranks_await(ranks, 0);
        ranks_await(ranks, 1);
        CHECK_OK(ranks_finish(ranks));
    }
}

/* A call whose time is up while the one before it is in a user's function that does not return. */
static void give_up_behind_a_function(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct other other = {.cluster = cluster, .place = IN_FUNCTION};
    pthread_t thread;
    (void)ranks;
    __atomic_store_n(&released, rank == 1, __ATOMIC_SEQ_CST);
    CHECK_OK(muster_group_split(muster_world(cluster), 0, rank, &made[0]));
    CHECK_OK(muster_op_create(cluster, stuck, NULL, 1, &other.op));
    CHECK(pthread_create(&thread, NULL, be_in, &other) == 0);
    if (rank == 0) {
        struct other patient_one = {.cluster = cluster, .place = IN_BARRIER};
        pthread_t waits;
        await_inside(1);
        CHECK(pthread_create(&waits, NULL, be_in, &patient_one) == 0);
        own_thread_sleeps(&patient_one.tid);
        CHECK_OK(muster_group_set_timeout(made[0], 300));
        double before_s = now_s();
        CHECK(muster_barrier(made[0]) == MUSTER_ERR_TIMEOUT);
        CHECK(now_s() - before_s < 0.3 + 2 * patience());
        CHECK(muster_barrier(made[0]) == MUSTER_ERR_TIMEOUT); /* the group is over, and nothing waits for the function */
        CHECK(pthread_join(waits, NULL) == 0);
        CHECK(patient_one.status == MUSTER_ERR_TIMEOUT); /* though it has more time */
        __atomic_store_n(&released, 1, __ATOMIC_SEQ_CST);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    muster_group_free(made[0]);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void a_function_does_not_return(void) {
    struct ranks *ranks = ranks_start(2, give_up_behind_a_function, patient);
    CHECK_OK(ranks_finish(ranks));
}

/* A healthy cluster: all is said and heard within a moment, however many groups there are. */
static void at_once(void) {
    struct ranks *ranks = all_ready(3, leave, patient);
    for (int rank = 0; rank < 3; rank++) {
        CHECK(sem_post(&ranks->note[rank].go) == 0);
    }
    for (int rank = 0; rank < 3; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
}

int main(void) {
    at_once();
    scheduler_stands_still();
    after_a_kill();
    recovery_that_waits();
    a_peer_stands_still();
    while_another_thread_is_inside();
    a_function_does_not_return();
    return 0;
}
