/* What ends a run from outside: signals, stops of its owner's, and machines that are taken away. The first one
 * says which of the two it is, an interrupt or a preemption, and lets workers end; a second one ends them at
 * once. What that leads to is the core's to decide; before the core is there, the run is just over. */
#include <signal.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "controller/ty_run.h"

int preempt_signal_of(const struct run_request *request) {
    return request->settings.preempt_signal > 0 ? request->settings.preempt_signal : SIGTERM;
}

/* The ranks of one node, or of all (-1). */
static void add_ranks(const struct ty_run *run, int node, struct buffer *out) {
    const char *comma = "";
    for (size_t rank = 0; rank < run->prepared.plan->n_workers; rank++) {
        if (node >= 0 && run->agents.node_of[rank] != (uint32_t)node) continue;
        buffer_printf(out, "%s%zu", comma, rank);
        comma = ", ";
    }
}

/* Names of nodes, with the ranks of each where those are asked for. */
static void add_nodes(const struct ty_run *run, int node, bool with_ranks, struct buffer *out) {
    const struct run_agents *agents = &run->agents;
    const char *comma = "";
    for (uint32_t i = 0; i < agents->n; i++) {
        if (node >= 0 ? i != (uint32_t)node : agents->peers[i].node_rank == NODE_UNUSED) continue;
        buffer_text(out, comma);
        buffer_json_text(out, agents->peers[i].name);
        if (with_ranks) buffer_text(out, ": [");
        if (with_ranks) add_ranks(run, (int)i, out);
        if (with_ranks) buffer_text(out, "]");
        comma = ", ";
    }
}

/* Notes what workers are to be told: all ranks and nodes, or those of one node (its number, else -1). */
static void describe_preemption(struct ty_run *run, int node) {
    struct buffer *out = &run->interruption.told;
    double deadline = duration_seconds(clock_wall() + run->request->settings.grace);
    buffer_clear(out);
    buffer_printf(out, "{\"deadline\": %.3f, \"ranks\": [", deadline);
    add_ranks(run, node, out);
    buffer_text(out, "], \"nodes\": [");
    add_nodes(run, node, false, out);
    buffer_text(out, "], \"ranks_of\": {");
    add_nodes(run, node, true, out);
    buffer_text(out, "}}");
    if (out->failed) buffer_done(out);
}

void interrupt_node(struct ty_run *run, uint32_t node, int signal_number) {
    /* No terminal and no user speaks to an agent: what is no SIGINT is its scheduler's, whatever tells this
     * process. */
    bool preempted = signal_number != SIGINT;
    (void)scheduler_says(run, &run->agents.peers[node]); /* told before the failure is */
    if (preempted && run->interruption.level == UNINTERRUPTED) describe_preemption(run, (int)node);
    run_node_leaving(run->core, node, preempted ? signal_number : 0, clock_wall());
}

static void tell(struct ty_run *run, int signal_number) {
    CLEANUP(buffer_done) struct buffer grace = {0};
    char name[32];
    const char *by =
        signal_number > 0 ? str_signal(signal_number, name) : "stopped by the program that runs it";
    duration_format(run->request->settings.grace, &grace);
    progress_hide(&run->output.progress);
    if (run->phase == PHASE_OPENING)
        log_warning("controller", "%s: the run is not resumed", by);
    else if (run_state_of(run->core) == RUN_PAUSING)
        log_warning("controller", "%s: no further attempt begins", by);
    else if (run_awaits_commit(run->core))
        log_warning("controller",
                    "%s: the last checkpoint has %s to be committed; once more ends the run at once", by,
                    grace.failed ? "the grace" : grace.data);
    else if (signal_number == SIGQUIT && run_state_of(run->core) == RUN_RUNNING)
        log_warning("controller",
                    "%s: the stacks of all ranks go to %s/logs/rank-*.stack, then the workers are killed; once "
                    "more kills them at once",
                    by, run->path);
    else
        log_warning("controller", "%s: workers have %s to end; once more ends them at once", by,
                    grace.failed ? "their grace" : grace.data);
}

