/* No hang without a name: real processes, one of which does something else than the others. Every rank returns, with the
 * same true cause. As nobody is lost, all mend what broke, and go on with the next case. */
#include "check.h"
#include "ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST = 5, MIB = 1 << 20, LARGE = 64 * MIB, LIMIT_MS = 25000, SHORT_MS = 1000 };

/* How many ranks there are: MOST; or two, and then neither is in the majority. */
static int size = MOST;

/* One rank's part in a case. */
struct part {
    muster_cluster_t *cluster;
    muster_group_t *world;
    struct ranks *ranks;
    int rank;
    int odd; /* the rank that does something else */
    bool is_odd;
    uint8_t *in;  /* LARGE bytes, which count */
    uint8_t *out; /* likewise */
};

/* How a scene is played: the failure names the odd rank; two ranks play it, too, or only two. */
enum { NAMED = 1, BY_TWO = 2, BY_TWO_ALONE = 4 };

struct scene {
    const char *name;
    muster_status_t (*play)(struct part *part);
    muster_status_t status;
    const char *words[3]; /* all of them stand in the cause, if the rank's place does not depend on time */
    int64_t limit_ms;     /* the group's time-out; 0: LIMIT_MS, which is never reached */
    int how;
    double within_s; /* all know; 0: no bound */
};

static void meet(struct part *part, int scene, const char *where);

/* The next call of a rank that got through the case: that call tells it. */
static muster_status_t or_next(struct part *part, muster_status_t status) {
    return status == MUSTER_OK ? muster_barrier(part->world) : status;
}

static muster_status_t other_collective(struct part *part) {
    return part->is_odd ? muster_allgather(part->world, part->in, part->out, 8, MUSTER_INT32)
                        : muster_allreduce(part->world, part->in, part->out, 8, MUSTER_INT32, MUSTER_SUM);
}

static muster_status_t barrier_or_reduce(struct part *part) {
    muster_status_t status = part->is_odd ? muster_barrier(part->world)
                                          : muster_reduce(part->world, part->in, part->out, MIB, MUSTER_INT8, MUSTER_SUM, 0);
    return or_next(part, status);
}

static muster_status_t other_root_small(struct part *part) {
    return or_next(part, muster_broadcast(part->world, part->out, 16, MUSTER_UINT8, part->is_odd ? part->odd : 0));
}

static muster_status_t other_length(struct part *part) {
    return or_next(part, muster_broadcast(part->world, part->out, part->is_odd ? 3 : 2, MUSTER_UINT8, 0));
}

/* The root of the one tree has sent and is done. The rank that waits for the root of another tree hears nothing from
 * anybody. In memory it sees at once what that root called, so a rank that is late may be told before it returns. */
static muster_status_t no_frames_meet(struct part *part) {
    CHECK(part->odd > 2); /* no other rank's part of the tree comes from it */
    muster_status_t status = muster_broadcast(part->world, part->out, 2, MUSTER_UINT8, part->is_odd ? 1 : 0);
    if (!part->is_odd) {
        const char *shm = getenv("MUSTER_SHM");
        bool is_linked = shm != NULL && strcmp(shm, "off") == 0;
        CHECK(status == MUSTER_OK || (!is_linked && status == MUSTER_ERR_MISMATCH));
        await(&part->ranks->note[part->rank].go);
        return or_next(part, status);
    }
    for (int i = 0; i < size; i++) {
        CHECK(i == part->odd || sem_post(&part->ranks->note[i].go) == 0);
    }
    return status;
}

/* Each of two waits for the other's broadcast. */
static muster_status_t each_waits(struct part *part) {
    return muster_broadcast(part->world, part->out, 1, MUSTER_UINT8, 1 - part->rank);
}

/* No rank waits for the part of the last but one, which believes that it is the root. Nor does one wait for what it calls
 * then, like the others. */
