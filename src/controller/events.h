/* What a run's owner wants to hear of it: a queue of JSON texts, one an event (see ty_run_next_event). What is
 * not wanted costs nothing. The queue has no bound of its own: who fills it asks events_full and stops reading
 * what fills it. */
#ifndef CONTROLLER_EVENTS_H
#define CONTROLLER_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "journal/journal.h"
#include "run/event.h"

enum { EVENTS_HIGH = 1 << 20, EVENTS_LOW = 256 << 10 };

/* Kinds beyond those of run/event.h. */
enum { EVENTS_OUTPUT = RUN_EVENT_KINDS, EVENTS_LOG, EVENTS_REPORT, EVENTS_FAILURE, EVENTS_KINDS };

struct events {
    uint32_t wanted;                 /* a bit for each kind */
    struct event_text *first, *last; /* owned; last is valid when there is a first */
    size_t size;                     /* bytes that wait */
    bool dropping;                   /* no output is taken any more */
    bool failed;                     /* memory was short: an event is missing */
};

void events_done(struct events *events);

/* The bit of a kind's name; TY_EUSAGE with the nearest one. */
int events_kind(const char *name, uint32_t *bit, ty_error *err);

/* `metrics`: a JSON object's text, for a checkpoint; NULL otherwise. */
void events_add(struct events *events, const struct run_event *event, const char *metrics);
void events_add_output(struct events *events, uint32_t rank, int stream, const void *bytes, size_t size);
void events_add_log(struct events *events, enum log_level level, const char *subsystem, const char *line);
void events_add_report(struct events *events, const struct journal_report *report, bool has_checkpoint);
/* A worker's exception as it told it, a JSON object. */
void events_add_failure(struct events *events, int attempt, uint32_t rank, const void *failure, size_t size);

bool events_full(const struct events *events);
/* Forgets the output that waits, and takes no more of it. From then on the queue is never full. */
void events_drop_output(struct events *events);

/* 1 with the oldest event, the caller's to free(); 0 without; -ENOMEM once when one is missing. */
int events_take(struct events *events, char **text);

#endif
