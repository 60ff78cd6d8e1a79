/* Collectives among real processes, in shared memory and over Gloo: every type, operation and reduction against
 * a plain computation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "world.h"

#define LONG_ENOUGH (20 * NS_PER_S)

/* bfloat16 and float16 of small whole numbers, exact in both. */
static uint16_t bfloat16_of(double value) {
    float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double of_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static uint16_t float16_of(double value) {
    if (value == 0) return 0;
    int exponent;
    double mantissa = frexp(fabs(value), &exponent);
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | ((int)(mantissa * 2048) & 0x3ff));
}

static double of_float16(uint16_t half) {
    double mantissa = (half & 0x3ff) | (half & 0x7c00 ? 0x400 : 0);
    double value = ldexp(mantissa, ((half >> 10 & 31) ? (half >> 10 & 31) : 1) - 25);
    return half & 0x8000 ? -value : value;
}

static void put(void *buffer, size_t i, ty_data_type type, double value) {
    switch (type) {
    case TY_FLOAT32:
        ((float *)buffer)[i] = (float)value;
        break;
    case TY_FLOAT64:
        ((double *)buffer)[i] = value;
        break;
    case TY_INT32:
        ((int32_t *)buffer)[i] = (int32_t)value;
        break;
    case TY_INT64:
        ((int64_t *)buffer)[i] = (int64_t)value;
        break;
    case TY_INT8:
        ((int8_t *)buffer)[i] = (int8_t)value;
        break;
    case TY_UINT8:
        ((uint8_t *)buffer)[i] = (uint8_t)(int8_t)value;
        break;
    case TY_FLOAT16:
        ((uint16_t *)buffer)[i] = float16_of(value);
        break;
    case TY_BFLOAT16:
        ((uint16_t *)buffer)[i] = bfloat16_of(value);
        break;
    }
}

static double get(const void *buffer, size_t i, ty_data_type type) {
    switch (type) {
    case TY_FLOAT32:
        return ((const float *)buffer)[i];
    case TY_FLOAT64:
        return ((const double *)buffer)[i];
    case TY_INT32:
        return ((const int32_t *)buffer)[i];
    case TY_INT64:
        return (double)((const int64_t *)buffer)[i];
    case TY_INT8:
        return ((const int8_t *)buffer)[i];
    case TY_UINT8:
        return ((const uint8_t *)buffer)[i];
    case TY_FLOAT16:
        return of_float16(((const uint16_t *)buffer)[i]);
    case TY_BFLOAT16:
        return of_bfloat16(((const uint16_t *)buffer)[i]);
    }
    return NAN;
}

/* What rank `rank` holds at place i: small powers of two and their negatives, so that every reduction is exact
 * in every type. */
static double given_value(int rank, size_t i) {
    static const double values[] = {1, 2, -1, 4, -2, 1, 0, 2};
    return values[((size_t)rank * 3 + i) % 8];
}

/* As the type has it: uint8 wraps around. */
static double given(int rank, size_t i, ty_data_type type) {
    double number;
    put(&number, 0, type, given_value(rank, i));
    return get(&number, 0, type);
}

static double expected(int size, size_t i, ty_data_type type, ty_reduction reduction) {
    double result = given(0, i, type);
    for (int rank = 1; rank < size; rank++) {
        double value = given(rank, i, type);
        if (reduction == TY_SUM || reduction == TY_MEAN) result += value;
        if (reduction == TY_PRODUCT) result *= value;
        if (reduction == TY_MIN) result = fmin(result, value);
        if (reduction == TY_MAX) result = fmax(result, value);
    }
    if (type == TY_INT8 || type == TY_UINT8) {
        double wrapped;
        put(&wrapped, 0, type, (double)(int8_t)(uint8_t)(int64_t)result);
        return get(&wrapped, 0, type);
    }
    return reduction == TY_MEAN ? result / size : result;
}

/* A mean need not be exact: sixteen bits keep 8 binary digits at least. */
static bool near(double got, double wanted, ty_reduction reduction) {
    return reduction == TY_MEAN ? fabs(got - wanted) <= fabs(wanted) / 128 : got == wanted;
}

