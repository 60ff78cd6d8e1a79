/* The checkpoints of a run in the controller's hands: committed, put on record, and removed when there are too
 * many. The journal always comes first: a row is written when the directory is in place, and gone before the
 * directory goes, so that whoever dies in between leaves a directory too many, never a row too many.
 * checkpoints_begin finishes what was left so. A thread of the run's does what may take long with files
 * (storage.h), and another one writes the rows (records.h). */
#ifndef CONTROLLER_CHECKPOINTS_H
#define CONTROLLER_CHECKPOINTS_H

#include "base/buffer.h"
#include "base/storage.h"
#include "controller/records.h"
#include "run/run.h"
#include "run/settings.h"

struct checkpoints; /* opaque */

/* Where they are. */
struct checkpoints_place {
    const char *run_path;    /* copied */
    const char *run;         /* the run's id, copied */
    struct records *records; /* borrowed for their life */
    int lock;                /* a copy is held until no work is left (storage.h); -1: none */
    bool past;               /* there was an earlier controller: what the journal knows is taken over */
};

/* `policy` is borrowed for their life. */
int checkpoints_open(const struct checkpoints_place *place, const struct checkpoint_policy *policy,
                     struct checkpoints **out, ty_error *err);
/* What an earlier controller left half done is cleared up, and every byte of the latest compared with its
 * manifest: a damaged one is told of and passed over, as by checkpoints_check_latest. True: `ready` follows, on
 * the loop, with the reason why the run cannot go on, else NULL; false: there is nothing to be done. */
bool checkpoints_begin(struct checkpoints *checkpoints, void (*ready)(void *context, const ty_error *err),
                       void *context);
/* In its place where the workers of that controller go on: what is on its way is theirs. */
void checkpoints_leave_past(struct checkpoints *checkpoints);
/* Nobody wants to know any more how the latest looks: its reading stops, and none begins. */
void checkpoints_stop_check(struct checkpoints *checkpoints);
/* Waits at most `limit` for what is under way. NULL is fine. */
void checkpoints_close(struct checkpoints *checkpoints, nanoseconds limit);

/* How a commit ended. */
struct published {
    uint64_t number;
    int result; /* negative: see `error`; what the journal cannot take is no checkpoint */
    char *path; /* the receiver's; NULL when it failed */
    ty_error error;
};

/* The listener hears of each commit that has come to its end: on the loop, when its row is written, or by
 * checkpoints_settle. */
void checkpoints_listen(struct checkpoints *checkpoints,
                        void (*listener)(void *context, struct published *published), void *context);

/* Begins to commit what the ranks wrote: the listener hears how it ended. `metrics` are the last known of rank
 * 0, where its report of this number is not on record. One at a time. Behind a row that failed nothing gets
 * into its place any more. Of one that fails, here or later, the staging directory stays. */
int checkpoints_publish(struct checkpoints *checkpoints, const struct run_commit *commit, const char *metrics,
                        ty_error *err);
/* The staging directory of one that failed, or can never be whole, goes. */
void checkpoints_discard(struct checkpoints *checkpoints, uint64_t number, int attempt);
/* When the workers of an attempt are gone: what it had begun to write, or was given, goes, and nothing of a
 * later one. */
void checkpoints_clear_up(struct checkpoints *checkpoints, int attempt);

/* A kept one has these metrics, a JSON object, from now on, and is ranked by them. 1; 0: it is not kept. */
int checkpoints_set_metrics(struct checkpoints *checkpoints, uint64_t number, const char *metrics,
                            ty_error *err);

/* Begins to remove the files of those that are no longer kept, and whose rows are gone. */
void checkpoints_clean(struct checkpoints *checkpoints);

/* Before it is given to workers: a latest that is not as its manifest says is told of and passed over, and so
 * on; its row and files stay for whoever wants to look. The bytes of small ones are read, and the sizes of all.
 * What lies outside of the run's directory is not looked at. All else that the thread has to do is done first.
 * True: `checked` follows, on the loop, unless another look begins before; false: there is nothing to look at.
 * checkpoints_begin has looked at every byte. */
bool checkpoints_check_latest(struct checkpoints *checkpoints, void (*checked)(void *context), void *context);

/* What the thread is at. */
struct storage *checkpoints_storage(const struct checkpoints *checkpoints);
/* Waits until all of it is done, and the row of a commit; a commit that hangs for longer than `limit` has
 * failed, and if it comes into its place later its files go (but for a row that hangs: see records_wait). */
void checkpoints_settle(struct checkpoints *checkpoints, nanoseconds limit);

/* The latest: its path, NULL without, and the metrics that rank 0 reported with it, NULL without; borrowed
 * until the next commit. */
const char *checkpoints_latest(const struct checkpoints *checkpoints);
const char *checkpoints_latest_metrics(const struct checkpoints *checkpoints);

uint64_t checkpoints_last_number(const struct checkpoints *checkpoints); /* of the latest; 0: there is none */
/* Of a kept one of this number; NULL: none is kept. */
const char *checkpoints_path_of(const struct checkpoints *checkpoints, uint64_t number);

/* The best of those kept, or the latest where no metric ranks them, and then `*attribute` is NULL: its path,
 * borrowed likewise; NULL without any. */
const char *checkpoints_best(const struct checkpoints *checkpoints, const char **attribute);

/* Appends [{"number", "path", "metrics"}], oldest first; by name as the journal has them, "name" in place of
 * "path": one with a "/" is a place. */
void checkpoints_list(const struct checkpoints *checkpoints, bool by_name, struct buffer *out);

#endif
