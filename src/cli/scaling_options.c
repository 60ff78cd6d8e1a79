/* Options of the scaling config and of the cluster. A list option given several times adds up; a plain one
 * counts the last time; both replace what the config file says. What goes together is checked by the room
 * scaling. */
#include "cli/run_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"
#include "controller/site.h"
#include "scaling/device.h"

static int set_workers(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return scaling_parse_workers(&((struct scaling_options *)target)->scaling, value, err);
}

static int set_owned(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    char **field = (void *)((char *)target + option->offset);
    if (*value == '\0') return ty_fail(err, TY_EUSAGE, "must not be empty");
    char *copy = strdup(value);
    if (copy == NULL) return ty_fail_memory(err);
    free(*field);
    *field = copy;
    return 0;
}

/* Adds to a list of amounts, whose names must be fit for resources. */
static int parse_amounts(struct resources *resources, const char *value, ty_error *err) {
    if (*value == '\0') return ty_fail(err, TY_EUSAGE, "must not be empty: NAME=AMOUNT, as in CPU=4,GPU=0.5");
    int result = resources_parse(resources, value, err);
    for (size_t i = 0; i < resources->n && result >= 0; i++)
        result = resource_check_name(resources->items[i].name, err);
    return result;
}

/* The first time, what the file said is dropped. */
static int add_resources(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    struct scaling_options *options = target;
    struct resources *resources = (void *)((char *)target + option->offset);
    bool trainer = resources == &options->scaling.trainer_resources;
    bool *own = trainer ? &options->own_trainer_resources : &options->own_resources;
    if (!*own) resources_done(resources);
    *own = true;
    *(trainer ? &options->scaling.has_trainer_resources : &options->scaling.has_resources) = true;
    return parse_amounts(resources, value, err);
}

static int set_placement(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return placement_strategy_parse(value, &((struct scaling_options *)target)->scaling.placement_strategy,
                                    err);
}

struct topology_reader {
    struct scaling *scaling;
    ty_error *err;
};

static int add_topology(void *context, char *piece) {
    struct topology_reader *reader = context;
    char *equals = strchr(piece, '=');
    if (equals == NULL)
        return ty_fail(reader->err, TY_EUSAGE,
                       "must be LABEL=STRICT_PACK, as in gpu-domain=STRICT_PACK,node-id=SPREAD");
    *equals = '\0';
    return scaling_add_topology(reader->scaling, piece, equals + 1, reader->err);
}

