/* `trainyard run`: any program on many workers. Takes the options together into one request; the controller
 * does the rest. What a program prints, and its exit status, are handed on as they are; what is said beside
 * them, to the end of the run, is said here, for `torchrun` as well. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "controller/controller.h"
#include "controller/prepare.h"
#include "controller/sink.h"
#include "engine/local.h"
#include "engine/slurm.h"
#include "worker/driver.h"

/* The interpreter of torchrun's script may come from the environment (`python -m trainyard.torchrun`). */
static void tell_how_to_go_on(const char *command, const struct arguments *arguments, const char *name) {
    CLEANUP(buffer_done) struct buffer text = {0};
    const char *python = str_equal(command, command_torchrun.name) ? getenv("PYTHON_EXEC") : NULL;
    buffer_text(&text, "to go on: ");
    if (python != NULL) {
        buffer_text(&text, "PYTHON_EXEC=");
        shell_quote(python, false, &text);
        buffer_char(&text, ' ');
    }
    go_on_format(command, arguments, name, &text);
    if (!text.failed) terminal_error(command, text.data);
}

/* Where workers decided, the exit status is theirs, as the shell has it of the program alone; else it tells the
 * kind of error. How to go on is said only where the program is not at fault: it would fail in the same way. */
static int tell_outcome(const char *command, int code, const ty_result *result,
                        const struct run_settings *settings, const struct arguments *arguments,
                        const ty_error *err) {
    if (code >= 0) {
        bool told = str_equal(command, command_run.name) && result->summary != NULL &&
                    !(settings->quiet || settings->progress == PROGRESS_NONE);
        if (told) terminal_error(command, result->summary);
        return EXIT_SUCCESS;
    }
    if (result != NULL && ty_result_failure(result) != NULL) {
        /* The first cause, on one screen; made of workers' output, so it is escaped. */
        const char *failure = ty_result_failure(result);
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "trainyard %s: ", command);
        while (*failure != '\0') {
            size_t size = strcspn(failure, "\n");
            utf8_escape(failure, size, &text);
            buffer_char(&text, '\n');
            failure += size + (failure[size] == '\n');
        }
        sink_say(&text);
    } else {
        terminal_error(command, err->message);
    }
    bool from_outside =
        code == TY_EINTERRUPTED || code == TY_EPREEMPTED || code == TY_ETIMEOUT || code == TY_ENODE;
    if (result != NULL && from_outside) tell_how_to_go_on(command, arguments, result->name);
    bool of_workers =
        (code == TY_EWORKER || code == TY_EINTERRUPTED || code == TY_EPREEMPTED) && result != NULL;
    int status = of_workers ? ty_result_status(result) : ty_error_exit_status(code);
    return status != 0 ? status : EXIT_FAILURE;
}

/* The log's lines of a run are the command's words while the run goes on. */
static void tell_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    const char *command = context;
    (void)subsystem;
    if (level == LOG_LEVEL_WARNING)
        terminal_warning(command, text);
    else
        terminal_error(command, text);
}

int run_to_its_end(const char *command, const struct run_request *request, const struct arguments *arguments,
                   ty_error *err) {
    ty_result *result = NULL;
    /* Started without a launcher of its own kind, each rank of an MPI program is a world of one. */
    bool launched = str_equal(request->settings.framework, "mpi") || getenv("PMI_FD") != NULL;
    if (!launched && (elf_needs(request->argv[0], "libmpi.so") || elf_needs(request->argv[0], "libmpich"))) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(
            &text,
            "%.200s is linked to MPI, and each rank will be alone in a world of its own: with --framework mpi "
            "they find each other",
            request->argv[0]);
        if (!text.failed) terminal_warning(command, text.data);
    }
    log_set_sink(tell_log, (void *)(uintptr_t)command);
    int code = controller_run(request, &result, err);
    int status = tell_outcome(command, code, result, &request->settings, arguments, err);
    ty_result_free(result);
    return status;
}

