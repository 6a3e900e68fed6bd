/* Every function with arguments that are not right (see refused.h), in the order of the header. Those of collectives and
 * messages stand in call_arguments.c. */
#include "refused.h"

#include <stdlib.h>

static void about(void) {
    CHECK(muster_abi_version() == MUSTER_ABI_VERSION);
    CHECK(muster_version()[0] != 0);
    for (int i = 0; i < ODD; i++) {
        const char *text = muster_status_string(odd_numbers[i]);
        HOLDS(text != NULL && text[0] != 0);
    }
    CHECK_CONTAINS(muster_status_string(MUSTER_OK), "OK");
    CHECK_CONTAINS(muster_status_string(MUSTER_SCHEDULER_DONE), "SCHEDULER_DONE");
    for (int32_t status = MUSTER_ERR_INVALID; status >= MUSTER_ERR_FORKED; status--) {
        CHECK_CONTAINS(muster_status_string(status), "ERR_");
    }
    CHECK_CONTAINS(muster_status_string(12345), "unknown");
    muster_free(NULL);
}

static void no_line(int32_t level, const char *target, const char *message, void *ctx) {
    (void)level, (void)target, (void)message, (void)ctx;
}

static void log_callback(void) {
    INVALID("level", muster_set_log_callback(0, no_line, NULL));
    for (int i = 0; i < ODD; i++) {
        INVALID("level", muster_set_log_callback(odd_numbers[i], no_line, NULL));
        CHECK_OK(muster_set_log_callback(odd_numbers[i], NULL, NULL)); /* the level does not count */
    }
}

static void configuration(void) {
    muster_config_t *config = NULL;
    char buf[64] = "untouched";
    size_t needed = 77;
    INVALID("out", muster_config_new(MUSTER_ABI_VERSION, NULL));
    INVALID("abi_version", muster_config_new(0, &config));
    INVALID("abi_version", muster_config_new(UINT32_MAX, &config));
    HOLDS(config == NULL);
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));

    INVALID("config", muster_config_load_env(NULL));
    INVALID("config", muster_config_set(NULL, "worker_num", "1"));
    INVALID("config", muster_config_set_interrupt(NULL, NULL, NULL));
    INVALID("key", muster_config_set(config, NULL, "1"));
    INVALID("value", muster_config_set(config, "worker_num", NULL));
    INVALID("key", muster_config_set(config, "\xff\xfe", "1"));
    REFUSED(MUSTER_ERR_CONFIG, "node_id", muster_config_set(config, "node_id", "\xff\xfe"));
    REFUSED(MUSTER_ERR_CONFIG, "job_secret is a secret that is not UTF-8", muster_config_set(config, "job_secret", "\xff\xfesecret"));
    REFUSED(MUSTER_ERR_CONFIG, "worker_num", muster_config_set(config, "worker_nun", "1")); /* the nearest known one */
    REFUSED(MUSTER_ERR_CONFIG, "no setting", muster_config_set(config, "", "1"));
    REFUSED(MUSTER_ERR_CONFIG, "80x", muster_config_set(config, "sched_port", "80x"));
    REFUSED(MUSTER_ERR_CONFIG, "-1", muster_config_set(config, "worker_num", "-1"));
    REFUSED(MUSTER_ERR_CONFIG, "MS_WORKER", muster_config_set(config, "role", "worker"));
    REFUSED(MUSTER_ERR_CONFIG, "99999999999999999999", muster_config_set(config, "worker_num", "99999999999999999999"));

    INVALID("config", muster_config_get(NULL, "role", buf, sizeof buf, &needed));
    INVALID("key", muster_config_get(config, NULL, buf, sizeof buf, &needed));
    INVALID("buf", muster_config_get(config, "node_timeout", NULL, 8, NULL));
    INVALID("buf", muster_config_get(config, "node_timeout", NULL, 0, NULL));
    REFUSED(MUSTER_ERR_CONFIG, "no_such_key", muster_config_get(config, "no_such_key", buf, sizeof buf, &needed));
    REFUSED(MUSTER_ERR_NOT_FOUND, "role", muster_config_get(config, "role", buf, sizeof buf, &needed));
    HOLDS(needed == 77 && strcmp(buf, "untouched") == 0);
    CHECK_OK(muster_config_set(config, "node_id", "twelve bytes"));
    REFUSED(MUSTER_ERR_LIMIT, "13", muster_config_get(config, "node_id", buf, 12, &needed));
    HOLDS(needed == 13 && strcmp(buf, "untouched") == 0);
    CHECK_OK(muster_config_get(config, "node_id", NULL, 0, &needed));
    CHECK_OK(muster_config_get(config, "node_id", buf, 13, NULL));
    HOLDS(strcmp(buf, "twelve bytes") == 0);
    CHECK_OK(muster_config_set(config, "client_password", "tell nobody"));
    muster_config_get(config, "client_password", buf, sizeof buf, NULL);
    HOLDS(strcmp(buf, "tell nobody") != 0);
    muster_config_free(config);
    muster_config_free(NULL);
}

