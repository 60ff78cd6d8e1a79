/* The options of a request (docs/spec/slurm.md 4.1), each with the reason that `trainyard plan` shows. How many
 * nodes there are to be, and how many workers on each, is taken from a plan on the site with nothing taken on
 * it, so that a request is one that can be met. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "engine/slurm.h"
#include "placement/planner.h"
#include "scaling/device.h"

#define MIB_BYTES ((quantity)1024 * 1024 * QUANTITY_ONE)

struct asking {
    const struct demand *demand;
    const struct slurm_site *site;
    int64_t workers, nodes, tasks_per_node;
    bool fixed;                   /* nodes and tasks per node are said; else Slurm fills nodes one by one */
    bool uneven;                  /* of these the nodes alone */
    struct buffer gres, licences; /* lists that grow */
    struct buffer constraint, exclude;
    struct slurm_request *request;
    ty_error *err;
};

/* -- lines -- */

static void line_done(struct slurm_line *line) {
    free(line->name);
    free(line->value);
    free(line->why);
}

void slurm_request_done(struct slurm_request *request) {
    for (size_t i = 0; i < request->n; i++)
        line_done(&request->lines[i]);
    free(request->lines);
    *request = (struct slurm_request){0};
}

static struct slurm_line *find_line(const struct slurm_request *request, const char *name) {
    for (size_t i = 0; i < request->n; i++)
        if (str_equal(request->lines[i].name, name)) return &request->lines[i];
    return NULL;
}

const char *slurm_request_value(const struct slurm_request *request, const char *name) {
    const struct slurm_line *line = find_line(request, name);
    return line != NULL ? line->value : NULL;
}

/* Adds a line, or replaces the one of this name. */
static int put_line(struct slurm_request *request, const char *name, const char *value, const char *why,
                    ty_error *err) {
    struct slurm_line made = {strdup(name), value != NULL ? strdup(value) : NULL,
                              why != NULL ? strdup(why) : NULL};
    struct slurm_line *at = find_line(request, name);
    bool failed =
        made.name == NULL || (value != NULL && made.value == NULL) || (why != NULL && made.why == NULL);
    if (failed || (at == NULL && ARRAY_GROW(request->lines, request->n) < 0)) {
        line_done(&made);
        return ty_fail_memory(err);
    }
    if (at == NULL)
        at = &request->lines[request->n++];
    else
        line_done(at);
    *at = made;
    return 0;
}

__attribute__((format(printf, 4, 5))) static int say(struct asking *asking, const char *name, const char *why,
                                                     const char *format, ...) {
    CLEANUP_FREE char *value = NULL;
    va_list args;
    va_start(args, format);
    int size = vasprintf(&value, format, args);
    va_end(args);
    if (size >= 0) return put_line(asking->request, name, value, why, asking->err);
    value = NULL;
    return ty_fail_memory(asking->err);
}

/* -- feasibility -- */

/* A resource that no node has, but a licence of that name. */
static bool is_licence(const struct slurm_site *site, const char *resource) {
    return slurm_find_licence(site, resource) != NULL && slurm_most_gres(site, resource) == 0;
}

/* A resource of nodes, in whose plan it counts. */
static bool is_of_nodes(const struct slurm_site *site, const char *resource) {
    return !is_licence(site, resource) && !str_equal(resource, "shard");
}

int slurm_plan(const struct slurm_site *site, const struct demand *demand, struct plan **plan, ty_error *err) {
    struct demand left = *demand;
    left.per_worker = (struct resources){0};
    int result = resources_copy(&left.per_worker, &demand->per_worker) < 0 ? ty_fail_memory(err) : 0;
    for (size_t i = 0; i < demand->per_worker.n && result >= 0; i++) {
        const char *name = demand->per_worker.items[i].name;
        if (!is_of_nodes(site, name)) resources_remove(&left.per_worker, name);
    }
    if (result >= 0) result = plan_make(site->nodes, &left, plan, err);
    resources_done(&left.per_worker);
    return result;
}

