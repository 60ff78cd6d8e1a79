/* The page of runs as one file: what a person mails. No script and nothing from outside, as its own policy
 * says; each plot is drawn here as SVG. The page that is served is another (web/page). */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "run/replay.h"
#include "view/index.h"
#include "view/ranks.h"
#include "view/series.h"
#include "view/timeline.h"
#include "view/usage.h"
#include "web/dashboard.h"
#include "web/run_output.h"

enum {
    COMPARED = 16,
    LAST_LINES = 25,
    FIGURES = 24,
    BUCKETS = 240,
    SLOWEST = 10,
    CHECKPOINTS = 20,
    NAME_SHOWN = 120,
    PAGE_MAX = 1 << 20
};
enum { WIDTH = 420, HEIGHT = 170, LEFT = 52, BOTTOM = 22, TOP = 8, RIGHT = 8, MARKS = 7 };

static const char *const colours[] = {"#2563c9", "#d9730d", "#2e8b57", "#b8379a",
                                      "#8a6d00", "#0f8b8d", "#c62f2f", "#6f52c9"};

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"viewport\" "
    "content=\"width=device-width\">\n<style>\n"
    ":root{--b:#fbfbfa;--c:#fff;--l:#e2e2de;--t:#1d1f21;--d:#6d7178;--bad:#c62f2f;--good:#2e7d4f;--s:#f2f2f0}\n"
    "@media(prefers-color-scheme:dark){:root{--b:#131416;--c:#1a1c1f;--l:#2d3137;--t:#e3e5e8;--d:#989da6;--bad:"
    "#f07a72;"
    "--good:#62b884;--s:#212429}}\n"
    "html{font:13px/1.45 system-ui,sans-serif;font-variant-numeric:tabular-nums}body{margin:0 "
    "auto;padding:18px;max-width:"
    "1340px;background:var(--b);color:var(--t)}h1{font-size:17px;margin:0 0 2px}h2{font-size:13px;margin:20px "
    "0 8px}"
    ".d{color:var(--d)}.bad{color:var(--bad)}.good{color:var(--good)}table{border-collapse:collapse;background:"
    "var(--c);"
    "border:1px solid var(--l)}th{text-align:left;font-weight:500;color:var(--d)}td,th{padding:3px "
    "10px;border-bottom:1px solid "
    "var(--l);vertical-align:top}.n{text-align:right}.grid{display:grid;grid-template-columns:repeat(auto-fill,"
    "minmax(400px,1fr)"
    ");gap:12px}figure{margin:0;background:var(--c);border:1px solid var(--l);border-radius:6px;padding:8px "
    "10px}figcaption{"
    "font-weight:600;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}figcaption "
    "span{float:right;font-weight:400;font-size:11.5px;color:"
    "var(--d)}svg{display:block;width:100%}text{font-size:10px;fill:var(--d)}.g{stroke:var(--l)}pre{background:"
    "var(--c);border:"
    "1px solid var(--l);border-radius:6px;padding:8px "
    "12px;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px}.cause{"
    "border-left:3px solid var(--bad);background:var(--c);padding:7px 15px;margin:12px "
    "0}.k{display:inline-block;width:10px;height:"
    "3px;vertical-align:middle;margin-right:6px}.bar{display:block;width:100%;height:22px}\n</style>\n";

/* -- text: what is of a run is escaped, on one line, and cut */

static void put_escaped(struct buffer *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (strchr("<>&\"'", c) != NULL && c != '\0')
            buffer_printf(out, "&#%u;", c);
        else
            buffer_char(out, (char)c);
    }
}

static void put_text(struct buffer *out, const char *text, size_t most) {
    CLEANUP(buffer_done) struct buffer harmless = {0};
    if (text == NULL) text = "-";
    utf8_escape(text, strlen(text), &harmless);
    size_t size = harmless.size;
    if (size > most) { /* cut between two characters */
        size = most;
        while (size > 0 && ((unsigned char)harmless.data[size] & 0xc0) == 0x80)
            size--;
    }
    if (harmless.size > 0) put_escaped(out, harmless.data, size);
    if (size < harmless.size) buffer_text(out, "…");
}

