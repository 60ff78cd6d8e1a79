/* The course of a run: how attempts begin, stop and end, and what follows. Which of these entries an input
 * finds in which state is in table.c; each decision is made in one of run_begin_attempt, run_fail,
 * end_attempt and finish. What happened is put into words in record.c. */
#include "run/run.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "run/internal.h"

/* Beyond the grace: the agent's own kill and the news of it. */
static const nanoseconds STOP_MARGIN = 5 * NS_PER_S;
/* Beyond the grace of what workers left behind. */
static const nanoseconds FINISH_LIMIT = 10 * NS_PER_S;
/* How long the end of an attempt waits for storage; one that is stopped no longer than the grace. */
static const nanoseconds STORAGE_LIMIT = 30 * NS_PER_S;

int run_create(const struct run_config *config, const struct run_ops *ops, void *context, struct run **out,
               ty_error *err) {
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL) return ty_fail_memory(err);
    *run = (struct run){.config = *config, .ops = ops, .context = context, .report_base = config->report_base};
    run->last_number = config->report_base;
    run->attempt = config->first_attempt - 1;
    if (run->config.max_workers < config->n_workers) run->config.max_workers = config->n_workers;
    if (run->config.max_nodes < config->n_nodes) run->config.max_nodes = config->n_nodes;
    run->workers = calloc(run->config.max_workers, sizeof *run->workers);
    run->nodes = calloc(run->config.max_nodes, sizeof *run->nodes);
    if (config->checkpoint != NULL) run->checkpoint = strdup(config->checkpoint);
    if (run->workers == NULL || run->nodes == NULL || (config->checkpoint != NULL && run->checkpoint == NULL)) {
        run_destroy(run);
        return ty_fail_memory(err);
    }
    run_count_nodes(run);
    run->counts[WORKER_PLANNED] = config->n_workers;
    *out = run;
    return 0;
}

void run_destroy(struct run *run) {
    if (run == NULL) return;
    run_reports_end(run);
    run_suspect_forget(run);
    free(run->hang.failure.tail);
    free(run->failure.tail);
    free(run->checkpoint);
    free(run->workers);
    free(run->nodes);
    free(run);
}

void run_count_nodes(struct run *run) {
    run->n_needed = run->n_up = 0;
    for (uint32_t node = 0; node < run->config.n_nodes; node++)
        run->nodes[node].n_workers = 0;
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        struct node_slot *node = &run->nodes[run->config.node_of[rank]];
        if (node->n_workers++ > 0) continue;
        run->n_needed++;
        run->n_up += node->state == NODE_UP;
    }
}

bool run_move(struct run *run, enum run_state to) {
    if (!run_state_may_follow(run->state, to)) return false;
    log_debug("run", "%s -> %s", run_state_name(run->state), run_state_name(to));
    if (run->state == RUN_HANGING) run_hang_end(run);
    run->state = to;
    return true;
}

/* A node that the attempt needs counts as up from its hello until it is lost, also while it is launched or
 * finishes. */
static bool move_node(struct run *run, uint32_t node, enum node_state to) {
    if (node >= run->config.n_nodes || !node_state_may_follow(run->nodes[node].state, to)) return false;
    enum node_state from = run->nodes[node].state;
    log_debug("run", "node %u: %s -> %s", node, node_state_name(from), node_state_name(to));
    run->nodes[node].state = to;
    bool needed = run->nodes[node].n_workers > 0;
    if (to == NODE_UP && from == NODE_CONNECTING) run->n_up += needed;
    if (to == NODE_LOST && from != NODE_CONNECTING) run->n_up -= needed;
    return true;
}

/* A worker is alive from its launch until it is gone; one that went while it was planned never was. */
bool run_move_worker(struct run *run, uint32_t rank, enum worker_state to) {
    if (rank >= run->config.n_workers) return false;
    struct run_worker *worker = &run->workers[rank];
    if (!worker_state_may_follow(worker->state, to)) return false;
    log_debug("run", "rank %u: %s -> %s", rank, worker_state_name(worker->state), worker_state_name(to));
    struct node_slot *node = &run->nodes[run->config.node_of[rank]];
    run->counts[worker->state]--;
    run->counts[to]++;
    if (to == WORKER_LAUNCHED) run->n_alive++, node->n_alive++;
    if (to == WORKER_GONE && worker->state != WORKER_PLANNED) run->n_alive--, node->n_alive--;
    worker->state = to;
    return true;
}