/* The same with nothing taken on the nodes. */
static int plan_idle(const struct slurm_site *site, const struct demand *demand, struct plan **plan,
                     ty_error *err) {
    struct cluster *nodes = site->nodes;
    struct node_use **uses = calloc(nodes->n + 1, sizeof *uses);
    if (uses == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < nodes->n; i++)
        uses[i] = TAKE(nodes->nodes[i].use);
    int result = slurm_plan(site, demand, plan, err);
    for (size_t i = 0; i < nodes->n; i++)
        nodes->nodes[i].use = uses[i];
    free(uses);
    return result;
}

/* Whether something is asked for by node, or as tasks of a node, so that all nodes are to have as much. */
static bool is_by_node(const struct asking *asking) {
    const struct resources *all = &asking->demand->per_worker;
    quantity gpus = resources_get(all, "GPU");
    bool shared = gpus > 0 && gpus < QUANTITY_ONE && slurm_shards_per_gpu(asking->site, NULL) == 0;
    if (asking->demand->elastic || shared) return true;
    for (size_t i = 0; i < all->n; i++) {
        const char *name = all->items[i].name;
        if (is_of_nodes(asking->site, name) && slurm_most_gres(asking->site, name) > 0 &&
            !str_equal(name, "GPU"))
            return true;
    }
    return false;
}

/* How many nodes hold so many workers each, with nothing taken on them. */
static int64_t nodes_that_hold(const struct asking *asking, struct planner *planner, int64_t workers) {
    CLEANUP(resources_done) struct resources together = {0};
    const struct demand *demand = asking->demand;
    for (size_t i = 0; i < demand->per_worker.n; i++) {
        const struct resource *item = &demand->per_worker.items[i];
        quantity amount;
        if (!is_of_nodes(asking->site, item->name)) continue;
        if (!quantity_multiply(item->amount, workers, &amount)) return 0;
        if (accelerator_is_device(item->name) && amount > QUANTITY_ONE)
            amount = (amount + QUANTITY_ONE - 1) / QUANTITY_ONE * QUANTITY_ONE;
        if (resources_set(&together, item->name, amount) < 0) return -ENOMEM;
    }
    const struct bundle_kind bundle = {&together, demand->n_selectors == 1 ? &demand->selectors[0] : NULL};
    return planner_capacity(planner, &bundle, PLACE_STRICT_SPREAD, (int64_t)asking->site->nodes->n);
}

/* Of what is asked for by node all nodes are to have as much. Where the nodes of the plan cannot have that,
 * there are fewer workers on each of more nodes; of an elastic run as many as there can be. */
static int share_out(struct asking *asking) {
    struct planner *planner = planner_create(asking->site->nodes, true);
    if (planner == NULL) return ty_fail_memory(asking->err);
    int64_t best = 0, hold = 0, wanted = asking->nodes;
    for (int64_t each = asking->tasks_per_node; each > 0 && best < asking->workers && hold >= 0; each--) {
        hold = nodes_that_hold(asking, planner, each);
        int64_t nodes = hold < wanted ? hold : wanted;
        if (nodes * each > best) {
            best = nodes * each;
            asking->nodes = nodes;
            asking->tasks_per_node = each;
        }
        wanted = (asking->workers + each - 2) / (each > 1 ? each - 1 : 1); /* of the next */
    }
    planner_destroy(planner);
    if (hold < 0) return ty_fail_memory(asking->err);
    if (best >= asking->workers || (asking->demand->elastic && best >= (int64_t)asking->demand->min_workers))
        return 0;
    return ty_fail(asking->err, TY_EINFEASIBLE,
                   "Slurm gives all nodes of a job as much of a GRES, and so %lld of the %lld workers at most, "
                   "as its nodes are unlike: ask for fewer",
                   (long long)best, (long long)asking->workers);
}

/* Slurm gives each node as many tasks as --ntasks-per-node says. Where some hold less than an even share, Slurm
 * is left to share them out. */
static int see_whether_even(struct asking *asking) {
    struct planner *planner = planner_create(asking->site->nodes, true);
    int64_t hold = planner != NULL ? nodes_that_hold(asking, planner, asking->tasks_per_node) : -ENOMEM;
    planner_destroy(planner);
    asking->uneven = hold < asking->nodes;
    return hold < 0 ? ty_fail_memory(asking->err) : 0;
}