static void put_seconds(struct buffer *out, double seconds) {
    if (!isfinite(seconds)) {
        buffer_char(out, '-');
        return;
    }
    duration_format((nanoseconds)(seconds * (double)NS_PER_S), out);
}

static void put_time(struct buffer *out, double wall) {
    char text[CLOCK_TEXT];
    buffer_text(out, clock_format((time_t)wall, text) ? text : "-");
}

/* -- a plot */

struct figure {
    double x0, x1, y0, y1;
};

/* What lies beyond is drawn there: a range must not be beyond a double. */
#define FARTHEST 1e307

static double near(double value) {
    return fmax(-FARTHEST, fmin(value, FARTHEST));
}

/* Places in the drawing, in its units: x to the right, y downwards as SVG has them. */
static double at_x(const struct figure *frame, double x) {
    x = near(x);
    return LEFT + (x - frame->x0) / (frame->x1 - frame->x0) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct figure *frame, double y) {
    y = near(y); /* a mean of such values may be none */
    return HEIGHT - BOTTOM - (y - frame->y0) / (frame->y1 - frame->y0) * (HEIGHT - BOTTOM - TOP);
}

/* No values at all are drawn from 0 to 1, equal ones with room around them: a range of 0 would divide by it. */
static void widen(double *low, double *high) {
    if (!(*low <= *high)) {
        *low = 0;
        *high = 1;
    } else if (*low == *high) {
        *low -= *low != 0 ? fabs(*low) / 10 : 1;
        *high += *high != 0 ? fabs(*high) / 10 : 1;
    }
}

static struct figure frame_of(const struct view_series *series, size_t n) {
    struct figure frame = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < series[i].n_lines; j++)
            for (size_t k = 0; k < series[i].lines[j].n; k++) {
                const struct view_bucket *bucket = &series[i].lines[j].buckets[k];
                if (bucket->n == 0) continue;
                frame.x0 = fmin(frame.x0, near(bucket->x));
                frame.x1 = fmax(frame.x1, near(bucket->x_last));
                frame.y0 = fmin(frame.y0, near(bucket->min));
                frame.y1 = fmax(frame.y1, near(bucket->max));
            }
    widen(&frame.x0, &frame.x1);
    widen(&frame.y0, &frame.y1);
    double room = (frame.y1 - frame.y0) * 0.05;
    frame.y0 -= room;
    frame.y1 += room;
    return frame;
}

/* Between two marks: 1, 2 or 5 of a power of ten, so that there are about so many. */
static double step_between(double low, double high) {
    double rough = (high - low) / MARKS, power = pow(10, floor(log10(rough)));
    return power * (rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
}

/* Marks are counted, not added up: a step that is lost in the size of the numbers would never reach the end. */
static void put_axes(struct buffer *out, const struct figure *frame) {
    enum { EDGE = 16 };
    double step = step_between(frame->y0, frame->y1), first = ceil(frame->y0 / step);
    for (int i = 0; i <= MARKS && (first + i) * step <= frame->y1; i++) {
        double y = (first + i) * step;
        buffer_printf(
            out,
            "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>",
            LEFT, at_y(frame, y), WIDTH - RIGHT, LEFT - 5, at_y(frame, y) + 3, y);
    }
    step = step_between(frame->x0, frame->x1);
    first = ceil(frame->x0 / step);
    for (int i = 0; i <= MARKS && (first + i) * step <= frame->x1; i++) {
        double x = (first + i) * step, at = at_x(frame, x);
        const char *anchor = at < LEFT + EDGE ? "start" : at > WIDTH - RIGHT - EDGE ? "end" : "middle";
        buffer_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.6g</text>", at, HEIGHT - 7, anchor,
                      x);
    }
}

