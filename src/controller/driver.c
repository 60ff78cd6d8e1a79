/* The module `driver`, which the worker library loads for what only a driver needs: the table of its calls, and
 * ty_fit as a run whose program is this very executable. News of the run go to standard error, as those of
 * Python do. The run itself is controller.c's. */
#include "worker/driver.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/module.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "controller/controller.h"
#include "controller/events.h"
#include "controller/result.h"
#include "controller/run_directory.h"
#include "controller/sink.h"
#include "controller/site.h"
#include "engine/join.h"
#include "engine/local.h"
#include "scaling/scaling.h"
#include "worker/link.h"

/* The command line of this process, for the workers to have the same: `argv` lies in `text`. */
static int read_command_line(struct buffer *text, const char ***argv, ty_error *err) {
    int result = file_read("/proc/self/cmdline", 64 << 20, text, err);
    if (result < 0) return result;
    size_t n = 0;
    for (size_t i = 0; i < text->size; i++)
        n += text->data[i] == '\0';
    *argv = calloc(n + 1, sizeof **argv);
    if (*argv == NULL) return ty_fail_memory(err);
    const char *at = text->data;
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
        (*argv)[i] = at;
    return 0;
}

/* This process's environment, and which function to call. */
static int make_environment(const ty_trainer_config *trainer, struct environment *environment, ty_error *err) {
    char function[WORKER_FUNCTION_SIZE];
    int result = worker_function_name(trainer->train, function, err);
    if (result < 0) return result;
    if (environment_add(environment, environ) < 0 ||
        environment_set(environment, WORKER_FUNCTION_VARIABLE, function) < 0)
        return ty_fail_memory(err);
    return 0;
}

/* News of the run while it goes on, in the form in which Python tells them. */
static void tell_line(const char *text) {
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_text(&line, "trainyard: ");
    utf8_escape(text, strlen(text), &line);
    buffer_char(&line, '\n');
    sink_say(&line);
}

static void tell_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)context, (void)level, (void)subsystem;
    tell_line(text);
}

/* The way on after a run that was stopped from outside, or lost a node. */
static void tell_how_to_go_on(const ty_result *result, const ty_run_config *run) {
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_text(&line, "to go on: ");
    if (run->name != NULL && run->resume) {
        buffer_text(&line, "start the program again");
    } else {
        buffer_text(&line, "ty_fit again with ty_run_config .name = ");
        buffer_json_text(&line, result->name);
        if (run->storage_path != NULL) {
            buffer_text(&line, ", .storage_path = ");
            buffer_json_text(&line, run->storage_path);
        }
        buffer_text(&line, ", .resume = true");
    }
    if (!line.failed) tell_line(line.data);
}

/* -- several machines, where the variables of the environment say so */

/* The same program was started on each node, and another one has the controller: this process goes on as the
 * agent of its node, which ends with the run's exit status. */
static int serve(const struct engine_options *options, const char *run, ty_error *err) {
    char rank[24];
    const char *command = module_command(err);
    if (command == NULL) return err->code;
    (void)snprintf(rank, sizeof rank, "%lld", (long long)options->node_rank);
    const char *argv[14] = {"trainyard",   "agent", "--rendezvous", options->rendezvous,
                            "--node-rank", rank,    "--awaits",     "another"};
    size_t n = 8;
    if (run != NULL) {
        argv[n++] = "--run";
        argv[n++] = run;
    }
    if (options->key.text[0] == '\0') {
        argv[n++] = "--key";
        argv[n++] = "none";
    }
    (void)fflush(NULL);
    (void)execv(command, (char **)argv);
    return ty_fail(err, TY_ESTART, "cannot execute %s: %s", command, strerror(errno));
}

/* Does not return on a node that serves another one's run (`run`: its name, or NULL). */
static int meet_others(struct engine_options *options, struct hosts *hosts, const char *run, ty_error *err) {
    int result = join_read_variables(options, hosts, err);
    bool partly = options->hosts == NULL &&
                  (options->max_nodes > 0 || options->node_rank >= 0 || options->rendezvous != NULL);
    const char *missing = !partly                       ? NULL
                          : options->max_nodes == 0     ? JOIN_NODES_VARIABLE
                          : options->node_rank < 0      ? JOIN_RANK_VARIABLE
                          : options->rendezvous == NULL ? JOIN_MEETING_VARIABLE
                                                        : NULL;
    if (result >= 0 && missing != NULL)
        result = ty_fail(err, TY_EUSAGE,
                         JOIN_NODES_VARIABLE ", " JOIN_RANK_VARIABLE " and " JOIN_MEETING_VARIABLE
                                             " of the environment belong together: %s is missing",
                         missing);
    if (result >= 0) result = key_read_variable(&options->key, err);
    if (result >= 0 && partly && join_check(options, err) < 0) result = ty_wrap(err, "of the environment");
    return result >= 0 && options->node_rank > 0 ? serve(options, run, err) : result;
}

