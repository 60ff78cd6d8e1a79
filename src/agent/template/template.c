/* The face of a template: given, entered and left by runs, asked for workers, and told what was reaped. */
#include "agent/template/template.h"

#include <stdlib.h>
#include <sys/wait.h>

#include "agent/template/template_parts.h"
#include "base/cleanup.h"

struct template *template_create(void) {
    struct template *template = calloc(1, sizeof *template);
    if (template == NULL) return NULL;
    template->last = &template->first;
    template->log_path = "";
    template->zygote =
        (struct template_process){.control = {.fd = -1, .line = template_zygote_line, .ended = part_ended},
                                  .template = template,
                                  .name = "the template"};
    template->run =
        (struct template_process){.control = {.fd = -1, .line = template_run_line, .ended = part_ended},
                                  .template = template,
                                  .name = "the template of the run"};
    return template;
}

void template_destroy(struct template *template) {
    if (template == NULL) return;
    (void)template_leave(template, false);
    buffer_done(&template->key);
    free(template);
}

void template_give(struct template *template, int control_fd, pid_t pid) {
    struct template_process *run = &template->run;
    run->name = "the copy of the driver";
    run->control.fd = control_fd;
    run->control.pid = pid;
    run->stage = STAGE_STARTING;
    template->given = true;
}

void template_enter(struct template *template, struct loop *loop, const char *log_path,
                    void (*changed)(void *context), void *context) {
    template->loop = loop;
    template->log_path = log_path;
    template->changed = changed;
    template->context = context;
    template->limit = (struct loop_timer){.callback = template_late, .context = template};
    template->tell = (struct loop_timer){.callback = template_tell, .context = template};
    template->state = TEMPLATE_NONE;
    struct template_process *zygote = &template->zygote;
    zygote->log_offset = template_log_size(template);
    siginfo_t info = {0};
    bool lives = zygote->control.pid > 0 &&
                 waitid(P_PID, (id_t)zygote->control.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == 0;
    if (!lives || control_watch(&zygote->control, loop) < 0) part_end(zygote, NULL);
    template->rested = zygote->stage == STAGE_READY;
    struct template_process *run = &template->run;
    run->log_offset = zygote->log_offset;
    if (run->control.fd >= 0 && control_watch(&run->control, loop) < 0) part_end(run, NULL);
}

bool template_leave(struct template *template, bool keep) {
    bool left = template->run.control.fd >= 0;
    template_abandon(template, "the run is over");
    bool unfit =
        template->asked || template->zygote.stage == STAGE_REFUSED; /* what was refused is tried again */
    if (!keep || unfit) {
        left |= template->zygote.control.fd >= 0;
        part_end(&template->zygote, NULL);
    }
    template->asked = false;
    control_rest(&template->zygote.control);
    if (template->loop != NULL) {
        loop_timer_stop(template->loop, &template->limit);
        loop_timer_stop(template->loop, &template->tell);
    }
    template->loop = NULL;
    template->n_reaped = 0;
    template->launch = NULL;
    template->log_path = "";
    template->state = TEMPLATE_NONE;
    return left;
}

enum template_state template_prepare(struct template *template, const struct node_launch *launch) {
    template->launch = launch;
    template->state = TEMPLATE_NONE;
    if (launch->body->n_template_argv == 0 && template->run.stage == STAGE_ABSENT)
        template_settle(template, TEMPLATE_REFUSED,
                        template->given ? "the copy of the driver has ended" : "the launch names no template");
    else
        template_advance(template);
    template_arm_limit(template);
    return template->state;
}

void template_forget(struct template *template) {
    template->launch = NULL;
    template->state = TEMPLATE_NONE;
}

enum template_state template_state(const struct template *template) {
    return template->state;
}

const char *template_reason(const struct template *template) {
    return template->reason;
}

int template_fork(struct template *template, struct template_fork *fork, const struct node_launch *launch,
                  size_t index, const int fds[SPAWN_FDS], ty_error *err) {
    CLEANUP(buffer_done) struct buffer words = {0};
    if (template->run.stage != STAGE_READY)
        return ty_fail(err, TY_ESTART, "%s",
                       template->reason[0] != '\0' ? template->reason : "the template ended");
    int result = template_worker_words(launch, index, &words, err);
    if (result == 0)
        result = control_send(&template->run.control, 'W', &words, fds,
                              fds[SPAWN_FDS - 1] >= 0 ? SPAWN_FDS : SPAWN_FDS - 1, err);
    if (result < 0) return result;
    fork->next = NULL;
    *template->last = fork;
    template->last = &fork->next;
    template->pending++;
    template_arm_limit(template);
    return 0;
}

unsigned template_pending(const struct template *template) {
    return template->pending;
}

void template_abandon(struct template *template, const char *why) {
    part_end(&template->run, NULL);
    template_answer_all(template, why);
    if (template->loop != NULL) loop_timer_stop(template->loop, &template->limit);
}

bool template_lives(const struct template *template) {
    return template->zygote.control.pid > 0 || template->run.control.pid > 0;
}

bool template_owns(const struct template *template, pid_t pid) {
    return pid > 0 && (pid == template->zygote.control.pid || pid == template->run.control.pid);
}

bool template_reaped(struct template *template, pid_t pid, int wait_status, long peak_kib) {
    if (template_owns(template, pid)) {
        struct template_process *part = pid == template->run.control.pid ? &template->run : &template->zygote;
        part->control.pid = 0; /* it is no more ours to kill */
        control_take(&part->control);
        if (part->control.fd >= 0) part_lose(part, wait_status);
        return true;
    }
    if (template->pending > 0 || template->asked)
        template->reaped[template->n_reaped++ % REAPED_MAX] = (struct reaped){pid, wait_status, peak_kib};
    return false;
}

bool template_take_reaped(struct template *template, pid_t pid, int *wait_status, long *peak_kib) {
    unsigned n = template->n_reaped < REAPED_MAX ? template->n_reaped : REAPED_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct reaped *reaped = &template->reaped[i];
        if (reaped->pid != pid) continue;
        *wait_status = reaped->status;
        *peak_kib = reaped->peak_kib;
        reaped->pid = 0;
        return true;
    }
    return false;
}
