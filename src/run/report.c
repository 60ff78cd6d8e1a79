/* Reports and the checkpoints that they carry: a checkpoint is whole when every rank has made the report of
 * its number and every rank that began to write has written all. They are committed in the order of their
 * numbers, though ranks may write several at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/internal.h"

/* How long ranks wait for a checkpoint until it is told for whom; then again as often. */
static const nanoseconds LATE_AFTER = 60 * NS_PER_S;

static void forget_files(struct pending *pending) {
    for (uint32_t i = 0; i < pending->n_files; i++)
        free(pending->files[i]);
    pending->n_files = 0;
}

static void free_pending(struct pending *pending) {
    forget_files(pending);
    free(pending->files);
    free(pending->waiters);
    free(pending->writes);
    free(pending->name);
    free(pending);
}

static struct pending *find_pending(struct run *run, uint64_t number) {
    struct pending *pending = run->pending;
    while (pending != NULL && pending->number != number)
        pending = pending->next;
    return pending;
}

static void remove_pending(struct run *run, struct pending *gone) {
    struct pending **link = &run->pending;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    free_pending(gone);
}

/* The ranks that committed wait for it. A second call answers nobody: their lists are gone with the first. */
static void answer_all(struct run *run, struct pending *pending, const char *path, const char *error) {
    for (uint32_t i = 0; i < pending->n_files; i++) {
        const struct commit_waiter *waiter = &pending->waiters[i];
        run->ops->answer(run->context, waiter->node, waiter->channel, pending->number, path, error);
    }
    forget_files(pending);
}

static void give_up(struct run *run, struct pending *pending, const char *why) {
    run->ops->discard(run->context, pending->number, run->attempt);
    if (!pending->told) run_record_lost_checkpoint(run, pending->number, why, pending->n_files == 0);
    pending->told = true;
    answer_all(run, pending, NULL, why);
}

/* `path` is stolen; NULL: it failed. */
static void conclude_commit(struct run *run, struct pending *pending, char *path, const char *error) {
    pending->publishing = false;
    if (path == NULL) {
        give_up(run, pending, error);
        return;
    }
    run_record_checkpoint(run, pending->number, path);
    free(run->checkpoint);
    run->checkpoint = path;
    run_resize_committed(run, pending->number);
    answer_all(run, pending, path, NULL);
}

static bool all_came(const struct run *run, const struct pending *pending) {
    return pending->arrived == run->config.n_workers;
}

/* Makes no further report. */
static bool has_ended(const struct run_worker *worker) {
    return worker->state == WORKER_EXITED || worker->state == WORKER_GONE;
}

/* Nobody writes in its directory any more, and either every rank made the report or it cannot be whole. */
static bool is_settled(const struct run *run, const struct pending *pending) {
    return pending->settled == pending->begun && (pending->error[0] != '\0' || all_came(run, pending));
}

/* What failed stays known until the attempt ends: a rank that begins it later must hear of it. True: it is
 * on its way into its place, and those behind it wait. */
static bool settle(struct run *run, struct pending *pending) {
    if (pending->error[0] == '\0' && pending->begun > 0) {
        ty_error err = {0};
        char *path = NULL;
        struct run_commit whole = {
            .number = pending->number,
            .attempt = run->attempt,
            .name = pending->name,
            .files = (const char *const *)pending->files,
            .n = pending->n_files,
        };
        pending->publishing = run->ops->publish(run->context, &whole, &path, &err) == 1;
        if (pending->publishing) return true;
        conclude_commit(run, pending, path, err.message);
    }
    if (pending->error[0] != '\0' && (!pending->told || pending->n_files > 0))
        give_up(run, pending, pending->error);
    if (all_came(run, pending)) remove_pending(run, pending);
    return false;
}

/* A rank that asks after its report of some number is to see the checkpoints up to it, the same as every other
 * rank that asks after the same number: the answer waits until all have come so far. */
