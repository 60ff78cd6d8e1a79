/* One row a rank. Where a rank sits is in the last plan, how it stands in the replay, how fast it goes in
 * its last reports; how far it lags is measured against the first rank that made a report of the same
 * number. */
#include "view/ranks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "run/pace.h"
#include "view/encode.h"
#include "view/scan.h"

struct ranks_reading {
    struct view_ranks *ranks;
    struct pace *pace;
    int attempt;
    nanoseconds *first; /* of the last LAG_NUMBERS numbers, by number modulo that */
    uint64_t *first_of;
};

enum { LAG_NUMBERS = 1024 };

static double seconds(nanoseconds time) {
    return (double)time / (double)NS_PER_S;
}

static int on_report(void *context, const struct journal_report *report) {
    struct ranks_reading *reading = context;
    if (report->rank < 0 || (size_t)report->rank >= reading->ranks->n || report->attempt != reading->attempt)
        return 0;
    struct view_rank *rank = &reading->ranks->items[report->rank];
    pace_note(reading->pace, (uint32_t)report->rank, report->time);
    if (report->time > rank->last_report) rank->last_report = report->time;
    rank->number = report->number;
    size_t slot = report->number % LAG_NUMBERS;
    if (reading->first_of[slot] != report->number || report->time < reading->first[slot]) {
        reading->first_of[slot] = report->number;
        reading->first[slot] = report->time;
    }
    rank->lag = seconds(report->time - reading->first[slot]);
    return 0;
}

/* The last `limit` reports. */
static int read_last(const char *run_path, struct view_ranks *ranks, int attempt, uint64_t reports,
                     uint64_t limit, ty_error *err) {
    nanoseconds first[LAG_NUMBERS] = {0};
    uint64_t first_of[LAG_NUMBERS] = {0};
    struct ranks_reading reading = {.ranks = ranks, .attempt = attempt, .first = first, .first_of = first_of};
    struct view_scan scan = {.after = reports > limit ? (int64_t)(reports - limit) : 0,
                             .last = (int64_t)reports};
    reading.pace = pace_create((uint32_t)ranks->n);
    if (reading.pace == NULL) return ty_fail_memory(err);
    int result = reports == 0 ? 0 : view_scan(run_path, &scan, on_report, &reading, err);
    for (size_t i = 0; i < ranks->n; i++) {
        nanoseconds interval;
        if (pace_interval(reading.pace, (uint32_t)i, &interval)) ranks->items[i].interval = seconds(interval);
    }
    nanoseconds usual;
    ranks->usual = pace_usual(reading.pace, &usual) ? seconds(usual) : (double)NAN;
    pace_destroy(reading.pace);
    return result;
}

/* Reports of one that is far behind may be all that were made last: who made none of them is looked for
 * farther back. */
static int read_pace(const char *run_path, struct view_ranks *ranks, int attempt, uint64_t reports,
                     ty_error *err) {
    enum { WIDER = 8, WIDEST = 8192 };
    uint64_t limit = ranks->n * PACE_REPORTS;
    if (limit > PACE_REPORTS_MAX) limit = PACE_REPORTS_MAX;
    int result = read_last(run_path, ranks, attempt, reports, limit, err);
    for (size_t i = 0; i < ranks->n && result == 0; i++)
        while (result == 0 && ranks->items[i].number == 0 && limit < reports && limit < WIDEST) {
            limit = limit * WIDER < WIDEST ? limit * WIDER : WIDEST;
            result = read_last(run_path, ranks, attempt, reports, limit, err);
        }
    return result;
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
    encode_number_if(out, rank->last_report > 0, seconds(rank->last_report));
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
