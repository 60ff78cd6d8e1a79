/* Classes of alike nodes: a hash table from state to class, and in each class a pairing heap of its nodes by
 * number. The heap's links lie with the nodes, so that a class needs no memory of its own; since no two classes
 * share a node there are never more classes than nodes, and one spare for the node that moves. */
#include "placement/classes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- heap of a class ---- */

/* The root of two heaps made one: the higher of the two roots becomes the eldest child of the lower one. */
static uint32_t meld(struct heap_link *links, uint32_t a, uint32_t b) {
    if (a == NONE) return b;
    if (b == NONE) return a;
    uint32_t root = a < b ? a : b, other = a < b ? b : a;
    links[other].next = links[root].child;
    links[other].back = root;
    if (links[root].child != NONE) links[links[root].child].back = other;
    links[root].child = other;
    return root;
}

static uint32_t heap_remove(struct heap_link *links, uint32_t root, uint32_t node) {
    struct heap_link *link = &links[node];
    /* The node's children become one heap: pairs from the left, then all of them from the right. */
    uint32_t pairs = NONE, children = NONE;
    for (uint32_t first = link->child; first != NONE;) {
        uint32_t a = first, b = links[a].next;
        first = b == NONE ? NONE : links[b].next;
        uint32_t pair = meld(links, a, b);
        links[pair].next = pairs;
        pairs = pair;
    }
    while (pairs != NONE) {
        uint32_t pair = pairs;
        pairs = links[pair].next;
        children = meld(links, children, pair);
    }
    if (children != NONE) links[children].next = links[children].back = NONE;
    if (node == root) return children;
    if (links[link->back].child == node) {
        links[link->back].child = link->next;
    } else {
        links[link->back].next = link->next;
    }
    if (link->next != NONE) links[link->next].back = link->back;
    return meld(links, root, children);
}

/* ---- table of classes ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

/* Of devices four at a time, as a free part has 16 bits; `devices` are sorted, or nodes that differ only in
 * which of their devices are free would not be alike. */
static uint64_t hash_state(uint32_t shape, enum tier tier, const quantity *amounts, size_t n_amounts,
                           const uint16_t *devices, size_t n_devices) {
    uint64_t hash = mix(((uint64_t)shape << 2) | tier, n_devices);
    for (size_t i = 0; i < n_amounts; i++)
        hash = mix(hash, (uint64_t)amounts[i]);
    uint64_t word = 0;
    for (size_t i = 0; i < n_devices; i++) {
        word = (word << 16) | devices[i];
        if (i % 4 == 3) hash = mix(hash, word);
    }
    return mix(hash, word);
}

/* Whether nodes of the shape can be alike: one that has its shape to itself is not looked for in the table. */
static bool is_shared(const struct classes *classes, uint32_t shape) {
    return classes->shapes[shape].n_nodes > 1;
}

/* Whoever is further behind than the ring is long begins anew (best.c). */
static void log_change(struct classes *classes, uint32_t slot) {
    classes->log[classes->log_end++ & classes->log_mask] = slot;
}

/* Removal from linear probing without tombstones: what follows moves up as far as its own place allows. */
static void table_remove(struct classes *classes, uint32_t slot) {
    uint32_t mask = classes->mask, hole = (uint32_t)class_at(classes, slot)->hash & mask;
    while (classes->table[hole] != slot)
        hole = (hole + 1) & mask;
    for (uint32_t at = (hole + 1) & mask; classes->table[at] != NONE; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)class_at(classes, classes->table[at])->hash & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        classes->table[hole] = classes->table[at];
        hole = at;
    }
    classes->table[hole] = NONE;
}

static void class_free(struct classes *classes, uint32_t slot) {
    const struct node_class *class = class_at(classes, slot);
    if (is_shared(classes, class->shape)) table_remove(classes, slot);
    if (class->next != NONE) class_at(classes, class->next)->back = class->back;
    if (class->back != NONE) class_at(classes, class->back)->next = class->next;
    if (class->back == NONE) classes->shapes[class->shape].first_class = class->next;
    classes->freed[classes->n_freed++] = slot;
    classes->n_classes--;
}

