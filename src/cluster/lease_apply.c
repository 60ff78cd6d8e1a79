/* What other runs hold, taken off what is free on this machine's node, so that plans go around it; and which
 * holder is in the way. The same device may have several names (an index, a UUID, a PCI address, a part of a
 * card): they are compared here. Who holds what is read by lease.c. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cluster/lease.h"

static bool is_device(const struct node_devices *devices, size_t index, const char *id) {
    char number[24];
    if (devices->uuids != NULL && strcmp(devices->uuids[index], id) == 0) return true;
    if (devices->bus_ids != NULL && strcmp(devices->bus_ids[index], id) == 0) return true;
    return strcmp(node_device_id(devices, index, number), id) == 0;
}

static bool is_part_of(const char *part, const char *whole) {
    const char *rest;
    return whole[0] != '\0' && str_prefix(part, whole, &rest) && rest[0] == '/';
}

/* True when one of the two devices is a part of the other, so that nobody else may have it. A card's PCI
 * address is that of its parts, too. */
static bool excludes(const struct node_devices *devices, size_t index, const char *id) {
    const char *uuid = devices->uuids != NULL ? devices->uuids[index] : "";
    return is_part_of(uuid, id) || is_part_of(id, uuid);
}

/* False when less is left of the device than is claimed. A claim of ours excludes nothing: what is ours of a
 * card and what is ours of its parts was planned together. */
static bool take_claim(const struct node *node, const struct lease_claim *claim, bool own) {
    bool enough = true;
    for (size_t i = 0; i < node->shape->n_devices; i++) {
        const struct node_devices *devices = &node->shape->devices[i];
        if (strcmp(devices->resource, claim->resource) != 0) continue;
        for (size_t at = 0; at < devices->n; at++) {
            quantity *left = &node->use->device_free[i][at];
            if (!own && excludes(devices, at, claim->id)) *left = 0;
            if (!is_device(devices, at, claim->id)) continue;
            enough = enough && *left >= claim->amount;
            *left = *left > claim->amount ? *left - claim->amount : 0;
        }
    }
    return enough;
}

/* The amount that is available is made anew of the devices: a claim may be to more than was left of one, and
 * what it exceeds must not be taken from the others. */
int lease_apply(const struct lease_holder *holders, size_t n, struct cluster *cluster, ty_error *err) {
    if (cluster->n == 0) return 0;
    struct node *node = &cluster->nodes[0];
    node_use_destroy(TAKE(node->use));
    if (n == 0) return 0;
    int rc = node_use_create(node->shape, &(struct resources){0}, &node->use, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < holders[i].n; c++)
            (void)take_claim(node, &holders[i].claims[c], false);
    for (size_t d = 0; d < node->shape->n_devices; d++) {
        quantity sum = 0;
        for (size_t at = 0; at < node->shape->devices[d].n; at++)
            sum += node->use->device_free[d][at];
        if (resources_set(&node->use->available, node->shape->devices[d].resource, sum) < 0)
            return ty_fail_memory(err);
    }
    return 0;
}

int lease_apply_all(struct cluster *cluster, ty_error *err) {
    struct lease_holder *holders = NULL;
    size_t n = 0;
    int result = lease_holders(NULL, &holders, &n, err);
    if (result >= 0) result = lease_apply(holders, n, cluster, err);
    lease_holders_free(holders, n);
    return result;
}

static bool touches(const struct lease_holder *holder, const struct node_devices *devices, size_t at) {
    bool found = false;
    for (size_t i = 0; i < holder->n; i++)
        found = found ||
                (strcmp(holder->claims[i].resource, devices->resource) == 0 &&
                 (is_device(devices, at, holder->claims[i].id) || excludes(devices, at, holder->claims[i].id)));
    return found;
}

const struct lease_holder *lease_in_the_way(const struct lease_claim *claims, size_t n,
                                            const struct lease_holder *holders, size_t n_holders,
                                            const struct cluster *cluster, const struct lease_claim **claim) {
    const struct node *node = &cluster->nodes[0];
    for (size_t c = 0; c < n && node->use != NULL; c++)
        for (size_t d = 0; d < node->shape->n_devices; d++) {
            const struct node_devices *devices = &node->shape->devices[d];
            if (strcmp(devices->resource, claims[c].resource) != 0) continue;
            for (size_t at = 0; at < devices->n; at++) {
                bool short_of =
                    is_device(devices, at, claims[c].id) && node->use->device_free[d][at] < claims[c].amount;
                for (size_t h = 0; h < n_holders && short_of; h++) {
                    if (!touches(&holders[h], devices, at)) continue;
                    *claim = &claims[c];
                    return &holders[h];
                }
            }
        }
    return NULL;
}

bool lease_fits(const struct lease_claim *claims, size_t n, const struct cluster *cluster) {
    const struct node *node = &cluster->nodes[0];
    bool fits = true;
    for (size_t i = 0; i < n && node->use != NULL; i++)
        fits = take_claim(node, &claims[i], true) && fits;
    return fits;
}
