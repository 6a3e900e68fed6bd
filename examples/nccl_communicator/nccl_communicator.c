/* NCCL under muster: ranks reduce on their devices, one of them is lost, and all go on with a new communicator.
 *
 * muster brings the unique id to everyone, and knows at once when a rank is lost. NCCL may never know: a reduction on the device
 * that waits for a lost rank ends only when its communicator is aborted. So
 *   1. the communicator is made in non-blocking mode, and nobody waits inside NCCL. await() looks at the device, at NCCL
 *      and at muster in turn;
 *   2. after a loss every rank aborts its communicator, calls muster_recover, and makes a new one with a *new* id. An id
 *      serves one communicator only.
 *
 *   nccl_communicator [--steps N] [--lose RANK init|step]
 *
 * With --lose this rank kills itself (in its first life only): where the others make the communicator, or in the middle of the
 * steps, where they reduce. `muster run` with recovery starts it again:
 *
 *   MS_ENABLE_RECOVERY=1 MS_RECOVERY_PATH=/tmp/nccl muster run --worker_num 4 --local_worker_num 4 --join True \
 *       --max_restarts 1 target/examples/nccl_communicator --lose 2 step
 *
 * Each rank takes the device of its local rank; where there are fewer devices, ranks share them. NCCL allows that only to ranks
 * that it takes for ranks of different hosts: set NCCL_HOSTID to another value for each.
 *
 * Without a device, stub.c stands in for NCCL and CUDA (LD_LIBRARY_PATH=target/examples/stubs/nccl). It is made from their
 * published signatures: it shows that the calls are in order, not that NCCL works.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, nanosleep, kill */
#include "../read_number.h"
#include "nccl_and_cuda.h" /* or <nccl.h> and <cuda.h> */
#include <muster.h>

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    COUNT = 1 << 16,
    PATIENCE_MS = 120000,    /* for NCCL, while nobody is lost */
    VERDICT_MS = 15000,      /* after NCCL failed, for muster's word that a rank is lost: more than the heartbeat time-out */
    LOOK_EACH_US = 100
};

/* LOST: muster says that the cluster is broken, and recovery helps. FAILED: it would not help. */
enum outcome { DONE, LOST, FAILED };

struct training {
    muster_cluster_t *cluster;
    int rank;
    int ranks;
    ncclComm_t communicator; /* NULL: there is none */
    int communicators;       /* how many were made */
    CUstream stream;
    CUdeviceptr data;
    float host[COUNT];
    int64_t steps;
    int64_t step;
    long lose_rank; /* -1: none */
    int lose_in_init;
};

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void rest(void) {
    struct timespec time = {0, LOOK_EACH_US * 1000L};
    nanosleep(&time, NULL);
}

static enum outcome nccl_failed(const struct training *t, const char *call, ncclResult_t result) {
    fprintf(stderr, "rank %d: %s: %s (%s)\n", t->rank, call, ncclGetErrorString(result), ncclGetLastError(NULL));
    return FAILED;
}

static enum outcome cuda_failed(const struct training *t, const char *call, CUresult result) {
    const char *words = NULL;
    cuGetErrorString(result, &words);
    fprintf(stderr, "rank %d: %s: %s\n", t->rank, call, words != NULL ? words : "unknown error");
    return FAILED;
}

/* Costs next to nothing: muster has been told, or it has not. (muster_failure would also tell of a message whose time was up,
 * which breaks nothing.) */
static int is_broken(const struct training *t) {
    muster_failure_t failure;
    return muster_group_failure(muster_world(t->cluster), &failure, sizeof failure) != MUSTER_ERR_NOT_FOUND;
}

/* NCCL may see a broken connection before anybody knows whose fault it is. muster decides: is a rank lost, or is NCCL wrong? */
static enum outcome ask_muster(const struct training *t, ncclResult_t result) {
    for (int64_t end = now_ms() + VERDICT_MS; now_ms() < end; rest()) {
        if (is_broken(t)) {
            return LOST;
        }
    }
    return nccl_failed(t, "NCCL failed, though no rank is lost", result);
}

/* Waits until NCCL has taken up what it was asked for, and the device has carried it out. */
static enum outcome await(const struct training *t) {
    for (int64_t end = now_ms() + PATIENCE_MS; now_ms() < end; rest()) {
        ncclResult_t state = ncclInProgress;
        ncclResult_t asked = ncclCommGetAsyncError(t->communicator, &state);
        if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress)) {
            return ask_muster(t, asked != ncclSuccess ? asked : state);
        }
        CUresult stream = state == ncclSuccess ? cuStreamQuery(t->stream) : CUDA_ERROR_NOT_READY;
        if (stream == CUDA_SUCCESS) {
            return DONE;
        }
        if (stream != CUDA_ERROR_NOT_READY) {
            return cuda_failed(t, "cuStreamQuery", stream);
        }
        if (is_broken(t)) {
            return LOST;
        }
    }
    fprintf(stderr, "rank %d: NCCL has not finished in %d ms, though no rank is lost\n", t->rank, PATIENCE_MS);
    return FAILED;
}

