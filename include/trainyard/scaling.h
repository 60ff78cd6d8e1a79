/* How many workers, and what each of them holds. */
#ifndef TRAINYARD_SCALING_H
#define TRAINYARD_SCALING_H

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/api.h>
#include <trainyard/error.h>
#include <trainyard/list.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One named amount: {"CPU", 4}, {"GPU", 0.5}, {"memory", 8e9} (bytes), {"my_resource", 1}. */
typedef struct ty_resource {
    const char *name;
    double amount;
} ty_resource;

typedef struct ty_resources {
    const ty_resource *items; /* NULL: not given */
    size_t n;
} ty_resources;

/* TY_RESOURCES({"CPU", 4}, {"GPU", 0.5}), the value of a ty_resources when it is made. */
#ifdef __cplusplus
#define TY_RESOURCES(...) TY_LIST(ty_resources, ty_resource, __VA_ARGS__)
#else
#define TY_RESOURCES(...) \
    { (const ty_resource[]){__VA_ARGS__}, sizeof((const ty_resource[]){__VA_ARGS__}) / sizeof(ty_resource) }
#endif

/* One label constraint: {"zone", "in(a,b)"}; forms "v", "!v", "in(a,b)", "!in(a,b)". */
typedef struct ty_label {
    const char *key;
    const char *value;
} ty_label;

/* Zero-initialised is the default config: one worker with one CPU. All pointers are borrowed during a call
 * only. */
typedef struct ty_scaling_config {
    int num_workers; /* 0: the default, 1 */
    int max_workers; /* elastic when larger than 0: num_workers is then the least */
    bool use_gpu;    /* one GPU a worker unless resources_per_worker says otherwise */
    bool use_tpu;
    ty_resources resources_per_worker; /* items NULL: by the rules of use_gpu and use_tpu, else {CPU: 1} */
    ty_resources trainer_resources;    /* deprecated; reserved beside rank 0 */
    const char *placement_strategy;    /* NULL: "PACK"; SPREAD, STRICT_PACK, STRICT_SPREAD */
    const char *accelerator_type;      /* e.g. "A100", "TPU-V6E"; NULL: any */
    const char *topology;              /* TPU slices, e.g. "4x4" */
    const ty_label *label_selector;    /* for every worker */
    size_t n_labels;
    double elastic_resize_monitor_interval_s; /* between two looks at the size of an elastic run; 0: 60 */
    const ty_label *topology_strategy; /* in place of placement_strategy: {"gpu-domain", "STRICT_PACK"} is
                                               * nodes that share one value of the label, {"node-id", "SPREAD"}
                                               * how workers lie on them */
    size_t n_topologies;
} ty_scaling_config;

/* The same, given and answered as JSON with the field names of Python's ScalingConfig.
 *
 * ty_scaling_resolve validates `config_json` and sets `*resolved_json` (the caller's to free()) to
 * {"num_workers": 2, "min_workers": 2, "max_workers": 2, "elastic": false, "per_worker": {..}, "total": {..},
 *  "trainer": {..}, "workers_per_slice": 0, "slices": 0, "deprecations": [".."], "warnings": [".."]}: lines for
 *  the
 * user, the last two. */
TY_API int ty_scaling_resolve(const char *config_json, char **resolved_json, ty_error *err);

#ifdef __cplusplus
}
#endif
#endif
