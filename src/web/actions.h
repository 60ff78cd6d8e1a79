/* What the page may do to a run, with --allow-actions: end it as Ctrl-C does, and have the stacks of its
 * workers saved. Runs of other users are never acted on. Both wait, and belong into a thread. */
#ifndef WEB_ACTIONS_H
#define WEB_ACTIONS_H

#include "base/buffer.h"
#include "base/error.h"

/* The body of the request must be {"confirm": NAME}. TY_EUSAGE. */
int action_check(const struct buffer *body, const char *name, const char *run_path, ty_error *err);
/* The first Ctrl-C: {"running": whether there was somebody to tell}. */
int action_stop(const char *run_path, struct buffer *out, ty_error *err);
/* Behind this they are in logs/rank-N.stack: {}. */
int action_stacks(const char *run_path, struct buffer *out, ty_error *err);

#endif