/* Nodes and tasks on each, by placement and by what fits. */
static int lay_out(struct asking *asking) {
    const struct demand *demand = asking->demand;
    struct plan *plan = NULL;
    asking->workers = (int64_t)demand->max_workers;
    if (demand->tpu.workers_per_slice > 0) {
        /* A slice's hosts lie on one switch; which, Slurm decides. So only their number and devices are looked
         * at. */
        const struct cluster *nodes = asking->site->nodes;
        int64_t hosts = 0;
        for (size_t i = 0; i < nodes->n; i++)
            hosts += resources_get(&nodes->nodes[i].shape->total, "TPU") >=
                     demand->tpu.chips_per_host * QUANTITY_ONE;
        asking->nodes = asking->workers / demand->tpu.workers_per_slice * demand->tpu.hosts_per_slice;
        asking->tasks_per_node = (asking->workers + asking->nodes - 1) / asking->nodes;
        asking->fixed = true;
        if (hosts >= asking->nodes) return 0;
        return ty_fail(asking->err, TY_EINFEASIBLE,
                       "%lld hosts with %lld TPU chips each are needed, and Slurm has %lld (GRES tpu)",
                       (long long)asking->nodes, (long long)demand->tpu.chips_per_host, (long long)hosts);
    }
    int result = plan_idle(asking->site, demand, &plan, asking->err);
    if (result < 0) return result;
    if (plan->verdict != PLAN_FEASIBLE) {
        result = ty_fail(asking->err, TY_EINFEASIBLE, "%s", plan->reason);
    } else {
        asking->workers = (int64_t)plan->n_workers;
        asking->nodes = (int64_t)plan->n_nodes_used;
        asking->tasks_per_node = (asking->workers + asking->nodes - 1) / asking->nodes;
        if (is_by_node(asking))
            result = share_out(asking);
        else if (demand->strategy == PLACE_SPREAD)
            result = see_whether_even(asking);
    }
    plan_destroy(plan);
    return result;
}

/* -- GPUs -- */

/* The type of the GRES gpu that is the demand's accelerator type; NULL with more than one, or none. */
static const char *gpu_type(const struct asking *asking) {
    const char *found = NULL;
    for (size_t i = 0; i < asking->site->n_gres; i++) {
        const struct slurm_gres *have = &asking->site->gres[i];
        if (!str_equal(have->name, "gpu") || !slurm_type_is(have->type, asking->demand->accelerator_type))
            continue;
        if (found != NULL) return NULL;
        found = have->type;
    }
    return found;
}

static void add(struct buffer *list, const char *separator, const char *text) {
    buffer_printf(list, "%s%s", list->size > 0 ? separator : "", text);
}

/* Nodes of another type are left out by name, where no word of Slurm's does it. */
static void exclude_other_types(struct asking *asking) {
    const char *wanted = asking->demand->accelerator_type;
    for (size_t i = 0; wanted != NULL && i < asking->site->nodes->n; i++) {
        const struct node *node = &asking->site->nodes->nodes[i];
        const char *type = node->shape->accelerator_type;
        if (type == NULL || !accelerator_type_matches(wanted, type)) add(&asking->exclude, ",", node->name);
    }
}

/* Of an elastic run Slurm decides how many nodes there are, so that GPUs are asked for by node. Else they are
 * by task, and the binding is said as well: of a typed count that comes without it tasks of Slurm 22.05 see no
 * GPU (docs/spec/slurm.md 4.4). */
static int ask_whole_gpus(struct asking *asking, int64_t each) {
    const char *type = gpu_type(asking);
    char amount[128];
    (void)snprintf(amount, sizeof amount, "%s%s", type != NULL ? type : "", type != NULL ? ":" : "");
    if (type == NULL) exclude_other_types(asking);
    long long all = each * asking->tasks_per_node;
    if (asking->demand->elastic)
        return say(asking, "gpus-per-node", "each node's share", "%s%lld", amount, all);
    int result = say(asking, "gpus-per-task", "GPUs of a worker", "%s%lld", amount, (long long)each);
    if (result < 0) return result;
    return say(asking, "gpu-bind", "a typed count shows tasks no GPU without", "per_task:%lld",
               (long long)each);
}