static muster_status_t all_have_returned(struct part *part) {
    bool is_odd = part->rank == size - 2;
    CHECK_OK(muster_broadcast(part->world, part->out, 16, MUSTER_UINT8, is_odd ? size - 2 : 0));
    meet(part, -1, "returned");
    muster_status_t status = MUSTER_OK;
    for (int i = 0; i < 3 && status == MUSTER_OK; i++) {
        status = muster_broadcast(part->world, part->out, 16, MUSTER_UINT8, size - 1);
    }
    return or_next(part, status);
}

static muster_status_t other_root_large(struct part *part) {
    return or_next(part, muster_broadcast(part->world, part->out, 4 * MIB, MUSTER_UINT8, part->is_odd ? part->odd : 0));
}

static muster_status_t other_root_gather(struct part *part) {
    return or_next(part, muster_gather(part->world, part->in, part->out, MIB, MUSTER_UINT8, part->is_odd ? 1 : 0));
}

static muster_status_t other_count_small(struct part *part) {
    return muster_allreduce(part->world, part->in, part->out, part->is_odd ? 15 : 16, MUSTER_INT32, MUSTER_SUM);
}

/* The calls are so different that each takes another algorithm, whose first frames go to other peers. */
static muster_status_t other_algorithm(struct part *part) {
    return muster_allreduce(part->world, part->in, part->out, part->is_odd ? 4 * MIB : 1, MUSTER_INT32, MUSTER_SUM);
}

static muster_status_t other_algorithm_back(struct part *part) {
    return muster_allreduce(part->world, part->in, part->out, part->is_odd ? 1 : 4 * MIB, MUSTER_INT32, MUSTER_SUM);
}

static muster_status_t other_algorithm_allgather(struct part *part) {
    return muster_allgather(part->world, part->in, part->out, part->is_odd ? MIB : 1, MUSTER_INT32);
}

static muster_status_t other_algorithm_alltoall(struct part *part) {
    return muster_alltoall(part->world, part->in, part->out, part->is_odd ? MIB : 1, MUSTER_INT32);
}

static muster_status_t other_vector(struct part *part) {
    size_t counts[MOST], displs[MOST];
    for (int i = 0; i < size; i++) {
        counts[i] = 100 + (size_t)i + (part->is_odd && i == part->odd ? 1 : 0);
        displs[i] = 1000 * (size_t)i;
    }
    return or_next(part, muster_allgatherv(part->world, part->in, counts[part->rank], part->out, counts, displs, MUSTER_INT32));
}

static muster_status_t other_alltoall_vector(struct part *part) {
    size_t counts[MOST], from[MOST], displs[MOST];
    for (int i = 0; i < size; i++) {
        counts[i] = from[i] = 100;
        displs[i] = 1000 * (size_t)i;
    }
    counts[(part->odd + 1) % size] = part->is_odd ? 99 : 100; /* its neighbour expects 100 */
    muster_status_t status =
        muster_alltoallv(part->world, part->in, counts, displs, part->out, from, displs, MUSTER_INT32);
    return or_next(part, status);
}

static muster_status_t other_type(struct part *part) {
    int32_t dtype = part->is_odd ? MUSTER_FLOAT32 : MUSTER_INT32;
    return muster_allreduce(part->world, part->in, part->out, 1000, dtype, MUSTER_SUM);
}

static muster_status_t other_operation(struct part *part) {
    return muster_allreduce(part->world, part->in, part->out, MIB, MUSTER_INT32, part->is_odd ? MUSTER_MAX : MUSTER_SUM);
}