static void life(muster_cluster_t *cluster) {
    muster_config_t *config = NULL;
    muster_cluster_t *none = NULL;
    INVALID("out", muster_init(NULL, NULL));
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    CHECK_OK(muster_config_set(config, "worker_num", "2"));
    REFUSED(MUSTER_ERR_CONFIG, "MS_ROLE", muster_init(config, &none)); /* how many, but not as what */
    CHECK_OK(muster_config_set(config, "role", "MS_WORKER"));
    REFUSED(MUSTER_ERR_CONFIG, "MS_SCHED_HOST", muster_init(config, &none));
    CHECK_OK(muster_config_set(config, "sched_host", "no-such-host.invalid"));
    REFUSED(MUSTER_ERR_CONFIG, "MS_SCHED_PORT", muster_init(config, &none));
    HOLDS(none == NULL);
    muster_config_free(config);

    INVALID("cluster", muster_recover(NULL, 0));
    INVALID("timeout_ms", muster_recover(cluster, -2));
    CHECK_OK(muster_finalize(NULL));
    muster_cluster_free(NULL);
    INVALID("cluster", muster_interrupt(NULL));
    INVALID("cluster", muster_abort(NULL, 1, "why"));
    INVALID("reason", muster_abort(cluster, 1, NULL));
    INVALID("reason", muster_abort(cluster, 1, "\xff\xfe"));
    CHECK_OK(muster_barrier(muster_world(cluster))); /* nothing was aborted */
}

static void scheduler(void) {
    muster_config_t *config = NULL;
    muster_scheduler_t *scheduler = NULL;
    char buf[MUSTER_ADDRESS_BYTES] = "untouched";
    size_t needed = 77;
    CHECK_OK(muster_config_new(MUSTER_ABI_VERSION, &config));
    INVALID("out", muster_scheduler_start(config, NULL));
    REFUSED(MUSTER_ERR_CONFIG, "MS_WORKER_NUM", muster_scheduler_start(config, &scheduler));
    HOLDS(scheduler == NULL);
    CHECK_OK(muster_config_set(config, "worker_num", "1"));
    CHECK_OK(muster_scheduler_start(config, &scheduler));
    muster_config_free(config);

    INVALID("scheduler", muster_scheduler_address(NULL, buf, sizeof buf, &needed));
    INVALID("buf", muster_scheduler_address(scheduler, NULL, sizeof buf, NULL));
    HOLDS(needed == 77);
    REFUSED(MUSTER_ERR_LIMIT, "bytes", muster_scheduler_address(scheduler, buf, 3, &needed));
    HOLDS(needed > strlen("127.0.0.1:") && strcmp(buf, "untouched") == 0);
    INVALID("scheduler", muster_scheduler_wait(NULL, 0));
    INVALID("timeout_ms", muster_scheduler_wait(scheduler, -2));
    INVALID("timeout_ms", muster_scheduler_wait(scheduler, INT64_MIN));
    CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 0));
    CHECK_IS(MUSTER_IN_PROGRESS, muster_scheduler_wait(scheduler, 1));
    INVALID("scheduler", muster_scheduler_stop(NULL));
    CHECK_OK(muster_scheduler_stop(scheduler));
    CHECK_OK(muster_scheduler_stop(scheduler));
    muster_scheduler_free(scheduler);
    muster_scheduler_free(NULL);
}

