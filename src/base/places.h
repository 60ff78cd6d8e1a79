/* A map from addresses to places in a text: where each value and each key of a document was read. */
#ifndef BASE_PLACES_H
#define BASE_PLACES_H

#include <stddef.h>
#include <stdint.h>

struct place {
    const void *of; /* NULL when the slot is free */
    uint32_t line, column;
    char *text; /* owned; the place as a message shows it, made when first asked for */
};

struct places {
    struct place *slots; /* owned */
    size_t n_slots;      /* a power of two, or 0 */
    size_t n;
};

void places_done(struct places *places);

/* 0, or -ENOMEM. An address has one place. */
int places_add(struct places *places, const void *of, size_t line, size_t column);

/* NULL when the address has none. Valid until the next places_add. */
struct place *places_get(const struct places *places, const void *of);

#endif
