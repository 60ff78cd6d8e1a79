/* The best class for a kind: scores (docs/spec/placement.md 3.2 step 4), and a tournament over all classes that
 * follows their log, so that a decision costs the classes that changed and not all of them.
 *
 * A plain scan of the classes would do the same in ten lines. Measured one after the other for 80,000 workers
 * on 10,000 nodes of which no two are alike: PACK 0.19 s with the tournament and 24 s with the scan, SPREAD
 * 0.50 s and 139 s (on an idle machine 0.03 s and 0.08 s with the tournament). The scan stays for gangs of very
 * many kinds, where a tournament for each would cost more than it saves. */
#include <errno.h>
#include <stdlib.h>

#include "placement/kind.h"

/* Step 4: the share of the wanted resources that stays free, summed; negative when the kind does not fit. */
static struct score score_of(const struct kind *kind, const struct classes *classes, uint32_t slot) {
    const struct node_class *class = class_at(classes, slot);
    struct score score = {.score = -1, .tier = class->tier, .first = class->first};
    if (class->first == NONE || class->tier == TIER_EXCLUDED) return score;
    if (kind_count(kind, classes, slot, kind->times) < kind->times) return score;
    const uint16_t *bound = kind_bound(kind, class->shape);
    const quantity *amounts = class_amounts(class);
    score.score = 0;
    for (size_t i = 0; i < kind->n_wanted; i++) {
        quantity have = amounts[bound[i]];
        score.score += (double)(have - kind->wanted[i].amount * kind->times) / (double)have;
    }
    return score;
}

/* Unused nodes first, then the score, then the lowest node. */
static bool is_better(const struct score *a, const struct score *b) {
    if (a->tier != b->tier) return a->tier < b->tier;
    if (a->score > b->score || a->score < b->score) return a->score > b->score;
    return a->first < b->first;
}

/* ---- the tournament ---- */

static uint32_t play(const struct kind *kind, uint32_t at) {
    uint32_t a = kind->winner[2 * at], b = kind->winner[2 * at + 1];
    if (a == NONE || b == NONE) return a == NONE ? b : a;
    return is_better(&kind->scores[a], &kind->scores[b]) ? a : b;
}

/* Leaves for as many slots as there are, a power of two; winner[1] is the root, and winner[0] is not used. */
static int resize_tournament(struct kind *kind, struct kind_table *table, uint32_t n_slots) {
    uint32_t leaves = 16;
    while (leaves < n_slots)
        leaves *= 2;
    if (leaves == kind->leaves) return 0;
    struct score *scores = malloc(leaves * sizeof *scores);
    uint32_t *winner = malloc(2 * (size_t)leaves * sizeof *winner);
    if (!scores || !winner) {
        free(scores);
        free(winner);
        return -ENOMEM;
    }
    free(kind->scores);
    free(kind->winner);
    table->bytes += (leaves - kind->leaves) * (sizeof *scores + 2 * sizeof *winner);
    kind->scores = scores;
    kind->winner = winner;
    kind->leaves = leaves;
    return 0;
}

static void enter(struct kind *kind, const struct classes *classes, uint32_t slot) {
    kind->scores[slot] = score_of(kind, classes, slot);
    kind->winner[kind->leaves + slot] = kind->scores[slot].score < 0 ? NONE : slot;
}

/* Brings the tournament up to date: change by change, or anew where that costs less. */
static int follow_log(struct kind *kind, struct kind_table *table, const struct classes *classes) {
    uint64_t behind = classes->log_end - kind->seen;
    if (!kind->leaves || classes->n_slots > kind->leaves || behind > classes->n_slots ||
        behind > classes->log_mask) {
        if (resize_tournament(kind, table, classes->n_slots) < 0) return -ENOMEM;
        for (uint32_t slot = 0; slot < kind->leaves; slot++) {
            kind->winner[kind->leaves + slot] = NONE;
            if (slot < classes->n_slots) enter(kind, classes, slot);
        }
        for (uint32_t at = kind->leaves - 1; at >= 1; at--)
            kind->winner[at] = play(kind, at);
        kind->seen = classes->log_end;
        return 0;
    }
    for (; kind->seen < classes->log_end; kind->seen++) {
        uint32_t slot = classes->log[kind->seen & classes->log_mask];
        /* a node that is alone in its class leaves a slot and enters the same one: that is one change */
        bool again =
            kind->seen + 1 < classes->log_end && classes->log[(kind->seen + 1) & classes->log_mask] == slot;
        if (again) continue;
        enter(kind, classes, slot);
        for (uint32_t at = (kind->leaves + slot) / 2; at >= 1; at /= 2) {
            uint32_t winner = play(kind, at);
            if (winner == kind->winner[at] && winner != slot) break;
            kind->winner[at] = winner;
        }
    }
    return 0;
}

/* Without a tournament: all classes of the shapes that fit at all. */
static uint32_t scan_best(const struct kind *kind, const struct classes *classes) {
    struct score best = {.score = -1, .first = NONE};
    for (uint32_t s = 0; s < kind->n_shapes; s++) {
        uint32_t slot = classes->shapes[kind->shapes[s]].first_class;
        for (; slot != NONE; slot = class_at(classes, slot)->next) {
            struct score standing = score_of(kind, classes, slot);
            if (standing.score >= 0 && (best.first == NONE || is_better(&standing, &best))) best = standing;
        }
    }
    return best.first;
}

uint32_t kind_best(struct kind *kind, struct kind_table *table, const struct classes *classes, bool keep,
                   int *failed) {
    if (!keep) return scan_best(kind, classes);
    if (follow_log(kind, table, classes) < 0) {
        *failed = -ENOMEM;
        return NONE;
    }
    uint32_t best = kind->winner[1];
    if (best == NONE) return NONE;
    __builtin_prefetch(class_at(classes, best)); /* as far away as what is known of the node */
    return kind->scores[best].first;
}
