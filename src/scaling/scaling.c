/* The scaling config as a value: defaults, release, copy, and the faces of C and of the command line. Checks
 * that need the whole config are in validate.c; the face of JSON and YAML is read.c. What follows from it is
 * resolve.c's. */
#include "scaling/scaling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/device.h"
#include "scaling/parts.h"

static const char *const strategy_names[] = {
#define X(name, text) text,
    PLACEMENT_STRATEGIES(X)
#undef X
};

const char *placement_strategy_name(enum placement_strategy strategy) {
    return strategy_names[strategy];
}

int placement_strategy_parse(const char *text, enum placement_strategy *strategy, ty_error *err) {
    for (size_t i = 0; i < ARRAY_SIZE(strategy_names); i++) {
        if (strcmp(strategy_names[i], text) != 0) continue;
        *strategy = (enum placement_strategy)i;
        return 0;
    }
    const char *nearest = str_nearest(text, strategy_names, ARRAY_SIZE(strategy_names));
    return ty_fail(err, TY_EUSAGE, "must be PACK, SPREAD, STRICT_PACK or STRICT_SPREAD%s%s%s",
                   nearest == NULL ? "" : " (nearest is ", nearest == NULL ? "" : nearest,
                   nearest == NULL ? "" : ")");
}

int scaling_wrap_strategy(const char *text, ty_error *err) {
    return ty_wrap(err, "Invalid placement group strategy: `placement_strategy`=\"%.80s\"", text);
}

void scaling_forget_topology(struct scaling *scaling) {
    free(scaling->topology_strategy.domain);
    scaling->topology_strategy = (struct topology_strategy){0};
}

int scaling_add_topology(struct scaling *scaling, const char *label, const char *strategy, ty_error *err) {
    struct topology_strategy *to = &scaling->topology_strategy;
    enum placement_strategy means;
    if (placement_strategy_parse(strategy, &means, err) < 0 || label_check_key(label, err) < 0)
        return ty_wrap(err, "%.80s=%.80s", label, strategy);
    to->given = true;
    if (str_equal(label, "node-id") || str_equal(label, "ray.io/node-id")) {
        to->nodes = means;
        return 0;
    }
    if (means != PLACE_STRICT_PACK)
        return ty_fail(
            err, TY_EUSAGE,
            "%.80s=%s: a label other than node-id must be STRICT_PACK: all nodes have one value of it", label,
            strategy);
    if (to->domain != NULL && !str_equal(to->domain, label))
        return ty_fail(err, TY_EUSAGE, "%.80s and %.80s: name one label beside node-id", to->domain, label);
    return scaling_copy_text(&to->domain, label) < 0 ? ty_fail_memory(err) : 0;
}

void scaling_init(struct scaling *scaling) {
    *scaling = (struct scaling){.min_workers = 1, .max_workers = 1, .elastic_resize_monitor_interval_s = 60};
}

void scaling_selectors_done(struct label_selector *selectors, size_t n) {
    for (size_t i = 0; i < n; i++)
        label_selector_done(&selectors[i]);
    free(selectors);
}

int scaling_selectors_copy(struct label_selector **to, const struct label_selector *from, size_t n) {
    struct label_selector *copy = calloc(n > 0 ? n : 1, sizeof *copy);
    if (copy == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (label_selector_copy(&copy[i], &from[i]) == 0) continue;
        scaling_selectors_done(copy, i);
        return -ENOMEM;
    }
    *to = copy;
    return 0;
}

void scaling_done(struct scaling *scaling) {
    resources_done(&scaling->resources_per_worker);
    resources_done(&scaling->trainer_resources);
    free(scaling->accelerator_type);
    free(scaling->topology);
    scaling_forget_topology(scaling);
    scaling_selectors_done(scaling->selectors, scaling->n_selectors);
    scaling_init(scaling);
}

int scaling_copy_text(char **to, const char *from) {
    char *copy = from == NULL ? NULL : strdup(from);
    if (from != NULL && copy == NULL) return -ENOMEM;
    free(*to);
    *to = copy;
    return 0;
}

/* The plain fields at once; what is owned is taken out of the copy before, or its release would free the
 * original's. */
int scaling_copy(struct scaling *to, const struct scaling *from) {
    struct scaling copy = *from;
    copy.resources_per_worker = copy.trainer_resources = (struct resources){0};
    copy.accelerator_type = copy.topology = copy.topology_strategy.domain = NULL;
    copy.selectors = NULL;
    copy.n_selectors = 0;
    if (resources_copy(&copy.resources_per_worker, &from->resources_per_worker) < 0 ||
        resources_copy(&copy.trainer_resources, &from->trainer_resources) < 0 ||
        scaling_copy_text(&copy.accelerator_type, from->accelerator_type) < 0 ||
        scaling_copy_text(&copy.topology, from->topology) < 0 ||
        scaling_copy_text(&copy.topology_strategy.domain, from->topology_strategy.domain) < 0 ||
        scaling_selectors_copy(&copy.selectors, from->selectors, from->n_selectors) < 0) {
        scaling_done(&copy);
        return -ENOMEM;
    }
    copy.n_selectors = from->n_selectors;
    *to = copy;
    return 0;
}

/* -- the command line -- */

static int refuse_workers(ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "must be a whole number, or MIN:MAX with 1 <= MIN <= MAX; at most %d",
                   SCALING_MAX_WORKERS);
}

