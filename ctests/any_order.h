/* What the files of any_order share: how chance is drawn, what a thread of a node holds, and what a call may answer. */
#ifndef ANY_ORDER_H
#define ANY_ORDER_H

#include "check.h"

enum { HELD = 6 };

struct draw {
    uint64_t state;
};

static inline uint32_t below(struct draw *draw, uint32_t limit) {
    draw->state = draw->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((draw->state >> 33) % limit);
}

static inline int once_in(struct draw *draw, uint32_t times) { return below(draw, times) == 0; }

/* A request, with what it uses. */
struct held {
    muster_request_t *request;
    muster_status_t end; /* MUSTER_IN_PROGRESS until it was told */
    void *in;
    void *out;
    muster_received_t *received;
};

/* A cluster's handle, and the threads that use it. */
struct node {
    muster_cluster_t *cluster;
    uint64_t seed;   /* of this node alone */
    uint64_t agreed; /* of all */
    int breaks_after; /* the step after which its first thread no longer calls what the others' do */
    int ends;         /* how it goes */
    int left;         /* muster_finalize has returned */
};

/* One thread of a node. */
struct caller {
    struct node *node;
    int nth;
    struct draw own;
    struct draw agreed;
    muster_group_t *made[HELD];
    struct held held[HELD];
    int32_t op; /* of this process's own making, or -1 */
};

/* What a call answers is a status of the header, with a sentence if it is an error. */
static inline muster_status_t answered(muster_status_t status) {
    CHECK(strstr(muster_status_string(status), "unknown") == NULL);
    CHECK(status != MUSTER_ERR_INTERNAL && status != MUSTER_ERR_MEMORY && status != MUSTER_ERR_FORKED);
    CHECK(status >= 0 || muster_last_error()[0] != 0);
    return status;
}

/* Whatever begins after muster_finalize does not succeed any more. If there is a request, that says so. */
static inline void began(int had_left, uint32_t kind, muster_status_t status, const muster_request_t *request) {
    if (had_left && status == MUSTER_OK && request == NULL) {
        fprintf(stderr, "    it was call %u of its kind\n", kind);
        CHECK(!"a call after muster_finalize fails");
    }
    answered(status);
}

/* In any_order_calls.c. */
muster_group_t *draw_group(struct caller *caller, struct draw *draw);
/* A user's operation. */
void first_of_two(const void *in, void *inout, size_t count, int32_t dtype, void *ctx);
/* Frees a request and what it uses. */
void let_go(struct held *held);
/* Each makes one call, or asks one thing of a request. */
void collective(struct caller *caller, struct draw *draw, muster_group_t *group);
void message(struct caller *caller);
void request(struct caller *caller);

#endif
