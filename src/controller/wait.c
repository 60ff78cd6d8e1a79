/* Waiting for devices that other runs hold: no polling, the leases' descriptor wakes the loop. */
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "controller/drive_internal.h"

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
}

void wait_end(struct drive *drive) {
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

/* Somebody may have let go of what is short. */
static void on_lease_change(void *context, unsigned events) {
    (void)events;
    struct drive *drive = context;
    struct lease_holder *holders;
    size_t n;
    ty_error err = {0};
    wait_end(drive);
    int result =
        prepare_plan(drive->config->request, drive->config->name, drive->config->prepared, &holders, &n, &err);
    if (result == TY_EBUSY) {
        result = wait_begin(drive, err.message, holders, n, &err);
        lease_holders_free(holders, n);
    } else if (result >= 0) {
        result = drive_begin(drive, &err);
    }
    if (result >= 0) return;
    drive->error = err;
    loop_stop(drive->loop);
}
