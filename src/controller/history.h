/* The attempts of a run, as its events tell of them: how long each took, how it ended and why, and which
 * checkpoint it began from. Fed with live events by the controller, and with those of the journal by whoever
 * reads that. */
#ifndef CONTROLLER_HISTORY_H
#define CONTROLLER_HISTORY_H

#include <stdbool.h>

#include <trainyard/trainer.h>

#include "base/buffer.h"
#include "run/event.h"

struct history {
    struct ty_attempt_info *items; /* owned, with their texts; `ended` is 0 while one goes on */
    size_t n;
    char **nodes; /* names, of the last plan; n_nodes of them, owned */
    size_t n_nodes;
    nanoseconds last; /* the last event */
    bool failed;      /* out of memory: something is missing */
};

/* Takes the next event, of any kind. */
void history_note(struct history *history, const struct run_event *event);

/* No controller drives the run any longer: an attempt that has not ended died with its last event. */
void history_close(struct history *history);

/* The attempts as a JSON list: the "history" of ty_result_json. One that goes on has null as its end and
 * outcome, and "seconds" up to `now` (wall). */
void history_json(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out);

void history_done(struct history *history);

#endif
