/* The side of --bind numa that is always there: whether it is worth while, which several NUMA nodes are, and
 * the call into the module that knows hwloc. A machine without the library, or with one node, binds nothing,
 * which is no error. */
#include "cluster/topology.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/module.h"

bool topology_worthwhile(void) {
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP(idset_done) struct idset nodes = {0};
    if (file_read("/sys/devices/system/node/has_cpu", 64 * 1024, &text, NULL) < 0) return false;
    while (text.size > 0 && text.data[text.size - 1] == '\n')
        text.size--;
    buffer_text(&text, "");
    return !text.failed && idset_parse(&nodes, text.data, NULL) >= 0 && idset_count(&nodes) > 1;
}

/* One that cannot be loaded is tried again by the next worker: it may have been put there meanwhile. */
int topology_place(const struct topology_request *request, struct topology_place *place, ty_error *err) {
    static const struct topology_module *module;
    if (module == NULL) {
        ty_error why = {0};
        module = module_load("topology", &why);
        if (module == NULL) return ty_fail(err, why.code, "%s", why.message);
    }
    return module->place(request, place, err);
}

void topology_place_done(struct topology_place *place) {
    idset_done(&place->cores);
}
