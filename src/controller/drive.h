/* Drives a prepared run to its end: the ops of run/ carried out with agents, a journal, a terminal. */
#ifndef CONTROLLER_DRIVE_H
#define CONTROLLER_DRIVE_H

#include "controller/prepare.h"
#include "journal/journal.h"
#include "run/run.h"

/* Where an earlier controller of the run left it; zeros for a new run. */
struct drive_resume {
    int attempts;
    uint64_t last_number; /* of the reports */
    char *checkpoint;     /* path of the last committed one, NULL without */
};

struct drive_config {
    const struct run_request *request;
    struct prepared *prepared; /* checked, and planned unless `waiting` */
    struct journal *journal;
    const char *name, *path;
    struct lease_holder *holders; /* whom the run waits for, when it was not planned yet; owned by the caller */
    size_t n_holders;
    const char *wait_reason;
    struct drive_resume resume; /* borrowed */
};

/* What came of it, beside what run/ knows. */
struct drive_end {
    char *metrics;    /* last report of rank 0, JSON; the caller's */
    char *checkpoint; /* path of the last committed checkpoint; the caller's */
    char *failure;    /* the screen; the caller's; NULL without a failure */
    enum run_outcome outcome;
    int status, attempts;
    struct run_failure cause; /* without its tail */
    int *exits;               /* of each worker, see ty_result_exit; the caller's */
    uint32_t n_workers;
    ty_error unrecorded; /* why the journal lacks something; code 0: it has all */
};

/* Adds to the reason why a run must wait who holds what it wants, and since when. */
void wait_describe(const struct demand *demand, const struct lease_holder *holders, size_t n, ty_error *reason);

void drive_end_done(struct drive_end *end);

/* 0 when the run was driven to an end of whatever kind; negative when it could not even begin. */
int drive(const struct drive_config *config, struct drive_end *end, ty_error *err);

#endif
