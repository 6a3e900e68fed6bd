/* How long ranks take for a small call, by the way in which they wait, beside other programs that want the processors: an
 * 8-byte all-gather (for messages, 8 bytes from rank to rank and back), again and again, and the same over plain blocking
 * sockets.
 *
 *   waits WAY RANKS [COMPETITORS=0] [SECONDS=1]
 *
 * A competitor computes without end, as a process of the same priority. "2s" are two that have a session of their own, to which
 * Linux gives as large a share of the processors as to this one (autogroup). Prints a line of CSV: way, ranks, competitors, calls,
 * and of rank 0 the median, the mean and the 95th percentile of a call in microseconds, and the processor time of all ranks for a
 * call. "step" runs on one rank, and tests a request between pieces of computing: a piece's length in nanoseconds, and how much
 * longer it is with a test. */
#include "timing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { RANKS_MAX = 16, TIMES_MAX = 1 << 20, SEVERAL = 8, AHEAD = 64 };

static struct {
    char port[8];
    uint16_t listens[RANKS_MAX];
    atomic_int serves, listening, ready, begin, done, leave;
    atomic_long stop_at;
    double cpu_s[RANKS_MAX];
    double times[TIMES_MAX];
} *shared;

struct rank {
    int number, ranks;
    muster_group_t *world;
    int socket[RANKS_MAX]; /* to the rank whose number differs by this */
};

static void say(const struct rank *self) {
    int64_t own = self->number, all[RANKS_MAX];
    check(muster_allgather(self->world, &own, all, 1, MUSTER_INT64) == MUSTER_OK, "muster_allgather");
    check(all[self->ranks - 1] == self->ranks - 1, "a wrong result");
}

/* Several calls that are not waited for. */
struct started {
    int64_t own, all[RANKS_MAX];
    muster_request_t *request;
};

static void start(const struct rank *self, struct started *it) {
    it->own = self->number;
    check(muster_iallgather(self->world, &it->own, it->all, 1, MUSTER_INT64, &it->request) == MUSTER_OK, "muster_iallgather");
}

static void wait_for(struct started *it) {
    check(muster_request_wait(it->request, -1) == MUSTER_OK, "muster_request_wait");
    muster_request_free(it->request);
}

static int has_ended(struct started *it) {
    muster_status_t status = muster_request_test(it->request);
    if (status == MUSTER_IN_PROGRESS) {
        return 0;
    }
    check(status == MUSTER_OK, "muster_request_test");
    muster_request_free(it->request);
    it->request = NULL;
    return 1;
}

static void start_and_wait(const struct rank *self) {
    struct started it;
    start(self, &it);
    wait_for(&it);
}

static void start_and_test(const struct rank *self) {
    struct started it;
    start(self, &it);
    while (!has_ended(&it)) {
    }
}

static void start_several_and_wait(const struct rank *self) {
    struct started several[SEVERAL];
    for (int i = 0; i < SEVERAL; i++) {
        start(self, &several[i]);
    }
    for (int i = 0; i < SEVERAL; i++) {
        wait_for(&several[i]);
    }
}

/* Tests them in turn. */
static void start_several_and_test(const struct rank *self) {
    struct started several[SEVERAL];
    for (int i = 0; i < SEVERAL; i++) {
        start(self, &several[i]);
    }
    for (int left = SEVERAL; left > 0;) {
        for (int i = 0; i < SEVERAL; i++) {
            left -= several[i].request != NULL && has_ended(&several[i]);
        }
    }
}

/* A number goes round from rank to rank, and comes back. */
static void pass_round(const struct rank *self) {
    int64_t value = self->number;
    int next = (self->number + 1) % self->ranks, last = (self->number + self->ranks - 1) % self->ranks;
    for (int i = 0; i < 2; i++) {
        int sends = (self->number == 0) == (i == 0);
        check((sends ? muster_send(self->world, &value, 1, MUSTER_INT64, next, 1)
                     : muster_recv(self->world, &value, 1, MUSTER_INT64, last, 1, NULL, 0)) == MUSTER_OK, "a message");
    }
}

static void put(int fd, const void *bytes, size_t count) {
    check(write(fd, bytes, count) == (ssize_t)count, "write");
}

static void get(int fd, void *bytes, size_t count) {
    check(recv(fd, bytes, count, MSG_WAITALL) == (ssize_t)count, "read");
}

/* The yardstick: a doubling all-gather, as the library has it on two and four ranks. */
static void say_on_sockets(const struct rank *self) {
    int64_t all[RANKS_MAX];
    all[self->number] = self->number;
    for (int width = 1; width < self->ranks; width *= 2) {
        int own = self->number & ~(width - 1), theirs = own ^ width;
        put(self->socket[width], all + own, (size_t)width * sizeof *all);
        get(self->socket[width], all + theirs, (size_t)width * sizeof *all);
    }
    check(all[self->ranks - 1] == self->ranks - 1, "a wrong result");
}

