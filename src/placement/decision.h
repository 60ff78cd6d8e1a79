/* One decision of the planner: the gang in the order of placing, what has been placed so far, and how to take
 * it back. The strategies (strategy.c) work on this; planner.c begins and ends it. What is here lives as long
 * as the decision; the classes and kinds that it changes stay, as they are then. */
#ifndef PLACEMENT_DECISION_H
#define PLACEMENT_DECISION_H

#include "placement/classes.h"
#include "placement/kind.h"
#include "placement/planner.h"

/* Room that is kept from decision to decision. */
struct workroom {
    uint32_t *words;
    size_t n_words;
    struct kind_queue *queues;
    size_t n_queues;
    uint32_t *touched; /* room for every node */
};

/* Bundles of one kind that are not placed yet. */
struct kind_queue {
    struct kind *kind;
    uint32_t number;    /* of the kind in the gang */
    uint32_t next, end; /* into decision->by_kind */
    uint32_t group_end; /* the queues up to here want the same resources, and take turns by bundle index */
};

struct decision {
    struct classes *classes;
    struct kind_table *table;
    const struct gang *gang;
    uint32_t *node_of; /* NONE: not placed yet */
    uint16_t *positions;
    size_t stride;

    struct kind_queue *queues; /* one for each of the gang's kinds, in the order of placing */
    uint32_t *by_kind;         /* bundles of each queue, ascending */
    uint32_t *sequence;        /* all bundles in the order of placing */
    uint32_t *queue_of;        /* queue of each kind of the gang */
    uint32_t *touched;         /* nodes that left TIER_UNUSED */
    size_t n_touched;
    int failed; /* -ENOMEM, once something was */
};

static inline struct kind *bundle_kind(const struct decision *decision, uint32_t bundle) {
    const struct gang *gang = decision->gang;
    return decision->queues[decision->queue_of[gang->kind_of ? gang->kind_of[bundle] : 0]].kind;
}

static inline uint16_t *bundle_positions(const struct decision *decision, uint32_t bundle) {
    return decision->positions + bundle * decision->stride;
}

/* Finds the kinds and sorts the bundles. 0 or -ENOMEM. */
int decision_begin(struct decision *decision, struct workroom *room);
/* Lets all nodes be used again; when `placed` is false everything is given back before. */
void decision_end(struct decision *decision, bool placed);

void decision_open(struct decision *decision, uint32_t node);         /* noted for the end */
void decision_grant(struct decision *decision, uint32_t bundle);      /* to the open node */
uint32_t decision_best(struct decision *decision, struct kind *kind); /* node, or NONE */

/* A planner_result, or -ENOMEM; a gang that is not placed leaves traces for decision_end to wipe. */
int strategy_place(struct decision *decision);

#endif
