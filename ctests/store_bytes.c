/* The store by keys with a length, and what takes only those: append, several keys in one request, which keys there are. */
#include "check.h"
#include "nodes.h"
#include "ranks.h"

#include <stdlib.h>

enum { MANY = 12000, APPENDERS = 4, APPENDS = 100, KEY_LIMIT = 4096, MIB = 1 << 20 };

static muster_bytes_t of(const char *data, size_t len) { return (muster_bytes_t){data, len}; }

static void expect(muster_bytes_t found, const char *expected, size_t len) {
    CHECK(found.len == len && memcmp(found.data, expected, len) == 0);
    CHECK(((const char *)found.data)[len] == 0);
}

static void expect_value(muster_cluster_t *cluster, const char *key, size_t key_len, const char *expected, size_t len) {
    muster_bytes_t found = {NULL, 0};
    void *value = NULL;
    CHECK_OK(muster_store_get_bytes(cluster, key, key_len, 30000 * patience(), &value, &found.len));
    found.data = value;
    expect(found, expected, len);
    muster_free(value);
}

/* Two keys that differ only behind a zero byte are different keys. A C string names the same key as its bytes. */
static void zeros(muster_cluster_t *cluster) {
    int64_t sum = 0;
    int32_t existed = -1;
    CHECK_OK(muster_store_set_bytes(cluster, "k\0l", 3, "first", 5));
    CHECK_OK(muster_store_set_bytes(cluster, "k\0m", 3, "second", 6));
    CHECK_OK(muster_store_set(cluster, "k", "plain", 5));
    expect_value(cluster, "k\0l", 3, "first", 5);
    expect_value(cluster, "k\0m", 3, "second", 6);
    expect_value(cluster, "k", 1, "plain", 5);
    CHECK_OK(muster_store_add_bytes(cluster, "n\0", 2, 5, &sum));
    CHECK_OK(muster_store_add_bytes(cluster, "n\0", 2, 2, &sum));
    CHECK_IS(7, sum);
    CHECK_OK(muster_store_delete_bytes(cluster, "k\0l", 3, &existed));
    CHECK_IS(1, existed);
    CHECK_OK(muster_store_delete_bytes(cluster, "k\0l", 3, &existed));
    CHECK_IS(0, existed);
    expect_value(cluster, "k\0m", 3, "second", 6);
    muster_bytes_t wanted[] = {of("k\0m", 3), of("k\0l", 3)};
    CHECK_OK(muster_store_wait_bytes(cluster, wanted, 1, 0));
    CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "store wait for 2 keys: no key \"k\\0l\" in the store",
                muster_store_wait_bytes(cluster, wanted, 2, 0));
    CHECK_FAILS(MUSTER_ERR_TIMEOUT, "nobody has set \"k\\0l\" within 0.05 s", muster_store_wait_bytes(cluster, wanted, 2, 50));
}

/* What a missing key answers: nothing, or as PyTorch's stores do. */
static void compared(muster_cluster_t *cluster) {
    static const struct {
        const char *expected, *desired;
        int32_t flags;
        const char *now;
    } rows[] = {
        {"old", "new", 0, ""},
        {"old", "new", MUSTER_STORE_C10D, "old"}, /* it is not set */
        {"old", "new", 0, ""},
        {"", "new", MUSTER_STORE_C10D, "new"},
        {"old", "newer", MUSTER_STORE_C10D, "new"},
        {"new", "newer", MUSTER_STORE_C10D, "newer"},
        {"newer", "", MUSTER_STORE_C10D, ""},
        {"x", "y", MUSTER_STORE_C10D, ""}, /* there, and empty */
        {"", "last", 0, "last"},
    };
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        muster_bytes_t now = {NULL, 77};
        void *current = NULL;
        const char *expected = rows[at].expected, *desired = rows[at].desired;
        CHECK_OK(muster_store_compare_set_bytes(cluster, "c\0s", 3, expected, strlen(expected), desired, strlen(desired),
                                                rows[at].flags, &current, &now.len));
        now.data = current;
        expect(now, rows[at].now, strlen(rows[at].now));
        muster_free(current);
    }
}

