/*
 * scripts/bench_python.py compares this with Python: the same allreduce in a loop of C, in the same process and on the same
 * group.
 *
 * Built as a shared object, against muster alone, or with -DWITH_MPI by mpicc.
 */

#include <stdint.h>
#include <time.h>

static int64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifdef WITH_MPI
#include <mpi.h>

/* Nanoseconds that `calls` allreduces of two floats take, or -1. */
int64_t loop(const MPI_Comm *comm, void *data, int64_t calls, int32_t clock) {
    int64_t began = now_ns(clock);
    for (int64_t call = 0; call < calls; call++)
        if (MPI_Allreduce(MPI_IN_PLACE, data, 2, MPI_FLOAT, MPI_SUM, *comm) != MPI_SUCCESS) return -1;
    return now_ns(clock) - began;
}
#else
#include <muster.h>

int64_t loop(muster_group_t *group, void *data, int64_t calls, int32_t clock) {
    int64_t began = now_ns(clock);
    for (int64_t call = 0; call < calls; call++)
        if (muster_allreduce(group, data, data, 2, MUSTER_FLOAT32, MUSTER_SUM) != MUSTER_OK) return -1;
    return now_ns(clock) - began;
}

/* Has the signature of muster_allreduce and does nothing: what ctypes costs. */
int32_t nothing(void *group, const void *in, void *out, size_t count, int32_t dtype, int32_t op) {
    (void)group, (void)in, (void)out, (void)count, (void)dtype, (void)op;
    return 0;
}
#endif
