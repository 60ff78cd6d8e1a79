/* `trainyard metrics`: what a run reported, as a table or a drawing for people, and in the formats that other
 * programs read. What the numbers are is read by view; nothing is computed here but the layout. Rows (csv,
 * jsonl, TensorBoard) can be followed, since each is written once; the others are made of all reports. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/braille.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "view/export.h"
#include "view/series.h"
#include "view/watch.h"

enum metrics_format {
    METRICS_TABLE,
    METRICS_JSON,
    METRICS_CSV,
    METRICS_JSONL,
    METRICS_OPENMETRICS,
    METRICS_TENSORBOARD
};
static const char *const formats[] = {"table", "json", "csv", "jsonl", "openmetrics", "tensorboard", NULL};
enum { METRICS_NAMED = 16, JSON_CURVES = 6 };
static const char *const histories[] = {"effective", "all", NULL};

struct metrics_options {
    struct rank_choice wanted;
    bool follow, plot, per_rank, per_device;
    int format, history;
    const char *output, *x, *metrics[METRICS_NAMED];
    size_t n_metrics;
    int64_t buckets; /* 0: VIEW_BUCKETS */
};

/* Not checked here: which metrics there are is known when the run is read. */
static int add_metric(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    struct metrics_options *options = target;
    if (options->n_metrics == METRICS_NAMED)
        return ty_fail(err, TY_EUSAGE, "at most %d metrics at once", METRICS_NAMED);
    options->metrics[options->n_metrics++] = value;
    return 0;
}

static int set_buckets(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return option_whole(value, 1, VIEW_BUCKETS_MAX, &((struct metrics_options *)target)->buckets, err);
}

static const struct option_spec specs[] = {
    {"rank", 0, "R[,R-R...]", "only these ranks", option_ranks, offsetof(struct metrics_options, wanted), NULL},
    {"history", 0, "effective|all", "what counts (default), or also what later attempts took back",
     option_choice, offsetof(struct metrics_options, history), histories},
    {"format", 0, "table|json|csv|jsonl|openmetrics|tensorboard",
     "a table (default); curves, as the page draws them; every report as a row (csv, jsonl); what Prometheus "
     "reads; event files in the directory of --output",
     option_choice, offsetof(struct metrics_options, format), formats},
    {"output", 'o', "PATH", "write there, and not to standard output", option_output,
     offsetof(struct metrics_options, output), NULL},
    {"follow", 'f', NULL, "go on until the run ends", option_flag, offsetof(struct metrics_options, follow),
     NULL},
    {"plot", 0, NULL, "draw the curves of the metrics over the step", option_flag,
     offsetof(struct metrics_options, plot), NULL},
    {"metric", 0, "METRIC", "with --plot and json: this one; may be given several times", add_metric, 0, NULL},
    {"x", 0, "X", "with --plot and json: step (default), epoch, number, time, relative or metric:NAME",
     option_text, offsetof(struct metrics_options, x), NULL},
    {"buckets", 0, "N", "with json: points of a curve at most, 1 to 4000 (default: 1000)", set_buckets, 0,
     NULL},
    {"per-rank", 0, NULL, "with openmetrics: the last value of each rank", option_flag,
     offsetof(struct metrics_options, per_rank), NULL},
    {"per-device", 0, NULL, "with openmetrics: all nodes and devices, not the first 128 alone", option_flag,
     offsetof(struct metrics_options, per_device), NULL},
};
static const struct option_group metrics_group = {"Options", specs, ARRAY_SIZE(specs)};

/* -- where it goes */

/* A file appears under its name when it is whole, but for one that is followed. Without a path: standard
 * output. */
static int open_outlet(struct file_draft *outlet, const struct metrics_options *options, ty_error *err) {
    const char *path = options->output;
    int result = 0, how = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY;
    *outlet = (struct file_draft){.fd = STDOUT_FILENO, .path = path};
    if (path == NULL) return 0;
    /* A link of another user, in a directory that all may write to, could lead to a file of this one. */
    if (file_is_foreign_link(path)) how |= O_NOFOLLOW;
    if (!options->follow)
        result = file_draft_open_output(path, 0666, outlet);
    else if ((outlet->fd = open(path, how, 0666)) < 0)
        result = -errno;
    return result < 0 ? ty_fail(err, TY_EUSAGE, "--output %s: %s", path, strerror(-result)) : 0;
}

