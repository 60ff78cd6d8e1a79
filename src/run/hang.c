/* Workers that hang, and nodes that are taken away.
 *
 * A hang ends the attempt like any other failure of a worker, but not at once: first every node saves the stacks of its workers, which
 * a stopped one cannot show any more. What happens meanwhile (another failure, an interrupt, the worker's own end) goes on as if
 * there were no hang, which then is not the cause. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/internal.h"

/* Stacks of the slowest node: two debuggers at a time, each within its own limit. */
static const nanoseconds STACKS_LIMIT = 30 * NS_PER_S;
/* What a worker that hung counts as: an exit with code 1. */
static const int HUNG_STATUS = 1 << 8;

static void await_stacks(struct run *run) {
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        struct node_slot *slot = &run->nodes[node];
        if (run->ops->stacks == NULL || slot->state != NODE_LAUNCHED || slot->n_alive == 0) continue;
        slot->saves_stacks = true;
        run->hang.n_awaited++;
        run->ops->stacks(run->context, node);
    }
}

/* The stacks are there, or are not waited for any longer. */
static void conclude(struct run *run) {
    struct run_failure failure = run->hang.failure;
    struct run_worker *worker = &run->workers[failure.rank];
    run->hang.failure.tail = NULL;
    run_hang_end(run);
    if (run->state != RUN_RUNNING || worker->exited) {
        free(failure.tail);
        return;
    }
    worker->hung = worker->failed = true;
    run_fail(run, &failure);
}

void run_worker_hung(struct run *run, uint32_t rank, const char *how, nanoseconds time) {
    if (rank >= run->config.n_workers || run->state != RUN_RUNNING || run->hang.collecting) return;
    enum worker_state state = run->workers[rank].state; /* one that waits in the store may never be ready */
    if (state != WORKER_STARTED && state != WORKER_READY) return;
    run_record_text(run, EVENT_HUNG, (int)rank, -1, "cause", how);
    run->hang.collecting = true;
    run->hang.failure = (struct run_failure){.outcome = OUTCOME_FAILED,
                                             .hung = true,
                                             .rank = (int)rank,
                                             .node = (int)run->config.node_of[rank],
                                             .wait_status = HUNG_STATUS,
                                             .time = time};
    (void)snprintf(run->hang.failure.text, sizeof run->hang.failure.text,
                   "rank %u hung: %s; stacks of all ranks: logs/rank-*.stack", rank, how);
    run->ops->set_timer(run->context, TIMER_STACKS, STACKS_LIMIT);
    await_stacks(run);
    if (run->hang.n_awaited == 0) conclude(run);
}

void run_node_stacks(struct run *run, uint32_t node, const void *frames, size_t size) {
    if (node >= run->config.n_nodes || !run->nodes[node].saves_stacks) return;
    struct run_failure *failure = &run->hang.failure;
    run->nodes[node].saves_stacks = false;
    if ((int)node == failure->node && size > 0) failure->tail = malloc(size);
    if (failure->tail != NULL && (int)node == failure->node) {
        memcpy(failure->tail, frames, size);
        failure->tail_size = size;
    }
    if (--run->hang.n_awaited == 0) conclude(run);
}

void run_stacks_late(struct run *run) {
    if (run->hang.collecting) conclude(run);
}

void run_hang_end(struct run *run) {
    if (run->hang.collecting) run->ops->set_timer(run->context, TIMER_STACKS, -1);
    free(run->hang.failure.tail);
    run->hang = (struct run_hang){0};
    for (uint32_t node = 0; node < run->config.n_nodes; node++)
        run->nodes[node].saves_stacks = false;
}

void run_preempt(struct run *run, int signal_number) {
    if (run->interrupts == 0) run->preempted = signal_number;
    run_interrupt(run, signal_number);
}

void run_node_leaving(struct run *run, uint32_t node, int preempted, nanoseconds time) {
    if (node >= run->config.n_nodes || run->nodes[node].state != NODE_LAUNCHED) return;
    if (run->nodes[node].leaving || (run->state != RUN_RUNNING && run->state != RUN_STOPPING)) return;
    struct run_failure failure = {.outcome = preempted > 0 ? OUTCOME_PREEMPTED : OUTCOME_NODE_LOST,
                                  .preempted = true,
                                  .rank = -1,
                                  .node = (int)node,
                                  .wait_status = preempted,
                                  .time = time};
    (void)snprintf(failure.text, sizeof failure.text, "%sthe agent was told to end",
                   preempted > 0 ? "preempted: " : "");
    run_note_leaving(run, node, &failure);
}
