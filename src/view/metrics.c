/* The names among all reports, or among a sample where there are more than are read whole: how often each was
 * reported, by how many ranks, and its last, least and greatest value. The values over time are series.c's. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idset.h"
#include "view/encode.h"
#include "view/facts.h"
#include "view/index.h"
#include "view/scan.h"
#include "view/series.h"
#include "view/values.h"

enum { NAMES_MAX = 100000 };

struct metric_note {
    int64_t id; /* of the report in which it was last, and what it was there */
    enum value_type type;
    double value;
    uint64_t number; /* the newest number with it, and the lowest rank that made it */
    int attempt, rank;
    uint64_t *ranks; /* bits; n_words, owned */
    size_t n_words;
};

struct metric_names {
    struct view_metrics *metrics;
    struct metric_note *notes; /* one for each metric, owned */
    struct hash *places;       /* name -> place + 1 */
    const struct view_facts *facts;
    const struct view_selection *selection;
    const struct journal_report *report;
    size_t *given; /* places of the names in the report at hand; n_given, owned */
    size_t n_given;
    struct values_shape shape;
    bool ends; /* what the reports at the end say last is all that is wanted */
    bool failed;
};

/* Which ranks a metric has, as bits: a list of them would take thirty times as much. */
static int note_rank(struct metric_note *note, int rank, uint64_t *ranks) {
    enum { BITS = 64 };
    size_t word = (size_t)rank / BITS;
    if (rank < 0 || rank >= IDSET_MAX) return 0;
    if (ARRAY_REACH(note->ranks, note->n_words, word + 1) < 0) return -ENOMEM;
    uint64_t bit = UINT64_C(1) << ((size_t)rank % BITS);
    if ((note->ranks[word] & bit) == 0) (*ranks)++;
    note->ranks[word] |= bit;
    return 0;
}

static int add_name(struct metric_names *names, const char *name) {
    struct view_metrics *metrics = names->metrics;
    if (ARRAY_GROW(names->notes, metrics->n) < 0 || ARRAY_GROW(metrics->items, metrics->n) < 0) return -ENOMEM;
    char *copy = strdup(name);
    if (copy == NULL || hash_set(names->places, name, metrics->n + 1) < 0) {
        free(copy);
        return -ENOMEM;
    }
    names->notes[metrics->n] = (struct metric_note){.attempt = -1};
    metrics->items[metrics->n++] = (struct view_metric){.name = copy, .last = (double)NAN, .text = true};
    return 0;
}

/* What the report at hand says of a metric. In the reading of the ends (`ends`) it counts as the newest, and
 * for its rank, but not once more among all: the sample has these, in part. */
static int take_given(struct metric_names *names, size_t place) {
    struct view_metric *metric = &names->metrics->items[place];
    struct metric_note *note = &names->notes[place];
    bool number = note->type == VALUE_NUMBER, nonfinite = note->type == VALUE_NONFINITE;
    if (note->type == VALUE_OTHER) return 0;
    bool counts = number && !names->ends;
    if (counts && (metric->n == 0 || note->value < metric->min)) metric->min = note->value;
    if (counts && (metric->n == 0 || note->value > metric->max)) metric->max = note->value;
    if (counts) metric->sum += note->value;
    metric->n += counts;
    metric->nonfinite += nonfinite && !names->ends;
    if (number || nonfinite) metric->text = false;
    const struct journal_report *report = names->report;
    /* Newest of the lowest rank: of a later attempt, a higher number, or a lower rank. */
    bool newer = report->attempt != note->attempt ? report->attempt > note->attempt
                 : report->number != note->number ? report->number > note->number
                                                  : report->rank <= note->rank;
    if (newer) {
        note->attempt = report->attempt;
        note->number = report->number;
        note->rank = report->rank;
        metric->last = number ? note->value : (double)NAN;
    }
    return note_rank(note, names->report->rank, &metric->ranks);
}

static bool on_value(void *context, const struct value *value) {
    struct metric_names *names = context;
    char name[METRIC_NAME_BYTES + 1];
    if (!value_name(value, name) || name[0] == '\0') return true; /* nobody could ask for it by that */
    uintptr_t *place = hash_get(names->places, name);
    if (place == NULL) {
        if (value->type == VALUE_OTHER || names->metrics->n >= NAMES_MAX) return true;
        names->failed = add_name(names, name) < 0;
        if (names->failed) return false;
        place = hash_get(names->places, name);
    }
    struct metric_note *note = &names->notes[*place - 1];
    if (note->id != names->report->id) {
        names->failed = ARRAY_GROW(names->given, names->n_given) < 0;
        if (names->failed) return false;
        names->given[names->n_given++] = *place - 1;
    }
    note->id = names->report->id;
    note->type = value->type;
    note->value = value->number;
    return true;
}

