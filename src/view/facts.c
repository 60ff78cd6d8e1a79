/* One reading of the events: they are folded by the replay, and what the replay does not keep (failures by
 * kind, hangs, how long attempts started and lasted, reports that later ones took back) is noted beside. What
 * is kept from one reading to the next is its caller's (facts_kept). */
#include "view/facts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/str.h"

static int note_fault(struct view_facts *facts, const struct run_event *event) {
    bool hung = event->kind == EVENT_HUNG;
    const char *cause = hung ? event->of.hung.cause : event->of.hardware.cause;
    if (ARRAY_GROW(facts->faults, facts->n_faults) < 0) return -ENOMEM;
    char *text = strdup(cause != NULL ? cause : run_event_name(event->kind));
    if (text == NULL) return -ENOMEM;
    facts->faults[facts->n_faults++] =
        (struct fact_fault){event->time, hung ? VIEW_MARK_HUNG : VIEW_MARK_HARDWARE, text};
    return 0;
}

const char *failure_cause_name(enum failure_cause cause) {
    static const char *const names[] = {
#define X(name, text) text,
        FAILURE_CAUSES(X)
#undef X
    };
    return names[cause];
}

/* What happened in an attempt says by what it ended; the worst is kept: a lost node takes workers with it. */
static void note_failure(struct view_facts *facts, const struct run_event *event) {
    const struct event_attempt_end *end = &event->of.attempt_end;
    switch ((int)event->kind) {
    case EVENT_ATTEMPT:
        facts->likely = CAUSE_WORKER;
        break;
    case EVENT_HUNG:
        if (facts->likely < CAUSE_HANG) facts->likely = CAUSE_HANG;
        break;
    case EVENT_NODE_LOST:
        facts->likely = CAUSE_NODE;
        break;
    case EVENT_START_FAILED:
        if (facts->likely == CAUSE_WORKER) facts->likely = CAUSE_START;
        break;
    case EVENT_ATTEMPT_END:
        if (str_equal(end->outcome, "preempted")) facts->failures[CAUSE_PREEMPTION]++;
        if (str_equal(end->outcome, "start_failed")) facts->likely = CAUSE_START;
        if (str_equal(end->outcome, "node_lost")) facts->likely = CAUSE_NODE;
        if (!str_equal(end->outcome, "failed") && !str_equal(end->outcome, "start_failed") &&
            !str_equal(end->outcome, "node_lost"))
            break;
        if (facts->likely == CAUSE_WORKER && end->cause != NULL && strstr(end->cause, "memory") != NULL)
            facts->likely = CAUSE_MEMORY;
        facts->failures[facts->likely]++;
        break;
    default:
        break;
    }
}

/* What a name like checkpoint_000100 tells, also behind the path of its directory; 0: nothing. */
static uint64_t number_in(const char *name) {
    const char *slash = strrchr(name, '/'), *digits;
    int64_t number;
    if (!str_prefix(slash != NULL ? slash + 1 : name, "checkpoint_", &digits)) return 0;
    digits += strspn(digits, "0");
    return str_to_int64(digits, 1, INT64_MAX, &number) ? (uint64_t)number : 0;
}

/* Which number a place of the user's had last, or a name of ours that does not tell it, or told another one
 * before: an attempt names the checkpoint that it began from by its path alone. Most names tell their number,
 * and take no memory. */
static int note_checkpoint(struct view_facts *facts, const struct event_checkpoint *told) {
    if (told->path == NULL || told->number <= 0) return 0;
    bool known = facts->numbers != NULL && hash_get(facts->numbers, told->path) != NULL;
    if (!known && number_in(told->path) == (uint64_t)told->number) return 0;
    if (facts->numbers == NULL) facts->numbers = hash_create();
    if (facts->numbers == NULL) return -ENOMEM;
    return hash_set(facts->numbers, told->path, (uintptr_t)told->number) < 0 ? -ENOMEM : 0;
}

