/* Device buffers, with a stand-in for NCCL and CUDA (fake_nccl.c) whose path is the program's argument: what is
 * asked of them, how their failures are told, and that no wait is without an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "collective/comm.h"
#include "fake_nccl.h"
#include "world.h"

#define LONG_ENOUGH (20 * NS_PER_S)

static struct fake_world *(*share)(int size);
static void *(*device_memory)(void);

static int start(struct comm_config *config, ty_comm **comm, ty_error *err) {
    static int devices[1];
    devices[0] = config->rank + 4;
    config->devices = devices;
    config->n_devices = 1;
    return comm_create(config, comm, err);
}

static int use_device_buffers(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int rank = config->rank, size = config->size;
    float *numbers = device_memory(), *all = numbers + 16, host = 1;
    int rc = start(config, &comm, err);
    if (rc < 0) return rc;
    for (int i = 0; i < size; i++)
        numbers[i] = (float)(rank + i);
    rc = ty_all_reduce(comm, numbers, 2, TY_FLOAT32, TY_SUM, err);
    if (rc < 0) return rc;
    WORLD_CHECK(numbers[0] == 3 && numbers[1] == 6, err);
    numbers[0] = (float)rank;
    rc = ty_all_reduce(comm, numbers, 1, TY_FLOAT32, TY_MEAN, err);
    WORLD_CHECK(rc == 0 && numbers[0] == 1, err);
    numbers[0] = (float)rank;
    rc = ty_broadcast(comm, numbers, 1, TY_FLOAT32, 2, err);
    WORLD_CHECK(rc == 0 && numbers[0] == 2, err);
    numbers[0] = (float)rank;
    rc = ty_all_gather(comm, numbers, all, 1, TY_FLOAT32, err);
    WORLD_CHECK(rc == 0 && all[0] == 0 && all[1] == 1 && all[2] == 2, err);
    rc = ty_reduce_scatter(comm, all, numbers, 1, TY_FLOAT32, TY_SUM, err);
    WORLD_CHECK(rc == 0 && numbers[0] == (float)(3 * rank), err);
    rc =
        ty_all_reduce(comm, &host, 1, TY_FLOAT32, TY_SUM, err); /* host memory goes through Gloo all the same */
    WORLD_CHECK(rc == 0 && host == 3, err);
    comm_destroy(comm);
    return 0;
}

static void test_device_buffers(void **state) {
    (void)state;
    struct fake_world *world = share(3);
    const struct world_end *ends = world_run(3, LONG_ENOUGH, use_device_buffers);
    for (int rank = 0; rank < 3; rank++) {
        if (ends[rank].code != 0) print_error("rank %d: %s\n", rank, ends[rank].error.message);
        assert_int_equal(ends[rank].code, 0);
    }
    assert_int_equal(world->destroyed, 3);
    assert_int_equal(world->aborted, 0);
    assert_int_equal(world->devices, 1 << 4 | 1 << 5 | 1 << 6); /* each worker's own */
}

static int reduce_once(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    int rc = start(config, &comm, err);
    if (rc == 0) rc = ty_all_reduce(comm, device_memory(), 1, TY_FLOAT32, TY_SUM, err);
    return rc;
}

static void expect_failure(const char *mode, int code, const char *text) {
    struct fake_world *world = share(2);
    (void)setenv("FAKE_NCCL", mode, 1);
    const struct world_end *ends = world_run(2, 3 * NS_PER_S, reduce_once);
    (void)unsetenv("FAKE_NCCL");
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ends[rank].code, code);
        world_assert_mentions(ends[rank].error.message, text);
        world_assert_mentions(ends[rank].error.message, "call 1 all_reduce(count 1, float32, sum, device)");
        assert_true(ends[rank].elapsed < 30 * NS_PER_S);
    }
    assert_int_equal(world->aborted, 2); /* else NCCL's own threads would wait on */
}

static void test_failures_end_every_wait(void **state) {
    (void)state;
    expect_failure("init-hangs", TY_ETIMEOUT, "did not go on within the time-out");
    expect_failure("hangs", TY_ETIMEOUT, "did not go on within the time-out");
    expect_failure("peer-lost", TY_ECOMM, "a peer is lost: remote process exited");
    expect_failure(
        "duplicate", TY_ECOMM,
        "cannot make the communicator: invalid usage: Duplicate GPU detected : rank 1 and rank 0 both on "
        "CUDA device 60");
}

static int mix_memory(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    float host[4] = {0};
    int rc = start(config, &comm, err);
    if (rc == 0) rc = ty_all_gather(comm, device_memory(), host, 1, TY_FLOAT32, err);
    return rc;
}

static int differ_in_memory(struct comm_config *config, ty_error *err) {
    ty_comm *comm;
    float host = 0;
    int rc = start(config, &comm, err);
    if (rc == 0)
        rc = ty_all_reduce(comm, config->rank == 0 ? device_memory() : &host, 1, TY_FLOAT32, TY_SUM, err);
    return rc;
}

static int use_gloo(struct comm_config *config, ty_error *err) {
    config->backend = "gloo";
    return reduce_once(config, err);
}

static void test_memory_of_both_kinds(void **state) {
    (void)state;
    (void)share(2);
    const struct world_end *ends = world_run(2, LONG_ENOUGH, mix_memory);
    assert_int_equal(ends[0].code, TY_EUSAGE);
    world_assert_mentions(ends[0].error.message, "one buffer is device memory, the other is not");
    ends = world_run(2, LONG_ENOUGH, differ_in_memory);
    assert_int_equal(ends[1].code, TY_EMISMATCH);
    world_assert_mentions(ends[1].error.message,
                          "rank 0 made call 1 all_reduce(count 1, float32, sum, device)");
    ends = world_run(2, LONG_ENOUGH, use_gloo);
    assert_int_equal(ends[0].code, TY_EUNSUPPORTED);
    world_assert_mentions(ends[0].error.message, "backend gloo works on host memory");
}

/* In a process that has nothing loaded yet. */
static int load(struct comm_config *config, ty_error *err) {
    (void)config;
    return nccl_load(err);
}

static void test_libraries_that_do_not_serve(void **state) {
    (void)state;
    (void)setenv("FAKE_NCCL", "no-device", 1);
    const struct world_end *end = world_run(1, LONG_ENOUGH, load);
    assert_int_equal(end->code, TY_EUNSUPPORTED);
    world_assert_mentions(end->error.message, "no usable device");
    (void)unsetenv("FAKE_NCCL");
    const char *before = getenv("TRAINYARD_NCCL_LIBRARY");
    CLEANUP_FREE char *library = strdup(before);
    (void)setenv("TRAINYARD_NCCL_LIBRARY", "libm.so.6", 1);
    end = world_run(1, LONG_ENOUGH, load);
    assert_int_equal(end->code, TY_EUNSUPPORTED);
    world_assert_mentions(end->error.message, "ncclGetUniqueId");
    (void)setenv("TRAINYARD_NCCL_LIBRARY", library, 1);
}

int main(int argc, char **argv) {
    void *fake = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (fake == NULL) return 99;
    (void)setenv("TRAINYARD_NCCL_LIBRARY", argv[1], 1);
    (void)setenv("TRAINYARD_CUDA_LIBRARY", argv[1], 1);
    *(void **)&share = dlsym(fake, "fake_nccl_share");
    *(void **)&device_memory = dlsym(fake, "fake_nccl_memory");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_buffers),
        cmocka_unit_test(test_failures_end_every_wait),
        cmocka_unit_test(test_memory_of_both_kinds),
        cmocka_unit_test(test_libraries_that_do_not_serve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