/* -- the course of things */

static void finish(struct run *run);
static void end_attempt(struct run *run);
static void launch_when_up(struct run *run);

/* An agent that cannot be started is a node that was lost: what follows is what the table has for that in the
 * state of the run, and may be the end of the attempt before this returns. */
static void start_node(struct run *run, uint32_t node) {
    ty_error err = {0};
    if (!move_node(run, node, NODE_CONNECTING)) return;
    int result = run->ops->start_node(run->context, node, &err);
    if (result == 0) return;
    struct run_input lost = {
        .kind = INPUT_NODE_LOST, .node = node, .text = err.message, .transient = error_may_pass(result)};
    run_take(run, &lost);
}

/* Marked first: many ranks name the same node, whose agent is started once. */
void run_start_nodes(struct run *run, const uint32_t *node_of, uint32_t n) {
    for (uint32_t rank = 0; rank < n; rank++)
        run->nodes[node_of[rank]].wanted = true;
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        if (run->nodes[node].wanted) start_node(run, node);
        run->nodes[node].wanted = false;
    }
}

/* The failure of the attempt before it is the reason, and is then forgotten. */
void run_begin_attempt(struct run *run) {
    run->attempt++;
    run->report_base = run->last_number;
    run_record_attempt(run);
    free(run->failure.tail);
    run->failure = (struct run_failure){.rank = -1, .node = -1};
    run_suspect_forget(run);
    run->began = run->ops->now(run->context);
    run->retries = false;
    for (uint32_t i = 0; i < run->config.n_workers; i++) {
        (void)run_move_worker(run, i, WORKER_PLANNED);
        run->workers[i] = (struct run_worker){.state = WORKER_PLANNED, .reports = run->report_base};
    }
    run->ops->set_timer(run->context, TIMER_START, run->config.start_limit);
    /* A node that cannot be started may end the attempt at once. */
    for (uint32_t node = 0; node < run->config.n_nodes && run->state == RUN_STARTING; node++)
        if (run->nodes[node].n_workers > 0) start_node(run, node);
    launch_when_up(run);
}

/* Agents end their workers by themselves at the end of the grace; a node on which some are left so long after
 * it is ended by force (run_on_force). */
static void stop_workers(struct run *run, bool kill, const char *reason) {
    run_record_stop(run, kill, reason);
    for (uint32_t node = 0; node < run->config.n_nodes; node++)
        if (run->nodes[node].state == NODE_LAUNCHED && run->nodes[node].n_alive > 0)
            run->ops->stop(run->context, node, kill, reason);
    nanoseconds limit = (kill ? 0 : run->config.grace) + STOP_MARGIN;
    run->ops->set_timer(run->context, TIMER_STOP, limit);
}

/* One that stops already goes on with it. Where only a commit is still to come nobody is to be stopped, but
 * an agent that leaves is waited for like a worker. */
void run_stop_attempt(struct run *run, const char *reason) {
    switch (run->state) {
    case RUN_STARTING:
        /* Nothing was launched yet: the attempt is over at once. */
        run->ops->set_timer(run->context, TIMER_START, -1);
        for (uint32_t rank = 0; rank < run->config.n_workers; rank++)
            (void)run_move_worker(run, rank, WORKER_GONE);
        (void)run_move(run, RUN_STOPPING);
        end_attempt(run);
        break;
    case RUN_RUNNING:
    case RUN_HANGING:
    case RUN_COMPLETING:
        (void)run_move(run, run->state == RUN_COMPLETING ? RUN_COMMITTING : RUN_STOPPING);
        if (run->n_alive > 0 || run->n_leaving > 0) stop_workers(run, run->interrupts > 1, reason);
        break;
    default:
        break;
    }
}

/* Ended by what no peer's end brings about; an exit code, SIGABRT or SIGPIPE is often only the echo of a death
 * elsewhere. */
