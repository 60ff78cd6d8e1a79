/* The options that `run` and `plan` share: how many workers, what each needs, and which nodes there are. */
#ifndef CLI_SCALING_OPTIONS_H
#define CLI_SCALING_OPTIONS_H

#include "cli/config_file.h"
#include "cli/options.h"
#include "cluster/cluster.h"
#include "scaling/scaling.h"

/* Target of scaling_group. */
struct scaling_options {
    struct scaling scaling;
    struct config_file file;
    struct run_settings settings;                          /* the standard ones, then those of the file */
    const char *config;                                    /* its path */
    bool own_resources, own_trainer_resources, own_labels; /* an option replaced what the file said */
};

/* Target of cluster_group. */
struct cluster_options {
    const char *engine; /* NULL: auto */
    const char *cluster_file;
    struct cluster_overrides overrides;
    const char **slurm_options; /* owned; NULL-terminated; NULL: none */
    size_t n_slurm_options;
};

extern const struct option_group scaling_group, cluster_group;

/* The defaults; then the file of --config, when it is among the arguments. */
int scaling_options_init(struct scaling_options *options, const struct arguments *arguments, ty_error *err);
void scaling_options_done(struct scaling_options *options);

void cluster_options_init(struct cluster_options *options);
void cluster_options_done(struct cluster_options *options);
/* Options that do not go together. */
int cluster_options_check(const struct cluster_options *options, ty_error *err);

/* RAY_TRAIN_V2_ENABLED=0 asks for the defaults of the first version (docs/design.md 5.4). */
bool scaling_train_v1(void);

#endif
