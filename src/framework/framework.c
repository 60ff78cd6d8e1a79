/* Frameworks by name, those that add nothing to plain, and what their files share: a list of variables that is
 * filled without a check at each step. No framework is loaded or looked for; what a worker's environment must
 * hold follows from the plan alone. */
#include "framework/framework.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

/* torch: what plain sets, since that is what torchrun sets. */
const struct framework framework_torch = {.name = "torch", .shared = plain_shared, .worker = plain_worker};

/* mpi: what plain sets. The command that executes the program offers it PMI, by which ranks find each other. */
const struct framework framework_mpi = {
    .name = "mpi", .shared = plain_shared, .worker = plain_worker, .command = "mpi-worker"};

static const struct framework *const frameworks[] = {&framework_plain, &framework_torch, &framework_jax,
                                                     &framework_tensorflow, &framework_mpi};

int framework_find(const char *name, const struct framework **framework, ty_error *err) {
    if (name == NULL) name = framework_plain.name;
    for (size_t i = 0; i < ARRAY_SIZE(frameworks); i++) {
        if (!str_equal(name, frameworks[i]->name)) continue;
        *framework = frameworks[i];
        return 0;
    }
    return ty_fail(err, TY_EUSAGE,
                   "framework \"%.80s\" is unknown; allowed: plain, torch, jax, tensorflow, mpi", name);
}

void variables_set(struct variables *variables, const char *name, const char *value) {
    if (variables->result >= 0) variables->result = variables->change(variables->context, name, value);
}

void variables_format(struct variables *variables, const char *name, const char *format, ...) {
    CLEANUP_FREE char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    if (text != NULL)
        variables_set(variables, name, text);
    else if (variables->result >= 0)
        variables->result = -ENOMEM;
}

int variables_end(const struct variables *variables, ty_error *err) {
    return variables->result < 0 ? ty_fail_memory(err) : 0;
}

const char *framework_inherited(const struct framework_context *context, const char *name) {
    size_t size = strlen(name);
    for (char *const *item = context->user_environment; item != NULL && *item != NULL; item++)
        if (strncmp(*item, name, size) == 0 && (*item)[size] == '=') return *item + size + 1;
    return NULL;
}
