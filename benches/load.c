/* How long it takes to load a library: `load PATH` prints nanoseconds by the clock, and of processor time. One process
 * loads it once, as a program does. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static long long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int count, char **words) {
    long long from, busy_from;
    void *library;
    if (count != 2) return fprintf(stderr, "load PATH\n"), 2;
    from = now(CLOCK_MONOTONIC);
    busy_from = now(CLOCK_PROCESS_CPUTIME_ID);
    library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    printf("%lld %lld\n", now(CLOCK_MONOTONIC) - from, now(CLOCK_PROCESS_CPUTIME_ID) - busy_from);
    return 0;
}
