/* What every framework's workers find, whatever it is. */
#ifndef FRAMEWORK_SHARED_H
#define FRAMEWORK_SHARED_H

#include "framework/framework.h"

extern const struct framework framework_plain, framework_torch, framework_jax, framework_tensorflow,
    framework_mpi;

/* What plain sets, for the others to add to. */
int plain_shared(const struct framework_context *context, environment_change *change, void *change_context,
                 ty_error *err);
int plain_worker(const struct framework_context *context, size_t rank, environment_change *change,
                 void *change_context, ty_error *err);

/* Where variables go, with the first failure kept. */
struct variables {
    environment_change *change;
    void *context;
    int result; /* 0, or what `change` answered */
};

void variables_set(struct variables *variables, const char *name, const char *value); /* NULL removes */
void variables_format(struct variables *variables, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 0, or -ENOMEM with its message. */
int variables_end(const struct variables *variables, ty_error *err);

/* The value that the user gave, NULL without. */
const char *framework_inherited(const struct framework_context *context, const char *name);

/* Per-worker amount of a resource, whole ones only (rounded down). */
long framework_whole(const struct framework_context *context, const char *resource);

#endif
