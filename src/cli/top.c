/* `trainyard top`: the runs, or one of them, as they go on. A frame is text, cut to the terminal; the screen
 * (screen_module.h) shows it again each second, and --once prints it. What is shown is read by view, and from
 * the logs: the run is not asked. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/module.h"
#include "base/str.h"
#include "cli/braille.h"
#include "cli/command.h"
#include "cli/screen_module.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"
#include "view/facts.h"
#include "view/index.h"
#include "view/ranks.h"
#include "view/runs.h"
#include "view/series.h"
#include "view/summary.h"
#include "view/usage.h"
#include "web/run_output.h"

enum { TOP_LOOK_MS = 1000, TOP_METRICS = 4, TOP_RANKS = 64, TOP_NODES = 16, TOP_LINES = 4, TOP_FILTER = 64 };

struct top_options {
    bool once;
};

static const struct option_spec specs[] = {
    {"once", 0, NULL, "print it and end", option_flag, offsetof(struct top_options, once), NULL},
};
static const struct option_group top_group = {"Options", specs, ARRAY_SIZE(specs)};

/* A metric as it was drawn last. */
struct top_metric {
    char *name;         /* owned */
    struct buffer line; /* of dots */
    double last;
    bool exact;
};

/* What is kept of the run that is shown from one frame to the next. Ranks and metrics take the longer to read
 * the more there are: they are read when something is new, and in a hundredth of the time. */
struct top_run {
    struct view_index *index; /* its facts, and samples of its reports; owned; NULL: no frame was made yet */
    struct view_ranks ranks;
    struct top_metric metrics[TOP_METRICS]; /* n_metrics */
    size_t n_metrics;
    char filter[TOP_FILTER]; /* of these metrics */
    size_t columns;          /* that their lines have */
    struct top_state {
        uint64_t reports;
        int64_t sequence;   /* of the last event */
        nanoseconds due;    /* monotonic; 0: nothing was read yet */
    } of_ranks, of_metrics; /* when they were read */
};

struct top_view {
    struct view_runs *runs;
    char *name, *path; /* owned; of the one run that is shown, else NULL */
    bool alone;        /* the run was asked for by name: there is no list to go back to */
    bool by_lag, paused, typing;
    size_t chosen, first_row; /* place in the list that is shown, and the line of its first row */
    size_t columns;           /* of the terminal; 0: what is printed goes to no terminal */
    char run_filter[TOP_FILTER], metric_filter[TOP_FILTER];
    struct top_run run;
};

/* Of what is shown. */
static char *filter_of(struct top_view *top) {
    return top->path != NULL ? top->metric_filter : top->run_filter;
}

/* -- frames */

/* A narrow terminal has the numbers all the same: names and lines are shorter there. */
enum { TOP_NARROW = 68, TOP_LINE = 30, TOP_NAME = 24, TOP_SHORT = 12, TOP_NUMBER = 14 };

static bool is_narrow(const struct top_view *top) {
    return top->columns > 0 && top->columns < TOP_NARROW;
}

static size_t line_columns(const struct top_view *top) {
    size_t others = TOP_SHORT + TOP_NUMBER;
    if (!is_narrow(top)) return TOP_LINE;
    return top->columns > others ? top->columns - others : 1;
}

/* A name of anybody's, in so many columns and a blank. */
static void put_name(const char *name, size_t columns, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t at = 0, column = 0;
    uint32_t character = 0;
    utf8_escape(name, strlen(name), &text);
    while (at < text.size) {
        int length = utf8_sequence(text.data + at, text.size - at, &character);
        size_t width = length > 0 ? terminal_columns(character) : 1;
        if (column + width > columns) break;
        column += width;
        at += (size_t)(length > 0 ? length : -length);
    }
    buffer_append(out, text.size > 0 ? text.data : "", at);
    buffer_printf(out, "%*s", (int)(columns - column) + 1, "");
}

/* The end of a line: what the keys have changed. */
static void put_modes(struct top_view *top, struct buffer *out) {
    const char *filter = filter_of(top);
    if (*filter != '\0' || top->typing) buffer_text(out, "   filter: ");
    utf8_escape(filter, strlen(filter), out);
    buffer_printf(out, "%s%s\n", top->typing ? "_" : "", top->paused ? "   paused" : "");
}

