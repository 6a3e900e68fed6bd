/* Standard streams that accept nothing: they are a pipe that nobody reads, or that nobody has open any more, or they are
 * closed. The library's log then goes nowhere. Everything else goes on, and what belongs to the program stays as it is. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { RANKS = 3, LIMIT_MS = 25000, OURS = 100 };

/* The test's own words go elsewhere from now on. */
static void move_own_words(void) {
    int real = fcntl(2, F_DUPFD_CLOEXEC, OURS);
    CHECK(real >= OURS);
    stderr = fdopen(real, "w");
    setvbuf(stderr, NULL, _IONBF, 0);
}

static void rest(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* A pipe in which there is no room, under the numbers 1 and 2, as blocking as it was made. Gives its other end. */
static int fill_standard_streams(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    int flags = fcntl(ends[1], F_GETFL);
    CHECK(fcntl(ends[1], F_SETFL, flags | O_NONBLOCK) == 0);
    while (write(ends[1], "................................................................", 64) > 0) {
    }
    CHECK(errno == EAGAIN && fcntl(ends[1], F_SETFL, flags) == 0);
    CHECK(dup2(ends[1], 1) == 1 && dup2(ends[1], 2) == 2 && close(ends[1]) == 0);
    return ends[0];
}

/* All ranks go on for so long, as rank 0 counts. */
static void go_on(muster_cluster_t *cluster, int rank, double seconds) {
    double until = now_s() + seconds;
    for (int32_t over = 0; !over; rest(5)) {
        int32_t own = rank == 0 && now_s() > until;
        CHECK_OK(muster_allreduce(muster_world(cluster), &own, &over, 1, MUSTER_INT32, MUSTER_MAX));
    }
}

/* The ranks go on for longer than it takes to be given up. Then rank 1 is killed, comes back, and all leave. */
static void amid_silence(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    int flags = fcntl(2, F_GETFL);
    CHECK(flags >= 0 && (flags & O_NONBLOCK) == 0);
    if (muster_restarts(cluster) == 0) {
        go_on(cluster, rank, 3.0 * patience());
        if (rank == 1) {
            CHECK(sem_post(&ranks->note[1].ready) == 0);
            pause();
        }
        CHECK(muster_barrier(muster_world(cluster)) != MUSTER_OK);
        CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
    }
    CHECK_IS(2, muster_epoch(cluster));
    go_on(cluster, rank, 0.1);
    double before_s = now_s();
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    CHECK(now_s() - before_s < 10.0 * patience()); /* its limit is a minute, and a line does not wait for the reader */
    CHECK(own_threads_are(1)); /* a full pipe is no reason to leave one behind */
    CHECK_IS(flags, fcntl(2, F_GETFL));
}

static void nobody_reads(void) {
    char path[] = "/tmp/muster-stalled-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"log", "debug", "node_timeout", "1", "enable_recovery", "1",
        "recovery_path", path, "finalize_timeout", "60", NULL};
    int out = fcntl(1, F_DUPFD_CLOEXEC, OURS), end = fill_standard_streams();
    struct ranks *ranks = ranks_start(RANKS, amid_silence, settings);
    await(&ranks->note[1].ready);
    ranks_kill(ranks, 1);
    ranks_await(ranks, 1);
    ranks_start_rank(ranks, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        ranks_await(ranks, rank);
    }
    CHECK_OK(ranks_finish(ranks));
    CHECK(dup2(out, 1) == 1 && dup2(fileno(stderr), 2) == 2 && close(out) == 0 && close(end) == 0);
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

/* A cluster of one; the calling thread warns of a name that looks like a setting's. */
static void be_warned(void) {
    muster_cluster_t *cluster = NULL;
    int threads = own_threads();
    CHECK(setenv("MUSTER_NODE_TIMEOUTT", "1", 1) == 0);
    CHECK_OK(muster_init(NULL, &cluster));
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    CHECK(own_threads_are(threads));
}

/* A process that writes to a pipe or socket that nobody has open is killed, unless it takes care. */
static void nobody_is_there(bool is_socket) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(30 * patience());
        int ends[2];
        CHECK((is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0);
        CHECK(close(ends[0]) == 0 && dup2(ends[1], 2) == 2 && signal(SIGPIPE, SIG_DFL) != SIG_ERR);
        be_warned();
        _exit(0);
    }
    CHECK_IS(0, await_child(pid));
}

/* What a pipe holds, to its end, as a string. */
static void drain(int end, char *text, size_t room) {
    ssize_t got;
    size_t length = 0;
    while ((got = read(end, text + length, room - length - 1)) > 0) {
        length += (size_t)got;
        CHECK(length + 1 < room);
    }
    CHECK(got == -1 && errno == EAGAIN);
    text[length] = 0;
}

