/* The cluster comes from the environment alone: the same program is scheduler, worker or server as MS_ROLE says.
 * And which source of a setting beats which. */
#include "check.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { WORKERS = 3, SERVERS = 1, PROCESSES = 1 + WORKERS + SERVERS };

/* A listening socket on a port of the system's choice, to be handed to the scheduler as `muster run` does. */
static int listen_anywhere(char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    snprintf(port, 8, "%u", (unsigned)ntohs(address.sin_port));
    return fd;
}

static void be_scheduler(int listener) {
    muster_cluster_t *cluster = (muster_cluster_t *)(uintptr_t)64;
    char fd[16];
    snprintf(fd, sizeof fd, "%d", listener);
    setenv("MS_ROLE", "MS_SCHED", 1);
    setenv("MUSTER_SCHED_FD", fd, 1);
    CHECK_IS(MUSTER_SCHEDULER_DONE, muster_init(NULL, &cluster));
    CHECK(cluster == NULL);
}

static void be_node(const char *role) {
    muster_cluster_t *cluster = NULL;
    float mine = 0;
    float all[WORKERS + SERVERS];
    setenv("MS_ROLE", role, 1);
    CHECK_OK(muster_init(NULL, &cluster));
    mine = (float)muster_group_rank(muster_universe(cluster));
    CHECK_OK(muster_allgather(muster_universe(cluster), &mine, all, 1, MUSTER_FLOAT32));
    for (int i = 0; i < WORKERS + SERVERS; i++) {
        CHECK(all[i] == (float)i);
    }
    CHECK_IS(strcmp(role, "MS_WORKER") == 0 ? WORKERS : SERVERS, muster_size(cluster));
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
}

static void whole_cluster(void) {
    char port[8];
    pid_t pid[PROCESSES];
    int listener = listen_anywhere(port);
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        CHECK(pid[i] >= 0);
        if (pid[i] > 0) {
            continue;
        }
        setenv("MS_SCHED_HOST", "127.0.0.1", 1);
        setenv("MS_SCHED_PORT", port, 1);
        setenv("MS_WORKER_NUM", "3", 1);
        setenv("MS_SERVER_NUM", "1", 1);
        setenv("MS_CLUSTER_TIMEOUT", "30", 1);
        if (i == PROCESSES - 1) { /* the last to start */
            be_scheduler(listener);
            _exit(0);
        }
        close(listener);
        be_node(i < WORKERS ? "MS_WORKER" : "MS_PSERVER");
        _exit(0);
    }
    close(listener);
    for (int i = 0; i < PROCESSES; i++) {
        int status = await_child(pid[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void expect(muster_config_t *config, const char *key, const char *expected) {
    char value[64];
    CHECK_OK(muster_config_get(config, key, value, sizeof value, NULL));
    if (strcmp(value, expected) != 0) {
        fprintf(stderr, "    %s is \"%s\", expected \"%s\"\n", key, value, expected);
    }
    CHECK(strcmp(value, expected) == 0);
}

/* muster_config_set beats MUSTER_..., which beats MS_..., which beats another launcher's, which beats the default. */
static void precedence(void) {
    muster_config_t *config = NULL;
    setenv("RANK_SIZE", "5", 1);
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_IS(MUSTER_ERR_NOT_FOUND, muster_config_get(config, "worker_num", NULL, 0, NULL)); /* new ones are empty */
    expect(config, "node_timeout", "5");
    setenv("MS_NODE_TIMEOUT", "6", 1);
    CHECK_OK(muster_config_load_env(config));
    expect(config, "worker_num", "5");
    expect(config, "node_timeout", "6");
    setenv("MS_WORKER_NUM", "6", 1);
    CHECK_OK(muster_config_load_env(config));
    expect(config, "worker_num", "6");
    setenv("MUSTER_WORKER_NUM", "7", 1);
    CHECK_OK(muster_config_load_env(config));
    expect(config, "worker_num", "7");
    CHECK_OK(muster_config_set(config, "worker_num", "8"));
    expect(config, "worker_num", "8");
    CHECK_OK(muster_config_load_env(config)); /* never overwrites what was set */
    expect(config, "worker_num", "8");
    muster_config_free(config);
}

/* Values that are not right are found where they count, and named. */
static void bad_values(void) {
    muster_cluster_t *none = NULL;
    setenv("MS_ROLE", "MS_WORKER", 1);
    setenv("MS_SCHED_HOST", "127.0.0.1", 1);
    setenv("MS_WORKER_NUM", "1", 1);
    setenv("MS_SCHED_PORT", "80x", 1);
    CHECK_FAILS(MUSTER_ERR_CONFIG, "MS_SCHED_PORT is \"80x\"", muster_init(NULL, &none));
    setenv("MS_SCHED_PORT", "80", 1);
    CHECK_FAILS(MUSTER_ERR_CONFIG, "1024", muster_init(NULL, &none));
    setenv("MS_SCHED_PORT", "70000", 1);
    CHECK_FAILS(MUSTER_ERR_CONFIG, "65535", muster_init(NULL, &none));
    setenv("MS_SCHED_PORT", "8118", 1);
    setenv("MS_ROLE", "WORKER", 1);
    CHECK_FAILS(MUSTER_ERR_CONFIG, "MS_PSERVER", muster_init(NULL, &none)); /* lists the three */
    unsetenv("MS_ROLE");
    CHECK_FAILS(MUSTER_ERR_CONFIG, "MS_ROLE", muster_init(NULL, &none));
    CHECK(none == NULL);
}

static void in_a_child(void (*test)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        test();
        _exit(0);
    }
    int status = await_child(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    whole_cluster();
    in_a_child(precedence);
    in_a_child(bad_values);
    return 0;
}
