/* How programs of this folder time a case whose ranks are processes that another program starts. Before including this they
 * define `call`, which carries a case out, and how all ranks agree.
 */
#ifndef BENCH_TIMED_H
#define BENCH_TIMED_H

#include "case.h"

#include <signal.h>

static int rank, ranks;
static float *input, *output;

/* Each of these ends the whole program if it fails. */
static void call(const struct bench_case *what, size_t nth);
static void meet(void);                                         /* a barrier */
static double of_rank_0(double mine);                           /* everybody gets rank 0's number */
static void gather_times(struct case_times mine, struct case_times *all); /* rank 0 gets everybody's, or all do */
static void give_up(void);                                      /* ends all ranks */

static int is(const struct bench_case *what, const char *name) { return strcmp(what->name, name) == 0; }

static int case_known(const struct bench_case *what) {
    const char *names[] = {"allreduce", "allgather", "broadcast", "reduce_scatter", "barrier"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(what, names[i])) return 1;
    return 0;
}

/* A size is what one rank contributes; for reduce_scatter, what it has for each rank. */
static size_t input_count(const struct bench_case *what) {
    size_t count = what->bytes / sizeof(float);
    return is(what, "reduce_scatter") ? count * (size_t)ranks : count;
}

static size_t output_count(const struct bench_case *what) {
    size_t count = what->bytes / sizeof(float);
    return is(what, "allgather") ? count * (size_t)ranks : count;
}

static int is_in_place(const struct bench_case *what) { return is(what, "allreduce") && what->algorithm[0] == 0; }

static void fill_typed(const struct bench_case *what); /* the input of a case with a type of its own */

static void fill(const struct bench_case *what) {
    if (what->algorithm[0]) return fill_typed(what);
    float mine[CASE_PERIOD], none[CASE_PERIOD];
    int is_input = is_in_place(what) || (is(what, "broadcast") && rank == 0);
    for (size_t at = 0; at < CASE_PERIOD; at++) mine[at] = case_value(rank, at), none[at] = 99;
    case_repeat(input, input_count(what), mine);
    case_repeat(output, output_count(what), is_input ? mine : none);
}

/* The result of all ranks' numbers at `at`, which counts from the first element of this rank's part. */
static float expected(const struct bench_case *what, size_t at) {
    size_t count = what->bytes / sizeof(float);
    if (is(what, "allreduce")) return case_sum(ranks, at);
    if (is(what, "reduce_scatter")) return case_sum(ranks, (size_t)rank * count % CASE_PERIOD + at);
    return case_value(0, at);
}

static void wrong(const struct bench_case *what, size_t at) {
    fprintf(stderr, "%s of %zu bytes: element %zu is %g on rank %d\n", what->name, what->bytes, at, output[at], rank);
    give_up();
}

static void check(const struct bench_case *what) {
    size_t count = what->bytes / sizeof(float);
    float right[CASE_PERIOD];
    int blocks = is(what, "allgather") ? ranks : 1;
    for (int block = 0; block < blocks; block++) {
        const float *from = output + (size_t)block * count;
        for (size_t at = 0; at < CASE_PERIOD; at++) right[at] = blocks > 1 ? case_value(block, at) : expected(what, at);
        for (size_t at = 0, next = 0; at < count; at++, next = next + 1 == CASE_PERIOD ? 0 : next + 1)
            if (from[at] != right[next]) wrong(what, (size_t)block * count + at);
    }
}

/* All ranks end the case together, as they began it. */
static void too_long(int signal) {
    static const char words[] = "a case took longer than its limit\n";
    (void)signal;
    if (write(2, words, sizeof words - 1) < 0) {}
    _exit(3);
}

static void measure(const struct bench_case *what) {
    alarm(CASE_LIMIT_S);
    fill(what);
    call(what, 0);
    if (what->algorithm[0] == 0) check(what);
    meet();
    double begun = case_now_us();
    call(what, 0);
    double a_call = of_rank_0(case_now_us() - begun);
    /* Enough calls for the library to settle; if calls take long, one is enough. */
    size_t warm_up = a_call < 0.02e6 ? CASE_WARM_UP : 1;
    begun = case_now_us();
    for (size_t nth = 0; nth < warm_up; nth++) call(what, nth);
    size_t iterations = (size_t)of_rank_0(case_iterations((case_now_us() - begun) / (double)warm_up));
    double *took = malloc(iterations * sizeof *took);
    struct case_times *all = malloc((size_t)ranks * sizeof *all);
    if (!took || !all) return give_up();
    double total = 0;
    for (size_t nth = 0, look_at = 100; nth < iterations; nth++) {
        begun = case_now_us();
        call(what, nth);
        total += took[nth] = case_now_us() - begun;
        if (nth + 1 != look_at) continue;
        /* Calls may have become slower than the guess: beside other programs by a thousand times. */
        size_t enough = (size_t)of_rank_0(case_iterations(total / (double)look_at));
        if (enough < iterations) iterations = enough < look_at ? look_at : enough;
        look_at *= 4;
    }
    gather_times(case_times_of(took, iterations), all);
    char name[sizeof what->name + sizeof what->algorithm];
    snprintf(name, sizeof name, "%s%s%s", what->name, what->algorithm[0] ? "/" : "", what->algorithm);
    if (rank == 0) case_print(name, ranks, what->bytes, iterations, all);
    free(took);
    free(all);
    alarm(0);
}

/* Each word that is a case. */
static void measure_all(int argc, char **argv, int (*known)(const struct bench_case *)) {
    size_t in = 0, out = 0;
    struct bench_case what;
    signal(SIGALRM, too_long);
    for (int i = 1; i < argc; i++) {
        if (!case_of(argv[i], &what) || !known(&what)) {
            fprintf(stderr, "%s is no case: expected collective:bytes, as allreduce:8\n", argv[i]);
            return give_up();
        }
        in = input_count(&what) > in ? input_count(&what) : in;
        out = output_count(&what) > out ? output_count(&what) : out;
    }
    input = calloc(in + 1, sizeof *input);
    output = calloc(out + 1, sizeof *output);
    if (!input || !output) return give_up();
    if (rank == 0) case_print_head();
    for (int i = 1; i < argc; i++)
        if (case_of(argv[i], &what)) measure(&what);
    free(input);
    free(output);
}

#endif
