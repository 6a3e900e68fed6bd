/* A whole cluster in one process: a scheduler, and a thread with its own handle for each node. */
#ifndef NODES_H
#define NODES_H

#include <muster.h>

#include <stdint.h>

/* What a node does between init and finalize. `index` counts its thread; it is the rank only where the node's id
 * says so. */
typedef void (*node_body)(muster_cluster_t *cluster, int index, void *context);

struct plan {
    int workers;
    int servers;
    /* Ids, one for each worker, then for each server. NULL, or a NULL among them: none is set. */
    const char *const *node_ids;
    /* Host ids in the same order: what each node says its host is. NULL, or a NULL among them: none is set. */
    const char *const *host_ids;
    /* Where the scheduler listens and is looked for; NULL: 127.0.0.1. */
    const char *host;
    /* Where the scheduler listens; NULL: the system chooses. */
    const char *port;
    /* Keys and values in turn, ended by NULL; for scheduler and nodes alike. May be NULL. The times after which a node
     * counts as lost, or the cluster as not formed, are given for a machine of usual speed: patience() makes them longer.
     * */
    const char *const *settings;
    node_body body;
    void *context;
};

/* Node ids that are the ranks, for up to 64 workers. */
extern const char *const rank_ids[];

/* Starts a scheduler on a port of the system's choice. Writes the port to `port` (at least 8 bytes). */
muster_scheduler_t *start_scheduler(const struct plan *plan, char *port);

/* Joins as the `index`-th node of the plan. */
muster_cluster_t *join(const struct plan *plan, const char *port, int index);

/* Runs the whole plan: every node's init, body, finalize and free; the scheduler must end with MUSTER_OK. */
void run_nodes(const struct plan *plan);

#endif