/* The root of a small broadcast has sent it and returned, and is somewhere else when the others disagree. */
static muster_status_t root_has_returned(struct part *part) {
    muster_status_t status;
    if (part->rank == 0) {
        CHECK_OK(muster_broadcast(part->world, part->out, 1, MUSTER_UINT8, 0));
        for (int i = 0; i < size; i++) { /* now the others may begin */
            CHECK(sem_post(&part->ranks->note[i].go) == 0);
        }
        status = muster_allreduce(part->world, part->in, part->out, 8, MUSTER_INT32, MUSTER_SUM);
        await(&part->ranks->note[0].go);
        return status;
    }
    await(&part->ranks->note[part->rank].go);
    if (part->is_odd) {
        status = muster_allgather(part->world, part->in, part->out, 1, MUSTER_UINT8);
    } else {
        status = muster_broadcast(part->world, part->out, 1, MUSTER_UINT8, 0);
    }
    return status == MUSTER_OK ? muster_allreduce(part->world, part->in, part->out, 8, MUSTER_INT32, MUSTER_SUM) : status;
}

/* A rank that lives and never comes, until all others have been told. */
static muster_status_t never_comes(struct part *part) {
    muster_status_t status;
    if (part->is_odd) {
        for (int i = 1; i < size; i++) {
            await(&part->ranks->note[part->odd].go);
        }
        return muster_barrier(part->world);
    }
    status = muster_allreduce(part->world, part->in, part->out, MIB, MUSTER_INT32, MUSTER_SUM);
    CHECK(sem_post(&part->ranks->note[part->odd].go) == 0);
    return status;
}

/* A rank that is stopped, for a shorter time than it takes to be lost, until all others have been told. */
static muster_status_t is_stopped(struct part *part) {
    struct note *odd = &part->ranks->note[part->odd];
    if (part->is_odd) {
        CHECK(sem_post(&odd->ready) == 0);
        await(&odd->go); /* it is stopped in it */
        return muster_barrier(part->world);
    }
    if (part->rank == 0) {
        await(&odd->ready);
        stop_process(part->ranks->pid[part->odd]);
    }
    muster_status_t status = muster_barrier(part->world);
    CHECK(sem_post(&part->ranks->note[0].ready) == 0);
    for (int other = 1; part->rank == 0 && other < size; other++) {
        await(&part->ranks->note[0].ready);
    }
    if (part->rank == 0) {
        CHECK(kill(part->ranks->pid[part->odd], SIGCONT) == 0);
        CHECK(sem_post(&odd->go) == 0);
    }
    return status;
}

/* A reduction that stops in the middle of its work on one rank. */
struct stuck {
    struct part *part;
    size_t done;
    size_t limit; /* it stops when so many bytes are done */
};

static void sum_until_stuck(const void *in, void *inout, size_t count, int32_t dtype, void *context) {
    struct stuck *stuck = context;
    const int32_t *from = in;
    int32_t *to = inout;
    CHECK_IS(MUSTER_INT32, dtype);
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
    if (stuck->part->is_odd && stuck->done < stuck->limit && stuck->done + 4 * count >= stuck->limit) {
        await(&stuck->part->ranks->note[stuck->part->rank].go);
    }
    stuck->done += 4 * count;
}

static int32_t stops_after(struct part *part, size_t limit) {
    static struct stuck stuck; /* may be used until the cluster is freed */
    static int32_t operation = -1;
    stuck = (struct stuck){.part = part, .limit = limit};
    if (operation == -1) {
        CHECK_OK(muster_op_create(part->cluster, sum_until_stuck, &stuck, 1, &operation));
    }
    return operation;
}

/* A rank that is still in a reduction, which the others have left behind. */
static muster_status_t is_elsewhere(struct part *part) {
    int32_t operation = stops_after(part, 1);
    muster_status_t status = muster_reduce(part->world, part->in, part->out, 16, MUSTER_INT32, operation, part->odd);
    if (part->is_odd) { /* the first of the others has let it go on */
        for (int i = 2; i < size; i++) {
            await(&part->ranks->note[part->odd].go);
        }
        return or_next(part, status);
    }
    CHECK_OK(status);
    status = muster_barrier(part->world);
    CHECK(sem_post(&part->ranks->note[part->odd].go) == 0);
    return status;
}

