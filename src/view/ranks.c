/* One row a rank. Where a rank sits is in the last plan, how it stands in the replay, how fast it goes in
 * its last reports; how far it lags is measured against the first rank that made a report of the same
 * number. */
#include "view/ranks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "run/pace.h"
#include "view/encode.h"
#include "view/scan.h"

/* A report of the window. */
struct ranks_seen {
    nanoseconds time;
    uint64_t number;
    int rank;
};

struct ranks_reading {
    struct view_ranks *ranks;
    struct pace *pace;
    int attempt;
    struct ranks_seen *seen; /* n of `room`, owned */
    size_t n, room;
    bool whole; /* the window has all reports of the run */
};

/* Reports come by id, so the last one of a rank is its newest. */
static int on_report(void *context, const struct journal_report *report) {
    struct ranks_reading *reading = context;
    if (report->rank < 0 || (size_t)report->rank >= reading->ranks->n || report->attempt != reading->attempt)
        return 0;
    struct view_rank *rank = &reading->ranks->items[report->rank];
    pace_note(reading->pace, (uint32_t)report->rank, report->time);
    if (report->time > rank->last_report) rank->last_report = report->time;
    rank->number = report->number;
    if (reading->n < reading->room)
        reading->seen[reading->n++] = (struct ranks_seen){report->time, report->number, report->rank};
    return 0;
}

static int by_number(const void *a, const void *b) {
    const struct ranks_seen *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->time > y->time) - (x->time < y->time);
}

static bool is_before(const void *item, const void *key) {
    const struct ranks_seen *seen = item;
    const uint64_t *number = key;
    return seen->number < *number;
}

/* Each against the first report of the same number, which is there if the window has, of every rank, that
 * number or an earlier one. False: of some it has not, and they are not known. */
static bool find_lags(struct ranks_reading *reading) {
    struct view_ranks *ranks = reading->ranks;
    CLEANUP_FREE struct ranks_seen *last = calloc(ranks->n + 1, sizeof *last);
    CLEANUP_FREE uint64_t *least = calloc(ranks->n + 1, sizeof *least);
    uint64_t from = 0; /* numbers from there on were seen of every rank that made them */
    bool known = true;
    if (last == NULL || least == NULL) return true;
    for (size_t i = 0; i < reading->n; i++) {
        const struct ranks_seen *seen = &reading->seen[i];
        last[seen->rank] = *seen;
        if (least[seen->rank] == 0 || seen->number < least[seen->rank]) least[seen->rank] = seen->number;
    }
    for (size_t i = 0; i < ranks->n && !reading->whole; i++)
        if (least[i] > from) from = least[i];
    if (reading->n > 0) qsort(reading->seen, reading->n, sizeof *reading->seen, by_number);
    for (size_t i = 0; i < ranks->n; i++) {
        ranks->items[i].lag = (double)NAN;
        if (least[i] == 0) continue;
        if (last[i].number < from) {
            known = false;
            continue;
        }
        size_t first =
            array_place(reading->seen, reading->n, sizeof *reading->seen, is_before, &last[i].number);
        ranks->items[i].lag = duration_seconds(last[i].time - reading->seen[first].time);
    }
    return known;
}

/* The last `limit` reports. 1: those of the lags lie farther back. */
static int read_last(const char *run_path, struct view_ranks *ranks, int attempt, uint64_t reports,
                     uint64_t limit, ty_error *err) {
    struct view_scan scan = {.after = reports > limit ? (int64_t)(reports - limit) : 0,
                             .last = (int64_t)reports};
    size_t room = (size_t)(scan.last - scan.after);
    struct ranks_reading reading = {.ranks = ranks, .attempt = attempt, .room = room, .whole = scan.after == 0};
    reading.pace = pace_create((uint32_t)ranks->n);
    reading.seen = calloc(room + 1, sizeof *reading.seen);
    int result = reading.pace == NULL || reading.seen == NULL ? ty_fail_memory(err) : 0;
    if (result == 0 && reports > 0) result = view_scan(run_path, &scan, on_report, &reading, err);
    for (size_t i = 0; i < ranks->n && result == 0; i++) {
        nanoseconds interval;
        if (pace_interval(reading.pace, (uint32_t)i, &interval))
            ranks->items[i].interval = duration_seconds(interval);
    }
    nanoseconds usual;
    ranks->usual = result == 0 && pace_usual(reading.pace, &usual) ? duration_seconds(usual) : (double)NAN;
    if (result == 0 && !find_lags(&reading)) result = 1;
    pace_destroy(reading.pace);
    free(reading.seen);
    return result;
}

