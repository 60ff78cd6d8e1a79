/* How often which values were reported: of few reports all are counted at once, of many in the background
 * (drawings.h), and a sample until then. */
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "view/drawings.h"
#include "view/encode.h"
#include "view/index.h"
#include "view/value_counts.h"

/* All ranks are counted, with those of the query beside them, so that one reading gives both. */
static int count(const char *run_path, const struct view_query *query, const struct view_facts *facts,
                 struct value_counts *counts, struct view_histogram *histogram, ty_error *err) {
    struct drawings *drawings = index_drawings(query->index);
    const struct drawing_request request = drawings_request(run_path, query, facts);
    CLEANUP(view_series_done) struct view_series series = {0};
    struct drawing_answer drawing = {0};
    struct view_query all = *query;
    struct points points;
    bool many = facts->reports > VIEW_WHOLE && request.x != NULL;
    int result = many ? drawings_take(drawings, &request, &series, &drawing, err) : 0;
    *counts = drawing.counts;
    histogram->exact = series.exact;
    histogram->scanned = series.scanned;
    histogram->behind = series.behind;
    if (result != 0) return result;
    all.ranks = NULL;
    result = points_gather(run_path, &all, facts, &points, err);
    if (result < 0) return result;
    result = value_counts_add(counts, &points, query->ranks);
    histogram->exact = points.exact;
    histogram->scanned = points.scanned;
    histogram->behind = !points.exact && drawings != NULL && drawings_want(drawings, &request);
    points_done(&points);
    return result < 0 ? ty_fail_memory(err) : 0;
}

static int gather(const char *run_path, const struct view_query *query, struct value_counts *counts,
                  struct view_histogram *histogram, ty_error *err) {
    struct facts_kept *kept = index_facts(query->index);
    struct view_facts own;
    const struct view_facts *facts;
    int result = points_check_query(query, err);
    if (result >= 0) result = facts_take(run_path, kept, &own, &facts, err);
    if (result < 0) return result;
    result = count(run_path, query, facts, counts, histogram, err);
    facts_give_back(kept, &own);
    return result;
}

int view_histogram_read(const char *run_path, const struct view_query *query, int bins,
                        struct view_histogram *histogram, ty_error *err) {
    enum { BINS = 50 };
    CLEANUP(value_counts_done) struct value_counts counts = {0};
    struct view_query counted = *query;
    *histogram = (struct view_histogram){0};
    if (bins < 0 || bins > VIEW_BINS_MAX)
        return ty_fail(err, TY_EUSAGE, "bins: %d is not between 1 and %d", bins, VIEW_BINS_MAX);
    counted.what = VIEW_COUNTS;
    counted.buckets = 0; /* as the counts have none: they are the same for any number of bins */
    int result = gather(run_path, &counted, &counts, histogram, err);
    if (result < 0) return result;
    histogram->bins = bins > 0 ? (size_t)bins : BINS;
    histogram->all = calloc(histogram->bins, sizeof *histogram->all);
    histogram->edges = calloc(histogram->bins + 1, sizeof *histogram->edges);
    if (query->ranks != NULL) histogram->chosen = calloc(histogram->bins, sizeof *histogram->chosen);
    if (histogram->all == NULL || histogram->edges == NULL ||
        (query->ranks != NULL && histogram->chosen == NULL)) {
        view_histogram_done(histogram);
        return ty_fail_memory(err);
    }
    value_counts_fill(&counts, query->near, histogram);
    return 0;
}

void view_histogram_done(struct view_histogram *histogram) {
    free(histogram->edges);
    free(histogram->all);
    free(histogram->chosen);
    *histogram = (struct view_histogram){0};
}

static void encode_counts(const uint64_t *counts, size_t n, struct buffer *out) {
    if (counts == NULL) {
        buffer_text(out, "null");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        buffer_char(out, i == 0 ? '[' : ',');
        encode_int(out, (int64_t)counts[i]);
    }
    buffer_char(out, ']');
}

void view_histogram_encode(const struct view_histogram *histogram, struct buffer *out) {
    buffer_char(out, '{');
    encode_scanned(out, histogram->exact, histogram->scanned);
    buffer_text(out, ", \"edges\": [");
    for (size_t i = 0; i <= histogram->bins && !isnan(histogram->min); i++) {
        if (i > 0) buffer_char(out, ',');
        encode_number(out, histogram->edges[i]);
    }
    buffer_text(out, "], \"all\": ");
    encode_counts(histogram->all, histogram->bins, out);
    buffer_text(out, ", \"chosen\": ");
    encode_counts(histogram->chosen, histogram->bins, out);
    buffer_char(out, '}');
}
