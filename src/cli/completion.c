/* `trainyard completion`: what a shell needs to complete command lines, made of the tables of commands and
 * options, as help is. Names of runs are looked up where runs are kept. */
#include <stdlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"

#define RUN_NAMES "ls -1 \"${TRAINYARD_STORAGE:-$HOME/trainyard_runs}\" 2>/dev/null"

/* Single quotes of a shell: a quote in the text ends them, and begins them again. */
static void quote(const char *text, struct buffer *out) {
    buffer_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            buffer_text(out, "'\\''");
        else
            buffer_char(out, *text == '\n' ? ' ' : *text);
    }
    buffer_char(out, '\'');
}

static bool takes_runs(const struct command *command) {
    static const char *const names[] = {"status", "logs", "stop", "rm"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_equal(command->name, names[i])) return true;
    return false;
}

/* All options of the command, the next of (*group, *index) first; NULL behind the last. */
static const struct option_spec *next_option(const struct command *command, size_t *group, size_t *index) {
    while (command->groups[*group] != NULL && *index >= command->groups[*group]->n) {
        (*group)++;
        *index = 0;
    }
    return command->groups[*group] == NULL ? NULL : &command->groups[*group]->options[(*index)++];
}

static void bash_command(const struct command *command, struct buffer *out) {
    const struct option_spec *option;
    buffer_printf(out, "    %s)\n        options='--help", command->name);
    for (size_t g = 0, i = 0; (option = next_option(command, &g, &i)) != NULL;)
        buffer_printf(out, " --%s", option->name);
    buffer_text(out, "'\n        case $previous in\n");
    for (size_t g = 0, i = 0; (option = next_option(command, &g, &i)) != NULL;) {
        if (option->choices == NULL) continue;
        buffer_printf(out, "        --%s) words='", option->name);
        for (size_t c = 0; option->choices[c] != NULL; c++)
            buffer_printf(out, "%s%s", c > 0 ? " " : "", option->choices[c]);
        buffer_text(out, "';;\n");
    }
    if (takes_runs(command)) buffer_text(out, "        *) words=$(" RUN_NAMES ");;\n");
    buffer_text(out, "        esac;;\n");
}

static void bash(struct buffer *out) {
    buffer_text(
        out, "_trainyard() {\n"
             "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options= words=\n"
             "    if [ \"$COMP_CWORD\" = 1 ]; then\n        words='");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        buffer_printf(out, "%s%s", i > 0 ? " " : "", cli_commands[i]->name);
    buffer_text(out, "'\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        bash_command(cli_commands[i], out);
    buffer_text(out, "    esac\n"
                     "    case $word in -*) words=$options;; esac\n"
                     "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                     "}\n"
                     "complete -o default -F _trainyard trainyard\n");
}

/* "[NAME]" of an option that may go without, ":NAME: " of one that takes a value, as _arguments wants it. */
static void zsh_option(const struct option_spec *option, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer spec = {0};
    buffer_printf(&spec, "--%s", option->name);
    if (option->argument != NULL) buffer_text(&spec, option->argument[0] == '[' ? "=-" : "=");
    buffer_char(&spec, '[');
    for (const char *letter = option->help; *letter != '\0'; letter++) {
        if (*letter == '[' || *letter == ']' || *letter == ':') buffer_char(&spec, '\\');
        buffer_char(&spec, *letter);
    }
    buffer_char(&spec, ']');
    if (option->argument != NULL) buffer_text(&spec, option->argument[0] == '[' ? "::value:" : ":value:");
    if (option->argument != NULL && option->choices == NULL) buffer_text(&spec, "_files");
    for (size_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++)
        buffer_printf(&spec, "%s%s%s", i == 0 ? "(" : " ", option->choices[i],
                      option->choices[i + 1] == NULL ? ")" : "");
    buffer_text(out, " \\\n            ");
    quote(spec.failed ? "" : spec.data, out);
}

