/* A program as it was written when muster.h looked like the one beside this file. It is built with that header, and must go on
 * running with every library of ABI 1. tests/python/test_abi.py runs it on three ranks. */
#include "muster.h"

#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, muster_last_error());
    return 1;
}

int main(void) {
    muster_config_t *config = NULL;
    muster_cluster_t *cluster = NULL;
    if (muster_abi_version() != MUSTER_ABI_VERSION || muster_config_new(MUSTER_ABI_VERSION, &config) != MUSTER_OK) return failed("config");
    if (muster_config_load_env(config) != MUSTER_OK || muster_config_set(config, "finalize_timeout", "20") != MUSTER_OK)
        return failed("settings");
    muster_status_t status = muster_init(config, &cluster);
    muster_config_free(config);
    if (status == MUSTER_SCHEDULER_DONE) return 0;
    if (status != MUSTER_OK) return failed("init");

    muster_group_t *world = muster_world(cluster);
    int32_t rank = muster_rank(cluster), size = muster_size(cluster), epoch = (int32_t)muster_epoch(cluster);
    int64_t sum = 0, mine = rank + 1, all[8] = {0}, told = rank == 0 ? 77 : 0, counted = 0;
    if (muster_allreduce(world, &mine, &sum, 1, MUSTER_INT64, MUSTER_SUM) != MUSTER_OK) return failed("allreduce");
    if (muster_allgather(world, &mine, all, 1, MUSTER_INT64) != MUSTER_OK) return failed("allgather");
    if (muster_broadcast(world, &told, 1, MUSTER_INT64, 0) != MUSTER_OK) return failed("broadcast");
    if (muster_store_add(cluster, "all", 1, &counted) != MUSTER_OK) return failed("store");
    if (muster_barrier(world) != MUSTER_OK) return failed("barrier");

    /* The structs have grown since; this program gets the members that it knows, and nothing behind them is touched. */
    struct {
        muster_member_t member;
        char behind[64];
    } guarded;
    memset(&guarded, 0x5a, sizeof guarded);
    if (muster_group_member(world, rank, &guarded.member, sizeof guarded.member) != MUSTER_OK) return failed("member");
    for (size_t i = 0; i < sizeof guarded.behind; i++)
        if (guarded.behind[i] != 0x5a) return fprintf(stderr, "the library wrote behind the struct\n"), 1;
    int is_self = guarded.member.rank == rank && guarded.member.role == MUSTER_ROLE_WORKER && guarded.member.state == 0 &&
                  strcmp(guarded.member.node_id, muster_node_id(cluster)) == 0;
    muster_failure_t failure;
    muster_status_t cause = muster_failure(cluster, &failure, sizeof failure);

    printf("rank %d of %d, epoch %d: sum %lld, last %lld, told %lld, self %d, cause %d\n", rank, size, epoch, (long long)sum,
           (long long)all[size - 1], (long long)told, is_self, cause);
    if (muster_finalize(cluster) != MUSTER_OK) return failed("finalize");
    muster_cluster_free(cluster);
    return 0;
}
