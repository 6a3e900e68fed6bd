/* With recovery: who comes back, however it is known. Ranks of a launcher, where rank 0 hosts the scheduler and dies with it;
 * workers and servers by node ids that are no numbers; the only worker of a job; one that frees its cluster and joins again in
 * the same process. */
#include "check.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 4, EPOCHS = 6, LIMIT_MS = 25000, SCHEDULER = NODES };

/* A job: how its processes are told what they are. */
struct job {
    int nodes;
    bool is_hosted; /* by rank 0; else the scheduler is a process of its own, the last one */
    const char *workers, *servers;
    const char *const *ids; /* NULL: ranks of a launcher */
    char port[8], path[40];
};

static struct shared {
    atomic_int stood[NODES][EPOCHS]; /* that it took part in this epoch, with so many restarts and one more */
    atomic_int until;                /* the epoch in which all leave */
    atomic_int frees;                /* who frees its cluster and joins again */
} *shared;

static void rest(void) {
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
}

/* Takes part until the job is over. */
static void takes_part(muster_cluster_t *cluster, int index) {
    muster_group_t *all = muster_universe(cluster);
    CHECK(muster_group_rank(all) >= 0);
    for (;;) {
        int64_t epoch = muster_epoch(cluster);
        CHECK(epoch > 0 && epoch < EPOCHS);
        int32_t own = atomic_load(&shared->until) == epoch, over = 0;
        muster_status_t status = muster_allreduce(all, &own, &over, 1, MUSTER_INT32, MUSTER_MIN);
        if (status != MUSTER_OK) {
            CHECK(status == MUSTER_ERR_PEER_LOST || status == MUSTER_ERR_REVOKED);
            CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
            CHECK(muster_epoch(cluster) > epoch);
            continue;
        }
        atomic_store(&shared->stood[index][epoch], muster_restarts(cluster) + 1);
        if (over) {
            return;
        }
        rest();
        int frees = index;
        if (atomic_compare_exchange_strong(&shared->frees, &frees, -1)) {
            muster_cluster_free(cluster);
            CHECK_OK(muster_init(NULL, &cluster));
            CHECK_IS(epoch + 1, muster_epoch(cluster));
            takes_part(cluster, index);
            CHECK_OK(muster_finalize(cluster));
            muster_cluster_free(cluster);
            _exit(0);
        }
    }
}

static void set(const char *name, const char *value) { CHECK(setenv(name, value, 1) == 0); }

static void be(const struct job *job, int index) {
    char number[16];
    set("MS_ENABLE_RECOVERY", "1");
    set("MS_RECOVERY_PATH", job->path);
    set("MS_NODE_TIMEOUT", patience() > 1 ? "60" : "2");
    set("MS_CLUSTER_TIMEOUT", patience() > 1 ? "600" : "60");
    if (job->ids == NULL) {
        snprintf(number, sizeof number, "%d", index);
        set("RANK", number);
        set("LOCAL_RANK", number);
        snprintf(number, sizeof number, "%d", job->nodes);
        set("WORLD_SIZE", number);
        set("LOCAL_WORLD_SIZE", number);
        set("MASTER_ADDR", "127.0.0.1");
        snprintf(number, sizeof number, "%d", atoi(job->port) - 2);
        set("MASTER_PORT", number);
    } else {
        int workers = atoi(job->workers);
        set("MS_ROLE", index == SCHEDULER ? "MS_SCHED" : index < workers ? "MS_WORKER" : "MS_PSERVER");
        set("MS_WORKER_NUM", job->workers);
        set("MS_SERVER_NUM", job->servers);
        set("MS_SCHED_HOST", "127.0.0.1");
        set("MS_SCHED_PORT", job->port);
        if (index != SCHEDULER) {
            set("MS_NODE_ID", job->ids[index]);
        }
    }
    muster_cluster_t *cluster = NULL;
    muster_status_t status = muster_init(NULL, &cluster);
    if (index == SCHEDULER) {
        CHECK_IS(MUSTER_SCHEDULER_DONE, status);
        return;
    }
    CHECK_OK(status);
    if (job->ids == NULL) {
        CHECK_IS(index, muster_rank(cluster));
    }
    takes_part(cluster, index);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static pid_t start(const struct job *job, int index) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be(job, index);
        _exit(0);
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

/* All stand in an epoch; `restarted` came back once more, if it is one of them. */
static void await_epoch(const struct job *job, int epoch, const int *restarts) {
    double limit = now_s() + 40 * patience();
    for (int index = 0; index < job->nodes; index++) {
        while (atomic_load(&shared->stood[index][epoch]) == 0) {
            CHECK(now_s() < limit);
            rest();
        }
        CHECK_IS(restarts[index] + 1, atomic_load(&shared->stood[index][epoch]));
    }
}

/* A port that was free just now. */
static void free_port(char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(socket_fd >= 0 && bind(socket_fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(socket_fd, (struct sockaddr *)&address, &length) == 0);
    snprintf(port, 8, "%d", ntohs(address.sin_port));
    close(socket_fd);
}

/* Each of these is lost in turn: killed, or (with -1 before it) by freeing its cluster. */
static void runs(struct job job, const int *lost, int losses) {
    pid_t pid[NODES + 1];
    int restarts[NODES] = {0}, epoch = 1;
    char command[64];
    memset(shared, 0, sizeof *shared);
    atomic_store(&shared->frees, -1);
    snprintf(job.path, sizeof job.path, "/tmp/muster-lives-XXXXXX");
    CHECK(mkdtemp(job.path) != NULL);
    free_port(job.port);
    for (int index = 0; index < job.nodes; index++) {
        pid[index] = start(&job, index);
    }
    if (!job.is_hosted) {
        pid[SCHEDULER] = start(&job, SCHEDULER);
    }
    for (int i = 0; i <= losses; i++) {
        await_epoch(&job, epoch, restarts);
        if (i == losses) {
            break;
        }
        if (lost[i] == SCHEDULER) {
            die(pid[SCHEDULER]);
            pid[SCHEDULER] = start(&job, SCHEDULER);
            continue;
        }
        int index = lost[i] >= 0 ? lost[i] : -1 - lost[i];
        restarts[index]++;
        epoch++;
        if (lost[i] < 0) {
            atomic_store(&shared->frees, index);
        } else {
            die(pid[index]);
            pid[index] = start(&job, index);
        }
    }
    atomic_store(&shared->until, epoch);
    for (int index = 0; index < job.nodes; index++) {
        ends_well(pid[index]);
    }
    if (!job.is_hosted) {
        ends_well(pid[SCHEDULER]);
    }
    snprintf(command, sizeof command, "rm -r %s", job.path);
    CHECK(system(command) == 0);
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    const int hosts[] = {0, -1, 2, 0};
    runs((struct job){.nodes = 3, .is_hosted = true}, hosts, 4);
    static const char *const ids[] = {"worker_b", "worker_a", "parameters"};
    const int servers[] = {2, SCHEDULER, 2, 0, -2};
    runs((struct job){.nodes = 3, .workers = "2", .servers = "1", .ids = ids}, servers, 5);
    const int only[] = {0, -1, SCHEDULER, 0};
    runs((struct job){.nodes = 1, .workers = "1", .servers = "0", .ids = ids}, only, 4);
    return 0;
}
