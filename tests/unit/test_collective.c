/* Collectives among real processes, in shared memory and over Gloo: every type, operation and reduction against
 * a plain computation; then everything that can go wrong with a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

/* Ranks of machines of their own go through Gloo. */
static bool apart;

static void place(struct comm_config *config) {
    static char name[16];
    (void)snprintf(name, sizeof name, "m%d", config->rank);
    if (apart) config->machine = name;
}

static int check_everything(struct comm_config *config, ty_error *err) {
    static const size_t counts[] = {1, 7, 1000, 20000, 300001};
    bool in_chunks = !apart && config->size <= 3; /* the last one */
    ty_comm *comm;
    place(config);
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
            apart = way == 1;
            assert_all_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, check_everything));
        }
    apart = false;
}

static int reduce_specials(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    place(config);
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
    place(config);
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
    place(config);
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
    place(config);
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
    place(config);
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
        assert_mentions(ends[rank].error.message, "rank 1 did not come");
        assert_mentions(ends[rank].error.message, "call 1 all_reduce");
        assert_true(ends[rank].elapsed < 4 * NS_PER_S);
    }
}

static int one_dies(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double numbers[1000] = {0};
    place(config);
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
        assert_mentions(ends[rank].error.message, "rank 0 did not come");
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

/* Fills a message of which every byte tells whose it is. */
static void fill(char *bytes, size_t n, int from, int to) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(from * 31 + to * 7 + (int)(i % 251));
}

/* Every rank sends to every other, all at once, and receives in another order. */
static int exchange_messages(struct comm_config *config, ty_error *err) {
    static const size_t counts[] = {0, 1, 24, 4099, 3 << 20};
    ty_comm *comm;
    int rank = config->rank, size = config->size;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    for (size_t c = 0; rc == 0 && c < ARRAY_SIZE(counts); c++) {
        size_t n = counts[c];
        CLEANUP_FREE char *out = malloc((size_t)size * n + 1), *in = calloc(1, (size_t)size * n + 2);
        CLEANUP_FREE char *wanted = malloc(n + 1);
        ty_request *sends[WORLD_MAX] = {0}, *receives[WORLD_MAX] = {0};
        int32_t ranks = 1;
        for (int peer = 0; rc == 0 && peer < size; peer++) {
            fill(out + (size_t)peer * n, n, rank, peer);
            if (peer != rank)
                rc = ty_send_start(comm, out + (size_t)peer * n, n, TY_INT8, peer, &sends[peer], err);
        }
        if (rc == 0) rc = ty_all_reduce(comm, &ranks, 1, TY_INT32, TY_SUM, err); /* messages under way */
        WORLD_CHECK(rc < 0 || ranks == size, err);
        for (int peer = size - 1; rc == 0 && peer >= 0; peer--) /* at odd places */
            if (peer != rank)
                rc = ty_receive_start(comm, in + 1 + (size_t)peer * n, n, TY_INT8, peer, &receives[peer], err);
        for (int peer = 0; rc == 0 && peer < size; peer++) {
            rc = ty_request_wait(&receives[peer], err);
            if (rc == 0) rc = ty_request_wait(&sends[peer], err);
            fill(wanted, n, peer, rank);
            WORLD_CHECK(rc < 0 || peer == rank || memcmp(wanted, in + 1 + (size_t)peer * n, n) == 0, err);
        }
    }
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_messages(void **state) {
    (void)state;
    for (int size = 2; size <= 8; size *= 2)
        assert_all_well(size, world_run(size, LONG_ENOUGH, exchange_messages));
}

/* Several collective calls of all sizes are under way while messages go and a group works. */
static int start_many(struct comm_config *config, ty_error *err) {
    enum { MANY = 20, LONG_COUNT = 200000 };
    ty_comm *comm, *half = NULL;
    ty_request *requests[MANY] = {0}, *barrier = NULL;
    float *numbers[MANY];
    int rank = config->rank, size = config->size;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_comm_split(comm, rank % 2, -rank, &half, err);
    for (int i = 0; rc == 0 && i < MANY; i++) {
        size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 3000 : LONG_COUNT;
        numbers[i] = malloc(count * sizeof(float));
        for (size_t k = 0; k < count; k++)
            numbers[i][k] = (float)(rank + i);
        rc = ty_all_reduce_start(comm, numbers[i], count, TY_FLOAT32, TY_SUM, &requests[i], err);
    }
    if (rc == 0) rc = ty_barrier_start(comm, &barrier, err);
    /* Even ranks wait for their group first, and others for the whole: each moves on while it waits
     * elsewhere. */
    double sum = rank;
    if (rc == 0 && rank % 2 == 0) rc = ty_all_reduce(half, &sum, 1, TY_FLOAT64, TY_SUM, err);
    while (rc == 0 && barrier != NULL)
        if ((rc = ty_request_test(&barrier, err)) > 0) rc = 0;
    if (rc == 0 && rank % 2 == 1) rc = ty_all_reduce(half, &sum, 1, TY_FLOAT64, TY_SUM, err);
    for (int i = MANY - 1; rc == 0 && i >= 0; i--) {
        rc = ty_request_wait(&requests[i], err);
        WORLD_CHECK(requests[i] == NULL, err);
        size_t last = (i % 3 == 0 ? 1 : i % 3 == 1 ? 3000 : LONG_COUNT) - 1;
        WORLD_CHECK(rc < 0 || numbers[i][last] == (float)(size * (size - 1) / 2 + size * i), err);
        free(numbers[i]);
    }
    if (rc < 0) return rc;
    double wanted = 0;
    for (int other = rank % 2; other < size; other += 2)
        wanted += other;
    WORLD_CHECK(sum == wanted, err);
    WORLD_CHECK(ty_request_wait(&barrier, err) == 0 && ty_request_test(NULL, err) == 1, err);
    ty_comm_free(&half);
    WORLD_CHECK(half == NULL, err);
    comm_destroy(comm);
    return 0;
}

static void test_started_calls(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 5, 8};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        assert_all_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, start_many));
}