/* From the least to the greatest of each bucket: along the upper edge and back along the lower one. */
static void put_band(struct buffer *out, const struct figure *frame, const struct view_line *line,
                     const char *colour) {
    const char *join = "M";
    buffer_text(out, "<path d=\"");
    for (size_t i = 0; i < line->n; i++) {
        if (line->buckets[i].n == 0) continue;
        buffer_printf(out, "%s%.1f %.1f", join, at_x(frame, line->buckets[i].x),
                      at_y(frame, line->buckets[i].max));
        join = "L";
    }
    for (size_t i = line->n; i > 0; i--)
        if (line->buckets[i - 1].n > 0)
            buffer_printf(out, "L%.1f %.1f", at_x(frame, line->buckets[i - 1].x),
                          at_y(frame, line->buckets[i - 1].min));
    buffer_printf(
        out, "Z\" fill=\"%s\" fill-opacity=\".18\" stroke=\"%s\" stroke-opacity=\".35\" stroke-width=\".6\"/>",
        colour, colour);
}

static void put_line(struct buffer *out, const struct figure *frame, const struct view_line *line,
                     const char *colour) {
    const char *join = "M";
    buffer_text(out, "<path d=\"");
    for (size_t i = 0; i < line->n; i++) {
        const struct view_bucket *bucket = &line->buckets[i];
        if (bucket->n == 0) continue;
        buffer_printf(out, "%s%.1f %.1f", join, at_x(frame, bucket->x),
                      at_y(frame, bucket->sum / (double)bucket->n));
        join = "L";
    }
    buffer_printf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\"%s/>", line->lost ? "#999" : colour,
                  line->lost ? " stroke-dasharray=\"3 3\"" : "");
}

/* "min 0.1 at rank 3, max 99 at rank 5" over the whole. */
static void put_extremes(struct buffer *out, const struct view_series *series) {
    const struct view_bucket *least = NULL, *most = NULL;
    uint64_t nonfinite = 0;
    for (size_t j = 0; j < series->n_lines; j++)
        for (size_t k = 0; k < series->lines[j].n && !series->lines[j].lost; k++) {
            const struct view_bucket *bucket = &series->lines[j].buckets[k];
            nonfinite += bucket->nonfinite;
            if (bucket->n == 0) continue;
            if (least == NULL || bucket->min < least->min) least = bucket;
            if (most == NULL || bucket->max > most->max) most = bucket;
        }
    if (nonfinite > 0)
        buffer_printf(out, "<b class=\"bad\">%llu not finite</b> ", (unsigned long long)nonfinite);
    if (least != NULL)
        buffer_printf(out, "min %.6g @%d &#160; max %.6g @%d", least->min, least->rank_min, most->max,
                      most->rank_max);
    if (!series->exact) buffer_printf(out, " (sampled %.2g %%)", series->scanned * 100);
}

static void put_marks(struct buffer *out, const struct figure *frame, const struct view_series *series) {
    for (size_t i = 0; i < series->n_marks; i++) {
        const struct view_mark *mark = &series->marks[i];
        if (!(mark->x >= frame->x0 && mark->x <= frame->x1)) continue;
        double x = at_x(frame, mark->x);
        if (mark->kind == VIEW_MARK_CHECKPOINT)
            buffer_printf(out, "<path d=\"M%.1f %dv5\" stroke=\"#2e8b57\" stroke-width=\"2\"/>", x,
                          HEIGHT - BOTTOM - 5);
        else if (mark->kind == VIEW_MARK_NONFINITE)
            buffer_printf(out, "<path d=\"M%.1f %dh8l-4 7z\" fill=\"#c62f2f\"/>", x - 4, TOP);
        else
            buffer_printf(out, "<path d=\"M%.1f %dV%d\" stroke=\"%s\" stroke-dasharray=\"4 3\"/>", x, TOP,
                          HEIGHT - BOTTOM, mark->kind == VIEW_MARK_ATTEMPT ? "#8b6bd6" : "#c62f2f");
    }
}

/* Runs that are compared have a colour each; one alone has its extremes and marks, for which several have no
 * room. */