/* The open node's place in the table: its class is there, or NONE. */
static uint32_t table_find(const struct classes *classes, enum tier tier, uint64_t hash) {
    uint32_t shape = classes->open.shape, at = (uint32_t)hash & classes->mask;
    const struct shape_info *info = &classes->shapes[shape];
    for (; classes->table[at] != NONE; at = (at + 1) & classes->mask) {
        const struct node_class *class = class_at(classes, classes->table[at]);
        if (class->hash == hash && class->shape == shape && class->tier == tier &&
            !memcmp(class_amounts(class), classes->open.amounts, info->n_resources * sizeof(quantity)) &&
            !memcmp(class_devices(classes, class), classes->sorted, info->n_positions * sizeof(uint16_t)))
            break;
    }
    return at;
}

static uint32_t class_make(struct classes *classes, enum tier tier, uint64_t hash) {
    uint32_t shape = classes->open.shape;
    struct shape_info *info = &classes->shapes[shape];
    uint32_t slot = classes->n_freed ? classes->freed[--classes->n_freed] : classes->n_slots++;
    struct node_class *class = class_at(classes, slot);
    *class = (struct node_class){.hash = hash, .shape = shape, .first = NONE, .tier = tier};
    class->next = info->first_class;
    class->back = NONE;
    if (class->next != NONE) class_at(classes, class->next)->back = slot;
    info->first_class = slot;
    memcpy(class_amounts(class), classes->open.amounts, info->n_resources * sizeof(quantity));
    memcpy(class_devices(classes, class), classes->sorted, info->n_positions * sizeof(uint16_t));
    classes->n_classes++;
    return slot;
}

/* The class of the open node, made when there is none. */
static uint32_t class_find(struct classes *classes, enum tier tier) {
    uint32_t shape = classes->open.shape;
    const struct shape_info *info = &classes->shapes[shape];
    if (!is_shared(classes, shape)) return class_make(classes, tier, 0);
    uint64_t hash =
        hash_state(shape, tier, classes->open.amounts, info->n_resources, classes->sorted, info->n_positions);
    uint32_t at = table_find(classes, tier, hash);
    if (classes->table[at] == NONE) classes->table[at] = class_make(classes, tier, hash);
    return classes->table[at];
}

/* Nodes have few devices, and the lowest are granted first, so that free parts are nearly sorted as they
 * lie. */
