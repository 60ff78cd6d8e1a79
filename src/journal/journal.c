/* The journal's face: it loads the module with the first journal and hands every call on, so that a process
 * that reads none never loads SQLite. Rows become events with values here (journal_event_values); the tables,
 * and how they are written, are the module's. */
#include "journal/journal.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/module.h"
#include "base/str.h"
#include "journal/journal_module.h"
#include "journal/usage_db.h"

static _Atomic(const struct journal_module *) loaded;

/* Whoever has a journal has loaded the module. */
#define X(face, name, parameters, arguments) \
    int face parameters {                    \
        return loaded->name arguments;       \
    }
JOURNAL_CALLS(X)
#undef X

/* Loading twice gives the same module, so threads that race here agree. */
static const struct journal_module *load(ty_error *err) {
    if (loaded == NULL) loaded = module_load("journal", err);
    return loaded;
}

int journal_exists(const char *run_path) {
    CLEANUP_FREE char *path = str_format("%s/run.db", run_path);
    if (path == NULL) return -ENOMEM;
    if (access(path, F_OK) == 0) return 1;
    return errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG ? 0 : -errno;
}

int journal_open(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open the journal of %s", run_path);
    return module->open(run_path, mode, journal, err);
}

int journal_read(const char *run_path, journal_reading *read, void *context, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open the journal of %s", run_path);
    return module->read(run_path, read, context, err);
}

void journal_close(struct journal *journal) {
    if (journal != NULL) loaded->close(journal);
}

int journal_commit(struct journal *journal, ty_error *err) {
    return loaded->commit(journal, false, err);
}

int journal_commit_durable(struct journal *journal, ty_error *err) {
    return loaded->commit(journal, true, err);
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

int journal_ends_create(struct journal_ends **ends, ty_error *err) {
    const struct journal_module *module = load(err);
    return module == NULL ? ty_wrap(err, "cannot read journals") : module->ends_create(ends, err);
}

void journal_ends_destroy(struct journal_ends *ends) {
    if (ends != NULL) loaded->ends_destroy(ends);
}

/* -- samples of the hardware */

int usage_db_open(const char *run_path, struct journal **db, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open usage.db of %s", run_path);
    return module->usage_open(run_path, db, err);
}

int usage_db_read(const char *run_path, journal_reading *read, void *context, ty_error *err) {
    const struct journal_module *module = load(err);
    if (module == NULL) return ty_wrap(err, "cannot open usage.db of %s", run_path);
    return module->usage_read(run_path, read, context, err);
}
