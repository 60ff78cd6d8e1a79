/* `trainyard run`: any program on many workers. Takes the options together into one request; the controller
 * does the rest. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/policy_options.h"
#include "cli/run_environment.h"
#include "cli/scaling_options.h"
#include "cli/terminal.h"
#include "controller/controller.h"
#include "run/run.h"
#include "worker/result.h"

struct run_options {
    const char *name, *resumed, *storage_path; /* resumed: the name that --resume gives */
    struct run_environment environment;
    int framework, backend, progress, bind;
    struct chaos_policy chaos;
    nanoseconds time_limit, grace, hang_timeout;
    int preempt_signal;
    bool resume, no_wait, no_prefix, isolate_devices, quiet;
};

static const char *const frameworks[] = {"plain", "torch", "jax", NULL};
static const char *const backends[] = {"auto", "gloo", "nccl", NULL};
static const char *const progresses[] = {"auto", "plain", "none", NULL};
static const char *const bindings[] = {"numa", "none", NULL};

static int set_name(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int result = controller_check_name(value, err);
    return result < 0 ? result : option_text(option, target, value, err);
}

static int set_resume(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    struct run_options *options = target;
    options->resume = true;
    if (value == NULL) return 0;
    options->resumed = value;
    return controller_check_name(value, err);
}

static int add_variable(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return run_environment_add(&((struct run_options *)target)->environment, value, err);
}

static int set_chaos(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return chaos_parse(value, &((struct run_options *)target)->chaos, err);
}

static int set_signal(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return preempt_signal_parse(value, &((struct run_options *)target)->preempt_signal, err);
}

#define AT(field) offsetof(struct run_options, field)

static const struct option_spec specs[] = {
    {"name", 0, "NAME", "the run's name (default: run-YYYYMMDD-HHMMSS-xxxx)", set_name, AT(name), NULL},
    {"storage-path", 0, "DIR", STORAGE_PATH_HELP, option_text, AT(storage_path), NULL},
    {"resume", 0, "[NAME]",
     "go on with the run of this name, which --name may give as well; where there is none a new one begins, "
     "which is told; without it "
     "a name that exists is refused",
     set_resume, 0, NULL},
    {"env", 0, "NAME=VALUE",
     "a variable for the workers, which otherwise inherit this environment; may be given many times; NAME "
     "alone demands that it is set here",
     add_variable, 0, NULL},
    {"framework", 0, "plain|torch|jax", "set up what this framework expects (default: plain)", option_choice,
     AT(framework), frameworks},
    {"backend", 0, "auto|gloo|nccl",
     "how workers talk (default: nccl where they hold GPUs and it is there, else gloo)", option_choice,
     AT(backend), backends},
    {"chaos", 0, "SEED[:EVERY]",
     "kill, stop and starve workers at random times, to try what the program does then: on average one every "
     "10s, or EVERY; the same seed gives the same schedule, which is told as it happens",
     set_chaos, 0, NULL},
    {"time-limit", 0, "DURATION", "stop the run after this time: 90, 1.5h, 500ms; 0: none (default)",
     option_duration, AT(time_limit), NULL},
    {"grace", 0, "DURATION", "what workers get between being told to stop and being killed (default: 5s)",
     option_duration, AT(grace), NULL},
    {"hang-timeout", 0, "DURATION",
     "a worker that is up and makes no report and no heartbeat for so long has failed; the stacks of all are "
     "saved in the run's "
     "logs first (default: none)",
     option_duration, AT(hang_timeout), NULL},
    {"preempt-signal", 0, "SIGNAL",
     "the signal that tells of a preemption, as USR1 for `sbatch --signal=B:USR1@60`: workers may save, and "
     "the run ends "
     "resumable (default: TERM)",
     set_signal, 0, NULL},
    {"no-wait", 0, NULL, "refuse, instead of waiting, when other runs hold the devices", option_flag,
     AT(no_wait), NULL},
    {"isolate-devices", 0, NULL,
     "a worker sees its own devices only, not those of the run's others on its node", option_flag,
     AT(isolate_devices), NULL},
    {"bind", 0, "numa|none",
     "keep workers near their devices' cores and memory, where there are several NUMA nodes (default: numa)",
     option_choice, AT(bind), bindings},
    {"no-prefix", 0, NULL, "workers' lines as they are, without [rank N]", option_flag, AT(no_prefix), NULL},
    {"progress", 0, "auto|plain|none", "a live line on a terminal, lines of text, or nothing (default: auto)",
     option_choice, AT(progress), progresses},
    {"quiet", 'q', NULL, "no output of workers and no progress; logs are written all the same", option_flag,
     AT(quiet), NULL},
};
static const struct option_group run_group = {"Run", specs, ARRAY_SIZE(specs)};

static const struct option_spec *option_named(const char *name) {
    size_t i = 0;
    while (!str_equal(specs[i].name, name))
        i++;
    return &specs[i];
}

/* What the config file says of the options, which are applied after it. */
static int apply_settings(struct run_options *options, const struct run_settings *settings, ty_error *err) {
    for (size_t i = 0; i < settings->n_options; i++) {
        const struct run_setting *setting = &settings->options[i];
        const struct option_spec *option = option_named(setting->option);
        int result = option->set(option, options, setting->text, err);
        if (result < 0) return ty_wrap(err, "%s", setting->where);
    }
    return 0;
}

