/* The table of device resources and the checks over it: which names are devices, which amounts of one may be
 * asked for, and which spellings are mistakes for a known name. A name that nobody knows is a resource of the
 * user's own, and any amount of it is right. */
#include "scaling/device.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "scaling/tpu.h"

enum quantity_rule { QUANTITY_ANY, QUANTITY_WHOLE, QUANTITY_1_2_4_8 };

static const struct device_resource {
    const char *name;
    enum quantity_rule rule;
} devices[] = {
    {"GPU", QUANTITY_ANY},       {"TPU", QUANTITY_1_2_4_8}, {"NPU", QUANTITY_ANY},
    {"HPU", QUANTITY_WHOLE},     {"RBLN", QUANTITY_WHOLE},  {"neuron_cores", QUANTITY_WHOLE},
    {"FURIOSA", QUANTITY_WHOLE}, {"MBLT", QUANTITY_WHOLE},  {"MLU", QUANTITY_ANY},
};

static const char *const pools[] = {"CPU", "memory", "object_store_memory"};

static const struct device_resource *find(const char *name) {
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
        if (strcmp(devices[i].name, name) == 0) return &devices[i];
    return NULL;
}

bool accelerator_is_device(const char *resource) {
    return find(resource) != NULL;
}

static bool is_1_2_4_8(quantity amount) {
    return amount == QUANTITY_ONE || amount == 2 * QUANTITY_ONE || amount == 4 * QUANTITY_ONE ||
           amount == 8 * QUANTITY_ONE;
}

static int refuse(const char *resource, quantity amount, const char *rule, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "The quantity of resource %.80s must be %s, but it is %g", resource, rule,
                   quantity_to_double(amount));
}

int accelerator_check_amount(const char *resource, quantity amount, ty_error *err) {
    const struct device_resource *device = find(resource);
    if (amount < 0)
        return ty_fail(err, TY_EUSAGE, "The quantity of resource %.80s cannot be negative", resource);
    if (device == NULL || amount == 0) return 0;
    if (device->rule == QUANTITY_1_2_4_8) {
        /* The amount counts units, or chips where a chip is several units (docs/spec/accelerators.md 2.5). */
        int64_t units;
        bool good = is_1_2_4_8(amount) || (tpu_units_per_chip(&units, NULL) == 0 && amount % units == 0 &&
                                           is_1_2_4_8(amount / units));
        return good ? 0 : refuse(resource, amount, "1, 2, 4 or 8", err);
    }
    if (amount % QUANTITY_ONE == 0) return 0;
    if (device->rule == QUANTITY_WHOLE) return refuse(resource, amount, "a whole number", err);
    if (amount > QUANTITY_ONE) return refuse(resource, amount, "whole when it is above 1", err);
    return 0;
}

static int check_case(const char *name, const char *known, ty_error *err) {
    if (strcasecmp(name, known) != 0 || strcmp(name, known) == 0) return 0;
    return ty_fail(err, TY_EUSAGE, "resource names are case-sensitive: \"%.80s\" must be written \"%.80s\"",
                   name, known);
}

/* "gpu" would be a resource of the user's own, which no node has: that is refused here, where it can be
 * told. */
int resource_check_name(const char *name, ty_error *err) {
    if (name[0] == '\0') return ty_fail(err, TY_EUSAGE, "a resource name is empty");
    if (strcmp(name, "bundle") == 0)
        return ty_fail(err, TY_EUSAGE, "the resource name \"bundle\" is reserved; choose another");
    if (!utf8_valid(name, strlen(name)))
        return ty_fail(err, TY_EUSAGE, "resource \"%.80s\": a name must be UTF-8", name);
    for (const char *at = name; *at != '\0'; at++)
        if (iscntrl((unsigned char)*at))
            return ty_fail(err, TY_EUSAGE, "resource \"%.80s\": a name may hold no control characters", name);
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
        if (check_case(name, devices[i].name, err) < 0) return TY_EUSAGE;
    for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
        if (check_case(name, pools[i], err) < 0) return TY_EUSAGE;
    return 0;
}
