/* Where the time of a run went: shares of the whole run, and the start of each rank; its events and its
 * checkpoints as rows of JSON. Reports are not read for it. */
#include "view/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/metrics.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "controller/result.h"
#include "controller/run_directory.h"
#include "journal/journal.h"
#include "run/settings.h"
#include "view/encode.h"
#include "view/facts.h"

/* -- shares */

/* A clock that was put back takes nothing off; without an event nothing began. */
static void add_share(struct view_timeline *timeline, enum view_share share, nanoseconds from, nanoseconds to) {
    if (from > 0 && to > from) timeline->shares[share] += duration_seconds(to - from);
}

/* A run waits until an attempt begins, starts, and trains until the attempt ends; one that died with its
 * controller lasted to the last that is known of it. Lost work is what later attempts do once more, as the
 * facts have it: it was training while it went on, and is taken off that. */
static void measure_shares(struct view_timeline *timeline, const struct view_facts *facts) {
    nanoseconds from = facts->first, last = facts->replay.last;
    nanoseconds end = timeline->summary.ended > 0 ? timeline->summary.ended : clock_wall();
    if (end < last) end = last;
    for (size_t i = 0; i < facts->n_attempts; i++) {
        const struct fact_attempt *attempt = &facts->attempts[i];
        bool newest = i + 1 == facts->n_attempts, goes_on = newest && !attempt->over && !facts->reopened;
        nanoseconds next = newest ? end : attempt[1].began;
        nanoseconds ended = goes_on || attempt->ended > next ? next : attempt->ended;
        nanoseconds started = goes_on && !attempt->trains ? ended : attempt->started;
        add_share(timeline, SHARE_WAITING, from, attempt->began);
        add_share(timeline, SHARE_START, attempt->began, started);
        add_share(timeline, SHARE_TRAINING, started, ended);
        from = ended;
    }
    add_share(timeline, SHARE_WAITING, from, end);
    double *training = &timeline->shares[SHARE_TRAINING];
    double lost = facts->lost_seconds < *training ? facts->lost_seconds : *training;
    timeline->shares[SHARE_LOST] = lost;
    *training -= lost;
    for (size_t i = 0; i < VIEW_SHARES_N; i++)
        timeline->seconds += timeline->shares[i];
}

/* -- ranks */

static double between(nanoseconds from, nanoseconds to) {
    return from > 0 && to >= from ? duration_seconds(to - from) : (double)NAN;
}

