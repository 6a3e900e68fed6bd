/* UCX under muster: each rank's worker address goes to everyone by an all-gather, and endpoints are made of them. Addresses
 * differ in length, so their lengths go first.
 *
 * Then each rank sends messages to the next one, around the ring. A rank that waits for UCX also looks at muster, for a message
 * from a lost rank would never come. After a loss it closes its endpoints by force, and destroys its worker. UCX allows the force
 * only where both sides made their endpoints with UCP_ERR_HANDLING_MODE_PEER. (Here the rank ends then. A program that recovers
 * calls muster_recover, makes a new worker, and exchanges addresses again in the next epoch.)
 *
 *   ucx_addresses [--lose RANK]
 *
 * Started once with MS_ROLE=MS_SCHED and N times with MS_ROLE=MS_WORKER, or by `muster run`. With --lose this rank kills itself
 * once short messages have gone around, and the others end with its name. (UCX 1.13 may abort a process whose peer dies while the
 * two still connect.)
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep */
#include "../read_number.h"
#include <muster.h>
#include <ucp/api/ucp.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PATIENCE_S = 60, /* for UCX, while no rank is lost */
    VERDICT_S = 15,  /* after UCX failed, for muster's word that a rank is lost: more than the heartbeat time-out */
    TAG = 7,
    SHORT = 1 << 10,
    LONGEST = 1 << 20
};

struct node {
    muster_cluster_t *cluster;
    int rank;
    int ranks;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h *endpoints; /* by rank */
};

static void give_up(const struct node *node, const char *what, const char *why) {
    char reason[1200];
    snprintf(reason, sizeof reason, "%.100s: %.1024s", what, why);
    fprintf(stderr, "ucx_addresses: rank %d: %s\n", node->rank, reason);
    muster_abort(node->cluster, 1, reason); /* does nothing where the job is over already */
    exit(EXIT_FAILURE);
}

static void check(const struct node *node, const char *call, muster_status_t status) {
    if (status != MUSTER_OK) {
        give_up(node, call, muster_last_error());
    }
}

static void check_ucx(const struct node *node, const char *call, ucs_status_t status) {
    if (status != UCS_OK) {
        give_up(node, call, ucs_status_string(status));
    }
}

static void *memory(const struct node *node, size_t bytes) {
    void *block = calloc(bytes + 1, 1);
    if (block == NULL) {
        give_up(node, "calloc", "no memory");
    }
    return block;
}

static time_t now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* What a loss leaves of UCX. A close in order would wait for the lost rank, and a wait that asks muster would hear of the loss
 * again. The worker goes, too, for it may hold messages from before the loss. */
static void drop_worker(const struct node *node) {
    ucp_request_param_t by_force = {0};
    by_force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    by_force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    time_t begun = now_s();
    for (int rank = 0; node->endpoints != NULL && rank < node->ranks; rank++) {
        ucs_status_ptr_t closing = node->endpoints[rank] != NULL ? ucp_ep_close_nbx(node->endpoints[rank], &by_force) : NULL;
        if (UCS_PTR_IS_PTR(closing)) {
            while (ucp_request_check_status(closing) == UCS_INPROGRESS && now_s() - begun < PATIENCE_S) {
                ucp_worker_progress(node->worker);
            }
            ucp_request_free(closing);
        }
    }
    ucp_worker_destroy(node->worker);
    ucp_cleanup(node->context);
}

/* Ends the program where muster knows that the cluster is broken; that costs next to nothing. The cause is told as a sentence, or
 * by what muster_failure_t has room for. */
static void look_at_muster(const struct node *node, const char *what) {
    muster_failure_t failure = {.cause = ""};
    if (muster_group_failure(muster_world(node->cluster), &failure, sizeof failure) != MUSTER_ERR_NOT_FOUND) {
        char sentence[1024];
        muster_status_t fits = muster_cluster_error(node->cluster, sentence, sizeof sentence, NULL);
        drop_worker(node);
        give_up(node, what, fits == MUSTER_OK ? sentence : failure.cause);
    }
}

