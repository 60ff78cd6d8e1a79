/* The doors of a run: what happened becomes an input, and the table (table.c) says what follows in the state in
 * which the run is. An input that names a node or rank that is none of this run's is not let in. What is done
 * with an input is in the file of its concern, as run_on_x. */
#include "run/internal.h"

/* An input that names no node, or no rank, has 0 there, which every run has. */
static void take(struct run *run, struct run_input input) {
    if (input.node < run->config.n_nodes && input.rank < run->config.n_workers) run_take(run, &input);
}

void run_start(struct run *run) {
    take(run, (struct run_input){.kind = INPUT_START});
}

void run_adopt(struct run *run, const struct run_adoption *adoption) {
    take(run, (struct run_input){.kind = INPUT_ADOPT, .adoption = adoption});
}

void run_node_up(struct run *run, uint32_t node, const struct event_node *about) {
    take(run, (struct run_input){.kind = INPUT_NODE_UP, .node = node, .about = about});
}

void run_node_lost(struct run *run, uint32_t node, const char *why) {
    take(run, (struct run_input){.kind = INPUT_NODE_LOST, .node = node, .text = why, .transient = true});
}

void run_node_left(struct run *run, uint32_t node, const char *why) {
    take(run, (struct run_input){
                  .kind = INPUT_NODE_LOST, .node = node, .text = why, .transient = true, .clean = true});
}

void run_node_refused(struct run *run, uint32_t node, const char *why) {
    take(run, (struct run_input){.kind = INPUT_NODE_LOST, .node = node, .text = why});
}

void run_node_leaving(struct run *run, uint32_t node, int preempted, nanoseconds time) {
    take(run,
         (struct run_input){.kind = INPUT_LEAVING, .node = node, .signal_number = preempted, .time = time});
}

void run_node_bye(struct run *run, uint32_t node, bool clean, uint32_t leftovers) {
    take(run, (struct run_input){.kind = INPUT_BYE, .node = node, .clean = clean, .leftovers = leftovers});
}

void run_node_unclean(struct run *run, uint32_t node) {
    take(run, (struct run_input){.kind = INPUT_UNCLEAN, .node = node});
}

void run_worker_started(struct run *run, uint32_t rank, int pid, nanoseconds time) {
    take(run, (struct run_input){.kind = INPUT_STARTED, .rank = rank, .pid = pid, .time = time});
}

void run_worker_ready(struct run *run, uint32_t rank, nanoseconds time) {
    take(run, (struct run_input){.kind = INPUT_READY, .rank = rank, .time = time});
}

void run_worker_rendezvous(struct run *run, uint32_t rank, nanoseconds time) {
    take(run, (struct run_input){.kind = INPUT_RENDEZVOUS, .rank = rank, .time = time});
}

void run_worker_exited(struct run *run, uint32_t rank, const struct run_exit *exit) {
    take(run, (struct run_input){.kind = INPUT_EXITED, .rank = rank, .exit = exit});
}

void run_worker_start_failed(struct run *run, uint32_t rank, const struct run_start_failure *start) {
    take(run, (struct run_input){.kind = INPUT_NOT_STARTED, .rank = rank, .start = start});
}

void run_worker_gone(struct run *run, uint32_t rank, nanoseconds time) {
    take(run, (struct run_input){.kind = INPUT_GONE, .rank = rank, .time = time});
}

void run_worker_hung(struct run *run, uint32_t rank, const char *how, nanoseconds time) {
    take(run, (struct run_input){.kind = INPUT_HUNG, .rank = rank, .text = how, .time = time});
}

void run_node_stacks(struct run *run, uint32_t node, const void *frames, size_t size) {
    take(run, (struct run_input){.kind = INPUT_STACKS, .node = node, .frames = frames, .size = size});
}

void run_device_fault(struct run *run, const struct run_fault *fault) {
    take(run, (struct run_input){.kind = INPUT_FAULT, .node = fault->node, .fault = fault});
}

void run_report(struct run *run, const struct run_report *report) {
    take(run, (struct run_input){.kind = INPUT_REPORT, .rank = report->rank, .report = report});
}

void run_published(struct run *run, uint64_t number, char *path, const char *error) {
    take(run, (struct run_input){.kind = INPUT_PUBLISHED, .number = number, .path = path, .text = error});
}

void run_checked(struct run *run) {
    take(run, (struct run_input){.kind = INPUT_CHECKED});
}

void run_room_changed(struct run *run) {
    take(run, (struct run_input){.kind = INPUT_ROOM});
}

void run_interrupt(struct run *run, int signal_number) {
    take(run, (struct run_input){.kind = INPUT_INTERRUPT, .signal_number = signal_number});
}

void run_preempt(struct run *run, int signal_number) {
    take(run, (struct run_input){.kind = INPUT_INTERRUPT, .signal_number = signal_number, .preempts = true});
}

void run_quit(struct run *run, int signal_number) {
    take(run, (struct run_input){.kind = INPUT_QUIT, .signal_number = signal_number});
}

void run_timer_fired(struct run *run, enum run_timer timer) {
    take(run, (struct run_input){.kind = (enum run_input_kind)timer});
}
