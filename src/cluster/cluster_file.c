/* Reads a cluster file (docs/design.md 5.3), one entry of the list at a time: what stays in memory is the
 * nodes. An entry becomes one shape and as many nodes as its host list names. Every refusal says
 * FILE:LINE:COLUMN of the entry, the node and the key. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/hostlist.h"
#include "base/str.h"
#include "cluster/cluster.h"

static const char *const root_keys[] = {"nodes"};
static const char *const node_keys[] = {"name", "resources", "accelerator_type", "labels", "available"};

/* Host list, shape and amounts of one entry, on the way into the cluster. */
struct file_entry {
    struct cluster *cluster;
    const struct node_shape *shape;
    const struct resources *available; /* NULL: all */
    ty_error *err;
};

static void node_use_cleanup(struct node_use **use) {
    node_use_destroy(*use);
}

static void hostlist_cleanup(struct hostlist **list) {
    hostlist_destroy(*list);
}

static const char *kind(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "a map";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "nothing";
    }
}

static int refuse_key(const char *key, const char *const *known, size_t n, ty_error *err) {
    const char *nearest = str_nearest(key, known, n);
    CLEANUP(buffer_done) struct buffer list = {0};
    for (size_t i = 0; i < n; i++)
        buffer_printf(&list, "%s%s", i > 0 ? ", " : "", known[i]);
    return ty_fail(err, TY_EUSAGE, "unknown key %s%s%s%s; known: %s", key,
                   nearest != NULL ? " (did you mean " : "", nearest != NULL ? nearest : "",
                   nearest != NULL ? "?)" : "", list.failed ? "" : list.data);
}

static int check_keys(json_t *map, const char *const *known, size_t n, ty_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value) {
        bool found = false;
        for (size_t i = 0; i < n && !found; i++)
            found = strcmp(key, known[i]) == 0;
        if (!found) return refuse_key(key, known, n, err);
    }
    return 0;
}

/* The map under `key`; NULL in `*map` when it is absent or empty of value. */
static int get_map(json_t *node, const char *key, json_t **map, ty_error *err) {
    json_t *value = json_object_get(node, key);
    *map = NULL;
    if (value == NULL || json_is_null(value)) return 0;
    if (!json_is_object(value)) return ty_fail(err, TY_EUSAGE, "%s must be a map, not %s", key, kind(value));
    *map = value;
    return 0;
}

enum { NUMBER_SIZE = 32 };

/* A text, or a whole number as one; NULL for anything else. */
static const char *text_of(const json_t *value, char number[NUMBER_SIZE]) {
    if (!json_is_integer(value)) return json_string_value(value);
    (void)snprintf(number, NUMBER_SIZE, "%lld", (long long)json_integer_value(value));
    return number;
}

/* A whole number goes through its text, which is exact beyond the 53 bits of a double: bytes of memory are
 * such. */
static int read_amounts(json_t *map, const char *in, struct resources *amounts, ty_error *err) {
    const char *name;
    json_t *value;
    if (json_object_size(map) > RESOURCES_MAX)
        return ty_fail(err, TY_EUSAGE, "%s: %zu names; at most %d are possible", in, json_object_size(map),
                       RESOURCES_MAX);
    json_object_foreach(map, name, value) {
        char what[160];
        quantity amount;
        (void)snprintf(what, sizeof what, "%s: %s", in, name);
        char number[NUMBER_SIZE];
        const char *text = text_of(value, number);
        int rc;
        if (text != NULL)
            rc = quantity_parse(text, what, &amount, err);
        else if (json_is_real(value))
            rc = quantity_from_double(json_real_value(value), what, &amount, err);
        else
            rc = ty_fail(err, TY_EUSAGE, "%s must be a number, or text like \"512GiB\", not %s", what,
                         kind(value));
        if (rc < 0) return rc;
        if (resources_set(amounts, name, amount) < 0) return ty_fail_memory(err);
    }
    return 0;
}

static int read_labels(json_t *node, struct labels *labels, ty_error *err) {
    json_t *map, *value;
    const char *key;
    int rc = get_map(node, "labels", &map, err);
    if (rc < 0) return rc;
    json_object_foreach(map, key, value) {
        char number[NUMBER_SIZE];
        const char *text = text_of(value, number); /* a worker id is written 0 as often as "0" */
        if (text != NULL)
            rc = labels_set(labels, key, text, err);
        else
            rc = ty_fail(err, TY_EUSAGE, "%s must be a string, not %s; write it in quotes", key, kind(value));
        if (rc < 0) return ty_wrap(err, "labels");
    }
    return 0;
}

