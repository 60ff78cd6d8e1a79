/* A run as a trace: each event becomes what it is there at once, each report the slice since the one before it.
 * What torch's profiler saw is added by profile.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/str.h"
#include "journal/journal.h"
#include "run/settings.h"
#include "view/encode.h"
#include "view/export.h"
#include "view/facts.h"
#include "view/report_json.h"
#include "view/scan.h"
#include "view/usage.h"

enum {
    TRACE_BYTES_MAX = 255 << 20,
    TRACE_COUNTERS = 20,
    TRACE_USAGE_BUCKETS = 300,
    RUN_PROCESS = 1,
    RUN_THREAD = 1,
    OF_RUN = -1
};

/* What the track of a rank holds so far. */
struct trace_rank {
    nanoseconds executed, able; /* since its process began; since it is ready, or in its group */
    nanoseconds end;            /* of the last span, later of the last report */
    nanoseconds last;           /* report of the attempt; 0: none */
    int attempt;                /* of that */
};

/* When a rank became able to report. */
struct trace_start {
    int attempt, rank;
    nanoseconds able;
};

/* A slice that is written of what the events tell; a rank's, or an attempt on the track of the run. */
struct trace_span {
    int rank; /* OF_RUN */
    nanoseconds from, to;
};

/* The attempt of the same index in the replay, which tells what it came to. */
struct trace_attempt {
    int attempt;
    nanoseconds began, ended; /* ended 0: nobody tells */
    nanoseconds last;         /* event or report of it */
};

/* Which nodes the ranks are on from an attempt on. */
struct trace_plan {
    int attempt;
    size_t *nodes; /* of each rank, its place in the names; n, owned */
    size_t n;
};

struct trace_writing {
    const struct view_trace *asked;
    struct view_facts facts;
    struct view_outlet outlet;
    char **nodes; /* names of all that any attempt was on; n_nodes, owned */
    size_t n_nodes;
    struct hash *known;       /* places of names there; owned */
    struct trace_plan *plans; /* by attempt; n_plans, owned */
    size_t n_plans;
    const struct trace_plan *plan; /* of what is written; NULL: nobody has told of one */
    struct trace_rank *ranks;      /* n_ranks, owned */
    size_t n_ranks;
    struct trace_start *starts; /* n_starts, owned; by attempt, then as they came */
    size_t n_starts;
    struct trace_span *spans; /* n_spans, owned; by track, then as they follow each other there, once sorted */
    size_t n_spans;
    struct trace_attempt *attempts; /* n_attempts, owned */
    size_t n_attempts, reported;    /* reported: whose report came last */
    nanoseconds end;                /* of the last attempt that is written */
    nanoseconds launched, cause_time;
    int cause_rank, cause_attempt; /* the first that ended badly; -1: none */
    unsigned flows;
    bool any, cut;
};

/* -- pieces */

/* Microseconds, as the format has them; nanoseconds stand behind the point. */
static void append_time(struct buffer *out, nanoseconds time) {
    encode_int(out, time / 1000);
    int rest = (int)(time % 1000);
    if (rest > 0) buffer_printf(out, ".%03d", rest);
}

static nanoseconds since(const struct trace_writing *writing, nanoseconds time) {
    return time > writing->facts.first ? time - writing->facts.first : 0;
}

/* {"ph", "name", "pid", "tid", "ts" of an event; what is particular to it follows, and `}`. */
static struct buffer *begin(struct trace_writing *writing, char phase, const char *name, int pid, int tid,
                            nanoseconds at) {
    struct buffer *out = &writing->outlet.text;
    buffer_text(out, writing->any ? ",\n" : "\n");
    writing->any = true;
    buffer_printf(out, "{\"ph\":\"%c\",\"name\":", phase);
    buffer_json_text(out, name);
    buffer_printf(out, ",\"pid\":%d,\"tid\":%d,\"ts\":", pid, tid);
    append_time(out, at);
    return out;
}

