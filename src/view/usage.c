/* usage.db read once for what was said last, and once for each series that is asked for. */
#include "view/usage.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/quantity.h"
#include "base/str.h"
#include "journal/usage_db.h"
#include "view/encode.h"
#include "view/series.h"

enum { STALE_PERIODS = 3, SERIES_MAX = 256 };
#define LAST_WITHIN (180 * NS_PER_S)  /* three of the longest periods */
#define FIRST_WITHIN (120 * NS_PER_S) /* all nodes have begun by then, or count from where they begin */
#define STALE_LEAST (5 * NS_PER_S)

static double seconds(nanoseconds time) {
    return (double)time / (double)NS_PER_S;
}

/* -- what was said last */

void view_usage_done(struct view_usage *usage) {
    for (size_t i = 0; i < usage->n; i++) {
        free(usage->nodes[i].name);
        free(usage->nodes[i].items);
    }
    free(usage->nodes);
    *usage = (struct view_usage){0};
}

/* The node's place among the others, or where it belongs. */
static size_t place_of(const struct view_usage *usage, const char *name, bool *there) {
    size_t low = 0, high = usage->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(usage->nodes[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *there = low < usage->n && str_equal(usage->nodes[low].name, name);
    return low;
}

static struct view_usage_node *make_node(struct view_usage *usage, const char *name) {
    bool there;
    size_t low = place_of(usage, name, &there);
    if (there) return &usage->nodes[low];
    char *copy = strdup(name);
    if (copy == NULL || ARRAY_GROW(usage->nodes, usage->n) < 0) {
        free(copy);
        return NULL;
    }
    memmove(&usage->nodes[low + 1], &usage->nodes[low], (usage->n - low) * sizeof *usage->nodes);
    usage->nodes[low] = (struct view_usage_node){.name = copy};
    usage->n++;
    return &usage->nodes[low];
}

static struct view_usage_last *find_item(struct view_usage_node *node, const struct usage_row *row) {
    for (size_t i = 0, at = node->likely; i < node->n; i++, at++) {
        if (at >= node->n) at = 0;
        if (node->items[at].what != row->what || node->items[at].number != row->number) continue;
        node->likely = at + 1;
        return &node->items[at];
    }
    return NULL;
}

static struct view_usage_last *make_item(struct view_usage_node *node, const struct usage_row *row) {
    struct view_usage_last *found = find_item(node, row);
    if (found != NULL) return found;
    if (ARRAY_GROW(node->items, node->n) < 0) return NULL;
    node->items[node->n] = (struct view_usage_last){row->what, row->number, NAN, NAN, 0, 0, NAN};
    return &node->items[node->n++];
}

static int take_last(void *context, const struct usage_row *row) {
    struct view_usage_node *node = make_node(context, row->node);
    struct view_usage_last *item = node != NULL ? make_item(node, row) : NULL;
    if (item == NULL) return -ENOMEM;
    double passed = seconds(row->time - item->time), grown = row->mean - item->value;
    item->rate = usage_table[row->what].kind == USAGE_COUNTER && item->time > 0 && passed > 0 && grown >= 0
                     ? grown / passed
                     : (double)NAN;
    item->before = item->time;
    item->time = row->time;
    item->value = row->mean;
    if (row->time > node->at) node->at = row->time;
    return 0;
}

struct first_taking {
    struct view_usage *usage;
    nanoseconds from;
};

static int take_first(void *context, const struct usage_row *row) {
    struct first_taking *taking = context;
    if (taking->from == 0) taking->from = row->time;
    if (row->time - taking->from > FIRST_WITHIN + row->span) return 1;
    if (usage_table[row->what].kind != USAGE_COUNTER) return 0;
    bool there;
    size_t place = place_of(taking->usage, row->node, &there);
    struct view_usage_last *item = there ? find_item(&taking->usage->nodes[place], row) : NULL;
    if (item != NULL && !(item->first <= row->min)) item->first = row->min;
    return 0;
}

static int read_lasts(void *context, struct journal *db, ty_error *err) {
    struct view_usage *usage = context;
    const struct usage_query newest = {.to = INT64_MAX, .newest = LAST_WITHIN}, all = {.to = INT64_MAX};
    struct first_taking first = {usage, 0};
    view_usage_done(usage);
    int result = usage_db_each(db, &newest, take_last, usage, err);
    return result == 0 ? usage_db_each(db, &all, take_first, &first, err) : result;
}

int view_usage_read(const char *run_path, nanoseconds now, struct view_usage *usage, ty_error *err) {
    nanoseconds newest = now;
    *usage = (struct view_usage){0};
    int result = usage_db_read(run_path, read_lasts, usage, err);
    if (result < 0) {
        view_usage_done(usage);
        return result == -ENOMEM ? ty_fail_memory(err) : result;
    }
    for (size_t i = 0; i < usage->n; i++)
        if (usage->nodes[i].at > newest) newest = usage->nodes[i].at;
    for (size_t i = 0; i < usage->n; i++) {
        struct view_usage_node *node = &usage->nodes[i];
        nanoseconds period = STALE_LEAST;
        for (size_t k = 0; k < node->n; k++)
            if (node->items[k].before > 0 && node->items[k].time - node->items[k].before > period)
                period = node->items[k].time - node->items[k].before;
        node->stale = newest - node->at > STALE_PERIODS * period;
    }
    return 0;
}

double view_usage_shown(const struct view_usage_last *last) {
    return usage_table[last->what].kind == USAGE_COUNTER ? last->rate : last->value;
}

void view_usage_text(enum usage_what what, double value, struct buffer *out) {
    const struct usage_about *about = &usage_table[what];
    const char *per = about->kind == USAGE_COUNTER ? "/s" : "";
    quantity bytes;
    if (!isfinite(value))
        buffer_text(out, "-");
    else if (str_equal(about->unit, "ratio"))
        buffer_printf(out, "%.0f %%", value * 100);
    else if (str_equal(about->unit, "bytes") && quantity_from_double(round(value), "", &bytes, NULL) == 0) {
        bytes_format(bytes, out);
        buffer_text(out, per);
    } else if (str_equal(about->unit, "hertz"))
        buffer_printf(out, "%.0f MHz", value / 1e6);
    else if (str_equal(about->unit, "watts") || str_equal(about->unit, "joules"))
        buffer_printf(out, "%.0f W", value); /* the rate of an energy is a power */
    else if (str_equal(about->unit, "celsius"))
        buffer_printf(out, "%.0f C", value);
    else if (str_equal(about->unit, "bits") && value >= 1 && value < 16)
        usage_limits((unsigned)value, out);
    else if (str_equal(about->unit, "bits"))
        buffer_text(out, "none");
    else if (str_equal(about->unit, "errors"))
        buffer_printf(out, "%.3g%s", value, per);
    else
        buffer_printf(out, "%.2f cores", value); /* seconds a second are as many */
}

static void encode_item(const struct view_usage_last *item, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer text = {0};
    bool counts = usage_table[item->what].kind == USAGE_COUNTER;
    buffer_printf(out, "{\"what\": \"%s\", \"number\": ", usage_table[item->what].text);
    encode_rank(out, item->number);
    buffer_text(out, ", \"value\": ");
    encode_number_if(out, isfinite(view_usage_shown(item)), view_usage_shown(item));
    if (counts) {
        buffer_text(out, ", \"total\": ");
        encode_number_if(out, isfinite(item->first), item->value - item->first);
    }
    buffer_printf(out, ", \"unit\": \"%s%s\", \"text\": ", usage_table[item->what].unit, counts ? "/s" : "");
    view_usage_text(item->what, view_usage_shown(item), &text);
    buffer_json_text(out, text.failed || text.data == NULL ? "" : text.data);
    buffer_char(out, '}');
}

void view_usage_encode(const struct view_usage *usage, const char *only, struct buffer *out) {
    const char *between = "";
    buffer_text(out, "{\"nodes\": [");
    for (size_t i = 0; i < usage->n; i++) {
        const struct view_usage_node *node = &usage->nodes[i];
        if (only != NULL && !str_equal(only, node->name)) continue;
        buffer_printf(out, "%s{\"node\": ", between);
        buffer_json_text(out, node->name);
        buffer_text(out, ", \"name\": ");
        buffer_json_text(out, node->name);
        buffer_text(out, ", \"at\": ");
        encode_number(out, seconds(node->at));
        buffer_printf(out, ", \"stale\": %s, \"last\": [", node->stale ? "true" : "false");
        for (size_t k = 0; k < node->n; k++) {
            if (k > 0) buffer_text(out, ", ");
            encode_item(&node->items[k], out);
        }
        buffer_text(out, "]}");
        between = ", ";
    }
    buffer_text(out, "]}");
}

/* -- series */

struct usage_point {
    double x, x_last, min, mean, max;
    int64_t n;
};

struct line {
    char *node; /* owned */
    int number;
    struct usage_point *points; /* owned */
    size_t n;
    double before_x, before; /* of a counter */
};

struct series_reading {
    const struct view_usage_query *query;
    enum usage_what what;
    struct line lines[SERIES_MAX];
    size_t n, likely; /* as in view_usage_node */
};

static void clear_lines(struct series_reading *reading) {
    for (size_t i = 0; i < reading->n; i++) {
        free(reading->lines[i].node);
        free(reading->lines[i].points);
    }
    reading->n = 0;
}

static struct line *find_line(struct series_reading *reading, const struct usage_row *row) {
    for (size_t i = 0, at = reading->likely; i < reading->n; i++, at++) {
        if (at >= reading->n) at = 0;
        if (reading->lines[at].number != row->number || !str_equal(reading->lines[at].node, row->node))
            continue;
        reading->likely = at + 1;
        return &reading->lines[at];
    }
    if (reading->n == SERIES_MAX) return NULL;
    struct line *line = &reading->lines[reading->n];
    *line = (struct line){.node = strdup(row->node), .number = row->number, .before_x = NAN};
    if (line->node == NULL) return NULL;
    reading->n++;
    return line;
}

static int add_point(struct line *line, const struct usage_point *point) {
    if (ARRAY_GROW(line->points, line->n) < 0) return -ENOMEM;
    line->points[line->n++] = *point;
    return 0;
}

/* Of a counter the rate since the row before; where it began anew there is none. */
static int take_point(void *context, const struct usage_row *row) {
    struct series_reading *reading = context;
    struct line *line = find_line(reading, row);
    struct usage_point point = {seconds(row->time), seconds(row->time), row->min, row->mean, row->max, row->n};
    if (line == NULL) return reading->n == SERIES_MAX ? 0 : -ENOMEM;
    if (usage_table[row->what].kind == USAGE_GAUGE) return add_point(line, &point);
    double passed = point.x - line->before_x, grown = row->mean - line->before;
    bool known = passed > 0 && grown >= 0;
    line->before_x = point.x;
    line->before = row->mean;
    point.min = point.mean = point.max = grown / passed;
    return known ? add_point(line, &point) : 0;
}

static int read_points(void *context, struct journal *db, ty_error *err) {
    struct series_reading *reading = context;
    const struct view_usage_query *query = reading->query;
    /* No time is as far away as these bounds. */
    struct usage_query rows = {.node = query->node, .what = query->what, .to = INT64_MAX};
    if (query->from > 0 && query->from < 9e9) rows.from = (nanoseconds)(query->from * (double)NS_PER_S);
    if (query->to < 9e9) rows.to = query->to > 0 ? (nanoseconds)(query->to * (double)NS_PER_S) : 0;
    clear_lines(reading);
    return usage_db_each(db, &rows, take_point, reading, err);
}

static void merge(struct usage_point *bucket, const struct usage_point *point) {
    double n = (double)(bucket->n + point->n);
    bucket->x_last = point->x_last;
    bucket->mean = (bucket->mean * (double)bucket->n + point->mean * (double)point->n) / n;
    if (point->min < bucket->min) bucket->min = point->min;
    if (point->max > bucket->max) bucket->max = point->max;
    bucket->n += point->n;
}

/* In place: points become buckets. */
static void bucket(struct line *line, int buckets) {
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

static void encode_column(const struct line *line, const char *name, size_t offset, struct buffer *out) {
    buffer_printf(out, ", \"%s\": [", name);
    for (size_t i = 0; i < line->n; i++) {
        if (i > 0) buffer_char(out, ',');
        encode_number(out, *(const double *)(const void *)((const char *)&line->points[i] + offset));
    }
    buffer_char(out, ']');
}

static void encode_line(const struct series_reading *reading, const struct line *line, struct buffer *out) {
    const struct usage_about *about = &usage_table[reading->what];
    buffer_text(out, "{\"node\": ");
    buffer_json_text(out, line->node);
    buffer_printf(out, ", \"what\": \"%s\", \"number\": ", about->text);
    encode_rank(out, line->number);
    buffer_printf(out, ", \"unit\": \"%s%s\"", about->unit, about->kind == USAGE_COUNTER ? "/s" : "");
    encode_column(line, "x", offsetof(struct usage_point, x), out);
    encode_column(line, "x_last", offsetof(struct usage_point, x_last), out);
    buffer_text(out, ", \"n\": [");
    for (size_t i = 0; i < line->n; i++) {
        if (i > 0) buffer_char(out, ',');
        encode_int(out, line->points[i].n);
    }
    buffer_char(out, ']');
    encode_column(line, "min", offsetof(struct usage_point, min), out);
    encode_column(line, "mean", offsetof(struct usage_point, mean), out);
    encode_column(line, "max", offsetof(struct usage_point, max), out);
    buffer_char(out, '}');
}

int view_usage_series(const char *run_path, const struct view_usage_query *query, struct buffer *out,
                      ty_error *err) {
    CLEANUP_FREE struct series_reading *reading = calloc(1, sizeof *reading);
    if (reading == NULL) return ty_fail_memory(err);
    reading->query = query;
    reading->what = usage_of(query->what);
    if (reading->what == USAGES_N)
        return ty_fail(err, TY_EUSAGE,
                       "what=%.80s: nothing of this name is sampled, as node_cpu or device_power", query->what);
    int result = usage_db_read(run_path, read_points, reading, err);
    if (result == -ENOMEM) (void)ty_fail_memory(err);
    buffer_text(out, "{\"series\": [");
    for (size_t i = 0; i < reading->n && result >= 0; i++) {
        if (i > 0) buffer_text(out, ", ");
        bucket(&reading->lines[i], query->buckets);
        encode_line(reading, &reading->lines[i], out);
    }
    buffer_text(out, "]}");
    clear_lines(reading);
    return result;
}
