/* The environment that a rank would get, for `trainyard plan --framework`: the framework's own functions, over
 * a context that has no run yet. Ports are chosen at the start of a run: others stand in their place, and
 * variables that hold one are marked so. */
#include "cli/command.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/environment.h"
#include "base/str.h"
#include "framework/framework.h"

#define CHOSEN "(chosen at the start)"
#define DIRECTORY "(the run's directory)"

/* Ports are chosen at the start, and whatever holds one with them. */
static int set(void *context, const char *name, const char *value) {
    static const char *const with_ports[] = {"MASTER_PORT", "TRAINYARD_PORT", "JAX_COORDINATOR_ADDRESS",
                                             "TF_CONFIG"};
    bool holds_port = str_find(name, with_ports, ARRAY_SIZE(with_ports)) >= 0;
    return environment_set(context, name, value != NULL && holds_port ? CHOSEN : value);
}

/* Ports of all ranks, in place of those that a run would have. The caller frees. */
static uint16_t *some_ports(const struct plan_environment *view, ty_error *err) {
    uint16_t *ports = calloc(view->plan->n_workers + 1, sizeof *ports);
    if (ports == NULL) (void)ty_fail_memory(err);
    for (size_t rank = 0; ports != NULL && rank < view->plan->n_workers; rank++)
        ports[rank] = 1;
    return ports;
}

/* All that the run sets for one rank. */
static int make(const struct plan_environment *view, size_t rank, const uint16_t *ports,
                struct environment *out, ty_error *err) {
    const struct framework *framework;
    /* The same functions as for a run, so that what is shown cannot differ from what is set. */
    const struct framework_context context = {
        .plan = view->plan,
        .cluster = view->cluster,
        .demand = view->demand,
        .run_name = view->settings->name != NULL ? view->settings->name : CHOSEN,
        .run_path = DIRECTORY,
        .token = CHOSEN,
        .attempt = 1,
        .max_failures = view->settings->failures.max_failures,
        .master_address = view->master_address != NULL ? view->master_address : CHOSEN,
        .ports = ports,
        .isolate_devices = view->settings->isolate_devices,
        .backend = view->settings->backend,
        .user_environment = environ,
    };
    int result = framework_find(view->settings->framework, &framework, err);
    if (result >= 0) result = framework->shared(&context, set, out, err);
    return result < 0 ? result : framework->worker(&context, rank, set, out, err);
}

int plan_environment_text(const struct plan_environment *view, struct buffer *out, ty_error *err) {
    CLEANUP_FREE uint16_t *ports = some_ports(view, err);
    if (ports == NULL) return -ENOMEM;
    for (size_t rank = 0; rank < view->plan->n_workers; rank++) {
        CLEANUP(environment_done) struct environment environment = {0};
        int result = make(view, rank, ports, &environment, err);
        if (result < 0) return result;
        const struct plan_worker *worker = &view->plan->workers[rank];
        buffer_printf(out, "\nrank %zu on %s", rank, view->cluster->nodes[worker->node].name);
        if (worker->slice >= 0)
            buffer_printf(out, ", slice %d: %s", worker->slice, view->plan->slices[worker->slice].name);
        buffer_char(out, '\n');
        for (size_t i = 0; i < environment.n; i++)
            buffer_printf(out, "  %s\n", environment.items[i]);
    }
    return 0;
}

int plan_environment_json(const struct plan_environment *view, struct buffer *json, ty_error *err) {
    CLEANUP_FREE uint16_t *ports = some_ports(view, err);
    if (ports == NULL) return -ENOMEM;
    json_t *tree = json_loadb(json->data, json->size, 0, NULL), *workers = json_object_get(tree, "workers");
    int result = tree == NULL ? -ENOMEM : 0;
    for (size_t rank = 0; rank < json_array_size(workers) && result >= 0; rank++) {
        CLEANUP(environment_done) struct environment environment = {0};
        json_t *map = json_object();
        result = make(view, rank, ports, &environment, err);
        for (size_t i = 0; i < environment.n && result >= 0; i++) {
            char *equals = strchr(environment.items[i], '=');
            *equals = '\0';
            if (json_object_set_new(map, environment.items[i], json_string(equals + 1)) < 0) result = -ENOMEM;
            *equals = '=';
        }
        if (result >= 0 && json_object_set(json_array_get(workers, rank), "env", map) < 0) result = -ENOMEM;
        json_decref(map);
    }
    if (result >= 0) return cli_json_put(tree, json, err);
    json_decref(tree);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}
