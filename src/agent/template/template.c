/* The states of a template and what happens to it, in one table. Orders of the agent, lines and ends of the
 * two processes, and the limit on answers are events; a handler takes the step that is possible
 * (template_steps.c) and moves the state. Nothing else does.
 *
 * The zygote's process is not part of the state once the run's template is there: it may end then without
 * harm, and is looked for when the next run's template is wanted. */
#include "agent/template/template.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

enum template_event_kind {
    ON_LAUNCH,  /* workers of a launch are wanted */
    ON_GIVE_UP, /* the run's template is wanted no more */
    ON_ZYGOTE_READY,
    ON_ZYGOTE_PID,
    ON_ZYGOTE_REFUSAL,
    ON_ZYGOTE_END,
    ON_RUN_READY,
    ON_RUN_PID,
    ON_RUN_REFUSAL,
    ON_RUN_END,
    ON_LIMIT, /* an answer did not come in time */
    TEMPLATE_EVENTS
};

struct template_event {
    enum template_event_kind kind;
    pid_t pid;        /* of an answer "pid" */
    const char *text; /* why: of refusals, ends, and giving up */
};

static void take(struct template *template, const struct template_event *event);

static bool exists(const struct template_process *process) {
    return process->control.fd >= 0;
}

/* A zygote, or the zygote's answer, is waited for. */
static bool awaits_zygote(const struct template *template) {
    return template->state == TEMPLATE_IMPORTING || template->state == TEMPLATE_WAKING ||
           template->state == TEMPLATE_FORKING;
}

/* As long as an answer is waited for, a limit runs; begun anew by each answer and each end. */
static void arm_limit(struct template *template, bool anew) {
    bool waits = awaits_zygote(template) || template->state == TEMPLATE_LOADING || template->pending > 0;
    if (template->loop == NULL) return;
    if (anew || !waits) loop_timer_stop(template->loop, &template->limit);
    if (waits && template->limit.state == NULL && template->launch != NULL)
        (void)loop_timer_start(template->loop, &template->limit, template_limit(template->launch));
}

static void on_tell(void *context) {
    struct template *template = context;
    template->changed(template->context);
}

static void tell_later(struct template *template) {
    if (template->loop != NULL) (void)loop_timer_start(template->loop, &template->tell, 0);
}

static void settle(struct template *template, enum template_state state, const char *reason) {
    (void)snprintf(template->reason, sizeof template->reason, "%.*s", TEMPLATE_REASON_SIZE - 1, reason);
    template->state = state;
    tell_later(template);
}

static void answer_first(struct template *template, pid_t pid, const char *why) {
    struct template_fork *fork = template->first;
    template->first = fork->next;
    if (template->first == NULL) template->last = &template->first;
    template->pending--;
    fork->answered(fork->context, pid, why);
    if (template->pending == 0) template->n_reaped = 0;
}

static void answer_all(struct template *template, const char *why) {
    while (template->first != NULL)
        answer_first(template, 0, why);
}

/* Whether the zygote that was started last is what this launch would start. */
static int fits(const struct template *template, bool *same, ty_error *err) {
    CLEANUP(buffer_done) struct buffer key = {0};
    template_key(template->launch, &key);
    if (key.failed) return ty_fail_memory(err);
    *same = key.size == template->key.size && memcmp(key.data, template->key.data, key.size) == 0;
    return 0;
}

/* A step could not be taken. The next launch may try again, with a new zygote. */
static void hinder(struct template *template, const char *why) {
    template_end_process(&template->run);
    template_end_process(&template->zygote);
    buffer_done(&template->key);
    settle(template, TEMPLATE_REFUSED, why);
}

static int start(struct template *template, ty_error *err) {
    int result = template_start_zygote(template, err);
    if (result == 0) template->state = TEMPLATE_IMPORTING;
    return result;
}