/* 64 MiB: a good part of it has passed when one rank goes no further. */
static muster_status_t stops_in_the_middle(struct part *part, bool cancels) {
    int32_t operation = stops_after(part, LARGE / 8);
    muster_request_t *request = NULL;
    CHECK_OK(muster_iallreduce(part->world, part->in, part->out, LARGE / 4, MUSTER_INT32, operation, &request));
    int canceller = (part->odd + 1) % size;
    if (cancels && part->rank == canceller) {
        CHECK_IS(MUSTER_IN_PROGRESS, muster_request_wait(request, 300));
        CHECK_OK(muster_request_cancel(request));
    }
    muster_status_t status = muster_request_wait(request, 2 * LIMIT_MS * patience());
    if (part->rank == canceller) {
        CHECK(sem_post(&part->ranks->note[part->odd].go) == 0);
    }
    char words[WORDS_BYTES];
    snprintf(words, sizeof words, "%s", muster_last_error());
    muster_request_free(request);
    CHECK_IS(status, muster_barrier(part->world)); /* and so does every later call */
    CHECK(strcmp(words, muster_last_error()) == 0);
    return status;
}

static muster_status_t time_is_up(struct part *part) {
    return stops_in_the_middle(part, false);
}

static muster_status_t is_cancelled(struct part *part) {
    return stops_in_the_middle(part, true);
}

/* Ends one connection of this process that does not lead to the scheduler. */
static void cut_a_link(const char *scheduler_port) {
    DIR *descriptors = opendir("/proc/self/fd");
    bool cut = false;
    CHECK(descriptors != NULL);
    for (struct dirent *entry; !cut && (entry = readdir(descriptors)) != NULL;) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int fd = atoi(entry->d_name);
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) != atoi(scheduler_port)) {
            CHECK(shutdown(fd, SHUT_RDWR) == 0);
            cut = true;
        }
    }
    closedir(descriptors);
    CHECK(cut);
}

static muster_status_t link_is_cut(struct part *part) {
    muster_request_t *request = NULL;
    muster_status_t status =
        muster_allreduce(part->world, part->in, part->out, 4 * MIB, MUSTER_INT32, MUSTER_SUM);
    if (status == MUSTER_OK) {
        status = muster_iallreduce(part->world, part->in, part->out, LARGE / 4, MUSTER_INT32, MUSTER_SUM, &request);
    }
    if (status != MUSTER_OK) {
        return status; /* the others were quicker: one that has ended the first call may cut a link that another still needs */
    }
    if (part->is_odd) {
        cut_a_link(part->ranks->port);
    }
    status = muster_request_wait(request, 2 * LIMIT_MS * patience());
    muster_request_free(request);
    for (size_t count = 1; status == MUSTER_OK; count = 4 * MIB + 1 - count) { /* that link had done its work: others need it */
        status = muster_allreduce(part->world, part->in, part->out, count, MUSTER_INT32, MUSTER_SUM);
    }
    return status;
}