static int put_plot(struct buffer *out, const char *metric, const char *const *paths,
                    struct view_index *const *indexes, size_t n, ty_error *err) {
    struct view_series *series = calloc(n, sizeof *series);
    struct view_query query = view_query_new(metric);
    bool exact = true;
    int result = series == NULL ? ty_fail_memory(err) : 0;
    query.buckets = BUCKETS;
    query.history = VIEW_ALL;
    for (size_t i = 0; i < n && result >= 0; i++) {
        query.index = indexes[i];
        result = view_series_read(paths[i], &query, &series[i], err);
    }
    if (result >= 0) {
        struct figure frame = frame_of(series, n);
        buffer_text(out, "<figure><figcaption><span>");
        for (size_t i = 0; i < n && n > 1; i++)
            exact = exact && series[i].exact;
        if (n == 1) put_extremes(out, &series[0]);
        if (!exact) buffer_text(out, "sampled");
        buffer_text(out, "</span>");
        put_text(out, metric, NAME_SHOWN);
        buffer_printf(out, "</figcaption><svg viewBox=\"0 0 %d %d\">", WIDTH, HEIGHT);
        put_axes(out, &frame);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < series[i].n_lines; j++) {
                const struct view_line *line = &series[i].lines[j];
                if (!line->lost && n <= 4) put_band(out, &frame, line, colours[i % ARRAY_SIZE(colours)]);
                put_line(out, &frame, line, colours[i % ARRAY_SIZE(colours)]);
            }
        if (n == 1) put_marks(out, &frame, &series[0]);
        buffer_text(out, "</svg></figure>\n");
    }
    for (size_t i = 0; series != NULL && i < n; i++)
        view_series_done(&series[i]);
    free(series);
    return result;
}

/* Loss-like names first, then as they come: those most reported. */
static int likeness(const char *name) {
    if (strstr(name, "loss") != NULL) return 0;
    static const char *const counters[] = {"step", "global_step", "iteration", "training_iteration", "epoch"};
    return str_find(name, counters, ARRAY_SIZE(counters)) >= 0 ? 2 : 1;
}

/* The metrics are those of the first run. A plot is begun while there is room for it and for what follows, as
 * the whole has a bound. */
static int put_plots(struct buffer *out, const char *const *paths, size_t n, ty_error *err) {
    struct view_index *indexes[COMPARED] = {0};
    struct view_metrics metrics = {0};
    const struct view_selection all = {0};
    int result = view_metrics_read(paths[0], &all, false, &metrics, err);
    size_t n_plots = 0;
    if (result < 0) return result;
    /* All that was reported is read, however much: a mailed page has no second look. */
    for (size_t i = 0; i < n && result >= 0; i++) {
        result = view_index_open(paths[i], true, &indexes[i], err);
        while (result >= 0 && (result = view_index_grow(indexes[i], err)) > 0)
            continue;
        if (result == 0) (void)view_index_keep(indexes[i], NULL);
    }
    buffer_text(out, "<h2>Plots</h2><div class=\"grid\">\n");
    for (int order = 0; order <= 2; order++)
        for (size_t i = 0; i < metrics.n && result >= 0 && n_plots < FIGURES && out->size < PAGE_MAX / 4 * 3;
             i++) {
            if (metrics.items[i].text || likeness(metrics.items[i].name) != order) continue;
            result = put_plot(out, metrics.items[i].name, paths, indexes, n, err);
            n_plots++;
        }
    buffer_text(out, n_plots == 0 ? "<p class=\"d\">Nothing was reported.</p></div>" : "</div>");
    view_metrics_done(&metrics);
    for (size_t i = 0; i < n; i++)
        view_index_close(indexes[i]);
    return result;
}

/* -- hardware */

/* In the units that a person reads, and over the seconds since the run began. */
static int to_series(const struct view_usage_lines *lines, double began, double unit,
                     struct view_series *series) {
    series->lines = calloc(lines->n + 1, sizeof *series->lines);
    if (series->lines == NULL) return -ENOMEM;
    for (series->n_lines = 0; series->n_lines < lines->n; series->n_lines++) {
        const struct view_usage_line *from = &lines->items[series->n_lines];
        struct view_line *line = &series->lines[series->n_lines];
        line->buckets = calloc(from->n + 1, sizeof *line->buckets);
        if (line->buckets == NULL) return -ENOMEM;
        for (line->n = 0; line->n < from->n; line->n++) {
            const struct view_usage_point *point = &from->points[line->n];
            line->buckets[line->n] = (struct view_bucket){.x = point->x - began,
                                                          .x_last = point->x_last - began,
                                                          .n = 1,
                                                          .min = point->min / unit,
                                                          .max = point->max / unit,
                                                          .sum = point->mean / unit};
        }
    }
    return 0;
}

