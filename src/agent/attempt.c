/* An attempt on its node: each worker executed, or forked from the template where that is possible, a few a
 * turn; stopped; and let go of when all are gone. The life of one worker is in worker_process.c, and when the
 * node's run goes on to what follows in node_run.c. */
#include <stdlib.h>
#include <string.h>

#include "agent/node_run.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

enum { SPAWNS_A_TURN = 8, FORKS_AT_ONCE = 8 };
#define GRACE_LOST (1 * NS_PER_S) /* without a controller nobody waits for a polite end */

nanoseconds attempt_grace(const struct node_run *run) {
    nanoseconds grace = run->launch.body != NULL ? run->launch.body->grace : 0;
    return run->lost && grace > GRACE_LOST ? GRACE_LOST : grace;
}

void attempt_refuse(struct node_run *run, const Wire__Launch *body, const char *why, bool stopped) {
    for (size_t i = 0; i < body->n_workers; i++) {
        Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
        event.kind = WIRE__WORKER_EVENT__KIND__START_FAILED;
        event.rank = body->workers[i]->rank;
        event.stopped = stopped;
        char *text = strdup(why);
        if (text != NULL) event.text = text;
        outbox_event(&run->outbox, event);
    }
}

void attempt_stop(struct node_run *run, enum worker_process_stop how) {
    bool kill = how == STOP_KILLED;
    run->killing |= kill;
    /* A launch that came while the attempt before it was still being cleared away. */
    if (run->next != NULL) {
        attempt_refuse(run, run->next, "stopped before it was started", true);
        wire__launch__free_unpacked(TAKE(run->next), NULL);
    }
    stacks_cancel(&run->stacks);
    for (size_t i = 0; i < run->n_workers; i++) /* one that hangs would make nothing of a grace */
        worker_process_stop(&run->workers[i], run->workers[i].hung ? STOP_KILLED : how, attempt_grace(run));
    node_sweep_hurry(&run->sweep);
    if (attempt_grace(run) < run->log_limit) run->log_limit = attempt_grace(run);
    if (!kill) return;
    run->log_limit = 0;
    logs_hurry(&run->logs);
    node_sweep_kill(&run->sweep);
}

/* A few a turn, or a few forks that are not answered: between them the loop hears a stop, and what those that
 * run already say. */
void attempt_go_on(void *context) {
    struct node_run *run = context;
    struct template *template = run->way == START_FORKED ? run->service->template : NULL;
    if (run->way == START_UNDECIDED || run->way == START_PREPARING) return;
    for (int i = 0; i < SPAWNS_A_TURN && run->n_started < run->n_workers; i++) {
        struct worker_process *worker = &run->workers[run->n_started];
        if (template != NULL && template_pending(template) >= FORKS_AT_ONCE) return; /* an answer goes on */
        if (worker->stage == PROCESS_PLANNED)
            worker_process_start(worker, &run->launch, run->n_started, &run->channels, template);
        run->n_started++;
    }
    if (run->n_started < run->n_workers) (void)loop_timer_start(run->loop, &run->start_timer, 0);
}

static void refuse_planned(struct node_run *run, const char *why) {
    for (size_t i = 0; i < run->n_workers; i++)
        worker_process_refuse(&run->workers[i], TY_ESTART, why);
    run->n_started = run->n_workers;
}

/* Where forking was only chosen ("auto") workers are executed instead; where it was demanded each of them fails
 * with the reason. */
static void do_without_template(struct node_run *run, const char *why) {
    const char *method = run->launch.body->start_method;
    if (!str_equal(method, "auto")) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "workers cannot be forked from a template (start_method \"%s\"): %s", method, why);
        refuse_planned(run, text.failed ? why : text.data);
        return;
    }
    bool expected = !template_is_program(&run->launch); /* a program did not ask for it */
    outbox_log(&run->outbox, expected ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
               "node %s: workers start as fresh processes, not forked from a template: %s",
               run->service->start->node_name, why);
    run->way = START_EXECUTED;
}

void attempt_template_changed(void *context) {
    struct node_run *run = context;
    const struct template *template = run->service->template;
    if (run->phase != NODE_RUN_ATTEMPT || run->way == START_EXECUTED || run->way == START_PREPARING) return;
    enum template_state state = template_state(template);
    if (run->way == START_UNDECIDED) {
        bool failed = state == TEMPLATE_FAILED;
        if (state == TEMPLATE_READY)
            run->way = START_FORKED;
        else if (state == TEMPLATE_REFUSED || (failed && template_is_program(&run->launch)))
            do_without_template(run, template_reason(template)); /* what went wrong is the program's to say */
        else if (failed)
            refuse_planned(run, template_reason(template));
    }
    attempt_go_on(run);
}

/* Without a start method workers are executed. Else the template is asked, and workers start when it is ready,
 * or has refused (attempt_template_changed). */
