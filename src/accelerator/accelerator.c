/* The table of vendors and what is the same for all: choosing one for each resource, and writing the variable
 * that shows a worker its devices. What a vendor's devices are, and how they are found, is in that vendor's
 * file. */
#include "accelerator/accelerator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/str.h"

static const struct accelerator *const vendors[] = {
#define X(name) &accelerator_##name,
    ACCELERATOR_VENDORS(X)
#undef X
};

/* A GPU whose type says nothing of a vendor is NVIDIA's, logical ones of a machine without any among them. */
const struct accelerator *accelerator_for(const char *resource, const char *accelerator_type) {
    if (strcmp(resource, "GPU") == 0) {
        /* Which vendor's devices have types that begin so; only GPU has several vendors. */
        static const struct {
            const char *prefix;
            const struct accelerator *vendor;
        } rows[] = {
            {"AMD-", &accelerator_amd},
            {"Intel-GPU-", &accelerator_intel},
            {"MetaX", &accelerator_metax},
            {"MXC", &accelerator_metax},
        };
        for (size_t i = 0; i < ARRAY_SIZE(rows) && accelerator_type != NULL; i++)
            if (str_prefix(accelerator_type, rows[i].prefix, NULL)) return rows[i].vendor;
        return &accelerator_nvidia;
    }
    for (size_t i = 0; i < ARRAY_SIZE(vendors); i++)
        if (strcmp(vendors[i]->resource, resource) == 0) return vendors[i];
    return NULL;
}

/* -- probing -- */

/* The order in which vendors are asked: for GPU the first that has devices is the machine's
 * (docs/spec/accelerators.md 1.3). */
static const struct accelerator *const probe_order[] = {
    &accelerator_amd,     &accelerator_intel,      &accelerator_metax,    &accelerator_nvidia,
    &accelerator_google,  &accelerator_neuron,     &accelerator_habana,   &accelerator_ascend,
    &accelerator_furiosa, &accelerator_rebellions, &accelerator_mobilint, &accelerator_cambricon,
};
_Static_assert(ARRAY_SIZE(probe_order) == ARRAY_SIZE(vendors), "every vendor is asked");

/* A detector that finds nothing, or cannot look, leaves the place to the next one: the first inventory of a
 * resource stands. One that fails, for what the user has set, ends the probe. */
int accelerator_probe(struct inventory **inventories, size_t *n, ty_error *err) {
    size_t found = 0;
    struct inventory *made = calloc(ARRAY_SIZE(vendors), sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    int result = 0;
    machine_keep_devices(true);
    for (size_t i = 0; i < ARRAY_SIZE(probe_order) && result >= 0; i++) {
        const struct accelerator *vendor = probe_order[i];
        struct inventory *inventory = &made[found];
        bool has_resource = false;
        for (size_t k = 0; k < found && !has_resource; k++)
            has_resource = strcmp(made[k].vendor->resource, vendor->resource) == 0;
        if (has_resource) continue;
        *inventory = (struct inventory){.vendor = vendor};
        result = vendor->detect(inventory, err);
        if (result == -ENOMEM) (void)ty_fail_memory(err);
        if (result < 0 || inventory->n == 0) {
            inventory_done(inventory);
            continue;
        }
        /* The label is left out where the name that a device gives itself is no label value. */
        if (inventory->type[0] != '\0')
            (void)labels_set(&inventory->labels, "ray.io/accelerator-type", inventory->type, NULL);
        found++;
    }
    machine_keep_devices(false);
    if (result < 0) {
        accelerator_inventories_free(made, found);
        return result;
    }
    *inventories = made;
    *n = found;
    return 0;
}

void accelerator_inventories_free(struct inventory *inventories, size_t n) {
    for (size_t i = 0; i < n; i++)
        inventory_done(&inventories[i]);
    free(inventories);
}

/* -- what a worker sees -- */

bool environment_true(const char *name) {
    static const char *const no[] = {"", "0", "false", "no", "off"};
    const char *value = getenv(name);
    if (value == NULL) return false;
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        if (strcasecmp(value, no[i]) == 0) return false;
    return true;
}

bool join_ids(const char *const *ids, size_t n, struct buffer *out) {
    buffer_text(out, "");
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s%s", i > 0 ? "," : "", ids[i]);
    return !out->failed;
}

static bool opted_out(const struct accelerator *accelerator) {
    for (const char *const *name = accelerator->opt_out; *name != NULL; name++)
        if (environment_true(*name)) return true;
    return false;
}

/* A worker that holds none finds the variable as it was; the empty list, which hides all devices, is asked for
 * by a variable of its own (docs/spec/accelerators.md 1.3). */
int accelerator_set_visible(const struct accelerator *accelerator, const char *const *ids, size_t n,
                            size_t host_devices, environment_change *change, void *context) {
    CLEANUP(buffer_done) struct buffer value = {0};
    if (opted_out(accelerator)) return 0;
    if (n == 0 && !environment_true("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")) return 0;
    if (n > 0 && accelerator->set_visible != NULL)
        return accelerator->set_visible(accelerator, ids, n, host_devices, change, context);
    return join_ids(ids, n, &value) ? change(context, accelerator->visible, value.data) : -ENOMEM;
}

bool accelerator_is_index(const char *id) {
    return id[0] != '\0' && id[strspn(id, "0123456789")] == '\0';
}

/* One id that is an index is enough: the names of the others mean the same device in any order. */
int accelerator_set_order(const struct accelerator *accelerator, const char *const *ids, size_t n,
                          environment_change *change, void *context) {
    if (accelerator->order[0] == NULL || opted_out(accelerator)) return 0;
    for (size_t i = 0; i < n; i++)
        if (accelerator_is_index(ids[i])) return change(context, accelerator->order[0], accelerator->order[1]);
    return 0;
}

struct entries {
    struct buffer *out;
    int n;
    bool ended; /* by an entry that begins with a dash: what follows does not count */
};

/* As drivers read it: -1 ends the list. A device named twice is still one. */
static int add_entry(void *context, char *piece) {
    struct entries *entries = context;
    entries->ended = entries->ended || piece[0] == '-';
    if (entries->ended || piece[0] == '\0') return 0;
    const char *at = entries->out->data;
    for (int i = 0; i < entries->n; i++, at += strlen(at) + 1)
        if (strcmp(at, piece) == 0) return 0;
    buffer_append(entries->out, piece, strlen(piece) + 1);
    entries->n++;
    return 0;
}

int accelerator_visible_entries(const char *value, struct buffer *entries) {
    if (value == NULL) return -1;
    if (value[0] == '\0' || strcmp(value, "NoDevFiles") == 0) return 0;
    struct entries found = {.out = entries};
    return str_split(value, ',', add_entry, &found) < 0 || entries->failed ? 0 : found.n;
}
