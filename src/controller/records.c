/* The journal's writer: rows gather in batches during a turn, and a thread writes them. Batches, their texts
 * and the journal itself belong to the thread while it works on them: when it hangs it keeps them. What waits
 * for rows to be written asks by their count (records_have); what rows mean is not known here. */
#include "controller/records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "controller/run_lock.h"

enum { FULL = 4 << 20 }; /* bytes that may gather: 20,000 reports or so */
enum { NO_TEXT = -1 };   /* in place of an offset */

enum row_kind { ROW_EVENT, ROW_REPORT, ROW_CHECKPOINT, ROW_CHECKPOINT_METRICS, ROW_FORGET };

struct row {
    enum row_kind kind;
    ssize_t data, name; /* offsets of its texts in those of the batch */
    union {
        struct journal_event event;
        struct journal_report report;
        struct journal_checkpoint checkpoint;
        uint64_t number;
    } of;
};

struct batch {
    struct storage_job job;
    struct records *records; /* for what follows */
    struct journal *journal;
    int lock; /* of the run */
    struct row *rows;
    size_t n;
    struct buffer texts;
    bool durable, last; /* last: the journal is finished behind it */
    bool cut;           /* the journal came to nothing under it */
    char *metrics;      /* of the checkpoint in it, as they are on record */
    int result;
    ty_error error;
};

/* The end of the journal, which is the thread's as well. */
struct closing {
    struct storage_job job;
    struct journal *journal;
    int lock; /* of the run */
};

struct records {
    char *path; /* of run.db */
    struct journal *journal;
    int lock; /* of the run, borrowed; -1: none */
    struct closing *closing;
    struct storage *storage;
    struct batch *gathered; /* NULL: nothing */
    bool writing;           /* a batch is in the thread's hands */
    bool finished;          /* nothing was taken since */
    uint64_t n_taken, n_settled;
    ty_error error;
    void (*written)(void *context);
    void *written_context;
    void (*then)(void *context, const char *metrics);
    void *then_context;
    uint64_t then_count;
};

/* -- in the thread */

static const char *text_at(const struct batch *batch, ssize_t offset) {
    return offset == NO_TEXT ? NULL : batch->texts.data + offset;
}

static int write_row(struct batch *batch, struct row *row, ty_error *err) {
    struct journal *journal = batch->journal;
    struct journal_checkpoint *checkpoint = &row->of.checkpoint;
    const char *data = text_at(batch, row->data);
    switch (row->kind) {
    case ROW_EVENT:
        row->of.event.data = data;
        return journal_event(journal, &row->of.event, err);
    case ROW_REPORT:
        row->of.report.metrics = data;
        return journal_report(journal, &row->of.report, err);
    case ROW_CHECKPOINT:
        /* The metrics of a checkpoint are those of rank 0's report of its number, which is on record, perhaps
         * by this very batch; what came with the checkpoint stands in where there is none. */
        free(TAKE(batch->metrics));
        if (journal_find_report(journal, checkpoint->attempt, 0, checkpoint->number, &batch->metrics, NULL) !=
                1 &&
            data != NULL)
            batch->metrics = strdup(data);
        checkpoint->metrics = batch->metrics;
        checkpoint->name = text_at(batch, row->name);
        return journal_checkpoint(journal, checkpoint, err);
    case ROW_CHECKPOINT_METRICS:
        return journal_checkpoint_metrics(journal, row->of.number, data, err);
    default:
        return journal_forget_checkpoint(journal, row->of.number, err);
    }
}

int records_check_lock(int lock, const char *path, struct journal *journal, ty_error *err) {
    CLEANUP_FREE char *run_path = lock < 0 ? NULL : strndup(path, (size_t)(strrchr(path, '/') - path));
    if (lock < 0) return 0;
    if (run_path == NULL) return ty_fail_memory(err);
    if (run_lock_check(lock, run_path, err) == 0) return 0;
    if (err->code == TY_EEXISTS && journal != NULL) (void)journal_leave(journal, err);
    return ty_wrap(err, "cannot write %s", path);
}

static void write_batch(struct storage_job *job) {
    struct batch *batch = (struct batch *)job;
    ty_error *err = &batch->error;
    /* Before each batch: a controller that stood still for long may have been taken over, and a journal has one
     * writer. */
    int result = records_check_lock(batch->lock, job->path, batch->journal, err);
    for (size_t i = 0; i < batch->n && result >= 0; i++)
        result = write_row(batch, &batch->rows[i], err);
    if (result >= 0)
        result =
            batch->durable ? journal_commit_durable(batch->journal, err) : journal_commit(batch->journal, err);
    if (result >= 0 && batch->last) result = journal_finish(batch->journal, err);
    batch->result = result;
}

/* The index, which is all of it that is mapped, lost its pages under a call: nothing of the journal can be used
 * any more, not even to close it. */
