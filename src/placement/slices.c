/* Finding slices, and giving them to a proposal. A slice is looked at as a whole: which hosts make it up,
 * whether all of its chips and its worker 0 are there, and how the workers divide over the hosts. Only then
 * is it tried on what is free. */
#include "placement/proposal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/str.h"
#include "scaling/tpu.h"

/* ---- finding ---- */

/* The slice that a node belongs to, NULL when none of the demand's kind. A host that is a whole slice needs no
 * name. */
static const char *slice_name(const struct node *node, const struct demand *demand, quantity units) {
    const char *label = labels_get(&node->shape->labels, "ray.io/tpu-pod-type");
    char normal[32];
    if (!label) return NULL;
    bool same = str_equal(label, demand->tpu.pod_type) ||
                (tpu_pod_type(label, normal, NULL) == 0 && str_equal(normal, demand->tpu.pod_type));
    if (!same) return NULL;
    const char *name = labels_get(&node->shape->labels, "ray.io/tpu-slice-name");
    if (name && *name) return name;
    return resources_get(&node->shape->total, "TPU") == units ? node->name : NULL;
}

static int64_t worker_id(const struct node *node) {
    const char *label = labels_get(&node->shape->labels, "ray.io/tpu-worker-id");
    int64_t id;
    return label && str_to_int64(label, 0, INT32_MAX, &id) ? id : INT32_MAX;
}

/* Hosts of a slice by their numbers; hosts without one come last, by their place in the cluster. */
static int host_order(const void *a, const void *b) {
    const struct slice_host *x = a, *y = b;
    if (x->slice != y->slice) return x->slice < y->slice ? -1 : 1;
    if (x->worker_id != y->worker_id) return x->worker_id < y->worker_id ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* W workers fill the hosts; H workers go one (or equally many) to each. False when they do neither. */
static bool share_out(struct slice_list *list, const struct cluster *cluster, const struct slice *slice,
                      const struct demand *demand) {
    int64_t workers = demand->tpu.workers_per_slice, room = 0;
    quantity each = resources_get(&demand->per_worker, "TPU");
    struct slice_host *hosts = list->hosts + slice->first_host;
    for (uint32_t i = 0; i < slice->n_hosts && each > 0; i++)
        room += hosts[i].quota = resources_get(&cluster->nodes[hosts[i].node].shape->total, "TPU") / each;
    if (room == workers) return true;
    if (workers % slice->n_hosts) return false;
    for (uint32_t i = 0; i < slice->n_hosts; i++) {
        if (hosts[i].quota < workers / slice->n_hosts) return false;
        hosts[i].quota = workers / slice->n_hosts;
    }
    return true;
}

static bool suits_strategy(const struct slice_list *list, const struct slice *slice,
                           const struct demand *demand) {
    const struct slice_host *hosts = list->hosts + slice->first_host;
    if (demand->strategy == PLACE_STRICT_PACK)
        return slice->n_hosts == 1 && demand->min_workers <= (size_t)demand->tpu.workers_per_slice;
    for (uint32_t i = 0; i < slice->n_hosts && demand->strategy == PLACE_STRICT_SPREAD; i++)
        if (hosts[i].quota > 1) return false;
    return true;
}

static void judge(struct slice_list *list, const struct cluster *cluster, const struct demand *demand) {
    for (uint32_t h = 0; h < list->n_hosts; h++) {
        struct slice *slice = &list->slices[list->hosts[h].slice];
        if (slice->n_hosts++ == 0) {
            slice->first_host = h;
            slice->head = list->hosts[h].node;
            slice->has_head = list->hosts[h].worker_id == 0;
        }
        slice->units += resources_get(&cluster->nodes[list->hosts[h].node].shape->total, "TPU");
    }
    for (size_t s = 0; s < list->n; s++) {
        struct slice *slice = &list->slices[s];
        slice->intact = slice->units == list->units_per_slice && (slice->has_head || slice->n_hosts == 1);
        list->n_intact += slice->intact;
        slice->usable =
            slice->intact && share_out(list, cluster, slice, demand) && suits_strategy(list, slice, demand);
        for (uint32_t h = 0; h < slice->n_hosts; h++)
            list->hosts[slice->first_host + h].usable = slice->usable;
    }
}

static int head_order(const void *a, const void *b) {
    uint32_t x = ((const struct slice *)a)->head, y = ((const struct slice *)b)->head;
    return x < y ? -1 : x > y;
}

/* `slice` of a host is the slice's place in this list, which is in the order of the nodes: judge() goes by it,
 * and the list is put into the order of heads only behind that. */
static int gather(const struct cluster *cluster, const struct demand *demand, struct slice_list *list) {
    struct hash *by_name = hash_create();
    int result = by_name ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < cluster->n && result == 0; i++) {
        const char *name = slice_name(&cluster->nodes[i], demand, list->units_per_slice);
        if (!name) continue;
        uintptr_t *known = hash_get(by_name, name);
        uint32_t slice = known ? (uint32_t)*known : (uint32_t)list->n;
        if (!known) {
            if (hash_set(by_name, name, slice) < 0) {
                result = -ENOMEM;
                break;
            }
            list->slices[list->n++] = (struct slice){.name = name};
        }
        list->hosts[list->n_hosts++] =
            (struct slice_host){.node = i, .slice = slice, .worker_id = worker_id(&cluster->nodes[i])};
    }
    hash_destroy(by_name);
    return result;
}