static int check_reduce(ty_comm *comm, int rank, int size, size_t count, ty_data_type type,
                        ty_reduction reduction, ty_error *err) {
    size_t width = comm_type_size(type);
    CLEANUP_FREE char *buffer = malloc(count * width + 1);
    CLEANUP_FREE char *parts = malloc(count * (size_t)size * width + 1);
    for (size_t i = 0; i < count; i++)
        put(buffer, i, type, given(rank, i, type));
    for (size_t i = 0; i < count * (size_t)size; i++)
        put(parts, i, type, given(rank, i, type));
    int rc = ty_all_reduce(comm, buffer, count, type, reduction, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        WORLD_CHECK(near(get(buffer, i, type), expected(size, i, type, reduction), reduction), err);
    rc = ty_reduce_scatter(comm, parts, buffer, count, type, reduction, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        WORLD_CHECK(
            near(get(buffer, i, type), expected(size, (size_t)rank * count + i, type, reduction), reduction),
            err);
    return 0;
}

static int check_copies(ty_comm *comm, int rank, int size, size_t count, ty_data_type type, ty_error *err) {
    size_t width = comm_type_size(type);
    CLEANUP_FREE char *own = malloc(count * width + 1);
    CLEANUP_FREE char *all = malloc(count * (size_t)size * width + 1);
    for (size_t i = 0; i < count; i++)
        put(own, i, type, given(rank, i, type));
    int rc = ty_all_gather(comm, own, all, count, type, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count * (size_t)size; i++)
        WORLD_CHECK(get(all, i, type) == given((int)(i / count), i % count, type), err);
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < count; i++)
            put(own, i, type, given(rank, i, type));
        rc = ty_broadcast(comm, own, count, type, root, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < count; i++)
            WORLD_CHECK(get(own, i, type) == given(root, i, type), err);
    }
    CLEANUP_FREE char *parts = malloc(count * (size_t)size * width + 1);
    for (size_t i = 0; i < count * (size_t)size; i++)
        put(parts, i, type, given(rank, i, type));
    rc = ty_all_to_all(comm, parts, all, count, type, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count * (size_t)size; i++)
        WORLD_CHECK(get(all, i, type) == given((int)(i / count), (size_t)rank * count + i % count, type), err);
    return 0;
}

static int check_everything(struct comm_config *config, ty_error *err) {
    static const size_t counts[] = {1, 7, 1000, 20000, 300001};
    bool in_chunks = !world_apart && config->size <= 3; /* the last one */
    ty_comm *comm;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    for (size_t c = 0; rc == 0 && c < ARRAY_SIZE(counts) - !in_chunks; c++)
        for (int type = TY_FLOAT32; rc == 0 && type <= (counts[c] > 1000 ? TY_FLOAT32 : TY_UINT8); type++) {
            bool whole = type == TY_INT32 || type == TY_INT64 || type == TY_INT8 || type == TY_UINT8;
            for (int reduction = TY_SUM; rc == 0 && reduction <= (whole               ? TY_MAX
                                                                  : counts[c] > 20000 ? TY_SUM
                                                                                      : TY_MEAN);
                 reduction++)
                rc = check_reduce(comm, config->rank, config->size, counts[c], type, reduction, err);
            if (rc == 0) rc = check_copies(comm, config->rank, config->size, counts[c], type, err);
        }
    if (rc == 0) rc = ty_barrier(comm, err);
    if (rc == 0) rc = ty_all_reduce(comm, NULL, 0, TY_FLOAT32, TY_SUM, err);
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_all_types_and_sizes(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 7, 8};
    for (int way = 0; way < 2; way++)
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
            world_apart = way == 1;
            world_assert_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, check_everything));
        }
    world_apart = false;
}

