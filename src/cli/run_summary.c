/* Replays a run's journal into a summary. The start that is measured is that of the first attempt, the one that
 * a person waited for. */
#include "cli/run_summary.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "controller/controller.h"
#include "controller/run_lock.h"
#include "journal/journal.h"

const char *run_standing_name(enum run_standing standing) {
    static const char *const names[] = {
#define X(name, text) text,
        RUN_STANDINGS(X)
#undef X
    };
    return names[standing];
}

const char *worker_standing_name(enum worker_standing standing) {
    static const char *const names[] = {
#define X(name, text) text,
        WORKER_STANDINGS(X)
#undef X
    };
    return names[standing];
}

const char *start_phase_name(enum start_phase_kind phase) {
    static const char *const names[] = {
#define X(name, text) text,
        START_PHASES(X)
#undef X
    };
    return names[phase];
}

/* What is remembered of one worker while events go by. */
struct worker_memory {
    enum worker_standing standing;
    nanoseconds started, ready, rendezvous; /* in the first attempt; 0: not yet */
};

struct reading {
    struct run_summary *summary;
    struct worker_memory *workers; /* by rank */
    size_t n_workers;
    nanoseconds last_event;
    nanoseconds began, launched; /* of the first attempt: its begin, and when the nodes got their orders */
    bool ended, failed;          /* failed: out of memory */
};

/* Replaces an owned text, when there is another. */
static void take_text(struct reading *reading, char **text, const char *value) {
    if (value == NULL) return;
    char *copy = strdup(value);
    if (copy == NULL) reading->failed = true;
    free(*text);
    *text = copy;
}

static void drop_text(char **text) {
    free(*text);
    *text = NULL;
}

/* argv as one line; words with blanks in quotes. */
static char *join_command(const struct event_texts *argv) {
    struct buffer line = {0};
    for (size_t i = 0; i < argv->n; i++) {
        const char *text = argv->items[i];
        bool plain = *text != '\0' && text[strcspn(text, " \t\n'\"\\$`;&|<>*?()")] == '\0';
        buffer_printf(&line, plain ? "%s%s" : "%s'%s'", i > 0 ? " " : "", text);
    }
    return buffer_take(&line);
}

static void on_run(struct reading *reading, const struct run_event *event) {
    struct run_summary *summary = reading->summary;
    const struct event_run *run = &event->of.run;
    summary->began = event->time;
    summary->pid = run->pid != EVENT_UNKNOWN ? run->pid : 0;
    take_text(reading, &summary->host, run->host);
    take_text(reading, &summary->version, run->version);
    free(summary->command);
    summary->command = join_command(&run->argv);
    if (run->num_workers != EVENT_UNKNOWN) summary->workers = run->num_workers;
    drop_text(&summary->outcome);
    drop_text(&summary->cause);
    drop_text(&summary->waits_for);
    summary->status = summary->cause_rank = -1;
    reading->ended = false;
}

static void on_wait(struct reading *reading, const struct run_event *event) {
    if (reading->summary->waits_for == NULL) reading->summary->waits_since = event->time;
    take_text(reading, &reading->summary->waits_for, event->of.wait.reason);
}

static void note_size(struct reading *reading, int attempt) {
    struct run_summary *summary = reading->summary;
    size_t n = summary->n_sizes;
    if (n > 0 && summary->sizes[n - 1].workers == summary->workers) return;
    if (ARRAY_GROW(summary->sizes, n) < 0) {
        reading->failed = true;
        return;
    }
    summary->sizes[summary->n_sizes++] = (struct attempt_size){attempt, summary->workers};
}

static void on_attempt(struct reading *reading, const struct run_event *event) {
    struct run_summary *summary = reading->summary;
    const struct event_attempt *told = &event->of.attempt;
    drop_text(&summary->waits_for);
    summary->attempts = event->attempt;
    if (reading->began == 0) reading->began = event->time;
    if (told->workers != EVENT_UNKNOWN) summary->workers = told->workers;
    if (told->nodes != EVENT_UNKNOWN) summary->nodes = (size_t)told->nodes;
    if (summary->workers < 0 || summary->workers > 10 * 1000 * 1000) summary->workers = 0;
    note_size(reading, event->attempt);
    size_t n = (size_t)summary->workers;
    if (n > reading->n_workers) {
        struct worker_memory *workers = reallocarray(reading->workers, n, sizeof *workers);
        if (workers == NULL) {
            reading->failed = true;
            return;
        }
        memset(workers + reading->n_workers, 0, (n - reading->n_workers) * sizeof *workers);
        reading->workers = workers;
        reading->n_workers = n;
    }
    for (size_t i = 0; i < n; i++)
        reading->workers[i].standing = WORKER_WAITING;
}

static struct start_phase *phase_of(struct reading *reading, enum start_phase_kind kind) {
    return &reading->summary->phases[kind];
}

