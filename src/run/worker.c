/* What is heard of workers: each is a move in its table of states, and some are the failure of the attempt.
 * Also of agents that leave, of which workers may be the first to tell. What a failure leads to is decided in
 * run.c. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "run/internal.h"

void run_on_began(struct run *run, const struct run_input *input) {
    if (!run_move_worker(run, input->rank, WORKER_STARTED)) return;
    run->workers[input->rank].pid = input->pid;
    run_record_started(run, input->rank, input->time);
}

void run_on_ready(struct run *run, const struct run_input *input) {
    if (run_move_worker(run, input->rank, WORKER_READY))
        run_record_worker(run, EVENT_READY, input->rank, input->time);
}

void run_on_met(struct run *run, const struct run_input *input) {
    if (run->workers[input->rank].state == WORKER_READY)
        run_record_worker(run, EVENT_RENDEZVOUS, input->rank, input->time);
}

/* "rank 3 was killed by signal 9 (SIGKILL), out of memory": with what the agent knows beyond the status. */
static void describe_exit(struct run_failure *failure, const char *cause) {
    int status = failure->wait_status;
    bool known = cause != NULL && cause[0] != '\0';
    if (!known) cause = WIFSIGNALED(status) && WCOREDUMP(status) ? "core dumped" : "";
    const char *comma = cause[0] != '\0' ? ", " : "";
    if (!WIFSIGNALED(status)) {
        run_failure_text(failure, "rank %d exited with code %d%s%s", failure->rank, WEXITSTATUS(status), comma,
                         cause);
        return;
    }
    char text[32];
    run_failure_text(failure, "rank %d was killed by %s%s%s", failure->rank, str_signal(WTERMSIG(status), text),
                     comma, cause);
}

/* -- agents that leave */

/* A node that serves this attempt, and is not known to leave. */
static bool may_leave(const struct run *run, uint32_t node) {
    return run->nodes[node].state == NODE_LAUNCHED && !run->nodes[node].leaving;
}

static void note_leaving(struct run *run, uint32_t node) {
    run->nodes[node].leaving = true;
    run->n_leaving++;
}

/* Somebody else told the agent to end: the attempt fails, and waits for the agent's end. */
void run_on_leave(struct run *run, const struct run_input *input) {
    if (!may_leave(run, input->node)) return;
    int preempted = input->signal_number;
    struct run_failure failure = {.outcome = preempted > 0 ? OUTCOME_PREEMPTED : OUTCOME_NODE_LOST,
                                  .preempted = true,
                                  .rank = -1,
                                  .node = (int)input->node,
                                  .wait_status = preempted,
                                  .time = input->time};
    run_failure_text(&failure, "%sthe agent was told to end", preempted > 0 ? "preempted: " : "");
    note_leaving(run, input->node);
    run_fail(run, &failure);
}

void run_on_go(struct run *run, const struct run_input *input) {
    if (may_leave(run, input->node)) note_leaving(run, input->node);
}

/* A worker was told to stop, and not by this run: its agent was told to end, and could not say so. */
static void leave_with_worker(struct run *run, uint32_t rank, nanoseconds time) {
    uint32_t node = run->config.node_of[rank];
    struct run_failure failure = {
        .outcome = OUTCOME_NODE_LOST, .preempted = true, .rank = -1, .node = (int)node, .time = time};
    run_failure_text(&failure, "the agent of rank %u was told to end", rank);
    note_leaving(run, node);
    run_fail(run, &failure);
}

/* -- ends */

/* `told`: the workers of this attempt were told to stop.
 *
 * An end after that is no failure, but for a worker that had written that it failed before the one that is
 * taken for the cause did: it was told to stop while it still unwound, and is the cause. The status of one that
 * our own signal then ended says nothing of how it failed. */
static void take_exit(struct run *run, const struct run_input *input, bool told) {
    uint32_t rank = input->rank;
    const struct run_exit *exit = input->exit;
    if (!run_move_worker(run, rank, WORKER_EXITED)) return;
    struct run_worker *worker = &run->workers[rank];
    bool recorded = worker->exited; /* by the controller that this one has adopted the attempt of */
    worker->wait_status = exit->wait_status;
    worker->exited = true;
    bool earlier =
        exit->failed_at > 0 && run->failure.outcome == OUTCOME_FAILED && exit->failed_at < run->failure.time;
    worker->stopped = exit->stopped && !worker->hung && !earlier;
    worker->failed = worker->hung || (exit->wait_status != 0 && !worker->stopped);
    if (!recorded) run_record_exit(run, rank, worker->hung ? "it hung" : exit->cause, exit->time);
    if (worker->stopped && !told) leave_with_worker(run, rank, exit->time);
    if (worker->failed && !worker->hung) {
        struct run_failure failure = {
            .outcome = OUTCOME_FAILED,
            .rank = (int)rank,
            .node = (int)run->config.node_of[rank],
            .wait_status = exit->stopped && !WIFEXITED(exit->wait_status) ? UNTOLD_STATUS : exit->wait_status,
            .told = exit->failed_at > 0,
            .time = exit->failed_at > 0 ? exit->failed_at : exit->time,
            .tail = exit->tail_size > 0 ? malloc(exit->tail_size) : NULL};
        if (failure.tail != NULL) {
            memcpy(failure.tail, exit->tail, exit->tail_size);
            failure.tail_size = exit->tail_size;
        }
        describe_exit(&failure, exit->cause);
        run_fail(run, &failure);
    }
    run_reports_rank_ended(run, rank);
}

void run_on_exit(struct run *run, const struct run_input *input) {
    take_exit(run, input, false);
}

void run_on_end(struct run *run, const struct run_input *input) {
    take_exit(run, input, true);
}

/* One whose end nobody saw is stuck in the kernel, and was killed: if not for this run, then for its agent. */
static void take_gone(struct run *run, const struct run_input *input, bool told) {
    enum worker_state was = run->workers[input->rank].state;
    bool unseen = was == WORKER_STARTED || was == WORKER_READY;
    if (!run_move_worker(run, input->rank, WORKER_GONE)) return;
    run_record_worker(run, EVENT_GONE, input->rank, input->time);
    if (unseen && !told) leave_with_worker(run, input->rank, input->time);
    run_end_when_gone(run);
}

void run_on_gone(struct run *run, const struct run_input *input) {
    take_gone(run, input, false);
}

void run_on_left(struct run *run, const struct run_input *input) {
    take_gone(run, input, true);
}

/* A worker that was stopped before its turn came did not fail; where nobody told this run's workers to stop,
 * its agent was told to end. */
static void take_start_failure(struct run *run, const struct run_input *input, bool told) {
    uint32_t rank = input->rank;
    const struct run_start_failure *start = input->start;
    if (!run_move_worker(run, rank, WORKER_GONE)) return;
    run->workers[rank].stopped = start->stopped;
    run->workers[rank].failed = !start->stopped;
    run_record_start_failed(run, rank, start->why);
    struct run_failure failure = {.outcome = OUTCOME_START_FAILED,
                                  .transient = start->transient,
                                  .rank = (int)rank,
                                  .node = (int)run->config.node_of[rank],
                                  .time = start->time};
    run_failure_text(&failure, "rank %u could not be started: %s", rank, start->why);
    if (!start->stopped)
        run_fail(run, &failure);
    else if (!told)
        leave_with_worker(run, rank, start->time);
    run_end_when_gone(run);
}

void run_on_fail(struct run *run, const struct run_input *input) {
    take_start_failure(run, input, false);
}

void run_on_skip(struct run *run, const struct run_input *input) {
    take_start_failure(run, input, true);
}