/* Rank 0 is in no group; the others are ordered by falling key, in threes; a group splits again. */
static int split_in_groups(struct comm_config *config, ty_error *err) {
    ty_comm *comm, *group = NULL, *one = NULL;
    int rank = config->rank;
    int32_t all[WORLD_MAX] = {0}, own = rank;
    place(config);
    int rc = comm_create(config, &comm, err);
    for (int round = 0; rc == 0 && round < 3; round++) {
        rc = ty_comm_split(comm, rank == 0 ? -1 : (rank - 1) / 3, -rank, &group, err);
        if (rc < 0) return rc;
        WORLD_CHECK((group == NULL) == (rank == 0), err);
        if (group == NULL) continue;
        int first = (rank - 1) / 3 * 3 + 1, size = ty_comm_size(group);
        int last = first + 2 < config->size ? first + 2 : config->size - 1;
        WORLD_CHECK(size == last - first + 1 && ty_comm_rank(group) == last - rank, err);
        rc = ty_all_gather(group, &own, all, 1, TY_INT32, err);
        for (int i = 0; rc == 0 && i < size; i++)
            WORLD_CHECK(all[i] == last - i, err);
        if (rc == 0) rc = ty_comm_split(group, rank, 0, &one, err);
        if (rc == 0) rc = ty_all_reduce(one, &own, 1, TY_INT32, TY_SUM, err);
        WORLD_CHECK(rc < 0 || (ty_comm_size(one) == 1 && own == rank), err);
        ty_comm_free(&one);
        ty_comm_free(&group);
    }
    if (rc == 0) rc = ty_barrier(comm, err);
    if (rc == 0) comm_destroy(comm);
    return rc;
}

static void test_split(void **state) {
    (void)state;
    for (int size = 1; size <= 8; size++)
        assert_all_well(size, world_run(size, LONG_ENOUGH, split_in_groups));
}

static enum { COUNTS, TYPES, SELF, FAR, DEAD } message_fault;

static int send_wrongly(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int32_t numbers[4] = {0};
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    if (config->rank == 1) {
        if (message_fault == DEAD) (void)raise(SIGKILL);
        rc = ty_send(comm, numbers, 4, TY_INT32, 0, err);
        return rc < 0 ? rc : ty_barrier(comm, err);
    }
    if (message_fault == SELF) return ty_receive(comm, numbers, 4, TY_INT32, 0, err);
    if (message_fault == FAR) return ty_receive(comm, numbers, 4, TY_INT32, 2, err);
    return ty_receive(comm, numbers, message_fault == COUNTS ? 3 : 4,
                      message_fault == TYPES ? TY_FLOAT32 : TY_INT32, 1, err);
}