static void put_usage_plot(struct buffer *out, const struct view_usage_lines *lines,
                           const struct view_series *series, const char *unit) {
    static const char *const scopes[] = {
        [USAGE_OF_NODE] = "", [USAGE_OF_WORKER] = " rank ", [USAGE_OF_DEVICE] = " GPU "};
    struct figure frame = frame_of(series, 1);
    buffer_text(out, "<figure><figcaption><span>");
    put_text(out, unit, NAME_SHOWN);
    buffer_text(out, "</span>");
    for (const char *at = usage_table[lines->what].text; *at != '\0'; at++)
        buffer_char(out, *at == '_' ? ' ' : *at);
    buffer_printf(out, "</figcaption><svg viewBox=\"0 0 %d %d\">", WIDTH, HEIGHT);
    put_axes(out, &frame);
    for (size_t i = 0; i < series->n_lines; i++) {
        put_band(out, &frame, &series->lines[i], colours[i % ARRAY_SIZE(colours)]);
        put_line(out, &frame, &series->lines[i], colours[i % ARRAY_SIZE(colours)]);
    }
    buffer_text(out, "</svg><span class=\"d\">");
    for (size_t i = 0; i < lines->n; i++) { /* "n1 GPU 0", in its colour */
        const struct view_usage_line *line = &lines->items[i];
        buffer_printf(out, "<span class=\"k\" style=\"background:%s\"></span>",
                      colours[i % ARRAY_SIZE(colours)]);
        put_text(out, line->node != NULL ? line->node : "all nodes", NAME_SHOWN / 4);
        if (line->number >= 0) buffer_printf(out, "%s%d", scopes[usage_table[lines->what].scope], line->number);
        buffer_text(out, " &#160; ");
    }
    buffer_text(out, "</span></figure>\n");
}

/* As finely as there are colours: each device, each node, or a band of all. */
static int read_usage(const char *path, const char *what, struct view_usage_lines *lines, ty_error *err) {
    int result = 0;
    for (int over = VIEW_USAGE_EACH; over < VIEW_USAGE_OVER_N && result >= 0; over++) {
        const struct view_usage_query query = {
            .what = what, .over = (enum view_usage_over)over, .from = NAN, .to = NAN, .buckets = BUCKETS};
        view_usage_lines_done(lines);
        result = view_usage_lines_read(path, &query, lines, err);
        if (result >= 0 && lines->n_all <= ARRAY_SIZE(colours)) return 0;
    }
    return result;
}

/* What was sampled once is no line. */
static bool has_line(const struct view_series *series) {
    for (size_t i = 0; i < series->n_lines; i++) {
        size_t n = 0;
        for (size_t j = 0; j < series->lines[i].n; j++)
            n += series->lines[i].buckets[j].n > 0;
        if (n > 1) return true;
    }
    return false;
}

static int put_usage(struct buffer *out, const char *path, double began, ty_error *err) {
    static const struct {
        const char *what, *text;
        double unit;
    } shown[] = {{"device_utilization", "% of the time", 0.01},
                 {"device_power", "watts", 1},
                 {"device_memory", "GiB", 1 << 30},
                 {"device_temperature", "celsius", 1},
                 {"device_clock", "MHz", 1e6},
                 {"node_cpu", "% of the processors", 0.01},
                 {"node_memory", "GiB", 1 << 30},
                 {"node_receive", "MiB a second", 1 << 20},
                 {"node_transmit", "MiB a second", 1 << 20},
                 {"node_write", "MiB a second", 1 << 20}};
    bool any = false;
    int result = 0;
    for (size_t i = 0; i < ARRAY_SIZE(shown) && result >= 0 && out->size < PAGE_MAX / 4 * 3; i++) {
        struct view_usage_lines lines = {0};
        struct view_series series = {0};
        result = read_usage(path, shown[i].what, &lines, err);
        if (result >= 0 && lines.n > 0 && to_series(&lines, began, shown[i].unit, &series) < 0)
            result = ty_fail_memory(err);
        if (result >= 0 && has_line(&series)) {
            if (!any) buffer_text(out, "<h2>Hardware, over the seconds of the run</h2><div class=\"grid\">\n");
            any = true;
            put_usage_plot(out, &lines, &series, shown[i].text);
        }
        view_series_done(&series);
        view_usage_lines_done(&lines);
    }
    if (any) buffer_text(out, "</div>");
    return result == -ENOENT ? 0 : result; /* none were kept */
}

