/* The store: what is set is found by everyone; waiting, limits, and counting exactly. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>

enum { ADDERS = 8, ADDITIONS = 100, KEY_MAX = 4096, VALUE_MAX = 16 << 20 };

static void expect_value(muster_cluster_t *cluster, const char *key, const void *expected, size_t bytes) {
    void *value = NULL;
    size_t len = 0;
    CHECK_OK(muster_store_get(cluster, key, 30000 * patience(), &value, &len));
    CHECK(len == bytes && memcmp(value, expected, bytes) == 0);
    CHECK(((char *)value)[len] == 0);
    muster_free(value);
}

/* What one node writes the other reads: empty, binary, overwritten. */
static void set_and_get(muster_cluster_t *cluster, int index) {
    unsigned char binary[256];
    for (int i = 0; i < 256; i++) {
        binary[i] = (unsigned char)(255 - i);
    }
    if (index == 0) {
        CHECK_OK(muster_store_set(cluster, "empty", NULL, 0));
        CHECK_OK(muster_store_set(cluster, "binary", binary, sizeof binary));
        CHECK_OK(muster_store_set(cluster, "twice", "first", 5));
        CHECK_OK(muster_store_set(cluster, "twice", "second one", 10));
        CHECK_OK(muster_store_set(cluster, "\xff not UTF-8", "x", 1)); /* a key is bytes */
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    expect_value(cluster, "empty", "", 0);
    expect_value(cluster, "binary", binary, sizeof binary);
    expect_value(cluster, "twice", "second one", 10);
    expect_value(cluster, "\xff not UTF-8", "x", 1);
}

static void compare_and_delete(muster_cluster_t *cluster, int index) {
    void *current = NULL;
    size_t len = 0;
    int32_t existed = -1;
    if (index == 0) {
        /* A key that is not there counts as empty. */
        CHECK_OK(muster_store_compare_set(cluster, "cas", "old", 3, "new", 3, &current, &len));
        CHECK(len == 0);
        muster_free(current);
        CHECK_OK(muster_store_compare_set(cluster, "cas", NULL, 0, "new", 3, &current, &len));
        CHECK(len == 3 && memcmp(current, "new", 3) == 0);
        muster_free(current);
        CHECK_OK(muster_store_compare_set(cluster, "cas", "old", 3, "other", 5, &current, &len));
        CHECK(len == 3 && memcmp(current, "new", 3) == 0); /* what was there instead */
        muster_free(current);
        CHECK_OK(muster_store_compare_set(cluster, "cas", "new", 3, "newer", 5, NULL, NULL));
        expect_value(cluster, "cas", "newer", 5);
        CHECK_OK(muster_store_delete(cluster, "cas", &existed));
        CHECK(existed == 1);
        CHECK_OK(muster_store_delete(cluster, "cas", &existed));
        CHECK(existed == 0);
        CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "cas", muster_store_get(cluster, "cas", 0, &current, &len));
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
}

/* Exactly one of all that try to be the first is the first. */
static void one_winner(muster_cluster_t *cluster, int index) {
    char mine[16];
    void *current = NULL;
    size_t len = 0;
    snprintf(mine, sizeof mine, "node %d", index);
    CHECK_OK(muster_store_compare_set(cluster, "leader", NULL, 0, mine, strlen(mine), &current, &len));
    if (len == strlen(mine) && memcmp(current, mine, len) == 0) {
        CHECK_OK(muster_store_add(cluster, "winners", 1, NULL));
    }
    muster_free(current);
    int64_t winners = 0;
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_store_add(cluster, "winners", 0, &winners));
    CHECK_IS(1, winners);
}

/* A get that waits is answered by a set elsewhere. The setter sees the waiter's own sign first. */
static void waiting(muster_cluster_t *cluster, int index) {
    const char *keys[] = {"first", "second"};
    if (index == 0) {
        CHECK_OK(muster_store_set(cluster, "I am about to wait", NULL, 0));
        expect_value(cluster, "awaited", "here", 4);
        CHECK_OK(muster_store_set(cluster, "I am about to wait for two", NULL, 0));
        CHECK_OK(muster_store_wait(cluster, keys, 2, INT64_MAX));
    } else {
        expect_value(cluster, "I am about to wait", "", 0);
        CHECK_OK(muster_store_set(cluster, "awaited", "here", 4));
        expect_value(cluster, "I am about to wait for two", "", 0);
        CHECK_OK(muster_store_set(cluster, keys[1], NULL, 0));
        CHECK_OK(muster_store_set(cluster, keys[0], NULL, 0));
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
}

static void timeouts(muster_cluster_t *cluster) {
    void *value = NULL;
    size_t len = 0;
    const char *keys[] = {"empty", "nobody sets this"};
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "nobody sets this", muster_store_get(cluster, keys[1], 0, &value, &len));
    double begin = now_s();
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, "nobody sets this", muster_store_get(cluster, keys[1], 50, &value, &len));
    CHECK(now_s() - begin >= 0.05 && now_s() - begin < 5 * patience());
    CHECK(value == NULL && len == 0);
    CHECK_OK(muster_store_get(cluster, keys[0], 50 * patience(), &value, NULL)); /* needless if the length is known */
    CHECK(((char *)value)[0] == 0);
    muster_free(value);
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "nobody sets this", muster_store_wait(cluster, keys, 2, 0));
    begin = now_s();
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, "store wait for 2 keys: nobody has set \"nobody sets this\" within 0.05 s",
                muster_store_wait(cluster, keys, 2, 50));
    CHECK(now_s() - begin >= 0.05 && now_s() - begin < 5 * patience());
    CHECK_OK(muster_store_wait(cluster, keys, 1, 50 * patience()));
    /* The default is a setting, here half a second. */
    begin = now_s();
    CHECK_IS(MUSTER_ERR_TIMEOUT, muster_store_get(cluster, keys[1], -1, &value, &len));
    CHECK(now_s() - begin >= 0.5 && now_s() - begin < 5 * patience());
}

