/* One run on its agent, as its files share it: serve.c opens it, says hello and bye, and takes the steps between; orders.c does what the
 * controller says; attempt.c starts, stops and ends the workers of an attempt; signals.c reaps, and hears who else asks for the end. */
#ifndef AGENT_SERVING_H
#define AGENT_SERVING_H

#include "agent/child.h"
#include "agent/hang.h"
#include "agent/held_port.h"
#include "agent/logs.h"
#include "agent/serve.h"
#include "agent/stacks.h"
#include "agent/sweep.h"

/* Within what the controller gives the end of a run. */
#define LOG_LIMIT (8 * NS_PER_S)

/* How the workers of an attempt are started. */
enum start_way { START_EXECUTED, START_FORKED, START_UNDECIDED };

struct serving {
    const struct service *service;
    struct loop *loop;
    struct outbox outbox;
    struct logs logs;
    struct log *log;       /* the agent's own */
    nanoseconds log_limit; /* how long the end of the run waits for logs */
    struct worker_channels channels;
    struct oom oom;
    struct held_port port;
    struct sweep sweep;
    struct hang hang;
    struct stacks stacks;
    char *preemption; /* owned: what workers are told of it; NULL without */
    struct loop_signal child_signal, stop_signals[2], preempt_signal;
    struct loop_watch parent; /* readable once the process that started this one is gone */
    int lease_fd;             /* open as long as the run may use its devices; -1: none */

    struct launch launch; /* of the current attempt */
    struct child *children;
    size_t n_children;
    size_t n_started; /* the first ones were started, or need not be */
    enum start_way way;
    size_t reaped_hint;
    struct loop_timer start_timer;
    struct loop_timer goodbye;

    Wire__Launch *next; /* arrived before the attempt was over */
    bool active;        /* an attempt is not over */
    bool ending;        /* after the attempt comes the end */
    bool keep;          /* the agent stays for another run */
    bool killing;       /* no grace */
    bool lost;          /* the controller is gone */
    bool unclean;       /* something could not be ended */
    bool said_bye;
    int signals; /* that asked for the end */
};

/* After the attempt comes the end of the run; workers are asked to end, or killed. */
void serving_end(struct serving *serving, bool kill);

/* A message of the controller; `context` is the serving. */
void orders_take(void *context, const Wire__Message *message);

/* Begins an attempt, or fails each of its workers. One must not be active. */
void attempt_begin(struct serving *serving, const Wire__Launch *body);
/* Fails each of its workers: a launch that cannot even begin, or is not to any more (`stopped`), which is no failure. */
void attempt_refuse(struct serving *serving, const Wire__Launch *body, const char *why, bool stopped);
void attempt_go_on(void *context); /* starts some of the workers that were not started yet */
void attempt_template_changed(
    void *context); /* the template can be asked, or not, or an answer of it has come */
nanoseconds attempt_grace(const struct serving *serving);
void attempt_stop(struct serving *serving, bool kill); /* all its workers, and those of the next launch */
bool attempt_all_gone(const struct serving *serving);
void attempt_end(struct serving *serving); /* frees; fine when none is active */

int signals_start(struct serving *serving); /* negative errno */
void signals_stop(struct serving *serving);
/* Hears the signal that the launch names for a machine that is taken away. */
void signals_watch_preemption(struct serving *serving);
/* What workers are told of it, JSON; NULL: memory was short for that. */
void signals_set_preemption(struct serving *serving, const char *text);

#endif
