/* The local engine: agents are processes of this machine, one for each node of the plan. A cluster file's nodes
 * are logical: their agents all run here. An agent that rests after an earlier run of this process is taken
 * before a new one is started. No options. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/module.h"
#include "base/program.h"
#include "engine/engine.h"
#include "engine/local.h"
#include "wire/channel.h"

static int start_process(const char *command, struct engine_handle *handle, ty_error *err) {
    static const char *const argv[] = {"trainyard", "agent", "--channel-fd", "3", NULL};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return ty_fail(err, -errno, "cannot make a socket pair: %s", strerror(errno));
    CLEANUP_FD int ours = pair[0];
    CLEANUP_FD int theirs = pair[1];
    pid_t pid = 0;
    if (theirs <= AGENT_CHANNEL_FD) { /* dup2 onto itself would leave close-on-exec set */
        int moved = fcntl(theirs, F_DUPFD_CLOEXEC, AGENT_CHANNEL_FD + 1);
        if (moved < 0) return ty_fail(err, -errno, "cannot start %s: %s", command, strerror(errno));
        (void)close(theirs);
        theirs = moved;
    }
    const int fds[] = {PROGRAM_NOTHING, PROGRAM_OURS, PROGRAM_OURS, theirs};
    const struct program_start start = {.path = command, .argv = argv, .fds = fds, .n_fds = ARRAY_SIZE(fds)};
    int result = program_start(&start, &pid);
    if (result < 0) return ty_fail(err, result, "cannot start %s: %s", command, strerror(-result));
    handle->pid = pid;
    handle->pidfd = kernel_hold(pid);
    handle->channel_fd = TAKE_FD(ours);
    descriptors_withhold(handle->pidfd);
    descriptors_withhold(handle->channel_fd);
    return 0;
}

static int start_agent(const struct engine_agent *agent, int lease_fd, struct engine_handle *handle,
                       ty_error *err) {
    Wire__Start start = *agent->start;
    const char *command = module_command(err);
    if (command == NULL) return ty_wrap(err, "node %s", start.node_name);
    const bool pooled = !agent->copied && !agent->once;
    const uint64_t inheritance = pooled ? pool_inheritance() : 0;
    start.has_lease = lease_fd >= 0;
    struct engine_handle made = {.channel = NULL};
    if (agent->copied && !copy_take(&made)) /* a copy serves this run only: it is of this moment */
        return ty_fail(err, TY_ESTART, "node %s: there is no copy of this process to fork workers from",
                       start.node_name);
    while (pooled && pool_take(command, inheritance, &made)) {
        if (start_send(made.channel_fd, &start, lease_fd, NULL) == 0) {
            *handle = made;
            return 0;
        }
        pool_drop(&made);
    }
    int result = agent->copied ? 0 : start_process(command, &made, err);
    if (result == 0) {
        result = start_send(made.channel_fd, &start, lease_fd, err);
        if (result < 0) pool_drop(&made);
    }
    if (result < 0) return ty_wrap(err, "node %s", start.node_name);
    made.inheritance = inheritance;
    *handle = made;
    return 0;
}

const struct engine engine_local = {
    .name = "local", .start_agent = start_agent, .rest = pool_put, .close = pool_close};
