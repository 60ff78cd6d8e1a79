/* The agent's side of the sampler: starting it, hearing it, and giving it up for a minute where it stands still
 * or ends. A run goes on without samples. What is sampled, and how, is the room usage's; samples are passed on
 * to the controller as they come. */
#include "agent/node_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/log.h"
#include "usage/usage.h"

enum { SILENT_PERIODS = 3, END_MS = 200 };
#define SILENT_LEAST (5 * NS_PER_S) /* a busy machine is late */
#define RESTART_AFTER (60 * NS_PER_S)

static void expect_sample(struct sampling *sampling) {
    nanoseconds limit = SILENT_PERIODS * sampling->period;
    (void)loop_timer_start(sampling->loop, &sampling->timer, limit > SILENT_LEAST ? limit : SILENT_LEAST);
}

/* Kills it; whoever hears of children reaps it. */
static void leave(struct sampling *sampling) {
    loop_watch_stop(sampling->loop, &sampling->watch);
    if (sampling->state == SAMPLING_ON) (void)close(TAKE_FD(sampling->fd));
    if (sampling->pid > 0) (void)kill(sampling->pid, SIGKILL);
    loop_timer_stop(sampling->loop, &sampling->timer);
    sampling->state = SAMPLING_OFF;
}

static void give_up(struct sampling *sampling, const char *why) {
    leave(sampling);
    if (!sampling->told)
        outbox_log(sampling->outbox, LOG_LEVEL_WARNING,
                   "node %s: no samples of its hardware for a while: %s; the training is not touched by it",
                   sampling->node_name, why);
    sampling->told = true;
    sampling->state = SAMPLING_DUE;
    (void)loop_timer_start(sampling->loop, &sampling->timer, RESTART_AFTER);
}

static void send_targets(const struct sampling *sampling) {
    struct usage_target targets[USAGE_TARGETS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < *sampling->n_workers && n < USAGE_TARGETS_MAX; i++) {
        const struct worker_process *worker = &(*sampling->workers)[i];
        if (worker->stage == PROCESS_RUNNING)
            targets[n++] = (struct usage_target){(int32_t)worker->rank, worker->pid};
    }
    /* An empty packet would be the end. */
    if (n > 0) (void)send(sampling->fd, targets, n * sizeof *targets, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_on(const struct sampling *sampling, const struct usage_sample *sample) {
    Wire__UsageValue values[USAGE_VALUES_MAX], *list[USAGE_VALUES_MAX];
    Wire__UsageFault faults[USAGE_FAULTS_MAX], *fault_list[USAGE_FAULTS_MAX];
    Wire__Usage usage = WIRE__USAGE__INIT;
    for (uint32_t i = 0; i < sample->n_faults; i++) {
        faults[i] = (Wire__UsageFault)WIRE__USAGE_FAULT__INIT;
        faults[i].kind = sample->faults[i].kind;
        faults[i].device = (uint32_t)sample->faults[i].device;
        faults[i].code = sample->faults[i].code;
        fault_list[i] = &faults[i];
    }
    for (uint32_t i = 0; i < sample->n; i++) {
        values[i] = (Wire__UsageValue)WIRE__USAGE_VALUE__INIT;
        values[i].what = sample->values[i].what;
        values[i].number = sample->values[i].number;
        values[i].value = sample->values[i].value;
        list[i] = &values[i];
    }
    usage.time = sample->time;
    usage.values = list;
    usage.n_values = sample->n;
    usage.faults = fault_list;
    usage.n_faults = sample->n_faults;
    outbox_send(sampling->outbox, &WIRE_MESSAGE(USAGE, usage, &usage));
}

static void on_sample(void *context, unsigned events) {
    static struct usage_sample sample;
    struct sampling *sampling = context;
    (void)events;
    ssize_t size = recv(sampling->fd, &sample, sizeof sample, MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
        give_up(sampling, "the process that samples it ended");
        return;
    }
    if (!usage_is_whole(&sample, (size_t)size)) return;
    if (sample.n > 0) { /* faults come also from a sampler whose looks hang */
        expect_sample(sampling);
        send_targets(sampling);
    }
    /* A controller that does not keep up has better things to read than samples. */
    if (sampling->outbox->channel == NULL) return;
    if (channel_full(sampling->outbox->channel)) sample.n = 0;
    if (sample.n > 0 || sample.n_faults > 0) send_on(sampling, &sample);
}

static int start(struct sampling *sampling, ty_error *err) {
    CLEANUP_FD int theirs = -1;
    char period[24];
    int pair[2];
    (void)snprintf(period, sizeof period, "%lld", (long long)(sampling->period / NS_PER_MS));
    char *argv[] = {"trainyard", "agent", "--sample", period, NULL};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return ty_fail(err, -errno, "cannot open a socket: %s", strerror(errno));
    sampling->fd = pair[0];
    theirs = pair[1];
    send_targets(sampling);
    int result = spawn_own(argv, theirs, -1, &sampling->pid, err);
    if (result == 0) {
        sampling->watch = (struct loop_watch){.callback = on_sample, .context = sampling};
        int code = loop_watch_start(sampling->loop, &sampling->watch, sampling->fd, LOOP_READABLE);
        if (code == 0) return 0;
        (void)kill(sampling->pid, SIGKILL);
        result = ty_fail(err, code, "cannot watch a socket: %s", strerror(-code));
    }
    (void)close(TAKE_FD(sampling->fd));
    return result;
}

static void on_timer(void *context) {
    struct sampling *sampling = context;
    ty_error err = {0};
    if (sampling->state == SAMPLING_ON) {
        give_up(sampling, "the process that samples it does not answer, as when a driver hangs");
    } else if (sampling->pid > 0) { /* the kernel cannot end the one before */
        (void)loop_timer_start(sampling->loop, &sampling->timer, RESTART_AFTER);
    } else if (start(sampling, &err) < 0) {
        give_up(sampling, err.message);
    } else {
        sampling->state = SAMPLING_ON;
        expect_sample(sampling);
    }
}

void sampling_begin(struct sampling *sampling, nanoseconds period, struct worker_process *const *workers,
                    const size_t *n_workers) {
    sampling->workers = workers;
    sampling->n_workers = n_workers;
    if (period <= 0 || sampling->state != SAMPLING_OFF) return;
    sampling->period = period;
    sampling->timer = (struct loop_timer){.callback = on_timer, .context = sampling};
    sampling->state = SAMPLING_DUE;
    (void)loop_timer_start(sampling->loop, &sampling->timer, period);
}

void sampling_end(struct sampling *sampling) {
    if (sampling->state == SAMPLING_OFF) return;
    leave(sampling);
    if (sampling->pid <= 0) return;
    CLEANUP_FD int held = kernel_hold(sampling->pid);
    if (kernel_await(held, sampling->pid, END_MS) && waitpid(sampling->pid, NULL, WNOHANG) == sampling->pid)
        sampling->pid = 0;
}

bool sampling_owns(const struct sampling *sampling, pid_t pid) {
    return sampling->pid > 0 && sampling->pid == pid;
}

bool sampling_reaped(struct sampling *sampling, pid_t pid) {
    if (!sampling_owns(sampling, pid)) return false;
    sampling->pid = 0;
    return true;
}