/* A reader of standard output that has gone ends the command without a word; a pipe that --output names is a
 * file that could not be written. */
static int write_out(void *context, const char *text, size_t size, ty_error *err) {
    const struct file_draft *outlet = context;
    int result = file_write_all(outlet->fd, text, size);
    if (result == -EPIPE && outlet->path == NULL) return result; /* the reader has seen enough */
    if (result < 0)
        return ty_fail(err, result, "cannot write %s: %s",
                       outlet->path != NULL ? outlet->path : "to standard output", strerror(-result));
    return 0;
}

/* -- a table, and drawings */

static void number_cell(struct text_table *table, bool known, double number) {
    char text[32];
    (void)snprintf(text, sizeof text, "%.6g", number);
    table_cell(table, known ? text : "-");
}

static void count_cell(struct text_table *table, uint64_t count) {
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)count);
    table_cell(table, text);
}

static int write_table(const char *path, const struct view_selection *selection, struct file_draft *outlet,
                       ty_error *err) {
    struct view_metrics metrics;
    int result = view_metrics_read(path, selection, true, &metrics, err);
    if (result < 0) return result;
    CLEANUP(table_done) struct text_table table = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    TABLE_HEADS(&table, "METRIC", "REPORTS", "NOT FINITE", "RANKS", "LAST", "LEAST", "MEAN", "GREATEST");
    for (size_t i = 0; i < metrics.n; i++) {
        const struct view_metric *metric = &metrics.items[i];
        table_cell(&table, metric->name);
        count_cell(&table, metric->n);
        count_cell(&table, metric->nonfinite);
        count_cell(&table, metric->ranks);
        number_cell(&table, metric->n + metric->nonfinite > 0, metric->last);
        number_cell(&table, metric->n > 0, metric->min);
        number_cell(&table, metric->n > 0, metric->sum / (double)metric->n);
        number_cell(&table, metric->n > 0, metric->max);
    }
    if (metrics.n > 0)
        table_format(&table, &text);
    else
        buffer_text(&text, "Nothing was reported yet.\n");
    view_metrics_done(&metrics);
    return text.failed ? ty_fail_memory(err) : write_out(outlet, text.data, text.size, err);
}

static int plot_one(const char *path, const char *metric, const struct metrics_options *options,
                    struct buffer *out, ty_error *err) {
    struct braille_size size = braille_terminal(14);
    struct view_query query = view_query_new(metric);
    struct view_series series;
    CLEANUP(buffer_done) struct buffer title = {0};
    /* One for each column of dots: two stand in a character. */
    query.buckets = (int)size.columns * 2;
    query.ranks = rank_choice_get(&options->wanted);
    query.history = (enum view_history)options->history;
    query.x = options->x;
    int result = view_series_read(path, &query, &series, err);
    if (result < 0) return result;
    const struct view_line *line = &series.lines[0];
    uint64_t n = 0, nonfinite = 0;
    for (size_t i = 0; i < line->n; i++) {
        n += line->buckets[i].n;
        nonfinite += line->buckets[i].nonfinite;
    }
    buffer_printf(&title, "%s   %llu values%s", metric, (unsigned long long)n, series.exact ? "" : ", sampled");
    if (nonfinite > 0) buffer_printf(&title, ", %llu not finite", (unsigned long long)nonfinite);
    if (!title.failed) braille_plot(line, title.data, series.x, size, out);
    view_series_done(&series);
    return 0;
}

/* What is called like a loss comes first, then what was reported most; x itself is no curve. */
static size_t choose_metrics(const struct view_metrics *metrics, const char **chosen, size_t most) {
    static const char *const axes[] = {"step", "global_step", "iteration", "training_iteration", "epoch"};
    size_t n = 0;
    for (int loss = 1; loss >= 0; loss--)
        for (size_t i = 0; i < metrics->n && n < most; i++) {
            const struct view_metric *metric = &metrics->items[i];
            bool axis = metric->text;
            for (size_t at = 0; at < ARRAY_SIZE(axes); at++)
                axis = axis || str_equal(metric->name, axes[at]);
            if (!axis && (strstr(metric->name, "loss") != NULL) == (loss == 1)) chosen[n++] = metric->name;
        }
    return n;
}

