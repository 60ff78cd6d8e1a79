/* Every run is read first, as the samples of a family must stand together. A family is a row of a table: its
 * name, type, help, and what writes its samples of one run. Who reads it, and how often, is not known here. */
#include "view/export.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/idset.h"
#include "base/str.h"
#include "view/encode.h"
#include "view/facts.h"
#include "view/ranks.h"
#include "view/scan.h"
#include "view/summary.h"
#include "view/usage.h"
#include "view/values.h"

/* A run has at most SERIES_MAX series, that of the build among them; where they are more, ranks go without. */
enum { METRICS_SHOWN = 100, SERIES_MAX = 10000, DEVICES_SHOWN = 128 };

/* Values of the last number that all ranks made. */
struct exposed_metric {
    char *name; /* owned */
    size_t name_size;
    int64_t report; /* id of the last that has a number for it; that */
    double value;
    double last; /* of rank 0; NAN where it is not finite */
    uint64_t n;
    double min, max, sum;
};

struct exposed_run {
    char *name, *path; /* owned */
    const char *label; /* run: the name, or where another run has that the path */
    struct view_summary summary;
    struct view_facts facts;
    struct view_ranks ranks;
    struct view_counts counts;      /* its own: who reads the run next counts on in those that are kept */
    struct exposed_metric *metrics; /* n_metrics, owned */
    size_t n_metrics, omitted;
    uint64_t *numbers;       /* of the last report of each rank; owned */
    int64_t *ids;            /* of these reports; owned */
    uint64_t common;         /* the last number that all made; 0: none */
    struct buffer first;     /* metrics of rank 0's last report */
    struct view_usage usage; /* empty where none were kept */
    /* The last of each rank, where these are asked for: lines behind the run's label. */
    struct buffer rank_samples;
    size_t rank_left; /* how many more of them may be kept; then how many may be written */
};

struct exposition_writing {
    const struct view_exposition *how;
    struct buffer *out;
    const char *family; /* without the prefix */
    const char *suffix; /* of its samples */
};

/* -- gathering */

/* What is told is of the ranks that there are now. */
static bool is_of_last_attempt(const struct exposed_run *run, const struct journal_report *report) {
    return report->attempt == run->facts.replay.attempt && report->rank >= 0 &&
           (size_t)report->rank < run->ranks.n;
}

static int note_first(struct exposed_run *run, const struct journal_report *report) {
    if (report->rank > 0) return 0;
    buffer_clear(&run->first);
    buffer_append(&run->first, report->metrics, report->metrics_size);
    return run->first.failed ? -ENOMEM : 0;
}

static int note_last(void *context, const struct journal_report *report) {
    struct exposed_run *run = context;
    if (!is_of_last_attempt(run, report)) return 0;
    run->numbers[report->rank] = report->number;
    run->ids[report->rank] = report->id;
    return note_first(run, report);
}

struct earlier_taking {
    struct exposed_run *run;
    bool any; /* of the last attempt */
};

static int take_earlier(void *context, const struct journal_report *report) {
    struct earlier_taking *taking = context;
    if (!is_of_last_attempt(taking->run, report)) return 0;
    taking->any = true;
    return note_first(taking->run, report);
}

/* Where rank 0 reports more seldom than the others do, its last report lies farther back. */
static int find_first(struct exposed_run *run, const char *path, int64_t before, ty_error *err) {
    enum { STEP_BACK = 8192 };
    struct earlier_taking taking = {run, true};
    int result = 0;
    for (int64_t left = VIEW_WHOLE; taking.any && run->first.size == 0 && before > 0 && left > 0 && result == 0;
         left -= STEP_BACK) {
        struct view_scan scan = {.after = before > STEP_BACK ? before - STEP_BACK : 0, .last = before};
        taking.any = false;
        result = view_scan(path, &scan, take_earlier, &taking, err);
        before = scan.after;
    }
    return result;
}

struct metric_taking {
    struct exposed_run *run;
    size_t found, next; /* of the metrics, in this report; where the next one may stand */
    bool add, failed;   /* names are new */
    int64_t report;     /* id of the one at hand */
};

