/* What the page may do to a run: stop it, and ask for stacks. Both go the way of their commands, `trainyard
 * stop` and `trainyard stacks`, and so ask nothing of the run but what any process of its user may. Checked
 * here are the name, which the page must say, and that the run is the user's own; who may ask at all is checked
 * before (guard.c). */
#include "web/site.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "base/program.h"
#include "base/str.h"
#include "controller/run_lock.h"

/* The name must be said again: a request that was sent by mistake, or made up, does not know it. */
int action_check(const struct buffer *body, const char *name, const char *run_path, ty_error *err) {
    struct stat status;
    json_t *tree = body->size > 0 ? json_loadb(body->data, body->size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *confirmed = json_string_value(json_object_get(tree, "confirm"));
    bool right = json_object_size(tree) == 1 && str_equal(confirmed, name);
    json_decref(tree);
    if (!right) return ty_fail(err, TY_EUSAGE, "the body must be {\"confirm\": the name of the run}");
    if (stat(run_path, &status) < 0) return ty_fail(err, -errno, "%s: %s", run_path, strerror(errno));
    if (status.st_uid != getuid())
        return ty_fail(err, TY_EUSAGE, "the run is another user's: it is shown, and left alone");
    return 0;
}

int action_stop(const char *run_path, struct buffer *out, ty_error *err) {
    int result = run_lock_interrupt(run_path, err);
    if (result >= 0) buffer_printf(out, "{\"running\": %s}", result > 0 ? "true" : "false");
    return result < 0 ? result : 0;
}

/* By the command, in a process of its own. It waits for as long as that does, which workers may make long. */
int action_stacks(const char *run_path, struct buffer *out, ty_error *err) {
    const char *command = module_command(err), *slash = strrchr(run_path, '/');
    CLEANUP_FREE char *storage = strndup(run_path, (size_t)(slash - run_path));
    static const int nothing[] = {PROGRAM_NOTHING, PROGRAM_NOTHING, PROGRAM_NOTHING};
    pid_t pid;
    int status = 0;
    if (command == NULL) return err->code;
    if (storage == NULL) return ty_fail_memory(err);
    const char *const argv[] = {command, "stacks", "--storage-path", storage, "--", slash + 1, NULL};
    int result = program_start(
        &(struct program_start){.path = command, .argv = argv, .fds = nothing, .n_fds = ARRAY_SIZE(nothing)},
        &pid);
    if (result < 0) return ty_fail(err, result, "cannot start %s: %s", command, strerror(-result));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return ty_fail(err, TY_EUSAGE, "no worker of this run runs on this machine now");
    buffer_text(out, "{}");
    return 0;
}
