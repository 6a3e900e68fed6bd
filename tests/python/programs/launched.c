/* A rank that some launcher has started: joins without any setting of muster's, and finds out whether only its own job is there.
 *
 *   launched JOB RANKS plain|before|after
 *
 * All ranks of a job are given the same number JOB, and ranks of another job another one. With `before` and `after` the program
 * uses MPI, too (compiled with -DWITH_MPI): muster_init comes before or after MPI_Init, and both must agree on every rank.
 */
#include <muster.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

static muster_cluster_t *cluster;

static void check(muster_status_t status, const char *what) {
    if (status != MUSTER_OK) {
        fprintf(stderr, "%s: %s\n", what, muster_last_error());
        exit(2);
    }
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(3);
    }
}

static void join(void) { check(muster_init(NULL, &cluster), "muster_init"); }

static void start_mpi(void) {
#ifdef WITH_MPI
    expect(MPI_Init(NULL, NULL) == MPI_SUCCESS, "MPI_Init failed");
#else
    expect(0, "compiled without MPI");
#endif
}

/* The program's own MPI works, and gives this process the rank that muster gives it. */
static void use_mpi(int ranks) {
#ifdef WITH_MPI
    int rank = -1, size = -1, sum = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    expect(size == ranks && rank == muster_rank(cluster), "MPI and muster do not agree on the rank");
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == ranks * (ranks - 1) / 2, "MPI's sum is wrong");
#else
    (void)ranks;
#endif
}

int main(int argc, char **argv) {
    expect(argc == 4, "usage: launched JOB RANKS plain|before|after");
    int64_t job = strtoll(argv[1], NULL, 10);
    int ranks = atoi(argv[2]);
    int before = strcmp(argv[3], "before") == 0, after = strcmp(argv[3], "after") == 0;
    if (after) {
        start_mpi();
    }
    join();
    if (before) {
        start_mpi();
    }
    expect(muster_size(cluster) == ranks, "another number of ranks than the launcher started");
    int64_t *jobs = calloc((size_t)ranks, sizeof *jobs);
    check(muster_allgather(muster_world(cluster), &job, jobs, 1, MUSTER_INT64), "muster_allgather");
    for (int rank = 0; rank < ranks; rank++) {
        expect(jobs[rank] == job, "a rank of another job is in this cluster");
    }
    free(jobs);
    if (before || after) {
        use_mpi(ranks);
    }
    printf("job %" PRId64 ": rank %d of %d\n", job, muster_rank(cluster), ranks);
    check(muster_finalize(cluster), "muster_finalize");
    muster_cluster_free(cluster);
#ifdef WITH_MPI
    if (before || after) {
        MPI_Finalize();
    }
#endif
    return 0;
}