static bool is_crash(const struct run_failure *failure) {
    static const int signals[] = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
    bool found = false;
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        found |= WIFSIGNALED(failure->wait_status) && WTERMSIG(failure->wait_status) == signals[i];
    return failure->outcome == OUTCOME_FAILED && found;
}

/* The first failure is the cause. One that comes after it is of a rank that had not yet been told to stop, or
 * that had failed before. */
void run_fail(struct run *run, const struct run_failure *failure) {
    const struct run_failure *other = &run->failure;
    bool first = other->outcome == OUTCOME_NONE;
    /* A later word is the cause where it came first. What a worker itself wrote has its time; an end may come
     * late. Where neither says so they happened as good as at once, and a crash is the cause of the rest. */
    bool before =
        failure->told ? failure->time < other->time : !other->told && is_crash(failure) && !is_crash(other);
    if (!first && (other->outcome != OUTCOME_FAILED || !before)) {
        free(failure->tail);
        return;
    }
    if (first) run->failed_at = run->ops->now(run->context);
    free(run->failure.tail);
    run->failure = *failure;
    run_stop_attempt(run, run->failure.text);
}

void run_failure_text(struct run_failure *failure, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)str_vprint(failure->text, sizeof failure->text, format, args);
    va_end(args);
}

static void describe_limit(const struct run *run, struct run_failure *failure) {
    CLEANUP(buffer_done) struct buffer text = {0};
    *failure =
        (struct run_failure){.outcome = OUTCOME_TIME_LIMIT, .rank = -1, .node = -1, .time = run->out_of_time};
    duration_format(run->config.time_limit, &text);
    run_failure_text(failure, "the time limit of %s passed", text.failed ? "the run" : text.data);
}

/* Whatever the attempt failed of is behind it: it is the limit that keeps another one from following. */
static void blame_limit(struct run *run) {
    free(run->failure.tail);
    describe_limit(run, &run->failure);
    run->outcome = OUTCOME_TIME_LIMIT;
}

bool retry_next(struct retry *retry, const struct failure_policy *policy, enum failure_kind kind,
                nanoseconds lasted, uint64_t random, nanoseconds *pause) {
    const int limits[] = {
#define X(name, limit) [name] = policy->limit,
        RUN_FAILURE_KINDS(X)
#undef X
    };
    if (retry->counts[kind] < INT32_MAX) retry->counts[kind]++;
    if (limits[kind] >= 0 && retry->counts[kind] > limits[kind]) return false;
    if (lasted >= RETRY_SHORT) retry->row = 0;
    if (retry->row < INT32_MAX) retry->row++;
    *pause = 0;
    if (retry->row <= 1) return true;
    nanoseconds whole = RETRY_FIRST_PAUSE;
    for (int i = 2; i < retry->row && whole < RETRY_LONGEST_PAUSE; i++)
        whole *= 2;
    if (whole > RETRY_LONGEST_PAUSE) whole = RETRY_LONGEST_PAUSE;
    /* Up to half of it is left to chance: runs that failed together do not come back together. */
    *pause = whole - (nanoseconds)(random % (uint64_t)(whole / 2 + 1));
    return true;
}

/* Counts what the attempt failed of; whether another one follows, and when, is then in `retries` and
 * `pause`. */
static void decide_retry(struct run *run) {
    run->pause = 0;
    run->retries = run->outcome == OUTCOME_RESIZED;
    if (run->retries) return;
    enum run_outcome outcome = run->failure.outcome;
    enum failure_kind kind = run->failure.preempted            ? FAILURE_PREEMPTION
                             : outcome == OUTCOME_START_FAILED ? FAILURE_START
                                                               : FAILURE_TRAINING;
    bool may_pass = outcome == OUTCOME_FAILED || outcome == OUTCOME_NODE_LOST || outcome == OUTCOME_PREEMPTED ||
                    (outcome == OUTCOME_START_FAILED && run->failure.transient);
    run->retries = may_pass && run->interrupts == 0 &&
                   retry_next(&run->retry, &run->config.failures, kind, run->failed_at - run->began,
                              run->ops->random(run->context), &run->pause);
}

