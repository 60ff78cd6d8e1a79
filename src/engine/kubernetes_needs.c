/* What one pod needs of its node: amounts under the names that device plugins give them, and the labels by
 * which nodes with the right device are found (docs/spec/kubernetes.md 5.1, 5.2). The objects are made in
 * kubernetes.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "engine/kubernetes.h"
#include "scaling/device.h"

#define GKE_GPU "cloud.google.com/gke-accelerator"
#define GKE_TPU "cloud.google.com/gke-tpu-accelerator"
#define GKE_TOPOLOGY "cloud.google.com/gke-tpu-topology"
#define GKE_POOL "cloud.google.com/gke-nodepool"
#define GKE_SPOT "cloud.google.com/gke-spot"
#define GFD_PRODUCT "nvidia.com/gpu.product"
#define HOST_NAME "kubernetes.io/hostname"

/* Devices by the name of Trainyard, and the vendor where several share that, in the names of their plugins. */
static const struct plugin {
    const char *resource, *vendor, *name;
} plugins[] = {
    {"GPU", "nvidia", "nvidia.com/gpu"},
    {"GPU", "amd", "amd.com/gpu"},
    {"GPU", "intel", "gpu.intel.com/xe"},
    {"TPU", "google", "google.com/tpu"},
    {"neuron_cores", "neuron", "aws.amazon.com/neuroncore"},
    {"HPU", "habana", "habana.ai/gaudi"},
    {"NPU", "ascend", "huawei.com/Ascend910"},
};

/* Types as GKE labels their nodes; two names where either serves. */
static const struct gke_type {
    const char *type, *names[2];
} gke_types[] = {
    {"T4", {"nvidia-tesla-t4"}},
    {"V100", {"nvidia-tesla-v100"}},
    {"P100", {"nvidia-tesla-p100"}},
    {"P4", {"nvidia-tesla-p4"}},
    {"K80", {"nvidia-tesla-k80"}},
    {"L4", {"nvidia-l4"}},
    {"A100", {"nvidia-tesla-a100"}},
    {"A100-40G", {"nvidia-tesla-a100"}},
    {"A100-80G", {"nvidia-a100-80gb"}},
    {"H100", {"nvidia-h100-80gb", "nvidia-h100-mega-80gb"}},
    {"H200", {"nvidia-h200-141gb"}},
    {"B200", {"nvidia-b200"}},
    {"GB200", {"nvidia-gb200"}},
    {"RTX-PRO-6000", {"nvidia-rtx-pro-6000"}},
    {"TPU-V4", {"tpu-v4-podslice"}},
    {"TPU-V5LITEPOD", {"tpu-v5-lite-podslice"}},
    {"TPU-V5P", {"tpu-v5p-slice"}},
    {"TPU-V6E", {"tpu-v6e-slice"}},
    {"TPU-V7X", {"tpu7x"}},
};

int kubernetes_set(json_t *object, const char *name, json_t *value) {
    return json_object_set_new(object, name, value) < 0 ? -ENOMEM : 0;
}

int kubernetes_add(json_t *list, json_t *value) {
    return json_array_append_new(list, value) < 0 ? -ENOMEM : 0;
}

static const char *vendor_of(const char *type) {
    size_t n = 0;
    const struct accelerator_type *types = accelerator_types(&n);
    for (size_t i = 0; i < n; i++)
        if (str_equal(types[i].type, type)) return types[i].vendor;
    return NULL;
}

/* The plugin's name of a device resource, NULL for one that Kubernetes has none for. */
static const char *plugin_name(const char *resource, const char *type) {
    const char *vendor = vendor_of(type);
    for (size_t i = 0; i < ARRAY_SIZE(plugins); i++) {
        bool same = str_equal(plugins[i].resource, resource);
        if (same && (vendor == NULL || str_equal(vendor, plugins[i].vendor))) return plugins[i].name;
    }
    return NULL;
}

