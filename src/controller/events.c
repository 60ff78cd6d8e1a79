/* The queue of what a run's owner wants to hear: a list of texts, each built in a buffer and handed on as it
 * is. The forms of events are those that the journal has (run/event.c); here output, logs and failures join
 * them. Nobody is called: the owner takes them (ty_run_next_event). */
#include "controller/events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"

struct event_text {
    struct event_text *next;
    char *text; /* owned */
    size_t size;
    bool output;
};

static const char *const own_names[] = {"output", "log", "report", "failure"};
_Static_assert(RUN_EVENT_KINDS + (int)ARRAY_SIZE(own_names) == EVENTS_KINDS, "a name for each kind");
_Static_assert(EVENTS_KINDS <= 32, "a bit for each kind");

int events_kind(const char *name, uint32_t *bit, ty_error *err) {
    const char *names[EVENTS_KINDS];
    char hint[STR_HINT_SIZE];
    for (int kind = 0; kind < EVENTS_KINDS; kind++) {
        names[kind] = kind < RUN_EVENT_KINDS ? run_event_name((enum run_event_kind)kind)
                                             : own_names[kind - RUN_EVENT_KINDS];
        if (!str_equal(names[kind], name)) continue;
        *bit = 1u << kind;
        return 0;
    }
    return ty_fail(err, TY_EUSAGE, "\"%.80s\" is no kind of event%s", name,
                   str_hint(name, names, EVENTS_KINDS, hint));
}

/* An event that nobody wants is not even formatted. */
static bool wants(const struct events *events, int kind) {
    return (events->wanted & 1u << kind) != 0;
}

static void drop(struct events *events, struct event_text *event) {
    events->size -= event->size;
    free(event->text);
    free(event);
}

void events_done(struct events *events) {
    while (events->first != NULL) {
        struct event_text *event = events->first;
        events->first = event->next;
        drop(events, event);
    }
    *events = (struct events){0};
}

/* Takes over the text. */
static void push(struct events *events, struct buffer *text, bool output) {
    struct event_text *event = text->failed ? NULL : malloc(sizeof *event);
    if (event == NULL) {
        events->failed = true;
        buffer_done(text);
        return;
    }
    *event = (struct event_text){.size = text->size, .output = output};
    event->text = buffer_take(text);
    if (events->first == NULL)
        events->first = event;
    else
        events->last->next = event;
    events->last = event;
    events->size += event->size;
}

void events_add(struct events *events, const struct run_event *event, const char *metrics) {
    if (!wants(events, (int)event->kind)) return;
    struct buffer text = {0};
    CLEANUP(buffer_done) struct buffer values = {0};
    buffer_printf(&text, "{\"event\": \"%s\", \"attempt\": %d", run_event_name(event->kind), event->attempt);
    if (event->rank >= 0) buffer_printf(&text, ", \"rank\": %d", event->rank);
    if (event->node >= 0) buffer_printf(&text, ", \"node\": %d", event->node);
    buffer_printf(&text, ", \"time\": %.6f", duration_seconds(event->time));
    if (metrics != NULL) buffer_printf(&text, ", \"metrics\": %s", metrics);
    if (run_event_members(event, &values)) {
        buffer_text(&text, ", ");
        buffer_append(&text, values.data, values.size);
    }
    text.failed |= values.failed;
    buffer_char(&text, '}');
    push(events, &text, false);
}

void events_add_output(struct events *events, uint32_t rank, int stream, const void *bytes, size_t size) {
    if (!wants(events, EVENTS_OUTPUT) || events->dropping) return;
    struct buffer text = {0};
    buffer_printf(&text, "{\"event\": \"output\", \"stream\": %d, \"rank\": %u, \"text\": ", stream, rank);
    buffer_json_string(&text, bytes, size);
    buffer_char(&text, '}');
    push(events, &text, true);
}

void events_add_log(struct events *events, enum log_level level, const char *subsystem, const char *line) {
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    if (!wants(events, EVENTS_LOG)) return;
    struct buffer text = {0};
    buffer_printf(&text,
                  "{\"event\": \"log\", \"level\": \"%s\", \"subsystem\": \"%s\", \"text\": ", levels[level],
                  subsystem);
    buffer_json_text(&text, line);
    buffer_char(&text, '}');
    push(events, &text, false);
}

void events_add_report(struct events *events, const struct journal_report *report, bool has_checkpoint) {
    if (!wants(events, EVENTS_REPORT)) return;
    struct buffer text = {0};
    buffer_printf(&text, "{\"event\": \"report\", \"attempt\": %d, \"rank\": %d, \"number\": %llu, ",
                  report->attempt, report->rank, (unsigned long long)report->number);
    buffer_printf(&text, "\"checkpoint\": %s, \"metrics\": ", has_checkpoint ? "true" : "false");
    buffer_append(&text, report->metrics, report->metrics_size);
    buffer_char(&text, '}');
    push(events, &text, false);
}

void events_add_failure(struct events *events, int attempt, uint32_t rank, const void *failure, size_t size) {
    if (!wants(events, EVENTS_FAILURE)) return;
    struct buffer text = {0};
    buffer_printf(&text, "{\"event\": \"failure\", \"attempt\": %d, \"rank\": %u, \"failure\": ", attempt,
                  rank);
    buffer_append(&text, failure, size);
    buffer_char(&text, '}');
    push(events, &text, false);
}

bool events_full(const struct events *events) {
    return events->size > EVENTS_HIGH && !events->dropping;
}

/* Only output goes, which is in the logs as well. */
void events_drop_output(struct events *events) {
    struct event_text **link = &events->first;
    events->dropping = true;
    events->last = NULL;
    while (*link != NULL) {
        struct event_text *event = *link;
        if (!event->output) {
            events->last = event;
            link = &event->next;
            continue;
        }
        *link = event->next;
        drop(events, event);
    }
}

int events_take(struct events *events, char **text) {
    struct event_text *event = events->first;
    if (event == NULL && events->failed) {
        events->failed = false;
        return -ENOMEM;
    }
    if (event == NULL) return 0;
    events->first = event->next;
    *text = TAKE(event->text);
    drop(events, event);
    return 1;
}