/* What on_event of a ty_trainer_config hears. */
static const uint32_t told_events = UINT32_C(1) << EVENT_RUN | UINT32_C(1) << EVENT_ATTEMPT |
                                    UINT32_C(1) << EVENT_CHECKPOINT | UINT32_C(1) << EVENT_ATTEMPT_END |
                                    UINT32_C(1) << EVENT_RUN_END;

/* ty_fit: this very program, with its command line and environment, is what workers execute; in them ty_init
 * finds by a variable that it is to call the function. */
static int fit(const ty_trainer_config *trainer, ty_result **result, ty_error *err) {
    static const ty_run_config default_run;
    static const ty_scaling_config default_scaling;
    char executable[PATH_MAX];
    CLEANUP(buffer_done) struct buffer line = {0};
    CLEANUP_FREE const char **argv = NULL;
    CLEANUP(environment_done) struct environment environment = {0};
    const ty_run_config *run = trainer->run == NULL ? &default_run : trainer->run;
    struct scaling scaling;
    ssize_t size = readlink("/proc/self/exe", executable, sizeof executable - 1);
    if (size < 0) return ty_fail(err, -errno, "cannot read /proc/self/exe: %s", strerror(errno));
    executable[size] = '\0';
    struct run_settings settings;
    struct engine_options engine = {.node_rank = -1};
    CLEANUP(hosts_done) struct hosts hosts = {0};
    int code = meet_others(&engine, &hosts, run->name, err);
    if (code >= 0) code = site_settings(&settings, err);
    if (code >= 0) code = settings_from_public(&settings, run, err);
    if (code >= 0) code = settings_finish(&settings, FACE_FIELDS, err);
    if (code >= 0) code = read_command_line(&line, &argv, err);
    if (code >= 0) code = make_environment(trainer, &environment, err);
    scaling_init(&scaling);
    if (code >= 0)
        code =
            scaling_from_public(&scaling, trainer->scaling == NULL ? &default_scaling : trainer->scaling, err);
    if (code >= 0) {
        struct run_request request = {.settings = settings,
                                      .scaling = &scaling,
                                      .engine_options = &engine,
                                      .argv = argv,
                                      .executable = executable,
                                      .environment = environment.items,
                                      .payload = trainer->config,
                                      .payload_size = trainer->config_size,
                                      .handle_signals = true,
                                      .events = trainer->on_event == NULL ? 0 : told_events,
                                      .on_event = trainer->on_event,
                                      .event_context = trainer->event_context};
        struct log_target before = log_divert(log_target(run->quiet ? NULL : tell_log, NULL));
        code = controller_run(&request, result, err);
        if (code >= 0 && !run->quiet && (*result)->summary != NULL) tell_line((*result)->summary);
        bool from_outside =
            code == TY_EINTERRUPTED || code == TY_EPREEMPTED || code == TY_ETIMEOUT || code == TY_ENODE;
        if (from_outside && !run->quiet && *result != NULL) tell_how_to_go_on(*result, run);
        (void)log_divert(before);
    }
    scaling_done(&scaling);
    key_forget(&engine.key);
    return code;
}

static int default_storage_path(char **path, ty_error *err) {
    ty_error failure = {0};
    char *found = run_directory_path(NULL, NULL, FACE_FIELDS, &failure);
    if (found == NULL) return ty_fail(err, failure.code, "%s", failure.message);
    *path = found;
    return 0;
}

extern const struct driver trainyard_driver;
TY_API const struct driver trainyard_driver = {
    .version = base_build,
    .fit = fit,
    .scaling_resolve = scaling_resolve_json,
    .cluster_nodes = cluster_nodes_json,
    .run_check = request_check,
    .storage_path = default_storage_path,
    .result_read = past_result_read,
    .run_open = controller_open,
    .run_fd = controller_fd,
    .run_timeout_ms = controller_timeout_ms,
    .run_dispatch = controller_dispatch,
    .run_next_event = controller_next_event,
    .run_fork = copy_make,
    .run_fork_drop = copy_drop,
    .run_checkpoint_metrics = controller_checkpoint_metrics,
    .run_stop = controller_stop,
    .run_close = controller_close,
};
