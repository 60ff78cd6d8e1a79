/* ty_cluster_nodes: JSON in, JSON out, for the Python face and other languages. The keys of the request are
 * those of a cluster's overrides; the answer has a node's resources, labels and devices as a run would offer
 * them. Nothing is claimed by it. */
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "cluster/cluster.h"
#include "cluster/lease.h"

/* -- the request -- */

struct node_request {
    const char *cluster; /* path of a cluster file, borrowed; NULL: this machine */
    struct cluster_overrides overrides;
};

static int read_count(const json_t *value, const char *name, double *count, ty_error *err) {
    if (!json_is_number(value) || json_number_value(value) < 0)
        return ty_fail(err, TY_EUSAGE, "%s must be a number, 0 or more", name);
    *count = json_number_value(value);
    return 0;
}

static int read_amounts(json_t *map, struct resources *amounts, ty_error *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(map) || json_object_size(map) > RESOURCES_MAX)
        return ty_fail(err, TY_EUSAGE, "node_resources must be a map of at most %d names to numbers",
                       RESOURCES_MAX);
    json_object_foreach(map, name, value) {
        quantity amount;
        if (!json_is_number(value)) return ty_fail(err, TY_EUSAGE, "node_resources: %s must be a number", name);
        int result = quantity_from_double(json_number_value(value), name, &amount, err);
        if (result < 0) return ty_wrap(err, "node_resources");
        if (resources_set(amounts, name, amount) < 0) return ty_fail_memory(err);
    }
    return 0;
}

static int read_key(struct node_request *request, const char *key, json_t *value, ty_error *err) {
    if (strcmp(key, "num_cpus") == 0) return read_count(value, key, &request->overrides.num_cpus, err);
    if (strcmp(key, "num_gpus") == 0) return read_count(value, key, &request->overrides.num_gpus, err);
    if (strcmp(key, "node_resources") == 0) return read_amounts(value, &request->overrides.node_resources, err);
    if (!json_is_string(value)) return ty_fail(err, TY_EUSAGE, "cluster must be the path of a cluster file");
    request->cluster = json_string_value(value);
    return 0;
}

static int read_request(const struct document *document, struct node_request *request, ty_error *err) {
    static const char *const keys[] = {"cluster", "num_cpus", "num_gpus", "node_resources"};
    json_t *root = document_root(document), *value;
    const char *key;
    if (!json_is_object(root)) return ty_fail(err, TY_EUSAGE, "the request for nodes must be an object");
    int result =
        document_check_keys(document, root, "the request for nodes", keys, sizeof keys / sizeof *keys, err);
    json_object_foreach(root, key, value) {
        if (result >= 0) result = read_key(request, key, value, err);
    }
    const struct cluster_overrides *overrides = &request->overrides;
    bool overridden = overrides->num_cpus >= 0 || overrides->num_gpus >= 0 || overrides->node_resources.n > 0;
    if (result < 0 || request->cluster == NULL || !overridden) return result;
    return ty_fail(
        err, TY_EUSAGE,
        "num_cpus, num_gpus and node_resources say what this machine has, the cluster file %s replaces it: "
        "give one of the two",
        request->cluster);
}

/* -- the nodes -- */

static void write_string(struct buffer *out, const char *name, const char *text) {
    buffer_printf(out, "\"%s\": ", name);
    buffer_json_text(out, text);
    buffer_text(out, ", ");
}

static int write_nodes(const struct cluster *cluster, char **json, ty_error *err) {
    CLEANUP(buffer_done) struct buffer out = {0};
    buffer_text(&out, "{\"nodes\": [");
    for (size_t i = 0; i < cluster->n; i++) {
        if (i > 0) buffer_text(&out, ", ");
        const struct node *node = &cluster->nodes[i];
        const struct node_shape *shape = node->shape;
        buffer_char(&out, '{');
        write_string(&out, "name", node->name);
        if (shape->accelerator_type != NULL) write_string(&out, "accelerator_type", shape->accelerator_type);
        buffer_text(&out, "\"resources\": ");
        resources_format_json(&shape->total, &out);
        buffer_text(&out, ", \"available\": ");
        resources_format_json(node->use == NULL ? &shape->total : &node->use->available, &out);
        buffer_text(&out, ", \"labels\": {");
        for (size_t j = 0; j < shape->labels.n; j++) {
            if (j > 0) buffer_text(&out, ", ");
            buffer_json_text(&out, shape->labels.items[j].key);
            buffer_text(&out, ": ");
            buffer_json_text(&out, shape->labels.items[j].value);
        }
        buffer_text(&out, "}}");
    }
    buffer_text(&out, "]}");
    char *text = buffer_take(&out);
    if (text == NULL) return ty_fail_memory(err);
    *json = text;
    return 0;
}

int cluster_nodes_json(const char *request_json, char **nodes_json, ty_error *err) {
    struct document *document = NULL;
    struct cluster *cluster = NULL;
    struct node_request request = {.overrides = {.num_cpus = -1, .num_gpus = -1}};
    int result = document_parse(request_json, strlen(request_json), "request for nodes", &document, err);
    if (result < 0) return result;
    result = read_request(document, &request, err);
    if (result >= 0 && request.cluster != NULL) result = cluster_read(request.cluster, &cluster, err);
    if (result >= 0 && request.cluster == NULL) result = cluster_probe(&request.overrides, &cluster, err);
    if (result >= 0 && request.cluster == NULL) result = lease_apply_all(cluster, err);
    if (result >= 0) result = write_nodes(cluster, nodes_json, err);
    cluster_destroy(cluster);
    resources_done(&request.overrides.node_resources);
    document_destroy(document);
    return result < 0 ? result : 0;
}
