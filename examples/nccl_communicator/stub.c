/* Stands in for libnccl.so.2 and libcuda.so.1 where there is no device: the functions that nccl_communicator.c calls, made from
 * the signatures and the rules in NCCL's and CUDA's documentation. Ranks meet in a file that the id names (in TMPDIR), and
 * "device" memory is the process's. It is strict where NCCL is: an id makes one communicator, a call while another is under way
 * is an error, and what waits for a lost rank waits until it is aborted. With NCCL_STUB_NOTICES=1 it reports a lost rank, as
 * NCCL's sockets may.
 */
#define _DEFAULT_SOURCE /* kill, mkstemp, mmap */
#define NCCL_STUB
#include "nccl_and_cuda.h"

#include "../stub_meeting.h"

#include <errno.h>
#include <signal.h>
#include <sys/types.h>

enum { INVALID_CONTEXT = 201, INVALID_VALUE = 1 };

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

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    if (stream != &the_stream || stream->comm != NULL) {
        return (CUresult)INVALID_VALUE;
    }
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

CUresult cuStreamQuery(CUstream stream) {
    ncclComm_t comm = stream->comm;
    if (comm != NULL &&
        !sum_up(comm->meeting, comm->rank, comm->ranks, comm->reductions, stream->in, stream->out, stream->count)) {
        return CUDA_ERROR_NOT_READY;
    }
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
    return make_meeting(id->internal, sizeof id->internal, "nccl-stub") ? ncclSuccess : ncclSystemError;
}

static void leave(ncclComm_t comm) {
    unlink(comm->path);
    leave_meeting(comm->meeting);
    free(comm);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (!context_is_set || config->magic != 0xcafebeef || config->size < sizeof *config || config->blocking != 0 ||
        nranks > RANKS_MOST || rank < 0 || rank >= nranks) {
        return ncclInvalidArgument;
    }
    ncclComm_t comm = calloc(1, sizeof *comm);
    struct meeting *meeting = join_meeting(id.internal, rank);
    if (comm == NULL || meeting == NULL) {
        return ncclInvalidUsage; /* as where the id has made a communicator before */
    }
    comm->meeting = meeting;
    comm->rank = rank;
    comm->ranks = nranks;
    memcpy(comm->path, id.internal, sizeof comm->path);
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
