/* ty_cluster_nodes: what nodes a run would have, as JSON. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cluster/cluster.h"

static void assert_refused(const char *request, const char *part) {
    char *json = NULL;
    ty_error err = {0};
    assert_int_equal(cluster_nodes_json(request, &json, &err), TY_EUSAGE);
    assert_non_null(strstr(err.message, part));
    assert_null(json);
}

static json_t *ask(const char *request) {
    char *text = NULL;
    ty_error err = {0};
    if (cluster_nodes_json(request, &text, &err) < 0) fail_msg("%s", err.message);
    json_t *answer = json_loads(text, 0, NULL);
    assert_non_null(answer);
    free(text);
    return answer;
}

static json_t *first(json_t *answer) {
    return json_array_get(json_object_get(answer, "nodes"), 0);
}

static void test_bad_requests_are_refused(void **state) {
    (void)state;
    assert_refused("[]", "must be an object");
    assert_refused("{\"num_cpu\": 4}", "num_cpus");
    assert_refused("{\"num_cpus\": \"4\"}", "num_cpus must be a number");
    assert_refused("{\"num_gpus\": -1}", "0 or more");
    assert_refused("{\"node_resources\": 1}", "node_resources");
    assert_refused("{\"node_resources\": {\"a\": \"b\"}}", "a must be a number");
    assert_refused("{\"cluster\": 1}", "path of a cluster file");
    assert_refused("{\"cluster\": \"/nowhere\", \"num_cpus\": 1}", "give one of the two");
}

static void test_machine_has_what_it_is_told(void **state) {
    (void)state;
    json_t *answer = ask("{\"num_cpus\": 6, \"num_gpus\": 3, \"node_resources\": {\"special\": 2}}");
    json_t *node = first(answer), *resources = json_object_get(node, "resources");
    assert_int_equal(json_array_size(json_object_get(answer, "nodes")), 1);
    assert_float_equal(json_number_value(json_object_get(resources, "CPU")), 6, 0);
    assert_float_equal(json_number_value(json_object_get(resources, "GPU")), 3, 0);
    assert_float_equal(json_number_value(json_object_get(resources, "special")), 2, 0);
    assert_non_null(json_object_get(json_object_get(node, "available"), "special"));
    assert_true(strlen(json_string_value(json_object_get(node, "name"))) > 0);
    json_decref(answer);
}

static void test_nodes_of_a_file(void **state) {
    (void)state;
    char path[] = "/tmp/trainyard-test-nodes-XXXXXX", request[128];
    int fd = mkstemp(path);
    static const char text[] = "nodes: [{name: 'n[1-3]', resources: {CPU: 4, GPU: 2}, accelerator_type: A100, "
                               "labels: {zone: a}, available: {GPU: 1}}]\n";
    assert_int_equal(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    (void)close(fd);
    (void)snprintf(request, sizeof request, "{\"cluster\": \"%s\"}", path);
    json_t *answer = ask(request), *node = first(answer);
    (void)unlink(path);
    assert_int_equal(json_array_size(json_object_get(answer, "nodes")), 3);
    assert_string_equal(json_string_value(json_object_get(node, "name")), "n1");
    assert_string_equal(json_string_value(json_object_get(node, "accelerator_type")), "A100");
    assert_string_equal(json_string_value(json_object_get(json_object_get(node, "labels"), "zone")), "a");
    assert_float_equal(json_number_value(json_object_get(json_object_get(node, "available"), "GPU")), 1, 0);
    assert_float_equal(json_number_value(json_object_get(json_object_get(node, "resources"), "GPU")), 2, 0);
    json_decref(answer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_requests_are_refused),
        cmocka_unit_test(test_machine_has_what_it_is_told),
        cmocka_unit_test(test_nodes_of_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
