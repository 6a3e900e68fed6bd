#include "ranks.h"

#include "check.h"
#include "nodes.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

enum { LIMIT_S = 30, SCHEDULER_WAIT_MS = 25000 };

double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void await(sem_t *semaphore) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LIMIT_S * patience();
    while (sem_timedwait(semaphore, &until) != 0) {
        CHECK(errno == EINTR);
    }
}

static pid_t child_of(pid_t parent) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
    }
    return pid;
}

/* The end of a child: without what else happens at an exit, but LeakSanitizer looks here, too. */
static void end_child(void) {
#ifdef __SANITIZE_ADDRESS__
    __lsan_do_leak_check();
#endif
    _exit(0);
}

static void be_scheduler(struct ranks *ranks, const struct plan *plan) {
    muster_scheduler_t *scheduler = start_scheduler(plan, ranks->port);
    CHECK(sem_post(&ranks->listening) == 0);
    ranks->scheduler_status = muster_scheduler_wait(scheduler, SCHEDULER_WAIT_MS * patience());
    snprintf(ranks->scheduler_words, sizeof ranks->scheduler_words, "%s", muster_last_error());
    muster_scheduler_free(scheduler);
}

/* The cluster that a test has at this time, for processes that are started again. */
static struct plan plan;
static rank_body what_ranks_do;

void ranks_start_scheduler(struct ranks *ranks) {
    pid_t parent = getpid();
    plan.port = ranks->port[0] == '\0' ? NULL : ranks->port;
    fflush(NULL);
    pid_t scheduler = child_of(parent);
    if (scheduler == 0) {
        be_scheduler(ranks, &plan);
        end_child();
    }
    ranks->scheduler = scheduler; /* by the parent alone: the child shares this memory */
    await(&ranks->listening); /* the port is known */
}

void ranks_start_rank(struct ranks *ranks, int rank) {
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = child_of(parent);
    if (pid == 0) {
        what_ranks_do(join(&plan, ranks->port, rank), rank, ranks);
        end_child();
    }
    ranks->pid[rank] = pid;
}

struct ranks *ranks_start(int size, rank_body body, const char *const *settings) {
    return ranks_start_on(NULL, size, body, settings);
}

struct ranks *ranks_start_on(const char *const *host_ids, int size, rank_body body, const char *const *settings) {
    plan = (struct plan){.workers = size, .node_ids = rank_ids, .host_ids = host_ids, .settings = settings};
    what_ranks_do = body;
    struct ranks *ranks = mmap(NULL, sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(ranks != MAP_FAILED && size <= RANKS_MAX);
    ranks->size = size;
    CHECK(sem_init(&ranks->listening, 1, 0) == 0);
    for (int i = 0; i < size; i++) {
        CHECK(sem_init(&ranks->note[i].ready, 1, 0) == 0 && sem_init(&ranks->note[i].go, 1, 0) == 0);
    }
    ranks_start_scheduler(ranks);
    for (int i = 0; i < size; i++) {
        ranks_start_rank(ranks, i);
    }
    return ranks;
}

void ranks_kill(struct ranks *ranks, int rank) {
    CHECK(kill(ranks->pid[rank], SIGKILL) == 0);
}

/* Whether the thread whose folder in /proc this is stands still, or is gone. */
static int stands_still(const char *folder, const char *thread) {
    char path[300], line[512] = "";
    snprintf(path, sizeof path, "%s/%.20s/stat", folder, thread);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 1;
    }
    CHECK(fgets(line, sizeof line, file) != NULL || ferror(file));
    fclose(file);
    const char *name_end = strrchr(line, ')'); /* behind it the state */
    return name_end == NULL || strncmp(name_end, ") T", 3) == 0;
}

void stop_process(pid_t pid) {
    char folder[64];
    struct timespec pause = {.tv_nsec = 1000000};
    double limit = now_s() + LIMIT_S * patience();
    CHECK(kill(pid, SIGSTOP) == 0);
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    for (int moving = 1; moving != 0;) {
        moving = 0;
        DIR *threads = opendir(folder);
        CHECK(threads != NULL);
        for (struct dirent *entry = readdir(threads); entry != NULL; entry = readdir(threads)) {
            moving += entry->d_name[0] != '.' && !stands_still(folder, entry->d_name);
        }
        closedir(threads);
        CHECK(now_s() < limit);
        nanosleep(&pause, NULL);
    }
}

int await_child(pid_t pid) {
    struct timespec pause = {.tv_nsec = 2000000};
    double limit = now_s() + LIMIT_S * patience();
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
        CHECK(now_s() < limit);
        nanosleep(&pause, NULL);
    }
    CHECK(ended == pid);
    return status;
}

void ranks_await(struct ranks *ranks, int rank) {
    int status = await_child(ranks->pid[rank]);
    int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    CHECK(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

muster_status_t ranks_await_scheduler(struct ranks *ranks) {
    int status = await_child(ranks->scheduler);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return ranks->scheduler_status;
}

void ranks_free(struct ranks *ranks) { CHECK(munmap(ranks, sizeof *ranks) == 0); }

muster_status_t ranks_finish(struct ranks *ranks) {
    muster_status_t result = ranks_await_scheduler(ranks);
    ranks_free(ranks);
    return result;
}

void ranks_kill_scheduler(struct ranks *ranks) {
    CHECK(kill(ranks->scheduler, SIGKILL) == 0);
    await_child(ranks->scheduler);
}

void ranks_await_ready(struct ranks *ranks) {
    for (int i = 0; i < ranks->size; i++) {
        await(&ranks->note[i].ready);
    }
}

void ranks_go(struct ranks *ranks) {
    for (int i = 0; i < ranks->size; i++) {
        CHECK(sem_post(&ranks->note[i].go) == 0);
    }
}

void warm_up(muster_group_t *group) {
    for (int i = 0; i < WARM_UP_CALLS; i++) {
        CHECK_OK(muster_barrier(group));
    }
}

void keep_failure(struct note *note, muster_cluster_t *cluster, muster_status_t status) {
    note->status = status;
    snprintf(note->words, sizeof note->words, "%s", muster_last_error());
    note->failure_status = muster_failure(cluster, &note->failure, sizeof note->failure);
    note->group_status = muster_group_failure(muster_world(cluster), &note->group_failure, sizeof note->group_failure);
    if (muster_cluster_error(cluster, note->cluster_words, sizeof note->cluster_words, NULL) != MUSTER_OK) {
        snprintf(note->cluster_words, sizeof note->cluster_words, "%s", muster_last_error());
    }
}
