/* Scaling config to demand: docs/spec/train-api.md 1 and its vectors, docs/spec/accelerators.md 2.12 and
 * 6.4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "scaling/device.h"
#include "scaling/scaling.h"

/* The config of `json` with apostrophes for quotes, resolved; the message of a failure is in `err`. */
static int resolve_v(const char *json, bool train_v1, struct demand *demand, ty_error *err) {
    CLEANUP_FREE char *text = strdup(json);
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\'') *at = '"';
    struct document *document = NULL;
    struct scaling scaling;
    scaling_init(&scaling);
    int result = document_parse(text, strlen(text), "config", &document, err);
    if (result < 0) fail_msg("%s: %s", json, err->message);
    result = scaling_read(&scaling, document_root(document), document, err);
    if (result == 0) result = scaling_resolve(&scaling, train_v1, demand, err);
    scaling_done(&scaling);
    document_destroy(document);
    return result;
}

static int resolve(const char *json, struct demand *demand, ty_error *err) {
    return resolve_v(json, false, demand, err);
}

static void assert_resources(const char *json, const struct resources *resources, const char *expected) {
    struct buffer out = {0};
    resources_format_json(resources, &out);
    if (strcmp(out.data, expected) != 0) fail_msg("%s gives %s, not %s", json, out.data, expected);
    buffer_done(&out);
}

static void configs_resolve_to_resources(void **state) {
    (void)state;
    static const struct {
        const char *config, *per_worker, *total;
    } rows[] = {
        {"{}", "{\"CPU\": 1}", "{\"CPU\": 1}"},
        {"{'num_workers': 8}", "{\"CPU\": 1}", "{\"CPU\": 8}"},
        {"{'num_workers': 8, 'use_gpu': true}", "{\"GPU\": 1}", "{\"GPU\": 8}"},
        {"{'num_workers': 2, 'use_gpu': true, 'resources_per_worker': {'CPU': 1}}", "{\"CPU\": 1, \"GPU\": 1}",
         "{\"CPU\": 2, \"GPU\": 2}"},
        {"{'num_workers': 8, 'use_gpu': true, 'resources_per_worker': {'CPU': 4, 'GPU': 0.5}}",
         "{\"CPU\": 4, \"GPU\": 0.5}", "{\"CPU\": 32, \"GPU\": 4}"},
        {"{'use_gpu': true, 'resources_per_worker': {'GPU': 2}}", "{\"GPU\": 2}", "{\"GPU\": 2}"},
        {"{'use_gpu': true, 'resources_per_worker': {'GPU': 2}, 'accelerator_type': 'A100'}",
         "{\"GPU\": 2, \"accelerator_type:A100\": 0.001}", "{\"GPU\": 2, \"accelerator_type:A100\": 0.001}"},
        {"{'accelerator_type': 'T4'}", "{\"CPU\": 1, \"accelerator_type:T4\": 0.001}",
         "{\"CPU\": 1, \"accelerator_type:T4\": 0.001}"},
        {"{'resources_per_worker': {'accelerator_type:T4': 1}, 'accelerator_type': 'T4'}",
         "{\"accelerator_type:T4\": 1}", "{\"accelerator_type:T4\": 1}"},
        {"{'use_gpu': true, 'resources_per_worker': {'CPU': 0, 'GPU': 1}}", "{\"GPU\": 1}", "{\"GPU\": 1}"},
        {"{'resources_per_worker': {'CPU': 0}}", "{}", "{}"},
        {"{'resources_per_worker': {}}", "{}", "{}"},
        {"{'use_gpu': true, 'resources_per_worker': {}}", "{\"GPU\": 1}", "{\"GPU\": 1}"},
        {"{'resources_per_worker': null}", "{\"CPU\": 1}", "{\"CPU\": 1}"},
        {"{'num_workers': [2, 8], 'resources_per_worker': {'CPU': 1}}", "{\"CPU\": 1}", "{\"CPU\": 8}"},
        {"{'num_workers': 0}", "{\"CPU\": 1}", "{}"},
        {"{'num_workers': 10, 'resources_per_worker': {'custom': 0.1, 'memory': 1}}",
         "{\"custom\": 0.1, \"memory\": 1}", "{\"custom\": 1, \"memory\": 10}"},
        {"{'resources_per_worker': {'memory': '8GiB'}}", "{\"memory\": 8589934592}",
         "{\"memory\": 8589934592}"},
        {"{'resources_per_worker': {'NPU': 0.5, 'HPU': 2}}", "{\"NPU\": 0.5, \"HPU\": 2}",
         "{\"NPU\": 0.5, \"HPU\": 2}"},
        {"{'use_tpu': true}", "{\"TPU\": 1}", "{\"TPU\": 1}"},
        {"{'use_tpu': true, 'resources_per_worker': {'TPU': 8}, 'accelerator_type': 'TPU-V6E'}",
         "{\"TPU\": 8, \"accelerator_type:TPU-V6E\": 0.001}",
         "{\"TPU\": 8, \"accelerator_type:TPU-V6E\": 0.001}"},
        {"{'use_tpu': true, 'accelerator_type': 'v6e'}", "{\"TPU\": 1, \"accelerator_type:TPU-V6E\": 0.001}",
         "{\"TPU\": 1, \"accelerator_type:TPU-V6E\": 0.001}"},
        {"{'use_tpu': true, 'num_workers': 2, 'topology': '2x2x2', 'accelerator_type': 'TPU-V4'}",
         "{\"CPU\": 1, \"TPU\": 4, \"accelerator_type:TPU-V4\": 0.001}",
         "{\"CPU\": 2, \"TPU\": 8, \"accelerator_type:TPU-V4\": 0.002}"},
        {"{'use_tpu': true, 'topology': '2x4', 'accelerator_type': 'v6e'}",
         "{\"CPU\": 1, \"TPU\": 8, \"accelerator_type:TPU-V6E\": 0.001}",
         "{\"CPU\": 1, \"TPU\": 8, \"accelerator_type:TPU-V6E\": 0.001}"},
        {"{'use_tpu': true, 'topology': '2x4', 'accelerator_type': 'v6e', 'resources_per_worker': {'CPU': 0, "
         "'TPU': 8}}",
         "{\"TPU\": 8, \"accelerator_type:TPU-V6E\": 0.001}",
         "{\"TPU\": 8, \"accelerator_type:TPU-V6E\": 0.001}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct demand demand = {0};
        struct resources total = {0};
        ty_error err = {0};
        if (resolve(rows[i].config, &demand, &err) < 0) fail_msg("%s: %s", rows[i].config, err.message);
        assert_resources(rows[i].config, &demand.per_worker, rows[i].per_worker);
        assert_int_equal(demand_total(&demand, demand.max_workers, &total, &err), 0);
        assert_resources(rows[i].config, &total, rows[i].total);
        resources_done(&total);
        demand_done(&demand);
    }
}

#define TPU_V4 "'use_tpu': true, 'accelerator_type': 'TPU-V4', 'topology': "
#define TPU_V6E "'use_tpu': true, 'accelerator_type': 'TPU-V6E', 'topology': "

struct refusal {
    const char *config, *message;
};

static void expect_refused(const struct refusal *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct demand demand = {0}, untouched = {0};
        ty_error err = {0};
        int result = resolve(rows[i].config, &demand, &err);
        if (result >= 0) fail_msg("%s was accepted", rows[i].config);
        assert_int_equal(result, TY_EUSAGE);
        if (strstr(err.message, rows[i].message) == NULL) fail_msg("%s: %s", rows[i].config, err.message);
        assert_memory_equal(&demand, &untouched, sizeof demand);
    }
}