/* A label can have it. */
static bool is_name(const struct value *value) {
    return value->name_size == 0 || memchr(value->name, '\0', value->name_size) == NULL;
}

/* Reports name theirs in the same order, as a rule. NULL: it is none of those that are shown. */
static struct exposed_metric *find_metric(struct metric_taking *taking, const struct value *value) {
    const struct exposed_run *run = taking->run;
    for (size_t i = 0; i < run->n_metrics; i++, taking->next++) {
        if (taking->next >= run->n_metrics) taking->next = 0;
        struct exposed_metric *metric = &run->metrics[taking->next];
        if (!value_is_named(value, metric->name, metric->name_size)) continue;
        taking->next++;
        return metric;
    }
    return NULL;
}

/* NULL: there are too many; or memory is short, which `failed` tells. */
static struct exposed_metric *add_metric(struct metric_taking *taking, const struct value *value) {
    struct exposed_run *run = taking->run;
    if (run->n_metrics == METRICS_SHOWN) {
        run->omitted++;
        return NULL;
    }
    char *name = ARRAY_GROW(run->metrics, run->n_metrics) < 0
                     ? NULL
                     : strndup(value->name != NULL ? value->name : "", value->name_size);
    taking->failed = name == NULL;
    if (name == NULL) return NULL;
    struct exposed_metric *metric = &run->metrics[run->n_metrics++];
    *metric = (struct exposed_metric){.name = name, .name_size = value->name_size, .last = (double)NAN};
    return metric;
}

/* A value of a report: in rank 0's last one names are added, in those of the common number they are looked up.
 * Of many thousand ranks each may report many more than are shown: behind those that are none is read. */
static bool take_metric(void *context, const struct value *value) {
    struct metric_taking *taking = context;
    const struct exposed_run *run = taking->run;
    if (!is_name(value)) return true;
    struct exposed_metric *metric = find_metric(taking, value);
    if (metric == NULL && taking->add && value_is_number(value)) metric = add_metric(taking, value);
    if (metric == NULL) return !taking->failed;
    if (metric->report != taking->report) taking->found++;
    metric->report = value_is_number(value) ? taking->report : 0;
    metric->value = value->number;
    return taking->add || run->omitted == 0 || taking->found < run->n_metrics;
}

/* What the report of a rank says of the number that all have made. */
static void take_common(struct exposed_run *run, const struct journal_report *report) {
    struct metric_taking taking = {.run = run, .report = report->id};
    (void)values_each(report->metrics, report->metrics_size, take_metric, &taking);
    for (size_t i = 0; i < run->n_metrics; i++) {
        struct exposed_metric *metric = &run->metrics[i];
        if (metric->report != report->id || !isfinite(metric->value)) continue;
        if (metric->n == 0 || metric->value < metric->min) metric->min = metric->value;
        if (metric->n == 0 || metric->value > metric->max) metric->max = metric->value;
        metric->sum += metric->value;
        metric->n++;
    }
}

/* The metrics that are told of are those of rank 0's last report. */
static int take_names(struct exposed_run *run) {
    struct metric_taking names = {.run = run, .add = true, .report = -1};
    if (run->first.size > 0) (void)values_each(run->first.data, run->first.size, take_metric, &names);
    for (size_t i = 0; i < run->n_metrics; i++)
        if (run->metrics[i].report == names.report) run->metrics[i].last = run->metrics[i].value;
    return names.failed ? -ENOMEM : 0;
}

static void write_rank_report(struct exposed_run *run, const struct journal_report *report);

struct report_taking {
    struct exposed_run *run;
    bool per_rank;
};

static int take_report(void *context, const struct journal_report *report) {
    const struct report_taking *of = context;
    struct exposed_run *run = of->run;
    if (!is_of_last_attempt(run, report)) return 0;
    if (report->number == run->common) take_common(run, report);
    if (of->per_rank && report->id == run->ids[report->rank]) write_rank_report(run, report);
    return 0;
}

