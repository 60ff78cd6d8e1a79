/* Checkpoints on their way while the training goes on: one thread of this process, with a channel of its own to
 * the agent, copies and commits them in the order in which they come. */
#ifndef WORKER_UPLOAD_H
#define WORKER_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Checkpoints under way; the next waits. */
enum { UPLOADS_MAX = 8 };

/* What is to be done for one checkpoint. Strings are owned by it, made with malloc. */
struct upload {
    struct upload *next;
    uint64_t number;
    char *staging;   /* where its files go */
    char *source;    /* the tree to copy; NULL: they are there already, or elsewhere */
    char *original;  /* where `source` was before it was taken, and goes back when this fails */
    char *files;     /* what the commit says: a JSON list or place; NULL: what the copy finds */
    char *failed;    /* not NULL: it is given up for this reason */
    bool give;       /* `source` goes when it is committed */
    bool may_differ; /* see ty_report_options */
    /* For a caller that waits (upload_wait). */
    bool awaited, done;
    int result;
    ty_error error;
};

void upload_free(struct upload *upload); /* NULL is fine */

/* Hands it over; waits while too many are under way. Takes it over when it succeeds. */
int upload_post(struct upload **upload, ty_error *err);
/* Hands it over and waits for it: its result. Takes it over in any case. May be called by any thread. */
int upload_wait(struct upload **posted, ty_error *err);

/* Waits until none is under way. The first failure since the last call, as its code, else 0. */
int upload_drain(ty_error *err);
/* The same without waiting. */
int upload_failure(ty_error *err);

/* Whether one is being written or about to be; false where all wait for the commit of the first. */
bool upload_is_writing(void);

/* In a child that was forked: nothing is under way there, whatever the thread was about. */
void upload_begin_child(void);

/* The path of the latest that was committed this way, with its number; the caller's to free; NULL when there is
 * none since the last call. */
char *upload_take_latest(uint64_t *number);

#endif
