/* One decision from its begin to its end: bundles are sorted into queues of a kind, in the order of placing,
 * and every node that is touched is noted, so that the end can let all of them be used again. Which node a
 * bundle goes to is strategy.c's matter. Nothing of a gang is kept here after the end. */
#include "placement/decision.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { KINDS_WITH_TOURNAMENT = 64 };

static int reserve_room(struct workroom *room, size_t n_words, size_t n_queues) {
    if (n_words > room->n_words) {
        if (ARRAY_RESIZE(room->words, n_words) < 0) return -ENOMEM;
        room->n_words = n_words;
    }
    if (n_queues > room->n_queues) {
        if (ARRAY_RESIZE(room->queues, n_queues) < 0) return -ENOMEM;
        room->n_queues = n_queues;
    }
    return 0;
}

static int queue_order(const void *a, const void *b) {
    const struct kind_queue *x = a, *y = b;
    int order = kind_order(x->kind, y->kind);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static uint32_t kind_number(const struct gang *gang, size_t bundle) {
    return gang->kind_of ? gang->kind_of[bundle] : 0;
}

static int bundle_order(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The order in which bundles are tried: by queue, and by index within the queues that want the same. */
static void fill_sequence(struct decision *decision) {
    const struct gang *gang = decision->gang;
    for (size_t i = 0; i < gang->n; i++)
        decision->queues[decision->queue_of[kind_number(gang, i)]].end++;
    uint32_t at = 0;
    for (size_t q = 0; q < gang->n_kinds; q++) {
        uint32_t count = decision->queues[q].end;
        decision->queues[q].next = decision->queues[q].end = at;
        at += count;
    }
    for (size_t i = 0; i < gang->n; i++)
        decision->by_kind[decision->queues[decision->queue_of[kind_number(gang, i)]].end++] = (uint32_t)i;
    memcpy(decision->sequence, decision->by_kind, gang->n * sizeof *decision->sequence);
    for (uint32_t q = 0; q < gang->n_kinds; q = decision->queues[q].group_end) {
        uint32_t last = decision->queues[q].group_end - 1, first = decision->queues[q].next;
        if (last == q) continue;
        qsort(decision->sequence + first, decision->queues[last].end - first, sizeof *decision->sequence,
              bundle_order);
    }
}

int decision_begin(struct decision *decision, struct workroom *room) {
    const struct gang *gang = decision->gang;
    kind_table_trim(decision->table);
    if (reserve_room(room, 2 * gang->n + gang->n_kinds, gang->n_kinds) < 0) return -ENOMEM;
    decision->queues = room->queues;
    decision->sequence = room->words;
    decision->by_kind = room->words + gang->n;
    decision->queue_of = room->words + 2 * gang->n;
    decision->touched = room->touched;
    for (size_t k = 0; k < gang->n_kinds; k++) {
        struct kind *kind = kind_find(decision->table, decision->classes, &gang->kinds[k], 1, false);
        if (!kind) return -ENOMEM;
        decision->queues[k] = (struct kind_queue){.kind = kind, .number = (uint32_t)k};
    }
    if (gang->n_kinds > 1) qsort(decision->queues, gang->n_kinds, sizeof *decision->queues, queue_order);
    /* Queues that want the same form one group: its bundles go by index, whatever their labels. */
    size_t n = decision->gang->n_kinds;
    for (size_t end = n, i = n; i-- > 0;) {
        if (i + 1 < n && kind_order(decision->queues[i].kind, decision->queues[i + 1].kind)) end = i + 1;
        decision->queues[i].group_end = (uint32_t)end;
        decision->queue_of[decision->queues[i].number] = (uint32_t)i;
    }
    fill_sequence(decision);
    if (decision->node_of) memset(decision->node_of, 0xff, gang->n * sizeof *decision->node_of);
    return 0;
}

void decision_open(struct decision *decision, uint32_t node) {
    if (node_tier(decision->classes, node) == TIER_UNUSED) decision->touched[decision->n_touched++] = node;
    classes_open(decision->classes, node);
}

void decision_grant(struct decision *decision, uint32_t bundle) {
    open_node_grant(decision->classes, bundle_kind(decision, bundle), bundle_positions(decision, bundle));
    decision->node_of[bundle] = decision->classes->open.node;
}

uint32_t decision_best(struct decision *decision, struct kind *kind) {
    bool keep = decision->gang->n_kinds <= KINDS_WITH_TOURNAMENT;
    return kind_best(kind, decision->table, decision->classes, keep, &decision->failed);
}

/* Bundles that follow each other mostly lie on one node, which is opened once for them. A node whose last grant
 * is taken back is usable again by that; the others that were touched are moved. */
void decision_end(struct decision *decision, bool placed) {
    uint32_t held = NONE;
    for (uint32_t i = 0; !placed && i < decision->gang->n; i++) {
        uint32_t node = decision->node_of[i];
        if (node == NONE) continue;
        if (node != held) {
            if (held != NONE) classes_close(decision->classes, TIER_UNUSED);
            held = node;
            classes_open(decision->classes, held);
        }
        open_node_return(decision->classes, bundle_kind(decision, i), bundle_positions(decision, i));
    }
    if (held != NONE) classes_close(decision->classes, TIER_UNUSED);
    for (size_t i = 0; i < decision->n_touched; i++)
        if (node_tier(decision->classes, decision->touched[i]) != TIER_UNUSED)
            classes_move(decision->classes, decision->touched[i], TIER_UNUSED);
}
