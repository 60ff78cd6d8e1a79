/* One line a node, of fields NAME=VALUE with blanks between; what a field's value holds after a blank (OS,
 * Reason) is no field of ours, and of a name that comes twice the first counts, so that no reason can pretend
 * to be a state. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/hostlist.h"
#include "base/idset.h"
#include "base/str.h"
#include "engine/slurm.h"

#define MIB ((quantity)1024 * 1024 * QUANTITY_ONE)
#define GRES_MAX (QUANTITY_MAX / QUANTITY_ONE) /* of one resource of a node */

/* -- a site -- */

static void gres_done(struct slurm_gres *gres) {
    free(gres->name);
    free(gres->type);
    free(gres->detail);
}

void slurm_site_done(struct slurm_site *site) {
    for (size_t i = 0; i < site->n_gres; i++)
        gres_done(&site->gres[i]);
    for (size_t i = 0; i < site->n_licences; i++)
        free(site->licences[i].name);
    free(site->gres);
    free(site->licences);
    free(site->shards);
    free(site->partition);
    cluster_destroy(site->nodes);
    *site = (struct slurm_site){0};
}

const struct slurm_licence *slurm_find_licence(const struct slurm_site *site, const char *name) {
    for (size_t i = 0; i < site->n_licences; i++)
        if (str_equal(site->licences[i].name, name)) return &site->licences[i];
    return NULL;
}

int64_t slurm_most_gres(const struct slurm_site *site, const char *name) {
    int64_t most = 0;
    for (size_t i = 0; i < site->n_gres; i++) {
        const struct slurm_gres *gres = &site->gres[i];
        if (strcasecmp(gres->name, name) == 0 && gres->count > most) most = gres->count;
    }
    return most;
}

const char *slurm_gres_spelling(const struct slurm_site *site, const char *name) {
    for (size_t i = 0; i < site->n_gres; i++)
        if (strcasecmp(site->gres[i].name, name) == 0) return site->gres[i].name;
    return name;
}

/* Sites may share GPUs of one type into more parts than those of another. */
int64_t slurm_shards_per_gpu(const struct slurm_site *site, const char *accelerator_type) {
    int64_t most = 0;
    for (size_t i = 0; i < site->n_shards; i++) {
        const char *type = site->nodes->nodes[i].shape->accelerator_type;
        bool meant =
            accelerator_type == NULL || (type != NULL && accelerator_type_matches(accelerator_type, type));
        if (meant && site->shards[i] > most) most = site->shards[i];
    }
    return most;
}

/* A type as its vendor would write the name of the device: "nvidia_a100-sxm4-80gb" is NVIDIA A100-SXM4-80GB. */
static bool find_type(const char *gres_type, char type[64]) {
    char name[128];
    size_t n = 0, known = 0;
    const struct accelerator_type *types = accelerator_types(&known);
    for (size_t i = 0; i < known; i++)
        if (strcasecmp(types[i].type, gres_type) == 0) return snprintf(type, 64, "%s", types[i].type) > 0;
    n = (size_t)snprintf(name, sizeof name, "%s%s", strncasecmp(gres_type, "nvidia", 6) == 0 ? "" : "NVIDIA ",
                         gres_type);
    for (size_t i = 0; i < n && i < sizeof name - 1; i++)
        name[i] = (char)(name[i] == '_' ? ' ' : toupper((unsigned char)name[i]));
    return accelerator_classify(name, type);
}

bool slurm_type_is(const char *gres_type, const char *accelerator_type) {
    char type[64];
    if (gres_type == NULL || accelerator_type == NULL) return false;
    if (strcasecmp(gres_type, accelerator_type) == 0) return true;
    return find_type(gres_type, type) && accelerator_type_matches(accelerator_type, type);
}

/* -- generic resources -- */

/* "4", "16K": thousands are of 1024. What no amount can hold is no count. */
static bool read_count(const char *text, int64_t *count) {
    static const char units[] = "KMGT";
    char number[24];
    size_t size = strlen(text);
    if (size == 0 || size >= sizeof number) return false;
    const char *unit = strchr(units, toupper((unsigned char)text[size - 1]));
    (void)snprintf(number, sizeof number, "%.*s", (int)(size - (unit != NULL)), text);
    int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    if (!str_to_int64(number, 0, GRES_MAX >> shift, count)) return false;
    *count <<= shift;
    return true;
}