/* -- one run */

static void put_facts(struct buffer *out, const struct view_summary *summary) {
    bool failed = summary->standing == STANDING_FAILED || summary->standing == STANDING_DIED;
    buffer_text(out, "<h1>");
    put_text(out, summary->name, NAME_SHOWN);
    buffer_printf(out, "</h1><p class=\"d\"><b class=\"%s\">%s</b>", failed ? "bad" : "good",
                  run_standing_name(summary->standing));
    if (summary->status >= 0) buffer_printf(out, ", exit status %d", summary->status);
    buffer_printf(out, " · %d attempt%s · %lld workers on %zu node%s · began ", summary->attempts,
                  summary->attempts == 1 ? "" : "s", (long long)summary->workers, summary->nodes,
                  summary->nodes == 1 ? "" : "s");
    put_time(out, duration_seconds(summary->began));
    buffer_text(out, " · took ");
    duration_format(view_summary_time(summary), out);
    buffer_printf(out, " · %llu reports</p>\n", (unsigned long long)summary->reports);
    if (summary->command != NULL) {
        buffer_text(out, "<p class=\"d\"><code>");
        put_text(out, summary->command, 1000);
        buffer_text(out, "</code></p>\n");
    }
    if (summary->cause == NULL) return;
    buffer_text(out, "<div class=\"cause\"><b class=\"bad\">First cause</b> &#160; ");
    put_text(out, summary->cause, 2000);
    const char *node = view_summary_cause_node(summary);
    if (node != NULL && !replay_cause_names_node(summary->cause, node)) {
        buffer_text(out, " <span class=\"d\">on node ");
        put_text(out, node, NAME_SHOWN);
        buffer_text(out, "</span>");
    }
    buffer_text(out, "</div>\n");
}

static void put_attempts(struct buffer *out, const struct run_replay *replay) {
    if (replay->n_attempts == 0) return;
    buffer_text(out, "<h2>Attempts</h2><table><tr><th class=\"n\">attempt<th>ended<th "
                     "class=\"n\">workers<th>began<th class=\"n\">took"
                     "<th>why<th>from<th>node</tr>\n");
    size_t first = replay->n_attempts > 50 ? replay->n_attempts - 50 : 0;
    for (size_t i = first; i < replay->n_attempts; i++) {
        const struct ty_attempt_info *attempt = &replay->attempts[i];
        buffer_printf(out, "<tr><td class=\"n\">%d<td>%s<td class=\"n\">%d<td>", attempt->attempt,
                      attempt->outcome != NULL ? attempt->outcome : "goes on", attempt->num_workers);
        put_time(out, attempt->began);
        buffer_text(out, "<td class=\"n\">");
        put_seconds(out, attempt_seconds(attempt, clock_wall()));
        buffer_text(out, "<td>");
        put_text(out, attempt->cause, 400);
        const char *slash = attempt->checkpoint != NULL ? strrchr(attempt->checkpoint, '/') : NULL;
        buffer_text(out, "<td>");
        put_text(out, slash != NULL ? slash + 1 : attempt->checkpoint, NAME_SHOWN);
        buffer_text(out, "<td>");
        put_text(out, attempt->node, NAME_SHOWN);
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, "</table>\n");
}