static int compare(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int by_total(const void *a, const void *b) {
    const struct view_rank_start *x = a, *y = b;
    if (isnan(x->total) != isnan(y->total)) return isnan(x->total) ? 1 : -1;
    if (!isnan(x->total) && x->total != y->total) return x->total > y->total ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Of the member at `offset` of each; `room` has place for n numbers. Quantiles are values that some rank had:
 * the one at (n - 1) q, rounded down. */
static struct view_quantiles take_quantiles(const struct view_rank_start *starts, size_t n, size_t offset,
                                            double *room) {
    const double none = (double)NAN;
    size_t known = 0;
    for (size_t i = 0; i < n; i++) {
        double value = *(const double *)(const void *)((const char *)&starts[i] + offset);
        if (!isnan(value)) room[known++] = value;
    }
    if (known == 0) return (struct view_quantiles){none, none, none, none, none};
    qsort(room, known, sizeof *room, compare);
    return (struct view_quantiles){room[0], room[(known - 1) / 4], room[(known - 1) / 2],
                                   room[(known - 1) * 3 / 4], room[known - 1]};
}

static int measure_ranks(struct view_timeline *timeline) {
    const struct run_replay *replay = &timeline->summary.replay;
    size_t n = replay->n_workers;
    CLEANUP_FREE struct view_rank_start *starts = calloc(n + 1, sizeof *starts);
    CLEANUP_FREE double *room = calloc(n + 1, sizeof *room);
    if (starts == NULL || room == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct worker_start *worker = &replay->workers[i].start;
        nanoseconds launched = replay->last_start.launched;
        starts[i] = (struct view_rank_start){.rank = (int)i,
                                             .spawn = between(launched, worker->started),
                                             .loader = between(worker->started, worker->ready),
                                             .rendezvous = between(worker->ready, worker->rendezvous),
                                             .total = between(launched, replay_able(worker))};
    }
    timeline->spawn = take_quantiles(starts, n, offsetof(struct view_rank_start, spawn), room);
    timeline->loader = take_quantiles(starts, n, offsetof(struct view_rank_start, loader), room);
    timeline->rendezvous = take_quantiles(starts, n, offsetof(struct view_rank_start, rendezvous), room);
    if (n > 0) qsort(starts, n, sizeof *starts, by_total);
    timeline->n_slowest = n < VIEW_SLOWEST ? n : VIEW_SLOWEST;
    memcpy(timeline->slowest, starts, timeline->n_slowest * sizeof *starts);
    return 0;
}

int view_timeline_read(const char *name, const char *run_path, struct facts_kept *kept,
                       struct view_timeline *timeline, ty_error *err) {
    const struct view_facts *facts;
    *timeline = (struct view_timeline){.kept = kept};
    int result = facts_take(run_path, kept, &timeline->own, &facts, err);
    if (result < 0) return result;
    result = view_summary_read_of(name, run_path, facts, &timeline->summary, err);
    if (result >= 0 && measure_ranks(timeline) < 0) result = ty_fail_memory(err);
    if (result < 0) {
        view_timeline_done(timeline);
        return result;
    }
    timeline->began = duration_seconds(timeline->summary.began);
    measure_shares(timeline, facts);
    return 0;
}

void view_timeline_done(struct view_timeline *timeline) {
    view_summary_done(&timeline->summary);
    facts_give_back(timeline->kept, &timeline->own);
}

/* -- JSON */

static void encode_quantiles(const char *name, const struct view_quantiles *quantiles, struct buffer *out) {
    const double values[] = {quantiles->least, quantiles->lower, quantiles->median, quantiles->upper,
                             quantiles->greatest};
    buffer_printf(out, "\"%s\": ", name);
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        buffer_text(out, i == 0 ? "[" : ", ");
        encode_number(out, values[i]);
    }
    buffer_char(out, ']');
}

const char *view_share_name(enum view_share share) {
    static const char *const names[] = {
#define X(name, text) text,
        VIEW_SHARES(X)
#undef X
    };
    return names[share];
}

void view_timeline_encode(const struct view_timeline *timeline, struct buffer *out) {
    const struct run_replay *replay = &timeline->summary.replay;
    buffer_text(out, "{\"began\": ");
    encode_number(out, timeline->began);
    buffer_text(out, ", \"seconds\": ");
    encode_number(out, timeline->seconds);
    buffer_text(out, ", \"shares\": [");
    for (size_t i = 0; i < VIEW_SHARES_N; i++) {
        buffer_printf(out, "%s{\"share\": \"%s\", \"seconds\": ", i > 0 ? ", " : "",
                      view_share_name((enum view_share)i));
        encode_number(out, timeline->shares[i]);
        buffer_char(out, '}');
    }
    json_t *list = view_summary_phases_json(&timeline->summary);
    CLEANUP_FREE char *phases = list != NULL ? json_format(list, JSON_COMPACT) : NULL;
    json_decref(list);
    buffer_printf(out, "], \"start_up\": %s", phases != NULL ? phases : "[]");
    buffer_text(out, ", \"quantiles\": {");
    encode_quantiles("spawn", &timeline->spawn, out);
    buffer_text(out, ", ");
    encode_quantiles("loader", &timeline->loader, out);
    buffer_text(out, ", ");
    encode_quantiles("rendezvous", &timeline->rendezvous, out);
    buffer_text(out, "}, \"slowest\": [");
    for (size_t i = 0; i < timeline->n_slowest; i++) {
        const struct view_rank_start *start = &timeline->slowest[i];
        buffer_printf(out, "%s{\"rank\": %d, \"spawn\": ", i > 0 ? ", " : "", start->rank);
        encode_number(out, start->spawn);
        buffer_text(out, ", \"loader\": ");
        encode_number(out, start->loader);
        buffer_text(out, ", \"rendezvous\": ");
        encode_number(out, start->rendezvous);
        buffer_text(out, ", \"seconds\": ");
        encode_number(out, start->total);
        buffer_char(out, '}');
    }
    buffer_text(out, "], \"attempts\": ");
    result_history(replay->attempts, replay->n_attempts, clock_wall(), out);
    buffer_char(out, '}');
}

/* -- events */

struct events_reading {
    struct buffer *out;
    int64_t after, last;
    size_t limit, n;
    const char *kind; /* NULL: any */
};

enum { EVENTS_FULL = 1 };

static int encode_event(void *context, int64_t sequence, const struct journal_event *row) {
    struct events_reading *reading = context;
    struct event_memory memory = {0};
    struct run_event event;
    if (reading->n == reading->limit) return EVENTS_FULL;
    if (reading->kind != NULL && !str_equal(reading->kind, run_event_name(row->kind))) return 0;
    int result = journal_event_values(row, &event, &memory);
    struct buffer *out = reading->out;
    buffer_printf(out, "%s{\"sequence\": %lld, \"time\": ", reading->n++ > 0 ? ", " : "", (long long)sequence);
    encode_number(out, duration_seconds(row->time));
    buffer_printf(out, ", \"kind\": \"%s\", \"attempt\": %d, \"rank\": ", run_event_name(row->kind),
                  row->attempt);
    encode_rank(out, row->rank);
    buffer_text(out, ", \"node\": ");
    encode_rank(out, row->node);
    buffer_text(out, ", \"data\": {");
    (void)run_event_members(&event, out);
    buffer_text(out, "}}");
    event_memory_done(&memory);
    reading->last = sequence;
    return result < 0 || out->failed ? -ENOMEM : 0;
}

/* From the beginning each time: what was read while the journal changed is thrown away (journal_read). */
static int read_events(void *context, struct journal *journal, ty_error *err) {
    struct events_reading *reading = context;
    reading->n = 0;
    reading->last = reading->after;
    buffer_clear(reading->out);
    int result = journal_each_event(journal, reading->after, encode_event, reading, err);
    return result == EVENTS_FULL ? 0 : result;
}

int view_events_encode(const char *run_path, const struct view_events *which, struct buffer *out,
                       ty_error *err) {
    CLEANUP(buffer_done) struct buffer rows = {0};
    struct events_reading reading = {
        .out = &rows, .after = which->after, .limit = which->limit, .kind = which->kind};
    int result = journal_read(run_path, read_events, &reading, err);
    if (result < 0) return result == -ENOMEM ? ty_fail_memory(err) : result;
    buffer_printf(out, "{\"last\": %lld, \"events\": [", (long long)reading.last);
    if (rows.size > 0) buffer_append(out, rows.data, rows.size);
    buffer_text(out, "]}");
    return 0;
}

/* -- checkpoints */

struct scored_checkpoint {
    double score; /* greater is better */
    size_t index;
};

static int best_first(const void *a, const void *b) {
    const struct scored_checkpoint *x = a, *y = b;
    if (isnan(x->score) != isnan(y->score)) return isnan(x->score) ? 1 : -1;
    if (!isnan(x->score) && x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->index < y->index) - (x->index > y->index);
}

/* Places from 1, of equals the newer first, as the run ranks them; 0 where there is no score. */
static int rank_by_score(enum score_order order, const double *scores, size_t n, size_t *places) {
    CLEANUP_FREE struct scored_checkpoint *sorted = calloc(n + 1, sizeof *sorted);
    if (sorted == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        sorted[i] = (struct scored_checkpoint){order == SCORE_MIN ? -scores[i] : scores[i], i};
    qsort(sorted, n, sizeof *sorted, best_first);
    for (size_t i = 0; i < n; i++)
        places[sorted[i].index] = isnan(sorted[i].score) ? 0 : i + 1;
    return 0;
}

/* Bytes are counted in its directory now. A place of the user's is not looked into: it may be anywhere, and
 * large. */
static void encode_checkpoint(const char *run_path, const struct fact_checkpoint *checkpoint, double score,
                              size_t place, struct buffer *out) {
    buffer_printf(out, "{\"number\": %llu, \"attempt\": %d, \"time\": ", (unsigned long long)checkpoint->number,
                  checkpoint->attempt);
    encode_number(out, duration_seconds(checkpoint->time));
    buffer_text(out, ", \"name\": ");
    buffer_json_text(out, checkpoint->name);
    buffer_text(out, ", \"score\": ");
    encode_number(out, score);
    buffer_text(out, ", \"rank\": ");
    encode_number_if(out, place > 0, (double)place);
    buffer_text(out, ", \"bytes\": ");
    CLEANUP(buffer_done) struct buffer path = {0};
    struct run_disk disk;
    checkpoint_path(run_path, checkpoint->name, &path);
    bool known =
        !checkpoint_is_place(checkpoint->name) && !path.failed && run_disk_read(path.data, &disk, NULL) >= 0;
    encode_number_if(out, known, known ? (double)disk.bytes : 0);
    json_t *metrics =
        checkpoint->metrics != NULL ? metrics_read(checkpoint->metrics, strlen(checkpoint->metrics)) : NULL;
    CLEANUP_FREE char *text = metrics != NULL ? json_format(metrics, JSON_COMPACT) : NULL;
    json_decref(metrics);
    buffer_printf(out, ", \"metrics\": %s}", text != NULL ? text : "null");
}

int view_checkpoints_encode(const char *run_path, struct buffer *out, ty_error *err) {
    struct view_facts facts;
    int result = view_facts_read(run_path, &facts, err);
    if (result < 0) return result;
    const struct event_run *run = &facts.replay.run.event.of.run;
    enum score_order order = str_equal(run->checkpoint_score_order, "min") ? SCORE_MIN : SCORE_MAX;
    size_t n = facts.n_checkpoints;
    CLEANUP_FREE double *scores = calloc(n + 1, sizeof *scores);
    CLEANUP_FREE size_t *places = calloc(n + 1, sizeof *places);
    if (scores == NULL || places == NULL) result = -ENOMEM;
    for (size_t i = 0; i < n && result == 0; i++)
        scores[i] = retention_score(facts.checkpoints[i].metrics, run->checkpoint_score_attribute);
    if (result == 0) result = rank_by_score(order, scores, n, places);
    buffer_char(out, '[');
    for (size_t i = n; i-- > 0 && result == 0;) {
        encode_checkpoint(run_path, &facts.checkpoints[i], scores[i], places[i], out);
        if (i > 0) buffer_text(out, ", ");
    }
    buffer_char(out, ']');
    view_facts_done(&facts);
    return result < 0 ? ty_fail_memory(err) : 0;
}
