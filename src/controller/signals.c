/* SIGPIPE is held by blocking it in this thread and taking away what came meanwhile: it is sent to the thread
 * that wrote. */
#include "controller/signals.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "base/cleanup.h"

/* nohup, or a shell that runs us in the background. */
static bool is_ignored(const struct sigaction *action) {
    return action->sa_handler == SIG_IGN;
}

void signals_open(struct signals *signals, struct loop *loop, int more,
                  void (*callback)(void *context, int signal_number), void *context) {
    bool known = more == SIGINT || more == SIGTERM || more == SIGHUP;
    *signals = (struct signals){.loop = loop, .numbers = {SIGINT, SIGTERM, SIGHUP, known ? 0 : more}};
    for (size_t i = 0; i < SIGNALS_HANDLED; i++) {
        signals->handles[i] = (struct loop_signal){.callback = callback, .context = context};
        int number = signals->numbers[i];
        if (number > 0 && sigaction(number, NULL, &signals->saved[i]) == 0 && !is_ignored(&signals->saved[i]))
            (void)loop_signal_start(loop, &signals->handles[i], number);
    }
}

void signals_close(struct signals *signals) {
    for (size_t i = 0; signals->loop != NULL && i < SIGNALS_HANDLED; i++) {
        if (signals->numbers[i] == 0) continue;
        loop_signal_stop(signals->loop, &signals->handles[i]);
        (void)sigaction(signals->numbers[i], &signals->saved[i], NULL);
    }
    signals->loop = NULL;
}

static void only_sigpipe(sigset_t *set) {
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGPIPE);
}

static bool is_pending(void) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void sigpipe_hold(struct sigpipe_hold *hold) {
    sigset_t set;
    only_sigpipe(&set);
    hold->was_pending = is_pending();
    (void)pthread_sigmask(SIG_BLOCK, &set, &hold->saved);
}

void sigpipe_release(const struct sigpipe_hold *hold) {
    static const struct timespec at_once = {0};
    sigset_t set;
    only_sigpipe(&set);
    if (!hold->was_pending && is_pending()) (void)sigtimedwait(&set, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &hold->saved, NULL);
}