static void test_messages_that_differ(void **state) {
    static const char *const told[] = {
        [COUNTS] = "receive(count 3, int32, from 1): rank 1 made send(count 4, int32, to 0)",
        [TYPES] = "receive(count 4, float32, from 1): rank 1 made send(count 4, int32, to 0)",
        [SELF] = "the peer is not another rank",
        [FAR] = "the peer is not another rank",
        [DEAD] = "the connection to rank 1 is lost",
    };
    static const int codes[] = {[COUNTS] = TY_EMISMATCH,
                                [TYPES] = TY_EMISMATCH,
                                [SELF] = TY_EUSAGE,
                                [FAR] = TY_EUSAGE,
                                [DEAD] = TY_ECOMM};
    (void)state;
    for (message_fault = COUNTS; message_fault <= DEAD; message_fault++) {
        const struct world_end *ends = world_run(2, LONG_ENOUGH, send_wrongly);
        assert_int_equal(ends[0].code, codes[message_fault]);
        assert_mentions(ends[0].error.message, told[message_fault]);
        if (message_fault == DEAD) continue;
        assert_int_equal(ends[1].code, TY_ECOMM); /* it hears of it when it waits for rank 0 */
        assert_true(ends[1].elapsed < LONG_ENOUGH / 2);
    }
}

/* Rank 0 sends in one order, the others ask in another one; one receive waits for a tag before anything
 * comes. */
static int pick_by_tag(struct comm_config *config, ty_error *err) {
    enum { LARGE = 300000 };
    static const int sent[] = {5, 3, 5, 0, INT32_MAX}, asked[] = {0, INT32_MAX, 5, 5, 3};
    static const int wanted[] = {3, 4, 0, 2, 1}; /* places in `sent` */
    ty_comm *comm;
    CLEANUP_FREE int32_t *numbers = calloc(LARGE, sizeof *numbers);
    ty_request *requests[ARRAY_SIZE(sent) * WORLD_MAX] = {0}, *early = NULL;
    int32_t places[ARRAY_SIZE(sent)], last = -1;
    size_t n = 0;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0 && config->rank > 0) rc = ty_receive_tagged_start(comm, &last, 1, TY_INT32, 0, 77, &early, err);
    for (int to = 1; rc == 0 && config->rank == 0 && to < config->size; to++) {
        for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(sent); i++) {
            places[i] = (int32_t)i;
            const int32_t *from = i == 0 ? numbers : &places[i];
            rc = ty_send_tagged_start(comm, from, i == 0 ? LARGE : 1, TY_INT32, to, sent[i], &requests[n++],
                                      err);
        }
        if (rc == 0) rc = ty_send_tagged(comm, &(int32_t){99}, 1, TY_INT32, to, 77, err);
    }
    for (size_t i = 0; rc == 0 && config->rank > 0 && i < ARRAY_SIZE(asked); i++) {
        numbers[0] = -1;
        rc = ty_receive_tagged(comm, numbers, wanted[i] == 0 ? LARGE : 1, TY_INT32, 0, asked[i], err);
        WORLD_CHECK(rc < 0 || numbers[0] == wanted[i], err);
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = ty_request_wait(&requests[i], err);
    if (rc == 0) rc = ty_request_wait(&early, err);
    if (rc < 0) return rc;
    WORLD_CHECK(config->rank == 0 || last == 99, err);
    WORLD_CHECK(ty_send_tagged(comm, numbers, 1, TY_INT32, 0, -1, err) == TY_EUSAGE, err);
    WORLD_CHECK(strstr(err->message, "a tag is 0 or more") != NULL, err);
    comm_destroy(comm);
    return 0;
}

static void test_tags(void **state) {
    (void)state;
    assert_all_well(3, world_run(3, LONG_ENOUGH, pick_by_tag));
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
    place(config);
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
        assert_all_well(sizes[i], world_run(sizes[i], LONG_ENOUGH, move_parts));
}

/* Rank 2 errs, in a way that all hear of with the call; or only those hear of who get other parts than they
 * expect. */
static enum { ROOTS, NO_COUNTS, HUGE_COUNTS, NO_DATA, PART_TYPES, PART_COUNTS } part_fault;

