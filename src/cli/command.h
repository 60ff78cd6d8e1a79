/* A subcommand of `trainyard`: what help says about it, the shape of its command line, and its function. One
 * file each. Parsing (options.h), help, man pages and completion read this table, so that a new command is a
 * file, a declaration and a row of cli_commands. Below are the pieces that several commands share. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/worker.h>

#include "base/buffer.h"
#include "base/error.h"
#include "cli/options.h"
#include "placement/plan.h"
#include "run/settings.h"

/* A list of texts. Zero-initialised is empty. */
struct words {
    char **items; /* owned, as each of them; NULL-terminated, NULL when empty */
    size_t n;
};

void words_done(struct words *words);
/* Adds a text, which it takes over; NULL, for want of memory, is -ENOMEM. */
int words_add(struct words *words, char *text);

struct command {
    const char *name;
    const char *summary;         /* one line, first letter small */
    const char *const *usage;    /* what follows "trainyard NAME", one line a form; NULL-terminated */
    const char *description;     /* paragraphs, a blank line between; "" when the summary says it all */
    const char *const *examples; /* command line, then what it does, in pairs; NULL-terminated; may be NULL */
    const struct option_group *const *groups; /* NULL-terminated */
    size_t min_words, max_words;              /* what is no option */
    bool rest;                                /* the first word ends the options */
    bool drives;         /* it drives a run, which storage under its output must not hold */
    const char *missing; /* said when there are fewer words than min_words */
    /* Optional: another command line in place of the one that was given, argv[0] included. */
    int (*rewrite)(char **argv, struct words *made, ty_error *err);
    /* The exit status, or a negative code with the message. */
    int (*run)(const struct arguments *arguments, ty_error *err);
};

/* All that help lists, in its order; NULL-terminated. */
extern const struct command *const cli_commands[];

extern const struct command command_run, command_torchrun, command_plan, command_kube, command_submit,
    command_status, command_top, command_metrics, command_trace, command_wait, command_logs, command_attach,
    command_stacks, command_dashboard, command_checkpoints, command_accelerators, command_report, command_store,
    command_stop, command_rm, command_prune, command_completion, command_simulate, command_version,
    command_help;

const struct command *command_find(const char *name); /* NULL when there is none */
/* TY_EUSAGE with the nearest name. */
int command_unknown(const char *name, ty_error *err);

/* The text of `trainyard --help` and of `trainyard NAME --help`. NULL: the overview. */
void command_help_text(const struct command *command, struct buffer *out);

/* `trainyard agent ...`, what an engine starts for a node; not for people. */
int command_agent_main(int argc, char **argv);
/* `trainyard agent --metrics-file RUN NAME FILE PERIOD_MS`, what a controller starts for --metrics-file. */
int metrics_file_main(int argc, char **argv);
/* `trainyard mpi-worker PROG ...`, what an agent executes with --framework mpi; not for people. */
int command_mpi_worker_main(int argc, char **argv);

/* Appends a tree, which it takes over, as lines of JSON; NULL, for want of memory, fails the buffer. */
void cli_json_add(json_t *tree, struct buffer *out);
/* Puts it in the place of the JSON text that it was read from and added to; NULL is -ENOMEM. */
int cli_json_put(json_t *tree, struct buffer *json, ty_error *err);

/* Writes to standard output, whole; a reader that went away is no error. */
int cli_print(const struct buffer *text, ty_error *err);

/* The command that goes on with a run that was interrupted: the one that was given, with --resume and the run's
 * name in place of what named it, quoted for a shell. */
void go_on_format(const char *command, const struct arguments *arguments, const char *name, struct buffer *out);

/* The same line for another place: `program` `command` `more` OPTIONS --resume NAME -- PROG, without the
 * options in `less` (NULL-terminated). */
struct go_on_line {
    const char *program, *command, *more;
    const char *const *less;
    bool script; /* for a script of any POSIX shell, not for people */
};
void go_on_format_line(const struct go_on_line *line, const struct arguments *arguments, const char *name,
                       struct buffer *out);

/* A run that was given to Slurm, and may not have begun (submitted.c). */

struct submitted {
    int64_t job_id;
    bool waits;   /* the job, in the queue */
    char *state;  /* what follows "job N": "waits: other jobs hold what it needs (Resources)"; owned */
    char *output; /* path of the file to which the job's output goes; owned */
};

/* Path of the output of a job for the run `name`; the caller frees. NULL: memory is short. */
char *submitted_output(const char *storage, const char *name, int64_t job_id);
/* The last job that was submitted for the run, as Slurm tells of it; false where there is none. */
bool submitted_look(const char *storage_path, const char *name, struct submitted *found);
void submitted_done(struct submitted *found);
/* As run_directory_find; of a run that has not begun the error tells of its job. */
char *submitted_find_run(const char *storage_path, const char *name, ty_error *err);

/* For the commands that work from inside a worker. */

/* The worker that this process belongs to, or NULL: TY_EUSAGE outside of a run. */
ty_worker *inside_worker(ty_error *err);

/* What a program is linked to, as its file says. */

/* True when the program that execvp would execute for `name` is an ELF file of this machine's kind which needs
 * a library whose name begins with `library` ("libmpi.so"). False for anything that is not, or cannot be
 * read. */
bool elf_needs(const char *name, const char *library);

/* The options that torchrun reads from PET_ variables. */
extern const struct option_group torchrun_group;

/* torchrun's command line as options_parse takes one: PET_ variables first, so that options win over them;
 * names with dashes for underscores, and spelled out where they were cut to a beginning of one name alone. */
int torchrun_rewrite(char **argv, struct words *made, ty_error *err);

/* What each worker of a plan would find in its environment, for `trainyard plan --framework`: all that the run
 * sets, with words in place of what is chosen at the start. */

struct plan_environment {
    const struct plan *plan;
    const struct cluster *cluster;
    const struct demand *demand;
    const struct run_settings *settings;
    const char *master_address; /* NULL: chosen at the start */
};

/* Appends a paragraph for each worker: its rank, node and slice, and a line for each variable. */
int plan_environment_text(const struct plan_environment *view, struct buffer *out, ty_error *err);
/* Puts the variables into the plan's JSON, in place of the "env" that has the devices alone. */
int plan_environment_json(const struct plan_environment *view, struct buffer *json, ty_error *err);

#endif
