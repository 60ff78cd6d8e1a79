/* Furiosa: /dev/rngd/npu<n>mgmt, or /dev/npu<n> of the first generation. Variable: FURIOSA_DEVICES, whose
 * entries are "npu:3", a bare number, or "npu:3:0" with a core, which is left out here because whole devices
 * are counted. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/str.h"

/* '+' becomes "plus", what is neither letter nor digit goes, the rest is in capitals. */
bool furiosa_type(const char *arch, char type[64]) {
    CLEANUP(buffer_done) struct buffer out = {0};
    buffer_text(&out, "FURIOSA_");
    for (; *arch != '\0'; arch++) {
        if (*arch == '+') buffer_text(&out, "PLUS");
        if (isalnum((unsigned char)*arch)) buffer_char(&out, (char)toupper((unsigned char)*arch));
    }
    if (out.failed || out.size >= 64) return false;
    memcpy(type, out.data, out.size);
    type[out.size] = '\0';
    return true;
}

/* Adds the number of an entry, once. */
static int add_number(void *context, char *entry) {
    struct buffer *numbers = context;
    const char *number = entry;
    (void)str_prefix(entry, "npu:", &number);
    char *core = strchr(number, ':');
    if (core != NULL) *core = '\0';
    if (number[0] == '\0') return 0;
    size_t size = strlen(number);
    for (const char *at = numbers->data; at != NULL && *at != '\0';) {
        if (strncmp(at, number, size) == 0 && (at[size] == ',' || at[size] == '\0')) return 0;
        const char *comma = strchr(at, ',');
        at = comma == NULL ? NULL : comma + 1;
    }
    buffer_printf(numbers, "%s%s", numbers->size > 0 ? "," : "", number);
    return 0;
}

/* Entries are compared as bare numbers, whichever way they were written, and devices get their "npu:" last. */
static int detect(struct inventory *inventory, ty_error *err) {
    (void)err;
    const char *value = getenv(accelerator_furiosa.visible);
    CLEANUP(idset_done) struct idset numbers = {0};
    int result = machine_numbers("/dev/rngd", "npu", "mgmt", false, &numbers);
    if (result == -ENOMEM) return result;
    size_t n = idset_count(&numbers);
    result = n > 0 ? inventory_add_many(inventory, n) : inventory_add_numbered(inventory, "npu");
    if (n > 0) (void)furiosa_type("rngd", inventory->type);
    if (result == 0 && value != NULL) {
        CLEANUP(buffer_done) struct buffer visible = {0};
        buffer_text(&visible, "");
        bool short_of_memory = str_split(value, ',', add_number, &visible) < 0 || visible.failed;
        result = short_of_memory ? -ENOMEM : inventory_restrict(inventory, visible.data);
    }
    for (size_t i = 0; i < inventory->n && result == 0; i++) {
        char number[sizeof inventory->devices[i].id];
        memcpy(number, inventory->devices[i].id, sizeof number);
        (void)snprintf(inventory->devices[i].id, sizeof inventory->devices[i].id, "npu:%.70s", number);
    }
    return result;
}

/* Logical devices have bare numbers; the variable wants "npu:". */
static int set_visible(const struct accelerator *self, const char *const *ids, size_t n, size_t host_devices,
                       environment_change *change, void *context) {
    (void)host_devices;
    CLEANUP(buffer_done) struct buffer value = {0};
    for (size_t i = 0; i < n; i++)
        buffer_printf(&value, "%s%s%s", i > 0 ? "," : "",
                      str_prefix(ids[i], "npu:", NULL) ? "" : "npu:", ids[i]);
    return value.failed ? -ENOMEM : change(context, self->visible, value.data);
}

const struct accelerator accelerator_furiosa = {
    .vendor = "furiosa",
    .resource = "FURIOSA",
    .visible = "FURIOSA_DEVICES",
    .opt_out = OPT_OUT("RAY_EXPERIMENTAL_NOSET_FURIOSA_DEVICES"),
    .detect = detect,
    .set_visible = set_visible,
};