static void name_track(struct trace_writing *writing, const char *what, int pid, int tid, const char *name) {
    struct buffer *out = begin(writing, 'M', what, pid, tid, 0);
    buffer_text(out, ",\"args\":{\"name\":");
    buffer_json_text(out, name);
    buffer_text(out, "}}");
}

static void sort_process(struct trace_writing *writing, int pid) {
    struct buffer *out = begin(writing, 'M', "process_sort_index", pid, 0, 0);
    buffer_printf(out, ",\"args\":{\"sort_index\":%d}}", pid);
}

/* Node N is the process N + 2. */
static int process_of(const struct trace_writing *writing, int rank) {
    const struct trace_plan *plan = writing->plan;
    return plan != NULL && rank >= 0 && (size_t)rank < plan->n ? (int)plan->nodes[rank] + 2 : 2;
}

/* A rank may be on another node in each attempt, and has a track there. */
static void name_rank(struct trace_writing *writing, size_t rank) {
    int pid = process_of(writing, (int)rank);
    char name[32];
    (void)snprintf(name, sizeof name, "rank %zu", rank);
    name_track(writing, "thread_name", pid, (int)rank + 1, name);
    struct buffer *out = begin(writing, 'M', "thread_sort_index", pid, (int)rank + 1, 0);
    buffer_printf(out, ",\"args\":{\"sort_index\":%zu}}", rank);
}

static bool is_asked(const struct trace_writing *writing, int rank) {
    return rank >= 0 && (size_t)rank < writing->n_ranks &&
           (writing->asked->ranks == NULL || idset_has(writing->asked->ranks, rank));
}

/* All tracks are named first; of a rank one on each node that it was on in any attempt. */
static void write_names(struct trace_writing *writing, const char *name) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text, "run %s", name);
    name_track(writing, "process_name", RUN_PROCESS, 0, text.data);
    sort_process(writing, RUN_PROCESS);
    name_track(writing, "thread_name", RUN_PROCESS, RUN_THREAD, "attempts");
    for (size_t i = 0; i < (writing->n_nodes > 0 ? writing->n_nodes : 1); i++) {
        buffer_clear(&text);
        buffer_printf(&text, "node %s", writing->n_nodes > 0 ? writing->nodes[i] : "?");
        name_track(writing, "process_name", (int)i + 2, 0, text.data);
        sort_process(writing, (int)i + 2);
    }
    for (size_t rank = 0; rank < writing->n_ranks; rank++) {
        int before = 0;
        if (!is_asked(writing, (int)rank)) continue;
        for (size_t i = 0; i < writing->n_plans || i == 0; i++) {
            writing->plan = i < writing->n_plans ? &writing->plans[i] : NULL;
            bool there = writing->plan == NULL || rank < writing->plan->n;
            if (there && process_of(writing, (int)rank) != before) name_rank(writing, rank);
            if (there) before = process_of(writing, (int)rank);
        }
    }
}

/* -- plans */

/* Where the node of that name is among all; SIZE_MAX where memory is short. */
static size_t place_node(struct trace_writing *writing, const char *name) {
    const uintptr_t *place = hash_get(writing->known, name);
    if (place != NULL) return *place;
    if (ARRAY_GROW(writing->nodes, writing->n_nodes) < 0) return SIZE_MAX;
    char *copy = strdup(name);
    if (copy == NULL) return SIZE_MAX;
    writing->nodes[writing->n_nodes++] = copy;
    return hash_set(writing->known, name, writing->n_nodes - 1) < 0 ? SIZE_MAX : writing->n_nodes - 1;
}

/* Ranks are kept by the places of their nodes among all: a plan names its own nodes in an order of its own. */
static int add_plan(struct trace_writing *writing, const struct event_plan *told, int attempt) {
    const struct event_texts *names = &told->nodes;
    CLEANUP_FREE size_t *places = calloc(names->n + 1, sizeof *places);
    if (places == NULL || ARRAY_GROW(writing->plans, writing->n_plans) < 0) return -ENOMEM;
    struct trace_plan plan = {attempt, calloc(told->ranks.n + 1, sizeof *plan.nodes), told->ranks.n};
    if (plan.nodes == NULL) return -ENOMEM;
    writing->plans[writing->n_plans++] = plan;
    for (size_t i = 0; i < names->n; i++)
        if ((places[i] = place_node(writing, names->items[i])) == SIZE_MAX) return -ENOMEM;
    for (size_t rank = 0; rank < plan.n; rank++)
        plan.nodes[rank] = told->ranks.items[rank] < names->n ? places[told->ranks.items[rank]] : 0;
    return 0;
}

