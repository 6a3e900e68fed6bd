/* Stands in for libnccl.so.2 and libcuda.so.1 where there is no device: the functions that nccl_communicator.c calls, made from
 * the signatures and the rules in NCCL's and CUDA's documentation. Ranks meet in a file that the id names (in TMPDIR), and
 * "device" memory is the process's. It is strict where NCCL is: an id makes one communicator, a call while another is under way
 * is an error, and what waits for a lost rank waits until it is aborted. With NCCL_STUB_NOTICES=1 it reports a lost rank, as
 * NCCL's sockets may.
 *
 * Nothing runs in the background: whoever asks how far something is carries it on.
 */
#define _DEFAULT_SOURCE /* MAP_SHARED's family, ftruncate, kill */
#define NCCL_STUB
#include "nccl_and_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { RANKS_MOST = 16, COUNT_MOST = 1 << 16, INVALID_CONTEXT = 201, INVALID_VALUE = 1 };

/* What a rank has done so far; `data` is what it gives to allreduce number `put`. */
struct slot {
    atomic_int pid; /* 0: has not joined */
    atomic_uint_fast64_t put;
    atomic_uint_fast64_t taken;
    float data[COUNT_MOST];
};

struct meeting {
    struct slot slots[RANKS_MOST];
};

struct ncclComm {
    struct meeting *meeting;
    char path[NCCL_UNIQUE_ID_BYTES];
    int rank;
    int ranks;
    uint64_t reductions;
    int finalizing;
};

/* A stream holds one reduction at a time. */
struct CUstream_st {
    ncclComm_t comm; /* NULL: idle */
    const float *in;
    float *out;
    size_t count;
};

static struct CUstream_st the_stream;
static int context_is_set;

/* ---- CUDA's driver */

CUresult cuInit(unsigned int flags) { return flags == 0 ? CUDA_SUCCESS : (CUresult)INVALID_VALUE; }

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : (CUresult)INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = (CUcontext)(void *)&context_is_set;
    return device == 0 ? CUDA_SUCCESS : (CUresult)INVALID_VALUE;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    context_is_set = (void *)context == (void *)&context_is_set;
    return context_is_set ? CUDA_SUCCESS : (CUresult)INVALID_CONTEXT;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes) {
    *pointer = context_is_set ? (CUdeviceptr)(uintptr_t)malloc(bytes) : 0;
    return *pointer != 0 ? CUDA_SUCCESS : (CUresult)INVALID_CONTEXT;
}

CUresult cuMemFree(CUdeviceptr pointer) {
    free((void *)(uintptr_t)pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    *stream = &the_stream;
    return context_is_set && flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : (CUresult)INVALID_CONTEXT;
}

CUresult cuStreamDestroy(CUstream stream) {
    return stream->comm == NULL ? CUDA_SUCCESS : (CUresult)INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **words) {
    *words = result == CUDA_SUCCESS ? "no error" : "the stub refuses it";
    return CUDA_SUCCESS;
}

static int all_have(ncclComm_t comm, int taken, uint64_t number) {
    for (int rank = 0; rank < comm->ranks; rank++) {
        struct slot *slot = &comm->meeting->slots[rank];
        if (atomic_load(taken ? &slot->taken : &slot->put) < number) {
            return 0;
        }
    }
    return 1;
}

/* Puts its own data once everyone has taken what was there before; takes the sum once everyone has put. */
CUresult cuStreamQuery(CUstream stream) {
    ncclComm_t comm = stream->comm;
    if (comm == NULL) {
        return CUDA_SUCCESS;
    }
    struct slot *own = &comm->meeting->slots[comm->rank];
    uint64_t number = comm->reductions;
    if (atomic_load(&own->put) < number && all_have(comm, 1, number - 1)) {
        memcpy(own->data, stream->in, stream->count * sizeof(float));
        atomic_store(&own->put, number);
    }
    if (!all_have(comm, 0, number)) {
        return CUDA_ERROR_NOT_READY;
    }
    for (size_t i = 0; i < stream->count; i++) {
        float sum = 0;
        for (int rank = 0; rank < comm->ranks; rank++) {
            sum += comm->meeting->slots[rank].data[i];
        }
        stream->out[i] = sum;
    }
    atomic_store(&own->taken, number);
    stream->comm = NULL;
    return CUDA_SUCCESS;
}

/* ---- NCCL */

ncclResult_t ncclGetVersion(int *version) {
    *version = 21400;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited" : "the stub refuses it";
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "stub";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    const char *folder = getenv("TMPDIR");
    snprintf(id->internal, sizeof id->internal, "%s/nccl-stub-XXXXXX", folder != NULL ? folder : "/tmp");
    int file = mkstemp(id->internal);
    if (file < 0 || ftruncate(file, sizeof(struct meeting)) != 0) {
        return ncclSystemError;
    }
    close(file);
    return ncclSuccess;
}

static void leave(ncclComm_t comm) {
    unlink(comm->path);
    munmap(comm->meeting, sizeof *comm->meeting);
    free(comm);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (!context_is_set || config->magic != 0xcafebeef || config->size < sizeof *config || config->blocking != 0 ||
        nranks > RANKS_MOST || rank < 0 || rank >= nranks) {
        return ncclInvalidArgument;
    }
    int file = open(id.internal, O_RDWR);
    ncclComm_t comm = calloc(1, sizeof *comm);
    if (file < 0 || comm == NULL) {
        return ncclSystemError; /* also where the id has made a communicator before: its file is gone */
    }
    comm->meeting = mmap(NULL, sizeof *comm->meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    comm->rank = rank;
    comm->ranks = nranks;
    memcpy(comm->path, id.internal, sizeof comm->path);
    if (comm->meeting == MAP_FAILED || atomic_exchange(&comm->meeting->slots[rank].pid, (int)getpid()) != 0) {
        return ncclInvalidUsage;
    }
    *out = comm;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    *error = ncclSuccess;
    for (int rank = 0; rank < comm->ranks; rank++) {
        int pid = atomic_load(&comm->meeting->slots[rank].pid);
        if (pid == 0) {
            *error = ncclInProgress;
        } else if (getenv("NCCL_STUB_NOTICES") != NULL && !comm->finalizing && kill(pid, 0) != 0 && errno == ESRCH) {
            *error = ncclRemoteError;
            break;
        }
    }
    if (*error == ncclSuccess) {
        unlink(comm->path); /* all are here: nobody else can use the id */
    }
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           CUstream stream) {
    ncclResult_t state;
    ncclCommGetAsyncError(comm, &state);
    if (state == ncclInProgress || stream->comm != NULL || comm->finalizing) {
        return ncclInvalidUsage;
    }
    if (count > COUNT_MOST || type != ncclFloat32 || op != ncclSum) {
        return ncclInvalidArgument;
    }
    *stream = (struct CUstream_st){comm, in, out, count};
    comm->reductions++;
    return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    comm->finalizing = 1;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm->finalizing || the_stream.comm == comm) {
        return ncclInvalidUsage;
    }
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (the_stream.comm == comm) {
        the_stream.comm = NULL;
    }
    leave(comm);
    return ncclSuccess;
}
