/* Faults on purpose (--chaos): carries out the schedule of run/chaos.h on this run's workers, and tells each as
 * it happens. The time runs from the first launch on, through restarts: a fault whose worker does not run just
 * then is told, and passes. */

#include "base/log.h"
#include "controller/ty_run.h"

_Static_assert((int)WIRE__DISTURB__KIND__KILL == (int)CHAOS_KILL, "kinds of faults");
_Static_assert((int)WIRE__DISTURB__KIND__PAUSE == (int)CHAOS_PAUSE, "kinds of faults");
_Static_assert((int)WIRE__DISTURB__KIND__STARVE == (int)CHAOS_STARVE, "kinds of faults");

static void await_next(struct chaos_timer *chaos) {
    chaos->next = chaos_next(&chaos->schedule);
    (void)loop_timer_start(chaos->run->loop, &chaos->timer, chaos->next.after);
}

static void on_timer(void *context) {
    struct chaos_timer *chaos = context;
    struct ty_run *run = chaos->run;
    const struct chaos_fault *fault = &chaos->next;
    const struct run_worker *worker = run_worker(run->core, fault->rank);
    bool lives = worker->state == WORKER_STARTED || worker->state == WORKER_READY;
    bool happens = run_state_of(run->core) == RUN_RUNNING && lives;
    struct buffer text = {0};
    buffer_printf(&text, "chaos at %.2f s: rank %u ", duration_seconds(loop_now(run->loop) - chaos->began),
                  fault->rank);
    if (happens) buffer_printf(&text, "(pid %d) ", worker->pid);
    buffer_printf(&text, "%s", chaos_kind_text(fault->kind));
    if (fault->kind != CHAOS_KILL) {
        buffer_char(&text, ' ');
        duration_format(fault->length, &text);
    }
    if (!happens) buffer_text(&text, ", but does not run");
    progress_hide(&run->output.progress);
    if (!text.failed) log_warning("chaos", "%s", text.data);
    buffer_done(&text);
    if (happens) {
        /* Recorded, and then done. */
        struct run_event event = run_event_new(EVENT_CHAOS);
        event.time = clock_wall();
        event.attempt = run_attempt(run->core);
        event.rank = (int)fault->rank;
        event.of.chaos.fault = chaos_kind_name(fault->kind);
        event.of.chaos.seconds = fault->kind == CHAOS_KILL ? 0 : duration_seconds(fault->length);
        note_event(run, &event, NULL);
        Wire__Disturb body = WIRE__DISTURB__INIT;
        body.kind = (Wire__Disturb__Kind)fault->kind;
        body.rank = fault->rank;
        body.length = fault->length;
        peer_send(&run->agents.peers[run->agents.node_of[fault->rank]], &WIRE_MESSAGE(DISTURB, disturb, &body));
    }
    await_next(chaos);
}

void chaos_start(struct ty_run *run) {
    const struct chaos_policy *policy = &run->request->settings.chaos;
    struct chaos_timer *chaos = &run->chaos;
    if (policy->every <= 0 || chaos->run != NULL) return;
    *chaos = (struct chaos_timer){
        .run = run, .began = loop_now(run->loop), .timer = {.callback = on_timer, .context = chaos}};
    chaos_begin(&chaos->schedule, policy, (uint32_t)run->prepared.plan->n_workers);
    await_next(chaos);
}

void chaos_stop(struct ty_run *run) {
    if (run->chaos.run != NULL) loop_timer_stop(run->loop, &run->chaos.timer);
    run->chaos.run = NULL;
}