static void zsh(struct buffer *out) {
    buffer_text(out, "#compdef trainyard\n_trainyard() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        CLEANUP(buffer_done) struct buffer word = {0};
        buffer_printf(&word, "%s:%s", cli_commands[i]->name, cli_commands[i]->summary);
        buffer_text(out, "        ");
        quote(word.failed ? "" : word.data, out);
        buffer_char(out, '\n');
    }
    buffer_text(out, "    )\n"
                     "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
                     "    local command=$words[2]\n"
                     "    shift words; (( CURRENT-- ))\n"
                     "    case $command in\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const struct option_spec *option;
        buffer_printf(out, "        %s) _arguments '--help[show help]'", cli_commands[i]->name);
        for (size_t g = 0, o = 0; (option = next_option(cli_commands[i], &g, &o)) != NULL;)
            zsh_option(option, out);
        buffer_text(out, takes_runs(cli_commands[i]) ? " \\\n            \"*:run:($(" RUN_NAMES "))\";;\n"
                                                     : " \\\n            '*:file:_files';;\n");
    }
    buffer_text(out, "    esac\n}\n"
                     "if [ \"$funcstack[1]\" = _trainyard ]; then _trainyard \"$@\"; else compdef _trainyard "
                     "trainyard; fi\n");
}

static void fish(struct buffer *out) {
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const struct option_spec *option;
        const char *name = cli_commands[i]->name;
        buffer_printf(out, "complete -c trainyard -n __fish_use_subcommand -f -a %s -d ", name);
        quote(cli_commands[i]->summary, out);
        buffer_char(out, '\n');
        for (size_t g = 0, o = 0; (option = next_option(cli_commands[i], &g, &o)) != NULL;) {
            buffer_printf(out, "complete -c trainyard -n '__fish_seen_subcommand_from %s' -l %s", name,
                          option->name);
            if (option->letter != 0) buffer_printf(out, " -s %c", option->letter);
            if (option->argument != NULL && option->argument[0] != '[') buffer_text(out, " -r");
            for (size_t c = 0; option->choices != NULL && option->choices[c] != NULL; c++)
                buffer_printf(out, "%s%s%s", c == 0 ? " -f -a '" : " ", option->choices[c],
                              option->choices[c + 1] == NULL ? "'" : "");
            buffer_text(out, " -d ");
            quote(option->help, out);
            buffer_char(out, '\n');
        }
        if (takes_runs(cli_commands[i]))
            buffer_printf(out,
                          "complete -c trainyard -n '__fish_seen_subcommand_from %s' -f -a "
                          "'(sh -c '\\''" RUN_NAMES "'\\'')'\n",
                          name);
    }
}

static const struct shell {
    const char *name;
    void (*write)(struct buffer *out);
} shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

static int completion_run(const struct arguments *arguments, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    const char *names[ARRAY_SIZE(shells)];
    char hint[STR_HINT_SIZE];
    for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
        names[i] = shells[i].name;
        if (!str_equal(names[i], arguments->words[0])) continue;
        shells[i].write(&text);
        return cli_print(&text, err);
    }
    return ty_fail(err, TY_EUSAGE, "no completion for '%.80s', but for bash, zsh or fish%s",
                   arguments->words[0], str_hint(arguments->words[0], names, ARRAY_SIZE(names), hint));
}

const struct command command_completion = {
    .name = "completion",
    .summary = "print what a shell completes command lines with",
    .usage = (const char *const[]){"bash|zsh|fish", NULL},
    .description = "",
    .examples = (const char *const[]){"source <(trainyard completion bash)", "In ~/.bashrc; zsh the same",
                                      "trainyard completion fish | source", "In config.fish", NULL},
    .groups = (const struct option_group *const[]){NULL},
    .min_words = 1,
    .max_words = 1,
    .missing = "for which shell? bash, zsh or fish",
    .run = completion_run,
};