static void run_row(const struct view_run *run, struct text_table *table) {
    const struct view_summary *summary = &run->summary;
    CLEANUP(buffer_done) struct buffer text = {0};
    table_cell(table, run->name);
    table_cell(table, run->error != NULL ? "unreadable" : run_standing_name(summary->standing));
    for (int i = 0; i < 3 && run->error != NULL; i++) /* what nobody knows of it */
        table_cell(table, "-");
    if (run->error == NULL) {
        buffer_printf(&text, "%lld", (long long)summary->workers);
        table_take(table, &text);
        buffer_printf(&text, "%d", summary->attempts);
        table_take(table, &text);
        duration_format(view_summary_time(summary), &text);
        table_take(table, &text);
    }
    const char *told = run->error != NULL ? run->error : summary->cause, *name = NULL, *between = "";
    json_t *value = NULL;
    if (told != NULL) buffer_text(&text, told);
    json_object_foreach(told == NULL ? summary->metrics : NULL, name, value) {
        if (!json_is_number(value)) continue;
        buffer_text(&text, between);
        utf8_escape(name, strlen(name), &text);
        buffer_printf(&text, " %.5g", json_number_value(value));
        between = ", ";
    }
    table_take(table, &text);
}

static const struct view_run *nth_run(const struct top_view *top, size_t n) {
    const struct view_run *run;
    for (size_t i = 0; (run = view_runs_at(top->runs, i)) != NULL; i++)
        if (run->there && strstr(run->name, top->run_filter) != NULL && n-- == 0) return run;
    return NULL;
}

/* Whether to read anew what was read in this state; then it is the state that there is now. The first is read
 * at once, the others when there is news and the rest is over. */
static bool is_due(struct top_state *state, const struct view_facts *facts) {
    bool news = state->reports != facts->reports || state->sequence != facts->sequence;
    if (state->due > 0 && (!news || clock_monotonic() < state->due)) return false;
    state->reports = facts->reports;
    state->sequence = facts->sequence;
    return true;
}

/* Behind what began at this time of the thread: by its own time, not by the clock, so that a machine that is
 * busy with training does not make the rests longer still. */
static void rest(struct top_state *state, nanoseconds began) {
    enum { TOP_REST = 99 };
    state->due = clock_monotonic() + TOP_REST * (clock_thread() - began);
}

static void forget_metrics(struct top_run *run) {
    for (; run->n_metrics > 0; run->n_metrics--) {
        free(run->metrics[run->n_metrics - 1].name);
        buffer_done(&run->metrics[run->n_metrics - 1].line);
    }
}

static void forget_run(struct top_run *run) {
    forget_metrics(run);
    view_ranks_done(&run->ranks);
    view_index_close(run->index);
    *run = (struct top_run){0};
}

static int draw_metric(const struct top_view *top, const struct view_metric *metric, bool ascii,
                       struct top_metric *drawn, ty_error *err) {
    struct view_query query = view_query_new(metric->name);
    struct view_series series;
    query.buckets = TOP_LINE;
    query.index = top->run.index;
    int result = view_series_read(top->path, &query, &series, err);
    if (result < 0) return result;
    *drawn = (struct top_metric){.name = strdup(metric->name), .last = metric->last, .exact = series.exact};
    braille_sparkline(&series.lines[0], line_columns(top), ascii, &drawn->line);
    view_series_done(&series);
    return drawn->name != NULL ? 0 : ty_fail_memory(err);
}