/* Nodes of the wanted type whose GPUs are shared into so many shards at least. */
static int64_t nodes_with_shards(const struct asking *asking, int64_t shards) {
    const struct slurm_site *site = asking->site;
    const char *wanted = asking->demand->accelerator_type;
    int64_t n = 0;
    for (size_t i = 0; i < site->n_shards; i++) {
        const char *type = site->nodes->nodes[i].shape->accelerator_type;
        bool meant = wanted == NULL || (type != NULL && accelerator_type_matches(wanted, type));
        n += meant && site->shards[i] >= shards;
    }
    return n;
}

/* Parts of GPUs are shards, where the site has them: those of one job lie on one GPU of a node. Where GPUs are
 * shared differently the finest sharing says how many, which is enough everywhere. */
static int ask_parts(struct asking *asking, quantity part) {
    int64_t per_gpu = slurm_shards_per_gpu(asking->site, asking->demand->accelerator_type);
    if (per_gpu == 0) {
        quantity all = part * asking->tasks_per_node;
        const char *type = gpu_type(asking);
        if (type == NULL) exclude_other_types(asking);
        asking->fixed = true;
        return say(asking, "gpus-per-node",
                   "whole GPUs, which the workers of a node share: this Slurm has no shards", "%s%s%lld",
                   type != NULL ? type : "", type != NULL ? ":" : "",
                   (long long)((all + QUANTITY_ONE - 1) / QUANTITY_ONE));
    }
    int64_t shards = (part * per_gpu + QUANTITY_ONE - 1) / QUANTITY_ONE, fit = per_gpu / shards;
    if (asking->tasks_per_node > fit) {
        asking->tasks_per_node = fit;
        asking->nodes = (asking->workers + fit - 1) / fit;
    }
    int64_t all = shards * asking->tasks_per_node;
    if (asking->nodes > nodes_with_shards(asking, all) ||
        (asking->demand->strategy == PLACE_STRICT_PACK && asking->nodes > 1))
        return ty_fail(
            asking->err, TY_EINFEASIBLE,
            "%lld workers with %lld of the %lld shards of a GPU each: Slurm gives a job shards of one GPU on a "
            "node, so that takes %lld nodes; ask for whole GPUs (GPU=1), or for fewer workers",
            (long long)asking->workers, (long long)shards, (long long)per_gpu, (long long)asking->nodes);
    asking->fixed = true;
    exclude_other_types(asking);
    buffer_printf(&asking->gres, "%sshard:%lld", asking->gres.size > 0 ? "," : "", (long long)all);
    return 0;
}

static int ask_gpus(struct asking *asking) {
    quantity gpus = resources_get(&asking->demand->per_worker, "GPU");
    const char *type = asking->demand->accelerator_type;
    if (gpus == 0) {
        if (type != NULL && asking->demand->tpu.workers_per_slice == 0) exclude_other_types(asking);
        return 0;
    }
    return gpus < QUANTITY_ONE ? ask_parts(asking, gpus) : ask_whole_gpus(asking, gpus / QUANTITY_ONE);
}

/* -- other resources -- */

/* Per node: what the plan's nodes hold of it. */
static int ask_gres(struct asking *asking, const char *name, quantity each) {
    int64_t amount = (each * asking->tasks_per_node + QUANTITY_ONE - 1) / QUANTITY_ONE,
            most = slurm_most_gres(asking->site, name);
    bool shards = str_equal(name, "shard");
    if (shards && resources_get(&asking->demand->per_worker, "GPU") > 0)
        return ty_fail(asking->err, TY_EUSAGE,
                       "GPU and shard: a job has GPUs or shards of them, not both; write GPU=0.5 for a part");
    int64_t limit = shards ? slurm_shards_per_gpu(asking->site, NULL) : most;
    if (amount > limit)
        return ty_fail(asking->err, TY_EINFEASIBLE,
                       "%s:%lld for a node: %s has %lld, so Slurm would wait for ever", name, (long long)amount,
                       shards ? "a GPU" : "no node has more; the largest", (long long)limit);
    asking->fixed = true;
    buffer_printf(&asking->gres, "%s%s:%lld", asking->gres.size > 0 ? "," : "",
                  slurm_gres_spelling(asking->site, name), (long long)amount);
    return 0;
}