/* UCX may see a broken connection before anybody knows whose fault it is: muster decides. */
static void check_peer(const struct node *node, const char *call, ucs_status_t status) {
    for (time_t begun = now_s(); status != UCS_OK && now_s() - begun < VERDICT_S;) {
        look_at_muster(node, call);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    check_ucx(node, call, status);
}

/* Lets UCX work once. Ends the program where a rank is lost, or nothing has come of it for too long. */
static void work(const struct node *node, const char *what, time_t begun) {
    if (ucp_worker_progress(node->worker) != 0) {
        return;
    }
    look_at_muster(node, what);
    if (now_s() - begun > PATIENCE_S) {
        give_up(node, what, "it has not ended in time, though no rank is lost");
    }
}

/* Waits for what a call of UCX's started: NULL is done, an error is an error, anything else goes on. */
static void finish(const struct node *node, const char *call, ucs_status_ptr_t request) {
    ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_STATUS(request);
    for (time_t begun = now_s(); status == UCS_INPROGRESS; status = ucp_request_check_status(request)) {
        work(node, call, begun);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    check_peer(node, call, status);
}

/* A barrier in which UCX goes on working: peers may still need this worker. */
static void meet(const struct node *node) {
    muster_request_t *barrier = NULL;
    check(node, "muster_ibarrier", muster_ibarrier(muster_world(node->cluster), &barrier));
    muster_status_t status = MUSTER_IN_PROGRESS;
    for (time_t begun = now_s(); status == MUSTER_IN_PROGRESS; status = muster_request_test(barrier)) {
        work(node, "muster_ibarrier", begun);
    }
    check(node, "muster_ibarrier", status);
    muster_request_free(barrier);
}

static void open_worker(struct node *node) {
    ucp_params_t context = {0};
    context.field_mask = UCP_PARAM_FIELD_FEATURES;
    context.features = UCP_FEATURE_TAG;
    check_ucx(node, "ucp_init", ucp_init(&context, NULL, &node->context));
    ucp_worker_params_t worker = {0};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    check_ucx(node, "ucp_worker_create", ucp_worker_create(node->context, &worker, &node->worker));
}

/* UCX tells of a broken connection here, and also by the requests that fail. Those are enough. */
static void is_told(void *none, ucp_ep_h endpoint, ucs_status_t status) {
    (void)none;
    (void)endpoint;
    (void)status;
}

/* The exchange: what MPI programs do with MPI_Allgatherv. Returns how many bytes came. */
static size_t connect_all(struct node *node) {
    muster_group_t *world = muster_world(node->cluster);
    size_t ranks = (size_t)node->ranks, total = 0;
    ucp_address_t *own = NULL;
    uint64_t length = 0;
    size_t own_length = 0;
    check_ucx(node, "ucp_worker_get_address", ucp_worker_get_address(node->worker, &own, &own_length));
    length = own_length;

    uint64_t *lengths = memory(node, ranks * sizeof *lengths);
    size_t *counts = memory(node, ranks * sizeof *counts), *places = memory(node, ranks * sizeof *places);
    check(node, "muster_allgather", muster_allgather(world, &length, lengths, 1, MUSTER_UINT64));
    for (size_t rank = 0; rank < ranks; rank++) {
        counts[rank] = lengths[rank];
        places[rank] = total;
        total += counts[rank];
    }
    unsigned char *all = memory(node, total);
    check(node, "muster_allgatherv", muster_allgatherv(world, own, own_length, all, counts, places, MUSTER_UINT8));
    ucp_worker_release_address(node->worker, own);

    node->endpoints = memory(node, ranks * sizeof *node->endpoints);
    for (size_t rank = 0; rank < ranks; rank++) {
        ucp_ep_params_t endpoint = {0};
        endpoint.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        endpoint.address = (const ucp_address_t *)(all + places[rank]);
        endpoint.err_mode = UCP_ERR_HANDLING_MODE_PEER; /* so that it can be closed when its peer is lost */
        endpoint.err_handler.cb = is_told;
        check_peer(node, "ucp_ep_create", ucp_ep_create(node->worker, &endpoint, &node->endpoints[rank]));
    }
    free(all);
    free(places);
    free(counts);
    free(lengths);
    return total;
}

static unsigned char byte_of(int rank, size_t at) { return (unsigned char)(rank * 31 + at * 7 + at / 251); }

/* To the next rank, and from the one before. */
static void pass_on(const struct node *node, size_t length) {
    int next = (node->rank + 1) % node->ranks, before = (node->rank + node->ranks - 1) % node->ranks;
    unsigned char *out = memory(node, length), *in = memory(node, length);
    for (size_t at = 0; at < length; at++) {
        out[at] = byte_of(node->rank, at);
    }
    ucp_request_param_t plain = {0};
    ucs_status_ptr_t received = ucp_tag_recv_nbx(node->worker, in, length, TAG, (ucp_tag_t)-1, &plain);
    ucs_status_ptr_t sent = ucp_tag_send_nbx(node->endpoints[next], out, length, TAG, &plain);
    finish(node, "ucp_tag_recv_nbx", received);
    finish(node, "ucp_tag_send_nbx", sent);
    for (size_t at = 0; at < length; at++) {
        if (in[at] != byte_of(before, at)) {
            give_up(node, "ucp_tag_recv_nbx", "the message is not what was sent");
        }
    }
    free(in);
    free(out);
}

static void close_worker(struct node *node) {
    ucp_request_param_t flush = {0};
    meet(node);
    for (int rank = 0; rank < node->ranks; rank++) {
        ucp_ep_h endpoint = node->endpoints[rank];
        node->endpoints[rank] = NULL;
        finish(node, "ucp_ep_close_nbx", ucp_ep_close_nbx(endpoint, &flush));
    }
    meet(node);
    free(node->endpoints);
    ucp_worker_destroy(node->worker);
    ucp_cleanup(node->context);
}

int main(int argc, char **argv) {
    struct node node = {0};
    long lose = -1; /* none */
    int right = argc == 3 && strcmp(argv[1], "--lose") == 0 && read_number(argv[2], 0, INT_MAX, &lose);
    if (argc != 1 && !right) {
        fprintf(stderr, "usage: ucx_addresses [--lose RANK]\n");
        return 2;
    }
    muster_status_t status = muster_init(NULL, &node.cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "ucx_addresses: muster_init: %s\n", muster_last_error());
        return EXIT_FAILURE;
    }
    node.rank = muster_rank(node.cluster);
    node.ranks = muster_size(node.cluster);
    if (lose >= node.ranks) { /* nobody would be lost, and all would seem to be well */
        char what[40], why[40];
        snprintf(what, sizeof what, "--lose %ld", lose);
        snprintf(why, sizeof why, "the ranks are 0 to %d", node.ranks - 1);
        give_up(&node, what, why);
    }
    open_worker(&node);
    size_t bytes = connect_all(&node);
    for (size_t length = 1; length <= LONGEST; length *= 32) { /* eager ones, and such as go by rendezvous */
        pass_on(&node, length);
        if (lose >= 0 && length == SHORT) {
            meet(&node);
            if (node.rank == lose) {
                raise(SIGKILL);
            }
        }
    }
    close_worker(&node);
    printf("rank %d of %d: %zu bytes of addresses, messages of up to %d bytes passed on: all right\n", node.rank, node.ranks,
           bytes, LONGEST);
    check(&node, "muster_finalize", muster_finalize(node.cluster));
    muster_cluster_free(node.cluster);
    return EXIT_SUCCESS;
}