static void pass_round_on_sockets(const struct rank *self) {
    int64_t value = self->number;
    int next = (self->number + 1) % self->ranks, last = (self->number + self->ranks - 1) % self->ranks;
    for (int i = 0; i < 2; i++) {
        if ((self->number == 0) == (i == 0)) {
            put(self->socket[self->number ^ next], &value, sizeof value);
        } else {
            get(self->socket[self->number ^ last], &value, sizeof value);
        }
    }
}

static const struct way {
    const char *name;
    void (*call)(const struct rank *);
    int on_sockets;
} ways[] = {
    {"sockets", say_on_sockets, 1},
    {"allgather", say, 0},
    {"sockets_messages", pass_round_on_sockets, 1},
    {"messages", pass_round, 0},
    {"request_wait", start_and_wait, 0},
    {"request_test", start_and_test, 0},
    {"several_wait", start_several_and_wait, 0},
    {"several_test", start_several_and_test, 0},
};

static void hurry(int fd) {
    int on = 1;
    check(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "a socket");
}

/* A connection to each other rank: the higher one connects. */
static void connect_to_others(struct rank *self) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, RANKS_MAX) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    shared->listens[self->number] = address.sin_port;
    atomic_fetch_add(&shared->listening, 1);
    await(&shared->listening, self->ranks, "a rank does not listen");
    for (int other = 0; other < self->number; other++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        address.sin_port = shared->listens[other];
        check(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
        hurry(fd);
        put(fd, &self->number, sizeof self->number);
        self->socket[self->number ^ other] = fd;
    }
    for (int other = self->number + 1; other < self->ranks; other++) {
        int fd = accept(listener, NULL, NULL), whose = 0;
        hurry(fd);
        get(fd, &whose, sizeof whose);
        self->socket[self->number ^ whose] = fd;
    }
}

static muster_config_t *settings(const char *role, int ranks) {
    muster_config_t *config = NULL;
    char number[16];
    check(muster_config_new(MUSTER_ABI_VERSION, &config) == MUSTER_OK, "settings");
    snprintf(number, sizeof number, "%d", ranks);
    set(config, "role", role);
    set(config, "worker_num", number);
    set(config, "sched_host", "127.0.0.1");
    set(config, "sched_port", shared->port);
    return config;
}

static void be_scheduler(int ranks) {
    muster_scheduler_t *scheduler = serve(settings("MS_SCHED", ranks), shared->port, sizeof shared->port);
    atomic_store(&shared->serves, 1);
    muster_scheduler_wait(scheduler, INT64_MAX);
    muster_scheduler_free(scheduler);
}

