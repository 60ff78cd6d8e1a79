/* Large blocks of memory that are needed over and over, such as those in which pieces of files travel. A few
 * that were given back are kept: a new one's pages, which the kernel clears one by one, cost more than what is
 * done with them. */
#ifndef BASE_BLOCK_H
#define BASE_BLOCK_H

#include <stddef.h>

/* Memory as of malloc, which free() takes as well; NULL when it is short. */
void *block_take(size_t size);
void block_give(void *block); /* NULL is fine */
/* Frees those that are kept: for a time none will be needed. */
void block_drop(void);

#endif
