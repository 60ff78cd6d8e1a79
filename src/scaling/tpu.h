/* TPU arithmetic: generations, topologies, pod types, slices (docs/spec/accelerators.md 2). Numbers and names
 * alone: which hosts there are is cluster's to know, and which make a slice placement's (placement/slices.c).
 * Pure, but for the variable of tpu_units_per_chip. */
#ifndef SCALING_TPU_H
#define SCALING_TPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/quantity.h"

struct tpu_shape {
    char generation[16]; /* "v6e" */
    char topology[40];   /* "4x4", lower case, no leading zeros */
    char pod_type[32];   /* "v6e-16" */
    int64_t chips, chips_per_host, hosts, cores_per_chip;
};

/* "TPU-V6E", "v6e", "tpu7x" -> "v6e", "v7x"; else TY_EUSAGE with those known. */
int tpu_generation(const char *accelerator_type, char generation[16], ty_error *err);
/* All of 2.2 for a type and a topology, x-separated positive numbers, four at most; chips_per_vm 0 means the
 * default, less is refused ("must be positive"). `validate` also demands a topology of 2.3. */
int tpu_shape_of(const char *accelerator_type, const char *topology, int64_t chips_per_vm, bool validate,
                 struct tpu_shape *shape, ty_error *err);
/* W: workers of one slice of `units` TPU when each holds `per_worker`; TY_EUSAGE "divide evenly" / "must be
 * positive". */
int tpu_workers_per_slice(quantity units, quantity per_worker, int64_t *workers, ty_error *err);

/* "tpu7x-16", "TPU-V6E-8" -> "v7x-16", "v6e-8"; TY_EUSAGE for what is no pod type. */
int tpu_pod_type(const char *text, char pod_type[32], ty_error *err);
/* From a pod type alone ("v4-8"): all its chips, and those that one host shows. */
int tpu_pod_chips(const char *pod_type, int64_t *chips, int64_t *chips_per_host, ty_error *err);
/* Hosts of a pod, seen from a host that shows `chips_on_host` chips. */
int tpu_pod_hosts(const char *pod_type, int64_t chips_on_host, int64_t *hosts, ty_error *err);

/* How many units of the resource TPU a chip counts as: RAY_TPU_RESOURCE_PER_CHIP, a positive number, else 1. */
int tpu_units_per_chip(int64_t *units, ty_error *err);

#endif
