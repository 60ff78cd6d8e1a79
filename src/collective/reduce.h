/* The arithmetic of reductions, the same for every way that numbers travel. Whole numbers wrap around. A NaN
 * among the numbers is the least and the greatest. Numbers of 16 bits are reduced as float32 and rounded once,
 * at the end, to the nearest, ties to even. Pure. */
#ifndef COLLECTIVE_REDUCE_H
#define COLLECTIVE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/collective.h>

/* to[i] = a[i] and b[i] reduced, for `count` numbers; `to` may be `a` or `b`. */
typedef void reduce_pair(void *to, const void *a, const void *b, size_t count);

/* For numbers of a type; those of 16 bits are given as float32. TY_MEAN adds: reduce_divide comes after. */
reduce_pair *reduce_pair_of(ty_data_type type, ty_reduction reduction);
/* The last step of TY_MEAN: float64, or float32 (also for those of 16 bits, before they are narrowed). */
void reduce_divide(void *numbers, size_t count, ty_data_type type, int by);

void reduce_widen(float *to, const void *from, size_t count, ty_data_type type);
void reduce_narrow(void *to, const float *from, size_t count, ty_data_type type);

/* Reduces the inputs in their order, and divides for TY_MEAN: equal inputs give equal bits, wherever. `to` may
 * be one of them. All are aligned for the type. */
void reduce_all(void *to, const void *const *inputs, int n_inputs, size_t count, ty_data_type type,
                ty_reduction reduction);

#endif