/* One that was made is the next attempt's. */
static int add_plans(struct trace_writing *writing, const struct run_event *events, size_t n) {
    const struct run_event *plan = NULL;
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        if (events[i].kind == EVENT_PLAN) plan = &events[i];
        if (events[i].kind != EVENT_ATTEMPT || plan == NULL) continue;
        result = add_plan(writing, &plan->of.plan, events[i].attempt);
        plan = NULL;
    }
    return result == 0 && plan != NULL ? add_plan(writing, &plan->of.plan, plan->attempt) : result;
}

static bool is_of_later(const void *plan, const void *attempt) {
    return ((const struct trace_plan *)plan)->attempt <= *(const int *)attempt;
}

/* What is written from here on is of this attempt. */
static void turn_to(struct trace_writing *writing, int attempt) {
    size_t n = array_place(writing->plans, writing->n_plans, sizeof *writing->plans, is_of_later, &attempt);
    writing->plan = writing->n_plans == 0 ? NULL : &writing->plans[n > 0 ? n - 1 : 0];
}

/* -- slices: those of a track lie behind each other, or in each other */

static struct buffer *begin_slice(struct trace_writing *writing, int rank, const char *name,
                                  const char *category, nanoseconds from, nanoseconds to) {
    int pid = rank == OF_RUN ? RUN_PROCESS : process_of(writing, rank);
    struct buffer *out = begin(writing, 'X', name, pid, rank == OF_RUN ? RUN_THREAD : rank + 1, from);
    buffer_text(out, ",\"dur\":");
    append_time(out, to - from);
    buffer_printf(out, ",\"cat\":\"%s\"", category);
    return out;
}

/* Times since the run's beginning. A slice begins no earlier than the one before it, which ended at `*end`, has
 * ended: clocks go back. */
static void put_behind(const struct trace_writing *writing, nanoseconds *end, nanoseconds *from,
                       nanoseconds *to) {
    *from = since(writing, *from);
    *to = since(writing, *to);
    if (*from < *end) *from = *end;
    if (*to < *from) *to = *from;
    *end = *to;
}

/* A slice of what an event tells: those of a track come in their order. */
static struct buffer *begin_span(struct trace_writing *writing, int rank, const char *name,
                                 const char *category, nanoseconds from, nanoseconds to) {
    put_behind(writing, rank == OF_RUN ? &writing->end : &writing->ranks[rank].end, &from, &to);
    struct buffer *out = begin_slice(writing, rank, name, category, from, to);
    if (ARRAY_GROW(writing->spans, writing->n_spans) < 0)
        out->failed = true;
    else
        writing->spans[writing->n_spans++] = (struct trace_span){rank, from, to};
    return out;
}

