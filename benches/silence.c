/* How long until everybody knows of a rank that is there and says nothing. Stops one with SIGSTOP, or lets its link to the
 * scheduler go silent in both directions or in one, while the others wait for it in a barrier. Measures the time until the
 * call of each of them returns.
 *
 *   silence [ROUNDS=10] [ROUNDS OF 5 S=3]     prints a table, as CSV; `make detection` builds it and runs it
 *
 * Fails if it takes longer than the heartbeat time-out and one interval, or if a wrong rank is blamed. */
#include "timing.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { RANKS = 4, VICTIM = 2, LINKS = 32, UNHEARD = 1, UNHEARING = 2 };

/* How long a verdict may take to get around. */
static const double TELLING_S = 0.05;

static struct {
    char port[8], detour[8]; /* where the scheduler listens, and what leads there */
    const char *time_out;
    atomic_int ready, serves, muted;
    atomic_int told[RANKS];
    double told_s[RANKS];
    int blamed[RANKS];
} *shared;

static muster_config_t *settings(const char *role) {
    muster_config_t *config = NULL;
    char number[8];
    check(muster_config_new(MUSTER_ABI_VERSION, &config) == MUSTER_OK, "settings");
    snprintf(number, sizeof number, "%d", RANKS);
    set(config, "role", role);
    set(config, "worker_num", number);
    set(config, "sched_host", "127.0.0.1");
    set(config, "node_timeout", shared->time_out);
    return config;
}

static void be_scheduler(void) {
    muster_config_t *config = settings("MS_SCHED");
    set(config, "sched_port", "0");
    muster_scheduler_t *scheduler = serve(config, shared->port, sizeof shared->port);
    atomic_store(&shared->serves, 1);
    muster_scheduler_wait(scheduler, INT64_MAX);
}

static void be_rank(int rank) {
    muster_config_t *config = settings("MS_WORKER");
    muster_cluster_t *cluster = NULL;
    char id[16];
    snprintf(id, sizeof id, "%d", rank);
    set(config, "node_id", id);
    set(config, "sched_port", rank == VICTIM ? shared->detour : shared->port);
    check(muster_init(config, &cluster) == MUSTER_OK, "muster_init");
    check(muster_barrier(muster_world(cluster)) == MUSTER_OK, "the barrier of a whole cluster");
    atomic_fetch_add(&shared->ready, 1);
    if (rank == VICTIM) {
        for (;;) {
            pause();
        }
    }
    check(muster_barrier(muster_world(cluster)) == MUSTER_ERR_PEER_LOST, "the barrier of those that are left");
    shared->told_s[rank] = now_s();
    muster_failure_t failure;
    shared->blamed[rank] = muster_failure(cluster, &failure, sizeof failure) == MUSTER_OK ? failure.rank : -1;
    atomic_store(&shared->told[rank], 1);
    for (;;) {
        pause(); /* it must not be lost, too */
    }
}

static int listen_anywhere(char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0, "bind");
    check(listen(listener, LINKS) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    snprintf(port, 8, "%d", ntohs(address.sin_port));
    return listener;
}

