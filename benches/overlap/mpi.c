/* mpi: times MPI_Iallreduce as `muster bench iallreduce` times ours: alone with its wait, then with as much computing in between.
 *
 *   mpirun -n N mpi 8 65536
 *
 * Sums of float32 in place. Prints a line per size: bytes, iterations, then microseconds, the means of all calls and ranks: the call
 * that waits, call and wait, computing, all three; then the overlap in percent.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;
static float *buffer;
static int count;
static double computed;

static void compute(double seconds) {
    static volatile float kept;
    float numbers[64];
    double begun = MPI_Wtime();
    for (int i = 0; i < 64; i++) numbers[i] = 1;
    while (MPI_Wtime() - begun < seconds) {
        for (int i = 0; i < 64; i++) numbers[i] = numbers[i] * 0.999f + 0.001f;
        kept = numbers[0];
    }
    (void)kept;
    computed += MPI_Wtime() - begun;
}

static void blocking(double seconds) {
    (void)seconds;
    MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void overlapped(double seconds) {
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (seconds > 0) compute(seconds);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static double mean_of_all(double mine) {
    double sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / ranks;
}

/* Seconds per call. */
static double timed(void (*call)(double), double seconds, int times) {
    double took = 0;
    for (int nth = 0; nth < times; nth++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = MPI_Wtime();
        call(seconds);
        took += MPI_Wtime() - begun;
    }
    return mean_of_all(took / times);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int at = 1; at < argc; at++) {
        long bytes = atol(argv[at]);
        count = (int)(bytes / (long)sizeof(float));
        buffer = malloc((size_t)bytes);
        if (!buffer || bytes <= 0) MPI_Abort(MPI_COMM_WORLD, 2);
        for (int i = 0; i < count; i++) buffer[i] = (float)(i % 13 + rank);
        overlapped(0);
        for (int i = 0; i < count; i++)
            if (buffer[i] != (float)(i % 13 * ranks + ranks * (ranks - 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 3);
        for (int i = 0; i < count; i++) buffer[i] = 0; /* sums of sums would grow without end */
        double guess = 0.25 / timed(overlapped, 0, 5);
        int times = guess < 5 ? 5 : guess > 20000 ? 20000 : (int)guess;
        MPI_Bcast(&times, 1, MPI_INT, 0, MPI_COMM_WORLD);
        double alone = timed(blocking, 0, times), wait = timed(overlapped, 0, times);
        computed = 0;
        double overall = timed(overlapped, wait, times), own = mean_of_all(computed / times);
        double overlap = 100 - 100 * (overall - own) / wait;
        overlap = overlap < 0 ? 0 : overlap > 100 ? 100 : overlap;
        if (rank == 0)
            printf("%ld,%d,%.2f,%.2f,%.2f,%.2f,%.1f\n", bytes, times, alone * 1e6, wait * 1e6, own * 1e6, overall * 1e6, overlap);
        free(buffer);
    }
    MPI_Finalize();
    return 0;
}