static int part_wrongly(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int32_t numbers[64] = {0};
    size_t counts[] = {1, 1, 1, 1}, huge[] = {1, SIZE_MAX / 4, 1, 1};
    bool odd = config->rank == 2;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_barrier(comm, err);
    if (rc < 0) return rc;
    if (part_fault == ROOTS) return ty_gather(comm, numbers, numbers + 1, 1, TY_INT32, odd ? 1 : 0, err);
    if (odd && part_fault == PART_COUNTS) counts[0] = 3;
    rc = ty_all_to_all_v(comm, odd && part_fault == NO_DATA ? NULL : numbers,
                         odd && part_fault == NO_COUNTS     ? NULL
                         : odd && part_fault == HUGE_COUNTS ? huge
                                                            : counts,
                         numbers + 32, (const size_t[]){1, 1, 1, 1},
                         odd && part_fault == PART_TYPES ? TY_FLOAT32 : TY_INT32, err);
    return rc < 0 || part_fault != PART_COUNTS ? rc : ty_barrier(comm, err);
}

static void test_parts_that_differ(void **state) {
    static const char *const told[] = {[ROOTS] = "gather(count 1, int32, root 1)",
                                       [NO_COUNTS] = "the counts are NULL",
                                       [HUGE_COUNTS] = "larger than memory",
                                       [NO_DATA] = "a buffer is NULL",
                                       [PART_TYPES] = "all_to_all_v(float32)",
                                       [PART_COUNTS] = "rank 2 made send(count 3, int32, to 0, a part)"};
    (void)state;
    for (part_fault = ROOTS; part_fault <= PART_COUNTS; part_fault++) {
        const struct world_end *ends = world_run(4, LONG_ENOUGH, part_wrongly);
        bool is_usage = part_fault >= NO_COUNTS && part_fault <= NO_DATA;
        for (int rank = 0; rank < 4; rank++) {
            assert_true(ends[rank].elapsed < LONG_ENOUGH / 2);
            if (part_fault == PART_COUNTS && rank > 0)
                assert_int_equal(ends[rank].code, TY_ECOMM); /* rank 0 has left */
            else
                assert_int_equal(ends[rank].code, is_usage && rank == 2 ? TY_EUSAGE : TY_EMISMATCH);
            if (rank == (is_usage ? 2 : 0)) assert_mentions(ends[rank].error.message, told[part_fault]);
        }
    }
}

/* Rank 1 dies while the others wait for it, in each call that waits. */
static enum { IN_RECEIVE, IN_SEND, IN_STARTED, IN_GATHER, IN_SCATTER, IN_COUNTS, IN_SPLIT, WAITS } wait_in;

static int wait_for_the_dying(struct comm_config *config, ty_error *err) {
    enum { LARGE = 4 << 20 };
    static char numbers[3 * LARGE];
    ty_comm *comm, *part = NULL;
    ty_request *request = NULL;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_barrier(comm, err);
    if (rc < 0) return rc;
    if (config->rank == 1) {
        usleep(100 * 1000);
        (void)raise(SIGKILL);
    }
    switch (wait_in) {
    case IN_RECEIVE:
        return ty_receive(comm, numbers, 1, TY_INT8, 1, err);
    case IN_SEND:
        while (rc == 0) /* what the kernel keeps for it is full at some time */
            rc = ty_send(comm, numbers, LARGE, TY_INT8, 1, err);
        return rc;
    case IN_STARTED:
        rc = ty_all_reduce_start(comm, numbers, LARGE, TY_INT8, TY_SUM, &request, err);
        return rc < 0 ? rc : ty_request_wait(&request, err);
    case IN_GATHER:
        return ty_gather(comm, numbers, numbers, LARGE, TY_INT8, 0, err);
    case IN_SCATTER:
        return ty_scatter(comm, numbers, numbers, LARGE, TY_INT8, 0, err);
    case IN_COUNTS:
        return ty_all_gather_v(comm, numbers, numbers, (const size_t[]){1, LARGE, 3}, TY_INT8, err);
    case IN_SPLIT:
        return ty_comm_split(comm, 0, 0, &part, err);
    case WAITS:
        break;
    }
    return 0;
}

