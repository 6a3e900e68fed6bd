/* How long until everybody knows that two living ranks do not reach each other any more. The network between one rank and
 * its peers falls silent, towards it, from it or both, while all are in an allreduce or about to enter it. All reach the
 * scheduler all the time. Measures the time until the call of each rank returns, with MUSTER_ERR_LINK, naming that rank.
 *
 *   silent_links [ROUNDS=10] [ROUNDS OF 5 S=3]     prints a table, as CSV; `make detection` builds it and runs it
 *
 * A socket with a filter that lets nothing in acts as the network does: its kernel hears nothing, and acknowledges nothing.
 * Fails if it takes longer than the heartbeat time-out and one interval, or if the sentence is another. */
#include "timing.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum { RANKS = 4, CUT_OFF = 2, LINKS = 16, FDS = 256, TOWARDS = 1, FROM = 2 };
enum { ELEMENTS = 4 << 20 }; /* more than the buffers between two ranks hold */

/* How long the news may take to get around. */
static const double TELLING_S = 0.05;

static struct {
    char port[8]; /* where the scheduler listens */
    const char *time_out;
    atomic_int ready, serves, how, links;
    in_port_t ends[LINKS]; /* the ports of the links of the rank that is cut off, in its own namespace */
    atomic_int told[RANKS], wrong;
    double told_s[RANKS];
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

/* The port of this end of a connection, or of the other; 0: it is no connection. */
static in_port_t port_of(int fd, int (*which)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_in address = {0};
    socklen_t length = sizeof address;
    return which(fd, (struct sockaddr *)&address, &length) == 0 && address.sin_family == AF_INET ? address.sin_port : 0;
}

static int is_link(int fd) {
    in_port_t peer = port_of(fd, getpeername);
    return peer != 0 && ntohs(peer) != atoi(shared->port);
}

static void publish_links(void) {
    for (int fd = 0, at = 0; fd < FDS; fd++) {
        if (is_link(fd)) {
            check(at < LINKS, "more links than are thought of");
            shared->ends[at++] = port_of(fd, getsockname);
            atomic_store(&shared->links, at);
        }
    }
    check(atomic_load(&shared->links) > 0, "it has no link");
}

static int leads_there(int fd) {
    int links = atomic_load(&shared->links), found = 0;
    for (int i = 0; i < links; i++) {
        found |= port_of(fd, getpeername) == shared->ends[i];
    }
    return found;
}

/* Waits for the moment, on a thread of its own, for the rank may be in its call. */
static void *cut(void *own_rank) {
    int rank = *(int *)own_rank;
    await(&shared->how, 1, "nothing is to be cut");
    int how = atomic_load(&shared->how);
    struct sock_filter nothing = {.code = BPF_RET | BPF_K, .k = 0};
    struct sock_fprog filter = {.len = 1, .filter = &nothing};
    for (int fd = 0; fd < FDS; fd++) {
        if (rank == CUT_OFF ? (how & TOWARDS) && is_link(fd) : (how & FROM) && leads_there(fd)) {
            check(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0, "SO_ATTACH_FILTER");
        }
    }
    return NULL;
}

static muster_status_t add_up(muster_cluster_t *cluster, float *sum) {
    return muster_allreduce(muster_world(cluster), sum, sum, ELEMENTS, MUSTER_FLOAT32, MUSTER_SUM);
}

static void be_rank(int rank) {
    muster_config_t *config = settings("MS_WORKER");
    muster_cluster_t *cluster = NULL;
    pthread_t thread;
    char id[16], name[16];
    snprintf(id, sizeof id, "%d", rank);
    snprintf(name, sizeof name, "rank %d (", CUT_OFF);
    set(config, "node_id", id);
    set(config, "sched_port", shared->port);
    check(muster_init(config, &cluster) == MUSTER_OK, "muster_init");
    float *sum = calloc(ELEMENTS, sizeof *sum);
    check(sum != NULL, "calloc");
    check(add_up(cluster, sum) == MUSTER_OK, "the allreduce of a whole cluster");
    if (rank == CUT_OFF) {
        publish_links();
    }
    check(pthread_create(&thread, NULL, cut, &rank) == 0, "pthread_create");
    atomic_fetch_add(&shared->ready, 1);
    if (rank == CUT_OFF) {
        pthread_join(thread, NULL); /* the others wait already */
    }
    muster_status_t status = add_up(cluster, sum);
    shared->told_s[rank] = now_s();
    if (status != MUSTER_ERR_LINK || strstr(muster_last_error(), name) == NULL) {
        fprintf(stderr, "rank %d: %s\n", rank, muster_last_error());
        atomic_fetch_add(&shared->wrong, 1);
    }
    atomic_store(&shared->told[rank], 1);
    for (;;) {
        pause(); /* it must not be lost */
    }
}

/* One cluster, and its silence. Adds the times of all ranks. */
static int fall_silent(const char *time_out, int how, double *times) {
    memset((void *)shared, 0, sizeof *shared);
    shared->time_out = time_out;
    pid_t pid[RANKS + 1];
    for (int i = 0; i < RANKS + 1; i++) {
        pid[i] = child();
        if (pid[i] == 0) {
            if (i == 0) {
                be_scheduler();
            } else {
                be_rank(i - 1);
            }
            _exit(0);
        }
        await(&shared->serves, 1, "the scheduler does not start");
    }
    await(&shared->ready, RANKS, "the cluster does not form");
    nap_ms(100 + rand() % 400); /* any moment of the waiting */
    double begun_s = now_s();
    atomic_store(&shared->how, how);
    for (int rank = 0; rank < RANKS; rank++) {
        await(&shared->told[rank], 1, "a rank is not told");
        times[rank] = shared->told_s[rank] - begun_s;
    }
    for (int i = RANKS; i >= 0; i--) {
        end(pid[i]);
    }
    return atomic_load(&shared->wrong);
}

int main(int argc, char **argv) {
    static const char *const hows[] = {"", "silent towards it", "silent from it", "silent both ways"};
    static const char *const time_outs[] = {"0.5", "5"};
    int rounds[] = {argc > 1 ? atoi(argv[1]) : 10, argc > 2 ? atoi(argv[2]) : 3}, missed = 0, wrong = 0;
    shared = share(sizeof *shared);
    head();
    for (int t = 0; t < 2; t++) {
        for (int how = TOWARDS; how <= (TOWARDS | FROM); how++) {
            double *times = calloc((size_t)rounds[t] * RANKS + 1, sizeof *times);
            char name[64];
            check(times != NULL, "calloc");
            for (int round = 0; round < rounds[t]; round++) {
                wrong += fall_silent(time_outs[t], how, times + round * RANKS);
            }
            snprintf(name, sizeof name, "%s at a time-out of %s s", hows[how], time_outs[t]);
            struct bounds bounds = {0, 0, 1e3 * (atof(time_outs[t]) * 6 / 5 + TELLING_S)};
            if (rounds[t] > 0) {
                missed |= row(name, times, (size_t)rounds[t] * RANKS, bounds);
            }
            fflush(stdout);
            free(times);
        }
    }
    printf("wrong sentences,%d,,,,%s\n", wrong, wrong ? "MISSED" : "");
    return missed || wrong;
}
