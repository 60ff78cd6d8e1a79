/* Waiting for devices that other runs hold: no polling, the leases' descriptor wakes the loop. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/drive_internal.h"

enum { HOLDERS_NAMED = 3 };
#define SECOND_LOOK (50 * NS_PER_MS)

static bool holds_wanted(const struct lease_holder *holder, const struct demand *demand) {
    for (size_t i = 0; i < holder->n; i++)
        if (resources_get(&demand->per_worker, holder->claims[i].resource) > 0) return true;
    return false;
}

/* "run a of root (pid 4711) has held GPU 2 since 2026-01-31 12:00:00" */
static void describe_holder(const struct lease_holder *holder, struct buffer *out) {
    CLEANUP(resources_done) struct resources held = {0};
    for (size_t i = 0; i < holder->n; i++) {
        const struct lease_claim *claim = &holder->claims[i];
        (void)resources_set(&held, claim->resource, resources_get(&held, claim->resource) + claim->amount);
    }
    time_t seconds = (time_t)(holder->since / NS_PER_S);
    struct tm local = {0};
    char since[32];
    (void)localtime_r(&seconds, &local);
    (void)strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &local);
    buffer_printf(out, "run %s of %s", holder->run, holder->user);
    if (holder->pid > 0) buffer_printf(out, " (pid %d)", holder->pid);
    buffer_text(out, " has held ");
    resources_format(&held, out);
    buffer_printf(out, " since %s", since);
}

void wait_describe(const struct demand *demand, const struct lease_holder *holders, size_t n,
                   ty_error *reason) {
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t found = 0;
    buffer_text(&text, reason->message);
    for (size_t i = 0; i < n; i++) {
        if (!holds_wanted(&holders[i], demand) || ++found > HOLDERS_NAMED) continue;
        buffer_text(&text, "; ");
        describe_holder(&holders[i], &text);
    }
    if (found > HOLDERS_NAMED) buffer_printf(&text, "; and %zu more", found - HOLDERS_NAMED);
    if (!text.failed) (void)ty_fail(reason, reason->code, "%s", text.data);
}

static void record_wait(struct drive *drive, const char *reason, const struct lease_holder *holders, size_t n) {
    struct buffer data = {0};
    buffer_text(&data, "{\"reason\": ");
    buffer_json_string(&data, reason, strlen(reason));
    buffer_text(&data, ", \"holders\": [");
    for (size_t i = 0; i < n; i++) {
        buffer_printf(&data, "%s{\"run\": ", i > 0 ? ", " : "");
        buffer_json_string(&data, holders[i].run, strlen(holders[i].run));
        buffer_printf(&data, ", \"pid\": %d, \"user\": ", holders[i].pid);
        buffer_json_string(&data, holders[i].user, strlen(holders[i].user));
        buffer_printf(&data, ", \"since\": %.3f}", (double)holders[i].since / 1e9);
    }
    buffer_text(&data, "]}");
    drive_record(drive, EVENT_WAIT, &data);
    records_commit(drive->config->records); /* the wait's first turn may be long */
}

void wait_end(struct drive *drive) {
    loop_timer_stop(drive->loop, &drive->wait_timer);
    loop_watch_stop(drive->loop, &drive->lease_watch);
    if (drive->lease_fd >= 0) (void)close(drive->lease_fd);
    drive->lease_fd = -1;
}

static void on_lease_change(void *context, unsigned events);

int wait_begin(struct drive *drive, const char *reason, const struct lease_holder *holders, size_t n,
               ty_error *err) {
    drive->lease_fd = lease_watch(holders, n, err);
    if (drive->lease_fd < 0) return drive->lease_fd;
    record_wait(drive, reason, holders, n);
    drive->lease_watch = (struct loop_watch){.callback = on_lease_change, .context = drive};
    int result = loop_watch_start(drive->loop, &drive->lease_watch, drive->lease_fd, LOOP_READABLE);
    return result < 0 ? ty_fail(err, result, "cannot watch the leases: %s", strerror(-result)) : 0;
}

/* Somebody may have let go of what is short. True when it must go on waiting. */
static bool look_again(struct drive *drive) {
    const struct drive_config *config = drive->config;
    struct lease_holder *holders;
    size_t n;
    ty_error err = {0};
    wait_end(drive);
    int result = prepare_plan(config->request, config->name, config->prepared, &holders, &n, &err);
    bool busy = result == TY_EBUSY;
    if (busy) {
        wait_describe(&config->prepared->demand, holders, n, &err);
        result = wait_begin(drive, err.message, holders, n, &err);
        lease_holders_free(holders, n);
    } else if (result >= 0) {
        result = drive_begin(drive, &err);
    }
    if (result >= 0) return busy;
    drive->error = err;
    drive->over = true;
    return false;
}

static void on_timer(void *context) {
    (void)look_again(context);
}

/* The kernel tells of the last close a moment before it drops the lock. A holder that was caught in that moment
 * would never be heard of again, so there is a second look a little later, once. */
static void on_lease_change(void *context, unsigned events) {
    (void)events;
    struct drive *drive = context;
    if (!look_again(drive)) return;
    drive->wait_timer = (struct loop_timer){.callback = on_timer, .context = drive};
    (void)loop_timer_start(drive->loop, &drive->wait_timer, SECOND_LOOK);
}
