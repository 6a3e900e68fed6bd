/* With recovery: a lost rank comes back, however it is known. Nodes and the scheduler are killed and started again, one,
 * several, all. The others call muster_recover, and all go on from the newest step that everyone has. Ranks, groups and
 * sums are what they were. */
#include "check.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 5, EPOCHS = 8, STEPS = 30, LIMIT_MS = 25000, SCHEDULER = NODES };
/* How long a question to a scheduler that is away waits: 250 ms; the rest is for a busy machine. */
static const double UNCONFIRMED_S = 2;

/* A job: how its processes are told what they are, and what happens to them. */
struct job {
    const char *name;
    int nodes, servers;
    enum { BY_ID, BY_RANK_ID, BY_LAUNCHER } known; /* by a launcher: rank 0 hosts the scheduler, which else is a process of its own */
    const char *const *ids;
    /* What happens, step by step. K with a node: it is killed. S: it is started. F: it frees its cluster and joins again in
     * the same process. k and s: the scheduler is killed, is started. !: all others have heard of it. A dot: all go on, in
     * the next epoch. _: all go on in the same epoch. */
    const char *script;
    bool tells; /* all are told of all losses, alike, before one of them recovers */
};

static const char *const numbers[] = {"0", "1", "2", "3", "4"};
static const char *const words_as_ids[] = {"worker_b", "worker_a", "parameters"};

static const struct job jobs[] = {
    {"one, several, all, with and without the scheduler", 4, 0, BY_ID, numbers, "K2S2. k_s K0K3S3S0. kK1!S1s. kK0K1K2K3S0S1S2S3s.", false},
    {"several at once, and all but one", 5, 0, BY_ID, numbers, "K1K3S1S3. K0K1K2K4S4S2S1S0.", true},
    {"ranks of a launcher, of whom the first hosts the scheduler", 3, 0, BY_LAUNCHER, NULL, "K0S0. F1. K2S2. K0S0.", false},
    {"workers and a server by ids that are no numbers", 3, 1, BY_ID, words_as_ids, "K2S2. ks K2S2. K0S0. F2.", false},
    {"the only worker of a job", 1, 0, BY_ID, words_as_ids, "K0S0. F0. ks K0S0.", false},
    {"known by its launcher's rank alone", 2, 0, BY_RANK_ID, NULL, "K1S1.", true},
};

/* What outlives a process: its checkpoint, and what the parent looks at. */
static struct shared {
    atomic_int stood[NODES][EPOCHS]; /* that it took part in this epoch, with so many restarts and one more */
    atomic_int until;                /* the epoch in which all leave */
    atomic_int frees;                /* the node that frees its cluster and joins again */
    atomic_int step[NODES];
    int64_t sum[NODES];
    atomic_int lost[EPOCHS]; /* the nodes that are lost in it, a bit each */
    atomic_bool is_unconfirmed[EPOCHS]; /* the scheduler was away then */
    double killed_s;
    pid_t pid[NODES], lost_pid[EPOCHS][NODES];
    atomic_bool heard[EPOCHS][NODES];
    char told[EPOCHS][NODES][WORDS_BYTES];
    char broken[WORDS_BYTES]; /* what the scheduler said last of a job that is broken */
    atomic_int started_again; /* how often a scheduler has said so of itself */
} *shared;

static const struct job *job;
static char path[40], port[8];

static void rest(void) {
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
}

/* One step. It adds the same to every rank's sum, whichever rank has died meanwhile. */
static muster_status_t step(muster_group_t *all, muster_group_t *half, int64_t number, int64_t *sum) {
    int rank = muster_group_rank(all), size = muster_group_size(all);
    int64_t mine = number * (rank + 1), of_all = 0, of_half = 0, expected = 0;
    muster_status_t status = muster_allreduce(all, &mine, &of_all, 1, MUSTER_INT64, MUSTER_SUM);
    if (status == MUSTER_OK) {
        CHECK_IS(number * size * (size + 1) / 2, of_all);
        status = muster_allreduce(half, &mine, &of_half, 1, MUSTER_INT64, MUSTER_SUM);
    }
    for (int other = rank % 2; other < size; other += 2) {
        expected += number * (other + 1);
    }
    if (status == MUSTER_OK) {
        CHECK_IS(expected, of_half);
        *sum += of_all;
    }
    return status;
}

