/* Drives a prepared run to its end, a step at a time: the ops of run/ carried out with agents, a journal, a
 * terminal. */
#ifndef CONTROLLER_DRIVE_H
#define CONTROLLER_DRIVE_H

#include "controller/checkpoints.h"
#include "controller/events.h"
#include "controller/history.h"
#include "controller/prepare.h"
#include "controller/records.h"
#include "run/run.h"

/* Where an earlier controller of the run left it; zeros for a new run. */
struct drive_resume {
    int attempts;
    uint64_t last_number; /* of the reports */
};

struct drive_config {
    const struct run_request *request;
    struct prepared *prepared; /* checked, and planned unless `waiting` */
    struct records *records;
    struct checkpoints *checkpoints;
    struct events *events;
    struct history *history;
    const char *name, *path;
    struct lease_holder *holders; /* whom the run waits for, when it was not planned yet; owned by the caller */
    size_t n_holders;
    const char *wait_reason;
    struct drive_resume resume;
};

/* What came of it, beside what run/ knows. */
struct drive_end {
    char *metrics;    /* last report of rank 0, JSON; the caller's */
    char *checkpoint; /* path of the last committed checkpoint; the caller's */
    char *failure;    /* the screen; the caller's; NULL without a failure */
    char *preemption; /* what workers were told of one, JSON; the caller's; NULL without */
    enum run_outcome outcome;
    int status, attempts;
    bool unsignalled;           /* interrupted by the program that runs it, not by a signal */
    struct run_failure cause;   /* without its tail */
    char *cause_node;           /* name of its node; the caller's; NULL without */
    int *exits;                 /* of each worker, see ty_result_exit; the caller's */
    struct run_worker *workers; /* the caller's */
    uint32_t n_workers;
    nanoseconds storage_limit; /* how long to wait for what is still under way there */
    bool held;                 /* it did not answer: nothing of it may be begun any more */
    ty_error unrecorded;       /* why the journal lacks something; code 0: it has all */
};

/* Adds to the reason why a run must wait who holds what it wants, and since when. */
void wait_describe(const struct demand *demand, const struct lease_holder *holders, size_t n, ty_error *reason);

void drive_end_done(struct drive_end *end);

struct drive; /* opaque: one run that is driven */

/* Begins it. `config` and what it points to are borrowed until drive_close. */
int drive_open(const struct drive_config *config, struct drive **out, ty_error *err);

/* One turn of its loop, which waits for something to do when `wait`. False once it has ended. */
bool drive_step(struct drive *drive, bool wait);
int drive_fd(const struct drive *drive);         /* see loop_fd */
int drive_timeout_ms(const struct drive *drive); /* see loop_timeout_ms; 0 once it has ended */
void drive_events_taken(struct drive *drive);    /* agents that waited for room are heard again */

/* As SIGINT with that number. */
void drive_stop(struct drive *drive, int signal_number);

/* Frees it; what has not ended is ended by force. 0 when the run came to an end of whatever kind, which is then
 * in `*end`; negative when it could not be driven to one. */
int drive_close(struct drive *drive, struct drive_end *end, ty_error *err);

#endif
