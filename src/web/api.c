/* From a path to the lane of its run, and back with the reply. What a handler does is done in a thread; the
 * loop looks at the request, waits SITE_PATIENCE_SECONDS, and sends what there is. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/idset.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "journal/journal.h"
#include "view/export.h"
#include "view/ranks.h"
#include "view/series.h"
#include "view/summary.h"
#include "view/timeline.h"
#include "view/usage.h"
#include "web/run_output.h"
#include "web/site.h"
#include "web/url.h"

enum { SERIES_RUNS = 16, EXPORT_BLOCK = 64 << 10, EXPORT_AHEAD = 256 << 10, EVENTS_MAX = 1000 };

struct api_call;

struct route {
    const char *path;
    /* In the thread: the body goes to call->out. Negative with the message otherwise. */
    int (*answer)(struct api_call *call, ty_error *err);
    const char *parameters; /* all that it takes, separated by blanks */
    const char *type;       /* NULL: JSON */
    const char *file;       /* an export, which writes to call->pipe; saved under this ending */
};

struct found_run {
    char id[VIEW_ID_SIZE];
    char *name, *path;
};

struct api_call {
    struct lane_job job;
    struct site *site;
    struct http_request *request; /* NULL: it is gone, or was answered */
    const struct route *route;
    struct site_run *run;  /* of the path; or NULL */
    char id[VIEW_ID_SIZE]; /* as the path has it */
    struct url_query query;
    struct site_run *runs[SERIES_RUNS]; /* n_runs that the query names */
    size_t n_runs;
    int rank; /* of logs/rank-N */
    bool looked, openmetrics, acts;
    bool behind[SERIES_RUNS]; /* runs whose index is to grow */
    struct buffer body;       /* of an action */
    struct buffer out;
    const char *type;
    ty_error err;
    int result;
    struct loop_timer patience;
    struct found_run *found; /* by a look at the list; n_found; owned */
    size_t n_found;
    struct lane own; /* an export's, which may take long */
    int pipe[2];
    struct loop_watch pipe_watch;
    bool exporting, finished;
};

/* -- parameters */

static const char *parameter(const struct api_call *call, const char *name) {
    return url_query_get(&call->query, name);
}

static int whole(const struct api_call *call, const char *name, int64_t min, int64_t max, int64_t *value,
                 ty_error *err) {
    const char *text = parameter(call, name);
    if (text == NULL || str_to_int64(text, min, max, value)) return 0;
    return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be a whole number from %lld to %lld", name, text,
                   (long long)min, (long long)max);
}

static int real(const struct api_call *call, const char *name, double *value, ty_error *err) {
    const char *text = parameter(call, name);
    *value = NAN;
    if (text == NULL || *text == '\0' || str_to_double(text, value)) return 0;
    return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be a finite number", name, text);
}

/* The index of its value in the NULL-terminated list; 0 without one. */
static int choice(const struct api_call *call, const char *name, const char *const *allowed, int *value,
                  ty_error *err) {
    const char *text = parameter(call, name);
    CLEANUP(buffer_done) struct buffer all = {0};
    *value = 0;
    if (text == NULL) return 0;
    for (int i = 0; allowed[i] != NULL; i++) {
        if (str_equal(allowed[i], text)) {
            *value = i;
            return 0;
        }
        buffer_printf(&all, "%s%s", i == 0 ? "" : ", ", allowed[i]);
    }
    return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be one of %s", name, text, all.failed ? "a few" : all.data);
}

/* NULL without the parameter, else `set`. */
static int ranks_of(const struct api_call *call, const char *name, struct idset *set,
                    const struct idset **ranks, ty_error *err) {
    const char *text = parameter(call, name);
    *ranks = NULL;
    if (text == NULL || *text == '\0') return 0;
    ty_error why = {0};
    if (idset_parse(set, text, &why) < 0)
        return ty_fail(err, TY_EUSAGE, "%s=%.80s: must be ranks as in 0-3,7", name, text);
    *ranks = set;
    return 0;
}

static int check_parameters(const struct api_call *call, ty_error *err) {
    for (size_t i = 0; i < call->query.n; i++) {
        const char *name = call->query.items[i].name;
        size_t size = strlen(name);
        const char *at = call->route->parameters;
        bool known = false;
        while (!known && *at != '\0') {
            size_t n = strcspn(at, " ");
            known = n == size && memcmp(at, name, n) == 0;
            at += n + (at[n] == ' ' ? 1 : 0);
        }
        if (!known)
            return ty_fail(err, TY_EUSAGE, "parameter %.80s: there is none here; allowed: %s", name,
                           *call->route->parameters != '\0' ? call->route->parameters : "none");
    }
    return 0;
}

