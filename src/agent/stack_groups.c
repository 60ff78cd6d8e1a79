/* Groups of ranks by where they stand, for whoever looks at stacks: all that stand in one place are one group,
 * the smallest first, shown by the frames of its first rank. Nothing is known here of what the frames mean:
 * what makes a place is in stack_text.c. */
#include "agent/stack_save.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hash.h"

int stack_groups_add(struct stack_groups *groups, int rank, char *frames, double at) {
    CLEANUP(buffer_done) struct buffer key = {0};
    buffer_text(&key, "");
    if (frames != NULL) stack_text_place_key(frames, &key);
    if (groups->places == NULL) groups->places = hash_create();
    bool room = frames != NULL && groups->places != NULL && !key.failed;
    const uintptr_t *place = room ? hash_get(groups->places, key.data) : NULL;
    size_t index = place != NULL ? *place : groups->n;
    if (!room || (place == NULL && (ARRAY_GROW(groups->items, groups->n) < 0 ||
                                    hash_set(groups->places, key.data, groups->n) < 0))) {
        free(frames);
        return -ENOMEM;
    }
    if (place == NULL)
        groups->items[groups->n++] = (struct stack_group){.frames = frames, .first = rank};
    else
        free(frames);
    struct stack_group *group = &groups->items[index];
    group->n++;
    if (at > group->at) group->at = at;
    return idset_add(&group->ranks, rank);
}

static int compare_groups(const void *a, const void *b) {
    const struct stack_group *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

void stack_groups_sort(struct stack_groups *groups) {
    if (groups->n > 0) qsort(groups->items, groups->n, sizeof *groups->items, compare_groups);
    hash_destroy(groups->places); /* of indices that were */
    groups->places = NULL;
}

void stack_groups_done(struct stack_groups *groups) {
    for (size_t i = 0; i < groups->n; i++) {
        free(groups->items[i].frames);
        idset_done(&groups->items[i].ranks);
    }
    free(groups->items);
    hash_destroy(groups->places);
    *groups = (struct stack_groups){0};
}

void stack_groups_json(const struct stack_groups *groups, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < groups->n; i++) {
        const struct stack_group *group = &groups->items[i];
        buffer_printf(out, "%s{\"ranks\": \"", i == 0 ? "" : ", ");
        idset_format(&group->ranks, out);
        buffer_printf(out, "\", \"n\": %zu, \"rank\": %d, \"at\": %.3f, \"frames\": ", group->n, group->first,
                      group->at);
        buffer_json_text(out, group->frames);
        buffer_char(out, '}');
    }
    buffer_char(out, ']');
}