/* Takes the next step towards the run's template: a zygote, or its question. */
static void begin(struct template *template, const struct template_event *event) {
    (void)event;
    ty_error err = {0};
    struct template_process *zygote = &template->zygote;
    enum template_state before = template->state;
    bool same = false;
    if (template->launch->body->n_template_argv == 0) {
        hinder(template, template->given ? "the copy of the driver has ended" : "the launch names no template");
        return;
    }
    int result = exists(zygote) ? fits(template, &same, &err) : 0;
    if (result == 0 && !same) template_end_process(zygote);
    if (result == 0 && !exists(zygote)) {
        result = start(template, &err);
    } else if (result == 0 && before != TEMPLATE_IMPORTING) {
        result = template_ask_run(template, &err);
        if (result == 0) {
            template->state = before == TEMPLATE_RESTED ? TEMPLATE_WAKING : TEMPLATE_FORKING;
        } else if (before ==
                   TEMPLATE_RESTED) { /* it is dying, or deaf, since before this run: another may hear */
            template_end_process(zygote);
            result = start(template, &err);
        }
    }
    if (result < 0) hinder(template, err.message);
}

static void tell(struct template *template, const struct template_event *event) {
    (void)event;
    tell_later(template);
}

/* What was refused is refused again, but to a launch that names another template. */
static void again(struct template *template, const struct template_event *event) {
    bool same = false;
    bool named = template->launch->body->n_template_argv > 0;
    if (template->given || (named && fits(template, &same, NULL) == 0 && same))
        tell_later(template);
    else
        begin(template, event);
}

static void imported(struct template *template, const struct template_event *event) {
    template->state = TEMPLATE_NONE;
    if (template->launch != NULL) begin(template, event);
}

static void lose(struct template_process *process, int status);

/* The run's template, which may have ended already. */
static void forked(struct template *template, const struct template_event *event) {
    ty_error err = {0};
    struct control *control = &template->run.control;
    int status;
    long peak_kib;
    template->state = TEMPLATE_LOADING;
    bool ended = template_take_reaped(template, event->pid, &status, &peak_kib);
    template->n_reaped = 0;
    if (ended) {
        lose(&template->run, status);
        return;
    }
    control->pid = event->pid;
    if (control_watch(control, template->loop, &err) < 0) hinder(template, err.message);
}

/* By the zygote, or by the run's template: one that does not want to fork is of no use. */
static void refused(struct template *template, const struct template_event *event) {
    struct template_process *by = awaits_zygote(template) ? &template->zygote : &template->run;
    log_info("agent", "%s: %s", by->name, event->text);
    template_end_process(&template->run);
    template_end_process(by);
    settle(template, TEMPLATE_REFUSED, event->text);
}

static void forget(struct template *template, const struct template_event *event) {
    (void)event;
    template->state = TEMPLATE_NONE;
}

/* It died before it was needed: another one may live. */
static void replace(struct template *template, const struct template_event *event) {
    template_end_process(&template->run);
    template->state = TEMPLATE_NONE;
    if (template->launch != NULL) begin(template, event);
}

/* Nobody else would fare better. The run's template goes with its zygote, as long as its pid was not told. */
static void fail(struct template *template, const struct template_event *event) {
    template_end_process(&template->run);
    settle(template, template->launch != NULL ? TEMPLATE_FAILED : TEMPLATE_NONE, event->text);
}

static void loaded(struct template *template, const struct template_event *event) {
    (void)event;
    settle(template, TEMPLATE_READY, "");
}

static void lost(struct template *template, const struct template_event *event) {
    settle(template, TEMPLATE_NONE, event->text);
    answer_all(template, event->text);
}

static void answer(struct template *template, const struct template_event *event) {
    if (template->first == NULL) return;
    if (event->pid == 0)
        settle(template, TEMPLATE_READY, event->text); /* one worker is no measure for the next */
    answer_first(template, event->pid, event->text);
    tell_later(template);
}

static void give_up(struct template *template, const struct template_event *event) {
    if (awaits_zygote(template))
        template_end_process(&template->zygote); /* it would tell a pid that nobody knows */
    template_end_process(&template->run);
    template->state = TEMPLATE_NONE;
    answer_all(template, event->text);
}

