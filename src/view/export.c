/* Reports as rows of CSV and JSON, one after the other. Text gathers until it is worth a call, and a next call
 * goes on behind the last row, so that a run that goes on can be followed. What a compressed file or a pipe
 * does with the text is the caller's. */
#include "view/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/str.h"
#include "view/encode.h"
#include "view/facts.h"
#include "view/report_json.h"
#include "view/scan.h"
#include "view/values.h"

/* -- what is written out piece by piece -- */

enum { OUTLET_BYTES = 64 << 10 };

static int drain(struct view_outlet *outlet) {
    if (outlet->text.failed) return ty_fail_memory(outlet->err);
    if (outlet->text.size == 0) return 0;
    int result = outlet->sink(outlet->context, outlet->text.data, outlet->text.size, outlet->err);
    outlet->written += outlet->text.size;
    buffer_clear(&outlet->text);
    return result;
}

int view_outlet_drain(struct view_outlet *outlet) {
    return outlet->text.size < OUTLET_BYTES && !outlet->text.failed ? 0 : drain(outlet);
}

int view_outlet_finish(struct view_outlet *outlet, int result) {
    if (result == 0) result = drain(outlet);
    if (result == -ENOMEM) (void)ty_fail_memory(outlet->err);
    buffer_done(&outlet->text);
    return result;
}

enum { CSV_COLUMNS_MAX = 10000 };

/* -- CSV */

struct csv_cell {
    const char *text;
    size_t size;
    enum value_type type;
    double number;
};

struct view_csv {
    char *run_path;
    struct view_selection selection;
    struct view_facts facts;
    char **columns; /* n_columns, owned */
    size_t *sizes;
    size_t n_columns;
    struct hash *places; /* name -> place + 1 */
    struct csv_cell *cells;
    size_t next; /* column that the next value is likely of: reports name theirs in the same order */
    struct values_shape shape;
    size_t of_member[VALUES_MEMBERS]; /* columns of the names that were at these places of the report before */
    struct view_outlet *outlet;
    bool failed;
};

static size_t find_column(const struct view_csv *csv, const struct value *value) {
    size_t next = csv->next;
    char name[METRIC_NAME_BYTES + 1];
    if (next < csv->n_columns && value_is_named(value, csv->columns[next], csv->sizes[next])) return next;
    uintptr_t *place = value_name(value, name) ? hash_get(csv->places, name) : NULL;
    return place != NULL ? *place - 1 : SIZE_MAX;
}

/* One too many, or with too long a name, has no column: 0 as well. */
static int add_column(struct view_csv *csv, const struct value *value) {
    size_t n = csv->n_columns;
    if (n >= CSV_COLUMNS_MAX || value->name_size > METRIC_NAME_BYTES) return 0;
    if (ARRAY_GROW(csv->columns, n) < 0 || ARRAY_GROW(csv->sizes, n) < 0) return -ENOMEM;
    char *name = strndup(value->name != NULL ? value->name : "", value->name_size);
    if (name == NULL) return -ENOMEM;
    csv->columns[n] = name;
    csv->sizes[n] = strlen(name); /* a name may hold a NUL, behind which it is cut */
    csv->n_columns++;
    return hash_set(csv->places, name, n + 1) < 0 ? -ENOMEM : 0;
}

/* Names are all that is wanted: what they stand for is passed over from then on. */
static bool note_column(void *context, const struct value *value) {
    struct view_csv *csv = context;
    size_t place = value->same ? csv->of_member[value->member] : find_column(csv, value);
    if (place == SIZE_MAX) csv->failed = add_column(csv, value) < 0;
    if (place == SIZE_MAX) place = csv->n_columns - 1;
    if (value->member < VALUES_MEMBERS) csv->of_member[value->member] = place;
    csv->next = place + 1;
    values_pass(&csv->shape, value);
    return !csv->failed;
}

static int note_columns(void *context, const struct journal_report *report) {
    struct view_csv *csv = context;
    if (!view_facts_select(&csv->facts, &csv->selection, report)) return 0;
    csv->next = 0;
    (void)values_each_like(&csv->shape, report->metrics, report->metrics_size, note_column, csv);
    return csv->failed ? -ENOMEM : 0;
}

