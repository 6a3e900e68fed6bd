/* The part of shared_memory where the kernel of one rank refuses something that sharing needs. */
#include "shared_memory.h"
#include "check.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const automatic[] = {"shm", "auto", "log", "off", NULL};

/* This process may not make this call any more, or not with this as its third argument (0: with any). */
static void refuse(int call, uint32_t third, int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        /* Greater or equal to 0 is anything. */
        BPF_JUMP(BPF_JMP | (third == 0 ? BPF_JGE : BPF_JEQ) | BPF_K, third, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

/* Valgrind passes the call on to no kernel: there nothing can be refused. */
static bool can_refuse(void) {
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 || errno != ENOSYS;
}

static int refusing;
static const char *refused_words;
static bool is_required_now;

/* One rank's kernel refuses something: none shares memory. */
static void is_refused(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    int32_t value = rank;
    meet(ranks, rank);
    if (rank == refusing) {
        if (rank == 0) {
            refuse(SYS_memfd_create, 0, EPERM);
        } else {
            refuse(SYS_madvise, MADV_POPULATE_WRITE, ENOMEM);
        }
    }
    for (int call = 1; call <= 3; call++) {
        CHECK_OK(muster_barrier(world));
    }
    if (is_required_now) {
        char who[32];
        snprintf(who, sizeof who, "rank %d (node id \"%d\"", refusing, refusing);
        CHECK_IS(MUSTER_ERR_UNSUPPORTED, muster_barrier(world));
        CHECK_CONTAINS(muster_last_error(), who);
        CHECK_CONTAINS(muster_last_error(), refused_words);
        muster_finalize(cluster);
        muster_cluster_free(cluster);
        return;
    }
    for (int call = 0; call < 5; call++) {
        value = rank;
        CHECK_OK(muster_allreduce(world, &value, &value, 1, MUSTER_INT32, MUSTER_SUM));
        CHECK_IS(6, value);
    }
    leave(cluster);
}

static void refused(int rank, const char *words) {
    refusing = rank;
    refused_words = words;
    is_required_now = false;
    run("a refusal", is_refused, automatic, 1, MUSTER_OK);
    is_required_now = true;
    struct ranks *ranks = ranks_start(SIZE, is_refused, required);
    ranks_await_ready(ranks);
    ranks_go(ranks);
    for (int i = 0; i < SIZE; i++) {
        ranks_await(ranks, i);
    }
    ranks_await_scheduler(ranks);
    ranks_free(ranks);
}

/* One rank's kernel is older than the advice by which pages are made: all share memory nevertheless. */
static void has_an_old_kernel(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    meet(ranks, rank);
    if (rank == CULPRIT) {
        refuse(SYS_madvise, MADV_POPULATE_WRITE, EINVAL);
    }
    for (int call = 0; call < 9; call++) {
        int32_t value = rank;
        CHECK_OK(muster_allreduce(muster_world(cluster), &value, &value, 1, MUSTER_INT32, MUSTER_SUM));
        CHECK_IS(6, value);
    }
    leave(cluster);
}

/* One rank's rings do not arrive, and it publishes nothing more that it could ring for. The others look by themselves. */
static void rings_in_vain(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    muster_group_t *world = muster_world(cluster);
    first_calls(world, ranks, rank);
    if (rank == CULPRIT) {
        refuse(SYS_sendto, 1, EPERM);                              /* a ring has one byte */
        nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL); /* until the others sleep for it, for the second time */
    }
    double begun = now_s();
    CHECK_OK(muster_barrier(world));
    CHECK(now_s() - begun < 4 * patience());
    leave(cluster);
}

void where_it_cannot_be_had(void) {
    if (!can_refuse()) {
        puts("a refusal: left out, for seccomp is unknown here");
        return;
    }
    refused(0, "cannot be made");
    refused(CULPRIT, "cannot be had");
    run("an old kernel", has_an_old_kernel, required, 1, MUSTER_OK);
    run("lost rings", rings_in_vain, required, 1, MUSTER_OK);
}