static int draw_metrics(struct top_view *top, bool ascii, ty_error *err) {
    struct top_run *run = &top->run;
    const struct view_selection all = {.index = run->index};
    struct view_metrics metrics;
    nanoseconds began = clock_thread();
    int result = view_metrics_read(top->path, &all, false, &metrics, err);
    if (result < 0) return result;
    forget_metrics(run);
    for (size_t i = 0; i < metrics.n && run->n_metrics < TOP_METRICS && result >= 0; i++) {
        const struct view_metric *metric = &metrics.items[i];
        if (metric->text || strstr(metric->name, top->metric_filter) == NULL) continue;
        result = draw_metric(top, metric, ascii, &run->metrics[run->n_metrics], err);
        run->n_metrics += result >= 0;
    }
    view_metrics_done(&metrics);
    (void)snprintf(run->filter, sizeof run->filter, "%s", top->metric_filter);
    run->columns = line_columns(top);
    rest(&run->of_metrics, began);
    return result;
}

/* b of the object a for "a/b"; NULL: it is not there. */
static const json_t *find_value(const json_t *metrics, const char *name) {
    const json_t *value = json_object_get(metrics, name);
    for (const char *slash = strchr(name, '/'); value == NULL && slash != NULL;
         slash = strchr(slash + 1, '/')) {
        CLEANUP_FREE char *above = strndup(name, (size_t)(slash - name));
        const json_t *inner = above != NULL ? json_object_get(metrics, above) : NULL;
        if (json_is_object(inner)) value = find_value(inner, slash + 1);
    }
    return value;
}

/* With the values that rank 0 reported last. */
static void put_metrics(const struct top_view *top, const json_t *last, struct buffer *out) {
    const struct top_run *run = &top->run;
    for (size_t i = 0; i < run->n_metrics; i++) {
        const struct top_metric *metric = &run->metrics[i];
        const json_t *now = find_value(last, metric->name);
        buffer_text(out, "  ");
        put_name(metric->name, is_narrow(top) ? TOP_SHORT : TOP_NAME, out);
        buffer_append(out, metric->line.data, metric->line.size);
        buffer_printf(out, " %.6g%s\n", json_is_number(now) ? json_number_value(now) : metric->last,
                      metric->exact ? "" : "  sampled");
    }
}

static int by_lag(const void *a, const void *b) {
    const struct view_rank *x = *(const struct view_rank *const *)a, *y = *(const struct view_rank *const *)b;
    if (isnan(x->lag) != isnan(y->lag)) return isnan(x->lag) ? 1 : -1;
    if (!isnan(x->lag) && x->lag != y->lag) return x->lag > y->lag ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int put_ranks(struct top_view *top, struct buffer *out, ty_error *err) {
    const struct view_ranks *ranks = &top->run.ranks;
    CLEANUP_FREE const struct view_rank **shown = calloc(ranks->n + 1, sizeof(struct view_rank *));
    if (shown == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < ranks->n; i++)
        shown[i] = &ranks->items[i];
    double longest = ranks->n > 0 ? shown[0]->interval : 0;
    if (top->by_lag && ranks->n > 0) qsort(shown, ranks->n, sizeof(struct view_rank *), by_lag);
    buffer_printf(out, "    RANK  %sSTATE       REPORTS %s\n", is_narrow(top) ? "" : "NODE             ",
                  top->by_lag ? "INTERVAL    *LAG s" : "*INTERVAL   LAG s");
    for (size_t i = 0; i < ranks->n && i < TOP_RANKS; i++) {
        const struct view_rank *rank = shown[i];
        buffer_printf(out, "  %6d  ", rank->rank);
        if (!is_narrow(top)) put_name(rank->node >= 0 ? ranks->nodes[rank->node] : "-", 16, out);
        buffer_printf(out, "%-10s %8llu ", worker_standing_name(rank->standing),
                      (unsigned long long)rank->number);
        if (isnan(rank->interval))
            buffer_text(out, "       -        - ");
        else
            buffer_printf(out, "%8.3g %8.3g ", rank->interval, rank->lag);
        /* A bar of 20, as long as the interval is beside the longest. */
        for (double part = 0.5; part < 20 && longest > 0 && part <= rank->interval / longest * 20; part++)
            buffer_char(out, '#');
        buffer_char(out, '\n');
    }
    if (ranks->n > TOP_RANKS) buffer_printf(out, "  and %zu more\n", ranks->n - TOP_RANKS);
    return 0;
}

/* The values of one device, or of the node (-1), that a person looks at first. */
static void put_usage(const struct view_usage_node *node, int device, struct buffer *out) {
    static const enum usage_what of_node[] = {USAGE_NODE_CPU, USAGE_NODE_MEMORY, USAGE_NODE_RECEIVE,
                                              USAGE_NODE_TRANSMIT};
    static const enum usage_what of_device[] = {USAGE_DEVICE_UTILIZATION, USAGE_DEVICE_MEMORY,
                                                USAGE_DEVICE_POWER,       USAGE_DEVICE_TEMPERATURE,
                                                USAGE_DEVICE_CLOCK,       USAGE_DEVICE_LIMITED};
    static const char *const heads[] = {"cpu ", "mem ", "in ", "out "};
    const enum usage_what *what = device < 0 ? of_node : of_device;
    size_t n = device < 0 ? ARRAY_SIZE(of_node) : ARRAY_SIZE(of_device);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < node->n; k++) {
            const struct view_usage_last *item = &node->items[k];
            bool idle = item->what == USAGE_DEVICE_LIMITED && item->value == 0;
            if (item->what != what[i] || item->number != device || idle) continue;
            buffer_printf(out, "  %s", device < 0 ? heads[i] : "");
            view_usage_text(item->what, view_usage_shown(item), out);
        }
    buffer_char(out, '\n');
}