struct gres_reader {
    slurm_gres_entry *each;
    void *context;
    ty_error *err;
};

/* NAME[:TYPE][:no_consume][:COUNT][(DETAIL)] */
static int read_gres(void *context, char *piece) {
    struct gres_reader *reader = context;
    struct slurm_gres gres = {.name = piece, .count = 1};
    char *detail = strchr(piece, '(');
    if (*piece == '\0' || str_equal(piece, "(null)")) return 0;
    if (detail != NULL) {
        *detail = '\0';
        gres.detail = detail + 1;
        gres.detail[strcspn(gres.detail, ")")] = '\0';
    }
    for (char *at = strchr(piece, ':'); at != NULL; at = strchr(at, ':')) {
        *at++ = '\0';
        size_t size = strcspn(at, ":");
        char word[64];
        (void)snprintf(word, sizeof word, "%.*s", (int)(size < 63 ? size : 63), at);
        if (at[size] == '\0' && read_count(word, &gres.count)) break;
        if (!str_equal(word, "no_consume") && gres.type == NULL) gres.type = at;
    }
    char *end = gres.type != NULL ? strchr(gres.type, ':') : NULL;
    if (end != NULL) *end = '\0';
    if (*piece == '\0') return ty_fail(reader->err, TY_EUSAGE, "scontrol shows a GRES without a name");
    return reader->each(reader->context, &gres);
}