static int set_topology(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    struct topology_reader reader = {&((struct scaling_options *)target)->scaling, err};
    scaling_forget_topology(reader.scaling);
    int result = str_split(value, ',', add_topology, &reader);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* One selector for all workers: a list of them, one each, can stand in a file alone, and is dropped with what
 * else that said of labels. */
static int set_labels(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    struct scaling_options *options = target;
    struct scaling *scaling = &options->scaling;
    if (!options->own_labels) {
        for (size_t i = 0; i < scaling->n_selectors; i++)
            label_selector_done(&scaling->selectors[i]);
        free(scaling->selectors);
        scaling->selectors = NULL;
        scaling->n_selectors = 0;
        scaling->selector_per_worker = false;
    }
    options->own_labels = true;
    if (scaling->n_selectors == 0) {
        scaling->selectors = calloc(1, sizeof *scaling->selectors);
        if (scaling->selectors == NULL) return ty_fail_memory(err);
        scaling->n_selectors = 1;
    }
    return label_selector_parse(&scaling->selectors[0], value, err);
}

static int set_interval(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    nanoseconds interval = 0;
    int result = duration_parse(value, &interval, err);
    if (result < 0) return result;
    ((struct scaling_options *)target)->scaling.elastic_resize_monitor_interval_s = duration_seconds(interval);
    return 0;
}

#define X(name, text) text,
static const char *const strategies[] = {PLACEMENT_STRATEGIES(X) NULL};
#undef X

#define AT(field) offsetof(struct scaling_options, scaling.field)

static const struct option_spec scaling_specs[] = {
    {"num-workers", 'n', "N|MIN:MAX",
     "how many workers; MIN:MAX takes as many as fit, at least MIN (default: 1)", set_workers, 0, NULL},
    {"use-gpu", 0, NULL, "each worker holds a GPU, or as many as --resources says", option_flag, AT(use_gpu),
     NULL},
    {"use-tpu", 0, NULL, "each worker holds the TPU chips of a host, or as many as --resources says",
     option_flag, AT(use_tpu), NULL},
    {"topology", 0, "T", "topology of the TPU slices: 4x4, 2x2x2", set_owned, AT(topology), NULL},
    {"accelerator-type", 0, "X",
     "only nodes with this accelerator: A100, TPU-V6E; `trainyard accelerators types` lists the known ones",
     set_owned, AT(accelerator_type), NULL},
    {"resources", 0, "NAME=AMOUNT[,...]",
     "what each worker needs: CPU=4,GPU=0.5,memory=8GiB,custom=1 (default: CPU=1, with --use-gpu GPU=1)",
     add_resources, AT(resources_per_worker), NULL},
    {"placement", 0, "PACK|SPREAD|STRICT_PACK|STRICT_SPREAD",
     "workers together on few nodes or apart on many; STRICT refuses what cannot be so (default: PACK)",
     set_placement, 0, strategies},
    {"topology-strategy", 0, "LABEL=STRICT_PACK[,node-id=STRATEGY]",
     "only nodes that share one value of the label, as one rack; node-id says how workers lie on them "
     "(default: PACK); in place of --placement",
     set_topology, 0, NULL},
    {"label-selector", 0, "KEY=VALUE[,...]",
     "only nodes with these labels; VALUE may be !v, in(a,b) or !in(a,b)", set_labels, 0, NULL},
    {"elastic-resize-monitor-interval", 0, "DURATION",
     "with MIN:MAX workers, the time between two looks at whether more would fit (default: 60s)", set_interval,
     0, NULL},
    {"trainer-resources", 0, "NAME=AMOUNT[,...]", "reserved beside rank 0 (deprecated)", add_resources,
     AT(trainer_resources), NULL},
    {"config", 0, "FILE",
     "YAML or JSON with the fields of ScalingConfig, or with the sections scaling_config and run_config; "
     "options win over it",
     option_text, offsetof(struct scaling_options, config), NULL},
};
const struct option_group scaling_group = {"Scaling", scaling_specs, ARRAY_SIZE(scaling_specs)};

/* The file comes before the options, wherever --config stands among them: what it says is a default that they
 * replace. */
int scaling_options_init(struct scaling_options *options, const struct arguments *arguments, ty_error *err) {
    *options = (struct scaling_options){0};
    scaling_init(&options->scaling);
    options->scaling.face = FACE_COMMAND;
    int result = site_settings(&options->settings, err);
    const char *path = options_value(arguments, "config");
    if (result < 0 || path == NULL) return result;
    if (*path == '\0') return ty_fail(err, TY_EUSAGE, "--config '': must not be empty");
    options->scaling.face = FACE_FIELDS; /* as the file has them */
    result = config_file_read(path, &options->file, &options->scaling, &options->settings, err);
    if (result < 0) scaling_options_done(options);
    return result;
}

void scaling_options_done(struct scaling_options *options) {
    scaling_done(&options->scaling);
    config_file_done(&options->file);
}

enum { MAX_COUNT = 1000000000 };

static int set_count(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int64_t number = 0;
    int result = option_whole(value, 0, MAX_COUNT, &number, err);
    if (result == 0) *(double *)(void *)((char *)target + option->offset) = (double)number;
    return result;
}

/* Whole, as all that a node has is (docs/spec/accelerators.md 1.4). */
static int set_node_resources(const struct option_spec *option, void *target, const char *value,
                              ty_error *err) {
    (void)option;
    struct resources *resources = &((struct cluster_options *)target)->overrides.node_resources;
    int result = parse_amounts(resources, value, err);
    for (size_t i = 0; i < resources->n && result >= 0; i++)
        if (resources->items[i].amount % QUANTITY_ONE != 0)
            result =
                ty_fail(err, TY_EUSAGE, "%.80s must be a whole number on a node", resources->items[i].name);
    return result;
}

static int set_engine(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    static const char *const names[] = {"auto", "local", "slurm"};
    char hint[STR_HINT_SIZE];
    (void)option;
    if (str_find(value, names, ARRAY_SIZE(names)) < 0)
        return ty_fail(err, TY_EUSAGE, "must be auto, local or slurm%s",
                       str_hint(value, names, ARRAY_SIZE(names), hint));
    ((struct cluster_options *)target)->engine = value;
    return 0;
}

static int add_slurm_option(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    if (*value == '\0') return ty_fail(err, TY_EUSAGE, "must be NAME=VALUE, as in partition=gpu");
    return option_texts(option, target, value, err);
}

#define OVERRIDE(field) offsetof(struct cluster_options, overrides.field)

static const struct option_spec cluster_specs[] = {
    {"engine", 0, "auto|local|slurm",
     "where agents run: on this machine, or on the nodes of a Slurm allocation (default: auto, which is slurm "
     "inside an allocation of several nodes)",
     set_engine, 0, NULL},
    {"slurm-option", 0, "NAME=VALUE",
     "an option of sbatch as it is, in place of the one that would be asked for: partition=gpu, time=2:00:00; "
     "may be given many times",
     add_slurm_option, offsetof(struct cluster_options, slurm_options), NULL},
    {"cluster", 0, "FILE", "nodes from a cluster file instead of this machine; `run` gives each an agent here",
     option_text, offsetof(struct cluster_options, cluster_file), NULL},
    {"num-cpus", 0, "N", "CPUs of this machine, instead of those found", set_count, OVERRIDE(num_cpus), NULL},
    {"num-gpus", 0, "N", "GPUs of this machine, instead of those found; may be more than there are", set_count,
     OVERRIDE(num_gpus), NULL},
    {"node-resources", 0, "NAME=AMOUNT[,...]", "other resources of this machine, added or replaced",
     set_node_resources, 0, NULL},
};
const struct option_group cluster_group = {"Cluster", cluster_specs, ARRAY_SIZE(cluster_specs)};

void cluster_options_init(struct cluster_options *options) {
    *options = (struct cluster_options){.overrides = {.num_cpus = -1, .num_gpus = -1}};
}

void cluster_options_done(struct cluster_options *options) {
    resources_done(&options->overrides.node_resources);
    text_list_done(&options->slurm_options);
}

int cluster_options_check(const struct cluster_options *options, ty_error *err) {
    if (options->cluster_file == NULL) return 0;
    const char *other = options->overrides.num_cpus >= 0          ? "num-cpus"
                        : options->overrides.num_gpus >= 0        ? "num-gpus"
                        : options->overrides.node_resources.n > 0 ? "node-resources"
                                                                  : NULL;
    if (other == NULL) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "--%s says what this machine has, --cluster %.200s replaces it: give one of the two", other,
                   options->cluster_file);
}

bool scaling_train_v1(void) {
    return str_equal(getenv("RAY_TRAIN_V2_ENABLED"), "0");
}
