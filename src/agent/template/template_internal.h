/* What the files of a template share: template.c is its face and hears its two processes, template_table.c has
 * the table of its states and events, template_steps.c what is done to the processes, template_launch.c what a
 * launch means for them, template_program.c when a program can be its own template, control.c the socket to
 * either of them. */
#ifndef AGENT_TEMPLATE_INTERNAL_H
#define AGENT_TEMPLATE_INTERNAL_H

#include "agent/logs.h"
#include "agent/node_launch.h"
#include "agent/template/template.h"
#include "base/buffer.h"
#include "base/duration.h"
#include "loop/loop.h"

/* -- control.c */

/* The agent's end of the socket to a process that forks for it: requests with descriptors go out, lines of
 * text come back.
 *
 * A request is one byte, and beside it (SCM_RIGHTS) the descriptor of a sealed file in memory that holds its
 * words, each ended by a NUL, followed by the descriptors that are handed over: so none is larger than the
 * socket takes, and sending never waits. An answer is a line, cut behind CONTROL_LINE_MAX bytes. */

enum { CONTROL_FDS = 6, CONTROL_LINE_MAX = 4095 };

struct control {
    pid_t pid; /* of the process; 0: not known (yet) */
    int fd;    /* -1: there is none */
    struct loop *loop;
    struct loop_watch watch;
    char in[CONTROL_LINE_MAX + 1]; /* what has come of the next lines; no memory need be asked for */
    size_t size;
    bool cut; /* of a line that was too long the beginning was handed on, and what comes next belongs to it */
    void (*line)(struct control *control, const char *line); /* may close it */
    void (*ended)(struct control *control);                  /* its end closed: so did the process, or will */
};

/* The pair's other end is in `theirs` (close-on-exec, the caller's). */
int control_open(struct control *control, int *theirs, ty_error *err);
/* Listens on the loop: after control_open, or on another loop after control_rest. */
int control_watch(struct control *control, struct loop *loop, ty_error *err);
void control_rest(struct control *control); /* not heard, but open */

int control_send(struct control *control, char kind, const struct buffer *words, const int *fds, size_t n,
                 ty_error *err);
void control_take(struct control *control); /* hands on the lines that have come */

/* Ends the process by force, with its group, and reaps it (two seconds at most); its wait status, -1 when it
 * is not known. Twice is fine. */
int control_close(struct control *control);

/* -- a template */

enum { TEMPLATE_REASON_SIZE = 700, TEMPLATE_REAPED_MAX = 64 };

/* Zygote or run's template. There is one as long as its socket is open. */
struct template_process {
    struct control control; /* first: what the socket's calls give back is ours */
    struct template *template;
    const char *name;
    int64_t log_offset; /* where in the log its own lines begin */
};

/* A child that was reaped before it was known whose it was. */
struct template_reaped {
    pid_t pid;
    int status;
    struct rusage used;
};

struct template {
    enum template_state state;
    char reason[TEMPLATE_REASON_SIZE];
    struct template_process zygote, run;
    struct buffer key; /* of the zygote that was started last; empty: none can be taken for it */
    bool given;        /* the run's is a copy of the driver, and there is no zygote */
    struct template_fork *first, **last; /* the workers asked for, in order */
    unsigned pending;
    struct template_reaped reaped[TEMPLATE_REAPED_MAX]; /* while pids are owed; the oldest is overwritten */
    unsigned n_reaped;

    struct loop *loop; /* of the run that is served; NULL between runs */
    struct logs *logs;
    const char *log_path;
    struct loop_timer limit;
    struct loop_timer tell;           /* calls `changed` */
    const struct node_launch *launch; /* of who waits; NULL: nobody */
};

enum template_event_kind {
    ON_LAUNCH,  /* workers of a launch are wanted */
    ON_GIVE_UP, /* the run's template is wanted no more */
    ON_ZYGOTE_READY,
    ON_ZYGOTE_PID,
    ON_ZYGOTE_REFUSAL,
    ON_ZYGOTE_END,
    ON_RUN_READY,
    ON_RUN_PID,
    ON_RUN_REFUSAL,
    ON_RUN_END,
    ON_LIMIT, /* an answer did not come in time */
    TEMPLATE_EVENTS
};

struct template_event {
    enum template_event_kind kind;
    pid_t pid;        /* of an answer "pid" */
    const char *text; /* why: of refusals, ends, and giving up */
};

static inline bool template_process_exists(const struct template_process *process) {
    return process->control.fd >= 0;
}

/* -- template_table.c */

/* The one way of an event into the table; an end has closed the process's socket before. */
void template_take(struct template *template, const struct template_event *event);
/* As long as an answer is waited for, a limit runs; begun anew by each answer and each end. */
void template_arm_limit(struct template *template, bool anew);

/* -- template.c */

/* The process has ended by itself; `status`: as reaped, or -1. An event of its own. */
void template_lose(struct template_process *process, int status);

/* -- template_steps.c */

/* Executes a zygote for the launch. */
int template_start_zygote(struct template *template, ty_error *err);
/* Asks the zygote for the run's template, which is listened to once its pid is known. */
int template_ask_run(struct template *template, ty_error *err);
void template_end_process(struct template_process *process); /* none is fine */
/* What the log has from there on; NULL where it cannot be known. */
struct errand *template_read_log(const struct template *template, int64_t from);
/* How it ended (`status`: as reaped, -1 unknown), with the last line that it wrote. */
void template_describe_end(const struct template_process *process, int status, struct buffer *out);
/* That it did not answer in time, with its last line. */
void template_describe_delay(const struct template_process *process, struct buffer *out);

/* -- template_launch.c */

/* A zygote serves every launch with the same key: words, program file, directory, and those variables that an
 * interpreter, a loader or a framework reads when it starts. */
void template_key(const struct node_launch *launch, struct buffer *key);

/* Executes the zygote: `control_fd` becomes its descriptor 3, `output_fd` both outputs. */
int template_execute(const struct node_launch *launch, int control_fd, int output_fd, pid_t *pid,
                     ty_error *err);

/* Words of a request, appended. The run's: its directory and environment. A worker's: its cores,
 * soft and hard limit of descriptors, directory, and environment. The directory is "" where it stays. */
int template_run_words(const struct node_launch *launch, struct buffer *words, ty_error *err);
int template_worker_words(const struct node_launch *launch, size_t index, struct buffer *words, ty_error *err);

/* A variable that an interpreter, a loader or a framework reads when it starts, "NAME=VALUE". */
bool template_is_start_variable(const char *entry);

/* How long an answer may take: TRAINYARD_TEMPLATE_LIMIT of the launch's environment, else two minutes. */
nanoseconds template_limit(const struct node_launch *launch);

/* -- template_program.c */

/* The environment of the interpreter that is a program's template: what its workers have in common, with these
 * changes and behind them `last`. `*path`, the caller's to free, is an entry of it. NULL when memory is
 * short. */
char **template_program_environment(const struct node_launch *launch, char *const *changes, size_t n,
                                    char *last, char **path);

#endif
