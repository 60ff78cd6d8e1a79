/* The set of nodes: names lie end to end in blocks, nodes in one array, and two compact indexes find a node
 * by its name and a shape by its content, so that adding a node is O(1) and costs its name and some forty
 * bytes. */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

/* -- a compact index of numbered items by the hash of their content: four bytes a slot, and nothing else is
 * kept for an item. The items lie with the caller, whose functions hash item number i and compare it with a
 * key -- */

/* Zero-initialised is empty. */
struct slots {
    uint32_t *table; /* owned; item + 1, 0 for a free slot */
    size_t n_table;  /* 0 or a power of two */
    size_t n;
};

enum { SLOTS_NONE = -1 };

struct slots_of {
    uint64_t (*hash)(const void *items, uint32_t item);
    bool (*equal)(const void *items, uint32_t item, const void *key);
    const void *items;
};

static void slots_done(struct slots *slots) {
    free(slots->table);
    *slots = (struct slots){0};
}

/* The number of the item equal to `key`, or SLOTS_NONE. Nothing is ever removed, so that a free slot ends the
 * search. */
static int64_t slots_find(const struct slots *slots, const struct slots_of *of, uint64_t hash,
                          const void *key) {
    if (slots->n_table == 0) return SLOTS_NONE;
    for (size_t at = hash & (slots->n_table - 1); slots->table[at] != 0; at = (at + 1) & (slots->n_table - 1)) {
        uint32_t item = slots->table[at] - 1;
        if (of->equal(of->items, item, key)) return item;
    }
    return SLOTS_NONE;
}

static void put(uint32_t *table, size_t n_table, uint64_t hash, uint32_t entry) {
    size_t at = hash & (n_table - 1);
    while (table[at] != 0)
        at = (at + 1) & (n_table - 1);
    table[at] = entry;
}

/* To twice the slots. Hashes are not kept, and are made anew of the items: memory counts for more here. */
static int grow(struct slots *slots, const struct slots_of *of) {
    size_t n_table = slots->n_table == 0 ? 16 : 2 * slots->n_table;
    uint32_t *table = calloc(n_table, sizeof *table);
    if (table == NULL) return -ENOMEM;
    for (size_t i = 0; i < slots->n_table; i++)
        if (slots->table[i] != 0)
            put(table, n_table, of->hash(of->items, slots->table[i] - 1), slots->table[i]);
    free(slots->table);
    slots->table = table;
    slots->n_table = n_table;
    return 0;
}

/* Adds item number `item`, which must not be there; `of->items` must already hold it. 0, or -ENOMEM. */
static int slots_add(struct slots *slots, const struct slots_of *of, uint32_t item) {
    if (3 * (slots->n + 1) > 2 * slots->n_table && grow(slots, of) < 0) return -ENOMEM;
    put(slots->table, slots->n_table, of->hash(of->items, item), item + 1);
    slots->n++;
    return 0;
}

enum { BLOCK_SIZE = 64 * 1024, NAME_MAX_SIZE = 4096 };

struct name_block {
    struct name_block *next;
    size_t used, size;
    char text[];
};

struct cluster_names {
    struct name_block *blocks;
    struct slots nodes;
    struct slots shapes;
    const struct node_shape **shape_list; /* owned; the shapes are in the cluster's list */
    size_t n_shapes;
    size_t n_devices; /* of all nodes */
};

static uint64_t hash_name(const void *nodes, uint32_t item) {
    const char *name = ((const struct node *)nodes)[item].name;
    return str_hash(name, strlen(name));
}

static bool name_equal(const void *nodes, uint32_t item, const void *name) {
    return strcmp(((const struct node *)nodes)[item].name, name) == 0;
}

static uint64_t hash_shape(const void *shapes, uint32_t item) {
    return node_shape_hash(((const struct node_shape *const *)shapes)[item]);
}

static bool shape_equal(const void *shapes, uint32_t item, const void *shape) {
    return node_shape_equal(((const struct node_shape *const *)shapes)[item], shape);
}

static struct slots_of by_name(const struct cluster *cluster) {
    return (struct slots_of){hash_name, name_equal, cluster->nodes};
}

static struct slots_of by_content(const struct cluster *cluster) {
    return (struct slots_of){hash_shape, shape_equal, cluster->names->shape_list};
}

struct cluster *cluster_create(void) {
    struct cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL) return NULL;
    cluster->names = calloc(1, sizeof *cluster->names);
    if (cluster->names != NULL) return cluster;
    free(cluster);
    return NULL;
}

void cluster_destroy(struct cluster *cluster) {
    if (cluster == NULL) return;
    for (size_t i = 0; i < cluster->n; i++)
        node_use_destroy(cluster->nodes[i].use);
    while (cluster->shapes != NULL) {
        struct node_shape *next = cluster->shapes->next;
        node_shape_done(cluster->shapes);
        free(cluster->shapes);
        cluster->shapes = next;
    }
    while (cluster->names->blocks != NULL) {
        struct name_block *next = cluster->names->blocks->next;
        free(cluster->names->blocks);
        cluster->names->blocks = next;
    }
    slots_done(&cluster->names->nodes);
    slots_done(&cluster->names->shapes);
    free(cluster->names->shape_list);
    free(cluster->names);
    free(cluster->nodes);
    free(cluster);
}

