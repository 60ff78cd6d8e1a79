/* A fold over EVENT_PLAN, EVENT_ATTEMPT and EVENT_ATTEMPT_END; all other events only say that the run lived. */
#include "controller/history.h"

#include <jansson.h>
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

static char *copy_member(struct history *history, const json_t *data, const char *key) {
    return copy_text(history, json_string_value(json_object_get(data, key)));
}

static void note_plan(struct history *history, const char *data) {
    free(history->plan);
    history->plan = copy_text(history, data);
}

static char *node_name(struct history *history, const json_t *data) {
    const json_t *node = json_object_get(data, "node");
    if (history->plan == NULL || !json_is_integer(node) || json_integer_value(node) < 0) return NULL;
    json_t *plan = json_loads(history->plan, JSON_ALLOW_NUL, NULL);
    const json_t *name = json_array_get(json_object_get(plan, "nodes"), (size_t)json_integer_value(node));
    char *copy = copy_text(history, json_string_value(name));
    json_decref(plan);
    return copy;
}

static void begin(struct history *history, const struct run_event *event, const json_t *data) {
    struct ty_attempt_info *items = reallocarray(history->items, history->n + 1, sizeof *items);
    if (items == NULL) {
        history->failed = true;
        return;
    }
    history->items = items;
    items[history->n++] =
        (struct ty_attempt_info){.attempt = event->attempt,
                                 .num_workers = (int)json_integer_value(json_object_get(data, "workers")),
                                 .began = seconds(event->time),
                                 .rank = -1,
                                 .checkpoint = copy_member(history, data, "checkpoint")};
}

/* The attempt that goes on, or NULL. */
static struct ty_attempt_info *current(const struct history *history) {
    struct ty_attempt_info *last = history->n == 0 ? NULL : &history->items[history->n - 1];
    return last != NULL && last->outcome == NULL ? last : NULL;
}

static void end(struct history *history, const struct run_event *event, const json_t *data) {
    struct ty_attempt_info *attempt = current(history);
    if (attempt == NULL) return;
    const json_t *rank = json_object_get(data, "rank");
    const char *cause = json_object_get(data, "resize") != NULL ? "resize" : "cause";
    attempt->ended = seconds(event->time);
    attempt->outcome = copy_member(history, data, "outcome");
    attempt->rank = json_is_integer(rank) ? (int)json_integer_value(rank) : -1;
    attempt->node = node_name(history, data);
    attempt->cause = copy_member(history, data, cause);
}

void history_close(struct history *history) {
    struct ty_attempt_info *attempt = current(history);
    if (attempt == NULL) return;
    attempt->ended = seconds(history->last);
    attempt->outcome = copy_text(history, "died");
    attempt->cause = copy_text(history, "its controller died");
}

void history_note(struct history *history, const struct run_event *event) {
    bool tells = event->kind == EVENT_ATTEMPT || event->kind == EVENT_ATTEMPT_END;
    json_t *data = tells && event->data != NULL ? json_loads(event->data, JSON_ALLOW_NUL, NULL) : NULL;
    if (event->kind == EVENT_RUN) history_close(history); /* another controller goes on with the run */
    if (event->kind == EVENT_PLAN) note_plan(history, event->data);
    if (event->kind == EVENT_ATTEMPT) begin(history, event, data);
    if (event->kind == EVENT_ATTEMPT_END) end(history, event, data);
    history->last = event->time;
    json_decref(data);
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
    free(history->plan);
    *history = (struct history){0};
}