static void answer_lists(struct run *run) {
    if (run->lists == NULL) return;
    /* The highest number up to which every rank that lives has reported and nothing waits for its commit. */
    uint64_t number = UINT64_MAX;
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        const struct run_worker *worker = &run->workers[rank];
        if (!has_ended(worker) && worker->reports < number) number = worker->reports;
    }
    for (const struct pending *pending = run->pending; pending != NULL; pending = pending->next)
        if ((pending->publishing || !is_settled(run, pending)) && pending->number <= number)
            number = pending->number - 1;
    for (struct list_waiter **link = &run->lists, *waiter; (waiter = *link) != NULL;) {
        if (waiter->number > number) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        run->ops->list(run->context, waiter->node, waiter->channel);
        free(waiter);
    }
}

/* Commits what is whole, the oldest first: one that still waits for files holds up those behind it. */
static void settle_all(struct run *run) {
    for (struct pending *pending = run->pending, *next; pending != NULL; pending = next) {
        next = pending->next;
        if (pending->publishing) break;
        /* One that has failed holds up nobody, though some ranks may still be writing for it. */
        if (is_settled(run, pending) ? settle(run, pending) : pending->error[0] == '\0') break;
    }
    answer_lists(run);
}

void run_on_store(struct run *run, const struct run_input *input) {
    struct pending *pending = find_pending(run, input->number);
    if (pending == NULL || !pending->publishing) {
        free(input->path);
        return;
    }
    conclude_commit(run, pending, input->path, input->text);
    remove_pending(run, pending); /* every rank's report is made: nothing else keeps it */
    settle_all(run);
}

void run_on_commit(struct run *run, const struct run_input *input) {
    run_on_store(run, input);
    run_resize_after_report(run);
}

/* The end of the attempt waits for it, and for those that were whole behind it. */
void run_on_last(struct run *run, const struct run_input *input) {
    run_on_store(run, input);
    run_end_when_gone(run);
}

void run_on_free(struct run *run, const struct run_input *input) {
    (void)run;
    free(input->path);
}

static void fail_pending(struct pending *pending, const char *why) {
    if (pending->error[0] == '\0') (void)snprintf(pending->error, sizeof pending->error, "%s", why);
}

/* A rank that has ended makes no further report. */
static void fail_without(const struct run *run, struct pending *pending, uint32_t rank) {
    char why[128];
    uint64_t made = run->workers[rank].reports;
    (void)snprintf(why, sizeof why, "rank %u ended after %llu reports, so that this one can never be whole",
                   rank, (unsigned long long)(made - run->report_base));
    fail_pending(pending, why);
}

/* The pending checkpoint of this number, made when there is none; NULL when memory is short. It may be made
 * late, as ranks run ahead of each other: how far each is with it is read of its reports. */
static struct pending *begin(struct run *run, uint64_t number) {
    struct pending *pending = find_pending(run, number);
    if (pending != NULL) return pending;
    pending = calloc(1, sizeof *pending);
    if (pending != NULL) {
        pending->number = number;
        pending->files = calloc(run->config.n_workers, sizeof *pending->files);
        pending->waiters = calloc(run->config.n_workers, sizeof *pending->waiters);
        pending->writes = calloc(run->config.n_workers, sizeof *pending->writes);
    }
    if (pending == NULL || pending->files == NULL || pending->waiters == NULL || pending->writes == NULL) {
        if (pending != NULL) free_pending(pending);
        if (number > run->forgotten) run->forgotten = number;
        return NULL;
    }
    if (number <= run->forgotten)
        fail_pending(pending, "out of memory"); /* it misses the files or the name of a rank */
    /* How far the ranks are with it. */
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        const struct run_worker *worker = &run->workers[rank];
        pending->arrived += worker->reports >= pending->number;
        if (has_ended(worker) && worker->reports < pending->number) fail_without(run, pending, rank);
    }
    struct pending **link = &run->pending;
    while (*link != NULL && (*link)->number < number)
        link = &(*link)->next;
    pending->next = *link;
    *link = pending;
    return pending;
}

/* The first checkpoint that some ranks wait for and others hold up; those behind it wait for it. */
static struct pending *find_awaited(const struct run *run) {
    struct pending *pending = run->pending;
    while (pending != NULL && (pending->publishing || pending->n_files == 0 || is_settled(run, pending)))
        pending = pending->next;
    return pending;
}

