/* Lines of one thing that was sampled: usage.db read once for each. A line of several nodes or devices gathers
 * its buckets as rows come, so that thousands of devices need no more memory than one. The last values are
 * usage.c's. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/str.h"
#include "journal/usage_db.h"
#include "view/encode.h"
#include "view/usage.h"

/* Whose rows are told apart. */
struct usage_source {
    char *node; /* owned */
    int number;
    size_t line;             /* of the lines; SIZE_MAX: it found no room */
    double before_x, before; /* of a counter */
};

struct usage_reading {
    const struct view_usage_query *query;
    struct view_usage_lines *lines;
    struct usage_source *sources;
    struct hash *known; /* "NUMBER NODE", and which source that is */
    size_t n, likely;   /* which source the next row is of: those of a time come in the same order each time */
    double from, width; /* of the buckets of a line of several */
};

static void forget_sources(struct usage_reading *reading) {
    for (size_t i = 0; i < reading->n; i++)
        free(reading->sources[i].node);
    free(reading->sources);
    hash_destroy(reading->known);
    *reading = (struct usage_reading){.query = reading->query, .lines = reading->lines};
}

/* The line that takes a new source, made where there is none; SIZE_MAX where there are too many, or no
 * memory. */
static size_t line_for(struct usage_reading *reading, const struct usage_row *row) {
    struct view_usage_lines *lines = reading->lines;
    enum view_usage_over over = reading->query->over;
    for (size_t i = 0; over != VIEW_USAGE_EACH && i < lines->n; i++)
        if (over == VIEW_USAGE_ALL || str_equal(lines->items[i].node, row->node)) return i;
    lines->n_all++;
    if (lines->n == VIEW_USAGE_LINES || ARRAY_GROW(lines->items, lines->n) < 0) return SIZE_MAX;
    struct view_usage_line *line = &lines->items[lines->n];
    *line = (struct view_usage_line){.number = over == VIEW_USAGE_EACH ? row->number : -1};
    if (over != VIEW_USAGE_ALL && (line->node = strdup(row->node)) == NULL) return SIZE_MAX;
    return lines->n++;
}

/* The source that the row is of, a new one where it was not seen before. NULL when memory is short. */
static struct usage_source *make_source(struct usage_reading *reading, const struct usage_row *row) {
    CLEANUP(buffer_done) struct buffer key = {0};
    if (reading->likely >= reading->n) reading->likely = 0;
    struct usage_source *likely = reading->n > 0 ? &reading->sources[reading->likely] : NULL;
    if (likely != NULL && likely->number == row->number && str_equal(likely->node, row->node)) {
        reading->likely++;
        return likely;
    }
    buffer_printf(&key, "%d %s", row->number, row->node);
    if (reading->known == NULL) reading->known = hash_create();
    if (key.failed || reading->known == NULL) return NULL;
    const uintptr_t *at = hash_get(reading->known, key.data);
    if (at == NULL) {
        char *node = ARRAY_GROW(reading->sources, reading->n) < 0 ? NULL : strdup(row->node);
        if (node == NULL || hash_set(reading->known, key.data, reading->n) < 0) {
            free(node);
            return NULL;
        }
        reading->sources[reading->n] =
            (struct usage_source){node, row->number, line_for(reading, row), NAN, NAN};
        reading->likely = reading->n++;
    } else {
        reading->likely = *at;
    }
    return &reading->sources[reading->likely++];
}

/* Means count as often as they have samples. */
static void merge(struct view_usage_point *bucket, const struct view_usage_point *point) {
    double n = (double)(bucket->n + point->n);
    if (point->x_last > bucket->x_last) bucket->x_last = point->x_last;
    bucket->mean = (bucket->mean * (double)bucket->n + point->mean * (double)point->n) / n;
    if (point->min < bucket->min) bucket->min = point->min;
    if (point->max > bucket->max) bucket->max = point->max;
    bucket->n += point->n;
}

/* Several sources of one line come by time, so that a point belongs into the bucket that is open, or begins
 * one. */
static int add_point(const struct usage_reading *reading, struct view_usage_line *line,
                     const struct view_usage_point *point) {
    const struct view_usage_point *last = line->n > 0 ? &line->points[line->n - 1] : NULL;
    bool several = reading->query->over != VIEW_USAGE_EACH;
    if (several && last != NULL &&
        floor((point->x - reading->from) / reading->width) <=
            floor((last->x - reading->from) / reading->width)) {
        merge(&line->points[line->n - 1], point);
        return 0;
    }
    if (ARRAY_GROW(line->points, line->n) < 0) return -ENOMEM;
    line->points[line->n++] = *point;
    return 0;
}

/* Of a counter the rate since the row before; where it began anew there is none. */
static int take_point(void *context, const struct usage_row *row) {
    struct usage_reading *reading = context;
    struct usage_source *source = make_source(reading, row);
    struct view_usage_point point = {
        duration_seconds(row->time), duration_seconds(row->time), row->min, row->mean, row->max, row->n};
    if (source == NULL) return -ENOMEM;
    if (source->line == SIZE_MAX) return 0;
    struct view_usage_line *line = &reading->lines->items[source->line];
    if (usage_table[row->what].kind == USAGE_GAUGE) return add_point(reading, line, &point);
    double passed = point.x - source->before_x, grown = row->mean - source->before;
    bool known = passed > 0 && grown >= 0;
    source->before_x = point.x;
    source->before = row->mean;
    point.min = point.mean = point.max = grown / passed;
    return known ? add_point(reading, line, &point) : 0;
}

static int take_time(void *context, const struct usage_row *row) {
    *(double *)context = duration_seconds(row->time);
    return 1;
}