/* Nothing where nothing was sampled. */
static int put_hardware(const struct top_view *top, bool runs, struct buffer *out) {
    struct view_usage usage;
    int result = view_usage_read(top->path, runs ? clock_wall() : 0, &usage, NULL);
    for (size_t i = 0; result == 0 && i < usage.n && i < TOP_NODES; i++) {
        const struct view_usage_node *node = &usage.nodes[i];
        int last = -1;
        buffer_text(out, "  ");
        utf8_escape(node->name, strlen(node->name), out);
        if (node->stale) buffer_text(out, "  (stale)");
        put_usage(node, -1, out);
        for (size_t k = 0; k < node->n; k++) { /* in the order of their numbers */
            if (usage_table[node->items[k].what].scope != USAGE_OF_DEVICE || node->items[k].number <= last)
                continue;
            last = node->items[k].number;
            buffer_printf(out, "    GPU %d", last);
            put_usage(node, last, out);
        }
    }
    if (result == 0 && usage.n > TOP_NODES) buffer_printf(out, "  and %zu nodes more\n", usage.n - TOP_NODES);
    if (result == 0) view_usage_done(&usage);
    return result == -ENOMEM ? result : 0;
}

static void put_log(const struct top_view *top, int rank, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer lines = {0};
    run_output_last(top->path, rank, TOP_LINES, &lines);
    if (lines.size > 0) buffer_printf(out, "  log of rank %d:\n", rank);
    for (size_t at = 0; at < lines.size;) {
        size_t size = strcspn(lines.data + at, "\n") + 1;
        buffer_text(out, "    ");
        buffer_append(out, lines.data + at, size);
        at += size;
    }
}

static void put_head(struct top_view *top, const struct view_summary *summary, struct buffer *out) {
    buffer_text(out, "run ");
    utf8_escape(top->name, strlen(top->name), out);
    buffer_printf(out, "   %s", run_standing_name(summary->standing));
    if (summary->status >= 0) buffer_printf(out, ", exit status %d", summary->status);
    buffer_text(out, ", ");
    duration_format(view_summary_time(summary), out);
    buffer_printf(out, ", attempt %d, %lld worker%s on %zu node%s", summary->attempts,
                  (long long)summary->workers, summary->workers == 1 ? "" : "s", summary->nodes,
                  summary->nodes == 1 ? "" : "s");
    buffer_printf(out, "\n%llu reports, %zu checkpoints", (unsigned long long)summary->reports,
                  summary->checkpoints);
    put_modes(top, out);
    if (summary->cause == NULL) return;
    buffer_text(out, "first cause: ");
    utf8_escape(summary->cause, strcspn(summary->cause, "\n"), out);
    buffer_char(out, '\n');
}

