/* What the ranks of every_collective bring to a call, and what a reduction makes of it. */
#include "every_collective.h"
#include "arithmetic.h"
#include "chance.h"
#include "check.h"

uint64_t stream(const struct call *call, int from, int to) {
    return mix(call->key + (uint64_t)(from * MOST + to + 1) * 0x9e3779b97f4a7c15u);
}

/* Whole numbers so small that every sum of theirs is exact, and every average: it is made of multiples of the ranks'
 * number, unless that is a power of two. Products are of signs and, on every second rank, of powers of two. */
static double float_operand(const struct call *call, int rank, uint64_t bits) {
    int64_t size = call->size, step = call->op == MUSTER_AVG && (size & (size - 1)) != 0 ? size : 1;
    int64_t most = (int64_t)types[call->dtype].exact / (size * step);
    double sign = bits >> 63 ? -1 : 1;
    if (call->op == MUSTER_PROD) {
        static const double powers[] = {0.5, 1, 1, 2};
        return sign * (rank % 2 == 0 ? powers[bits % 4] : 1);
    }
    if ((call->op == MUSTER_MIN || call->op == MUSTER_MAX) && (bits >> 40) % 4 == 0) {
        return sign * 0.0;
    }
    return (double)(step * ((int64_t)(bits % (uint64_t)(2 * most + 1)) - most));
}

/* Element `at` of what a rank gives to a reduction. */
static uint64_t operand(const struct call *call, int rank, size_t at) {
    const struct type *type = &types[call->dtype];
    uint64_t bits = mix(stream(call, rank, 0) + at), mask = mask_of(type->width);
    if (call->op < COMMUTATIVE && type->exact != 0) {
        return pack(call->dtype, float_operand(call, rank, bits));
    }
    switch (call->op) {
    case MUSTER_PROD: return (bits | (bits >> 60 != 0)) & mask; /* mostly odd: else a product soon is 0 */
    case MUSTER_AND: return (bits | bits >> 21 | bits >> 42) & mask;
    case MUSTER_OR: return bits & bits >> 21 & bits >> 42 & mask;
    case ORDERED: return (bits | (uint64_t)1 << 4 * type->width) & mask; /* an odd factor can be undone */
    case MUSTER_AVG: break;
    default: return bits & mask;
    }
    /* No sum may wrap. */
    uint64_t most = (type->is_signed ? mask >> 1 : mask) / (uint64_t)call->size;
    uint64_t range = type->is_signed ? 2 * most : most;
    return ((range == ~(uint64_t)0 ? bits : bits % (range + 1)) - (type->is_signed ? most : 0)) & mask;
}

void reckon(struct period *period, const struct call *call, int rank, size_t elements) {
    size_t width = types[call->dtype].width;
    for (size_t at = 0; at < elements && at < PERIOD; at++) {
        uint64_t result = operand(call, 0, at);
        for (int other = 1; other < call->size; other++) {
            result = combine(call->op, call->dtype, result, operand(call, other, at));
        }
        put(period->given, at, width, operand(call, rank, at));
        put(period->result, at, width, call->op == MUSTER_AVG ? divide(call->dtype, result, call->size) : result);
    }
}

void repeat(unsigned char *to, const unsigned char *period, size_t width, size_t first, size_t count) {
    for (size_t now; count > 0; first += now, count -= now, to += now * width) {
        now = PERIOD - first % PERIOD < count ? PERIOD - first % PERIOD : count;
        memcpy(to, period + first % PERIOD * width, now * width);
    }
}

void contents(unsigned char *to, uint64_t from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t bits = mix(from + at);
        memcpy(to + at, &bits, bytes - at < 8 ? bytes - at : 8);
    }
}