/* The resource's name in Kubernetes; NULL for what is no resource there (a type is a label of nodes). */
static int name_resource(const struct demand *demand, const char *resource, const char **name, ty_error *err) {
    *name = NULL;
    if (str_equal(resource, "CPU")) *name = "cpu";
    if (str_equal(resource, "memory")) *name = "memory";
    if (*name != NULL || str_prefix(resource, ACCELERATOR_TYPE_PREFIX, NULL)) return 0;
    if (accelerator_is_device(resource)) {
        *name = plugin_name(resource, demand->accelerator_type);
        if (*name == NULL)
            return ty_fail(err, TY_EUNSUPPORTED, "resource %s: no device plugin of Kubernetes is known for it",
                           resource);
        return 0;
    }
    if (strchr(resource, '/') == NULL)
        return ty_fail(err, TY_EUSAGE,
                       "resource %.80s: Kubernetes knows resources of its nodes as DOMAIN/NAME, as in "
                       "example.com/%.80s; for a label of nodes use --node-selector",
                       resource, resource);
    *name = resource;
    return kubernetes_check_resource(resource, err);
}

/* An amount as Kubernetes writes it: CPUs in thousandths, memory in bytes, all else whole. */
static int write_amount(const char *resource, quantity amount, const struct kubernetes_layout *layout,
                        char text[32], ty_error *err) {
    if (str_equal(resource, "CPU")) {
        long long milli = (long long)((amount + 9) / 10);
        (void)snprintf(text, 32, milli % 1000 == 0 ? "%lld" : "%lldm",
                       milli % 1000 == 0 ? milli / 1000 : milli);
        return 0;
    }
    bool whole = amount % QUANTITY_ONE == 0;
    if (!whole && !str_equal(resource, "memory"))
        return ty_fail(
            err, TY_EUSAGE,
            "%.80s: a pod holds %lld worker%s and so a part of one, which Kubernetes does not give: ask for "
            "whole ones, or put more workers into a pod with --nnodes",
            resource, (long long)layout->workers_per_pod, layout->workers_per_pod == 1 ? "" : "s");
    (void)snprintf(text, 32, "%lld", (long long)((amount + QUANTITY_ONE - 1) / QUANTITY_ONE));
    return 0;
}

static int add_amount(const struct demand *demand, const struct kubernetes_layout *layout, const char *resource,
                      json_t *resources, ty_error *err) {
    const char *name;
    char text[32];
    quantity amount;
    int result = name_resource(demand, resource, &name, err);
    if (result < 0 || name == NULL || json_object_get(resources, name) != NULL) return result;
    if (!quantity_multiply(resources_get(&demand->per_worker, resource), layout->workers_per_pod, &amount))
        return ty_fail(err, TY_EUSAGE, "%.80s: too much for a pod", resource);
    amount += resources_get(&demand->trainer, resource); /* pods are alike: each has room for the trainer */
    if (demand->tpu.workers_per_slice > 0 && str_equal(resource, "TPU"))
        amount = demand->tpu.chips_per_host * QUANTITY_ONE;
    result = write_amount(resource, amount, layout, text, err);
    if (result < 0) return result;
    return kubernetes_set(resources, name, json_string(text)) < 0 ? ty_fail_memory(err) : 0;
}

int kubernetes_resources(const struct kubernetes_request *request, const struct demand *demand,
                         const struct kubernetes_layout *layout, json_t **resources, ty_error *err) {
    const struct resources *const lists[] = {&demand->per_worker, &demand->trainer};
    json_t *made = json_object();
    int result = 0;
    for (size_t list = 0; list < ARRAY_SIZE(lists); list++)
        for (size_t i = 0; i < lists[list]->n && result >= 0; i++)
            result = add_amount(demand, layout, lists[list]->items[i].name, made, err);
    for (size_t i = 0; i < request->requests.n && result >= 0; i++)
        if (kubernetes_set(made, request->requests.items[i].name,
                           json_string(request->requests.items[i].value)) < 0)
            result = ty_fail_memory(err);
    if (result < 0)
        json_decref(made);
    else
        *resources = made;
    return result;
}