static enum run_outcome attempt_outcome(const struct run *run) {
    if (run->interrupts > 0) return run->preempted > 0 ? OUTCOME_PREEMPTED : OUTCOME_INTERRUPTED;
    return run->failure.outcome == OUTCOME_NONE ? OUTCOME_SUCCEEDED : run->failure.outcome;
}

/* How long storage is waited for; a run that is stopped waits no longer than the grace, and the second time
 * not at all. */
static void set_storage_timer(struct run *run) {
    nanoseconds grace = run->interrupts == 1 ? run->config.grace : 0;
    bool stopped = run->interrupts > 0 && grace < STORAGE_LIMIT;
    run->ops->set_timer(run->context, TIMER_STORAGE, stopped ? grace : STORAGE_LIMIT);
}

/* Every worker is gone, and nothing is on its way any more: the end, or another attempt, at once or after the
 * pause that failures cost, and from a checkpoint that is whole.
 *
 * The order matters. A commit that is still being waited for is settled first, since what it saved is not lost.
 * The outcome decides whether there is another attempt, which the record of the end tells; a device that
 * explains the failure is named in it. Only then do the nodes hear, as what they are told stands behind it. */
static void end_attempt(struct run *run) {
    run->ops->set_timer(run->context, TIMER_STOP, -1);
    run->ops->set_timer(run->context, TIMER_STORAGE, -1);
    run_reports_end(run);
    run->outcome = attempt_outcome(run);
    if (run_resize_end(run)) run->outcome = OUTCOME_RESIZED;
    decide_retry(run);
    run_suspect_blame(run);
    if (run->outcome != OUTCOME_RESIZED) run_count_lost(run, run->ops->now(run->context));
    bool late = run->retries && run->out_of_time > 0;
    run->retries = run->retries && !late;
    run_record_attempt_end(run);
    run->resize.saved = run->ops->now(run->context); /* an attempt that is not launched loses nothing */
    if (late) blame_limit(run);
    if (!run->retries) {
        finish(run);
        return;
    }
    for (uint32_t node = 0; node < run->config.n_nodes; node++) /* one that connects has not said hello yet */
        if (run->nodes[node].state == NODE_LAUNCHED) (void)move_node(run, node, NODE_UP);
    bool pauses = run->pause > 0;
    bool checks = run->ops->check(run->context);
    if (checks) set_storage_timer(run);
    if (pauses) run->ops->set_timer(run->context, TIMER_PAUSE, run->pause);
    if (pauses || checks)
        (void)run_move(run, pauses && checks ? RUN_RESTING : pauses ? RUN_PAUSING : RUN_CHECKING);
    else
        run_next_attempt(run);
}

/* An agent that leaves is waited for: a next attempt needs a new one. So is storage, which may be slow:
 * inputs are heard meanwhile, and a commit that gets into its place counts. */
void run_end_when_gone(struct run *run) {
    bool waits = run->state == RUN_COMPLETING || run->state == RUN_COMMITTING;
    bool launched = run->state == RUN_RUNNING || run->state == RUN_HANGING;
    if (run->n_alive > 0 || run->n_leaving > 0) return;
    if (!waits && !launched && run->state != RUN_STOPPING) return;
    if (!run_reports_publishing(run)) {
        end_attempt(run);
    } else if (!waits) {
        run->ops->set_timer(run->context, TIMER_STOP, -1);
        set_storage_timer(run);
        (void)run_move(run, launched ? RUN_COMPLETING : RUN_COMMITTING);
    }
}

static void end_run_when_bye(struct run *run) {
    if (run->n_bye > 0 || !run_move(run, RUN_ENDED)) return;
    for (int timer = 0; timer < RUN_TIMERS; timer++)
        run->ops->set_timer(run->context, (enum run_timer)timer, -1);
    run_record_end(run);
    run->ops->ended(run->context);
}

/* Agents are told that it is over; each proves that nothing is left and says bye. One that has not said hello
 * runs nothing, and is not waited for. */
