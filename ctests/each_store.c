/* A rank is killed before each of the stores that it makes in a call to memory that it shares, and stopped before some of them: before it
 * has laid anything down, between its words, between a piece and the counter that tells of it. The others name it, each time.
 * The argument says which memory this is: that of a group on one host, that of a host in a group on two levels, or that of a
 * link that carries messages. A second argument says before how many stores of each call it happens at most; without it, before all.
 *
 * The rank takes from itself the right to write its part of the memory. Each store then is a fault, which is counted. In
 * the first pages, where the words lie, a store is let through alone: with the processor's trace flag, which ends the right
 * again one instruction later. Elsewhere two pages can be written until there is a fault in another. Bytes that follow one
 * another count as one store. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)

enum { SIZE = 4, CULPRIT = 2, MATE = 3, PAGE = 4096, TRACE_FLAG = 0x100, LONG = 150000, LONGEST = 1100000 };

static const char *const settings[] = {"shm", "require", "node_timeout", "1", "log", "off", NULL};

/* ---- where it happens ---- */

enum kind {
    LONGEST_SUM, BARRIER, SHORT_SUM, LONG_SUM, EXACT_SUM, BROADCAST, REDUCE, ALLGATHER,
    REDUCE_SCATTER, /* these take two levels on several hosts; the first in chunks */
    ALLGATHERV, GATHER, GATHERV, SCATTER, SCATTERV, REDUCE_SCATTERV, ALLTOALL, ALLTOALLV,
    SENDS, SENDS_MUCH, TAKES, TAKES_MUCH, KINDS
};

static const char *const names[KINDS] = {
    [BARRIER] = "a barrier",           [SHORT_SUM] = "a short allreduce", [LONG_SUM] = "a long allreduce",
    [BROADCAST] = "a broadcast",       [REDUCE] = "a reduce",             [ALLGATHER] = "an allgather",
    [GATHERV] = "a gatherv",           [REDUCE_SCATTER] = "a reduce_scatter", [ALLTOALL] = "an alltoall",
    [EXACT_SUM] = "an exact sum",      [ALLGATHERV] = "an allgatherv",    [GATHER] = "a gather",
    [SCATTER] = "a scatter",           [SCATTERV] = "a scatterv",         [REDUCE_SCATTERV] = "a reduce_scatterv",
    [ALLTOALLV] = "an alltoallv",      [LONGEST_SUM] = "an allreduce in chunks",
    [SENDS] = "a message from it",     [SENDS_MUCH] = "a long message from it",
    [TAKES] = "a message to it",       [TAKES_MUCH] = "a long message to it",
};

static const char *const speaks[SIZE] = {"a", "a", "b", "b"}, *const is_spoken_for[SIZE] = {"a", "b", "b", "a"};

/* Memory to which the culprit stores: it has so many equal parts, and this part is the culprit's. So many pages begin it that
 * have words. */
static const struct memory {
    const char *argument, *name;
    const char *const *host_ids;
    int parts, part, word_pages, root;
    enum kind first, last; /* what is called */
} memories[] = {
    {"group", "a group on one host", NULL, SIZE, CULPRIT, 6, CULPRIT, BARRIER, ALLTOALLV},
    {"host", "two levels, where it speaks for its host", speaks, 2, 0, 6, CULPRIT, LONGEST_SUM, REDUCE_SCATTER},
    {"host", "two levels, where another speaks for its host", is_spoken_for, 2, 1, 6, 0, LONGEST_SUM, REDUCE_SCATTER},
    {"link", "a link", NULL, 1, 0, 1, 0, SENDS, TAKES_MUCH},
};
enum { MEMORIES = sizeof memories / sizeof *memories };

static const struct memory *memory;
static enum kind kind;

/* ---- the stores of this process ---- */

static struct {
    char *begin, *end;       /* its part of the memory */
    char *open;              /* two pages there that can be written until the next fault; for a store may lie in both */
    char *last;              /* the last place that was written */
    int seen, strikes_at;    /* stores so far, and the one before which it happens */
    int signal;              /* what happens */
    double *struck_at;
} stores;

static void protect(char *at, size_t length, int access) {
    if (mprotect(at, length, access) != 0) {
        _exit(90);
    }
}

static void give(char *page, int access) {
    protect(page, (size_t)(stores.end - page < 2 * PAGE ? stores.end - page : 2 * PAGE), access);
}

static void close_all(void) { protect(stores.begin, (size_t)(stores.end - stores.begin), PROT_READ); }

static void on_store(int number, siginfo_t *about, void *context) {
    char *at = about->si_addr;
    if (number != SIGSEGV || at < stores.begin || at >= stores.end) {
        signal(SIGSEGV, SIG_DFL); /* a fault of its own: it comes again, and is fatal */
        return;
    }
    bool is_word = at < stores.begin + memory->word_pages * PAGE;
    bool goes_on = stores.last != NULL && at > stores.last && at - stores.last <= (is_word ? 64 : 2 * PAGE);
    stores.seen += !goes_on;
    stores.last = at;
    if (stores.seen == stores.strikes_at) {
        stores.strikes_at = 0;
        *stores.struck_at = now_s();
        kill(getpid(), stores.signal);
        protect(stores.begin, (size_t)(stores.end - stores.begin), PROT_READ | PROT_WRITE); /* it goes on: nothing is counted */
        return;
    }
    char *page = at - (uintptr_t)at % PAGE;
    if (stores.open != NULL) {
        give(stores.open, PROT_READ);
    }
    give(page, PROT_READ | PROT_WRITE);
    stores.open = is_word ? NULL : page;
    if (is_word) {
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRACE_FLAG;
    }
}