static int scheduler_link(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int link = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_port = htons((uint16_t)atoi(shared->port));
    check(link >= 0 && connect(link, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    return link;
}

/* Passes on what comes at one end, unless that direction is silent. 0: there is no more. */
static int pass_on(int from, int to, int is_muted) {
    char bytes[65536];
    ssize_t count = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t sent = 0; count > 0 && sent < count && !is_muted;) {
        ssize_t more = send(to, bytes + sent, (size_t)(count - sent), MSG_NOSIGNAL);
        if (more <= 0) {
            return 0;
        }
        sent += more;
    }
    return count > 0;
}

/* The victim's connections to the scheduler go through these: fds 2 i and 2 i + 1 are the ends of one. */
static void be_detour(int listener) {
    struct pollfd ends[1 + 2 * LINKS] = {{.fd = listener, .events = POLLIN}};
    struct pollfd *end = ends + 1;
    int links = 0;
    for (;;) {
        check(poll(ends, 1 + 2 * (nfds_t)links, -1) > 0 || errno == EINTR, "poll");
        int muted = atomic_load(&shared->muted);
        for (int i = 0; i < 2 * links; i++) {
            int is_muted = muted & (i % 2 == 0 ? UNHEARD : UNHEARING), other = i ^ 1;
            if (end[i].fd < 0 || end[i].revents == 0 || pass_on(end[i].fd, end[other].fd, is_muted)) {
                continue;
            }
            if (!is_muted && end[other].fd >= 0) {
                shutdown(end[other].fd, SHUT_WR);
            }
            end[i].fd = -1 - end[i].fd; /* poll looks at it no more, and it stays open */
        }
        if (ends[0].revents != 0 && links < LINKS) {
            end[2 * links] = (struct pollfd){.fd = accept(listener, NULL, NULL), .events = POLLIN};
            end[2 * links + 1] = (struct pollfd){.fd = scheduler_link(), .events = POLLIN};
            links++;
        }
    }
}

/* One cluster, and its loss; `how` is what is muted, or 0 for SIGSTOP. Adds the times of the survivors. */
static int lose(const char *time_out, int how, double *times) {
    memset((void *)shared, 0, sizeof *shared);
    shared->time_out = time_out;
    int listener = listen_anywhere(shared->detour), wrong = 0;
    pid_t pid[RANKS + 2];
    for (int i = 0; i < RANKS + 2; i++) {
        pid[i] = child();
        if (pid[i] == 0) {
            if (i == 0) {
                be_scheduler();
            } else if (i == 1) {
                be_detour(listener);
            } else {
                be_rank(i - 2);
            }
            _exit(0);
        }
        await(&shared->serves, 1, "the scheduler does not start");
    }
    close(listener);
    await(&shared->ready, RANKS, "the cluster does not form");
    nap_ms(20 + rand() % 100); /* any moment between two heartbeats */
    double begun_s = now_s();
    if (how == 0) {
        check(kill(pid[2 + VICTIM], SIGSTOP) == 0, "SIGSTOP");
    }
    atomic_store(&shared->muted, how);
    for (int rank = 0, at = 0; rank < RANKS; rank++) {
        if (rank != VICTIM) {
            await(&shared->told[rank], 1, "a survivor is not told");
            times[at++] = shared->told_s[rank] - begun_s;
            wrong += shared->blamed[rank] != VICTIM;
        }
    }
    for (int i = RANKS + 1; i >= 0; i--) {
        end(pid[i]);
    }
    return wrong;
}

int main(int argc, char **argv) {
    static const char *const hows[] = {"stopped", "unheard", "unhearing", "unheard and unhearing"};
    static const char *const time_outs[] = {"0.5", "5"};
    int rounds[] = {argc > 1 ? atoi(argv[1]) : 10, argc > 2 ? atoi(argv[2]) : 3}, missed = 0, wrong = 0;
    shared = share(sizeof *shared);
    head();
    for (int t = 0; t < 2; t++) {
        for (int how = 0; how < 4; how++) {
            double *times = calloc((size_t)rounds[t] * (RANKS - 1) + 1, sizeof *times);
            char name[64];
            check(times != NULL, "calloc");
            for (int round = 0; round < rounds[t]; round++) {
                wrong += lose(time_outs[t], how, times + round * (RANKS - 1));
            }
            snprintf(name, sizeof name, "%s at a time-out of %s s", hows[how], time_outs[t]);
            struct bounds bounds = {0, 0, 1e3 * (atof(time_outs[t]) * 6 / 5 + TELLING_S)};
            if (rounds[t] > 0) {
                missed |= row(name, times, (size_t)rounds[t] * (RANKS - 1), bounds);
            }
            fflush(stdout);
            free(times);
        }
    }
    printf("wrong culprits,%d,,,,%s\n", wrong, wrong ? "MISSED" : "");
    return missed || wrong;
}