/* Twice through the last reports: how far each rank is, then what they say of the number that all have made. */
static int take_reports(struct exposed_run *run, const char *path, bool per_rank, ty_error *err) {
    uint64_t limit = (run->ranks.n + 1) * PACE_REPORTS, there = run->facts.reports, common = UINT64_MAX;
    if (limit > PACE_REPORTS_MAX) limit = PACE_REPORTS_MAX;
    struct view_scan scan = {.after = there > limit ? (int64_t)(there - limit) : 0, .last = (int64_t)there};
    run->numbers = calloc(run->ranks.n + 1, sizeof *run->numbers);
    run->ids = calloc(run->ranks.n + 1, sizeof *run->ids);
    run->rank_left = SERIES_MAX;
    if (run->numbers == NULL || run->ids == NULL) return -ENOMEM;
    int result = view_scan(path, &scan, note_last, run, err);
    if (result == 0) result = find_first(run, path, scan.after, err);
    for (size_t i = 0; i < run->ranks.n; i++)
        if (run->numbers[i] < common) common = run->numbers[i];
    run->common = run->ranks.n > 0 && common > 0 ? common : UINT64_MAX;
    if (result == 0) result = take_names(run);
    struct report_taking taking = {run, per_rank};
    return result == 0 ? view_scan(path, &scan, take_report, &taking, err) : result;
}

static int count_nonfinite(struct exposed_run *run, struct view_counts *kept, ty_error *err) {
    int64_t last = (int64_t)run->facts.reports;
    if (kept == NULL) return view_counts_renew(&run->counts, run->path, run->facts.first, last, false, err);
    int result = view_counts_renew(kept, run->path, run->facts.first, last, true, err);
    return result < 0 ? result : view_counts_copy(kept, &run->counts);
}

/* All is read before anything is written, as a run's samples stand in many places of the text. */
static int gather(struct exposed_run *run, struct view_counts *kept, bool per_rank, ty_error *err) {
    int result = view_summary_read(run->name, run->path, &run->summary, err);
    if (result >= 0) result = view_facts_read(run->path, &run->facts, err);
    if (result >= 0) result = view_ranks_read(run->path, &run->ranks, err);
    if (result < 0) return result;
    if (run->facts.reports > 0) result = count_nonfinite(run, kept, err);
    if (result >= 0 && run->facts.reports > 0) result = take_reports(run, run->path, per_rank, err);
    if (result < 0) return result;
    /* Samples that cannot be read take nothing from the rest. */
    return view_usage_read(run->path, 0, &run->usage, NULL) == -ENOMEM ? -ENOMEM : 0;
}

int exposed_run_read(const struct view_exposed *run, bool per_rank, struct exposed_run **out, ty_error *err) {
    struct exposed_run *read = calloc(1, sizeof *read);
    *out = NULL;
    if (read == NULL) return ty_fail_memory(err);
    read->name = strdup(run->name);
    read->path = strdup(run->path);
    int result = read->name != NULL && read->path != NULL ? gather(read, run->counts, per_rank, err) : -ENOMEM;
    if (result >= 0) *out = read;
    if (result < 0) exposed_run_free(read);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

void exposed_run_free(struct exposed_run *run) {
    if (run == NULL) return;
    view_summary_done(&run->summary);
    view_facts_done(&run->facts);
    view_ranks_done(&run->ranks);
    view_counts_done(&run->counts);
    for (size_t i = 0; i < run->n_metrics; i++)
        free(run->metrics[i].name);
    free(run->metrics);
    view_usage_done(&run->usage);
    free(run->numbers);
    free(run->ids);
    buffer_done(&run->first);
    buffer_done(&run->rank_samples);
    free(run->name);
    free(run->path);
    free(run);
}

/* -- writing */

static void append_label(struct buffer *out, const char *text) {
    for (const char *at = text != NULL ? text : ""; *at != '\0'; at++) {
        if (*at == '\\' || *at == '"') buffer_char(out, '\\');
        if (*at == '\n')
            buffer_text(out, "\\n");
        else
            buffer_char(out, *at);
    }
}

static void append_value(struct buffer *out, double value) {
    if (isnan(value))
        buffer_text(out, "NaN");
    else if (isinf(value))
        buffer_text(out, value > 0 ? "+Inf" : "-Inf");
    else
        encode_number(out, value);
}

/* A sample of a run, with one label more (its name NULL: none). */
static void sample(const struct exposition_writing *writing, const struct exposed_run *run, const char *label,
                   const char *text, double value) {
    struct buffer *out = writing->out;
    buffer_printf(out, "trainyard_%s%s{run=\"", writing->family, writing->suffix);
    append_label(out, run->label);
    if (label != NULL) {
        buffer_printf(out, "\",%s=\"", label);
        append_label(out, text);
    }
    buffer_text(out, "\"} ");
    append_value(out, value);
    buffer_char(out, '\n');
}

typedef void write_samples(const struct exposition_writing *writing, const struct exposed_run *run);

/* The slowest rank is the first. */
static bool has_slowest(const struct exposed_run *run) {
    return run->ranks.n > 0 && !isnan(run->ranks.items[0].interval);
}

/* Families of one value, which some runs do not have. */
#define WRITE_VALUE(name, has, value)                                                                   \
    static void write_##name(const struct exposition_writing *writing, const struct exposed_run *run) { \
        if (has) sample(writing, run, NULL, NULL, value);                                               \
    }
