/* An attempt on its node: each worker executed, or forked from the template where that is possible, a few a turn; stopped; and let go of when
 * all are gone. */
#include <stdlib.h>
#include <string.h>

#include "agent/serving.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

enum { SPAWNS_A_TURN = 8, FORKS_AT_ONCE = 8 };
#define GRACE_LOST (1 * NS_PER_S) /* without a controller nobody waits for a polite end */

nanoseconds attempt_grace(const struct serving *serving) {
    nanoseconds grace = serving->launch.body != NULL ? serving->launch.body->grace : 0;
    return serving->lost && grace > GRACE_LOST ? GRACE_LOST : grace;
}

void attempt_refuse(struct serving *serving, const Wire__Launch *body, const char *why, bool stopped) {
    for (size_t i = 0; i < body->n_workers; i++) {
        Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
        event.kind = WIRE__WORKER_EVENT__KIND__START_FAILED;
        event.rank = body->workers[i]->rank;
        event.stopped = stopped;
        char *text = strdup(why);
        if (text != NULL) event.text = text;
        outbox_event(&serving->outbox, event);
    }
}

/* It came while the attempt before it was still being cleared away. */
static void stop_next(struct serving *serving) {
    if (serving->next == NULL) return;
    attempt_refuse(serving, serving->next, "stopped before it was started", true);
    wire__launch__free_unpacked(TAKE(serving->next), NULL);
}

void attempt_stop(struct serving *serving, bool kill) {
    serving->killing |= kill;
    stop_next(serving);
    stacks_cancel(&serving->stacks);
    for (size_t i = 0; i < serving->n_children; i++) /* one that hangs would make nothing of a grace */
        child_stop(&serving->children[i], kill || serving->children[i].hung, attempt_grace(serving));
    if (attempt_grace(serving) < serving->log_limit) serving->log_limit = attempt_grace(serving);
    if (!kill) return;
    serving->log_limit = 0;
    logs_hurry(&serving->logs);
    sweep_kill(&serving->sweep);
}

void attempt_go_on(void *context) {
    struct serving *serving = context;
    struct template *template = serving->way == START_FORKED ? serving->service->template : NULL;
    if (serving->way == START_UNDECIDED) return;
    for (int i = 0; i < SPAWNS_A_TURN && serving->n_started < serving->n_children; i++) {
        struct child *child = &serving->children[serving->n_started];
        if (template != NULL && template_pending(template) >= FORKS_AT_ONCE) return; /* an answer goes on */
        if (child->stage == CHILD_PLANNED)
            child_start(child, &serving->launch, serving->n_started, &serving->channels, template);
        serving->n_started++;
    }
    if (serving->n_started < serving->n_children)
        (void)loop_timer_start(serving->loop, &serving->start_timer, 0);
}

static void refuse_planned(struct serving *serving, const char *why) {
    for (size_t i = 0; i < serving->n_children; i++)
        child_refuse(&serving->children[i], TY_ESTART, why);
    serving->n_started = serving->n_children;
}

/* Chosen: workers are executed instead. Demanded: it says why there are none. */
static void do_without_template(struct serving *serving, const char *why) {
    const char *method = serving->launch.body->start_method;
    if (!str_equal(method, "auto")) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "workers cannot be forked from a template (start_method \"%s\"): %s", method, why);
        refuse_planned(serving, text.failed ? why : text.data);
        return;
    }
    outbox_log(&serving->outbox, LOG_LEVEL_WARNING,
               "node %s: workers start as fresh processes, not forked from a template: %s",
               serving->service->start->node_name, why);
    serving->way = START_EXECUTED;
}

/* The template can be asked, or not, or an answer of it has come. */
void attempt_template_changed(void *context) {
    struct serving *serving = context;
    const struct template *template = serving->service->template;
    if (!serving->active || serving->way == START_EXECUTED) return;
    enum template_state state = template_state(template);
    if (serving->way == START_UNDECIDED && state == TEMPLATE_READY) serving->way = START_FORKED;
    if (serving->way == START_UNDECIDED && state == TEMPLATE_REFUSED)
        do_without_template(serving, template_reason(template));
    if (serving->way == START_UNDECIDED && state == TEMPLATE_FAILED)
        refuse_planned(serving, template_reason(template));
    attempt_go_on(serving);
}

static void choose_way(struct serving *serving) {
    const Wire__Launch *body = serving->launch.body;
    serving->way = START_EXECUTED;
    if (body->start_method[0] == '\0' || body->n_workers == 0) return;
    serving->way = START_UNDECIDED;
    (void)template_prepare(serving->service->template, &serving->launch);
}

void attempt_begin(struct serving *serving, const Wire__Launch *body) {
    ty_error err = {0};
    struct child *children = calloc(body->n_workers + 1, sizeof *children);
    int result = children == NULL ? ty_fail_memory(&err)
                                  : launch_init(&serving->launch, body, serving->service->nofile, &err);
    if (result < 0) {
        free(children);
        attempt_refuse(serving, body, err.message, false);
        return;
    }
    if (!body->hold_port) held_port_close(&serving->port);
    for (size_t i = 0; i < body->n_workers; i++)
        children[i] = (struct child){.outbox = &serving->outbox,
                                     .logs = &serving->logs,
                                     .oom = &serving->oom,
                                     .rank = body->workers[i]->rank,
                                     .grace = body->grace};
    serving->children = children;
    serving->n_children = body->n_workers;
    serving->n_started = serving->reaped_hint = 0;
    serving->active = true;
    serving->killing = false;
    serving->logs.hurried = false;
    serving->log_limit = LOG_LIMIT;
    serving->channels.run_path = serving->launch.body->run_path;
    serving->channels.attempt = body->attempt;
    signals_watch_preemption(serving);
    hang_begin(&serving->hang, children, body->n_workers, body->hang_timeout);
    choose_way(serving);
    /* In the next turn: a stop may stand right behind the launch. */
    if (loop_timer_start(serving->loop, &serving->start_timer, 0) < 0) attempt_go_on(serving);
}

void attempt_end(struct serving *serving) {
    hang_end(&serving->hang);
    oom_forget(&serving->oom);
    for (size_t i = 0; i < serving->n_children; i++)
        child_done(&serving->children[i]);
    free(TAKE(serving->children));
    template_forget(serving->service->template);
    serving->n_children = serving->n_started = 0;
    launch_done(&serving->launch);
    serving->active = false;
}

bool attempt_all_gone(const struct serving *serving) {
    for (size_t i = 0; i < serving->n_children; i++)
        if (serving->children[i].stage != CHILD_GONE) return false;
    return true;
}