static void cut_batch(struct storage_job *job) {
    struct batch *batch = (struct batch *)job;
    batch->cut = true;
    batch->result = ty_fail(&batch->error, TY_ECORRUPT,
                            "cannot write %s: %s-shm was cut short by another program", job->path, job->path);
}

static void close_journal(struct storage_job *job) {
    struct closing *closing = (struct closing *)job;
    ty_error why = {0};
    if (closing->journal != NULL) (void)records_check_lock(closing->lock, job->path, closing->journal, &why);
    journal_close(TAKE(closing->journal));
}

static void cut_closing(struct storage_job *job) {
    (void)job; /* all that was acknowledged is in the log */
}

static void free_closing(struct storage_job *job) {
    close_journal(job);
    free(job);
}

/* -- on the loop */

static void free_batch(struct storage_job *job) {
    struct batch *batch = (struct batch *)job;
    if (batch == NULL) return;
    free(batch->rows);
    buffer_done(&batch->texts);
    free(batch->metrics);
    free(batch);
}

/* Nothing more is written, whatever becomes of the batch in the thread's hands. All rows count as settled: what
 * waits for them, a launch or the answer to a worker, must not wait for ever. */
static void fail_with(struct records *records, const ty_error *error) {
    records->error = *error;
    free_batch((struct storage_job *)TAKE(records->gathered));
    records->n_settled = records->n_taken;
}

void records_abandon(struct records *records, const ty_error *why) {
    storage_hold(records->storage, true);
    fail_with(records, why);
}

static void fail(struct records *records, int code, const char *why) {
    ty_error error;
    (void)ty_fail(&error, code, "cannot write %s: %s", records->path, why);
    fail_with(records, &error);
}

static void call_back(struct records *records, const char *metrics) {
    if (records->then == NULL || !records_have(records, records->then_count)) return;
    /* Taken first: whoever is called may ask for the next one. */
    void (*then)(void *context, const char *metrics) = TAKE(records->then);
    then(records->then_context, metrics);
}

static void tell(struct records *records, const char *metrics) {
    if (records->written != NULL) records->written(records->written_context);
    call_back(records, metrics);
}

/* A batch that was given up (records_wait) may end well all the same. The records stay failed: rows behind it
 * are gone, and what is on record has no gap in it. */
static void end_batch(struct storage_job *job) {
    const struct batch *batch = (const struct batch *)job;
    struct records *records = batch->records;
    records->writing = false;
    if (batch->cut) records->closing->journal = NULL;
    if (records->error.code != 0) { /* nobody waited that long, or memory was short for what came behind it */
        call_back(records, NULL);
        return;
    }
    records->n_settled += batch->n;
    if (batch->result < 0) fail_with(records, &batch->error);
    tell(records, batch->metrics);
}

int records_open(struct journal **journal, const char *run_path, int lock, struct records **out,
                 ty_error *err) {
    struct records *made = calloc(1, sizeof *made);
    struct closing *closing = calloc(1, sizeof *closing);
    if (made != NULL && asprintf(&made->path, "%s/run.db", run_path) < 0) made->path = NULL;
    int result = closing == NULL || made == NULL || made->path == NULL
                     ? ty_fail_memory(err)
                     : storage_open(lock, &made->storage, err);
    if (result < 0) {
        if (made != NULL) free(made->path);
        free(made);
        free(closing);
        return result;
    }
    closing->job = (struct storage_job){.work = close_journal,
                                        .release = free_closing,
                                        .apart = true,
                                        .series = true,
                                        .cut = cut_closing,
                                        .what = "closing",
                                        .path = made->path};
    closing->journal = made->journal = TAKE(*journal);
    made->closing = closing;
    made->lock = closing->lock = lock;
    *out = made;
    return 0;
}

void records_close(struct records *records, nanoseconds limit) {
    if (records == NULL) return;
    records->written = NULL;
    records->then = NULL;
    records_wait(records, limit);
    /* Behind the last batch: the thread does one job after the other. */
    storage_post(records->storage, &TAKE(records->closing)->job);
    storage_close(records->storage, limit);
    free_batch((struct storage_job *)records->gathered);
    free(records->path);
    free(records);
}

struct journal *records_journal(const struct records *records) {
    return records->journal;
}

static struct batch *make_batch(struct records *records) {
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) return NULL;
    *batch = (struct batch){
        .job = {.work = write_batch,
                .done = end_batch,
                .release = free_batch,
                .series = true,
                .cut = cut_batch,
                .what = "writing",
                .path = records->path},
        .records = records,
        .journal = records->journal,
        .lock = records->lock,
    };
    records->gathered = batch;
    return batch;
}

static ssize_t add_text(struct batch *batch, const char *text, size_t size) {
    ssize_t offset = (ssize_t)batch->texts.size;
    if (text == NULL) return NO_TEXT;
    buffer_append(&batch->texts, text, size);
    buffer_char(&batch->texts, '\0');
    return offset;
}

static size_t size_of(const char *text) {
    return text == NULL ? 0 : strlen(text);
}

