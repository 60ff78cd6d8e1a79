/* Memory that runs short on demand, for test programs linked with --wrap for the allocating functions. */
#ifndef UNIT_FAILING_MEMORY_H
#define UNIT_FAILING_MEMORY_H

#include <stdbool.h>

/* `n` allocations succeed, the next one fails, and with `for_good` all that follow it too; a negative `n`: all
 * succeed. Answers what was left of the number before: negative when there was none, or when one has failed. */
long memory_fails_after(long n, bool for_good);

/* From now on this process is never short: those are that it forks, and they share one count. -1: no memory for
 * that. */
int memory_fails_in_children(void);

#endif