static int begin_attempt(struct view_facts *facts, const struct run_event *event) {
    const char *from = event->of.attempt.checkpoint;
    const uintptr_t *number = from != NULL && facts->numbers != NULL ? hash_get(facts->numbers, from) : NULL;
    if (ARRAY_GROW(facts->attempts, facts->n_attempts) < 0) return -ENOMEM;
    facts->attempts[facts->n_attempts++] = (struct fact_attempt){.attempt = event->attempt,
                                                                 .began_from = number != NULL ? *number : 0,
                                                                 .began = event->time,
                                                                 .started = event->time,
                                                                 .ended = event->time,
                                                                 .unready = event->of.attempt.workers,
                                                                 .apart = event->of.attempt.workers,
                                                                 .told_lost = (double)NAN};
    return 0;
}

/* A worker became ready, or came into its group: until then the attempt started. One that does so again
 * trains. */
static void note_start(struct fact_attempt *attempt, nanoseconds time, int64_t *left) {
    if (*left > 0 || !attempt->trains) attempt->started = time;
    if (*left > 0) --*left;
    attempt->trains = true;
}

/* What a controller does that resumes a run is no part of the attempt before, unless it takes that over. */
static int note_attempt(struct view_facts *facts, const struct run_event *event) {
    struct fact_attempt *attempt = facts->n_attempts > 0 ? &facts->attempts[facts->n_attempts - 1] : NULL;
    if (event->kind == EVENT_RUN) facts->reopened = true;
    if (event->kind == EVENT_ATTEMPT || event->kind == EVENT_ADOPTED) facts->reopened = false;
    if (event->kind == EVENT_ATTEMPT) return begin_attempt(facts, event);
    if (attempt == NULL || event->attempt != attempt->attempt || facts->reopened || attempt->over) return 0;
    if (event->kind == EVENT_STARTED && !attempt->trains) attempt->started = event->time;
    if (event->kind == EVENT_READY) note_start(attempt, event->time, &attempt->unready);
    if (event->kind == EVENT_RENDEZVOUS) note_start(attempt, event->time, &attempt->apart);
    if (event->kind == EVENT_CHECKPOINT) attempt->saved = event->time;
    attempt->over = event->kind == EVENT_ATTEMPT_END;
    if (attempt->over) attempt->told_lost = event->of.attempt_end.lost_seconds;
    attempt->ended = event->time;
    return 0;
}

/* Each event is read once, for the replay and for what is noted beside it. */
static int on_event(void *context, int64_t sequence, const struct journal_event *row) {
    struct view_facts *facts = context;
    struct run_event event;
    struct event_memory memory = {0};
    facts->sequence = sequence;
    int result = journal_event_values(row, &event, &memory);
    if (result >= 0) {
        replay_note(&facts->replay, &event);
        note_failure(facts, &event);
        if (facts->first == 0) facts->first = event.time;
        if (event.kind == EVENT_HUNG || event.kind == EVENT_HARDWARE) result = note_fault(facts, &event);
        if (event.kind == EVENT_CHECKPOINT) result = note_checkpoint(facts, &event.of.checkpoint);
        if (result >= 0) result = note_attempt(facts, &event);
        if (event.kind == EVENT_CHECKPOINT_LOST) facts->lost_checkpoints++;
    }
    event_memory_done(&memory);
    return result < 0 || facts->replay.failed ? -ENOMEM : 0;
}

static int on_checkpoint(void *context, const struct journal_checkpoint *row) {
    struct view_facts *facts = context;
    if (ARRAY_GROW(facts->checkpoints, facts->n_checkpoints) < 0) return -ENOMEM;
    struct fact_checkpoint *checkpoint = &facts->checkpoints[facts->n_checkpoints++];
    *checkpoint = (struct fact_checkpoint){.number = row->number, .attempt = row->attempt, .time = row->time};
    checkpoint->name = strdup(row->name);
    checkpoint->metrics = row->metrics != NULL ? strdup(row->metrics) : NULL;
    return checkpoint->name == NULL || (row->metrics != NULL && checkpoint->metrics == NULL) ? -ENOMEM : 0;
}

/* Seconds that later attempts do once more. Nobody tells them of an attempt that was resumed by another
 * controller. */