/* Beginnings are written by the thread itself, unless a process is at work already: then the processes of a run
 * are those that it has begun, and nothing that was acknowledged is on its way. */
static bool is_beginning(const struct row *row) {
    if (row->kind != ROW_EVENT) return false;
    switch (row->of.event.kind) {
    case EVENT_RUN:
    case EVENT_WAIT:
    case EVENT_PLAN:
    case EVENT_NETWORK:
    case EVENT_ATTEMPT:
    case EVENT_NODE:
    case EVENT_LAUNCHED:
    case EVENT_ADOPTED:
    case EVENT_STARTED:
    case EVENT_READY:
    case EVENT_RENDEZVOUS:
        return true;
    default:
        return false;
    }
}

/* What is taken of `row` are the values; its texts follow. */
static void take(struct records *records, struct row row, const char *data, size_t size, const char *name) {
    if (records->error.code != 0) return;
    struct batch *batch = records->gathered != NULL ? records->gathered : make_batch(records);
    bool taken = batch != NULL && ARRAY_GROW(batch->rows, batch->n) == 0;
    if (taken) {
        row.data = add_text(batch, data, size);
        row.name = add_text(batch, name, size_of(name));
        batch->rows[batch->n++] = row;
    }
    if (!taken || batch->texts.failed) {
        fail(records, -ENOMEM, "out of memory");
        return;
    }
    batch->job.apart |= !is_beginning(&row);
    /* A worker, or the user, relies on a checkpoint that is told, or gone: such rows are synced. */
    batch->durable |= row.kind >= ROW_CHECKPOINT;
    records->n_taken++;
    records->finished = false;
}

void records_event(struct records *records, const struct run_event *event) {
    if (records->error.code != 0) return;
    struct journal_event row = {.time = event->time,
                                .kind = event->kind,
                                .attempt = event->attempt,
                                .rank = event->rank,
                                .node = event->node};
    CLEANUP(buffer_done) struct buffer data = {0};
    run_event_encode(event, &data);
    if (data.failed)
        fail(records, -ENOMEM, "out of memory");
    else
        take(records, (struct row){.kind = ROW_EVENT, .of.event = row}, data.data, data.size, NULL);
}

void records_report(struct records *records, const struct journal_report *report) {
    take(records, (struct row){.kind = ROW_REPORT, .of.report = *report}, report->metrics, report->metrics_size,
         NULL);
}

void records_checkpoint(struct records *records, const struct journal_checkpoint *checkpoint) {
    take(records, (struct row){.kind = ROW_CHECKPOINT, .of.checkpoint = *checkpoint}, checkpoint->metrics,
         size_of(checkpoint->metrics), checkpoint->name);
}

void records_checkpoint_metrics(struct records *records, uint64_t number, const char *metrics) {
    take(records, (struct row){.kind = ROW_CHECKPOINT_METRICS, .of.number = number}, metrics, strlen(metrics),
         NULL);
}

void records_forget_checkpoint(struct records *records, uint64_t number) {
    take(records, (struct row){.kind = ROW_FORGET, .of.number = number}, NULL, 0, NULL);
}

const ty_error *records_error(const struct records *records) {
    return &records->error;
}

void records_commit(struct records *records) {
    if (records->gathered == NULL || records->writing) return;
    records->writing = true;
    storage_post(records->storage, &TAKE(records->gathered)->job);
}

void records_finish(struct records *records) {
    if (records->finished || records->error.code != 0) return;
    struct batch *batch = records->gathered != NULL ? records->gathered : make_batch(records);
    if (batch == NULL) return; /* closing does the same, and tells nobody */
    batch->last = records->finished = true;
    records_commit(records);
}

uint64_t records_count(const struct records *records) {
    return records->n_taken;
}

bool records_have(const struct records *records, uint64_t count) {
    return records->n_settled >= count;
}

bool records_busy(const struct records *records) {
    return records->gathered != NULL || (records->writing && records->error.code == 0);
}

bool records_full(const struct records *records) {
    const struct batch *batch = records->gathered;
    return batch != NULL && batch->texts.size + batch->n * sizeof *batch->rows > FULL;
}

struct storage *records_storage(const struct records *records) {
    return records->storage;
}

void records_listen(struct records *records, void (*written)(void *context), void *context) {
    records->written = written;
    records->written_context = context;
}

void records_then(struct records *records, void (*then)(void *context, const char *metrics), void *context) {
    records->then = then;
    records->then_context = context;
    records->then_count = records->n_taken;
    if (then != NULL && records->error.code != 0) tell(records, NULL);
}

/* What is written may bring about further rows, by those who hear of it, until none comes any more. */
void records_wait(struct records *records, nanoseconds limit) {
    nanoseconds end = clock_monotonic() + storage_patience(records->storage, limit);
    while (records_busy(records)) {
        records_commit(records);
        if (storage_wait(records->storage, end - clock_monotonic())) continue;
        fail(records, -ETIMEDOUT, "the storage hangs");
        tell(records, NULL);
    }
}