/* Ends this process as if something else had killed it. */
static void die_if(const struct training *t, int in_init) {
    if (t->rank == t->lose_rank && t->lose_in_init == in_init && muster_restarts(t->cluster) == 0) {
        kill(getpid(), SIGKILL);
    }
}

static enum outcome make_communicator(struct training *t) {
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    ncclResult_t result = t->rank == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    if (result != ncclSuccess) {
        return nccl_failed(t, "ncclGetUniqueId", result);
    }
    if (muster_broadcast(muster_world(t->cluster), &id, sizeof id, MUSTER_UINT8, 0) != MUSTER_OK) {
        return LOST;
    }
    die_if(t, 1);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    result = ncclCommInitRankConfig(&t->communicator, t->ranks, id, t->rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) {
        return ask_muster(t, result);
    }
    t->communicators++;
    return await(t);
}

static void drop_communicator(struct training *t) {
    if (t->communicator != NULL) {
        ncclCommAbort(t->communicator); /* what waits on the device ends, too */
        t->communicator = NULL;
    }
}

/* All go on where the first of them is: a rank that comes back knows of no step. A training would have to agree on the newest
 * state that all have, and load it; here a step leaves nothing behind. */
static enum outcome agree_on_step(struct training *t) {
    int64_t first = 0; /* after a failure nobody knows what it holds */
    if (muster_allreduce(muster_world(t->cluster), &t->step, &first, 1, MUSTER_INT64, MUSTER_MAX) != MUSTER_OK) {
        return LOST;
    }
    t->step = first;
    return DONE;
}

/* What all ranks' numbers are made of: so small that floats hold the sums exactly, of up to 2,364 ranks. */
static int small(const struct training *t, size_t i) { return (int)((i + (size_t)t->step) % 7); }

/* Reduces on the device, and checks what has come. */
static enum outcome take_step(struct training *t) {
    for (size_t i = 0; i < COUNT; i++) {
        t->host[i] = (float)((t->rank + 1) * small(t, i));
    }
    CUresult copied = cuMemcpyHtoDAsync(t->data, t->host, sizeof t->host, t->stream); /* any other stream has no order with it */
    if (copied != CUDA_SUCCESS) {
        return cuda_failed(t, "cuMemcpyHtoDAsync", copied);
    }
    if (t->step == t->steps / 2) {
        die_if(t, 0);
    }
    void *data = (void *)(uintptr_t)t->data;
    ncclResult_t result = ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum, t->communicator, t->stream);
    if (result != ncclSuccess && result != ncclInProgress) {
        return ask_muster(t, result);
    }
    enum outcome outcome = await(t);
    if (outcome != DONE) {
        return outcome;
    }
    copied = cuMemcpyDtoH(t->host, t->data, sizeof t->host);
    if (copied != CUDA_SUCCESS) {
        return cuda_failed(t, "cuMemcpyDtoH", copied);
    }
    for (size_t i = 0; i < COUNT; i++) {
        float right = (float)(t->ranks * (t->ranks + 1) / 2 * small(t, i));
        if (t->host[i] != right) {
            fprintf(stderr, "rank %d: step %" PRId64 ": element %zu is %g, not %g\n", t->rank, t->step, i, t->host[i], right);
            return FAILED;
        }
    }
    t->step++;
    return DONE;
}

/* The steps with one communicator, from its making to its end. Nobody takes it down before all have come to the end. */
static enum outcome train(struct training *t) {
    enum outcome outcome = make_communicator(t);
    if (outcome == DONE) {
        outcome = agree_on_step(t);
    }
    if (outcome == DONE) {
        printf("rank %d: epoch %" PRId64 ": a communicator of %d; goes on from step %" PRId64 "\n", t->rank,
               muster_epoch(t->cluster), t->ranks, t->step);
    }
    while (outcome == DONE && t->step < t->steps) {
        outcome = take_step(t);
    }
    if (outcome != DONE || muster_barrier(muster_world(t->cluster)) != MUSTER_OK) {
        return outcome != DONE ? outcome : LOST;
    }
    ncclResult_t result = ncclCommFinalize(t->communicator);
    if ((result == ncclSuccess || result == ncclInProgress) && await(t) == DONE) {
        ncclCommDestroy(t->communicator);
        t->communicator = NULL;
    }
    drop_communicator(t); /* where it could not be ended in order; the work is done in any case */
    return DONE;
}

