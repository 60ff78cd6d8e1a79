/* The time runs from the first launch on, through restarts: a fault whose worker does not run just then is
 * told, and passes. */
#include "controller/chaos.h"

#include <stdio.h>

#include "base/log.h"
#include "controller/drive_internal.h"

_Static_assert((int)WIRE__DISTURB__KIND__KILL == (int)CHAOS_KILL, "kinds of faults");
_Static_assert((int)WIRE__DISTURB__KIND__PAUSE == (int)CHAOS_PAUSE, "kinds of faults");
_Static_assert((int)WIRE__DISTURB__KIND__STARVE == (int)CHAOS_STARVE, "kinds of faults");

static bool runs(const struct drive *drive, uint32_t rank) {
    enum worker_state state = run_worker(drive->run, rank)->state;
    return run_state_of(drive->run) == RUN_RUNNING && (state == WORKER_STARTED || state == WORKER_READY);
}

static void tell(const struct chaos_timer *chaos, bool happens) {
    const struct chaos_fault *fault = &chaos->next;
    struct buffer text = {0};
    buffer_printf(&text, "chaos at %.2f s: rank %u ",
                  (double)(loop_now(chaos->drive->loop) - chaos->began) / (double)NS_PER_S, fault->rank);
    if (happens) buffer_printf(&text, "(pid %d) ", run_worker(chaos->drive->run, fault->rank)->pid);
    buffer_printf(&text, "%s", chaos_kind_text(fault->kind));
    if (fault->kind != CHAOS_KILL) {
        buffer_char(&text, ' ');
        duration_format(fault->length, &text);
    }
    if (!happens) buffer_text(&text, ", but does not run");
    progress_hide(&chaos->drive->progress);
    if (!text.failed) log_warning("chaos", "%s", text.data);
    buffer_done(&text);
}

static void perform(const struct chaos_timer *chaos) {
    const struct chaos_fault *fault = &chaos->next;
    Wire__Disturb body = WIRE__DISTURB__INIT;
    body.kind = (Wire__Disturb__Kind)fault->kind;
    body.rank = fault->rank;
    body.length = fault->length;
    peer_send(&chaos->drive->peers[chaos->drive->node_of[fault->rank]], &WIRE_MESSAGE(DISTURB, disturb, &body));
}

static void record(const struct chaos_timer *chaos) {
    const struct chaos_fault *fault = &chaos->next;
    char data[64];
    double length = fault->kind == CHAOS_KILL ? 0 : (double)fault->length / (double)NS_PER_S;
    (void)snprintf(data, sizeof data, "{\"fault\": \"%s\", \"seconds\": %.3f}", chaos_kind_name(fault->kind),
                   length);
    struct run_event event = {clock_wall(),     EVENT_CHAOS, run_attempt(chaos->drive->run),
                              (int)fault->rank, -1,          data};
    drive_note(chaos->drive, &event, NULL);
}

static void await_next(struct chaos_timer *chaos) {
    chaos->next = chaos_next(&chaos->schedule);
    (void)loop_timer_start(chaos->drive->loop, &chaos->timer, chaos->next.after);
}

static void on_timer(void *context) {
    struct chaos_timer *chaos = context;
    bool happens = runs(chaos->drive, chaos->next.rank);
    tell(chaos, happens);
    if (happens) record(chaos);
    if (happens) perform(chaos);
    await_next(chaos);
}

void chaos_start(struct chaos_timer *chaos, struct drive *drive, const struct chaos_policy *policy) {
    if (policy->every <= 0 || chaos->drive != NULL) return;
    *chaos = (struct chaos_timer){
        .drive = drive, .began = loop_now(drive->loop), .timer = {.callback = on_timer, .context = chaos}};
    chaos_begin(&chaos->schedule, policy, (uint32_t)drive->config->prepared->plan->n_workers);
    await_next(chaos);
}

void chaos_stop(struct chaos_timer *chaos) {
    if (chaos->drive != NULL) loop_timer_stop(chaos->drive->loop, &chaos->timer);
    chaos->drive = NULL;
}