/* What the parameters of a plot ask for. */
static int read_query(const struct api_call *call, const char *buckets_name, int most, struct view_query *query,
                      struct idset *ranks, ty_error *err) {
    static const char *const xs[] = {"step", "epoch", "number", "time", "relative", NULL};
    static const char *const whats[] = {"band", "ranks", NULL};
    static const char *const histories[] = {"effective", "all", NULL};
    int what = 0, history = 0, result = 0;
    int64_t buckets = 0;
    const char *x = parameter(call, "x"), *rest = NULL;
    *query = (struct view_query){.metric = parameter(call, "metric"), .x = x};
    if (call->run != NULL) query->index = call->run->index;
    if (query->metric == NULL || *query->metric == '\0')
        return ty_fail(err, TY_EUSAGE, "metric: must be the name of a metric");
    if (x != NULL && *x == '\0') query->x = x = NULL;
    if (x != NULL && !(str_prefix(x, "metric:", &rest) && *rest != '\0')) {
        size_t i = 0;
        while (xs[i] != NULL && !str_equal(xs[i], x))
            i++;
        if (xs[i] == NULL)
            return ty_fail(err, TY_EUSAGE,
                           "x=%.80s: must be step, epoch, number, time, relative or metric:NAME", x);
    }
    if ((result = real(call, "from", &query->from, err)) < 0 ||
        (result = real(call, "to", &query->to, err)) < 0 ||
        (result = whole(call, buckets_name, 1, most, &buckets, err)) < 0 ||
        (result = choice(call, "what", whats, &what, err)) < 0 ||
        (result = choice(call, "history", histories, &history, err)) < 0 ||
        (result =
             ranks_of(call, str_equal(buckets_name, "bins") ? "rank" : "ranks", ranks, &query->ranks, err)) < 0)
        return result;
    if (query->from > query->to) return ty_fail(err, TY_EUSAGE, "from must not lie behind to");
    query->buckets = (int)buckets;
    query->what = (enum view_what)what;
    query->history = (enum view_history)history;
    return 0;
}

/* -- answers, in the thread of the run's lane */

static int note_found(struct api_call *call) {
    size_t n = view_runs_count(call->site->list);
    call->found = calloc(n + 1, sizeof *call->found);
    if (call->found == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct view_run *run = view_runs_at(call->site->list, i);
        struct found_run *found = &call->found[call->n_found];
        memcpy(found->id, run->id, sizeof found->id);
        found->name = strdup(run->name);
        found->path = strdup(run->path);
        call->n_found++;
        if (found->name == NULL || found->path == NULL) return -ENOMEM;
    }
    return 0;
}

static int answer_runs(struct api_call *call, ty_error *err) {
    int64_t after = 0;
    int result = whole(call, "after", 0, INT64_MAX, &after, err);
    if (result >= 0) result = view_runs_look(call->site->list, err);
    if (result >= 0 && note_found(call) < 0) result = ty_fail_memory(err);
    if (result >= 0) view_runs_encode(call->site->list, (uint64_t)after, &call->out);
    return result;
}

/* For a run whose ID was not known yet. */
static int answer_look(struct api_call *call, ty_error *err) {
    int result = view_runs_look(call->site->list, err);
    return result >= 0 && note_found(call) < 0 ? ty_fail_memory(err) : result;
}

static int answer_exposition(struct api_call *call, ty_error *err) {
    int result = view_runs_look(call->site->list, err);
    size_t n = result >= 0 ? view_runs_count(call->site->list) : 0;
    struct view_exposed *runs = calloc(n + 1, sizeof *runs);
    if (runs == NULL) return ty_fail_memory(err);
    size_t n_runs = 0;
    for (size_t i = 0; i < n; i++) {
        const struct view_run *run = view_runs_at(call->site->list, i);
        const struct view_summary *summary = &run->summary;
        bool past = summary->ended > 0 && clock_wall() - summary->ended > 15 * 60 * NS_PER_S;
        if (run->error == NULL && !past) runs[n_runs++] = (struct view_exposed){run->name, run->path};
    }
    const struct view_exposition how = {.openmetrics = call->openmetrics};
    call->type = view_exposition_type(call->openmetrics);
    if (result >= 0) result = view_exposition_encode(runs, n_runs, &how, &call->out, err);
    free(runs);
    return result;
}