static void test_a_peer_dies_in_each_call(void **state) {
    (void)state;
    for (wait_in = IN_RECEIVE; wait_in < WAITS; wait_in++) {
        const struct world_end *ends = world_run(3, LONG_ENOUGH, wait_for_the_dying);
        for (int rank = 0; rank < 3; rank += 2) {
            assert_int_equal(ends[rank].code, TY_ECOMM);
            assert_mentions(ends[rank].error.message, "rank 1");
            assert_true(ends[rank].elapsed < LONG_ENOUGH / 2);
        }
    }
}

/* What the ranks told each other about their sockets: of each its size, and an address first. */
static struct buffer told_sockets;
static struct comm_exchange exchange_below;

static int listen_in(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                     struct buffer *all, ty_error *err) {
    int rc = exchange_below.gather(context, key, value, size, timeout, all, err);
    if (rc == 0 && strcmp(key, "sockets") == 0) buffer_append(&told_sockets, all->data, all->size);
    return rc;
}

/* Rank 1 comes to rank 0 as a stranger first: silent, with a wrong secret, and again and again. */
static int let_strangers_in(struct comm_config *config, ty_error *err) {
    enum { STRANGERS = 60 };
    ty_comm *comm;
    int fds[STRANGERS], number = config->rank, other = -1, peer = 1 - config->rank;
    ty_request *request;
    place(config);
    exchange_below = config->exchange;
    config->exchange.gather = listen_in;
    int rc = comm_create(config, &comm, err);
    for (int i = 0; rc == 0 && config->rank == 1 && i < STRANGERS; i++) {
        struct sockaddr_in address;
        memcpy(&address, told_sockets.data + 4, sizeof address);
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        WORLD_CHECK(connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0, err);
        WORLD_CHECK(i % 2 == 0 || send(fds[i], "\1\0\0\0a secret that is none\1\0\0\0", 30, MSG_NOSIGNAL) == 30,
                    err);
    }
    if (rc == 0) rc = ty_barrier(comm, err);
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = ty_send_start(comm, &number, 1, TY_INT32, peer, &request, err);
        if (rc == 0) rc = ty_receive(comm, &other, 1, TY_INT32, peer, err);
        if (rc == 0) rc = ty_request_wait(&request, err);
        WORLD_CHECK(rc < 0 || other == peer, err);
    }
    for (int i = 0; rc == 0 && config->rank == 1 && i < STRANGERS; i++)
        (void)close(fds[i]);
    if (rc == 0) comm_destroy(comm);
    buffer_done(&told_sockets);
    return rc;
}

static void test_strangers_are_sent_away(void **state) {
    (void)state;
    assert_all_well(2, world_run(2, LONG_ENOUGH, let_strangers_in));
}

/* One thread waits for a message that comes late, and the other works in a communicator of its own
 * meanwhile. */
static int32_t late_number;

static void *receive_late(void *comm) {
    return ty_receive(comm, &late_number, 1, TY_INT32, 0, NULL) == 0 ? comm : NULL;
}

static int use_two_threads(struct comm_config *config, ty_error *err) {
    ty_comm *comm, *second = NULL;
    pthread_t thread;
    void *result = config;
    int32_t sum = 1;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0) rc = ty_comm_split(comm, 0, 0, &second, err);
    if (rc == 0 && config->rank == 1) (void)pthread_create(&thread, NULL, receive_late, comm);
    for (int i = 0; rc == 0 && i < 10; i++)
        rc = ty_all_reduce(second, &sum, 1, TY_INT32, TY_SUM, err);
    if (rc == 0 && config->rank == 0) rc = ty_send(comm, &sum, 1, TY_INT32, 1, err);
    if (rc == 0 && config->rank == 1) (void)pthread_join(thread, &result);
    if (rc < 0) return rc;
    WORLD_CHECK(sum == 1024 && result != NULL && (config->rank == 0 || late_number == 1024), err);
    rc = ty_barrier(comm, err);
    ty_comm_free(&second);
    comm_destroy(comm);
    return rc;
}

static void test_threads_with_communicators_of_their_own(void **state) {
    (void)state;
    assert_all_well(2, world_run(2, LONG_ENOUGH, use_two_threads));
}

/* Rank 1 comes too late for a message, or for a call that was started. */
static bool late_for_message;

