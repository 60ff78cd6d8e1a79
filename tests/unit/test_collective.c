/* Collectives among real processes over Gloo: every type, operation and reduction against a plain computation;
 * then everything that can go wrong with a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "world.h"

#define LONG_ENOUGH (20 * NS_PER_S)

static void assert_all_well(int size, const struct world_end *ends) {
    for (int rank = 0; rank < size; rank++) {
        if (ends[rank].code != 0) print_error("rank %d: %s\n", rank, ends[rank].error.message);
        assert_int_equal(ends[rank].status, 0);
        assert_int_equal(ends[rank].code, 0);
    }
}

static void assert_mentions(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not mention \"%s\"", text, part);
}

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
    case TY_FLOAT16:
        return of_float16(((const uint16_t *)buffer)[i]);
    case TY_BFLOAT16:
        return of_bfloat16(((const uint16_t *)buffer)[i]);
    }
    return NAN;
}

/* What rank `rank` holds at place i: small powers of two and their negatives, so that every reduction is exact
 * in every type. */
static double given(int rank, size_t i) {
    static const double values[] = {1, 2, -1, 4, -2, 1, 0, 2};
    return values[((size_t)rank * 3 + i) % 8];
}

static double expected(int size, size_t i, ty_reduction reduction) {
    double result = given(0, i);
    for (int rank = 1; rank < size; rank++) {
        double value = given(rank, i);
        if (reduction == TY_SUM || reduction == TY_MEAN) result += value;
        if (reduction == TY_PRODUCT) result *= value;
        if (reduction == TY_MIN) result = fmin(result, value);
        if (reduction == TY_MAX) result = fmax(result, value);
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
        put(buffer, i, type, given(rank, i));
    for (size_t i = 0; i < count * (size_t)size; i++)
        put(parts, i, type, given(rank, i));
    int rc = ty_all_reduce(comm, buffer, count, type, reduction, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        WORLD_CHECK(near(get(buffer, i, type), expected(size, i, reduction), reduction), err);
    rc = ty_reduce_scatter(comm, parts, buffer, count, type, reduction, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        WORLD_CHECK(near(get(buffer, i, type), expected(size, (size_t)rank * count + i, reduction), reduction),
                    err);
    return 0;
}

static int check_copies(ty_comm *comm, int rank, int size, size_t count, ty_data_type type, ty_error *err) {
    size_t width = comm_type_size(type);
    CLEANUP_FREE char *own = malloc(count * width + 1);
    CLEANUP_FREE char *all = malloc(count * (size_t)size * width + 1);
    for (size_t i = 0; i < count; i++)
        put(own, i, type, given(rank, i));
    int rc = ty_all_gather(comm, own, all, count, type, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count * (size_t)size; i++)
        WORLD_CHECK(get(all, i, type) == given((int)(i / count), i % count), err);
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < count; i++)
            put(own, i, type, given(rank, i));
        rc = ty_broadcast(comm, own, count, type, root, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < count; i++)
            WORLD_CHECK(get(own, i, type) == given(root, i), err);
    }
    return 0;
}

static int check_everything(struct comm_config *config, ty_error *err) {
    static const size_t counts[] = {1, 7, 1000, 20000};
    ty_comm *comm;
    int rc = comm_create(config, &comm, err);
    for (size_t c = 0; rc == 0 && c < ARRAY_SIZE(counts); c++)
        for (int type = TY_FLOAT32; rc == 0 && type <= (counts[c] > 1000 ? TY_FLOAT32 : TY_BFLOAT16); type++) {
            bool whole = type == TY_INT32 || type == TY_INT64;
            for (int reduction = TY_SUM; rc == 0 && reduction <= (whole ? TY_MAX : TY_MEAN); reduction++)
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
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        assert_all_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, check_everything));
}

static int reduce_specials(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
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
    assert_all_well(2, world_run(2, LONG_ENOUGH, reduce_specials));
}

static int gather_in_place(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int64_t all[3] = {0};
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
    assert_all_well(3, world_run(3, LONG_ENOUGH, gather_in_place));
}

/* Rank 2 differs in one thing; `difference` is inherited by the ranks. */
static enum {
    COUNT,
    TYPE,
    REDUCTION,
    OPERATION,
    ROOT,
    NULL_BUFFER,
    BAD_ROOT,
    BAD_TYPE,
    INTEGER_MEAN
} difference;