WRITE_VALUE(started, true, duration_seconds(run->facts.first > 0 ? run->facts.first : run->summary.began))
WRITE_VALUE(ended, run->summary.ended > 0, duration_seconds(run->summary.ended))
WRITE_VALUE(attempts, true, (double)run->facts.n_attempts)
WRITE_VALUE(lost, true, run->facts.lost_seconds)
WRITE_VALUE(nodes, true, (double)run->summary.nodes)
WRITE_VALUE(reports, true, (double)run->facts.reports)
WRITE_VALUE(last_report, run->summary.last_report > 0, duration_seconds(run->summary.last_report))
WRITE_VALUE(interval, !isnan(run->ranks.usual), run->ranks.usual)
WRITE_VALUE(interval_max, has_slowest(run), run->ranks.items[0].interval)
WRITE_VALUE(slowest, has_slowest(run), run->ranks.items[0].rank)
WRITE_VALUE(checkpoints, true, (double)run->facts.n_checkpoints)
WRITE_VALUE(last_checkpoint, run->facts.n_checkpoints > 0,
            duration_seconds(run->facts.checkpoints[run->facts.n_checkpoints - 1].time))
WRITE_VALUE(lost_checkpoints, true, (double)run->facts.lost_checkpoints)
WRITE_VALUE(omitted, true, (double)run->omitted)

static void write_info(const struct exposition_writing *writing, const struct exposed_run *run) {
    struct buffer *out = writing->out;
    buffer_printf(out, "trainyard_%s%s{run=\"", writing->family, writing->suffix);
    append_label(out, run->label);
    buffer_text(out, "\",engine=\"");
    append_label(out, run->facts.replay.run.event.of.run.engine);
    buffer_text(out, "\",host=\"");
    append_label(out, run->summary.host);
    buffer_text(out, "\"} 1\n");
}

static void write_state(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (int i = 0; i < RUN_STANDINGS_N; i++)
        sample(writing, run, "state", run_standing_name((enum run_standing)i),
               run->summary.standing == (enum run_standing)i);
}

static void write_failures(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (int i = 0; i < FAILURE_CAUSES_N; i++)
        sample(writing, run, "cause", failure_cause_name((enum failure_cause)i),
               (double)run->facts.failures[i]);
}

static void write_workers(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (int i = 0; i < WORKER_STANDINGS_N; i++)
        sample(writing, run, "state", worker_standing_name((enum worker_standing)i),
               (double)run->summary.by_standing[i]);
}

static void write_phases(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (int i = 0; i < START_PHASES_N; i++)
        if (run->summary.phases[i].known)
            sample(writing, run, "phase", start_phase_name((enum start_phase_kind)i),
                   duration_seconds(run->summary.phases[i].duration));
}

struct rank_sample {
    struct exposed_run *run;
    int rank;
    size_t from; /* where the samples of the rank begin */
};

/* Samples of ranks are written as they are read, but for the run's label, which is known when all runs are
 * (tell_apart): of ten thousand ranks the values are not kept beside. */
