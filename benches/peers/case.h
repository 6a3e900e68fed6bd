/* What the programs of this folder do alike, in the manner of `muster bench`: the words of the command line, the numbers in
 * the buffers, how often a case is timed. Plain C that C++ takes too.
 */
#ifndef BENCH_CASE_H
#define BENCH_CASE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CASE_WARM_UP = 5, CASE_MOST_BYTES = 1 << 30 };

/* `collective:bytes` or `collective/algorithm:bytes`; the bytes are what one rank contributes. */
struct bench_case {
    char name[32];
    char algorithm[32]; /* empty: all that there are */
    size_t bytes;
};

/* 0 where the word is no case. */
static inline int case_of(const char *word, struct bench_case *into) {
    char unit[2] = "";
    unsigned long bytes = 0;
    memset(into, 0, sizeof *into);
    if (sscanf(word, "%31[a-z]/%31[a-z_]:%lu%1s", into->name, into->algorithm, &bytes, unit) != 3) {
        into->algorithm[0] = 0;
        if (sscanf(word, "%31[a-z]:%lu%1s", into->name, &bytes, unit) != 2) return 0;
    }
    into->bytes = bytes;
    return bytes % sizeof(float) == 0 && bytes <= CASE_MOST_BYTES;
}

static inline double case_now_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

/* What a rank's input has at this place: small whole numbers, whose sums are exact. */
static inline float case_value(int rank, size_t at) { return (float)((at % 13 + 3 * (size_t)rank) % 31); }

static inline float case_sum(int ranks, size_t at) {
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) sum += case_value(rank, at);
    return sum;
}

/* As often as takes about a quarter of a second; rank 0's guess counts for all. */
static inline double case_iterations(double a_call_us) {
    double guess = 0.25e6 / (a_call_us > 0.001 ? a_call_us : 0.001);
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

static inline void case_print_head(void) { puts("collective,ranks,bytes,iterations,p50_rank0_us,p50_us"); }

static inline void case_print(const char *name, int ranks, size_t bytes, size_t iterations, const double *p50) {
    double slowest = 0;
    for (int rank = 0; rank < ranks; rank++) slowest = p50[rank] > slowest ? p50[rank] : slowest;
    printf("%s,%d,%zu,%zu,%.2f,%.2f\n", name, ranks, bytes, iterations, p50[0], slowest);
    fflush(stdout);
}

#endif
