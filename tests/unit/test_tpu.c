/* TPU arithmetic: docs/spec/accelerators.md 2.2-2.4 and the vectors of 6.3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "scaling/tpu.h"

static int tpu_chips(const char *topology, int64_t *chips, ty_error *err) {
    struct tpu_shape shape;
    int result = tpu_shape_of("v4", topology, 0, false, &shape, err);
    if (result == 0) *chips = shape.chips;
    return result;
}

static bool tpu_topology_valid(const char *generation, const char *topology) {
    struct tpu_shape shape;
    return tpu_shape_of(generation, topology, 0, true, &shape, NULL) == 0;
}

static void generations_are_normalised(void **state) {
    (void)state;
    static const char *const good[][2] = {
        {"TPU-V6E", "v6e"}, {"v6e", "v6e"},
        {"tpu7x", "v7x"},   {"TPU7X", "v7x"},
        {"tpu-v4", "v4"},   {"TPU-V5P", "v5p"},
        {"V5P", "v5p"},     {" TPU-V2 ", "v2"},
        {"tpu-7x", "v7x"},  {"TPU-V5LITEPOD", "v5litepod"},
        {"TPU-V3", "v3"},   {"V4", "v4"},
        {"TPU-V7X", "v7x"},
    };
    static const char *const bad[] = {"",
                                      "v5e",
                                      "v5",
                                      "v8",
                                      "TPU",
                                      "TPU-",
                                      "A100",
                                      "6e",
                                      "v6e-16",
                                      "TPU-V6E-8",
                                      "a very long name that fits no array of sixteen"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        char generation[16];
        ty_error err = {0};
        if (tpu_generation(good[i][0], generation, &err) < 0) fail_msg("%s", err.message);
        assert_string_equal(generation, good[i][1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char generation[16] = "kept";
        ty_error err = {0};
        assert_int_equal(tpu_generation(bad[i], generation, &err), TY_EUSAGE);
        assert_non_null(strstr(err.message, "is no TPU; known are TPU-V2"));
        assert_string_equal(generation, "kept");
    }
}

static void chips_are_the_product(void **state) {
    (void)state;
    static const struct {
        const char *topology;
        int64_t chips;
    } good[] = {{"1x1", 1},   {"4x4", 16}, {"2x2x1", 4}, {"16x16x24", 6144},
                {"2X2X2", 8}, {"8", 8},    {"04x4", 16}};
    static const char *const bad[] = {"",      "4x",   "x4",   "axb",       "4xx4",          "-4x4",
                                      "0x4",   "4 x4", "4x4x", "2x2x2x2x2", "99999999999x1", "99999x99999",
                                      "4.0x4", "4x4\n"};
    int64_t chips = 0;
    ty_error err = {0};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(tpu_chips(good[i].topology, &chips, &err), 0);
        assert_int_equal(chips, good[i].chips);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (tpu_chips(bad[i], &chips, &err) != TY_EUSAGE) fail_msg("\"%s\" was accepted", bad[i]);
    assert_int_equal(chips, 16);
}

static void topologies_are_those_of_the_generation(void **state) {
    (void)state;
    static const struct {
        const char *generation, *topology;
        bool valid;
    } rows[] = {
        {"v4", "8x8x16", true},     {"v4", "16x16x16", false}, {"v5p", "16x16x24", true},
        {"v5p", "24x24x24", false}, {"v3", "32x32", true},     {"v3", "4x16", false},
        {"v2", "2x2", false},       {"v2", "4x4", true},       {"v2", "16x16", true},
        {"v7x", "4x4", false},      {"v6e", "4x2", false},     {"v6e", "2x4", true},
        {"v5litepod", "1x1", true}, {"v6e", "16x32", false},   {"v2", "16x32", false},
        {"v3", "16x32", true},      {"v4", "4x4x4", true},     {"v4", "12x12x16", true},
        {"v4", "4x4x6", false},     {"v4", "2x4x4", true},     {"v4", "4x4x2", false},
        {"v4", "16x4x4", false},    {"v4", "4x4x20", false},   {"v5p", "4x4x24", true},
        {"v5p", "20x4x4", false},   {"v7x", "8x16x16", true},  {"v7x", "4x4x12", false},
        {"v7x", "2x2x2", true},     {"v6e", "2x8", true},      {"v6e", "8x4", false},
        {"v4", "4x4", false},       {"v9", "4x4", false},      {"v6e", "2x", false},
        {"v6e", "", false},         {"v6e", "4", false},       {"v4", "4x4x4x4", false},
        {"v6e", "1x", false},       {"v6e", "04x4", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (tpu_topology_valid(rows[i].generation, rows[i].topology) != rows[i].valid)
            fail_msg("%s %s", rows[i].generation, rows[i].topology);
    struct tpu_shape shape;
    ty_error err = {0};
    assert_int_equal(tpu_shape_of("TPU-V7X", "4x4", 0, true, &shape, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "Invalid accelerator topology: '4x4' for accelerator version: 'v7x'"));
}

static void shapes_follow_the_formulas(void **state) {
    (void)state;
    static const struct {
        const char *type, *topology;
        int64_t chips_per_vm, chips, chips_per_host, hosts;
        const char *pod_type;
    } rows[] = {
        {"v2", "4x4", 0, 16, 4, 4, "v2-32"},
        {"v2", "16x16", 0, 256, 4, 64, "v2-512"},
        {"v3", "4x8", 0, 32, 4, 8, "v3-64"},
        {"v3", "32x32", 0, 1024, 4, 256, "v3-2048"},
        {"v4", "2x2x1", 0, 4, 4, 1, "v4-8"},
        {"v4", "2x2x2", 0, 8, 4, 2, "v4-16"},
        {"v4", "2x2x4", 0, 16, 4, 4, "v4-32"},
        {"v4", "2x4x4", 0, 32, 4, 8, "v4-64"},
        {"v4", "12x12x16", 0, 2304, 4, 576, "v4-4608"},
        {"v5p", "16x16x24", 0, 6144, 4, 1536, "v5p-12288"},
        {"v5p", "2x2x1", 0, 4, 4, 1, "v5p-8"},
        {"v5litepod", "1x1", 0, 1, 1, 1, "v5litepod-1"},
        {"v5litepod", "2x2", 0, 4, 4, 1, "v5litepod-4"},
        {"v5litepod", "2x4", 0, 8, 8, 1, "v5litepod-8"},
        {"v5litepod", "2x8", 0, 16, 4, 4, "v5litepod-16"},
        {"v5litepod", "16x16", 0, 256, 4, 64, "v5litepod-256"},
        {"v6e", "1x1", 0, 1, 1, 1, "v6e-1"},
        {"v6e", "2x2", 0, 4, 4, 1, "v6e-4"},
        {"v6e", "2x4", 0, 8, 8, 1, "v6e-8"},
        {"v6e", "2x4", 4, 8, 4, 2, "v6e-8"},
        {"v6e", "4x4", 0, 16, 4, 4, "v6e-16"},
        {"v6e", "8x16", 0, 128, 4, 32, "v6e-128"},
        {"v6e", "4x4", 8, 16, 8, 2, "v6e-16"},
        {"v6e", "2x2", 8, 4, 8, 1, "v6e-4"},
        {"v7x", "2x2x1", 0, 4, 4, 1, "v7x-8"},
        {"v7x", "8x16x16", 0, 2048, 4, 512, "v7x-4096"},
        {"TPU-V6E", "4X4", 0, 16, 4, 4, "v6e-16"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct tpu_shape shape = {0};
        ty_error err = {0};
        if (tpu_shape_of(rows[i].type, rows[i].topology, rows[i].chips_per_vm, true, &shape, &err) < 0)
            fail_msg("%s", err.message);
        assert_int_equal(shape.chips, rows[i].chips);
        assert_int_equal(shape.chips_per_host, rows[i].chips_per_host);
        assert_int_equal(shape.hosts, rows[i].hosts);
        assert_string_equal(shape.pod_type, rows[i].pod_type);
    }
    struct tpu_shape shape;
    ty_error err = {0};
    assert_int_equal(tpu_shape_of("V5P", "4x4", 0, false, &shape, &err), 0);
    assert_string_equal(shape.pod_type, "v5p-32");
    assert_int_equal(tpu_shape_of("v6e", "4x4", -1, true, &shape, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "chips_per_vm must be positive"));
}

static void workers_fill_a_slice(void **state) {
    (void)state;
    int64_t workers = 0;
    ty_error err = {0};
    assert_int_equal(tpu_workers_per_slice(16 * QUANTITY_ONE, 4 * QUANTITY_ONE, &workers, &err), 0);
    assert_int_equal(workers, 4);
    assert_int_equal(tpu_workers_per_slice(4 * QUANTITY_ONE, 8 * QUANTITY_ONE, &workers, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "divide evenly"));
    assert_int_equal(tpu_workers_per_slice(4 * QUANTITY_ONE, 3 * QUANTITY_ONE, &workers, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "not divisible"));
    assert_int_equal(tpu_workers_per_slice(4 * QUANTITY_ONE, 0, &workers, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "TPU resources must be positive"));
    assert_int_equal(workers, 4);
}

static void pod_types_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *name;
        int64_t chips, per_host;
    } rows[] = {
        {"v6e-16", "v6e-16", 16, 4},
        {"v7x-16", "v7x-16", 8, 4},
        {"v4-8", "v4-8", 4, 4},
        {"v6e-32", "v6e-32", 32, 4},
        {"v6e-8", "v6e-8", 8, 8},
        {"v6e-4", "v6e-4", 4, 4},
        {"v6e-1", "v6e-1", 1, 1},
        {"v5litepod-16", "v5litepod-16", 16, 4},
        {"v5litepod-8", "v5litepod-8", 8, 8},
        {"v5litepod-1", "v5litepod-1", 1, 1},
        {"v5p-8", "v5p-8", 4, 4},
        {"tpu7x-16", "v7x-16", 8, 4},
        {"TPU-V6E-8", "v6e-8", 8, 8},
        {"tpu-v4-16", "v4-16", 8, 4},
        {" v4-16 ", "v4-16", 8, 4},
    };
    static const char *const bad[] = {
        "v-8",  "8",    "tpu-8", "v2",     "v2-",   "random-string", "",  "v9-8",
        "v4-0", "v4-x", "v4-1",  "v4-8-8", "v4 -8", "v5e-8",         "-", "v4-99999999999999999999"};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char name[32];
        int64_t chips, per_host;
        assert_int_equal(tpu_pod_type(rows[i].text, name, NULL), 0);
        assert_string_equal(name, rows[i].name);
        assert_int_equal(tpu_pod_chips(rows[i].text, &chips, &per_host, NULL), 0);
        assert_int_equal(chips, rows[i].chips);
        assert_int_equal(per_host, rows[i].per_host);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char name[32];
        ty_error err = {0};
        if (tpu_pod_type(bad[i], name, &err) != TY_EUSAGE) fail_msg("\"%s\" was accepted", bad[i]);
        assert_non_null(strstr(err.message, "Invalid accelerator_type"));
    }
}

static void hosts_of_a_pod_seen_from_one(void **state) {
    (void)state;
    static const struct {
        int64_t on_host;
        const char *pod_type;
        int64_t hosts;
    } rows[] = {
        {8, "v5litepod-4", 1}, {8, "v5litepod-8", 1}, {8, "v5litepod-16", 2}, {8, "v5litepod-32", 4},
        {4, "v5p-4", 1},       {4, "v5p-8", 1},       {4, "v5p-16", 2},       {4, "v6e-16", 4},
    };
    int64_t hosts;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(tpu_pod_hosts(rows[i].pod_type, rows[i].on_host, &hosts, NULL), 0);
        assert_int_equal(hosts, rows[i].hosts);
    }
    assert_int_equal(tpu_pod_hosts("v4-8", 0, &hosts, NULL), TY_EUSAGE);
}

static void a_chip_may_count_as_several_units(void **state) {
    (void)state;
    static const char *const bad[] = {"0", "-1", "two", "1.5"};
    int64_t units = 0;
    assert_int_equal(tpu_units_per_chip(&units, NULL), 0);
    assert_int_equal(units, 1);
    (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", "2", 1);
    assert_int_equal(tpu_units_per_chip(&units, NULL), 0);
    assert_int_equal(units, 2);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ty_error err = {0};
        (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", bad[i], 1);
        assert_int_equal(tpu_units_per_chip(&units, &err), TY_EUSAGE);
        assert_non_null(strstr(err.message, "RAY_TPU_RESOURCE_PER_CHIP"));
    }
    (void)unsetenv("RAY_TPU_RESOURCE_PER_CHIP");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generations_are_normalised),
        cmocka_unit_test(chips_are_the_product),
        cmocka_unit_test(topologies_are_those_of_the_generation),
        cmocka_unit_test(shapes_follow_the_formulas),
        cmocka_unit_test(workers_fill_a_slice),
        cmocka_unit_test(pod_types_are_read),
        cmocka_unit_test(hosts_of_a_pod_seen_from_one),
        cmocka_unit_test(a_chip_may_count_as_several_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
