/* How a program that uses NCCL starts without MPI: rank 0 makes the unique id, everyone gets it by broadcast.
 *
 * NCCL is loaded at run time, on rank 0 only; LD_LIBRARY_PATH names its folder where the system does not know it. Making an id
 * needs no GPU (NCCL_SOCKET_IFNAME=lo is enough). Where there is no NCCL random bytes take the id's place, and a line says so.
 * Every rank prints a hash of all 128 bytes: most of them are zero, so their beginning would prove little.
 */
#define _GNU_SOURCE /* getrandom */
#include "../loading.h"
#include <muster.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The unique id as nccl.h has it. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} nccl_unique_id;
typedef int (*nccl_get_unique_id_fn)(nccl_unique_id *id);
typedef int (*nccl_get_version_fn)(int *version);

static int fail(const char *call) {
    fprintf(stderr, "nccl_unique_id: %s: %s\n", call, muster_last_error());
    return EXIT_FAILURE;
}

/* Returns 1 with an id from NCCL, or 0 after it has said why there is none. The library stays loaded: the id's
 * listening thread lives in it. */
static int make_nccl_id(nccl_unique_id *id) {
    nccl_get_unique_id_fn get_unique_id = NULL;
    nccl_get_version_fn get_version = NULL;
    const struct function functions[] = {{"ncclGetUniqueId", &get_unique_id}, {"ncclGetVersion", &get_version}};
    const char *reason = load("libnccl.so.2", functions, 2);
    if (reason != NULL) {
        printf("no NCCL here (%s)\n", reason);
        return 0;
    }
    int version = 0;
    int result = get_version(&version);
    if (result == 0) {
        result = get_unique_id(id);
    }
    if (result != 0) {
        printf("NCCL could not make an id (ncclResult_t %d; NCCL_DEBUG=WARN tells more)\n", result);
        return 0;
    }
    printf("the id comes from NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    return 1;
}

static int make_id(nccl_unique_id *id) {
    if (make_nccl_id(id)) {
        return 1;
    }
    printf("random bytes take the place of NCCL's id\n");
    if (getrandom(id, sizeof *id, 0) != (ssize_t)sizeof *id) {
        perror("nccl_unique_id: getrandom");
        return 0;
    }
    return 1;
}

/* FNV-1a */
static uint64_t hash_of(const void *data, size_t length) {
    const unsigned char *bytes = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static int share_id(muster_cluster_t *cluster) {
    nccl_unique_id id;
    memset(&id, 0, sizeof id);
    if (muster_rank(cluster) == 0 && !make_id(&id)) {
        muster_abort(cluster, 1, "rank 0 could not make a unique id");
        return EXIT_FAILURE;
    }
    if (muster_broadcast(muster_world(cluster), &id, sizeof id, MUSTER_UINT8, 0) != MUSTER_OK) {
        return fail("muster_broadcast");
    }
    printf("rank %d: hash of the id's %d bytes: %016" PRIx64 "\n", (int)muster_rank(cluster), NCCL_UNIQUE_ID_BYTES,
           hash_of(&id, sizeof id));
    return EXIT_SUCCESS;
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    muster_status_t status = muster_init(NULL, &cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        return fail("muster_init");
    }
    int result = share_id(cluster);
    if (result == EXIT_SUCCESS && muster_finalize(cluster) != MUSTER_OK) {
        result = fail("muster_finalize");
    }
    muster_cluster_free(cluster);
    return result;
}
