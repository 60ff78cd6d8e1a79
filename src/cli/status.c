/* `trainyard status`: the runs below a storage path, or one of them in detail; from their journals alone, so
 * that no run is asked and runs of other machines are shown alike. What a run came to is summed up in
 * view/summary.h, which the page shows as well; here it becomes lines. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/duration.h"
#include "base/quantity.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "view/summary.h"

enum { LIST_SHOWN = 100 }; /* runs */

static void format_time(nanoseconds wall, struct buffer *out) {
    char text[CLOCK_TEXT];
    if (clock_format((time_t)(wall / NS_PER_S), text)) buffer_text(out, text);
}

/* "loss 0.31, step 40", without what Python notes beside them ("$types", "$validation"). */
static void format_metrics(json_t *metrics, struct buffer *out) {
    const char *name = NULL;
    json_t *value = NULL;
    size_t n = 0;
    json_object_foreach(metrics, name, value) {
        if (str_equal(name, "$types") || str_equal(name, "$validation")) continue;
        if (n++ > 0) buffer_text(out, ", ");
        utf8_escape(name, strlen(name), out);
        if (json_is_number(value)) {
            buffer_printf(out, " %.6g", json_number_value(value));
        } else if (json_is_string(value)) {
            buffer_char(out, ' ');
            utf8_escape(json_string_value(value), json_string_length(value), out);
        } else {
            CLEANUP_FREE char *text = json_format(value, JSON_COMPACT | JSON_ENCODE_ANY);
            buffer_printf(out, " %s", text != NULL ? text : "?");
        }
    }
}

static void label(const char *name, struct buffer *out) {
    buffer_printf(out, "%-13s", name);
}

static void line(const char *name, const char *text, struct buffer *out) {
    if (text == NULL) return;
    label(name, out);
    utf8_escape(text, strlen(text), out);
    buffer_char(out, '\n');
}

static void workers_text(const struct view_summary *summary, struct buffer *out) {
    label("workers", out);
    buffer_printf(out, "%lld on %zu node%s:", (long long)summary->workers, summary->nodes,
                  summary->nodes == 1 ? "" : "s");
    const char *between = " ";
    for (size_t i = 0; i < WORKER_STANDINGS_N; i++) {
        if (summary->by_standing[i] == 0) continue;
        buffer_printf(out, "%s%zu %s", between, summary->by_standing[i],
                      worker_standing_name((enum worker_standing)i));
        between = ", ";
    }
    buffer_printf(out, "\n%-13s%d", "attempts", summary->attempts);
    for (size_t i = 0; summary->n_sizes > 1 && i < summary->n_sizes; i++) {
        buffer_printf(out, "%s %lld", i == 0 ? ";" : ",", (long long)summary->sizes[i].workers);
        if (i == 0) buffer_text(out, " workers");
        if (i > 0) buffer_printf(out, " from attempt %d on", summary->sizes[i].attempt);
    }
    buffer_char(out, '\n');
    const struct event_plan *plan = &summary->replay.plan.event.of.plan;
    if (summary->replay.plan.event.time != 0 && plan->spares != EVENT_UNKNOWN) {
        label("spares", out);
        buffer_printf(out, "%lld node%s", (long long)plan->spares, plan->spares == 1 ? "" : "s");
        if (plan->replaced != NULL)
            buffer_printf(out, "; %s in attempt %d", plan->replaced, summary->replay.plan.event.attempt);
        buffer_char(out, '\n');
    }
    /* The networks that were tried, the one in use first. */
    const struct event_texts *tried = &summary->replay.network.event.of.network.tried;
    for (size_t i = 0; summary->replay.network.event.time != 0 && i < tried->n; i++)
        line(i == 0 ? "network" : "", tried->items[i], out);
}

static void results_text(const struct view_summary *summary, struct buffer *out) {
    label("reports", out);
    buffer_printf(out, "%llu", (unsigned long long)summary->reports);
    if (summary->metrics != NULL) buffer_text(out, "; the last of rank 0: ");
    format_metrics(summary->metrics, out);
    buffer_char(out, '\n');
    label("checkpoints", out);
    buffer_printf(out, "%zu", summary->checkpoints);
    if (summary->last_checkpoint != NULL) buffer_text(out, "; the last: ");
    if (summary->last_checkpoint != NULL)
        utf8_escape(summary->last_checkpoint, strlen(summary->last_checkpoint), out);
    buffer_char(out, '\n');
    if (!summary->straggles) return;
    /* "rank 3: 2.1 s between its reports, usual are 1 s" */
    label("slowest", out);
    buffer_printf(out, "rank %u: ", summary->straggler.rank);
    duration_format(summary->straggler.interval, out);
    buffer_text(out, " between its reports, usual are ");
    duration_format(summary->straggler.usual, out);
    buffer_char(out, '\n');
}

