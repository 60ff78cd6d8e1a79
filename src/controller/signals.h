/* Signals of the process that drives a run. */
#ifndef CONTROLLER_SIGNALS_H
#define CONTROLLER_SIGNALS_H

#include <signal.h>

#include "loop/loop.h"

enum { SIGNALS_HANDLED = 4 };

/* SIGINT, SIGTERM, SIGHUP and one more as events of a loop. What whoever started us wants ignored stays so. */
struct signals {
    struct loop *loop;            /* NULL: not open */
    int numbers[SIGNALS_HANDLED]; /* 0: none */
    struct loop_signal handles[SIGNALS_HANDLED];
    struct sigaction saved[SIGNALS_HANDLED];
};

/* `more` may be one of the three. */
void signals_open(struct signals *signals, struct loop *loop, int more,
                  void (*callback)(void *context, int signal_number), void *context);
void signals_close(struct signals *signals); /* gives back what was handled before */

/* Between the two, writing to who went away is an error and nothing else, without a change of anybody's
 * SIGPIPE. */
struct sigpipe_hold {
    sigset_t saved;
    bool was_pending;
};
void sigpipe_hold(struct sigpipe_hold *hold);
void sigpipe_release(const struct sigpipe_hold *hold);

#endif
