/* Groups that are made: of ranks, by colour and key, of groups, by several at once; and nothing is left of them. */
#include "check.h"
#include "nodes.h"
#include "own.h"

#include <pthread.h>
#include <stdlib.h>

enum { SIZE = 5, SETTLED = 10, MANY = 200, MANY_WHERE_WATCHED = 20, REDUCES = 50, REDUCES_WHERE_WATCHED = 8 };

/* The sum of the world ranks of a group's members, by an allreduce on it. */
static int32_t sum_of_world_ranks(muster_group_t *group, muster_cluster_t *cluster) {
    int32_t sum = muster_rank(cluster);
    CHECK_OK(muster_allreduce(group, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM));
    return sum;
}

static void created(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t ranks[] = {4, 0, 3};
    static const int32_t place[SIZE] = {1, -1, -1, 2, 0};
    muster_group_t *group = (muster_group_t *)(uintptr_t)64;
    (void)context;
    CHECK_OK(muster_group_create(muster_world(cluster), ranks, 3, &group));
    CHECK((group != NULL) == (place[index] >= 0));
    if (group != NULL) {
        CHECK_IS(place[index], muster_group_rank(group));
        CHECK_IS(3, muster_group_size(group));
        for (int32_t rank = 0; rank < 3; rank++) {
            muster_member_t member;
            CHECK_IS(ranks[rank], muster_group_to_world(group, rank));
            CHECK_IS(rank, muster_group_from_world(group, ranks[rank]));
            CHECK_OK(muster_group_member(group, rank, &member, sizeof member));
            CHECK(member.node_id[0] == '0' + ranks[rank]);
        }
        CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "worker 1 is no member", muster_group_from_world(group, 1));
        CHECK_IS(7, sum_of_world_ranks(group, cluster));
        /* A group of a group, in which ranks are that group's. */
        static const int32_t two[] = {2, 1};
        muster_group_t *inner = NULL;
        CHECK_OK(muster_group_create(group, two, 2, &inner));
        CHECK((inner != NULL) == (index != 4));
        if (inner != NULL) {
            CHECK_IS(index == 3 ? 0 : 1, muster_group_rank(inner));
            CHECK_IS(3, sum_of_world_ranks(inner, cluster));
        }
        muster_group_free(group); /* what was made of it lives on */
        if (inner != NULL) {
            CHECK_IS(3, sum_of_world_ranks(inner, cluster));
            muster_group_free(inner);
        }
    }
    muster_group_t *none = (muster_group_t *)(uintptr_t)64;
    CHECK_OK(muster_group_create(muster_world(cluster), NULL, 0, &none));
    CHECK(none == NULL);
    CHECK_IS(10, sum_of_world_ranks(muster_world(cluster), cluster));
}

static void split(muster_cluster_t *cluster, int index, void *context) {
    /* Ranks 0, 3 and 4 have colour 9; by key and then by rank they are 4, 0, 3. Rank 2 is alone, rank 1 in no group. */
    static const int32_t colour[SIZE] = {9, -1, 2, 9, 9}, key[SIZE] = {5, 0, 0, 5, -3};
    static const int32_t rank[SIZE] = {1, -1, 0, 2, 0}, size[SIZE] = {3, 0, 1, 3, 3};
    muster_group_t *group = NULL;
    (void)context;
    CHECK_OK(muster_group_split(muster_world(cluster), colour[index], key[index], &group));
    CHECK((group == NULL) == (index == 1));
    if (group != NULL) {
        CHECK_IS(rank[index], muster_group_rank(group));
        CHECK_IS(size[index], muster_group_size(group));
        CHECK_IS(index == 2 ? 2 : 7, sum_of_world_ranks(group, cluster));
        muster_group_free(group);
    }
}

static void *reduce_often(void *argument) {
    muster_group_t *group = argument;
    for (int32_t round = 0; round < less_where_watched(REDUCES, REDUCES_WHERE_WATCHED); round++) {
        int32_t value = round;
        CHECK_OK(muster_allreduce(group, &value, &value, 1, MUSTER_INT32, MUSTER_SUM));
        CHECK(value == round * SIZE);
    }
    return NULL;
}