/* All reports are read once for their names alone: the head comes before the first row. */
int view_csv_open(const char *run_path, const struct view_selection *selection, struct view_csv **out,
                  ty_error *err) {
    struct view_csv *csv = calloc(1, sizeof *csv);
    if (csv == NULL) return ty_fail_memory(err);
    csv->selection = *selection;
    csv->run_path = strdup(run_path);
    csv->places = hash_create();
    struct view_scan scan = {.after = selection->after};
    int result = csv->run_path == NULL || csv->places == NULL ? ty_fail_memory(err) : 0;
    if (result == 0) result = view_facts_read(run_path, &csv->facts, err);
    if (result == 0) result = view_scan(run_path, &scan, note_columns, csv, err);
    csv->shape = (struct values_shape){0}; /* rows want the numbers */
    csv->cells = calloc(csv->n_columns + 1, sizeof *csv->cells);
    if (result == -ENOMEM || (result == 0 && csv->cells == NULL)) result = ty_fail_memory(err);
    if (result < 0) {
        view_csv_close(csv);
        return result;
    }
    *out = csv;
    return 0;
}

void view_csv_close(struct view_csv *csv) {
    if (csv == NULL) return;
    for (size_t i = 0; i < csv->n_columns; i++)
        free(csv->columns[i]);
    free(csv->columns);
    free(csv->sizes);
    free(csv->cells);
    free(csv->run_path);
    hash_destroy(csv->places);
    view_facts_done(&csv->facts);
    free(csv);
}

/* A spreadsheet takes what begins like a formula for one, whoever wrote it: a quote in front makes it a
 * text. */
static void append_text_cell(struct buffer *out, const char *text, size_t size) {
    bool formula = size > 0 && strchr("=+-@\t\r", *text) != NULL && *text != '\0';
    bool quoted = false;
    for (size_t i = 0; i < size && !quoted; i++)
        quoted = strchr(",\"\r\n", text[i]) != NULL && text[i] != '\0';
    if (quoted) buffer_char(out, '"');
    if (formula) buffer_char(out, '\'');
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') buffer_char(out, '"');
        buffer_char(out, text[i]);
    }
    if (quoted) buffer_char(out, '"');
}

/* A program finds a column by its name: a metric that is called like one of ours has a number behind its name,
 * as in Python (rows.py). */
static void append_column(const struct view_csv *csv, const char *metric, const char *const *own, size_t n_own,
                          struct buffer *out) {
    CLEANUP(buffer_done) struct buffer name = {0};
    bool taken = str_find(metric, own, n_own) >= 0;
    buffer_text(&name, metric);
    for (int n = 2; taken && !name.failed; n++) {
        buffer_clear(&name);
        buffer_printf(&name, "%s_%d", metric, n);
        taken = !name.failed && hash_get(csv->places, name.data) != NULL;
    }
    buffer_char(out, ',');
    if (name.failed)
        out->failed = true;
    else
        append_text_cell(out, name.data, name.size);
}

int view_csv_write_head(struct view_csv *csv, view_sink *sink, void *context, ty_error *err) {
    static const char *const own[] = {"id", "time", "attempt", "rank", "number", "lost"};
    struct view_outlet outlet = {.sink = sink, .context = context, .err = err};
    size_t n_own = ARRAY_SIZE(own) - (csv->selection.history != VIEW_ALL);
    for (size_t i = 0; i < n_own; i++) {
        if (i > 0) buffer_char(&outlet.text, ',');
        buffer_text(&outlet.text, own[i]);
    }
    for (size_t i = 0; i < csv->n_columns; i++)
        append_column(csv, csv->columns[i], own, n_own, &outlet.text);
    buffer_text(&outlet.text, "\r\n");
    return view_outlet_finish(&outlet, 0);
}

/* Texts are borrowed from the report until its row is written. */
static bool take_cell(void *context, const struct value *value) {
    struct view_csv *csv = context;
    size_t place = value->same ? csv->of_member[value->member] : find_column(csv, value);
    if (value->member < VALUES_MEMBERS) csv->of_member[value->member] = place;
    if (place == SIZE_MAX) return true;
    csv->cells[place] = (struct csv_cell){value->text, value->text_size, value->type, value->number};
    csv->next = place + 1;
    return true;
}