static void queries(muster_cluster_t *cluster) {
    int32_t ranks[2] = {-5, -5};
    size_t count = 77;
    char buf[16] = "untouched";
    unsigned char bytes[sizeof(muster_hccl_cm_t) + 16];
    muster_failure_t failure;
    INVALID("cluster", muster_role(NULL));
    INVALID("cluster", muster_rank(NULL));
    INVALID("cluster", muster_size(NULL));
    INVALID("cluster", muster_local_rank(NULL));
    INVALID("cluster", muster_local_size(NULL));
    INVALID("cluster", muster_restarts(NULL));
    INVALID("cluster", muster_epoch(NULL));
    REFUSED(0, "cluster", (intptr_t)muster_node_id(NULL));

    INVALID("cluster", muster_failed_ranks(NULL, ranks, 2, &count));
    INVALID("ranks", muster_failed_ranks(cluster, NULL, 2, &count));
    INVALID("count", muster_failed_ranks(cluster, ranks, 2, NULL));
    HOLDS(ranks[0] == -5 && count == 77);
    INVALID("cluster", muster_failure(NULL, &failure, sizeof failure));
    INVALID("out", muster_failure(cluster, NULL, sizeof failure));
    INVALID("size is 3", muster_failure(cluster, &failure, 3)); /* also while nothing has failed */
    REFUSED(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_failure(cluster, &failure, sizeof failure));
    INVALID("cluster", muster_cluster_error(NULL, buf, sizeof buf, &count));
    REFUSED(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_cluster_error(cluster, buf, sizeof buf, &count));
    HOLDS(count == 77 && strcmp(buf, "untouched") == 0);

    memset(bytes, 0x77, sizeof bytes);
    INVALID("cluster", muster_hccl_cm(NULL, (muster_hccl_cm_t *)(void *)bytes, sizeof(muster_hccl_cm_t)));
    INVALID("out", muster_hccl_cm(cluster, NULL, sizeof(muster_hccl_cm_t)));
    INVALID("size", muster_hccl_cm(cluster, (muster_hccl_cm_t *)(void *)bytes, 0));
    INVALID("size", muster_hccl_cm(cluster, (muster_hccl_cm_t *)(void *)bytes, 3));
    HOLDS(bytes[0] == 0x77);
    /* An older caller's smaller struct is filled as far as it goes; a newer one's rest is zeroed. */
    CHECK_OK(muster_hccl_cm(cluster, (muster_hccl_cm_t *)(void *)bytes, 12));
    char table[1024] = "untouched";
    size_t needed = 77;
    INVALID("cluster", muster_rank_table(NULL, table, sizeof table, &needed));
    INVALID("buf", muster_rank_table(cluster, NULL, 0, NULL));
    INVALID("buf", muster_rank_table(cluster, NULL, 1, NULL));
    HOLDS(needed == 77 && strcmp(table, "untouched") == 0);
    CHECK_OK(muster_rank_table(cluster, NULL, 0, &needed));
    HOLDS(needed > 77);
    REFUSED(MUSTER_ERR_LIMIT, "the rank table", muster_rank_table(cluster, table, needed - 1, NULL));
    HOLDS(strcmp(table, "untouched") == 0);
    CHECK_OK(muster_rank_table(cluster, table, needed, NULL));
    CHECK_CONTAINS(table, "\"rank_id\": \"0\"");
    HOLDS(strlen(table) + 1 == needed);
    HOLDS(((muster_hccl_cm_t *)(void *)bytes)->worker_size == 1 && bytes[12] == 0x77);
    CHECK_OK(muster_hccl_cm(cluster, (muster_hccl_cm_t *)(void *)bytes, sizeof bytes));
    HOLDS(bytes[sizeof bytes - 1] == 0);
}

