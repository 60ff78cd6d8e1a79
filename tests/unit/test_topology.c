/* Cores and memory near a worker, on machines of hwloc's imagination. hwloc reads the environment once a
 * process, so each machine is tried in a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/module.h"
#include "cluster/topology.h"

extern const struct topology_module trainyard_topology;

static void expect(size_t index, size_t of, const char *cores, int64_t numa_node) {
    static const char *const unknown[] = {"", "0000:ff:1f.7"};
    struct topology_request request = {.bus_ids = unknown, .n = 2, .index = index, .of = of};
    struct topology_place place = {0};
    struct buffer text = {0};
    assert_int_equal(trainyard_topology.place(&request, &place, NULL), 0);
    idset_format(&place.cores, &text);
    buffer_text(&text, "");
    assert_string_equal(text.data, cores);
    assert_int_equal(place.numa_node, numa_node);
    buffer_done(&text);
    topology_place_done(&place);
}

/* Runs `body` in a child on the machine that `description` draws. */
static void on_machine(const char *description, void (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)setenv("HWLOC_SYNTHETIC", description, 1);
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void two_nodes(void) {
    expect(0, 1, "0-7", -1);
    expect(0, 2, "0-3", 0);
    expect(1, 2, "4-7", 1);
    expect(0, 3, "0-3", 0); /* neighbours in rank share */
    expect(1, 3, "0-3", 0);
    expect(2, 3, "4-7", 1);
    expect(7, 8, "4-7", 1);
}

static void four_nodes(void) {
    expect(0, 2, "0-3", -1);
    expect(1, 2, "4-7", -1);
    expect(2, 4, "4-5", 2);
    expect(0, 0, "0-7", -1);
}

static void one_node(void) {
    expect(0, 1, "0-3", 0);
    expect(5, 6, "0-3", 0);
}

static void test_two_nodes(void **state) {
    (void)state;
    on_machine("numa:2 core:4 pu:1", two_nodes);
}

static void test_four_nodes(void **state) {
    (void)state;
    on_machine("pack:2 numa:2 core:2 pu:1", four_nodes);
}

static void test_one_node(void **state) {
    (void)state;
    on_machine("numa:1 core:4 pu:1", one_node);
}

static void here(void) {
    struct topology_place place = {0};
    assert_int_equal(trainyard_topology.place(&(struct topology_request){.of = 1}, &place, NULL), 0);
    assert_true(idset_count(&place.cores) >= 1);
    topology_place_done(&place);
    (void)topology_worthwhile();
}

static void test_this_machine(void **state) {
    (void)state;
    here();
}

static void test_version(void **state) {
    (void)state;
    assert_string_equal(trainyard_topology.version, base_build);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),  cmocka_unit_test(test_two_nodes),    cmocka_unit_test(test_four_nodes),
        cmocka_unit_test(test_one_node), cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