/* What a frame goes on with behind the facts. */
struct top_told {
    bool runs, draws; /* the run goes on; its metrics are to be drawn anew */
    int rank;         /* whose log is shown */
    json_t *last;     /* metrics of rank 0; owned */
};

static int tell_facts(struct top_view *top, const struct view_facts *facts, struct top_told *told,
                      struct buffer *out, ty_error *err) {
    struct top_run *run = &top->run;
    struct view_summary summary;
    int result = view_summary_read_of(top->name, top->path, facts, &summary, err);
    if (result < 0) return result;
    put_head(top, &summary, out);
    told->runs = summary.ended == 0;
    told->draws = is_due(&run->of_metrics, facts) || !str_equal(run->filter, top->metric_filter) ||
                  run->columns != line_columns(top);
    told->rank = summary.cause_rank >= 0 ? summary.cause_rank : 0;
    told->last = json_incref(summary.metrics);
    view_summary_done(&summary);
    if (!is_due(&run->of_ranks, facts)) return 0;
    nanoseconds began = clock_thread();
    view_ranks_done(&run->ranks);
    result = view_ranks_read_of(top->path, facts, &run->ranks, err);
    rest(&run->of_ranks, began);
    return result;
}

static int run_frame(struct top_view *top, bool ascii, struct buffer *out, ty_error *err) {
    struct top_run *run = &top->run;
    struct top_told told = {0};
    const struct view_facts *facts;
    int result = run->index == NULL ? view_index_open(top->path, false, &run->index, err) : 0;
    if (result >= 0) result = facts_take(top->path, index_facts(run->index), NULL, &facts, err);
    if (result < 0) return result;
    result = tell_facts(top, facts, &told, out, err);
    facts_give_back(index_facts(run->index), NULL);
    if (result >= 0 && put_hardware(top, told.runs, out) < 0) result = ty_fail_memory(err);
    if (result >= 0 && told.draws) result = draw_metrics(top, ascii, err);
    put_metrics(top, told.last, out);
    json_decref(told.last);
    if (result < 0) return result;
    put_log(top, told.rank, out);
    return put_ranks(top, out, err); /* as many as there is room for */
}

static int make_frame(struct top_view *top, bool ascii, struct buffer *out, ty_error *err) {
    CLEANUP(table_done) struct text_table table = {0};
    const struct view_run *run;
    const char *path;
    size_t n = 0;
    if (top->path != NULL) return run_frame(top, ascii, out, err);
    int result = view_runs_look(top->runs, err);
    if (result < 0) return result;
    TABLE_HEADS(&table, "NAME", "STATE", "WORKERS", "ATTEMPTS", "TOOK", "LAST METRICS OR CAUSE");
    for (; (run = nth_run(top, n)) != NULL; n++)
        run_row(run, &table);
    buffer_printf(out, "trainyard top   %zu run%s", n, n == 1 ? "" : "s");
    put_modes(top, out);
    const char *error = view_runs_storage_error(top->runs, 0, &path);
    if (n > 0)
        table_format(&table, out);
    else if (error == NULL && top->run_filter[0] != '\0')
        buffer_text(out, "No run's name has that in it: / and Esc show all.\n");
    else if (error == NULL)
        buffer_text(out, "No runs here. To begin: trainyard run -n 4 -- PROG\n");
    if (error != NULL) buffer_printf(out, "%s: %s\n", path, error);
    top->first_row = 2;
    if (top->chosen >= n) top->chosen = n > 0 ? n - 1 : 0;
    return result;
}

/* Cut to the columns as the terminal counts them; what is not ASCII becomes `?` where it knows no more. */
static void cut_lines(const struct buffer *text, size_t columns, bool ascii, struct buffer *out) {
    size_t column = 0;
    for (size_t at = 0; at < text->size;) {
        uint32_t character = 0;
        int length = utf8_sequence(text->data + at, text->size - at, &character);
        size_t size = (size_t)(length > 0 ? length : -length);
        bool wide = !ascii && length > 1;
        if (text->data[at] == '\n')
            column = 0;
        else
            column += wide ? terminal_columns(character) : 1;
        if (column <= columns) {
            if (text->data[at] == '\t')
                buffer_char(out, ' ');
            else if (size == 1 || wide)
                buffer_append(out, text->data + at, size);
            else
                buffer_char(out, '?');
        }
        at += size;
    }
}