static void groups(muster_cluster_t *cluster) {
    muster_group_t *world = muster_world(cluster);
    muster_member_t member;
    memset(&member, 0x77, sizeof member);
    REFUSED(0, "cluster", (intptr_t)muster_world(NULL));
    REFUSED(0, "cluster", (intptr_t)muster_servers(NULL));
    REFUSED(0, "cluster", (intptr_t)muster_universe(NULL));
    INVALID("group", muster_group_rank(NULL));
    INVALID("group", muster_group_size(NULL));
    INVALID("group", muster_group_to_world(NULL, 0));
    INVALID("group", muster_group_from_world(NULL, 0));
    INVALID("group", muster_group_member(NULL, 0, &member, sizeof member));
    INVALID("group", muster_group_set_timeout(NULL, 0));
    muster_failure_t failure;
    INVALID("group", muster_group_failure(NULL, &failure, sizeof failure));
    INVALID("out", muster_group_failure(world, NULL, sizeof failure));
    REFUSED(MUSTER_ERR_NOT_FOUND, "nothing has failed", muster_group_failure(world, &failure, sizeof failure));
    INVALID("out", muster_group_member(world, 0, NULL, sizeof member));
    INVALID("size", muster_group_member(world, 0, &member, 0));
    INVALID("size", muster_group_member(world, 0, &member, 3));
    for (int i = 0; i < ODD; i++) {
        int32_t odd = odd_numbers[i];
        INVALID("rank", muster_group_to_world(world, odd));
        INVALID("rank", muster_group_from_world(world, odd));
        INVALID("rank", muster_group_to_world(muster_servers(cluster), odd));
        INVALID("rank", muster_group_member(world, odd, &member, sizeof member));
        if (odd < -1) {
            INVALID("timeout_ms", muster_group_set_timeout(world, odd));
        }
    }
    INVALID("timeout_ms", muster_group_set_timeout(world, INT64_MIN));
    HOLDS(member.role == 0x77777777 && member.host[0] == 0x77);
    CHECK_OK(muster_group_set_timeout(world, INT64_MAX));
    CHECK_OK(muster_barrier(world));
    CHECK_OK(muster_group_set_timeout(world, -1));
}

/* Each call of messages names itself. */
static void of_no_member(muster_group_t *group) {
    muster_received_t got;
    muster_request_t *request = anywhere;
    char in[1] = {0}, out[1];
    INVALID("send: this process is no member", muster_send(group, in, 1, MUSTER_UINT8, 0, 1));
    INVALID("isend: this process is no member", muster_isend(group, in, 1, MUSTER_UINT8, 0, 1, &request));
    INVALID("recv: this process is no member", muster_recv(group, out, 1, MUSTER_UINT8, 0, 1, &got, sizeof got));
    INVALID("irecv: this process is no member", muster_irecv(group, out, 1, MUSTER_UINT8, 0, 1, &got, sizeof got, &request));
    INVALID("sendrecv: this process is no member",
            muster_sendrecv(group, in, 1, MUSTER_UINT8, 0, 1, out, 1, MUSTER_UINT8, 0, 1, &got, sizeof got));
    INVALID("isendrecv: this process is no member",
            muster_isendrecv(group, in, 1, MUSTER_UINT8, 0, 1, out, 1, MUSTER_UINT8, 0, 1, &got, sizeof got, &request));
    INVALID("probe: this process is no member", muster_probe(group, 0, 1, &got, sizeof got));
    INVALID("iprobe: this process is no member", muster_iprobe(group, 0, 1, &got, sizeof got));
    INVALID("probe: this process is no member", muster_probe(group, MUSTER_ANY_SOURCE, 1, &got, sizeof got));
    HOLDS(request == anywhere);
}

