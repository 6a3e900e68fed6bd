/* Element types, and what every operation makes of two elements: computed without the library, to compare it with. */
#ifndef ARITHMETIC_H
#define ARITHMETIC_H

#include "check.h"

enum {
    TYPES = 12,
    COMMUTATIVE = 8, /* after the library's own operations: two of a user's */
    ORDERED = 9,
    OPS = 10
};

static const struct type {
    const char *name;
    size_t width; /* in bytes */
    int is_signed;
    uint64_t exact; /* whole numbers are exact up to here; 0: an integer type */
} types[TYPES] = {
    {"int8", 1, 1, 0},  {"int16", 2, 1, 0},  {"int32", 4, 1, 0},  {"int64", 8, 1, 0},
    {"uint8", 1, 0, 0}, {"uint16", 2, 0, 0}, {"uint32", 4, 0, 0}, {"uint64", 8, 0, 0},
    {"float16", 2, 1, 2048}, {"bfloat16", 2, 1, 256},
    {"float32", 4, 1, (uint64_t)1 << 24}, {"float64", 8, 1, (uint64_t)1 << 53},
};

/* An element is its bits, the lowest of 64; the machines that this runs on are little-endian. */

static inline uint64_t get(const void *data, size_t at, size_t width) {
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)data + at * width, width);
    return bits;
}

static inline void put(void *data, size_t at, size_t width, uint64_t bits) {
    memcpy((unsigned char *)data + at * width, &bits, width);
}

static inline uint64_t mask_of(size_t width) { return ~(uint64_t)0 >> (64 - 8 * width); }

/* A number that the type can hold exactly. */
static inline uint64_t pack(int32_t dtype, double value) {
    float narrow = (float)value;
    uint64_t wide = 0;
    uint32_t single = 0;
    memcpy(&wide, &value, sizeof wide);
    memcpy(&single, &narrow, sizeof single);
    if (dtype == MUSTER_FLOAT64) {
        return wide;
    }
    CHECK((double)narrow == value);
    if (dtype == MUSTER_FLOAT32) {
        return single;
    }
    if (dtype == MUSTER_BFLOAT16) {
        CHECK((single & 0xffff) == 0);
        return single >> 16;
    }
    uint32_t sign = single >> 31, exponent = (single >> 23 & 0xff) - 127 + 15, fraction = single & 0x7fffff;
    CHECK(value == 0 || (exponent > 0 && exponent < 31 && (fraction & 0x1fff) == 0)); /* none subnormal */
    return sign << 15 | (value == 0 ? 0 : exponent << 10 | fraction >> 13);
}

static inline double unpack(int32_t dtype, uint64_t bits) {
    float narrow = 0;
    double value = 0;
    uint32_t single = dtype == MUSTER_BFLOAT16 ? (uint32_t)bits << 16 : (uint32_t)bits;
    if (dtype == MUSTER_FLOAT64) {
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (dtype == MUSTER_FLOAT16) { /* zero or normal, as pack made it */
        uint32_t exponent = (uint32_t)(bits >> 10 & 0x1f), fraction = (uint32_t)(bits & 0x3ff);
        single = (uint32_t)(bits >> 15) << 31 | (exponent == 0 ? 0 : (exponent + 127 - 15) << 23 | fraction << 13);
    }
    memcpy(&narrow, &single, sizeof narrow);
    return narrow;
}

/* The functions x -> factor x + addend, the lower one applied first: associative, but not commutative. Each is one element
 * of any type. Either number has half of its bits. */
static inline uint64_t compose(size_t width, uint64_t lower, uint64_t higher) {
    size_t half = 4 * width;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t factor = (lower >> half) * (higher >> half), addend = (higher >> half) * (lower & mask) + (higher & mask);
    return (factor & mask) << half | (addend & mask);
}

/* -0 is the smaller zero. */
static inline double combine_floats(int op, double lower, double higher) {
    switch (op) {
    case MUSTER_PROD: return lower * higher;
    /* The reciprocals of two zeros tell which of them is -0. */
    case MUSTER_MIN: return lower != higher ? (lower < higher ? lower : higher) : 1 / lower < 0 ? lower : higher;
    case MUSTER_MAX: return lower != higher ? (lower > higher ? lower : higher) : 1 / lower > 0 ? lower : higher;
    default: return lower + higher;
    }
}

static inline uint64_t combine(int op, int32_t dtype, uint64_t lower, uint64_t higher) {
    const struct type *type = &types[dtype];
    uint64_t mask = mask_of(type->width), flip = type->is_signed ? mask ^ mask >> 1 : 0;
    if (op == COMMUTATIVE) {
        return (lower + higher + 1) & mask; /* tells how often it was applied, too */
    }
    if (op == ORDERED) {
        return compose(type->width, lower, higher);
    }
    if (type->exact != 0) {
        return pack(dtype, combine_floats(op, unpack(dtype, lower), unpack(dtype, higher)));
    }
    switch (op) {
    case MUSTER_PROD: return lower * higher & mask;
    case MUSTER_MIN: return (lower ^ flip) < (higher ^ flip) ? lower : higher;
    case MUSTER_MAX: return (lower ^ flip) > (higher ^ flip) ? lower : higher;
    case MUSTER_AND: return lower & higher;
    case MUSTER_OR: return lower | higher;
    case MUSTER_XOR: return lower ^ higher;
    default: return (lower + higher) & mask;
    }
}

static inline uint64_t divide(int32_t dtype, uint64_t bits, int by) {
    const struct type *type = &types[dtype];
    uint64_t mask = mask_of(type->width);
    if (type->exact != 0) {
        return pack(dtype, unpack(dtype, bits) / by);
    }
    if (type->is_signed && bits > mask >> 1) { /* toward zero */
        return -((-bits & mask) / (uint64_t)by) & mask;
    }
    return bits / (uint64_t)by;
}

#endif
