/* Being asked to stop, the reason of a stop, and signs of life. The run sends SIGTERM; until the program asks
 * for the first time whether it is to stop, SIGTERM ends it, as in any program. Who asked, and what the run
 * does then, is not known here. */
#include <signal.h>
#include <time.h>

#include "worker/worker.h"

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"

static volatile sig_atomic_t stop_requested;

static void note_stop(int signal) {
    (void)signal;
    stop_requested = 1;
}

/* Who asks takes SIGTERM over. SA_RESTART: system calls of the program go on as if nothing had come; it hears
 * of the stop when it asks again. */
bool ty_stop_requested(ty_worker *worker) {
    static bool taken_over;
    (void)worker;
    if (!taken_over) {
        struct sigaction action = {.sa_handler = note_stop, .sa_flags = SA_RESTART};
        (void)sigemptyset(&action.sa_mask);
        taken_over = sigaction(SIGTERM, &action, NULL) == 0;
    }
    return stop_requested != 0;
}

/* Nobody counts heartbeats: one in so long says as much as a thousand. */
static const nanoseconds HEARTBEAT_INTERVAL = 100 * NS_PER_MS;

int ty_heartbeat(ty_worker *worker, ty_error *err) {
    static const char line[] = "heartbeat\n";
    struct timespec coarse; /* to a few milliseconds, for the price of a few nanoseconds */
    nanoseconds now = clock_gettime(CLOCK_MONOTONIC_COARSE, &coarse) == 0
                          ? coarse.tv_sec * NS_PER_S + coarse.tv_nsec
                          : clock_monotonic();
    if (worker == NULL) return ty_fail(err, TY_EUSAGE, "heartbeat: the worker is NULL");
    if (worker->heartbeat > 0 && now - worker->heartbeat < HEARTBEAT_INTERVAL) return 0;
    struct link *link;
    int rc = worker_link(worker, &link, err);
    if (rc == 0) rc = link_post(link, line, sizeof line - 1, err);
    if (rc == 0) worker->heartbeat = now;
    return rc;
}

/* A worker that nobody has asked to stop costs no request. */
int ty_preemption(ty_worker *worker, char **json, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    if (worker == NULL || json == NULL)
        return ty_fail(err, TY_EUSAGE, "preemption: the %s is NULL",
                       worker == NULL ? "worker" : "place for the answer");
    if (!ty_stop_requested(worker)) return 0;
    buffer_clear(&worker->line);
    buffer_text(&worker->line, "preemption\n");
    int rc = worker_request(worker, &text, err);
    if (rc < 0 || str_equal(worker->answer.data, "none")) return rc;
    if (!str_prefix(worker->answer.data, "value ", NULL)) return worker_fail_answer(worker->answer.data, err);
    *json = buffer_take(&text);
    return *json != NULL ? 1 : ty_fail_memory(err);
}
