/* How a run stands, and how it ended: what others may ask of it between two inputs. Nothing is changed here but
 * for two words of the controller's, where a run begins from and that it tries no more. Numbers of exit
 * statuses are those of docs/design.md 5.3. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "run/internal.h"

const char *run_outcome_name(enum run_outcome outcome) {
    static const char *const names[] = {
#define X(name, text, status) [name] = text,
        RUN_OUTCOMES(X)
#undef X
    };
    return names[outcome];
}

enum run_state run_state_of(const struct run *run) {
    switch (run->state) {
    case RUN_HANGING:
    case RUN_COMPLETING:
        return RUN_RUNNING;
    case RUN_COMMITTING:
        return RUN_STOPPING;
    case RUN_RESTING:
    case RUN_CHECKING:
    case RUN_WAITING:
        return RUN_PAUSING;
    default:
        return run->state;
    }
}

int run_attempt(const struct run *run) {
    return run->attempt;
}

uint64_t run_report_base(const struct run *run) {
    return run->report_base;
}

uint32_t run_size(const struct run *run) {
    return run->config.n_workers;
}

const char *run_resize_text(const struct run *run) {
    return run->resize.text;
}

const struct run_worker *run_worker(const struct run *run, uint32_t rank) {
    return &run->workers[rank];
}

void run_count(const struct run *run, uint32_t counts[WORKER_STATE_COUNT]) {
    memcpy(counts, run->counts, sizeof run->counts);
}

enum node_state run_node_state(const struct run *run, uint32_t node) {
    return run->nodes[node].state;
}

const char *run_checkpoint(const struct run *run) {
    return run->checkpoint;
}

int run_begin_from(struct run *run, const char *path) {
    bool same = run->checkpoint == path || str_equal(run->checkpoint, path);
    if (same) return 0;
    char *copy = path != NULL ? strdup(path) : NULL;
    if (path != NULL && copy == NULL) return -ENOMEM;
    free(run->checkpoint);
    run->checkpoint = copy;
    return 0;
}

void run_retry_no_more(struct run *run) {
    run->config.failures = (struct failure_policy){0};
}

bool run_awaits_commit(const struct run *run) {
    return run->state == RUN_COMPLETING || run->state == RUN_COMMITTING;
}

bool run_checks(const struct run *run) {
    return run->state == RUN_RESTING || run->state == RUN_CHECKING;
}

bool run_retries(const struct run *run, nanoseconds *pause) {
    *pause = run->pause;
    return run->retries;
}

enum run_outcome run_outcome(const struct run *run) {
    return run->outcome;
}

const struct run_failure *run_failure(const struct run *run) {
    return &run->failure;
}

static int exit_code(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int run_worker_exit(const struct run *run, uint32_t rank) {
    const struct run_worker *worker = &run->workers[rank];
    return worker->exited ? exit_code(worker->wait_status) : -1;
}

int run_exit_status(const struct run *run) {
    static const int statuses[] = {
#define X(name, text, status) [name] = status,
        RUN_OUTCOMES(X)
#undef X
    };
    if (run->interrupts > 0 && (run->outcome == OUTCOME_INTERRUPTED || run->outcome == OUTCOME_PREEMPTED))
        return 128 + run->interrupt_signal;
    if (run->outcome == OUTCOME_PREEMPTED) return 128 + run->failure.wait_status;
    if (run->outcome == OUTCOME_FAILED) return exit_code(run->failure.wait_status);
    return statuses[run->outcome];
}

bool run_clean(const struct run *run, uint32_t *leftovers) {
    *leftovers = run->leftovers;
    return !run->unclean;
}
