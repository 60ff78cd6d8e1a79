/* How many values of each metric are not finite, over all of a run. Of all reports, as a count of a sample
 * would fall at times; kept from one answer to the next, as to read all of a long run for each takes too long.
 * */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "view/export.h"
#include "view/scan.h"
#include "view/values.h"

struct counting {
    struct view_counts *counts;
    struct values_shape shape;
    int64_t report; /* at hand */
    size_t seen;    /* its names */
    bool failed;
};

void view_counts_done(struct view_counts *counts) {
    for (size_t i = 0; i < counts->n; i++)
        free(counts->items[i].name);
    free(counts->run_path);
    *counts = (struct view_counts){0};
}

int view_counts_copy(const struct view_counts *counts, struct view_counts *out) {
    *out = *counts;
    out->run_path = strdup(counts->run_path);
    bool whole = out->run_path != NULL;
    for (size_t i = 0; i < counts->n; i++) {
        out->items[i].name = strdup(counts->items[i].name);
        whole = whole && out->items[i].name != NULL;
    }
    if (whole) return 0;
    view_counts_done(out);
    return -ENOMEM;
}

/* Reports name theirs in the same order, so the search begins where the value before was found. NULL: it is no
 * number, there are too many, or no label can have the name; or memory is short, which `failed` tells. */
static struct view_count *find(struct counting *counting, const struct value *value) {
    struct view_counts *counts = counting->counts;
    for (size_t i = 0, at = counting->seen; i < counts->n; i++, at++) {
        if (at >= counts->n) at = 0;
        if (value_is_named(value, counts->items[at].name, counts->items[at].size)) return &counts->items[at];
    }
    if (!value_is_number(value)) return NULL;
    bool named = value->name_size > 0 && memchr(value->name, '\0', value->name_size) == NULL;
    if (counts->n == VIEW_COUNTS_MAX || !named) return NULL;
    char *name = strndup(value->name, value->name_size);
    counting->failed = name == NULL;
    if (name == NULL) return NULL;
    counts->items[counts->n] = (struct view_count){.name = name, .size = value->name_size};
    return &counts->items[counts->n++];
}

static bool on_value(void *context, const struct value *value) {
    struct counting *counting = context;
    struct view_count *count = find(counting, value);
    if (count == NULL) return !counting->failed;
    if (count->report != counting->report)
        counting->seen++;
    else
        count->n -= count->nonfinite; /* of the name the last counts */
    count->report = counting->report;
    count->nonfinite = value->type == VALUE_NONFINITE;
    count->n += count->nonfinite;
    return !counting->failed && counting->seen < VIEW_COUNTS_MAX;
}

static int on_report(void *context, const struct journal_report *report) {
    struct counting *counting = context;
    counting->report = report->id;
    counting->seen = 0;
    (void)values_each_like(&counting->shape, report->metrics, report->metrics_size, on_value, counting);
    return counting->failed ? -ENOMEM : 0;
}

int view_counts_renew(struct view_counts *counts, const char *run_path, nanoseconds began, int64_t last,
                      bool piece, ty_error *err) {
    enum { AT_ONCE = 200000 };
    if (counts->run_path == NULL || !str_equal(counts->run_path, run_path) || counts->began != began ||
        counts->last > last) {
        view_counts_done(counts);
        counts->run_path = strdup(run_path);
        counts->began = began;
        if (counts->run_path == NULL) return ty_fail_memory(err);
    }
    if (last <= counts->last) return 0;
    struct counting counting = {.counts = counts};
    struct view_scan scan = {.after = counts->last, .last = last};
    if (piece && last - counts->last > AT_ONCE) scan.last = counts->last + AT_ONCE;
    int result = view_scan(run_path, &scan, on_report, &counting, err);
    if (result == 0) counts->last = scan.last;
    if (result < 0) view_counts_done(counts); /* some were counted of what failed */
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}
