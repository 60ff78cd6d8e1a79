/* The local engine: agents are processes of this machine, one for each node of the plan. A cluster file's nodes
 * are logical: their agents all run here. No options. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/module.h"
#include "engine/engine.h"
#include "engine/local.h"

enum { AGENT_CHANNEL_FD = 3, AGENT_LEASE_FD = 4 };

/* Actions of the child: the descriptors at their places, all else is close-on-exec. */
static int place_descriptors(posix_spawn_file_actions_t *actions, int channel, int lease) {
    int result = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (result == 0) result = posix_spawn_file_actions_adddup2(actions, channel, AGENT_CHANNEL_FD);
    if (result == 0 && lease >= 0) result = posix_spawn_file_actions_adddup2(actions, lease, AGENT_LEASE_FD);
    return result;
}

/* The controller's signal handling is not the agent's. */
static int reset_signals(posix_spawnattr_t *attributes) {
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int result = posix_spawnattr_setsigmask(attributes, &none);
    if (result == 0) result = posix_spawnattr_setsigdefault(attributes, &all);
    if (result == 0)
        result = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    return result;
}

static int spawn(const char *command, char *const *argv, int channel, int lease, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int result = posix_spawn_file_actions_init(&actions);
    if (result != 0) return result;
    result = posix_spawnattr_init(&attributes);
    if (result == 0) {
        result = place_descriptors(&actions, channel, lease);
        if (result == 0) result = reset_signals(&attributes);
        if (result == 0) result = posix_spawn(pid, command, &actions, &attributes, argv, environ);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return result;
}

/* dup2 onto itself would leave close-on-exec set, and one descriptor could lie where another is to go: both are
 * kept above. */
static int move_up(int *fd) {
    if (*fd < 0 || *fd > AGENT_LEASE_FD) return 0;
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, AGENT_LEASE_FD + 1);
    if (moved < 0) return -errno;
    (void)close(*fd);
    *fd = moved;
    return 0;
}

static int start_agent(const struct engine_agent *agent, int lease_fd, const char *log_path,
                       struct engine_handle *handle, ty_error *err) {
    const char *command = module_command(err);
    if (command == NULL) return ty_wrap(err, "node %s", agent->node_name);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return ty_fail(err, TY_ESTART, "node %s: cannot make a socket pair: %s", agent->node_name,
                       strerror(errno));
    CLEANUP_FD int ours = pair[0];
    CLEANUP_FD int theirs = pair[1];
    CLEANUP_FD int lease = lease_fd < 0 ? -1 : fcntl(lease_fd, F_DUPFD_CLOEXEC, AGENT_LEASE_FD + 1);
    char node[16];
    (void)snprintf(node, sizeof node, "%u", agent->node_rank);
    char *argv[] = {"trainyard",
                    "agent",
                    "--channel-fd",
                    "3",
                    "--node",
                    node,
                    "--name",
                    (char *)agent->node_name,
                    "--log",
                    (char *)log_path,
                    lease < 0 ? NULL : "--lease-fd",
                    "4",
                    NULL};
    pid_t pid = 0;
    int result = -move_up(&theirs);
    if (result == 0) result = spawn(command, argv, theirs, lease, &pid);
    if (result != 0)
        return ty_fail(err, TY_ESTART, "node %s: cannot start %s: %s", agent->node_name, command,
                       strerror(result));
    handle->pid = pid;
    handle->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    handle->channel_fd = TAKE_FD(ours);
    return 0;
}

const struct engine engine_local = {.name = "local", .start_agent = start_agent};
