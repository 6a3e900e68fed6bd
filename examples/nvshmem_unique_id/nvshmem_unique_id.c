/* How NVSHMEM starts without MPI and without PMI: rank 0 makes the unique id, everyone gets its 128 bytes by broadcast. In a
 * program that has devices, that is
 *
 *     nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
 *     nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
 *     if (muster_rank(cluster) == 0) nvshmemx_get_uniqueid(&id);
 *     muster_broadcast(muster_world(cluster), &id, sizeof id, MUSTER_UINT8, 0);
 *     nvshmemx_set_attr_uniqueid_args(muster_rank(cluster), muster_size(cluster), &id, &attributes);
 *     nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes);
 *
 * NVSHMEM gives the id to its bootstrap plug-in, and only the plug-in needs no device. So this program, which is to run anywhere,
 * loads the plug-in (nvshmem_bootstrap_uid.so.3, of any NVSHMEM 3; LD_LIBRARY_PATH) and calls it as NVSHMEM does. Then the ranks
 * use it: they meet, gather bytes and exchange bytes.
 *
 * NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME says over which interface they do (lo, on one host). An id serves one start of NVSHMEM. The
 * plug-in's calls have no time-out: without recovery `muster run` ends the ranks that wait in them for a lost one.
 */
#include "../loading.h"
#include <muster.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The types as bootstrap_device_host/nvshmem_uniqueid.h has them. */
typedef struct {
    int version;
    char internal[124];
} nvshmemx_uniqueid_t;
typedef struct {
    int version;
    nvshmemx_uniqueid_t *id;
    int myrank;
    int nranks;
} nvshmemx_uniqueid_args_t;
#define NVSHMEMX_VERSION_OF(type) ((1 << 16) + (int)sizeof(type))

/* The plug-in's interface, which NVSHMEM itself uses: number 3.0, which all of NVSHMEM 3 has. */
typedef struct bootstrap_handle {
    int version;
    int pg_rank;
    int pg_size;
    int mype_node;
    int npes_node;
    int (*allgather)(const void *in, void *out, int bytes, struct bootstrap_handle *handle);
    int (*alltoall)(const void *in, void *out, int bytes, struct bootstrap_handle *handle);
    int (*barrier)(struct bootstrap_handle *handle);
    void (*global_exit)(int status);
    int (*finalize)(struct bootstrap_handle *handle);
    int (*show_info)(struct bootstrap_handle *handle, int style);
    struct {
        void *cookie;
        int (*get_unique_id)(void *cookie);
    } *pre_init_ops;
    void *comm_state;
} bootstrap_handle_t;
#define PLUGIN_INTERFACE 30000

#define PLUGIN_FUNCTIONS(F)                                                                                                      \
    F(int, nvshmemi_bootstrap_plugin_pre_init, (bootstrap_handle_t * handle, int interface))                                     \
    F(int, nvshmemi_bootstrap_plugin_init, (void *arguments, bootstrap_handle_t *handle, int interface))
PLUGIN_FUNCTIONS(MAKE_POINTER)

enum { PIECE = 48 };

static void give_up(muster_cluster_t *cluster, const char *what, const char *why) {
    char reason[640];
    snprintf(reason, sizeof reason, "%.100s: %.512s", what, why);
    fprintf(stderr, "nvshmem_unique_id: rank %d: %s\n", (int)muster_rank(cluster), reason);
    muster_abort(cluster, 1, reason);
    exit(EXIT_FAILURE);
}

/* The plug-in's functions return 0 for success. */
static void check(muster_cluster_t *cluster, const char *call, int result) {
    if (result != 0) {
        give_up(cluster, call, "failed (NVSHMEM_DEBUG=INFO tells more)");
    }
}

/* What NVSHMEM does between nvshmemx_get_uniqueid and the end of nvshmemx_init_attr. */
static void start(muster_cluster_t *cluster, bootstrap_handle_t *handle) {
    nvshmemx_uniqueid_t id;
    memset(&id, 0, sizeof id);
    id.version = NVSHMEMX_VERSION_OF(nvshmemx_uniqueid_t);
    check(cluster, "nvshmemi_bootstrap_plugin_pre_init", nvshmemi_bootstrap_plugin_pre_init(handle, PLUGIN_INTERFACE));
    if (muster_rank(cluster) == 0) {
        check(cluster, "get_unique_id", handle->pre_init_ops->get_unique_id(&id));
    }
    if (muster_broadcast(muster_world(cluster), &id, sizeof id, MUSTER_UINT8, 0) != MUSTER_OK) {
        give_up(cluster, "muster_broadcast", muster_last_error());
    }
    nvshmemx_uniqueid_args_t arguments = {NVSHMEMX_VERSION_OF(nvshmemx_uniqueid_args_t), &id, muster_rank(cluster),
                                          muster_size(cluster)};
    check(cluster, "nvshmemi_bootstrap_plugin_init", nvshmemi_bootstrap_plugin_init(&arguments, handle, PLUGIN_INTERFACE));
}

/* The piece that rank `from` has for rank `to`. */
static void fill(unsigned char *piece, int from, int to) {
    for (int at = 0; at < PIECE; at++) {
        piece[at] = (unsigned char)(from * 31 + to * 17 + at);
    }
}

static void use(muster_cluster_t *cluster, bootstrap_handle_t *handle) {
    int rank = muster_rank(cluster), ranks = muster_size(cluster);
    unsigned char *out = malloc((size_t)ranks * PIECE), *in = malloc((size_t)ranks * PIECE), right[PIECE];
    if (out == NULL || in == NULL) {
        give_up(cluster, "malloc", "no memory");
    }
    check(cluster, "barrier", handle->barrier(handle));
    fill(out, rank, 0);
    check(cluster, "allgather", handle->allgather(out, in, PIECE, handle));
    for (int peer = 0; peer < ranks; peer++) {
        fill(right, peer, 0);
        if (memcmp(in + peer * PIECE, right, PIECE) != 0) {
            give_up(cluster, "allgather", "a piece is not what was sent");
        }
        fill(out + peer * PIECE, rank, peer);
    }
    check(cluster, "alltoall", handle->alltoall(out, in, PIECE, handle));
    for (int peer = 0; peer < ranks; peer++) {
        fill(right, peer, rank);
        if (memcmp(in + peer * PIECE, right, PIECE) != 0) {
            give_up(cluster, "alltoall", "a piece is not what was sent");
        }
    }
    check(cluster, "barrier", handle->barrier(handle));
    check(cluster, "finalize", handle->finalize(handle));
    free(in);
    free(out);
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    muster_status_t status = muster_init(NULL, &cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "nvshmem_unique_id: muster_init: %s\n", muster_last_error());
        return EXIT_FAILURE;
    }
    const struct function functions[] = {PLUGIN_FUNCTIONS(MAKE_ENTRY)};
    const char *reason = load("nvshmem_bootstrap_uid.so.3", functions, sizeof functions / sizeof functions[0]);
    if (reason != NULL) {
        give_up(cluster, "no NVSHMEM here", reason);
    }
    bootstrap_handle_t handle;
    memset(&handle, 0, sizeof handle);
    start(cluster, &handle);
    use(cluster, &handle);
    printf("rank %d of %d: PE %d of %d of NVSHMEM's bootstrap: all right\n", (int)muster_rank(cluster), (int)muster_size(cluster),
           handle.pg_rank, handle.pg_size);
    if (muster_finalize(cluster) != MUSTER_OK) {
        give_up(cluster, "muster_finalize", muster_last_error());
    }
    muster_cluster_free(cluster);
    return EXIT_SUCCESS;
}