static void at_once(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t all[] = {0, 1, 2, 3, 4};
    muster_group_t *groups[4];
    pthread_t threads[4];
    (void)index, (void)context;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(muster_group_create(muster_world(cluster), all, SIZE, &groups[i]));
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, reduce_often, groups[i]) == 0);
    }
    reduce_often(muster_world(cluster));
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        muster_group_free(groups[i]);
    }
}

static pthread_barrier_t here;

static void many(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t all[] = {4, 3, 2, 1, 0};
    int descriptors = 0, threads = 0, rounds = less_where_watched(MANY, MANY_WHERE_WATCHED);
    (void)context;
    for (int round = 0; round < rounds; round++) {
        muster_group_t *group = NULL;
        muster_request_t *request = NULL;
        int32_t one = 1, sum = 0;
        CHECK_OK(muster_group_create(muster_world(cluster), all, SIZE, &group));
        CHECK_OK(muster_barrier(group));
        CHECK_OK(muster_iallreduce(group, &one, &sum, 1, MUSTER_INT32, MUSTER_SUM, &request));
        CHECK_OK(muster_request_wait(request, -1));
        CHECK(sum == SIZE);
        muster_request_free(request);
        muster_group_free(group);
        if ((round >= SETTLED - 5 && round <= SETTLED) || round == rounds - 1) {
            CHECK_OK(muster_barrier(muster_world(cluster)));
            pthread_barrier_wait(&here);
            if (index == 0 && round <= SETTLED) { /* the least of several: what is over may not be closed yet */
                int open = own_descriptors(), run = own_threads();
                descriptors = descriptors == 0 || open < descriptors ? open : descriptors;
                threads = threads == 0 || run < threads ? run : threads;
            } else if (index == 0) {
                CHECK(own_threads_are(threads));
                CHECK(own_descriptors_are(descriptors));
            }
            pthread_barrier_wait(&here);
        }
    }
}

static void freed_by_one(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t two[] = {0, 1};
    muster_group_t *group = NULL;
    (void)context;
    CHECK_OK(muster_group_create(muster_world(cluster), two, 2, &group));
    if (index == 0) {
        CHECK_FAILS(MUSTER_ERR_PEER_LEFT, "has freed group", muster_barrier(group));
        muster_group_free(group);
    } else if (index == 1) {
        muster_group_free(group);
    }
    muster_group_free(NULL);
    muster_group_free(muster_world(cluster)); /* its cluster's: nothing happens */
    CHECK_OK(muster_barrier(muster_world(cluster)));
}

static void outlives(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t **kept = context;
    CHECK_OK(muster_group_split(muster_world(cluster), 0, 0, &kept[index]));
    CHECK_OK(muster_barrier(kept[index]));
}

static void another_list(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t ranks[] = {0, 1, 2};
    muster_group_t *group = (muster_group_t *)(uintptr_t)64;
    (void)context;
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "group_create(", muster_group_create(muster_world(cluster), ranks, index == 2 ? 2 : 3, &group));
    CHECK(group == (muster_group_t *)(uintptr_t)64);
    CHECK_FAILS(MUSTER_ERR_MISMATCH, "rank 2", muster_barrier(muster_world(cluster)));
}

static void something_else(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *group = NULL;
    (void)context;
    if (index == 1) {
        CHECK_FAILS(MUSTER_ERR_MISMATCH, "group_split()", muster_barrier(muster_world(cluster)));
    } else {
        CHECK_FAILS(MUSTER_ERR_MISMATCH, "barrier()", muster_group_split(muster_world(cluster), 0, 0, &group));
    }
}

