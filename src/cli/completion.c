/* `trainyard completion`: what shells complete command lines with. A shell asks, at each Tab, what may stand in
 * place of the last word, and is answered from the tables of commands and options, as help is: commands,
 * options, words that a value may be, names of runs, or what kind of name the shell knows itself (files). The
 * script of each shell only carries the question and the answer. */
#include <ctype.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "controller/run_directory.h"
#include "run/settings.h"

/* -- the answer: lines, each a word, or a word, a tab and what it means; or one of these */

#define FILES ":files\n"
#define DIRECTORIES ":directories\n"
#define PROGRAMS ":programs\n"

/* What is known of a command line up to its last word. */
struct line {
    const struct command *command;
    const struct option_spec *option; /* whose value the last word is, or NULL */
    size_t n_words;                   /* before the last that are no options */
    const char *program;              /* what the command runs, as an answer; NULL: nothing */
    bool in_program;                  /* the last word is of that one's command line */
    const char *storage_path;         /* NULL: the default */
    struct buffer *answer;
};

static const struct option_spec *find_option(const struct command *command, const char *name, size_t size,
                                             char letter) {
    for (size_t g = 0; command->groups[g] != NULL; g++) {
        for (size_t i = 0; i < command->groups[g]->n; i++) {
            const struct option_spec *option = &command->groups[g]->options[i];
            if (letter != 0 ? option->letter == letter
                            : strncmp(option->name, name, size) == 0 && option->name[size] == '\0')
                return option;
        }
    }
    return NULL;
}

/* The option of a word like --name, --name=VALUE, -n or -n4, and its value, NULL where none is in the word. */
static const struct option_spec *option_of(const struct command *command, const char *word,
                                           const char **value) {
    const char *name;
    *value = NULL;
    if (!str_prefix(word, "--", &name)) {
        if (word[1] != '\0' && word[2] != '\0') *value = word + 2;
        return find_option(command, NULL, 0, word[1]);
    }
    size_t size = strcspn(name, "=");
    if (name[size] == '=') *value = name + size + 1;
    return find_option(command, name, size, 0);
}

/* Of all values this one alone changes what may follow: it says which runs there are. */
static void take_value(struct line *line, const struct option_spec *option, const char *value) {
    if (str_equal(option->name, "storage-path")) line->storage_path = value;
}

/* One word of the line, left to right, as the parser would take it. What is wrong with the line is not told at
 * a Tab: a word that means nothing changes nothing. */
static void take_word(struct line *line, const char *word) {
    const struct option_spec *option = line->option;
    const char *value;
    if (option != NULL && str_equal(word, "=")) return; /* to bash it is a word */
    line->option = NULL;
    if (line->in_program) {
        line->n_words++;
    } else if (option != NULL && (word[0] != '-' || !option_is_optional(option))) {
        take_value(line, option, word);
    } else if (str_equal(word, "--")) {
        line->in_program = line->program != NULL;
    } else if (word[0] == '-' && word[1] != '\0') {
        option = option_of(line->command, word, &value);
        if (option == NULL || option->argument == NULL) return;
        if (value != NULL)
            take_value(line, option, value);
        else
            line->option = option;
    } else {
        line->n_words++;
        line->in_program = line->program != NULL;
    }
}

static void answer_word(struct buffer *answer, const char *before, const char *word, size_t size,
                        const char *meaning) {
    buffer_text(answer, before);
    buffer_append(answer, word, size);
    if (meaning != NULL) buffer_char(answer, '\t');
    for (; meaning != NULL && *meaning != '\0'; meaning++)
        buffer_char(answer, *meaning == '\n' ? ' ' : *meaning);
    buffer_char(answer, '\n');
}

static void answer_commands(struct buffer *answer) {
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        answer_word(answer, "", cli_commands[i]->name, strlen(cli_commands[i]->name), cli_commands[i]->summary);
}

/* The alternatives of a|b|C that are words themselves: a capital makes a name for what is to be said. */
static void answer_alternatives(struct buffer *answer, const char *before, const char *text, size_t size) {
    for (const char *end = text + size; text < end; text++) {
        const char *bar = memchr(text, '|', (size_t)(end - text)), *next = bar != NULL ? bar : end;
        bool literal = islower((unsigned char)*text);
        for (const char *letter = text; letter < next; letter++)
            literal = literal && (islower((unsigned char)*letter) || strchr("0123456789-", *letter) != NULL);
        if (literal) answer_word(answer, before, text, (size_t)(next - text), NULL);
        text = next;
    }
}

