/* The log: lines go to the callback, up to its level. Taking it away waits for calls under way. A callback that does not
 * return delays nobody. Nothing ever goes to standard output. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { PROGRAMS = 20, IN_TIME = 20, LATE };
static const double GIVEN_S = 0.09; /* 0.1, less what the clock's grain may take */

struct seen {
    pthread_mutex_t lock;
    int lines;
    int above; /* lines of a level that was not asked for */
    int32_t level;
    char warning[WORDS_BYTES];
};

static void note_line(int32_t level, const char *target, const char *message, void *ctx) {
    struct seen *seen = ctx;
    pthread_mutex_lock(&seen->lock);
    CHECK(target != NULL && target[0] != 0 && message != NULL && message[0] != 0);
    CHECK(level >= MUSTER_LOG_ERROR && level <= MUSTER_LOG_DEBUG);
    CHECK(strchr(message, '\n') == NULL); /* one line each */
    seen->lines++;
    seen->above += level > seen->level;
    if (level == MUSTER_LOG_WARNING) {
        snprintf(seen->warning, sizeof seen->warning, "%s", message);
    }
    pthread_mutex_unlock(&seen->lock);
}

/* A scheduler that is stopped by its program says so, as a warning. The program may end at the very call that fails because
 * of that. */
static void make_a_warning(bool ends_then) {
    muster_config_t *config = NULL;
    muster_scheduler_t *scheduler = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_set(config, "worker_num", "1"));
    CHECK_OK(muster_config_set(config, "log", "debug"));
    CHECK_OK(muster_scheduler_start(config, &scheduler));
    CHECK_OK(muster_scheduler_stop(scheduler));
    double before_s = now_s();
    CHECK_IS(MUSTER_ERR_ABORTED, muster_scheduler_wait(scheduler, -1));
    if (ends_then) {
        _exit(now_s() - before_s < GIVEN_S ? IN_TIME : LATE);
    }
    muster_scheduler_free(scheduler);
    muster_config_free(config);
}

static void run_cluster(void) {
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster_init(NULL, &cluster));
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void levels(void) {
    int before = -1;
    for (int32_t level = MUSTER_LOG_ERROR; level <= MUSTER_LOG_DEBUG; level++) {
        struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = level};
        CHECK_OK(muster_set_log_callback(level, note_line, &seen));
        make_a_warning(false);
        run_cluster();
        CHECK_OK(muster_set_log_callback(level, NULL, NULL));
        CHECK_IS(0, seen.above);
        CHECK(seen.lines >= before); /* a wider level has no fewer */
        CHECK((seen.warning[0] != 0) == (level >= MUSTER_LOG_WARNING));
        before = seen.lines;
    }
    CHECK(before > 1);
}

struct slow {
    sem_t inside;
    sem_t go_on;
    int left;
};

static void slow_line(int32_t level, const char *target, const char *message, void *ctx) {
    struct slow *slow = ctx;
    (void)level, (void)target, (void)message;
    sem_post(&slow->inside);
    await(&slow->go_on);
    __atomic_store_n(&slow->left, 1, __ATOMIC_SEQ_CST);
}

static void *warn(void *argument) {
    (void)argument;
    make_a_warning(false);
    return NULL;
}

static void *take_away(void *argument) {
    struct slow *slow = argument;
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_WARNING, NULL, NULL));
    CHECK_IS(1, __atomic_load_n(&slow->left, __ATOMIC_SEQ_CST)); /* not before the call had ended */
    return NULL;
}

static void taking_away_waits(void) {
    struct slow slow = {.left = 0};
    pthread_t warning;
    pthread_t taking;
    CHECK(sem_init(&slow.inside, 0, 0) == 0 && sem_init(&slow.go_on, 0, 0) == 0);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_WARNING, slow_line, &slow));
    CHECK(pthread_create(&warning, NULL, warn, NULL) == 0);
    await(&slow.inside);
    CHECK(pthread_create(&taking, NULL, take_away, &slow) == 0);
    for (int i = 0; i < 100; i++) {
        sched_yield(); /* gives the other thread a chance to return too early */
    }
    CHECK(sem_post(&slow.go_on) == 0 && sem_post(&slow.go_on) == 0);
    CHECK(pthread_join(taking, NULL) == 0 && pthread_join(warning, NULL) == 0);
}

struct behind {
    pthread_mutex_t lock;
    sem_t inside;
    int asked;
};

/* A callback that needs a lock of the program, as a callback in Python needs the interpreter's lock. */
static void line_behind_a_lock(int32_t level, const char *target, const char *message, void *ctx) {
    struct behind *behind = ctx;
    (void)level, (void)target, (void)message;
    if (!__atomic_exchange_n(&behind->asked, 1, __ATOMIC_SEQ_CST)) {
        sem_post(&behind->inside);
    }
    pthread_mutex_lock(&behind->lock);
    pthread_mutex_unlock(&behind->lock);
}

