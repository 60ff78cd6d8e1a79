/* `trainyard submit`: a run as a batch job of Slurm. What can never be given is refused before anything is
 * submitted. Whether and when the job runs is Slurm's, which is not waited for. The request is made in
 * engine/slurm_request.c, the script in engine/slurm_batch.c. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/shell.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"

#define NOTICE "USR1" /* tells `trainyard run`; a program with fit() hears of a preemption by SIGTERM */
enum { NOTICE_BESIDE_S = 60, REQUEUES_DEFAULT = 3, REQUEUES_MAX = 1000000, STATE_LOOKS = 4 };

struct submit_command {
    struct scaling_options scaling;
    struct cluster_options cluster;
    struct run_options run;
    int64_t max_requeues;
    bool print, fit;
    char name[256];
};

static int set_requeues(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return option_whole(value, 0, REQUEUES_MAX, &((struct submit_command *)target)->max_requeues, err);
}

static const struct option_spec specs[] = {
    {"print-script", 0, NULL, "print the batch script, and submit nothing", option_flag,
     offsetof(struct submit_command, print), NULL},
    {"fit", 0, NULL, "PROG calls fit() itself: the job executes it as it is, and it drives the run",
     option_flag, offsetof(struct submit_command, fit), NULL},
    {"max-requeues", 0, "N",
     "how often the job may go back into the queue when its machines are taken away (default: 3)", set_requeues,
     0, NULL},
};
static const struct option_group submit_group = {"Batch job", specs, ARRAY_SIZE(specs)};

static const struct option_group *const groups[] = {&submit_group,     &scaling_group, &cluster_group,
                                                    &run_policy_group, &run_group,     NULL};

/* A name that was used is gone on with only if that was asked for. With --fit it is that of the job alone. */
static int check_name(struct submit_command *command, char **storage, ty_error *err) {
    const struct run_settings *settings = &command->run.settings;
    if (settings->name != NULL)
        (void)snprintf(command->name, sizeof command->name, "%s", settings->name);
    else
        run_directory_make_name(command->name);
    CLEANUP_FREE char *path = run_directory_path(settings->storage_path, command->name, FACE_COMMAND, err);
    if (path == NULL) return err->code;
    struct stat status;
    if (!command->fit && settings->resume == NULL && stat(path, &status) == 0)
        return ty_fail(err, TY_EEXISTS, "the run %s exists: give --resume to go on with it, or another --name",
                       command->name);
    *storage = run_directory_storage(settings->storage_path, err);
    return *storage == NULL ? err->code : 0;
}

/* Where the run is kept is part of the commands that show it, unless they look there anyway. */
static int tell(const struct submit_command *command, const struct arguments *arguments, int64_t job_id,
                const char *output, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP(buffer_done) struct buffer state = {0};
    CLEANUP(buffer_done) struct buffer run = {0};
    bool over = false;
    const char *kept = options_value(arguments, "storage-path");
    if (kept != NULL) buffer_text(&run, "--storage-path ");
    if (kept != NULL) shell_quote(kept, false, &run);
    buffer_printf(&run, "%s%s", kept != NULL ? " " : "", command->name);
    buffer_printf(&text, "job %lld%s%s\n", (long long)job_id, command->fit ? "" : ", run ",
                  command->fit ? "" : command->name);
    int result = cli_print(&text, err);
    if (result < 0) return result;
    buffer_clear(&text);
    if (run.failed) return ty_fail_memory(err);
    /* Slurm says why a job waits once it has tried to start the job, which takes a moment. */
    for (int i = 0; i < STATE_LOOKS; i++) {
        buffer_clear(&state);
        if (!slurm_job_state(job_id, &state, &over)) buffer_text(&state, "is submitted");
        if (state.failed || strstr(state.data, "(None)") == NULL) break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    }
    buffer_printf(&text, "job %lld %s; ", (long long)job_id, state.data);
    if (!command->fit) buffer_printf(&text, "`trainyard status %s` shows it", run.data);
    if (!command->fit && !over) buffer_printf(&text, ", and `trainyard logs %s` once it runs", run.data);
    if (!command->fit) buffer_text(&text, "; ");
    buffer_printf(&text, "its own output is in %s", output);
    if (!over) buffer_printf(&text, "; scancel %lld ends it", (long long)job_id);
    if (!text.failed) terminal_error("submit", text.data);
    return 0;
}

/* Slurm replaces %j and others in the path of the output; %% is a % that stays one. */
static void add_pattern(const char *text, struct buffer *out) {
    for (; *text != '\0'; text++)
        buffer_printf(out, *text == '%' ? "%%%%" : "%c", *text);
}

/* `trainyard run` with the same options, but for those that are for this process. */
static int write_run(const struct submit_command *command, const struct arguments *arguments,
                     struct buffer *line, ty_error *err) {
    static const char *const less[] = {"print-script", "max-requeues",   "slurm-option",
                                       "engine",       "preempt-signal", NULL};
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size <= 0) return ty_fail(err, TY_ESTART, "cannot tell where trainyard is: %s", strerror(errno));
    program[size] = '\0';
    const struct go_on_line again = {program, command_run.name, " --engine slurm --preempt-signal " NOTICE,
                                     less, true};
    go_on_format_line(&again, arguments, command->name, line);
    return line->failed ? ty_fail_memory(err) : 0;
}