/* A group that is over is freed and made anew, without muster_recover and while world goes on. */
static void made_anew(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *world = muster_world(cluster);
    (void)context;
    CHECK_OK(muster_group_set_timeout(world, 20000 * patience()));
    for (int round = 0; round < 3; round++) {
        muster_group_t *group = NULL;
        muster_status_t status = MUSTER_OK;
        int32_t value = 0;
        CHECK_OK(muster_group_split(world, 0, 0, &group));
        CHECK_IS(0 + 1 + 2, sum_of_world_ranks(group, cluster));
        CHECK_OK(muster_barrier(world)); /* nobody is in that any more when the group is revoked */
        while (status == MUSTER_OK) {
            status = index == round ? muster_barrier(group) : muster_allreduce(group, &value, &value, 1, MUSTER_INT32, MUSTER_SUM);
        }
        CHECK_IS(MUSTER_ERR_MISMATCH, status);
        CHECK_IS(MUSTER_ERR_MISMATCH, muster_barrier(group));
        muster_group_free(group);
        CHECK_OK(muster_barrier(world));
    }
    CHECK_IS(1, muster_epoch(cluster));
}

static void never_called(muster_cluster_t *cluster, int index, void *context) {
    muster_group_t *group = NULL;
    pthread_barrier_t *done = context;
    if (index == 1) {
        pthread_barrier_wait(done);
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "rank 1", muster_group_split(muster_world(cluster), 0, 0, &group));
        return;
    }
    CHECK_OK(muster_group_set_timeout(muster_world(cluster), 700));
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, "rank 1", muster_group_split(muster_world(cluster), 0, 0, &group));
    CHECK_CONTAINS(muster_last_error(), "never entered group_split #1 on world");
    pthread_barrier_wait(done);
}

/* The scheduler's answer takes time, so with a time-out of 0 no group is made, and the parent is over. */
static void without_time(muster_cluster_t *cluster, int index, void *context) {
    static const int32_t ranks[] = {0, 1, 2};
    muster_group_t *parent = NULL, *group = (muster_group_t *)(uintptr_t)64;
    (void)index, (void)context;
    CHECK_OK(muster_group_split(muster_world(cluster), 0, 0, &parent));
    CHECK_OK(muster_group_set_timeout(parent, 0));
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_group_create(parent, ranks, 3, &group));
    CHECK(group == (muster_group_t *)(uintptr_t)64);
    CHECK_OK(muster_group_set_timeout(parent, -1));
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_barrier(parent));
    CHECK_IS(0 + 1 + 2, sum_of_world_ranks(muster_world(cluster), cluster));
    muster_group_free(parent);
}

int main(void) {
    struct plan plan = {.workers = SIZE, .node_ids = rank_ids, .body = created};
    CHECK(pthread_barrier_init(&here, NULL, SIZE) == 0);
    run_nodes(&plan);
    plan.body = split;
    run_nodes(&plan);
    plan.body = at_once;
    run_nodes(&plan);
    plan.body = many;
    run_nodes(&plan);
    plan.body = freed_by_one;
    run_nodes(&plan);
    muster_group_t *kept[SIZE];
    plan.body = outlives;
    plan.context = kept;
    run_nodes(&plan);
    for (int i = 0; i < SIZE; i++) {
        CHECK_FAILS(MUSTER_ERR_STATE, "freed", muster_barrier(kept[i]));
        muster_member_t member;
        CHECK_FAILS(MUSTER_ERR_STATE, "freed", muster_group_member(kept[i], 0, &member, sizeof member));
        muster_group_free(kept[i]);
    }
    plan.workers = 3;
    plan.context = NULL;
    plan.body = another_list;
    run_nodes(&plan);
    plan.body = something_else;
    run_nodes(&plan);
    plan.body = made_anew;
    run_nodes(&plan);
    plan.body = without_time;
    run_nodes(&plan);
    pthread_barrier_t done;
    CHECK(pthread_barrier_init(&done, NULL, 3) == 0);
    plan.body = never_called;
    plan.context = &done;
    run_nodes(&plan);
    CHECK(!own_sockets());
    return 0;
}
