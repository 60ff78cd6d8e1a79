/* The `trainyard` command: finds the subcommand, takes its command line apart, runs it, and tells a failure
 * once, in one line on standard error, with the exit status that docs/design.md 5.3 gives it. What subcommands
 * there are is in command.h; what each does is in its file. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"

const struct command *const cli_commands[] = {
    &command_run,        &command_torchrun,
    &command_plan,       &command_submit,
    &command_kube,       &command_accelerators,
    &command_status,     &command_top,
    &command_metrics,    &command_trace,
    &command_wait,       &command_logs,
    &command_attach,     &command_stacks,
    &command_dashboard,  &command_checkpoints,
    &command_stop,       &command_rm,
    &command_prune,      &command_report,
    &command_store,      &command_simulate,
    &command_completion, &command_help,
    &command_version,    NULL,
};

const struct command *command_find(const char *name) {
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (str_equal(cli_commands[i]->name, name)) return cli_commands[i];
    return NULL;
}

int command_unknown(const char *name, ty_error *err) {
    const char *names[ARRAY_SIZE(cli_commands)];
    size_t n = 0;
    for (; cli_commands[n] != NULL; n++)
        names[n] = cli_commands[n]->name;
    const char *near = str_nearest(name, names, n);
    if (near != NULL) return ty_fail(err, TY_EUSAGE, "unknown command '%.80s'; did you mean %s?", name, near);
    return ty_fail(err, TY_EUSAGE, "unknown command '%.80s'; `trainyard help` lists those there are", name);
}

/* A reader that went away, as `head` does, has had what it wanted: the command's status is that of what it
 * was asked for. */
int cli_print(const struct buffer *text, ty_error *err) {
    if (text->failed) return ty_fail_memory(err);
    int result = file_write_all(STDOUT_FILENO, text->data, text->size);
    if (result == -EPIPE) return 0;
    if (result < 0) return ty_fail(err, result, "cannot write to standard output: %s", strerror(-result));
    return 0;
}

void cli_json_add(json_t *tree, struct buffer *out) {
    CLEANUP_FREE char *text = tree != NULL ? json_format(tree, JSON_INDENT(1)) : NULL;
    json_decref(tree);
    out->failed = out->failed || text == NULL;
    buffer_printf(out, "%s\n", text != NULL ? text : "");
}

int cli_json_put(json_t *tree, struct buffer *json, ty_error *err) {
    CLEANUP_FREE char *text = tree != NULL ? json_format(tree, JSON_INDENT(2)) : NULL;
    json_decref(tree);
    if (text == NULL) return ty_fail_memory(err);
    buffer_clear(json);
    buffer_text(json, text);
    return 0;
}

static int print_help(const struct command *command, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    command_help_text(command, &text);
    return cli_print(&text, err);
}

void words_done(struct words *words) {
    for (size_t i = 0; i < words->n; i++)
        free(words->items[i]);
    free(words->items);
    *words = (struct words){0};
}

int words_add(struct words *words, char *text) {
    if (text == NULL || ARRAY_GROW(words->items, words->n + 1) < 0) {
        free(text);
        return -ENOMEM;
    }
    words->items[words->n++] = text;
    words->items[words->n] = NULL;
    return 0;
}

static int run_command(const struct command *command, int argc, char **argv, ty_error *err) {
    CLEANUP(words_done) struct words words = {0};
    CLEANUP(arguments_done) struct arguments arguments = {0};
    int result = command->rewrite == NULL ? 0 : command->rewrite(argv, &words, err);
    if (result < 0) return result;
    if (command->rewrite != NULL) {
        argc = (int)words.n;
        argv = words.items;
    }
    result = options_parse(command->groups, command->rest, argc, argv, &arguments, err);
    if (result < 0) return result;
    if (arguments.help) return print_help(command, err);
    if (arguments.n_words < command->min_words) return ty_fail(err, TY_EUSAGE, "%s", command->missing);
    if (!command->rest && arguments.n_words > command->max_words)
        return ty_fail(err, TY_EUSAGE,
                       "unexpected argument '%.80s'; `trainyard %s --help` shows what goes here",
                       arguments.words[command->max_words], command->name);
    /* Behind all that may refuse the line: what is refused starts no process. */
    if (command->drives) outlets_open();
    return command->run(&arguments, err);
}

/* `trainyard`, `trainyard --help` and `trainyard --version` beside the commands' names. */
static int dispatch(int argc, char **argv, const struct command **command, ty_error *err) {
    static const char *const helps[] = {"-h", "--help"};
    if (argc < 2)
        return ty_fail(err, TY_EUSAGE,
                       "which command? `trainyard help` lists them; to begin: trainyard run -n 4 -- PROG");
    const char *name = argv[1];
    if (str_find(name, helps, ARRAY_SIZE(helps)) >= 0) return print_help(NULL, err);
    if (str_equal(name, "--version") || str_equal(name, "-V")) name = command_version.name;
    *command = command_find(name);
    if (*command != NULL) return run_command(*command, argc - 1, argv + 1, err);
    if (name[0] == '-')
        return ty_fail(err, TY_EUSAGE,
                       "unknown option %.80s; the command comes first: trainyard run [OPTION...]", name);
    return command_unknown(name, err);
}

int main(int argc, char **argv) {
    /* What is no user's command comes first, and finds all as its starter left it: an agent and an MPI worker
     * see to signals and descriptors themselves. */
    if (argc > 1 && str_equal(argv[1], "agent")) return command_agent_main(argc - 1, argv + 1);
    if (argc > 1 && str_equal(argv[1], "mpi-worker")) return command_mpi_worker_main(argc - 1, argv + 1);
    file_open_standard();
    /* Whoever started us may have held signals, as a thread does that leaves them to others: Ctrl-C is heard
     * all the same. */
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* what cannot be written is told, by whoever writes */
    ty_error err = {0};
    const struct command *command = NULL;
    int result = dispatch(argc, argv, &command, &err);
    if (result < 0) {
        terminal_error(command != NULL ? command->name : NULL, err.message);
        result = ty_error_exit_status(result);
    }
    outlets_close(result > 128); /* by a signal, of ours or of a worker's */
    return result;
}