static int reduce_specials(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    int32_t wraps = INT32_MAX;
    double nan_for_one = config->rank == 1 ? NAN : 1;
    uint16_t large = 0x7bff;                        /* 65504, the largest float16 */
    uint16_t tie[] = {0x3f80, 0x3f81};              /* bfloat16 1 and 1.0078125 */
    if (config->rank > 0) tie[0] = tie[1] = 0x3b80; /* 1/256: half of the last place */
    rc = ty_all_reduce(comm, &wraps, 1, TY_INT32, TY_SUM, err);
    if (rc == 0) rc = ty_all_reduce(comm, &nan_for_one, 1, TY_FLOAT64, TY_MAX, err);
    if (rc == 0) rc = ty_all_reduce(comm, &large, 1, TY_FLOAT16, TY_MEAN, err);
    if (rc == 0) rc = ty_all_reduce(comm, tie, 2, TY_BFLOAT16, TY_SUM, err);
    if (rc < 0) return rc;
    WORLD_CHECK(wraps == -2, err);
    WORLD_CHECK(isnan(nan_for_one), err);
    WORLD_CHECK(large == 0x7bff,
                err); /* the mean of equal numbers is that number, with no overflow on the way */
    WORLD_CHECK(tie[0] == 0x3f80 && tie[1] == 0x3f82, err); /* ties to even */
    comm_destroy(comm);
    return 0;
}

static void test_special_numbers(void **state) {
    (void)state;
    world_assert_well(2, world_run(2, LONG_ENOUGH, reduce_specials));
}

static int gather_in_place(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int64_t all[3] = {0};
    world_place(config);
    int rc = comm_create(config, &comm, err);
    all[config->rank] = 10 + config->rank;
    if (rc == 0) rc = ty_all_gather(comm, &all[config->rank], all, 1, TY_INT64, err);
    if (rc < 0) return rc;
    WORLD_CHECK(all[0] == 10 && all[1] == 11 && all[2] == 12, err);
    comm_destroy(comm);
    return 0;
}

static void test_gather_in_place(void **state) {
    (void)state;
    world_assert_well(3, world_run(3, LONG_ENOUGH, gather_in_place));
}

/* How many elements rank `from` gives to rank `to`: none, a few, or more than go at once. */
static size_t given_count(int from, int to) {
    static const size_t counts[] = {0, 1, 3, 70001};
    return counts[(from * 2 + to * 3) % 4];
}

static int check_roots(ty_comm *comm, int rank, int size, size_t count, ty_data_type type, ty_error *err) {
    size_t width = comm_type_size(type);
    CLEANUP_FREE char *own = malloc(count * width + 1), *all = malloc(count * (size_t)size * width + 1);
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < count; i++)
            put(own, i, type, given(rank, i, type));
        int rc = ty_gather(comm, own, rank == root ? all : NULL, count, type, root, err);
        if (rc < 0) return rc;
        for (size_t i = 0; rank == root && i < count * (size_t)size; i++)
            WORLD_CHECK(get(all, i, type) == given((int)(i / count), i % count, type), err);
        memset(own, 0x55, count * width);
        rc = ty_scatter(comm, rank == root ? all : NULL, own, count, type, root, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < count; i++)
            WORLD_CHECK(get(own, i, type) == given(rank, i, type), err);
    }
    return 0;
}

static int check_counts(ty_comm *comm, int rank, int size, ty_data_type type, ty_error *err) {
    size_t in_counts[WORLD_MAX], out_counts[WORLD_MAX], all_counts[WORLD_MAX], in = 0, out = 0, all = 0, at = 0;
    for (int peer = 0; peer < size; peer++) {
        in += in_counts[peer] = given_count(rank, peer);
        out += out_counts[peer] = given_count(peer, rank);
        all += all_counts[peer] = given_count(peer, 1);
    }
    size_t width = comm_type_size(type);
    CLEANUP_FREE char *input = malloc(in * width + 1), *output = malloc((out > all ? out : all) * width + 1);
    for (int peer = 0; peer < size; peer++)
        for (size_t i = 0; i < in_counts[peer]; i++)
            put(input, at++, type, given(rank + peer, i, type));
    int rc = ty_all_to_all_v(comm, input, in_counts, output, out_counts, type, err);
    if (rc < 0) return rc;
    at = 0;
    for (int peer = 0; peer < size; peer++)
        for (size_t i = 0; i < out_counts[peer]; i++)
            WORLD_CHECK(get(output, at++, type) == given(peer + rank, i, type), err);
    CLEANUP_FREE char *own = malloc(all_counts[rank] * width + 1);
    for (size_t i = 0; i < all_counts[rank]; i++)
        put(own, i, type, given(rank, i, type));
    rc = ty_all_gather_v(comm, own, output, all_counts, type, err);
    if (rc < 0) return rc;
    at = 0;
    for (int peer = 0; peer < size; peer++)
        for (size_t i = 0; i < all_counts[peer]; i++)
            WORLD_CHECK(get(output, at++, type) == given(peer, i, type), err);
    return 0;
}

