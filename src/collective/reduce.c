/* Reductions as loops that compilers turn into vector instructions; reduce_all goes block by block, so that a
 * block stays in the first cache while all inputs are added to it. Who reduces what, and in which order of
 * ranks, is the caller's. */
#include "collective/reduce.h"

#include <stdint.h>
#include <string.h>

#include "collective/collective.h"

enum { BLOCK = 1024 }; /* numbers */

/* Room for a block, which is written before it is read. */
#define ROOM(type, name) type name[BLOCK] __attribute__((uninitialized))

/* A loop for one type and one reduction: `x` and `y` are the numbers. */
#define PAIR(name, type, expression)                                         \
    static void name(void *to, const void *a, const void *b, size_t count) { \
        for (size_t i = 0; i < count; i++) {                                 \
            type x = ((const type *)a)[i], y = ((const type *)b)[i];         \
            ((type *)to)[i] = (type)(expression);                            \
        }                                                                    \
    }

/* Unsigned arithmetic of at least 32 bits wraps around where that of the type itself might not. */
#define PAIRS(type, unsigned_type)                                  \
    PAIR(add_##type, type, (unsigned_type)x + (unsigned_type)y)     \
    PAIR(multiply_##type, type, (unsigned_type)x *(unsigned_type)y) \
    PAIR(least_##type, type, x < y || x != x ? x : y)               \
    PAIR(greatest_##type, type, x > y || x != x ? x : y)

PAIRS(float, float)
PAIRS(double, double)
PAIRS(int8_t, uint32_t)
PAIRS(uint8_t, uint32_t)
PAIRS(int32_t, uint32_t)
PAIRS(int64_t, uint64_t)

#define OF(type)                                                                        \
    {                                                                                   \
        [TY_SUM] = add_##type, [TY_PRODUCT] = multiply_##type, [TY_MIN] = least_##type, \
        [TY_MAX] = greatest_##type, [TY_MEAN] = add_##type                              \
    }
static reduce_pair *const pairs[][TY_MEAN + 1] = {
    [TY_FLOAT32] = OF(float), [TY_FLOAT64] = OF(double), [TY_INT32] = OF(int32_t), [TY_INT64] = OF(int64_t),
    [TY_FLOAT16] = OF(float), [TY_BFLOAT16] = OF(float), [TY_INT8] = OF(int8_t),   [TY_UINT8] = OF(uint8_t),
};

reduce_pair *reduce_pair_of(ty_data_type type, ty_reduction reduction) {
    return pairs[type][reduction];
}

void reduce_divide(void *numbers, size_t count, ty_data_type type, int by) {
    if (type == TY_FLOAT64) {
        for (size_t i = 0; i < count; i++)
            ((double *)numbers)[i] /= by;
    } else {
        for (size_t i = 0; i < count; i++)
            ((float *)numbers)[i] /= (float)by;
    }
}

static float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static float widen_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13); /* an infinity, or a NaN */
    if (rest >= 0x400) return float_of(sign | ((rest << 13) + 0x38000000));
    float small = (float)rest * 0x1p-24F; /* subnormal or zero */
    return float_of(bits_of(small) | sign);
}

/* `bits` without its last `drop` bits, to the nearest, ties to even. */
static uint32_t round_off(uint32_t bits, unsigned drop) {
    return (bits + (1U << (drop - 1)) - 1 + (bits >> drop & 1)) >> drop;
}

static uint16_t narrow_half(float number) {
    uint32_t bits = bits_of(number), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff)); /* quiet */
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);                       /* 65520 and more */
    if (rest >= 0x38800000) return (uint16_t)(sign | round_off(rest - 0x38000000, 13));
    /* Subnormal: adding 0.5 moves the last place of a float to that of a half, and rounds. */
    return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5F) - 0x3f000000));
}

static uint16_t narrow_brain(float number) {
    uint32_t bits = bits_of(number);
    if (number != number) return (uint16_t)(bits >> 16 | 0x40); /* quiet, and not an infinity */
    return (uint16_t)round_off(bits, 16);
}

void reduce_widen(float *to, const void *from, size_t count, ty_data_type type) {
    const uint16_t *bits = from;
    if (type == TY_FLOAT16) {
        for (size_t i = 0; i < count; i++)
            to[i] = widen_half(bits[i]);
    } else {
        for (size_t i = 0; i < count; i++)
            to[i] = float_of((uint32_t)bits[i] << 16);
    }
}

void reduce_narrow(void *to, const float *from, size_t count, ty_data_type type) {
    uint16_t *bits = to;
    if (type == TY_FLOAT16) {
        for (size_t i = 0; i < count; i++)
            bits[i] = narrow_half(from[i]);
    } else {
        for (size_t i = 0; i < count; i++)
            bits[i] = narrow_brain(from[i]);
    }
}

/* At most BLOCK numbers, beginning at byte `at` of each. */
static void reduce_narrow_block(void *to, const void *const *inputs, int n_inputs, size_t at, size_t count,
                                ty_data_type type, ty_reduction reduction) {
    ROOM(float, sum);
    ROOM(float, next);
    reduce_pair *pair = reduce_pair_of(type, reduction);
    reduce_widen(sum, (const char *)inputs[0] + at, count, type);
    for (int i = 1; i < n_inputs; i++) {
        reduce_widen(next, (const char *)inputs[i] + at, count, type);
        pair(sum, sum, next, count);
    }
    if (reduction == TY_MEAN) reduce_divide(sum, count, type, n_inputs);
    reduce_narrow((char *)to + at, sum, count, type);
}

static void reduce_block(void *to, const void *const *inputs, int n_inputs, size_t at, size_t count,
                         ty_data_type type, ty_reduction reduction) {
    ROOM(double, sum); /* apart from `to`, which may be an input that is still to come */
    size_t width = comm_type_size(type);
    reduce_pair *pair = reduce_pair_of(type, reduction);
    const void *so_far = (const char *)inputs[0] + at;
    for (int i = 1; i < n_inputs; i++) {
        pair(i + 1 < n_inputs ? (void *)sum : (char *)to + at, so_far, (const char *)inputs[i] + at, count);
        so_far = sum;
    }
    if (n_inputs == 1) memmove((char *)to + at, so_far, count * width);
    if (reduction == TY_MEAN) reduce_divide((char *)to + at, count, type, n_inputs);
}

void reduce_all(void *to, const void *const *inputs, int n_inputs, size_t count, ty_data_type type,
                ty_reduction reduction) {
    size_t width = comm_type_size(type);
    bool is_narrow = type == TY_FLOAT16 || type == TY_BFLOAT16;
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK;
        if (is_narrow)
            reduce_narrow_block(to, inputs, n_inputs, first * width, n, type, reduction);
        else
            reduce_block(to, inputs, n_inputs, first * width, n, type, reduction);
    }
}