/* Rows 2 to 8. */
static void bad_tpu_configs_say_what_is_wrong(void **state) {
    (void)state;
    static const struct refusal rows[] = {
        {"{'use_gpu': true, 'use_tpu': true, 'resources_per_worker': {'TPU': 0}}", "Cannot specify both"},
        {"{'resources_per_worker': {'TPU': 1}}",
         "`use_tpu` is False but `TPU` was found in `resources_per_worker`"},
        {"{'use_tpu': true, 'resources_per_worker': {'TPU': 0}}", "`use_tpu` is True but `TPU` is set to 0 in"},
        {"{'use_tpu': true, 'resources_per_worker': {'CPU': 1}}", "`use_tpu` is True but `TPU` is set to 0 in"},
        {"{'use_tpu': true, 'resources_per_worker': {}}", "`use_tpu` is True but `TPU` is set to 0 in"},
        {"{'use_tpu': true, 'num_workers': 2}", "`topology` must be specified"},
        {"{'use_tpu': true, 'num_workers': 2, 'accelerator_type': 'TPU-V4'}", "`topology` must be specified"},
        {"{'use_tpu': true, 'num_workers': [1, 2]}", "`topology` must be specified"},
        {"{'use_tpu': true, 'num_workers': 2, 'topology': '4x4'}", "`accelerator_type` must be specified"},
        {"{" TPU_V4 "'2x2x2', 'num_workers': 2, 'label_selector': {'a': 'b'}}",
         "Cannot set `label_selector` when `use_tpu=True`"},
        {"{" TPU_V4 "'2x2x2', 'num_workers': 3}", "num_workers=3 must be a multiple of 2"},
        {"{" TPU_V4 "'2x2x2', 'num_workers': 1}", "must be a multiple of 2"},
        {"{" TPU_V4 "'2x2x1', 'num_workers': 6, 'resources_per_worker': {'TPU': 1}}",
         "must be a multiple of 4"},
        {"{" TPU_V6E "'4x4', 'num_workers': 6, 'resources_per_worker': {'TPU': 2}}", "must be a multiple of 8"},
        {"{" TPU_V6E "'4x4', 'num_workers': [4, 6]}", "max_workers=6 must be a multiple of 4"},
        {"{" TPU_V6E "'4x4', 'num_workers': [3, 8]}", "min_workers=3 must be a multiple of 4"},
        {"{" TPU_V6E "'4x3', 'num_workers': 4}",
         "Invalid accelerator topology: '4x3' for accelerator version: 'v6e'"},
        {"{" TPU_V6E "'4x', 'num_workers': 4}", "Invalid accelerator topology: '4x'"},
        {"{'use_tpu': true, 'accelerator_type': 'TPU-V9', 'topology': '4x4'}", "Invalid accelerator_type"},
        {"{'use_tpu': true, 'accelerator_type': 'A100'}", "Invalid accelerator_type"},
        {"{" TPU_V4 "'2x2x1', 'num_workers': 2, 'resources_per_worker': {'TPU': 8}}", "divide evenly"},
        {"{" TPU_V4 "'2x2x1', 'num_workers': 2, 'resources_per_worker': {'TPU': 0.5}}", "must be 1, 2, 4 or 8"},
        {"{'use_tpu': true, 'resources_per_worker': {'TPU': 3}}", "must be 1, 2, 4 or 8"},
        {"{" TPU_V4 "'2x2x2', 'num_workers': 2, 'resources_per_worker': {'TPU': 3}}",
         "`resources_per_worker`: The quantity of resource TPU must be 1, 2, 4 or 8"},
    };
    expect_refused(rows, ARRAY_SIZE(rows));
}