/* No run is offered where runs cannot be listed: a Tab is no place for errors. */
static void answer_runs(const struct line *line, const char *before) {
    char **names = NULL;
    size_t n = 0;
    ty_error err = {0};
    if (run_directory_names(line->storage_path, &names, &n, &err) < 0) return;
    for (size_t i = 0; i < n; i++)
        if (run_name_check(names[i], &err) >= 0)
            answer_word(line->answer, before, names[i], strlen(names[i]), NULL);
    run_directory_names_free(names, n);
}

/* `before` is what stands in the word before the value. */
static void answer_value(const struct line *line, const struct option_spec *option, const char *before) {
    for (size_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++)
        answer_word(line->answer, before, option->choices[i], strlen(option->choices[i]), NULL);
    if (option->choices == NULL)
        answer_alternatives(line->answer, before, option->argument, strlen(option->argument));
    if (str_equal(option->name, "resume")) answer_runs(line, before);
    if (str_prefix(option->argument, "FILE", NULL) || str_prefix(option->argument, "PATH", NULL))
        buffer_text(line->answer, FILES);
    if (str_prefix(option->argument, "DIR", NULL)) buffer_text(line->answer, DIRECTORIES);
}

/* A word that is no option: what the command's forms begin with, or a run where the command reads runs. */
static void answer_argument(const struct line *line) {
    const struct command *command = line->command;
    size_t before = line->answer->size;
    for (size_t i = 0; line->n_words == 0 && command->usage[i] != NULL; i++) {
        size_t size = strcspn(command->usage[i], " ") + 1;
        if (i > 0 && strncmp(command->usage[i], command->usage[i - 1], size) == 0) continue;
        answer_alternatives(line->answer, "", command->usage[i], size - 1);
    }
    if (line->answer->size > before) return;
    if (command == &command_help) answer_commands(line->answer);
    if (line->n_words >= command->max_words ||
        find_option(command, "storage-path", strlen("storage-path"), 0) == NULL)
        return;
    answer_runs(line, "");
    if (strstr(command->usage[0], "PATH") != NULL) buffer_text(line->answer, FILES);
}

/* Everything that may stand there is answered, whatever the last word begins with: to choose from it is the
 * shell's. */
static void answer_line(char *const *words, size_t n, struct buffer *answer) {
    const char *last = n > 0 ? words[n - 1] : "", *value;
    if (n < 2) {
        answer_commands(answer);
        return;
    }
    struct line line = {.command = command_find(words[0]), .answer = answer};
    if (line.command == NULL) return;
    const char *form = line.command->usage[0];
    line.program = strstr(form, "PROG") != NULL ? PROGRAMS : strstr(form, "SCRIPT") != NULL ? FILES : NULL;
    for (size_t i = 1; i + 1 < n; i++)
        take_word(&line, words[i]);
    bool dashed = last[0] == '-' && !line.in_program;
    if (line.option != NULL && (!dashed || !option_is_optional(line.option))) {
        answer_value(&line, line.option, "");
    } else if (dashed && strchr(last, '=') != NULL) {
        const struct option_spec *option = option_of(line.command, last, &value);
        CLEANUP_FREE char *before = strndup(last, (size_t)(strchr(last, '=') + 1 - last));
        if (option != NULL && option->argument != NULL && before != NULL) answer_value(&line, option, before);
    } else if (dashed) {
        answer_word(answer, "--", "help", strlen("help"), "print this help");
        for (size_t g = 0; line.command->groups[g] != NULL; g++) {
            const struct option_spec *options = line.command->groups[g]->options;
            for (size_t i = 0; i < line.command->groups[g]->n; i++)
                answer_word(answer, "--", options[i].name, strlen(options[i].name), options[i].help);
        }
    } else if (line.program != NULL) {
        buffer_text(answer, line.n_words == 0 ? line.program : FILES);
    } else {
        answer_argument(&line);
    }
}

/* -- the shells */