int slices_find(const struct cluster *cluster, const struct demand *demand, struct slice_list *list) {
    int64_t units_per_chip = 1;
    /* What is wrong there was told when the demand was resolved. */
    (void)tpu_units_per_chip(&units_per_chip, NULL);
    *list = (struct slice_list){.units_per_slice = demand->tpu.chips_per_slice * units_per_chip * QUANTITY_ONE};
    list->hosts = calloc(cluster->n + 1, sizeof *list->hosts);
    list->slices = calloc(cluster->n + 1, sizeof *list->slices);
    if (!list->hosts || !list->slices || gather(cluster, demand, list) < 0) {
        slices_done(list);
        return -ENOMEM;
    }
    qsort(list->hosts, list->n_hosts, sizeof *list->hosts, host_order);
    judge(list, cluster, demand);
    qsort(list->slices, list->n, sizeof *list->slices, head_order);
    return 0;
}

void slices_done(struct slice_list *list) {
    free(list->hosts);
    free(list->slices);
    *list = (struct slice_list){0};
}

/* ---- giving ---- */

/* Nodes of the workers of one slice, host by host. */
static void list_nodes(const struct slice_list *list, const struct slice *slice, uint32_t *node_of) {
    for (uint32_t i = 0; i < slice->n_hosts; i++)
        for (int64_t w = 0; w < list->hosts[slice->first_host + i].quota; w++)
            *node_of++ = list->hosts[slice->first_host + i].node;
}

static int name_order(const void *a, const void *b) {
    return strcmp((*(const struct slice *const *)a)->name, (*(const struct slice *const *)b)->name);
}

static int place_chosen(struct proposal *proposal, const struct slice_list *list, const struct slice **chosen,
                        size_t n) {
    size_t per_slice = (size_t)proposal->demand->tpu.workers_per_slice;
    qsort(chosen, n, sizeof(const struct slice *), name_order);
    for (size_t s = 0; s < n; s++) {
        list_nodes(list, chosen[s], proposal->node_of + s * per_slice);
        proposal->slices[s] =
            (struct chosen_slice){chosen[s]->name, (uint32_t)(s * per_slice), (uint32_t)per_slice};
    }
    struct gang gang = proposal_gang(proposal, n * per_slice);
    int result = planner_place_at(proposal->planner, &gang, proposal->node_of, proposal->positions);
    if (result < 0) return result;
    if (result != PLANNER_PLACED) return 0;
    proposal->n = n * per_slice;
    proposal->n_slices = n;
    return 1;
}

/* Slices on which the workers fit, by head node. */
static int64_t list_fitting(struct proposal *proposal, const struct slice_list *list,
                            const struct slice **fitting) {
    size_t n = 0;
    for (size_t s = 0; s < list->n; s++) {
        if (!list->slices[s].usable) continue;
        /* The workers of a slice are tried on it, without the trainer. */
        size_t each = (size_t)proposal->demand->tpu.workers_per_slice;
        struct gang gang = proposal_gang(proposal, each);
        gang.kinds = &proposal->kinds[1];
        gang.n_kinds = 1;
        gang.kind_of = NULL;
        list_nodes(list, &list->slices[s], proposal->node_of);
        int result = planner_place_at(proposal->planner, &gang, proposal->node_of, proposal->positions);
        if (result == PLANNER_PLACED)
            planner_release(proposal->planner, &gang, proposal->node_of, proposal->positions);
        int fits = result < 0 ? result : result == PLANNER_PLACED;
        if (fits < 0) return fits;
        if (fits) fitting[n++] = &list->slices[s];
    }
    return (int64_t)n;
}

/* The first `most` of the fitting slices. Where the trainer does not fit beside rank 0, on the first by name,
 * that slice makes room for the next. */
static int choose(struct proposal *proposal, const struct slice_list *list, const struct slice **fitting,
                  size_t n, size_t least, size_t most) {
    const struct slice **chosen = calloc(n + 1, sizeof(const struct slice *));
    if (!chosen) return -ENOMEM;
    int result = 0;
    while (!result && n > 0 && n >= least) {
        size_t take = n < most ? n : most;
        memcpy(chosen, fitting, take * sizeof(const struct slice *));
        result = place_chosen(proposal, list, chosen, take);
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (fitting[i] != chosen[0]) fitting[kept++] = fitting[i];
        n = kept;
    }
    free(chosen);
    return result;
}

size_t slices_bound(const struct proposal *proposal, size_t most) {
    size_t per_slice = (size_t)proposal->demand->tpu.workers_per_slice;
    size_t slices = proposal->cluster->n + 1; /* no more of them than nodes */
    return most / per_slice < slices ? most + per_slice : slices * per_slice;
}

int slices_place(struct proposal *proposal, size_t least, size_t most) {
    size_t per_slice = (size_t)proposal->demand->tpu.workers_per_slice;
    least = (least + per_slice - 1) / per_slice;
    most /= per_slice;
    if (proposal->demand->strategy == PLACE_STRICT_PACK && most > 1) most = 1;
    if (most < least) return 0;
    struct slice_list list;
    if (slices_find(proposal->cluster, proposal->demand, &list) < 0) return -ENOMEM;
    const struct slice **fitting = calloc(list.n + 1, sizeof(const struct slice *));
    bool room = ARRAY_RESIZE(proposal->slices, list.n + 1) == 0;
    int64_t n = fitting && room ? list_fitting(proposal, &list, fitting) : -ENOMEM;
    int result = n < 0 ? (int)n : choose(proposal, &list, fitting, (size_t)n, least, most);
    free(fitting);
    slices_done(&list);
    return result;
}
