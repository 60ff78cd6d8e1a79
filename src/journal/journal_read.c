/* Reading: each call runs its own statement, so that callbacks may read and write the same journal. Rows are
 * handed on one at a time, borrowed until the callback returns. What a row holds is checked, as any program may
 * have written the file; what rows mean is read elsewhere (run/replay.c). */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "journal/journal_sqlite.h"

/* Hands one row to the caller's callback. */
typedef int hand_row(struct journal *journal, sqlite3_stmt *row, const void *call, ty_error *err);

static int each_row(struct journal *journal, sqlite3_stmt *statement, hand_row *hand, const void *call,
                    ty_error *err) {
    for (;;) {
        int rc = sqlite3_step(statement);
        if (rc == SQLITE_DONE) return 0;
        if (rc != SQLITE_ROW) return sqlite_fail(journal, rc, "read", err);
        int result = hand(journal, statement, call, err);
        if (result != 0) return result;
    }
}

/* Prepares `sql`, binds ?1 and ?2, walks. */
static int query(struct journal *journal, const char *sql, int64_t first, int64_t second, hand_row *hand,
                 const void *call, ty_error *err) {
    int result = journal_kept_error(journal, err);
    if (result < 0) return result;
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(journal->db, sql, -1, &statement, NULL);
    int parameters = sqlite3_bind_parameter_count(statement);
    if (rc == SQLITE_OK && parameters > 0) rc = sqlite3_bind_int64(statement, 1, first);
    if (rc == SQLITE_OK && parameters > 1) rc = sqlite3_bind_int64(statement, 2, second);
    result =
        rc == SQLITE_OK ? each_row(journal, statement, hand, call, err) : sqlite_fail(journal, rc, "read", err);
    (void)sqlite3_finalize(statement);
    return result;
}

/* A text that is there until the next step; NULL only where the table allows that. */
static int read_text(struct journal *journal, sqlite3_stmt *row, int column, bool nullable, const char **text,
                     ty_error *err) {
    *text = (const char *)sqlite3_column_text(row, column);
    if (*text != NULL) return 0;
    bool null = sqlite3_column_type(row, column) == SQLITE_NULL;
    if (null && !nullable)
        return ty_fail(err, TY_ECORRUPT, "%s has a row without \"%s\"", journal->path,
                       sqlite3_column_name(row, column));
    return null ? 0 : ty_fail_memory(err);
}

struct event_call {
    journal_take_event *each;
    void *context;
};

/* 1, or 0 for an event of a later version, which may know more. */
static int read_event(struct journal *journal, sqlite3_stmt *row, struct journal_event *event, ty_error *err) {
    const char *name, *data;
    int result = read_text(journal, row, 2, false, &name, err);
    if (result == 0) result = read_text(journal, row, 6, true, &data, err);
    if (result < 0) return result;
    int kind = 0;
    while (kind < RUN_EVENT_KINDS && !str_equal(run_event_name((enum run_event_kind)kind), name))
        kind++;
    if (kind == RUN_EVENT_KINDS) return 0;
    *event = (struct journal_event){
        .time = sqlite3_column_int64(row, 1),
        .kind = (enum run_event_kind)kind,
        .attempt = sqlite3_column_int(row, 3),
        .rank = sqlite3_column_int(row, 4),
        .node = sqlite3_column_int(row, 5),
        .data = data,
    };
    return 1;
}

static int hand_event(struct journal *journal, sqlite3_stmt *row, const void *call, ty_error *err) {
    const struct event_call *to = call;
    struct journal_event event;
    int result = read_event(journal, row, &event, err);
    return result <= 0 ? result : to->each(to->context, sqlite3_column_int64(row, 0), &event);
}

int module_each_event(struct journal *journal, int64_t after_sequence, journal_take_event *each, void *context,
                      ty_error *err) {
    struct event_call call = {each, context};
    return query(journal, "SELECT " JOURNAL_EVENT_COLUMNS " FROM events WHERE sequence > ?1 ORDER BY sequence",
                 after_sequence, 0, hand_event, &call, err);
}