static int put_start(struct buffer *out, const char *name, const char *path, ty_error *err) {
    static const char *const share_colours[] = {"#2e7d4f", "#2563c9", "#c62f2f", "#9a9ea5"};
    struct view_timeline timeline = {0};
    int result = view_timeline_read(name, path, NULL, &timeline, err);
    if (result < 0) return result;
    double at = 0, whole = timeline.seconds > 0 ? timeline.seconds : 1;
    buffer_text(
        out,
        "<h2>Where the time went</h2><svg class=\"bar\" viewBox=\"0 0 1000 22\" preserveAspectRatio=\"none\">");
    for (size_t i = 0; i < VIEW_SHARES_N; i++) {
        buffer_printf(out, "<rect x=\"%.2f\" width=\"%.2f\" height=\"22\" fill=\"%s\"/>", at / whole * 1000,
                      timeline.shares[i] / whole * 1000, share_colours[i]);
        at += timeline.shares[i];
    }
    buffer_text(out, "</svg><p>");
    for (size_t i = 0; i < VIEW_SHARES_N; i++) {
        buffer_printf(out, "<span class=\"k\" style=\"background:%s\"></span>%s %.2f %% <span class=\"d\">",
                      share_colours[i], view_share_name((enum view_share)i), timeline.shares[i] / whole * 100);
        put_seconds(out, timeline.shares[i]);
        buffer_text(out, "</span> &#160; ");
    }
    buffer_text(out, "</p>\n<h2>The start");
    if (timeline.summary.attempts > 1) buffer_printf(out, " of attempt %d", timeline.summary.attempts);
    buffer_text(out, "</h2><table><tr><th>part<th class=\"n\">took<th>slowest</tr>\n");
    for (size_t i = 0; i < START_PHASES_N; i++) {
        const struct start_phase *phase = &timeline.summary.phases[i];
        if (!phase->known) continue;
        buffer_printf(out, "<tr><td>%s<td class=\"n\">", start_phase_name((enum start_phase_kind)i));
        duration_format(phase->duration, out);
        buffer_text(out, "<td>");
        if (phase->rank >= 0)
            buffer_printf(out, "rank %d", phase->rank);
        else
            put_text(out, phase->node_name, NAME_SHOWN);
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, "</table>\n");
    view_timeline_done(&timeline);
    return 0;
}

static int put_slowest(struct buffer *out, const char *path, ty_error *err) {
    struct view_ranks ranks = {0};
    int result = view_ranks_read(path, &ranks, err);
    if (result < 0) return result;
    buffer_text(out, "<h2>Slowest ranks</h2><table><tr><th class=\"n\">rank<th>node<th>state<th "
                     "class=\"n\">last report<th class=\"n\">"
                     "interval<th class=\"n\">lag</tr>\n");
    for (size_t i = 0; i < ranks.n && i < SLOWEST; i++) {
        const struct view_rank *rank = &ranks.items[i];
        buffer_printf(out, "<tr><td class=\"n\">%d<td>", rank->rank);
        put_text(out, rank->node >= 0 && (size_t)rank->node < ranks.n_nodes ? ranks.nodes[rank->node] : NULL,
                 NAME_SHOWN);
        buffer_printf(out, "<td>%s<td class=\"n\">%llu<td class=\"n\">", worker_standing_name(rank->standing),
                      (unsigned long long)rank->number);
        put_seconds(out, rank->interval);
        buffer_text(out, "<td class=\"n\">");
        put_seconds(out, rank->lag);
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, "</table>\n");
    view_ranks_done(&ranks);
    return 0;
}

static void put_number_if(struct buffer *out, const json_t *number) {
    if (json_is_number(number))
        buffer_printf(out, "%.6g", json_number_value(number));
    else
        buffer_char(out, '-');
}

static int put_checkpoints(struct buffer *out, const char *path, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = view_checkpoints_encode(path, &text, err);
    json_t *list = result >= 0 && !text.failed ? json_loadb(text.data, text.size, JSON_ALLOW_NUL, NULL) : NULL;
    if (result < 0 || json_array_size(list) == 0) {
        json_decref(list);
        return result;
    }
    buffer_text(out, "<h2>Checkpoints</h2><table><tr><th>checkpoint<th class=\"n\">number<th "
                     "class=\"n\">place<th class=\"n\">score<th>"
                     "committed</tr>\n");
    for (size_t i = 0; i < json_array_size(list) && i < CHECKPOINTS; i++) {
        const json_t *one = json_array_get(list, i), *place = json_object_get(one, "rank"),
                     *score = json_object_get(one, "score");
        buffer_text(out, "<tr><td>");
        put_text(out, json_string_value(json_object_get(one, "name")), NAME_SHOWN);
        buffer_printf(out, "<td class=\"n\">%lld<td class=\"n\">",
                      (long long)json_integer_value(json_object_get(one, "number")));
        put_number_if(out, place);
        buffer_text(out, "<td class=\"n\">");
        put_number_if(out, score);
        buffer_text(out, "<td>");
        put_time(out, json_number_value(json_object_get(one, "time")));
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, "</table>\n");
    json_decref(list);
    return 0;
}

