/* A run's journal as a summary: what the replay of its events tells, and what is computed of that: the pace,
 * the slowest rank, the phases of the start. Whether a run that says no end still goes on is asked of its
 * lock, since a controller that was killed says nothing. */
#include "view/summary.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/shell.h"
#include "base/str.h"
#include "controller/controller.h"
#include "controller/run_lock.h"
#include "journal/journal.h"
#include "view/facts.h"

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

struct reading {
    struct view_summary *summary;
    const struct view_facts *facts; /* whose replay is taken; NULL: all events are read */
};

static char *join_command(const struct event_texts *argv) {
    struct buffer line = {0};
    for (size_t i = 0; i < argv->n; i++) {
        buffer_text(&line, i == 0 ? "" : " ");
        shell_quote(argv->items[i], false, &line);
    }
    return buffer_take(&line);
}

/* -1 for what is unknown. */
static int as_int(int64_t value) {
    return value < 0 || value > INT_MAX ? -1 : (int)value;
}

/* The attempts that had another number of workers than the one before. */
static int list_sizes(struct view_summary *summary) {
    const struct run_replay *replay = &summary->replay;
    for (size_t i = 0; i < replay->n_attempts; i++) {
        const struct ty_attempt_info *attempt = &replay->attempts[i];
        size_t n = summary->n_sizes;
        if (n > 0 && summary->sizes[n - 1].workers == attempt->num_workers) continue;
        if (ARRAY_GROW(summary->sizes, n) < 0) return -ENOMEM;
        summary->sizes[summary->n_sizes++] = (struct attempt_size){attempt->attempt, attempt->num_workers};
    }
    return 0;
}

enum worker_standing view_standing_of(const struct replay_worker *worker) {
    if (worker->failed) return STANDS_FAILED;
    if (worker->stopped) return STANDS_STOPPED;
    switch (worker->state) {
    case WORKER_STARTED:
        return STANDS_STARTED;
    case WORKER_READY:
        return STANDS_READY;
    case WORKER_EXITED:
    case WORKER_GONE:
        return STANDS_SUCCEEDED;
    default:
        return STANDS_WAITING;
    }
}

/* What the events tell: texts stay the replay's. */
static int tell(struct view_summary *summary) {
    const struct run_replay *replay = &summary->replay;
    const struct event_run *run = &replay->run.event.of.run;
    const struct event_run_end *end = &replay->end.event.of.run_end;
    summary->ends = replay->end.event.time != 0;
    summary->status = summary->cause_rank = -1;
    if (replay->run.event.time != 0) {
        summary->began = replay->run.event.time;
        summary->pid = run->pid != EVENT_UNKNOWN ? run->pid : 0;
        summary->host = run->host;
        summary->version = run->version;
        summary->command = join_command(&run->argv);
        summary->workers = run->num_workers != EVENT_UNKNOWN ? run->num_workers : 0;
        if (summary->command == NULL) return -ENOMEM;
    }
    if (replay->wait.event.time != 0) {
        summary->waits_for = replay->wait.event.of.wait.reason;
        summary->waits_since = replay->waits_since;
    }
    if (summary->ends) {
        summary->outcome = end->outcome;
        summary->cause = end->cause;
        summary->status = as_int(end->status);
        summary->cause_rank = as_int(end->rank);
    }
    summary->nodes = replay->nodes > 0 ? (size_t)replay->nodes : 0;
    if (replay->n_attempts > 0) {
        summary->attempts = replay->attempts[replay->n_attempts - 1].attempt;
        summary->workers = replay->attempts[replay->n_attempts - 1].num_workers;
    }
    for (size_t i = 0; i < replay->n_workers && i < (size_t)summary->workers; i++)
        summary->by_standing[view_standing_of(&replay->workers[i])]++;
    return list_sizes(summary);
}

/* -- where the seconds of the last attempt's start went */

static void note_phase(struct start_phase *phase, nanoseconds duration, int rank) {
    if (phase->known && phase->duration >= duration) return;
    phase->known = true;
    phase->duration = duration > 0 ? duration : 0;
    phase->rank = rank;
}

/* A phase of which one of the two ends is not told is not known; where clocks of two nodes disagree so far that
 * it would be negative it took nothing. */
