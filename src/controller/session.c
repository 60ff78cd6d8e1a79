/* ty_run: a request in JSON, and the controller of it, stepped by their owner. */
#include "controller/session.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "controller/request.h"
#include "controller/signals.h"
#include "engine/copy.h"

/* Turns of one dispatch: enough for what one event leads to at once, few enough for the owner's own events to
 * have their turn. */
enum { TURNS_MAX = 16 };

struct ty_run {
    pid_t owner; /* the process that opened it */
    struct request *request;
    struct controller *controller;
};

/* A child that was forked has a copy of the run's memory, and nothing else of it. */
static int check_owner(const struct ty_run *run, ty_error *err) {
    if (run->owner == getpid()) return 0;
    return ty_fail(
        err, TY_EUSAGE,
        "this run belongs to process %d, which opened it: a child that was forked can neither drive nor "
        "end it",
        (int)run->owner);
}

int session_open(const char *request_json, const void *payload, size_t payload_size, ty_run **out,
                 ty_error *err) {
    struct ty_run *run = calloc(1, sizeof *run);
    struct sigpipe_hold hold;
    if (run == NULL) return ty_fail_memory(err);
    run->owner = getpid();
    sigpipe_hold(&hold);
    int code = request_read(request_json, payload, payload_size, &run->request, err);
    if (code >= 0) code = controller_open(request_get(run->request), &run->controller, err);
    sigpipe_release(&hold);
    if (code >= 0) {
        *out = run;
        return 0;
    }
    request_destroy(run->request);
    free(run);
    return code;
}

int session_fd(const ty_run *run) {
    if (check_owner(run, NULL) < 0) return -1;
    return controller_fd(run->controller);
}

int session_timeout_ms(const ty_run *run) {
    if (check_owner(run, NULL) < 0) return 0;
    return controller_timeout_ms(run->controller);
}

int session_dispatch(ty_run *run, ty_error *err) {
    struct sigpipe_hold hold;
    bool more;
    int turns = 0;
    if (check_owner(run, err) < 0) return TY_EUSAGE;
    sigpipe_hold(&hold);
    do
        more = controller_step(run->controller, false);
    while (more && ++turns < TURNS_MAX && controller_timeout_ms(run->controller) == 0);
    sigpipe_release(&hold);
    return more;
}

int session_next_event(ty_run *run, char **event_json) {
    if (check_owner(run, NULL) < 0) return TY_EUSAGE;
    return controller_next_event(run->controller, event_json);
}

int session_fork(int *control_fd, ty_error *err) {
    return copy_make(control_fd, err);
}

void session_fork_drop(void) {
    copy_drop();
}

int session_stop(ty_run *run, int signal_number) {
    struct sigpipe_hold hold;
    if (signal_number < 0 || signal_number >= SIGRTMAX || check_owner(run, NULL) < 0) return TY_EUSAGE;
    sigpipe_hold(&hold);
    controller_stop(run->controller, signal_number);
    sigpipe_release(&hold);
    return 0;
}

int session_close(ty_run *run, ty_result **result, ty_error *err) {
    struct sigpipe_hold hold;
    ty_result *own = NULL;
    if (result != NULL) *result = NULL;
    if (check_owner(run, err) < 0) return TY_EUSAGE;
    sigpipe_hold(&hold);
    int code = controller_close(run->controller, &own, err);
    sigpipe_release(&hold);
    request_destroy(run->request);
    free(run);
    if (result != NULL)
        *result = own;
    else
        ty_result_free(own);
    return code;
}