/* The program behind its variables; it plans on the allocation, also on one of one node. */
static int write_fit(const struct arguments *arguments, struct buffer *line, ty_error *err) {
    CLEANUP(words_done) struct words variables = {0};
    int result = fit_variables(arguments, &variables, err);
    if (result < 0) return result;
    buffer_text(line, ENGINE_VARIABLE "=slurm");
    for (size_t i = 0; i < variables.n; i++) {
        const char *value = strchr(variables.items[i], '=') + 1;
        buffer_printf(line, " %.*s", (int)(value - variables.items[i]), variables.items[i]);
        shell_quote(value, true, line);
    }
    for (size_t i = 0; i < arguments->n_words; i++) {
        buffer_char(line, ' ');
        shell_quote(arguments->words[i], true, line);
    }
    return line->failed ? ty_fail_memory(err) : 0;
}

static int submit(struct submit_command *command, const struct arguments *arguments,
                  const struct slurm_request *request, ty_error *err) {
    CLEANUP_FREE char *storage = NULL;
    CLEANUP(buffer_done) struct buffer line = {0};
    CLEANUP(buffer_done) struct buffer output = {0};
    CLEANUP(buffer_done) struct buffer script = {0};
    int result = check_name(command, &storage, err);
    if (result >= 0)
        result = command->fit ? write_fit(arguments, &line, err) : write_run(command, arguments, &line, err);
    if (result < 0) return result;
    add_pattern(storage, &output);
    buffer_char(&output, '/');
    add_pattern(command->name, &output);
    buffer_text(&output, ".slurm-%j.out");
    const struct slurm_batch batch = {.name = command->name,
                                      .output = output.data,
                                      .command = line.data,
                                      .preempt_signal = command->fit ? "TERM" : NOTICE,
                                      .max_requeues = command->max_requeues,
                                      .notice_s =
                                          (int64_t)(command->run.settings.grace / NS_PER_S) + NOTICE_BESIDE_S};
    if (output.failed || slurm_batch_format(&batch, request, &script) < 0) return ty_fail_memory(err);
    if (command->print) return cli_print(&script, err);
    int64_t job_id = 0;
    result = file_make_directories(storage, 0777, err);
    if (result >= 0) result = slurm_batch_submit(script.data, &job_id, err);
    if (result < 0) return result;
    const char *own = slurm_request_value(request, "output");
    CLEANUP_FREE char *path = own != NULL ? strdup(own) : submitted_output(storage, command->name, job_id);
    if (path == NULL) return ty_fail_memory(err);
    /* By it the run is known while the job waits (submitted.c); Slurm appends to it. */
    CLEANUP_FD int file = own == NULL ? open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    return tell(command, arguments, job_id, path, err);
}

static int submit_run(const struct arguments *arguments, ty_error *err) {
    struct submit_command command = {.max_requeues = REQUEUES_DEFAULT};
    struct demand demand = {0};
    struct slurm_view view = {0};
    cluster_options_init(&command.cluster);
    int result = scaling_options_init(&command.scaling, arguments, err);
    if (result < 0) return result;
    command.run.settings = command.scaling.settings;
    result = options_apply(
        arguments, (void *[]){&command, &command.scaling, &command.cluster, &command.run, &command.run}, err);
    if (result >= 0) result = settings_finish(&command.run.settings, FACE_COMMAND, err);
    if (result >= 0 && command.fit) result = fit_check(arguments, groups, err);
    if (result >= 0) result = cluster_options_check(&command.cluster, err);
    if (result >= 0) result = scaling_resolve(&command.scaling.scaling, scaling_train_v1(), &demand, err);
    if (result >= 0) result = slurm_view_look(&command.cluster, &demand, &view, err);
    if (result >= 0 && view.inside)
        result = ty_fail(
            err, TY_EUSAGE,
            "this is an allocation already (job %.20s): `trainyard run` runs on it; where that job is over, "
            "`unset SLURM_JOB_ID`",
            getenv("SLURM_JOB_ID"));
    if (result >= 0) result = slurm_view_ask(&command.cluster, &demand, &view, err);
    if (result >= 0 && !command.fit && slurm_request_value(&view.request, "array") != NULL)
        result =
            ty_fail(err, TY_EUSAGE,
                    "--slurm-option array: each job of the array would be the same run: submit them one by "
                    "one, each with a --name of its own");
    if (result >= 0) result = submit(&command, arguments, &view.request, err);
    slurm_view_done(&view);
    demand_done(&demand);
    text_list_done(&command.run.environment);
    scaling_options_done(&command.scaling);
    cluster_options_done(&command.cluster);
    return result;
}

const struct command command_submit = {
    .name = "submit",
    .summary = "give a run to Slurm as a batch job",
    .usage = (const char *const[]){"[OPTION...] [--] PROG [ARG...]", NULL},
    .description = "Asks Slurm for what the workers need, and submits a job that runs PROG on it as `trainyard "
                   "run` does. The job goes on when you log "
                   "out. When its machines are taken away it goes back into the queue, and the run goes on "
                   "from its latest checkpoint; with --fit that is the program's to ask for. What no node can "
                   "ever give is refused before; why a job waits is said in words. `trainyard plan --engine "
                   "slurm` shows the request line by line.",
    .examples =
        (const char *const[]){
            "trainyard submit -n 16 --use-gpu --accelerator-type A100 --name bert -- python train.py",
            "sixteen workers with a GPU each, on nodes that Slurm chooses",
            "trainyard submit -n 8 --slurm-option partition=long --slurm-option time=2-0 -- ./train",
            "with options of sbatch",
            "trainyard submit -n 16 --use-gpu --fit -- python -m trainyard.as_ray train.py",
            "a program for Ray Train", NULL},
    .groups = groups,
    .min_words = 1,
    .rest = true,
    .missing = "which program? It goes behind the options: trainyard submit -n 4 -- PROG ARG...",
    .run = submit_run,
};