static void measure_phases(struct view_summary *summary) {
    const struct run_replay *replay = &summary->replay;
    const struct replay_start *start = &replay->last_start;
    const struct kept_event *node = &start->node;
    struct start_phase *phases = summary->phases;
    if (start->planned)
        note_phase(&phases[PHASE_PLAN], (nanoseconds)(start->plan_seconds * (double)NS_PER_S), -1);
    if (node->event.time != 0) {
        note_phase(&phases[PHASE_AGENT], node->event.time - start->began, -1);
        phases[PHASE_AGENT].node_name = node->event.of.node.name;
    }
    for (size_t i = 0; i < replay->n_workers; i++) {
        const struct worker_start *worker = &replay->workers[i].start;
        if (worker->started > 0 && start->launched > 0)
            note_phase(&phases[PHASE_SPAWN], worker->started - start->launched, (int)i);
        if (worker->ready > 0 && worker->started > 0)
            note_phase(&phases[PHASE_LOADER], worker->ready - worker->started, (int)i);
        if (worker->rendezvous > 0 && worker->ready > 0)
            note_phase(&phases[PHASE_RENDEZVOUS], worker->rendezvous - worker->ready, (int)i);
    }
}

enum { FIRST_REPORTS_MAX = 20000 };

struct first_reading {
    struct view_summary *summary;
    bool *made; /* of each rank: its first report was seen; n of them */
    size_t n;
};

static int on_first(void *context, const struct journal_report *report) {
    struct first_reading *reading = context;
    struct view_summary *summary = reading->summary;
    bool known = report->rank >= 0 && (size_t)report->rank < summary->replay.n_workers;
    if (report->attempt != summary->attempts || !known || reading->made[report->rank]) return 0;
    nanoseconds able = replay_able(&summary->replay.workers[report->rank].start);
    reading->made[report->rank] = true;
    if (able > 0) note_phase(&summary->phases[PHASE_REPORT], report->time - able, report->rank);
    return ++reading->n == summary->replay.n_workers;
}

/* How long the slowest rank took to its first report in the last attempt. First reports lie near the beginning
 * of it: no more are read than every rank makes in its first few. */
static int measure_first(struct journal *journal, struct view_summary *summary, ty_error *err) {
    size_t n = summary->replay.n_workers, most = n * PACE_REPORTS;
    CLEANUP_FREE bool *made = calloc(n + 1, sizeof *made);
    struct first_reading reading = {.summary = summary, .made = made};
    int64_t first = 1;
    if (made == NULL) return ty_fail_memory(err);
    if (most > FIRST_REPORTS_MAX) most = FIRST_REPORTS_MAX;
    int result = summary->attempts > 1
                     ? view_find_attempt(journal, summary->attempts, summary->reports, &first, err)
                     : 0;
    if (result < 0 || n == 0) return result;
    result = journal_each_report_between(journal, first, first + (int64_t)most, on_first, &reading, err);
    return result < 0 ? result : 0;
}

/* -- the rest of the journal */

static int on_report(void *context, const struct journal_report *report) {
    struct reading *reading = context;
    json_decref(reading->summary->metrics);
    reading->summary->metrics = metrics_read(report->metrics, report->metrics_size);
    return 0;
}

struct pace_reading {
    struct pace *pace;
    int attempt;
    nanoseconds last;
};

static int on_pace(void *context, const struct journal_report *report) {
    struct pace_reading *reading = context;
    if (report->time > reading->last) reading->last = report->time;
    if (report->attempt == reading->attempt) pace_note(reading->pace, (uint32_t)report->rank, report->time);
    return 0;
}

/* Of the last reports alone, as what went slowly an hour ago says nothing of now. */
static int measure_pace(struct journal *journal, struct reading *reading, ty_error *err) {
    struct view_summary *summary = reading->summary;
    size_t limit = summary->replay.n_workers * PACE_REPORTS;
    struct pace_reading pace = {pace_create((uint32_t)summary->replay.n_workers), summary->attempts, 0};
    if (pace.pace == NULL) return ty_fail_memory(err);
    int result = limit == 0
                     ? 0
                     : journal_each_report(journal, -1, limit < PACE_REPORTS_MAX ? limit : PACE_REPORTS_MAX,
                                           on_pace, &pace, err);
    summary->straggles = result >= 0 && pace_straggler(pace.pace, &summary->straggler);
    if (!pace_usual(pace.pace, &summary->usual_interval)) summary->usual_interval = 0;
    summary->last_report = pace.last;
    pace_destroy(pace.pace);
    return result;
}

static int on_checkpoint(void *context, const struct journal_checkpoint *checkpoint) {
    struct reading *reading = context;
    reading->summary->checkpoints++;
    free(reading->summary->last_checkpoint);
    reading->summary->last_checkpoint = strdup(checkpoint->name);
    return reading->summary->last_checkpoint != NULL ? 0 : -ENOMEM;
}

static void forget(struct view_summary *summary) {
    view_summary_done(summary);
    *summary = (struct view_summary){.status = -1, .cause_rank = -1};
}