/* Several keys in one request: all or none, of one moment. */
static void several(muster_cluster_t *cluster, int index) {
    muster_bytes_t keys[] = {of("m/a", 3), of("m/\0", 3), of("m/c", 3)};
    muster_bytes_t values[] = {of("one", 3), of(NULL, 0), of("t\0ree", 5)};
    muster_bytes_t *found = NULL;
    if (index == 0) {
        CHECK_OK(muster_store_set(cluster, "I am about to wait for all", NULL, 0));
        CHECK_OK(muster_store_multi_get(cluster, keys, 3, -1, &found));
        expect(found[0], "one", 3);
        expect(found[1], "", 0);
        expect(found[2], "t\0ree", 5);
        muster_free(found);
    } else {
        muster_bytes_t sooner[] = {keys[0], keys[0]}, two[] = {of("first", 5), of("then", 4)};
        expect_value(cluster, "I am about to wait for all", 26, "", 0);
        CHECK_FAILS(MUSTER_ERR_NOT_FOUND, "no key \"m/a\"", muster_store_multi_get(cluster, keys, 3, 0, &found));
        CHECK_FAILS(MUSTER_ERR_TIMEOUT, "store multi_get of 3 keys: nobody has set \"m/a\", \"m/\\0\", \"m/c\" within 0.05 s",
                    muster_store_multi_get(cluster, keys, 3, 50, &found));
        CHECK_OK(muster_store_multi_set(cluster, sooner, two, 2)); /* the later value counts */
        expect_value(cluster, "m/a", 3, "then", 4);
        CHECK_OK(muster_store_multi_set(cluster, keys, values, 3));
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    CHECK_OK(muster_store_multi_get(cluster, NULL, 0, -1, &found));
    muster_free(found);
    CHECK_OK(muster_store_multi_set(cluster, NULL, NULL, 0));
}

static void checked(muster_cluster_t *cluster) {
    muster_bytes_t keys[] = {of("m/c", 3), of("m/d", 3), of("m/\0", 3), of("m/", 2), of("m/c", 3)};
    int32_t exists[] = {7, 7, 7, 7, 7, 7};
    CHECK_OK(muster_store_check(cluster, keys, 5, exists));
    CHECK(exists[0] == 1 && exists[1] == 0 && exists[2] == 1 && exists[3] == 0 && exists[4] == 1 && exists[5] == 7);
    CHECK_OK(muster_store_check(cluster, NULL, 0, NULL));
}

/* Lists of any length, in the order of their bytes, in one block. */
static void listed(muster_cluster_t *cluster) {
    muster_bytes_t *found = NULL;
    uint64_t before = 0, after = 0;
    size_t n = 77;
    CHECK_OK(muster_store_list(cluster, "m/", 2, &found, &n));
    CHECK(n == 3);
    expect(found[0], "m/\0", 3);
    expect(found[1], "m/a", 3);
    expect(found[2], "m/c", 3);
    muster_free(found);
    CHECK_OK(muster_store_list(cluster, "nothing", 7, &found, &n));
    CHECK(n == 0 && found != NULL);
    muster_free(found);
    CHECK_OK(muster_store_count(cluster, &before));
    char(*names)[16] = calloc(MANY, sizeof *names);
    muster_bytes_t *keys = calloc(MANY, sizeof *keys), *values = calloc(MANY, sizeof *values);
    CHECK(names != NULL && keys != NULL && values != NULL);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "many/%06d", MANY - 1 - i);
        keys[i] = of(names[i], strlen(names[i]));
    }
    CHECK_OK(muster_store_multi_set(cluster, keys, values, MANY));
    CHECK_OK(muster_store_count(cluster, &after));
    CHECK_IS(before + MANY, after);
    CHECK_OK(muster_store_list(cluster, "many/", 5, &found, &n)); /* of several pieces */
    CHECK(n == MANY);
    for (int i = 0; i < MANY; i++) {
        expect(found[i], names[MANY - 1 - i], 11);
    }
    muster_free(found);
    CHECK_OK(muster_store_list(cluster, NULL, 0, &found, &n));
    CHECK_IS(after, n);
    muster_free(found);
    free(names);
    free(keys);
    free(values);
}

