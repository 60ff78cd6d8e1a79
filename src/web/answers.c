/* What is served: the paths, and what a thread makes of each for a run of the list. Each answer reads what it
 * needs of the run's files and is a whole text; it changes nothing of the site. Requests are taken, and replies
 * sent, by the loop (api.c). */
#include "web/api.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "run/event.h"
#include "view/export.h"
#include "view/ranks.h"
#include "view/summary.h"
#include "view/timeline.h"
#include "view/usage.h"
#include "web/run_output.h"

enum { EVENTS_MAX = 1000 };

/* What the parameters of a plot ask for. */
static int read_query(const struct api_call *call, const char *buckets_name, int most, struct view_query *query,
                      struct idset *ranks, ty_error *err) {
    static const char *const xs[] = {"step", "epoch", "number", "time", "relative", NULL};
    static const char *const whats[] = {"band", "ranks", NULL};
    int what = 0, result = 0;
    int64_t buckets = 0;
    const char *x = parameter_text(call, "x"), *rest = NULL;
    *query = (struct view_query){.metric = parameter_text(call, "metric"), .x = x};
    if (call->run != NULL) query->index = call->run->index;
    if (query->metric == NULL || *query->metric == '\0')
        return ty_fail(err, TY_EUSAGE, "metric=: must be the name of a metric");
    if (x != NULL && *x == '\0') query->x = x = NULL;
    if (x != NULL && !(str_prefix(x, "metric:", &rest) && *rest != '\0')) {
        size_t i = 0;
        while (xs[i] != NULL && !str_equal(xs[i], x))
            i++;
        if (xs[i] == NULL)
            return ty_fail(err, TY_EUSAGE,
                           "x=%.80s: must be step, epoch, number, time, relative or metric:NAME", x);
    }
    if ((result = parameter_range(call, &query->from, &query->to, err)) < 0 ||
        (result = parameter_whole(call, buckets_name, 1, most, &buckets, err)) < 0 ||
        (result = parameter_choice(call, "what", whats, &what, err)) < 0 ||
        (result = parameter_history(call, &query->history, err)) < 0 ||
        (result = parameter_ranks(call, str_equal(buckets_name, "bins") ? "rank" : "ranks", ranks,
                                  &query->ranks, err)) < 0)
        return result;
    query->buckets = (int)buckets;
    query->what = (enum view_what)what;
    return 0;
}

/* Copies, as the list is this lane's: the loop notes them (call_done). */
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

static int answer_look(struct api_call *call, ty_error *err) {
    int result = view_runs_look(call->site->list, err);
    return result >= 0 && note_found(call) < 0 ? ty_fail_memory(err) : result;
}

static int answer_runs(struct api_call *call, ty_error *err) {
    int64_t after = 0;
    int result = parameter_whole(call, "after", 0, INT64_MAX, &after, err);
    if (result >= 0) result = answer_look(call, err);
    if (result >= 0) view_runs_encode(call->site->list, (uint64_t)after, &call->out);
    return result;
}

/* The runs that Prometheus is told of: expose_begin has them read. */
static int answer_exposition(struct api_call *call, ty_error *err) {
    int result = answer_look(call, err);
    for (size_t i = 0; i < call->n_found && result >= 0; i++) {
        const struct view_run *run = view_runs_at(call->site->list, i);
        const struct view_summary *summary = &run->summary;
        bool past = summary->ended > 0 && clock_wall() - summary->ended > 15 * 60 * NS_PER_S;
        call->found[i].exposed = run->there && run->error == NULL && !past;
    }
    return result;
}

/* The facts that are kept serve the summary and the ranks; they are given back before the text is made. A run
 * whose ranks cannot be read is shown without its pace. */
