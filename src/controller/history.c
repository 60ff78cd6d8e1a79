/* A fold over EVENT_PLAN, EVENT_ATTEMPT and EVENT_ATTEMPT_END; all other events only say that the run lived. */
#include "controller/history.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "worker/result.h"

static double seconds(nanoseconds time) {
    return (double)time / (double)NS_PER_S;
}

/* NULL without. */
static char *copy_text(struct history *history, const char *text) {
    char *copy = text == NULL ? NULL : strdup(text);
    if (text != NULL && copy == NULL) history->failed = true;
    return copy;
}

static void forget_nodes(struct history *history) {
    for (size_t i = 0; i < history->n_nodes; i++)
        free(history->nodes[i]);
    free(history->nodes);
    history->nodes = NULL;
    history->n_nodes = 0;
}

static void note_plan(struct history *history, const struct event_texts *nodes) {
    forget_nodes(history);
    history->nodes = calloc(nodes->n + 1, sizeof *history->nodes);
    if (history->nodes == NULL) {
        history->failed = true;
        return;
    }
    for (history->n_nodes = 0; history->n_nodes < nodes->n; history->n_nodes++)
        history->nodes[history->n_nodes] = copy_text(history, nodes->items[history->n_nodes]);
}

static void begin(struct history *history, const struct run_event *event) {
    struct ty_attempt_info *items = reallocarray(history->items, history->n + 1, sizeof *items);
    if (items == NULL) {
        history->failed = true;
        return;
    }
    int64_t workers = event->of.attempt.workers;
    history->items = items;
    items[history->n++] =
        (struct ty_attempt_info){.attempt = event->attempt,
                                 .num_workers = workers > 0 && workers < INT_MAX ? (int)workers : 0,
                                 .began = seconds(event->time),
                                 .rank = -1,
                                 .checkpoint = copy_text(history, event->of.attempt.checkpoint)};
}

/* The attempt that goes on, or NULL. */
static struct ty_attempt_info *current(const struct history *history) {
    struct ty_attempt_info *last = history->n == 0 ? NULL : &history->items[history->n - 1];
    return last != NULL && last->outcome == NULL ? last : NULL;
}

static void end(struct history *history, const struct run_event *event) {
    struct ty_attempt_info *attempt = current(history);
    const struct event_attempt_end *told = &event->of.attempt_end;
    if (attempt == NULL) return;
    attempt->ended = seconds(event->time);
    attempt->outcome = copy_text(history, told->outcome);
    if (told->rank >= 0 && told->rank < INT_MAX) attempt->rank = (int)told->rank;
    if (told->node >= 0 && (uint64_t)told->node < history->n_nodes)
        attempt->node = copy_text(history, history->nodes[told->node]);
    attempt->cause = copy_text(history, told->resize != NULL ? told->resize : told->cause);
}

void history_close(struct history *history) {
    struct ty_attempt_info *attempt = current(history);
    if (attempt == NULL) return;
    attempt->ended = seconds(history->last);
    attempt->outcome = copy_text(history, "died");
    attempt->cause = copy_text(history, "its controller died");
}

void history_note(struct history *history, const struct run_event *event) {
    if (event->kind == EVENT_RUN) history_close(history); /* another controller goes on with the run */
    if (event->kind == EVENT_PLAN) note_plan(history, &event->of.plan.nodes);
    if (event->kind == EVENT_ATTEMPT) begin(history, event);
    if (event->kind == EVENT_ATTEMPT_END) end(history, event);
    history->last = event->time;
}

static void add_text(struct buffer *out, const char *key, const char *text) {
    buffer_printf(out, ", \"%s\": ", key);
    buffer_json_text(out, text);
}

static void add_number(struct buffer *out, const char *key, bool known, double number) {
    if (known)
        buffer_printf(out, ", \"%s\": %.6f", key, number);
    else
        buffer_printf(out, ", \"%s\": null", key);
}

void history_json(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct ty_attempt_info *attempt = &items[i];
        bool ended = attempt->outcome != NULL;
        buffer_printf(out, "%s{\"attempt\": %d, \"num_workers\": %d", i > 0 ? ", " : "", attempt->attempt,
                      attempt->num_workers);
        add_number(out, "began", true, attempt->began);
        add_number(out, "ended", ended, attempt->ended);
        add_number(out, "seconds", true, (ended ? attempt->ended : seconds(now)) - attempt->began);
        add_text(out, "outcome", attempt->outcome);
        if (attempt->rank >= 0)
            buffer_printf(out, ", \"rank\": %d", attempt->rank);
        else
            add_text(out, "rank", NULL);
        add_text(out, "node", attempt->node);
        add_text(out, "cause", attempt->cause);
        add_text(out, "checkpoint", attempt->checkpoint);
        buffer_char(out, '}');
    }
    buffer_char(out, ']');
}

void history_done(struct history *history) {
    attempts_free(history->items, history->n);
    forget_nodes(history);
    *history = (struct history){0};
}
