/* How zygote and run's template end: by themselves, or because they do not answer, with the last line that they wrote as the reason. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/template/template_parts.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

enum { LOG_TAIL = 2048 };

off_t template_log_size(const struct template *template) {
    struct stat status;
    return stat(template->log_path, &status) == 0 ? status.st_size : 0;
}

/* The last line that it wrote, ": LINE"; "" when it wrote none. */
static void append_last_line(const struct template *template, const struct template_process *part,
                             struct buffer *out) {
    char text[LOG_TAIL + 1];
    CLEANUP_FD int fd = template->log_path[0] != '\0' ? open(template->log_path, O_RDONLY | O_CLOEXEC) : -1;
    off_t size = template_log_size(template);
    off_t from = size - LOG_TAIL > part->log_offset ? size - LOG_TAIL : part->log_offset;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, LOG_TAIL, from);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    if (n <= 0) return;
    text[n] = '\0';
    const char *line = strrchr(text, '\n');
    buffer_printf(out, ": %.400s", line != NULL ? line + 1 : text);
}

static void describe_end(const struct template *template, const struct template_process *part, int status,
                         struct buffer *out) {
    char name[32];
    buffer_printf(out, "%s ", part->name);
    if (status >= 0 && WIFSIGNALED(status))
        buffer_printf(out, "was killed by %s", str_signal(WTERMSIG(status), name));
    else if (status >= 0)
        buffer_printf(out, "ended with code %d", WEXITSTATUS(status));
    else
        buffer_text(out, "ended");
    append_last_line(template, part, out);
}

void part_end(struct template_process *part, int *status) {
    int ended = control_close(&part->control);
    if (status != NULL && ended != -1) *status = ended;
    part->stage = STAGE_ABSENT;
}

void part_lose(struct template_process *part, int status) {
    struct template *template = part->template;
    bool waited = template->state == TEMPLATE_WAITING && template->launch != NULL;
    if (part == &template->zygote) template->asked = false;
    part_end(part, &status);
    CLEANUP(buffer_done) struct buffer why = {0};
    describe_end(template, part, status, &why);
    const char *text = why.failed ? "the template ended" : why.data;
    log_info("agent", "%s", text);
    if (part == &template->zygote && template->run.stage == STAGE_STARTING && template->run.control.pid == 0)
        part_end(&template->run, NULL); /* its pid was never told */
    if (part == &template->run) template_answer_all(template, text);
    if (waited && part == &template->zygote &&
        template->rested) { /* it died before it was needed: another one may live */
        template_advance(template);
        return;
    }
    bool needed = part == &template->run || template->run.stage == STAGE_ABSENT;
    if (waited && needed)
        template_settle(template, TEMPLATE_FAILED, text);
    else if (part == &template->run)
        template_settle(template, TEMPLATE_NONE, text);
    if (template->loop != NULL) template_restart_limit(template);
}

void part_ended(struct control *control) {
    part_lose((struct template_process *)control, -1);
}

void template_late(void *context) {
    struct template *template = context;
    bool importing = template->zygote.stage == STAGE_STARTING;
    struct template_process *part = importing || template->asked ? &template->zygote : &template->run;
    CLEANUP(buffer_done) struct buffer why = {0}, limit = {0};
    if (template->launch != NULL) duration_format(template_limit(template->launch), &limit);
    buffer_printf(&why, "%s did not answer within %s (TRAINYARD_TEMPLATE_LIMIT)", part->name,
                  limit.size > 0 ? limit.data : "its limit");
    append_last_line(template, part, &why);
    if (part == &template->zygote) template->asked = false;
    part_end(part, NULL);
    if (template->run.control.pid == 0) part_end(&template->run, NULL);
    template_answer_all(template, why.failed ? "the template did not answer" : why.data);
    template_settle(template, TEMPLATE_FAILED, why.failed ? "the template did not answer" : why.data);
}