/* All go back to the newest step that everyone has. */
static muster_status_t agree(muster_group_t *all, int index, int64_t *number, int64_t *sum) {
    int64_t own = atomic_load(&shared->step[index]), agreed = 0;
    int size = muster_group_size(all);
    muster_status_t status = muster_allreduce(all, &own, &agreed, 1, MUSTER_INT64, MUSTER_MIN);
    if (status == MUSTER_OK) {
        CHECK(agreed == own || agreed == own - 1); /* a step ends for all or is repeated by all */
        *sum = shared->sum[index] - (own - agreed) * own * size * (size + 1) / 2;
        *number = agreed;
    }
    return status;
}

static bool is_in(int mask, int index) { return (mask >> index & 1) != 0; }

/* It has heard of a loss: by name, and in the end of all of them. */
static void hears(muster_cluster_t *cluster, int index, int64_t epoch) {
    char name[64], *words = shared->told[epoch][index];
    muster_failure_t failure;
    double limit = now_s() + 30 * patience();
    int mask = atomic_load(&shared->lost[epoch]), known = 0;
    snprintf(words, WORDS_BYTES, "%s", muster_last_error());
    CHECK_OK(muster_failure(cluster, &failure, sizeof failure));
    CHECK(failure.rank >= 0 && failure.rank < job->nodes && is_in(mask, failure.rank));
    CHECK_IS(shared->lost_pid[epoch][failure.rank], failure.pid);
    snprintf(name, sizeof name, "rank %d (node id \"%s%d\", host ", failure.rank, job->known == BY_RANK_ID ? "rank " : "", failure.rank);
    CHECK(strncmp(words, name, strlen(name)) == 0);
    CHECK(strstr(strstr(words, "node id") + 1, "node id") == NULL);
    if (atomic_load(&shared->is_unconfirmed[epoch])) {
        CHECK_CONTAINS(words, "is probably lost, unconfirmed");
        CHECK(now_s() - shared->killed_s < UNCONFIRMED_S * patience());
        return;
    }
    while (known != mask) {
        int32_t failed[NODES];
        size_t count = 0;
        CHECK(now_s() < limit);
        CHECK_OK(muster_failed_ranks(cluster, failed, NODES, &count));
        known = 0;
        for (size_t i = 0; i < count; i++) {
            known |= 1 << failed[i];
        }
        rest();
    }
}

/* The groups that a life has made, and where it is. */
struct life {
    muster_group_t *half, *pair;
    bool has_paired, has_agreed;
    int64_t number, sum;
};

/* Makes the groups that are missing, and one step. Returns whether that was the last step. */
static muster_status_t goes_on(muster_group_t *all, int index, int64_t epoch, struct life *life, int32_t *over) {
    int rank = muster_group_rank(all), size = muster_group_size(all);
    const int32_t ends[] = {size - 1, 0};
    int32_t own = atomic_load(&shared->until) == epoch;
    muster_status_t status = MUSTER_OK;
    if (life->half == NULL) {
        status = muster_group_split(all, rank % 2, rank, &life->half);
    }
    if (status == MUSTER_OK && !life->has_paired) {
        status = muster_group_create(all, ends, size > 1 ? 2 : 1, &life->pair);
        life->has_paired = status == MUSTER_OK;
    }
    if (status == MUSTER_OK && !life->has_agreed) {
        status = agree(all, index, &life->number, &life->sum);
        life->has_agreed = status == MUSTER_OK;
    }
    if (status == MUSTER_OK) {
        status = step(all, life->half, life->number + 1, &life->sum);
    }
    if (status == MUSTER_OK) {
        shared->sum[index] = life->sum;
        atomic_store(&shared->step[index], (int)++life->number);
        status = muster_allreduce(all, &own, over, 1, MUSTER_INT32, MUSTER_MIN);
    }
    return status;
}