static int read_anew(void *context, struct journal *journal, ty_error *err) {
    struct reading *reading = context;
    struct view_summary *summary = reading->summary;
    forget(summary);
    summary->lent = reading->facts != NULL;
    if (summary->lent) summary->replay = reading->facts->replay;
    int result = summary->lent ? 0 : journal_replay(journal, &summary->replay, err);
    if (result >= 0 && tell(summary) < 0) return ty_fail_memory(err);
    if (result >= 0) result = journal_each_report(journal, 0, 1, on_report, reading, err);
    if (result >= 0) result = measure_pace(journal, reading, err);
    if (result >= 0) result = journal_each_checkpoint(journal, on_checkpoint, reading, err);
    if (result >= 0) result = journal_count_reports(journal, &summary->reports, err);
    if (result < 0) return result == -ENOMEM ? ty_fail_memory(err) : result;
    measure_phases(summary);
    return measure_first(journal, summary, err);
}

static enum run_standing stand(const struct view_summary *summary) {
    if (!summary->ends && !run_lock_is_driven(summary->path)) return STANDING_DIED;
    if (!summary->ends) return summary->waits_for != NULL ? STANDING_WAITING : STANDING_RUNNING;
    if (str_equal(summary->outcome, "succeeded")) return STANDING_SUCCEEDED;
    if (str_equal(summary->outcome, "interrupted")) return STANDING_INTERRUPTED;
    if (str_equal(summary->outcome, "preempted")) return STANDING_PREEMPTED;
    return STANDING_FAILED;
}

/* What no event tells: whether a run without an end goes on. Facts that were lent are others' too, and cannot
 * be closed: of a run that died without a word the journal is read anew. */
static int conclude(const char *name, const char *run_path, struct view_summary *summary, ty_error *err) {
    summary->name = strdup(name);
    summary->path = strdup(run_path);
    if (summary->name == NULL || summary->path == NULL) {
        forget(summary);
        return ty_fail_memory(err);
    }
    summary->standing = stand(summary);
    nanoseconds last = summary->replay.last;
    if (last == 0) { /* a controller that died before its first record: the file tells when that was */
        CLEANUP_FREE char *journal = str_format("%s/run.db", run_path);
        struct stat status;
        bool there = journal != NULL && stat(journal, &status) == 0;
        last = there ? status.st_mtim.tv_sec * NS_PER_S + status.st_mtim.tv_nsec : clock_wall();
        summary->began = last;
    }
    if (summary->standing == STANDING_DIED) {
        if (summary->lent) {
            forget(summary);
            return view_summary_read(name, run_path, summary, err);
        }
        replay_close(&summary->replay);
    }
    summary->ended = summary->ends || summary->standing == STANDING_DIED ? last : 0;
    return 0;
}

int view_summary_read_of(const char *name, const char *run_path, const struct view_facts *facts,
                         struct view_summary *summary, ty_error *err) {
    *summary = (struct view_summary){0};
    struct reading reading = {.summary = summary, .facts = facts};
    int result = journal_read(run_path, read_anew, &reading, err);
    if (result >= 0) return conclude(name, run_path, summary, err);
    forget(summary);
    return result;
}

int view_summary_read(const char *name, const char *run_path, struct view_summary *summary, ty_error *err) {
    return view_summary_read_of(name, run_path, NULL, summary, err);
}

/* Nothing follows the end of a run but another controller's begin: that event alone tells how the run
 * stands. */
static int on_last(void *context, const struct journal_event *row, const char *checkpoint) {
    struct view_summary *summary = context;
    struct run_event event;
    struct event_memory memory = {0};
    if (row->kind != EVENT_RUN_END) return -EAGAIN;
    int result = journal_event_values(row, &event, &memory);
    if (result >= 0) replay_note(&summary->replay, &event);
    event_memory_done(&memory);
    if (checkpoint != NULL) summary->last_checkpoint = strdup(checkpoint);
    bool lost = checkpoint != NULL && summary->last_checkpoint == NULL;
    return result < 0 || summary->replay.failed || lost || tell(summary) < 0 ? -EAGAIN : 0;
}

/* What goes on, is damaged, or is of another version, is read again as any journal, which tells what is wrong
 * with it. */
int view_summary_read_end(struct journal_ends *ends, const char *name, const char *run_path,
                          struct view_summary *summary, ty_error *err) {
    *summary = (struct view_summary){.status = -1, .cause_rank = -1};
    if (journal_ends_read(ends, run_path, on_last, summary) == 0) return conclude(name, run_path, summary, err);
    forget(summary);
    return view_summary_read(name, run_path, summary, err);
}

void view_summary_done(struct view_summary *summary) {
    free(summary->name);
    free(summary->path);
    free(summary->command);
    free(summary->last_checkpoint);
    json_decref(summary->metrics);
    free(summary->sizes);
    if (!summary->lent) replay_done(&summary->replay);
    *summary = (struct view_summary){0};
}