/* Waits longer than it takes to be given up. */
static void go_on(muster_cluster_t *cluster, int index, void *context) {
    double until = now_s() + 3.0 * patience();
    (void)context;
    for (int32_t over = 0; !over;) {
        int32_t own = index == 0 && now_s() > until;
        CHECK_OK(muster_allreduce(muster_world(cluster), &own, &over, 1, MUSTER_INT32, MUSTER_MAX));
    }
}

/* A callback that does not return delays nobody: the call of the thread that it waits for goes on, and so do signs of life
 * and the end. A forked child does not wait for it. */
static void holding_up_nobody(void) {
    struct behind behind = {.lock = PTHREAD_MUTEX_INITIALIZER, .asked = 0};
    const char *settings[] = {"node_timeout", "1", NULL};
    struct plan plan = {.workers = 2, .settings = settings, .body = go_on};
    CHECK(sem_init(&behind.inside, 0, 0) == 0);
    pthread_mutex_lock(&behind.lock);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_DEBUG, line_behind_a_lock, &behind));
    run_nodes(&plan);
    await(&behind.inside); /* it is there still */
    make_a_warning(false);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30 * patience());
        CHECK_OK(muster_set_log_callback(MUSTER_LOG_DEBUG, NULL, NULL)); /* the call that runs is the parent's */
        run_cluster();
        pthread_mutex_unlock(&behind.lock); /* this process's copy */
        _exit(0);
    }
    CHECK_IS(0, await_child(child));
    pthread_mutex_unlock(&behind.lock);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_DEBUG, NULL, NULL));
    CHECK(pthread_mutex_destroy(&behind.lock) == 0); /* nobody uses it any more */
    run_cluster();
    CHECK(own_threads_are(1));
}

static int scratch_file(void) {
    char path[] = "/tmp/muster-log-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0);
    return fd;
}

/* Without a callback warnings go to standard error, one line each. */
static void standard_error(void) {
    char text[WORDS_BYTES] = "";
    int file = scratch_file();
    int real = dup(2);
    CHECK(real >= 0 && dup2(file, 2) == 2);
    make_a_warning(false);
    CHECK(dup2(real, 2) == 2 && close(real) == 0);
    CHECK(pread(file, text, sizeof text - 1, 0) > 0);
    CHECK_CONTAINS(text, "warning");
    CHECK_CONTAINS(text, "stopped");
    CHECK(text[strlen(text) - 1] == '\n');
    CHECK(close(file) == 0);
}

/* A program ends at the call that failed; if `full`, its standard error accepts nothing. Tells what it wrote, and whether
 * the call took all the time that such a line has. */
static bool ends_at_once(bool is_full, char *text, size_t bytes) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        muster_cluster_t *cluster = NULL; /* lives on, so nobody waits for the last line of all */
        for (long left = is_full ? fcntl(ends[1], F_GETPIPE_SZ) : 0; left > 0; left--) {
            CHECK(write(ends[1], "", 1) == 1);
        }
        CHECK(dup2(ends[1], 2) == 2);
        CHECK_OK(muster_init(NULL, &cluster));
        make_a_warning(true);
    }
    CHECK(close(ends[1]) == 0);
    int status = await_child(child);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == IN_TIME || WEXITSTATUS(status) == LATE));
    ssize_t count = read(ends[0], text, bytes - 1);
    CHECK(count >= 0);
    text[count] = 0;
    CHECK(close(ends[0]) == 0);
    return WEXITSTATUS(status) == LATE;
}

/* The line that says why a call failed is out when the call returns, whatever becomes of the program then. Or 100 ms have
 * passed: that may happen now and then where others keep the processors busy. */
static void out_before_it_returns(void) {
    char text[WORDS_BYTES] = "";
    int said = 0;
    for (int i = 0; i < PROGRAMS; i++) {
        ends_at_once(false, text, sizeof text);
        said += strstr(text, "stopped") != NULL;
    }
    CHECK(said > PROGRAMS / 2);
    /* Under Valgrind a thread may have waited with the line before the call began. */
    CHECK(ends_at_once(true, text, sizeof text) || patience() >= 10);
}

int main(void) {
    int out = scratch_file();
    CHECK(dup2(out, 1) == 1); /* all that follows runs with this standard output */
    levels();
    taking_away_waits();
    holding_up_nobody();
    standard_error();
    out_before_it_returns();
    CHECK(lseek(out, 0, SEEK_END) == 0); /* not a byte */
    return 0;
}