/* Takes part until the job is over. */
static void takes_part(muster_cluster_t *cluster, int index) {
    muster_group_t *all = muster_universe(cluster);
    struct life life = {0};
    int32_t over = 0;
    CHECK(muster_group_rank(all) >= 0);
    while (!over) {
        int64_t epoch = muster_epoch(cluster);
        int frees = index;
        CHECK(epoch > 0 && epoch < EPOCHS);
        muster_status_t status = goes_on(all, index, epoch, &life, &over);
        if (status != MUSTER_OK) {
            CHECK(status == MUSTER_ERR_PEER_LOST || (status == MUSTER_ERR_REVOKED && !job->tells));
            if (job->tells || (status == MUSTER_ERR_PEER_LOST && atomic_load(&shared->is_unconfirmed[epoch]))) {
                hears(cluster, index, epoch);
                atomic_store(&shared->heard[epoch][index], true);
            }
            CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
            CHECK(muster_epoch(cluster) > epoch);
            life.has_agreed = false;
            continue;
        }
        atomic_store(&shared->stood[index][epoch], muster_restarts(cluster) + 1);
        rest();
        if (!over && atomic_compare_exchange_strong(&shared->frees, &frees, -1)) {
            muster_cluster_free(cluster);
            CHECK_OK(muster_init(NULL, &cluster));
            CHECK_IS(epoch + 1, muster_epoch(cluster));
            takes_part(cluster, index);
            return;
        }
    }
    if (life.pair != NULL) {
        CHECK_IS(muster_group_rank(all) == 0 ? muster_group_size(life.pair) - 1 : 0, muster_group_rank(life.pair));
        CHECK_OK(muster_barrier(life.pair));
    }
    CHECK_OK(muster_barrier(all));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void set(const char *name, const char *value) { CHECK(setenv(name, value, 1) == 0); }

static void set_number(const char *name, int value) {
    char number[16];
    snprintf(number, sizeof number, "%d", value);
    set(name, number);
}

static void settings_of(int index) {
    int workers = job->nodes - job->servers;
    set("MS_ENABLE_RECOVERY", "1");
    set("MS_RECOVERY_PATH", path);
    set("MS_NODE_TIMEOUT", patience() > 1 ? "60" : "2");
    set("MS_CLUSTER_TIMEOUT", patience() > 1 ? "600" : "60");
    if (job->known == BY_LAUNCHER) {
        set_number("RANK", index);
        set_number("LOCAL_RANK", index);
        set_number("WORLD_SIZE", job->nodes);
        set_number("LOCAL_WORLD_SIZE", job->nodes);
        set("MASTER_ADDR", "127.0.0.1");
        set_number("MASTER_PORT", atoi(port) - 2);
        return;
    }
    set("MS_ROLE", index == SCHEDULER ? "MS_SCHED" : index < workers ? "MS_WORKER" : "MS_PSERVER");
    set_number("MS_WORKER_NUM", workers);
    set_number("MS_SERVER_NUM", job->servers);
    set("MS_SCHED_HOST", "127.0.0.1");
    set("MS_SCHED_PORT", port);
    if (index != SCHEDULER && job->known == BY_ID) {
        set("MS_NODE_ID", job->ids[index]);
    } else if (index != SCHEDULER) {
        set_number("RANK_ID", index);
    }
}

/* What the scheduler says. */
static void listen_to(int32_t level, const char *target, const char *message, void *context) {
    static const char broken[] = "the job is broken: ";
    (void)level;
    (void)target;
    (void)context;
    if (strncmp(message, broken, sizeof broken - 1) == 0) {
        snprintf(shared->broken, WORDS_BYTES, "%s", message + sizeof broken - 1);
    }
    if (strstr(message, "this scheduler was started again") != NULL) {
        atomic_fetch_add(&shared->started_again, 1);
    }
}

static void be(int index) {
    muster_cluster_t *cluster = NULL;
    settings_of(index);
    if (index == SCHEDULER) {
        CHECK_OK(muster_set_log_callback(MUSTER_LOG_WARNING, listen_to, NULL));
        CHECK_IS(MUSTER_SCHEDULER_DONE, muster_init(NULL, &cluster));
        return;
    }
    CHECK_OK(muster_init(NULL, &cluster));
    if (job->ids != words_as_ids) {
        CHECK_IS(index, muster_rank(cluster));
    }
    takes_part(cluster, index);
}

static pid_t start(int index) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be(index);
        _exit(0);
    }
    if (index != SCHEDULER) {
        shared->pid[index] = pid;
    }
    return pid;
}

