/* Kinds of bundles: found by content, bound to shapes, put in order, and how often one fits a class or the
 * open node. A kind is made once and remembered from decision to decision, because to bind it looks at every
 * shape of the cluster; the best class for one is best.c's matter. */
#include "placement/kind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "scaling/device.h"

enum { KINDS_KEPT = 256 };
static const size_t bytes_kept = (size_t)64 << 20;

/* ---- identity ---- */

static uint64_t text_hash(const char *text) {
    return str_hash(text, strlen(text));
}

/* Sums, so that the order in which resources and labels were given does not matter. */
static uint64_t hash_bundle(const struct bundle_kind *bundle, int64_t times, bool loose) {
    uint64_t hash = (uint64_t)times * 2 + loose;
    for (size_t i = 0; i < bundle->resources->n; i++)
        if (bundle->resources->items[i].amount)
            hash +=
                (text_hash(bundle->resources->items[i].name) ^ (uint64_t)bundle->resources->items[i].amount) *
                UINT64_C(0x9E3779B97F4A7C15);
    for (size_t i = 0; bundle->selector && i < bundle->selector->n; i++) {
        const struct label_constraint *constraint = &bundle->selector->items[i];
        uint64_t part = text_hash(constraint->key) + constraint->op;
        for (size_t v = 0; v < constraint->n_values; v++)
            part = part * 31 + text_hash(constraint->values[v]);
        hash += part * UINT64_C(0xC2B2AE3D27D4EB4F);
    }
    return hash;
}

static bool is_bundle(const struct kind *kind, const struct bundle_kind *bundle, int64_t times, bool loose) {
    static const struct label_selector any = {0};
    if (kind->times != times || kind->loose != loose) return false;
    size_t n_wanted = 0;
    for (size_t i = 0; i < bundle->resources->n; i++)
        n_wanted += bundle->resources->items[i].amount != 0;
    if (kind->n_wanted != n_wanted) return false;
    for (size_t i = 0; i < kind->n_wanted; i++)
        if (resources_get(bundle->resources, kind->wanted[i].name) != kind->wanted[i].amount) return false;
    return label_selector_equal(&kind->selector, bundle->selector ? bundle->selector : &any);
}

static void kind_destroy(struct kind *kind) {
    for (size_t i = 0; i < kind->n_wanted; i++)
        free(kind->wanted[i].name);
    free(kind->wanted);
    label_selector_done(&kind->selector);
    free(kind->shapes);
    free(kind->bound);
    free(kind->scores);
    free(kind->winner);
    free(kind);
}

void kind_table_done(struct kind_table *table) {
    for (size_t i = 0; i < KIND_BUCKETS; i++) {
        for (struct kind *kind = table->buckets[i], *next; kind; kind = next) {
            next = kind->chain;
            kind_destroy(kind);
        }
    }
    *table = (struct kind_table){0};
}

void kind_table_trim(struct kind_table *table) {
    if (table->n > KINDS_KEPT || table->bytes > bytes_kept) kind_table_done(table);
}

static int wanted_order(const void *a, const void *b) {
    return strcmp(((const struct wanted *)a)->name, ((const struct wanted *)b)->name);
}

static int copy_wanted(struct kind *kind, const struct resources *resources) {
    kind->wanted = calloc(resources->n + 1, sizeof *kind->wanted);
    if (!kind->wanted) return -ENOMEM;
    for (size_t i = 0; i < resources->n; i++) {
        const struct resource *item = &resources->items[i];
        if (!item->amount) continue;
        char *name = strdup(item->name);
        if (!name) return -ENOMEM;
        kind->wanted[kind->n_wanted++] = (struct wanted){name, item->amount, accelerator_is_device(name)};
    }
    qsort(kind->wanted, kind->n_wanted, sizeof *kind->wanted, wanted_order);
    return 0;
}

/* ---- fitting ---- */

/* How often `amount` can be granted on devices with these free parts: whole ones, or a part of a single one
 * (docs/spec/placement.md 3.6). */