static double cpu_s(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* All ranks make the same number of calls. Rank 0 sees that the time is up, and names a call at which to stop, further on
 * than any rank can be. */
static void call_again_and_again(const struct rank *self, const struct way *way, double seconds) {
    for (int i = 0; i < 20; i++) {
        way->call(self);
    }
    atomic_fetch_add(&shared->ready, 1);
    await(&shared->begin, 1, "the beginning");
    double begin = now_s(), last = begin, cpu = cpu_s();
    for (long i = 0; i < atomic_load(&shared->stop_at); i++) {
        way->call(self);
        if (self->number == 0) {
            double now = now_s();
            shared->times[i] = now - last;
            last = now;
            if ((now - begin > seconds || i == TIMES_MAX - 2 * AHEAD) && atomic_load(&shared->stop_at) == TIMES_MAX) {
                atomic_store(&shared->stop_at, i + AHEAD);
            }
        }
    }
    shared->cpu_s[self->number] = cpu_s() - cpu;
    atomic_fetch_add(&shared->done, 1);
}

static void be_rank(int number, int ranks, const struct way *way, double seconds) {
    struct rank self = {.number = number, .ranks = ranks};
    if (way->on_sockets) {
        connect_to_others(&self);
        call_again_and_again(&self, way, seconds);
        return;
    }
    muster_config_t *config = settings("MS_WORKER", ranks);
    muster_cluster_t *cluster = NULL;
    char id[16];
    snprintf(id, sizeof id, "%d", number);
    set(config, "node_id", id);
    check(muster_init(config, &cluster) == MUSTER_OK, "muster_init");
    self.world = muster_world(cluster);
    call_again_and_again(&self, way, seconds);
    check(muster_finalize(cluster) == MUSTER_OK, "muster_finalize");
    muster_cluster_free(cluster);
}

static void compete(int apart) {
    if (apart) {
        setsid();
    }
    for (volatile long i = 0;; i++) {
    }
}

static void measure(const struct way *way, int ranks, const char *competitors, double seconds) {
    int rivals = atoi(competitors), apart = strchr(competitors, 's') != NULL, number = 0;
    pid_t pid[1 + RANKS_MAX + 64];
    atomic_store(&shared->stop_at, TIMES_MAX);
    strcpy(shared->port, "0");
    for (int i = way->on_sockets ? 0 : -1; i < ranks; i++) {
        if ((pid[number++] = child()) == 0) {
            if (i < 0) {
                be_scheduler(ranks);
            } else {
                be_rank(i, ranks, way, seconds);
            }
            _exit(0);
        }
        if (i < 0) {
            await(&shared->serves, 1, "the scheduler does not start");
        }
    }
    await(&shared->ready, ranks, "a rank is not ready");
    int first_rival = number;
    for (int i = 0; i < rivals; i++) {
        if ((pid[number++] = child()) == 0) {
            compete(apart);
        }
    }
    nap_ms(100);
    atomic_store(&shared->begin, 1);
    await(&shared->done, ranks, "a rank has not ended");
    while (number > first_rival) {
        end(pid[--number]);
    }
    while (number > 0) {
        int status = 0;
        check(waitpid(pid[--number], &status, 0) > 0 && status == 0, "a process failed");
    }
    size_t count = (size_t)atomic_load(&shared->stop_at);
    double sum = 0, used = 0;
    for (size_t i = 0; i < count; i++) {
        sum += shared->times[i];
    }
    for (int i = 0; i < ranks; i++) {
        used += shared->cpu_s[i];
    }
    qsort(shared->times, count, sizeof *shared->times, ascending);
    printf("%s,%d,%s,%zu,%.2f,%.2f,%.2f,%.2f\n", way->name, ranks, competitors, count, 1e6 * shared->times[count / 2],
           1e6 * sum / (double)count, 1e6 * shared->times[count * 95 / 100], 1e6 * used / (double)count);
}

static double pieces_s(long turns, int pieces, muster_request_t *request) {
    double begin = now_s();
    for (int i = 0; i < pieces; i++) {
        for (volatile long turn = 0; turn < turns; turn++) {
        }
        if (request != NULL) {
            check(muster_request_test(request) == MUSTER_IN_PROGRESS, "it ended too soon");
        }
    }
    return now_s() - begin;
}

/* A cluster of one waits for a message that it sends itself later. */
static void step(void) {
    enum { PIECES = 2000, ROUNDS = 31 };
    static const long turns[] = {0, 100, 1000, 10000};
    muster_cluster_t *cluster = NULL;
    muster_request_t *request = NULL;
    int64_t value = 1;
    check(muster_init(NULL, &cluster) == MUSTER_OK, "muster_init");
    muster_group_t *world = muster_world(cluster);
    check(muster_irecv(world, &value, 1, MUSTER_INT64, 0, 1, NULL, 0, &request) == MUSTER_OK, "muster_irecv");
    printf("piece_ns,more_with_a_test_ns\n");
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        double without[ROUNDS], with[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            without[round] = pieces_s(turns[i], PIECES, NULL);
            with[round] = pieces_s(turns[i], PIECES, request);
        }
        qsort(without, ROUNDS, sizeof *without, ascending);
        qsort(with, ROUNDS, sizeof *with, ascending);
        double piece = 1e9 * without[ROUNDS / 4] / PIECES;
        printf("%.0f,%.1f\n", piece, 1e9 * with[ROUNDS / 4] / PIECES - piece);
    }
    check(muster_send(world, &value, 1, MUSTER_INT64, 0, 1) == MUSTER_OK, "muster_send");
    check(muster_request_wait(request, -1) == MUSTER_OK, "muster_request_wait");
    muster_request_free(request);
    check(muster_finalize(cluster) == MUSTER_OK, "muster_finalize");
    muster_cluster_free(cluster);
}

int main(int argc, char **argv) {
    int ranks = argc > 2 ? atoi(argv[2]) : 0;
    const char *competitors = argc > 3 ? argv[3] : "0";
    double seconds = argc > 4 ? atof(argv[4]) : 1;
    if (argc == 2 && strcmp(argv[1], "step") == 0) {
        step();
        return 0;
    }
    const struct way *way = NULL;
    for (size_t i = 0; argc > 2 && i < sizeof ways / sizeof *ways; i++) {
        way = strcmp(argv[1], ways[i].name) == 0 ? &ways[i] : way;
    }
    if (way == NULL || ranks < 2 || ranks > RANKS_MAX || (ranks & (ranks - 1)) != 0 || atoi(competitors) > 64 || seconds <= 0) {
        fprintf(stderr, "usage: waits WAY RANKS [COMPETITORS[s]] [SECONDS], on 2, 4, 8 or 16 ranks; or: waits step\nways:");
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            fprintf(stderr, " %s", ways[i].name);
        }
        fprintf(stderr, "\n");
        return 2;
    }
    shared = share(sizeof *shared);
    measure(way, ranks, competitors, seconds);
    return 0;
}