/* -- as JSON */

static int print_json(struct top_view *top, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = 0;
    if (top->path == NULL) {
        result = view_runs_look(top->runs, err);
        view_runs_encode(top->runs, 0, &text);
    } else {
        struct view_summary summary;
        struct view_ranks ranks;
        result = view_summary_read(top->name, top->path, &summary, err);
        if (result < 0) return result;
        json_t *tree = view_summary_json(&summary, true);
        CLEANUP_FREE char *run = tree != NULL ? json_format(tree, JSON_COMPACT) : NULL;
        json_decref(tree);
        view_summary_done(&summary);
        result = view_ranks_read(top->path, &ranks, err);
        if (result < 0) return result;
        buffer_printf(&text, "{\"run\": %s, \"ranks\": ", run != NULL ? run : "null");
        view_ranks_encode(&ranks, 0, TOP_RANKS, &text);
        struct view_usage usage = {0};
        (void)view_usage_read(top->path, 0, &usage, NULL); /* none may have been kept */
        buffer_text(&text, ", \"usage\": ");
        view_usage_encode(&usage, NULL, &text);
        view_usage_done(&usage);
        buffer_char(&text, '}');
        view_ranks_done(&ranks);
    }
    buffer_char(&text, '\n');
    return result < 0 ? result : cli_print(&text, err);
}

/* -- on the screen */

static volatile sig_atomic_t ended_by;

/* What was on the screen before is given back by screen->close, which no handler may call: the loop sees it
 * at its next turn. */
static void note_signal(int number) {
    ended_by = number;
}

/* Typed bytes are taken as they are: a name in letters of several bytes is filtered by its bytes. */
static void type(struct top_view *top, int key) {
    char *filter = filter_of(top);
    size_t size = strlen(filter);
    if (key == SCREEN_ENTER || key == SCREEN_BACK) top->typing = false;
    if (key == SCREEN_BACK) filter[0] = '\0';
    if (key == SCREEN_ERASE && size > 0) filter[size - 1] = '\0';
    if (key >= ' ' && key < 256 && size + 1 < TOP_FILTER) {
        filter[size] = (char)key;
        filter[size + 1] = '\0';
    }
}

static void open_chosen(struct top_view *top) {
    const struct view_run *run = top->path == NULL ? nth_run(top, top->chosen) : NULL;
    if (run == NULL || run->error != NULL) return;
    forget_run(&top->run);
    top->name = strdup(run->name);
    top->path = strdup(run->path);
    top->metric_filter[0] = '\0';
    if (top->name != NULL && top->path != NULL) return;
    free(TAKE(top->name));
    free(TAKE(top->path));
}

/* True when it is over. */
static bool obey(struct top_view *top, int key) {
    if (top->typing) {
        type(top, key);
        return false;
    }
    switch (key) {
    case 'q':
        return true;
    case SCREEN_UP:
    case 'k':
        if (top->chosen > 0) top->chosen--;
        break;
    case SCREEN_DOWN:
    case 'j':
        top->chosen++;
        break;
    case SCREEN_ENTER:
        open_chosen(top);
        break;
    case SCREEN_BACK:
        if (top->alone) break;
        free(TAKE(top->name));
        free(TAKE(top->path));
        break;
    case SCREEN_SORT:
    case 's':
        top->by_lag = !top->by_lag;
        break;
    case ' ':
        top->paused = !top->paused;
        break;
    case '/':
        top->typing = true;
        break;
    default:
        break;
    }
    return false;
}

static int show_frame(struct top_view *top, const struct screen_module *screen, bool ascii, ty_error *err) {
    CLEANUP(buffer_done) struct buffer frame = {0}, cut = {0};
    size_t rows, columns;
    screen->size(&rows, &columns);
    top->columns = columns;
    int result = make_frame(top, ascii, &frame, err);
    if (result < 0) return result;
    cut_lines(&frame, columns > 0 ? columns - 1 : 0, ascii, &cut);
    if (frame.failed || cut.failed) return ty_fail_memory(err);
    screen->show(cut.data, cut.size, top->path == NULL ? top->first_row + top->chosen : SIZE_MAX);
    return 0;
}

