/* Amounts in words, as base writes them, and accelerator types, which look like amounts in a demand and are
 * none. */
#include "placement/words.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/accelerator_type.h"

void say_amount(struct buffer *out, const char *name, quantity amount) {
    struct resource item = {(char *)(uintptr_t)name, amount};
    resources_format(&(struct resources){&item, 1}, out);
}

void say_number(struct buffer *out, const char *name, quantity amount) {
    resources_format_amount(&(struct resource){(char *)(uintptr_t)name, amount}, out);
}

void say_resources(struct buffer *out, const struct resources *resources) {
    const char *type, *between = "";
    for (size_t i = 0; i < resources->n; i++) {
        buffer_text(out, between);
        if (str_prefix(resources->items[i].name, ACCELERATOR_TYPE_PREFIX, &type))
            buffer_printf(out, "type %s", type);
        else
            say_amount(out, resources->items[i].name, resources->items[i].amount);
        between = ", ";
    }
}

void say_count(struct buffer *out, size_t n, const char *thing) {
    buffer_printf(out, "%zu %s%s", n, thing, n == 1 ? "" : "s");
}
