/* Memory that runs short while a simulated controller decides; the simulated cluster always has enough. For
 * programs that are linked with --wrap for the allocating functions and for SHORTAGE_WRAPS of meson.build. */
#ifndef TESTS_SIM_SHORTAGE_H
#define TESTS_SIM_SHORTAGE_H

#include <stdbool.h>
#include <stdint.h>

/* Asked before each event that the controller hears: how many allocations succeed before one fails, and with
 * `*for_good` all behind it, until the event is over; negative: none fails. `draw` NULL: nobody is asked any
 * more. */
void shortage_begin(long (*draw)(void *context, bool *for_good), void *context);

/* How many events have met a failed allocation since shortage_begin. */
uint64_t shortage_count(void);

#endif