static void choose_way(struct node_run *run) {
    const Wire__Launch *body = run->launch.body;
    run->way = START_EXECUTED;
    if (body->start_method[0] == '\0' || body->n_workers == 0) return;
    run->way = START_UNDECIDED;
    const char *why = template_is_program(&run->launch) ? template_refuse_program(&run->launch) : NULL;
    if (why != NULL)
        do_without_template(run, why);
    else
        template_prepare(run->service->template, &run->launch);
}

void attempt_storage_ready(void *context, const ty_error *err) {
    struct node_run *run = context;
    run->way = START_EXECUTED;
    if (err->code < 0)
        refuse_planned(run, err->message);
    else if (!attempt_all_gone(run))
        choose_way(run);
    attempt_go_on(run);
}

/* The workers have their places, and whatever watches over them is set, before the first of them starts: from
 * then on each end goes the same way, that of a start which failed among them. */
void attempt_begin(struct node_run *run, const Wire__Launch *body) {
    ty_error err = {0};
    /* A later attempt may take other devices than the one for which the agent was started. */
    const struct agent_service *leased = run->service->leased;
    if (leased != NULL &&
        leased->claim(leased->context, body->claims, body->n_claims, &run->lease_fd, &err) < 0) {
        node_run_refuse(run, err.message);
        return;
    }
    struct worker_process *workers = calloc(body->n_workers + 1, sizeof *workers);
    int result = workers == NULL ? ty_fail_memory(&err)
                                 : node_launch_init(&run->launch, body, run->service->nofile, &err);
    if (result < 0) {
        free(workers);
        attempt_refuse(run, body, err.message, false);
        return;
    }
    for (size_t i = 0; i < body->n_workers; i++)
        workers[i] = (struct worker_process){.outbox = &run->outbox,
                                             .logs = &run->logs,
                                             .oom = &run->oom,
                                             .rank = body->workers[i]->rank,
                                             .hidden = body->workers[i]->hidden,
                                             .grace = body->grace,
                                             .linger = body->linger,
                                             .face = node_launch_face(&run->launch)};
    run->workers = workers;
    run->n_workers = body->n_workers;
    run->n_started = run->reaped_hint = 0;
    run->phase = NODE_RUN_ATTEMPT;
    run->killing = false;
    run->logs.hurried = false;
    run->log_limit = LOG_LIMIT;
    run->logs.limit = body->log_limit;
    run->channels.run_path = run->launch.body->run_path;
    run->channels.token = run->launch.body->token;
    run->channels.attempt = body->attempt;
    adrift_prepare(run);
    signals_watch_preemption(run);
    sampling_begin(&run->sampling, body->sample, &run->workers, &run->n_workers);
    hang_begin(&run->hang, workers, body->n_workers, body->hang_timeout);
    if (leased != NULL && body->storage[0] != '\0') {
        run->way = START_PREPARING;
        node_storage_prepare(&run->storage, run->launch.body);
    } else {
        choose_way(run);
    }
    /* In the next turn: a stop may stand right behind the launch. */
    if (loop_timer_start(run->loop, &run->start_timer, 0) < 0) attempt_go_on(run);
}

void attempt_end(struct node_run *run) {
    hang_end(&run->hang);
    node_storage_forget(&run->storage);
    oom_forget(&run->oom);
    for (size_t i = 0; i < run->n_workers; i++)
        worker_process_done(&run->workers[i]);
    free(TAKE(run->workers));
    template_forget(run->service->template);
    adrift_forget(run);
    run->n_workers = run->n_started = 0;
    node_launch_done(&run->launch);
}

void attempt_let_go(struct node_run *run) {
    if (run->phase != NODE_RUN_SWEPT) return;
    attempt_end(run);
    run->phase = NODE_RUN_BETWEEN;
}

bool attempt_all_gone(const struct node_run *run) {
    for (size_t i = 0; i < run->n_workers; i++)
        if (run->workers[i].stage != PROCESS_GONE) return false;
    return true;
}

bool attempt_ended_well(const struct node_run *run) {
    for (size_t i = 0; i < run->n_workers; i++)
        if (!worker_process_ended_well(&run->workers[i])) return false;
    return true;
}

nanoseconds attempt_linger(const struct node_run *run) {
    nanoseconds ended_at = 0, left;
    for (size_t i = 0; i < run->n_workers; i++) {
        const struct worker_process *worker = &run->workers[i];
        if (worker->stop != STOP_HELD && worker->stage != PROCESS_GONE) return 0;
        if (worker->stop == STOP_HELD && worker->ended_at > ended_at) ended_at = worker->ended_at;
    }
    if (ended_at == 0) return 0;
    left = ended_at + run->launch.body->linger - loop_now(run->loop);
    return left > 0 ? left : 1;
}
