/* `trainyard wait`: until a run ends, stands still, or reports a number that somebody waits for; the exit
 * status says how that came out. The journal is read when it changes (view/watch.h), and the run is not asked.
 * A run that has the name later is not taken for the one that was waited for. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/command.h"
#include "view/scan.h"
#include "view/summary.h"
#include "view/values.h"
#include "view/watch.h"

enum wait_for { WAIT_END, WAIT_STALL, WAIT_VALUE };
enum comparison { GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, EQUAL, UNEQUAL, COMPARISONS };
static const char *const comparisons[COMPARISONS] = {">", ">=", "<", "<=", "==", "!="};

struct wait_options {
    enum wait_for what;
    char metric[256];
    size_t metric_size;
    enum comparison comparison;
    double number;
};

/* A metric's name may have anything in it but the signs of a comparison, blanks included. */
static int set_condition(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    struct wait_options *options = target;
    options->what = str_equal(value, "stall") ? WAIT_STALL : WAIT_END;
    if (str_equal(value, "end") || str_equal(value, "stall")) return 0;
    size_t name = strcspn(value, "<>=!"), size = strspn(value + name, "<>=!");
    const char *number = value + name + size;
    number += strspn(number, " ");
    size_t trimmed = name;
    while (trimmed > 0 && value[trimmed - 1] == ' ')
        trimmed--;
    int found = 0;
    while (found < COMPARISONS &&
           (strlen(comparisons[found]) != size || memcmp(value + name, comparisons[found], size) != 0))
        found++;
    if (trimmed == 0 || trimmed >= sizeof options->metric || value[0] == '@' || found == COMPARISONS ||
        !str_to_double(number, &options->number))
        return ty_fail(err, TY_EUSAGE,
                       "'%.80s' is not end, stall, or a metric and a number as in 'loss>10' (one of > >= < <="
                       " == !=)",
                       value);
    options->what = WAIT_VALUE;
    options->comparison = (enum comparison)found;
    memcpy(options->metric, value, trimmed);
    options->metric_size = trimmed;
    return 0;
}

static const struct option_spec specs[] = {
    {"for", 0, "end|stall|'METRIC>NUMBER'",
     "what is waited for: the end (default); a run without a report for 5 of its usual intervals, and 30 s; a "
     "report",
     set_condition, 0, NULL},
};
static const struct option_group wait_group = {"Options", specs, ARRAY_SIZE(specs)};

/* Since when no report came, by a clock that nobody sets, and that stands still with a machine that is
 * suspended: a run that goes on must not be taken for one that stands still because the date has changed. */
struct silence {
    bool looked;        /* what came before the first look is known by its date alone */
    nanoseconds report; /* the date of the last one; 0: none */
    nanoseconds since;
};

struct awaited_run {
    char *run; /* the id of the run that had the name at first; owned */
    struct silence silence;
    int64_t after; /* the last report that was looked at */
};

struct value_search {
    const struct wait_options *options;
    int rank, attempt;
    uint64_t number;
    double value;
    bool found;
};

static bool look_at_value(void *context, const struct value *value) {
    struct value_search *search = context;
    const struct wait_options *options = search->options;
    if (!value_is_named(value, options->metric, options->metric_size)) return true;
    bool less = value->number<options->number, greater = value->number> options->number;
    bool equal = value->number >= options->number && value->number <= options->number; /* NaN is none of them */
    const bool holds[COMPARISONS] = {
        [GREATER] = greater, [GREATER_EQUAL] = greater || equal, [LESS] = less, [LESS_EQUAL] = less || equal,
        [EQUAL] = equal,     [UNEQUAL] = less || greater};
    search->value = value->number;
    search->found = value_is_number(value) && holds[options->comparison];
    return true;
}

/* A report tells where the value was: its numbers are noted before its values are looked at. */
static int look_at_report(void *context, const struct journal_report *report) {
    struct value_search *search = context;
    search->rank = report->rank;
    search->number = report->number;
    search->attempt = report->attempt;
    (void)values_each(report->metrics, report->metrics_size, look_at_value, search);
    return search->found ? 1 : 0;
}

