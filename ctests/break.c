/* What the others get when a rank dies, stops, leaves, is absent or aborts: one first cause, the same for all ranks and the
 * scheduler, which names the culprit. Every rank is a process. staged.c has ranks that call something else. */
#include "check.h"
#include "own.h"
#include "ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum { SIZE = 4, CULPRIT = 2, SOON_S = 2, SLACK_S = 2, LIMIT_S = 30, ATTEMPTS = 10, MIB = 1 << 20 };

/* In the parent: waits until all ranks but this one have ended, however they end. */
static void await_others(struct ranks *ranks, unsigned but) {
    for (int i = 0; i < ranks->size; i++) {
        if ((but >> i & 1) == 0) {
            ranks_await(ranks, i);
        }
    }
}

static void go(struct ranks *ranks, int rank) { CHECK(sem_post(&ranks->note[rank].go) == 0); }

/* The arguments that can only be wrong where there is a failure to be told. */
static void check_arguments(muster_cluster_t *cluster) {
    char buf[16] = "untouched";
    size_t needed = 0;
    muster_failure_t failure;
    memset(&failure, 0x77, sizeof failure);
    CHECK_FAILS(MUSTER_ERR_INVALID, "out", muster_failure(cluster, NULL, sizeof failure));
    CHECK_FAILS(MUSTER_ERR_INVALID, "size", muster_failure(cluster, &failure, 0));
    CHECK_OK(muster_failure(cluster, &failure, sizeof failure.status)); /* an older caller's smaller struct */
    CHECK(failure.status < 0 && failure.role == 0x77777777);
    CHECK_FAILS(MUSTER_ERR_INVALID, "buf", muster_cluster_error(cluster, NULL, sizeof buf, &needed));
    CHECK_FAILS(MUSTER_ERR_LIMIT, "bytes", muster_cluster_error(cluster, buf, sizeof buf, &needed));
    CHECK(needed > sizeof buf && strcmp(buf, "untouched") == 0);
    CHECK_OK(muster_cluster_error(cluster, NULL, 0, &needed));
}