static int ask_licence(struct asking *asking, const char *name, quantity each) {
    int64_t amount = (each * asking->workers + QUANTITY_ONE - 1) / QUANTITY_ONE;
    const struct slurm_licence *licence = slurm_find_licence(asking->site, name);
    if (amount > licence->total)
        return ty_fail(asking->err, TY_EINFEASIBLE, "licence %s: %lld are needed, and Slurm has %lld", name,
                       (long long)amount, (long long)licence->total);
    buffer_printf(&asking->licences, "%s%s:%lld", asking->licences.size > 0 ? "," : "", name,
                  (long long)amount);
    return 0;
}

static int ask_custom(struct asking *asking) {
    const struct resources *all = &asking->demand->per_worker;
    for (size_t i = 0; i < all->n; i++) {
        const char *name = all->items[i].name;
        int result = 0;
        if (str_equal(name, "CPU") || str_equal(name, "memory") || str_equal(name, "GPU")) continue;
        if (str_prefix(name, ACCELERATOR_TYPE_PREFIX, NULL)) continue;
        if (is_licence(asking->site, name))
            result = ask_licence(asking, name, all->items[i].amount);
        else
            result = ask_gres(asking, name, all->items[i].amount);
        if (result < 0) return result;
    }
    return 0;
}

/* -- labels -- */

static bool has_feature(const struct slurm_site *site, const char *feature) {
    for (size_t i = 0; i < site->nodes->n; i++)
        if (labels_get(&site->nodes->nodes[i].shape->labels, feature) != NULL) return true;
    return false;
}

/* KEY=true is the feature KEY, KEY=VALUE the feature VALUE. */
static int ask_label(struct asking *asking, const struct label_constraint *constraint) {
    bool by_name = constraint->n_values == 1 && str_equal(constraint->values[0], "true");
    if (constraint->op == LABEL_NOT_IN) { /* for which Slurm has no word: nodes are left out by name */
        struct label_constraint one = *constraint;
        const struct label_selector selector = {&one, 1};
        for (size_t i = 0; i < asking->site->nodes->n; i++) {
            const struct node *node = &asking->site->nodes->nodes[i];
            if (!label_selector_match(&selector, &node->shape->labels)) add(&asking->exclude, ",", node->name);
        }
        return 0;
    }
    CLEANUP(buffer_done) struct buffer any = {0};
    for (size_t v = 0; v < constraint->n_values; v++) {
        const char *feature = by_name ? constraint->key : constraint->values[v];
        if (has_feature(asking->site, feature)) add(&any, "|", feature);
    }
    if (any.size == 0)
        return ty_fail(asking->err, TY_EINFEASIBLE,
                       "label %.80s=%.80s: no node of this Slurm has the feature %.80s", constraint->key,
                       constraint->values[0], by_name ? constraint->key : constraint->values[0]);
    bool several = strchr(any.data, '|') != NULL;
    buffer_printf(&asking->constraint, "%s%s%s%s", asking->constraint.size > 0 ? "&" : "", several ? "(" : "",
                  any.data, several ? ")" : "");
    return any.failed ? ty_fail_memory(asking->err) : 0;
}

static int ask_labels(struct asking *asking) {
    const struct demand *demand = asking->demand;
    int result = 0;
    if (demand->n_selectors > 1)
        return ty_fail(asking->err, TY_EUSAGE,
                       "a label selector for each worker takes a heterogeneous job, which is not asked for "
                       "here; give one for all");
    if (demand->domain != NULL)
        return ty_fail(asking->err, TY_EUSAGE,
                       "nodes that share a value of %.80s are not asked for here, as features of Slurm have no "
                       "values; give --slurm-option switches=1, or segment=N",
                       demand->domain);
    for (size_t i = 0; demand->n_selectors == 1 && i < demand->selectors[0].n && result >= 0; i++)
        result = ask_label(asking, &demand->selectors[0].items[i]);
    return result;
}

/* -- nodes, tasks, CPUs, memory -- */

