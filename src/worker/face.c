/* The part of the public interface that only a driver uses: arguments are checked here, and the rest is done by
 * the module `driver`, which is loaded with the first of these calls. So the library that every worker loads
 * needs libc alone. */
#include <trainyard/cluster.h>
#include <trainyard/version.h>

#include "base/error.h"
#include "base/module.h"
#include "worker/driver.h"
#include "worker/worker.h"

const char *ty_version(void) {
    return TY_VERSION;
}

static const struct driver *loaded; /* whoever holds a run has loaded it */

/* Reports why through a ty_error of its own, since `err` may be NULL and the code is wanted all the same. */
static int load_driver(const struct driver **driver, ty_error *err) {
    ty_error failure = {0};
    if (loaded == NULL) loaded = module_load("driver", &failure);
    if (loaded == NULL) return ty_fail(err, failure.code, "%s", failure.message);
    *driver = loaded;
    return 0;
}

/* A config travels in one message to each node; with all else it must stay below the limit of a message. */
enum { CONFIG_MAX = 32 << 20 };

int ty_fit(const ty_trainer_config *trainer, ty_result **result, ty_error *err) {
    const struct driver *driver;
    if (trainer == NULL || result == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_fit: the %s is NULL", trainer == NULL ? "config" : "result");
    if (trainer->train == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_fit: train is NULL, but must be a training function");
    if (trainer->config == NULL && trainer->config_size > 0)
        return ty_fail(err, TY_EUSAGE, "ty_fit: config is NULL, but config_size is %zu", trainer->config_size);
    if (trainer->config_size > CONFIG_MAX)
        return ty_fail(err, TY_EUSAGE,
                       "ty_fit: config_size is %zu; allowed: up to %d bytes, so put what is larger into a file",
                       trainer->config_size, CONFIG_MAX);
    if (!worker_is_initialised())
        return ty_fail(err, TY_EUSAGE, "ty_fit: call ty_init(&argc, &argv) as the first line of main");
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->fit(trainer, result, err);
}

int ty_scaling_resolve(const char *config_json, char **resolved_json, ty_error *err) {
    const struct driver *driver;
    if (config_json == NULL || resolved_json == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_scaling_resolve: the %s is NULL",
                       config_json == NULL ? "config" : "result");
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->scaling_resolve(config_json, resolved_json, err);
}

int ty_cluster_nodes(const char *request_json, char **nodes_json, ty_error *err) {
    const struct driver *driver;
    if (request_json == NULL || nodes_json == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_cluster_nodes: the %s is NULL",
                       request_json == NULL ? "request" : "result");
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->cluster_nodes(request_json, nodes_json, err);
}

int ty_result_read(const char *path, ty_result **result, ty_error *err) {
    const struct driver *driver;
    if (path == NULL || result == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_result_read: the %s is NULL", path == NULL ? "path" : "result");
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->result_read(path, result, err);
}

int ty_run_check(const char *request_json, ty_error *err) {
    const struct driver *driver;
    if (request_json == NULL) return ty_fail(err, TY_EUSAGE, "ty_run_check: the request is NULL");
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->run_check(request_json, err);
}

int ty_storage_path(char **path, ty_error *err) {
    const struct driver *driver;
    if (path == NULL) return ty_fail(err, TY_EUSAGE, "ty_storage_path: the path is NULL");
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->storage_path(path, err);
}

int ty_run_open(const char *request_json, const void *payload, size_t payload_size, ty_run **run,
                ty_error *err) {
    const struct driver *driver;
    if (request_json == NULL || run == NULL)
        return ty_fail(err, TY_EUSAGE, "ty_run_open: the %s is NULL", request_json == NULL ? "request" : "run");
    if (payload == NULL && payload_size > 0)
        return ty_fail(err, TY_EUSAGE, "ty_run_open: payload is NULL, but payload_size is %zu", payload_size);
    if (payload_size > CONFIG_MAX)
        return ty_fail(
            err, TY_EUSAGE,
            "ty_run_open: payload_size is %zu; allowed: up to %d bytes, so put what is larger into a file",
            payload_size, CONFIG_MAX);
    int rc = load_driver(&driver, err);
    return rc < 0 ? rc : driver->run_open(request_json, payload, payload_size, run, err);
}

int ty_run_fork(int *control_fd, ty_error *err) {
    const struct driver *driver;
    if (control_fd == NULL) return ty_fail(err, TY_EUSAGE, "ty_run_fork: control_fd is NULL");
    int rc = load_driver(&driver, err);
    if (rc < 0) return rc;
    rc = driver->run_fork(control_fd, err);
    if (rc == 0) worker_forget(); /* in the copy: what this process is in a run its workers are not */
    return rc;
}

void ty_run_fork_drop(void) {
    if (loaded != NULL) loaded->run_fork_drop();
}

int ty_run_fd(const ty_run *run) {
    return loaded->run_fd(run);
}

int ty_run_timeout_ms(const ty_run *run) {
    return loaded->run_timeout_ms(run);
}

int ty_run_dispatch(ty_run *run, ty_error *err) {
    return loaded->run_dispatch(run, err);
}

int ty_run_next_event(ty_run *run, char **event_json) {
    return loaded->run_next_event(run, event_json);
}

int ty_run_checkpoint_metrics(ty_run *run, uint64_t number, const char *metrics_json, ty_error *err) {
    if (metrics_json == NULL) return ty_fail(err, TY_EUSAGE, "ty_run_checkpoint_metrics: the metrics are NULL");
    return loaded->run_checkpoint_metrics(run, number, metrics_json, err);
}

int ty_run_stop(ty_run *run, int signal_number) {
    return loaded->run_stop(run, signal_number);
}

int ty_run_close(ty_run *run, ty_result **result, ty_error *err) {
    return loaded->run_close(run, result, err);
}
