/* The scaling config as given, and the demand that it resolves to (docs/spec/train-api.md 1,
 * docs/spec/accelerators.md 2.12). The config says what the user wrote; the demand says what each worker holds,
 * and is what all other rooms read. No node is looked at here. Pure, but for the variables of Ray's that change
 * the rules (RAY_TPU_RESOURCE_PER_CHIP). */
#ifndef SCALING_SCALING_H
#define SCALING_SCALING_H

#include <jansson.h>
#include <trainyard/scaling.h>

#include "base/document.h"
#include "base/error.h"
#include "base/quantity.h"
#include "scaling/label.h"

/* X(name, text) */
#define PLACEMENT_STRATEGIES(X)         \
    X(PLACE_PACK, "PACK")               \
    X(PLACE_SPREAD, "SPREAD")           \
    X(PLACE_STRICT_PACK, "STRICT_PACK") \
    X(PLACE_STRICT_SPREAD, "STRICT_SPREAD")

enum placement_strategy {
#define X(name, text) name,
    PLACEMENT_STRATEGIES(X)
#undef X
};

const char *placement_strategy_name(enum placement_strategy strategy);
/* Fails with "must be ...", without the name of what it is the value of. */
int placement_strategy_parse(const char *text, enum placement_strategy *strategy, ty_error *err);

enum { SCALING_MAX_WORKERS = 10 * 1000 * 1000 };

/* What the user wrote, in the field names of ScalingConfig; nothing derived. scaling_init gives the
 * defaults. */
struct scaling {
    enum face face;                   /* through which it came, for messages */
    int64_t min_workers, max_workers; /* equal unless elastic; 0 is local mode */
    bool elastic;
    bool use_gpu, use_tpu;
    bool has_resources;                    /* resources_per_worker was given, if only as {} */
    struct resources resources_per_worker; /* as given: zeros kept */
    bool has_trainer_resources;
    struct resources trainer_resources;
    enum placement_strategy placement_strategy;
    struct topology_strategy { /* in its place: placement by labels (docs/spec/placement.md 3.1) */
        bool given;
        enum placement_strategy nodes; /* on the nodes of one domain, or of all */
        char *domain;                  /* the label in whose value they agree; owned, NULL when none is named */
    } topology_strategy;
    char *accelerator_type;           /* owned, NULL when not given */
    char *topology;                   /* owned, NULL when not given */
    struct label_selector *selectors; /* owned array */
    size_t n_selectors;
    bool selector_per_worker; /* a list was given, one selector a worker; else one selector (or none) for all */
    double elastic_resize_monitor_interval_s;
};

void scaling_init(struct scaling *scaling);
void scaling_done(struct scaling *scaling);
int scaling_copy(struct scaling *to, const struct scaling *from); /* `to` held nothing; -ENOMEM */

/* Fields from the tree of a config file or a JSON text with Python's field names (num_workers: 4 or [2, 8],
 * ...). Fields that are absent keep their value. `document` (may be NULL) gives places for messages. */
int scaling_read(struct scaling *scaling, const json_t *map, const struct document *document, ty_error *err);
int scaling_from_public(struct scaling *scaling, const ty_scaling_config *config, ty_error *err);
/* "4" or "2:8", as -n takes it; fails with "must be ...". */
int scaling_parse_workers(struct scaling *scaling, const char *text, ty_error *err);

/* One entry of `topology_strategy`: node-id and a strategy, or the label of the domains and STRICT_PACK. */
int scaling_add_topology(struct scaling *scaling, const char *label, const char *strategy, ty_error *err);
void scaling_forget_topology(struct scaling *scaling); /* as if it was not given */

/* What the workers need, all of it resolved and checked. */
struct demand {
    enum face face; /* of the scaling config */
    size_t min_workers, max_workers;
    bool elastic;
    struct resources per_worker; /* no zeros; with accelerator_type:<T> = 0.001 where a type was given */
    struct resources trainer;    /* beside rank 0; empty by default */
    enum placement_strategy strategy;
    char *domain;           /* a label in whose value all nodes agree; NULL: none */
    char *accelerator_type; /* NULL: any */
    struct label_selector *selectors;
    size_t n_selectors; /* 0: none; 1: for every worker; else one a worker */
    struct tpu_demand { /* use_tpu with topology and type; else workers_per_slice is 0 */
        char *topology, *generation, *pod_type; /* "4x4", "v6e", "v6e-16" */
        int64_t chips_per_host, hosts_per_slice, chips_per_slice;
        int64_t workers_per_slice; /* W, or H: one each host (docs/spec/train-api.md 1.6) */
    } tpu;
    char *deprecation; /* a line for the user: trainer_resources; NULL: none */
    char *warning;     /* likewise: a field that has no effect */
};

/* Checks in the order of docs/spec/train-api.md 1.2 and resolves per 1.4; `scaling` is never changed.
 * `train_v1` is RAY_TRAIN_V2_ENABLED=0 (docs/design.md 5.4). */
int scaling_resolve(const struct scaling *scaling, bool train_v1, struct demand *demand, ty_error *err);
/* What ty_scaling_resolve of <trainyard/scaling.h> does. */
int scaling_resolve_json(const char *config_json, char **resolved_json, ty_error *err);
void demand_done(struct demand *demand);

/* A line for the user where workers who talk through `backend` ("gloo", "nccl", or one for each kind of
 * device as in "cpu:gloo,cuda:nccl"; NULL: NCCL for those who hold GPUs) may find themselves on one GPU,
 * which NCCL refuses; else NULL. */
const char *demand_sharing_warning(const struct demand *demand, const char *backend);

/* Per-worker amounts times `workers`, plus the trainer's. */
int demand_total(const struct demand *demand, size_t workers, struct resources *total, ty_error *err);

#endif
