/* Both go the way of their commands, `trainyard stop` and `trainyard stacks`. */
#include "web/site.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"
#include "controller/run_lock.h"

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

/* The command itself, its words thrown away. Threads of ours hold no signals of its. */
static int spawn_stacks(const char *command, const char *storage, const char *name, pid_t *pid) {
    char *argv[] = {(char *)command,
                    (char *)"stacks",
                    (char *)"--storage-path",
                    (char *)storage,
                    (char *)"--",
                    (char *)name,
                    NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, 0, 1);
    (void)posix_spawn_file_actions_adddup2(&actions, 0, 2);
    int code = posix_spawn(pid, command, &actions, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return -code;
}

int action_stacks(const char *run_path, struct buffer *out, ty_error *err) {
    const char *command = module_command(err), *slash = strrchr(run_path, '/');
    CLEANUP_FREE char *storage = strndup(run_path, (size_t)(slash - run_path));
    pid_t pid;
    int status = 0;
    if (command == NULL) return err->code;
    if (storage == NULL) return ty_fail_memory(err);
    int result = spawn_stacks(command, storage, slash + 1, &pid);
    if (result < 0) return ty_fail(err, result, "cannot start %s: %s", command, strerror(-result));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return ty_fail(err, TY_EUSAGE, "no worker of this run runs on this machine now");
    buffer_text(out, "{}");
    return 0;
}