static const struct scene scenes[] = {
    {"another collective", other_collective, MUSTER_ERR_MISMATCH, {"allgather(", "allreduce("}, 0, NAMED | BY_TWO, 3},
    {"a barrier", barrier_or_reduce, MUSTER_ERR_MISMATCH, {"barrier()", "reduce("}, 0, NAMED | BY_TWO, 0},
    {"another root of little", other_root_small, MUSTER_ERR_MISMATCH, {"root"}, 0, NAMED | BY_TWO, 3},
    {"another root of much", other_root_large, MUSTER_ERR_MISMATCH, {"root"}, 0, 0, 0},
    {"another root of a gather", other_root_gather, MUSTER_ERR_MISMATCH, {"gather(", "root 1"}, 0, 0, 0},
    {"another count", other_count_small, MUSTER_ERR_MISMATCH, {"count 15", "count 16"}, 0, NAMED | BY_TWO, 3},
    {"another algorithm", other_algorithm, MUSTER_ERR_MISMATCH, {"count 4194304", "count 1,"}, 0, 0, 0},
    {"another algorithm, of most", other_algorithm_back, MUSTER_ERR_MISMATCH, {"count 4194304", "count 1,"}, 0, 0, 0},
    {"another algorithm of allgather", other_algorithm_allgather, MUSTER_ERR_MISMATCH, {"count 1048576", "count 1,"}, 0, 0, 0},
    {"another algorithm of alltoall", other_algorithm_alltoall, MUSTER_ERR_MISMATCH, {"count 1048576", "count 1,"}, 0, 0, 0},
    {"another count vector", other_vector, MUSTER_ERR_MISMATCH, {"allgather"}, 0, 0, 0},
    {"another count in an alltoall", other_alltoall_vector, MUSTER_ERR_MISMATCH, {"99 elements", "100 are expected"}, 0, 0, 0},
    {"another type", other_type, MUSTER_ERR_MISMATCH, {"int32", "float32"}, 0, NAMED | BY_TWO, 0},
    {"another operation", other_operation, MUSTER_ERR_MISMATCH, {"sum", "max"}, 0, NAMED | BY_TWO, 0},
    {"a root that has returned", root_has_returned, MUSTER_ERR_MISMATCH, {"allgather("}, 0, 0, 0},
    {"one that never comes", never_comes, MUSTER_ERR_TIMEOUT, {"never entered allreduce #", "on world within the ", "its last was allreduce #5"}, SHORT_MS, NAMED, 0},
    {"one that is elsewhere", is_elsewhere, MUSTER_ERR_TIMEOUT, {"never entered barrier #", "on world within the ", "it is in reduce #"}, SHORT_MS, NAMED, 0},
    {"one that is stopped", is_stopped, MUSTER_ERR_TIMEOUT, {"never entered barrier #", "on world within the ", "it does not answer the scheduler"}, SHORT_MS, NAMED, 0},
    {"time is up in the middle", time_is_up, MUSTER_ERR_TIMEOUT, {"allreduce #", "on world timed out after "}, SHORT_MS, 0, 0},
    {"cancelled in the middle", is_cancelled, MUSTER_ERR_ABORTED, {"cancelled allreduce #", "before it had ended"}, 0, 0, 0},
    {"another root, and all have returned", all_have_returned, MUSTER_ERR_MISMATCH, {"root 0", "root 3", "as collective #6 on world"}, 0, 0, 0},
    {"a broadcast of another length", other_length, MUSTER_ERR_MISMATCH, {"count 2,", "count 3,"}, 0, NAMED | BY_TWO, 3},
    {"no frames meet", no_frames_meet, MUSTER_ERR_MISMATCH, {"root 0", "root 1", " called broadcast("}, 0, NAMED, 5},
    {"each waits for the other", each_waits, MUSTER_ERR_MISMATCH, {"root 0", "root 1"}, 0, BY_TWO_ALONE, 5},
    /* The last: see is_unconfirmed. */
    {"a link is cut", link_is_cut, MUSTER_ERR_LINK, {"cannot reach each other although both live"}, 0, 0, 0},
};
enum { SCENES = sizeof scenes / sizeof *scenes, ATTEMPTS = 10, SLOW = 10 };

/* The rank that does something else; never 0, which is the root. */
static int odd_one(int scene) {
    return 1 + scene % (size - 1);
}

/* Waits until all ranks are here: over the store, which goes on whatever is revoked. */
static void meet(struct part *part, int epoch, const char *where) {
    char key[64], all[80];
    const char *keys[] = {all};
    int64_t here = 0;
    snprintf(key, sizeof key, "%d/%s", epoch, where);
    snprintf(all, sizeof all, "%s/all", key);
    CHECK_OK(muster_store_add(part->cluster, key, 1, &here));
    if (here == size) {
        CHECK_OK(muster_store_set(part->cluster, all, "", 0));
    }
    CHECK_OK(muster_store_wait(part->cluster, keys, 1, LIMIT_MS * patience()));
}

