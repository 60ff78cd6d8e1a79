/* What the face of the journal (journal.c) and its module (journal_*.c, which alone link SQLite) agree on: the
 * struct that the module exports as `trainyard_journal`. The members do what journal.h says of their
 * namesakes. */
#ifndef JOURNAL_JOURNAL_MODULE_H
#define JOURNAL_JOURNAL_MODULE_H

#include "journal/journal.h"
#include "journal/usage_db.h"

struct journal_module {
    const char *version;
    int (*open)(const char *run_path, enum journal_mode mode, struct journal **journal, ty_error *err);
    int (*read)(const char *run_path, int (*read)(void *context, struct journal *journal, ty_error *err),
                void *context, ty_error *err);
    void (*close)(struct journal *journal);
    int (*finish)(struct journal *journal, ty_error *err);
    int (*event)(struct journal *journal, const struct journal_event *event, ty_error *err);
    int (*report)(struct journal *journal, const struct journal_report *report, ty_error *err);
    int (*checkpoint)(struct journal *journal, const struct journal_checkpoint *checkpoint, ty_error *err);
    int (*forget_checkpoint)(struct journal *journal, uint64_t number, ty_error *err);
    int (*checkpoint_metrics)(struct journal *journal, uint64_t number, const char *metrics, ty_error *err);
    int (*commit)(struct journal *journal, bool durable, ty_error *err);
    int (*each_event)(struct journal *journal, int64_t after_sequence,
                      int (*each)(void *context, int64_t sequence, const struct journal_event *event),
                      void *context, ty_error *err);
    int (*each_report)(struct journal *journal, int rank, size_t limit,
                       int (*each)(void *context, const struct journal_report *report), void *context,
                       ty_error *err);
    int (*each_report_between)(struct journal *journal, int64_t first, int64_t last,
                               int (*each)(void *context, const struct journal_report *report), void *context,
                               ty_error *err);
    int (*each_checkpoint)(struct journal *journal,
                           int (*each)(void *context, const struct journal_checkpoint *checkpoint),
                           void *context, ty_error *err);
    int (*find_report)(struct journal *journal, int attempt, int rank, uint64_t number, char **metrics,
                       ty_error *err);
    int (*count_reports)(struct journal *journal, uint64_t *count, nanoseconds *first, ty_error *err);
    int (*last_number)(struct journal *journal, uint64_t *number, ty_error *err);
    int (*ends_create)(struct journal_ends **ends, ty_error *err);
    void (*ends_destroy)(struct journal_ends *ends);
    int (*ends_read)(struct journal_ends *ends, const char *run_path,
                     int (*take)(void *context, const struct journal_event *event, const char *checkpoint),
                     void *context);
    int (*usage_open)(const char *run_path, struct journal **db, ty_error *err);
    int (*usage_read)(const char *run_path, int (*read)(void *context, struct journal *db, ty_error *err),
                      void *context, ty_error *err);
    int (*usage_add)(struct journal *db, const char *node, const struct usage_sample *sample, ty_error *err);
    int (*usage_thin)(struct journal *db, nanoseconds now, int64_t most_bytes, ty_error *err);
    int (*usage_each)(struct journal *db, const struct usage_query *query,
                      int (*each)(void *context, const struct usage_row *row), void *context, ty_error *err);
};

extern const struct journal_module trainyard_journal;

#endif