static void finish(struct run *run) {
    if (!run_move(run, RUN_FINISHING)) return;
    run->ops->set_timer(run->context, TIMER_FINISH, run->config.grace + FINISH_LIMIT);
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        if (move_node(run, node, NODE_FINISHING)) {
            run->n_bye++;
            run->ops->finish(run->context, node);
        } else if (run->nodes[node].state == NODE_CONNECTING) {
            run->ops->abandon(run->context, node);
            (void)move_node(run, node, NODE_LOST);
        }
    }
    end_run_when_bye(run);
}

/* The workers of a node went with it; `why` is recorded for those that never were there. */
static void drop_workers(struct run *run, uint32_t node, const char *why) {
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        if (run->config.node_of[rank] != node || !run_move_worker(run, rank, WORKER_GONE)) continue;
        if (why != NULL) run_record_start_failed(run, rank, why);
        run_reports_rank_ended(run, rank);
    }
}

/* The gang is launched when every node is up, all in one go. */
static void launch_when_up(struct run *run) {
    if (run->state != RUN_STARTING || run->n_up < run->n_needed || !run_move(run, RUN_RUNNING)) return;
    run->ops->set_timer(run->context, TIMER_START, -1);
    for (uint32_t node = 0; node < run->config.n_nodes; node++)
        if (run->nodes[node].n_workers > 0) (void)move_node(run, node, NODE_LAUNCHED);
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++)
        (void)run_move_worker(run, rank, WORKER_LAUNCHED);
    run_record_launched(run);
    run_resize_launched(run);
    /* Sends the launch to every node; from the first that cannot be sent to on, nothing runs. */
    struct run_failure failure = {.rank = -1};
    ty_error err = {0};
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        if (run->nodes[node].n_workers == 0) continue;
        if (failure.outcome == OUTCOME_NONE && run->ops->launch(run->context, node, run->attempt, &err) < 0) {
            failure.outcome = OUTCOME_START_FAILED;
            failure.transient = error_may_pass(err.code);
            failure.node = (int)node;
            failure.time = run->ops->wall(run->context);
            run_failure_text(&failure, "the launch could not be sent: %s", err.message);
        }
        if (failure.outcome != OUTCOME_NONE) drop_workers(run, node, failure.text);
    }
    if (failure.outcome == OUTCOME_NONE) return;
    run_fail(run, &failure);
    run_end_when_gone(run);
}

/* -- nodes come and go */

void run_on_join(struct run *run, const struct run_input *input) {
    if (run->nodes[input->node].state != NODE_CONNECTING || !move_node(run, input->node, NODE_UP)) return;
    run_record_node(run, input->node, input->about);
}

void run_on_enrol(struct run *run, const struct run_input *input) {
    run_on_join(run, input);
    launch_when_up(run);
}

/* A node that an elastic run would grow into. */
void run_on_probe(struct run *run, const struct run_input *input) {
    run_on_join(run, input);
    run_resize_node(run);
}

/* The node is gone, and with it what was there. False when it was not there. */
static bool note_loss(struct run *run, const struct run_input *loss) {
    uint32_t node = loss->node;
    bool finishing = run->nodes[node].state == NODE_FINISHING;
    if (!move_node(run, node, NODE_LOST)) return false;
    if (run->nodes[node].leaving) run->n_leaving--;
    run->nodes[node].leaving = false;
    run_record_node_lost(run, loss);
    if (finishing) {
        run->n_bye--;
        run->unclean = true;
    }
    drop_workers(run, node, NULL);
    return true;
}

/* The attempt fails of a node that was in the state `was`, unless nothing of the attempt was there. */
static void fail_of_loss(struct run *run, const struct run_input *loss, enum node_state was) {
    struct run_failure failure = {.outcome = was == NODE_CONNECTING ? OUTCOME_START_FAILED : OUTCOME_NODE_LOST,
                                  .transient = loss->transient,
                                  .rank = -1,
                                  .node = (int)loss->node,
                                  .time = run->ops->wall(run->context)};
    run_failure_text(&failure, "%s", loss->text);
    if (run->nodes[loss->node].n_workers > 0)
        run_fail(run, &failure);
    else
        run_resize_node(run);
    run_end_when_gone(run);
}