/* One timer for all that is awaited, and never before its time: run_on_tell looks whose time it is. */
static void watch_reports(struct run *run) {
    if (run->watches_reports || find_awaited(run) == NULL) return;
    run->watches_reports = true;
    run->ops->set_timer(run->context, TIMER_REPORTS, LATE_AFTER);
}

void run_on_tell(struct run *run, const struct run_input *input) {
    (void)input;
    const struct pending *pending = find_awaited(run);
    run->watches_reports = false;
    if (pending != NULL && run->ops->now(run->context) - pending->since >= LATE_AFTER) {
        struct idset ranks = {0};
        bool files = all_came(run, pending);
        /* Ranks whose report of this number, or whose files, are not there yet. */
        for (uint32_t rank = 0; rank < run->config.n_workers; rank++)
            if (files ? pending->writes[rank] : run->workers[rank].reports < pending->number)
                (void)idset_add(&ranks, rank);
        if (idset_count(&ranks) > 0)
            run_record_late_checkpoint(run, pending, &ranks, files ? "files" : "report");
        idset_done(&ranks);
    }
    watch_reports(run);
}

static void answer_error(struct run *run, const struct run_report *report, const char *error) {
    uint32_t node = run->config.node_of[report->rank];
    run->ops->answer(run->context, node, report->channel, report->number, NULL, error);
}

/* A rank has made the report of this number, with a checkpoint or without. */
static void arrive(struct run *run, const struct run_report *report) {
    /* The name that rank 0 gives counts, with files or without. */
    bool named = report->rank == 0 && report->name != NULL && report->name[0] != '\0';
    struct pending *pending = named ? begin(run, report->number) : find_pending(run, report->number);
    if (named && pending != NULL && pending->name == NULL) {
        pending->name = strdup(report->name);
        if (pending->name == NULL) fail_pending(pending, "out of memory");
    }
    run->workers[report->rank].reports = report->number;
    if (report->number > run->last_number) run->last_number = report->number;
    if (pending != NULL) pending->arrived++;
    settle_all(run);
}

/* A rank has written all of its files, or gave up. */
static void conclude(struct run *run, const struct run_report *report) {
    struct pending *pending = find_pending(run, report->number);
    bool written = report->kind == REPORT_COMMIT;
    if (pending == NULL || !pending->writes[report->rank]) {
        if (!written) return;
        /* A rank wrote files for a checkpoint that does not know of them. */
        bool forgotten = report->number <= run->forgotten;
        if (forgotten) run->ops->discard(run->context, report->number, run->attempt);
        if (forgotten && pending == NULL)
            run_record_lost_checkpoint(run, report->number, "out of memory", false);
        answer_error(run, report, forgotten ? "out of memory" : "no such checkpoint is being written");
        return;
    }
    pending->settled++;
    pending->writes[report->rank] = false;
    char *files = written ? strndup(report->files, report->size) : NULL;
    if (files != NULL) {
        if (pending->n_files == 0) pending->since = run->ops->now(run->context);
        pending->files[pending->n_files] = files;
        pending->waiters[pending->n_files++] =
            (struct commit_waiter){report->rank, run->config.node_of[report->rank], report->channel};
    } else if (written) {
        fail_pending(pending, "out of memory");
        answer_error(run, report, "out of memory");
    } else {
        char why[sizeof pending->error];
        (void)snprintf(why, sizeof why, "rank %u: %.*s", report->rank, (int)report->size,
                       (const char *)report->files);
        fail_pending(pending, why);
    }
    settle_all(run);
    watch_reports(run);
}

/* Reports of a rank come in order, but may come twice where an agent tells them again to a controller that has
 * adopted its workers. `words` counts all that is heard, also beats: a run in which nobody speaks stands
 * still. */