/* Rows 9 to 15. */
static void bad_configs_say_what_is_wrong(void **state) {
    (void)state;
    static const struct refusal rows[] = {
        {"{'num_workers': 2, 'label_selector': [{'a': 'b'}]}",
         "If `label_selector` is a list, it must be the same length as `num_workers`"},
        {"{'label_selector': []}",
         "If `label_selector` is a list, it must be the same length as `num_workers`"},
        {"{'num_workers': 'four'}", "must be an int or a tuple of two ints"},
        {"{'num_workers': 2.0}", "must be an int or a tuple of two ints"},
        {"{'num_workers': true}", "must be an int or a tuple of two ints"},
        {"{'num_workers': null}", "must be an int or a tuple of two ints"},
        {"{'num_workers': [1]}", "must be an int or a tuple of two ints"},
        {"{'num_workers': [1, 2, 3]}", "must be an int or a tuple of two ints"},
        {"{'num_workers': [1, 2.5]}", "must be an int or a tuple of two ints"},
        {"{'num_workers': [false, 2]}", "must be an int or a tuple of two ints"},
        {"{'num_workers': {}}", "must be an int or a tuple of two ints"},
        {"{'elastic_resize_monitor_interval_s': -1}", "must be non-negative"},
        {"{'elastic_resize_monitor_interval_s': -0.001}", "must be non-negative"},
        {"{'num_workers': [4, 2]}", "min_workers=4 must be <= max_workers=2"},
        {"{'num_workers': [1, 4], 'label_selector': [{}, {}, {'a': 'b'}]}",
         "length 3 but must be length max_workers=4"},
        {"{'resources_per_worker': {'GPU': 1}}",
         "`use_gpu` is False but `GPU` was found in `resources_per_worker`"},
        {"{'use_gpu': true, 'resources_per_worker': {'GPU': 0}}", "`use_gpu` is True but `GPU` is set to 0 in"},
        {"{'use_gpu': true, 'resources_per_worker': {'CPU': 1, 'GPU': 0.0}}",
         "`use_gpu` is True but `GPU` is set to 0"},
    };
    expect_refused(rows, ARRAY_SIZE(rows));
}

static void the_earlier_row_wins(void **state) {
    (void)state;
    static const struct refusal rows[] = {
        {"{'use_gpu': true, 'use_tpu': true, 'num_workers': [4, 2]}", "Cannot specify both"},
        {"{'num_workers': [4, 2], 'elastic_resize_monitor_interval_s': -1}", "must be non-negative"},
        {"{'num_workers': [4, 2], 'resources_per_worker': {'GPU': 1}}", "must be <="},
    };
    expect_refused(rows, ARRAY_SIZE(rows));
}

