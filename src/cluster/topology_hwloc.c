/* The module topology: hwloc's view of the machine, read once. Only cores that this process may use are given
 * out. hwloc reads HWLOC_SYNTHETIC and HWLOC_XMLFILE, by which other machines are tried. What the place is for
 * is the launch's to say (agent/node_launch.c). */
#include <hwloc.h>
#include <pthread.h>
#include <trainyard/api.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "cluster/topology.h"

static void free_bitmap(hwloc_bitmap_t *bitmap) {
    hwloc_bitmap_free(*bitmap);
}

static int load(hwloc_topology_t *topology, ty_error *err) {
    hwloc_topology_t made;
    if (hwloc_topology_init(&made) < 0) return ty_fail_memory(err);
    if (hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(made) == 0) {
        *topology = made;
        return 0;
    }
    hwloc_topology_destroy(made);
    return ty_fail(err, TY_EUNSUPPORTED, "hwloc cannot read this machine's topology");
}

/* NUMA nodes that have cores, by logical index; their number when `wanted` is NULL. */
static size_t each_node(hwloc_topology_t topology, hwloc_bitmap_t wanted, size_t first, size_t end) {
    size_t n = 0;
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (node->cpuset == NULL || hwloc_bitmap_iszero(node->cpuset)) continue;
        if (wanted != NULL && n >= first && n < end) hwloc_bitmap_set(wanted, node->os_index);
        n++;
    }
    return n;
}

static int place_worker(const struct topology_request *request, struct topology_place *place, ty_error *err) {
    /* Kept for the life of the process: reading the topology takes tens of milliseconds. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static hwloc_topology_t topology;
    (void)pthread_mutex_lock(&lock);
    int rc = topology == NULL ? load(&topology, err) : 0;
    (void)pthread_mutex_unlock(&lock);
    if (rc < 0) return rc;
    CLEANUP(free_bitmap) hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    CLEANUP(free_bitmap) hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    if (nodes == NULL || cores == NULL) return ty_fail_memory(err);
    /* The NUMA nodes nearest to the devices; none when no device is known. */
    for (size_t i = 0; i < request->n; i++) {
        hwloc_obj_t device = request->bus_ids[i][0] == '\0'
                                 ? NULL
                                 : hwloc_get_pcidev_by_busidstring(topology, request->bus_ids[i]);
        hwloc_obj_t near = device == NULL ? NULL : hwloc_get_non_io_ancestor_obj(topology, device);
        if (near != NULL) hwloc_bitmap_or(nodes, nodes, near->nodeset);
    }
    if (hwloc_bitmap_iszero(nodes)) {
        /* With fewer workers than nodes each has several whole ones; else neighbours in rank share one. */
        size_t n = each_node(topology, NULL, 0, 0), of = request->of > 0 ? request->of : 1;
        size_t first = request->index * n / of, end = (request->index + 1) * n / of;
        (void)each_node(topology, nodes, first, end > first ? end : first + 1);
    }
    hwloc_cpuset_from_nodeset(topology, cores, nodes);
    /* What this process may not use is taken off; that says nothing about a machine of hwloc's imagination. */
    CLEANUP(free_bitmap) hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (own != NULL && hwloc_topology_is_thissystem(topology) &&
        hwloc_get_cpubind(topology, own, HWLOC_CPUBIND_PROCESS) == 0)
        hwloc_bitmap_and(cores, cores, own);
    struct topology_place made = {.numa_node =
                                      hwloc_bitmap_weight(nodes) == 1 ? hwloc_bitmap_first(nodes) : -1};
    int id;
    hwloc_bitmap_foreach_begin(id, cores) {
        if (rc >= 0) rc = idset_add(&made.cores, id);
    }
    hwloc_bitmap_foreach_end();
    if (rc < 0) {
        idset_done(&made.cores);
        return ty_fail_memory(err);
    }
    *place = made;
    return 0;
}

TY_API extern const struct topology_module trainyard_topology;
const struct topology_module trainyard_topology = {.version = base_build, .place = place_worker};