static void append_cell(struct buffer *out, const struct csv_cell *cell) {
    CLEANUP(buffer_done) struct buffer text = {0};
    if (cell->text == NULL) return;
    if (cell->type == VALUE_NUMBER) {
        buffer_append(out, cell->text, cell->size);
    } else if (cell->type == VALUE_NONFINITE) {
        buffer_text(out, cell->number > 0 ? "inf" : cell->number < 0 ? "-inf" : "NaN");
    } else if (cell->type == VALUE_TEXT) {
        values_text(cell->text, cell->size, &text);
        append_text_cell(out, text.data, text.size);
        if (text.failed) out->failed = true;
    } else if (*cell->text != 'n') { /* null is empty */
        append_text_cell(out, cell->text, cell->size);
    }
}

static int write_row(void *context, const struct journal_report *report) {
    struct view_csv *csv = context;
    struct buffer *out = &csv->outlet->text;
    if (!view_facts_select(&csv->facts, &csv->selection, report)) return 0;
    memset(csv->cells, 0, csv->n_columns * sizeof *csv->cells);
    csv->next = 0;
    (void)values_each_like(&csv->shape, report->metrics, report->metrics_size, take_cell, csv);
    const int64_t numbers[] = {report->id, report->time, report->attempt, report->rank,
                               (int64_t)report->number};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (i > 0) buffer_char(out, ',');
        encode_int(out, numbers[i]);
    }
    if (csv->selection.history == VIEW_ALL)
        buffer_text(out, view_facts_count(&csv->facts, report->attempt, report->number) ? ",0" : ",1");
    for (size_t i = 0; i < csv->n_columns; i++) {
        buffer_char(out, ',');
        append_cell(out, &csv->cells[i]);
    }
    buffer_text(out, "\r\n");
    return view_outlet_drain(csv->outlet);
}

int view_csv_write_rows(struct view_csv *csv, view_sink *sink, void *context, ty_error *err) {
    struct view_outlet outlet = {.sink = sink, .context = context, .err = err};
    struct view_scan scan = {.after = csv->selection.after};
    int result = view_facts_renew(csv->run_path, &csv->facts, err);
    csv->outlet = &outlet;
    if (result == 0) result = view_scan(csv->run_path, &scan, write_row, csv, err);
    csv->selection.after = scan.last;
    return view_outlet_finish(&outlet, result);
}

/* -- JSON lines */

struct jsonl_writing {
    struct view_facts facts;
    struct view_selection *selection;
    struct view_outlet outlet;
};

static int write_line(void *context, const struct journal_report *report) {
    struct jsonl_writing *writing = context;
    struct buffer *out = &writing->outlet.text;
    if (!view_facts_select(&writing->facts, writing->selection, report)) return 0;
    buffer_text(out, "{\"id\": ");
    encode_int(out, report->id);
    buffer_text(out, ", \"time\": ");
    encode_int(out, report->time);
    buffer_text(out, ", \"attempt\": ");
    encode_int(out, report->attempt);
    buffer_text(out, ", \"rank\": ");
    encode_int(out, report->rank);
    buffer_text(out, ", \"number\": ");
    encode_int(out, (int64_t)report->number);
    if (writing->selection->history == VIEW_ALL)
        buffer_text(out, view_facts_count(&writing->facts, report->attempt, report->number)
                             ? ", \"lost\": false"
                             : ", \"lost\": true");
    buffer_text(out, ", \"metrics\": ");
    if (!report_json_append(report, out) && writing->selection->unreadable == 0)
        writing->selection->unreadable = report->id;
    buffer_text(out, "}\n");
    return view_outlet_drain(&writing->outlet);
}

int view_jsonl_write(const char *run_path, struct view_selection *selection, view_sink *sink, void *context,
                     ty_error *err) {
    struct jsonl_writing writing = {.selection = selection,
                                    .outlet = {.sink = sink, .context = context, .err = err}};
    struct view_scan scan = {.after = selection->after};
    int result = view_facts_read(run_path, &writing.facts, err);
    if (result < 0) return result;
    result = view_scan(run_path, &scan, write_line, &writing, err);
    view_facts_done(&writing.facts);
    selection->after = scan.last;
    return view_outlet_finish(&writing.outlet, result);
}
