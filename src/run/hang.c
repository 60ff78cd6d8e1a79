/* Workers that hang, and a user who thinks that they do.
 *
 * A hang ends the attempt like any other failure of a worker, but not at once: first every node saves the
 * stacks of its workers, which a stopped one cannot show any more. Another failure, an interrupt or the end of
 * all workers meanwhile goes on as if there were no hang, which then is not the cause. A run that is to quit
 * saves the stacks as well, and then kills its workers. */
#include <stdlib.h>
#include <string.h>

#include "run/internal.h"

/* Stacks of the slowest node: two debuggers at a time, each within its own limit. */
static const nanoseconds STACKS_LIMIT = 30 * NS_PER_S;

/* The stacks are there, or are not waited for any longer. The rank may have come to an end of its own
 * meanwhile. */
static void conclude(struct run *run) {
    struct run_failure failure = run->hang.failure;
    run->hang.failure.tail = NULL;
    (void)run_move(run, RUN_RUNNING);
    if (failure.outcome == OUTCOME_INTERRUPTED) {
        run_on_halt(run, &(struct run_input){.kind = INPUT_QUIT});
        return;
    }
    struct run_worker *worker = &run->workers[failure.rank];
    if (worker->exited) {
        free(failure.tail);
        return;
    }
    worker->hung = worker->failed = true;
    run_fail(run, &failure);
}

/* Of all nodes, also those on which nobody hangs: what the hung rank waits for may be there. */
static void save_stacks(struct run *run) {
    (void)run_move(run, RUN_HANGING);
    run->ops->set_timer(run->context, TIMER_STACKS, STACKS_LIMIT);
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        struct node_slot *slot = &run->nodes[node];
        if (slot->state != NODE_LAUNCHED || slot->n_alive == 0) continue;
        slot->saves_stacks = true;
        run->hang.n_awaited++;
        run->ops->stacks(run->context, node);
    }
    if (run->hang.n_awaited == 0) conclude(run);
}

void run_on_hang(struct run *run, const struct run_input *input) {
    uint32_t rank = input->rank;
    enum worker_state state = run->workers[rank].state; /* one that waits in the store may never be ready */
    if (state != WORKER_STARTED && state != WORKER_READY) return;
    run_record_hung(run, rank, input->text);
    run->hang.failure = (struct run_failure){.outcome = OUTCOME_FAILED,
                                             .hung = true,
                                             .rank = (int)rank,
                                             .node = (int)run->config.node_of[rank],
                                             .wait_status = UNTOLD_STATUS,
                                             .time = input->time};
    run_failure_text(&run->hang.failure, "rank %u hung: %s; stacks of all ranks: logs/rank-*.stack", rank,
                     input->text);
    save_stacks(run);
}

void run_on_dump(struct run *run, const struct run_input *input) {
    run_on_count(run, input); /* whatever happens meanwhile, no further attempt follows */
    run->hang.failure = (struct run_failure){.outcome = OUTCOME_INTERRUPTED, .rank = -1, .node = -1};
    save_stacks(run);
}

/* An answer of a node that was not asked, or has answered, is of an earlier hang. */
void run_on_stack(struct run *run, const struct run_input *input) {
    struct run_failure *failure = &run->hang.failure;
    if (!run->nodes[input->node].saves_stacks) return;
    run->nodes[input->node].saves_stacks = false;
    bool tells = (int)input->node == failure->node && input->size > 0;
    if (tells) failure->tail = malloc(input->size);
    if (tells && failure->tail != NULL) {
        memcpy(failure->tail, input->frames, input->size);
        failure->tail_size = input->size;
    }
    if (--run->hang.n_awaited == 0) conclude(run);
}

void run_on_blame(struct run *run, const struct run_input *input) {
    (void)input;
    conclude(run);
}

void run_hang_end(struct run *run) {
    run->ops->set_timer(run->context, TIMER_STACKS, -1);
    free(run->hang.failure.tail);
    run->hang = (struct run_hang){0};
    for (uint32_t node = 0; node < run->config.n_nodes; node++)
        run->nodes[node].saves_stacks = false;
}
