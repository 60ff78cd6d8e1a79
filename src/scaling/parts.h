/* What the files of this room share among themselves; others see scaling.h. A config goes read.c or scaling.c
 * (the faces), then resolve.c, which asks validate.c and slice.c on the way. At the end are the words of
 * messages, since one rule is told to a user of the command and to one of Python. */
#ifndef SCALING_PARTS_H
#define SCALING_PARTS_H

#include "base/error.h"
#include "scaling/scaling.h"

/* `*to` (NULL or owned) becomes a copy of `from`; -ENOMEM. */
int scaling_copy_text(char **to, const char *from);
int scaling_selectors_copy(struct label_selector **to, const struct label_selector *from, size_t n);
void scaling_selectors_done(struct label_selector *selectors, size_t n);

/* tpu_generation of the config's type, refused by its field. */
int scaling_generation(const struct scaling *scaling, char generation[16], ty_error *err);

/* Puts the field and its value before what placement_strategy_parse says. */
int scaling_wrap_strategy(const char *text, ty_error *err);

/* Adds an amount after the checks of 1.7; messages begin with the field. */
int scaling_set_amount(struct resources *resources, const char *field, const char *name, double amount,
                       ty_error *err);

/* The checks of docs/spec/train-api.md 1.2, rows 1-7, over what was given. */
int scaling_validate_first(const struct scaling *scaling, ty_error *err);
/* Rows 9-15 and those it calls not validated upstream; `per_worker` is what a worker holds. */
int scaling_validate_rest(const struct scaling *scaling, const struct resources *per_worker, ty_error *err);

/* The TPU slice that topology and type name, and how many workers one holds (row 8); `tpu` was zero. */
int scaling_resolve_slice(const struct scaling *scaling, struct tpu_demand *tpu, ty_error *err);
void scaling_slice_done(struct tpu_demand *tpu);
/* How messages call the fields of a scaling config and what is wrong with them, in the words of each face
 * (base/error.h). A message is one text with gaps, filled from this table. Pure. */

/* X(name, as fields, as options) */
#define SPELLINGS(X)                                                                              \
    X(SPELL_NUM_WORKERS, "`num_workers`", "--num-workers")                                        \
    X(SPELL_WORKERS, "num_workers", "N")                                                          \
    X(SPELL_MIN_WORKERS, "min_workers", "MIN")                                                    \
    X(SPELL_MAX_WORKERS, "max_workers", "MAX")                                                    \
    X(SPELL_RESOURCES, "`resources_per_worker`", "--resources")                                   \
    X(SPELL_TRAINER_RESOURCES, "`trainer_resources`", "--trainer-resources")                      \
    X(SPELL_PLACEMENT, "`placement_strategy`", "--placement")                                     \
    X(SPELL_TOPOLOGY_STRATEGY, "`topology_strategy`", "--topology-strategy")                      \
    X(SPELL_TYPE, "`accelerator_type`", "--accelerator-type")                                     \
    X(SPELL_INVALID_TYPE, "Invalid accelerator_type", "Invalid --accelerator-type")               \
    X(SPELL_TOPOLOGY, "`topology`", "--topology")                                                 \
    X(SPELL_SELECTOR, "`label_selector`", "--label-selector")                                     \
    X(SPELL_INTERVAL, "`elastic_resize_monitor_interval_s`", "--elastic-resize-monitor-interval") \
    X(SPELL_GPU, "`GPU`", "GPU")                                                                  \
    X(SPELL_USE_GPU, "`use_gpu=True`", "--use-gpu")                                               \
    X(SPELL_WITH_GPU, "`use_gpu` is True", "--use-gpu is given")                                  \
    X(SPELL_WITHOUT_GPU, "`use_gpu` is False", "--use-gpu is not given")                          \
    X(SPELL_GIVE_GPU, "set `use_gpu=True`", "give --use-gpu")                                     \
    X(SPELL_DROP_GPU, "set `use_gpu=False`", "leave out --use-gpu")                               \
    X(SPELL_TPU, "`TPU`", "TPU")                                                                  \
    X(SPELL_USE_TPU, "`use_tpu=True`", "--use-tpu")                                               \
    X(SPELL_WITH_TPU, "`use_tpu` is True", "--use-tpu is given")                                  \
    X(SPELL_WITHOUT_TPU, "`use_tpu` is False", "--use-tpu is not given")                          \
    X(SPELL_GIVE_TPU, "set `use_tpu=True`", "give --use-tpu")

enum spelling {
#define X(name, as_fields, as_options) name,
    SPELLINGS(X)
#undef X
};

const char *spelled(enum face face, enum spelling what);

#endif