static void add_node(const char *cause, const char *node, struct buffer *out) {
    if (node == NULL || (cause != NULL && replay_cause_names_node(cause, node))) return;
    buffer_text(out, ", on node ");
    utf8_escape(node, strlen(node), out);
}

static void faults_text(const struct view_summary *summary, struct buffer *out) {
    const char *last = summary->replay.hardware.event.of.hardware.cause, *cause = summary->cause;
    size_t n = summary->replay.n_hardware;
    if (n > 0) {
        label("hardware", out);
        buffer_printf(out, "%zu fault%s of devices%s", n, n == 1 ? "" : "s",
                      last == NULL ? "" : "; the last: ");
        if (last != NULL) utf8_escape(last, strlen(last), out);
        buffer_char(out, '\n');
    }
    if (cause == NULL) return;
    label("first cause", out);
    /* Most causes say themselves whose they are. */
    char rank[32];
    (void)snprintf(rank, sizeof rank, "rank %d", summary->cause_rank);
    bool named = summary->cause_rank < 0;
    for (const char *at = strstr(cause, rank); at != NULL && !named; at = strstr(at + 1, rank))
        named = strspn(at + strlen(rank), "0123456789") == 0;
    if (!named) buffer_printf(out, "%s: ", rank);
    utf8_escape(cause, strcspn(cause, "\n"), out);
    add_node(cause, view_summary_cause_node(summary), out);
    buffer_char(out, '\n');
}

/* The last ones are enough for a screen; --format json has all. */
static void history_text(const struct view_summary *summary, struct buffer *out) {
    enum { RUNS_SHOWN = 20 };
    const struct run_replay *replay = &summary->replay;
    size_t from = replay->n_attempts > RUNS_SHOWN ? replay->n_attempts - RUNS_SHOWN : 0;
    if (replay->n_attempts < 2) return;
    buffer_text(out, from > 0 ? "\nThe last attempts:\n" : "\nThe attempts:\n");
    for (size_t i = from; i < replay->n_attempts; i++) {
        /* "  2  4 workers, 12.5 s: failed: rank 1 exited with code 3, on node n2; from checkpoint_000004" */
        const struct ty_attempt_info *attempt = &replay->attempts[i];
        buffer_printf(out, "  %-4d%d worker%s, ", attempt->attempt, attempt->num_workers,
                      attempt->num_workers == 1 ? "" : "s");
        duration_format((nanoseconds)(attempt_seconds(attempt, clock_wall()) * (double)NS_PER_S), out);
        buffer_printf(out, ": %s", attempt->outcome != NULL ? attempt->outcome : "goes on");
        if (attempt->cause != NULL) buffer_text(out, ": ");
        if (attempt->cause != NULL) utf8_escape(attempt->cause, strcspn(attempt->cause, "\n"), out);
        add_node(attempt->cause, attempt->node, out);
        if (attempt->checkpoint != NULL) buffer_text(out, "; from ");
        if (attempt->checkpoint != NULL) utf8_escape(attempt->checkpoint, strlen(attempt->checkpoint), out);
        buffer_char(out, '\n');
    }
}

static void phases_text(const struct view_summary *summary, struct buffer *out) {
    bool any = false;
    for (size_t i = 0; i < START_PHASES_N; i++) {
        const struct start_phase *phase = &summary->phases[i];
        if (!phase->known) continue;
        if (!any && summary->attempts > 1)
            buffer_printf(out, "\nWhere the start of attempt %d went:\n", summary->attempts);
        else if (!any)
            buffer_text(out, "\nWhere the start went:\n");
        any = true;
        CLEANUP(buffer_done) struct buffer duration = {0};
        duration_format(phase->duration, &duration);
        buffer_printf(out, "  %-24s%10s", start_phase_name((enum start_phase_kind)i),
                      duration.data != NULL ? duration.data : "?");
        if (phase->rank >= 0) buffer_printf(out, "   slowest: rank %d", phase->rank);
        if (phase->node_name != NULL) buffer_text(out, "   slowest: node ");
        if (phase->node_name != NULL) utf8_escape(phase->node_name, strlen(phase->node_name), out);
        buffer_char(out, '\n');
    }
}

