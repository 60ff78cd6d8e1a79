/* The keeper of an agent that joined: starts it, hands signals on, ends it when it is stopped for too long, and
 * leaves when nothing is left of it. What the agent does meanwhile is not known here, but for a few words in
 * memory that both have (struct join_life). */
#include "engine/join_node.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/process.h"
#include "base/str.h"
#include "wire/channel.h"

/* A stopped agent's lease has run out then, and the controller has not given the node up yet. */
#define STOPPED_LIMIT (CHANNEL_LEASE + NS_PER_S)
#define SWEEP_LIMIT (5 * NS_PER_S)
/* For the controller to be found again: where only the agent died it answers, or is gone too; else the network
 * is mended, or the run resumed. */
#define AGAIN_SOON (2 * NS_PER_S)
#define AGAIN_LATER (60 * NS_PER_S)

static const int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU};

static sigset_t waited_signals(void) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(handed_on); i++)
        (void)sigaddset(&set, handed_on[i]);
    return set;
}

/* Of a dead agent's: what it had started is ours now, as this process is a sub-reaper. Killed are children
 * alone: what they leave comes to us in its turn, and is seen by the next look. True when nothing is left. */
static bool kill_children(void) {
    nanoseconds end = clock_monotonic() + SWEEP_LIMIT;
    for (;;) {
        pid_t reaped = waitpid(-1, NULL, WNOHANG);
        if (reaped < 0) return errno == ECHILD;
        if (reaped > 0) continue;
        if (clock_monotonic() > end) return false;
        DIR *proc = opendir("/proc");
        if (proc == NULL) return false;
        for (pid_t pid; (pid = process_next(proc)) > 0;) {
            struct process process;
            if (process_read(pid, &process) && process.parent == getpid()) (void)kill(pid, SIGKILL);
        }
        (void)closedir(proc);
        (void)poll(NULL, 0, 2);
    }
}

/* What has become of the agent: true when it has ended. `*stopped_since`: 0 unless it is stopped. */
static bool look(pid_t agent, int *status, nanoseconds *stopped_since) {
    pid_t pid;
    int found;
    while ((pid = waitpid(-1, &found, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid != agent) continue;
        if (WIFSTOPPED(found)) {
            *stopped_since = clock_boot();
        } else if (WIFCONTINUED(found)) {
            *stopped_since = 0;
        } else {
            *status = found;
            return true;
        }
    }
    return false;
}

/* Until its end: its wait status. `*input`: it ends with that, which is -1 then; -1: with nothing. One that
 * outlives its input hears of the controller's end by itself. */
static int keep(const struct join_node *node, pid_t agent, int *input, const struct join_life *life) {
    sigset_t set = waited_signals();
    CLEANUP_FD int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct pollfd waited[] = {{.fd = signals, .events = POLLIN}, {.fd = *input, .events = POLLIN}};
    nanoseconds stopped_since = 0;
    int status = 0;
    while (!look(agent, &status, &stopped_since)) {
        (void)poll(waited, ARRAY_SIZE(waited), stopped_since > 0 || signals < 0 ? 1000 : -1);
        struct signalfd_siginfo signal;
        while (read(signals, &signal, sizeof signal) == (ssize_t)sizeof signal)
            if (signal.ssi_signo != SIGCHLD) (void)kill(agent, (int)signal.ssi_signo);
        char bytes[256];
        ssize_t size = waited[1].revents != 0 ? read(*input, bytes, sizeof bytes) : 1;
        if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
            *input = waited[1].fd = -1;
            if (!node->outlives_input || !life->served) (void)kill(agent, SIGKILL);
        }
        if (stopped_since > 0 && clock_boot() - stopped_since > STOPPED_LIMIT) (void)kill(agent, SIGKILL);
    }
    return status;
}

/* One agent, until its end: its wait status; -1 when it cannot be started. `*leases` is then what it claims,
 * until that is closed (join_node_run). */
static int serve_once(const struct join_node *node, bool again, int *input, int *leases, struct join_life *life,
                      const sigset_t *saved) {
    int pair[2];
    CLEANUP_FD int self = kernel_hold(getpid());
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return -1;
    *leases = pair[0];
    CLEANUP_FD int to_keeper = pair[1];
    pid_t agent = fork();
    if (agent < 0) return -1;
    if (agent == 0) {
        (void)sigprocmask(SIG_SETMASK, saved, NULL);
        (void)close(*leases);
        _exit(join_node_run(node, again, self, to_keeper, life));
    }
    return keep(node, agent, input, life);
}

/* An agent that died in a run, or lost its controller, is followed by another one: the run may want the node
 * again, and one that is resumed does. */
static int serve(const struct join_node *node, struct join_life *life, const sigset_t *saved) {
    struct join_node kept = *node;
    bool again = false, swept = false;
    int input = node->ends_with_input ? STDIN_FILENO : -1;
    for (;;) {
        char name[32];
        CLEANUP_FD int leases = -1; /* closed when nothing is left that could use a device */
        *life = (struct join_life){.node_rank = kept.node_rank, .swept = swept};
        int status = serve_once(&kept, again, &input, &leases, life, saved);
        if (status < 0) break;
        bool died = WIFSIGNALED(status);
        if (!died && !life->again) return WEXITSTATUS(status);
        kept.node_rank = life->node_rank;
        if (died) join_node_tell(&kept, "its agent was killed by %s", str_signal(WTERMSIG(status), name));
        if (!kill_children()) {
            join_node_tell(&kept, "processes of the run do not end, stuck in the kernel");
            break;
        }
        bool let_go = node->ends_with_input && input < 0 && !(node->outlives_input && life->served);
        if (!(life->served || life->again) || let_go) break;
        again = true;
        swept |= life->served;
        kept.limit = died ? AGAIN_SOON : AGAIN_LATER;
        if (!died && node->awaits_another)
            join_node_tell(
                &kept, "the controller is lost, all that ran here has ended; waiting 60 s for it to come back");
    }
    return ty_error_exit_status(TY_ENODE);
}

int join_node_serve(const struct join_node *node) {
    sigset_t set = waited_signals(), saved;
    struct join_life *life =
        mmap(NULL, sizeof *life, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (life == MAP_FAILED) return ty_error_exit_status(TY_ESTART);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGPIPE, SIG_IGN); /* whoever reads its words may be gone */
    (void)sigprocmask(SIG_BLOCK, &set, &saved);
    int status = serve(node, life, &saved);
    (void)munmap(life, sizeof *life);
    return status;
}