static int ask_nodes(struct asking *asking) {
    const struct demand *demand = asking->demand;
    int64_t least = ((int64_t)demand->min_workers + asking->tasks_per_node - 1) / asking->tasks_per_node;
    if (demand->elastic) {
        int result = say(asking, "nodes", "at least, and at most, for this many workers", "%lld-%lld",
                         (long long)least, (long long)asking->nodes);
        return result < 0 ? result
                          : say(asking, "ntasks-per-node", "workers on a node", "%lld",
                                (long long)asking->tasks_per_node);
    }
    if (!asking->fixed && demand->strategy == PLACE_PACK) {
        int64_t most = asking->workers < (int64_t)asking->site->nodes->n ? asking->workers
                                                                         : (int64_t)asking->site->nodes->n;
        int result = say(asking, "nodes", "PACK: as few as will do", "1-%lld", (long long)most);
        if (result >= 0) result = put_line(asking->request, "use-min-nodes", NULL, "PACK", asking->err);
        return result < 0 ? result
                          : say(asking, "ntasks", "one for each worker", "%lld", (long long)asking->workers);
    }
    int result =
        say(asking, "nodes", placement_strategy_name(demand->strategy), "%lld", (long long)asking->nodes);
    if (result >= 0) result = say(asking, "ntasks", "one for each worker", "%lld", (long long)asking->workers);
    return result < 0 || asking->uneven
               ? result
               : say(asking, "ntasks-per-node", "shared out evenly: Slurm would fill the first node", "%lld",
                     (long long)asking->tasks_per_node);
}

static int ask_cpus(struct asking *asking) {
    const struct resources *all = &asking->demand->per_worker;
    int64_t cpus = (resources_get(all, "CPU") + QUANTITY_ONE - 1) / QUANTITY_ONE;
    if (cpus < 1) cpus = 1;
    quantity trainer = resources_get(&asking->demand->trainer, "CPU");
    /* Tasks are alike: each has room for the trainer. */
    if (trainer > 0) cpus += (trainer + QUANTITY_ONE - 1) / QUANTITY_ONE;
    int result = say(asking, "cpus-per-task", "CPUs of a worker, whole ones", "%lld", (long long)cpus);
    quantity memory = resources_get(all, "memory");
    if (result < 0 || memory == 0) return result;
    quantity each = MIB_BYTES * cpus;
    return say(asking, "mem-per-cpu", "memory of a worker, by its CPUs", "%lldM",
               (long long)((memory + each - 1) / each));
}

static int ask_slices(struct asking *asking) {
    const struct tpu_demand *tpu = &asking->demand->tpu;
    char licence[80];
    if (tpu->workers_per_slice == 0) return 0;
    int64_t slices = asking->workers / tpu->workers_per_slice;
    (void)snprintf(licence, sizeof licence, "tpuslice-%s", tpu->pod_type);
    if (slurm_find_licence(asking->site, licence) != NULL)
        buffer_printf(&asking->licences, "%s%s:%lld", asking->licences.size > 0 ? "," : "", licence,
                      (long long)slices);
    return say(asking, "switches", "a TPU slice lies on one switch", "%lld", (long long)slices);
}

static int say_lists(struct asking *asking) {
    const struct {
        const char *name, *why;
        const struct buffer *list;
    } lists[] = {
        {"gres", "of each node, for its workers", &asking->gres},
        {"licenses", "of the cluster, for all workers", &asking->licences},
        {"constraint", "features that nodes must have", &asking->constraint},
        {"exclude", "nodes that must not be taken", &asking->exclude},
    };
    int result = 0;
    for (size_t i = 0; i < ARRAY_SIZE(lists) && result >= 0; i++) {
        if (lists[i].list->failed) return ty_fail_memory(asking->err);
        if (lists[i].list->size > 0)
            result = put_line(asking->request, lists[i].name, lists[i].list->data, lists[i].why, asking->err);
    }
    return result;
}

/* -- the user's own -- */

static int check_own_gres(void *context, const struct slurm_gres *gres) {
    struct asking *asking = context;
    int64_t limit = slurm_shards_per_gpu(asking->site, NULL);
    if (!str_equal(gres->name, "shard") || gres->count <= limit) return 0;
    return ty_fail(asking->err, TY_EINFEASIBLE,
                   "--slurm-option gres: shard:%lld, but a GPU has %lld, so Slurm would wait for ever",
                   (long long)gres->count, (long long)limit);
}

