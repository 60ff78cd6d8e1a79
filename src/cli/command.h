/* A subcommand of `trainyard`: what help says about it, the shape of its command line, and its function. One
 * file each. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "cli/options.h"

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
    const char *missing;                      /* said when there are fewer words than min_words */
    /* Optional: another command line in place of the one that was given, argv[0] included. */
    int (*rewrite)(char **argv, struct words *made, ty_error *err);
    /* The exit status, or a negative code with the message. */
    int (*run)(const struct arguments *arguments, ty_error *err);
};

/* All that help lists, in its order; NULL-terminated. */
extern const struct command *const cli_commands[];

extern const struct command command_run, command_torchrun, command_plan, command_kube, command_submit,
    command_status, command_metrics, command_trace, command_wait, command_logs, command_attach, command_stacks,
    command_checkpoints, command_accelerators, command_report, command_store, command_stop, command_rm,
    command_prune, command_completion, command_simulate, command_version, command_help;

const struct command *command_find(const char *name); /* NULL when there is none */
/* TY_EUSAGE with the nearest name. */
int command_unknown(const char *name, ty_error *err);

/* The text of `trainyard --help` and of `trainyard NAME --help`; roff for man. NULL: the overview. */
struct buffer;
void command_help_text(const struct command *command, struct buffer *out);
void command_man_text(const struct command *command, struct buffer *out);

/* `trainyard agent ...`, what an engine starts for a node; not for people. */
int command_agent_main(int argc, char **argv);
/* `trainyard mpi-worker PROG ...`, what an agent executes with --framework mpi; not for people. */
int command_mpi_worker_main(int argc, char **argv);

/* Writes to standard output, whole; a reader that went away is no error. */
int cli_print(const struct buffer *text, ty_error *err);

#endif
