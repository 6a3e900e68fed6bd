/* A program that carries the library within itself. */
#include "check.h"

int main(void) {
    muster_cluster_t *cluster = NULL;
    int64_t mine = 41;
    int64_t sum = 0;
    CHECK_OK(muster_init(NULL, &cluster));
    CHECK_OK(muster_allreduce(muster_world(cluster), &mine, &sum, 1, MUSTER_INT64, MUSTER_SUM));
    CHECK(sum == 41);
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    return 0;
}