static int differ(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double numbers[8] = {0};
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_barrier(comm, err);
    if (rc < 0) return rc;
    bool odd = config->rank == 2;
    switch (difference) {
    case COUNT:
        return ty_all_reduce(comm, numbers, odd ? 7 : 8, TY_FLOAT64, TY_SUM, err);
    case TYPE:
        return ty_all_reduce(comm, numbers, 8, odd ? TY_FLOAT32 : TY_FLOAT64, TY_SUM, err);
    case REDUCTION:
        return ty_all_reduce(comm, numbers, 8, TY_FLOAT64, odd ? TY_MAX : TY_SUM, err);
    case OPERATION:
        return odd ? ty_barrier(comm, err) : ty_all_reduce(comm, numbers, 8, TY_FLOAT64, TY_SUM, err);
    case ROOT:
        return ty_broadcast(comm, numbers, 8, TY_FLOAT64, odd ? 1 : 0, err);
    case NULL_BUFFER:
        return ty_all_reduce(comm, odd ? NULL : numbers, 8, TY_FLOAT64, TY_SUM, err);
    case BAD_ROOT:
        return ty_broadcast(comm, numbers, 8, TY_FLOAT64, odd ? config->size : 0, err);
    case BAD_TYPE:
        return ty_all_reduce(comm, numbers, 8, odd ? (ty_data_type)256 : TY_FLOAT64, TY_SUM, err);
    case INTEGER_MEAN:
        return ty_all_reduce(comm, numbers, 8, odd ? TY_INT64 : TY_FLOAT64, TY_MEAN, err);
    }
    return 0;
}

static void test_mismatch_names_rank_and_both_calls(void **state) {
    static const char *const odd_call[] = {
        [COUNT] = "all_reduce(count 7, float64, sum)",     [TYPE] = "all_reduce(count 8, float32, sum)",
        [REDUCTION] = "all_reduce(count 8, float64, max)", [OPERATION] = "barrier()",
        [ROOT] = "broadcast(count 8, float64, root 1)",
    };
    static const char *const usual_call[] = {
        [COUNT] = "all_reduce(count 8, float64, sum)",     [TYPE] = "all_reduce(count 8, float64, sum)",
        [REDUCTION] = "all_reduce(count 8, float64, sum)", [OPERATION] = "all_reduce(count 8, float64, sum)",
        [ROOT] = "broadcast(count 8, float64, root 0)",
    };
    (void)state;
    for (difference = COUNT; difference <= ROOT; difference++) {
        const struct world_end *ends = world_run(5, LONG_ENOUGH, differ);
        for (int rank = 0; rank < 5; rank++) {
            assert_int_equal(ends[rank].code, TY_EMISMATCH);
            assert_mentions(ends[rank].error.message, odd_call[difference]);
            assert_mentions(ends[rank].error.message, usual_call[difference]);
            if (rank != 2) assert_mentions(ends[rank].error.message, "rank 2 made call 2");
        }
    }
}

static void test_wrong_argument_is_told_to_all(void **state) {
    static const char *const fault[] = {[NULL_BUFFER] = "a buffer is NULL",
                                        [BAD_ROOT] = "root is not a rank",
                                        [BAD_TYPE] = "the type is not",
                                        [INTEGER_MEAN] = "a mean of whole numbers"};
    (void)state;
    for (difference = NULL_BUFFER; difference <= INTEGER_MEAN; difference++) {
        const struct world_end *ends = world_run(4, LONG_ENOUGH, differ);
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(ends[rank].code, rank == 2 ? TY_EUSAGE : TY_EMISMATCH);
            assert_mentions(ends[rank].error.message, rank == 2 ? fault[difference] : "rank 2 made call 2");
            assert_true(ends[rank].elapsed < LONG_ENOUGH / 2);
        }
    }
}

static int stay_unusable(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double number = 0;
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    WORLD_CHECK(ty_all_reduce(comm, &number, SIZE_MAX / 4, TY_FLOAT64, TY_SUM, err) == TY_EUSAGE, err);
    WORLD_CHECK(strstr(err->message, "larger than memory") != NULL, err);
    WORLD_CHECK(ty_barrier(comm, err) == TY_EUSAGE, err);
    WORLD_CHECK(strstr(err->message, "unusable since an error") != NULL, err);
    comm_destroy(comm);
    return 0;
}

static void test_error_makes_unusable(void **state) {
    (void)state;
    assert_all_well(3, world_run(3, LONG_ENOUGH, stay_unusable));
    assert_all_well(1, world_run(1, LONG_ENOUGH, stay_unusable));
}

static int one_sleeps(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double number = 0;
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    if (config->rank == 1) usleep(3500 * 1000);
    (void)usleep((useconds_t)config->rank * 50 * 1000); /* time-outs do not come at once */
    return ty_all_reduce(comm, &number, 1, TY_FLOAT64, TY_SUM, err);
}

static void test_late_rank_is_named(void **state) {
    (void)state;
    const struct world_end *ends = world_run(5, NS_PER_S, one_sleeps);
    for (int rank = 0; rank < 5; rank++) {
        if (rank == 1) {
            assert_true(ends[rank].code < 0); /* the others have left */
            continue;
        }
        assert_int_equal(ends[rank].code, TY_ETIMEOUT);
        assert_mentions(ends[rank].error.message, "ranks 1 did not come");
        assert_mentions(ends[rank].error.message, "call 1 all_reduce");
        assert_true(ends[rank].elapsed < 4 * NS_PER_S);
    }
}

