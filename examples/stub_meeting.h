/* For the stubs: a file that each rank of one communicator maps, where the ranks meet and sum up. Nobody waits in here: a
 * caller that asks how far something is carries it on. */
#ifndef STUB_MEETING_H
#define STUB_MEETING_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MOST = 16, COUNT_MOST = 1 << 16 };

/* What a rank has done so far; `data` is what it gives to reduction number `put`. */
struct slot {
    atomic_int pid; /* 0: has not joined */
    atomic_uint_fast64_t put;
    atomic_uint_fast64_t taken;
    float data[COUNT_MOST];
};

struct meeting {
    struct slot slots[RANKS_MOST];
};

/* Makes the file in TMPDIR, with `name` in its name, and writes its path. Returns whether it could. */
static inline int make_meeting(char *path, size_t size, const char *name) {
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/%s-XXXXXX", folder != NULL ? folder : "/tmp", name);
    int file = mkstemp(path);
    int made = file >= 0 && ftruncate(file, sizeof(struct meeting)) == 0;
    if (file >= 0) {
        close(file);
    }
    return made;
}

/* Joins as this rank. Returns NULL if all have joined before and the file is gone, or if the rank is taken. */
static inline struct meeting *join_meeting(const char *path, int rank) {
    int file = open(path, O_RDWR);
    if (file < 0) {
        return NULL;
    }
    struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (meeting == MAP_FAILED || atomic_exchange(&meeting->slots[rank].pid, (int)getpid()) != 0) {
        return NULL;
    }
    return meeting;
}

static inline int all_have(struct meeting *meeting, int ranks, int taken, uint64_t number) {
    for (int rank = 0; rank < ranks; rank++) {
        struct slot *slot = &meeting->slots[rank];
        if (atomic_load(taken ? &slot->taken : &slot->put) < number) {
            return 0;
        }
    }
    return 1;
}

/* Reduction number `number`, from 1: puts the rank's own data once all have taken what was there before, and takes the sum
 * once all have put. Returns whether it is done. */
static inline int sum_up(struct meeting *meeting, int rank, int ranks, uint64_t number, const float *in, float *out,
                         size_t count) {
    struct slot *own = &meeting->slots[rank];
    if (atomic_load(&own->put) < number && all_have(meeting, ranks, 1, number - 1)) {
        memcpy(own->data, in, count * sizeof(float));
        atomic_store(&own->put, number);
    }
    if (!all_have(meeting, ranks, 0, number)) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int peer = 0; peer < ranks; peer++) {
            sum += meeting->slots[peer].data[i];
        }
        out[i] = sum;
    }
    atomic_store(&own->taken, number);
    return 1;
}

static inline void leave_meeting(struct meeting *meeting) { munmap(meeting, sizeof *meeting); }

#endif
