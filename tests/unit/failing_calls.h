/* Calls that the kernel refuses on demand: what makes descriptors, processes and watches, and what writes to
 * sockets and files. They stand before libc's, so that libraries meet them as well. */
#ifndef UNIT_FAILING_CALLS_H
#define UNIT_FAILING_CALLS_H

#include <stdbool.h>

/* As memory_fails_after and memory_fails_in_children of failing_memory.h. */
long calls_fail_after(long n, bool for_good);
int calls_fail_in_children(void);

#endif