/* The shape goes into the list before it goes into the index, whose hash and comparison look there; it counts
 * only when both have it. */
int cluster_shape(struct cluster *cluster, struct node_shape *shape, const struct node_shape **kept,
                  ty_error *err) {
    int result = node_shape_complete(shape, err);
    if (result < 0) return result;
    struct cluster_names *names = cluster->names;
    struct slots_of of = by_content(cluster);
    int64_t found = slots_find(&names->shapes, &of, node_shape_hash(shape), shape);
    if (found != SLOTS_NONE) {
        node_shape_done(shape);
        *kept = names->shape_list[found];
        return 0;
    }
    if (ARRAY_GROW(names->shape_list, names->n_shapes) < 0) return ty_fail_memory(err);
    struct node_shape *made = malloc(sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = *shape;
    names->shape_list[names->n_shapes] = made;
    of = by_content(cluster);
    if (slots_add(&names->shapes, &of, (uint32_t)names->n_shapes) < 0) {
        free(made);
        return ty_fail_memory(err);
    }
    names->n_shapes++;
    made->next = cluster->shapes;
    cluster->shapes = made;
    *shape = (struct node_shape){0};
    *kept = made;
    return 0;
}

/* A copy of `name` in the blocks. Taken back by the next call when `*block` is not charged with it. */
static char *copy_name(struct cluster_names *names, const char *name, size_t size) {
    struct name_block *block = names->blocks;
    if (block == NULL || block->size - block->used < size) {
        block = malloc(sizeof *block + BLOCK_SIZE);
        if (block == NULL) return NULL;
        *block = (struct name_block){.next = names->blocks, .size = BLOCK_SIZE};
        names->blocks = block;
    }
    return memcpy(block->text + block->used, name, size);
}

/* As with shapes: the node stands in its place before the index is told of it, and counts at the end. */
int cluster_add_node(struct cluster *cluster, const char *name, const struct node_shape *shape,
                     struct node_use **use, ty_error *err) {
    size_t length = strnlen(name, NAME_MAX_SIZE);
    if (length == 0) return ty_fail(err, TY_EUSAGE, "a node's name is empty");
    if (length == NAME_MAX_SIZE)
        return ty_fail(err, TY_EUSAGE, "node name %.40s...: more than %d bytes", name, NAME_MAX_SIZE - 1);
    for (const char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return ty_fail(err, TY_EUSAGE, "node name %s: control characters are not allowed", name);
    struct cluster_names *names = cluster->names;
    size_t size = strlen(name) + 1;
    struct slots_of of = by_name(cluster);
    if (slots_find(&names->nodes, &of, str_hash(name, size - 1), name) != SLOTS_NONE)
        return ty_fail(err, TY_EUSAGE, "node %s is there twice; names must differ", name);
    size_t devices = 0;
    for (size_t i = 0; i < shape->n_devices; i++)
        devices += shape->devices[i].n;
    /* Before the arrays grow. */
    if (cluster->n == CLUSTER_MAX_NODES)
        return ty_fail(err, TY_EUSAGE, "more than %d nodes", CLUSTER_MAX_NODES);
    if (cluster->names->n_devices + devices > CLUSTER_MAX_DEVICES)
        return ty_fail(err, TY_EUSAGE, "more than %d devices on all nodes together", CLUSTER_MAX_DEVICES);
    if (ARRAY_GROW(cluster->nodes, cluster->n) < 0) return ty_fail_memory(err);
    char *copy = copy_name(names, name, size);
    if (copy == NULL) return ty_fail_memory(err);
    cluster->nodes[cluster->n] = (struct node){.name = copy, .shape = shape};
    of = by_name(cluster);
    if (slots_add(&names->nodes, &of, (uint32_t)cluster->n) < 0) return ty_fail_memory(err);
    names->blocks->used += size;
    names->n_devices += devices;
    if (use != NULL) cluster->nodes[cluster->n].use = TAKE(*use);
    cluster->n++;
    return 0;
}

/* The index goes by places, and is wrong from here on. */
void cluster_drop_nodes(struct cluster *cluster, bool (*drop)(void *context, const char *name), void *context) {
    size_t kept = 0;
    for (size_t i = 0; i < cluster->n; i++) {
        if (drop(context, cluster->nodes[i].name))
            node_use_destroy(cluster->nodes[i].use);
        else
            cluster->nodes[kept++] = cluster->nodes[i];
    }
    cluster->n = kept;
}

quantity node_available(const struct node *node, const char *resource) {
    return resources_get(node->use != NULL ? &node->use->available : &node->shape->total, resource);
}