static int answer_run(struct api_call *call, ty_error *err) {
    struct facts_kept *kept = index_facts(call->run->index);
    struct view_summary summary = {0};
    struct view_ranks ranks = {0};
    const struct view_facts *facts;
    int result = facts_take(call->run->path, kept, NULL, &facts, err);
    if (result < 0) return result;
    result = view_summary_read_of(call->run->name, call->run->path, facts, &summary, err);
    json_t *tree = result >= 0 ? view_summary_json(&summary, true) : NULL;
    bool whole_run = summary.reports <= VIEW_WHOLE;
    view_summary_done(&summary);
    bool paced = result >= 0 && view_ranks_read_of(call->run->path, facts, &ranks, NULL) >= 0;
    double usual = paced ? ranks.usual : NAN;
    view_ranks_done(&ranks);
    facts_give_back(kept, NULL);
    if (result < 0) return result;
    double scanned = whole_run ? 1 : view_index_scanned(call->run->index);
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

/* Called once for each run, in the lane of that, and answers at the last. A run's index is its own: of the
 * query what differs from run to run is read anew each time. */
static int answer_series(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_query query;
    const char *metrics[URL_PARAMETERS], *ids[SERIES_RUNS];
    size_t n = 0;
    if (call->n_runs == 0) return ty_fail(err, TY_EUSAGE, "run=: must be the ID of a run");
    int result = read_query(call, "buckets", VIEW_BUCKETS_MAX, &query, &ranks, err);
    if (result < 0) return result;
    for (size_t i = 0; i < call->query.n; i++)
        if (str_equal(call->query.items[i].name, "metric")) metrics[n++] = call->query.items[i].value;
    if (call->series == NULL) call->series = calloc(call->n_runs * n, sizeof *call->series);
    if (call->series == NULL) return ty_fail_memory(err);
    struct view_series *own = call->series + call->n_read * n;
    result = view_series_read_each(call->run->path, &query, metrics, n, own, err);
    if (result < 0) return result;
    call->n_series += n;
    for (size_t i = 0; i < n; i++)
        call->behind[call->n_read] |= own[i].behind;
    if (++call->n_read < call->n_runs) return 0;
    CLEANUP_FREE const struct view_series **each = calloc(call->n_series, sizeof *each);
    if (each == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < call->n_series; i++)
        each[i] = &call->series[i];
    for (size_t i = 0; i < call->n_runs; i++)
        ids[i] = call->runs[i]->id;
    view_series_encode_each(each, ids, call->n_runs, metrics, n, &call->out);
    return 0;
}

static int answer_heat(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_query query;
    struct view_heat heat = {0};
    int64_t rows = 0;
    int result = read_query(call, "columns", VIEW_COLUMNS_MAX, &query, &ranks, err);
    if (result >= 0) result = parameter_whole(call, "rows", 1, VIEW_ROWS_MAX, &rows, err);
    if (result >= 0) result = view_heat_read(call->run->path, &query, (int)rows, &heat, err);
    if (result < 0) return result;
    call->behind[0] = heat.behind;
    view_heat_encode(&heat, &call->out);
    view_heat_done(&heat);
    return 0;
}

static int answer_histogram(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct view_query query;
    struct view_histogram histogram = {0};
    int result = read_query(call, "bins", VIEW_BINS_MAX, &query, &ranks, err);
    if (result >= 0) result = parameter_flag(call, "near", &query.near, err);
    if (result >= 0)
        result = view_histogram_read(call->run->path, &query, query.buckets > 0 ? query.buckets : 40,
                                     &histogram, err);
    if (result < 0) return result;
    call->behind[0] = histogram.behind;
    view_histogram_encode(&histogram, &call->out);
    view_histogram_done(&histogram);
    return 0;
}

static int read_ranks(const struct api_call *call, struct view_ranks *ranks, ty_error *err) {
    struct facts_kept *kept = index_facts(call->run->index);
    const struct view_facts *facts;
    int result = facts_take(call->run->path, kept, NULL, &facts, err);
    if (result < 0) return result;
    result = view_ranks_read_of(call->run->path, facts, ranks, err);
    facts_give_back(kept, NULL);
    return result;
}

static int answer_ranks(struct api_call *call, ty_error *err) {
    int64_t from = 0, limit = 1000;
    struct view_ranks ranks = {0};
    int result = parameter_whole(call, "from", 0, INT32_MAX, &from, err);
    if (result >= 0) result = parameter_whole(call, "limit", 1, 10000, &limit, err);
    if (result >= 0) result = read_ranks(call, &ranks, err);
    if (result < 0) return result;
    view_ranks_encode(&ranks, (size_t)from, (size_t)limit, &call->out);
    view_ranks_done(&ranks);
    return 0;
}

static int answer_usage_lasts(struct api_call *call, const char *node, ty_error *err) {
    struct facts_kept *kept = index_facts(call->run->index);
    struct view_summary summary = {0};
    struct view_usage usage = {0};
    const struct view_facts *facts;
    int result = facts_take(call->run->path, kept, NULL, &facts, err);
    if (result < 0) return result;
    result = view_summary_read_of(call->run->name, call->run->path, facts, &summary, err);
    nanoseconds now = summary.ended > 0 ? 0 : clock_wall();
    view_summary_done(&summary);
    facts_give_back(kept, NULL);
    if (result < 0) return result;
    result = view_usage_read(call->run->path, now, &usage, err);
    if (result == -ENOENT) result = 0; /* none were kept */
    if (result >= 0) view_usage_encode(&usage, node, &call->out);
    view_usage_done(&usage);
    return result;
}

static int answer_usage(struct api_call *call, ty_error *err) {
    struct view_usage_query query = {.node = parameter_text(call, "node"),
                                     .what = parameter_text(call, "what")};
    const char *over = parameter_text(call, "over");
    int64_t buckets = VIEW_BUCKETS;
    struct view_usage_lines lines = {0};
    if (over != NULL) query.over = view_usage_over_of(over);
    if (query.over == VIEW_USAGE_OVER_N)
        return ty_fail(err, TY_EUSAGE, "over=%.80s: must be each, node or all", over);
    int result = parameter_range(call, &query.from, &query.to, err);
    if (result >= 0) result = parameter_whole(call, "buckets", 1, VIEW_BUCKETS_MAX, &buckets, err);
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
    int result = read_ranks(call, &ranks, err);
    if (result < 0) return result;
    view_placement_encode(&ranks, &call->out);
    view_ranks_done(&ranks);
    return 0;
}

static int answer_timeline(struct api_call *call, ty_error *err) {
    struct view_timeline timeline = {0};
    int result =
        view_timeline_read(call->run->name, call->run->path, index_facts(call->run->index), &timeline, err);
    if (result < 0) return result;
    view_timeline_encode(&timeline, &call->out);
    view_timeline_done(&timeline);
    return 0;
}

static int answer_events(struct api_call *call, ty_error *err) {
    static const char *const kinds[] = {
#define X(kind, name, values) #name,
#define E(kind, name) #name,
        RUN_EVENTS(X, E)
#undef X
#undef E
            NULL};
    int64_t after = 0, limit = EVENTS_MAX;
    int kind = 0, result = parameter_whole(call, "after", 0, INT64_MAX, &after, err);
    if (result >= 0) result = parameter_whole(call, "limit", 1, EVENTS_MAX, &limit, err);
    if (result >= 0) result = parameter_choice(call, "kind", kinds, &kind, err);
    const struct view_events which = {after, (size_t)limit, parameter_text(call, "kind")};
    return result < 0 ? result : view_events_encode(call->run->path, &which, &call->out, err);
}

static int answer_checkpoints(struct api_call *call, ty_error *err) {
    return view_checkpoints_encode(call->run->path, &call->out, err);
}

static int answer_logs(struct api_call *call, ty_error *err) {
    return run_output_list(call->run->path, &call->out, err);
}

static int answer_profiles(struct api_call *call, ty_error *err) {
    (void)err;
    run_output_profiles(call->run->path, &call->out);
    return 0;
}

static int answer_log(struct api_call *call, ty_error *err) {
    int64_t from = 0, bytes = OUTPUT_READ;
    int result = parameter_whole(call, "from", INT64_MIN / 2, INT64_MAX / 2, &from, err);
    if (result >= 0) result = parameter_whole(call, "bytes", 1, OUTPUT_READ_MAX, &bytes, err);
    return result < 0 ? result : run_output_read(call->run->path, call->rank, from, bytes, &call->out, err);
}

static int answer_search(struct api_call *call, ty_error *err) {
    CLEANUP(idset_done) struct idset set = {0};
    const struct idset *ranks = NULL;
    const char *text = parameter_text(call, "q");
    int result = parameter_ranks(call, "ranks", &set, &ranks, err);
    if (result < 0) return result;
    return run_output_search(call->run->path, text != NULL ? text : "", ranks, parameter_text(call, "cursor"),
                             &call->out, err);
}

static int answer_stacks(struct api_call *call, ty_error *err) {
    return run_output_stacks(call->run->path, call->site->config.allow_actions, &call->out, err);
}

static int answer_stop(struct api_call *call, ty_error *err) {
    int result = action_check(&call->body, call->run->name, call->run->path, err);
    return result < 0 ? result : action_stop(call->run->path, &call->out, err);
}

static int answer_new_stacks(struct api_call *call, ty_error *err) {
    int result = action_check(&call->body, call->run->name, call->run->path, err);
    return result < 0 ? result : action_stacks(call->run->path, &call->out, err);
}

/* -- the table */

#define PLOT "metric x from to history ranks "

static const struct route routes[] = {
    {"/api/runs", answer_runs, "after", NULL, NULL, NULL},
    {"/metrics", answer_exposition, "", NULL, NULL, expose_begin},
    {"/api/series", answer_series, PLOT "run buckets what", NULL, NULL, NULL},
    {"/api/runs/*", answer_run, "", NULL, NULL, NULL},
    {"/api/runs/*/metrics", answer_metrics, "", NULL, NULL, NULL},
    {"/api/runs/*/heat", answer_heat, PLOT "rows columns", NULL, NULL, NULL},
    {"/api/runs/*/histogram", answer_histogram, "metric x from to history rank bins near", NULL, NULL, NULL},
    {"/api/runs/*/ranks", answer_ranks, "from limit", NULL, NULL, NULL},
    {"/api/runs/*/usage", answer_usage, "node what over from to buckets", NULL, NULL, NULL},
    {"/api/runs/*/placement", answer_placement, "", NULL, NULL, NULL},
    {"/api/runs/*/timeline", answer_timeline, "", NULL, NULL, NULL},
    {"/api/runs/*/events", answer_events, "after limit kind", NULL, NULL, NULL},
    {"/api/runs/*/checkpoints", answer_checkpoints, "", NULL, NULL, NULL},
    {"/api/runs/*/logs", answer_logs, "", NULL, NULL, NULL},
    {"/api/runs/*/logs/search", answer_search, "q ranks cursor", NULL, NULL, NULL},
    {"/api/runs/*/logs/*", answer_log, "from bytes", NULL, NULL, NULL},
    {"/api/runs/*/logs/*/whole", answer_whole_log, "", "text/plain; charset=utf-8", "log", NULL},
    {"/api/runs/*/stacks", answer_stacks, "", NULL, NULL, NULL},
    {"/api/runs/*/metrics.csv", answer_csv, "rank history", "text/csv; charset=utf-8", "csv", NULL},
    {"/api/runs/*/metrics.jsonl", answer_jsonl, "rank history", "application/x-ndjson", "jsonl", NULL},
    {"/api/runs/*/trace.json", answer_trace, "ranks from to with_profile", "application/json", "json", NULL},
    {"/api/runs/*/profiles", answer_profiles, "", NULL, NULL, NULL},
    {"/api/runs/*/profile/*", answer_profile, "", "application/gzip", "pt.trace.json.gz", NULL},
};

/* By POST, with --allow-actions. Each in a lane of its own: what waits for a run is not held up. */
static const struct route action_routes[] = {
    {"/api/runs/*/stop", answer_stop, "", NULL, NULL, NULL},
    {"/api/runs/*/stacks", answer_new_stacks, "", NULL, NULL, NULL},
};

const struct route route_look = {.path = "", .answer = answer_look, .parameters = ""};
const struct route route_exposed = {.path = "", .answer = answer_exposed, .parameters = ""};

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

/* The ID of a run and a rank, where the path has them, go to `parts`. */
static const struct route *match(bool acts, const char *path, struct url_part parts[2]) {
    const struct route *table = acts ? action_routes : routes;
    for (size_t i = 0; i < (acts ? ARRAY_SIZE(action_routes) : ARRAY_SIZE(routes)); i++)
        if (url_matches(path, table[i].path, parts, 2)) return &table[i];
    return NULL;
}

/* An ID of another length, or a rank that is none, is a path that does not exist. */
const struct route *route_find(struct api_call *call, const char *path) {
    struct url_part parts[2] = {0};
    const struct route *route = match(call->acts, path, parts);
    if (parts[0].size > 0 && parts[0].size != VIEW_ID_SIZE - 1) return NULL;
    memcpy(call->id, parts[0].size > 0 ? parts[0].text : "", parts[0].size);
    return parts[1].size > 0 && !parse_rank(&parts[1], &call->rank) ? NULL : route;
}

bool api_is_action(const char *path) {
    return match(true, path, (struct url_part[2]){0}) != NULL;
}

bool api_is_read(const char *path) {
    return match(false, path, (struct url_part[2]){0}) != NULL;
}