static bool write_rank_value(void *context, const struct value *value) {
    const struct rank_sample *of = context;
    struct buffer *out = &of->run->rank_samples;
    if (!is_name(value) || (!value_is_number(value) && out->size == of->from)) return true;
    if (of->run->rank_left == 0) return false;
    CLEANUP_FREE char *name = strndup(value->name != NULL ? value->name : "", value->name_size);
    CLEANUP(buffer_done) struct buffer labels = {0};
    buffer_text(&labels, ",metric=\"");
    append_label(&labels, name);
    buffer_printf(&labels, "\",rank=\"%d\"} ", of->rank);
    out->failed |= name == NULL || labels.failed;
    if (out->failed) return false;
    char *known = out->size > of->from
                      ? memmem(out->data + of->from, out->size - of->from, labels.data, labels.size)
                      : NULL;
    if (known != NULL) { /* of a name that the report has twice the last counts */
        char *end = out->data + out->size, *next = (char *)memchr(known, '\n', (size_t)(end - known)) + 1;
        memmove(known, next, (size_t)(end - next));
        out->size -= (size_t)(next - known);
        of->run->rank_left++;
    }
    if (!value_is_number(value)) return true;
    of->run->rank_left--;
    buffer_append(out, labels.data, labels.size);
    append_value(out, value->number);
    buffer_char(out, '\n');
    return true;
}

static void write_rank_report(struct exposed_run *run, const struct journal_report *report) {
    struct rank_sample of = {run, report->rank, run->rank_samples.size};
    (void)values_each(report->metrics, report->metrics_size, write_rank_value, &of);
}

static void write_metric(const struct exposition_writing *writing, const struct exposed_run *run) {
    const struct buffer *lines = &run->rank_samples;
    for (size_t at = 0, size, left = run->rank_left; at < lines->size && left > 0; at += size, left--) {
        size = strcspn(lines->data + at, "\n") + 1;
        buffer_text(writing->out, "trainyard_metric{run=\"");
        append_label(writing->out, run->label);
        buffer_char(writing->out, '"');
        buffer_append(writing->out, lines->data + at, size);
    }
    for (size_t i = 0; i < run->n_metrics && !writing->how->per_rank; i++)
        sample(writing, run, "metric", run->metrics[i].name, run->metrics[i].last);
}

static void write_metric_min(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (size_t i = 0; i < run->n_metrics; i++)
        if (run->metrics[i].n > 0) sample(writing, run, "metric", run->metrics[i].name, run->metrics[i].min);
}

static void write_metric_mean(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (size_t i = 0; i < run->n_metrics; i++)
        if (run->metrics[i].n > 0)
            sample(writing, run, "metric", run->metrics[i].name,
                   run->metrics[i].sum / (double)run->metrics[i].n);
}

static void write_metric_max(const struct exposition_writing *writing, const struct exposed_run *run) {
    for (size_t i = 0; i < run->n_metrics; i++)
        if (run->metrics[i].n > 0) sample(writing, run, "metric", run->metrics[i].name, run->metrics[i].max);
}

/* Once all were counted, as it may take several calls until those of a long run are. */
static void write_nonfinite(const struct exposition_writing *writing, const struct exposed_run *run) {
    const struct view_counts *counts = &run->counts;
    for (size_t i = 0; counts->last >= (int64_t)run->facts.reports && i < counts->n; i++)
        sample(writing, run, "metric", counts->items[i].name, (double)counts->items[i].n);
}

static size_t devices_shown(const struct exposition_writing *writing) {
    return writing->how->per_device ? SIZE_MAX : DEVICES_SHOWN;
}

/* What was sampled last of all nodes, or their devices, up to so many of them. `total`: of a counter,
 * what it grew by in the run. */