int journal_hand_last(struct journal *journal, sqlite3_stmt *row, journal_take_end *take, void *context) {
    const char *checkpoint;
    struct journal_event event;
    int result = read_text(journal, row, 7, true, &checkpoint, NULL);
    if (result == 0) result = read_event(journal, row, &event, NULL);
    return result <= 0 ? -EAGAIN : take(context, &event, checkpoint);
}

struct report_call {
    journal_take_report *each;
    void *context;
};

static int hand_report(struct journal *journal, sqlite3_stmt *row, const void *call, ty_error *err) {
    const struct report_call *to = call;
    const char *metrics;
    int result = read_text(journal, row, 5, false, &metrics, err);
    if (result < 0) return result;
    struct journal_report report = {
        .id = sqlite3_column_int64(row, 0),
        .time = sqlite3_column_int64(row, 1),
        .attempt = sqlite3_column_int(row, 2),
        .rank = sqlite3_column_int(row, 3),
        .number = (uint64_t)sqlite3_column_int64(row, 4),
        .metrics = metrics,
        .metrics_size = (size_t)sqlite3_column_bytes(row, 5),
    };
    return to->each(to->context, &report);
}

#define REPORT_COLUMNS "id, time, attempt, rank, number, metrics"

/* The newest are found from the end of the table, without an index that every report would have to pay for;
 * those of all ranks by their ids, which need no sorting. */
int module_each_report(struct journal *journal, int rank, size_t limit, journal_take_report *each,
                       void *context, ty_error *err) {
    struct report_call call = {each, context};
    if (limit == 0)
        return query(journal, "SELECT " REPORT_COLUMNS " FROM reports WHERE ?1 < 0 OR rank = ?1 ORDER BY id",
                     rank, 0, hand_report, &call, err);
    int64_t most = limit < INT64_MAX ? (int64_t)limit : INT64_MAX;
    if (rank < 0)
        return query(journal,
                     "SELECT " REPORT_COLUMNS
                     " FROM reports WHERE id > (SELECT max(id) FROM reports) - ?2 AND ?1 < 0 ORDER BY id",
                     rank, most, hand_report, &call, err);
    return query(journal,
                 "SELECT " REPORT_COLUMNS " FROM (SELECT " REPORT_COLUMNS
                 " FROM reports WHERE ?1 < 0 OR rank = ?1 ORDER BY id DESC LIMIT ?2) ORDER BY id",
                 rank, most, hand_report, &call, err);
}

/* The statement is kept: a sample asks for many short pieces. */
int module_each_report_between(struct journal *journal, int64_t first, int64_t last, journal_take_report *each,
                               void *context, ty_error *err) {
    struct report_call call = {each, context};
    sqlite3_stmt **between = &journal->reports_between;
    int result = journal_kept_error(journal, err);
    if (result < 0) return result;
    int rc = journal_prepare(journal, between,
                             "SELECT " REPORT_COLUMNS " FROM reports WHERE id BETWEEN ?1 AND ?2 ORDER BY id");
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(*between, 1, first);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(*between, 2, last);
    result = rc == SQLITE_OK ? each_row(journal, *between, hand_report, &call, err)
                             : sqlite_fail(journal, rc, "read", err);
    (void)sqlite3_reset(*between);
    return result;
}

struct checkpoint_call {
    journal_take_checkpoint *each;
    void *context;
};

static int hand_checkpoint(struct journal *journal, sqlite3_stmt *row, const void *call, ty_error *err) {
    const struct checkpoint_call *to = call;
    const char *name, *metrics;
    int result = read_text(journal, row, 3, false, &name, err);
    if (result == 0) result = read_text(journal, row, 4, true, &metrics, err);
    if (result < 0) return result;
    struct journal_checkpoint checkpoint = {
        .number = (uint64_t)sqlite3_column_int64(row, 0),
        .time = sqlite3_column_int64(row, 1),
        .attempt = sqlite3_column_int(row, 2),
        .name = name,
        .metrics = metrics,
    };
    return to->each(to->context, &checkpoint);
}

