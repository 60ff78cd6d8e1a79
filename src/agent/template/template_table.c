/* The states of a template and what happens to it, in one table. Orders of the agent, lines and ends of the
 * two processes, and the limit on answers are events, which template.c hands over; a handler takes the step
 * that is possible (template_steps.c) and moves the state. Nothing else does, but the beginning and the end of
 * a run (template_enter, template_leave).
 *
 * The zygote's process is not part of the state once the run's template is there: it may end then without
 * harm, and is looked for when the next run's template is wanted. */
#include <stdio.h>
#include <string.h>

#include "agent/template/template_internal.h"
#include "base/cleanup.h"
#include "base/log.h"

/* A zygote, or the zygote's answer, is waited for. */
static bool awaits_zygote(const struct template *template) {
    return template->state == TEMPLATE_IMPORTING || template->state == TEMPLATE_WAKING ||
           template->state == TEMPLATE_FORKING;
}

void template_arm_limit(struct template *template, bool anew) {
    bool waits = awaits_zygote(template) || template->state == TEMPLATE_LOADING || template->pending > 0;
    if (template->loop == NULL) return;
    if (anew || !waits) loop_timer_stop(template->loop, &template->limit);
    if (waits && template->limit.state == NULL && template->launch != NULL)
        (void)loop_timer_start(template->loop, &template->limit, template_limit(template->launch));
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

/* Takes the next step towards the run's template: a zygote, or its question. */
static void begin(struct template *template, const struct template_event *event) {
    (void)event;
    ty_error err = {0};
    struct template_process *zygote = &template->zygote;
    enum template_state before = template->state;
    bool same = false;
    if (template->launch->body->n_template_argv == 0 && !template_is_program(template->launch)) {
        hinder(template, template->given ? "the copy of the driver has ended" : "the launch names no template");
        return;
    }
    int result = template_process_exists(zygote) ? fits(template, &same, &err) : 0;
    if (result == 0 && !same) template_end_process(zygote);
    if (result == 0 && template_process_exists(zygote) && before != TEMPLATE_IMPORTING) {
        result = template_ask_run(template, &err);
        if (result == 0) {
            template->state = before == TEMPLATE_RESTED ? TEMPLATE_WAKING : TEMPLATE_FORKING;
        } else if (before == TEMPLATE_RESTED) {
            /* The zygote is dying, or deaf, since before this run: another one may hear. */
            template_end_process(zygote);
            result = 0;
        }
    }
    if (result == 0 && !template_process_exists(zygote)) {
        result = template_start_zygote(template, &err);
        if (result == 0) template->state = TEMPLATE_IMPORTING;
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
    bool named = template->launch->body->n_template_argv > 0 || template_is_program(template->launch);
    if (template->given || (named && fits(template, &same, NULL) == 0 && same))
        tell_later(template);
    else
        begin(template, event);
}

static void imported(struct template *template, const struct template_event *event) {
    template->state = TEMPLATE_NONE;
    if (template->launch != NULL) begin(template, event);
}

/* The run's template, which may have ended already. */
static void forked(struct template *template, const struct template_event *event) {
    ty_error err = {0};
    struct control *control = &template->run.control;
    int status;
    struct rusage used;
    template->state = TEMPLATE_LOADING;
    bool ended = template_take_reaped(template, event->pid, &status, &used);
    template->n_reaped = 0;
    if (ended) {
        template_lose(&template->run, status);
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

/* The zygote died before it was needed: another one may live. */
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

/* The run's template ended while it was ready: workers that it forked go on, those that it owes do not start,
 * and the next launch begins anew. */
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

/* Whichever owes an answer has not given it in time, and goes, with all that it still owed. */
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

void template_take(struct template *template, const struct template_event *event) {
    handler *handle = table[event->kind][template->state];
    if (handle != NULL) handle(template, event);
    template_arm_limit(template, handle != NULL && event->kind != ON_LAUNCH);
}
