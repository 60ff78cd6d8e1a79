/* Zygote and run's template as the files of a template share them, each a process behind a control socket. Every event, be it an answer, an
 * end, or a time limit, changes the stage of one of them; template_advance then takes the next step for who waits. */
#ifndef AGENT_TEMPLATE_PARTS_H
#define AGENT_TEMPLATE_PARTS_H

#include "agent/template/control.h"
#include "agent/template/template.h"

enum { REASON_SIZE = 700, REAPED_MAX = 64 };

enum stage { STAGE_ABSENT, STAGE_STARTING, STAGE_READY, STAGE_REFUSED };

/* Zygote or run's template. */
struct template_process {
    struct control control; /* first: what the socket's calls give back is ours */
    struct template *template;
    const char *name;
    enum stage stage;
    off_t log_offset; /* where in the log its own lines begin */
    char refusal[REASON_SIZE];
};

/* A child that was reaped before it was known whose it was. */
struct reaped {
    pid_t pid;
    int status;
    long peak_kib;
};

struct template {
    struct template_process zygote, run;
    struct buffer key; /* of the zygote */
    bool asked;  /* the zygote owes the pid of the run's template: no worker is forked before it is known */
    bool given;  /* the run's is a copy of the driver, and there is no zygote */
    bool rested; /* the zygote is of an earlier run, and has answered nothing in this one */
    struct template_fork *first, **last;
    unsigned pending;
    struct reaped reaped[REAPED_MAX]; /* while answers are owed; the oldest is overwritten */
    unsigned n_reaped;

    struct loop *loop; /* of the run that is served; NULL between runs */
    const char *log_path;
    void (*changed)(void *context);
    void *context;
    struct loop_timer limit, tell;
    const struct node_launch *launch; /* of who waits; NULL: nobody */
    enum template_state state;
    char reason[REASON_SIZE];
};

/* template_steps.c: the next step towards workers of the launch, and who waits is told how far it is. */
void template_advance(struct template *template);
void template_settle(struct template *template, enum template_state state, const char *reason);
void template_tell_later(struct template *template); /* calls `changed` in the next turn */
void template_tell(void *context);                   /* that timer's */

/* template_answers.c: what the two say, and what is owed to those who asked for workers. */
void template_zygote_line(struct control *control, const char *line);
void template_run_line(struct control *control, const char *line);
void template_answer_all(struct template *template, const char *why); /* no worker, for this reason */
/* As long as an answer is waited for, a limit runs; begun anew by each answer. */
void template_arm_limit(struct template *template);
void template_restart_limit(struct template *template);

/* template_ends.c: how they end, and why. */
off_t template_log_size(const struct template *template);
void part_end(
    struct template_process *part,
    int *status); /* ends its process; `status`, unless NULL, becomes that of its end if that is known */
void part_lose(struct template_process *part,
               int status);               /* it has ended by itself; `status`: as reaped, or -1 */
void part_ended(struct control *control); /* its end of the socket is closed */
void template_late(void *context);        /* the limit is over */

#endif
