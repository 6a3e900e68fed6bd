/* A scheduler inside a program: where it listens, how waiting and stopping end, and what its nodes are told. */
#include "check.h"
#include "nodes.h"
#include "own.h"
#include "ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { NODES = 2 };

static const struct plan plan = {.workers = NODES, .node_ids = rank_ids};

struct node {
    char port[8];
    int index;
    sem_t joined;
    sem_t done;
    muster_status_t status;
    char words[WORDS_BYTES];
    pthread_t thread;
};

static void keep(struct node *node, muster_status_t status) {
    node->status = status;
    snprintf(node->words, sizeof node->words, "%s", muster_last_error());
}

static void *join_and_wait(void *argument) {
    struct node *node = argument;
    muster_cluster_t *cluster = join(&plan, node->port, node->index);
    void *value = NULL;
    size_t len = 0;
    CHECK(sem_post(&node->joined) == 0);
    keep(node, muster_store_get(cluster, "nobody sets this", INT64_MAX, &value, &len));
    CHECK_IS(node->status, muster_barrier(muster_world(cluster)));
    muster_finalize(cluster); /* may say anything, but ends */
    muster_cluster_free(cluster);
    return NULL;
}

static void *join_in_vain(void *argument) {
    struct node *node = argument;
    muster_config_t *config = NULL;
    muster_cluster_t *none = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_set(config, "role", "MS_WORKER"));
    CHECK_OK(muster_config_set(config, "worker_num", "2"));
    CHECK_OK(muster_config_set(config, "sched_host", "127.0.0.1"));
    CHECK_OK(muster_config_set(config, "sched_port", node->port));
    CHECK_OK(muster_config_set(config, "cluster_timeout", "2"));
    keep(node, muster_init(config, &none));
    CHECK(none == NULL);
    muster_config_free(config);
    CHECK(sem_post(&node->done) == 0);
    return NULL;
}

static void start(struct node *node, const char *port, int index, void *(*run)(void *)) {
    strcpy(node->port, port);
    node->index = index;
    CHECK(sem_init(&node->joined, 0, 0) == 0 && sem_init(&node->done, 0, 0) == 0);
    CHECK(pthread_create(&node->thread, NULL, run, node) == 0);
}

/* Stopping ends the job for all nodes that are in it; freeing stops first. */
static void stop_while_used(int by_freeing) {
    char port[8] = "";
    struct node nodes[NODES];
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    for (int i = 0; i < NODES; i++) {
        start(&nodes[i], port, i, join_and_wait);
    }
    for (int i = 0; i < NODES; i++) {
        await(&nodes[i].joined);
    }
    CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 0));
    if (!by_freeing) {
        CHECK_OK(muster_scheduler_stop(scheduler));
        CHECK_IS(MUSTER_ERR_ABORTED, muster_scheduler_wait(scheduler, 0));
        CHECK_OK(muster_scheduler_stop(scheduler));
    }
    muster_scheduler_free(scheduler);
    for (int i = 0; i < NODES; i++) {
        CHECK(pthread_join(nodes[i].thread, NULL) == 0);
        CHECK_IS(MUSTER_ERR_ABORTED, nodes[i].status);
        CHECK_CONTAINS(nodes[i].words, "stopped");
    }
}

static void hear_of_admission(int32_t level, const char *target, const char *message, void *ctx) {
    struct node *node = ctx;
    (void)level, (void)target;
    if (strstr(message, "admitted worker") != NULL) {
        CHECK(sem_post(&node->joined) == 0);
    }
}

/* Nodes that are still to form are told at once. */
static void stop_while_forming(void) {
    char port[8] = "";
    struct node node;
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_INFO, hear_of_admission, &node));
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    start(&node, port, 0, join_in_vain);
    await(&node.joined);
    CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 0));
    CHECK_OK(muster_scheduler_stop(scheduler));
    await(&node.done);
    CHECK(pthread_join(node.thread, NULL) == 0);
    CHECK_IS(MUSTER_ERR_ABORTED, node.status);
    CHECK_CONTAINS(node.words, "stopped");
    muster_scheduler_free(scheduler);
    CHECK_OK(muster_set_log_callback(MUSTER_LOG_INFO, NULL, NULL));
}

static void *wait_for_end(void *scheduler) {
    CHECK_OK(muster_scheduler_wait(scheduler, -1));
    return NULL;
}

/* Several threads may wait, and all are told. */
static void several_wait(void) {
    static const struct plan one = {.workers = 1};
    char port[8] = "";
    pthread_t threads[3];
    muster_scheduler_t *scheduler = start_scheduler(&one, port);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, wait_for_end, scheduler) == 0);
    }
    muster_cluster_t *cluster = join(&one, port, 0);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_OK(muster_scheduler_wait(scheduler, 0)); /* and again */
    CHECK_OK(muster_scheduler_stop(scheduler));
    CHECK_OK(muster_scheduler_wait(scheduler, 0));
    muster_scheduler_free(scheduler);
}

/* A port that is taken is an error at once, which names it. */
static void taken_port(void) {
    char port[8] = "";
    muster_scheduler_t *scheduler = start_scheduler(&plan, port);
    muster_scheduler_t *second = NULL;
    muster_config_t *config = NULL;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_set(config, "worker_num", "1"));
    CHECK_OK(muster_config_set(config, "sched_port", port));
    CHECK_FAILS(MUSTER_ERR_BIND, port, muster_scheduler_start(config, &second));
    CHECK_CONTAINS(muster_last_error(), "in use");
    CHECK_OK(muster_config_set(config, "sched_host", "203.0.113.7")); /* of documentation: nobody's */
    CHECK_FAILS(MUSTER_ERR_BIND, "203.0.113.7", muster_scheduler_start(config, &second));
    CHECK(second == NULL);
    muster_scheduler_free(scheduler);
    muster_config_free(config);
}

/* A port that is held, and on which nobody listens: connections are refused, and nobody else can take it meanwhile. */
static int hold_port(char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    snprintf(port, 8, "%u", (unsigned)ntohs(address.sin_port));
    return fd;
}

/* A node whose scheduler does not exist keeps trying, for as long as forming may take and no longer. */
static void no_scheduler(void) {
    char port[8] = "";
    struct node node;
    int held = hold_port(port);
    double begin = now_s();
    start(&node, port, 0, join_in_vain);
    await(&node.done);
    CHECK(pthread_join(node.thread, NULL) == 0);
    CHECK(now_s() - begin >= 1.9 && now_s() - begin < 10 * patience());
    CHECK_IS(MUSTER_ERR_UNREACHABLE, node.status);
    CHECK_CONTAINS(node.words, port);
    CHECK(close(held) == 0);
}

int main(void) {
    int threads = own_threads();
    int descriptors = own_descriptors();
    stop_while_used(0);
    stop_while_used(1);
    stop_while_forming();
    several_wait();
    taken_port();
    no_scheduler();
    CHECK(own_threads_are(threads));
    CHECK_IS(descriptors, own_descriptors());
    return 0;
}
