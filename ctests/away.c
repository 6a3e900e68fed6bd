/* The scheduler's process dies. Even without recovery, the job goes on while its nodes live: collectives work, calls that
 * need the scheduler say that it is away, and leaving ends in bounded time. The members tell each other what the scheduler
 * would have told them: of a loss, of a rank that left, of a group that is over, of an abort. All are told the same. */
#include "check.h"
#include "ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SIZE = 4, ABORTS = 1, RECEIVES = 2, ODD = 3, CODE = 7, SOON_S = 5, SLACK_S = 2 };
enum { SHORT_MS = 500, SMALL = 1, MIDDLE = 5 << 10, LARGE = 200 << 10, COUNTS = 3, KINDS = 13, GROUPS = KINDS * COUNTS + 1, MAILED = GROUPS - 1 };

/* How many ranks there are in this case. */
static int size = 0;

static void go(struct ranks *ranks, int rank) { CHECK(sem_post(&ranks->note[rank].go) == 0); }

/* All have posted `ready`, and there is no scheduler any more. */
static struct ranks *without_scheduler(int ranks_in_all, rank_body body, const char *const *settings) {
    size = ranks_in_all;
    struct ranks *ranks = ranks_start(size, body, settings);
    ranks_await_ready(ranks);
    ranks_kill_scheduler(ranks);
    return ranks;
}

static void let_them_leave(struct ranks *ranks) {
    ranks_go(ranks);
    for (int rank = 0; rank < size; rank++) {
        ranks_await(ranks, rank);
    }
}

enum { FINALIZE_MS = 1500 };

/* How often this process has said that the scheduler is away. */
static atomic_int said_so;

static void listen_to(int32_t level, const char *target, const char *message, void *context) {
    (void)target;
    (void)context;
    if (strstr(message, "the scheduler at") != NULL && strstr(message, "has been away") != NULL) {
        CHECK_IS(MUSTER_LOG_WARNING, level);
        CHECK_CONTAINS(message, "collectives go on");
        atomic_fetch_add(&said_so, 1);
    }
}

static void reduce(muster_cluster_t *cluster, int rounds) {
    muster_group_t *world = muster_world(cluster);
    for (int round = 0; round < rounds; round++) {
        int64_t sum = muster_rank(cluster) + round;
        CHECK_OK(muster_allreduce(world, &sum, &sum, 1, MUSTER_INT64, MUSTER_SUM));
        CHECK_IS(size * (size - 1) / 2 + size * round, sum);
        CHECK_OK(muster_barrier(world));
    }
}

static void goes_on(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    void *value = NULL;
    size_t len = 0;
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_WARNING, listen_to, NULL));
    reduce(cluster, 10);
    CHECK_OK(muster_store_set(cluster, "there", "yes", 3));
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    int32_t more = 1;
    for (double until = now_s() + 5 * 0.5 * patience(); more != 0;) { /* several heartbeat time-outs */
        int32_t mine = now_s() < until;
        reduce(cluster, 10);
        CHECK_OK(muster_allreduce(muster_world(cluster), &mine, &more, 1, MUSTER_INT32, MUSTER_MAX));
    }
    double begin = now_s();
    CHECK_FAILS(MUSTER_ERR_UNREACHABLE, "scheduler", muster_store_get(cluster, "there", 200, &value, &len));
    CHECK(value == NULL && now_s() - begin < 2 * SOON_S * patience());
    reduce(cluster, 10); /* that the store is away revokes nothing */
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_failure(cluster, &note->failure, sizeof note->failure));
    int32_t failed[SIZE];
    size_t count = SIZE;
    CHECK_OK(muster_failed_ranks(cluster, failed, SIZE, &count));
    CHECK(count == 0); /* the scheduler is no rank */
    begin = now_s();
    CHECK_OK(muster_finalize(cluster));
    CHECK(now_s() - begin < (FINALIZE_MS / 1000.0 + SLACK_S) * patience());
    muster_cluster_free(cluster);
    CHECK_IS(1, atomic_load(&said_so));
}

static void all_go_on(void) {
    const char *settings[] = {"node_timeout", "0.5", "finalize_timeout", "1.5", NULL};
    struct ranks *ranks = without_scheduler(3, goes_on, settings);
    let_them_leave(ranks);
    ranks_free(ranks);
}

/* The rank that the others hear of: it is killed, or leaves. */
static int gone = 0;
static bool leaves_in_order = false;