static int by_track(const void *a, const void *b) {
    const struct trace_span *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static void sort_spans(struct trace_writing *writing) {
    if (writing->n_spans > 0) qsort(writing->spans, writing->n_spans, sizeof *writing->spans, by_track);
}

static bool ends_before(const void *item, const void *key) {
    const struct trace_span *span = item, *other = key;
    return span->rank < other->rank || (span->rank == other->rank && span->to <= other->from);
}

/* The first span of a track that ends behind this time, or NULL. */
static const struct trace_span *find_span(const struct trace_writing *writing, int rank, nanoseconds time) {
    const struct trace_span key = {.rank = rank, .from = time};
    size_t place = array_place(writing->spans, writing->n_spans, sizeof key, ends_before, &key);
    return place < writing->n_spans && writing->spans[place].rank == rank ? &writing->spans[place] : NULL;
}

/* Cuts a slice that begins or ends within a span, and does not lie in it, at the span's edge. */
static void fit_between(const struct trace_writing *writing, int rank, nanoseconds *from, nanoseconds *to) {
    const struct trace_span *span;
    while ((span = find_span(writing, rank, *from)) != NULL && span->from <= *from) {
        if (*to <= span->to) return;
        *from = span->to;
    }
    span = find_span(writing, rank, *to);
    if (span != NULL && span->from < *to) *to = span->from;
}

static void write_phase(struct trace_writing *writing, int rank, const char *name, nanoseconds from,
                        nanoseconds to) {
    if (from <= 0 || to < from) return;
    buffer_char(begin_span(writing, rank, name, "start", from, to), '}');
}

/* Phases follow each other, as in the summary: spawned, loaded, in its group. */
static int write_start(struct trace_writing *writing, const struct run_event *event) {
    if (!is_asked(writing, event->rank)) return 0;
    struct trace_rank *rank = &writing->ranks[event->rank];
    switch ((int)event->kind) {
    case EVENT_STARTED:
        write_phase(writing, event->rank, "spawn", writing->launched, event->time);
        rank->executed = event->time;
        break;
    case EVENT_READY:
        write_phase(writing, event->rank, "loader", rank->executed, event->time);
        break;
    default:
        write_phase(writing, event->rank, "rendezvous", rank->able, event->time);
    }
    rank->able = event->time;
    if (ARRAY_GROW(writing->starts, writing->n_starts) < 0) return -ENOMEM;
    writing->starts[writing->n_starts++] = (struct trace_start){event->attempt, event->rank, event->time};
    return 0;
}

/* -- instants and ends */

/* Of an end that its event tells by numbers, or in other words, behind what that says. */
static void write_cause(const struct run_event *event, struct buffer *out) {
    const struct event_exited *exited = &event->of.exited;
    char name[32];
    if (event->kind == EVENT_NODE_LOST && event->of.node_lost.reason != NULL) {
        buffer_text(out, ",\"cause\":");
        buffer_json_text(out, event->of.node_lost.reason);
    }
    if (event->kind != EVENT_EXITED || exited->cause != NULL) return;
    if (exited->signal != EVENT_UNKNOWN)
        buffer_printf(out, ",\"cause\":\"rank %d was killed by %s\"", event->rank,
                      str_signal((int)exited->signal, name));
    else if (exited->code != EVENT_UNKNOWN)
        buffer_printf(out, ",\"cause\":\"rank %d exited with code %lld\"", event->rank,
                      (long long)exited->code);
}

static void write_instant(struct trace_writing *writing, const struct run_event *event, char scope) {
    bool ranked = event->rank >= 0 && (size_t)event->rank < writing->n_ranks;
    int pid = scope == 'g' && ranked ? process_of(writing, event->rank) : RUN_PROCESS;
    int tid = scope == 'g' && ranked ? event->rank + 1 : RUN_THREAD;
    struct buffer *out =
        begin(writing, 'i', run_event_name(event->kind), pid, tid, since(writing, event->time));
    buffer_printf(out, ",\"s\":\"%c\",\"cat\":\"event\",\"args\":{", scope);
    (void)run_event_members(event, out);
    write_cause(event, out);
    if (event->kind == EVENT_CHECKPOINT)
        for (size_t i = 0; i < writing->facts.n_checkpoints; i++) {
            const struct fact_checkpoint *kept = &writing->facts.checkpoints[i];
            if ((int64_t)kept->number != event->of.checkpoint.number) continue;
            buffer_text(out, ",\"score\":");
            encode_number(out,
                          retention_score(kept->metrics,
                                          writing->facts.replay.run.event.of.run.checkpoint_score_attribute));
        }
    buffer_text(out, "}}");
}

static void write_flow(struct trace_writing *writing, char phase, int rank, nanoseconds time, unsigned id) {
    struct buffer *out = begin(writing, phase, "first cause", process_of(writing, rank), rank + 1, time);
    buffer_printf(out, ",\"cat\":\"cause\",\"id\":%u%s}", id, phase == 'f' ? ",\"bp\":\"e\"" : "");
}

/* The first that ended badly leads to those that were stopped for it. */
static void write_exit(struct trace_writing *writing, const struct run_event *event) {
    const struct event_exited *exited = &event->of.exited;
    bool bad = !exited->stopped && exited->code != 0;
    if (bad) write_instant(writing, event, 'g');
    if (!is_asked(writing, event->rank) || (!bad && !exited->stopped)) return;
    const char *name = bad ? "ended badly" : "stopped";
    buffer_char(begin_span(writing, event->rank, name, "end", event->time, event->time + 1000), '}');
    nanoseconds at = writing->n_spans > 0 ? writing->spans[writing->n_spans - 1].from : 0;
    if (bad && writing->cause_attempt != event->attempt) {
        writing->cause_attempt = event->attempt;
        writing->cause_rank = event->rank;
        writing->cause_time = at;
    } else if (exited->stopped && writing->cause_attempt == event->attempt) {
        write_flow(writing, 's', writing->cause_rank, writing->cause_time, ++writing->flows);
        write_flow(writing, 'f', event->rank, at, writing->flows);
    }
}

/* An attempt of which nobody tells the end lasts to the last that is known of it. One that was adopted went on
 * between two controllers. */
static int note_attempt(struct trace_writing *writing, const struct run_event *event) {
    size_t n = writing->n_attempts;
    if (event->kind == EVENT_ATTEMPT) {
        if (ARRAY_GROW(writing->attempts, n) < 0) return -ENOMEM;
        writing->attempts[writing->n_attempts++] =
            (struct trace_attempt){.attempt = event->attempt, .began = event->time, .last = event->time};
        return 0;
    }
    struct trace_attempt *attempt = n > 0 ? &writing->attempts[n - 1] : NULL;
    if (attempt == NULL || event->attempt != attempt->attempt) return 0;
    if (event->kind == EVENT_ATTEMPT_END) attempt->ended = event->time;
    if (event->time > attempt->last) attempt->last = event->time;
    return 0;
}

static int write_event(struct trace_writing *writing, const struct run_event *event) {
    switch ((int)event->kind) {
    case EVENT_ATTEMPT:
    case EVENT_LAUNCHED:
        writing->launched = event->time;
        return 0;
    case EVENT_STARTED:
    case EVENT_READY:
    case EVENT_RENDEZVOUS:
        return write_start(writing, event);
    case EVENT_EXITED:
        write_exit(writing, event);
        return 0;
    case EVENT_HUNG:
    case EVENT_HARDWARE:
    case EVENT_NODE_LOST:
    case EVENT_NODE_STATE:
    case EVENT_START_FAILED:
        write_instant(writing, event, 'g');
        return 0;
    case EVENT_CHECKPOINT:
    case EVENT_CHECKPOINT_REMOVED:
    case EVENT_CHECKPOINT_LOST:
        write_instant(writing, event, 'p');
        return 0;
    default:
        return 0;
    }
}

struct trace_events {
    struct run_event *events; /* with their memory: kept until the reading is known to be right */
    struct event_memory *memories;
    size_t n;
    int64_t last; /* of those that the replay knows */
};

static void forget_events(struct trace_events *events) {
    for (size_t i = 0; i < events->n; i++)
        event_memory_done(&events->memories[i]);
    free(TAKE(events->events));
    free(TAKE(events->memories));
    events->n = 0;
}

static int keep_event(void *context, int64_t sequence, const struct journal_event *row) {
    struct trace_events *events = context;
    if (sequence > events->last) return 0;
    if (ARRAY_GROW(events->events, events->n) < 0 || ARRAY_GROW(events->memories, events->n) < 0)
        return -ENOMEM;
    events->memories[events->n] = (struct event_memory){0};
    int result = journal_event_values(row, &events->events[events->n], &events->memories[events->n]);
    events->n++;
    return result < 0 ? -ENOMEM : 0;
}

/* Events are kept in memory until the reading is known to be right, since what is written cannot be taken
 * back. */
static int read_events(void *context, struct journal *journal, ty_error *err) {
    struct trace_events *events = context;
    forget_events(events);
    int result = journal_each_event(journal, 0, keep_event, events, err);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

static int write_events(struct trace_writing *writing, const char *name, const char *run_path, ty_error *err) {
    struct trace_events events = {.last = writing->facts.sequence};
    int result = journal_read(run_path, read_events, &events, err);
    if (result == 0) result = add_plans(writing, events.events, events.n);
    if (result == 0) write_names(writing, name);
    for (size_t i = 0; i < events.n && result == 0; i++) {
        turn_to(writing, events.events[i].attempt);
        result = note_attempt(writing, &events.events[i]);
        if (result == 0) result = write_event(writing, &events.events[i]);
        if (result == 0) result = view_outlet_drain(&writing->outlet);
    }
    forget_events(&events);
    return result;
}

/* -- reports */

static int by_start(const void *a, const void *b) {
    const struct trace_start *x = a, *y = b;
    if (x->attempt != y->attempt) return x->attempt < y->attempt ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The last start of each attempt and rank. */
static void sort_starts(struct trace_writing *writing) {
    size_t kept = 0;
    if (writing->n_starts == 0) return;
    qsort(writing->starts, writing->n_starts, sizeof *writing->starts, by_start);
    for (size_t i = 1; i < writing->n_starts; i++) {
        struct trace_start *last = &writing->starts[kept], *next = &writing->starts[i];
        if (by_start(last, next) != 0)
            writing->starts[++kept] = *next;
        else if (next->able > last->able)
            last->able = next->able;
    }
    writing->n_starts = kept + 1;
}

static void note_report(struct trace_writing *writing, const struct journal_report *report) {
    size_t i = writing->reported;
    if (i >= writing->n_attempts || writing->attempts[i].attempt != report->attempt)
        for (i = 0; i < writing->n_attempts && writing->attempts[i].attempt != report->attempt;)
            i++;
    if (i == writing->n_attempts) return;
    if (report->time > writing->attempts[i].last) writing->attempts[i].last = report->time;
    writing->reported = i;
}

/* A report is the slice since the one before it, the first one since its rank could report. What went before a
 * report that is not asked for is noted all the same, so that the first that is asked for begins where it
 * did. */
static int write_report(void *context, const struct journal_report *report) {
    struct trace_writing *writing = context;
    const struct view_trace *asked = writing->asked;
    note_report(writing, report);
    if (!is_asked(writing, report->rank) || writing->cut) return 0;
    struct trace_rank *rank = &writing->ranks[report->rank];
    turn_to(writing, report->attempt);
    bool first = rank->last == 0 || rank->attempt != report->attempt;
    bool chosen = report->number >= asked->from && (asked->to == 0 || report->number <= asked->to);
    const struct trace_start key = {report->attempt, report->rank, 0}, *start = NULL;
    if (first && writing->n_starts > 0)
        start = bsearch(&key, writing->starts, writing->n_starts, sizeof key, by_start);
    nanoseconds from = !first ? rank->last : start != NULL ? start->able : 0, to = report->time;
    char name[32];
    (void)snprintf(name, sizeof name, "report %llu", (unsigned long long)report->number);
    if (chosen && (!first || from > 0)) {
        put_behind(writing, &rank->end, &from, &to);
        fit_between(writing, report->rank, &from, &to);
        struct buffer *out = begin_slice(writing, report->rank, first ? "first report" : name,
                                         first ? "start" : "report", from, to);
        buffer_text(out, ",\"args\":");
        (void)report_json_append(report, out);
        buffer_char(out, '}');
    }
    rank->last = report->time;
    rank->attempt = report->attempt;
    int result = view_outlet_drain(&writing->outlet);
    writing->cut = writing->outlet.written > TRACE_BYTES_MAX;
    return result;
}

/* -- the run's own track */

/* Behind the reports: an attempt that says no end lasts to its last one. */
static void write_attempts(struct trace_writing *writing) {
    const struct run_replay *replay = &writing->facts.replay;
    for (size_t i = 0; i < writing->n_attempts && i < replay->n_attempts; i++) {
        const struct ty_attempt_info *info = &replay->attempts[i];
        const struct trace_attempt *attempt = &writing->attempts[i];
        nanoseconds ended = attempt->ended > 0 ? attempt->ended : attempt->last;
        char name[32];
        (void)snprintf(name, sizeof name, "attempt %d", info->attempt);
        struct buffer *out = begin_span(writing, OF_RUN, name, "attempt", attempt->began, ended);
        buffer_text(out, ",\"args\":{\"outcome\":");
        buffer_json_text(out, info->outcome);
        buffer_text(out, ",\"cause\":");
        buffer_json_text(out, info->cause);
        buffer_text(out, "}}");
    }
}

static void write_run_phase(struct trace_writing *writing, const char *name, nanoseconds from, nanoseconds to) {
    from = since(writing, from);
    to = since(writing, to);
    fit_between(writing, OF_RUN, &from, &to);
    buffer_char(begin_slice(writing, OF_RUN, name, "start", from, to), '}');
}

/* Plans and the way to the agents lie before the workers. */
static void write_run_start(struct trace_writing *writing) {
    const struct replay_start *start = &writing->facts.replay.first_start;
    nanoseconds took = (nanoseconds)(start->plan_seconds * (double)NS_PER_S), up = start->node.event.time;
    if (start->began == 0) return;
    if (start->planned) write_run_phase(writing, "plan", start->began - took, start->began);
    if (up > start->began) write_run_phase(writing, "agent", start->began, up);
}

/* -- means */

/* Means over the ranks of the metrics that are reported most, in as many buckets as a plot has: of each report
 * a counter would make the file many times as large. */
static int write_counters(struct trace_writing *writing, const char *run_path, ty_error *err) {
    const struct view_selection all = {0};
    struct view_metrics metrics;
    int result = view_metrics_read(run_path, &all, false, &metrics, err);
    if (result < 0) return result;
    for (size_t i = 0, n = 0; i < metrics.n && n < TRACE_COUNTERS && result >= 0; i++) {
        const char *metric = metrics.items[i].name;
        if (metrics.items[i].text) continue;
        n++;
        struct view_query query = view_query_new(metric);
        struct view_series series;
        query.x = "relative";
        result = view_series_read(run_path, &query, &series, err);
        if (result < 0) break;
        for (size_t k = 0; k < series.lines[0].n; k++) {
            const struct view_bucket *bucket = &series.lines[0].buckets[k];
            if (bucket->n == 0) continue;
            struct buffer *out =
                begin(writing, 'C', metric, RUN_PROCESS, 0, (nanoseconds)(bucket->x * (double)NS_PER_S));
            buffer_text(out, ",\"args\":{\"mean\":");
            encode_number(out, bucket->sum / (double)bucket->n);
            buffer_text(out, "}}");
        }
        view_series_done(&series);
        result = view_outlet_drain(&writing->outlet);
    }
    view_metrics_done(&metrics);
    return result;
}

/* -- hardware, on the tracks of the nodes */

/* "power GPU 1", in watts. */
static void write_usage_line(struct trace_writing *writing, const struct view_usage_line *line,
                             enum usage_what what) {
    const char *about = usage_table[what].text + strlen("device_");
    const uintptr_t *place = hash_get(writing->known, line->node);
    int process = place != NULL ? (int)*place + 2 : RUN_PROCESS;
    char name[64];
    if (line->number >= 0)
        (void)snprintf(name, sizeof name, "%s GPU %d", about, line->number);
    else
        (void)snprintf(name, sizeof name, "%s", about);
    for (size_t i = 0; i < line->n; i++) {
        nanoseconds at = (nanoseconds)(line->points[i].x * (double)NS_PER_S);
        struct buffer *out = begin(writing, 'C', name, process, 0, since(writing, at));
        buffer_printf(out, ",\"args\":{\"%s\":", usage_table[what].unit);
        encode_number(out, line->points[i].mean);
        buffer_text(out, "}}");
    }
}

/* Of each device; where there are too many of each node. */
static int write_usage(struct trace_writing *writing, const char *run_path, ty_error *err) {
    static const char *const whats[] = {"device_power", "device_utilization", "device_memory"};
    int result = 0;
    for (size_t i = 0; i < ARRAY_SIZE(whats) && result >= 0; i++) {
        struct view_usage_lines lines;
        struct view_usage_query query = {
            .what = whats[i], .from = (double)NAN, .to = (double)NAN, .buckets = TRACE_USAGE_BUCKETS};
        result = view_usage_lines_read(run_path, &query, &lines, err);
        if (result >= 0 && lines.n_all > lines.n) {
            view_usage_lines_done(&lines);
            query.over = VIEW_USAGE_NODE;
            result = view_usage_lines_read(run_path, &query, &lines, err);
        }
        for (size_t k = 0; result >= 0 && k < lines.n; k++) {
            write_usage_line(writing, &lines.items[k], lines.what);
            result = view_outlet_drain(&writing->outlet);
        }
        view_usage_lines_done(&lines);
    }
    return result == -ENOENT ? 0 : result; /* none were kept */
}

/* -- together */

/* The order is that of the file: events of which slices are made first, since reports are cut at these
 * (fit_between), then the run's own track, of which the reports tell the ends. */
static int write_all(struct trace_writing *writing, const char *name, const char *run_path, ty_error *err) {
    struct buffer *out = &writing->outlet.text;
    struct view_scan scan = {0};
    buffer_text(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    int result = write_events(writing, name, run_path, err);
    for (size_t i = 0; i < writing->n_ranks; i++)
        writing->ranks[i].end = 0;
    sort_starts(writing);
    sort_spans(writing);
    if (result == 0) result = view_scan(run_path, &scan, write_report, writing, err);
    write_attempts(writing);
    sort_spans(writing);
    write_run_start(writing);
    if (result == 0) result = write_counters(writing, run_path, err);
    if (result == 0 && !writing->cut) result = write_usage(writing, run_path, err);
    if (result == 0 && !writing->cut && writing->asked->with_profile)
        result = view_profiles_write(run_path, writing->asked->ranks, writing->facts.first, TRACE_BYTES_MAX,
                                     &writing->outlet);
    if (result > 0) writing->cut = true;
    buffer_text(out, "\n],\"otherData\":{\"run\":");
    buffer_json_text(out, name);
    buffer_printf(out, ",\"trainyard\":\"%s\",\"began_ns\":\"%lld\"", TY_VERSION,
                  (long long)writing->facts.first);
    if (writing->cut)
        buffer_printf(out, ",\"cut\":\"at %d MiB; --ranks, --from and --to choose what is traced\"",
                      TRACE_BYTES_MAX >> 20);
    buffer_text(out, "}}\n");
    return result < 0 ? result : 0;
}

int view_trace_write(const char *name, const char *run_path, const struct view_trace *trace, view_sink *sink,
                     void *context, ty_error *err) {
    struct trace_writing writing = {.asked = trace, .cause_rank = -1, .cause_attempt = -1};
    writing.outlet = (struct view_outlet){.sink = sink, .context = context, .err = err};
    int result = view_facts_read(run_path, &writing.facts, err);
    if (result < 0) return result;
    writing.n_ranks = writing.facts.replay.n_workers;
    writing.ranks = calloc(writing.n_ranks + 1, sizeof *writing.ranks);
    writing.known = hash_create();
    bool room = writing.ranks != NULL && writing.known != NULL;
    result = !room ? -ENOMEM : write_all(&writing, name, run_path, err);
    result = view_outlet_finish(&writing.outlet, result);
    view_facts_done(&writing.facts);
    for (size_t i = 0; i < writing.n_nodes; i++)
        free(writing.nodes[i]);
    for (size_t i = 0; i < writing.n_plans; i++)
        free(writing.plans[i].nodes);
    free(writing.nodes);
    free(writing.plans);
    hash_destroy(writing.known);
    free(writing.ranks);
    free(writing.starts);
    free(writing.spans);
    free(writing.attempts);
    return result;
}
