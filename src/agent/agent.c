/* The frame of an agent: its process is set up, then runs are served one after another (node_run.c). A local
 * agent waits for them on its channel (agent_main); one of another machine is handed each of them
 * (agent_serve). */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/node_run.h"
#include "agent/spawn.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/log.h"
#include "wire/channel.h"

/* The program that the agent works for may have any file, pipe or socket open, and whoever reads from such a
 * pipe waits until the last process that holds it open has closed it: an agent, which may outlive the run,
 * holds none of them, the standard ones included. */
static bool keep_own_descriptors(int channel_fd, bool copied) {
    file_open_standard();
    if (channel_fd != AGENT_CHANNEL_FD && dup2(channel_fd, AGENT_CHANNEL_FD) < 0) return false;
    kernel_close_from(copied ? AGENT_COPY_FD + 1 : AGENT_CHANNEL_FD + 1, false);
    kernel_close_from(AGENT_CHANNEL_FD, true);
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    return null >= 0 && dup2(null, STDOUT_FILENO) >= 0 && dup2(null, STDERR_FILENO) >= 0;
}

/* Whatever the parent left in its signals, session and limits must not reach the workers, which inherit them
 * from the agent. `nofile` receives the limit that workers get. */
static void set_up_process(struct rlimit *nofile) {
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i <= SIGRTMAX; i++)
        if (i != SIGKILL && i != SIGSTOP) (void)signal(i, SIG_DFL);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a log at the limit of file sizes is a failed write */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setsid(); /* fails for the leader of a group, which is as good */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    spawn_give_way();
    descriptors_raise_limit(nofile);
}

/* While no run has a thread for its logs: before it is open, and behind its end. */
static void write_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)level;
    const char *path = context;
    CLEANUP_FD int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0) (void)dprintf(fd, "%s: %s\n", subsystem, text);
}

static enum node_run_result serve(struct service *service) {
    if (service->start->log_path[0] != '\0') log_set_sink(write_log, (void *)service->start->log_path);
    enum node_run_result served = node_run_serve(service);
    log_set_sink(NULL, NULL);
    return served;
}

/* Waits for the Start of the next run, and serves the run. DONE: there is no next one. */
static enum node_run_result serve_next(struct service *service) {
    struct pollfd waited[] = {{.fd = service->transport->fd, .events = POLLIN},
                              {.fd = service->parent_fd, .events = POLLIN}};
    Wire__Message *message = NULL;
    ty_error err = {0};
    while (poll(waited, ARRAY_SIZE(waited), -1) < 0)
        if (errno != EINTR) return NODE_RUN_DONE;
    if (waited[1].revents != 0) return NODE_RUN_DONE; /* the parent has ended */
    int result = start_receive(service->transport->fd, &message, &service->lease_fd, &err);
    if (result <= 0) return result == 0 ? NODE_RUN_DONE : NODE_RUN_FAILED;
    service->start = message->start;
    enum node_run_result served = serve(service);
    wire__message__free_unpacked(message, NULL);
    return served;
}

int agent_main(int channel_fd, pid_t copy) {
    struct rlimit nofile = {0};
    if (!keep_own_descriptors(channel_fd, copy > 0)) return EXIT_FAILURE;
    set_up_process(&nofile);
    /* A pidfd of the process that made the channel, when that is the parent: the channel alone does not tell
     * its end while a child that it forked holds it open. */
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    bool of_parent =
        getsockopt(AGENT_CHANNEL_FD, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == getppid();
    CLEANUP_FD int parent_fd = of_parent ? kernel_hold(peer.pid) : -1;
    struct template *template = template_create();
    if (template == NULL) return EXIT_FAILURE;
    if (copy > 0) template_give(template, AGENT_COPY_FD, copy);
    struct transport transport = TRANSPORT_PLAIN(AGENT_CHANNEL_FD);
    struct service service = {.transport = &transport,
                              .parent_fd = parent_fd,
                              .lease_fd = -1,
                              .nofile = &nofile,
                              .template = template,
                              .status = -1};
    enum node_run_result served;
    do
        served = serve_next(&service);
    while (served == NODE_RUN_KEPT);
    buffer_done(&transport.unread);
    template_destroy(template);
    return served == NODE_RUN_DONE ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* -- over the network */

bool agent_process_open(struct agent_process *process) {
    kernel_close_from(STDERR_FILENO + 1, true);
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) return false;
    set_up_process(&process->nofile);
    process->template = template_create();
    return process->template != NULL;
}

void agent_process_close(struct agent_process *process) {
    template_destroy(TAKE(process->template));
}

enum agent_end agent_serve(struct agent_process *process, struct agent_service *asked) {
    struct service service = {.transport = asked->transport,
                              .leased = asked,
                              .parent_fd = asked->parent_fd,
                              .lease_fd = asked->lease_fd,
                              .refusal = asked->refusal,
                              .warning = asked->warning,
                              .nofile = &process->nofile,
                              .start = asked->start,
                              .template = process->template,
                              .status = -1};
    enum node_run_result served = serve(&service);
    asked->status = service.status;
    asked->lost = service.lost;
    return served == NODE_RUN_KEPT ? AGENT_KEPT : served == NODE_RUN_DONE ? AGENT_DONE : AGENT_FAILED;
}
