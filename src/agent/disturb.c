/* What chaos does to a worker for a while: stopped, or starved. Slices of stopping and running need no
 * privilege and end without a trace, unlike a priority that only root may raise again. When it happens, and to
 * whom, is the run's schedule (run/chaos.c). */
#include "agent/worker_process.h"

#include <signal.h>

static const nanoseconds STARVED_SLICE = 45 * NS_PER_MS, FED_SLICE = 5 * NS_PER_MS;

/* Each slice changes between stopped and running; a pause is one slice of the whole length. */
static void go_on(void *context) {
    struct disturbance *disturbance = context;
    nanoseconds left = disturbance->until - loop_now(disturbance->loop);
    if (left <= 0) {
        disturb_end(disturbance);
        return;
    }
    disturbance->stopped = !disturbance->stopped;
    (void)kill(disturbance->pid, disturbance->stopped ? SIGSTOP : SIGCONT);
    nanoseconds slice = !disturbance->starves ? left : disturbance->stopped ? STARVED_SLICE : FED_SLICE;
    (void)loop_timer_start(disturbance->loop, &disturbance->timer, slice < left ? slice : left);
}

void disturb_begin(struct disturbance *disturbance, struct loop *loop, pid_t pid, bool starves,
                   nanoseconds length) {
    disturb_end(disturbance);
    *disturbance = (struct disturbance){.loop = loop,
                                        .pid = pid,
                                        .until = loop_now(loop) + length,
                                        .starves = starves,
                                        .timer = {.callback = go_on, .context = disturbance}};
    go_on(disturbance);
}

void disturb_end(struct disturbance *disturbance) {
    if (disturbance->stopped) (void)kill(disturbance->pid, SIGCONT);
    disturb_forget(disturbance);
}

void disturb_forget(struct disturbance *disturbance) {
    if (disturbance->pid == 0) return;
    loop_timer_stop(disturbance->loop, &disturbance->timer);
    disturbance->stopped = false;
    disturbance->pid = 0;
}