static void after_store(int number, siginfo_t *about, void *context) {
    (void)number, (void)about;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRACE_FLAG;
    close_all();
}

static void watch_stores(int strikes_at, int signal, double *struck_at) {
    char line[512];
    unsigned long begin = 0, end = 0;
    struct sigaction faults = {.sa_sigaction = on_store, .sa_flags = SA_SIGINFO};
    struct sigaction steps = {.sa_sigaction = after_store, .sa_flags = SA_SIGINFO};
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL && strstr(line, "/memfd:muster") == NULL) {
    }
    fclose(maps);
    size_t parts = (size_t)memory->parts;
    CHECK(sscanf(line, "%lx-%lx", &begin, &end) == 2 && (end - begin) % (parts * PAGE) == 0);
    stores.begin = (char *)begin + (size_t)memory->part * ((end - begin) / parts);
    stores.end = stores.begin + (end - begin) / parts;
    stores.strikes_at = strikes_at;
    stores.signal = signal;
    stores.struck_at = struck_at;
    CHECK(sigaction(SIGSEGV, &faults, NULL) == 0 && sigaction(SIGTRAP, &steps, NULL) == 0);
    close_all();
}

/* ---- the calls ---- */

static int strikes_at, strikes_with; /* 0: there is one call, whose stores are counted */

static muster_status_t message(muster_group_t *world, int rank, bool by_culprit, size_t count) {
    static int32_t words[LONG];
    if (rank != CULPRIT && rank != MATE) {
        return strikes_at > 0 ? muster_barrier(world) : MUSTER_OK; /* the two never come to it */
    }
    return (rank == CULPRIT) == by_culprit
               ? muster_send(world, words, count, MUSTER_INT32, CULPRIT + MATE - rank, 0)
               : muster_recv(world, words, count, MUSTER_INT32, CULPRIT + MATE - rank, 0, NULL, 0);
}

static muster_status_t call(muster_group_t *world, int rank) {
    static int32_t in[LONGEST], out[LONGEST];
    static float floats[2000], sums[2000];
    static const size_t counts[SIZE] = {7, 7, 7, 7}, displs[SIZE] = {0, 7, 14, 21};
    int root = memory->root;
    switch (kind) {
    case BARRIER: return muster_barrier(world);
    case SHORT_SUM: return muster_allreduce(world, in, out, 3, MUSTER_INT32, MUSTER_SUM);
    case LONG_SUM: return muster_allreduce(world, in, out, LONG, MUSTER_INT32, MUSTER_SUM);
    case LONGEST_SUM: return muster_allreduce(world, in, out, LONGEST, MUSTER_INT32, MUSTER_SUM);
    case BROADCAST: return muster_broadcast(world, in, LONG, MUSTER_INT32, root);
    case REDUCE: return muster_reduce(world, in, out, 5000, MUSTER_INT32, MUSTER_MAX, root);
    case ALLGATHER: return muster_allgather(world, in, out, 100, MUSTER_INT32);
    case GATHERV: return muster_gatherv(world, in, 7, out, counts, displs, MUSTER_INT32, root);
    case REDUCE_SCATTER: return muster_reduce_scatter(world, in, out, 3000, MUSTER_INT32, MUSTER_SUM);
    case ALLTOALL: return muster_alltoall(world, in, out, 40000, MUSTER_INT32);
    case ALLGATHERV: return muster_allgatherv(world, in, 7, out, counts, displs, MUSTER_INT32);
    case GATHER: return muster_gather(world, in, out, 100, MUSTER_INT32, root);
    case SCATTER: return muster_scatter(world, in, out, 3000, MUSTER_INT32, root);
    case SCATTERV: return muster_scatterv(world, in, counts, displs, out, 7, MUSTER_INT32, root);
    case REDUCE_SCATTERV: return muster_reduce_scatterv(world, in, out, counts, MUSTER_INT32, MUSTER_SUM);
    case ALLTOALLV: return muster_alltoallv(world, in, counts, displs, out, counts, displs, MUSTER_INT32);
    case SENDS: return message(world, rank, true, 25);
    case SENDS_MUCH: return message(world, rank, true, LONG);
    case TAKES: return message(world, rank, false, 25);
    case TAKES_MUCH: return message(world, rank, false, LONG);
    default: return muster_allreduce(world, floats, sums, 2000, MUSTER_FLOAT32, MUSTER_SUM_EXACT);
    }
}