static void write_usage(const struct exposition_writing *writing, const struct exposed_run *run,
                        enum usage_what what, const char *kind) {
    struct buffer *out = writing->out;
    bool total = usage_table[what].kind == USAGE_COUNTER;
    size_t left = devices_shown(writing);
    for (size_t i = 0; i < run->usage.n; i++) {
        const struct view_usage_node *node = &run->usage.nodes[i];
        for (size_t k = 0; k < node->n; k++) {
            const struct view_usage_last *item = &node->items[k];
            if (item->what != what || (total && isnan(item->first)) || left == 0) continue;
            left--;
            buffer_printf(out, "trainyard_%s%s{run=\"", writing->family, writing->suffix);
            append_label(out, run->label);
            buffer_text(out, "\",node=\"");
            append_label(out, node->name);
            if (item->number >= 0) buffer_printf(out, "\",device=\"%d", item->number);
            if (kind != NULL) buffer_printf(out, "\",kind=\"%s", kind);
            buffer_text(out, "\"} ");
            append_value(out, total ? view_usage_total(item) : item->value);
            buffer_char(out, '\n');
        }
    }
}

/* Each device of a node that was sampled, by the node's last event, and who uses it: the ranks by the plan. */
static void write_node_devices(const struct exposition_writing *writing, const struct exposed_run *run,
                               const struct view_usage_node *node, size_t *left) {
    struct idset users[USAGE_DEVICES_MAX] = {0};
    struct idset there = {0};
    for (size_t i = 0; i < node->n; i++)
        if (usage_table[node->items[i].what].scope == USAGE_OF_DEVICE &&
            node->items[i].number < USAGE_DEVICES_MAX)
            (void)idset_add(&there, node->items[i].number);
    for (size_t i = 0; i < run->ranks.n; i++) {
        const struct view_rank *rank = &run->ranks.items[i];
        struct idset own = {0};
        if (rank->node < 0 || rank->devices == NULL || !str_equal(run->ranks.nodes[rank->node], node->name))
            continue;
        if (idset_parse(&own, rank->devices, NULL) == 0)
            for (int64_t device = idset_next(&own, -1); device >= 0 && device < USAGE_DEVICES_MAX;
                 device = idset_next(&own, device))
                (void)idset_add(&users[device], rank->rank);
        idset_done(&own);
    }
    const struct event_node *told = NULL;
    for (size_t i = 0; i < run->facts.replay.n_node_events && told == NULL; i++)
        if (str_equal(run->facts.replay.node_events[i].event.of.node.name, node->name))
            told = &run->facts.replay.node_events[i].event.of.node;
    for (int64_t device = idset_next(&there, -1); device >= 0 && *left > 0;
         device = idset_next(&there, device)) {
        --*left;
        buffer_printf(writing->out, "trainyard_%s%s{run=\"", writing->family, writing->suffix);
        append_label(writing->out, run->label);
        buffer_text(writing->out, "\",node=\"");
        append_label(writing->out, node->name);
        buffer_printf(writing->out, "\",device=\"%lld\",uuid=\"", (long long)device);
        append_label(writing->out,
                     told != NULL && (size_t)device < told->uuids.n ? told->uuids.items[device] : "");
        buffer_text(writing->out, "\",type=\"");
        append_label(writing->out,
                     told != NULL && told->accelerator_type != NULL ? told->accelerator_type : "");
        buffer_text(writing->out, "\",ranks=\"");
        idset_format(&users[device], writing->out);
        buffer_text(writing->out, "\"} 1\n");
    }
    for (size_t i = 0; i < USAGE_DEVICES_MAX; i++)
        idset_done(&users[i]);
    idset_done(&there);
}

static void write_devices(const struct exposition_writing *writing, const struct exposed_run *run) {
    size_t left = devices_shown(writing);
    for (size_t i = 0; i < run->usage.n && left > 0; i++)
        write_node_devices(writing, run, &run->usage.nodes[i], &left);
}

#define WRITE_USAGE(name, what)                                                                         \
    static void write_##name(const struct exposition_writing *writing, const struct exposed_run *run) { \
        write_usage(writing, run, USAGE_##what, NULL);                                                  \
    }
WRITE_USAGE(utilization, DEVICE_UTILIZATION)
WRITE_USAGE(device_memory, DEVICE_MEMORY)
WRITE_USAGE(device_memory_size, DEVICE_MEMORY_SIZE)
WRITE_USAGE(power, DEVICE_POWER)
WRITE_USAGE(temperature, DEVICE_TEMPERATURE)
WRITE_USAGE(device_clock, DEVICE_CLOCK)
WRITE_USAGE(energy, DEVICE_ENERGY)
WRITE_USAGE(node_cpu, NODE_CPU)
WRITE_USAGE(node_memory, NODE_MEMORY)
WRITE_USAGE(receive, NODE_RECEIVE)
WRITE_USAGE(transmit, NODE_TRANSMIT)

