/* The module `driver` (symbol trainyard_driver): all that only the process that calls ty_fit needs.
 * libtrainyard loads it when first asked, so that a worker does not carry it. */
#ifndef WORKER_DRIVER_H
#define WORKER_DRIVER_H

#include <trainyard/run.h>

struct driver {
    const char *version; /* base_build */
    int (*fit)(const ty_trainer_config *trainer, ty_result **result, ty_error *err);
    int (*scaling_resolve)(const char *config_json, char **resolved_json, ty_error *err);
    int (*cluster_nodes)(const char *request_json, char **nodes_json, ty_error *err);
    int (*result_read)(const char *path, ty_result **result, ty_error *err);
    int (*run_check)(const char *request_json, ty_error *err);
    int (*storage_path)(char **path, ty_error *err);
    int (*run_open)(const char *request_json, const void *payload, size_t payload_size, ty_run **run,
                    ty_error *err);
    int (*run_fd)(const ty_run *run);
    int (*run_timeout_ms)(const ty_run *run);
    int (*run_dispatch)(ty_run *run, ty_error *err);
    int (*run_next_event)(ty_run *run, char **event_json);
    int (*run_fork)(int *control_fd, ty_error *err);
    void (*run_fork_drop)(void);
    int (*run_stop)(ty_run *run, int signal_number);
    int (*run_close)(ty_run *run, ty_result **result, ty_error *err);
};

#endif
