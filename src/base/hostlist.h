/* Host lists in the form of Flux RFC 29 and Slurm: "gpu[01-04,7],login" names gpu01 gpu02 gpu03 gpu04 gpu7
 * login. Leading zeros give the width. Several brackets in a name multiply: "r[1-2]n[1-3]". A list is not
 * expanded in memory: a range of a million hosts costs a few bytes. */
#ifndef BASE_HOSTLIST_H
#define BASE_HOSTLIST_H

#include <stddef.h>

#include "base/error.h"

struct hostlist; /* opaque */

enum { HOSTLIST_MAX = 16 * 1024 * 1024 }; /* hosts in one list; more is refused */

int hostlist_parse(const char *text, struct hostlist **list, ty_error *err);
void hostlist_destroy(struct hostlist *list);
size_t hostlist_count(const struct hostlist *list);

/* Calls `each` for every name in order (borrowed during the call); stops at a value other than 0 and returns
 * it. */
int hostlist_each(const struct hostlist *list, int (*each)(void *context, const char *name), void *context);

#endif
