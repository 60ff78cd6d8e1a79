/* Requests to a process of the template, and its answers: a byte with descriptors there, lines of text back
 * (template.h has the protocol). What lines mean is the template's state to say (template_table.c); here they
 * are only made whole, and whoever writes on and on is not listened to for longer than a turn. */
#include "agent/template/template_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "base/kernel.h"

/* Hands on a copy of the line, which its newline or the room for it ends: the callee may close the control. */
static void hand_on_line(struct control *control, size_t size, size_t taken) {
    char line[sizeof control->in];
    bool rest = control->cut; /* of one that was handed on */
    memcpy(line, control->in, size);
    line[size] = '\0';
    control->size -= taken;
    memmove(control->in, control->in + taken, control->size);
    control->cut = taken == size;
    if (!rest) control->line(control, line);
}

/* Reads once and hands on the lines that are whole: how many bytes came, -1 at the end. */
static ssize_t take_some(struct control *control) {
    ssize_t n = recv(control->fd, control->in + control->size, CONTROL_LINE_MAX - control->size, MSG_DONTWAIT);
    bool ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n > 0) control->size += (size_t)n;
    for (char *end; (end = memchr(control->in, '\n', control->size)) != NULL;)
        hand_on_line(control, (size_t)(end - control->in), (size_t)(end + 1 - control->in));
    if (control->size == CONTROL_LINE_MAX) hand_on_line(control, CONTROL_LINE_MAX, CONTROL_LINE_MAX);
    return ended ? -1 : n > 0 ? n : 0;
}

static void on_ready(void *context, unsigned events) {
    (void)events;
    struct control *control = context;
    if (take_some(control) < 0 && control->fd >= 0) control->ended(control);
}

/* What has come until now: whoever writes on must not hold us. */
void control_take(struct control *control) {
    int left = 0;
    if (control->fd >= 0 && ioctl(control->fd, FIONREAD, &left) < 0) left = 0;
    for (ssize_t n = 1; n > 0 && left > 0 && control->fd >= 0; left -= (int)n)
        n = take_some(control);
}

int control_open(struct control *control, int *theirs, ty_error *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return ty_fail(err, -errno, "cannot make a socket pair: %s", strerror(errno));
    control->fd = pair[0];
    control->pid = 0;
    *theirs = pair[1];
    return 0;
}

int control_watch(struct control *control, struct loop *loop, ty_error *err) {
    control->loop = loop;
    control->watch = (struct loop_watch){.callback = on_ready, .context = control};
    int code = loop_watch_start(loop, &control->watch, control->fd, LOOP_READABLE);
    return code < 0 ? ty_fail(err, code, "cannot watch a template: %s", strerror(-code)) : 0;
}

void control_rest(struct control *control) {
    if (control->fd >= 0 && control->loop != NULL) loop_watch_stop(control->loop, &control->watch);
    control->loop = NULL;
}

int control_send(struct control *control, char kind, const struct buffer *words, const int *fds, size_t n,
                 ty_error *err) {
    int all[CONTROL_FDS];
    if (words->failed) return ty_fail_memory(err);
    CLEANUP_FD int file = kernel_memory_file("trainyard-words");
    int code = file < 0 ? -errno : file_write_all(file, words->data, words->size);
    all[0] = file;
    memcpy(all + 1, fds, n * sizeof *fds);
    if (code == 0) code = (int)descriptors_send(control->fd, &kind, 1, all, n + 1, MSG_DONTWAIT);
    return code > 0 ? 0 : ty_fail(err, code, "cannot ask the template for a worker: %s", strerror(-code));
}

int control_close(struct control *control) {
    int status = -1;
    if (control->fd < 0) return -1;
    control_rest(control);
    (void)close(TAKE_FD(control->fd));
    if (control->pid > 0) {
        (void)kill(-control->pid, SIGKILL);
        (void)kill(control->pid, SIGKILL);
        CLEANUP_FD int held = kernel_hold(control->pid);
        (void)kernel_reap(held, control->pid, 0, &status);
    }
    control->pid = 0;
    control->size = 0;
    control->cut = false;
    return status;
}