/* Reports of one that is far behind may be all that were made last: who made none of them is looked for
 * farther back, and so is whom one that is behind is measured against. */
static int read_pace(const char *run_path, struct view_ranks *ranks, int attempt, uint64_t reports,
                     ty_error *err) {
    enum { WIDER = 8, WIDEST = 8192 };
    uint64_t limit = ranks->n * PACE_REPORTS;
    if (limit > PACE_REPORTS_MAX) limit = PACE_REPORTS_MAX;
    for (;;) {
        int result = read_last(run_path, ranks, attempt, reports, limit, err);
        bool all = result == 0;
        for (size_t i = 0; i < ranks->n && all; i++)
            all = ranks->items[i].number > 0;
        if (result < 0 || all || limit >= reports || limit >= WIDEST) return result < 0 ? result : 0;
        limit = limit * WIDER < WIDEST ? limit * WIDER : WIDEST;
    }
}

static int copy_texts(const struct event_texts *texts, char ***copies, size_t *n) {
    *copies = calloc(texts->n + 1, sizeof **copies);
    if (*copies == NULL) return -ENOMEM;
    for (; *n < texts->n; (*n)++) {
        (*copies)[*n] = strdup(texts->items[*n] != NULL ? texts->items[*n] : "");
        if ((*copies)[*n] == NULL) return -ENOMEM;
    }
    return 0;
}

/* What the last plan says, of as many workers as the last attempt had. */
static int place(struct view_ranks *ranks, const struct run_replay *replay) {
    const struct event_plan *plan = &replay->plan.event.of.plan;
    bool planned = replay->plan.event.time != 0;
    size_t n = replay->n_attempts == 0 ? replay->n_workers
                                       : (size_t)replay->attempts[replay->n_attempts - 1].num_workers;
    if (n > replay->n_workers) n = replay->n_workers;
    ranks->items = calloc(n + 1, sizeof *ranks->items);
    if (ranks->items == NULL) return -ENOMEM;
    if (planned && (copy_texts(&plan->nodes, &ranks->nodes, &ranks->n_nodes) < 0 ||
                    copy_texts(&plan->slices, &ranks->slices, &ranks->n_slices) < 0))
        return -ENOMEM;
    for (; ranks->n < n; ranks->n++) {
        size_t i = ranks->n;
        struct view_rank *rank = &ranks->items[i];
        *rank = (struct view_rank){.rank = (int)i, .node = -1, .interval = (double)NAN, .lag = (double)NAN};
        rank->pid = replay->workers[i].pid;
        rank->standing = view_standing_of(&replay->workers[i]);
        if (planned && i < plan->ranks.n && plan->ranks.items[i] < ranks->n_nodes)
            rank->node = (int)plan->ranks.items[i];
        if (!planned || i >= plan->devices.n || plan->devices.items[i] == NULL) continue;
        rank->devices = strdup(plan->devices.items[i]);
        if (rank->devices == NULL) {
            ranks->n++;
            return -ENOMEM;
        }
    }
    return 0;
}

