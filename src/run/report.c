/* Reports and the checkpoints that they carry: a checkpoint is whole when every rank has made the report of its
 * number and every rank that began to write has written all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "run/internal.h"

static void forget_files(struct pending *pending) {
    for (uint32_t i = 0; i < pending->n_files; i++)
        free(pending->files[i]);
    pending->n_files = 0;
}

static void free_pending(struct pending *pending) {
    forget_files(pending);
    free(pending->files);
    free(pending->waiters);
    free(pending->error);
    free(pending);
}

static struct pending *find_pending(struct run *run, uint64_t number) {
    struct pending *pending = run->pending;
    while (pending != NULL && pending->number != number)
        pending = pending->next;
    return pending;
}

static void unlink_pending(struct run *run, struct pending *gone) {
    struct pending **link = &run->pending;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
}

/* Answers everyone who waits for it. */
static void answer_all(struct run *run, const struct pending *pending, const char *path, const char *error) {
    for (uint32_t i = 0; i < pending->n_files; i++) {
        const struct commit_waiter *waiter = &pending->waiters[i];
        run->ops->answer(run->context, waiter->node, waiter->channel, pending->number, path, error);
    }
}

static void commit(struct run *run, struct pending *pending) {
    ty_error err = {0};
    char *path = NULL;
    if (run->ops->publish(run->context, pending->number, run->attempt, (const char *const *)pending->files,
                          pending->n_files, &path, &err) < 0) {
        run->ops->discard(run->context, pending->number, run->attempt);
        answer_all(run, pending, NULL, err.message);
        return;
    }
    run_record_checkpoint(run, pending->number, path);
    free(run->checkpoint);
    run->checkpoint = path;
    answer_all(run, pending, path, NULL);
}

/* A checkpoint that failed tells so as soon as nobody writes in its directory any more. */
static void settle(struct run *run, struct pending *pending) {
    bool all_came = pending->arrived == run->config.n_workers;
    if (pending->settled < pending->begun || (!all_came && pending->error == NULL)) return;
    if (pending->error == NULL) {
        commit(run, pending);
    } else {
        run->ops->discard(run->context, pending->number, run->attempt);
        answer_all(run, pending, NULL, pending->error);
    }
    /* What failed stays known until the attempt ends: a rank that begins it later must hear of it. */
    if (pending->error != NULL && !all_came) {
        forget_files(pending);
        return;
    }
    unlink_pending(run, pending);
    free_pending(pending);
}

static void fail_pending(struct pending *pending, const char *why) {
    if (pending->error == NULL) pending->error = strdup(why);
}

/* A rank that has ended makes no further report. */
static void fail_without(const struct run *run, struct pending *pending, uint32_t rank) {
    char why[128];
    uint64_t made = run->workers[rank].reports;
    (void)snprintf(why, sizeof why, "rank %u ended after %llu reports, so that this one can never be whole",
                   rank, (unsigned long long)(made - run->report_base));
    fail_pending(pending, why);
}

static struct pending *begin(struct run *run, uint64_t number) {
    struct pending *pending = find_pending(run, number);
    if (pending != NULL) return pending;
    pending = calloc(1, sizeof *pending);
    if (pending == NULL) return NULL;
    pending->number = number;
    pending->files = calloc(run->config.n_workers, sizeof *pending->files);
    pending->waiters = calloc(run->config.n_workers, sizeof *pending->waiters);
    for (uint32_t rank = 0; rank < run->config.n_workers; rank++) {
        const struct run_worker *worker = &run->workers[rank];
        bool ended = worker->state == WORKER_EXITED || worker->state == WORKER_GONE;
        pending->arrived += worker->reports >= number;
        if (ended && worker->reports < number) fail_without(run, pending, rank);
    }
    pending->next = run->pending;
    run->pending = pending;
    return pending;
}

static void add_files(struct run *run, struct pending *pending, const struct run_report *report) {
    uint32_t node = run->config.node_of[report->rank];
    char *copy = malloc(report->size + 1);
    if (pending->files == NULL || pending->waiters == NULL || copy == NULL) {
        free(copy);
        run->ops->answer(run->context, node, report->channel, pending->number, NULL, "out of memory");
        return;
    }
    memcpy(copy, report->files, report->size);
    copy[report->size] = '\0';
    pending->files[pending->n_files] = copy;
    pending->waiters[pending->n_files++] = (struct commit_waiter){node, report->channel};
}

/* A commit of a checkpoint that is not pending: of an ended attempt, or never begun. */
static void refuse_commit(struct run *run, const struct run_report *report) {
    run->ops->answer(run->context, run->config.node_of[report->rank], report->channel, report->number, NULL,
                     "no such checkpoint is being written");
}

static void arrive(struct run *run, uint32_t rank, uint64_t number) {
    run->workers[rank].reports = number;
    if (number > run->last_number) run->last_number = number;
    struct pending *pending = find_pending(run, number);
    if (pending == NULL) return;
    pending->arrived++;
    settle(run, pending);
}

static void conclude(struct run *run, const struct run_report *report) {
    struct pending *pending = find_pending(run, report->number);
    bool written = report->kind == REPORT_COMMIT;
    if (pending == NULL || run->workers[report->rank].writing != report->number) {
        if (written) refuse_commit(run, report);
        return;
    }
    pending->settled++;
    run->workers[report->rank].writing = 0;
    if (written) {
        add_files(run, pending, report);
    } else {
        struct buffer why = {0};
        buffer_printf(&why, "rank %u: %.*s", report->rank, (int)report->size, (const char *)report->files);
        fail_pending(pending, why.failed ? "a rank could not write its files" : why.data);
        buffer_done(&why);
    }
    settle(run, pending);
}

static void begin_writing(struct run *run, const struct run_report *report) {
    struct run_worker *worker = &run->workers[report->rank];
    struct pending *pending = begin(run, report->number);
    if (pending == NULL) return;
    if (worker->writing != 0) {
        fail_pending(pending, "a rank began it while it still wrote another");
        return;
    }
    pending->begun++;
    worker->writing = report->number;
}

void run_report(struct run *run, const struct run_report *report) {
    if (report->rank >= run->config.n_workers || report->number <= run->report_base) return;
    if (run->state != RUN_RUNNING && run->state != RUN_STOPPING) return;
    switch (report->kind) {
    case REPORT_BEGIN:
        begin_writing(run, report);
        arrive(run, report->rank, report->number);
        break;
    case REPORT_METRICS:
        arrive(run, report->rank, report->number);
        break;
    case REPORT_COMMIT:
    case REPORT_ABORT:
        conclude(run, report);
        break;
    default:
        break;
    }
}

void run_reports_rank_ended(struct run *run, uint32_t rank) {
    static const char unfinished[] = "ended while it wrote its files";
    uint64_t writing = run->workers[rank].writing;
    if (writing != 0)
        conclude(run, &(struct run_report){.rank = rank,
                                           .kind = REPORT_ABORT,
                                           .number = writing,
                                           .files = unfinished,
                                           .size = sizeof unfinished - 1});
    for (struct pending *pending = run->pending, *next; pending != NULL; pending = next) {
        next = pending->next;
        if (pending->number <= run->workers[rank].reports) continue;
        fail_without(run, pending, rank);
        settle(run, pending);
    }
}

void run_reports_end(struct run *run) {
    while (run->pending != NULL) {
        struct pending *pending = run->pending;
        run->pending = pending->next;
        run->ops->discard(run->context, pending->number, run->attempt);
        free_pending(pending);
    }
}
