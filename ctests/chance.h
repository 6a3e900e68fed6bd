/* Numbers drawn by a seed, so that all ranks draw the same. */
#ifndef CHANCE_H
#define CHANCE_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t mix(uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

static inline uint64_t next(uint64_t *random) { return mix(*random += 0x9e3779b97f4a7c15u); }

static inline size_t below(uint64_t *random, size_t limit) { return (size_t)(next(random) % limit); }

static inline int one_in(uint64_t *random, size_t times) { return below(random, times) == 0; }

#endif