static int read_shape(json_t *node, struct node_shape *shape, ty_error *err) {
    json_t *resources;
    int rc = get_map(node, "resources", &resources, err);
    if (rc == 0 && resources == NULL)
        rc = ty_fail(err, TY_EUSAGE, "resources is missing: what the node has, as in {CPU: 64, GPU: 8}");
    if (rc == 0) rc = read_amounts(resources, "resources", &shape->total, err);
    const json_t *type = json_object_get(node, "accelerator_type");
    if (rc == 0 && type != NULL && !json_is_null(type)) {
        if (!json_is_string(type))
            rc = ty_fail(err, TY_EUSAGE, "accelerator_type must be a string, not %s", kind(type));
        else if ((shape->accelerator_type = strdup(json_string_value(type))) == NULL)
            rc = ty_fail_memory(err);
    }
    if (rc == 0) rc = read_labels(node, &shape->labels, err);
    return rc;
}

static int add_node(void *context, const char *name) {
    struct file_entry *entry = context;
    CLEANUP(node_use_cleanup) struct node_use *use = NULL;
    int rc = 0;
    if (entry->available != NULL) rc = node_use_create(entry->shape, entry->available, &use, entry->err);
    if (rc == 0) rc = cluster_add_node(entry->cluster, name, entry->shape, &use, entry->err);
    return rc;
}

static int add_nodes(struct file_entry *entry, const char *names, json_t *available) {
    CLEANUP(resources_done) struct resources amounts = {0};
    CLEANUP(hostlist_cleanup) struct hostlist *list = NULL;
    int rc = hostlist_parse(names, &list, entry->err);
    if (rc < 0) return rc;
    if (hostlist_count(list) > CLUSTER_MAX_NODES)
        return ty_fail(entry->err, TY_EUSAGE, "%zu nodes in one list; at most %d are possible",
                       hostlist_count(list), CLUSTER_MAX_NODES);
    if (available != NULL) {
        rc = read_amounts(available, "available", &amounts, entry->err);
        entry->available = &amounts;
    }
    return rc < 0 ? rc : hostlist_each(list, add_node, entry);
}

/* The shape is the cluster's before the first node is made, and one for all names of the list. */
static int read_contents(struct cluster *cluster, json_t *node, const char *names, ty_error *err) {
    CLEANUP(node_shape_done) struct node_shape shape = {0};
    json_t *available;
    int rc = check_keys(node, node_keys, ARRAY_SIZE(node_keys), err);
    if (rc == 0) rc = read_shape(node, &shape, err);
    if (rc == 0) rc = get_map(node, "available", &available, err);
    if (rc < 0) return rc;
    struct file_entry entry = {.cluster = cluster, .err = err};
    rc = cluster_shape(cluster, &shape, &entry.shape, err);
    return rc < 0 ? rc : add_nodes(&entry, names, available);
}

static int read_node(struct cluster *cluster, json_t *node, ty_error *err) {
    if (!json_is_object(node))
        return ty_fail(err, TY_EUSAGE, "nodes must be a list of maps with name and resources, but here is %s",
                       kind(node));
    const json_t *name = json_object_get(node, "name");
    if (name == NULL) {
        int rc = check_keys(node, node_keys, ARRAY_SIZE(node_keys), err); /* perhaps it is only misspelt */
        return rc < 0 ? rc
                      : ty_fail(err, TY_EUSAGE, "name is missing: a node's name or host list, as gpu[01-04]");
    }
    if (!json_is_string(name))
        return ty_fail(err, TY_EUSAGE, "name must be a string, not %s; write it in quotes", kind(name));
    const char *names = json_string_value(name);
    int rc = read_contents(cluster, node, names, err);
    return rc < 0 ? ty_wrap(err, "node %.64s", names) : rc;
}

static int read_entry(void *context, const char *key, json_t *value, const char *where, ty_error *err) {
    struct cluster *cluster = context;
    int rc = strcmp(key, "nodes") == 0 ? read_node(cluster, value, err) : refuse_key(key, root_keys, 1, err);
    return rc < 0 ? ty_wrap(err, "%s", where) : rc;
}

int cluster_read(const char *path, struct cluster **cluster, ty_error *err) {
    ty_error unseen = {0};
    if (err == NULL) err = &unseen;
    struct cluster *made = cluster_create();
    if (made == NULL) return ty_fail_memory(err);
    made->logical = true;
    int rc = document_stream(path, "nodes", read_entry, made, err);
    if (rc >= 0 && made->n == 0)
        rc = ty_fail(err, TY_EUSAGE,
                     "%s:1:1: no nodes; write at least one, as in \"nodes: [{name: n1, resources: "
                     "{CPU: 4}}]\"",
                     path);
    if (rc < 0) {
        cluster_destroy(made);
        /* A file that cannot be opened is a wrong option. */
        return rc == -ENOMEM ? rc : (err->code = TY_EUSAGE);
    }
    *cluster = made;
    return 0;
}
