/* The module `driver` (symbol trainyard_driver): all that only the process that calls ty_fit needs.
 * libtrainyard loads it when first asked, so that a worker does not carry it. */
#ifndef WORKER_DRIVER_H
#define WORKER_DRIVER_H

#include <trainyard/run.h>
#include <trainyard/trainer.h>

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
    int (*run_checkpoint_metrics)(ty_run *run, uint64_t number, const char *metrics_json, ty_error *err);
    int (*run_stop)(ty_run *run, int signal_number);
    int (*run_close)(ty_run *run, ty_result **result, ty_error *err);
};

/* The name of a C training function that holds in another process of the same program: "BUILDID:OFFSET", the
 * build id of the object that holds it and its offset from where that object is loaded, both in hex. An object
 * without a build id goes by "file-HASH", a hash of its file. */

enum { WORKER_FUNCTION_SIZE = 192 };

/* TY_EUSAGE when the function lies in no loaded object. */
int worker_function_name(ty_train_function *function, char text[WORKER_FUNCTION_SIZE], ty_error *err);

/* The function of that name in this process. TY_EVERSION, naming both builds, when no loaded object has that
 * build id; TY_EUSAGE for a malformed name. */
int worker_function_find(const char *text, ty_train_function **function, ty_error *err);

/* What ty_result holds. The driver fills it; the getters need nothing but it. */

struct ty_result {
    char *name, *path; /* all pointers are owned, made with malloc */
    char *metrics;     /* last report of rank 0 as a JSON object, NULL without */
    struct result_metric {
        char *name;
        double value;
    } * values; /* the numbers among them */
    size_t n_values;
    char *checkpoint; /* directory of the last committed one, NULL without */
    char *summary;    /* the last word of a run that succeeded, in one line; NULL otherwise */
    char *failure;    /* the first cause on one screen, NULL after a success */
    int attempts, num_workers;
    struct ty_attempt_info *history; /* n_history of them; their texts are owned too */
    size_t n_history;
    int status; /* exit status for the command: a failed worker's own, or 128 + signal */
    int *exits; /* by rank: exit code, 128 + signal, -1 when never started */
    char *json; /* all of it, see ty_result_json */
};

/* The exit status with which the command ends after this run. */
int ty_result_status(const ty_result *result);

#endif
