/* The smoke test: every rank contributes its own number, and every rank prints what came together.
 *
 * Started once with MS_ROLE=MS_SCHED and N times with MS_ROLE=MS_WORKER; on 4 workers each prints
 * [[0.], [1.], [2.], [3.]]
 */
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *call) {
    fprintf(stderr, "allgather: %s: %s\n", call, muster_last_error());
    return EXIT_FAILURE;
}

static void print_column(const float *values, int32_t count) {
    printf("[");
    for (int32_t i = 0; i < count; i++) {
        printf("%s[%.0f.]", i == 0 ? "" : ", ", values[i]);
    }
    printf("]\n");
}

static int gather_and_print(muster_cluster_t *cluster) {
    float mine = (float)muster_rank(cluster);
    int32_t size = muster_size(cluster);
    float *all = malloc((size_t)size * sizeof *all);
    if (all == NULL) {
        fprintf(stderr, "allgather: no memory for %d values\n", (int)size);
        return EXIT_FAILURE;
    }
    int result = EXIT_SUCCESS;
    if (muster_allgather(muster_world(cluster), &mine, all, 1, MUSTER_FLOAT32) == MUSTER_OK) {
        print_column(all, size);
    } else {
        result = fail("muster_allgather");
    }
    free(all);
    return result;
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    muster_status_t status = muster_init(NULL, &cluster);
    if (status == MUSTER_SCHEDULER_DONE) {
        return EXIT_SUCCESS;
    }
    if (status != MUSTER_OK) {
        return fail("muster_init");
    }
    int result = gather_and_print(cluster);
    if (result == EXIT_SUCCESS && muster_finalize(cluster) != MUSTER_OK) {
        result = fail("muster_finalize");
    }
    muster_cluster_free(cluster);
    return result;
}
