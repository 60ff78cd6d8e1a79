/* Two forks and one exec. The agent's process gets three things of this one: its end of the channel, its end of
 * the copy's socket, and the pid of the copy. Every other descriptor of this process is closed in it, so that
 * files of the user are not held open by an agent; the copy keeps them, for that is what it is asked for. */
#include "engine/local.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/module.h"

enum { FIRST_FREE = AGENT_COPY_FD + 1 };

static struct {
    struct engine_handle agent;
    pid_t owner; /* 0: none waits */
} waiting;

/* In the agent's process. Only the three descriptors that it is to have are left, whatever the program had
 * open. */
static _Noreturn void execute_agent(const char *command, int channel, int control, pid_t copy) {
    static char name[] = "trainyard", word[] = "agent", channel_option[] = "--channel-fd",
                channel_number[] = "3", copy_option[] = "--copy";
    char number[16];
    char *argv[] = {name, word, channel_option, channel_number, copy_option, number, NULL};
    (void)snprintf(number, sizeof number, "%d", copy);
    channel = fcntl(channel, F_DUPFD, FIRST_FREE);
    control = fcntl(control, F_DUPFD, FIRST_FREE);
    int null = open("/dev/null", O_RDONLY);
    if (dup2(null, STDIN_FILENO) == STDIN_FILENO && dup2(channel, AGENT_CHANNEL_FD) == AGENT_CHANNEL_FD &&
        dup2(control, AGENT_COPY_FD) == AGENT_COPY_FD) {
        kernel_close_from(FIRST_FREE, false);
        (void)execv(command, argv);
    }
    _exit(EXIT_FAILURE);
}

/* In the process that becomes the agent, whose session is the copy's, too. Returns in the copy only. */
static void split(const char *command, int channel, int control) {
    (void)setsid();
    pid_t agent = getpid();
    pid_t copy = fork();
    if (copy > 0) execute_agent(command, channel, control, copy);
    if (copy < 0) _exit(EXIT_FAILURE);
    /* In the copy, whose parent is to be the agent's process. */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) _exit(EXIT_FAILURE);
    waiting.owner = 0;
}

static int make_pair(int *ours, int *theirs, ty_error *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return ty_fail(err, -errno, "cannot make a socket pair: %s", strerror(errno));
    *ours = pair[0];
    *theirs = pair[1];
    return 0;
}

/* The agent is forked first and forks the copy, since only a child can be reaped: the copy must be the
 * agent's. */
int copy_make(int *control_fd, ty_error *err) {
    CLEANUP_FD int channel = -1;
    CLEANUP_FD int agents_channel = -1;
    CLEANUP_FD int control = -1;
    CLEANUP_FD int agents_control = -1;
    copy_drop();
    const char *command = module_command(err);
    if (command == NULL) return ty_wrap(err, "the agent");
    int result = make_pair(&channel, &agents_channel, err);
    if (result == 0) result = make_pair(&control, &agents_control, err);
    if (result < 0) return result;
    (void)fflush(NULL); /* or the copy would write it again */
    pid_t pid = fork();
    if (pid < 0) return ty_fail(err, -errno, "cannot fork this process: %s", strerror(errno));
    if (pid == 0) {
        split(command, agents_channel, agents_control);
        *control_fd = TAKE_FD(control);
        return 0;
    }
    waiting.agent.pid = pid;
    waiting.agent.pidfd = kernel_hold(pid);
    waiting.agent.channel_fd = TAKE_FD(channel);
    descriptors_withhold(waiting.agent.pidfd);
    descriptors_withhold(waiting.agent.channel_fd);
    waiting.owner = getpid();
    return 1;
}

bool copy_take(struct engine_handle *handle) {
    if (waiting.owner != getpid()) return false;
    *handle = waiting.agent;
    waiting.owner = 0;
    return true;
}

void copy_drop(void) {
    struct engine_handle agent;
    if (copy_take(&agent)) pool_drop(&agent);
}