/* A refusal names what it refuses, and changes nothing. */
static void refusals(muster_cluster_t *cluster) {
    muster_bytes_t keys[] = {of("r/a", 3), of("", 0)}, values[] = {of("x", 1), of("y", 1)}, *found = NULL;
    int32_t exists[2];
    uint64_t before = 0, after = 0;
    CHECK_OK(muster_store_count(cluster, &before));
    CHECK_FAILS(MUSTER_ERR_INVALID, "key is empty: a key of the store has 1 to 4096 bytes",
                muster_store_set_bytes(cluster, NULL, 0, "v", 1));
    CHECK_FAILS(MUSTER_ERR_INVALID, "keys[1] is empty", muster_store_multi_set(cluster, keys, values, 2));
    CHECK_FAILS(MUSTER_ERR_INVALID, "keys[1] is empty", muster_store_multi_get(cluster, keys, 2, 0, &found));
    CHECK_FAILS(MUSTER_ERR_INVALID, "keys[1] is empty", muster_store_check(cluster, keys, 2, exists));
    CHECK_FAILS(MUSTER_ERR_INVALID, "keys[1] is empty", muster_store_wait_bytes(cluster, keys, 2, -1));
    char *large = calloc(1, 16 * MIB + 1);
    CHECK(large != NULL);
    muster_bytes_t two[] = {of("r/a", 3), of("r/b", 3)}, parts[] = {of(large, 16 * MIB), of("y", 1)};
    CHECK_FAILS(MUSTER_ERR_LIMIT, "what 2 values have together has 16777217 bytes: the store takes 16777216 at most",
                muster_store_multi_set(cluster, two, parts, 2));
    CHECK_OK(muster_store_count(cluster, &after));
    CHECK_IS(before, after);
    parts[0].len--; /* as much as fits */
    CHECK_OK(muster_store_multi_set(cluster, two, parts, 2));
    CHECK_OK(muster_store_multi_get(cluster, two, 2, -1, &found));
    CHECK(found[0].len == 16 * MIB - 1 && found[1].len == 1);
    muster_free(found);
    CHECK_OK(muster_store_append(cluster, "r/b", 3, "z", 1, NULL));
    CHECK_FAILS(MUSTER_ERR_LIMIT, "2 values of 16777217 bytes in all", muster_store_multi_get(cluster, two, 2, -1, &found));
    CHECK_OK(muster_store_append(cluster, "r/a", 3, "z", 1, NULL));
    CHECK_FAILS(MUSTER_ERR_LIMIT, "a store value of 16777217 bytes", muster_store_append(cluster, "r/a", 3, "z", 1, NULL));
    CHECK_OK(muster_store_delete(cluster, "r/a", NULL));
    free(large);
}

/* A prefix may be as long as a key. */
static void long_prefixes(muster_cluster_t *cluster) {
    static char prefix[KEY_LIMIT + 1];
    muster_bytes_t *found = NULL;
    size_t n = 77;
    memset(prefix, 'p', sizeof prefix);
    CHECK_FAILS(MUSTER_ERR_LIMIT, "prefix has 4097 bytes", muster_store_list(cluster, prefix, KEY_LIMIT + 1, &found, &n));
    CHECK(found == NULL && n == 77);
    CHECK_OK(muster_store_list(cluster, prefix, KEY_LIMIT, &found, &n));
    CHECK_IS(0, n);
    muster_free(found);
    CHECK_OK(muster_store_set_bytes(cluster, prefix, KEY_LIMIT, "v", 1));
    CHECK_OK(muster_store_list(cluster, prefix, KEY_LIMIT, &found, &n));
    CHECK(n == 1);
    expect(found[0], prefix, KEY_LIMIT);
    muster_free(found);
}

static void two_nodes(muster_cluster_t *cluster, int index, void *context) {
    (void)context;
    several(cluster, index);
    if (index == 0) {
        zeros(cluster);
        compared(cluster);
        checked(cluster);
        listed(cluster);
        refusals(cluster);
        long_prefixes(cluster);
    }
}

/* What all append stands there whole, each as often as it was appended. */
static void append(muster_cluster_t *cluster, int index, void *context) {
    char piece[6];
    size_t before = 0, total = 0;
    int count[APPENDERS] = {0};
    (void)context;
    snprintf(piece, sizeof piece, "%d----", index);
    for (int i = 0; i < APPENDS; i++) {
        CHECK_OK(muster_store_append(cluster, "log", 3, piece, 5, &total));
        CHECK(total >= before + 5 && total % 5 == 0);
        before = total;
    }
    CHECK_OK(muster_barrier(muster_world(cluster)));
    void *value = NULL;
    CHECK_OK(muster_store_get(cluster, "log", 0, &value, &total));
    CHECK_IS(APPENDERS * APPENDS * 5, total);
    for (size_t at = 0; at < total; at += 5) {
        const char *found = (const char *)value + at;
        CHECK(found[0] >= '0' && found[0] < '0' + APPENDERS && memcmp(found + 1, "----", 4) == 0);
        count[found[0] - '0']++;
    }
    for (int node = 0; node < APPENDERS; node++) {
        CHECK_IS(APPENDS, count[node]);
    }
    muster_free(value);
}

int main(void) {
    struct plan two = {.workers = 2, .node_ids = rank_ids, .body = two_nodes};
    struct plan appenders = {.workers = APPENDERS, .node_ids = rank_ids, .body = append};
    run_nodes(&two);
    run_nodes(&appenders);
    return 0;
}