void run_on_lose(struct run *run, const struct run_input *input) {
    enum node_state was = run->nodes[input->node].state;
    if (note_loss(run, input)) fail_of_loss(run, input, was);
}

/* The workers were told to stop: a node less to wait for. */
void run_on_miss(struct run *run, const struct run_input *input) {
    if (note_loss(run, input)) run_end_when_gone(run);
}

void run_on_drop(struct run *run, const struct run_input *input) {
    (void)note_loss(run, input);
}

void run_on_part(struct run *run, const struct run_input *input) {
    if (note_loss(run, input)) end_run_when_bye(run);
}

void run_on_bye(struct run *run, const struct run_input *input) {
    if (!move_node(run, input->node, NODE_GONE)) return;
    run->n_bye--;
    run->leftovers += input->leftovers;
    if (!input->clean) run->unclean = true;
    run_record_clean(run, input->node, input->clean, input->leftovers);
    end_run_when_bye(run);
}

void run_on_stain(struct run *run, const struct run_input *input) {
    run->unclean = true;
    run_record_clean(run, input->node, false, 0);
}

/* Nodes that do not answer within a limit are ended by force, all of them, before one brings about what may
 * be another attempt: that one is returned, and has workers if any of them has. n_nodes: there was none. A
 * launched node that has no worker left, and is not leaving, owes no answer. */
static uint32_t abandon(struct run *run, enum node_state state, const char *why) {
    uint32_t found = run->config.n_nodes;
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        const struct node_slot *slot = &run->nodes[node];
        bool idle = state == NODE_LAUNCHED && slot->n_alive == 0 && !slot->leaving;
        if (slot->state != state || idle) continue;
        run->ops->abandon(run->context, node);
        (void)note_loss(run, &(struct run_input){.node = node, .text = why});
        if (found == run->config.n_nodes || run->nodes[found].n_workers == 0) found = node;
    }
    return found;
}

static const char *const NO_HELLO = "its agent did not say hello within the start limit";

void run_on_late(struct run *run, const struct run_input *input) {
    (void)input;
    struct run_input loss = {.text = NO_HELLO, .transient = true};
    loss.node = abandon(run, NODE_CONNECTING, NO_HELLO);
    if (loss.node < run->config.n_nodes) fail_of_loss(run, &loss, NODE_CONNECTING);
}

/* Of an attempt that did not come to need them. */
void run_on_prune(struct run *run, const struct run_input *input) {
    (void)input;
    (void)abandon(run, NODE_CONNECTING, NO_HELLO);
}

void run_on_force(struct run *run, const struct run_input *input) {
    (void)input;
    (void)abandon(run, NODE_LAUNCHED, "its workers were not gone after the grace and a kill");
    run_end_when_gone(run);
}

void run_on_shut(struct run *run, const struct run_input *input) {
    (void)input;
    (void)abandon(run, NODE_FINISHING, "its agent did not say bye");
    end_run_when_bye(run);
}

/* -- between attempts */

static void forget_timers(struct run *run) {
    run->ops->set_timer(run->context, TIMER_PAUSE, -1);
    run->ops->set_timer(run->context, TIMER_STORAGE, -1);
}

/* The checkpoint was looked at, or is not waited for any longer; the pause is not over. */
void run_on_pause(struct run *run, const struct run_input *input) {
    (void)input;
    run->ops->set_timer(run->context, TIMER_STORAGE, -1);
    (void)run_move(run, RUN_PAUSING);
}

/* The pause is over; the checkpoint was not looked at. */
void run_on_check(struct run *run, const struct run_input *input) {
    (void)input;
    (void)run_move(run, RUN_CHECKING);
}

void run_on_next(struct run *run, const struct run_input *input) {
    (void)input;
    forget_timers(run);
    run_next_attempt(run);
}

/* There will be no next attempt. */
static void give_up_pause(struct run *run) {
    run->retries = false;
    run->outcome = attempt_outcome(run);
    forget_timers(run);
    finish(run);
}

/* Nobody waits any longer for the commit that the end of the attempt waited for, nor for an agent that
 * leaves: a next attempt would wait for that one at its own end. */
