/* What a worker sees of its node's devices (docs/spec/train-api.md 2.4): the run's devices on that node in
 * order of their ids, and which of these are its own. Which of them a bundle holds was decided by its grant
 * (grant.c). */
#include "placement/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

struct visible_device {
    uint16_t position;
    bool own, numbered;
    int64_t number;
    const char *id; /* NULL: the number */
};

struct visible {
    struct visible_device *devices;
    size_t n;
};

static int position_order(const void *a, const void *b) {
    const struct visible_device *x = a, *y = b;
    if (x->position != y->position) return x->position < y->position ? -1 : 1;
    return y->own - x->own; /* one's own first, so that it is the one that is kept */
}

static int number_order(const void *a, const void *b) {
    int64_t x = ((const struct visible_device *)a)->number, y = ((const struct visible_device *)b)->number;
    return x < y ? -1 : x > y;
}

static int text_order(const void *a, const void *b) {
    return strcmp(((const struct visible_device *)a)->id, ((const struct visible_device *)b)->id);
}

static const struct grant *grant_of(const struct plan *plan, const struct plan_worker *worker, size_t devices) {
    for (uint32_t g = 0; g < worker->n_grants; g++)
        if (plan->grants[worker->first_grant + g].devices == devices)
            return &plan->grants[worker->first_grant + g];
    return NULL;
}

/* As numbers only where all of them are numbers. */
static void sort_by_id(struct visible *visible, const struct node_devices *devices) {
    bool numbers = true;
    for (size_t i = 0; i < visible->n; i++) {
        struct visible_device *device = &visible->devices[i];
        device->id = devices->ids ? devices->ids[device->position] : NULL;
        device->number = device->position;
        device->numbered = !device->id || str_to_int64(device->id, 0, INT64_MAX, &device->number);
        numbers = numbers && device->numbered;
    }
    if (visible->n)
        qsort(visible->devices, visible->n, sizeof *visible->devices, numbers ? number_order : text_order);
}

/* The devices of one resource that the worker is to see, in order: none when it holds none itself. The caller
 * frees visible->devices. */
static int find_visible(const struct plan *plan, const struct cluster *cluster, size_t rank, size_t devices,
                        bool own, struct visible *visible) {
    const struct plan_worker *worker = &plan->workers[rank];
    const struct node_shape *shape = cluster->nodes[worker->node].shape;
    const struct accelerator *accelerator =
        accelerator_for(shape->devices[devices].resource, shape->accelerator_type);
    bool alone = own || (accelerator && accelerator->exclusive) || !grant_of(plan, worker, devices);
    size_t first = alone ? rank : rank - worker->local_rank;
    size_t last = alone ? rank : first + worker->local_world_size - 1;
    /* Ranks of a node are consecutive. */
    size_t n = 0;
    for (size_t r = first; r <= last; r++) {
        const struct grant *grant = grant_of(plan, &plan->workers[r], devices);
        n += grant ? grant->n : 0;
    }
    *visible = (struct visible){.devices = calloc(n + 1, sizeof *visible->devices)};
    if (!visible->devices) return -ENOMEM;
    for (size_t r = first; r <= last; r++) {
        const struct grant *grant = grant_of(plan, &plan->workers[r], devices);
        for (uint16_t i = 0; grant && i < grant->n; i++)
            visible->devices[visible->n++] =
                (struct visible_device){.position = plan->positions[grant->first + i], .own = r == rank};
    }
    size_t kept = 0;
    qsort(visible->devices, visible->n, sizeof *visible->devices, position_order);
    for (size_t i = 0; i < visible->n; i++)
        if (kept == 0 || visible->devices[kept - 1].position != visible->devices[i].position)
            visible->devices[kept++] = visible->devices[i];
    visible->n = kept;
    sort_by_id(visible, &shape->devices[devices]);
    return 0;
}

int plan_worker_environment(const struct plan *plan, const struct cluster *cluster, size_t rank, bool own,
                            environment_change *change, void *context) {
    const struct node_shape *shape = cluster->nodes[plan->workers[rank].node].shape;
    int result = 0;
    for (size_t d = 0; d < shape->n_devices && result >= 0; d++) {
        struct visible visible;
        result = find_visible(plan, cluster, rank, d, own, &visible);
        if (result < 0) break;
        const struct node_devices *all = &shape->devices[d];
        const struct accelerator *accelerator = accelerator_for(all->resource, shape->accelerator_type);
        const char **ids = calloc(visible.n + 1, sizeof *ids);
        char(*texts)[24] = calloc(visible.n + 1, sizeof *texts);
        if (!ids || !texts) result = -ENOMEM;
        for (size_t i = 0; result == 0 && i < visible.n; i++)
            ids[i] = node_device_id(all, visible.devices[i].position, texts[i]);
        if (result == 0 && accelerator)
            result = accelerator_set_visible(accelerator, ids, visible.n, all->n, change, context);
        if (result == 0 && accelerator && all->bus_ids)
            result = accelerator_set_order(accelerator, ids, visible.n, change, context);
        free(ids);
        free(texts);
        free(visible.devices);
    }
    return result < 0 ? result : 0;
}

void plan_worker_devices(const struct plan *plan, const struct cluster *cluster, size_t rank, bool own,
                         struct buffer *out) {
    const struct plan_worker *worker = &plan->workers[rank];
    const struct node_shape *shape = cluster->nodes[worker->node].shape;
    struct visible visible;
    if (!worker->n_grants) return;
    /* TRAINYARD_DEVICES speaks of the GPU where there is one, else of the first resource that was granted. */
    const struct grant *grants = plan->grants + worker->first_grant, *grant = grants;
    for (uint32_t g = worker->n_grants; g-- > 0;)
        if (!strcmp(shape->devices[grants[g].devices].resource, "GPU")) grant = &grants[g];
    if (find_visible(plan, cluster, rank, grant->devices, own, &visible) < 0) {
        out->failed = true;
        return;
    }
    const char *between = "";
    for (size_t i = 0; i < visible.n; i++) {
        if (!visible.devices[i].own) continue;
        buffer_printf(out, "%s%zu", between, i);
        between = ",";
    }
    free(visible.devices);
}

int plan_each_device(const struct plan *plan, const struct cluster *cluster, size_t rank, size_t devices,
                     void (*each)(void *context, const char *id, bool numbered), void *context) {
    const struct node_devices *all = &cluster->nodes[plan->workers[rank].node].shape->devices[devices];
    struct visible visible;
    if (find_visible(plan, cluster, rank, devices, true, &visible) < 0) return -ENOMEM;
    for (size_t i = 0; i < visible.n; i++) {
        char text[24];
        each(context, node_device_id(all, visible.devices[i].position, text), visible.devices[i].numbered);
    }
    free(visible.devices);
    return 0;
}