/* Prints the first cause: as a sentence, or what of it muster_failure_t has room for. */
static void say_why(const struct training *t) {
    muster_failure_t failure = {.cause = ""};
    char sentence[1024];
    muster_failure(t->cluster, &failure, sizeof failure);
    muster_status_t fits = muster_cluster_error(t->cluster, sentence, sizeof sentence, NULL);
    printf("rank %d: step %" PRId64 ": %s\n", t->rank, t->step, fits == MUSTER_OK ? sentence : failure.cause);
    fflush(stdout);
}

/* Goes from one loss to the next, until all steps are done. */
static int train_and_recover(struct training *t) {
    enum outcome outcome;
    while ((outcome = train(t)) == LOST) {
        say_why(t);
        drop_communicator(t);
        if (muster_recover(t->cluster, -1) != MUSTER_OK) {
            fprintf(stderr, "nccl_communicator: muster_recover: %s\n", muster_last_error());
            return EXIT_FAILURE;
        }
    }
    drop_communicator(t);
    if (outcome == FAILED) {
        muster_abort(t->cluster, 1, "NCCL or CUDA failed on this rank; its log says how");
        return EXIT_FAILURE;
    }
    printf("rank %d: %" PRId64 " steps, communicators made: %d, all sums right\n", t->rank, t->step, t->communicators);
    return EXIT_SUCCESS;
}

/* The device of the local rank, a stream, and memory. */
static enum outcome open_device(struct training *t) {
    int devices = 0;
    CUdevice device = 0;
    CUcontext context = NULL;
    const char *call = "cuInit";
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceGetCount";
        result = cuDeviceGetCount(&devices);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceGet";
        result = cuDeviceGet(&device, devices == 0 ? 0 : muster_local_rank(t->cluster) % devices);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuDevicePrimaryCtxRetain";
        result = cuDevicePrimaryCtxRetain(&context, device);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuCtxSetCurrent";
        result = cuCtxSetCurrent(context);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuStreamCreate";
        result = cuStreamCreate(&t->stream, CU_STREAM_NON_BLOCKING);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuMemAlloc";
        result = cuMemAlloc(&t->data, sizeof t->host);
    }
    return result == CUDA_SUCCESS ? DONE : cuda_failed(t, call, result);
}

static void close_device(struct training *t) {
    cuMemFree(t->data);
    cuStreamDestroy(t->stream);
}

static int read_options(int argc, char **argv, struct training *t) {
    long steps = t->steps;
    int right = 1;
    for (int i = 1; i < argc && right; i++) {
        if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
            right = read_number(argv[++i], 1, INT_MAX, &steps);
        } else if (strcmp(argv[i], "--lose") == 0 && i + 2 < argc) {
            right = read_number(argv[++i], 0, INT_MAX, &t->lose_rank);
            t->lose_in_init = strcmp(argv[++i], "init") == 0;
            right = right && (t->lose_in_init || strcmp(argv[i], "step") == 0);
        } else {
            right = 0;
        }
    }
    t->steps = steps;
    if (!right) {
        fprintf(stderr, "usage: nccl_communicator [--steps N] [--lose RANK init|step]\n");
    }
    return right;
}

/* Returns NULL if --lose names a rank of the cluster, or why not: else nobody would be lost, and all would seem to be well. */
static const char *no_such_rank(const struct training *t) {
    static char reason[100];
    snprintf(reason, sizeof reason, "--lose %ld: the ranks are 0 to %d", t->lose_rank, t->ranks - 1);
    return t->lose_rank < t->ranks ? NULL : reason;
}

int main(int argc, char **argv) {
    static struct training training = {.steps = 20, .lose_rank = -1};
    if (!read_options(argc, argv, &training)) {
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* a framework may write to a connection whose other end is gone */
    muster_status_t status = muster_init(NULL, &training.cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        fprintf(stderr, "nccl_communicator: muster_init: %s\n", muster_last_error());
        return EXIT_FAILURE;
    }
    training.rank = muster_rank(training.cluster);
    training.ranks = muster_size(training.cluster);
    int result = EXIT_FAILURE;
    const char *reason = no_such_rank(&training);
    if (reason == NULL) {
        reason = load_nccl_and_cuda();
    }
    if (reason != NULL) {
        fprintf(stderr, "nccl_communicator: %s\n", reason);
        muster_abort(training.cluster, 1, reason);
    } else if (open_device(&training) != DONE) {
        muster_abort(training.cluster, 1, "this rank has no device; its log says why");
    } else {
        result = train_and_recover(&training);
        close_device(&training);
    }
    if (result == EXIT_SUCCESS && muster_finalize(training.cluster) != MUSTER_OK) {
        fprintf(stderr, "nccl_communicator: muster_finalize: %s\n", muster_last_error());
        result = EXIT_FAILURE;
    }
    muster_cluster_free(training.cluster);
    return result;
}
