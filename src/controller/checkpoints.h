/* The checkpoints of a run in the controller's hands: committed, put on record, and removed when there are too many. The journal
 * always comes first: a row is written when the directory is in place, and gone before the directory goes, so that whoever dies in
 * between leaves a directory too many, never a row too many. checkpoints_open finishes what was left so. */
#ifndef CONTROLLER_CHECKPOINTS_H
#define CONTROLLER_CHECKPOINTS_H

#include "base/buffer.h"
#include "journal/journal.h"
#include "run/policy.h"
#include "run/run.h"

struct checkpoints; /* opaque */

/* `policy` is borrowed for its life, `journal` too. With `past`, what the journal of an earlier controller knows is taken over, and
 * what that controller left half done is cleared up. */
int checkpoints_open(const char *run_path, const struct checkpoint_policy *policy, struct journal *journal,
                     bool past, struct checkpoints **out, ty_error *err);
void checkpoints_close(struct checkpoints *checkpoints); /* NULL is fine */

/* Commits what the ranks wrote: `*path` (malloc'd), or the error, and then nothing of it is left. `metrics` are the last known of
 * rank 0, for a journal that fails. What the journal cannot take is no checkpoint: its error is in *unrecorded as well (code 0:
 * none). */
int checkpoints_publish(struct checkpoints *checkpoints, const struct run_commit *commit, const char *metrics,
                        char **path, ty_error *unrecorded, ty_error *err);
void checkpoints_discard(struct checkpoints *checkpoints, uint64_t number, int attempt);

/* Removes the files of those that are no longer kept: when those who waited for a commit have been answered. */
void checkpoints_clean(struct checkpoints *checkpoints);
bool checkpoints_to_clean(const struct checkpoints *checkpoints);

/* Before it is given to workers: a latest that is not as its manifest says is told of and passed over, and so on; its row and files
 * stay for whoever wants to look. `thoroughly`: every byte is read, else the bytes of small ones and the sizes of all. What lies
 * outside of the run's directory is not looked at. checkpoints_open has done so, thoroughly. */
void checkpoints_check_latest(struct checkpoints *checkpoints, bool thoroughly);

/* The latest: its path, NULL without, and the metrics that rank 0 reported with it, NULL without; borrowed until the next commit. */
const char *checkpoints_latest(const struct checkpoints *checkpoints);
const char *checkpoints_latest_metrics(const struct checkpoints *checkpoints);

/* Appends [{"number", "path", "metrics"}], oldest first. */
void checkpoints_list(const struct checkpoints *checkpoints, struct buffer *out);

#endif