void run_on_hear(struct run *run, const struct run_input *input) {
    const struct run_report *report = input->report;
    struct pending *pending;
    struct list_waiter *waiter;
    run->words++;
    /* Of an attempt before this one: an agent told it late. */
    if (report->number <= run->report_base && report->kind != REPORT_LIST) return;
    switch (report->kind) {
    case REPORT_BEGIN:
        if (report->number <= run->workers[report->rank].reports) break; /* doubled: it counts once */
        pending = begin(run, report->number);
        if (pending != NULL && !pending->writes[report->rank]) {
            pending->begun++;
            pending->writes[report->rank] = true;
        }
        arrive(run, report);
        break;
    case REPORT_METRICS:
        if (report->number > run->workers[report->rank].reports) arrive(run, report);
        break;
    case REPORT_COMMIT:
    case REPORT_ABORT:
        conclude(run, report);
        break;
    case REPORT_LIST:
        waiter = calloc(1, sizeof *waiter);
        if (waiter == NULL) {
            answer_error(run, report, "out of memory");
            break;
        }
        *waiter = (struct list_waiter){run->lists, report->number, report->rank,
                                       run->config.node_of[report->rank], report->channel};
        run->lists = waiter;
        answer_lists(run);
        break;
    default:
        break;
    }
}

void run_on_report(struct run *run, const struct run_input *input) {
    run_on_hear(run, input);
    run_resize_after_report(run);
}

/* Says who waits for what; they are added to `all`. */
static void name_waiting(const struct idset *ranks, struct idset *all, const char *what, uint64_t number,
                         struct buffer *out) {
    bool several = idset_count(ranks) > 1;
    if (idset_count(ranks) == 0) return;
    for (int64_t rank = idset_next(ranks, -1); rank >= 0; rank = idset_next(ranks, rank))
        (void)idset_add(all, (uint32_t)rank);
    buffer_text(out, several ? ", ranks " : ", rank ");
    idset_format(ranks, out);
    buffer_printf(out, several ? " wait for %s%llu" : " waits for %s%llu", what, (unsigned long long)number);
}

void run_list_waiting(const struct run *run, struct idset *ranks, uint64_t *words, struct buffer *out) {
    *words = run->words;
    for (const struct pending *pending = run->pending; pending != NULL; pending = pending->next) {
        struct idset own = {0};
        for (uint32_t i = 0; i < pending->n_files; i++)
            (void)idset_add(&own, pending->waiters[i].rank);
        name_waiting(&own, ranks, "checkpoint ", pending->number, out);
        idset_done(&own);
    }
    for (const struct list_waiter *waiter = run->lists; waiter != NULL; waiter = waiter->next) {
        struct idset own = {0};
        (void)idset_add(&own, waiter->rank);
        name_waiting(&own, ranks, "the checkpoints up to ", waiter->number, out);
        idset_done(&own);
    }
}

/* A checkpoint fails of files that the rank had not finished, and of a report that it has not made, also where
 * it ended well: the others wait for neither. */
void run_reports_rank_ended(struct run *run, uint32_t rank) {
    uint64_t made = run->workers[rank].reports;
    for (struct pending *pending = run->pending; pending != NULL; pending = pending->next) {
        if (pending->writes[rank]) {
            char why[64];
            (void)snprintf(why, sizeof why, "rank %u: ended while it wrote its files", rank);
            pending->writes[rank] = false;
            pending->settled++;
            fail_pending(pending, why);
        }
        if (pending->number > made) fail_without(run, pending, rank);
    }
    settle_all(run);
}

struct pending *run_reports_publishing(const struct run *run) {
    struct pending *pending = run->pending;
    while (pending != NULL && !pending->publishing)
        pending = pending->next;
    return pending;
}

void run_reports_end(struct run *run) {
    if (run->watches_reports) run->ops->set_timer(run->context, TIMER_REPORTS, -1);
    run->watches_reports = false;
    /* Nobody can wait any longer for what is being published. */
    struct pending *last = run_reports_publishing(run);
    if (last != NULL) {
        ty_error err = {0};
        char *path = NULL;
        (void)run->ops->settle(run->context, last->number, &path, &err);
        conclude_commit(run, last, path, err.message);
        remove_pending(run, last);
    }
    while (run->lists != NULL) {
        struct list_waiter *waiter = run->lists;
        run->lists = waiter->next;
        free(waiter);
    }
    while (run->pending != NULL) {
        if (!run->pending->told) run->ops->discard(run->context, run->pending->number, run->attempt);
        remove_pending(run, run->pending);
    }
}
