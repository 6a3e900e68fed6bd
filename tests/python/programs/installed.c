/* What a user of an installed muster builds: a cluster of one. C and C++ both take it. */
#include <muster.h>

#include <stdio.h>

#ifdef WITH_SECOND
int second_catches_a_panic(void);
#endif

int main(void) {
    muster_cluster_t *cluster = NULL;
    float mine = 20.5f, sum = 0;
    muster_status_t status = muster_init(NULL, &cluster);
    if (status == MUSTER_OK) status = muster_allreduce(muster_world(cluster), &mine, &sum, 1, MUSTER_FLOAT32, MUSTER_SUM);
    if (status == MUSTER_OK) status = muster_finalize(cluster);
    if (status != MUSTER_OK) return fprintf(stderr, "%s\n", muster_last_error()), 1;
    muster_cluster_free(cluster);
#ifdef WITH_SECOND
    if (!second_catches_a_panic()) return 3;
#endif
    printf("muster %s: the sum is %.1f\n", muster_version(), sum);
    return 0;
}