static int answer_run(struct api_call *call, ty_error *err) {
    struct view_summary summary = {0};
    int result = view_summary_read(call->run->name, call->run->path, &summary, err);
    if (result < 0) return result;
    json_t *tree = view_summary_json(&summary, true);
    bool whole_run = summary.reports <= VIEW_WHOLE;
    view_summary_done(&summary);
    double scanned = whole_run ? 1 : view_index_scanned(call->run->index);
    struct view_ranks ranks = {0};
    double usual = view_ranks_read(call->run->path, &ranks, NULL) >= 0 ? ranks.usual : NAN;
    view_ranks_done(&ranks);
    (void)json_object_set_new(tree, "id", json_string(call->run->id));
    (void)json_object_set_new(tree, "exact", json_boolean(scanned >= 1));
    (void)json_object_set_new(tree, "scanned", json_real(scanned));
    (void)json_object_set_new(tree, "steps_per_second", usual > 0 ? json_real(1 / usual) : json_null());
    CLEANUP(buffer_done) struct buffer usage = {0};
    buffer_printf(&usage, "%s/usage.db", call->run->path);
    (void)json_object_set_new(tree, "usage", json_boolean(!usage.failed && access(usage.data, F_OK) == 0));
    CLEANUP_FREE char *text = tree != NULL ? json_dumps(tree, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(tree);
    if (text == NULL) return ty_fail_memory(err);
    buffer_text(&call->out, text);
    return 0;
}

static int answer_metrics(struct api_call *call, ty_error *err) {
    struct view_metrics metrics = {0};
    const struct view_selection selection = {.index = call->run->index};
    int result = view_metrics_read(call->run->path, &selection, false, &metrics, err);
    if (result < 0) return result;
    view_metrics_encode(&metrics, &call->out);
    view_metrics_done(&metrics);
    return 0;
}

static int answer_series(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_query query;
    struct view_series series[SERIES_RUNS] = {0};
    const struct view_series *each[SERIES_RUNS];
    const char *ids[SERIES_RUNS];
    size_t n_read = 0;
    int result = read_query(call, "buckets", VIEW_BUCKETS_MAX, &query, &ranks, err);
    while (result >= 0 && n_read < call->n_runs) {
        const struct site_run *run = call->runs[n_read];
        query.index = run->index;
        result = view_series_read(run->path, &query, &series[n_read], err);
        if (result < 0) break;
        call->behind[n_read] = series[n_read].behind;
        each[n_read] = &series[n_read];
        ids[n_read++] = run->id;
    }
    if (result >= 0) view_series_encode(each, ids, n_read, query.metric, &call->out);
    for (size_t i = 0; i < n_read; i++)
        view_series_done(&series[i]);
    return result;
}

static int answer_heat(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_query query;
    struct view_heat heat = {0};
    int64_t rows = 0;
    int result = read_query(call, "columns", VIEW_COLUMNS_MAX, &query, &ranks, err);
    if (result >= 0) result = whole(call, "rows", 1, VIEW_ROWS_MAX, &rows, err);
    if (result >= 0) result = view_heat_read(call->run->path, &query, (int)rows, &heat, err);
    if (result < 0) return result;
    view_heat_encode(&heat, &call->out);
    view_heat_done(&heat);
    return 0;
}

static int answer_histogram(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_query query;
    struct view_histogram histogram = {0};
    int result = read_query(call, "bins", VIEW_BINS_MAX, &query, &ranks, err);
    if (result >= 0)
        result = view_histogram_read(call->run->path, &query, query.buckets > 0 ? query.buckets : 40,
                                     &histogram, err);
    if (result < 0) return result;
    view_histogram_encode(&histogram, &call->out);
    view_histogram_done(&histogram);
    return 0;
}

static int answer_ranks(struct api_call *call, ty_error *err) {
    int64_t from = 0, limit = 1000;
    struct view_ranks ranks = {0};
    int result = whole(call, "from", 0, INT32_MAX, &from, err);
    if (result >= 0) result = whole(call, "limit", 1, 10000, &limit, err);
    if (result >= 0) result = view_ranks_read(call->run->path, &ranks, err);
    if (result < 0) return result;
    view_ranks_encode(&ranks, (size_t)from, (size_t)limit, &call->out);
    view_ranks_done(&ranks);
    return 0;
}

static int answer_usage_lasts(struct api_call *call, const char *node, ty_error *err) {
    struct view_summary summary = {0};
    struct view_usage usage = {0};
    int result = view_summary_read(call->run->name, call->run->path, &summary, err);
    if (result < 0) return result;
    nanoseconds now = summary.ended > 0 ? 0 : clock_wall();
    view_summary_done(&summary);
    result = view_usage_read(call->run->path, now, &usage, err);
    if (result == -ENOENT) result = 0; /* none were kept */
    if (result >= 0) view_usage_encode(&usage, node, &call->out);
    view_usage_done(&usage);
    return result;
}

static int answer_usage(struct api_call *call, ty_error *err) {
    struct view_usage_query query = {.node = parameter(call, "node"), .what = parameter(call, "what")};
    const char *over = parameter(call, "over");
    int64_t buckets = VIEW_BUCKETS;
    struct view_usage_lines lines = {0};
    if (over != NULL) query.over = view_usage_over_of(over);
    if (query.over == VIEW_USAGE_OVER_N)
        return ty_fail(err, TY_EUSAGE, "over=%.80s is not each, node or all", over);
    int result = real(call, "from", &query.from, err);
    if (result >= 0) result = real(call, "to", &query.to, err);
    if (result >= 0) result = whole(call, "buckets", 1, VIEW_BUCKETS_MAX, &buckets, err);
    query.buckets = (int)buckets;
    if (result >= 0 && query.what == NULL) return answer_usage_lasts(call, query.node, err);
    if (result >= 0) result = view_usage_lines_read(call->run->path, &query, &lines, err);
    if (result == -ENOENT) result = 0; /* none were kept */
    if (result >= 0) view_usage_lines_encode(&lines, &call->out);
    view_usage_lines_done(&lines);
    return result;
}

static int answer_placement(struct api_call *call, ty_error *err) {
    struct view_ranks ranks = {0};
    int result = view_ranks_read(call->run->path, &ranks, err);
    if (result < 0) return result;
    view_placement_encode(&ranks, &call->out);
    view_ranks_done(&ranks);
    return 0;
}

static int answer_timeline(struct api_call *call, ty_error *err) {
    struct view_timeline timeline = {0};
    int result = view_timeline_read(call->run->name, call->run->path, &timeline, err);
    if (result < 0) return result;
    view_timeline_encode(&timeline, &call->out);
    view_timeline_done(&timeline);
    return 0;
}

static int answer_events(struct api_call *call, ty_error *err) {
    int64_t after = 0, limit = EVENTS_MAX;
    int result = whole(call, "after", 0, INT64_MAX, &after, err);
    if (result >= 0) result = whole(call, "limit", 1, EVENTS_MAX, &limit, err);
    const struct view_events which = {after, (size_t)limit, parameter(call, "kind")};
    return result < 0 ? result : view_events_encode(call->run->path, &which, &call->out, err);
}

static int answer_checkpoints(struct api_call *call, ty_error *err) {
    return view_checkpoints_encode(call->run->path, &call->out, err);
}

static int answer_logs(struct api_call *call, ty_error *err) {
    return run_output_list(call->run->path, &call->out, err);
}

static int answer_log(struct api_call *call, ty_error *err) {
    int64_t from = 0, bytes = OUTPUT_READ;
    int result = whole(call, "from", INT64_MIN / 2, INT64_MAX / 2, &from, err);
    if (result >= 0) result = whole(call, "bytes", 1, OUTPUT_READ_MAX, &bytes, err);
    return result < 0 ? result : run_output_read(call->run->path, call->rank, from, bytes, &call->out, err);
}

static int answer_search(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset set = {0};
    const struct idset *ranks = NULL;
    const char *text = parameter(call, "q");
    int result = ranks_of(call, "ranks", &set, &ranks, err);
    if (result < 0) return result;
    return run_output_search(call->run->path, text != NULL ? text : "", ranks, parameter(call, "cursor"),
                             &call->out, err);
}

static int answer_stacks(struct api_call *call, ty_error *err) {
    return run_output_stacks(call->run->path, call->site->config.allow_actions, &call->out, err);
}

/* -- actions */

static int answer_stop(struct api_call *call, ty_error *err) {
    int result = action_check(&call->body, call->run->name, call->run->path, err);
    return result < 0 ? result : action_stop(call->run->path, &call->out, err);
}

static int answer_new_stacks(struct api_call *call, ty_error *err) {
    int result = action_check(&call->body, call->run->name, call->run->path, err);
    return result < 0 ? result : action_stacks(call->run->path, &call->out, err);
}

/* -- exports: the thread writes into a pipe as fast as the client takes it */

static int write_pipe(void *context, const char *text, size_t size, ty_error *err) {
    const struct api_call *call = context;
    while (size > 0) {
        ssize_t written = write(call->pipe[1], text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return ty_fail(err, -errno, "cannot send: %s", strerror(errno));
        text += written;
        size -= (size_t)written;
    }
    return 0;
}

static int read_selection(struct api_call *call, struct view_selection *selection, struct idset *ranks,
                          ty_error *err) {
    static const char *const histories[] = {"effective", "all", NULL};
    int history = 0;
    int result = ranks_of(call, "rank", ranks, &selection->ranks, err);
    if (result >= 0) result = choice(call, "history", histories, &history, err);
    selection->history = (enum view_history)history;
    return result;
}

static int answer_csv(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_selection selection = {0};
    struct view_csv *csv = NULL;
    int result = read_selection(call, &selection, &ranks, err);
    if (result >= 0) result = view_csv_open(call->run->path, &selection, &csv, err);
    if (result < 0) return result;
    result = view_csv_write_head(csv, write_pipe, call, err);
    if (result >= 0) result = view_csv_write_rows(csv, write_pipe, call, err);
    view_csv_close(csv);
    return result;
}

static int answer_jsonl(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_selection selection = {0};
    int result = read_selection(call, &selection, &ranks, err);
    return result < 0 ? result : view_jsonl_write(call->run->path, &selection, write_pipe, call, err);
}

static int answer_trace(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_trace trace = {0};
    int64_t from = 0, to = 0;
    int result = ranks_of(call, "ranks", &ranks, &trace.ranks, err);
    if (result >= 0) result = whole(call, "from", 0, INT64_MAX, &from, err);
    if (result >= 0) result = whole(call, "to", 0, INT64_MAX, &to, err);
    trace.from = (uint64_t)from;
    trace.to = (uint64_t)to;
    trace.with_profile = parameter(call, "with_profile") != NULL;
    return result < 0 ? result
                      : view_trace_write(call->run->name, call->run->path, &trace, write_pipe, call, err);
}

static int send_file(struct api_call *call, int fd, ty_error *err) {
    CLEANUP_FREE char *block = malloc(EXPORT_BLOCK);
    if (block == NULL) return ty_fail_memory(err);
    for (;;) {
        ssize_t got = read(fd, block, EXPORT_BLOCK);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0 ? 0 : ty_fail(err, -errno, "cannot read the file: %s", strerror(errno));
        int result = write_pipe(call, block, (size_t)got, err);
        if (result < 0) return result;
    }
}

static int answer_whole_log(struct api_call *call, ty_error *err) {
    CLEANUP_FD int fd = run_output_open(call->run->path, call->rank, err);
    return fd < 0 ? fd : send_file(call, fd, err);
}

static int answer_profile(struct api_call *call, ty_error *err) {
    CLEANUP_FD int fd = run_output_profile(call->run->path, call->rank, err);
    return fd < 0 ? fd : send_file(call, fd, err);
}

/* -- the table */

#define PLOT "metric x from to history ranks "

static const struct route routes[] = {
    {"/api/runs", answer_runs, "after", NULL, NULL},
    {"/metrics", answer_exposition, "", NULL, NULL},
    {"/api/series", answer_series, PLOT "run buckets what", NULL, NULL},
    {"/api/runs/*", answer_run, "", NULL, NULL},
    {"/api/runs/*/metrics", answer_metrics, "", NULL, NULL},
    {"/api/runs/*/heat", answer_heat, PLOT "rows columns", NULL, NULL},
    {"/api/runs/*/histogram", answer_histogram, "metric x from to history rank bins", NULL, NULL},
    {"/api/runs/*/ranks", answer_ranks, "from limit", NULL, NULL},
    {"/api/runs/*/usage", answer_usage, "node what over from to buckets", NULL, NULL},
    {"/api/runs/*/placement", answer_placement, "", NULL, NULL},
    {"/api/runs/*/timeline", answer_timeline, "", NULL, NULL},
    {"/api/runs/*/events", answer_events, "after limit kind", NULL, NULL},
    {"/api/runs/*/checkpoints", answer_checkpoints, "", NULL, NULL},
    {"/api/runs/*/logs", answer_logs, "", NULL, NULL},
    {"/api/runs/*/logs/search", answer_search, "q ranks cursor", NULL, NULL},
    {"/api/runs/*/logs/*", answer_log, "from bytes", NULL, NULL},
    {"/api/runs/*/logs/*/whole", answer_whole_log, "", "text/plain; charset=utf-8", "log"},
    {"/api/runs/*/stacks", answer_stacks, "", NULL, NULL},
    {"/api/runs/*/metrics.csv", answer_csv, "rank history", "text/csv; charset=utf-8", "csv"},
    {"/api/runs/*/metrics.jsonl", answer_jsonl, "rank history", "application/x-ndjson", "jsonl"},
    {"/api/runs/*/trace.json", answer_trace, "ranks from to with_profile", "application/json", "json"},
    {"/api/runs/*/profile/*", answer_profile, "", "application/gzip", "pt.trace.json.gz"},
};

/* By POST, with --allow-actions. Each in a lane of its own: what waits for a run is not held up. */
static const struct route action_routes[] = {
    {"/api/runs/*/stop", answer_stop, "", NULL, NULL},
    {"/api/runs/*/stacks", answer_new_stacks, "", NULL, NULL},
};

/* For an ID that is not known; then the request is looked at again. */
static const struct route look_route = {"", answer_look, "", NULL, NULL};
static const struct route stream_route = {"/api/stream", NULL, "run", NULL, NULL};

/* -- on the loop */

static void reply(struct api_call *call, unsigned status) {
    const struct http_reply message = {
        .status = status, .type = call->type != NULL ? call->type : "application/json", .body = &call->out};
    call->site->http->reply(call->request, &message);
    call->request->owner = NULL;
    call->request = NULL;
    site_stir(call->site);
}

void api_fail(struct site *site, struct http_request *request, unsigned status, const char *message) {
    struct buffer body = {0};
    buffer_text(&body, "{\"error\": ");
    buffer_json_text(&body, message);
    buffer_char(&body, '}');
    const struct http_reply answer = {.status = status, .type = "application/json", .body = &body};
    site->http->reply(request, &answer);
    site_stir(site);
}

static void fail(struct api_call *call, unsigned status, const char *message) {
    struct http_request *request = TAKE(call->request);
    if (request == NULL) return;
    request->owner = NULL;
    api_fail(call->site, request, status, message);
}

static void call_free(struct api_call *call) {
    loop_timer_stop(call->site->loop, &call->patience);
    loop_watch_stop(call->site->loop, &call->pipe_watch);
    for (size_t i = 0; i < ARRAY_SIZE(call->pipe); i++)
        if (call->pipe[i] >= 0) (void)close(call->pipe[i]);
    for (size_t i = 0; i < call->n_found; i++) {
        free(call->found[i].name);
        free(call->found[i].path);
    }
    free(call->found);
    url_query_done(&call->query);
    buffer_done(&call->out);
    buffer_done(&call->body);
    free(call);
}

static void finish_early(struct api_call *call, unsigned status, const char *message) {
    fail(call, status, message);
    call_free(call);
}

struct site_run *site_run_note(struct site *site, const char *id, const char *name, const char *path) {
    uintptr_t *known = hash_get(site->runs, id);
    if (known != NULL) return (struct site_run *)*known;
    struct site_run *run = calloc(1, sizeof *run);
    if (run == NULL) return NULL;
    run->site = site;
    run->name = strdup(name);
    run->path = strdup(path);
    run->news.directory = run->news.logs = -1;
    (void)strcpy(run->id, id);
    if (run->name != NULL && run->path != NULL &&
        view_index_open(run->path, !site->config.no_cache, &run->index, NULL) >= 0 &&
        hash_set(site->runs, id, (uintptr_t)run) >= 0)
        return run;
    view_index_close(run->index);
    free(run->name);
    free(run->path);
    free(run);
    return NULL;
}

static unsigned status_of(const struct api_call *call) {
    if (call->run != NULL && !journal_exists(call->run->path)) return 410;
    if (call->result == TY_EUSAGE) return 400;
    if (call->result == -ENOENT) return 404;
    return call->result == -EBUSY ? 503 : 500;
}

static void dispatch(struct api_call *call);

static void export_end(struct api_call *call);

static void call_done(struct lane_job *job) {
    struct api_call *call = (struct api_call *)job;
    for (size_t i = 0; i < call->n_found; i++)
        (void)site_run_note(call->site, call->found[i].id, call->found[i].name, call->found[i].path);
    if (call->exporting) {
        export_end(call);
        return;
    }
    loop_timer_stop(call->site->loop, &call->patience);
    if (call->request != NULL && call->route == &look_route) {
        dispatch(call);
        return;
    }
    for (size_t i = 0; i < call->n_runs; i++)
        if (call->behind[i]) indexing_begin(call->runs[i]);
    if (call->request != NULL && call->result >= 0 && !call->out.failed)
        reply(call, 200);
    else if (call->request != NULL && call->result >= 0)
        fail(call, 500, "out of memory");
    else if (call->request != NULL) {
        unsigned status = status_of(call);
        fail(call, status, status == 410 ? "the run was deleted" : call->err.message);
    }
    call_free(call);
}

/* The server ended before the call did. */
static void call_drop(struct lane_job *job) {
    call_free((struct api_call *)job);
}

static void call_work(struct lane_job *job) {
    struct api_call *call = (struct api_call *)job;
    call->result = call->route->answer(call, &call->err);
    if (call->exporting) { /* the reader sees the end */
        (void)close(call->pipe[1]);
        call->pipe[1] = -1;
    }
}

static void lose_patience(void *context) {
    struct api_call *call = context;
    ty_error message;
    (void)ty_fail(&message, -ETIMEDOUT, "%s: not answering for %d s",
                  call->run != NULL ? call->run->name : "the storage", SITE_PATIENCE_SECONDS);
    fail(call, 503, message.message);
}

/* -- exports */

static void export_end(struct api_call *call) {
    if (!call->finished) {
        call->finished = true; /* the pipe may still hold its end */
        return;
    }
    call->site->n_exports--;
    call_free(call);
}

static void close_pipe(struct api_call *call) {
    loop_watch_stop(call->site->loop, &call->pipe_watch);
    (void)close(call->pipe[0]); /* a thread that writes on finds that out */
    call->pipe[0] = -1;
    export_end(call);
}

/* What is in the pipe goes to the client, unless much waits for it already. */
static void export_readable(void *context, unsigned events) {
    (void)events;
    struct api_call *call = context;
    struct site *site = call->site;
    char block[EXPORT_BLOCK];
    ssize_t got = read(call->pipe[0], block, sizeof block);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) {
        site->http->write(call->request, block, (size_t)got);
        if (site->http->waiting(call->request) >= EXPORT_AHEAD)
            (void)loop_watch_start(site->loop, &call->pipe_watch, call->pipe[0], 0);
        site_stir(site);
        return;
    }
    call->request->owner = NULL;
    site->http->finish(call->request, call->result >= 0);
    call->request = NULL;
    site_stir(site);
    close_pipe(call);
}

void api_drained(struct http_request *request) {
    struct api_call *call = request->owner;
    if (call != NULL && call->exporting && call->pipe[0] >= 0)
        (void)loop_watch_start(call->site->loop, &call->pipe_watch, call->pipe[0], LOOP_READABLE);
}

/* "NAME.csv": what is safe in any file system of the name. */
static void file_name(const struct api_call *call, char *name, size_t size) {
    size_t n = 0;
    for (const char *at = call->run->name; *at != '\0' && n + 16 < size; at++, n++) {
        bool word = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        name[n] = word || *at == '-' || (*at == '.' && n > 0) ? *at : '_';
    }
    name[n] = '.';
    (void)strcpy(name + n + 1, call->route->file);
}

/* What is wrong with the parameters is told before the first byte is sent. */
static int check_export(const struct api_call *call, ty_error *err) {
    static const char *const histories[] = {"effective", "all", NULL};
    CLEANUP(idset_done) struct idset set = {0}, more = {0};
    const struct idset *ranks = NULL;
    int64_t number = 0;
    int index = 0, result = ranks_of(call, "rank", &set, &ranks, err);
    if (result >= 0) result = ranks_of(call, "ranks", &more, &ranks, err);
    if (result >= 0) result = choice(call, "history", histories, &index, err);
    if (result >= 0) result = whole(call, "from", 0, INT64_MAX, &number, err);
    return result < 0 ? result : whole(call, "to", 0, INT64_MAX, &number, err);
}

static void begin_export(struct api_call *call) {
    struct site *site = call->site;
    char name[128];
    if (check_export(call, &call->err) < 0) {
        finish_early(call, 400, call->err.message);
        return;
    }
    if (site->n_exports == SITE_EXPORTS || pipe2(call->pipe, O_CLOEXEC) < 0) {
        finish_early(call, 503, "too many downloads at once: try again when one has ended");
        return;
    }
    site->n_exports++;
    call->exporting = true;
    call->job = (struct lane_job){.work = call_work, .done = call_done, .drop = call_drop};
    call->pipe_watch = (struct loop_watch){.callback = export_readable, .context = call};
    file_name(call, name, sizeof name);
    site->http->stream(call->request, call->route->type, name);
    int flags = fcntl(call->pipe[0], F_GETFL);
    (void)fcntl(call->pipe[0], F_SETFL, flags | O_NONBLOCK);
    (void)loop_watch_start(site->loop, &call->pipe_watch, call->pipe[0], LOOP_READABLE);
    lane_post(site->lanes, &call->own, &call->job);
    site_stir(site);
}

/* -- from the request to the lane */

/* "rank-3" */
static bool parse_rank(const struct url_part *part, int *rank) {
    char digits[12];
    int64_t number;
    if (part->size <= 5 || part->size - 5 >= sizeof digits || memcmp(part->text, "rank-", 5) != 0) return false;
    memcpy(digits, part->text + 5, part->size - 5);
    digits[part->size - 5] = '\0';
    if (digits[0] < '0' || digits[0] > '9' || !str_to_int64(digits, 0, INT32_MAX, &number)) return false;
    *rank = (int)number;
    return true;
}

static const struct route *find_route(struct api_call *call, const char *path) {
    struct url_part parts[2] = {0};
    if (!call->acts && str_equal(path, stream_route.path)) return &stream_route;
    const struct route *table = call->acts ? action_routes : routes;
    for (size_t i = 0; i < (call->acts ? ARRAY_SIZE(action_routes) : ARRAY_SIZE(routes)); i++) {
        if (!url_matches(path, table[i].path, parts, ARRAY_SIZE(parts))) continue;
        if (parts[0].size > 0 && parts[0].size != VIEW_ID_SIZE - 1) return NULL;
        memcpy(call->id, parts[0].size > 0 ? parts[0].text : "", parts[0].size);
        if (parts[1].size > 0 && !parse_rank(&parts[1], &call->rank)) return NULL;
        return &table[i];
    }
    return NULL;
}

static void post(struct api_call *call, const struct route *route, struct lane *lane) {
    call->route = route;
    call->job = (struct lane_job){.work = call_work, .done = call_done, .drop = call_drop};
    call->patience = (struct loop_timer){.callback = lose_patience, .context = call};
    (void)loop_timer_start(call->site->loop, &call->patience, SITE_PATIENCE_SECONDS * NS_PER_S);
    lane_post(call->site->lanes, lane, &call->job);
}

/* The runs that the query names: the first that is not known, or NULL. */
static const char *take_runs(struct api_call *call) {
    call->n_runs = 0;
    for (size_t i = 0; i < call->query.n; i++) {
        if (!str_equal(call->query.items[i].name, "run")) continue;
        uintptr_t *run = hash_get(call->site->runs, call->query.items[i].value);
        if (run == NULL) return call->query.items[i].value;
        if (call->n_runs < SERIES_RUNS) call->runs[call->n_runs] = (struct site_run *)*run;
        call->n_runs++;
    }
    return NULL;
}

static void begin(struct api_call *call) {
    struct site *site = call->site;
    if (call->route == &stream_route) {
        struct http_request *request = TAKE(call->request);
        request->owner = NULL;
        stream_begin(site, request, call->run);
        call_free(call);
    } else if (call->route->file != NULL) {
        begin_export(call);
    } else if (call->acts) {
        post(call, call->route, &call->own);
        loop_timer_stop(site->loop, &call->patience);
    } else {
        post(call, call->route, call->run != NULL ? &call->run->lane : &site->list_lane);
    }
}

static void dispatch(struct api_call *call) {
    struct site *site = call->site;
    call->route = find_route(call, call->request->path);
    if (call->route == NULL) {
        finish_early(call, 404, "there is nothing here");
        return;
    }
    if (check_parameters(call, &call->err) < 0) {
        finish_early(call, 400, call->err.message);
        return;
    }
    const char *unknown = take_runs(call);
    uintptr_t *own = call->id[0] != '\0' ? hash_get(site->runs, call->id) : NULL;
    if (call->id[0] != '\0' && own == NULL) unknown = call->id;
    if (unknown != NULL && call->looked) {
        finish_early(call, 404, "there is no such run");
    } else if (unknown != NULL) {
        call->looked = true;
        post(call, &look_route, &site->list_lane);
    } else if (call->n_runs > SERIES_RUNS) {
        finish_early(call, 400, "run: at most 16 at once");
    } else if (call->n_runs == 0 && call->route->answer == answer_series) {
        finish_early(call, 400, "run: must be the ID of a run");
    } else {
        call->run = own != NULL ? (struct site_run *)*own : call->n_runs > 0 ? call->runs[0] : NULL;
        begin(call);
    }
}

bool api_is_action(const char *path) {
    for (size_t i = 0; i < ARRAY_SIZE(action_routes); i++)
        if (url_matches(path, action_routes[i].path, NULL, 0)) return true;
    return false;
}

void api_request(struct site *site, struct http_request *request) {
    struct api_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        api_fail(site, request, 500, "out of memory");
        return;
    }
    *call = (struct api_call){.site = site, .request = request, .pipe = {-1, -1}};
    call->err = (ty_error){0};
    const char *accept = site->http->header(request, "Accept");
    call->openmetrics = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    request->owner = call;
    call->acts = str_equal(request->method, "POST");
    if (call->acts) buffer_append(&call->body, request->body.data, request->body.size);
    if (url_query_parse(request->query, &call->query, &call->err) < 0) {
        finish_early(call, 400, call->err.message);
        return;
    }
    dispatch(call);
}

/* The client went before the reply, or in the middle of an export. */
void api_gone(struct http_request *request) {
    struct api_call *call = TAKE(request->owner);
    if (call == NULL) return;
    call->request = NULL;
    if (call->exporting && call->pipe[0] >= 0) close_pipe(call);
}
