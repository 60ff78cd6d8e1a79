/* The address map of base/tree.h, by open addressing. */
#include "base/tree.h"

#include <errno.h>
#include <stdlib.h>

void places_done(struct places *places) {
    for (size_t i = 0; i < places->n_slots; i++)
        free(places->slots[i].text);
    free(places->slots);
    *places = (struct places){0};
}

/* The slot of `of`, or the free one in which it belongs. Addresses of heap blocks differ above their lowest
 * four bits. */
static struct place *find(struct place *slots, size_t n_slots, const void *of) {
    size_t at = (size_t)(((uintptr_t)of >> 4) * 0x9e3779b97f4a7c15 >> 32) & (n_slots - 1);
    while (slots[at].of != NULL && slots[at].of != of)
        at = (at + 1) & (n_slots - 1);
    return &slots[at];
}

static int grow(struct places *places) {
    size_t n_slots = places->n_slots == 0 ? 16 : 2 * places->n_slots;
    struct place *slots = calloc(n_slots, sizeof *slots);
    if (slots == NULL) return -ENOMEM;
    for (size_t i = 0; i < places->n_slots; i++)
        if (places->slots[i].of != NULL) *find(slots, n_slots, places->slots[i].of) = places->slots[i];
    free(places->slots);
    places->slots = slots;
    places->n_slots = n_slots;
    return 0;
}

int places_add(struct places *places, const void *of, size_t line, size_t column) {
    if (2 * places->n >= places->n_slots && grow(places) < 0) return -ENOMEM;
    *find(places->slots, places->n_slots, of) = (struct place){of, (uint32_t)line, (uint32_t)column, NULL};
    places->n++;
    return 0;
}

struct place *places_get(const struct places *places, const void *of) {
    if (places->n == 0) return NULL;
    struct place *place = find(places->slots, places->n_slots, of);
    return place->of == of && of != NULL ? place : NULL;
}
