/* What each node said last, of usage.db: the last value, and of counters the rate between the last two rows and
 * what they have grown by since the first. Series over time are in usage_lines.c. Nothing is sampled here: rows
 * are read as agents' samplers gave them. */
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

enum { STALE_PERIODS = 3 };
#define LAST_WITHIN (180 * NS_PER_S)  /* three of the longest periods */
#define FIRST_WITHIN (120 * NS_PER_S) /* most nodes have begun by then; others are looked for one by one */
#define STALE_LEAST (5 * NS_PER_S)

/* -- what was said last */

void view_usage_done(struct view_usage *usage) {
    for (size_t i = 0; i < usage->n; i++) {
        free(usage->nodes[i].name);
        free(usage->nodes[i].items);
    }
    free(usage->nodes);
    *usage = (struct view_usage){0};
}

static bool is_before(const void *item, const void *name) {
    return strcmp(((const struct view_usage_node *)item)->name, name) < 0;
}

/* The node's place among the others, or where it belongs. */
static size_t place_of(const struct view_usage *usage, const char *name, bool *there) {
    size_t place = array_place(usage->nodes, usage->n, sizeof *usage->nodes, is_before, name);
    *there = place < usage->n && str_equal(usage->nodes[place].name, name);
    return place;
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

/* The search begins where the row before was found: rows of a time come in the same order each time. */
static struct view_usage_last *find_item(struct view_usage_node *node, const struct usage_row *row) {
    for (size_t i = 0, at = node->likely; i < node->n; i++, at++) {
        if (at >= node->n) at = 0;
        if (node->items[at].what != row->what || node->items[at].number != row->number) continue;
        node->likely = at + 1;
        return &node->items[at];
    }
    return NULL;
}

/* Rows come by time: the last one of each thing stays, with the rate since the one before. A counter that fell
 * began anew, and has no rate for once. */
static int take_last(void *context, const struct usage_row *row) {
    struct view_usage_node *node = make_node(context, row->node);
    struct view_usage_last *item = node != NULL ? find_item(node, row) : NULL;
    if (node == NULL || (item == NULL && ARRAY_GROW(node->items, node->n) < 0)) return -ENOMEM;
    if (item == NULL) {
        item = &node->items[node->n++];
        *item = (struct view_usage_last){row->what, row->number, NAN, NAN, 0, 0, NAN};
    }
    double passed = duration_seconds(row->time - item->time), grown = row->mean - item->value;
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

/* What counters stood at when the run began: the least of the first two minutes, as nodes come up one after the
 * other. 1 behind these. */
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

struct later_taking {
    struct view_usage_node *node;
    size_t missing;
};

/* Of a node, or a device, that came later: its own first row. */
static int take_later(void *context, const struct usage_row *row) {
    struct later_taking *taking = context;
    struct view_usage_last *item =
        usage_table[row->what].kind == USAGE_COUNTER ? find_item(taking->node, row) : NULL;
    if (item == NULL || !isnan(item->first)) return 0;
    item->first = row->min;
    return --taking->missing == 0;
}

/* The newest rows, then the oldest, and of what came later its own first row: of a long run this is little of
 * all. */
static int read_lasts(void *context, struct journal *db, ty_error *err) {
    struct view_usage *usage = context;
    const struct usage_query newest = {.to = INT64_MAX, .newest = LAST_WITHIN}, all = {.to = INT64_MAX};
    struct first_taking first = {usage, 0};
    view_usage_done(usage);
    int result = usage_db_each(db, &newest, take_last, usage, err);
    if (result == 0) result = usage_db_each(db, &all, take_first, &first, err);
    for (size_t i = 0; i < usage->n && result >= 0; i++) {
        struct view_usage_node *node = &usage->nodes[i];
        const struct usage_query own = {.node = node->name, .to = INT64_MAX};
        struct later_taking later = {.node = node};
        for (size_t k = 0; k < node->n; k++)
            later.missing +=
                usage_table[node->items[k].what].kind == USAGE_COUNTER && isnan(node->items[k].first);
        if (later.missing > 0) result = usage_db_each(db, &own, take_later, &later, err);
    }
    return result;
}

/* How long a period is the node's own samples tell; of a run that has ended the newest sample of any node is
 * now. */
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

double view_usage_total(const struct view_usage_last *last) {
    double grown = last->value - last->first;
    return grown < 0 ? 0 : grown;
}

void view_usage_text(enum usage_what what, double value, struct buffer *out) {
    const struct usage_about *about = &usage_table[what];
    const char *per = about->kind == USAGE_COUNTER ? "/s" : "";
    if (!isfinite(value))
        buffer_text(out, "-");
    else if (str_equal(about->unit, "ratio"))
        buffer_printf(out, "%.0f %%", value * 100);
    else if (str_equal(about->unit, "bytes")) {
        /* A kept value may be anything: one that no counter of bytes can have is the nearest that it can. */
        bytes_format(value < 0 ? 0 : value < 0x1p64 ? (uint64_t)round(value) : UINT64_MAX, out);
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
        encode_number_if(out, isfinite(item->first), view_usage_total(item));
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
        encode_number(out, duration_seconds(node->at));
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
