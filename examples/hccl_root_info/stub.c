/* Stands in for libhccl.so and libascendcl.so where there is no device: the functions that hccl_root_info.c calls, made from the
 * signatures in Huawei's documentation. Ranks meet in a file that the root info names (in TMPDIR), and "device" memory is the
 * process's. The root info is random up to its last bytes, which are its checksum: one that comes cut short is refused. With
 * HCCL_STUB_WRONG=i element i of each sum is too large by one. */
#define _DEFAULT_SOURCE /* getrandom, mkstemp, mmap, usleep */
#define HCCL_STUB
#include "../stub_meeting.h"
#include "hccl_and_acl.h"

#include <sys/random.h>

enum { PATH_BYTES = 256, WAITS_MOST = 600000, WAIT_US = 100 }; /* a minute, as HCCL_CONNECT_TIMEOUT would have it */

struct communicator {
    struct meeting *meeting;
    char path[PATH_BYTES];
    int rank;
    int ranks;
    uint64_t reductions;
};

static int has_device;
static int the_stream;

aclError aclInit(const char *config) { return config == NULL ? ACL_SUCCESS : 1; }
aclError aclFinalize(void) { return has_device; }

aclError aclrtSetDevice(int32_t device) {
    has_device = device >= 0;
    return !has_device;
}

aclError aclrtResetDevice(int32_t device) {
    has_device = 0;
    return device < 0;
}

aclError aclrtCreateStream(aclrtStream *stream) {
    *stream = &the_stream;
    return !has_device;
}

aclError aclrtDestroyStream(aclrtStream stream) { return stream != &the_stream; }
aclError aclrtSynchronizeStream(aclrtStream stream) { return stream != &the_stream; }

aclError aclrtMalloc(void **memory, size_t bytes, aclrtMemMallocPolicy policy) {
    *memory = has_device && policy == ACL_MEM_MALLOC_HUGE_FIRST ? malloc(bytes) : NULL;
    return *memory == NULL;
}

aclError aclrtFree(void *memory) {
    free(memory);
    return ACL_SUCCESS;
}

aclError aclrtMemcpy(void *to, size_t most, const void *from, size_t bytes, aclrtMemcpyKind kind) {
    if (bytes > most || (kind != ACL_MEMCPY_HOST_TO_DEVICE && kind != ACL_MEMCPY_DEVICE_TO_HOST)) {
        return 1;
    }
    memcpy(to, from, bytes);
    return ACL_SUCCESS;
}

/* FNV-1a, of all but the last four bytes. */
static uint32_t checksum_of(const HcclRootInfo *info) {
    uint32_t hash = 0x811c9dc5u;
    for (size_t i = 0; i < sizeof *info - sizeof hash; i++) {
        hash = (hash ^ (unsigned char)info->internal[i]) * 0x01000193u;
    }
    return hash;
}

HcclResult HcclGetRootInfo(HcclRootInfo *info) {
    for (size_t at = 0; at < sizeof *info;) { /* the system gives 256 bytes at a time without fail */
        size_t part = sizeof *info - at < 256 ? sizeof *info - at : 256;
        if (getrandom(info->internal + at, part, 0) != (ssize_t)part) {
            return HCCL_E_PARA;
        }
        at += part;
    }
    if (!has_device || !make_meeting(info->internal, PATH_BYTES, "hccl-stub")) {
        return HCCL_E_PARA;
    }
    uint32_t sum = checksum_of(info);
    memcpy(info->internal + sizeof *info - sizeof sum, &sum, sizeof sum);
    return HCCL_SUCCESS;
}

static int all_are_here(struct communicator *comm) {
    for (int rank = 0; rank < comm->ranks; rank++) {
        if (atomic_load(&comm->meeting->slots[rank].pid) == 0) {
            return 0;
        }
    }
    return 1;
}

HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo *info, uint32_t rank, HcclComm *out) {
    uint32_t sum;
    memcpy(&sum, info->internal + sizeof *info - sizeof sum, sizeof sum);
    struct communicator *comm = calloc(1, sizeof *comm);
    if (!has_device || sum != checksum_of(info) || ranks > RANKS_MOST || rank >= ranks || comm == NULL) {
        return HCCL_E_PARA;
    }
    comm->rank = (int)rank;
    comm->ranks = (int)ranks;
    memcpy(comm->path, info->internal, sizeof comm->path - 1);
    comm->meeting = join_meeting(comm->path, comm->rank);
    if (comm->meeting == NULL) {
        return HCCL_E_PARA;
    }
    for (int i = 0; !all_are_here(comm); i++) {
        if (i == WAITS_MOST) {
            return HCCL_E_TIMEOUT;
        }
        usleep(WAIT_US);
    }
    unlink(comm->path); /* all are here: nobody else can use the root info */
    *out = comm;
    return HCCL_SUCCESS;
}

HcclResult HcclAllReduce(void *in, void *out, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm handle,
                         aclrtStream stream) {
    struct communicator *comm = handle;
    if (count > COUNT_MOST || type != HCCL_DATA_TYPE_FP32 || op != HCCL_REDUCE_SUM || stream != &the_stream) {
        return HCCL_E_PARA;
    }
    comm->reductions++;
    for (int i = 0; !sum_up(comm->meeting, comm->rank, comm->ranks, comm->reductions, in, out, count); i++) {
        if (i == WAITS_MOST) {
            return HCCL_E_TIMEOUT;
        }
        usleep(WAIT_US);
    }
    const char *wrong = getenv("HCCL_STUB_WRONG");
    if (wrong != NULL && (uint64_t)atoi(wrong) < count) {
        ((float *)out)[atoi(wrong)] += 1;
    }
    return HCCL_SUCCESS;
}

HcclResult HcclCommDestroy(HcclComm handle) {
    struct communicator *comm = handle;
    leave_meeting(comm->meeting);
    free(comm);
    return HCCL_SUCCESS;
}
