/* What the parts of the checkpoints share: which are kept (checkpoints.c), what an earlier controller left and
 * whether the latest is whole (checkpoints_past.c), and commits (checkpoints_commit.c). */
#ifndef CONTROLLER_CHECKPOINTS_INTERNAL_H
#define CONTROLLER_CHECKPOINTS_INTERNAL_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "controller/checkpoints.h"

struct publication;
struct past;
struct chore;

/* A committed checkpoint that is kept. */
struct kept {
    uint64_t number;
    uint64_t made; /* the number its directory was published under, the last of those that have its name */
    char *name, *path;
    char *metrics; /* NULL: not known */
    double score;  /* NaN: none */
    bool awaited;  /* its validation is: it stays whatever its score */
};

/* One that is no longer kept, and whose files are still there. */
struct goner {
    uint64_t number;
    char *name;
};

/* A commit whose files are in place, while its row is written. */
struct entering {
    struct published made;
    char *name; /* NULL: there is none */
};

struct checkpoints {
    char *run_path, run[CHECKPOINT_RUN_SIZE];
    int lock; /* of the run, borrowed; -1: none */
    const struct checkpoint_policy *policy;
    struct records *records;
    struct kept *kept; /* in the order of their numbers */
    size_t n_kept;
    struct goner *goners; /* the rows of the first of them are gone for good */
    size_t n_goners, n_gone;
    struct entering entry;
    struct storage *storage;
    struct publication *publication; /* under way; NULL: none */
    struct past *past;               /* what is to be finished first; NULL: nothing */
    struct chore *check;             /* of the latest, that somebody waits for; NULL: nobody does */
    bool thorough;                   /* every byte, however many there are */
    bool stopped;                    /* nobody wants to know any more */
    bool follows;                    /* workers of an earlier controller may go on (checkpoints_leave_past) */
    void (*checked)(void *context);
    void *checked_context;
    void (*ready)(void *context, const ty_error *err); /* when the past is finished */
    void *ready_context;
    void (*listener)(void *context, struct published *published);
    void *listener_context;
};

void kept_done(struct kept *kept);
/* The newest of this name, and that of this number; NULL: there is none. */
struct kept *checkpoints_find(const struct checkpoints *checkpoints, const char *name);
struct kept *checkpoints_numbered(const struct checkpoints *checkpoints, uint64_t number);
/* Steals `name` and `metrics`, also when it fails. */
int checkpoints_keep(struct checkpoints *checkpoints, uint64_t number, char *name, char *metrics);
/* Takes `metrics` over, in place of those that it had. */
void kept_rate(struct kept *kept, char *metrics, const struct checkpoint_policy *policy);
/* Files whose end is not on record stay: the journal's rows still speak of them. */
void checkpoints_spare(struct checkpoints *checkpoints);

/* What the journal tells of an earlier controller's. */
int checkpoints_read_past(struct checkpoints *checkpoints, ty_error *err);
void past_free(struct past *past); /* NULL is fine */

/* A directory, and what is to be done with it. */
struct chore {
    struct storage_job job;
    struct checkpoints *checkpoints; /* for what follows */
    enum { CHORE_REMOVE, CHORE_DROP, CHORE_SWEEP, CHORE_CHECK, CHORE_CHECK_WHOLE, CHORE_CHECK_PLACE } act;
    char *path;
    char *run_path, run[CHECKPOINT_RUN_SIZE]; /* the run's directory and id */
    uint64_t number;                          /* of the checkpoint that is removed */
    int attempt;                              /* that has ended, of a clear-up */
    bool lengthy;                             /* as in storage.h */
    atomic_bool enough;                       /* of a check: nobody wants to know any more */
    int result;
    ty_error error;
};

/* `wanted.path` is stolen, the run's directory and id are added. Without memory nothing is done (NULL): what
 * was to go is left to the next controller's sweep. */
struct chore *checkpoints_post(struct checkpoints *checkpoints, const char *what, struct chore wanted,
                               void (*done)(struct storage_job *job));
/* Begins to remove a checkpoint that the run published; why one cannot go is told. `path` is stolen. */
void checkpoints_remove(struct checkpoints *checkpoints, char *path, uint64_t number);

#endif