/* Calls the group once more: the cause stays, and is told at once. Nothing is left of the cluster when it is freed. */
static void call_again_and_leave(struct note *note, muster_cluster_t *cluster) {
    double begun = now_s();
    note->again = muster_barrier(muster_world(cluster));
    CHECK(now_s() - begun < 1 * patience());
    snprintf(note->words_again, sizeof note->words_again, "%s", muster_last_error());
    check_arguments(cluster);
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
    CHECK(own_threads_are(1) && !own_sockets());
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void keep(struct note *note, muster_cluster_t *cluster, muster_status_t status) {
    keep_failure(note, cluster, status);
    call_again_and_leave(note, cluster);
}

/* All but these were told the same, and were told it again. Returns one of them. */
static const struct note *check_told(const struct ranks *ranks, muster_status_t status, const char *words, unsigned but) {
    const struct note *first = NULL;
    for (int i = 0; i < ranks->size; i++) {
        const struct note *note = &ranks->note[i];
        if (but >> i & 1) {
            continue;
        }
        first = first == NULL ? note : first;
        if (note->status != status) {
            fprintf(stderr, "    rank %d: \"%s\"\n", i, note->words);
        }
        CHECK_IS(status, note->status);
        CHECK_CONTAINS(note->words, words);
        CHECK_IS(MUSTER_OK, note->failure_status);
        CHECK_IS(status, note->failure.status);
        CHECK_IS(MUSTER_OK, note->group_status);
        CHECK(memcmp(&note->failure, &note->group_failure, sizeof note->failure) == 0);
        CHECK_CONTAINS(note->words, first->words); /* the same sentence on every rank, */
        CHECK_CONTAINS(note->cluster_words, first->words); /* and from the cluster */
    }
    return first;
}

/* All but these ranks were told the same by a second call, which stands for every later one. */
static void check_told_again(const struct ranks *ranks, muster_status_t status, unsigned but) {
    for (int i = 0; i < ranks->size; i++) {
        if ((but >> i & 1) == 0) {
            CHECK_IS(status, ranks->note[i].again);
            CHECK_CONTAINS(ranks->note[i].words_again, ranks->note[i].words);
        }
    }
}

/* The struct and the sentence name the culprit, and nobody else: rank, node id, process. */
static void check_named(const struct ranks *ranks, unsigned but, int culprit, pid_t pid, bool comes_first) {
    char id[16], place[64], process[32];
    snprintf(id, sizeof id, "%d", culprit);
    snprintf(place, sizeof place, "rank %d (node id \"%d\", host ", culprit, culprit);
    snprintf(process, sizeof process, ", pid %d)", (int)pid);
    for (int i = 0; i < ranks->size; i++) {
        const muster_failure_t *failure = &ranks->note[i].failure;
        const char *words = ranks->note[i].words;
        if (but >> i & 1) {
            continue;
        }
        CHECK_IS(culprit, failure->rank);
        CHECK_IS(MUSTER_ROLE_WORKER, failure->role);
        CHECK_IS(pid, failure->pid);
        CHECK_IS(1, failure->epoch);
        CHECK(strcmp(failure->node_id, id) == 0);
        CHECK(failure->host[0] != 0 && failure->cause[0] != 0);
        CHECK_CONTAINS(words, place);
        CHECK_CONTAINS(words, process);
        CHECK_CONTAINS(words, failure->host);
        CHECK_CONTAINS(words, failure->cause);
        if (comes_first) {
            CHECK(strncmp(words, place, strlen(place)) == 0);
            CHECK(strstr(strstr(words, "node id") + 1, "node id") == NULL);
        }
    }
}

/* How a rank is lost, and what the others do meanwhile. */
struct loss {
    const char *name;
    void (*ends)(muster_cluster_t *cluster); /* NULL: the parent kills it */
    int size, culprit;
    int other_culprit; /* killed with it; 0: none */
    size_t count;      /* of the allreduce in which all are; 0: a barrier */
    enum { IN_THE_CALL, IN_THE_STORE_OR_LATER, EXIT_AT_ONCE, STAY } survivors;
    bool is_outside; /* the culprit calls nothing more */
    int exit_code;
    muster_status_t status;
    double within_s; /* until all know; 0: no bound */
};

static const struct loss *loss;

static void exits(muster_cluster_t *cluster) { (void)cluster; exit(0); } /* without finalize */
static void exits_with_5(muster_cluster_t *cluster) { (void)cluster; _exit(5); }
static void is_aborted_by_the_system(muster_cluster_t *cluster) { (void)cluster; abort(); }

static void leaves(muster_cluster_t *cluster) {
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static const struct loss losses[] = {
    {"killed, the first", NULL, 4, 0, 0, 100, IN_THE_CALL, false, 0, MUSTER_ERR_PEER_LOST, SOON_S},
    {"killed, in the middle", NULL, 4, 2, 0, 100, STAY, false, 0, MUSTER_ERR_PEER_LOST, SOON_S},
    {"killed, the last", NULL, 4, 3, 0, 100, IN_THE_CALL, false, 0, MUSTER_ERR_PEER_LOST, SOON_S},
    {"killed where it calls nothing", NULL, 4, 2, 0, 0, IN_THE_CALL, true, 0, MUSTER_ERR_PEER_LOST, SOON_S},
    /* They close their links without a word, as soon as they have their error: none is taken for the cause. */
    {"short calls, and survivors that exit", NULL, 6, 3, 0, 100, EXIT_AT_ONCE, false, 0, MUSTER_ERR_PEER_LOST, SOON_S + SLACK_S},
    {"long calls, and survivors that exit", NULL, 6, 3, 0, MIB, EXIT_AT_ONCE, false, 0, MUSTER_ERR_PEER_LOST, SOON_S + SLACK_S},
    {"two at once", NULL, 5, 1, 3, 100, IN_THE_CALL, false, 0, MUSTER_ERR_PEER_LOST, 0},
    {"killed between collectives", NULL, 3, 1, 0, 0, IN_THE_STORE_OR_LATER, true, 0, MUSTER_ERR_PEER_LOST, SOON_S + SLACK_S},
    {"exit code 0", exits, 4, 2, 0, 0, IN_THE_CALL, true, 0, MUSTER_ERR_PEER_LOST, 0},
    {"exit code 5", exits_with_5, 3, 1, 0, 0, IN_THE_CALL, true, 5, MUSTER_ERR_PEER_LOST, 0},
    {"aborted by the system", is_aborted_by_the_system, 3, 1, 0, 0, IN_THE_CALL, true, -SIGABRT, MUSTER_ERR_PEER_LOST, 0},
    {"freed without finalize", muster_cluster_free, 4, 2, 0, 0, IN_THE_CALL, true, 0, MUSTER_ERR_PEER_LOST, 0},
    {"left in order", leaves, 4, 2, 0, 0, IN_THE_CALL, true, 0, MUSTER_ERR_PEER_LEFT, 0},
};

static bool is_lost(int rank) {
    return rank == loss->culprit || (loss->other_culprit != 0 && rank == loss->other_culprit);
}

static unsigned lost_mask(void) { return 1u << loss->culprit | (loss->other_culprit == 0 ? 0 : 1u << loss->other_culprit); }

/* Calls until something breaks. */
static muster_status_t works(muster_group_t *world, int rank) {
    int32_t *values = calloc(loss->count + 1, 2 * sizeof *values);
    muster_status_t status;
    CHECK(values != NULL);
    do {
        values[0] = rank;
        status = loss->count == 0 ? muster_barrier(world)
                                  : muster_allreduce(world, values, values, 2 * loss->count, MUSTER_INT32, MUSTER_SUM);
    } while (status == MUSTER_OK);
    free(values);
    return status;
}

/* The first asks the store for what nobody sets; the others call when they know. */
static muster_status_t looks_away(muster_cluster_t *cluster, int rank) {
    muster_failure_t failure;
    double limit = now_s() + LIMIT_S * patience();
    if (rank == 0) {
        void *value = NULL;
        size_t length = 0;
        return muster_store_get(cluster, "never set", 1000 * LIMIT_S * patience(), &value, &length);
    }
    while (muster_failure(cluster, &failure, sizeof failure) == MUSTER_ERR_NOT_FOUND) {
        CHECK(now_s() < limit);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    double begun = now_s();
    muster_status_t status = works(muster_world(cluster), rank);
    CHECK(now_s() - begun < 1 * patience());
    return status;
}

static void check_lost(muster_cluster_t *cluster) {
    int32_t lost[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    size_t count = 0;
    CHECK_OK(muster_failed_ranks(cluster, lost, 8, &count));
    CHECK(count == 1 && lost[0] == loss->culprit && lost[1] == -1);
    for (int rank = 0; rank < loss->size; rank++) {
        muster_member_t member;
        CHECK_OK(muster_group_member(muster_world(cluster), rank, &member, sizeof member));
        CHECK_IS(is_lost(rank) ? MUSTER_MEMBER_LOST : MUSTER_MEMBER_PRESENT, member.state);
    }
}

static void lives(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    warm_up(muster_world(cluster));
    CHECK(sem_post(&note->ready) == 0);
    if (is_lost(rank)) {
        if (loss->is_outside) {
            await(&note->go); /* it may be killed here */
            loss->ends(cluster);
            await(&note->go); /* its process lives on until the others have been told */
            return;
        }
        works(muster_world(cluster), rank);
        CHECK(!"it is killed");
    }
    bool looks = loss->survivors == IN_THE_STORE_OR_LATER;
    muster_status_t status = looks ? looks_away(cluster, rank) : works(muster_world(cluster), rank);
    note->took_s = now_s(); /* from the loss on, of which the parent knows */
    if (status == MUSTER_ERR_PEER_LOST && loss->other_culprit == 0) {
        check_lost(cluster);
    }
    keep_failure(note, cluster, status);
    if (loss->survivors == EXIT_AT_ONCE) {
        _exit(0);
    }
    if (loss->survivors == STAY) {
        await(&note->go);
    }
    call_again_and_leave(note, cluster);
}

static void check_exit(int status) {
    CHECK(loss->exit_code < 0 ? WIFSIGNALED(status) && WTERMSIG(status) == -loss->exit_code
                              : WIFEXITED(status) && WEXITSTATUS(status) == loss->exit_code);
}

static void is_lost_or_leaves(void) {
    fprintf(stderr, "%s\n", loss->name);
    const char *settings[] = {"node_timeout", "1", NULL};
    struct ranks *ranks = ranks_start(loss->size, lives, loss->survivors == STAY ? settings : NULL);
    ranks_await_ready(ranks);
    double begun = now_s();
    if (loss->ends != NULL) {
        go(ranks, loss->culprit);
    } else {
        ranks_kill(ranks, loss->culprit);
        if (loss->other_culprit != 0) {
            ranks_kill(ranks, loss->other_culprit);
        }
    }
    if (loss->survivors == STAY) { /* that does not keep the scheduler */
        CHECK_IS(loss->status, ranks_await_scheduler(ranks));
        ranks_go(ranks);
    }
    await_others(ranks, lost_mask());
    if (loss->ends == NULL) {
        await_others(ranks, ~lost_mask());
    } else {
        go(ranks, loss->culprit);
        check_exit(await_child(ranks->pid[loss->culprit]));
    }
    const struct note *first = check_told(ranks, loss->status, loss->status == MUSTER_ERR_PEER_LEFT ? "has left" : "lost", lost_mask());
    if (loss->survivors != EXIT_AT_ONCE) {
        check_told_again(ranks, loss->status, lost_mask());
    }
    int culprit = loss->other_culprit != 0 && first->failure.rank == loss->other_culprit ? loss->other_culprit : loss->culprit;
    check_named(ranks, lost_mask(), culprit, ranks->pid[culprit], true);
    for (int rank = 0; rank < loss->size; rank++) {
        CHECK(is_lost(rank) || loss->within_s == 0 || ranks->note[rank].took_s - begun < loss->within_s * patience());
    }
    if (loss->survivors != STAY && loss->status == MUSTER_ERR_PEER_LOST) {
        CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_await_scheduler(ranks));
    } else if (loss->survivors != STAY) {
        ranks_await_scheduler(ranks);
    }
    if (loss->status == MUSTER_ERR_PEER_LOST) {
        CHECK(strcmp(first->words, ranks->scheduler_words) == 0);
    }
    ranks_free(ranks);
}

/* One that is stopped is given up within the heartbeat time-out and one interval. It is told when it goes on. */
static void is_stopped(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    warm_up(muster_world(cluster));
    CHECK(sem_post(&note->ready) == 0);
    muster_status_t status = works(muster_world(cluster), rank);
    note->took_s = now_s();
    keep(note, cluster, status);
}

static void stopped(void) {
    static const struct loss short_calls = {.count = 100};
    loss = &short_calls;
    const char *settings[] = {"node_timeout", "1", NULL};
    struct ranks *ranks = ranks_start(SIZE, is_stopped, settings);
    ranks_await_ready(ranks);
    double begun = now_s();
    stop_process(ranks->pid[CULPRIT]);
    await_others(ranks, 1u << CULPRIT);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_await_scheduler(ranks));
    check_told(ranks, MUSTER_ERR_PEER_LOST, "lost", 1u << CULPRIT);
    check_told_again(ranks, MUSTER_ERR_PEER_LOST, 1u << CULPRIT);
    check_named(ranks, 1u << CULPRIT, CULPRIT, ranks->pid[CULPRIT], true);
    for (int rank = 0; rank < SIZE; rank++) {
        CHECK(rank == CULPRIT || ranks->note[rank].took_s - begun < (1.2 + SLACK_S) * patience());
    }
    CHECK(strcmp(ranks->note[0].words, ranks->scheduler_words) == 0);
    CHECK(kill(ranks->pid[CULPRIT], SIGCONT) == 0);
    ranks_await(ranks, CULPRIT); /* given up, or finds nobody */
    ranks_free(ranks);
}

/* A rank that lives, but never comes: it has called before, or nothing yet. */
static bool has_called = false;

static void stays_away(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    float values[16] = {0};
    if (has_called) {
        warm_up(world);
    }
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    if (rank == CULPRIT) { /* it has completed all that it called, and is told all the same */
        keep(note, cluster, muster_barrier(world));
        return;
    }
    CHECK_OK(muster_group_set_timeout(world, 1000));
    double begin = now_s();
    muster_status_t status = muster_allreduce(world, values, values, 16, MUSTER_FLOAT32, MUSTER_SUM);
    note->took_s = now_s() - begin;
    keep_failure(note, cluster, status);
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    call_again_and_leave(note, cluster);
}

/* Whether it was known which rank is absent: the scheduler's word may not come in its 250 ms, and then all are told so. */
static bool absent(bool has_called_before) {
    char words[64];
    has_called = has_called_before;
    struct ranks *ranks = ranks_start(SIZE, stays_away, NULL);
    double longest = 0;
    ranks_await_ready(ranks);
    for (int i = 0; i < SIZE; i++) {
        if (i != CULPRIT) {
            go(ranks, i);
        }
    }
    for (int i = 0; i < SIZE; i++) {
        if (i != CULPRIT) {
            await(&ranks->note[i].ready);
            longest = ranks->note[i].took_s > longest ? ranks->note[i].took_s : longest;
        }
    }
    CHECK(longest >= 1 && longest < (1 + SLACK_S) * patience()); /* the one that entered last may have waited less */
    ranks_go(ranks);
    await_others(ranks, 0);
    if (strstr(ranks->note[0].words, "the scheduler does not answer, so the missing ranks are unknown") != NULL) {
        check_told(ranks, MUSTER_ERR_TIMEOUT, "so the missing ranks are unknown", 0);
        ranks_finish(ranks);
        return false;
    }
    snprintf(words, sizeof words, "never entered allreduce #%d on world within the 1 s", has_called ? WARM_UP_CALLS + 1 : 1);
    check_told(ranks, MUSTER_ERR_TIMEOUT, words, 0);
    check_told_again(ranks, MUSTER_ERR_TIMEOUT, 0);
    CHECK_CONTAINS(ranks->note[0].words, has_called ? "its last was barrier #4" : "has not used world yet");
    check_named(ranks, 0, CULPRIT, ranks->pid[CULPRIT], true);
    ranks_finish(ranks);
    return true;
}

/* Two are lost: all are counted, also where there is room for one. Only those count whose loss the scheduler has confirmed. */
static void counts_the_lost(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct note *note = &ranks->note[rank];
    size_t count = 0;
    int32_t lost[2] = {-1, -1};
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK(sem_post(&note->ready) == 0);
    while (rank == 1 || rank == 3) { /* they are killed here */
        pause();
    }
    CHECK_IS(MUSTER_ERR_PEER_LOST, muster_barrier(muster_world(cluster)));
    for (double limit = now_s() + LIMIT_S * patience(); count < 2; nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL)) {
        CHECK(now_s() < limit);
        CHECK_OK(muster_failed_ranks(cluster, NULL, 0, &count));
    }
    count = 0;
    CHECK_OK(muster_failed_ranks(cluster, lost, 1, &count));
    CHECK(count == 2 && lost[0] == 1 && lost[1] == -1);
    CHECK_OK(muster_failed_ranks(cluster, lost, 2, &count));
    CHECK(count == 2 && lost[0] == 1 && lost[1] == 3);
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
}

/* With recovery the scheduler goes on after the first loss, so that it tells of the second. */
static void two_lost(void) {
    char path[] = "/tmp/muster-lost-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"enable_recovery", "1", "recovery_path", path, "finalize_timeout", "1", NULL};
    struct ranks *ranks = ranks_start(SIZE, counts_the_lost, settings);
    ranks_await_ready(ranks);
    ranks_kill(ranks, 1);
    ranks_kill(ranks, 3);
    await_others(ranks, 0);
    ranks_finish(ranks);
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

/* One rank gives up, and says why. */
struct reason {
    int32_t code;
    const char *text;
};

static struct reason reason;

static void gives_up(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    warm_up(muster_world(cluster));
    CHECK(sem_post(&ranks->note[rank].ready) == 0);
    if (rank == CULPRIT) {
        await(&ranks->note[rank].go);
        CHECK_OK(muster_abort(cluster, reason.code, reason.text));
    }
    keep(&ranks->note[rank], cluster, muster_barrier(muster_world(cluster)));
}

/* Waits for the end of all. All were told these words; `cause` is what the struct has of them. */
static void aborted(struct reason given, const char *words, const char *cause) {
    char text[WORDS_BYTES];
    reason = given;
    struct ranks *ranks = ranks_start(SIZE, gives_up, NULL);
    ranks_await_ready(ranks);
    go(ranks, CULPRIT);
    await_others(ranks, 0);
    snprintf(text, sizeof text, ") aborted the job with code %d: %s", (int)given.code, words);
    check_told(ranks, MUSTER_ERR_ABORTED, text, 0);
    CHECK(strlen(strstr(ranks->note[0].words, text)) == strlen(text)); /* and nothing behind them */
    check_told_again(ranks, MUSTER_ERR_ABORTED, 0);
    snprintf(text, sizeof text, "aborted the job with code %d: %s", (int)given.code, cause);
    CHECK(strcmp(ranks->note[0].failure.cause, text) == 0);
    check_named(ranks, 0, CULPRIT, ranks->pid[CULPRIT], true);
    CHECK_IS(MUSTER_ERR_ABORTED, ranks_await_scheduler(ranks));
    CHECK(strcmp(ranks->note[0].words, ranks->scheduler_words) == 0);
    ranks_free(ranks);
}

/* A text that begins with one byte, and has so many characters of two bytes behind it. */
static const char *of_two_bytes(char *text, int characters) {
    strcpy(text, "x");
    for (int i = 0; i < characters; i++) {
        strcat(text, "\xc3\xa9");
    }
    return text;
}

/* A reason is cut after 1,024 bytes, and a cause after 511; no character is cut in two. */
static void aborted_at_length(void) {
    static char given[WORDS_BYTES], words[WORDS_BYTES], cause[WORDS_BYTES];
    int prefix = (int)strlen("aborted the job with code 7: x"); /* it has an even length, as 511 has not */
    of_two_bytes(given, 600);
    aborted((struct reason){7, given}, of_two_bytes(words, (1024 - 1) / 2), of_two_bytes(cause, (MUSTER_CAUSE_BYTES - 1 - prefix) / 2));
    CHECK(strlen(words) == 1023 && prefix + strlen(cause) - 1 == MUSTER_CAUSE_BYTES - 2);
}

int main(void) {
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        loss = &losses[i];
        is_lost_or_leaves();
    }
    stopped();
    for (int before = 0; before < 2; before++) {
        for (int attempt = 1; !absent(before); attempt++) {
            CHECK(attempt < ATTEMPTS);
        }
    }
    two_lost();
    aborted((struct reason){42, "the loss is not a number"}, "the loss is not a number", "the loss is not a number");
    aborted_at_length();
    return 0;
}
