/* Several hosts, as far as one host can have them: nodes that say they are elsewhere, a scheduler on another address or
 * under a name, and links over IPv6. */
#include "check.h"
#include "nodes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { NODES = 5 };

/* Ranks go host by host where nodes have no ids; local ranks count each host's. */
static const char *const host_ids[NODES] = {"a", "b", "a", "b", "a"};

struct found {
    int32_t rank[NODES];
    int32_t local_rank[NODES];
    int32_t local_size[NODES];
};

static void look(muster_cluster_t *cluster, int index, void *context) {
    struct found *found = context;
    muster_hccl_cm_t cm;
    muster_member_t member;
    found->rank[index] = muster_rank(cluster);
    found->local_rank[index] = muster_local_rank(cluster);
    found->local_size[index] = muster_local_size(cluster);
    CHECK_OK(muster_hccl_cm(cluster, &cm, sizeof cm));
    CHECK_IS(0, cm.chief_device); /* rank 0 is the first of its host */
    CHECK_OK(muster_group_member(muster_world(cluster), muster_rank(cluster), &member, sizeof member));
    CHECK_IS(found->local_rank[index], member.local_rank);
    CHECK_OK(muster_barrier(muster_world(cluster)));
}

static void two_hosts(void) {
    struct found found;
    struct plan plan = {.workers = NODES, .host_ids = host_ids, .body = look, .context = &found};
    run_nodes(&plan);
    int on_first = host_ids[0][0]; /* the host of rank 0 */
    for (int i = 0; i < NODES; i++) {
        on_first = found.rank[i] == 0 ? host_ids[i][0] : on_first;
    }
    int first_size = on_first == 'a' ? 3 : 2;
    for (int i = 0; i < NODES; i++) {
        int first = host_ids[i][0] == on_first;
        CHECK_IS(host_ids[i][0] == 'a' ? 3 : 2, found.local_size[i]);
        CHECK_IS(first ? found.rank[i] : found.rank[i] - first_size, found.local_rank[i]);
        CHECK(found.local_rank[i] >= 0 && found.local_rank[i] < found.local_size[i]);
    }
}

/* Ranks that are given stay; local ranks follow them. */
static void two_hosts_with_ranks(void) {
    static const int32_t local_ranks[NODES] = {0, 0, 1, 1, 2};
    struct found found;
    struct plan plan = {.workers = NODES, .node_ids = rank_ids, .host_ids = host_ids, .body = look, .context = &found};
    run_nodes(&plan);
    for (int i = 0; i < NODES; i++) {
        CHECK_IS(i, found.rank[i]);
        CHECK_IS(local_ranks[i], found.local_rank[i]);
    }
}

static void exchange(muster_cluster_t *cluster, int index, void *context) {
    muster_hccl_cm_t cm;
    muster_member_t member;
    int64_t sum = index;
    CHECK_OK(muster_allreduce(muster_world(cluster), &sum, &sum, 1, MUSTER_INT64, MUSTER_SUM));
    CHECK_IS(0 + 1 + 2, sum);
    CHECK_OK(muster_hccl_cm(cluster, &cm, sizeof cm));
    CHECK_OK(muster_group_member(muster_world(cluster), 0, &member, sizeof member));
    if (context != NULL) { /* the address that all of it must run over */
        CHECK(strcmp(cm.chief_ip, context) == 0);
        CHECK(strcmp(cm.worker_ip, context) == 0);
        CHECK_CONTAINS(member.address, context);
    }
}

static int has_ipv6(void) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    int bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return bound;
}

int main(void) {
    static char v6[] = "::1";
    static const char *const over_v6[] = {"worker_ip", "::1", NULL};
    struct plan named = {.workers = 3, .host = "localhost", .node_ids = rank_ids, .body = exchange};
    struct plan six = {
        .workers = 3, .host = v6, .node_ids = rank_ids, .settings = over_v6, .body = exchange, .context = v6};
    two_hosts();
    two_hosts_with_ranks();
    run_nodes(&named);
    if (has_ipv6()) {
        run_nodes(&six);
    } else {
        printf("the part over IPv6 is skipped: this host has no ::1\n");
    }
    return 0;
}