static void late(struct template *template, const struct template_event *event) {
    (void)event;
    CLEANUP(buffer_done) struct buffer text = {0};
    struct template_process *process = awaits_zygote(template) ? &template->zygote : &template->run;
    template_describe_delay(process, &text);
    const char *why = text.failed ? "the template did not answer" : text.data;
    template_end_process(process);
    template_end_process(&template->run);
    settle(template, TEMPLATE_FAILED, why);
    answer_all(template, why);
}

typedef void handler(struct template *template, const struct template_event *event);

/* What an event does in each state; NULL: nothing. An end has closed the process's socket before. Of the
 * run's template nothing is heard before LOADING, as it is listened to only then. */
/* clang-format off */
static handler *const table[TEMPLATE_EVENTS][TEMPLATE_STATES_END] = {
    /*                     NONE   RESTED  IMPORTING WAKING   FORKING  LOADING  READY    REFUSED FAILED */
    [ON_LAUNCH]         = { begin, begin,  begin,    NULL,    NULL,    NULL,    tell,    again,  begin },
    [ON_GIVE_UP]        = { NULL,  NULL,   NULL,     give_up, give_up, give_up, give_up, NULL,   NULL },
    [ON_ZYGOTE_READY]   = { NULL,  NULL,   imported, refused, refused, NULL,    NULL,    NULL,   NULL },
    [ON_ZYGOTE_PID]     = { NULL,  NULL,   refused,  forked,  forked,  NULL,    NULL,    NULL,   NULL },
    [ON_ZYGOTE_REFUSAL] = { NULL,  NULL,   refused,  refused, refused, NULL,    NULL,    NULL,   NULL },
    [ON_ZYGOTE_END]     = { NULL,  forget, fail,     replace, fail,    NULL,    NULL,    NULL,   NULL },
    [ON_RUN_READY]      = { NULL,  NULL,   NULL,     NULL,    NULL,    loaded,  answer,  NULL,   NULL },
    [ON_RUN_PID]        = { NULL,  NULL,   NULL,     NULL,    NULL,    refused, answer,  NULL,   NULL },
    [ON_RUN_REFUSAL]    = { NULL,  NULL,   NULL,     NULL,    NULL,    refused, answer,  NULL,   NULL },
    [ON_RUN_END]        = { NULL,  NULL,   NULL,     NULL,    NULL,    fail,    lost,    NULL,   NULL },
    [ON_LIMIT]          = { NULL,  NULL,   late,     late,    late,    late,    late,    NULL,   NULL },
};
/* clang-format on */

static void take(struct template *template, const struct template_event *event) {
    handler *handle = table[event->kind][template->state];
    if (handle != NULL) handle(template, event);
    arm_limit(template, handle != NULL && event->kind != ON_LAUNCH);
}

/* -- events */

/* "ready", "pid N", "unsafe WHY" or "error WHY"; the events of each process come in this order. */
static void take_line(struct template *template, const char *line, enum template_event_kind ready) {
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
    take(template, &event);
}

static void on_zygote_line(struct control *control, const char *line) {
    take_line(((struct template_process *)control)->template, line, ON_ZYGOTE_READY);
}

static void on_run_line(struct control *control, const char *line) {
    take_line(((struct template_process *)control)->template, line, ON_RUN_READY);
}

/* It has ended by itself; `status`: as reaped, or -1. */
static void lose(struct template_process *process, int status) {
    struct template *template = process->template;
    CLEANUP(buffer_done) struct buffer text = {0};
    int reaped = control_close(&process->control);
    template_describe_end(process, reaped != -1 ? reaped : status, &text);
    struct template_event event = {.kind = process == &template->zygote ? ON_ZYGOTE_END : ON_RUN_END,
                                   .text = text.failed ? "the template ended" : text.data};
    log_info("agent", "%s", event.text);
    take(template, &event);
}

static void on_closed(struct control *control) {
    lose((struct template_process *)control, -1);
}