/* The reply that the page gets for one metric, {"exact", "scanned", "x", "ranks", "series", "marks"}. */
static int encode_one(const char *path, const char *metric, const struct metrics_options *options,
                      struct buffer *out, ty_error *err) {
    struct view_query query = view_query_new(metric);
    struct view_series series;
    const struct view_series *each = &series;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    query.ranks = rank_choice_get(&options->wanted);
    query.history = (enum view_history)options->history;
    query.x = options->x;
    query.buckets = (int)options->buckets;
    int result = view_series_read(path, &query, &series, err);
    if (result < 0) return result;
    view_series_encode(&each, &name, 1, metric, out);
    view_series_done(&series);
    return 0;
}

static int write_curves(const char *path, const struct metrics_options *options, struct file_draft *outlet,
                        ty_error *err) {
    enum { PLOTS = 4 };
    bool json = options->format == METRICS_JSON;
    CLEANUP(buffer_done) struct buffer text = {0};
    const char *found[JSON_CURVES], *const *chosen = found;
    struct view_metrics metrics = {0};
    const struct view_selection all = {0};
    size_t n = options->n_metrics;
    int result = n > 0 ? 0 : view_metrics_read(path, &all, false, &metrics, err);
    if (n > 0)
        chosen = options->metrics;
    else if (result >= 0)
        n = choose_metrics(&metrics, found, json ? JSON_CURVES : PLOTS);
    buffer_text(&text, json ? "[" : "");
    for (size_t i = 0; i < n && result >= 0; i++) {
        if (i > 0) buffer_text(&text, json ? ",\n" : "\n");
        result = (json ? encode_one : plot_one)(path, chosen[i], options, &text, err);
    }
    if (json)
        buffer_text(&text, "]\n");
    else if (n == 0)
        buffer_text(&text, "Nothing was reported yet.\n");
    view_metrics_done(&metrics);
    if (result >= 0 && text.failed) return ty_fail_memory(err);
    return result < 0 ? result : write_out(outlet, text.data, text.size, err);
}

/* -- formats that go on */

struct metrics_writing {
    const char *path;
    struct view_selection selection;
    struct file_draft *outlet;
    struct view_csv *csv;
    struct tensorboard *board;
};

/* Writes the rows that are there; with --follow again when there are more, until the run is over. Whether it is
 * over is asked before the rows are read, so that the last look sees all of them. */
static int write_rows(struct metrics_writing *writing, const struct metrics_options *options, ty_error *err) {
    bool csv = options->format == METRICS_CSV, told = false;
    char line[128];
    int result = csv ? view_csv_open(writing->path, &writing->selection, &writing->csv, err) : 0;
    if (csv && result >= 0) result = view_csv_write_head(writing->csv, write_out, writing->outlet, err);
    CLEANUP_FD int watch = result >= 0 && options->follow ? view_watch_open(writing->path) : -1;
    CLEANUP_FD int held = run_directory_hold(writing->path);
    for (bool last = false; result >= 0;) {
        if (options->follow && !run_directory_is_still(held, writing->path)) break; /* another run by now */
        last = !options->follow || !run_lock_is_held(writing->path);
        result = csv ? view_csv_write_rows(writing->csv, write_out, writing->outlet, err)
                 : writing->board != NULL
                     ? tensorboard_write(writing->board, last, err)
                     : view_jsonl_write(writing->path, &writing->selection, write_out, writing->outlet, err);
        if (writing->selection.unreadable > 0 && !told) {
            (void)snprintf(line, sizeof line,
                           "report %lld: its metrics are no JSON; {} stands for them, and for others like it",
                           (long long)writing->selection.unreadable);
            terminal_warning("metrics", line);
            told = true;
        }
        if (last) break;
        if (result >= 0) view_watch_wait(watch);
    }
    view_csv_close(writing->csv);
    return result;
}

static int write_format(const char *name, struct metrics_writing *writing,
                        const struct metrics_options *options, ty_error *err) {
    if (options->plot || options->format == METRICS_JSON)
        return write_curves(writing->path, options, writing->outlet, err);
    if (options->format == METRICS_TABLE)
        return write_table(writing->path, &writing->selection, writing->outlet, err);
    if (options->format != METRICS_OPENMETRICS) return write_rows(writing, options, err);
    CLEANUP(buffer_done) struct buffer text = {0};
    const struct view_exposition how = {
        .openmetrics = true, .per_rank = options->per_rank, .per_device = options->per_device};
    int result = view_exposition_encode(&(struct view_exposed){.name = name, .path = writing->path}, 1, &how,
                                        &text, err);
    return result < 0 ? result : write_out(writing->outlet, text.data, text.size, err);
}