/* The last lines of the rank that failed first; there may be none. */
static void put_last_lines(struct buffer *out, const struct view_summary *summary) {
    CLEANUP(buffer_done) struct buffer lines = {0};
    if (summary->cause_rank >= 0) run_output_last(summary->path, summary->cause_rank, LAST_LINES, &lines);
    if (lines.size == 0) return;
    buffer_printf(out, "<h2>Last lines of rank %d</h2><pre>", summary->cause_rank);
    put_escaped(out, lines.data, lines.size);
    buffer_text(out, "</pre>\n");
}

static int put_run(struct buffer *out, const char *name, const char *path, ty_error *err) {
    struct view_summary summary = {0};
    int result = view_summary_read(name, path, &summary, err);
    if (result < 0) return result;
    put_facts(out, &summary);
    put_last_lines(out, &summary);
    result = put_plots(out, &path, 1, err);
    if (result >= 0) result = put_usage(out, path, duration_seconds(summary.began), err);
    put_attempts(out, &summary.replay);
    view_summary_done(&summary);
    if (result >= 0) result = put_start(out, name, path, err);
    if (result >= 0) result = put_slowest(out, path, err);
    return result < 0 ? result : put_checkpoints(out, path, err);
}

static int put_compared(struct buffer *out, const char *const *names, const char *const *paths, size_t n,
                        ty_error *err) {
    buffer_printf(out,
                  "<h1>%zu runs compared</h1><table><tr><th>run<th>state<th class=\"n\">workers<th>began<th "
                  "class=\"n\">took<th>cause</tr>\n",
                  n);
    for (size_t i = 0; i < n; i++) {
        struct view_summary summary = {0};
        int result = view_summary_read(names[i], paths[i], &summary, err);
        if (result < 0) return result;
        buffer_printf(out, "<tr><td><span class=\"k\" style=\"background:%s\"></span>",
                      colours[i % ARRAY_SIZE(colours)]);
        put_text(out, names[i], NAME_SHOWN);
        buffer_printf(out, "<td>%s<td class=\"n\">%lld<td>", run_standing_name(summary.standing),
                      (long long)summary.workers);
        put_time(out, duration_seconds(summary.began));
        buffer_text(out, "<td class=\"n\">");
        duration_format(view_summary_time(&summary), out);
        buffer_text(out, "<td>");
        put_text(out, summary.cause, 300);
        buffer_text(out, "</tr>\n");
        view_summary_done(&summary);
    }
    buffer_text(out, "</table>\n");
    return put_plots(out, paths, n, err);
}

/* A file that mails take: what would be larger is refused, not cut. */
int dashboard_file(const char *const *names, const char *const *paths, size_t n, struct buffer *out,
                   ty_error *err) {
    if (n > COMPARED) return ty_fail(err, TY_EUSAGE, "%zu runs: at most %d are compared", n, COMPARED);
    buffer_text(out, head);
    buffer_text(out, "<title>");
    put_text(out, names[0], NAME_SHOWN);
    buffer_text(out, "</title></head><body>\n");
    int result = n == 1 ? put_run(out, names[0], paths[0], err) : put_compared(out, names, paths, n, err);
    buffer_printf(out, "<p class=\"d\">Trainyard " TY_VERSION ", made ");
    put_time(out, duration_seconds(clock_wall()));
    buffer_text(out, "</p></body></html>\n");
    if (result >= 0 && out->failed) result = ty_fail_memory(err);
    if (result >= 0 && out->size >= PAGE_MAX)
        result = ty_fail(err, -EFBIG, "the page would be larger than 1 MiB: name fewer runs");
    return result < 0 ? result : 0;
}