/* One run has one name. */
static int take_resumed(struct run_options *options, ty_error *err) {
    if (options->resumed != NULL && options->name != NULL && !str_equal(options->resumed, options->name))
        return ty_fail(err, TY_EUSAGE,
                       "--resume %.80s: the run is called %.80s already; put -- in front of the program",
                       options->resumed, options->name);
    if (options->name == NULL) options->name = options->resumed;
    return 0;
}

/* The same for the names, where no option did. */
static int take_settings(struct run_options *options, const struct run_settings *settings, ty_error *err) {
    if (options->name == NULL && settings->name != NULL) {
        int result = controller_check_name(settings->name, err);
        if (result < 0) return ty_wrap(err, "run_config: name");
        options->name = settings->name;
    }
    if (options->storage_path == NULL) options->storage_path = settings->storage_path;
    return 0;
}

static void fill_request(struct run_request *request, const struct run_options *options,
                         const struct scaling_options *scaling, const struct cluster_options *cluster,
                         const struct policy_options *policy) {
    static const enum progress_mode modes[] = {PROGRESS_AUTO, PROGRESS_PLAIN, PROGRESS_NONE};
    *request = (struct run_request){
        .scaling = &scaling->scaling,
        .train_v1 = scaling_train_v1(),
        .engine = cluster->engine,
        .cluster_file = cluster->cluster_file,
        .overrides = &cluster->overrides,
        .name = options->name,
        .storage_path = options->storage_path,
        .resume = options->resume,
        .framework = frameworks[options->framework],
        .backend = options->backend == 0 ? NULL : backends[options->backend],
        .failures = policy->failures,
        .checkpoints = policy->checkpoints,
        .chaos = options->chaos,
        .time_limit = options->time_limit,
        .grace = options->grace,
        .hang_timeout = options->hang_timeout,
        .preempt_signal = options->preempt_signal,
        .no_prefix = options->no_prefix,
        .isolate_devices = options->isolate_devices,
        .no_wait = options->no_wait,
        .alone = true,
        .handle_signals = true,
        .quiet = options->quiet,
        .bind_numa = options->bind == 0,
        .progress = modes[options->progress],
    };
}

/* The first cause, on one screen; made of workers' output, so it is escaped. */
static void print_failure(const char *failure) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_text(&text, "trainyard run: ");
    while (*failure != '\0') {
        size_t size = strcspn(failure, "\n");
        utf8_escape(failure, size, &text);
        buffer_char(&text, '\n');
        failure += size + (failure[size] == '\n');
    }
    if (!text.failed) (void)file_write_all(STDERR_FILENO, text.data, text.size);
}

static int tell_outcome(int code, const ty_result *result, const ty_error *err) {
    if (code >= 0) return EXIT_SUCCESS;
    if (result != NULL && ty_result_failure(result) != NULL)
        print_failure(ty_result_failure(result));
    else
        terminal_error("run", err->message);
    bool of_workers =
        (code == TY_EWORKER || code == TY_EINTERRUPTED || code == TY_EPREEMPTED) && result != NULL;
    int status = of_workers ? ty_result_status(result) : ty_error_exit_status(code);
    return status != 0 ? status : EXIT_FAILURE;
}

/* What the run has to say while it goes on. */
static void tell_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)context, (void)subsystem;
    if (level == LOG_LEVEL_WARNING)
        terminal_warning("run", text);
    else
        terminal_error("run", text);
}

static int start(const struct run_options *options, const struct scaling_options *scaling,
                 const struct cluster_options *cluster, const struct policy_options *policy, char **program,
                 ty_error *err) {
    CLEANUP(environment_done) struct environment environment = {0};
    int code = run_environment_make(&options->environment, scaling->settings.environment, &environment, err);
    if (code < 0) return code;
    struct run_request request;
    fill_request(&request, options, scaling, cluster, policy);
    request.argv = (const char *const *)program;
    request.environment = environment.items;
    ty_result *result = NULL;
    log_set_sink(tell_log, NULL);
    code = controller_run(&request, &result, err);
    int status = tell_outcome(code, result, err);
    ty_result_free(result);
    return status;
}

static int run_run(const struct arguments *arguments, ty_error *err) {
    struct run_options options = {.grace = RUN_GRACE_DEFAULT};
    struct scaling_options scaling;
    struct cluster_options cluster;
    struct policy_options policy;
    cluster_options_init(&cluster);
    int result = scaling_options_init(&scaling, arguments, err);
    if (result < 0) return result;
    policy_options_init(&policy, &scaling.settings);
    result = apply_settings(&options, &scaling.settings, err);
    if (result >= 0) result = options_apply(arguments, (void *[]){&scaling, &cluster, &policy, &options}, err);
    if (result >= 0) result = policy_options_finish(&policy, err);
    if (result >= 0) result = cluster_options_check(&cluster, err);
    if (result >= 0) result = take_settings(&options, &scaling.settings, err);
    if (result >= 0) result = take_resumed(&options, err);
    if (result >= 0 && *arguments->words[0] == '\0')
        result = ty_fail(err, TY_EUSAGE, "the program's name is empty");
    if (result >= 0) result = start(&options, &scaling, &cluster, &policy, arguments->words, err);
    run_environment_done(&options.environment);
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
    .groups =
        (const struct option_group *const[]){&scaling_group, &cluster_group, &policy_group, &run_group, NULL},
    .min_words = 1,
    .rest = true,
    .missing = "which program? It goes behind the options: trainyard run -n 4 -- PROG ARG...",
    .run = run_run,
};