static void more_is_refused_than_upstream(void **state) {
    (void)state;
    static const struct refusal rows[] = {
        {"{'num_workers': -1}", "must not be negative"},
        {"{'num_workers': [0, 4]}", "at least 1"},
        {"{'num_workers': [-3, 4]}", "at least 1"},
        {"{'num_workers': 100000000}", "more than the possible"},
        {"{'num_workers': [1, 100000000]}", "more than the possible"},
        {"{'num_workers': 10000000, 'resources_per_worker': {'memory': 1e14}}", "too large"},
        {"{'resources_per_worker': {'CPU': -1}}", "The quantity of resource CPU cannot be negative"},
        {"{'resources_per_worker': {'x': 0.00005}}", "cannot go beyond 0.0001"},
        {"{'resources_per_worker': {'CPU': true}}", "amount of CPU must be a number, not true"},
        {"{'resources_per_worker': {'CPU': '4'}}", "amount of CPU must be a number"},
        {"{'resources_per_worker': {'CPU': null}}", "amount of CPU must be a number, not null"},
        {"{'resources_per_worker': {'memory': 'lots of GiB'}}", "memory must be a number"},
        {"{'resources_per_worker': [1]}", "must be a map of names to amounts"},
        {"{'resources_per_worker': {'bundle': 1}}", "reserved"},
        {"{'resources_per_worker': {'': 1}}", "empty"},
        {"{'resources_per_worker': {'gpu': 1}}", "\"gpu\" must be written \"GPU\""},
        {"{'resources_per_worker': {'Memory': 1}}", "\"Memory\" must be written \"memory\""},
        {"{'use_gpu': true, 'resources_per_worker': {'GPU': 1.5}}", "whole when it is above 1"},
        {"{'resources_per_worker': {'NPU': 2.5}}", "whole when it is above 1"},
        {"{'resources_per_worker': {'HPU': 0.5}}", "must be a whole number"},
        {"{'resources_per_worker': {'neuron_cores': 1.5}}", "must be a whole number"},
        {"{'trainer_resources': {'GPU': 1.5}}", "`trainer_resources`"},
        {"{'trainer_resources': {'CPU': -1}}", "cannot be negative"},
        {"{'placement_strategy': 'PAK'}", "Invalid placement group strategy"},
        {"{'placement_strategy': 'pack'}", "nearest is PACK"},
        {"{'placement_strategy': null}", "must be PACK, SPREAD, STRICT_PACK or STRICT_SPREAD"},
        {"{'accelerator_type': 'A1000'}", "not known"},
        {"{'accelerator_type': 'a100'}", "nearest is \"A100\""},
        {"{'accelerator_type': ''}", "must not be empty"},
        {"{'accelerator_type': 7}", "must be text or null, not 7"},
        {"{'label_selector': {'a': 1}}", "the value of a must be text, not 1"},
        {"{'label_selector': {'a': 'in()'}}", "`label_selector`"},
        {"{'label_selector': {'-a': 'b'}}", "`label_selector`"},
        {"{'label_selector': 'a=b'}", "`label_selector` must be a map of labels to text"},
        {"{'label_selector': ['a']}", "`label_selector` must be a map of labels to text"},
        {"{'topology_strategy': 'PACK'}", "`topology_strategy` must be a map of labels to strategies"},
        {"{'topology_strategy': {'rack': 1}}", "the strategy of rack must be text, not 1"},
        {"{'topology_strategy': {'rack': 'SPREAD'}}", "a label other than node-id must be STRICT_PACK"},
        {"{'topology_strategy': {'rack': 'NEAR'}}", "rack=NEAR: must be PACK, SPREAD"},
        {"{'topology_strategy': {'-rack': 'STRICT_PACK'}}", "label key \"-rack\""},
        {"{'topology_strategy': {'a': 'STRICT_PACK', 'b': 'STRICT_PACK'}}", "name one label beside node-id"},
        {"{'topology_strategy': {'a': 'STRICT_PACK'}, 'placement_strategy': 'SPREAD'}",
         "`placement_strategy` and `topology_strategy` both say"},
        {"{" TPU_V4 "'2x2x2', 'num_workers': 2, 'topology_strategy': {'a': 'STRICT_PACK'}}",
         "Cannot set `topology_strategy` when `use_tpu=True`"},
        {"{'use_gpu': 1}", "`use_gpu` must be true or false"},
        {"{'use_tpu': 'yes'}", "`use_tpu` must be true or false"},
        {"{'topology': 4}", "`topology` must be text"},
        {"{'elastic_resize_monitor_interval_s': '60'}", "must be a number of seconds"},
        {"{'num_worker': 4}", "num_workers"},
        {"[]", "must be a map"},
    };
    expect_refused(rows, ARRAY_SIZE(rows));
}

static void messages_say_where(void **state) {
    (void)state;
    struct demand demand = {0};
    ty_error err = {0};
    assert_int_equal(resolve("num_workers: 2\nresources_per_worker:\n  CPU: -1\n", &demand, &err), TY_EUSAGE);
    assert_memory_equal(err.message, "config:3:", strlen("config:3:"));
    assert_int_equal(resolve("num_workers: 2\nplacement_strategy: PAC\n", &demand, &err), TY_EUSAGE);
    assert_memory_equal(err.message, "config:2:", strlen("config:2:"));
}

static void elastic_bounds_are_kept(void **state) {
    (void)state;
    struct demand demand = {0};
    ty_error err = {0};
    assert_int_equal(resolve("{'num_workers': [2, 8]}", &demand, &err), 0);
    assert_true(demand.elastic && demand.min_workers == 2 && demand.max_workers == 8);
    demand_done(&demand);
    assert_int_equal(resolve("{'num_workers': [4, 4], 'elastic_resize_monitor_interval_s': 0}", &demand, &err),
                     0);
    assert_true(demand.elastic && demand.min_workers == 4 && demand.max_workers == 4);
    demand_done(&demand);
    assert_int_equal(resolve("{'num_workers': 4}", &demand, &err), 0);
    assert_true(!demand.elastic && demand.min_workers == 4 && demand.max_workers == 4);
    demand_done(&demand);
}