/* While a message of the program waits on the same streams. */
static int move_parts(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    ty_request *request = NULL;
    int32_t sent = 7, received = 0;
    int rank = config->rank, size = config->size, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0 && size > 1) rc = ty_send_start(comm, &sent, 1, TY_INT32, next, &request, err);
    for (int type = TY_FLOAT32; rc == 0 && type <= TY_UINT8; type++) {
        for (size_t count = 0; rc == 0 && count <= 30000; count = count * 100 + 3)
            rc = check_roots(comm, rank, size, count, (ty_data_type)type, err);
        if (rc == 0) rc = check_counts(comm, rank, size, (ty_data_type)type, err);
    }
    if (rc == 0 && size > 1) rc = ty_receive(comm, &received, 1, TY_INT32, previous, err);
    if (rc == 0) rc = ty_request_wait(&request, err);
    WORLD_CHECK(rc < 0 || size == 1 || received == 7, err);
    size_t none[WORLD_MAX] = {0};
    if (rc == 0) rc = ty_all_to_all_v(comm, NULL, none, NULL, none, TY_INT32, err);
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_parts(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 5};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        world_assert_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, move_parts));
}

/* Nothing is aligned, and no bit depends on how the data are cut. */
static int reduce_at_odd_places(struct comm_config *config, ty_error *err) {
    enum { ODD_COUNT = 100003 };
    ty_comm *comm;
    CLEANUP_FREE char *odd = malloc(ODD_COUNT * sizeof(float) * 4 + 1),
                      *even = malloc(ODD_COUNT * sizeof(float));
    CLEANUP_FREE float *numbers = malloc(ODD_COUNT * sizeof(float));
    for (int i = 0; i < ODD_COUNT; i++)
        numbers[i] = (float)sin(i + 0.1 * config->rank);
    memcpy(even, numbers, ODD_COUNT * sizeof(float));
    memcpy(odd + 1, numbers, ODD_COUNT * sizeof(float));
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_all_reduce(comm, even, ODD_COUNT, TY_FLOAT32, TY_SUM, err);
    if (rc == 0) rc = ty_all_reduce(comm, odd + 1, ODD_COUNT, TY_FLOAT32, TY_SUM, err);
    for (int i = 0; rc == 0 && i < ODD_COUNT; i += 1000)
        rc = ty_all_reduce(comm, &numbers[i], ODD_COUNT - i < 1000 ? (size_t)(ODD_COUNT - i) : 1000, TY_FLOAT32,
                           TY_SUM, err);
    if (rc < 0) return rc;
    WORLD_CHECK(memcmp(even, odd + 1, ODD_COUNT * sizeof(float)) == 0, err);
    WORLD_CHECK(memcmp(even, numbers, ODD_COUNT * sizeof(float)) == 0, err);
    for (size_t part = 0; part < 4; part++)
        memcpy(odd + 1 + part * ODD_COUNT * sizeof(float), even, ODD_COUNT * sizeof(float));
    rc = ty_reduce_scatter(comm, odd + 1, odd + 1 + ODD_COUNT, 3, TY_FLOAT32, TY_MAX, err);
    WORLD_CHECK(rc < 0 || memcmp(odd + 1 + ODD_COUNT, (float *)(void *)even + 3 * config->rank, 12) == 0, err);
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_places_and_pieces_do_not_matter(void **state) {
    (void)state;
    world_assert_well(4, world_run(4, LONG_ENOUGH, reduce_at_odd_places));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types_and_sizes),
        TOGETHER_AND_APART(test_special_numbers),
        TOGETHER_AND_APART(test_gather_in_place),
        TOGETHER_AND_APART(test_parts),
        cmocka_unit_test(test_places_and_pieces_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