static const char bash[] =
    "_trainyard() {\n"
    "    local line mark words=(\"${COMP_WORDS[@]:0:COMP_CWORD}\" \"$2\")\n"
    "    words=(\"${words[@]//[\\\\\\'\\\"]/}\")\n"
    "    words=(\"${words[@]/#\\~\\//$HOME/}\")\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "            :files) compopt -o default ;;\n"
    "            :directories) compopt -o dirnames ;;\n"
    "            :programs) compopt -o default; mapfile -t COMPREPLY < <(compgen -c -- \"$2\") ;;\n"
    "            \"${words[-1]}\"*)\n"
    "                line=${line%%$'\\t'*}\n"
    "                case ${COMP_WORDS[COMP_CWORD]} in # what the quote is that the word begins with\n"
    "                    \\'*) line=${line//\\'/\"'\\\\''\"} ;;\n"
    "                    \\\"*) for mark in \\\\ '\"' '$' '`'; do line=${line//\"$mark\"/\"\\\\$mark\"}; done "
    ";;\n"
    "                    *) printf -v line %q \"$line\" ;;\n"
    "                esac\n"
    "                COMPREPLY+=(\"$line\") ;;\n"
    "        esac\n"
    "    done < <(\"${words[0]}\" completion words \"${words[@]:1}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _trainyard trainyard\n";

static const char zsh[] =
    "#compdef trainyard\n"
    "_trainyard() {\n"
    "    local line\n"
    "    local -a line_words=(\"${(@Q)words[1,CURRENT-1]}\" \"${(Q)PREFIX}\") values\n"
    "    line_words=(\"${(@)line_words/#\\~\\//$HOME/}\")\n"
    "    for line in ${(f)\"$(\"${line_words[1]}\" completion words \"${(@)line_words[2,-1]}\" "
    "2>/dev/null)\"}; do\n"
    "        case $line in\n"
    "            :files) compset -P '--*='; _files ;;\n"
    "            :directories) compset -P '--*='; _files -/ ;;\n"
    "            :programs) _command_names -e; _files ;;\n"
    "            *$'\\t'*) values+=(\"${${line%%$'\\t'*}//(#m)[\\\\:]/\\\\$MATCH}:${line#*$'\\t'}\") ;;\n"
    "            *) values+=(\"${line//(#m)[\\\\:]/\\\\$MATCH}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    (( ! $#values )) || _describe -V value values\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _trainyard ]; then _trainyard \"$@\"; else compdef _trainyard trainyard; fi\n";

static const char fish[] =
    "function __trainyard_complete\n"
    "    set -l words (commandline -opc | string replace -r '^~/' $HOME/)\n"
    "    set -l word (commandline -ct | string replace -r '^~/' $HOME/ | string unescape)\n"
    "    set -l command $words[1]\n"
    "    set -e words[1]\n"
    "    for line in ($command completion words $words \"$word\" 2>/dev/null)\n"
    "        switch $line\n"
    "            case :files :directories\n"
    "                string match -rq '^(?<before>(?:--[^=]*=)?)(?<rest>.*)$' -- $word\n"
    "                if test $line = :files\n"
    "                    string join \\n -- $before(__fish_complete_path $rest)\n"
    "                else\n"
    "                    string join \\n -- $before(__fish_complete_directories $rest '')\n"
    "                end\n"
    "            case :programs\n"
    "                __fish_complete_command\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c trainyard -f -a '(__trainyard_complete)'\n";

static const struct shell {
    const char *name, *script;
} shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

static int completion_run(const struct arguments *arguments, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    const char *names[ARRAY_SIZE(shells)], *name = arguments->words[0];
    char hint[STR_HINT_SIZE];
    if (str_equal(name, "words")) {
        answer_line(arguments->words + 1, arguments->n_words - 1, &text);
        return cli_print(&text, err);
    }
    for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
        names[i] = shells[i].name;
        if (!str_equal(names[i], name)) continue;
        if (arguments->n_words > 1)
            return ty_fail(err, TY_EUSAGE, "unexpected '%.80s' behind %s", arguments->words[1], name);
        buffer_text(&text, shells[i].script);
        return cli_print(&text, err);
    }
    return ty_fail(err, TY_EUSAGE, "no completion for '%.80s', but for bash, zsh or fish%s", name,
                   str_hint(name, names, ARRAY_SIZE(names), hint));
}

const struct command command_completion = {
    .name = "completion",
    .summary = "print what a shell completes command lines with",
    .usage = (const char *const[]){"bash|zsh|fish", "words [WORD...]", NULL},
    .description = "The second form is for the scripts of the first: what may stand in place of the last WORD "
                   "of a command line, a line each, with a tab and what it means; :files, :directories and "
                   ":programs are for the shell to complete.",
    .examples = (const char *const[]){"source <(trainyard completion bash)", "In ~/.bashrc; zsh the same",
                                      "trainyard completion fish | source", "In config.fish", NULL},
    .groups = (const struct option_group *const[]){NULL},
    .min_words = 1,
    .rest = true,
    .missing = "for which shell? bash, zsh or fish",
    .run = completion_run,
};