static void note(struct interruption *interruption, enum run_phase phase, int signal_number) {
    if (interruption->level == UNINTERRUPTED) interruption->phase = phase;
    interruption->level = interruption->level == UNINTERRUPTED ? INTERRUPTED : HURRIED;
    interruption->signal = signal_number;
}

/* What an interrupt is to a run in each of its phases. One that waits or opens has nobody to stop: it is over
 * at once, or when the storage lets go of it. */
static void interrupt(struct ty_run *run, int signal_number) {
    if (run->phase == PHASE_LINGERING) run_storage_stop_lingering(run);
    if (run->phase == PHASE_OVER) return;
    note(&run->interruption, run->phase, signal_number);
    if (run->phase == PHASE_RUNNING && signal_number == SIGQUIT && run->interruption.level == INTERRUPTED) {
        run_quit(run->core, signal_number);
    } else if (run->phase == PHASE_RUNNING) {
        run_interrupt(run->core, signal_number);
    } else if (run->phase == PHASE_OPENING) {
        checkpoints_stop_check(run->checkpoints); /* the look at what was left ends as soon as it can */
        run_storage_linger(run);
    } else {
        run->phase = PHASE_OVER;
    }
}

void interrupt_by_force(struct ty_run *run) {
    interrupt(run, SIGTERM);
    interrupt(run, SIGTERM);
}

/* Only the first signal of a run that goes on can be a preemption, and only the one by which the scheduler
 * tells of it. From the second on nobody waits for output that is not taken. */
void interrupt_run(void *context, int signal_number) {
    struct ty_run *run = context;
    bool first = run->interruption.level == UNINTERRUPTED;
    if (run->phase == PHASE_OVER) return;
    if (run->phase == PHASE_LINGERING) {
        run_storage_stop_lingering(run);
        return;
    }
    if (first) run->interruption.by_program = signal_number == 0;
    if (first && run->phase != PHASE_WAITING)
        tell(run, signal_number);
    else
        (void)output_drop(run);
    if (signal_number == 0) signal_number = SIGINT;
    if (!first || run->phase != PHASE_RUNNING || signal_number != preempt_signal_of(run->request)) {
        interrupt(run, signal_number);
        return;
    }
    note(&run->interruption, run->phase, signal_number);
    describe_preemption(run, -1);
    run_preempt(run->core, signal_number);
}

/* -- signals of the process */

/* The loop's library installs handlers of its own: those that were there are read before, ours after it, so
 * that interruption_close can tell whether the program has set others since. */
void interruption_listen(struct ty_run *run) {
    struct interruption *in = &run->interruption;
    int more = preempt_signal_of(run->request);
    bool known = more == SIGINT || more == SIGTERM || more == SIGHUP || more == SIGQUIT;
    const int numbers[SIGNALS_HANDLED] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, known ? 0 : more};
    memcpy(in->numbers, numbers, sizeof numbers);
    for (size_t i = 0; i < SIGNALS_HANDLED; i++) {
        in->handles[i] = (struct loop_signal){.callback = interrupt_run, .context = run};
        if (numbers[i] == 0 || sigaction(numbers[i], NULL, &in->saved[i]) < 0) continue;
        in->own[i] = in->saved[i];
        if (in->saved[i].sa_handler == SIG_IGN) continue; /* nohup, or a shell that runs us in the background */
        (void)loop_signal_start(run->loop, &in->handles[i], numbers[i]);
        (void)sigaction(numbers[i], NULL, &in->own[i]);
    }
}

/* What the program has set in place of ours meanwhile stays. */
void interruption_close(struct ty_run *run) {
    struct interruption *in = &run->interruption;
    for (size_t i = 0; i < SIGNALS_HANDLED; i++) {
        struct sigaction now;
        if (in->numbers[i] == 0 || sigaction(in->numbers[i], NULL, &now) < 0) continue;
        loop_signal_stop(run->loop, &in->handles[i]);
        bool ours = now.sa_handler == in->own[i].sa_handler;
        (void)sigaction(in->numbers[i], ours ? &in->saved[i] : &now, NULL);
    }
}