static void write_device_errors(const struct exposition_writing *writing, const struct exposed_run *run) {
    write_usage(writing, run, USAGE_DEVICE_XID, "xid");
    write_usage(writing, run, USAGE_DEVICE_ECC, "ecc");
}

enum family_type { TYPE_GAUGE, TYPE_COUNTER, TYPE_INFO };

static const struct exposed_family {
    const char *name; /* without the prefix, and what samples of its type end in */
    enum family_type type;
    const char *help;
    write_samples *write;
} families[] = {
    {"run", TYPE_INFO, "The runs that are shown", write_info},
    {"run_state", TYPE_GAUGE, "1 for the state that the run is in, else 0", write_state},
    {"run_start_timestamp_seconds", TYPE_GAUGE, "When the first event of the run was", write_started},
    {"run_end_timestamp_seconds", TYPE_GAUGE, "When the run ended", write_ended},
    {"run_attempts", TYPE_COUNTER, "Attempts that began", write_attempts},
    {"run_failures", TYPE_COUNTER, "Attempts that failed, by cause", write_failures},
    {"run_lost_seconds", TYPE_COUNTER, "Training that was thrown away by restarts", write_lost},
    {"workers", TYPE_GAUGE, "Workers of the last attempt, by state", write_workers},
    {"nodes", TYPE_GAUGE, "Nodes of the last attempt", write_nodes},
    {"start_phase_seconds", TYPE_GAUGE, "Parts of the start; the slowest rank or node of each", write_phases},
    {"reports", TYPE_COUNTER, "Reports of all ranks", write_reports},
    {"last_report_timestamp_seconds", TYPE_GAUGE, "When the newest report was made", write_last_report},
    {"report_interval_seconds", TYPE_GAUGE, "Between two reports of a rank; median over ranks", write_interval},
    {"report_interval_max_seconds", TYPE_GAUGE, "Between two reports of the slowest rank", write_interval_max},
    {"slowest_rank", TYPE_GAUGE, "The slowest rank", write_slowest},
    {"checkpoints", TYPE_GAUGE, "Checkpoints that are kept", write_checkpoints},
    {"checkpoint_last_timestamp_seconds", TYPE_GAUGE, "When the newest checkpoint was committed",
     write_last_checkpoint},
    {"checkpoints_lost", TYPE_COUNTER, "Checkpoints that were given up", write_lost_checkpoints},
    {"metric", TYPE_GAUGE, "The last value that rank 0 reported", write_metric},
    {"metric_min", TYPE_GAUGE, "Least over ranks, of the last number that all made", write_metric_min},
    {"metric_mean", TYPE_GAUGE, "Mean over ranks, of the last number that all made", write_metric_mean},
    {"metric_max", TYPE_GAUGE, "Greatest over ranks, of the last number that all made", write_metric_max},
    {"metrics_omitted", TYPE_GAUGE, "Metrics beyond the first 100 of the run", write_omitted},
    {"nonfinite_values", TYPE_COUNTER, "NaN and infinities that were reported", write_nonfinite},
    {"device", TYPE_INFO, "The devices that were sampled, and the ranks that use them", write_devices},
    {"device_utilization_ratio", TYPE_GAUGE, "Time in which some kernel ran on the device", write_utilization},
    {"device_memory_used_bytes", TYPE_GAUGE, "Device memory in use", write_device_memory},
    {"device_memory_size_bytes", TYPE_GAUGE, "Device memory that there is", write_device_memory_size},
    {"device_power_watts", TYPE_GAUGE, "Power that the device draws", write_power},
    {"device_temperature_celsius", TYPE_GAUGE, "Temperature of the device", write_temperature},
    {"device_clock_hertz", TYPE_GAUGE, "Clock of the device's processors", write_device_clock},
    {"device_energy_joules", TYPE_COUNTER, "Energy that the device used since the run began", write_energy},
    {"device_errors", TYPE_COUNTER, "Faults that the driver told of since the run began", write_device_errors},
    {"node_cpu_used_ratio", TYPE_GAUGE, "Share of the processors' time that was used", write_node_cpu},
    {"node_memory_used_bytes", TYPE_GAUGE, "Memory of the node in use", write_node_memory},
    {"node_network_receive_bytes", TYPE_COUNTER, "Received by the node since the run began", write_receive},
    {"node_network_transmit_bytes", TYPE_COUNTER, "Sent by the node since the run began", write_transmit},
};