static void run_text(const struct view_summary *summary, struct buffer *out) {
    line("run", summary->name, out);
    label("state", out);
    buffer_text(out, run_standing_name(summary->standing));
    if (summary->status >= 0) buffer_printf(out, ", exit status %d", summary->status);
    if (summary->ended == 0 && summary->pid > 0) buffer_printf(out, ", process %lld", (long long)summary->pid);
    buffer_char(out, '\n');
    line("path", summary->path, out);
    struct run_disk disk;
    if (run_disk_read(summary->path, &disk, NULL) >= 0) { /* parts of it may be another user's alone */
        label("disk", out);
        bytes_format(disk.bytes, out);
        buffer_text(out, ": checkpoints ");
        bytes_format(disk.checkpoints, out);
        buffer_text(out, ", logs ");
        bytes_format(disk.logs, out);
        buffer_char(out, '\n');
    }
    line("command", summary->command, out);
    label("began", out);
    format_time(summary->began, out);
    buffer_text(out, summary->ended > 0 ? ", took " : ", for ");
    duration_format(view_summary_time(summary), out);
    buffer_char(out, '\n');
    if (summary->standing == STANDING_WAITING) {
        label("waits since", out);
        format_time(summary->waits_since, out);
        buffer_char(out, '\n');
        line("waits for", summary->waits_for, out);
    }
    workers_text(summary, out);
    results_text(summary, out);
    faults_text(summary, out);
    history_text(summary, out);
    phases_text(summary, out);
}

/* Newest first. */
static int compare_began(const void *a, const void *b) {
    const struct view_summary *x = a, *y = b;
    return (x->began < y->began) - (x->began > y->began);
}

/* `n_there`: with those that could not be read, of which a warning told. */
static void list_text(const struct view_summary *runs, size_t n, size_t n_there, struct buffer *out) {
    CLEANUP(table_done) struct text_table table = {0};
    if (n_there == 0) buffer_text(out, "No runs here yet. To begin: trainyard run -n 4 -- PROG\n");
    if (n == 0) return;
    TABLE_HEADS(&table, "NAME", "STATE", "WORKERS", "AGE", "DURATION", "LAST METRICS");
    for (size_t i = 0; i < n; i++) {
        CLEANUP(buffer_done) struct buffer text = {0};
        table_cell(&table, runs[i].name);
        table_cell(&table, run_standing_name(runs[i].standing));
        buffer_printf(&text, "%lld", (long long)runs[i].workers);
        table_take(&table, &text);
        duration_format(clock_wall() - runs[i].began, &text);
        table_take(&table, &text);
        duration_format(view_summary_time(&runs[i]), &text);
        table_take(&table, &text);
        format_metrics(runs[i].metrics, &text);
        table_take(&table, &text);
    }
    table_format(&table, out);
}

/* A run whose journal cannot be read is told, and the others are shown. */
static size_t read_runs(const char *storage_path, char **names, size_t n, struct view_summary *runs) {
    size_t n_read = 0;
    for (size_t i = 0; i < n; i++) {
        ty_error err = {0};
        CLEANUP_FREE char *path = run_directory_find(storage_path, names[i], &err);
        if (path != NULL && view_summary_read(names[i], path, &runs[n_read], &err) >= 0)
            n_read++;
        else
            terminal_warning("status", err.message);
    }
    if (n_read > 0) qsort(runs, n_read, sizeof *runs, compare_began);
    return n_read;
}

/* The newest ones, and any that goes on, come to the front; how many. The names come newest first, and a lock
 * is looked at sooner than a journal is read: a storage path may hold thousands of runs. */
static size_t choose_shown(const char *storage_path, char **names, size_t n) {
    size_t shown = n < LIST_SHOWN ? n : LIST_SHOWN;
    for (size_t i = shown; i < n; i++) {
        CLEANUP_FREE char *path = run_directory_path(storage_path, names[i], FACE_COMMAND, NULL);
        if (path == NULL || !run_lock_is_held(path)) continue;
        char *name = names[i];
        names[i] = names[shown];
        names[shown++] = name;
    }
    return shown;
}