static void made_groups(muster_cluster_t *cluster) {
    static const int32_t zero[] = {0}, twice[] = {0, 0};
    muster_group_t *world = muster_world(cluster), *group = anywhere;
    INVALID("parent", muster_group_create(NULL, zero, 1, &group));
    INVALID("cluster", muster_group_create_members(NULL, zero, 1, "", -1, &group));
    INVALID("out", muster_group_create_members(cluster, zero, 1, "", -1, NULL));
    INVALID("tag", muster_group_create_members(cluster, zero, 1, NULL, -1, &group));
    INVALID("tag", muster_group_create_members(cluster, zero, 1, "\xff\xfe", -1, &group));
    INVALID("timeout_ms", muster_group_create_members(cluster, zero, 1, "", -2, &group));
    INVALID("world_ranks is NULL", muster_group_create_members(cluster, NULL, 1, "", -1, &group));
    INVALID("not among them", muster_group_create_members(cluster, NULL, 0, "", -1, &group));
    INVALID("world_ranks", muster_group_create_members(cluster, zero, SIZE_MAX, "", -1, &group));
    INVALID("world_ranks[1]", muster_group_create_members(cluster, twice, 2, "", -1, &group));
    INVALID("parent", muster_group_split(NULL, 0, 0, &group));
    INVALID("out", muster_group_create(world, zero, 1, NULL));
    INVALID("out", muster_group_split(world, 0, 0, NULL));
    INVALID("ranks is NULL", muster_group_create(world, NULL, 1, &group));
    INVALID("n is 2", muster_group_create(world, twice, 2, &group));
    INVALID("n is", muster_group_create(world, zero, SIZE_MAX, &group));
    for (int i = 0; i < ODD; i++) {
        INVALID("ranks[0]", muster_group_create(world, &odd_numbers[i], 1, &group));
    }
    INVALID("no member", muster_group_create(muster_servers(cluster), NULL, 0, &group));
    INVALID("no member", muster_group_split(muster_servers(cluster), 0, 0, &group));
    of_no_member(muster_servers(cluster));
    muster_group_free(NULL);
    HOLDS(group == anywhere);
}

/* Requests, users' operations, and the collectives in which each rank has a part. On world, which has one rank. */
static void store_keys(muster_cluster_t *cluster) {
    static char long_key[4098];
    void *value = anywhere;
    size_t len = 77;
    int64_t sum = 77;
    int32_t existed = 77;
    memset(long_key, 'k', sizeof long_key - 1);
    const char *const bad[] = {NULL, "", long_key};
    for (int i = 0; i < 3; i++) {
        const char *key = bad[i];
        const char *some[] = {"fine", key};
        int status = i == 2 ? MUSTER_ERR_LIMIT : MUSTER_ERR_INVALID;
        REFUSED(status, "key", muster_store_set(cluster, key, "v", 1));
        REFUSED(status, "key", muster_store_get(cluster, key, 0, &value, &len));
        REFUSED(status, "key", muster_store_add(cluster, key, 1, &sum));
        REFUSED(status, "key", muster_store_compare_set(cluster, key, "", 0, "v", 1, &value, &len));
        REFUSED(status, "key", muster_store_delete(cluster, key, &existed));
        REFUSED(status, "key", muster_store_wait(cluster, some, 2, 0));
    }
    for (int i = 0; i < 3; i++) {
        const void *key = bad[i];
        size_t length = i == 2 ? sizeof long_key - 1 : i == 0;
        muster_bytes_t some[] = {{"fine", 4}, {key, length}}, values[2] = {{NULL, 0}}, *found = anywhere;
        int status = i == 2 ? MUSTER_ERR_LIMIT : MUSTER_ERR_INVALID;
        REFUSED(status, "key", muster_store_set_bytes(cluster, key, length, "v", 1));
        REFUSED(status, "key", muster_store_get_bytes(cluster, key, length, 0, &value, &len));
        REFUSED(status, "key", muster_store_add_bytes(cluster, key, length, 1, &sum));
        REFUSED(status, "key", muster_store_append(cluster, key, length, "v", 1, &len));
        REFUSED(status, "key", muster_store_compare_set_bytes(cluster, key, length, "", 0, "v", 1, 0, &value, &len));
        REFUSED(status, "key", muster_store_delete_bytes(cluster, key, length, &existed));
        REFUSED(status, "keys[1]", muster_store_wait_bytes(cluster, some, 2, 0));
        REFUSED(status, "keys[1]", muster_store_check(cluster, some, 2, &existed));
        REFUSED(status, "keys[1]", muster_store_multi_set(cluster, some, values, 2));
        REFUSED(status, "keys[1]", muster_store_multi_get(cluster, some, 2, 0, &found));
        HOLDS(found == anywhere);
    }
    HOLDS(value == anywhere && len == 77 && sum == 77 && existed == 77);
}

