/* Building the environment that workers inherit. */
#include "cli/run_environment.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/config_file.h"
#include "worker/link.h"

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
    char **items = reallocarray(environment->items, environment->n + 2, sizeof *items);
    if (items == NULL) return ty_fail_memory(err);
    environment->items = items;
    items[environment->n++] = (char *)(uintptr_t)text;
    items[environment->n] = NULL;
    return 0;
}

void run_environment_leave_outer(void) {
    static const char *const outer[] = {
        WORKER_FD_VARIABLE,
        WORKER_PID_VARIABLE,
        WORKER_TOKEN_VARIABLE,
        WORKER_PATH_VARIABLE,
        WORKER_PAYLOAD_VARIABLE,
        WORKER_CHECKPOINT_VARIABLE,
        WORKER_BACKEND_VARIABLE,
        "TRAINYARD_RUN",
        "TRAINYARD_ATTEMPT",
        "TRAINYARD_DEVICES",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_NAME",
        "ROLE_WORLD_SIZE",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE",
    };
    const char *socket = getenv(WORKER_FD_VARIABLE);
    int64_t fd = -1;
    if (socket == NULL) return;
    if (str_to_int64(socket, 0, INT_MAX, &fd)) (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(outer); i++)
        (void)unsetenv(outer[i]);
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
