/* What the agent has to say to the controller, gathered during a turn of the loop and sent at its end.
 *
 * The order that a rank may rely on: started and ready, then its reports, then exited and gone. What
 * happened in one turn goes in one message, so that the controller can tell what was simultaneous. When the
 * controller does not keep up, whoever reads from a worker rests (struct source) until it does; when it is
 * gone, everything said is dropped and nobody rests. */
#ifndef AGENT_OUTBOX_H
#define AGENT_OUTBOX_H

#include "loop/loop.h"
#include "wire/channel.h"

/* A descriptor of a worker that is read only while the controller keeps up. */
struct source {
    struct loop_watch watch;
    int fd;          /* -1: closed */
    unsigned events; /* that it waits for */
    bool resting;    /* in the outbox's list */
    struct source *next_resting;
};

struct outbox_events {
    Wire__WorkerEvent *items;
    size_t n;
    size_t bytes; /* of their tails */
};

/* The reports of an attempt for another controller, as frames: those of a controller that died may not be on
 * record. Older ones are dropped, a half at a time; while the agent is adrift none are. */
struct outbox_kept {
    bool wanted;
    struct buffer older, newer;
    struct buffer ends;            /* how workers ended, none of which is dropped */
    void (*turned)(void *context); /* what came before `newer` began goes with the next half */
    void *context;
};

struct outbox { /* zero-initialised but for `loop`, `channel` and `kept` */
    struct loop *loop;
    struct channel *channel; /* NULL: the controller is gone */
    bool adrift;             /* and another one may come: what is to be said is kept */
    struct outbox_kept kept;
    struct source *resting, **resting_end; /* who rests longest first, or none: the end is unset then */
    struct loop_timer wake;
    struct outbox_events early, late; /* before and after the reports */
    Wire__Report *reports;            /* their bytes are offsets into `bytes` until they are sent */
    size_t n_reports;
    struct buffer bytes;
    bool failed; /* something was lost, for want of memory, and nothing is sent any more */
};

void outbox_done(struct outbox *outbox); /* but for the channel */

/* Starts to read from `fd`, which the source then owns. */
int outbox_watch(struct outbox *outbox, struct source *source, int fd, void (*callback)(void *, unsigned),
                 void *context);
void outbox_close(struct outbox *outbox, struct source *source); /* twice is fine */

/* Changes what the source waits for; not to be called on one that rests. */
void outbox_expect(struct outbox *outbox, struct source *source, unsigned events);

/* True when the caller must not read: the source rests, and its callback comes again when there is room. */
bool outbox_must_rest(struct outbox *outbox, struct source *source);
/* Wakes those that rest, when there is room, in the order in which they came to rest, so that reports stay
 * in theirs and none of them starves: their callbacks are called in the next turn, readable or not. */
void outbox_wake(struct outbox *outbox);

/* Takes over event->text and event->tail.data, malloc'ed or NULL. The time is filled in. */
void outbox_event(struct outbox *outbox, Wire__WorkerEvent event);
/* Copies `bytes` (metrics or files, by kind) and the report's name. */
void outbox_report(struct outbox *outbox, Wire__Report report, const void *bytes, size_t size);
void outbox_send(struct outbox *outbox, const Wire__Message *message);
/* Behind the reports of this turn, which it may be about. */
void outbox_send_behind(struct outbox *outbox, const Wire__Message *message);
void outbox_log(struct outbox *outbox, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* From now on reports are kept, or not any more; none is there yet. */
void outbox_keep(struct outbox *outbox, bool wanted);
/* To another controller: all reports that are kept, in their order, and then how workers ended. */
void outbox_send_kept(struct outbox *outbox);

/* The end of a turn: everything is sent. */
void outbox_flush(struct outbox *outbox);

#endif