/* Reports behind `*after` that nobody looked at yet: 1 when one is what is waited for. */
static int search_news(const char *name, const char *path, const struct wait_options *options, int64_t *after,
                       ty_error *err) {
    struct value_search search = {.options = options};
    struct view_scan scan = {.after = *after};
    int result = view_scan(path, &scan, look_at_report, &search, err);
    *after = scan.last;
    if (result <= 0) return result;
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text, "%s: %s is %.6g at report number %llu of rank %d, attempt %d\n", name, options->metric,
                  search.value, (unsigned long long)search.number, search.rank, search.attempt);
    result = cli_print(&text, err);
    return result < 0 ? result : 1;
}

/* The status of the run, which is over; what was waited for did not come. */
static int tell_end(const char *name, const struct view_summary *summary, const struct wait_options *options,
                    ty_error *err) {
    if (summary->status < 0)
        return ty_fail(err, TY_EFAULT, "%s died: its controller is gone and did not end it", name);
    if (summary->status > 0 || options->what == WAIT_END) return summary->status;
    if (options->what == WAIT_STALL) return ty_fail(err, TY_EFAULT, "%s ended, and did not stand still", name);
    return ty_fail(err, TY_EFAULT, "%s ended, and no report had %s %s %g", name, options->metric,
                   comparisons[options->comparison], options->number);
}

/* How long no report has come where that is longer than is usual in this run, else 0. */
static nanoseconds measure(struct silence *silence, const struct view_summary *summary) {
    nanoseconds last = summary->last_report, now = clock_monotonic();
    nanoseconds passed = silence->looked || last == 0 ? 0 : clock_wall() - last;
    if (silence->report != last) silence->since = now - (passed > 0 ? passed : 0);
    silence->looked = true;
    silence->report = last;
    nanoseconds from = view_summary_quiet_from(summary), length = now - silence->since;
    return from > 0 && length > from - last ? length : 0;
}

/* Where the run was removed its name may be that of another one by now. */
static bool is_another(struct awaited_run *awaited, const char *id) {
    if (awaited->run == NULL && id != NULL) awaited->run = strdup(id);
    return awaited->run != NULL && !str_equal(awaited->run, id);
}

/* 1 with `*status` when the waiting is over. */
static int look(const char *name, const char *path, const struct wait_options *options,
                struct awaited_run *awaited, int *status, ty_error *err) {
    struct view_summary summary;
    int result = view_summary_read(name, path, &summary, err);
    if (result < 0) return result;
    if (is_another(awaited, summary.replay.id)) {
        view_summary_done(&summary);
        return ty_fail(err, TY_EFAULT, "%s was removed, and is another run by now: how it ended is not known",
                       name);
    }
    bool over = summary.standing != STANDING_RUNNING && summary.standing != STANDING_WAITING;
    nanoseconds quiet = options->what == WAIT_STALL ? measure(&awaited->silence, &summary) : 0;
    if (options->what == WAIT_VALUE) result = search_news(name, path, options, &awaited->after, err);
    if (result == 0 && quiet > 0) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "%s: no report for ", name);
        duration_format(quiet, &text);
        buffer_char(&text, '\n');
        result = cli_print(&text, err);
        if (result >= 0) result = 1;
    } else if (result == 0 && over) {
        *status = tell_end(name, &summary, options, err);
        result = 1;
    }
    view_summary_done(&summary);
    return result;
}

static int wait_run(const struct arguments *arguments, ty_error *err) {
    struct wait_options options = {0};
    struct storage_options storage = {0};
    const char *name = arguments->words[0];
    struct awaited_run awaited = {0};
    int status = 0;
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    if (result < 0) return result;
    CLEANUP_FREE char *path = submitted_find_run(storage.storage_path, name, err);
    if (path == NULL) return err->code;
    CLEANUP_FD int watch = view_watch_open(path);
    for (;;) {
        result = look(name, path, &options, &awaited, &status, err);
        if (result != 0) break;
        view_watch_wait(watch);
    }
    free(awaited.run);
    return result < 0 ? result : status;
}

const struct command command_wait = {
    .name = "wait",
    .summary = "wait until a run ends, stands still, or reports a number",
    .usage = (const char *const[]){"NAME [OPTION...]", NULL},
    .description =
        "The exit status is the run's when it ends. With --for stall, or a metric, it is 0 when that comes; "
        "where the run ends before, the run's, and 1 for one that succeeded.",
    .examples = (const char *const[]){"trainyard wait my-run --for 'loss>10' && trainyard stop my-run",
                                      "stops a run that goes astray", NULL},
    .groups = (const struct option_group *const[]){&wait_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = 1,
    .missing = "which run? `trainyard status` lists them",
    .run = wait_run,
};