/* OpenMetrics names a family without the ending of its samples, the older format with it. */
static void write_head(const struct exposition_writing *writing, enum family_type type, const char *help) {
    static const char *const types[] = {"gauge", "counter", "info"};
    bool older = !writing->how->openmetrics;
    const char *suffix = older ? writing->suffix : "";
    buffer_printf(writing->out, "# HELP trainyard_%s%s %s\n# TYPE trainyard_%s%s %s\n", writing->family, suffix,
                  help, writing->family, suffix, older && type == TYPE_INFO ? "gauge" : types[type]);
}

const char *view_exposition_type(bool openmetrics) {
    return openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8";
}

/* Storage paths may have runs of one name each: no two series may have the same labels. */
static void tell_apart(struct exposed_run *const *runs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        runs[i]->label = runs[i]->name;
        for (size_t k = 0; k < n; k++)
            if (k != i && str_equal(runs[k]->name, runs[i]->name)) runs[i]->label = runs[i]->path;
    }
}

/* How many series of the run have no rank: as many as lines are written of it. */
static size_t count_without_rank(const struct exposed_run *run, const struct view_exposition *how,
                                 bool *failed) {
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        if (families[i].write != write_metric)
            families[i].write(&(struct exposition_writing){how, &text, families[i].name, ""}, run);
    for (size_t i = 0; i < text.size; i++)
        n += text.data[i] == '\n';
    *failed |= text.failed;
    return n;
}

int exposed_runs_encode(struct exposed_run *const *runs, size_t n, const struct view_exposition *how,
                        struct buffer *out, ty_error *err) {
    static const char *const suffixes[] = {"", "_total", "_info"};
    const struct exposition_writing build = {how, out, "build", "_info"};
    tell_apart(runs, n);
    for (size_t i = 0; i < n; i++) {
        out->failed |= runs[i]->rank_samples.failed;
        if (runs[i]->rank_samples.size == 0) continue;
        size_t others = count_without_rank(runs[i], how, &out->failed) + 1;
        runs[i]->rank_left = others < SERIES_MAX ? SERIES_MAX - others : 0;
    }
    write_head(&build, TYPE_INFO, "This trainyard");
    buffer_printf(out, "trainyard_build_info{version=\"%s\"} 1\n", TY_VERSION);
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        const struct exposed_family *family = &families[i];
        const struct exposition_writing writing = {how, out, family->name, suffixes[family->type]};
        write_head(&writing, family->type, family->help);
        for (size_t run = 0; run < n; run++)
            family->write(&writing, runs[run]);
    }
    if (how->openmetrics) buffer_text(out, "# EOF\n");
    return out->failed ? ty_fail_memory(err) : 0;
}

int view_exposition_encode(const struct view_exposed *runs, size_t n, const struct view_exposition *how,
                           struct buffer *out, ty_error *err) {
    CLEANUP_FREE struct exposed_run **read = calloc(n + 1, sizeof(struct exposed_run *));
    size_t n_read = 0;
    int result = read != NULL ? 0 : ty_fail_memory(err);
    for (size_t i = 0; i < n && result != -ENOMEM; i++) {
        result = exposed_run_read(&runs[i], how->per_rank, &read[n_read], n == 1 ? err : NULL);
        n_read += result >= 0;
    }
    bool written = result >= 0 || (n > 1 && result != -ENOMEM);
    if (written) result = exposed_runs_encode(read, n_read, how, out, err);
    for (size_t i = 0; i < n_read; i++)
        exposed_run_free(read[i]);
    return result;
}