static double lost_by(const struct view_facts *facts, const struct fact_attempt *attempt) {
    if (!isnan(attempt->told_lost)) return attempt->told_lost > 0 ? attempt->told_lost : 0;
    if (attempt->reached <= attempt->counts_to) return 0;
    nanoseconds from = attempt->started;
    if (attempt->counts_to > attempt->began_from) {
        if (attempt->saved > 0) from = attempt->saved;
        for (size_t i = 0; i < facts->n_checkpoints; i++)
            if (facts->checkpoints[i].number == attempt->counts_to) from = facts->checkpoints[i].time;
    }
    return attempt->ended > from ? duration_seconds(attempt->ended - from) : 0;
}

/* From the last attempt back: what an attempt reported beyond the number that a later one began from was made
 * again, and does not count. The replay has an attempt for each one here, at the same index: both take every
 * `attempt` event. */
static void weigh_attempts(struct view_facts *facts) {
    uint64_t counts_to = UINT64_MAX;
    for (size_t i = facts->n_attempts; i-- > 0;) {
        struct fact_attempt *attempt = &facts->attempts[i];
        const char *name = attempt->began_from == 0 ? facts->replay.attempts[i].checkpoint : NULL;
        /* Where no event told the number, the table may, or the name. */
        for (size_t k = 0; name != NULL && k < facts->n_checkpoints && attempt->began_from == 0; k++)
            if (str_equal(facts->checkpoints[k].name, name)) attempt->began_from = facts->checkpoints[k].number;
        if (name != NULL && attempt->began_from == 0) attempt->began_from = number_in(name);
        attempt->counts_to = counts_to;
        if (attempt->began_from < counts_to) counts_to = attempt->began_from;
    }
    facts->lost_seconds = 0;
    for (size_t i = 0; i < facts->n_attempts; i++)
        facts->lost_seconds += lost_by(facts, &facts->attempts[i]);
}

static int note_attempt_of(void *context, const struct journal_report *report) {
    *(int *)context = report->attempt;
    return 0;
}

int view_find_attempt(struct journal *journal, int attempt, uint64_t reports, int64_t *first, ty_error *err) {
    int64_t end = (int64_t)reports + 1;
    int result = 0;
    for (*first = 1; *first < end && result >= 0;) {
        int64_t middle = *first + (end - *first) / 2;
        int found = 0;
        result = journal_each_report_between(journal, middle, middle, note_attempt_of, &found, err);
        if (found < attempt)
            *first = middle + 1;
        else
            end = middle;
    }
    return result;
}

static int note_last(void *context, const struct journal_report *report) {
    struct fact_attempt *attempt = context;
    if (report->attempt != attempt->attempt) return 0;
    attempt->reached = report->number;
    if (!attempt->over && report->time > attempt->ended) attempt->ended = report->time;
    return 0;
}

/* How far attempts came that another controller went on behind: few, so that a search for each does it. */
static int find_last(struct view_facts *facts, struct journal *journal, ty_error *err) {
    int result = 0;
    for (size_t i = 0; i + 1 < facts->n_attempts && result >= 0; i++) {
        struct fact_attempt *attempt = &facts->attempts[i];
        int64_t next;
        if (!isnan(attempt->told_lost) || attempt->reached > 0) continue;
        result = view_find_attempt(journal, attempt->attempt + 1, facts->reports, &next, err);
        if (result >= 0)
            result = journal_each_report_between(journal, next - 1, next - 1, note_last, attempt, err);
    }
    return result;
}

/* What no event tells: how many reports there are, and what became of each attempt. */
static int read_rest(struct view_facts *facts, struct journal *journal, ty_error *err) {
    int result = journal_count_reports(journal, &facts->reports, err);
    if (result >= 0) result = find_last(facts, journal, err);
    if (result >= 0) weigh_attempts(facts);
    return result;
}

/* What is read anew with each event. */
static void free_rows(struct view_facts *facts) {
    for (size_t i = 0; i < facts->n_checkpoints; i++) {
        free(facts->checkpoints[i].name);
        free(facts->checkpoints[i].metrics);
    }
    free(TAKE(facts->checkpoints));
    facts->n_checkpoints = 0;
}

