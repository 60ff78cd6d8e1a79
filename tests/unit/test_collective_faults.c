/* Everything that can go wrong with a call: ranks that differ, err, come late, die, or never come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

#define LONG_ENOUGH (20 * NS_PER_S)

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
    world_place(config);
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
            world_assert_mentions(ends[rank].error.message, odd_call[difference]);
            world_assert_mentions(ends[rank].error.message, usual_call[difference]);
            if (rank != 2) world_assert_mentions(ends[rank].error.message, "rank 2 made call 2");
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
            world_assert_mentions(ends[rank].error.message,
                                  rank == 2 ? fault[difference] : "rank 2 made call 2");
            assert_true(ends[rank].elapsed < LONG_ENOUGH / 2);
        }
    }
}

static int stay_unusable(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double number = 0;
    world_place(config);
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
    world_assert_well(3, world_run(3, LONG_ENOUGH, stay_unusable));
    world_assert_well(1, world_run(1, LONG_ENOUGH, stay_unusable));
}

/* Ranks whose call has come back, shared by all: who is to be late waits for them. */
static _Atomic int *back;

static const struct world_end *run_with_one_late(int size, nanoseconds timeout, world_function *function) {
    if (back == NULL)
        back = mmap(NULL, sizeof *back, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(back, MAP_FAILED);
    *back = 0;
    return world_run(size, timeout, function);
}

static void be_late(int others) {
    for (int i = 0; i < 60000 && *back < others; i++)
        (void)usleep(1000);
}

static int one_sleeps(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double number = 0;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc < 0) return rc;
    if (config->rank == 1) be_late(config->size - 1);
    (void)usleep((useconds_t)config->rank * 50 * 1000); /* time-outs do not come at once */
    rc = ty_all_reduce(comm, &number, 1, TY_FLOAT64, TY_SUM, err);
    (*back)++;
    return rc;
}

static void test_late_rank_is_named(void **state) {
    (void)state;
    const struct world_end *ends = run_with_one_late(5, 4 * NS_PER_S, one_sleeps);
    for (int rank = 0; rank < 5; rank++) {
        if (rank == 1) {
            assert_true(ends[rank].code < 0); /* the others have left */
            continue;
        }
        assert_int_equal(ends[rank].code, TY_ETIMEOUT);
        world_assert_mentions(ends[rank].error.message, "rank 1 did not come");
        world_assert_mentions(ends[rank].error.message, "call 1 all_reduce");
        assert_true(ends[rank].elapsed < 12 * NS_PER_S);
    }
}

static int one_dies(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    double numbers[1000] = {0};
    world_place(config);
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
            world_assert_mentions(ends[rank].error.message, "all_reduce(count 1000");
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
    const struct world_end *ends = world_run(3, 3 * NS_PER_S, one_never_joins);
    for (int rank = 1; rank < 3; rank++) {
        assert_int_equal(ends[rank].code, TY_ETIMEOUT);
        world_assert_mentions(ends[rank].error.message, "rank 0 did not come");
    }
}

static void test_backend_is_checked(void **state) {
    struct comm_config config = {.rank = 0, .size = 1, .timeout = NS_PER_S};
    ty_comm *comm = NULL;
    ty_error err = {0};
    (void)state;
    config.backend = "mpi";
    assert_int_equal(comm_create(&config, &comm, &err), TY_EUSAGE);
    world_assert_mentions(err.message, "\"mpi\" is unknown; allowed: gloo, nccl");
    (void)setenv("TRAINYARD_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
    config.backend = "nccl";
    assert_int_equal(comm_create(&config, &comm, &err), TY_EUNSUPPORTED);
    world_assert_mentions(err.message, "/nowhere/libcuda.so.1");
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
    world_assert_mentions(err.message, "rank 3 did not come");
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

static enum { COUNTS, TYPES, SELF, FAR, DEAD } message_fault;

static int send_wrongly(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int32_t numbers[4] = {0};
    world_place(config);
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
        world_assert_mentions(ends[0].error.message, told[message_fault]);
        if (message_fault == DEAD) continue;
        assert_int_equal(ends[1].code, TY_ECOMM); /* it hears of it when it waits for rank 0 */
        assert_true(ends[1].elapsed < LONG_ENOUGH / 2);
    }
}

/* Rank 2 errs, in a way that all hear of with the call; or only those hear of who get other parts than they
 * expect. */
static enum { ROOTS, NO_COUNTS, HUGE_COUNTS, NO_DATA, PART_TYPES, PART_COUNTS } part_fault;

static int part_wrongly(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int32_t numbers[64] = {0};
    size_t counts[] = {1, 1, 1, 1}, huge[] = {1, SIZE_MAX / 4, 1, 1};
    bool odd = config->rank == 2;
    world_place(config);
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
            if (rank == (is_usage ? 2 : 0)) world_assert_mentions(ends[rank].error.message, told[part_fault]);
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
    world_place(config);
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
            world_assert_mentions(ends[rank].error.message, "rank 1");
            assert_true(ends[rank].elapsed < LONG_ENOUGH / 2);
        }
    }
}

/* Rank 1 comes too late for a message, or for a call that was started. */
static bool late_for_message;

static int wait_for_the_late(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    ty_request *request = NULL;
    int32_t number = 0;
    world_place(config);
    int rc = comm_create(config, &comm, err);
    if (rc == 0 && config->rank == 1) be_late(1);
    if (rc < 0 || config->rank == 1) return rc;
    if (late_for_message) {
        rc = ty_receive_tagged(comm, &number, 1, TY_INT32, 1, 4, err);
    } else {
        rc = ty_all_reduce_start(comm, &number, 1, TY_INT32, TY_SUM, &request, err);
        if (rc == 0) rc = ty_request_wait(&request, err);
    }
    (*back)++;
    return rc;
}

static void test_late_for_what_was_started(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        late_for_message = i == 1;
        const struct world_end *ends = run_with_one_late(2, 2 * NS_PER_S, wait_for_the_late);
        assert_int_equal(ends[0].code, TY_ETIMEOUT);
        world_assert_mentions(ends[0].error.message, "rank 1 did not come");
        world_assert_mentions(ends[0].error.message,
                              i == 1 ? "receive(count 1, int32, from 1, tag 4)" : "all_reduce");
    }
}

static int start_wrongly(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    ty_request *first, *second;
    double number = 1;
    world_place(config);
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
    world_assert_well(3, world_run(3, LONG_ENOUGH, start_wrongly));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_and_failed_communicators),
        cmocka_unit_test(test_backend_is_checked),
        cmocka_unit_test(test_a_child_takes_part_in_no_collective),
        TOGETHER_AND_APART(test_mismatch_names_rank_and_both_calls),
        TOGETHER_AND_APART(test_wrong_argument_is_told_to_all),
        TOGETHER_AND_APART(test_error_makes_unusable),
        TOGETHER_AND_APART(test_late_rank_is_named),
        TOGETHER_AND_APART(test_dead_peer),
        TOGETHER_AND_APART(test_parts_that_differ),
        TOGETHER_AND_APART(test_a_peer_dies_in_each_call),
        TOGETHER_AND_APART(test_late_for_what_was_started),
        TOGETHER_AND_APART(test_messages_that_differ),
        TOGETHER_AND_APART(test_started_call_tells_its_error_at_the_end),
        cmocka_unit_test(test_absent_rank_is_named_at_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
