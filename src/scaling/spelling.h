/* How messages call the fields of a scaling config and what is wrong with them, in the words of each face
 * (base/face.h). A message is one text with gaps, filled from this table. Pure. */
#ifndef SCALING_SPELLING_H
#define SCALING_SPELLING_H

#include "base/face.h"

/* X(name, as fields, as options) */
#define SPELLINGS(X)                                                                              \
    X(SPELL_NUM_WORKERS, "`num_workers`", "--num-workers")                                        \
    X(SPELL_WORKERS, "num_workers", "N")                                                          \
    X(SPELL_MIN_WORKERS, "min_workers", "MIN")                                                    \
    X(SPELL_MAX_WORKERS, "max_workers", "MAX")                                                    \
    X(SPELL_RESOURCES, "`resources_per_worker`", "--resources")                                   \
    X(SPELL_TRAINER_RESOURCES, "`trainer_resources`", "--trainer-resources")                      \
    X(SPELL_PLACEMENT, "`placement_strategy`", "--placement")                                     \
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