static int64_t device_count(quantity amount, const uint16_t *free_parts, size_t n) {
    if (amount > QUANTITY_ONE && amount % QUANTITY_ONE) return 0;
    int64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += amount >= QUANTITY_ONE ? free_parts[i] == QUANTITY_ONE : free_parts[i] / amount;
    return amount >= QUANTITY_ONE ? count / (amount / QUANTITY_ONE) : count;
}

size_t kind_resource_index(const struct resources *total, const char *want) {
    const char *want_type = NULL, *have_type;
    bool typed = str_prefix(want, ACCELERATOR_TYPE_PREFIX, &want_type);
    size_t i = 0;
    for (; i < total->n; i++) {
        const char *have = total->items[i].name;
        if (!strcmp(want, have)) break;
        if (typed && str_prefix(have, ACCELERATOR_TYPE_PREFIX, &have_type) &&
            accelerator_type_matches(want_type, have_type))
            break;
    }
    return i;
}

/* Whether nodes of a shape have enough in all, with nothing taken; then where the amount stands among theirs. A
 * sum of unlike bundles (loose) is compared by its sum, since it tells nothing of the pieces that devices come
 * in. */
static bool bind_resource(const struct kind *kind, const struct classes *classes, const struct shape_info *info,
                          const struct wanted *wanted, uint16_t *index) {
    const struct resources *total = &info->shape->total;
    quantity need;
    if (!quantity_multiply(wanted->amount, kind->times, &need)) return false;
    size_t i = kind_resource_index(total, wanted->name);
    if (i == total->n || total->items[i].amount < need) return false;
    *index = (uint16_t)i;
    uint32_t resource = info->first_resource + (uint32_t)i;
    if (!wanted->device || classes->devices_at[resource] < 0 || kind->loose) return true;
    quantity amount = wanted->amount;
    if (amount > QUANTITY_ONE && amount % QUANTITY_ONE) return false;
    int64_t n = (int64_t)classes->devices_n[resource];
    return (amount >= QUANTITY_ONE ? n / (amount / QUANTITY_ONE) : n * (QUANTITY_ONE / amount)) >= kind->times;
}

static int bind_shapes(struct kind *kind, const struct classes *classes) {
    size_t row = (kind->n_wanted + 1) * sizeof *kind->bound; /* one more: nothing may be wanted */
    kind->n_all_shapes = classes->n_shapes;
    for (uint32_t s = 0; s < classes->n_shapes; s++) {
        if (ARRAY_GROW(kind->shapes, kind->n_shapes) < 0 || array_grow(&kind->bound, kind->n_shapes, row) < 0)
            return -ENOMEM;
        const struct shape_info *info = &classes->shapes[s];
        uint16_t *bound = kind->bound + kind->n_shapes * kind->n_wanted;
        bool fits = info->n_nodes && label_selector_match(&kind->selector, &info->shape->labels);
        for (size_t i = 0; i < kind->n_wanted && fits; i++)
            fits = bind_resource(kind, classes, info, &kind->wanted[i], &bound[i]);
        if (fits) kind->shapes[kind->n_shapes++] = s;
    }
    return 0;
}

static struct kind *kind_create(const struct classes *classes, const struct bundle_kind *bundle, int64_t times,
                                bool loose) {
    struct kind *kind = calloc(1, sizeof *kind);
    if (!kind) return NULL;
    kind->times = times;
    kind->loose = loose;
    if (copy_wanted(kind, bundle->resources) == 0 &&
        (!bundle->selector || label_selector_copy(&kind->selector, bundle->selector) == 0) &&
        bind_shapes(kind, classes) == 0)
        return kind;
    kind_destroy(kind);
    return NULL;
}

