/* What is heard of workers: each is a move in its table of states, and some are the failure of the attempt. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "run/internal.h"

void run_worker_started(struct run *run, uint32_t rank, int pid, nanoseconds time) {
    if (!run_move_worker(run, rank, WORKER_STARTED)) return;
    run->workers[rank].pid = pid;
    run_record_started(run, rank, time);
}

void run_worker_ready(struct run *run, uint32_t rank, nanoseconds time) {
    if (run_move_worker(run, rank, WORKER_READY)) run_record(run, EVENT_READY, (int)rank, -1, time, NULL);
}

void run_worker_rendezvous(struct run *run, uint32_t rank, nanoseconds time) {
    if (rank < run->config.n_workers && run->workers[rank].state == WORKER_READY)
        run_record(run, EVENT_RENDEZVOUS, (int)rank, -1, time, NULL);
}

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

static char *copy_bytes(const void *bytes, size_t size) {
    char *copy = size == 0 ? NULL : malloc(size);
    return copy == NULL ? NULL : memcpy(copy, bytes, size);
}

void run_note_leaving(struct run *run, uint32_t node, const struct run_failure *failure) {
    run->nodes[node].leaving = true;
    run->n_leaving++;
    if (run->state == RUN_RUNNING) run_fail(run, failure);
}

/* A worker was told to stop, and not by this run: its agent was told to end, and could not say so. */
static void note_leaving(struct run *run, uint32_t rank, nanoseconds time) {
    uint32_t node = run->config.node_of[rank];
    struct run_failure failure = {
        .outcome = OUTCOME_NODE_LOST, .preempted = true, .rank = -1, .node = (int)node, .time = time};
    run_failure_text(&failure, "the agent of rank %u was told to end", rank);
    run_note_leaving(run, node, &failure);
}

void run_worker_exited(struct run *run, uint32_t rank, const struct run_exit *exit) {
    if (!run_move_worker(run, rank, WORKER_EXITED)) return;
    struct run_worker *worker = &run->workers[rank];
    worker->wait_status = exit->wait_status;
    worker->exited = true;
    worker->stopped = exit->stopped && !worker->hung;
    worker->failed = worker->hung || (exit->wait_status != 0 && !exit->stopped);
    run_record_exit(run, rank, worker->hung ? "it hung" : exit->cause, exit->time);
    if (worker->stopped && run->state == RUN_RUNNING) note_leaving(run, rank, exit->time);
    if (worker->failed && !worker->hung) {
        struct run_failure failure = {.outcome = OUTCOME_FAILED,
                                      .rank = (int)rank,
                                      .node = (int)run->config.node_of[rank],
                                      .wait_status = exit->wait_status,
                                      .time = exit->time,
                                      .tail = copy_bytes(exit->tail, exit->tail_size)};
        failure.tail_size = failure.tail == NULL ? 0 : exit->tail_size;
        describe_exit(&failure, exit->cause);
        run_fail(run, &failure);
    }
    run_reports_rank_ended(run, rank);
}

void run_worker_gone(struct run *run, uint32_t rank, nanoseconds time) {
    if (!run_move_worker(run, rank, WORKER_GONE)) return;
    run_record(run, EVENT_GONE, (int)rank, -1, time, NULL);
    run_end_when_gone(run);
}

void run_worker_start_failed(struct run *run, uint32_t rank, const struct run_start_failure *start) {
    if (!run_move_worker(run, rank, WORKER_GONE)) return;
    run->workers[rank].stopped = start->stopped;
    run->workers[rank].failed = !start->stopped;
    run_record_text(run, EVENT_START_FAILED, (int)rank, -1, "cause", start->why);
    struct run_failure failure = {.outcome = OUTCOME_START_FAILED,
                                  .transient = start->transient,
                                  .rank = (int)rank,
                                  .node = (int)run->config.node_of[rank],
                                  .time = start->time};
    run_failure_text(&failure, "rank %u could not be started: %s", rank, start->why);
    if (!start->stopped)
        run_fail(run, &failure);
    else if (run->state == RUN_RUNNING)
        note_leaving(run, rank, start->time);
    run_end_when_gone(run);
}
