/* What the scheduler that lent the nodes says of them while a run goes on: a node that it drains, takes down or
 * no longer hears is an event, and a line for the user, with the scheduler's reason. A thread asks, seldom; and
 * at once when a node was lost, so that the loss is told with its reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "controller/ty_run.h"

static const nanoseconds FIRST_LOOK = 3 * NS_PER_S, INTERVAL = 30 * NS_PER_S;
static const nanoseconds LOSS_LIMIT = 2 * NS_PER_S; /* how long a loss waits for its reason */
static const nanoseconds FRESH = 1 * NS_PER_S;      /* nodes that are lost together are asked for once */
static const nanoseconds GOODBYE = 6 * NS_PER_S;

struct inquiry {
    struct storage_job job;
    const struct engine *engine;
    struct ty_run *run;   /* not the thread's: it may be gone when the answer comes */
    struct buffer answer; /* NODE, STATE and REASON, with tabs between; a line for each that is not well */
    int result;
};

/* -- an answer */

struct said {
    const char *node, *state, *reason;
};

/* False behind the last. */
static bool next_said(char *answer, char **rest, struct said *said) {
    for (char *line; (line = strtok_r(answer, "\n", rest)) != NULL; answer = NULL) {
        char *state = strchr(line, '\t'), *reason = state != NULL ? strchr(state + 1, '\t') : NULL;
        if (reason == NULL) continue;
        *state++ = *reason++ = '\0';
        *said = (struct said){line, state, reason};
        return true;
    }
    return false;
}

static void warn(const struct engine *engine, const struct said *said) {
    log_warning("controller", "%s: node %s is %s%s%s", engine->name, said->node, said->state,
                *said->reason != '\0' ? ": " : "", said->reason);
}

static void tell(struct ty_run *run, const struct said *said) {
    struct run_event event = run_event_new(EVENT_NODE_STATE);
    event.time = clock_wall();
    event.attempt = run->core != NULL ? run_attempt(run->core) : 0;
    event.of.node_state.name = said->node;
    event.of.node_state.scheduler = run->prepared.engine->name;
    event.of.node_state.state = said->state;
    if (*said->reason != '\0') event.of.node_state.reason = said->reason;
    note_event(run, &event, NULL);
    progress_hide(&run->output.progress);
    warn(run->prepared.engine, said);
}

/* In the thread: the scheduler's command may take its time. */
static void do_ask(struct storage_job *job) {
    struct inquiry *inquiry = (struct inquiry *)job;
    inquiry->result = inquiry->engine->ask(&inquiry->answer, NULL);
    buffer_text(&inquiry->answer, "");
}

/* Nodes that are not named are well, or are again. */
static void take_answer(struct storage_job *job) {
    struct inquiry *inquiry = (struct inquiry *)job;
    struct ty_run *run = inquiry->run;
    struct scheduler *scheduler = &run->scheduler;
    char *rest = NULL;
    scheduler->asking = false;
    scheduler->fresh_until = loop_now(run->loop) + (inquiry->result < 0 ? INTERVAL : FRESH);
    if (inquiry->result < 0 || inquiry->answer.failed) return;
    for (uint32_t node = 0; node < run->agents.n; node++)
        scheduler->nodes[node].named = false;
    struct said said;
    for (char *answer = inquiry->answer.data; next_said(answer, &rest, &said); answer = NULL) {
        const struct peer *peer = agents_find(run, said.node);
        struct node_said *known = peer != NULL ? &scheduler->nodes[peer->node] : NULL;
        if (known == NULL || known->named) continue;
        struct node_said now = {.named = true};
        (void)snprintf(now.text, sizeof now.text, "%s%s%s", said.state, *said.reason != '\0' ? ": " : "",
                       said.reason);
        if (strcmp(now.text, known->text) != 0) tell(run, &said);
        *known = now;
    }
    for (uint32_t node = 0; node < run->agents.n; node++)
        if (!scheduler->nodes[node].named) scheduler->nodes[node].text[0] = '\0';
}