static int one_dies(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double numbers[1000] = {0};
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    (void)signal(SIGPIPE, SIG_DFL); /* a lost connection must not end the process */
    for (int step = 0; rc == 0; step++) {
        if (config->rank == 3 && step == 20) (void)raise(SIGKILL);
        rc = ty_all_reduce(comm, numbers, 1000, TY_FLOAT64, TY_SUM, err);
    }
    return rc;
}

static void test_dead_peer(void **state) {
    (void)state;
    for (int size = 4; size <= 8; size += 2) {
        const struct world_end *ends = world_run(size, LONG_ENOUGH, one_dies);
        for (int rank = 0; rank < size; rank++) {
            if (rank == 3) continue;
            assert_int_equal(ends[rank].status, 0);
            assert_int_equal(ends[rank].code, TY_ECOMM);
            assert_mentions(ends[rank].error.message, "all_reduce(count 1000");
            assert_true(ends[rank].elapsed < LONG_ENOUGH / 2);
        }
    }
}

static int one_never_joins(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    return config->rank == 0 ? 0 : comm_create(config, &comm, err);
}

static void test_absent_rank_is_named_at_creation(void **state) {
    (void)state;
    const struct world_end *ends = world_run(3, NS_PER_S, one_never_joins);
    for (int rank = 1; rank < 3; rank++) {
        assert_int_equal(ends[rank].code, TY_ETIMEOUT);
        assert_mentions(ends[rank].error.message, "ranks 0 did not come");
    }
}

static void test_backend_is_checked(void **state) {
    struct comm_config config = {.rank = 0, .size = 1, .timeout = NS_PER_S};
    ty_comm *comm = NULL;
    ty_error err = {0};
    (void)state;
    config.backend = "mpi";
    assert_int_equal(comm_create(&config, &comm, &err), TY_EUSAGE);
    assert_mentions(err.message, "\"mpi\" is unknown; allowed: gloo, nccl");
    (void)setenv("TRAINYARD_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
    config.backend = "nccl";
    assert_int_equal(comm_create(&config, &comm, &err), TY_EUNSUPPORTED);
    assert_mentions(err.message, "/nowhere/libcuda.so.1");
    assert_null(comm);
    config.backend = NULL; /* devices are held, but NCCL is not there: host memory works all the same */
    config.devices = (const int[]){0};
    config.n_devices = 1;
    assert_int_equal(comm_create(&config, &comm, &err), 0);
    double number = 2;
    assert_int_equal(ty_all_reduce(comm, &number, 1, TY_FLOAT64, TY_SUM, &err), 0);
    assert_true(number == 2);
    comm_destroy(comm);
    (void)unsetenv("TRAINYARD_CUDA_LIBRARY");
}

static void test_null_and_failed_communicators(void **state) {
    ty_error err = {0};
    ty_error why = {.code = TY_ETIMEOUT, .message = "rank 3 did not come"};
    (void)state;
    assert_int_equal(ty_barrier(NULL, &err), TY_EUSAGE);
    assert_int_equal(ty_barrier(comm_unusable(&why), &err), TY_ETIMEOUT);
    assert_mentions(err.message, "rank 3 did not come");
    comm_destroy(NULL);
}

/* A child that was forked must not speak over its parent's connections. */
static void test_a_child_takes_part_in_no_collective(void **state) {
    struct comm_config config = {.rank = 0, .size = 1, .timeout = NS_PER_S};
    ty_comm *comm = NULL;
    ty_error err = {0};
    int status = 0;
    (void)state;
    assert_int_equal(comm_create(&config, &comm, &err), 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        char told[64];
        (void)snprintf(told, sizeof told, "belongs to process %d:", (int)parent);
        _exit(ty_barrier(comm, &err) == TY_EUSAGE && strstr(err.message, told) != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ty_barrier(comm, &err), 0);
    comm_destroy(comm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_and_failed_communicators),
        cmocka_unit_test(test_backend_is_checked),
        cmocka_unit_test(test_a_child_takes_part_in_no_collective),
        cmocka_unit_test(test_all_types_and_sizes),
        cmocka_unit_test(test_special_numbers),
        cmocka_unit_test(test_gather_in_place),
        cmocka_unit_test(test_mismatch_names_rank_and_both_calls),
        cmocka_unit_test(test_wrong_argument_is_told_to_all),
        cmocka_unit_test(test_error_makes_unusable),
        cmocka_unit_test(test_late_rank_is_named),
        cmocka_unit_test(test_dead_peer),
        cmocka_unit_test(test_absent_rank_is_named_at_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
