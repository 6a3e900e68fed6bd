#include "nodes.h"

#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { NODES_MAX = 128, SCHEDULER_WAIT_MS = 20000, FINALIZE_S = 30 };

const char *const rank_ids[] = {
    "0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12", "13", "14", "15",
    "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
    "32", "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45", "46", "47",
    "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60", "61", "62", "63",
};

static muster_config_t *configuration(const struct plan *plan) {
    muster_config_t *config = NULL;
    char number[16];
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    snprintf(number, sizeof number, "%d", plan->workers);
    CHECK_OK(muster_config_set(config, "worker_num", number));
    snprintf(number, sizeof number, "%d", plan->servers);
    CHECK_OK(muster_config_set(config, "server_num", number));
    snprintf(number, sizeof number, "%d", 60 * patience());
    CHECK_OK(muster_config_set(config, "cluster_timeout", number));
    if (patience() > 1) {
        snprintf(number, sizeof number, "%d", 5 * patience());
        CHECK_OK(muster_config_set(config, "node_timeout", number));
        snprintf(number, sizeof number, "%d", FINALIZE_S * patience());
        CHECK_OK(muster_config_set(config, "finalize_timeout", number));
    }
    CHECK_OK(muster_config_set(config, "sched_host", plan->host == NULL ? "127.0.0.1" : plan->host));
    const char *shm = getenv("CTESTS_SHM"); /* "off": over links alone, as CMakeLists.txt says */
    if (shm != NULL) {
        CHECK_OK(muster_config_set(config, "shm", shm));
    }
    const char *checksums = getenv("CTESTS_CHECKSUMS");
    if (checksums != NULL) {
        CHECK_OK(muster_config_set(config, "checksums", checksums));
    }
    for (const char *const *setting = plan->settings; setting != NULL && *setting != NULL; setting += 2) {
        bool grows = strcmp(setting[0], "node_timeout") == 0 || strcmp(setting[0], "cluster_timeout") == 0;
        snprintf(number, sizeof number, "%g", grows ? atof(setting[1]) * patience() : 0);
        CHECK_OK(muster_config_set(config, setting[0], grows ? number : setting[1]));
    }
    return config;
}

muster_scheduler_t *start_scheduler(const struct plan *plan, char *port) {
    muster_config_t *config = configuration(plan);
    muster_scheduler_t *scheduler = NULL;
    char address[MUSTER_ADDRESS_BYTES];
    if (plan->port != NULL) {
        CHECK_OK(muster_config_set(config, "sched_port", plan->port));
    }
    CHECK_OK(muster_scheduler_start(config, &scheduler));
    muster_config_free(config);
    CHECK_OK(muster_scheduler_address(scheduler, address, sizeof address, NULL));
    const char *colon = strrchr(address, ':');
    CHECK(colon != NULL && strlen(colon + 1) < 8);
    strcpy(port, colon + 1);
    return scheduler;
}

muster_cluster_t *join(const struct plan *plan, const char *port, int index) {
    muster_config_t *config = configuration(plan);
    muster_cluster_t *cluster = NULL;
    CHECK_OK(muster_config_set(config, "role", index < plan->workers ? "MS_WORKER" : "MS_PSERVER"));
    CHECK_OK(muster_config_set(config, "sched_port", port));
    if (plan->host_ids != NULL) {
        CHECK_OK(muster_config_set(config, "host_id", plan->host_ids[index]));
    }
    if (plan->node_ids != NULL && plan->node_ids[index] != NULL) {
        CHECK_OK(muster_config_set(config, "node_id", plan->node_ids[index]));
    }
    CHECK_OK(muster_init(config, &cluster));
    CHECK(cluster != NULL);
    muster_config_free(config);
    return cluster;
}

struct node {
    const struct plan *plan;
    const char *port;
    int index;
    pthread_t thread;
};

static void *run_node(void *argument) {
    struct node *node = argument;
    muster_cluster_t *cluster = join(node->plan, node->port, node->index);
    node->plan->body(cluster, node->index, node->plan->context);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    return NULL;
}

void run_nodes(const struct plan *plan) {
    struct node nodes[NODES_MAX];
    char port[8];
    int count = plan->workers + plan->servers;
    CHECK(count <= NODES_MAX);
    muster_scheduler_t *scheduler = start_scheduler(plan, port);
    for (int i = 0; i < count; i++) {
        nodes[i].plan = plan;
        nodes[i].port = port;
        nodes[i].index = i;
        CHECK(pthread_create(&nodes[i].thread, NULL, run_node, &nodes[i]) == 0);
    }
    for (int i = 0; i < count; i++) {
        CHECK(pthread_join(nodes[i].thread, NULL) == 0);
    }
    CHECK_OK(muster_scheduler_wait(scheduler, SCHEDULER_WAIT_MS * patience()));
    muster_scheduler_free(scheduler);
}