/* The run of these options. Whoever did not ask for Slurm is told that it is used. */
static int start(const struct run_options *options, const struct scaling_options *scaling,
                 const struct cluster_options *cluster, const struct join_options *join,
                 const struct arguments *arguments, ty_error *err) {
    CLEANUP(environment_done) struct environment environment = {0};
    int code = run_environment_make(&options->environment, scaling->file.environment, &environment, err);
    if (code < 0) return code;
    const struct run_request request = {
        .settings = options->settings,
        .scaling = &scaling->scaling,
        .train_v1 = scaling_train_v1(),
        .engine = cluster->engine,
        .engine_options = &join->options,
        .cluster_file = cluster->cluster_file,
        .overrides = &cluster->overrides,
        .argv = (const char *const *)arguments->words,
        .environment = environment.items,
        .alone = true,
        .handle_signals = true,
    };
    const struct engine *engine = NULL;
    const char *job = getenv("SLURM_JOB_ID"), *nodes = getenv("SLURM_JOB_NODELIST"); /* without them: refused */
    const char *tasks = getenv("TRAINYARD_RUN") == NULL ? slurm_is_one_of() : NULL;
    bool silent = options->settings.quiet || options->settings.progress == PROGRESS_NONE;
    CLEANUP(buffer_done) struct buffer text = {0};
    if (!silent && prepare_engine(&request, &engine, NULL) >= 0 && engine == &engine_slurm && nodes != NULL)
        buffer_printf(&text, "engine slurm: on the nodes of job %.20s, %.200s", job != NULL ? job : "?", nodes);
    else if (engine == &engine_local && cluster->engine == NULL && tasks != NULL)
        buffer_printf(
            &text,
            "srun starts %.20s tasks, and this one is a run of its own: one run on all nodes begins without "
            "srun; --engine local says that each is meant",
            tasks);
    if (text.size > 0 && !text.failed) terminal_error(command_run.name, text.data);
    return run_to_its_end(command_run.name, &request, arguments, err);
}

static int run_run(const struct arguments *arguments, ty_error *err) {
    struct run_options options = {0};
    struct scaling_options scaling;
    struct cluster_options cluster;
    struct join_options join;
    cluster_options_init(&cluster);
    join_options_init(&join);
    int result = scaling_options_init(&scaling, arguments, err);
    if (result < 0) return result;
    options.settings = scaling.settings;
    if (options.settings.start_method == NULL) options.settings.start_method = "auto";
    result = options_apply(arguments, (void *[]){&scaling, &cluster, &join, &options, &options}, err);
    if (result >= 0) result = settings_finish(&options.settings, FACE_COMMAND, err);
    if (result >= 0) result = cluster_options_check(&cluster, err);
    if (result >= 0 && cluster.slurm_options.n > 0)
        result =
            ty_fail(err, TY_EUSAGE,
                    "--slurm-option %.80s: a run asks Slurm for nothing: it goes on the nodes that there are; "
                    "`trainyard submit` takes it, or give it to salloc",
                    cluster.slurm_options.items[0]);
    if (result >= 0 && *arguments->words[0] == '\0')
        result = ty_fail(err, TY_EUSAGE, "the program's name is empty");
    if (result >= 0) result = join_options_finish(&join, &cluster, err);
    if (result >= 0 && join.options.node_rank > 0)
        result = join_options_serve(&join.options, options.settings.name, command_run.name, &cluster.overrides);
    else if (result >= 0)
        result = start(&options, &scaling, &cluster, &join, arguments, err);
    key_forget(&join.options.key);
    hosts_done(&join.hosts);
    text_list_done(&options.environment);
    scaling_options_done(&scaling);
    cluster_options_done(&cluster);
    return result;
}

const struct command command_run = {
    .name = "run",
    .summary = "run a program on many workers",
    .usage = (const char *const[]){"[OPTION...] [--] PROG [ARG...]", NULL},
    .description =
        "Starts PROG once for each worker, with its ranks, devices and address in the environment as "
        "torchrun sets them, brings their output, metrics and checkpoints home, and starts them again "
        "when one dies, if asked to. When a worker fails, the others are stopped, the first cause is "
        "shown, and no process is left.\n\n"
        "Everything is kept in a directory of the run; `trainyard status NAME` and `trainyard logs NAME` "
        "show it, also while the run goes on.",
    .examples =
        (const char *const[]){"trainyard run -n 4 -- ./train --epochs 10", "four workers with a CPU each",
                              "trainyard run -n 8 --use-gpu --max-failures 3 -- python train.py",
                              "eight workers with a GPU each, started again up to three times", NULL},
    .groups = (const struct option_group *const[]){&scaling_group, &cluster_group, &join_group,
                                                   &run_policy_group, &run_group, NULL},
    .min_words = 1,
    .rest = true,
    .drives = true,
    .missing = "which program? It goes behind the options: trainyard run -n 4 -- PROG ARG...",
    .run = run_run,
};