/* Every rank was told the same, in the same words. Under Valgrind the scheduler may take longer to answer than a rank waits for it,
   250 ms: such a rank reports what it saw itself (docs/recovery.md). Its words were looked at before. */
static void compare(struct part *part, int epoch, const char *words) {
    char key[64];
    void *first = NULL;
    size_t length = 0;
    snprintf(key, sizeof key, "%d/words", epoch);
    if (part->rank == 0) {
        CHECK_OK(muster_store_set(part->cluster, key, words, strlen(words)));
    }
    CHECK_OK(muster_store_get(part->cluster, key, LIMIT_MS * patience(), &first, &length));
    if (patience() < SLOW && (length != strlen(words) || memcmp(first, words, length) != 0)) {
        fprintf(stderr, "rank %d: \"%s\"\nrank 0: \"%.*s\"\n", part->rank, words, (int)length, (const char *)first);
        CHECK(!"all ranks were told the same");
    }
    muster_free(first);
}

/* Meets the others, and says whether a rank does not know the odd one. On a slow machine some may know it, and others not. */
static bool one_does_not_know(struct part *part, int epoch, bool unknown) {
    char key[32];
    int64_t unknowing = 0;
    snprintf(key, sizeof key, "%d/unknown", epoch);
    CHECK_OK(muster_store_add(part->cluster, key, unknown, &unknowing));
    meet(part, epoch, "end"); /* a rank that mends before would be the cause for others */
    CHECK_OK(muster_store_add(part->cluster, key, 0, &unknowing));
    return unknowing > 0;
}

static void works(struct part *part) {
    int32_t sum = 0, mine = 1 << part->rank;
    warm_up(part->world);
    CHECK_OK(muster_allreduce(part->world, &mine, &sum, 1, MUSTER_INT32, MUSTER_SUM));
    CHECK_IS((1 << size) - 1, sum);
}

/* The scene with which a cluster begins. */
static int first_scene = 0;

/* The scheduler's word that both ends of the cut link live may not come in its 250 ms. Then all are told that one end is
 * probably lost, and that end itself is fenced. This cluster is over then, and the scene, which is the last, is played in
 * another. */
