/* Signals of an agent: children that ended, and those who ask it to end, because the machine is taken away or
 * for another reason. What a child's end means is its owner's to know: each is asked whether the child is its
 * own. */
#include <assert.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "agent/node_run.h"
#include "base/cleanup.h"
#include "base/log.h"

/* Workers may ask for it as soon as they are told to stop. */
void signals_set_preemption(struct node_run *run, const char *text) {
    char *copy = text != NULL ? strdup(text) : NULL;
    if (copy == NULL) {
        outbox_log(&run->outbox, LOG_LEVEL_WARNING,
                   "node %s: its workers are not told which machines are taken away: out of memory",
                   run->service->start->node_name);
        return;
    }
    free(run->preemption);
    run->channels.preemption = run->preemption = copy;
}

/* A worker whose pid was not told yet by the template is none that runs: its end is kept there until then. */
static struct worker_process *find_running(struct node_run *run, pid_t pid) {
    for (size_t i = 0; i < run->n_started; i++) { /* workers tend to end in the order of their start */
        size_t at = (run->reaped_hint + i) % run->n_started;
        struct worker_process *worker = &run->workers[at];
        if (worker->stage != PROCESS_RUNNING || worker->pid != pid) continue;
        run->reaped_hint = at + 1;
        return worker;
    }
    return NULL;
}

/* Told at the end of a worker, which mostly follows: what it asked for was not there. Of several workers it is
 * not known which one it was. */
static void tell_read(struct node_run *run, const struct worker_process *worker) {
    char text[48] = "a worker";
    if (run->read_told || !node_launch_was_read(&run->launch)) return;
    run->read_told = true;
    if (run->n_workers == 1) (void)snprintf(text, sizeof text, "rank %u", worker->rank);
    bool command = node_launch_face(&run->launch) == FACE_COMMAND;
    outbox_log(&run->outbox, LOG_LEVEL_WARNING,
               "%s read standard input, which was at its end: workers get none but by %s", text,
               command ? "--stdin RANK" : "`stdin`, the rank that is to get it");
}

/* Everything that ended is reaped here, workers and the orphans that this process adopted. A worker's pid is
 * ours until then, so no signal ever reaches a stranger. */
static void on_child_signal(void *context, int signal_number) {
    (void)signal_number;
    struct node_run *run = context;
    int status;
    struct rusage usage;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &usage)) > 0;) {
        if (WIFSTOPPED(status)) {
            /* A worker that asked to be traced by its parent (PTRACE_TRACEME) stops at each signal until the
             * parent lets it go on. It is traced no longer, and gets the signal, unless that only tells of its
             * exec. */
            int signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
            (void)ptrace(PTRACE_DETACH, pid, NULL, (void *)(intptr_t)signal);
            continue;
        }
        if (template_reaped(run->service->template, pid, status, &usage)) continue;
        if (stacks_reaped(&run->stacks, pid) || looks_reaped(&run->looks, pid)) continue;
        if (sampling_reaped(&run->sampling, pid)) continue;
        struct worker_process *worker = find_running(run, pid);
        if (worker == NULL) continue;
        tell_read(run, worker);
        worker_process_reaped(worker, status, &usage);
    }
    for (size_t i = 0; i < run->n_started; i++)
        worker_process_check_group(&run->workers[i]);
    node_sweep_check(&run->sweep);
}

static void add_ranks(const struct node_run *run, struct buffer *text) {
    for (size_t i = 0; i < run->n_workers; i++)
        buffer_printf(text, "%s%u", i > 0 ? ", " : "", run->workers[i].rank);
}

/* {"deadline", "ranks", "nodes", "ranks_of"}: this node and its workers. */
static void describe_preemption(struct node_run *run) {
    CLEANUP(buffer_done) struct buffer text = {0};
    double deadline = duration_seconds(clock_wall() + attempt_grace(run));
    buffer_printf(&text, "{\"deadline\": %.3f, \"ranks\": [", deadline);
    add_ranks(run, &text);
    buffer_text(&text, "], \"nodes\": [");
    buffer_json_text(&text, run->service->start->node_name);
    buffer_text(&text, "], \"ranks_of\": {");
    buffer_json_text(&text, run->service->start->node_name);
    buffer_text(&text, ": [");
    add_ranks(run, &text);
    buffer_text(&text, "]}}");
    signals_set_preemption(run, text.failed ? NULL : text.data);
}

/* A scheduler signals all processes of a step, and the keeper of an agent that joined hands its own signal on:
 * both are one word. */
static const nanoseconds ONE_SIGNAL = NS_PER_S / 2;

static void on_stop_signal(void *context, int signal_number) {
    struct node_run *run = context;
    bool again = run->signals > 0;
    if (again && loop_now(run->loop) - run->signalled_at < ONE_SIGNAL) return;
    if (!again) run->signalled_at = loop_now(run->loop);
    run->signals++;
    log_info("agent", "signal %d: ending", signal_number);
    if (!again && run->phase == NODE_RUN_ATTEMPT && signal_number != SIGINT) { /* a scheduler's */
        describe_preemption(run);
        run->service->status = 128 + signal_number; /* as that of a run that ends of it */
    }
    /* The others are to save what they have as well, also where the workers here have ended already. */
    if (!again && run->phase != NODE_RUN_OVER) {
        Wire__Leaving body = WIRE__LEAVING__INIT;
        body.signal = signal_number;
        outbox_send(&run->outbox, &WIRE_MESSAGE(LEAVING, leaving, &body));
    }
    node_run_end(run, again ? STOP_KILLED : STOP_TOLD);
}

/* Heard in any case. Slurm gives a step SIGUSR1, or what else `--signal` says, before the time is over. */
static const int stops[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

void signals_watch_preemption(struct node_run *run) {
    int number = run->launch.body->preempt_signal;
    for (size_t i = 0; i < ARRAY_SIZE(stops); i++)
        if (number == stops[i]) return;
    if (number == 0 || run->preempt_signal.callback != NULL) return;
    run->preempt_signal = (struct loop_signal){.callback = on_stop_signal, .context = run};
    (void)loop_signal_start(run->loop, &run->preempt_signal, number);
}

int signals_start(struct node_run *run) {
    static_assert(ARRAY_SIZE(stops) == ARRAY_SIZE(run->stop_signals), "each has a place");
    run->child_signal = (struct loop_signal){.callback = on_child_signal, .context = run};
    int code = loop_signal_start(run->loop, &run->child_signal, SIGCHLD);
    for (size_t i = 0; i < ARRAY_SIZE(stops) && code == 0; i++) {
        run->stop_signals[i] = (struct loop_signal){.callback = on_stop_signal, .context = run};
        code = loop_signal_start(run->loop, &run->stop_signals[i], stops[i]);
    }
    return code;
}

void signals_stop(struct node_run *run) {
    loop_signal_stop(run->loop, &run->child_signal);
    for (size_t i = 0; i < ARRAY_SIZE(run->stop_signals); i++)
        loop_signal_stop(run->loop, &run->stop_signals[i]);
    if (run->preempt_signal.callback != NULL) loop_signal_stop(run->loop, &run->preempt_signal);
}