static void insertion_sort(uint16_t *items, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint16_t item = items[i];
        size_t at = i;
        for (; at > 0 && items[at - 1] > item; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* ---- the open node ---- */

static void hold(struct classes *classes, uint32_t node, uint32_t shape) {
    classes->open.node = node;
    classes->open.shape = shape;
    classes->open.devices = classes->devices + classes->first_position[node];
}

/* The amounts are copied out of the class, which goes when this was its last node; the node's devices are its
 * own, and are changed where they lie. */
void classes_open(struct classes *classes, uint32_t node) {
    uint32_t slot = classes->class_of[node];
    struct node_class *class = class_at(classes, slot);
    hold(classes, node, class->shape);
    memcpy(classes->open.amounts, class_amounts(class),
           classes->shapes[class->shape].n_resources * sizeof(quantity));
    class->first = heap_remove(classes->links, class->first, node);
    class->n_nodes--;
    classes->class_of[node] = NONE;
    if (class->n_nodes == 0) class_free(classes, slot);
    log_change(classes, slot);
}

void classes_close(struct classes *classes, enum tier tier) {
    const struct shape_info *info = &classes->shapes[classes->open.shape];
    memcpy(classes->sorted, classes->open.devices, info->n_positions * sizeof(uint16_t));
    for (size_t i = 0; i < info->n_resources; i++) {
        int32_t at = classes->devices_at[info->first_resource + i];
        if (at >= 0) insertion_sort(classes->sorted + at, classes->devices_n[info->first_resource + i]);
    }
    uint32_t slot = class_find(classes, tier);
    struct node_class *class = class_at(classes, slot);
    classes->links[classes->open.node] = (struct heap_link){NONE, NONE, NONE};
    class->first = meld(classes->links, class->first, classes->open.node);
    class->n_nodes++;
    classes->class_of[classes->open.node] = slot;
    log_change(classes, slot);
}

void classes_move(struct classes *classes, uint32_t node, enum tier tier) {
    classes_open(classes, node);
    classes_close(classes, tier);
}

/* ---- set-up ---- */

static int pointer_order(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)((const struct shape_info *)a)->shape;
    uintptr_t y = (uintptr_t)((const struct shape_info *)b)->shape;
    return x < y ? -1 : x > y;
}

static int find_devices(const struct node_shape *shape, const char *resource) {
    for (size_t d = 0; d < shape->n_devices; d++)
        if (!strcmp(shape->devices[d].resource, resource)) return (int)d;
    return -1;
}

/* The cluster's shapes by address, so that a node's shape is found by bisection, and where the devices of each
 * resource lie in a node of the shape. */
static int lay_out_shapes(struct classes *classes) {
    size_t n_shapes = 0, n = 0;
    for (const struct node_shape *shape = classes->cluster->shapes; shape; shape = shape->next)
        n_shapes++;
    classes->shapes = calloc(n_shapes + 1, sizeof *classes->shapes);
    if (!classes->shapes) return -ENOMEM;
    for (const struct node_shape *shape = classes->cluster->shapes; shape; shape = shape->next)
        classes->shapes[classes->n_shapes++] = (struct shape_info){.shape = shape, .first_class = NONE};
    qsort(classes->shapes, n_shapes, sizeof *classes->shapes, pointer_order);
    for (uint32_t s = 0; s < classes->n_shapes; s++) {
        classes->shapes[s].first_resource = (uint32_t)n;
        classes->shapes[s].n_resources = (uint32_t)classes->shapes[s].shape->total.n;
        n += classes->shapes[s].n_resources;
    }
    classes->devices_at = malloc((n + 1) * sizeof *classes->devices_at);
    classes->devices_n = calloc(n + 1, sizeof *classes->devices_n);
    if (!classes->devices_at || !classes->devices_n) return -ENOMEM;
    for (uint32_t s = 0; s < classes->n_shapes; s++) {
        struct shape_info *info = &classes->shapes[s];
        for (size_t i = 0; i < info->n_resources; i++) {
            int d = find_devices(info->shape, info->shape->total.items[i].name);
            classes->devices_at[info->first_resource + i] = d < 0 ? -1 : (int32_t)info->n_positions;
            if (d < 0) continue;
            classes->devices_n[info->first_resource + i] = (uint32_t)info->shape->devices[d].n;
            info->n_positions += (uint32_t)info->shape->devices[d].n;
        }
    }
    return 0;
}

static int claim_nodes(struct classes *classes) {
    size_t n = classes->cluster->n, positions = 0;
    classes->class_of = malloc((n + 1) * sizeof *classes->class_of);
    classes->links = malloc((n + 1) * sizeof *classes->links);
    classes->first_position = malloc((n + 1) * sizeof *classes->first_position);
    if (!classes->class_of || !classes->links || !classes->first_position) return -ENOMEM;
    for (size_t i = 0, shape = 0; i < n; i++) {
        struct shape_info key = {.shape = classes->cluster->nodes[i].shape};
        /* neighbours mostly share one, or have two that were made one after the other */
        if (classes->shapes[shape].shape != key.shape && shape + 1 < classes->n_shapes) shape++;
        if (classes->shapes[shape].shape != key.shape) {
            const struct shape_info *found =
                bsearch(&key, classes->shapes, classes->n_shapes, sizeof key, pointer_order);
            shape = (size_t)(found - classes->shapes);
        }
        classes->class_of[i] = (uint32_t)shape; /* until it has a class */
        if (classes->shapes[shape].n_nodes++ == 0) classes->shapes[shape].first_node = (uint32_t)i;
        classes->first_position[i] = (uint32_t)positions;
        positions += classes->shapes[shape].n_positions;
    }
    classes->devices = malloc((positions + 1) * sizeof *classes->devices);
    return classes->devices ? 0 : -ENOMEM;
}

static uint32_t power_of_two(size_t least) {
    uint32_t power = 16;
    while (power < least)
        power *= 2;
    return power;
}

/* Records are as large as the largest shape needs, so that a slot serves any class; of many slots most pages
 * are never touched. The log holds two changes of every node, each of which is an entry out and one in. */
static int claim_classes(struct classes *classes) {
    size_t n = classes->cluster->n + 1, amounts = 0, positions = 0;
    for (uint32_t s = 0; s < classes->n_shapes; s++) {
        const struct shape_info *info = &classes->shapes[s];
        if (info->n_resources > amounts) amounts = info->n_resources;
        if (info->n_positions > positions) positions = info->n_positions;
    }
    classes->devices_offset = sizeof(struct node_class) + amounts * sizeof(quantity);
    classes->stride = (classes->devices_offset + positions * sizeof(uint16_t) + 7) & ~(size_t)7;
    classes->mask = power_of_two(2 * n) - 1;
    classes->log_mask = power_of_two(4 * n) - 1;
    classes->records = malloc(n * classes->stride);
    classes->freed = malloc(n * sizeof *classes->freed);
    classes->table = malloc((classes->mask + (size_t)1) * sizeof *classes->table);
    classes->log = malloc((classes->log_mask + (size_t)1) * sizeof *classes->log);
    classes->open.amounts = malloc((amounts + 1) * sizeof(quantity));
    classes->sorted = malloc((positions + 1) * sizeof(uint16_t));
    if (!classes->records || !classes->freed || !classes->table || !classes->log || !classes->open.amounts ||
        !classes->sorted)
        return -ENOMEM;
    memset(classes->table, 0xff, (classes->mask + (size_t)1) * sizeof *classes->table);
    return 0;
}

int classes_init(struct classes *classes, const struct cluster *cluster, bool idle) {
    *classes = (struct classes){.cluster = cluster};
    if (cluster->n >= NONE || lay_out_shapes(classes) < 0 || claim_nodes(classes) < 0 ||
        claim_classes(classes) < 0) {
        classes_done(classes);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < cluster->n; i++) {
        hold(classes, i, classes->class_of[i]);
        const struct shape_info *info = &classes->shapes[classes->open.shape];
        const struct node_use *use = idle ? NULL : classes->cluster->nodes[i].use;
        for (size_t j = 0; j < info->n_resources; j++) {
            const struct resource *item = &info->shape->total.items[j];
            classes->open.amounts[j] = use ? resources_get(&use->available, item->name) : item->amount;
            int32_t at = classes->devices_at[info->first_resource + j];
            if (at < 0) continue;
            int d = use ? find_devices(info->shape, item->name) : 0;
            for (size_t k = 0; k < classes->devices_n[info->first_resource + j]; k++)
                classes->open.devices[at + (ptrdiff_t)k] =
                    (uint16_t)(use ? use->device_free[d][k] : QUANTITY_ONE);
        }
        classes_close(classes, TIER_UNUSED);
    }
    return 0;
}

void classes_done(struct classes *classes) {
    free(classes->shapes);
    free(classes->devices_at);
    free(classes->devices_n);
    free(classes->class_of);
    free(classes->links);
    free(classes->first_position);
    free(classes->devices);
    free(classes->records);
    free(classes->freed);
    free(classes->table);
    free(classes->log);
    free(classes->open.amounts);
    free(classes->sorted);
    *classes = (struct classes){0};
}