static int wait_for_the_late(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    ty_request *request = NULL;
    int32_t number = 0;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0 && config->rank == 1) usleep(2500 * 1000);
    if (rc < 0 || config->rank == 1) return rc;
    if (late_for_message) return ty_receive_tagged(comm, &number, 1, TY_INT32, 1, 4, err);
    rc = ty_all_reduce_start(comm, &number, 1, TY_INT32, TY_SUM, &request, err);
    return rc < 0 ? rc : ty_request_wait(&request, err);
}

static void test_late_for_what_was_started(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        late_for_message = i == 1;
        const struct world_end *ends = world_run(2, NS_PER_S, wait_for_the_late);
        assert_int_equal(ends[0].code, TY_ETIMEOUT);
        assert_mentions(ends[0].error.message, "rank 1 did not come");
        assert_mentions(ends[0].error.message,
                        i == 1 ? "receive(count 1, int32, from 1, tag 4)" : "all_reduce");
    }
}

static int start_wrongly(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    ty_request *first, *second;
    double number = 1;
    place(config);
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    rc = ty_all_reduce_start(comm, &number, 1, TY_FLOAT64, TY_SUM, &first, err);
    if (rc == 0)
        rc = ty_all_reduce_start(comm, config->rank == 1 ? NULL : &number, 1, TY_FLOAT64, TY_SUM, &second, err);
    if (rc == 0) rc = ty_request_wait(&first, err);
    if (rc < 0) return rc;
    WORLD_CHECK(number == config->size || config->rank != 1, err);
    rc = ty_request_wait(&second, err);
    WORLD_CHECK(second == NULL && rc == (config->rank == 1 ? TY_EUSAGE : TY_EMISMATCH), err);
    WORLD_CHECK(strstr(err->message, config->rank == 1 ? "a buffer is NULL" : "rank 1 made call 2") != NULL,
                err);
    WORLD_CHECK(ty_all_reduce_start(comm, &number, 1, TY_FLOAT64, TY_SUM, &first, err) == rc || rc == TY_EUSAGE,
                err);
    WORLD_CHECK(first == NULL, err);
    comm_destroy(comm);
    return 0;
}

static void test_started_call_tells_its_error_at_the_end(void **state) {
    (void)state;
    assert_all_well(3, world_run(3, LONG_ENOUGH, start_wrongly));
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
    assert_all_well(4, world_run(4, LONG_ENOUGH, reduce_at_odd_places));
}

static int set_apart(void **state) {
    (void)state;
    apart = true;
    return 0;
}

static int set_together(void **state) {
    (void)state;
    apart = false;
    return 0;
}

#define TOGETHER_AND_APART(test)                             \
    cmocka_unit_test(test), {                                \
#test ", apart", test, set_apart, set_together, NULL \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_and_failed_communicators),
        cmocka_unit_test(test_backend_is_checked),
        cmocka_unit_test(test_a_child_takes_part_in_no_collective),
        cmocka_unit_test(test_all_types_and_sizes),
        TOGETHER_AND_APART(test_special_numbers),
        TOGETHER_AND_APART(test_gather_in_place),
        TOGETHER_AND_APART(test_mismatch_names_rank_and_both_calls),
        TOGETHER_AND_APART(test_wrong_argument_is_told_to_all),
        TOGETHER_AND_APART(test_error_makes_unusable),
        TOGETHER_AND_APART(test_late_rank_is_named),
        TOGETHER_AND_APART(test_dead_peer),
        TOGETHER_AND_APART(test_messages),
        TOGETHER_AND_APART(test_started_calls),
        TOGETHER_AND_APART(test_split),
        TOGETHER_AND_APART(test_tags),
        TOGETHER_AND_APART(test_parts),
        TOGETHER_AND_APART(test_parts_that_differ),
        TOGETHER_AND_APART(test_a_peer_dies_in_each_call),
        {"test_strangers_are_sent_away", test_strangers_are_sent_away, set_apart, set_together, NULL},
        TOGETHER_AND_APART(test_late_for_what_was_started),
        TOGETHER_AND_APART(test_threads_with_communicators_of_their_own),
        TOGETHER_AND_APART(test_messages_that_differ),
        TOGETHER_AND_APART(test_started_call_tells_its_error_at_the_end),
        cmocka_unit_test(test_places_and_pieces_do_not_matter),
        cmocka_unit_test(test_absent_rank_is_named_at_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
