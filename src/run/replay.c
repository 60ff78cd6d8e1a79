/* What the events of a run come to: the one fold that the live run, a resume, `status` and the page go by, and
 * that the simulation holds against the run itself. One event after the other. Whatever a journal holds, ranks,
 * nodes and sizes are looked at before they are used: it may be damaged, or somebody else's. */
#include "run/replay.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { WORKERS_MAX = 10 * 1000 * 1000, NODES_MAX = 100 * 1000 };

/* NULL without. */
static char *copy_text(struct run_replay *replay, const char *text) {
    char *copy = text == NULL ? NULL : strdup(text);
    if (text != NULL && copy == NULL) replay->failed = true;
    return copy;
}

static void forget(struct kept_event *kept) {
    event_memory_done(&kept->memory);
    kept->event = (struct run_event){0};
}

/* A copy of the values is what is read of what is written of them. */
static void keep(struct run_replay *replay, struct kept_event *kept, const struct run_event *event) {
    CLEANUP(buffer_done) struct buffer text = {0};
    forget(kept);
    kept->event = *event;
    run_event_encode(event, &text);
    if (run_event_decode(&kept->event, text.failed ? NULL : text.data, &kept->memory) < 0 || text.failed)
        replay->failed = true;
}

/* -- attempts */

/* At least so many items, the new ones zero. False without memory; the array is as it was then. */
static bool make_room(struct run_replay *replay, void *items, size_t *n, size_t wanted, size_t size) {
    char *array;
    if (wanted <= *n) return true;
    if (array_resize(items, wanted, size) < 0) {
        replay->failed = true;
        return false;
    }
    memcpy(&array, items, sizeof array);
    memset(array + *n * size, 0, (wanted - *n) * size);
    *n = wanted;
    return true;
}

static void begin_attempt(struct run_replay *replay, const struct run_event *event) {
    const struct event_attempt *told = &event->of.attempt;
    size_t n = told->workers > 0 && told->workers <= WORKERS_MAX ? (size_t)told->workers : 0;
    forget(&replay->wait);
    replay->lost_node = replay->stops = false;
    forget(&replay->last_start.node);
    replay->last_start = (struct replay_start){
        .began = event->time, .planned = replay->plan_waits, .plan_seconds = replay->plan_waits_seconds};
    if (replay->first_start.began == 0) replay->first_start = replay->last_start; /* neither has a node yet */
    replay->plan_waits = false;
    replay->plan_waits_seconds = 0;
    if (replay->run.event.time != 0) keep(replay, &replay->attempt_run, &replay->run.event);
    if (told->nodes != EVENT_UNKNOWN) replay->nodes = told->nodes;
    if (ARRAY_GROW(replay->attempts, replay->n_attempts) < 0)
        replay->failed = true;
    else
        replay->attempts[replay->n_attempts++] =
            (struct ty_attempt_info){.attempt = event->attempt,
                                     .num_workers = (int)n,
                                     .began = duration_seconds(event->time),
                                     .rank = -1,
                                     .checkpoint = copy_text(replay, told->checkpoint)};
    if (!make_room(replay, &replay->workers, &replay->n_workers, n, sizeof *replay->workers)) return;
    for (size_t i = 0; i < n; i++)
        replay->workers[i] = (struct replay_worker){.state = WORKER_PLANNED};
    for (size_t i = n; i < replay->n_workers; i++)
        replay->workers[i].start = (struct worker_start){0};
}

/* The attempt that goes on, or NULL. */
static struct ty_attempt_info *current(const struct run_replay *replay) {
    struct ty_attempt_info *last = replay->n_attempts == 0 ? NULL : &replay->attempts[replay->n_attempts - 1];
    return last != NULL && last->outcome == NULL ? last : NULL;
}

