/* What the programs that kill and wait share: checks, clocks, processes that die with their parent, and a table with
 * bounds. */
#ifndef TIMING_H
#define TIMING_H

#define _GNU_SOURCE
#include <muster.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60 };

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "pid %d: %s: %s\n", (int)getpid(), what, muster_last_error());
        exit(1);
    }
}

static inline void nap_ms(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static inline void await(atomic_int *counter, int least, const char *what) {
    double limit = now_s() + LIMIT_S;
    while (atomic_load(counter) < least) {
        check(now_s() < limit, what);
        nap_ms(1);
    }
}

/* 0 in the child, which dies with its parent. */
static inline pid_t child(void) {
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
    }
    return pid;
}

static inline void end(pid_t pid) {
    check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill");
}

/* Memory that all processes share, of zeros. */
static inline void *share(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "mmap");
    return memory;
}

static inline void set(muster_config_t *config, const char *key, const char *value) {
    check(muster_config_set(config, key, value) == MUSTER_OK, "settings");
}

/* Starts a scheduler, and writes down its port. */
static inline muster_scheduler_t *serve(muster_config_t *config, char *port, size_t bytes) {
    muster_scheduler_t *scheduler = NULL;
    char address[MUSTER_ADDRESS_BYTES];
    check(muster_scheduler_start(config, &scheduler) == MUSTER_OK, "the scheduler");
    check(muster_scheduler_address(scheduler, address, sizeof address, NULL) == MUSTER_OK, "its address");
    snprintf(port, bytes, "%s", strrchr(address, ':') + 1);
    return scheduler;
}

static inline int ascending(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* The bounds, in milliseconds; 0: no bound. */
struct bounds {
    double median, p95, most;
};

static inline void head(void) {
    printf("what,count,p50_ms,p95_ms,most_ms,bounds\n");
}

static inline int exceeds(const char *name, double found, double bound) {
    if (bound > 0) {
        printf("%s <= %g%s ", name, bound, found > bound ? " MISSED" : "");
    }
    return bound > 0 && found > bound;
}

/* A line of the table, of times in seconds. Returns whether a bound is missed. */
static inline int row(const char *name, double *times, size_t count, struct bounds bounds) {
    qsort(times, count, sizeof *times, ascending);
    double median = 1e3 * times[count / 2], p95 = 1e3 * times[count * 95 / 100], most = 1e3 * times[count - 1];
    printf("%s,%zu,%.3f,%.3f,%.3f,", name, count, median, p95, most);
    int missed = exceeds("p50", median, bounds.median);
    missed |= exceeds("p95", p95, bounds.p95);
    missed |= exceeds("most", most, bounds.most);
    printf("\n");
    return missed;
}

#endif