int scaling_parse_workers(struct scaling *scaling, const char *text, ty_error *err) {
    const char *colon = strchr(text, ':');
    int64_t min, max;
    if (colon == NULL) {
        if (!str_to_int64(text, 0, SCALING_MAX_WORKERS, &min)) return refuse_workers(err);
        max = min;
    } else {
        CLEANUP_FREE char *least = strndup(text, (size_t)(colon - text));
        if (least == NULL) return ty_fail_memory(err);
        if (!str_to_int64(least, 1, SCALING_MAX_WORKERS, &min) ||
            !str_to_int64(colon + 1, min, SCALING_MAX_WORKERS, &max))
            return refuse_workers(err);
    }
    scaling->min_workers = min;
    scaling->max_workers = max;
    scaling->elastic = colon != NULL;
    return 0;
}

/* -- the public struct -- */

int scaling_set_amount(struct resources *resources, const char *field, const char *name, double amount,
                       ty_error *err) {
    CLEANUP(buffer_done) struct buffer what = {0};
    quantity exact;
    buffer_printf(&what, "The quantity of resource %.80s", name);
    if (what.failed) return ty_fail_memory(err);
    if (resource_check_name(name, err) < 0 || quantity_from_double(amount, what.data, &exact, err) < 0)
        return ty_wrap(err, "`%s`", field);
    return resources_set(resources, name, exact) < 0 ? ty_fail_memory(err) : 0;
}

static int take_resources(struct resources *to, bool *given, const ty_resources *from, const char *field,
                          ty_error *err) {
    *given = from->items != NULL;
    if (*given && from->n > RESOURCES_MAX)
        return ty_fail(err, TY_EUSAGE, "`%s`: %zu names; at most %d are possible", field, from->n,
                       RESOURCES_MAX);
    for (size_t i = 0; *given && i < from->n; i++) {
        const ty_resource *item = &from->items[i];
        if (item->name == NULL) return ty_fail(err, TY_EUSAGE, "`%s`: a resource name is NULL", field);
        if (resources_has(to, item->name))
            return ty_fail(err, TY_EUSAGE, "`%s`: resource \"%.80s\" is given twice", field, item->name);
        int result = scaling_set_amount(to, field, item->name, item->amount, err);
        if (result < 0) return result;
    }
    return 0;
}

static int take_labels(struct scaling *scaling, const ty_scaling_config *config, ty_error *err) {
    if (config->n_labels == 0) return 0;
    if (config->label_selector == NULL)
        return ty_fail(err, TY_EUSAGE, "`label_selector` is NULL, but `n_labels` is %zu", config->n_labels);
    scaling->selectors = calloc(1, sizeof *scaling->selectors);
    if (scaling->selectors == NULL) return ty_fail_memory(err);
    scaling->n_selectors = 1;
    for (size_t i = 0; i < config->n_labels; i++) {
        const ty_label *label = &config->label_selector[i];
        if (label->key == NULL || label->value == NULL)
            return ty_fail(err, TY_EUSAGE, "`label_selector`: key and value of label %zu must not be NULL", i);
        int result = label_selector_add(scaling->selectors, label->key, label->value, err);
        if (result < 0) return ty_wrap(err, "`label_selector`");
    }
    return 0;
}

static int take_topology(struct scaling *scaling, const ty_scaling_config *config, ty_error *err) {
    if (config->n_topologies > 0 && config->topology_strategy == NULL)
        return ty_fail(err, TY_EUSAGE, "`topology_strategy` is NULL, but `n_topologies` is %zu",
                       config->n_topologies);
    for (size_t i = 0; i < config->n_topologies; i++) {
        const ty_label *label = &config->topology_strategy[i];
        if (label->key == NULL || label->value == NULL)
            return ty_fail(err, TY_EUSAGE, "`topology_strategy`: key and value of label %zu must not be NULL",
                           i);
        if (scaling_add_topology(scaling, label->key, label->value, err) < 0)
            return ty_wrap(err, "`topology_strategy`");
    }
    return 0;
}

static int take_config(struct scaling *scaling, const ty_scaling_config *config, ty_error *err) {
    scaling->elastic = config->max_workers != 0;
    if (config->num_workers != 0) scaling->min_workers = config->num_workers;
    scaling->max_workers = scaling->elastic ? config->max_workers : scaling->min_workers;
    scaling->use_gpu = config->use_gpu;
    scaling->use_tpu = config->use_tpu;
    if (config->elastic_resize_monitor_interval_s != 0)
        scaling->elastic_resize_monitor_interval_s = config->elastic_resize_monitor_interval_s;
    if (config->placement_strategy != NULL &&
        placement_strategy_parse(config->placement_strategy, &scaling->placement_strategy, err) < 0)
        return scaling_wrap_strategy(config->placement_strategy, err);
    if (scaling_copy_text(&scaling->accelerator_type, config->accelerator_type) < 0 ||
        scaling_copy_text(&scaling->topology, config->topology) < 0)
        return ty_fail_memory(err);
    int result = take_resources(&scaling->resources_per_worker, &scaling->has_resources,
                                &config->resources_per_worker, "resources_per_worker", err);
    if (result == 0)
        result = take_resources(&scaling->trainer_resources, &scaling->has_trainer_resources,
                                &config->trainer_resources, "trainer_resources", err);
    if (result == 0) result = take_labels(scaling, config, err);
    return result == 0 ? take_topology(scaling, config, err) : result;
}

int scaling_from_public(struct scaling *scaling, const ty_scaling_config *config, ty_error *err) {
    struct scaling made;
    scaling_init(&made);
    int result = take_config(&made, config, err);
    if (result < 0) {
        scaling_done(&made);
        return result;
    }
    scaling_done(scaling);
    *scaling = made;
    return 0;
}

/* -- the table of spellings as data -- */

static const char *const spellings[][FACES] = {
#define X(name, as_fields, as_options) {as_fields, as_options},
    SPELLINGS(X)
#undef X
};

const char *spelled(enum face face, enum spelling what) {
    return spellings[what][face];
}
