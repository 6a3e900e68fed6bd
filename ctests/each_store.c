/* A rank of a group that shares memory is killed, or stopped, before each of the stores that it makes there in a call: before it
 * has laid anything down, between its words, between a piece and the counter that tells of it. The others name it, each time.
 *
 * The rank takes from itself the right to write its part of the memory. Each store then is a fault, which is counted. In
 * the first pages, where the words lie, a store is let through alone: with the processor's trace flag, which ends the right
 * again one instruction later. Elsewhere two pages can be written until there is a fault in another. Bytes that follow one
 * another count as one store. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)

enum { SIZE = 4, CULPRIT = 2, PAGE = 4096, WORD_PAGES = 6, TRACE_FLAG = 0x100, LONGEST = 150000 };

static const char *const settings[] = {"shm", "require", "node_timeout", "1", "log", "off", NULL};

/* ---- the stores of this process ---- */

static struct {
    char *begin, *end;       /* this rank's part of the memory */
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
    bool is_word = at < stores.begin + WORD_PAGES * PAGE;
    bool goes_on = stores.last != NULL && at > stores.last && at - stores.last <= (is_word ? 64 : 2 * PAGE);
    stores.seen += !goes_on;
    stores.last = at;
    if (stores.seen == stores.strikes_at) {
        stores.strikes_at = 0;
        *stores.struck_at = now_s();
        kill(getpid(), stores.signal);
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

static void watch_stores(int rank, int strikes_at, int signal, double *struck_at) {
    char line[512];
    unsigned long begin = 0, end = 0;
    struct sigaction faults = {.sa_sigaction = on_store, .sa_flags = SA_SIGINFO};
    struct sigaction steps = {.sa_sigaction = after_store, .sa_flags = SA_SIGINFO};
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL && strstr(line, "/memfd:muster") == NULL) {
    }
    fclose(maps);
    CHECK(sscanf(line, "%lx-%lx", &begin, &end) == 2 && (end - begin) % (SIZE * PAGE) == 0);
    stores.begin = (char *)begin + (size_t)rank * ((end - begin) / SIZE);
    stores.end = stores.begin + (end - begin) / SIZE;
    stores.strikes_at = strikes_at;
    stores.signal = signal;
    stores.struck_at = struck_at;
    CHECK(sigaction(SIGSEGV, &faults, NULL) == 0 && sigaction(SIGTRAP, &steps, NULL) == 0);
    close_all();
}

/* ---- the calls ---- */

enum kind {
    BARRIER, SHORT_SUM, LONG_SUM, EXACT_SUM, BROADCAST, REDUCE, ALLGATHER, ALLGATHERV, GATHER, GATHERV, SCATTER, SCATTERV,
    REDUCE_SCATTER, REDUCE_SCATTERV, ALLTOALL, ALLTOALLV, KINDS
};

static const char *const names[KINDS] = {
    [BARRIER] = "a barrier",           [SHORT_SUM] = "a short allreduce", [LONG_SUM] = "a long allreduce",
    [BROADCAST] = "a broadcast of its", [REDUCE] = "a reduce to it",       [ALLGATHER] = "an allgather",
    [GATHERV] = "a gatherv to it",     [REDUCE_SCATTER] = "a reduce_scatter", [ALLTOALL] = "an alltoall",
    [EXACT_SUM] = "an exact sum",      [ALLGATHERV] = "an allgatherv",    [GATHER] = "a gather to it",
    [SCATTER] = "a scatter of its",    [SCATTERV] = "a scatterv of its",  [REDUCE_SCATTERV] = "a reduce_scatterv",
    [ALLTOALLV] = "an alltoallv",
};

static enum kind kind;
static int strikes_at, strikes_with; /* 0: there is one call, whose stores are counted */

static muster_status_t call(muster_group_t *world) {
    static int32_t in[SIZE * LONGEST], out[SIZE * LONGEST];
    static float floats[2000], sums[2000];
    static const size_t counts[SIZE] = {7, 7, 7, 7}, displs[SIZE] = {0, 7, 14, 21};
    switch (kind) {
    case BARRIER: return muster_barrier(world);
    case SHORT_SUM: return muster_allreduce(world, in, out, 3, MUSTER_INT32, MUSTER_SUM);
    case LONG_SUM: return muster_allreduce(world, in, out, LONGEST, MUSTER_INT32, MUSTER_SUM);
    case BROADCAST: return muster_broadcast(world, in, LONGEST, MUSTER_INT32, CULPRIT);
    case REDUCE: return muster_reduce(world, in, out, 5000, MUSTER_INT32, MUSTER_MAX, CULPRIT);
    case ALLGATHER: return muster_allgather(world, in, out, 100, MUSTER_INT32);
    case GATHERV: return muster_gatherv(world, in, 7, out, counts, displs, MUSTER_INT32, CULPRIT);
    case REDUCE_SCATTER: return muster_reduce_scatter(world, in, out, 3000, MUSTER_INT32, MUSTER_SUM);
    case ALLTOALL: return muster_alltoall(world, in, out, 40000, MUSTER_INT32);
    case ALLGATHERV: return muster_allgatherv(world, in, 7, out, counts, displs, MUSTER_INT32);
    case GATHER: return muster_gather(world, in, out, 100, MUSTER_INT32, CULPRIT);
    case SCATTER: return muster_scatter(world, in, out, 3000, MUSTER_INT32, CULPRIT);
    case SCATTERV: return muster_scatterv(world, in, counts, displs, out, 7, MUSTER_INT32, CULPRIT);
    case REDUCE_SCATTERV: return muster_reduce_scatterv(world, in, out, counts, MUSTER_INT32, MUSTER_SUM);
    case ALLTOALLV: return muster_alltoallv(world, in, counts, displs, out, counts, displs, MUSTER_INT32);
    default: return muster_allreduce(world, floats, sums, 2000, MUSTER_FLOAT32, MUSTER_SUM_EXACT);
    }
}

static void is_struck(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    struct note *note = &ranks->note[rank];
    warm_up(world);
    CHECK(sem_post(&note->ready) == 0);
    await(&note->go);
    if (rank == CULPRIT) {
        watch_stores(rank, strikes_at, strikes_with, &note->took_s);
    }
    muster_status_t status = call(world);
    while (status == MUSTER_OK && strikes_at > 0) {
        status = call(world);
    }
    if (strikes_at == 0) {
        CHECK_OK(status);
        note->took_s = stores.seen;
    } else if (rank != CULPRIT) {
        note->took_s = now_s();
        keep_failure(note, cluster, status);
    }
    if (rank == CULPRIT) {
        protect(stores.begin, (size_t)(stores.end - stores.begin), PROT_READ | PROT_WRITE);
    }
    muster_finalize(cluster);
    muster_cluster_free(cluster);
}

static struct ranks *start(enum kind what, int before, int signal) {
    kind = what, strikes_at = before, strikes_with = signal;
    struct ranks *ranks = ranks_start(SIZE, is_struck, settings);
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
    CHECK(seen >= 4);
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

int main(void) {
    for (enum kind what = 0; what < KINDS; what++) {
        int all = stores_of(what);
        for (int before = 1; before <= all + 2; before++) { /* the last are the next call's first */
            printf("killed in %s before store %d of %d\n", names[what], before, all);
            strike(what, before, SIGKILL);
        }
        bool stops = what == SHORT_SUM || what == LONG_SUM || what == ALLTOALL;
        for (int before = 1; stops && before <= all; before += 9) { /* each takes a time-out */
            printf("stopped in %s before store %d of %d\n", names[what], before, all);
            strike(what, before, SIGSTOP);
        }
    }
    return 0;
}

#else

int main(void) {
    puts("left out: only an x86-64 processor is asked here to stop behind each store");
    return 0;
}

#endif