static void end_attempt(struct run_replay *replay, const struct run_event *event) {
    struct ty_attempt_info *attempt = current(replay);
    const struct event_attempt_end *told = &event->of.attempt_end;
    if (attempt == NULL) return;
    attempt->ended = duration_seconds(event->time);
    attempt->outcome = copy_text(replay, told->outcome);
    if (told->rank >= 0 && told->rank < INT_MAX) attempt->rank = (int)told->rank;
    const struct event_texts *names = &replay->plan.event.of.plan.nodes;
    bool known = replay->plan.event.time != 0 && told->node >= 0 && (uint64_t)told->node < names->n;
    attempt->node = copy_text(replay, known ? names->items[told->node] : NULL);
    attempt->cause = copy_text(replay, told->resize != NULL ? told->resize : told->cause);
}

/* It did not die with its controller. */
static void go_on(struct run_replay *replay, const struct run_event *event) {
    struct ty_attempt_info *last = replay->n_attempts == 0 ? NULL : &replay->attempts[replay->n_attempts - 1];
    if (last == NULL || last->attempt != event->attempt || last->outcome == NULL) return;
    free((char *)last->outcome);
    free((char *)last->cause);
    last->outcome = last->cause = NULL;
    last->ended = 0;
}

void replay_close(struct run_replay *replay) {
    struct ty_attempt_info *attempt = current(replay);
    if (attempt == NULL) return;
    attempt->ended = duration_seconds(replay->last);
    attempt->outcome = copy_text(replay, "died");
    attempt->cause = copy_text(replay, "its controller died");
}

double attempt_seconds(const struct ty_attempt_info *attempt, nanoseconds now) {
    double end = attempt->outcome != NULL ? attempt->ended : duration_seconds(now);
    return end > attempt->began ? end - attempt->began : 0;
}

/* -- workers */

nanoseconds replay_able(const struct worker_start *start) {
    if (start->rendezvous > 0) return start->rendezvous;
    return start->ready > 0 ? start->ready : start->started;
}

static void note_worker(struct replay_worker *worker, const struct run_event *event) {
    switch ((int)event->kind) {
    case EVENT_STARTED:
        worker->state = WORKER_STARTED;
        worker->pid = event->of.started.pid;
        worker->start = (struct worker_start){.started = event->time};
        break;
    case EVENT_READY:
        worker->state = WORKER_READY;
        worker->start.ready = event->time;
        break;
    case EVENT_RENDEZVOUS:
        worker->start.rendezvous = event->time;
        break;
    case EVENT_EXITED:
        worker->state = WORKER_EXITED;
        worker->stopped = event->of.exited.stopped;
        worker->failed = !worker->stopped && event->of.exited.code != 0;
        break;
    case EVENT_START_FAILED:
        worker->state = WORKER_GONE;
        worker->failed = true;
        break;
    case EVENT_GONE:
        worker->state = WORKER_GONE;
        break;
    default:
        break;
    }
}

/* To each worker of the attempt its orders were sent. */
static void launch(struct run_replay *replay, const struct run_event *event) {
    const struct ty_attempt_info *attempt = current(replay);
    if (replay->last_start.launched == 0) replay->last_start.launched = event->time;
    if (replay->n_attempts == 1) replay->first_start.launched = replay->last_start.launched;
    size_t n = attempt != NULL ? (size_t)attempt->num_workers : 0;
    for (size_t rank = 0; rank < n && rank < replay->n_workers; rank++)
        if (replay->workers[rank].state == WORKER_PLANNED) replay->workers[rank].state = WORKER_LAUNCHED;
}

/* A node takes its workers with it, and nobody is left there who could tell of each. */
static void lose_node(struct run_replay *replay, const struct run_event *event) {
    int node = event->node;
    const struct event_numbers *node_of = &replay->plan.event.of.plan.ranks;
    if (current(replay) == NULL) return;
    replay->lost_node |= !event->of.node_lost.swept;
    for (size_t rank = 0; rank < node_of->n && rank < replay->n_workers; rank++) {
        struct replay_worker *worker = &replay->workers[rank];
        bool there = worker->state != WORKER_PLANNED && worker->state != WORKER_GONE;
        if (node < 0 || node_of->items[rank] != (uint32_t)node || !there) continue;
        if (worker->state != WORKER_EXITED) *(replay->stops ? &worker->stopped : &worker->failed) = true;
        worker->state = WORKER_GONE;
    }
}