static void ends_well(pid_t pid) {
    int status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void die(pid_t pid) {
    CHECK(kill(pid, SIGKILL) == 0);
    await_child(pid);
}

/* All stand in an epoch, having come back so often. */
static void await_epoch(int epoch, const int *restarts) {
    double limit = now_s() + 40 * patience();
    for (int index = 0; index < job->nodes; index++) {
        while (atomic_load(&shared->stood[index][epoch]) == 0) {
            CHECK(now_s() < limit);
            rest();
        }
        CHECK_IS(restarts[index] + 1, atomic_load(&shared->stood[index][epoch]));
    }
}

/* All make some steps more, in this epoch. */
static void await_steps(int epoch) {
    double limit = now_s() + 40 * patience();
    for (int index = 0; index < job->nodes; index++) {
        int until = atomic_load(&shared->step[index]) + STEPS;
        while (atomic_load(&shared->step[index]) < until) {
            CHECK(now_s() < limit);
            rest();
        }
        CHECK_IS(0, atomic_load(&shared->stood[index][epoch + 1]));
    }
}

/* The nodes that were not lost in this epoch have heard of it. */
static void await_heard(int epoch) {
    double limit = now_s() + 40 * patience();
    for (int index = 0; index < job->nodes; index++) {
        while (!is_in(atomic_load(&shared->lost[epoch]), index) && !atomic_load(&shared->heard[epoch][index])) {
            CHECK(now_s() < limit);
            rest();
        }
    }
}

/* The nodes that were not lost in this epoch have heard the same, and the scheduler says the same. A thread of its own writes
 * its log: so the line may come later than the nodes hear. */
static void await_told(int epoch) {
    double limit = now_s() + 40 * patience();
    for (int index = 0; index < job->nodes; index++) {
        while (!is_in(atomic_load(&shared->lost[epoch]), index) && strcmp(shared->told[epoch][index], shared->broken) != 0) {
            if (now_s() >= limit) {
                fprintf(stderr, "node %d heard: %s\nthe scheduler says: %s\n", index, shared->told[epoch][index], shared->broken);
                CHECK(now_s() < limit);
            }
            rest();
        }
    }
}

/* A port that was free just now. */
static void free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(socket_fd >= 0 && bind(socket_fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(socket_fd, (struct sockaddr *)&address, &length) == 0);
    snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
    close(socket_fd);
}

/* Removes what the job has kept. */
static void remove_all(void) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[512];
        struct stat about;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') {
            CHECK(stat(name, &about) == 0 && (about.st_mode & 077) == 0); /* one that reads a token can take a place */
            CHECK(unlink(name) == 0);
        }
    }
    closedir(directory);
    CHECK(rmdir(path) == 0);
}

/* Does what the script says. Returns the epoch in which all are in the end. */
static int follow(pid_t *scheduler) {
    int restarts[NODES] = {0}, epoch = 1, started = 0;
    bool is_away = false;
    await_epoch(epoch, restarts);
    for (const char *act = job->script; *act != '\0'; act++) {
        int index = act[1] - '0';
        if (*act == 'K' || *act == 'F') { /* all of them are known to be lost before the first is */
            int mask = atomic_load(&shared->lost[epoch]);
            for (const char *next = act; *next == 'K' || *next == 'F'; next += 2) {
                mask |= 1 << (next[1] - '0');
                shared->lost_pid[epoch][next[1] - '0'] = shared->pid[next[1] - '0'];
            }
            atomic_store(&shared->lost[epoch], mask);
            atomic_store(&shared->is_unconfirmed[epoch], is_away);
            restarts[index]++;
        }
        switch (*act) {
        case 'K':
            shared->killed_s = now_s();
            die(shared->pid[index]);
            act++;
            break;
        case 'S': start(index); act++; break;
        case 'F': atomic_store(&shared->frees, index); act++; break;
        case 'k':
            is_away = true;
            die(*scheduler);
            break;
        case 's':
            is_away = false;
            *scheduler = start(SCHEDULER);
            started++;
            break;
        case '_': await_steps(epoch); break;
        case '!': await_heard(epoch); break;
        case '.':
            await_epoch(epoch + 1, restarts);
            if (job->tells) {
                await_told(epoch);
            }
            epoch++;
            break;
        }
    }
    CHECK_IS(started, atomic_load(&shared->started_again));
    return epoch;
}

static void runs(void) {
    pid_t scheduler = 0;
    fprintf(stderr, "%s\n", job->name);
    memset(shared, 0, sizeof *shared);
    atomic_store(&shared->frees, -1);
    snprintf(path, sizeof path, "/tmp/muster-returns-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    free_port();
    for (int index = 0; index < job->nodes; index++) {
        start(index);
    }
    if (job->known != BY_LAUNCHER) {
        scheduler = start(SCHEDULER);
    }
    atomic_store(&shared->until, follow(&scheduler));
    for (int index = 0; index < job->nodes; index++) {
        ends_well(shared->pid[index]);
    }
    if (job->known != BY_LAUNCHER) {
        ends_well(scheduler);
    }
    int64_t steps = atomic_load(&shared->step[0]);
    for (int index = 0; index < job->nodes; index++) {
        CHECK_IS(steps, atomic_load(&shared->step[index]));
        CHECK_IS(steps * (steps + 1) / 2 * job->nodes * (job->nodes + 1) / 2, shared->sum[index]);
    }
    remove_all();
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        job = &jobs[i];
        runs();
    }
    return 0;
}