int module_each_checkpoint(struct journal *journal, journal_take_checkpoint *each, void *context,
                           ty_error *err) {
    struct checkpoint_call call = {each, context};
    return query(journal, "SELECT number, time, attempt, name, metrics FROM checkpoints ORDER BY number", 0, 0,
                 hand_checkpoint, &call, err);
}

/* From the end of the table, where a report that was just made lies; an index would be paid for by every
 * report. */
int module_find_report(struct journal *journal, int attempt, int rank, uint64_t number, char **metrics,
                       ty_error *err) {
    int result = journal_kept_error(journal, err);
    if (result < 0) return result;
    sqlite3_stmt **find = &journal->find_report;
    int rc = journal_prepare(journal, find,
                             "SELECT metrics FROM reports WHERE attempt = ?1 AND rank = ?2 AND number = ?3"
                             " ORDER BY id DESC LIMIT 1");
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(*find, 1, attempt);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(*find, 2, rank);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(*find, 3, (sqlite3_int64)number);
    if (rc == SQLITE_OK) rc = sqlite3_step(*find);
    if (rc == SQLITE_ROW) {
        const char *text;
        result = read_text(journal, *find, 0, false, &text, err);
        *metrics = result < 0 ? NULL : strdup(text);
        if (result == 0) result = *metrics == NULL ? ty_fail_memory(err) : 1;
    } else if (rc != SQLITE_DONE) {
        result = sqlite_fail(journal, rc, "read", err);
    }
    (void)sqlite3_reset(*find);
    return result;
}

struct last_reports {
    int attempt;
    uint64_t *numbers;
    size_t n, *unknown;
};

/* 1: no earlier row has any more of it. */
static int hand_last_report(struct journal *journal, sqlite3_stmt *row, const void *call, ty_error *err) {
    (void)journal, (void)err;
    const struct last_reports *to = call;
    int attempt = sqlite3_column_int(row, 0);
    int64_t rank = sqlite3_column_int64(row, 1);
    if (attempt < to->attempt) return 1;
    if (attempt > to->attempt || rank < 0 || (size_t)rank >= to->n || to->numbers[rank] > 0) return 0;
    to->numbers[rank] = (uint64_t)sqlite3_column_int64(row, 2);
    return --*to->unknown == 0;
}

/* Attempts come one behind the other: one pass from the end of the table, without an index. */
int module_last_reports(struct journal *journal, int attempt, uint64_t *numbers, size_t n, ty_error *err) {
    size_t unknown = n;
    struct last_reports call = {attempt, numbers, n, &unknown};
    memset(numbers, 0, n * sizeof *numbers);
    int result = query(journal, "SELECT attempt, rank, number FROM reports ORDER BY id DESC", 0, 0,
                       hand_last_report, &call, err);
    return result < 0 ? result : 0;
}

struct number_call {
    uint64_t *number;
};

static int hand_number(struct journal *journal, sqlite3_stmt *row, const void *call, ty_error *err) {
    (void)journal, (void)err;
    *((const struct number_call *)call)->number = (uint64_t)sqlite3_column_int64(row, 0);
    return 0;
}

/* The number of a statement that gives exactly one row: 0 where that is NULL, as of a table without rows. */
static int read_one(struct journal *journal, const char *sql, uint64_t *number, ty_error *err) {
    uint64_t found = 0;
    const struct number_call call = {&found};
    int result = query(journal, sql, 0, 0, hand_number, &call, err);
    if (result == 0) *number = found;
    return result;
}

/* Reports are numbered from 1 and never removed, so the last id is their count. count(*) would walk the whole
 * table. */
int module_count_reports(struct journal *journal, uint64_t *count, ty_error *err) {
    return read_one(journal, "SELECT max(id) FROM reports", count, err);
}

int module_last_number(struct journal *journal, uint64_t *number, ty_error *err) {
    return read_one(journal,
                    "SELECT max(coalesce((SELECT max(number) FROM reports), 0),"
                    " coalesce((SELECT max(number) FROM checkpoints), 0))",
                    number, err);
}
