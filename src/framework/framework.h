/* What a framework expects to find in a worker's environment. One file each: plain (rank, world size, addresses
 * as torchrun sets them), torch, jax (TPU and multi-slice variables), tensorflow, mpi. Pure: works on a
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
    const uint16_t *ports; /* a free one of each rank, 0 where none was to be had; NULL: none is known */
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

#endif
