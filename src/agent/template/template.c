/* The agent's face of a template: a run begins and ends, workers are asked for, children are reaped. What comes
 * from the two processes becomes an event here; what an event does is in template_table.c. The protocol with
 * the processes is in template.h. */
#include "agent/template/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

/* -- events */

/* "ready", "pid N", "unsafe WHY" or "error WHY"; the events of each process come in this order. */
static void on_line(struct control *control, const char *line) {
    const struct template_process *process = (struct template_process *)control;
    struct template *template = process->template;
    enum template_event_kind ready = process == &template->zygote ? ON_ZYGOTE_READY : ON_RUN_READY;
    struct template_event event = {.kind = ready + (ON_ZYGOTE_REFUSAL - ON_ZYGOTE_READY),
                                   .text = "it answered what cannot be understood"};
    const char *number;
    int64_t pid;
    if (str_equal(line, "ready")) {
        event.kind = ready;
    } else if (str_prefix(line, "pid ", &number) && str_to_int64(number, 1, INT32_MAX, &pid)) {
        event.kind = ready + (ON_ZYGOTE_PID - ON_ZYGOTE_READY);
        event.pid = (pid_t)pid;
    } else if (!str_prefix(line, "unsafe ", &event.text)) {
        (void)str_prefix(line, "error ", &event.text);
    }
    template_take(template, &event);
}

void template_lose(struct template_process *process, int status) {
    struct template *template = process->template;
    CLEANUP(buffer_done) struct buffer text = {0};
    int reaped = control_close(&process->control);
    template_describe_end(process, reaped != -1 ? reaped : status, &text);
    struct template_event event = {.kind = process == &template->zygote ? ON_ZYGOTE_END : ON_RUN_END,
                                   .text = text.failed ? "the template ended" : text.data};
    log_info("agent", "%s", event.text);
    template_take(template, &event);
}

static void on_closed(struct control *control) {
    template_lose((struct template_process *)control, -1);
}

static void on_limit(void *context) {
    template_take(context, &(struct template_event){.kind = ON_LIMIT});
}

/* -- the agent's face */

struct template *template_create(void) {
    struct template *template = calloc(1, sizeof *template);
    if (template == NULL) return NULL;
    template->last = &template->first;
    template->log_path = "";
    template->zygote = (struct template_process){.control = {.fd = -1, .line = on_line, .ended = on_closed},
                                                 .template = template,
                                                 .name = "the template"};
    template->run = (struct template_process){.control = {.fd = -1, .line = on_line, .ended = on_closed},
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
    template->run.name = "the copy of the driver";
    template->run.control.fd = control_fd;
    template->run.control.pid = pid;
    template->state = TEMPLATE_LOADING;
    template->given = true;
}

/* A zygote that rested, or the copy of the driver, is listened to on the loop of this run; what does not live
 * any more, or cannot be heard, is ended, and the run begins without. */
void template_enter(struct template *template, struct loop *loop, const struct template_log *log,
                    void (*changed)(void *context), void *context) {
    struct template_process *zygote = &template->zygote, *run = &template->run;
    siginfo_t info = {0};
    template->loop = loop;
    template->logs = log->logs;
    template->log_path = log->path;
    template->limit = (struct loop_timer){.callback = on_limit, .context = template};
    template->tell = (struct loop_timer){.callback = changed, .context = context};
    /* It may have ended while it rested. A look that reaps nothing leaves its end to whoever reaps children. */
    bool lives = zygote->control.pid > 0 &&
                 waitid(P_PID, (id_t)zygote->control.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == 0;
    bool heard = template_process_exists(run) ? control_watch(&run->control, loop, NULL) == 0
                                              : lives && control_watch(&zygote->control, loop, NULL) == 0;
    const struct errand *before = heard ? template_read_log(template, INT64_MAX) : NULL;
    zygote->log_offset = run->log_offset = before != NULL ? before->size : 0;
    if (heard) return;
    template_end_process(zygote);
    template_end_process(run);
    template->state = TEMPLATE_NONE;
}

bool template_leave(struct template *template, bool keep) {
    struct template_process *zygote = &template->zygote;
    bool had_run = template_process_exists(&template->run), had_zygote = template_process_exists(zygote);
    template_abandon(template, "the run is over");
    if (!keep) template_end_process(zygote);
    control_rest(&zygote->control);
    if (template->loop != NULL) {
        loop_timer_stop(template->loop, &template->limit);
        loop_timer_stop(template->loop, &template->tell);
    }
    template->loop = NULL;
    template->n_reaped = 0;
    template->launch = NULL;
    template->log_path = "";
    if (!template_process_exists(zygote))
        template->state = TEMPLATE_NONE;
    else if (template->state != TEMPLATE_IMPORTING)
        template->state = TEMPLATE_RESTED;
    return had_run || (had_zygote && !template_process_exists(zygote));
}

void template_prepare(struct template *template, const struct node_launch *launch) {
    template->launch = launch;
    template_take(template, &(struct template_event){.kind = ON_LAUNCH});
}

void template_forget(struct template *template) {
    template->launch = NULL;
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
    if (template->state != TEMPLATE_READY)
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
    template_arm_limit(template, false);
    return 0;
}

unsigned template_pending(const struct template *template) {
    return template->pending;
}

void template_abandon(struct template *template, const char *why) {
    template_take(template, &(struct template_event){.kind = ON_GIVE_UP, .text = why});
}

bool template_lives(const struct template *template) {
    return template->zygote.control.pid > 0 || template->run.control.pid > 0;
}

bool template_owns(const struct template *template, pid_t pid) {
    return pid > 0 && (pid == template->zygote.control.pid || pid == template->run.control.pid);
}

/* The end of one of the two may be reaped before its socket's end is seen, or behind it: whichever is first
 * makes the event. */
bool template_reaped(struct template *template, pid_t pid, int wait_status, const struct rusage *used) {
    if (template_owns(template, pid)) {
        struct template_process *process =
            pid == template->run.control.pid ? &template->run : &template->zygote;
        process->control.pid = 0;        /* it is no more ours to kill */
        control_take(&process->control); /* what it wrote before its end counts */
        if (template_process_exists(process)) template_lose(process, wait_status);
        return true;
    }
    /* The number of a worker, or of the run's template, may be on its way when its end is there already. */
    bool owes_pid = template->state == TEMPLATE_WAKING || template->state == TEMPLATE_FORKING;
    if (template->pending > 0 || owes_pid)
        template->reaped[template->n_reaped++ % TEMPLATE_REAPED_MAX] =
            (struct template_reaped){pid, wait_status, *used};
    return false;
}

bool template_take_reaped(struct template *template, pid_t pid, int *wait_status, struct rusage *used) {
    unsigned n = template->n_reaped < TEMPLATE_REAPED_MAX ? template->n_reaped : TEMPLATE_REAPED_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct template_reaped *reaped = &template->reaped[i];
        if (reaped->pid != pid) continue;
        *wait_status = reaped->status;
        *used = reaped->used;
        reaped->pid = 0;
        return true;
    }
    return false;
}
