/* TPU arithmetic: generations, topologies, pod types, slices (spec/accelerators.md 2). Pure. */
#ifndef ACCELERATOR_TPU_H
#define ACCELERATOR_TPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct tpu_shape {
    char generation[16]; /* "v6e" */
    char pod_type[32];   /* "v6e-16" */
    int64_t chips, chips_per_host, hosts, cores_per_chip;
};

/* "TPU-V6E", "v6e", "tpu7x" -> "v6e", "v7x"; else TY_EUSAGE "Invalid accelerator_type". */
int tpu_generation(const char *accelerator_type, char generation[16], ty_error *err);
/* Product of the x-separated numbers; TY_EUSAGE for "", "4x", "x4", "axb". */
int tpu_chips(const char *topology, int64_t *chips, ty_error *err);
bool tpu_topology_valid(const char *generation, const char *topology);
/* All of 2.2 for a type and a topology; chips_per_vm 0 means the default. `validate` also demands a topology of 2.3. */
int tpu_shape_of(const char *accelerator_type, const char *topology, int64_t chips_per_vm, bool validate,
                 struct tpu_shape *shape, ty_error *err);
/* W: workers of one slice when each holds `chips_per_worker` chips; TY_EUSAGE "divide evenly" / "must be positive". */
int tpu_workers_per_slice(const struct tpu_shape *shape, int64_t chips_per_worker, int64_t *workers, ty_error *err);
/* From a pod type alone ("v4-8"): all its chips, and those that one host shows. */
int tpu_pod_chips(const char *pod_type, int64_t *chips, int64_t *chips_per_host, ty_error *err);

#endif
