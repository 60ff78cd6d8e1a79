/* The best class for a kind: scores (spec/placement.md 3.2 step 4), and a tournament over all classes that follows their log. */
#include <errno.h>
#include <stdlib.h>

#include "placement/kind.h"

/* Step 4: the share that stays free, summed; negative when it does not fit. */
static double score_class(const struct kind *kind, const struct classes *classes, uint32_t slot) {
    const struct node_class *class = class_at(classes, slot);
    if (class->first == NONE || class->pool == POOL_ASIDE) return -1;
    if (kind_count(kind, classes, slot, kind->times) < kind->times) return -1;
    const uint16_t *bound = kind_bound(kind, class->shape);
    const quantity *amounts = class_amounts(class);
    double score = 0;
    for (size_t i = 0; i < kind->n_wanted; i++)
        score += (double)(amounts[bound[i]] - kind->wanted[i].amount * kind->times) / (double)amounts[bound[i]];
    return score;
}

/* ---- the tournament ---- */

/* Unused nodes first, then the score, then the lowest node. */
static bool is_better(const struct classes *classes, uint32_t a, double score_a, uint32_t b, double score_b) {
    const struct node_class *x = class_at(classes, a), *y = class_at(classes, b);
    if (x->pool != y->pool) return x->pool < y->pool;
    if (score_a > score_b || score_a < score_b) return score_a > score_b;
    return x->first < y->first;
}

static uint32_t play(const struct kind *kind, const struct classes *classes, uint32_t at) {
    uint32_t a = kind->winner[2 * at], b = kind->winner[2 * at + 1];
    if (a == NONE || b == NONE) return a == NONE ? b : a;
    return is_better(classes, a, kind->score[a], b, kind->score[b]) ? a : b;
}

static int resize_tournament(struct kind *kind, struct kind_table *table, uint32_t n_slots) {
    uint32_t leaves = 16;
    while (leaves < n_slots)
        leaves *= 2;
    if (leaves == kind->leaves) return 0;
    double *score = malloc(leaves * sizeof *score);
    uint32_t *winner = malloc(2 * (size_t)leaves * sizeof *winner);
    if (!score || !winner) {
        free(score);
        free(winner);
        return -ENOMEM;
    }
    free(kind->score);
    free(kind->winner);
    table->bytes += (leaves - kind->leaves) * (sizeof *score + 2 * sizeof *winner);
    kind->score = score;
    kind->winner = winner;
    kind->leaves = leaves;
    return 0;
}

static void replay_all(struct kind *kind, const struct classes *classes) {
    for (uint32_t slot = 0; slot < kind->leaves; slot++) {
        kind->score[slot] = slot < classes->n_slots ? score_class(kind, classes, slot) : -1;
        kind->winner[kind->leaves + slot] = kind->score[slot] < 0 ? NONE : slot;
    }
    for (uint32_t at = kind->leaves - 1; at >= 1; at--)
        kind->winner[at] = play(kind, classes, at);
}

static void replay_one(struct kind *kind, const struct classes *classes, uint32_t slot) {
    kind->score[slot] = score_class(kind, classes, slot);
    kind->winner[kind->leaves + slot] = kind->score[slot] < 0 ? NONE : slot;
    for (uint32_t at = (kind->leaves + slot) / 2; at >= 1; at /= 2) {
        uint32_t winner = play(kind, classes, at);
        if (winner == kind->winner[at] && winner != slot) return;
        kind->winner[at] = winner;
    }
}

static int follow_log(struct kind *kind, struct kind_table *table, const struct classes *classes) {
    uint64_t behind = classes->log_end - kind->seen;
    if (!kind->leaves || classes->n_slots > kind->leaves || behind > classes->n_slots ||
        behind > classes->log_mask) {
        if (resize_tournament(kind, table, classes->n_slots) < 0) return -ENOMEM;
        replay_all(kind, classes);
    } else {
        for (uint64_t at = kind->seen; at < classes->log_end; at++)
            replay_one(kind, classes, classes->log[at & classes->log_mask]);
    }
    kind->seen = classes->log_end;
    return 0;
}

static uint32_t scan_best(const struct kind *kind, const struct classes *classes) {
    uint32_t best = NONE;
    double best_score = -1;
    for (uint32_t s = 0; s < kind->n_shapes; s++) {
        uint32_t slot = classes->shapes[kind->shapes[s]].first_class;
        for (; slot != NONE; slot = class_at(classes, slot)->next) {
            double score = score_class(kind, classes, slot);
            if (score < 0 || (best != NONE && !is_better(classes, slot, score, best, best_score))) continue;
            best = slot;
            best_score = score;
        }
    }
    return best;
}

uint32_t kind_best(struct kind *kind, struct kind_table *table, const struct classes *classes, bool keep,
                   int *failed) {
    if (!keep) return scan_best(kind, classes);
    if (follow_log(kind, table, classes) < 0) {
        *failed = -ENOMEM;
        return NONE;
    }
    return kind->winner[1];
}