/* The letters of sbatch's options, by which a line of that name is replaced as well. */
static const char *const letters[][2] = {
    {"A", "account"},       {"B", "extra-node-info"},
    {"C", "constraint"},    {"D", "chdir"},
    {"F", "nodefile"},      {"G", "gpus"},
    {"H", "hold"},          {"J", "job-name"},
    {"L", "licenses"},      {"M", "clusters"},
    {"N", "nodes"},         {"O", "overcommit"},
    {"S", "core-spec"},     {"W", "wait"},
    {"a", "array"},         {"b", "begin"},
    {"c", "cpus-per-task"}, {"d", "dependency"},
    {"e", "error"},         {"i", "input"},
    {"k", "no-kill"},       {"m", "distribution"},
    {"n", "ntasks"},        {"o", "output"},
    {"p", "partition"},     {"q", "qos"},
    {"s", "oversubscribe"}, {"t", "time"},
    {"w", "nodelist"},      {"x", "exclude"},
};

/* NULL: it is no letter of theirs. */
static const char *long_name(const char *name, size_t size) {
    for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
        if (size == 1 && *letters[i][0] == *name) return letters[i][1];
    return NULL;
}

const char *slurm_own_value(const char *const *own, const char *name) {
    const char *value = NULL;
    for (; own != NULL && *own != NULL; own++) {
        const char *text = *own + strspn(*own, "-");
        size_t size = strcspn(text, "=");
        const char *spelled = long_name(text, size);
        bool named =
            spelled != NULL ? str_equal(spelled, name) : strlen(name) == size && strncmp(text, name, size) == 0;
        if (named && text[size] == '=') value = text + size + 1;
    }
    return value;
}

/* "partition=x", "p=x", "exclusive"; dashes before it do not count. */
static int put_own(struct asking *asking, const char *text) {
    text += strspn(text, "-");
    const char *equals = strchr(text, '=');
    CLEANUP_FREE char *name = equals != NULL ? strndup(text, (size_t)(equals - text)) : strdup(text);
    if (name == NULL) return ty_fail_memory(asking->err);
    if (*name == '\0' || strpbrk(text, "\n\r") != NULL || strpbrk(name, " \t") != NULL)
        return ty_fail(asking->err, TY_EUSAGE,
                       "--slurm-option '%.80s': must be NAME=VALUE, as in partition=gpu", text);
    if (str_equal(name, "gres")) {
        int result = slurm_each_gres(equals != NULL ? equals + 1 : "", check_own_gres, asking, asking->err);
        if (result < 0) return result;
    }
    const char *spelled = long_name(name, strlen(name));
    return put_line(asking->request, spelled != NULL ? spelled : name, equals != NULL ? equals + 1 : NULL, NULL,
                    asking->err);
}

int slurm_request_make(const struct demand *demand, const struct slurm_site *site, const char *const *own,
                       struct slurm_request *request, ty_error *err) {
    struct slurm_request made = {0};
    struct asking asking = {.demand = demand, .site = site, .request = &made, .err = err};
    if (demand->max_workers == 0) return ty_fail(err, TY_EUSAGE, "num_workers must be at least 1 here");
    int result = ask_labels(&asking);
    if (result >= 0) result = lay_out(&asking);
    if (result >= 0) result = ask_gpus(&asking);
    if (result >= 0) result = ask_custom(&asking);
    if (result >= 0) result = ask_nodes(&asking);
    if (result >= 0) result = ask_cpus(&asking);
    if (result >= 0) result = ask_slices(&asking);
    if (result >= 0) result = say_lists(&asking);
    for (size_t i = 0; own != NULL && own[i] != NULL && result >= 0; i++)
        result = put_own(&asking, own[i]);
    struct buffer *const lists[] = {&asking.gres, &asking.licences, &asking.constraint, &asking.exclude};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        buffer_done(lists[i]);
    if (result < 0)
        slurm_request_done(&made);
    else
        *request = made;
    return result;
}