struct kind *kind_find(struct kind_table *table, const struct classes *classes,
                       const struct bundle_kind *bundle, int64_t times, bool loose) {
    uint64_t hash = hash_bundle(bundle, times, loose);
    struct kind **bucket = &table->buckets[(hash ^ (hash >> 32)) % KIND_BUCKETS];
    for (struct kind *kind = *bucket; kind; kind = kind->chain)
        if (kind->hash == hash && is_bundle(kind, bundle, times, loose)) return kind;
    struct kind *kind = kind_create(classes, bundle, times, loose);
    if (!kind) return NULL;
    kind->hash = hash;
    kind->chain = *bucket;
    *bucket = kind;
    table->n++;
    return kind;
}

const uint16_t *kind_bound(const struct kind *kind, uint32_t shape) {
    if (kind->n_shapes == kind->n_all_shapes) return kind->bound + shape * kind->n_wanted;
    uint32_t low = 0, high = kind->n_shapes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (kind->shapes[middle] == shape) return kind->bound + middle * kind->n_wanted;
        if (kind->shapes[middle] < shape) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* ---- order of placing ---- */

static quantity wanted_amount(const struct kind *kind, const char *name) {
    for (size_t i = 0; i < kind->n_wanted; i++)
        if (!strcmp(kind->wanted[i].name, name)) return kind->wanted[i].amount;
    return 0;
}

static bool is_custom(const char *name) {
    return !str_equal(name, "GPU") && !str_equal(name, "object_store_memory") && !str_equal(name, "memory") &&
           !str_equal(name, "CPU");
}

static int more_first(quantity a, quantity b) {
    return a > b ? -1 : a < b;
}

/* The first custom resource in byte order of which they want unlike amounts decides. */
static int custom_order(const struct kind *a, const struct kind *b) {
    size_t i = 0, j = 0;
    for (;;) {
        while (i < a->n_wanted && !is_custom(a->wanted[i].name))
            i++;
        while (j < b->n_wanted && !is_custom(b->wanted[j].name))
            j++;
        if (i == a->n_wanted || j == b->n_wanted) return i < a->n_wanted ? -1 : j < b->n_wanted;
        int by_name = strcmp(a->wanted[i].name, b->wanted[j].name);
        if (by_name) return by_name; /* the one whose name comes first wants some of it, the other none */
        int by_amount = more_first(a->wanted[i++].amount, b->wanted[j++].amount);
        if (by_amount) return by_amount;
    }
}

int kind_order(const struct kind *a, const struct kind *b) {
    static const char *const then[] = {"object_store_memory", "memory", "CPU"};
    int order = more_first(wanted_amount(a, "GPU"), wanted_amount(b, "GPU"));
    if (!order) order = custom_order(a, b);
    for (size_t i = 0; !order && i < sizeof then / sizeof *then; i++)
        order = more_first(wanted_amount(a, then[i]), wanted_amount(b, then[i]));
    return order;
}

/* ---- against a class ---- */

/* The least of what each resource is enough for; of devices the amount that is free is asked first, for it is
 * one division, and the devices are a loop. */
int64_t kind_count_on(const struct kind *kind, const struct classes *classes, const struct node_view *state,
                      int64_t limit) {
    const uint16_t *bound = kind_bound(kind, state->shape);
    if (!bound) return 0;
    for (size_t i = 0; i < kind->n_wanted && limit; i++) {
        const struct wanted *wanted = &kind->wanted[i];
        int64_t count = state->amounts[bound[i]] / wanted->amount;
        uint32_t resource = classes->shapes[state->shape].first_resource + bound[i];
        int32_t at = classes->devices_at[resource];
        if (count && wanted->device && at >= 0 && !kind->loose)
            count = device_count(wanted->amount, state->devices + at, classes->devices_n[resource]);
        if (count < limit) limit = count;
    }
    return limit;
}

int64_t kind_count(const struct kind *kind, const struct classes *classes, uint32_t slot, int64_t limit) {
    const struct node_class *class = class_at(classes, slot);
    struct node_view state = {class->shape, class_amounts(class), class_devices(classes, class)};
    return kind_count_on(kind, classes, &state, limit);
}
