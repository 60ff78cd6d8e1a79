/* Waiting for devices that other runs hold: a run that has not begun, and an elastic one between two attempts.
 * No polling: the leases' descriptor wakes the loop. What is planned then is prepare.c's. */
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "controller/ty_run.h"

#define SECOND_LOOK (50 * NS_PER_MS)

/* Of a holder only what it holds of the wanted resources counts; as many are named as a line can bear. */
void wait_describe(const struct demand *demand, const struct holder_list *holders, ty_error *reason) {
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t found = 0;
    buffer_text(&text, reason->message);
    for (size_t i = 0; i < holders->n; i++) {
        const struct lease_holder *holder = &holders->items[i];
        bool wanted = false;
        for (size_t k = 0; k < holder->n && !wanted; k++)
            wanted = resources_get(&demand->per_worker, holder->claims[k].resource) > 0;
        if (!wanted || ++found > LEASE_HOLDERS_NAMED) continue;
        buffer_text(&text, "; ");
        lease_describe(holder, &text);
    }
    if (found > LEASE_HOLDERS_NAMED) buffer_printf(&text, "; and %zu more", found - LEASE_HOLDERS_NAMED);
    if (!text.failed) (void)ty_fail(reason, reason->code, "%s", text.data);
}

/* -- the watch */

void wait_end(struct ty_run *run) {
    loop_timer_stop(run->loop, &run->room.second);
    loop_watch_stop(run->loop, &run->room.watch);
    descriptors_close(&run->room.fd);
}

static void look(void *context) {
    struct ty_run *run = context;
    wait_end(run);
    run->room.look(run);
}

/* The kernel tells of the last close a moment before it drops the lock. A holder that was caught in that moment
 * would never be heard of again, so there is a second look a little later, once. */
static void on_lease_change(void *context, unsigned events) {
    (void)events;
    struct ty_run *run = context;
    look(run);
    if (run->room.fd < 0) return;
    run->room.second = (struct loop_timer){.callback = look, .context = run};
    (void)loop_timer_start(run->loop, &run->room.second, SECOND_LOOK);
}

int wait_watch(struct ty_run *run, const struct holder_list *holders, void (*look_again)(struct ty_run *run),
               ty_error *err) {
    wait_end(run);
    run->room.fd = lease_watch(holders->items, holders->n, err);
    if (run->room.fd < 0) return run->room.fd;
    descriptors_withhold(run->room.fd);
    run->room.look = look_again;
    run->room.watch = (struct loop_watch){.callback = on_lease_change, .context = run};
    int result = loop_watch_start(run->loop, &run->room.watch, run->room.fd, LOOP_READABLE);
    return result < 0 ? ty_fail(err, result, "cannot watch the leases: %s", strerror(-result)) : 0;
}

/* -- a run that has not begun */

/* Somebody may have let go of what is short. */
static void plan_again(struct ty_run *run) {
    CLEANUP(holder_list_done) struct holder_list holders = {0};
    ty_error err = {0};
    int result = prepare_plan(run->request, run->name, &run->prepared, &holders, &err);
    if (result == TY_EBUSY) {
        wait_describe(&run->prepared.demand, &holders, &err);
        result = wait_begin(run, err.message, &holders, &err);
    } else if (result >= 0) {
        result = opening_go_on(run, &err);
    }
    if (result >= 0) return;
    run->error = err;
    run->phase = PHASE_OVER;
}

int wait_begin(struct ty_run *run, const char *reason, const struct holder_list *holders, ty_error *err) {
    int result = wait_watch(run, holders, plan_again, err);
    if (result >= 0) {
        size_t n = holders->n;
        CLEANUP_FREE struct event_holder *items = calloc(n + 1, sizeof *items);
        for (size_t i = 0; items != NULL && i < n; i++)
            items[i] = (struct event_holder){.run = holders->items[i].run,
                                             .user = holders->items[i].user,
                                             .pid = holders->items[i].pid,
                                             .since = (double)holders->items[i].since / 1e9};
        struct run_event event = run_event_new(EVENT_WAIT);
        event.time = clock_wall();
        event.of.wait = (struct event_wait){reason, {items, n}};
        note_event(run, &event, NULL);
        records_commit(run->records); /* the wait's first turn may be long */
    }
    return result;
}