int slurm_each_gres(const char *text, slurm_gres_entry *each, void *context, ty_error *err) {
    struct gres_reader reader = {each, context, err};
    if (text == NULL) return 0;
    int result = str_split(text, ',', read_gres, &reader);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* What Trainyard calls a GRES: devices by its own names. Shards and mps are parts of GPUs, and none of their
 * own. */
static const char *resource_of(const char *name) {
    static const char *const devices[] = {"GPU", "TPU", "NPU", "HPU"};
    if (str_equal(name, "shard") || str_equal(name, "mps")) return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
        if (strcasecmp(devices[i], name) == 0) return devices[i];
    return name;
}

/* Adds to a list of GRES; of a name and type that is there the larger count stays. */
static int keep_gres(struct slurm_site *site, const struct slurm_gres *gres) {
    for (size_t i = 0; i < site->n_gres; i++) {
        struct slurm_gres *have = &site->gres[i];
        if (!str_equal(have->name, gres->name) || !str_equal(have->type, gres->type)) continue;
        if (gres->count > have->count) have->count = gres->count;
        return 0;
    }
    if (ARRAY_GROW(site->gres, site->n_gres) < 0) return -ENOMEM;
    struct slurm_gres made = {.name = strdup(gres->name), .count = gres->count};
    if (gres->type != NULL) made.type = strdup(gres->type);
    if (made.name == NULL || (gres->type != NULL && made.type == NULL)) {
        gres_done(&made);
        return -ENOMEM;
    }
    site->gres[site->n_gres++] = made;
    return 0;
}

/* -- fields -- */

/* X(member, name) */
#define NODE_FIELDS(X)            \
    X(name, "NodeName")           \
    X(cpus, "CPUTot")             \
    X(usable_cpus, "CPUEfctv")    \
    X(used_cpus, "CPUAlloc")      \
    X(features, "ActiveFeatures") \
    X(gres, "Gres")               \
    X(used_gres, "GresUsed")      \
    X(memory, "RealMemory")       \
    X(used_memory, "AllocMem")    \
    X(state, "State")             \
    X(partitions, "Partitions")

struct node_fields {
#define X(member, name) char *member;
    NODE_FIELDS(X)
#undef X
};

/* The next NAME=VALUE of a line, cut in place; false at its end. Words without '=' belong to the field
 * before. */
static bool next_field(char **at, char **name, char **value) {
    for (;;) {
        *at += strspn(*at, " \t");
        if (**at == '\0') return false;
        char *word = *at;
        size_t size = strcspn(word, " \t");
        *at = word + size + (word[size] != '\0');
        word[size] = '\0';
        char *equals = strchr(word, '=');
        if (equals == NULL) continue;
        *equals = '\0';
        *name = word;
        *value = equals + 1;
        return true;
    }
}

static void take_fields(char *line, struct node_fields *fields) {
    char *name, *value;
    *fields = (struct node_fields){0};
    while (next_field(&line, &name, &value)) {
#define X(member, text) \
    if (fields->member == NULL && strcmp(name, text) == 0) fields->member = value;
        NODE_FIELDS(X)
#undef X
    }
}

/* The next line, cut off; NULL at the end. */
static char *next_line(char **at) {
    if (**at == '\0') return NULL;
    char *line = *at;
    size_t size = strcspn(line, "\n");
    *at = line + size + (line[size] != '\0');
    line[size] = '\0';
    return line;
}

/* -- a node -- */

struct node_reader {
    struct slurm_site *site;
    const struct demand *demand;
    struct node_shape shape;
    struct resources used;
    int64_t shards;
    char type[64];
    ty_error *err;
};

/* One name may stand in several entries, a type each. */
static int add_amount(struct resources *to, const char *resource, int64_t count) {
    quantity have = resources_get(to, resource), most = GRES_MAX * QUANTITY_ONE;
    quantity more = count * QUANTITY_ONE;
    return resources_set(to, resource, more > most - have ? most : have + more);
}

static int add_gres(void *context, const struct slurm_gres *gres) {
    struct node_reader *reader = context;
    const char *resource = resource_of(gres->name);
    if (keep_gres(reader->site, gres) < 0) return -ENOMEM;
    if (str_equal(gres->name, "shard")) reader->shards += gres->count;
    if (resource == NULL) return 0;
    bool device = accelerator_is_device(resource);
    if (device && reader->shape.accelerator_type == NULL && gres->type != NULL) {
        bool known = find_type(gres->type, reader->type);
        reader->shape.accelerator_type = strdup(known ? reader->type : gres->type);
        if (reader->shape.accelerator_type == NULL) return -ENOMEM;
    }
    return add_amount(&reader->shape.total, resource, gres->count);
}

/* A GPU of which shards are in use is no whole one any more; how many are is not told. */
static int add_used_gres(void *context, const struct slurm_gres *gres) {
    struct node_reader *reader = context;
    bool shards = str_equal(gres->name, "shard");
    const char *resource = shards ? "GPU" : resource_of(gres->name);
    return resource == NULL ? 0 : add_amount(&reader->used, resource, gres->count);
}

/* A feature is a label of its own name, and meets each constraint that asks for it as a value. */
static int add_feature(void *context, char *feature) {
    struct node_reader *reader = context;
    const struct demand *demand = reader->demand;
    if (*feature == '\0' || *feature == '(') return 0;
    if (labels_set(&reader->shape.labels, feature, "true", NULL) == -ENOMEM) return -ENOMEM;
    for (size_t s = 0; demand != NULL && s < demand->n_selectors; s++)
        for (size_t i = 0; i < demand->selectors[s].n; i++) {
            const struct label_constraint *constraint = &demand->selectors[s].items[i];
            for (size_t v = 0; v < constraint->n_values; v++) {
                bool met = str_equal(constraint->values[v], feature) && !str_equal(constraint->key, feature);
                if (met && labels_set(&reader->shape.labels, constraint->key, feature, NULL) == -ENOMEM)
                    return -ENOMEM;
            }
        }
    return 0;
}

static int set_total(struct resources *to, const char *name, const char *text, quantity unit, ty_error *err) {
    int64_t amount = 0;
    if (text == NULL) return 0;
    if (!str_to_int64(text, 0, QUANTITY_MAX / unit, &amount))
        return ty_fail(err, TY_EUSAGE, "scontrol shows %s=%.40s, which is no amount", name, text);
    return resources_set(to, name, amount * unit) < 0 ? ty_fail_memory(err) : 0;
}

/* IDLE, MIXED and ALLOCATED take jobs, unless a flag behind says otherwise. */
static bool takes_jobs(const char *state) {
    static const char *const not_now[] = {"DOWN",         "DRAIN",  "FAIL",    "NOT_RESPONDING", "MAINT",
                                          "POWERED_DOWN", "FUTURE", "UNKNOWN", "REBOOT",         "INVAL"};
    if (state == NULL || strchr(state, '*') != NULL) return false;
    for (size_t i = 0; i < ARRAY_SIZE(not_now); i++)
        if (strstr(state, not_now[i]) != NULL) return false;
    return true;
}

/* What is used may be more than there is: each shard in use counts as a GPU (add_used_gres). */
static int find_free(const struct node_reader *reader, const struct node_shape *shape, bool usable,
                     struct node_use **use) {
    CLEANUP(resources_done) struct resources left = {0};
    for (size_t i = 0; i < shape->total.n; i++) {
        const struct resource *item = &shape->total.items[i];
        quantity used = usable ? resources_get(&reader->used, item->name) : item->amount;
        quantity amount = used > item->amount ? 0 : item->amount - used;
        if (resources_set(&left, item->name, amount) < 0) return ty_fail_memory(reader->err);
    }
    return node_use_create(shape, &left, use, reader->err);
}

/* The next name of a list with commas between, and its size; false at the end. */
static bool next_name(const char **list, const char **name, size_t *size) {
    if (*list == NULL || **list == '\0') return false;
    *name = *list;
    *size = strcspn(*list, ",");
    *list += *size + ((*list)[*size] == ',');
    return true;
}

static bool is_in(const char *list, const char *name, size_t size) {
    const char *one;
    size_t one_size;
    while (next_name(&list, &one, &one_size))
        if (one_size == size && strncmp(one, name, size) == 0) return true;
    return false;
}

static bool share_a_name(const char *list, const char *other) {
    const char *name;
    size_t size;
    while (next_name(&other, &name, &size))
        if (is_in(list, name, size)) return true;
    return false;
}

static int add_node(struct node_reader *reader, const struct node_fields *fields) {
    struct node_use *use = NULL;
    ty_error *err = reader->err;
    const char *cpus = fields->usable_cpus != NULL ? fields->usable_cpus : fields->cpus;
    int result = set_total(&reader->shape.total, "CPU", cpus, QUANTITY_ONE, err);
    if (result >= 0) result = set_total(&reader->shape.total, "memory", fields->memory, MIB, err);
    if (result >= 0) result = set_total(&reader->used, "CPU", fields->used_cpus, QUANTITY_ONE, err);
    if (result >= 0) result = set_total(&reader->used, "memory", fields->used_memory, MIB, err);
    if (result >= 0) result = slurm_each_gres(fields->gres, add_gres, reader, err);
    if (result >= 0) result = slurm_each_gres(fields->used_gres, add_used_gres, reader, err);
    if (result >= 0 && fields->features != NULL) result = str_split(fields->features, ',', add_feature, reader);
    if (result < 0) return result == -ENOMEM ? ty_fail_memory(err) : result;
    const struct node_shape *shape = NULL;
    result = cluster_shape(reader->site->nodes, &reader->shape, &shape, err);
    bool usable = takes_jobs(fields->state), idle = true;
    for (size_t i = 0; i < reader->used.n; i++)
        idle &= reader->used.items[i].amount == 0;
    if (result >= 0 && (!usable || !idle)) result = find_free(reader, shape, usable, &use);
    int64_t gpus = result < 0 ? 0 : resources_get(&shape->total, "GPU") / QUANTITY_ONE;
    if (result >= 0 && ARRAY_GROW(reader->site->shards, reader->site->n_shards) < 0)
        result = ty_fail_memory(err);
    if (result >= 0) result = cluster_add_node(reader->site->nodes, fields->name, shape, &use, err);
    if (result >= 0) reader->site->shards[reader->site->n_shards++] = gpus > 0 ? reader->shards / gpus : 0;
    node_use_destroy(use);
    return result;
}

int slurm_read_nodes(char *text, const char *partition, const struct demand *demand, struct slurm_site *site,
                     ty_error *err) {
    struct slurm_site made = {.nodes = cluster_create()};
    int result = made.nodes == NULL ? ty_fail_memory(err) : 0;
    for (char *line; result >= 0 && (line = next_line(&text)) != NULL;) {
        struct node_reader reader = {.site = &made, .demand = demand, .err = err};
        struct node_fields fields;
        take_fields(line, &fields);
        if (fields.name == NULL || (partition != NULL && !share_a_name(fields.partitions, partition))) continue;
        result = add_node(&reader, &fields);
        if (result < 0) (void)ty_wrap(err, "node %.64s", fields.name);
        node_shape_done(&reader.shape);
        resources_done(&reader.used);
    }
    if (result < 0) {
        slurm_site_done(&made);
        return result;
    }
    slurm_site_done(site);
    *site = made;
    return 0;
}

/* -- licences and partitions -- */

int slurm_read_licences(char *text, struct slurm_site *site, ty_error *err) {
    for (char *line; (line = next_line(&text)) != NULL;) {
        struct slurm_licence licence = {0};
        char *name, *value;
        while (next_field(&line, &name, &value)) {
            if (str_equal(name, "LicenseName")) licence.name = value;
            if (str_equal(name, "Total")) (void)str_to_int64(value, 0, INT64_MAX, &licence.total);
            if (str_equal(name, "Free")) (void)str_to_int64(value, 0, INT64_MAX, &licence.free);
        }
        if (licence.name == NULL) continue;
        licence.name = strdup(licence.name);
        if (licence.name == NULL || ARRAY_GROW(site->licences, site->n_licences) < 0) {
            free(licence.name);
            return ty_fail_memory(err);
        }
        site->licences[site->n_licences++] = licence;
    }
    return 0;
}

int slurm_read_partition(char *text, const char *wanted, char **partition, ty_error *err) {
    CLEANUP(buffer_done) struct buffer known = {0};
    const char *found = wanted, *name;
    size_t size;
    for (char *line; (line = next_line(&text)) != NULL;) {
        char *field, *value, *own = NULL;
        bool standard = false;
        while (next_field(&line, &field, &value)) {
            if (own == NULL && str_equal(field, "PartitionName")) own = value;
            if (str_equal(field, "Default")) standard = str_equal(value, "YES");
        }
        if (own == NULL) continue;
        buffer_printf(&known, "%s%s", known.size > 0 ? "," : "", own);
        if (wanted == NULL && standard) found = own;
    }
    if (known.failed) return ty_fail_memory(err);
    for (const char *rest = wanted; next_name(&rest, &name, &size);)
        if (!is_in(known.data, name, size))
            return ty_fail(err, TY_EUSAGE, "partition %.*s is unknown to Slurm; there are: %.400s",
                           (int)(size < 80 ? size : 80), name, known.size > 0 ? known.data : "none");
    *partition = found != NULL ? strdup(found) : NULL;
    return found != NULL && *partition == NULL ? ty_fail_memory(err) : 0;
}

/* -- what was granted -- */

struct grant_reader {
    const struct slurm_site *all;
    struct hash *index;      /* of its nodes */
    struct node_reader node; /* of the group of nodes that is being read */
    ty_error *err;
};

/* Names of a site's nodes with their places in it, so that each is found at once. NULL without memory. */
static struct hash *index_nodes(const struct slurm_site *all) {
    struct hash *index = hash_create();
    for (size_t i = 0; index != NULL && all != NULL && all->nodes != NULL && i < all->nodes->n; i++)
        if (hash_set(index, all->nodes->nodes[i].name, i) < 0) {
            hash_destroy(index);
            return NULL;
        }
    return index;
}

static int add_granted_gres(void *context, const struct slurm_gres *gres) {
    struct grant_reader *reader = context;
    if (!str_equal(gres->name, "shard")) return add_gres(&reader->node, gres);
    reader->node.shards += gres->count;
    return resources_set(&reader->node.shape.total, "GPU", QUANTITY_ONE);
}

/* All shards of a node lie on one GPU, of which they are a part; all of it where nobody knows how it is
 * shared. */
static int take_other_shards(struct grant_reader *reader, int64_t each) {
    int64_t count = reader->node.shards;
    quantity part = each > count ? count * QUANTITY_ONE / each : QUANTITY_ONE;
    return resources_set(&reader->node.used, "GPU", QUANTITY_ONE - part);
}

static int add_granted_node(void *context, const char *name) {
    struct grant_reader *reader = context;
    CLEANUP(node_shape_done) struct node_shape shape = {0};
    struct cluster *nodes = reader->node.site->nodes;
    struct node_use *use = NULL;
    const uintptr_t *at = hash_get(reader->index, name);
    const struct node_shape *own = at != NULL ? reader->all->nodes->nodes[*at].shape : NULL;
    const char *type = reader->node.shape.accelerator_type;
    bool copied = resources_copy(&shape.total, &reader->node.shape.total) >= 0;
    /* The type and the labels that the node has beside what was granted of it. */
    if (type == NULL && own != NULL && resources_get(&shape.total, "GPU") > 0) type = own->accelerator_type;
    if (copied && type != NULL) copied = (shape.accelerator_type = strdup(type)) != NULL;
    if (copied && own != NULL) copied = labels_copy(&shape.labels, &own->labels) == 0;
    if (!copied) return ty_fail_memory(reader->err);
    const struct node_shape *kept = NULL;
    int result = cluster_shape(nodes, &shape, &kept, reader->err);
    if (result >= 0 && reader->node.shards > 0) {
        if (take_other_shards(reader, at != NULL ? reader->all->shards[*at] : 0) < 0)
            return ty_fail_memory(reader->err);
        result = find_free(&reader->node, kept, true, &use);
    }
    if (result >= 0) result = cluster_add_node(nodes, name, kept, &use, reader->err);
    node_use_destroy(use);
    return result;
}

/* One group: nodes of which the same was granted. */
static int read_group(struct grant_reader *reader, const char *names, const char *cpus, const char *memory,
                      const char *gres) {
    CLEANUP(idset_done) struct idset ids = {0};
    struct hostlist *list = NULL;
    struct slurm_site *site = reader->node.site;
    char count[24];
    reader->node = (struct node_reader){.site = site, .err = reader->err};
    int result = idset_parse(&ids, cpus != NULL ? cpus : "", reader->err);
    (void)snprintf(count, sizeof count, "%zu", idset_count(&ids));
    if (result >= 0) result = set_total(&reader->node.shape.total, "CPU", count, QUANTITY_ONE, reader->err);
    if (result >= 0 && memory != NULL && !str_equal(memory, "0"))
        result = set_total(&reader->node.shape.total, "memory", memory, MIB, reader->err);
    if (result >= 0) result = slurm_each_gres(gres, add_granted_gres, reader, reader->err);
    if (result >= 0) result = hostlist_parse(names, &list, reader->err);
    if (result >= 0) result = hostlist_each(list, add_granted_node, reader);
    hostlist_destroy(list);
    node_shape_done(&reader->node.shape);
    resources_done(&reader->node.used);
    return result == -ENOMEM ? ty_fail_memory(reader->err) : result;
}

/* Groups stand in one line, each from its Nodes= on. */
static int read_groups(char *text, struct grant_reader *reader) {
    char *name, *value, *nodes = NULL, *cpus = NULL, *memory = NULL, *gres = NULL;
    int result = 0;
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\n') *at = ' ';
    while (result >= 0 && next_field(&text, &name, &value)) {
        bool begins = str_equal(name, "Nodes"), ends = str_equal(name, "MinCPUsNode");
        if ((begins || ends) && nodes != NULL) {
            result = read_group(reader, nodes, cpus, memory, gres);
            nodes = cpus = memory = gres = NULL;
        }
        if (begins) nodes = value;
        if (nodes != NULL && str_equal(name, "CPU_IDs")) cpus = value;
        if (nodes != NULL && str_equal(name, "Mem")) memory = value;
        if (nodes != NULL && str_equal(name, "GRES")) gres = value;
        if (ends) break;
    }
    if (result >= 0 && nodes != NULL) result = read_group(reader, nodes, cpus, memory, gres);
    return result;
}

int slurm_read_job(char *text, const struct slurm_site *all, struct slurm_site *granted, ty_error *err) {
    struct slurm_site made = {.nodes = cluster_create()};
    struct grant_reader reader = {.all = all, .index = index_nodes(all), .node = {.site = &made}, .err = err};
    int result = made.nodes == NULL || reader.index == NULL ? ty_fail_memory(err) : read_groups(text, &reader);
    hash_destroy(reader.index);
    if (result >= 0 && made.nodes->n == 0)
        result = ty_fail(err, TY_EUSAGE, "scontrol shows no nodes that were granted to this job (show job -d)");
    if (result < 0) {
        slurm_site_done(&made);
        return result;
    }
    slurm_site_done(granted);
    *granted = made;
    return 0;
}
