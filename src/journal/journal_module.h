/* What the face of the journal (journal.c) and its module (journal_*.c, which alone link SQLite) agree on: the
 * struct that the module exports as `trainyard_journal`. The members do what journal.h says of their
 * namesakes. */
#ifndef JOURNAL_JOURNAL_MODULE_H
#define JOURNAL_JOURNAL_MODULE_H

#include "journal/journal.h"
#include "journal/usage_db.h"

/* X(face, name, parameters, arguments): the calls that the face hands on as they are, to the module's functions
 * module_NAME. */
#define JOURNAL_CALLS(X)                                                                                      \
    X(journal_finish, finish, (struct journal * journal, ty_error * err), (journal, err))                     \
    X(journal_leave, leave, (struct journal * journal, const ty_error *why), (journal, why))                  \
    X(journal_event, event, (struct journal * journal, const struct journal_event *event, ty_error *err),     \
      (journal, event, err))                                                                                  \
    X(journal_report, report, (struct journal * journal, const struct journal_report *report, ty_error *err), \
      (journal, report, err))                                                                                 \
    X(journal_checkpoint, checkpoint,                                                                         \
      (struct journal * journal, const struct journal_checkpoint *checkpoint, ty_error *err),                 \
      (journal, checkpoint, err))                                                                             \
    X(journal_forget_checkpoint, forget_checkpoint,                                                           \
      (struct journal * journal, uint64_t number, ty_error * err), (journal, number, err))                    \
    X(journal_checkpoint_metrics, checkpoint_metrics,                                                         \
      (struct journal * journal, uint64_t number, const char *metrics, ty_error *err),                        \
      (journal, number, metrics, err))                                                                        \
    X(journal_each_event, each_event,                                                                         \
      (struct journal * journal, int64_t after_sequence, journal_take_event * each, void *context,            \
       ty_error *err),                                                                                        \
      (journal, after_sequence, each, context, err))                                                          \
    X(journal_each_report, each_report,                                                                       \
      (struct journal * journal, int rank, size_t limit, journal_take_report *each, void *context,            \
       ty_error *err),                                                                                        \
      (journal, rank, limit, each, context, err))                                                             \
    X(journal_each_report_between, each_report_between,                                                       \
      (struct journal * journal, int64_t first, int64_t last, journal_take_report * each, void *context,      \
       ty_error *err),                                                                                        \
      (journal, first, last, each, context, err))                                                             \
    X(journal_each_checkpoint, each_checkpoint,                                                               \
      (struct journal * journal, journal_take_checkpoint * each, void *context, ty_error *err),               \
      (journal, each, context, err))                                                                          \
    X(journal_find_report, find_report,                                                                       \
      (struct journal * journal, int attempt, int rank, uint64_t number, char **metrics, ty_error *err),      \
      (journal, attempt, rank, number, metrics, err))                                                         \
    X(journal_last_reports, last_reports,                                                                     \
      (struct journal * journal, int attempt, uint64_t *numbers, size_t n, ty_error *err),                    \
      (journal, attempt, numbers, n, err))                                                                    \
    X(journal_count_reports, count_reports, (struct journal * journal, uint64_t * count, ty_error * err),     \
      (journal, count, err))                                                                                  \
    X(journal_last_number, last_number, (struct journal * journal, uint64_t * number, ty_error * err),        \
      (journal, number, err))                                                                                 \
    X(journal_ends_read, ends_read,                                                                           \
      (struct journal_ends * ends, const char *run_path, journal_take_end *take, void *context),              \
      (ends, run_path, take, context))                                                                        \
    X(usage_db_add, usage_add,                                                                                \
      (struct journal * db, const char *node, const struct usage_sample *sample, ty_error *err),              \
      (db, node, sample, err))                                                                                \
    X(usage_db_thin, usage_thin, (struct journal * db, nanoseconds now, int64_t most_bytes, ty_error * err),  \
      (db, now, most_bytes, err))                                                                             \
    X(usage_db_each, usage_each,                                                                              \
      (struct journal * db, const struct usage_query *query, usage_take_row *each, void *context,             \
       ty_error *err),                                                                                        \
      (db, query, each, context, err))

struct journal_module {
    const char *version;
#define X(face, name, parameters, arguments) int(*name) parameters;
    JOURNAL_CALLS(X)
#undef X
    int (*open)(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err);
    int (*read)(const char *run_path, journal_reading *read, void *context, ty_error *err);
    void (*close)(struct journal *journal);
    int (*commit)(struct journal *journal, bool durable, ty_error *err);
    int (*ends_create)(struct journal_ends **ends, ty_error *err);
    void (*ends_destroy)(struct journal_ends *ends);
    int (*usage_open)(const char *run_path, struct journal **db, ty_error *err);
    int (*usage_read)(const char *run_path, journal_reading *read, void *context, ty_error *err);
};

extern const struct journal_module trainyard_journal;

#endif