/* Until then the memory may not be there. The group's own would lie beside that of a link, and is not made there. */
static void first_calls(muster_group_t *world, int rank) {
    int32_t word = 0;
    if (memory->first != SENDS) {
        warm_up(world);
    } else if (rank == CULPRIT) {
        CHECK_OK(muster_send(world, &word, 1, MUSTER_INT32, MATE, 0));
        CHECK_OK(muster_recv(world, &word, 1, MUSTER_INT32, MATE, 0, NULL, 0));
    } else if (rank == MATE) {
        CHECK_OK(muster_recv(world, &word, 1, MUSTER_INT32, CULPRIT, 0, NULL, 0));
        CHECK_OK(muster_send(world, &word, 1, MUSTER_INT32, CULPRIT, 0));
    }
}

/* The memory of a link is gone when the other end has left. */
static void stay_until_it_has_counted(struct ranks *ranks, int rank) {
    if (rank != CULPRIT) {
        await(&ranks->note[rank].go);
        return;
    }
    protect(stores.begin, (size_t)(stores.end - stores.begin), PROT_READ | PROT_WRITE);
    ranks_go(ranks);
}

static void is_struck(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    first_calls(world, rank);
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    if (rank == CULPRIT) {
        watch_stores(strikes_at, strikes_with, &note->took_s);
    }
    muster_status_t status = call(world, rank);
    while (status == MUSTER_OK && strikes_at > 0) {
        status = call(world, rank);
    }
    if (strikes_at == 0) {
        CHECK_OK(status);
        note->took_s = stores.seen;
        stay_until_it_has_counted(ranks, rank);
    } else if (rank != CULPRIT) {
        note->took_s = now_s();
        keep_failure(note, cluster, status);
    }
    muster_finalize(cluster);
    muster_cluster_free(cluster);
}

static struct ranks *start(enum kind what, int before, int signal) {
    kind = what, strikes_at = before, strikes_with = signal;
    struct ranks *ranks = ranks_start_on(memory->host_ids, SIZE, is_struck, settings);
    ranks_await_ready(ranks);
    ranks_go(ranks);
    return ranks;
}

/* How many stores a call has. Another may have a few more: a rank that sleeps says so. */
static int stores_of(enum kind what) {
    struct ranks *ranks = start(what, 0, 0);
    for (int rank = 0; rank < SIZE; rank++) {
        ranks_await(ranks, rank);
    }
    int seen = (int)ranks->note[CULPRIT].took_s;
    CHECK_IS(MUSTER_OK, ranks_await_scheduler(ranks));
    ranks_free(ranks);
    CHECK(seen >= 1);
    return seen;
}

static void strike(enum kind what, int before, int signal) {
    char place[32];
    struct ranks *ranks = start(what, before, signal);
    snprintf(place, sizeof place, "rank %d (node id \"%d\"", CULPRIT, CULPRIT);
    for (int rank = 0; rank < SIZE; rank++) {
        if (rank != CULPRIT) {
            struct note *note = &ranks->note[rank];
            ranks_await(ranks, rank);
            CHECK_IS(MUSTER_ERR_PEER_LOST, note->status);
            CHECK_IS(CULPRIT, note->failure.rank);
            CHECK_CONTAINS(note->words, place);
            CHECK(ranks->note[CULPRIT].took_s > 0);
            CHECK(note->took_s - ranks->note[CULPRIT].took_s < (signal == SIGSTOP ? 4 : 2) * patience());
        }
    }
    if (signal == SIGSTOP) {
        CHECK(kill(ranks->pid[CULPRIT], SIGCONT) == 0);
    }
    ranks_await(ranks, CULPRIT);
    CHECK_IS(MUSTER_ERR_PEER_LOST, ranks_await_scheduler(ranks));
    ranks_free(ranks);
}

/* Strikes before all stores of each call, or before so many that lie evenly among them. */
static void strike_at_each(const struct memory *where, int most) {
    memory = where;
    for (enum kind what = where->first; what <= where->last; what++) {
        int all = stores_of(what), step = 1 + all / most;
        printf("%s, in %s: %d stores\n", names[what], where->name, all);
        for (int before = 1; before <= all + 2; before += step) { /* the last are the next call's first */
            printf("killed before store %d\n", before);
            strike(what, before, SIGKILL);
        }
        bool often = most == INT_MAX && (what == SHORT_SUM || what == LONG_SUM || what == ALLTOALL);
        for (int before = 1; before <= all; before += often ? 9 : 1 + all / 2) { /* each takes a time-out */
            printf("stopped before store %d\n", before);
            strike(what, before, SIGSTOP);
        }
    }
}

int main(int count, char **arguments) {
    const char *argument = count > 1 ? arguments[1] : memories[0].argument;
    int found = 0, most = count > 2 ? atoi(arguments[2]) : INT_MAX;
    for (int i = 0; i < MEMORIES; i++) {
        if (strcmp(memories[i].argument, argument) == 0) {
            found++;
            strike_at_each(&memories[i], most);
        }
    }
    CHECK(found > 0);
    return 0;
}

#else

int main(void) {
    puts("left out: only an x86-64 processor is asked here to stop behind each store");
    return 0;
}

#endif