static void on_limit(void *context) {
    take(context, &(struct template_event){.kind = ON_LIMIT});
}

/* -- the agent's face */

struct template *template_create(void) {
    struct template *template = calloc(1, sizeof *template);
    if (template == NULL) return NULL;
    template->last = &template->first;
    template->log_path = "";
    template->zygote =
        (struct template_process){.control = {.fd = -1, .line = on_zygote_line, .ended = on_closed},
                                  .template = template,
                                  .name = "the template"};
    template->run = (struct template_process){.control = {.fd = -1, .line = on_run_line, .ended = on_closed},
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

void template_enter(struct template *template, struct loop *loop, const char *log_path,
                    void (*changed)(void *context), void *context) {
    struct template_process *zygote = &template->zygote, *run = &template->run;
    siginfo_t info = {0};
    template->loop = loop;
    template->log_path = log_path;
    template->changed = changed;
    template->context = context;
    template->limit = (struct loop_timer){.callback = on_limit, .context = template};
    template->tell = (struct loop_timer){.callback = on_tell, .context = template};
    zygote->log_offset = run->log_offset = template_log_size(template);
    bool lives = zygote->control.pid > 0 &&
                 waitid(P_PID, (id_t)zygote->control.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == 0;
    bool heard = exists(run) ? control_watch(&run->control, loop, NULL) == 0
                             : lives && control_watch(&zygote->control, loop, NULL) == 0;
    if (heard) return;
    template_end_process(zygote);
    template_end_process(run);
    template->state = TEMPLATE_NONE;
}

bool template_leave(struct template *template, bool keep) {
    struct template_process *zygote = &template->zygote;
    bool had_run = exists(&template->run), had_zygote = exists(zygote);
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
    if (!exists(zygote))
        template->state = TEMPLATE_NONE;
    else if (template->state != TEMPLATE_IMPORTING)
        template->state = TEMPLATE_RESTED;
    return had_run || (had_zygote && !exists(zygote));
}

void template_prepare(struct template *template, const struct node_launch *launch) {
    template->launch = launch;
    take(template, &(struct template_event){.kind = ON_LAUNCH});
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
    arm_limit(template, false);
    return 0;
}

unsigned template_pending(const struct template *template) {
    return template->pending;
}

void template_abandon(struct template *template, const char *why) {
    take(template, &(struct template_event){.kind = ON_GIVE_UP, .text = why});
}

bool template_lives(const struct template *template) {
    return template->zygote.control.pid > 0 || template->run.control.pid > 0;
}

bool template_owns(const struct template *template, pid_t pid) {
    return pid > 0 && (pid == template->zygote.control.pid || pid == template->run.control.pid);
}

bool template_reaped(struct template *template, pid_t pid, int wait_status, long peak_kib) {
    if (template_owns(template, pid)) {
        struct template_process *process =
            pid == template->run.control.pid ? &template->run : &template->zygote;
        process->control.pid = 0; /* it is no more ours to kill */
        control_take(&process->control);
        if (exists(process)) lose(process, wait_status);
        return true;
    }
    bool owes_pid = template->state == TEMPLATE_WAKING || template->state == TEMPLATE_FORKING;
    if (template->pending > 0 || owes_pid)
        template->reaped[template->n_reaped++ % TEMPLATE_REAPED_MAX] =
            (struct template_reaped){pid, wait_status, peak_kib};
    return false;
}

bool template_take_reaped(struct template *template, pid_t pid, int *wait_status, long *peak_kib) {
    unsigned n = template->n_reaped < TEMPLATE_REAPED_MAX ? template->n_reaped : TEMPLATE_REAPED_MAX;
    for (unsigned i = 0; i < n; i++) {
        struct template_reaped *reaped = &template->reaped[i];
        if (reaped->pid != pid) continue;
        *wait_status = reaped->status;
        *peak_kib = reaped->peak_kib;
        reaped->pid = 0;
        return true;
    }
    return false;
}
