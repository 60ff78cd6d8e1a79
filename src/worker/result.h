/* What ty_result holds. The driver fills it; the getters need nothing but it. */
#ifndef WORKER_RESULT_H
#define WORKER_RESULT_H

#include <trainyard/trainer.h>

struct ty_result {
    char *name, *path; /* all pointers are owned, made with malloc */
    char *metrics;     /* last report of rank 0 as a JSON object, NULL without */
    struct result_metric {
        char *name;
        double value;
    } * values; /* the numbers among them */
    size_t n_values;
    char *checkpoint; /* directory of the last committed one, NULL without */
    char *summary;    /* the last word of a run that succeeded, in one line; NULL otherwise */
    char *failure;    /* the first cause on one screen, NULL after a success */
    int attempts, num_workers;
    struct ty_attempt_info *history; /* n_history of them; their texts are owned too */
    size_t n_history;
    int status; /* exit status for the command: a failed worker's own, or 128 + signal */
    int *exits; /* by rank: exit code, 128 + signal, -1 when never started */
    char *json; /* all of it, see ty_result_json */
};

/* The exit status with which the command ends after this run. */
int ty_result_status(const ty_result *result);

#endif
