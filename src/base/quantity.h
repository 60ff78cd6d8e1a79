/* Amounts of a resource as whole numbers of 1/10000, so that ten times 0.1 is 1 (docs/spec/placement.md 3.5),
 * and lists of named amounts ("CPU=4,GPU=0.5,memory=8GiB"). */
#ifndef BASE_QUANTITY_H
#define BASE_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

typedef int64_t quantity;

enum { QUANTITY_ONE = 10000 };
#define QUANTITY_MAX ((quantity)1 << 62)

/* Truncates toward zero. Refuses NaN, infinities, negatives ("cannot be negative"), what is not zero but below
 * 0.0001 ("cannot go beyond 0.0001") and overflow; the message names `what`. */
int quantity_from_double(double value, const char *what, quantity *amount, ty_error *err);

/* A decimal number with an optional suffix K M G T P (powers of 1000), Ki Mi Gi Ti Pi (of 1024), each with an
 * optional B. */
int quantity_parse(const char *text, const char *what, quantity *amount, ty_error *err);

double quantity_to_double(quantity amount);

/* Shortest decimal form: "4", "0.5", "0.0001". */
void quantity_format(quantity amount, struct buffer *out);
/* Bytes in the largest unit that leaves at least one of it, two decimals at most: "12.5 MiB". A file system may
 * hold more of them than a quantity counts, which is why they are none. */
void bytes_format(uint64_t bytes, struct buffer *out);

/* a * n without overflow; false when it would. */
bool quantity_multiply(quantity amount, int64_t n, quantity *product);

/* One named amount. */
struct resource {
    char *name;
    quantity amount;
};

/* Names are found by looking through a list, so those who read one from outside refuse more than this. */
enum { RESOURCES_MAX = 1000 };

/* Named amounts in the order in which they were added; no name twice. Zero-initialised is empty. */
struct resources {
    struct resource *items; /* owned */
    size_t n;
};

void resources_done(struct resources *resources);
int resources_copy(struct resources *to, const struct resources *from); /* `to` was empty; -ENOMEM */
int resources_set(struct resources *resources, const char *name,
                  quantity amount);                                          /* adds or replaces; -ENOMEM */
quantity resources_get(const struct resources *resources, const char *name); /* 0 when absent */
bool resources_has(const struct resources *resources, const char *name);
void resources_remove(struct resources *resources, const char *name);

/* "CPU=4,GPU=0.5,memory=8GiB"; refuses an empty name, a missing '=', a name twice, more than
 * RESOURCES_MAX, and what quantity_parse refuses. */
int resources_parse(struct resources *resources, const char *text, ty_error *err);

/* {"CPU": 4, "GPU": 0.5} */
void resources_format_json(const struct resources *resources, struct buffer *out);
/* "4", "8 GiB" */
void resources_format_amount(const struct resource *item, struct buffer *out);
/* 4 CPU, 0.5 GPU, 8 GiB memory: "GPU 2" would be the name of a device */
void resources_format(const struct resources *resources, struct buffer *out);

#endif