static void note_phase(struct start_phase *phase, nanoseconds duration, int rank) {
    if (phase->known && phase->duration >= duration) return;
    phase->known = true;
    phase->duration = duration > 0 ? duration : 0;
    phase->rank = rank;
}

static void on_plan(struct reading *reading, const struct run_event *event) {
    double seconds = event->of.plan.seconds;
    if (event->attempt > 1 || !(fabs(seconds) < 1e9)) return;
    nanoseconds duration = (nanoseconds)(seconds * (double)NS_PER_S);
    note_phase(phase_of(reading, PHASE_PLAN), duration, -1);
}

static void on_node(struct reading *reading, const struct run_event *event) {
    struct start_phase *phase = phase_of(reading, PHASE_AGENT);
    nanoseconds duration = event->time - reading->began;
    if (event->attempt > 1) return;
    if (phase->known && phase->duration >= duration) return;
    note_phase(phase, duration, -1);
    take_text(reading, &phase->node_name, event->of.node.name);
}

static void on_worker(struct reading *reading, const struct run_event *event) {
    struct worker_memory *worker = &reading->workers[event->rank];
    bool first = event->attempt <= 1;
    switch ((int)event->kind) {
    case EVENT_STARTED:
        worker->standing = WORKER_STARTED;
        if (first) worker->started = event->time;
        if (first && reading->launched > 0)
            note_phase(phase_of(reading, PHASE_SPAWN), event->time - reading->launched, event->rank);
        break;
    case EVENT_READY:
        worker->standing = WORKER_READY;
        if (first) worker->ready = event->time;
        if (first && worker->started > 0)
            note_phase(phase_of(reading, PHASE_LOADER), event->time - worker->started, event->rank);
        break;
    case EVENT_RENDEZVOUS:
        if (first) worker->rendezvous = event->time;
        if (first && worker->ready > 0)
            note_phase(phase_of(reading, PHASE_RENDEZVOUS), event->time - worker->ready, event->rank);
        break;
    case EVENT_EXITED:
        worker->standing = event->of.exited.stopped     ? WORKER_STOPPED
                           : event->of.exited.code == 0 ? WORKER_SUCCEEDED
                                                        : WORKER_FAILED;
        break;
    case EVENT_START_FAILED:
        worker->standing = WORKER_FAILED;
        break;
    default:
        break;
    }
}

/* -1 for what is unknown. */
static int as_int(int64_t value) {
    return value < 0 || value > INT_MAX ? -1 : (int)value;
}

static void on_end(struct reading *reading, const struct event_run_end *end) {
    struct run_summary *summary = reading->summary;
    reading->ended = true;
    take_text(reading, &summary->outcome, end->outcome);
    take_text(reading, &summary->cause, end->cause);
    summary->status = as_int(end->status);
    summary->cause_rank = as_int(end->rank);
}

static int on_event(void *context, int64_t sequence, const struct journal_event *row) {
    (void)sequence;
    struct reading *reading = context;
    struct run_event values;
    const struct run_event *event = &values;
    struct event_memory memory = {0};
    reading->failed |= journal_event_values(row, &values, &memory) < 0;
    history_note(&reading->summary->history, event);
    reading->last_event = event->time;
    if (event->kind == EVENT_RUN) on_run(reading, event);
    if (event->kind == EVENT_WAIT) on_wait(reading, event);
    if (event->kind == EVENT_PLAN) on_plan(reading, event);
    if (event->kind == EVENT_ATTEMPT) on_attempt(reading, event);
    if (event->kind == EVENT_NODE) on_node(reading, event);
    if (event->kind == EVENT_LAUNCHED && reading->launched == 0) reading->launched = event->time;
    if (event->rank >= 0 && (size_t)event->rank < reading->n_workers) on_worker(reading, event);
    if (event->kind == EVENT_RUN_END) on_end(reading, &event->of.run_end);
    event_memory_done(&memory);
    return reading->failed || reading->summary->history.failed ? -1 : 0;
}

static int on_report(void *context, const struct journal_report *report) {
    struct reading *reading = context;
    json_decref(reading->summary->metrics);
    reading->summary->metrics = json_loadb(report->metrics, report->metrics_size, JSON_ALLOW_NUL, NULL);
    return 0;
}

/* Of each rank the last few reports are enough. */
enum { PACE_REPORTS = 10, PACE_REPORTS_MAX = 100000 };

struct pace_reading {
    struct pace *pace;
    int attempt;
};

static int on_pace(void *context, const struct journal_report *report) {
    struct pace_reading *reading = context;
    if (report->attempt == reading->attempt) pace_note(reading->pace, (uint32_t)report->rank, report->time);
    return 0;
}