/* -- which nodes -- */

static bool is_selected(const struct kubernetes_request *request, const char *key) {
    for (size_t i = 0; i < request->selectors.n; i++)
        if (str_equal(request->selectors.items[i].name, key)) return true;
    return false;
}

static json_t *expression(const char *key, const char *op, json_t *values) {
    return json_pack("{s:s, s:s, s:o}", "key", key, "operator", op, "values", values);
}

/* A label that the user gives for the same purpose stands in place of ours: with both, no node might have
 * either. Of two names any will do, which a nodeSelector cannot say and an affinity can. */
static int add_type(const struct kubernetes_request *request, const struct demand *demand, json_t *selector,
                    json_t *expressions, ty_error *err) {
    const char *type = demand->accelerator_type;
    if (type == NULL || is_selected(request, GKE_GPU) || is_selected(request, GKE_TPU) ||
        is_selected(request, GFD_PRODUCT))
        return 0;
    const struct gke_type *found = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(gke_types) && found == NULL; i++)
        if (str_equal(gke_types[i].type, type)) found = &gke_types[i];
    if (found == NULL && request->selectors.n > 0) return 0; /* the user names the nodes */
    if (found == NULL && !str_equal(vendor_of(type), "nvidia"))
        return ty_fail(
            err, TY_EUSAGE,
            "--accelerator-type %.80s: no label of Kubernetes nodes is known for it; name yours with "
            "--node-selector LABEL=VALUE",
            type);
    if (found == NULL)
        return ty_fail(
            err, TY_EUSAGE,
            "--accelerator-type %.80s: no label of Kubernetes nodes is known for it; name yours, as in "
            "--node-selector " GFD_PRODUCT "=NVIDIA-%.80s",
            type, type);
    const char *key = demand->tpu.workers_per_slice > 0 ? GKE_TPU : GKE_GPU;
    int result =
        found->names[1] == NULL
            ? kubernetes_set(selector, key, json_string(found->names[0]))
            : kubernetes_add(expressions,
                             expression(key, "In", json_pack("[s, s]", found->names[0], found->names[1])));
    return result < 0 ? ty_fail_memory(err) : 0;
}

static int add_labels(const struct demand *demand, json_t *expressions) {
    for (size_t i = 0; demand->n_selectors == 1 && i < demand->selectors[0].n; i++) {
        const struct label_constraint *constraint = &demand->selectors[0].items[i];
        json_t *values = json_array();
        for (size_t v = 0; v < constraint->n_values; v++)
            if (kubernetes_add(values, json_string(constraint->values[v])) < 0) {
                json_decref(values);
                return -ENOMEM;
            }
        const char *op = constraint->op == LABEL_IN ? "In" : "NotIn";
        if (kubernetes_add(expressions, expression(constraint->key, op, values)) < 0) return -ENOMEM;
    }
    return 0;
}

/* How the pods lie to each other, in the words of Kubernetes. */
static json_t *near(const struct kubernetes_request *request, const char *topology) {
    return json_pack("{s:{s:{s:s}}, s:s}", "labelSelector", "matchLabels", "app.kubernetes.io/instance",
                     request->name, "topologyKey", topology);
}

static json_t *prefer(json_t *term) {
    return json_pack("{s:[{s:i, s:o}]}", "preferredDuringSchedulingIgnoredDuringExecution", "weight", 100,
                     "podAffinityTerm", term);
}

static json_t *demand_it(json_t *term) {
    return json_pack("{s:[o]}", "requiredDuringSchedulingIgnoredDuringExecution", term);
}

