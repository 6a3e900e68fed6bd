/* For the programs that call every function of the header with wrong arguments: NULL, negative, huge, too small,
 * overlapping. Each call must return the documented status at once, name the argument in muster_last_error, and leave its
 * outputs alone. All mistakes are told, not only the first. */
#ifndef REFUSED_H
#define REFUSED_H

#include "check.h"

#include <limits.h>

static int mistakes = 0;

static inline void refused(const char *file, int line, const char *call, int64_t expected, const char *word, int64_t actual) {
    const char *words = muster_last_error();
    if (actual != expected || strstr(words, word) == NULL) {
        fprintf(stderr, "%s:%d: %s\n    gave %lld (\"%s\"), expected %lld and the word \"%s\"\n", file, line, call,
                (long long)actual, words, (long long)expected, word);
        mistakes++;
    }
}

/* Makes this thread's last error another, so that what is read next is the next call's. */
static inline void forget_error(void) {
    muster_barrier(NULL);
}

#define REFUSED(status, word, call) (forget_error(), refused(__FILE__, __LINE__, #call, status, word, (int64_t)(call)))
#define INVALID(word, call) REFUSED(MUSTER_ERR_INVALID, word, call)
#define HOLDS(condition) ((condition) ? (void)0 : refused(__FILE__, __LINE__, #condition, 1, "", 0))

static const int32_t odd_numbers[] = {-1, -2, 12, 99, INT32_MAX, INT32_MIN};
enum { ODD = sizeof odd_numbers / sizeof odd_numbers[0] };

/* Addresses that nothing is read from or written to. */
static void *const anywhere = (void *)(uintptr_t)64;

#endif