static void slices_have_their_workers(void **state) {
    (void)state;
    static const struct {
        const char *config;
        int64_t workers, hosts, chips;
        const char *pod_type;
    } rows[] = {
        {"{" TPU_V4 "'2x2x2', 'num_workers': 2}", 2, 2, 8, "v4-16"},
        {"{" TPU_V6E "'4x4', 'num_workers': 4}", 4, 4, 16, "v6e-16"},
        {"{" TPU_V6E "'4X4', 'num_workers': 8}", 4, 4, 16, "v6e-16"},
        {"{" TPU_V6E "'2x4', 'num_workers': 1}", 1, 1, 8, "v6e-8"},
        {"{" TPU_V4 "'2x2x2', 'num_workers': 16, 'resources_per_worker': {'TPU': 1}}", 8, 2, 8, "v4-16"},
        {"{" TPU_V4 "'2x2x1', 'num_workers': 8, 'resources_per_worker': {'TPU': 1}}", 4, 1, 4, "v4-8"},
        /* one worker a host with part of its chips, on a slice of several hosts only */
        {"{" TPU_V6E "'4x4', 'num_workers': 4, 'resources_per_worker': {'TPU': 2}}", 4, 4, 16, "v6e-16"},
        {"{" TPU_V6E "'4x4', 'num_workers': 12, 'resources_per_worker': {'TPU': 2}}", 4, 4, 16, "v6e-16"},
        {"{" TPU_V6E "'4x4', 'num_workers': 16, 'resources_per_worker': {'TPU': 2}}", 8, 4, 16, "v6e-16"},
        {"{" TPU_V6E "'4x4', 'num_workers': [4, 12]}", 4, 4, 16, "v6e-16"},
        {"{" TPU_V6E "'4x4', 'num_workers': 0}", 4, 4, 16, "v6e-16"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct demand demand = {0};
        ty_error err = {0};
        if (resolve(rows[i].config, &demand, &err) < 0) fail_msg("%s: %s", rows[i].config, err.message);
        assert_int_equal(demand.tpu.workers_per_slice, rows[i].workers);
        assert_int_equal(demand.tpu.hosts_per_slice, rows[i].hosts);
        assert_int_equal(demand.tpu.chips_per_slice, rows[i].chips);
        assert_string_equal(demand.tpu.pod_type, rows[i].pod_type);
        demand_done(&demand);
    }
}

static void tpu_units_multiply(void **state) {
    (void)state;
    struct demand demand = {0};
    ty_error err = {0};
    (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", "2", 1);
    const char *config =
        "{'use_tpu': true, 'accelerator_type': 'TPU-V7X', 'topology': '2x2x2', 'num_workers': 2}";
    assert_int_equal(resolve(config, &demand, &err), 0);
    assert_int_equal(resources_get(&demand.per_worker, "TPU"), 8 * QUANTITY_ONE);
    assert_int_equal(demand.tpu.workers_per_slice, 2);
    demand_done(&demand);
    (void)setenv("RAY_TPU_RESOURCE_PER_CHIP", "none", 1);
    assert_int_equal(resolve(config, &demand, &err), TY_EUSAGE);
    (void)unsetenv("RAY_TPU_RESOURCE_PER_CHIP");
}

static void selectors_are_for_all_or_for_each(void **state) {
    (void)state;
    struct demand demand = {0};
    ty_error err = {0};
    assert_int_equal(resolve("{'num_workers': 3, 'label_selector': {'zone': 'a'}}", &demand, &err), 0);
    assert_int_equal(demand.n_selectors, 1);
    demand_done(&demand);
    assert_int_equal(resolve("{'num_workers': 2, 'label_selector': [{'zone': 'a'}, {}]}", &demand, &err), 0);
    assert_int_equal(demand.n_selectors, 2);
    assert_int_equal(demand.selectors[0].n, 1);
    demand_done(&demand);
    assert_int_equal(resolve("{'num_workers': 2, 'label_selector': {}}", &demand, &err), 0);
    assert_int_equal(demand.n_selectors, 0);
    demand_done(&demand);
    assert_int_equal(resolve("{'use_tpu': true, 'label_selector': {'zone': 'a'}}", &demand, &err), 0);
    assert_int_equal(demand.n_selectors, 1);
    demand_done(&demand);
}

static void a_topology_strategy_names_a_domain(void **state) {
    (void)state;
    static const struct {
        const char *config, *domain;
        enum placement_strategy strategy;
    } rows[] = {
        {"{'topology_strategy': null}", NULL, PLACE_PACK},
        {"{'topology_strategy': {}, 'placement_strategy': 'SPREAD'}", NULL, PLACE_SPREAD},
        {"{'topology_strategy': {'gpu-domain': 'STRICT_PACK'}}", "gpu-domain", PLACE_PACK},
        {"{'topology_strategy': {'node-id': 'STRICT_SPREAD', 'ray.io/gpu-domain': 'STRICT_PACK'}}",
         "ray.io/gpu-domain", PLACE_STRICT_SPREAD},
        {"{'topology_strategy': {'ray.io/node-id': 'SPREAD'}}", NULL, PLACE_SPREAD},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct demand demand = {0};
        ty_error err = {0};
        if (resolve(rows[i].config, &demand, &err) < 0) fail_msg("%s: %s", rows[i].config, err.message);
        assert_int_equal(demand.strategy, rows[i].strategy);
        assert_true((demand.domain == NULL) == (rows[i].domain == NULL));
        if (rows[i].domain != NULL) assert_string_equal(demand.domain, rows[i].domain);
        demand_done(&demand);
    }
}

static void trainer_resources_are_reserved_and_warned_of(void **state) {
    (void)state;
    struct demand demand = {0};
    struct resources total = {0};
    ty_error err = {0};
    const char *config = "{'num_workers': 4, 'trainer_resources': {'CPU': 1, 'GPU': 0}}";
    assert_int_equal(resolve(config, &demand, &err), 0);
    assert_resources(config, &demand.trainer, "{\"CPU\": 1}");
    assert_int_equal(demand_total(&demand, 4, &total, &err), 0);
    assert_resources(config, &total, "{\"CPU\": 5}");
    assert_non_null(demand.deprecation);
    assert_non_null(strstr(demand.deprecation, "`trainer_resources` is deprecated"));
    assert_non_null(strstr(demand.deprecation, "49454"));
    resources_done(&total);
    demand_done(&demand);
    assert_int_equal(resolve("{'trainer_resources': null}", &demand, &err), 0);
    assert_true(demand.deprecation == NULL && demand.trainer.n == 0);
    demand_done(&demand);
    assert_int_equal(resolve("{'trainer_resources': {}}", &demand, &err), 0);
    assert_non_null(demand.deprecation);
    demand_done(&demand);
}

static void the_first_train_reserves_a_cpu(void **state) {
    (void)state;
    static const struct {
        const char *config, *total;
    } rows[] = {
        {"{'num_workers': 8}", "{\"CPU\": 9}"},
        {"{'num_workers': 8, 'trainer_resources': {'CPU': 0}}", "{\"CPU\": 8}"},
        {"{'num_workers': 2, 'use_gpu': true}", "{\"GPU\": 2, \"CPU\": 1}"},
        {"{'num_workers': 0}", "{\"CPU\": 1}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct demand demand = {0};
        struct resources total = {0};
        assert_int_equal(resolve_v(rows[i].config, true, &demand, NULL), 0);
        assert_int_equal(demand_total(&demand, demand.max_workers, &total, NULL), 0);
        assert_resources(rows[i].config, &total, rows[i].total);
        assert_null(demand.deprecation);
        resources_done(&total);
        demand_done(&demand);
    }
}

static void sharing_a_gpu_is_warned_of_where_nccl_may_be_used(void **state) {
    (void)state;
    static const struct {
        const char *config, *backend;
        bool warned;
    } rows[] = {
        {"{'num_workers': 2, 'use_gpu': true, 'resources_per_worker': {'GPU': 0.5}}", NULL, true},
        {"{'num_workers': [1, 2], 'use_gpu': true, 'resources_per_worker': {'GPU': 0.5}}", "nccl", true},
        {"{'num_workers': 2, 'use_gpu': true, 'resources_per_worker': {'GPU': 0.5}}", "cpu:gloo,cuda:nccl",
         true},
        {"{'num_workers': 2, 'use_gpu': true, 'resources_per_worker': {'GPU': 0.5}}", "gloo", false},
        {"{'num_workers': 2, 'use_gpu': true, 'resources_per_worker': {'GPU': 0.5}}", "cpu:nccl", false},
        {"{'num_workers': 1, 'use_gpu': true, 'resources_per_worker': {'GPU': 0.5}}", "nccl", false},
        {"{'num_workers': 2, 'use_gpu': true}", "nccl", false},
        {"{'num_workers': 2}", "nccl", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct demand demand = {0};
        assert_int_equal(resolve(rows[i].config, &demand, NULL), 0);
        const char *warning = demand_sharing_warning(&demand, rows[i].backend);
        if ((warning != NULL) != rows[i].warned) fail_msg("row %zu", i);
        if (warning != NULL) assert_non_null(strstr(warning, "NCCL"));
        demand_done(&demand);
    }
}

static void known_accelerator_types_are_accepted(void **state) {
    (void)state;
    static const char *const types[] = {
        "A100-40G",    "Intel-GPU-Max-1550", "AMD-Instinct-MI308X", "AMD-Instinct-MI308X-OAM",
        "Ascend910B4", "GeForce-RTX-4090",   "RTX-A6000",           "A30",
        "TPU-V6E",     "FURIOSA_RNGDPLUS",   "aws-neuron-core",     "Intel-GAUDI2",
    };
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        char config[128];
        struct demand demand = {0};
        ty_error err = {0};
        (void)snprintf(config, sizeof config, "{'accelerator_type': '%s'}", types[i]);
        if (resolve(config, &demand, &err) < 0) fail_msg("%s", err.message);
        demand_done(&demand);
    }
}

static void the_c_struct_says_the_same(void **state) {
    (void)state;
    const ty_label labels[] = {{"zone", "in(a,b)"}};
    const ty_label topology[] = {{"rack", "STRICT_PACK"}, {"node-id", "SPREAD"}};
    const ty_scaling_config config = {
        .num_workers = 4,
        .max_workers = 8,
        .use_gpu = true,
        .resources_per_worker = TY_RESOURCES({"CPU", 4}, {"GPU", 0.5}),
        .topology_strategy = topology,
        .n_topologies = 2,
        .accelerator_type = "A100",
        .label_selector = labels,
        .n_labels = 1,
        .elastic_resize_monitor_interval_s = 5,
    };
    struct scaling scaling;
    struct demand demand = {0};
    ty_error err = {0};
    scaling_init(&scaling);
    assert_int_equal(scaling_from_public(&scaling, &config, &err), 0);
    assert_int_equal(scaling_resolve(&scaling, false, &demand, &err), 0);
    assert_resources("struct", &demand.per_worker,
                     "{\"CPU\": 4, \"GPU\": 0.5, \"accelerator_type:A100\": 0.001}");
    assert_true(demand.elastic && demand.min_workers == 4 && demand.max_workers == 8);
    assert_true(scaling.elastic_resize_monitor_interval_s == 5);
    assert_int_equal(demand.strategy, PLACE_SPREAD);
    assert_string_equal(demand.domain, "rack");
    assert_int_equal(demand.n_selectors, 1);
    /* resolution leaves what was given */
    assert_int_equal(scaling.resources_per_worker.n, 2);
    demand_done(&demand);
    const ty_scaling_config plain = {0};
    assert_int_equal(scaling_from_public(&scaling, &plain, &err), 0);
    assert_true(!scaling.elastic && scaling.min_workers == 1 && scaling.max_workers == 1 &&
                !scaling.has_resources);
    scaling_done(&scaling);
}

static void bad_c_structs_are_refused(void **state) {
    (void)state;
    const ty_label no_value[] = {{"zone", NULL}};
    const ty_scaling_config bad[] = {
        {.resources_per_worker = TY_RESOURCES({"CPU", -1})},
        {.resources_per_worker = TY_RESOURCES({"CPU", 0.0 / 0.0})},
        {.resources_per_worker = TY_RESOURCES({"CPU", 1}, {"CPU", 2})},
        {.resources_per_worker = TY_RESOURCES({NULL, 1})},
        {.trainer_resources = TY_RESOURCES({"cpu", 1})},
        {.placement_strategy = "NEAR"},
        {.topology_strategy = no_value, .n_topologies = 1},
        {.n_topologies = 1},
        {.label_selector = no_value, .n_labels = 1},
        {.n_labels = 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct scaling scaling;
        ty_error err = {0};
        scaling_init(&scaling);
        if (scaling_from_public(&scaling, &bad[i], &err) != TY_EUSAGE) fail_msg("struct %zu was accepted", i);
        assert_true(err.message[0] != '\0');
        assert_null(scaling.selectors);
        scaling_done(&scaling);
    }
    struct scaling scaling;
    struct demand demand = {0};
    scaling_init(&scaling);
    assert_int_equal(scaling_from_public(&scaling, &(ty_scaling_config){.num_workers = -2}, NULL), 0);
    assert_int_equal(scaling_resolve(&scaling, false, &demand, NULL), TY_EUSAGE);
    scaling_done(&scaling);
}

static void worker_counts_of_the_command_line(void **state) {
    (void)state;
    static const char *const bad[] = {"",      "-1",  "x",  "4:", ":4",          "4:2",      "0:4",
                                      "4:8:9", "1.5", " 4", "4 ", "99999999999", "10000001", "1:10000001"};
    struct scaling scaling;
    scaling_init(&scaling);
    assert_int_equal(scaling_parse_workers(&scaling, "2:8", NULL), 0);
    assert_true(scaling.elastic && scaling.min_workers == 2 && scaling.max_workers == 8);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ty_error err = {0};
        if (scaling_parse_workers(&scaling, bad[i], &err) != TY_EUSAGE) fail_msg("\"%s\" was accepted", bad[i]);
    }
    assert_true(scaling.elastic && scaling.min_workers == 2 && scaling.max_workers == 8);
    assert_int_equal(scaling_parse_workers(&scaling, "4", NULL), 0);
    assert_true(!scaling.elastic && scaling.min_workers == 4 && scaling.max_workers == 4);
    assert_int_equal(scaling_parse_workers(&scaling, "0", NULL), 0);
    scaling_done(&scaling);
}

static void reading_keeps_what_is_absent_and_fails_whole(void **state) {
    (void)state;
    struct scaling scaling;
    scaling_init(&scaling);
    json_t *map = json_pack("{s:i, s:b}", "num_workers", 4, "use_gpu", 1);
    assert_int_equal(scaling_read(&scaling, map, NULL, NULL), 0);
    json_decref(map);
    map = json_pack("{s:s}", "topology", "4x4");
    assert_int_equal(scaling_read(&scaling, map, NULL, NULL), 0);
    assert_true(scaling.min_workers == 4 && scaling.use_gpu);
    json_decref(map);
    map = json_pack("{s:i, s:i}", "num_workers", 9, "use_gpu", 1);
    assert_int_equal(scaling_read(&scaling, map, NULL, NULL), TY_EUSAGE);
    assert_int_equal(scaling.min_workers, 4);
    json_decref(map);
    map = json_pack("{s:i}", "num_worker", 9);
    ty_error err = {0};
    assert_int_equal(scaling_read(&scaling, map, NULL, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, "num_workers"));
    json_decref(map);
    scaling_done(&scaling);
}

static void json_goes_in_and_comes_out(void **state) {
    (void)state;
    char *json = NULL;
    ty_error err = {0};
    const char *config =
        "{\"num_workers\": [4, 8], \"use_tpu\": true, \"topology\": \"4x4\", \"accelerator_type\": "
        "\"TPU-V6E\", \"trainer_resources\": {\"CPU\": 1}}";
    assert_int_equal(scaling_resolve_json(config, &json, &err), 0);
    json_t *root = json_loads(json, 0, NULL);
    free(json);
    int num, min, max, elastic, per_slice, slices;
    json_t *per_worker, *total, *trainer, *deprecations, *warnings;
    assert_int_equal(json_unpack(root, "{s:i, s:i, s:i, s:b, s:o, s:o, s:o, s:i, s:i, s:o, s:o !}",
                                 "num_workers", &num, "min_workers", &min, "max_workers", &max, "elastic",
                                 &elastic, "per_worker", &per_worker, "total", &total, "trainer", &trainer,
                                 "workers_per_slice", &per_slice, "slices", &slices, "deprecations",
                                 &deprecations, "warnings", &warnings),
                     0);
    assert_true(num == 8 && min == 4 && max == 8 && elastic && per_slice == 4 && slices == 2);
    assert_int_equal(json_integer_value(json_object_get(total, "TPU")), 32);
    assert_int_equal(json_integer_value(json_object_get(total, "CPU")), 9);
    assert_int_equal(json_array_size(deprecations), 1);
    assert_int_equal(json_array_size(warnings), 0);
    json_decref(root);
    static const char *const bad[] = {"", "[]", "{", "{\"num_workers\": NaN}", "nonsense", "{\"a\": 1}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        json = NULL;
        assert_int_equal(scaling_resolve_json(bad[i], &json, &err), TY_EUSAGE);
        assert_null(json);
    }
    assert_int_equal(scaling_resolve_json(NULL, &json, &err), TY_EUSAGE);
    assert_int_equal(scaling_resolve_json("{}", NULL, &err), TY_EUSAGE);
}

static void device_amounts_follow_their_vendor(void **state) {
    (void)state;
    static const struct {
        const char *resource;
        double amount;
        bool good;
    } rows[] = {
        {"TPU", 1, true},        {"TPU", 2, true},
        {"TPU", 4, true},        {"TPU", 8, true},
        {"TPU", 3, false},       {"TPU", 0.5, false},
        {"TPU", 16, false},      {"GPU", 0.5, true},
        {"GPU", 1.5, false},     {"GPU", 3, true},
        {"CPU", 1.5, true},      {"HPU", 0.5, false},
        {"HPU", 3, true},        {"neuron_cores", 0.1, false},
        {"MLU", 0.5, true},      {"RBLN", 1.5, false},
        {"FURIOSA", 0.5, false}, {"MBLT", 2, true},
        {"custom", 2.5, true},   {"TPU", 0, true},
        {"NPU", 1.0001, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        quantity amount = 0;
        assert_int_equal(quantity_from_double(rows[i].amount, "amount", &amount, NULL), 0);
        if ((accelerator_check_amount(rows[i].resource, amount, NULL) == 0) != rows[i].good)
            fail_msg("%s %g", rows[i].resource, rows[i].amount);
    }
    assert_int_equal(accelerator_check_amount("CPU", -1, NULL), TY_EUSAGE);
    assert_true(accelerator_is_device("GPU") && accelerator_is_device("MLU") && !accelerator_is_device("CPU"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_resolve_to_resources),
        cmocka_unit_test(bad_tpu_configs_say_what_is_wrong),
        cmocka_unit_test(bad_configs_say_what_is_wrong),
        cmocka_unit_test(the_earlier_row_wins),
        cmocka_unit_test(more_is_refused_than_upstream),
        cmocka_unit_test(messages_say_where),
        cmocka_unit_test(elastic_bounds_are_kept),
        cmocka_unit_test(slices_have_their_workers),
        cmocka_unit_test(tpu_units_multiply),
        cmocka_unit_test(selectors_are_for_all_or_for_each),
        cmocka_unit_test(a_topology_strategy_names_a_domain),
        cmocka_unit_test(trainer_resources_are_reserved_and_warned_of),
        cmocka_unit_test(the_first_train_reserves_a_cpu),
        cmocka_unit_test(sharing_a_gpu_is_warned_of_where_nccl_may_be_used),
        cmocka_unit_test(known_accelerator_types_are_accepted),
        cmocka_unit_test(the_c_struct_says_the_same),
        cmocka_unit_test(bad_c_structs_are_refused),
        cmocka_unit_test(worker_counts_of_the_command_line),
        cmocka_unit_test(reading_keeps_what_is_absent_and_fails_whole),
        cmocka_unit_test(json_goes_in_and_comes_out),
        cmocka_unit_test(device_amounts_follow_their_vendor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
