/* Why a demand does not fit: one sentence that names what is short, where, and the smallest change that would
 * fit. It is made after a refusal, by looking at all nodes again: what it costs is paid by nobody whose demand
 * fits. The words for amounts are shared with the drawing of a plan (plan_text.c). */
#ifndef PLACEMENT_EXPLAIN_H
#define PLACEMENT_EXPLAIN_H

#include "base/buffer.h"
#include "base/quantity.h"
#include "placement/plan.h"
#include "placement/proposal.h"

/* Fills the plan's reason and shorts; its verdict is set. The proposal holds the nodes as the reason is to see
 * them (as they are for BUSY, idle for INFEASIBLE) and has nothing placed. 0 or -ENOMEM. */
int explain_refusal(struct plan *plan, struct proposal *proposal);

/* The same for a demand of TPU slices. */
int explain_slices(struct plan *plan, struct proposal *proposal);

/* For both: a resource that is short, at most once each. */
int plan_add_short(struct plan *plan, const char *resource, quantity need, quantity have);

/* Amounts in words, for the drawing and the explanations. */

/* "4 CPU", "8 GiB memory". */
void say_amount(struct buffer *out, const char *name, quantity amount);
/* "4", "8 GiB": the same without the name. */
void say_number(struct buffer *out, const char *name, quantity amount);
/* "4 CPU, 0.5 GPU, type A100": an accelerator type is a type, not an amount. */
void say_resources(struct buffer *out, const struct resources *resources);
/* "1 node", "2 nodes". */
void say_count(struct buffer *out, size_t n, const char *thing);

#endif
