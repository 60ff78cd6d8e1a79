/* Lists of named amounts, as CPU, memory or a name of the user's. They are short, so names are found by looking
 * through them. What a name may be, and which amounts of a device there are, is checked where they come from
 * (scaling/device.c); amounts are read by base/quantity.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/quantity.h"
#include "base/str.h"

void resources_done(struct resources *resources) {
    for (size_t i = 0; i < resources->n; i++)
        free(resources->items[i].name);
    free(resources->items);
    *resources = (struct resources){0};
}

static struct resource *find(const struct resources *resources, const char *name) {
    for (size_t i = 0; i < resources->n; i++)
        if (strcmp(resources->items[i].name, name) == 0) return &resources->items[i];
    return NULL;
}

int resources_copy(struct resources *to, const struct resources *from) {
    struct resources copy = {0};
    for (size_t i = 0; i < from->n; i++) {
        if (resources_set(&copy, from->items[i].name, from->items[i].amount) == 0) continue;
        resources_done(&copy);
        return -ENOMEM;
    }
    *to = copy;
    return 0;
}

int resources_set(struct resources *resources, const char *name, quantity amount) {
    struct resource *item = find(resources, name);
    if (item != NULL) {
        item->amount = amount;
        return 0;
    }
    if (ARRAY_GROW(resources->items, resources->n) < 0) return -ENOMEM;
    char *copy = strdup(name);
    if (copy == NULL) return -ENOMEM;
    resources->items[resources->n++] = (struct resource){copy, amount};
    return 0;
}

quantity resources_get(const struct resources *resources, const char *name) {
    const struct resource *item = find(resources, name);
    return item == NULL ? 0 : item->amount;
}

bool resources_has(const struct resources *resources, const char *name) {
    return find(resources, name) != NULL;
}

void resources_remove(struct resources *resources, const char *name) {
    struct resource *item = find(resources, name);
    if (item == NULL) return;
    free(item->name);
    size_t behind = (size_t)(resources->items + resources->n - (item + 1));
    memmove(item, item + 1, behind * sizeof *item);
    resources->n--;
}

struct amounts_reader {
    struct resources resources;
    ty_error *err;
};

static int parse_piece(void *context, char *piece) {
    struct amounts_reader *reader = context;
    char *equals = strchr(piece, '=');
    if (equals == NULL || equals == piece)
        return ty_fail(reader->err, TY_EUSAGE,
                       "resource \"%.80s\" must be NAME=AMOUNT, as in CPU=4,GPU=0.5,memory=8GiB", piece);
    *equals = '\0';
    if (resources_has(&reader->resources, piece))
        return ty_fail(reader->err, TY_EUSAGE, "resource \"%s\" is given twice", piece);
    if (reader->resources.n == RESOURCES_MAX)
        return ty_fail(reader->err, TY_EUSAGE, "more than %d resources", RESOURCES_MAX);
    quantity amount;
    int result = quantity_parse(equals + 1, piece, &amount, reader->err);
    if (result < 0) return result;
    return resources_set(&reader->resources, piece, amount) < 0 ? ty_fail_memory(reader->err) : 0;
}

int resources_parse(struct resources *resources, const char *text, ty_error *err) {
    struct amounts_reader reader = {.err = err};
    if (text[0] == '\0') return 0;
    if (resources_copy(&reader.resources, resources) < 0) return ty_fail_memory(err);
    int result = str_split(text, ',', parse_piece, &reader);
    if (result < 0) {
        resources_done(&reader.resources);
        return result == -ENOMEM ? ty_fail_memory(err) : result;
    }
    resources_done(resources);
    *resources = reader.resources;
    return 0;
}

void resources_format_json(const struct resources *resources, struct buffer *out) {
    buffer_char(out, '{');
    for (size_t i = 0; i < resources->n; i++) {
        if (i > 0) buffer_text(out, ", ");
        buffer_json_string(out, resources->items[i].name, strlen(resources->items[i].name));
        buffer_text(out, ": ");
        quantity_format(resources->items[i].amount, out);
    }
    buffer_char(out, '}');
}

/* A part of a byte takes a whole one: what is asked for is never said to be nothing. */
void resources_format_amount(const struct resource *item, struct buffer *out) {
    if (strcmp(item->name, "memory") == 0 || strcmp(item->name, "object_store_memory") == 0)
        bytes_format(((uint64_t)item->amount + QUANTITY_ONE - 1) / QUANTITY_ONE, out);
    else
        quantity_format(item->amount, out);
}

void resources_format(const struct resources *resources, struct buffer *out) {
    for (size_t i = 0; i < resources->n; i++) {
        const struct resource *item = &resources->items[i];
        if (i > 0) buffer_text(out, ", ");
        resources_format_amount(item, out);
        buffer_printf(out, " %s", item->name);
    }
}