/* Buckets of the range that is asked for, as far as there are samples. */
static int divide(struct usage_reading *reading, struct journal *db, const struct usage_query *rows,
                  ty_error *err) {
    const struct usage_query newest = {.to = INT64_MAX, .newest = 1};
    double first = 0, last = 0;
    int result = usage_db_each(db, rows, take_time, &first, err);
    if (result >= 0) result = usage_db_each(db, &newest, take_time, &last, err);
    if (result < 0) return result;
    if (reading->query->to < last) last = reading->query->to;
    reading->from = first;
    reading->width = last > first ? (last - first) / reading->query->buckets : 1;
    return 0;
}

/* Begins anew each time it is called (journal_read). */
static int read_points(void *context, struct journal *db, ty_error *err) {
    struct usage_reading *reading = context;
    const struct view_usage_query *query = reading->query;
    /* No time is as far away as these bounds. */
    struct usage_query rows = {.node = query->node, .what = query->what, .to = INT64_MAX};
    if (query->from > 0 && query->from < 9e9) rows.from = (nanoseconds)(query->from * (double)NS_PER_S);
    if (query->to < 9e9) rows.to = query->to > 0 ? (nanoseconds)(query->to * (double)NS_PER_S) : 0;
    forget_sources(reading);
    view_usage_lines_done(reading->lines);
    int result = query->over != VIEW_USAGE_EACH ? divide(reading, db, &rows, err) : 0;
    return result < 0 ? result : usage_db_each(db, &rows, take_point, reading, err);
}

/* In place: points become buckets. */
static void bucket(struct view_usage_line *line, int buckets) {
    double from = line->n > 0 ? line->points[0].x : 0, to = line->n > 0 ? line->points[line->n - 1].x : 0;
    size_t n = 0;
    int last = -1;
    if (line->n <= (size_t)buckets || to <= from) return;
    for (size_t i = 0; i < line->n; i++) {
        int at = (int)((line->points[i].x - from) * buckets / (to - from));
        if (at > buckets - 1) at = buckets - 1;
        if (at == last)
            merge(&line->points[n - 1], &line->points[i]);
        else
            line->points[n++] = line->points[i];
        last = at;
    }
    line->n = n;
}

enum view_usage_over view_usage_over_of(const char *text) {
    static const char *const names[] = {
#define X(name, text) text,
        VIEW_USAGE_OVER(X)
#undef X
    };
    int over = 0;
    while (over < VIEW_USAGE_OVER_N && !str_equal(names[over], text))
        over++;
    return (enum view_usage_over)over;
}

int view_usage_lines_read(const char *run_path, const struct view_usage_query *query,
                          struct view_usage_lines *lines, ty_error *err) {
    struct usage_reading reading = {.query = query, .lines = lines};
    *lines = (struct view_usage_lines){0};
    if (usage_of(query->what) == USAGES_N)
        return ty_fail(err, TY_EUSAGE,
                       "what=%.80s: nothing of this name is sampled, as node_cpu or device_power", query->what);
    int result = usage_db_read(run_path, read_points, &reading, err);
    if (result == -ENOMEM) (void)ty_fail_memory(err);
    forget_sources(&reading);
    if (result < 0) view_usage_lines_done(lines);
    lines->what = usage_of(query->what);
    for (size_t i = 0; i < lines->n && query->over == VIEW_USAGE_EACH; i++)
        bucket(&lines->items[i], query->buckets);
    return result < 0 ? result : 0;
}

void view_usage_lines_done(struct view_usage_lines *lines) {
    for (size_t i = 0; i < lines->n; i++) {
        free(lines->items[i].node);
        free(lines->items[i].points);
    }
    free(lines->items);
    *lines = (struct view_usage_lines){0};
}

static void encode_column(const struct view_usage_line *line, const char *name, size_t offset,
                          struct buffer *out) {
    buffer_printf(out, ", \"%s\": [", name);
    for (size_t i = 0; i < line->n; i++) {
        if (i > 0) buffer_char(out, ',');
        encode_number(out, *(const double *)(const void *)((const char *)&line->points[i] + offset));
    }
    buffer_char(out, ']');
}

static void encode_line(const struct usage_about *about, const struct view_usage_line *line,
                        struct buffer *out) {
    buffer_text(out, "{\"node\": ");
    if (line->node != NULL)
        buffer_json_text(out, line->node);
    else
        buffer_text(out, "null");
    buffer_printf(out, ", \"what\": \"%s\", \"number\": ", about->text);
    encode_rank(out, line->number);
    buffer_printf(out, ", \"unit\": \"%s%s\"", about->unit, about->kind == USAGE_COUNTER ? "/s" : "");
    encode_column(line, "x", offsetof(struct view_usage_point, x), out);
    encode_column(line, "x_last", offsetof(struct view_usage_point, x_last), out);
    buffer_text(out, ", \"n\": [");
    for (size_t i = 0; i < line->n; i++) {
        if (i > 0) buffer_char(out, ',');
        encode_int(out, line->points[i].n);
    }
    buffer_char(out, ']');
    encode_column(line, "min", offsetof(struct view_usage_point, min), out);
    encode_column(line, "mean", offsetof(struct view_usage_point, mean), out);
    encode_column(line, "max", offsetof(struct view_usage_point, max), out);
    buffer_char(out, '}');
}

void view_usage_lines_encode(const struct view_usage_lines *lines, struct buffer *out) {
    buffer_printf(out, "{\"lines\": %zu, \"series\": [", lines->n_all);
    for (size_t i = 0; i < lines->n; i++) {
        if (i > 0) buffer_text(out, ", ");
        encode_line(&usage_table[lines->what], &lines->items[i], out);
    }
    buffer_text(out, "]}");
}