static void store_bytes_arguments(muster_cluster_t *cluster) {
    muster_bytes_t one[] = {{"a", 1}}, *found = anywhere;
    void *value = anywhere;
    size_t len = 77;
    uint64_t count = 77;
    int32_t exists = 77;
    INVALID("cluster", muster_store_set_bytes(NULL, "a", 1, "v", 1));
    INVALID("cluster", muster_store_get_bytes(NULL, "a", 1, 0, &value, &len));
    INVALID("cluster", muster_store_add_bytes(NULL, "a", 1, 1, NULL));
    INVALID("cluster", muster_store_append(NULL, "a", 1, "v", 1, NULL));
    INVALID("cluster", muster_store_compare_set_bytes(NULL, "a", 1, "", 0, "v", 1, 0, &value, &len));
    INVALID("cluster", muster_store_delete_bytes(NULL, "a", 1, NULL));
    INVALID("cluster", muster_store_wait_bytes(NULL, one, 1, 0));
    INVALID("cluster", muster_store_check(NULL, one, 1, &exists));
    INVALID("cluster", muster_store_count(NULL, &count));
    INVALID("cluster", muster_store_list(NULL, "a", 1, &found, &len));
    INVALID("cluster", muster_store_multi_set(NULL, one, one, 1));
    INVALID("cluster", muster_store_multi_get(NULL, one, 1, 0, &found));
    INVALID("key", muster_store_set_bytes(cluster, "a", SIZE_MAX, "v", 1));
    INVALID("value", muster_store_set_bytes(cluster, "a", 1, NULL, 1));
    INVALID("value", muster_store_get_bytes(cluster, "a", 1, 0, NULL, &len));
    INVALID("value", muster_store_append(cluster, "a", 1, NULL, 1, NULL));
    INVALID("timeout_ms", muster_store_get_bytes(cluster, "a", 1, -2, &value, &len));
    INVALID("expected", muster_store_compare_set_bytes(cluster, "a", 1, NULL, 1, "v", 1, 0, &value, &len));
    INVALID("desired", muster_store_compare_set_bytes(cluster, "a", 1, "", 0, NULL, 1, 0, &value, &len));
    INVALID("flags is 2", muster_store_compare_set_bytes(cluster, "a", 1, "", 0, "v", 1, 2, &value, &len));
    INVALID("flags is -1", muster_store_compare_set_bytes(cluster, "a", 1, "", 0, "v", 1, -1, &value, &len));
    INVALID("clen", muster_store_compare_set_bytes(cluster, "a", 1, "", 0, "v", 1, 0, &value, NULL));
    INVALID("keys", muster_store_wait_bytes(cluster, NULL, 1, 0));
    INVALID("keys", muster_store_wait_bytes(cluster, one, SIZE_MAX, 0));
    INVALID("timeout_ms", muster_store_wait_bytes(cluster, one, 1, -2));
    INVALID("keys", muster_store_check(cluster, NULL, 1, &exists));
    INVALID("exists", muster_store_check(cluster, one, 1, NULL));
    INVALID("count", muster_store_count(cluster, NULL));
    INVALID("prefix", muster_store_list(cluster, NULL, 1, &found, &len));
    INVALID("keys", muster_store_list(cluster, "a", 1, NULL, &len));
    INVALID("n is NULL", muster_store_list(cluster, "a", 1, &found, NULL));
    INVALID("keys", muster_store_multi_set(cluster, NULL, one, 1));
    INVALID("values", muster_store_multi_set(cluster, one, NULL, 1));
    INVALID("keys", muster_store_multi_get(cluster, NULL, 1, 0, &found));
    INVALID("values", muster_store_multi_get(cluster, one, 1, 0, NULL));
    INVALID("timeout_ms", muster_store_multi_get(cluster, one, 1, -2, &found));
    REFUSED(MUSTER_ERR_NOT_FOUND, "a", muster_store_multi_get(cluster, one, 1, 0, &found)); /* none of these made it */
    HOLDS(found == anywhere && value == anywhere && len == 77 && count == 77 && exists == 77);
}