static int read_facts(void *context, struct journal *journal, ty_error *err) {
    struct view_facts *facts = context;
    view_facts_done(facts);
    int result = journal_each_event(journal, 0, on_event, facts, err);
    if (result >= 0) result = journal_each_checkpoint(journal, on_checkpoint, facts, err);
    if (result >= 0) result = read_rest(facts, journal, err);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

int view_facts_read(const char *run_path, struct view_facts *facts, ty_error *err) {
    *facts = (struct view_facts){0};
    int result = journal_read(run_path, read_facts, facts, err);
    if (result < 0) view_facts_done(facts);
    return result;
}

struct facts_renewal {
    struct view_facts *facts;
    bool same; /* the last event of those that were read is there, as it was: it is the same journal */
    bool more; /* it goes on */
    bool anew; /* what was read of it is not to be gone by */
};

/* The first row is the last event that was read before: where it is another one, this is another journal. */
static int on_next(void *context, int64_t sequence, const struct journal_event *row) {
    struct facts_renewal *renewal = context;
    const struct view_facts *facts = renewal->facts;
    if (renewal->same) {
        renewal->more = true;
        return on_event(renewal->facts, sequence, row);
    }
    renewal->same = sequence == facts->sequence && row->time == facts->replay.last;
    return renewal->same ? 0 : 1;
}

/* Checkpoints are few, and may have gone. */
static int read_more(void *context, struct journal *journal, ty_error *err) {
    struct facts_renewal *renewal = context;
    struct view_facts *facts = renewal->facts;
    if (renewal->anew) return read_facts(facts, journal, err);
    renewal->anew = true; /* a second time it was written meanwhile */
    int result = journal_each_event(journal, facts->sequence - 1, on_next, renewal, err);
    if (result >= 0 && !renewal->same) return read_facts(facts, journal, err);
    if (result >= 0 && renewal->more) {
        free_rows(facts);
        result = journal_each_checkpoint(journal, on_checkpoint, facts, err);
    }
    if (result >= 0) result = read_rest(facts, journal, err);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

int view_facts_renew(const char *run_path, struct view_facts *facts, ty_error *err) {
    struct facts_renewal renewal = {.facts = facts, .anew = facts->sequence == 0};
    int result = journal_read(run_path, read_more, &renewal, err);
    if (result < 0) view_facts_done(facts);
    return result;
}

/* -- kept */

void facts_kept_init(struct facts_kept *kept) {
    *kept = (struct facts_kept){0};
    (void)pthread_mutex_init(&kept->lock, NULL);
}

void facts_kept_done(struct facts_kept *kept) {
    view_facts_done(&kept->facts);
    (void)pthread_mutex_destroy(&kept->lock);
}

/* Whoever has the kept facts holds their lock until they are given back, as their texts are borrowed; two
 * answers about a run wait for each other, while of two runs neither does. */
int facts_take(const char *run_path, struct facts_kept *kept, struct view_facts *own,
               const struct view_facts **facts, ty_error *err) {
    *facts = kept != NULL ? &kept->facts : own;
    if (kept == NULL) return view_facts_read(run_path, own, err);
    (void)pthread_mutex_lock(&kept->lock);
    int result = view_facts_renew(run_path, &kept->facts, err);
    if (result < 0) (void)pthread_mutex_unlock(&kept->lock);
    return result;
}

void facts_give_back(struct facts_kept *kept, struct view_facts *own) {
    if (kept == NULL)
        view_facts_done(own);
    else
        (void)pthread_mutex_unlock(&kept->lock);
}

bool view_facts_count(const struct view_facts *facts, int attempt, uint64_t number) {
    for (size_t i = 0; i < facts->n_attempts; i++)
        if (facts->attempts[i].attempt == attempt) return number <= facts->attempts[i].counts_to;
    return true;
}

bool view_facts_select(const struct view_facts *facts, const struct view_selection *selection,
                       const struct journal_report *report) {
    if (selection->ranks != NULL && !idset_has(selection->ranks, report->rank)) return false;
    return selection->history == VIEW_ALL || view_facts_count(facts, report->attempt, report->number);
}

void view_facts_done(struct view_facts *facts) {
    free_rows(facts);
    for (size_t i = 0; i < facts->n_faults; i++)
        free(facts->faults[i].text);
    free(facts->faults);
    free(facts->attempts);
    hash_destroy(facts->numbers);
    replay_done(&facts->replay);
    *facts = (struct view_facts){0};
}
