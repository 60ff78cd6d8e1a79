/* Why a demand does not fit: one sentence that names what is short, where, and the smallest change that would
 * fit. */
#ifndef PLACEMENT_EXPLAIN_H
#define PLACEMENT_EXPLAIN_H

#include "placement/plan.h"
#include "placement/proposal.h"

/* Fills the plan's reason and shorts; its verdict is set. The proposal holds the nodes as the reason is to see
 * them (as they are for BUSY, idle for INFEASIBLE) and has nothing placed. 0 or -ENOMEM. */
int explain_refusal(struct plan *plan, struct proposal *proposal);

/* The same for a demand of TPU slices. */
int explain_slices(struct plan *plan, struct proposal *proposal);

/* For both: a resource that is short, at most once each. */
int plan_add_short(struct plan *plan, const char *resource, quantity need, quantity have);

#endif