/* A signal ends the wait for a key, and is seen at the loop's next turn: the screen is closed whichever way it
 * ends. */
static int watch(struct top_view *top, const struct screen_module *screen, ty_error *err) {
    bool ascii = braille_terminal(1).ascii, over = false;
    int result = screen->open(err);
    if (result < 0) return result;
    nanoseconds shown = 0;
    while (!over && ended_by == 0 && result >= 0) {
        nanoseconds now = clock_monotonic();
        bool due = shown == 0 || (!top->paused && now - shown >= TOP_LOOK_MS * NS_PER_MS);
        if (due) {
            result = show_frame(top, screen, ascii, err);
            shown = now;
        }
        int key = result >= 0 ? screen->key(TOP_LOOK_MS) : SCREEN_NONE;
        if (key == SCREEN_NONE) continue;
        over = obey(top, key);
        shown = 0; /* what was pressed is seen at once, also in a pause */
    }
    screen->close();
    return result < 0 ? result : ended_by > 0 ? 128 + ended_by : 0;
}

static int show(struct top_view *top, const struct top_options *options, int format, ty_error *err) {
    if (format == FORMAT_JSON) return print_json(top, err);
    const char *terminal = getenv("TERM");
    bool plain =
        !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) || terminal == NULL || str_equal(terminal, "dumb");
    if (options->once || plain) {
        struct braille_size size = braille_terminal(24);
        CLEANUP(buffer_done) struct buffer frame = {0}, cut = {0};
        top->columns = isatty(STDOUT_FILENO) ? size.columns : 0;
        int result = make_frame(top, size.ascii, &frame, err);
        if (result < 0) return result;
        if (frame.failed) return ty_fail_memory(err);
        cut_lines(&frame, top->columns > 0 ? top->columns : 1000, size.ascii, &cut);
        return cli_print(&cut, err);
    }
    const struct screen_module *screen = module_load("screen", err);
    if (screen == NULL) return ty_wrap(err, "`trainyard top --once` prints the same");
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = note_signal};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        (void)sigaction(numbers[i], &action, NULL);
    return watch(top, screen, err);
}

static int top_run(const struct arguments *arguments, ty_error *err) {
    struct top_options options = {0};
    struct storage_options storage = {0};
    struct format_options format = {0};
    struct top_view top = {0};
    int result = options_apply(arguments, (void *[]){&options, &storage, &format}, err);
    if (result < 0) return result;
    (void)setlocale(LC_CTYPE, "");
    if (arguments->n_words > 0) {
        top.alone = true;
        top.path = run_directory_find(storage.storage_path, arguments->words[0], err);
        if (top.path == NULL) return err->code;
        top.name = strdup(arguments->words[0]);
        result = top.name != NULL ? 0 : ty_fail_memory(err);
    } else {
        top.runs = view_runs_create(&storage.storage_path, 1, err);
        result = top.runs != NULL ? 0 : err->code;
    }
    if (result >= 0) result = show(&top, &options, format.format, err);
    view_runs_destroy(top.runs);
    forget_run(&top.run);
    free(top.name);
    free(top.path);
    return result;
}

const struct command command_top = {
    .name = "top",
    .summary = "watch the runs, or the ranks of one of them",
    .usage = (const char *const[]){"[NAME] [OPTION...]", NULL},
    .description =
        "The runs, newest first; or of one run its state, first cause, hardware, metrics, the last lines of "
        "the rank that failed first, else of rank 0, and its ranks, the slowest first. "
        "Keys: arrows and Enter choose a run, Esc goes back, / filters runs, or the metrics of one, by "
        "name, F6 or s sorts ranks by interval or lag, "
        "space pauses, q ends. Without a terminal that can place its cursor it is printed once, as "
        "with --once.",
    .groups = (const struct option_group *const[]){&top_group, &storage_group, &format_group, NULL},
    .max_words = 1,
    .run = top_run,
};
