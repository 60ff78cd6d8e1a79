/* The local engine in want, of memory or of what the kernel gives: each allocation and each call of
 * failing_calls.h fails once, and from there on, when an agent is started, taken from the pool, or made with a
 * copy of this process. It runs, or why not was told; no process and no descriptor is left. This program is the
 * command, too. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent_controller.h"
#include "descriptors.h"
#include "engine/description.h"
#include "engine/local.h"
#include "engine/slurm.h"
#include "failing_calls.h"
#include "failing_memory.h"

const char *__wrap_module_command(ty_error *err);

const char *__wrap_module_command(ty_error *err) {
    (void)err;
    return controller_worker; /* the path of this program */
}

typedef long fail_after(long n, bool for_good);

static int start(bool copied, struct engine_handle *handle, ty_error *err) {
    Wire__Start part = WIRE__START__INIT;
    const struct engine_agent agent = {.start = &part, .copied = copied};
    part.node_name = (char *)"n1";
    return engine_local.start_agent(&agent, -1, handle, err);
}

static void expect_told(const ty_error *err) {
    assert_true(err->code < 0);
    assert_true(strstr(err->message, "n1") != NULL || strstr(err->message, "cannot ") != NULL);
}

/* Hears whether it serves, and ends it. */
static bool serves(struct engine_handle *handle) {
    struct controller c = {.fd = handle->channel_fd};
    while (!c.hello && !c.closed)
        controller_hear(&c);
    buffer_done(&c.in);
    pool_drop(handle);
    return c.hello;
}

static void expect_served(int result, struct engine_handle *handle, const ty_error *err) {
    if (result < 0)
        expect_told(err);
    else
        assert_true(serves(handle));
}

static bool start_fails(fail_after *arm, long k, bool for_good) {
    struct engine_handle handle;
    ty_error err = {0};
    (void)arm(k, for_good);
    int result = start(false, &handle, &err);
    bool failed = arm(-1, false) <= (for_good ? 0 : -1);
    expect_served(result, &handle, &err);
    return failed;
}

/* One that rests is as good as a new one. */
static bool start_of_the_pool_fails(fail_after *arm, long k, bool for_good) {
    struct engine_handle handle;
    ty_error err = {0};
    assert_int_equal(start(false, &handle, &err), 0);
    struct controller c = {.fd = handle.channel_fd};
    HEAR_UNTIL(&c, c.hello);
    controller_rest(&c);
    assert_true(c.bye);
    buffer_done(&c.in);
    engine_local.rest(&handle);
    bool failed = start_fails(arm, k, for_good);
    engine_local.close();
    return failed;
}

/* It lives as long as its agent. */
static _Noreturn void be_copy(int control_fd) {
    char byte;
    while (read(control_fd, &byte, 1) > 0) {
    }
    _exit(0);
}

/* The agent's process may fail where only its end tells it: then its channel is closed, as that of any that is
 * lost. */
static bool copy_fails(fail_after *arm, long k, bool for_good) {
    struct engine_handle handle;
    ty_error err = {0};
    int control_fd;
    (void)arm(k, for_good);
    int result = copy_make(&control_fd, &err);
    if (result == 0) be_copy(control_fd);
    if (result > 0) result = start(true, &handle, &err);
    bool failed = arm(-1, false) <= (for_good ? 0 : -1);
    if (result < 0)
        expect_told(&err);
    else
        assert_true(serves(&handle) || failed);
    copy_drop();
    return failed;
}

/* How often something fails until nothing does any more. */
static long count(bool (*try)(fail_after *arm, long k, bool for_good), fail_after *arm, bool for_good) {
    unsigned before = count_descriptors();
    long k = 0;
    for (bool failed = true; failed; k++) {
        failed = try(arm, k, for_good);
        while (waitpid(-1, NULL, 0) > 0) { /* what an agent leaves ends by itself */
        }
        assert_int_equal(count_descriptors(), before);
    }
    return k - 1;
}

static void each_failure(bool (*try)(fail_after *arm, long k, bool for_good)) {
    for (int for_good = 0; for_good < 2; for_good++) {
        assert_in_range(count(try, calls_fail_after, for_good), 1, 100);
        assert_in_range(count(try, memory_fails_after, for_good), 1, 100);
    }
}

static void starts_fail(void **state) {
    (void)state;
    each_failure(start_fails);
}

static void starts_of_the_pool_fail(void **state) {
    (void)state;
    each_failure(start_of_the_pool_fails);
}

static void copies_fail(void **state) {
    (void)state;
    each_failure(copy_fails);
}

static int run_agent(int argc, char **argv) {
    return agent_main(3, argc > 5 ? (pid_t)strtol(argv[5], NULL, 10) : 0);
}

/* -- nodes that others describe: a want of memory is told as one, with a message and without */

static int add_description(ty_error *err) {
    Wire__Amount amount = WIRE__AMOUNT__INIT;
    Wire__Amount *amounts[] = {&amount};
    Wire__Label label = WIRE__LABEL__INIT;
    Wire__Label *labels[] = {&label};
    Wire__Devices devices = WIRE__DEVICES__INIT;
    Wire__Devices *kinds[] = {&devices};
    Wire__Join join = WIRE__JOIN__INIT;
    int64_t half = QUANTITY_ONE / 2;
    amount.name = devices.resource = (char *)"GPU";
    amount.amount = QUANTITY_ONE;
    label.key = label.value = (char *)"zone";
    devices.number = 1;
    devices.n_free = 1;
    devices.free = &half;
    join.accelerator_type = (char *)"A100";
    join.n_resources = join.n_labels = join.n_devices = 1;
    join.resources = amounts;
    join.labels = labels;
    join.devices = kinds;
    struct cluster *cluster = cluster_create();
    int result = cluster == NULL ? ty_fail_memory(err) : description_add(&join, "a", cluster, err);
    cluster_destroy(cluster);
    return result;
}

static int read_nodes(ty_error *err) {
    char text[] = "NodeName=a CfgTRES=cpu=4 CPUTot=4 CPUAlloc=1 RealMemory=16000 AllocMem=0 State=MIXED "
                  "ActiveFeatures=a100,rack1 Gres=gpu:a100:4 GresUsed=gpu:a100:1 Partitions=main\n";
    struct slurm_site site = {0};
    int result = slurm_read_nodes(text, NULL, NULL, &site, err);
    if (result >= 0) assert_int_equal(site.nodes->n, 1);
    if (result >= 0) slurm_site_done(&site);
    return result;
}

static void expect_want_of_memory(int (*try)(ty_error *err)) {
    for (long k = 0, left = -1; left < 0; k++) {
        ty_error err = {0};
        (void)memory_fails_after(k / 2, false);
        int result = try(k % 2 == 0 ? &err : NULL);
        left = memory_fails_after(-1, false);
        assert_int_equal(result, left < 0 ? -ENOMEM : 0);
        if (k % 2 == 0) assert_int_equal(err.code, result);
    }
}

static void nodes_are_added(void **state) {
    (void)state;
    expect_want_of_memory(add_description);
    expect_want_of_memory(read_nodes);
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "agent") == 0) return run_agent(argc, argv);
    if (readlink("/proc/self/exe", controller_worker, sizeof controller_worker - 1) < 0) return 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_fail),
        cmocka_unit_test(starts_of_the_pool_fail),
        cmocka_unit_test(copies_fail),
        cmocka_unit_test(nodes_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