/* What a format would pass over is refused, since what came out would not be what was asked for. */
static int check(const struct metrics_options *options, ty_error *err) {
    bool rows = !options->plot && (options->format == METRICS_CSV || options->format == METRICS_JSONL ||
                                   options->format == METRICS_TENSORBOARD);
    if (options->follow && !rows)
        return ty_fail(
            err, TY_EUSAGE,
            "--follow goes with --format csv, jsonl or tensorboard; `trainyard top` shows a run as it goes on");
    if (options->plot && options->format != METRICS_TABLE)
        return ty_fail(err, TY_EUSAGE, "--plot draws; it does not go with --format %s",
                       formats[options->format]);
    bool curves = options->plot || options->format == METRICS_JSON;
    if ((options->n_metrics > 0 || options->x != NULL) && !curves)
        return ty_fail(err, TY_EUSAGE, "%s goes with --plot and --format json",
                       options->n_metrics > 0 ? "--metric" : "--x");
    if (options->buckets > 0 && options->format != METRICS_JSON)
        return ty_fail(err, TY_EUSAGE, "--buckets goes with --format json");
    return 0;
}

static int show(const char *name, const char *path, const struct metrics_options *options, ty_error *err) {
    struct file_draft outlet;
    struct metrics_writing writing = {.path = path, .outlet = &outlet};
    int result;
    writing.selection.ranks = rank_choice_get(&options->wanted);
    writing.selection.history = (enum view_history)options->history;
    if (options->format == METRICS_TENSORBOARD && !options->plot) {
        if (options->output == NULL)
            return ty_fail(err, TY_EUSAGE,
                           "--format tensorboard writes a directory: name it with --output DIR");
        result = tensorboard_open(path, options->output, &writing.selection, &writing.board, err);
        if (result >= 0) result = write_rows(&writing, options, err);
        tensorboard_close(writing.board);
        return result;
    }
    result = open_outlet(&outlet, options, err);
    if (result < 0) return result;
    result = write_format(name, &writing, options, err);
    int closed = outlet.path != NULL ? file_draft_close(&outlet, result) : result;
    if (closed < 0 && result >= 0)
        result = ty_fail(err, closed, "cannot write %s: %s", outlet.path, strerror(-closed));
    return result == -EPIPE && options->output == NULL ? 0 : result;
}

static int metrics_run(const struct arguments *arguments, ty_error *err) {
    struct metrics_options options = {0};
    struct storage_options storage = {0};
    const char *name = arguments->words[0];
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    if (result >= 0) result = check(&options, err);
    CLEANUP_FREE char *path = result >= 0 ? run_directory_find(storage.storage_path, name, err) : NULL;
    if (result >= 0) result = path == NULL ? err->code : show(name, path, &options, err);
    idset_done(&options.wanted.ranks);
    return result;
}

const struct command command_metrics = {
    .name = "metrics",
    .summary = "show or export what a run reported",
    .usage = (const char *const[]){"NAME [OPTION...]", NULL},
    .description =
        "A table of the metrics of all ranks, or with --plot their curves, each point from the least to the "
        "greatest value. The other formats are for programs: json has the curves, of the first metrics or "
        "those of --metric, csv and jsonl have every report as a row (times in nanoseconds since the epoch), "
        "openmetrics is what Prometheus reads, tensorboard writes event files, a directory for each rank and "
        "one for their mean. Reports that a later attempt began before do not count, unless --history all is "
        "given; their rows are marked `lost` then. With --follow the rows go on until the run ends; a metric "
        "that is first reported later has no column in CSV.",
    .examples =
        (const char *const[]){"trainyard metrics my-run --plot --metric loss", "draws the loss of all ranks",
                              "trainyard metrics my-run --format tensorboard -o tb --follow",
                              "beside it: tensorboard --logdir tb --load_fast=false (docs/seeing.md says why)",
                              NULL},
    .groups = (const struct option_group *const[]){&metrics_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = 1,
    .missing = "which run? `trainyard status` lists them",
    .run = metrics_run,
};
