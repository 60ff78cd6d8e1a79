/* `trainyard help`: the overview, a command's help, and the man pages, all from the tables of the commands and
 * of their options. The words of an option are not here but in its row, those of a run's settings in
 * run/settings.def; the order is that of the tables. */
#include <ctype.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"

enum { TEXT_WIDTH = 100, OPTION_COLUMN = 34 };

/* Sets words in lines from column `at`, later lines from `indent`; a blank line between paragraphs is kept. */
static void wrap(const char *text, size_t at, size_t indent, struct buffer *out) {
    bool first = true;
    for (const char *word = text; *word != '\0';) {
        size_t size = strcspn(word, " \n");
        if (!first && at + 1 + size > TEXT_WIDTH) {
            buffer_printf(out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        if (!first) buffer_char(out, ' ');
        buffer_append(out, word, size);
        at += size + (first ? 0 : 1);
        first = false;
        word += size;
        if (str_prefix(word, "\n\n", NULL)) {
            buffer_printf(out, "\n\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        word += strspn(word, " \n");
    }
    buffer_char(out, '\n');
}

static void option_text_line(const struct option_spec *option, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer names = {0};
    buffer_text(&names, "  ");
    if (option->letter != 0) buffer_printf(&names, "-%c, ", option->letter);
    buffer_printf(&names, "--%s", option->name);
    if (option->argument != NULL) buffer_printf(&names, " %s", option->argument);
    if (names.failed) {
        out->failed = true;
        return;
    }
    buffer_text(out, names.data);
    if (names.size + 2 > OPTION_COLUMN)
        buffer_printf(out, "\n%*s", OPTION_COLUMN, "");
    else
        buffer_printf(out, "%*s", (int)(OPTION_COLUMN - names.size), "");
    wrap(option->help, OPTION_COLUMN, OPTION_COLUMN, out);
}

void command_help_text(const struct command *command, struct buffer *out) {
    if (command == NULL) {
        buffer_text(out, "Usage: trainyard COMMAND [OPTION...]\n\n"
                         "Runs a training function, or any program, on many workers.\n\nCommands:\n");
        for (size_t i = 0; cli_commands[i] != NULL; i++)
            buffer_printf(out, "  %-14s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
        buffer_text(out, "\nTo begin:\n"
                         "  trainyard accelerators              what this machine has\n"
                         "  trainyard plan -n 4 --use-gpu       who would go where\n"
                         "  trainyard run -n 4 -- ./train       run it\n"
                         "\n`trainyard COMMAND --help` and `man trainyard-COMMAND` say more.\n");
        return;
    }
    for (size_t i = 0; command->usage[i] != NULL; i++)
        buffer_printf(out, "%s trainyard %s %s\n", i == 0 ? "Usage:" : "      ", command->name,
                      command->usage[i]);
    buffer_printf(out, "\ntrainyard %s: %s.\n", command->name, command->summary);
    if (command->description[0] != '\0') {
        buffer_char(out, '\n');
        wrap(command->description, 0, 0, out);
    }
    for (size_t g = 0; command->groups[g] != NULL; g++) {
        buffer_printf(out, "\n%s:\n", command->groups[g]->title);
        for (size_t i = 0; i < command->groups[g]->n; i++)
            option_text_line(&command->groups[g]->options[i], out);
    }
    if (command->examples != NULL) buffer_text(out, "\nExamples:\n");
    for (size_t i = 0; command->examples != NULL && command->examples[i] != NULL; i += 2)
        buffer_printf(out, "  %s\n      %s\n", command->examples[i], command->examples[i + 1]);
}

static const char exit_status_text[] =
    "0 success; a failed worker's own code, or 128 plus its signal (the first failure decides); 1 anything "
    "else, such as output that could not be written; 2 wrong usage or config; 3 the request cannot fit; 4 "
    "workers could not be started; 5 an agent or node was lost; 124 the time limit passed; 130 interrupted by "
    "Ctrl-C (128 plus the signal); 143 preempted by SIGTERM, to be resumed (128 plus the signal that told of "
    "it).";

static const char environment_text[] =
    "TRAINYARD_STORAGE: where runs are kept, instead of ~/trainyard_runs.\n\n"
    "TRAINYARD_CONFIG: a file of settings for all runs, instead of /etc/trainyard.yaml and "
    "~/.config/trainyard.yaml; empty: none.\n\n"
    "TRAINYARD_LEASE_DIR: where leases of devices lie, instead of /tmp; the same for all who share them.\n\n"
    "TRAINYARD_LOG: error, warning, info or debug; what Trainyard itself says on standard error.\n\n"
    "NO_COLOR, TERM: no colour where NO_COLOR is set, or TERM is dumb.\n\n"
    "What workers find in theirs: docs/design.md 5.3; all variables: docs/environment.md.";

static const char files_text[] =
    "/etc/trainyard.yaml, ~/.config/trainyard.yaml: settings for all runs, under run_config: with the names "
    "that "
    "--config has; the latter go before (docs/configuration.md).\n\n"
    "~/trainyard_runs/NAME/run.db: the journal of a run, SQLite.\n\n"
    "~/trainyard_runs/NAME/logs/rank-3.log: all that rank 3 wrote; rank-3.stack: its stacks, where it hung.\n\n"
    "~/trainyard_runs/NAME/checkpoint_000012: a checkpoint.\n\n"
    "~/trainyard_runs/NAME/run.lock: there while a controller drives the run.\n\n"
    "/tmp/trainyard-PID-N.lease: the devices that a run holds.\n\n"
    "PREFIX/share/doc/trainyard/docs: the pages of docs that are named here, where `make install` put them.";

/* Text in roff: backslashes and dashes kept as such, no line taken for a request. A dash would become a hyphen,
 * which nobody can paste into a shell. */
static void roff(const char *text, struct buffer *out) {
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            buffer_text(out, "\\e");
        else if (*text == '-')
            buffer_text(out, "\\-");
        else if (str_prefix(text, "\n\n", NULL)) {
            buffer_text(out, "\n.PP\n");
            text++;
        } else
            buffer_char(out, *text);
        if (*text == '\n' && (text[1] == '.' || text[1] == '\'')) buffer_text(out, "\\&");
    }
}

static void roff_option(const struct option_spec *option, struct buffer *out) {
    buffer_text(out, ".TP\n");
    if (option->letter != 0) buffer_printf(out, "\\fB\\-%c\\fR, ", option->letter);
    buffer_text(out, "\\fB\\-\\-");
    roff(option->name, out);
    buffer_text(out, "\\fR");
    if (option->argument != NULL) {
        buffer_text(out, " \\fI");
        roff(option->argument, out);
        buffer_text(out, "\\fR");
    }
    buffer_char(out, '\n');
    roff(option->help, out);
    buffer_text(out, ".\n");
}

static void roff_command(const struct command *command, struct buffer *out) {
    buffer_text(out, ".SH SYNOPSIS\n.nf\n");
    for (size_t i = 0; command->usage[i] != NULL; i++) {
        buffer_printf(out, "\\fBtrainyard %s\\fR ", command->name);
        roff(command->usage[i], out);
        buffer_char(out, '\n');
    }
    buffer_text(out, ".fi\n.SH DESCRIPTION\n");
    roff(command->description[0] != '\0' ? command->description : command->summary, out);
    buffer_text(out, "\n");
    if (command->groups[0] != NULL) buffer_text(out, ".SH OPTIONS\n");
    for (size_t g = 0; command->groups[g] != NULL; g++) {
        buffer_printf(out, ".SS %s\n", command->groups[g]->title);
        for (size_t i = 0; i < command->groups[g]->n; i++)
            roff_option(&command->groups[g]->options[i], out);
    }
    if (command->examples == NULL) return;
    buffer_text(out, ".SH EXAMPLES\n");
    for (size_t i = 0; command->examples[i] != NULL; i += 2) {
        buffer_text(out, ".TP\n\\fB");
        roff(command->examples[i], out);
        buffer_text(out, "\\fR\n");
        roff(command->examples[i + 1], out);
        buffer_text(out, "\n");
    }
}

static void roff_section(const char *title, const char *text, struct buffer *out) {
    buffer_printf(out, ".SH %s\n", title);
    roff(text, out);
    buffer_text(out, "\n");
}

/* Without a date, of which two builds of one source would differ. */
static void man_text(const struct command *command, struct buffer *out) {
    const char *dash = command != NULL ? "-" : "", *name = command != NULL ? command->name : "";
    buffer_printf(out, ".TH TRAINYARD%s", dash);
    for (const char *letter = name; *letter != '\0'; letter++)
        buffer_char(out, (char)toupper((unsigned char)*letter));
    buffer_text(out, " 1 \"\" \"trainyard " TY_VERSION "\" \"Trainyard\"\n.SH NAME\ntrainyard");
    roff(dash, out);
    buffer_printf(out, "%s \\- ", name);
    roff(command != NULL ? command->summary : "run a training function on many workers", out);
    buffer_char(out, '\n');
    if (command != NULL) {
        roff_command(command, out);
    } else {
        buffer_text(out, ".SH SYNOPSIS\n\\fBtrainyard\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH COMMANDS\n");
        for (size_t i = 0; cli_commands[i] != NULL; i++) {
            buffer_printf(out, ".TP\n\\fBtrainyard\\-%s\\fR(1)\n", cli_commands[i]->name);
            roff(cli_commands[i]->summary, out);
            buffer_char(out, '\n');
        }
    }
    roff_section("EXIT STATUS", exit_status_text, out);
    roff_section("ENVIRONMENT", environment_text, out);
    roff_section("FILES", files_text, out);
}

struct help_options {
    bool man;
};

static const struct option_spec help_specs[] = {
    {"man", 0, NULL, "print the manual page in roff instead", option_flag, offsetof(struct help_options, man),
     NULL},
};
static const struct option_group help_group = {"Options", help_specs, ARRAY_SIZE(help_specs)};

static int help_run(const struct arguments *arguments, ty_error *err) {
    struct help_options options = {0};
    int result = options_apply(arguments, (void *[]){&options}, err);
    if (result < 0) return result;
    const char *name = arguments->n_words > 0 ? arguments->words[0] : NULL;
    const struct command *command = name != NULL ? command_find(name) : NULL;
    if (name != NULL && command == NULL && !str_equal(name, "trainyard")) return command_unknown(name, err);
    CLEANUP(buffer_done) struct buffer text = {0};
    if (options.man)
        man_text(command, &text);
    else
        command_help_text(command, &text);
    return cli_print(&text, err);
}

const struct command command_help = {
    .name = "help",
    .summary = "show how to use a command",
    .usage = (const char *const[]){"[--man] [COMMAND]", NULL},
    .description = "",
    .groups = (const struct option_group *const[]){&help_group, NULL},
    .max_words = 1,
    .run = help_run,
};