void run_on_close(struct run *run, const struct run_input *input) {
    (void)input;
    (void)abandon(run, NODE_LAUNCHED, "its agent was told to end, and did not");
    end_attempt(run);
}

/* -- the time limit */

/* The attempt fails of it, if of nothing else; there is no other attempt, whatever this one fails of. */
void run_on_limit(struct run *run, const struct run_input *input) {
    (void)input;
    struct run_failure failure;
    run->out_of_time = run->ops->wall(run->context);
    describe_limit(run, &failure);
    run_fail(run, &failure);
}

void run_on_over(struct run *run, const struct run_input *input) {
    (void)input;
    run->out_of_time = run->ops->wall(run->context);
    blame_limit(run);
    give_up_pause(run);
}

/* -- start and interrupts */

void run_on_begin(struct run *run, const struct run_input *input) {
    (void)input;
    (void)run_move(run, RUN_STARTING);
    if (run->config.time_limit > 0) run->ops->set_timer(run->context, TIMER_LIMIT, run->config.time_limit);
    if (run->interrupts == 0) {
        run_begin_attempt(run);
    } else {
        run->outcome = attempt_outcome(run);
        finish(run);
    }
}

/* Workers that ended meanwhile are told of as if they did now. */
void run_on_adopt(struct run *run, const struct run_input *input) {
    const struct run_adoption *adoption = input->adoption;
    (void)run_move(run, RUN_RUNNING);
    if (run->config.time_limit > 0) run->ops->set_timer(run->context, TIMER_LIMIT, run->config.time_limit);
    run->began = run->ops->now(run->context);
    run->failure = (struct run_failure){.rank = -1, .node = -1};
    run->report_base = adoption->report_base;
    /* Step by step, so that the sums are those of an attempt that began here. */
    for (uint32_t node = 0; node < run->config.n_nodes; node++) {
        static const enum node_state way[] = {NODE_CONNECTING, NODE_UP, NODE_LAUNCHED};
        for (size_t i = 0; i < ARRAY_SIZE(way) && run->nodes[node].n_workers > 0; i++)
            (void)move_node(run, node, way[i]);
    }
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        const struct run_worker *known = &adoption->workers[rank];
        run->workers[rank].pid = known->pid;
        run->workers[rank].reports = known->reports;
        run->workers[rank].exited = known->exited;
        for (enum worker_state state = WORKER_LAUNCHED; state <= known->state; state++)
            (void)run_move_worker(run, rank, state);
    }
    run_record_adopted(run);
    run_resize_launched(run);
    if (run->interrupts > 0) run_stop_attempt(run, run->preempted > 0 ? "preempted" : "interrupted");
}

/* The first interrupt is the reason of the end; every further one hurries it. */
void run_on_count(struct run *run, const struct run_input *input) {
    if (run->interrupts++ > 0) return;
    run->interrupt_signal = input->signal_number;
    if (input->preempts) run->preempted = input->signal_number;
}

void run_on_halt(struct run *run, const struct run_input *input) {
    run_on_count(run, input);
    run_stop_attempt(run, run->preempted > 0 ? "preempted" : "interrupted");
}

/* The first interrupt of an attempt that stops already, for a failure or another size, changes nothing but that
 * none follows; the next one kills. */
void run_on_kill(struct run *run, const struct run_input *input) {
    run_on_count(run, input);
    if (run->interrupts > 1) stop_workers(run, true, "interrupted again");
}

/* Only a commit is still to come: the first interrupt leaves it the grace, the next one nothing. */
void run_on_rush(struct run *run, const struct run_input *input) {
    run_on_halt(run, input);
    set_storage_timer(run);
}

void run_on_quit(struct run *run, const struct run_input *input) {
    run_on_count(run, input);
    give_up_pause(run);
}

/* Agents still give what workers left behind its grace: no more of it. */
void run_on_hurry(struct run *run, const struct run_input *input) {
    run_on_count(run, input);
    for (uint32_t node = 0; node < run->config.n_nodes && run->interrupts > 1; node++)
        if (run->nodes[node].state == NODE_FINISHING)
            run->ops->stop(run->context, node, true, "interrupted again");
}