static bool is_unconfirmed(struct part *part, const struct scene *scene, muster_status_t status) {
    struct ranks *ranks = part->ranks;
    double limit = now_s() + LIMIT_MS / 1000.0 * patience();
    if (scene->status != MUSTER_ERR_LINK || (status != MUSTER_ERR_PEER_LOST && status != MUSTER_ERR_FENCED)) {
        return false;
    }
    CHECK_CONTAINS(muster_last_error(), "unconfirmed");
    ranks->note[part->rank].again = status;
    CHECK(sem_post(&ranks->note[0].ready) == 0);
    for (int told = 0; told < size; sem_getvalue(&ranks->note[0].ready, &told)) { /* one that leaves before would be the cause for others */
        CHECK(now_s() < limit);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    muster_finalize(part->cluster); /* may say anything, but ends */
    muster_cluster_free(part->cluster);
    return true;
}

static int64_t limit_of(const struct scene *scene) {
    return (scene->limit_ms == 0 ? LIMIT_MS : scene->limit_ms) * patience();
}

/* Checks what a scene's call returned, said and left. Whether the failure does not name the odd rank, as it should. */
static bool is_unknown(const struct part *part, const struct scene *scene, int epoch, muster_status_t status, const char *words) {
    muster_failure_t failure;
    CHECK_OK(muster_failure(part->cluster, &failure, sizeof failure));
    /* 250 ms may not be enough to know the absent ranks; or too few had called when the scheduler asked what all
     * called. Then all are told so, and it is tried again. */
    bool unknown = (scene->how & NAMED) != 0 && size > 2 && failure.rank == -1;
    bool unanswered = unknown && scene->status == MUSTER_ERR_TIMEOUT;
    if (status != scene->status) {
        fprintf(stderr, "%s: rank %d\n", scene->name, part->rank);
    }
    CHECK_IS(scene->status, status);
    for (int word = 0; word < 3 && scene->words[word] != NULL; word++) {
        CHECK_CONTAINS(words, unanswered ? "the scheduler does not answer" : scene->words[word]);
    }
    if (scene->status == MUSTER_ERR_TIMEOUT) {
        char limit[32];
        snprintf(limit, sizeof limit, " %lld s", (long long)limit_of(scene) / 1000);
        CHECK_CONTAINS(words, limit);
    }
    CHECK_IS(scene->status, failure.status);
    CHECK_IS(epoch, failure.epoch);
    if ((scene->how & NAMED) != 0 && !unknown && size > 2) {
        CHECK_IS(part->odd, failure.rank);
        CHECK_IS(part->ranks->pid[part->odd], failure.pid);
    }
    if ((scene->how & NAMED) != 0 && !unknown) {
        char process[32];
        snprintf(process, sizeof process, ", pid %d)", (int)part->ranks->pid[part->odd]);
        CHECK_CONTAINS(words, process);
    }
    return unknown;
}

static void play_all(muster_cluster_t *cluster, int rank, struct ranks *ranks) {
    struct part part = {.cluster = cluster, .world = muster_world(cluster), .ranks = ranks, .rank = rank};
    part.in = malloc(LARGE);
    part.out = malloc(LARGE);
    CHECK(part.in != NULL && part.out != NULL);
    memset(part.in, 1, LARGE);
    int again = 0;
    for (int i = first_scene, epoch = 1; i < SCENES; epoch++) {
        const struct scene *scene = &scenes[i];
        if ((scene->how & (size == 2 ? BY_TWO | BY_TWO_ALONE : BY_TWO_ALONE)) == (size == 2 ? 0 : BY_TWO_ALONE)) {
            i++, epoch--;
            continue;
        }
        part.odd = odd_one(i);
        part.is_odd = rank == part.odd;
        CHECK_OK(muster_group_set_timeout(part.world, limit_of(scene)));
        meet(&part, epoch, "begin");
        double begun = now_s();
        muster_status_t status = scene->play(&part);
        CHECK(scene->within_s == 0 || now_s() - begun < scene->within_s * patience());
        char words[WORDS_BYTES];
        snprintf(words, sizeof words, "%s", muster_last_error());
        if (is_unconfirmed(&part, scene, status)) {
            break;
        }
        bool unknown = is_unknown(&part, scene, epoch, status, words);
        CHECK_IS(scene->status, muster_barrier(part.world));
        compare(&part, epoch, words);
        bool once_more = one_does_not_know(&part, epoch, unknown);
        CHECK(!once_more || ++again < ATTEMPTS * patience());
        CHECK_OK(muster_recover(cluster, LIMIT_MS * patience()));
        works(&part);
        i += !once_more;
    }
    for (size_t i = 0; i < LARGE; i++) {
        CHECK(part.in[i] == 1); /* whatever failed, an input that is not also the output is never written */
    }
    if (ranks->note[rank].again == MUSTER_OK) {
        CHECK_OK(muster_finalize(cluster));
        muster_cluster_free(cluster);
    }
    free(part.in);
    free(part.out);
}

/* Whether all scenes have been played. */
static bool all_play(int by) {
    size = by;
    struct ranks *ranks = ranks_start(size, play_all, NULL);
    for (int rank = 0; rank < size; rank++) {
        ranks_await(ranks, rank);
    }
    bool done = ranks->note[0].again == MUSTER_OK;
    muster_status_t status = ranks_finish(ranks);
    CHECK(!done || status == MUSTER_OK);
    return done;
}

int main(void) {
    for (int attempt = 1; !all_play(MOST); attempt++) {
        CHECK(attempt < ATTEMPTS * patience());
        first_scene = SCENES - 1;
    }
    first_scene = 0;
    CHECK(all_play(2));
    return 0;
}