/* Ranks whose interval is not known stand behind the others, by number. */
static int slowest_first(const void *a, const void *b) {
    const struct view_rank *x = a, *y = b;
    if (isnan(x->interval) != isnan(y->interval)) return isnan(x->interval) ? 1 : -1;
    if (!isnan(x->interval) && x->interval != y->interval) return x->interval > y->interval ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

int view_ranks_read(const char *run_path, struct view_ranks *ranks, ty_error *err) {
    struct view_facts facts;
    *ranks = (struct view_ranks){.usual = (double)NAN};
    int result = view_facts_read(run_path, &facts, err);
    if (result < 0) return result;
    result = view_ranks_read_of(run_path, &facts, ranks, err);
    view_facts_done(&facts);
    return result;
}

int view_ranks_read_of(const char *run_path, const struct view_facts *facts, struct view_ranks *ranks,
                       ty_error *err) {
    *ranks = (struct view_ranks){.usual = (double)NAN};
    int result = place(ranks, &facts->replay);
    if (result == 0) result = read_pace(run_path, ranks, facts->replay.attempt, facts->reports, err);
    if (result == -ENOMEM) (void)ty_fail_memory(err);
    if (result < 0)
        view_ranks_done(ranks);
    else if (ranks->n > 0)
        qsort(ranks->items, ranks->n, sizeof *ranks->items, slowest_first);
    return result;
}

void view_ranks_done(struct view_ranks *ranks) {
    for (size_t i = 0; i < ranks->n; i++)
        free(ranks->items[i].devices);
    for (size_t i = 0; i < ranks->n_nodes; i++)
        free(ranks->nodes[i]);
    for (size_t i = 0; i < ranks->n_slices; i++)
        free(ranks->slices[i]);
    free(ranks->slices);
    free(ranks->items);
    free(ranks->nodes);
    *ranks = (struct view_ranks){0};
}

/* -- JSON */

static const char *name_of_node(const struct view_ranks *ranks, const struct view_rank *rank) {
    return rank->node >= 0 ? ranks->nodes[rank->node] : NULL;
}

static void encode_rank_row(const struct view_ranks *ranks, const struct view_rank *rank, struct buffer *out) {
    buffer_printf(out, "{\"rank\": %d, \"node\": ", rank->rank);
    buffer_json_text(out, name_of_node(ranks, rank));
    buffer_text(out, ", \"devices\": ");
    buffer_json_text(out, rank->devices);
    buffer_text(out, ", \"pid\": ");
    encode_number_if(out, rank->pid > 0, (double)rank->pid);
    buffer_printf(out, ", \"state\": \"%s\", \"number\": %llu, \"last_report\": ",
                  worker_standing_name(rank->standing), (unsigned long long)rank->number);
    encode_number_if(out, rank->last_report > 0, duration_seconds(rank->last_report));
    buffer_text(out, ", \"interval\": ");
    encode_number(out, rank->interval);
    buffer_text(out, ", \"lag\": ");
    encode_number(out, rank->lag);
    buffer_char(out, '}');
}

void view_ranks_encode(const struct view_ranks *ranks, size_t from, size_t limit, struct buffer *out) {
    buffer_text(out, "{\"usual_interval\": ");
    encode_number(out, ranks->usual);
    buffer_printf(out, ", \"ranks\": %zu, \"items\": [", ranks->n);
    for (size_t i = from; i < ranks->n && i - from < limit; i++) {
        if (i > from) buffer_text(out, ", ");
        encode_rank_row(ranks, &ranks->items[i], out);
    }
    buffer_text(out, "]}");
}

static int by_node(const void *a, const void *b) {
    const struct view_rank *x = *(const struct view_rank *const *)a, *y = *(const struct view_rank *const *)b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Nodes without a rank are left out: a plan names all that it could have used. */
void view_placement_encode(const struct view_ranks *ranks, struct buffer *out) {
    CLEANUP_FREE const struct view_rank **sorted = calloc(ranks->n + 1, sizeof *sorted);
    int node = -2;
    if (sorted == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < ranks->n; i++)
        sorted[i] = &ranks->items[i];
    if (ranks->n > 0) qsort(sorted, ranks->n, sizeof *sorted, by_node);
    buffer_text(out, "{\"grids\": ");
    view_grids_encode(ranks, out);
    buffer_text(out, ", \"nodes\": [");
    for (size_t i = 0; i < ranks->n; i++) {
        const struct view_rank *rank = sorted[i];
        if (rank->node != node) {
            buffer_printf(out, "%s{\"node\": ", i > 0 ? "]}, " : "");
            encode_rank(out, rank->node);
            buffer_text(out, ", \"name\": ");
            buffer_json_text(out, name_of_node(ranks, rank));
            buffer_text(out, ", \"ranks\": [");
        }
        buffer_printf(out, "%s{\"rank\": %d, \"devices\": ", rank->node == node ? ", " : "", rank->rank);
        node = rank->node;
        buffer_json_text(out, rank->devices);
        buffer_printf(out, ", \"state\": \"%s\"}", worker_standing_name(rank->standing));
    }
    buffer_text(out, ranks->n > 0 ? "]}]}" : "]}");
}