static int on_report(void *context, const struct journal_report *report) {
    struct metric_names *names = context;
    if (!view_facts_select(names->facts, names->selection, report)) return 0;
    names->report = report;
    names->n_given = 0;
    (void)values_each_like(&names->shape, report->metrics, report->metrics_size, on_value, names);
    for (size_t i = 0; i < names->n_given && !names->failed; i++)
        names->failed = take_given(names, names->given[i]) < 0;
    return names->failed ? -ENOMEM : 0;
}

struct placed_metric {
    struct view_metric metric;
    size_t place;
};

static int most_reported(const void *a, const void *b) {
    const struct placed_metric *x = a, *y = b;
    uint64_t n = x->metric.n + x->metric.nonfinite, m = y->metric.n + y->metric.nonfinite;
    if (n != m) return n > m ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* By how often each was reported; what is equal stays in the order of its appearance, for which qsort alone
 * does not stand. */
static int sort(struct view_metrics *metrics) {
    CLEANUP_FREE struct placed_metric *placed = calloc(metrics->n + 1, sizeof *placed);
    if (placed == NULL) return -ENOMEM;
    for (size_t i = 0; i < metrics->n; i++)
        placed[i] = (struct placed_metric){metrics->items[i], i};
    qsort(placed, metrics->n, sizeof *placed, most_reported);
    for (size_t i = 0; i < metrics->n; i++)
        metrics->items[i] = placed[i].metric;
    return 0;
}

/* Of a sample's last reports few ranks may have made one; those of all lie near the end. */
static int read_ends(const char *run_path, struct metric_names *names, int64_t last, ty_error *err) {
    int64_t all = 2 * (int64_t)names->facts->replay.n_workers;
    struct view_scan scan = {.last = last};
    scan.after = last - (all < VIEW_WHOLE ? all : VIEW_WHOLE);
    names->ends = true;
    return view_scan(run_path, &scan, on_report, names, err);
}

/* The facts are given back before the names are sorted: whoever else asks about the run need not wait for
 * that. */
int view_metrics_read(const char *run_path, const struct view_selection *selection, bool whole,
                      struct view_metrics *metrics, ty_error *err) {
    struct view_scan scan = {.after = selection->after, .most = whole ? 0 : VIEW_WHOLE, .block = SCAN_BLOCK};
    struct facts_kept *kept = index_facts(selection->index);
    struct view_facts own;
    const struct view_facts *facts;
    *metrics = (struct view_metrics){0};
    int result = facts_take(run_path, kept, &own, &facts, err);
    if (result < 0) return result;
    scan.last = (int64_t)facts->reports;
    scan.began = facts->first;
    if (selection->index != NULL && selection->after == 0) scan.sample = index_sample(selection->index);
    struct metric_names names = {
        .metrics = metrics, .facts = facts, .selection = selection, .places = hash_create()};
    result = names.places == NULL ? -ENOMEM : view_scan(run_path, &scan, on_report, &names, err);
    if (result == 0 && !scan.exact) result = read_ends(run_path, &names, scan.last, err);
    facts_give_back(kept, &own);
    for (size_t i = 0; names.notes != NULL && i < metrics->n; i++)
        free(names.notes[i].ranks);
    free(names.notes);
    free(names.given);
    hash_destroy(names.places);
    if (result == 0) result = sort(metrics);
    metrics->exact = scan.exact;
    metrics->scanned = scan.scanned;
    if (result == -ENOMEM) (void)ty_fail_memory(err);
    if (result < 0) view_metrics_done(metrics);
    return result;
}

void view_metrics_done(struct view_metrics *metrics) {
    for (size_t i = 0; i < metrics->n; i++)
        free(metrics->items[i].name);
    free(metrics->items);
    *metrics = (struct view_metrics){0};
}

void view_metrics_encode(const struct view_metrics *metrics, struct buffer *out) {
    bool any = false;
    buffer_char(out, '[');
    for (size_t i = 0; i < metrics->n; i++) {
        const struct view_metric *metric = &metrics->items[i];
        const char *slash = strrchr(metric->name, '/');
        if (metric->text) continue;
        encode_next(out, &any);
        buffer_text(out, "{\"name\": ");
        buffer_json_text(out, metric->name);
        buffer_text(out, ", \"group\": ");
        if (slash != NULL)
            buffer_json_string(out, metric->name, (size_t)(slash - metric->name));
        else
            buffer_text(out, "null");
        buffer_printf(out, ", \"n\": %llu, \"nonfinite\": %llu, \"last\": ", (unsigned long long)metric->n,
                      (unsigned long long)metric->nonfinite);
        encode_number(out, metric->last);
        buffer_printf(out, ", \"ranks\": %llu}", (unsigned long long)metric->ranks);
    }
    buffer_char(out, ']');
}
