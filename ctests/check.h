/* What every test program checks with. The first check that does not hold ends the program, from whichever thread or
 * process it was made in, with the place, the condition and the library's last sentence on standard error.
 *
 * A program that hangs is ended by CTest's TIMEOUT; child processes die with their parent (see ranks.h).
 */
#ifndef CHECK_H
#define CHECK_H

#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A program that loads the library at run time has no muster_last_error to ask. */
#ifdef CHECK_WITHOUT_LIBRARY
#define CHECK_LAST_ERROR() ""
#else
#define CHECK_LAST_ERROR() muster_last_error()
#endif

static inline void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: pid %d: does not hold: %s\n", file, line, (int)getpid(), what);
    fprintf(stderr, "    last error of this thread: \"%s\"\n", CHECK_LAST_ERROR());
    _exit(1);
}

static inline void check_status(const char *file, int line, const char *call, int64_t expected, int64_t actual) {
    if (expected != actual) {
        fprintf(stderr, "    %s gave %lld, expected %lld\n", call, (long long)actual, (long long)expected);
        check_failed(file, line, call);
    }
}

static inline void check_contains(const char *file, int line, const char *text, const char *part) {
    if (text == NULL || strstr(text, part) == NULL) {
        fprintf(stderr, "    \"%s\" does not contain \"%s\"\n", text == NULL ? "(NULL)" : text, part);
        check_failed(file, line, "a text with certain words");
    }
}

/* How many times longer than usual things may take: `make sanitize` slows programs down, and says by how much. */
static inline int patience(void) {
    const char *times = getenv("TEST_PATIENCE");
    return times == NULL ? 1 : atoi(times);
}

/* How much a test does: less where a tool looks at each access of memory, as helgrind does. */
static inline int less_where_watched(int usual, int less) { return patience() >= 20 ? less : usual; }

/* What a time-out says of a rank that is awaited. Under Valgrind the scheduler may take longer to say it than the call waits for that,
 * 250 ms. Then the call says so instead. */
static inline const char *if_told_in_time(const char *words) {
    return patience() >= 10 && strstr(CHECK_LAST_ERROR(), "the scheduler does not say who is awaited") != NULL ? "" : words;
}

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
/* A call that returns a status or a number. */
#define CHECK_IS(expected, call) check_status(__FILE__, __LINE__, #call, (int64_t)(expected), (int64_t)(call))
#define CHECK_OK(call) CHECK_IS(MUSTER_OK, call)
/* A text that must contain these words. */
#define CHECK_CONTAINS(text, part) check_contains(__FILE__, __LINE__, text, part)
/* A call that must fail with this status and a sentence that contains these words. */
#define CHECK_FAILS(status, words, call) (CHECK_IS(status, call), CHECK_CONTAINS(CHECK_LAST_ERROR(), words))

#endif