/* -- the run */

static void note_plan(struct run_replay *replay, const struct run_event *event) {
    double took = event->of.plan.seconds;
    keep(replay, &replay->plan, event);
    if (!(took >= 0 && took < 1e9)) return;
    if (took > replay->plan_waits_seconds) replay->plan_waits_seconds = took;
    replay->plan_waits = true;
}

static void note_node(struct run_replay *replay, const struct run_event *event) {
    if (event->attempt <= 1) keep(replay, &replay->first_start.node, event);
    if (replay->last_start.began > 0) keep(replay, &replay->last_start.node, event);
    if (event->node < 0 || event->node >= NODES_MAX) return;
    if (make_room(replay, &replay->node_events, &replay->n_node_events, (size_t)event->node + 1,
                  sizeof *replay->node_events))
        keep(replay, &replay->node_events[event->node], event);
}

void replay_note(struct run_replay *replay, const struct run_event *event) {
    switch ((int)event->kind) {
    case EVENT_RUN:
        /* Another controller goes on with the run, or the first one begins. */
        replay_close(replay);
        keep(replay, &replay->run, event);
        forget(&replay->end);
        forget(&replay->wait);
        if (replay->id == NULL) replay->id = copy_text(replay, event->of.run.id);
        break;
    case EVENT_WAIT:
        if (replay->wait.event.time == 0) replay->waits_since = event->time;
        keep(replay, &replay->wait, event);
        break;
    case EVENT_PLAN:
        note_plan(replay, event);
        break;
    case EVENT_NETWORK:
        keep(replay, &replay->network, event);
        break;
    case EVENT_HARDWARE:
        keep(replay, &replay->hardware, event);
        replay->n_hardware++;
        break;
    case EVENT_ATTEMPT:
        begin_attempt(replay, event);
        break;
    case EVENT_NODE:
        note_node(replay, event);
        break;
    case EVENT_NODE_LOST:
        lose_node(replay, event);
        break;
    case EVENT_ADOPTED:
        go_on(replay, event);
        break;
    case EVENT_LAUNCHED:
        launch(replay, event);
        break;
    case EVENT_STOP:
        replay->stops = true;
        break;
    case EVENT_ATTEMPT_END:
        end_attempt(replay, event);
        break;
    case EVENT_RUN_END:
        keep(replay, &replay->end, event);
        break;
    default:
        if (event->rank >= 0 && (size_t)event->rank < replay->n_workers)
            note_worker(&replay->workers[event->rank], event);
    }
    if (event->attempt > replay->attempt) replay->attempt = event->attempt;
    replay->last = event->time;
}

void replay_done(struct run_replay *replay) {
    struct kept_event *const kept[] = {&replay->run,  &replay->attempt_run,      &replay->plan,
                                       &replay->wait, &replay->network,          &replay->hardware,
                                       &replay->end,  &replay->first_start.node, &replay->last_start.node};
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        forget(kept[i]);
    attempts_free(replay->attempts, replay->n_attempts);
    for (size_t i = 0; i < replay->n_node_events; i++)
        forget(&replay->node_events[i]);
    free(replay->node_events);
    free(replay->workers);
    free(replay->id);
    *replay = (struct run_replay){0};
}

bool replay_cause_names_node(const char *cause, const char *node) {
    (void)str_prefix(cause, "the agent of ", &cause);
    return str_prefix(cause, "node ", &cause) && str_prefix(cause, node, &cause) && strcspn(cause, " ,:") == 0;
}