/* Each limit is told in the sentence, and exactly as much as the limit is allowed. */
static void limits(muster_cluster_t *cluster) {
    char *key = malloc(KEY_MAX + 2);
    unsigned char *value = malloc(VALUE_MAX + 1);
    CHECK(key != NULL && value != NULL);
    memset(key, 'k', KEY_MAX + 1);
    key[KEY_MAX + 1] = 0;
    for (size_t i = 0; i <= VALUE_MAX; i++) {
        value[i] = (unsigned char)(i * 11 + (i >> 16));
    }
    CHECK_FAILS(MUSTER_ERR_LIMIT, "4096", muster_store_set(cluster, key, "v", 1));
    key[KEY_MAX] = 0;
    CHECK_OK(muster_store_set(cluster, key, "v", 1));
    expect_value(cluster, key, "v", 1);
    CHECK_FAILS(MUSTER_ERR_LIMIT, "16777216", muster_store_set(cluster, "large", value, VALUE_MAX + 1));
    CHECK_OK(muster_store_set(cluster, "large", value, VALUE_MAX));
    expect_value(cluster, "large", value, VALUE_MAX);
    CHECK_FAILS(MUSTER_ERR_LIMIT, "16777216",
                muster_store_compare_set(cluster, "large", value, 5, value, VALUE_MAX + 1, NULL, NULL));
    CHECK_OK(muster_store_delete(cluster, "large", NULL));
    free(key);
    free(value);
}

static void two_nodes(muster_cluster_t *cluster, int index, void *context) {
    (void)context;
    set_and_get(cluster, index);
    compare_and_delete(cluster, index);
    one_winner(cluster, index);
    waiting(cluster, index);
    if (index == 0) {
        timeouts(cluster);
        limits(cluster);
    }
}

/* All together may hold so much and no more; what is deleted makes room. */
static void small_total(muster_cluster_t *cluster, int index, void *context) {
    static const char value[600];
    (void)index, (void)context;
    CHECK_OK(muster_store_set(cluster, "one", value, sizeof value));
    CHECK_FAILS(MUSTER_ERR_LIMIT, "1000", muster_store_set(cluster, "two", value, sizeof value));
    CHECK_OK(muster_store_set(cluster, "two", value, 100));
    CHECK_OK(muster_store_delete(cluster, "one", NULL));
    CHECK_OK(muster_store_set(cluster, "three", value, sizeof value));
}

static void add_up(muster_cluster_t *cluster, int index, void *context) {
    int64_t before = INT64_MIN;
    (void)context;
    for (int i = 0; i < ADDITIONS; i++) {
        int64_t sum = 0;
        CHECK_OK(muster_store_add(cluster, "sum", index + 1, &sum));
        CHECK(sum > before);
        before = sum;
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_store_add(cluster, "sum", 0, &before));
    CHECK_IS(ADDITIONS * ADDERS * (ADDERS + 1) / 2, before);
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_store_add(cluster, "sum", -1, NULL));
}

static void *add_from_thread(void *argument) {
    for (int i = 0; i < ADDITIONS; i++) {
        CHECK_OK(muster_store_add(argument, "of threads", 1, NULL));
    }
    return NULL;
}

/* Threads may share a handle. */
static void add_in_threads(muster_cluster_t *cluster, int index, void *context) {
    pthread_t threads[ADDERS];
    int64_t sum = 0;
    (void)index, (void)context;
    for (int i = 0; i < ADDERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, add_from_thread, cluster) == 0);
    }
    for (int i = 0; i < ADDERS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_OK(muster_store_add(cluster, "of threads", 0, &sum));
    CHECK_IS(ADDERS * ADDITIONS, sum);
}

/* A rank that has left is told so, by a sentence that names the call once. */
static void after_leaving(muster_cluster_t *cluster, int index, void *context) {
    static const char *const key = "k";
    void *value = NULL;
    size_t len = 0;
    (void)index, (void)context;
    CHECK_OK(muster_finalize(cluster));
    CHECK_IS(MUSTER_ERR_STATE, muster_store_add(cluster, key, 1, NULL));
    CHECK(strcmp(muster_last_error(), "store add of \"k\": this process has left its cluster") == 0);
    CHECK_IS(MUSTER_ERR_STATE, muster_store_get(cluster, key, 0, &value, &len));
    CHECK(strcmp(muster_last_error(), "store get of \"k\": this process has left its cluster") == 0);
    CHECK_IS(MUSTER_ERR_STATE, muster_store_wait(cluster, &key, 1, -1));
    CHECK(strcmp(muster_last_error(), "store wait for \"k\": this process has left its cluster") == 0);
    CHECK(value == NULL && len == 0);
}

int main(void) {
    static const char *const half_a_second[] = {"store_timeout", "0.5", NULL};
    static const char *const thousand[] = {"store_total_limit", "1000", NULL};
    struct plan two = {.workers = 2, .node_ids = rank_ids, .settings = half_a_second, .body = two_nodes};
    struct plan small = {.workers = 1, .settings = thousand, .body = small_total};
    struct plan adders = {.workers = ADDERS, .node_ids = rank_ids, .body = add_up};
    struct plan threads = {.workers = 1, .body = add_in_threads};
    struct plan leaving = {.workers = 1, .body = after_leaving};
    run_nodes(&two);
    run_nodes(&small);
    run_nodes(&adders);
    run_nodes(&threads);
    run_nodes(&leaving);
    return 0;
}