static void store_arguments(muster_cluster_t *cluster) {
    const char *one[] = {"a"};
    void *value = anywhere;
    size_t len = 77;
    INVALID("cluster", muster_store_set(NULL, "a", "v", 1));
    INVALID("cluster", muster_store_get(NULL, "a", 0, &value, &len));
    INVALID("cluster", muster_store_add(NULL, "a", 1, NULL));
    INVALID("cluster", muster_store_compare_set(NULL, "a", "", 0, "v", 1, &value, &len));
    INVALID("cluster", muster_store_delete(NULL, "a", NULL));
    INVALID("cluster", muster_store_wait(NULL, one, 1, 0));
    INVALID("value", muster_store_set(cluster, "a", NULL, 1));
    INVALID("value", muster_store_set(cluster, "a", "v", SIZE_MAX));
    INVALID("value", muster_store_get(cluster, "a", 0, NULL, &len));
    REFUSED(MUSTER_ERR_NOT_FOUND, "a", muster_store_get(cluster, "a", 0, &value, NULL)); /* `len` may be NULL */
    INVALID("timeout_ms", muster_store_get(cluster, "a", -2, &value, &len));
    INVALID("timeout_ms", muster_store_get(cluster, "a", INT64_MIN, &value, &len));
    INVALID("expected", muster_store_compare_set(cluster, "a", NULL, 1, "v", 1, &value, &len));
    INVALID("desired", muster_store_compare_set(cluster, "a", "", 0, NULL, 1, &value, &len));
    INVALID("expected", muster_store_compare_set(cluster, "a", "", SIZE_MAX, "v", 1, &value, &len));
    INVALID("desired", muster_store_compare_set(cluster, "a", "", 0, "v", SIZE_MAX, &value, &len));
    INVALID("clen", muster_store_compare_set(cluster, "a", "", 0, "v", 1, &value, NULL));
    INVALID("keys", muster_store_wait(cluster, NULL, 1, 0));
    INVALID("keys", muster_store_wait(cluster, one, SIZE_MAX, 0));
    INVALID("timeout_ms", muster_store_wait(cluster, one, 1, -2));
    REFUSED(MUSTER_ERR_NOT_FOUND, "a", muster_store_get(cluster, "a", 0, &value, &len)); /* none of these made it */
    HOLDS(value == anywhere && len == 77);
    REFUSED(MUSTER_ERR_NOT_FOUND, "a", muster_store_wait(cluster, one, 1, 0));
    CHECK_OK(muster_store_wait(cluster, NULL, 0, 0));
    CHECK_OK(muster_store_set(cluster, "a", "text", 4));
    int64_t sum = 77;
    INVALID("number", muster_store_add(cluster, "a", 1, &sum));
    HOLDS(sum == 77);
    CHECK_OK(muster_store_add(cluster, "n", INT64_MAX, NULL));
    INVALID("64", muster_store_add(cluster, "n", 1, &sum));
    HOLDS(sum == 77);
    CHECK_OK(muster_store_delete(cluster, "a", NULL));
}

int main(void) {
    muster_cluster_t *cluster = NULL;
    about();
    log_callback();
    configuration();
    scheduler();
    CHECK_OK(muster_init(NULL, &cluster));
    life(cluster);
    queries(cluster);
    groups(cluster);
    made_groups(cluster);
    store_keys(cluster);
    store_bytes_arguments(cluster);
    store_arguments(cluster);
    CHECK_OK(muster_barrier(muster_world(cluster))); /* no mistake has revoked the group */
    CHECK_OK(muster_finalize(cluster));
    muster_cluster_free(cluster);
    return mistakes == 0 ? 0 : 1;
}
