/* What is done to the two processes of a template: the zygote is executed, and asked for the run's; each is
 * ended; and how one ended by itself is said, with the last line that it wrote as the reason. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { LOG_TAIL = 2048 };

static int open_output(const struct template *template) {
    int fd = template->log_path[0] != '\0'
                 ? open(template->log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)
                 : -1;
    return fd >= 0 ? fd : open("/dev/null", O_WRONLY | O_CLOEXEC);
}

int template_start_zygote(struct template *template, ty_error *err) {
    struct template_process *zygote = &template->zygote;
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(template);
    zygote->log_offset = template_log_size(template);
    buffer_done(&template->key);
    template_key(template->launch, &template->key);
    int result = template->key.failed ? ty_fail_memory(err) : control_open(&zygote->control, &theirs, err);
    if (result == 0) result = control_watch(&zygote->control, template->loop, err);
    if (result == 0) result = template_execute(template->launch, theirs, output, &zygote->control.pid, err);
    if (result < 0) template_end_process(zygote);
    return result;
}

int template_ask_run(struct template *template, ty_error *err) {
    struct template_process *run = &template->run;
    CLEANUP(buffer_done) struct buffer words = {0};
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(template);
    CLEANUP_FD int payload = -1;
    run->log_offset = template_log_size(template);
    int result = template_run_words(template->launch, &words, err);
    if (result == 0) result = node_launch_open_payload(template->launch, &payload, err);
    if (result == 0) result = control_open(&run->control, &theirs, err);
    const int fds[] = {theirs, output, payload};
    if (result == 0)
        result = control_send(&template->zygote.control, 'R', &words, fds, payload >= 0 ? 3 : 2, err);
    if (result < 0) template_end_process(run);
    return result;
}

void template_end_process(struct template_process *process) {
    (void)control_close(&process->control);
}

off_t template_log_size(const struct template *template) {
    struct stat status;
    return stat(template->log_path, &status) == 0 ? status.st_size : 0;
}

/* ": LINE", of the last line that it wrote; nothing when it wrote none. */
static void append_last_line(const struct template_process *process, struct buffer *out) {
    const char *path = process->template->log_path;
    char text[LOG_TAIL + 1];
    CLEANUP_FD int fd = path[0] != '\0' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    off_t size = template_log_size(process->template);
    off_t from = size - LOG_TAIL > process->log_offset ? size - LOG_TAIL : process->log_offset;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, LOG_TAIL, from);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    if (n <= 0) return;
    text[n] = '\0';
    const char *line = strrchr(text, '\n');
    buffer_printf(out, ": %.400s", line != NULL ? line + 1 : text);
}

void template_describe_end(const struct template_process *process, int status, struct buffer *out) {
    char name[32];
    buffer_printf(out, "%s ", process->name);
    if (status >= 0 && WIFSIGNALED(status))
        buffer_printf(out, "was killed by %s", str_signal(WTERMSIG(status), name));
    else if (status >= 0)
        buffer_printf(out, "ended with code %d", WEXITSTATUS(status));
    else
        buffer_text(out, "ended");
    append_last_line(process, out);
}

void template_describe_delay(const struct template_process *process, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer limit = {0};
    const struct node_launch *launch = process->template->launch;
    if (launch != NULL) duration_format(template_limit(launch), &limit);
    buffer_printf(out, "%s did not answer within %s (TRAINYARD_TEMPLATE_LIMIT)", process->name,
                  limit.size > 0 ? limit.data : "its limit");
    append_last_line(process, out);
}
