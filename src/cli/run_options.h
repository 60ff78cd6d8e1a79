/* The options that say what is run, and on what: of `run`, `plan`, `submit`, `kube` and `torchrun`. Each group
 * has its target, and a file of its own. A target begins with the defaults, then what the config file says is
 * set in it, then the options, in the order in which they were given. */
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include "base/document.h"
#include "base/environment.h"
#include "base/error.h"
#include "cli/options.h"
#include "cluster/cluster.h"
#include "engine/engine.h"
#include "engine/slurm.h"
#include "run/settings.h"
#include "scaling/scaling.h"

/* -- the file of --config: what is given here by options, in YAML or JSON, with the field names of Python */

enum { CONFIG_FILE_MAX = 1 << 20 };

/* What was read; zero-initialised is no file. */
struct config_file {
    struct document *document; /* owned; texts of the settings are borrowed from it */
    char **environment;        /* "K=V" of worker_runtime_env.env_vars, n of them; owned */
    size_t n_environment;
};

/* Reads the fields of ScalingConfig from the top level, or from `scaling_config` when the file has the sections
 * `scaling_config` and `run_config`. Both targets are initialised; fields that are absent keep their value. */
int config_file_read(const char *path, struct config_file *file, struct scaling *scaling,
                     struct run_settings *settings, ty_error *err);
void config_file_done(struct config_file *file);

/* A variable name that a user may set for workers: TY_EUSAGE for what is no name, and for those that Trainyard
 * sets. */
int config_check_variable(const char *name, ty_error *err);

/* -- how many workers, what each needs, and which nodes there are */

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
    struct text_list slurm_options;
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

/* -- several machines, on each of which the same command is started */

/* Target of the group. */
struct join_options {
    struct engine_options options;
    const char *key_file;
    struct hosts hosts;
};

extern const struct option_group join_group;

/* Setters of --nnodes and --node-rank: struct engine_options. */
int option_nodes(const struct option_spec *option, void *target, const char *value, ty_error *err);
int option_node_rank(const struct option_spec *option, void *target, const char *value, ty_error *err);

void join_options_init(struct join_options *join);
/* Reads the key, and checks what belongs together. */
int join_options_finish(struct join_options *join, const struct cluster_options *cluster, ty_error *err);
/* A node of another rank than 0: serves the controller of that one; the run's exit status. `run`: as its user
 * named it; NULL. */
int join_options_serve(const struct engine_options *nodes, const char *run, const char *command,
                       const struct cluster_overrides *overrides);

/* -- how the run is named, bounded, stored and shown: the rows of run/settings.def; what workers inherit */

/* What workers find. Later ones win: variables of this process, those of the config file (NULL-terminated; may
 * be NULL), those given. `*made` is the caller's. */
int run_environment_make(const struct text_list *given, char *const *file, struct environment *made,
                         ty_error *err);

/* Target of both groups. */
struct run_options {
    struct run_settings settings;
    struct text_list environment; /* "K=V" of --env, in the order given */
};

extern const struct option_group run_group, run_policy_group;

struct words;

/* Of a program that calls fit() itself: TY_EUSAGE for an option, of the command's groups, that is for the
 * program to say. */
int fit_check(const struct arguments *arguments, const struct option_group *const *groups, ty_error *err);
/* What --env and --storage-path come to for it: appended as "K=V". */
int fit_variables(const struct arguments *arguments, struct words *variables, ty_error *err);

/* Drives the run, and tells its end in the name of the command: the exit status. `arguments`: of the command
 * line that goes on with it. Of a success torchrun is silent, and so is `torchrun` here. */
struct run_request;
int run_to_its_end(const char *command, const struct run_request *request, const struct arguments *arguments,
                   ty_error *err);

/* -- what Slurm would be asked for, and on what it would be planned: for `plan` and `submit` */

struct slurm_view {
    struct slurm_site site;       /* the partition's nodes; inside an allocation what was granted */
    struct slurm_request request; /* of no lines inside an allocation */
    bool inside;
};

/* Looks at the nodes, then makes the request; `view` was zero-initialised, and is the caller's also after a
 * failure. */
int slurm_view_look(const struct cluster_options *options, const struct demand *demand, struct slurm_view *view,
                    ty_error *err);
int slurm_view_ask(const struct cluster_options *options, const struct demand *demand, struct slurm_view *view,
                   ty_error *err);
void slurm_view_done(struct slurm_view *view);

/* The request line by line, each with its reason. */
void slurm_view_text(const struct slurm_view *view, struct buffer *out);
/* Adds "request" to the object of a plan: a list of {"option", "value", "why"}. */
int slurm_view_json(const struct slurm_view *view, struct buffer *json, ty_error *err);

#endif