static int add_neighbours(const struct kubernetes_request *request, const struct demand *demand,
                          const struct kubernetes_layout *layout, json_t *affinity) {
    if (layout->pods == 1 || layout->set) return 0; /* a JobSet has its slices to itself */
    if (demand->tpu.workers_per_slice > 0)
        return kubernetes_set(affinity, "podAffinity", demand_it(near(request, GKE_POOL)));
    bool apart = demand->strategy == PLACE_SPREAD || demand->strategy == PLACE_STRICT_SPREAD;
    json_t *term = near(request, HOST_NAME);
    int result = kubernetes_set(affinity, apart ? "podAntiAffinity" : "podAffinity",
                                demand->strategy == PLACE_STRICT_SPREAD ? demand_it(term) : prefer(term));
    if (result < 0 || demand->domain == NULL) return result;
    json_t *together = demand_it(near(request, demand->domain));
    if (apart) return kubernetes_set(affinity, "podAffinity", together);
    result =
        together == NULL ? -ENOMEM : json_object_update(json_object_get(affinity, "podAffinity"), together);
    json_decref(together);
    return result < 0 ? -ENOMEM : 0;
}

/* Nodes with devices keep others away by a taint. */
static int add_tolerations(const struct kubernetes_request *request, const json_t *resources, json_t *spec) {
    json_t *list = json_array();
    const char *name;
    json_t *amount;
    int result = 0;
    json_object_foreach((json_t *)resources, name, amount) {
        if (strchr(name, '/') != NULL && result >= 0)
            result = kubernetes_add(
                list, json_pack("{s:s, s:s, s:s}", "key", name, "operator", "Exists", "effect", "NoSchedule"));
    }
    if (request->spot && result >= 0)
        result = kubernetes_add(list, json_pack("{s:s, s:s, s:s, s:s}", "key", GKE_SPOT, "operator", "Equal",
                                                "value", "true", "effect", "NoSchedule"));
    for (size_t i = 0; i < request->tolerations.n && result >= 0; i++) {
        const struct kubernetes_pair *given = &request->tolerations.items[i];
        json_t *made = given->value == NULL ? json_pack("{s:s, s:s}", "key", given->name, "operator", "Exists")
                                            : json_pack("{s:s, s:s, s:s}", "key", given->name, "operator",
                                                        "Equal", "value", given->value);
        result = kubernetes_add(list, made);
    }
    if (result < 0 || json_array_size(list) == 0) {
        json_decref(list);
        return result;
    }
    return kubernetes_set(spec, "tolerations", list);
}

int kubernetes_choose_nodes(const struct kubernetes_request *request, const struct demand *demand,
                            const struct kubernetes_layout *layout, const json_t *resources, json_t *spec,
                            ty_error *err) {
    json_t *selector = json_object(), *expressions = json_array(), *affinity = json_object();
    int result = add_type(request, demand, selector, expressions, err), made = 0;
    if (demand->tpu.workers_per_slice > 0)
        made = kubernetes_set(selector, GKE_TOPOLOGY, json_string(demand->tpu.topology));
    if (request->spot && made >= 0) made = kubernetes_set(selector, GKE_SPOT, json_string("true"));
    for (size_t i = 0; i < request->selectors.n && made >= 0; i++)
        made = kubernetes_set(selector, request->selectors.items[i].name,
                              json_string(request->selectors.items[i].value));
    if (made >= 0) made = add_labels(demand, expressions);
    if (made >= 0 && json_array_size(expressions) > 0)
        made = kubernetes_set(affinity, "nodeAffinity",
                              json_pack("{s:{s:[{s:O}]}}", "requiredDuringSchedulingIgnoredDuringExecution",
                                        "nodeSelectorTerms", "matchExpressions", expressions));
    if (made >= 0) made = add_neighbours(request, demand, layout, affinity);
    if (made >= 0 && json_object_size(selector) > 0) made = json_object_set(spec, "nodeSelector", selector);
    if (made >= 0 && json_object_size(affinity) > 0) made = json_object_set(spec, "affinity", affinity);
    if (made >= 0) made = add_tolerations(request, resources, spec);
    json_decref(selector);
    json_decref(expressions);
    json_decref(affinity);
    return result < 0 ? result : made < 0 ? ty_fail_memory(err) : 0;
}