static int measure_pace(struct journal *journal, struct reading *reading, ty_error *err) {
    struct run_summary *summary = reading->summary;
    size_t limit = reading->n_workers * PACE_REPORTS;
    struct pace_reading pace = {pace_create((uint32_t)reading->n_workers), summary->attempts};
    if (pace.pace == NULL) return ty_fail_memory(err);
    int result = limit == 0
                     ? 0
                     : journal_each_report(journal, -1, limit < PACE_REPORTS_MAX ? limit : PACE_REPORTS_MAX,
                                           on_pace, &pace, err);
    summary->straggles = result >= 0 && pace_straggler(pace.pace, &summary->straggler);
    pace_destroy(pace.pace);
    return result;
}

static int on_checkpoint(void *context, const struct journal_checkpoint *checkpoint) {
    struct reading *reading = context;
    reading->summary->checkpoints++;
    free(reading->summary->last_checkpoint);
    reading->summary->last_checkpoint = strdup(checkpoint->name);
    return 0;
}

/* The first report of all counts from the last worker that became able to make it. */
static void measure_first_report(struct reading *reading, nanoseconds first) {
    nanoseconds able = 0;
    for (size_t i = 0; i < reading->n_workers; i++) {
        const struct worker_memory *worker = &reading->workers[i];
        nanoseconds at = worker->rendezvous > 0 ? worker->rendezvous
                         : worker->ready > 0    ? worker->ready
                                                : worker->started;
        if (at > able && at <= first) able = at;
    }
    if (able > 0) note_phase(phase_of(reading, PHASE_REPORT), first - able, -1);
}

static int read_all(struct journal *journal, struct reading *reading, ty_error *err) {
    nanoseconds first = 0;
    int result = journal_each_event(journal, 0, on_event, reading, err);
    if (reading->failed || reading->summary->history.failed) return ty_fail_memory(err);
    if (result >= 0) result = journal_each_report(journal, 0, 1, on_report, reading, err);
    if (result >= 0) result = measure_pace(journal, reading, err);
    if (result >= 0) result = journal_each_checkpoint(journal, on_checkpoint, reading, err);
    if (result >= 0) result = journal_count_reports(journal, &reading->summary->reports, &first, err);
    if (result >= 0 && first > 0) measure_first_report(reading, first);
    return result;
}

static enum run_standing stand(const struct reading *reading) {
    const struct run_summary *summary = reading->summary;
    if (!reading->ended && !run_lock_is_held(summary->path)) return STANDING_DIED;
    if (!reading->ended) return summary->waits_for != NULL ? STANDING_WAITING : STANDING_RUNNING;
    if (str_equal(summary->outcome, "succeeded")) return STANDING_SUCCEEDED;
    if (str_equal(summary->outcome, "interrupted")) return STANDING_INTERRUPTED;
    if (str_equal(summary->outcome, "preempted")) return STANDING_PREEMPTED;
    return STANDING_FAILED;
}

/* A controller that died before its first record left a journal without events: its file tells when that
 * was. */
static nanoseconds journal_time(const char *run_path) {
    CLEANUP(buffer_done) struct buffer path = {0};
    struct stat status;
    buffer_printf(&path, "%s/run.db", run_path);
    if (path.failed || stat(path.data, &status) < 0) return clock_wall();
    return status.st_mtim.tv_sec * NS_PER_S + status.st_mtim.tv_nsec;
}

static void forget(struct reading *reading) {
    free(reading->workers);
    run_summary_done(reading->summary);
    *reading->summary = (struct run_summary){.status = -1, .cause_rank = -1};
    *reading = (struct reading){.summary = reading->summary};
}

static int read_anew(void *context, struct journal *journal, ty_error *err) {
    struct reading *reading = context;
    forget(reading);
    return read_all(journal, reading, err);
}

int run_summary_read(const char *name, const char *run_path, struct run_summary *summary, ty_error *err) {
    *summary = (struct run_summary){0};
    struct reading reading = {.summary = summary};
    int result = journal_read(run_path, read_anew, &reading, err);
    if (result >= 0) {
        summary->name = strdup(name);
        summary->path = strdup(run_path);
        if (summary->name == NULL || summary->path == NULL) result = ty_fail_memory(err);
    }
    if (result < 0) {
        forget(&reading);
        return result;
    }
    for (size_t i = 0; i < reading.n_workers && i < (size_t)summary->workers; i++)
        summary->by_standing[reading.workers[i].standing]++;
    free(reading.workers);
    summary->standing = stand(&reading);
    if (summary->began == 0) summary->began = reading.last_event = journal_time(run_path);
    if (summary->standing == STANDING_DIED) history_close(&summary->history);
    summary->ended = reading.ended || summary->standing == STANDING_DIED ? reading.last_event : 0;
    return 0;
}

void run_summary_done(struct run_summary *summary) {
    char *const texts[] = {summary->name,    summary->path,      summary->host,
                           summary->version, summary->command,   summary->outcome,
                           summary->cause,   summary->waits_for, summary->last_checkpoint};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(texts[i]);
    for (size_t i = 0; i < START_PHASES_N; i++)
        free(summary->phases[i].node_name);
    json_decref(summary->metrics);
    free(summary->sizes);
    history_done(&summary->history);
    *summary = (struct run_summary){0};
}
