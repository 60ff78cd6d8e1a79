/* An environment being put together: names keep their place, a later value replaces an earlier one. */
#ifndef BASE_ENVIRONMENT_H
#define BASE_ENVIRONMENT_H

#include <stddef.h>

/* Zero-initialised is empty. `items` is ready for execve: n pointers to "K=V" and a NULL. */
struct environment {
    char **items; /* owned */
    size_t n;
    struct hash *index; /* name -> position */
};

void environment_done(struct environment *environment);

/* Adds every "K=V" of a NULL-terminated list; what is not of that form is passed over. 0 or -ENOMEM. */
int environment_add(struct environment *environment, char *const *list);
/* value NULL removes. 0 or -ENOMEM. */
int environment_set(struct environment *environment, const char *name, const char *value);

#endif
