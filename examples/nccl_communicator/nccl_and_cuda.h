/* What nccl_communicator.c needs of nccl.h and cuda.h, under the names that they have there, and loaded at run time. A program
 * that has these headers includes them in place of this file; nothing else changes.
 *
 * NCCL is libnccl.so.2, from 2.14 on. Of CUDA the functions of the driver are enough: libcuda.so.1, which comes with it. */
#ifndef NCCL_AND_CUDA_H
#define NCCL_AND_CUDA_H

#include "../loading.h"

#include <limits.h>
#include <stddef.h>

/* ---- nccl.h */

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef enum { ncclFloat32 = 7 } ncclDataType_t;

/* The configuration of NCCL 2.14, the first. It has its size and version inside, so every later NCCL takes it. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER {sizeof(ncclConfig_t), 0xcafebeef, 21400, INT_MIN}

/* ---- cuda.h */

typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_READY = 600 } CUresult;
#define CU_STREAM_NON_BLOCKING 1
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuStreamDestroy cuStreamDestroy_v2

#ifndef NCCL_STUB /* stub.c defines them */

#define NCCL_FUNCTIONS(F)                                                                                                        \
    F(ncclResult_t, ncclGetVersion, (int *version))                                                                              \
    F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                                                        \
    F(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))    \
    F(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))                                               \
    F(ncclResult_t, ncclAllReduce,                                                                                               \
      (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream))          \
    F(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                                                         \
    F(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                                                          \
    F(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                                                            \
    F(const char *, ncclGetErrorString, (ncclResult_t result))                                                                   \
    F(const char *, ncclGetLastError, (ncclComm_t comm))
NCCL_FUNCTIONS(MAKE_POINTER)

#define CUDA_FUNCTIONS(F)                                                                                                        \
    F(CUresult, cuInit, (unsigned int flags))                                                                                    \
    F(CUresult, cuDeviceGetCount, (int *count))                                                                                  \
    F(CUresult, cuDeviceGet, (CUdevice * device, int ordinal))                                                                   \
    F(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                \
    F(CUresult, cuCtxSetCurrent, (CUcontext context))                                                                            \
    F(CUresult, cuMemAlloc, (CUdeviceptr * pointer, size_t bytes))                                                               \
    F(CUresult, cuMemFree, (CUdeviceptr pointer))                                                                                \
    F(CUresult, cuMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                            \
    F(CUresult, cuMemcpyDtoH, (void *to, CUdeviceptr from, size_t bytes))                                                        \
    F(CUresult, cuStreamCreate, (CUstream * stream, unsigned int flags))                                                         \
    F(CUresult, cuStreamQuery, (CUstream stream))                                                                                \
    F(CUresult, cuStreamDestroy, (CUstream stream))                                                                              \
    F(CUresult, cuGetErrorString, (CUresult result, const char **words))
CUDA_FUNCTIONS(MAKE_POINTER)

/* Returns NULL, or why NCCL or CUDA's driver can't be had. */
static inline const char *load_nccl_and_cuda(void) {
    const struct function cuda[] = {CUDA_FUNCTIONS(MAKE_ENTRY)};
    const struct function nccl[] = {NCCL_FUNCTIONS(MAKE_ENTRY)};
    const char *reason = load("libcuda.so.1", cuda, sizeof cuda / sizeof cuda[0]);
    return reason != NULL ? reason : load("libnccl.so.2", nccl, sizeof nccl / sizeof nccl[0]);
}

#endif
#endif