/* This call says so, and begins with that rank. */
static void check_gone(const struct ranks *ranks, muster_status_t status) {
    char name[64], process[32];
    snprintf(name, sizeof name, "rank %d (node id \"%d\", host ", gone, gone);
    snprintf(process, sizeof process, ", pid %d)", (int)ranks->pid[gone]);
    CHECK_IS(leaves_in_order ? MUSTER_ERR_PEER_LEFT : MUSTER_ERR_PEER_LOST, status);
    CHECK(strncmp(muster_last_error(), name, strlen(name)) == 0);
    CHECK_CONTAINS(muster_last_error(), process);
}

static void hears_of_one(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t sum = 1;
    muster_status_t status = MUSTER_OK;
    warm_up(world);
    CHECK_OK(muster_allreduce(world, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM));
    CHECK(sem_post(&ranks->note[rank].ready) == 0);
    await(&ranks->note[rank].go); /* it may be killed here */
    double begun = now_s();
    for (int i = 0; rank != gone && status == MUSTER_OK && i < 100; i++) {
        status = size > 3 ? muster_allreduce(world, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM) : muster_barrier(world);
    }
    if (rank != gone) {
        check_gone(ranks, status);
        CHECK(now_s() - begun < 2 * SOON_S * patience());
    }
    /* Nobody is there to say that no epoch follows: the culprit's place is lost for good. */
    for (int i = 0; rank != gone && !leaves_in_order && i < 3; i++) {
        begun = now_s();
        check_gone(ranks, muster_recover(cluster, i == 2 ? 0 : -1));
        CHECK(now_s() - begun < 2 * SOON_S * patience());
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

/* If five ranks add up in a tree, most never speak to the one that dies. */
static void one_is_gone(int ranks_in_all, int which, bool in_order) {
    const char *settings[] = {"node_timeout", "0.5", "finalize_timeout", "1", NULL};
    gone = which;
    leaves_in_order = in_order;
    struct ranks *ranks = without_scheduler(ranks_in_all, hears_of_one, settings);
    if (!in_order) {
        ranks_kill(ranks, gone);
        ranks_await(ranks, gone);
    }
    ranks_go(ranks);
    for (int rank = 0; rank < size; rank++) {
        if (rank != gone || in_order) {
            ranks_await(ranks, rank);
        }
    }
    ranks_free(ranks);
}

/* A rank may call after the others have given up. That very call tells it so, whatever it calls and whatever of theirs
 * waits for it. The ranks that heard it say so in the same words. */
static const size_t counts[COUNTS] = {SMALL, MIDDLE, LARGE};

/* What differs from run to run: which rank comes late, and which one has little time. */
static int late = 0;
static int hasty = 0;
static bool used_before = false;
/* What each rank was told of each group. */
enum { SENTENCE_BYTES = 768 };
static char (*told)[RANKS_MAX][GROUPS][SENTENCE_BYTES];

enum { OF_THE_LATE = 1, OF_ALL = 9 };

/* How many collectives are begun, each on a group of its own. Under Valgrind a process runs one thread at a time, so there
 * are only collectives with little data: otherwise the words that dozens of groups are over, at once, take longer there
 * than the 5 s that a stranger has to say its name. */
static int mailed(void) { return less_where_watched(MAILED, KINDS); }

/* The collective with this number; which of the two ranks that matter is the root is part of it. */
static muster_status_t start(muster_group_t *group, int kind, size_t count, int32_t *in, int32_t *out, muster_request_t **request) {
    int root = kind % 2 ? late : hasty;
    const int32_t type = MUSTER_INT32;
    switch (kind) {
    case 0: return muster_ibarrier(group, request);
    case 1:
    case 2: return muster_ibroadcast(group, out, count, type, root, request);
    case 3:
    case 4: return muster_ireduce(group, in, out, count, type, MUSTER_SUM, root, request);
    case 5:
    case 6: return muster_igather(group, in, out, count, type, root, request);
    case 7:
    case 8: return muster_iscatter(group, in, out, count, type, root, request);
    case 9: return muster_iallreduce(group, in, out, count, type, MUSTER_SUM, request);
    case 10: return muster_iallgather(group, in, out, count, type, request);
    case 11: return muster_ireduce_scatter(group, in, out, count, type, MUSTER_SUM, request);
    default: return muster_ialltoall(group, in, out, count, type, request);
    }
}

static void finish(muster_request_t *request, muster_status_t expected) {
    CHECK_IS(expected, muster_request_wait(request, 30000 * patience()));
    muster_request_free(request);
}

/* The last call has failed because its time was up, and its sentence says how long that is: of absent ranks, or of none. */
static void time_was_up(muster_status_t status) {
    char absent[48], slow[48];
    snprintf(absent, sizeof absent, " %g s that it may take", SHORT_MS * patience() / 1000.0);
    snprintf(slow, sizeof slow, " timed out after %g s", SHORT_MS * patience() / 1000.0);
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, strstr(CHECK_LAST_ERROR(), slow) != NULL ? slow : absent, status);
}

/* The ranks that are there begin everything, and a barrier behind each collective that could end without the late rank. */
static void give_up(muster_group_t **groups, int rank, int32_t *in, int32_t *out) {
    muster_request_t *calls[MAILED], *barriers[MAILED], *last = NULL;
    for (int i = 0; i < mailed(); i++) {
        size_t count = counts[i / KINDS];
        CHECK_OK(start(groups[i], i % KINDS, count, in, out + (size_t)i * (size_t)size * LARGE, &calls[i]));
        CHECK_OK(muster_ibarrier(groups[i], &barriers[i]));
    }
    /* One more group: only one rank calls a collective in it, and the others wait for a message. */
    if (rank == hasty) {
        CHECK_OK(muster_ibarrier(groups[MAILED], &last));
    } else {
        CHECK_OK(muster_irecv(groups[MAILED], out, 1, MUSTER_INT32, late, 0, NULL, 0, &last));
    }
    finish(last, MUSTER_ERR_TIMEOUT);
    for (int i = 0; i < mailed(); i++) {
        muster_status_t status = muster_request_wait(calls[i], 30000 * patience());
        if (status != MUSTER_OK) {
            time_was_up(status);
        }
        muster_request_free(calls[i]);
        finish(barriers[i], MUSTER_ERR_TIMEOUT);
        snprintf((*told)[rank][i], SENTENCE_BYTES, "%s", muster_last_error());
    }
}

static void come_late(muster_group_t **groups, int rank, int32_t *in, int32_t *out) {
    char words_for_it[64];
    /* The link for messages is new. The word that the group is over comes right behind its answer: a small message may be on its
     * way by then, and the next call is told. */
    muster_status_t sent = muster_send(groups[MAILED], in, 1, MUSTER_INT32, hasty, 0);
    if (sent == MUSTER_OK) {
        sent = muster_barrier(groups[MAILED]);
    }
    time_was_up(sent);
    for (int i = 0; i < mailed(); i++) {
        muster_request_t *request = NULL;
        muster_status_t status = start(groups[i], i % KINDS, counts[i / KINDS], in, out, &request);
        if (status == MUSTER_OK) {
            status = muster_request_wait(request, 30000 * patience());
            muster_request_free(request);
        }
        if (status != MUSTER_ERR_TIMEOUT) {
            fprintf(stderr, "    collective %d of %zu elements on %d ranks, %d being late\n", i % KINDS, counts[i / KINDS], size, late);
        }
        time_was_up(status);
        time_was_up(muster_barrier(groups[i]));
        if (i % KINDS == OF_THE_LATE || i % KINDS == OF_ALL) { /* nobody has come out of that one */
            snprintf(words_for_it, sizeof words_for_it, "%s #%d on group ", i % KINDS == OF_ALL ? "allreduce" : "broadcast", used_before ? 2 : 1);
            CHECK_CONTAINS(muster_last_error(), words_for_it);
        }
        snprintf((*told)[rank][i], SENTENCE_BYTES, "%s", muster_last_error());
    }
}

static void gives_up_or_comes_late(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *groups[GROUPS];
    size_t elements = (size_t)size * LARGE;
    int32_t *in = calloc(elements, sizeof *in);
    int32_t *out = calloc(elements * GROUPS, sizeof *out); /* what is not written takes no memory */
    CHECK(in != NULL && out != NULL);
    for (int i = 0; i < GROUPS; i++) {
        CHECK_OK(muster_group_split(muster_world(cluster), 0, rank, &groups[i]));
        if (used_before && i < mailed()) {
            muster_request_t *request = NULL;
            CHECK_OK(start(groups[i], i % KINDS, counts[i / KINDS], in, out, &request));
            finish(request, MUSTER_OK);
        }
        if (rank == hasty) { /* from now on: what all do together may take longer on a busy machine */
            CHECK_OK(muster_group_set_timeout(groups[i], SHORT_MS * patience()));
        }
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    if (rank == late) {
        come_late(groups, rank, in, out);
    } else {
        give_up(groups, rank, in, out);
    }
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    CHECK_OK(muster_finalize(cluster));
    for (int i = 0; i < GROUPS; i++) {
        muster_group_free(groups[i]);
    }
    muster_cluster_free(cluster);
    free(in);
    free(out);
}

/* Lets this rank go on, and waits until it has come to the next place. */
static void on_and_wait(struct ranks *ranks, bool those_who_are_late) {
    for (int i = 0; i < size; i++) {
        if ((i == late) == those_who_are_late) {
            CHECK(sem_post(&ranks->note[i].go) == 0);
        }
    }
    for (int i = 0; i < size; i++) {
        if ((i == late) == those_who_are_late) {
            await(&ranks->note[i].ready);
        }
    }
}

static void one_comes_late(int ranks_in_all, int who_is_late, bool links_are_open) {
    static const char *const settings[] = {"finalize_timeout", "1", NULL};
    size = ranks_in_all;
    late = who_is_late;
    hasty = (who_is_late + 1) % size;
    used_before = links_are_open;
    struct ranks *ranks = without_scheduler(size, gives_up_or_comes_late, settings);
    on_and_wait(ranks, false);
    on_and_wait(ranks, true);
    let_them_leave(ranks);
    for (int i = 0; i < mailed(); i++) {
        for (int rank = 1; rank < size; rank++) {
            CHECK((*told)[0][i][0] != 0 && strcmp((*told)[rank][i], (*told)[0][i]) == 0);
        }
    }
    ranks_free(ranks);
}

/* muster_abort: the rank that ends the job tells every other rank itself. Their pending calls, and their next ones, return
 * with its rank, code and reason. It counts the ranks that it does not reach. With recovery a scheduler that is started
 * again tells those. */

/* What is wrong with the odd rank while the job is ended. */
static enum { WELL, DEAD, STOPPED } odd_is = WELL;

static const char *const why = "code 7: the disk is gone";

/* This call has heard of the abort, and so do those after it. */
static void check_aborted(muster_cluster_t *cluster, struct note *note, muster_status_t status) {
    keep_failure(note, cluster, status);
    CHECK_IS(MUSTER_ERR_ABORTED, status);
    CHECK_CONTAINS(note->words, why);
    CHECK_CONTAINS(note->words, "rank 1 (");
    CHECK_IS(MUSTER_ERR_ABORTED, note->failure.status);
    CHECK_IS(ABORTS, note->failure.rank);
    CHECK_FAILS(MUSTER_ERR_ABORTED, why, muster_recover(cluster, 0));
}

static muster_status_t ends_the_job(muster_cluster_t *cluster) {
    double begun = now_s();
    muster_status_t status = muster_abort(cluster, CODE, "the disk is gone");
    /* Where everything is slow the 2 s of this call are too short to tell every node, or any. They are told after that. */
    bool is_slow = patience() > 1 && status == MUSTER_ERR_UNREACHABLE;
    if (odd_is == WELL && !is_slow) {
        CHECK_IS(MUSTER_OK, status);
    } else {
        CHECK_IS(MUSTER_ERR_UNREACHABLE, status);
        CHECK_CONTAINS(muster_last_error(), is_slow ? "other nodes" : "1 of 3 other nodes");
    }
    CHECK(now_s() - begun < SOON_S * patience());
    status = muster_barrier(muster_world(cluster)); /* where all is slow, the job may be over only now */
    CHECK_OK(muster_abort(cluster, CODE + 1, "once more"));
    return status;
}

static void ends_or_hears(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    muster_group_t *world = muster_world(cluster);
    int32_t value = 0;
    warm_up(world);
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    muster_status_t status;
    switch (rank) {
    case ABORTS: status = ends_the_job(cluster); break;
    case RECEIVES: status = muster_recv(world, &value, 1, MUSTER_INT32, 0, 0, NULL, 0); break;
    /* Only the scheduler tells the rank, if it was not reached. */
    case ODD: status = odd_is == STOPPED ? muster_recover(cluster, 30000 * patience()) : muster_barrier(world); break;
    default: status = muster_barrier(world);
    }
    check_aborted(cluster, note, status);
    if (rank != ODD) {
        CHECK_FAILS(MUSTER_ERR_ABORTED, why, muster_barrier(world));
    }
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    double begun = now_s();
    CHECK_OK(muster_finalize(cluster));
    CHECK(now_s() - begun < SOON_S * patience());
    muster_cluster_free(cluster);
}

/* Lets one go on, and waits until it has come to the next place. */
static void go_and_wait(struct ranks *ranks, int rank) {
    go(ranks, rank);
    await(&ranks->note[rank].ready);
}

/* Two wait in calls while a third ends the job, and the fourth calls afterwards. */
static void all_are_well(void) {
    odd_is = WELL;
    struct ranks *ranks = without_scheduler(SIZE, ends_or_hears, NULL);
    go(ranks, 0);
    go(ranks, RECEIVES);
    go_and_wait(ranks, ABORTS);
    await(&ranks->note[0].ready);
    await(&ranks->note[RECEIVES].ready);
    go_and_wait(ranks, ODD);
    let_them_leave(ranks);
    ranks_free(ranks);
}

static void one_is_dead(void) {
    odd_is = DEAD;
    struct ranks *ranks = without_scheduler(SIZE, ends_or_hears, NULL);
    ranks_kill(ranks, ODD);
    ranks_await(ranks, ODD);
    go_and_wait(ranks, ABORTS);
    go_and_wait(ranks, 0);
    go_and_wait(ranks, RECEIVES);
    for (int rank = 0; rank < ODD; rank++) {
        go(ranks, rank);
        ranks_await(ranks, rank);
    }
}

static void a_scheduler_comes_back(void) {
    char path[] = "/tmp/muster-abort-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, NULL};
    odd_is = STOPPED;
    struct ranks *ranks = without_scheduler(SIZE, ends_or_hears, settings);
    stop_process(ranks->pid[ODD]);
    go_and_wait(ranks, ABORTS);
    go_and_wait(ranks, 0);
    go_and_wait(ranks, RECEIVES);
    CHECK(kill(ranks->pid[ODD], SIGCONT) == 0);
    ranks_start_scheduler(ranks);
    go_and_wait(ranks, ODD);
    let_them_leave(ranks);
    CHECK_IS(MUSTER_ERR_ABORTED, ranks_finish(ranks));
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

/* Without recovery there is no next epoch once a rank is gone: those in muster_recover, which takes every rank, find that out. */

/* The rank that goes, and whether it leaves in order. */
static int goes;
static bool in_order;

static void waits_for_all(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    char name[16];
    snprintf(name, sizeof name, "rank %d (", goes);
    warm_up(muster_world(cluster));
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    if (rank != goes) {
        double begun = now_s();
        muster_status_t expected = in_order ? MUSTER_ERR_PEER_LEFT : MUSTER_ERR_PEER_LOST;
        CHECK_FAILS(expected, name, muster_recover(cluster, 600000));
        CHECK_FAILS(expected, name, muster_recover(cluster, 600000));
        CHECK(now_s() - begun < 30 * patience());
    }
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void one_goes_while_others_recover(int which, bool leaves) {
    goes = which;
    in_order = leaves;
    struct ranks *ranks = without_scheduler(3, waits_for_all, NULL);
    for (int rank = 0; rank < 3; rank++) {
        if (rank != goes) {
            go(ranks, rank);
        }
    }
    usleep(300000); /* so that the others mostly wait by then; what they are told is the same if they do not */
    if (leaves) {
        go(ranks, goes);
    } else {
        ranks_kill(ranks, goes);
    }
    for (int rank = 0; rank < 3; rank++) {
        ranks_await(ranks, rank);
    }
    ranks_free(ranks);
}

int main(void) {
    one_goes_while_others_recover(0, false);
    one_goes_while_others_recover(2, false);
    one_goes_while_others_recover(1, true);
    one_goes_while_others_recover(0, true);
    all_go_on();
    one_is_gone(5, 3, false);
    one_is_gone(3, 2, false);
    one_is_gone(3, 1, true);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(told != MAP_FAILED);
    one_comes_late(2, 1, true);
    one_comes_late(2, 0, false);
    one_comes_late(3, 2, true);
    one_comes_late(3, 0, false);
    one_comes_late(5, 4, true);
    one_comes_late(5, 1, true);
    one_comes_late(5, 2, false);
    all_are_well();
    one_is_dead();
    a_scheduler_comes_back();
    return 0;
}
