/* A cluster of processes: a scheduler and its ranks, all forked from a parent that does not use the library itself.
 * Ranks tell what they found in memory that all share. Every child dies with its parent. */
#ifndef RANKS_H
#define RANKS_H

#include <muster.h>

#include <semaphore.h>
#include <stdint.h>
#include <sys/types.h>

enum { RANKS_MAX = 8, WORDS_BYTES = 2048 };

/* What a rank leaves for the parent. */
struct note {
    sem_t ready; /* the rank posts it when it is where the test wants it */
    sem_t go;    /* the parent posts it when the rank may go on */
    muster_status_t status;
    muster_status_t again; /* of a second call */
    muster_status_t failure_status;
    double took_s;
    muster_status_t group_status; /* of muster_group_failure, on world */
    muster_failure_t failure;
    muster_failure_t group_failure;
    char words[WORDS_BYTES];         /* muster_last_error of the failing call */
    char words_again[WORDS_BYTES];   /* of the second call */
    char cluster_words[WORDS_BYTES]; /* muster_cluster_error */
};

struct ranks;
/* What a rank does after init; it is finalized and freed only by itself. Its process then ends with code 0. */
typedef void (*rank_body)(muster_cluster_t *cluster, int rank, struct ranks *ranks);

struct ranks {
    int size;
    char port[8];
    pid_t scheduler;
    sem_t listening; /* the scheduler posts it once its port is known */
    muster_status_t scheduler_status;
    char scheduler_words[WORDS_BYTES]; /* muster_last_error of its end */
    pid_t pid[RANKS_MAX];
    struct note note[RANKS_MAX];
};

/* Starts everything and returns. `settings`: as those of a plan. Node ids are "0", "1"
 * ... */
struct ranks *ranks_start(int size, rank_body body, const char *const *settings);
/* The same, where each rank says that its host is the one of this id. */
struct ranks *ranks_start_on(const char *const *host_ids, int size, rank_body body, const char *const *settings);
/* Starts the scheduler, on the port that it had, or a rank once more: its process has ended. */
void ranks_start_scheduler(struct ranks *ranks);
void ranks_start_rank(struct ranks *ranks, int rank);
/* Kills a rank with SIGKILL. */
void ranks_kill(struct ranks *ranks, int rank);
/* Waits until a rank has ended: with code 0, or by SIGKILL. */
void ranks_await(struct ranks *ranks, int rank);
/* Waits for the scheduler, and gives the memory back. Returns what muster_scheduler_wait returned. */
muster_status_t ranks_finish(struct ranks *ranks);
/* Waits for the scheduler as the function above does, but keeps the memory: what the scheduler said lies in `ranks` still.
 * */
muster_status_t ranks_await_scheduler(struct ranks *ranks);
void ranks_free(struct ranks *ranks);
/* The scheduler dies of SIGKILL. */
void ranks_kill_scheduler(struct ranks *ranks);
/* In the parent: waits until all ranks have posted `ready`; lets all go on. */
void ranks_await_ready(struct ranks *ranks);
void ranks_go(struct ranks *ranks);

/* Waits until a child has ended, 30 s at most; its wait status. */
int await_child(pid_t pid);

/* Stops a process with SIGSTOP, and waits until all its threads stand still: the others go on until one of them has been
 * scheduled to take the signal. */
void stop_process(pid_t pid);

/* Waits for a semaphore, 30 s at most. */
void await(sem_t *semaphore);
double now_s(void);

/* In a rank: makes a group's first calls, which go over links. In those that follow, ranks of one host share memory if they can. */
enum { WARM_UP_CALLS = 4 };
void warm_up(muster_group_t *group);

/* In a rank: keeps the failure of the call that just returned `status`, and what the queries say. */
void keep_failure(struct note *note, muster_cluster_t *cluster, muster_status_t status);

#endif
