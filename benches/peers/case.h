/* What the programs of this folder do alike, in the manner of `muster bench`: the words of the command line, the numbers in
 * the buffers, how often a case is timed. Plain C that C++ accepts, too.
 */
#ifndef BENCH_CASE_H
#define BENCH_CASE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* CASE_LIMIT_S: so many seconds a case may take; a rank that takes longer says so and ends. */
enum { CASE_WARM_UP = 5, CASE_MOST_BYTES = 1 << 30, CASE_PERIOD = 13, CASE_LIMIT_S = 20 };

/* `collective:bytes` or `collective/algorithm:bytes`; the bytes are what one rank contributes. */
struct bench_case {
    char name[32];
    char algorithm[32]; /* empty: all that there are */
    size_t bytes;
};

/* 0 if the word is no case. */
static inline int case_of(const char *word, struct bench_case *into) {
    char unit[2] = "";
    unsigned long bytes = 0;
    memset(into, 0, sizeof *into);
    if (sscanf(word, "%31[a-z_]/%31[a-z_0-9]:%lu%1s", into->name, into->algorithm, &bytes, unit) != 3) {
        into->algorithm[0] = 0;
        if (sscanf(word, "%31[a-z_]:%lu%1s", into->name, &bytes, unit) != 2) return 0;
    }
    into->bytes = bytes;
    return bytes % sizeof(float) == 0 && bytes <= CASE_MOST_BYTES;
}

static inline double case_now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

/* The number in a rank's input at this place: a small whole number, so that sums are exact. */
static inline float case_value(int rank, size_t at) { return (float)((at % CASE_PERIOD + 3 * (size_t)rank) % 31); }

static inline float case_sum(int ranks, size_t at) {
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) sum += case_value(rank, at);
    return sum;
}

/* Fills with what `first` holds, again and again: numbers repeat after CASE_PERIOD elements. */
static inline void case_repeat(float *into, size_t count, const float *first) {
    for (size_t at = 0, next = 0; at < count; at++, next = next + 1 == CASE_PERIOD ? 0 : next + 1) into[at] = first[next];
}

/* How many seconds a case is timed: BENCH_SECONDS, or a quarter of one. */
static inline double case_seconds(void) {
    const char *word = getenv("BENCH_SECONDS");
    double seconds = word ? atof(word) : 0;
    return seconds > 0 ? seconds : 0.25;
}

/* How many calls take about that long; rank 0's guess counts for all. */
static inline double case_iterations(double a_call_us) {
    double guess = case_seconds() * 1e6 / (a_call_us > 0.001 ? a_call_us : 0.001);
    return guess < 5 ? 5 : guess > 20000 ? 20000 : guess;
}

static inline int case_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double case_median(double *took, size_t count) {
    qsort(took, count, sizeof *took, case_ascending);
    return took[count / 2];
}

static inline double case_mean(const double *took, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += took[i];
    return count ? sum / (double)count : 0;
}

/* The times of one rank's calls, in microseconds. */
struct case_times {
    double p50, mean;
};

static inline struct case_times case_times_of(double *took, size_t count) {
    struct case_times of = {case_median(took, count), case_mean(took, count)};
    return of;
}

static inline void case_print_head(void) { puts("collective,ranks,bytes,iterations,p50_rank0_us,p50_us,mean_rank0_us,mean_us"); }

/* `all`: the times of all ranks. */
static inline void case_print(const char *name, int ranks, size_t bytes, size_t iterations, const struct case_times *all) {
    struct case_times slowest = {0, 0};
    for (int rank = 0; rank < ranks; rank++) {
        if (all[rank].p50 > slowest.p50) slowest.p50 = all[rank].p50;
        if (all[rank].mean > slowest.mean) slowest.mean = all[rank].mean;
    }
    printf("%s,%d,%zu,%zu,%.2f,%.2f,%.2f,%.2f\n", name, ranks, bytes, iterations, all[0].p50, slowest.p50, all[0].mean,
           slowest.mean);
    fflush(stdout);
}

#endif
