/* What the files of this room share among themselves. */
#ifndef SCALING_PARTS_H
#define SCALING_PARTS_H

#include "scaling/scaling.h"
#include "scaling/spelling.h"

/* `*to` (NULL or owned) becomes a copy of `from`; -ENOMEM. */
int scaling_copy_text(char **to, const char *from);
int scaling_selectors_copy(struct label_selector **to, const struct label_selector *from, size_t n);
void scaling_selectors_done(struct label_selector *selectors, size_t n);

/* tpu_generation of the config's type, refused by its field. */
int scaling_generation(const struct scaling *scaling, char generation[16], ty_error *err);

/* Puts the field and its value before what placement_strategy_parse says. */
int scaling_wrap_strategy(const char *text, ty_error *err);

/* Adds an amount after the checks of 1.7; messages begin with the field. */
int scaling_set_amount(struct resources *resources, const char *field, const char *name, double amount,
                       ty_error *err);

/* The checks of docs/spec/train-api.md 1.2, rows 1-7, over what was given. */
int scaling_validate_first(const struct scaling *scaling, ty_error *err);
/* Rows 9-15 and those it calls not validated upstream; `per_worker` is what a worker holds. */
int scaling_validate_rest(const struct scaling *scaling, const struct resources *per_worker, ty_error *err);

/* The TPU slice that topology and type name, and how many workers one holds (row 8); `tpu` was zero. */
int scaling_resolve_slice(const struct scaling *scaling, struct tpu_demand *tpu, ty_error *err);
void scaling_slice_done(struct tpu_demand *tpu);
/* What one worker holds by the rules of 1.4; `resources` was empty and is changed also on failure. */
int scaling_resolve_worker(const struct scaling *scaling, const struct tpu_demand *tpu,
                           struct resources *resources, ty_error *err);

#endif
