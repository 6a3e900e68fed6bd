/* What hccl_root_info.c needs of hccl/hccl.h and acl/acl.h, under the names that they have there, and loaded at run time. A
 * program that has these headers includes them in place of this file; nothing else changes. */
#ifndef HCCL_AND_ACL_H
#define HCCL_AND_ACL_H

#include "../loading.h"

#include <stddef.h>
#include <stdint.h>

/* ---- hccl.h */

#define HCCL_ROOT_INFO_BYTES 4108
typedef struct {
    char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;
typedef void *HcclComm;
typedef enum { HCCL_SUCCESS = 0, HCCL_E_PARA = 1, HCCL_E_TIMEOUT = 9 } HcclResult;
typedef enum { HCCL_DATA_TYPE_FP32 = 4 } HcclDataType;
typedef enum { HCCL_REDUCE_SUM = 0 } HcclReduceOp;

/* ---- acl.h */

typedef int aclError;
typedef void *aclrtStream;
typedef enum { ACL_MEM_MALLOC_HUGE_FIRST = 0 } aclrtMemMallocPolicy;
typedef enum { ACL_MEMCPY_HOST_TO_DEVICE = 1, ACL_MEMCPY_DEVICE_TO_HOST = 2 } aclrtMemcpyKind;
#define ACL_SUCCESS 0

#ifndef HCCL_STUB /* stub.c defines them */

#define HCCL_FUNCTIONS(F)                                                                                                        \
    F(HcclResult, HcclGetRootInfo, (HcclRootInfo * info))                                                                        \
    F(HcclResult, HcclCommInitRootInfo, (uint32_t ranks, const HcclRootInfo *info, uint32_t rank, HcclComm *comm))               \
    F(HcclResult, HcclAllReduce,                                                                                                 \
      (void *in, void *out, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm, aclrtStream stream))              \
    F(HcclResult, HcclCommDestroy, (HcclComm comm))
HCCL_FUNCTIONS(MAKE_POINTER)

#define ACL_FUNCTIONS(F)                                                                                                         \
    F(aclError, aclInit, (const char *config))                                                                                   \
    F(aclError, aclFinalize, (void))                                                                                             \
    F(aclError, aclrtSetDevice, (int32_t device))                                                                                \
    F(aclError, aclrtResetDevice, (int32_t device))                                                                              \
    F(aclError, aclrtCreateStream, (aclrtStream * stream))                                                                       \
    F(aclError, aclrtDestroyStream, (aclrtStream stream))                                                                        \
    F(aclError, aclrtSynchronizeStream, (aclrtStream stream))                                                                    \
    F(aclError, aclrtMalloc, (void **memory, size_t bytes, aclrtMemMallocPolicy policy))                                         \
    F(aclError, aclrtFree, (void *memory))                                                                                       \
    F(aclError, aclrtMemcpy, (void *to, size_t most, const void *from, size_t bytes, aclrtMemcpyKind kind))
ACL_FUNCTIONS(MAKE_POINTER)

/* Returns NULL, or why HCCL or ACL can't be had. */
static inline const char *load_hccl_and_acl(void) {
    const struct function acl[] = {ACL_FUNCTIONS(MAKE_ENTRY)};
    const struct function hccl[] = {HCCL_FUNCTIONS(MAKE_ENTRY)};
    const char *reason = load("libascendcl.so", acl, sizeof acl / sizeof acl[0]);
    return reason != NULL ? reason : load("libhccl.so", hccl, sizeof hccl / sizeof hccl[0]);
}

#endif
#endif
