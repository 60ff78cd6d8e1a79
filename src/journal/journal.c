/* The journal's face: it loads the module with the first journal and hands every call on. */
#include "journal/journal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "journal/journal_module.h"
#include "journal/usage_db.h"

static _Atomic(const struct journal_module *) loaded;

/* Loading twice gives the same module, so threads that race here agree. */
static const struct journal_module *load(ty_error *err) {
    if (loaded == NULL) loaded = module_load("journal", err);
    return loaded;
}

bool journal_exists(const char *run_path) {
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/run.db", run_path) < 0) {
        path = NULL;
        return false;
    }
    return access(path, F_OK) == 0;
}

int journal_open(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open the journal of %s", run_path);
    return module->open(run_path, mode, journal, err);
}

int journal_read(const char *run_path, int (*read)(void *context, struct journal *journal, ty_error *err),
                 void *context, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open the journal of %s", run_path);
    return module->read(run_path, read, context, err);
}

int journal_finish(struct journal *journal, ty_error *err) {
    return loaded->finish(journal, err);
}

void journal_close(struct journal *journal) {
    if (journal != NULL) loaded->close(journal);
}

int journal_event(struct journal *journal, const struct journal_event *event, ty_error *err) {
    return loaded->event(journal, event, err);
}

int journal_report(struct journal *journal, const struct journal_report *report, ty_error *err) {
    return loaded->report(journal, report, err);
}

int journal_checkpoint(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err) {
    return loaded->checkpoint(journal, checkpoint, err);
}

int journal_forget_checkpoint(struct journal *journal, uint64_t number, ty_error *err) {
    return loaded->forget_checkpoint(journal, number, err);
}

int journal_checkpoint_metrics(struct journal *journal, uint64_t number, const char *metrics, ty_error *err) {
    return loaded->checkpoint_metrics(journal, number, metrics, err);
}

int journal_commit(struct journal *journal, ty_error *err) {
    return loaded->commit(journal, false, err);
}

int journal_commit_durable(struct journal *journal, ty_error *err) {
    return loaded->commit(journal, true, err);
}

int journal_each_event(struct journal *journal, int64_t after_sequence,
                       int (*each)(void *context, int64_t sequence, const struct journal_event *event),
                       void *context, ty_error *err) {
    return loaded->each_event(journal, after_sequence, each, context, err);
}

int journal_event_values(const struct journal_event *row, struct run_event *event,
                         struct event_memory *memory) {
    *event = (struct run_event){
        .time = row->time, .kind = row->kind, .attempt = row->attempt, .rank = row->rank, .node = row->node};
    return run_event_decode(event, row->data, memory);
}

static int replay_row(void *context, int64_t sequence, const struct journal_event *row) {
    struct run_replay *replay = context;
    struct run_event event;
    struct event_memory memory = {0};
    (void)sequence;
    if (journal_event_values(row, &event, &memory) < 0) replay->failed = true;
    replay_note(replay, &event);
    event_memory_done(&memory);
    return replay->failed ? -ENOMEM : 0;
}

int journal_replay(struct journal *journal, struct run_replay *replay, ty_error *err) {
    int result = journal_each_event(journal, 0, replay_row, replay, err);
    return replay->failed ? ty_fail_memory(err) : result;
}

int journal_each_report(struct journal *journal, int rank, size_t limit,
                        int (*each)(void *context, const struct journal_report *report), void *context,
                        ty_error *err) {
    return loaded->each_report(journal, rank, limit, each, context, err);
}

int journal_each_report_between(struct journal *journal, int64_t first, int64_t last,
                                int (*each)(void *context, const struct journal_report *report), void *context,
                                ty_error *err) {
    return loaded->each_report_between(journal, first, last, each, context, err);
}

int journal_each_checkpoint(struct journal *journal,
                            int (*each)(void *context, const struct journal_checkpoint *checkpoint),
                            void *context, ty_error *err) {
    return loaded->each_checkpoint(journal, each, context, err);
}

int journal_find_report(struct journal *journal, int attempt, int rank, uint64_t number, char **metrics,
                        ty_error *err) {
    return loaded->find_report(journal, attempt, rank, number, metrics, err);
}

int journal_count_reports(struct journal *journal, uint64_t *count, nanoseconds *first, ty_error *err) {
    return loaded->count_reports(journal, count, first, err);
}

int journal_ends_create(struct journal_ends **ends, ty_error *err) {
    const struct journal_module *module = load(err);
    return module == NULL ? ty_wrap(err, "cannot read journals") : module->ends_create(ends, err);
}

void journal_ends_destroy(struct journal_ends *ends) {
    if (ends != NULL) loaded->ends_destroy(ends);
}

int journal_ends_read(struct journal_ends *ends, const char *run_path,
                      int (*take)(void *context, const struct journal_event *event, const char *checkpoint),
                      void *context) {
    return loaded->ends_read(ends, run_path, take, context);
}

int journal_last_number(struct journal *journal, uint64_t *number, ty_error *err) {
    return loaded->last_number(journal, number, err);
}

/* -- samples of the hardware */

int usage_db_open(const char *run_path, struct journal **db, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open usage.db of %s", run_path);
    return module->usage_open(run_path, db, err);
}

int usage_db_read(const char *run_path, int (*read)(void *context, struct journal *db, ty_error *err),
                  void *context, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open usage.db of %s", run_path);
    return module->usage_read(run_path, read, context, err);
}

int usage_db_add(struct journal *db, const char *node, const struct usage_sample *sample, ty_error *err) {
    return loaded->usage_add(db, node, sample, err);
}

int usage_db_thin(struct journal *db, nanoseconds now, int64_t most_bytes, ty_error *err) {
    return loaded->usage_thin(db, now, most_bytes, err);
}

int usage_db_each(struct journal *db, const struct usage_query *query,
                  int (*each)(void *context, const struct usage_row *row), void *context, ty_error *err) {
    return loaded->usage_each(db, query, each, context, err);
}
