/* HCCL under muster: rank 0 makes the root info, everyone gets it by broadcast, and so HCCL needs neither a rank table nor MPI.
 * The root info has sizeof(HcclRootInfo) = 4,108 bytes, and all of them count.
 *
 * Started once with MS_ROLE=MS_SCHED and N times with MS_ROLE=MS_WORKER, or by `muster run`. Each rank takes the device
 * of its local rank, and sums a vector with the others.
 *
 * It has not been run on a device. Where there is none, stub.c stands in for HCCL and ACL
 * (LD_LIBRARY_PATH=target/examples/stubs/hccl). It is made from the signatures that Huawei's documentation publishes: it shows
 * that the calls are in order and the root info comes whole, not that HCCL works.
 */
#include "hccl_and_acl.h" /* or <hccl/hccl.h> and <acl/acl.h> */
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

/* Ends the job if a call of HCCL's or ACL's fails: both return 0 for success. */
#define TRY(cluster, call)                                                                                                       \
    do {                                                                                                                         \
        int tried = (int)(call);                                                                                                 \
        if (tried != 0) {                                                                                                        \
            refused(cluster, #call, tried);                                                                                      \
        }                                                                                                                        \
    } while (0)

static void give_up(muster_cluster_t *cluster, const char *reason) {
    fprintf(stderr, "hccl_root_info: rank %d: %s\n", (int)muster_rank(cluster), reason);
    muster_abort(cluster, 1, reason);
    exit(EXIT_FAILURE);
}

static void refused(muster_cluster_t *cluster, const char *call, int result) {
    char reason[256];
    snprintf(reason, sizeof reason, "%.200s returned %d", call, result);
    give_up(cluster, reason);
}

static void fail(const char *call) {
    fprintf(stderr, "hccl_root_info: %s: %s\n", call, muster_last_error());
    exit(EXIT_FAILURE);
}

static HcclComm make_communicator(muster_cluster_t *cluster) {
    HcclRootInfo info;
    memset(&info, 0, sizeof info);
    if (muster_rank(cluster) == 0) {
        TRY(cluster, HcclGetRootInfo(&info));
    }
    if (muster_broadcast(muster_world(cluster), &info, sizeof info, MUSTER_UINT8, 0) != MUSTER_OK) {
        fail("muster_broadcast");
    }
    HcclComm comm = NULL;
    TRY(cluster, HcclCommInitRootInfo((uint32_t)muster_size(cluster), &info, (uint32_t)muster_rank(cluster), &comm));
    return comm;
}

static void sum_on_device(muster_cluster_t *cluster, HcclComm comm, aclrtStream stream) {
    float host[COUNT];
    void *device = NULL;
    int rank = muster_rank(cluster), ranks = muster_size(cluster);
    for (int i = 0; i < COUNT; i++) { /* so small that floats hold the sums exactly, of up to 2,364 ranks */
        host[i] = (float)((rank + 1) * (i % 7));
    }
    TRY(cluster, aclrtMalloc(&device, sizeof host, ACL_MEM_MALLOC_HUGE_FIRST));
    TRY(cluster, aclrtMemcpy(device, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE));
    TRY(cluster, HcclAllReduce(device, device, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    TRY(cluster, aclrtSynchronizeStream(stream));
    TRY(cluster, aclrtMemcpy(host, sizeof host, device, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
    TRY(cluster, aclrtFree(device));
    for (int i = 0; i < COUNT; i++) {
        float right = (float)(ranks * (ranks + 1) / 2 * (i % 7));
        if (host[i] != right) {
            char reason[100];
            snprintf(reason, sizeof reason, "element %d of the sum is %g, not %g", i, host[i], right);
            give_up(cluster, reason);
        }
    }
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    muster_status_t status = muster_init(NULL, &cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        fail("muster_init");
    }
    const char *reason = load_hccl_and_acl();
    if (reason != NULL) {
        fprintf(stderr, "hccl_root_info: %s\n", reason);
        muster_abort(cluster, 1, reason);
        return EXIT_FAILURE;
    }
    int32_t device = muster_local_rank(cluster);
    aclrtStream stream = NULL;
    TRY(cluster, aclInit(NULL));
    TRY(cluster, aclrtSetDevice(device));
    TRY(cluster, aclrtCreateStream(&stream));
    HcclComm comm = make_communicator(cluster);
    sum_on_device(cluster, comm, stream);
    printf("rank %d of %d: the root info came whole, and the sum on device %d is right\n", (int)muster_rank(cluster),
           (int)muster_size(cluster), (int)device);
    TRY(cluster, HcclCommDestroy(comm));
    TRY(cluster, aclrtDestroyStream(stream));
    TRY(cluster, aclrtResetDevice(device));
    TRY(cluster, aclFinalize());
    if (muster_finalize(cluster) != MUSTER_OK) {
        fail("muster_finalize");
    }
    muster_cluster_free(cluster);
    return EXIT_SUCCESS;
}
