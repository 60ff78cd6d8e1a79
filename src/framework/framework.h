/* What a framework expects to find in a worker's environment. Plain sets rank, world size and addresses as
 * torchrun does; torch and mpi are the same, jax and tensorflow add to that, in a file each. Pure: works on a
 * plan. */
#ifndef FRAMEWORK_FRAMEWORK_H
#define FRAMEWORK_FRAMEWORK_H

#include "placement/plan.h"

struct framework_context {
    const struct plan *plan;
    const struct cluster *cluster;
    const struct demand *demand;
    const char *run_name;
    const char *run_path;
    const char *token;
    int attempt, max_failures;
    const char *master_address;
    uint16_t master_port;
    const char *const *addresses; /* of each rank's node; NULL: all have the master's */
    const uint16_t *ports;        /* a free one of each rank, 0 where none was to be had; NULL: none is known */
    bool isolate_devices;
    const char *backend; /* NULL: by default */
    /* What workers inherit (K=V, NULL-terminated): what is set there stays (OMP_NUM_THREADS, JAX_PLATFORMS). */
    char *const *user_environment;
};

struct framework {
    const char *name; /* "plain" */
    /* Variables alike for all workers, and those of one rank: `change` is called with each (value NULL
     * removes). */
    int (*shared)(const struct framework_context *context, environment_change *change, void *change_context,
                  ty_error *err);
    int (*worker)(const struct framework_context *context, size_t rank, environment_change *change,
                  void *change_context, ty_error *err);
    /* The command of `trainyard` that executes the program of each worker; NULL: it is executed itself. */
    const char *command;
};

/* "plain", "torch", "jax", "tensorflow" or "mpi"; TY_EUSAGE names what is allowed. NULL: plain. */
int framework_find(const char *name, const struct framework **framework, ty_error *err);

/* What the files of this room share: what every framework's workers find, whatever it is. */

extern const struct framework framework_plain, framework_torch, framework_jax, framework_tensorflow,
    framework_mpi;

/* What plain sets, for the others to add to. */
int plain_shared(const struct framework_context *context, environment_change *change, void *change_context,
                 ty_error *err);
int plain_worker(const struct framework_context *context, size_t rank, environment_change *change,
                 void *change_context, ty_error *err);

/* Where variables go, with the first failure kept. */
struct variables {
    environment_change *change;
    void *context;
    int result; /* 0, or what `change` answered */
};

void variables_set(struct variables *variables, const char *name, const char *value); /* NULL removes */
void variables_format(struct variables *variables, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 0, or -ENOMEM with its message. */
int variables_end(const struct variables *variables, ty_error *err);

/* The value that the user gave, NULL without. */
const char *framework_inherited(const struct framework_context *context, const char *name);

#endif
