/* What every_collective calls, and what the ranks bring to a call. */
#ifndef EVERY_COLLECTIVE_H
#define EVERY_COLLECTIVE_H

#include <stddef.h>
#include <stdint.h>

enum {
    MOST = 16,    /* ranks */
    PERIOD = 1009 /* elements after which operands repeat: a prime, so that no block is a number of periods */
};

enum kind {
    BROADCAST, ALLREDUCE, REDUCE, ALLGATHER, ALLGATHERV, GATHER, GATHERV, SCATTER, SCATTERV, REDUCE_SCATTER,
    REDUCE_SCATTERV, ALLTOALL, ALLTOALLV, BARRIER, KINDS
};

/* One call, as all ranks know it. */
struct call {
    enum kind kind;
    int32_t dtype;
    int op;
    int32_t root;
    int size;
    size_t count; /* of each part; on average, where they differ. Of a barrier: how many there have been with it */
    int alike;    /* each two ranks give each other equally much, so that an alltoallv can be in place */
    int given;    /* a user's operation comes with the call */
    uint64_t key; /* what its contents are drawn from */
};

/* What goes from one rank to another is drawn from a number of its own. */
uint64_t stream(const struct call *call, int from, int to);
/* What is not reduced: bytes drawn from such a number. */
void contents(unsigned char *to, uint64_t from, size_t bytes);

/* A period of what a rank gives, and of the result of all ranks' numbers, folded in their order. */
struct period {
    unsigned char given[PERIOD * 8], result[PERIOD * 8];
};
void reckon(struct period *period, const struct call *call, int rank, size_t elements);
/* Writes elements `first` and those behind it, of which a period is one. */
void repeat(unsigned char *to, const unsigned char *period, size_t width, size_t first, size_t count);

#endif
