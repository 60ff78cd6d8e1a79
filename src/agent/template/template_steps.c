/* What is done to the two processes of a template: the zygote is executed, and asked for the run's; each is
 * ended; and how one ended by itself is said, with the last line that it wrote as the reason. When each of them
 * is done is the table's (template_table.c). */
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { LINE_TOLD = 400 };

/* Where the process's news begin there is `log_offset`. */
static int open_output(struct template_process *process) {
    const struct template *template = process->template;
    bool logs = template->log_path[0] != '\0';
    struct errand *errand = !logs
                                ? NULL
                                : logs_do(template->logs, (struct errand){.act = errand_append,
                                                                          .what = "opening",
                                                                          .path = (char *)template->log_path});
    if (errand == NULL || errand->fd < 0) return open("/dev/null", O_WRONLY | O_CLOEXEC);
    process->log_offset = errand->size;
    return TAKE_FD(errand->fd);
}

int template_start_zygote(struct template *template, ty_error *err) {
    struct template_process *zygote = &template->zygote;
    CLEANUP_FD int theirs = -1;
    CLEANUP_FD int output = open_output(zygote);
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
    CLEANUP_FD int output = open_output(run);
    CLEANUP_FD int payload = -1;
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

struct errand *template_read_log(const struct template *template, int64_t from) {
    if (template->log_path[0] == '\0') return NULL;
    return logs_do(template->logs, (struct errand){.act = errand_read,
                                                   .what = "reading",
                                                   .path = (char *)template->log_path,
                                                   .from = from});
}

/* ": LINE", of the last line that it wrote; nothing when it wrote none. */
static void append_last_line(const struct template_process *process, struct buffer *out) {
    const struct errand *log = template_read_log(process->template, process->log_offset);
    size_t size = log != NULL && !log->text.failed ? log->text.size : 0;
    const char *text = size > 0 ? log->text.data : "";
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
        size--;
    if (size == 0) return;
    const char *newline = memrchr(text, '\n', size), *line = newline != NULL ? newline + 1 : text;
    size -= (size_t)(line - text);
    buffer_printf(out, ": %.*s", size < LINE_TOLD ? (int)size : LINE_TOLD, line);
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