void scheduler_explain(const struct engine *engine) {
    CLEANUP(buffer_done) struct buffer answer = {0};
    struct said said;
    char *rest = NULL;
    if (engine->ask == NULL || engine->ask(&answer, NULL) < 0) return;
    buffer_text(&answer, "");
    if (answer.failed) return;
    for (char *text = answer.data; next_said(text, &rest, &said); text = NULL)
        warn(engine, &said);
}

static void free_inquiry(struct storage_job *job) {
    struct inquiry *inquiry = (struct inquiry *)job;
    buffer_done(&inquiry->answer);
    free(inquiry);
}

static struct inquiry *make_inquiry(struct ty_run *run) {
    struct inquiry *inquiry = calloc(1, sizeof *inquiry);
    if (inquiry == NULL) return NULL;
    inquiry->run = run;
    inquiry->engine = run->prepared.engine;
    inquiry->job = (struct storage_job){.work = do_ask,
                                        .done = take_answer,
                                        .release = free_inquiry,
                                        .what = "asking for the nodes of engine",
                                        .path = run->prepared.engine->name,
                                        .lengthy = true};
    run->scheduler.asking = true;
    return inquiry;
}

/* -- asking */

static void on_timer(void *context) {
    struct ty_run *run = context;
    struct inquiry *inquiry = run->scheduler.asking ? NULL : make_inquiry(run);
    if (inquiry != NULL) storage_post(run->scheduler.storage, &inquiry->job);
    (void)loop_timer_start(run->loop, &run->scheduler.timer, INTERVAL);
}

static void on_answer(void *context, unsigned events) {
    (void)events;
    storage_take(((struct ty_run *)context)->scheduler.storage);
}

/* Waits, but never long, nor again soon where nobody answered: many nodes may be lost in one turn. An answer
 * that is on its way anyway is waited for in place of a question of our own; a question that is given up is let
 * go of by storage_do, and its answer comes to nobody. */
const char *scheduler_says(struct ty_run *run, const struct peer *peer) {
    struct scheduler *scheduler = &run->scheduler;
    if (scheduler->storage == NULL) return "";
    bool fresh = loop_now(run->loop) < scheduler->fresh_until, answered = true;
    struct inquiry *inquiry = fresh || scheduler->asking ? NULL : make_inquiry(run);
    if (inquiry != NULL)
        answered = storage_do(scheduler->storage, &inquiry->job, LOSS_LIMIT);
    else if (!fresh)
        answered = storage_wait(scheduler->storage, LOSS_LIMIT);
    if (answered)
        storage_take(scheduler->storage);
    else
        scheduler->fresh_until = loop_now(run->loop) + INTERVAL;
    if (!answered && inquiry != NULL) scheduler->asking = false; /* that inquiry was let go of */
    return scheduler->nodes[peer->node].text;
}

/* Where there is no memory, or no thread, for it the run goes on without. */
void scheduler_open(struct ty_run *run) {
    struct scheduler *scheduler = &run->scheduler;
    ty_error none = {0};
    if (run->prepared.engine->ask == NULL || scheduler->storage != NULL) return;
    scheduler->nodes = calloc(run->agents.max, sizeof *scheduler->nodes);
    if (scheduler->nodes == NULL || storage_open(-1, &scheduler->storage, &none) < 0) {
        free(TAKE(scheduler->nodes)); /* the next attempt tries again */
        return;
    }
    scheduler->timer = (struct loop_timer){.callback = on_timer, .context = run};
    scheduler->watch = (struct loop_watch){.callback = on_answer, .context = run};
    (void)loop_watch_start(run->loop, &scheduler->watch, storage_fd(scheduler->storage), LOOP_READABLE);
    (void)loop_timer_start(run->loop, &scheduler->timer, FIRST_LOOK);
}

void scheduler_close(struct ty_run *run) {
    struct scheduler *scheduler = &run->scheduler;
    if (scheduler->storage != NULL) {
        loop_timer_stop(run->loop, &scheduler->timer);
        loop_watch_stop(run->loop, &scheduler->watch);
        storage_close(TAKE(scheduler->storage), GOODBYE);
    }
    free(TAKE(scheduler->nodes));
}
