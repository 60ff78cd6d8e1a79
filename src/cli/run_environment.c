/* Building the environment that workers inherit. */
#include "cli/run_options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "cli/config_file.h"

void run_environment_done(struct run_environment *environment) {
    free(environment->items);
    *environment = (struct run_environment){0};
}

int run_environment_add(struct run_environment *environment, const char *text, ty_error *err) {
    const char *equals = strchr(text, '=');
    CLEANUP_FREE char *name = equals != NULL ? strndup(text, (size_t)(equals - text)) : strdup(text);
    if (name == NULL) return ty_fail_memory(err);
    int result = config_check_variable(name, err);
    if (result < 0) return result;
    if (equals == NULL && getenv(name) == NULL)
        return ty_fail(err, TY_EUSAGE, "is not set here: give it a value, as in --env %s=VALUE", name);
    if (equals == NULL) return 0;
    if (ARRAY_GROW(environment->items, environment->n + 1) < 0) return ty_fail_memory(err);
    environment->items[environment->n++] = (char *)(uintptr_t)text;
    environment->items[environment->n] = NULL;
    return 0;
}

int run_environment_make(const struct run_environment *given, char *const *file, struct environment *made,
                         ty_error *err) {
    struct environment environment = {0};
    int result = environment_add(&environment, environ);
    if (result >= 0 && file != NULL) result = environment_add(&environment, file);
    if (result >= 0 && given->items != NULL) result = environment_add(&environment, given->items);
    if (result < 0) {
        environment_done(&environment);
        return ty_fail_memory(err);
    }
    *made = environment;
    return 0;
}
