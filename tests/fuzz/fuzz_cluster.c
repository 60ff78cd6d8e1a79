/* Cluster files: any bytes are read or refused with their place; of what was read, no more is free than there
 * is. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "cluster/cluster.h"
#include "fuzz.h"

static void check_use(const struct node *node) {
    for (size_t i = 0; i < node->shape->total.n; i++) {
        const struct resource *resource = &node->shape->total.items[i];
        quantity left = node_available(node, resource->name);
        fuzz_require(resource->amount > 0 && resource->amount % QUANTITY_ONE == 0);
        fuzz_require(left >= 0 && left <= resource->amount);
    }
    for (size_t i = 0; node->use != NULL && i < node->shape->n_devices; i++) {
        quantity sum = 0;
        for (size_t at = 0; at < node->shape->devices[i].n; at++)
            sum += node->use->device_free[i][at];
        fuzz_require(sum == node_available(node, node->shape->devices[i].resource));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FD int file = memfd_create("cluster", MFD_CLOEXEC);
    char path[64];
    struct cluster *cluster = NULL;
    ty_error err = {0};
    fuzz_require(file >= 0 && file_write_all(file, data, size) == 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (cluster_read(path, &cluster, &err) < 0) {
        fuzz_require(cluster == NULL && err.code < 0 && strncmp(err.message, path, strlen(path)) == 0);
        return 0;
    }
    fuzz_require(cluster->n > 0);
    for (size_t i = 0; i < cluster->n; i++)
        check_use(&cluster->nodes[i]);
    cluster_destroy(cluster);
    return 0;
}