/* Somebody reads again, and hears how many lines are missing. */
static void what_was_dropped_is_told(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(30 * patience());
        static char text[4 << 20]; /* a pipe holds 1 MiB at most, unless root has allowed more */
        int end = fill_standard_streams();
        CHECK(fcntl(end, F_SETFL, O_NONBLOCK) == 0);
        be_warned();
        drain(end, text, sizeof text);
        CHECK(strchr(text, 'm') == NULL); /* dots alone */
        be_warned();
        drain(end, text, sizeof text);
        const char *told = strstr(text, "] 1 log line was dropped here: the output did not take them\n");
        CHECK(told != NULL && strstr(told, "MUSTER_NODE_TIMEOUTT") != NULL);
        _exit(0);
    }
    CHECK_IS(0, await_child(pid));
}

static atomic_bool stops;

/* What the program writes to its standard error, which it does not have. */
static void *write_on(void *context) {
    (void)context;
    while (!atomic_load(&stops)) {
        CHECK(write(2, "must not arrive", 15) == -1);
    }
    return NULL;
}

static bool are_closed(void) {
    bool closed = true;
    for (int fd = 0; fd <= 2; fd++) {
        closed = closed && fcntl(fd, F_GETFD) == -1 && errno == EBADF;
    }
    return closed;
}

static void without_streams(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    pthread_t writer;
    (void)ranks;
    CHECK(are_closed()); /* after the start */
    CHECK(pthread_create(&writer, NULL, write_on, NULL) == 0);
    muster_group_t *world = muster_world(cluster), *half = NULL;
    CHECK_OK(muster_group_split(world, rank % 2, 0, &half));
    for (int64_t i = 0; i < 100; i++) {
        int64_t sum = 0;
        CHECK_OK(muster_allreduce(world, &i, &sum, 1, MUSTER_INT64, MUSTER_SUM));
        CHECK_IS(RANKS * i, sum);
    }
    CHECK_OK(muster_barrier(half));
    muster_group_free(half);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    be_warned(); /* a cluster with a scheduler of its own */
    atomic_store(&stops, true);
    CHECK(pthread_join(writer, NULL) == 0 && are_closed());
}

/* None of the lowest numbers is open in that process; but a timer stands there while something else is opened. */
static void check_numbers(pid_t pid) {
    struct timespec pause = {.tv_nsec = 1000000};
    double limit = now_s() + 2 * patience();
    char path[64];
    for (int fd = 0; fd <= 2; fd++) {
        char target[64] = "";
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        while (readlink(path, target, sizeof target - 1) != -1) {
            if (strcmp(target, "anon_inode:[timerfd]") != 0 || now_s() >= limit) {
                fprintf(stderr, "    %d is %s\n", fd, target);
                CHECK(!"a number of the standard streams is closed");
            }
            nanosleep(&pause, NULL);
        }
        CHECK(errno == ENOENT);
    }
}

/* Whether a forked child has something there already: Valgrind gives its report of the child the lowest number that is closed. */
static bool forks_open_something(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        _exit(are_closed() ? 0 : 1);
    }
    bool opened = await_child(pid) != 0;
    CHECK(!opened || patience() > 1);
    return opened;
}

static void nothing_is_open(void) {
    char path[] = "/tmp/muster-closed-XXXXXX", command[64];
    CHECK(mkdtemp(path) != NULL);
    const char *settings[] = {"log", "debug", "sched_host", "localhost", "enable_recovery", "1", "recovery_path", path, NULL};
    CHECK(close(0) == 0 && close(1) == 0 && close(2) == 0);
    if (!forks_open_something()) {
        struct ranks *ranks = ranks_start(RANKS, without_streams, settings);
        check_numbers(ranks->scheduler);
        for (int rank = 0; rank < RANKS; rank++) {
            ranks_await(ranks, rank);
        }
        CHECK_OK(ranks_finish(ranks));
    }
    snprintf(command, sizeof command, "rm -r %s", path);
    CHECK(system(command) == 0);
}

/* A place that the program fills while something of ours is opened stays its own. */
static void numbers_are_the_programs(void) {
    int null = open("/dev/null", O_RDWR);
    CHECK(null == 0); /* the lowest that is free, as ever */
    CHECK(dup2(null, 1) == 1 && dup2(null, 2) == 2);
    be_warned();
    CHECK(fcntl(0, F_GETFD) == 0 && fcntl(1, F_GETFD) == 0 && fcntl(2, F_GETFD) == 0);
}

int main(void) {
    move_own_words();
    nobody_is_there(false);
    nobody_is_there(true);
    what_was_dropped_is_told();
    nobody_reads();
    nothing_is_open();
    numbers_are_the_programs();
    return 0;
}