static int show_all(const char *storage_path, bool all, int format, struct buffer *out, ty_error *err) {
    char **names = NULL;
    size_t n_there = 0;
    int result = run_directory_names(storage_path, &names, &n_there, err);
    if (result < 0) return result;
    size_t n = all || format == FORMAT_JSON ? n_there : choose_shown(storage_path, names, n_there);
    CLEANUP_FREE struct view_summary *runs = calloc(n + 1, sizeof *runs);
    size_t n_runs = runs != NULL ? read_runs(storage_path, names, n, runs) : 0;
    run_directory_names_free(names, n_there);
    if (runs == NULL) return ty_fail_memory(err);
    if (format == FORMAT_JSON) {
        json_t *list = json_array();
        for (size_t i = 0; i < n_runs; i++)
            (void)json_array_append_new(list, view_summary_json(&runs[i], false));
        cli_json_add(json_pack("{s:o}", "runs", list), out);
    } else {
        list_text(runs, n_runs, n, out);
        if (n < n_there) buffer_printf(out, "%zu older ones are not shown: --all\n", n_there - n);
    }
    for (size_t i = 0; i < n_runs; i++)
        view_summary_done(&runs[i]);
    return 0;
}

/* "job 12 waits: other jobs hold what it needs (Resources)" */
static void job_line(const struct submitted *submitted, struct buffer *out) {
    CLEANUP_FREE char *told = str_format("%lld %s", (long long)submitted->job_id, submitted->state);
    line("job", told, out);
}

/* A run that was given to Slurm and has no journal yet. */
static void show_unbegun(const char *name, const struct submitted *submitted, int format, struct buffer *out) {
    const char *state = submitted->waits ? "pending" : "not begun";
    if (format == FORMAT_JSON) {
        cli_json_add(json_pack("{s:s, s:s, s:I, s:s, s:s}", "name", name, "state", state, "job",
                               (json_int_t)submitted->job_id, "job_state", submitted->state, "output",
                               submitted->output),
                     out);
        return;
    }
    line("run", name, out);
    line("state", state, out);
    job_line(submitted, out);
    line("output", submitted->output, out);
}

static const struct option_spec status_specs[] = {
    {"all", 0, NULL, "all runs; without it the newest 100 and those that go on (JSON has all)", option_flag, 0,
     NULL},
};
static const struct option_group status_group = {"Options", status_specs, ARRAY_SIZE(status_specs)};

static int status_run(const struct arguments *arguments, ty_error *err) {
    struct storage_options options = {0};
    struct format_options format = {0};
    bool all = false;
    int result = options_apply(arguments, (void *[]){&all, &options, &format}, err);
    if (result < 0) return result;
    CLEANUP(buffer_done) struct buffer text = {0};
    const char *name = arguments->words[0];
    if (name == NULL) {
        result = show_all(options.storage_path, all, format.format, &text, err);
        return result < 0 ? result : cli_print(&text, err);
    }
    CLEANUP_FREE char *path = run_directory_find(options.storage_path, name, err);
    struct submitted submitted = {0};
    if (path == NULL && err->code == TY_EUSAGE && submitted_look(options.storage_path, name, &submitted)) {
        show_unbegun(name, &submitted, format.format, &text);
        submitted_done(&submitted);
        return cli_print(&text, err);
    }
    if (path == NULL) return err->code;
    struct view_summary summary;
    result = view_summary_read(name, path, &summary, err);
    if (result < 0) return result;
    if (format.format == FORMAT_JSON)
        cli_json_add(view_summary_json(&summary, true), &text);
    else
        run_text(&summary, &text);
    bool may_go_on = summary.standing >= STANDING_FAILED;
    if (format.format != FORMAT_JSON && may_go_on && submitted_look(options.storage_path, name, &submitted)) {
        if (submitted.waits) job_line(&submitted, &text);
        submitted_done(&submitted);
    }
    view_summary_done(&summary);
    return cli_print(&text, err);
}

const struct command command_status = {
    .name = "status",
    .summary = "show the runs, or one of them in detail",
    .usage = (const char *const[]){"[NAME] [OPTION...]", NULL},
    .description = "Reads the journals of the runs, also while they go on. With NAME: its attempts and why "
                   "each ended, workers by state, checkpoints, latest metrics and first cause, and where the "
                   "seconds of its start went, with the slowest rank of each part. Of a run that was submitted "
                   "and waits in the queue: why it does.",
    .groups = (const struct option_group *const[]){&status_group, &storage_group, &format_group, NULL},
    .max_words = 1,
    .run = status_run,
};
