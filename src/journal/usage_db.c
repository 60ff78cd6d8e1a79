/* Samples inside the module of SQLite: added, thinned, read. Thinning replaces rows by the means of their span
 * in one transaction; a sample that is lost with the machine is no loss. What no sampler of ours wrote is
 * passed over when it is read. */
#include "journal/usage_db.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "journal/journal_sqlite.h"

enum { MINUTE_MS = 60 * 1000, PRESSURE_MAX = 6 };

const struct journal_form journal_of_usage = {.name = USAGE_DB_NAME,
                                              .what = "samples of a run's hardware",
                                              .schema = USAGE_SCHEMA,
                                              .tables = "'samples'",
                                              .application = 0x54597573,
                                              .version = 1,
                                              .n_tables = 1};

/* Samples are no loss: a file that is no database, or is another version's, is removed, where a journal would
 * be refused. Any other failure (no right to write, a full disk) says nothing of the file, which stays. */
int module_usage_open(const char *run_path, struct journal **db, ty_error *err) {
    ty_error why = {0};
    int result = journal_open_form(&journal_of_usage, run_path, JOURNAL_APPEND, db, &why);
    bool in_the_way = result == TY_ECORRUPT || result == TY_EVERSION;
    if (in_the_way) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/" USAGE_DB_NAME, run_path);
        journal_remove(path, true);
    }
    if (result == -ENOENT || in_the_way)
        return journal_open_form(&journal_of_usage, run_path, JOURNAL_CREATE, db, err);
    if (result < 0 && err != NULL) *err = why;
    return result;
}

int module_usage_read(const char *run_path, journal_reading *read, void *context, ty_error *err) {
    return journal_read_form(&journal_of_usage, run_path, read, context, err);
}

/* A row that is there already has the same time in ms, node, what and number: the later value stands. */
int module_usage_add(struct journal *db, const char *node, const struct usage_sample *sample, ty_error *err) {
    for (uint32_t i = 0; i < sample->n; i++) {
        const struct usage_value *value = &sample->values[i];
        int result =
            journal_begin(db, &db->insert_sample,
                          "INSERT OR REPLACE INTO samples(span, time, node, what, number, n, min, mean, "
                          "max) VALUES(0, ?1, ?2, ?3, ?4, 1, ?5, ?5, ?5)",
                          err);
        if (result < 0) return result;
        sqlite3_stmt *statement = db->insert_sample;
        int rc = sqlite3_bind_int64(statement, 1, sample->time / NS_PER_MS);
        rc |= sqlite3_bind_text(statement, 2, node, -1, SQLITE_STATIC);
        rc |= sqlite3_bind_text(statement, 3, usage_table[value->what].text, -1, SQLITE_STATIC);
        rc |= sqlite3_bind_int(statement, 4, value->number);
        rc |= sqlite3_bind_double(statement, 5, value->value);
        result = journal_insert(db, statement, rc, err);
        if (result < 0) return result;
    }
    return 0;
}

/* -- thinning */

/* A statement that is made for this one time. */
static int run_with(struct journal *db, const char *sql, const int64_t *numbers, int n, ty_error *err) {
    sqlite3_stmt *statement = NULL;
    int result = journal_begin(db, &statement, sql, err);
    if (result < 0) return result;
    int rc = SQLITE_OK;
    for (int i = 0; i < n; i++)
        rc |= sqlite3_bind_int64(statement, i + 1, numbers[i]);
    result = journal_insert(db, statement, rc, err);
    (void)sqlite3_finalize(statement);
    return result;
}

/* All rows of the span `from` before a time become rows of the span `to`, all in ms. A coarse row that is there
 * already, as of samples that came late, takes the new ones in: its mean is that of all samples, so each mean
 * counts as often as it has samples. */
static int coarsen(struct journal *db, int64_t from, int64_t to, int64_t before, ty_error *err) {
    const int64_t numbers[] = {from, before, to};
    int result =
        run_with(db,
                 "INSERT INTO samples SELECT ?3, time / ?3 * ?3 AS at, node, what, number, sum(n), "
                 "min(min), sum(mean * n) / sum(n), max(max) FROM samples WHERE span = ?1 AND time < ?2 "
                 "GROUP BY at, node, what, number ON CONFLICT DO UPDATE SET "
                 "mean = (mean * n + excluded.mean * excluded.n) / (n + excluded.n), n = n + excluded.n, "
                 "min = min(min, excluded.min), max = max(max, excluded.max)",
                 numbers, 3, err);
    return result < 0 ? result
                      : run_with(db, "DELETE FROM samples WHERE span = ?1 AND time < ?2", numbers, 2, err);
}

/* 0 also where it cannot be asked: then less is thinned, or all is read, which the next call mends or tells. */
static int64_t ask_number(struct journal *db, const char *sql) {
    sqlite3_stmt *statement = NULL;
    int64_t number = 0;
    if (sqlite3_prepare_v2(db->db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return number;
}

/* Pages that are free do not count: rows that were deleted leave them to the next rows, and the file itself
 * never shrinks. Where there is still too much, each step of pressure halves for how long rows stay fine: after
 * six of them samples last a minute or two, and means of a minute some twenty. */
int module_usage_thin(struct journal *db, nanoseconds now, int64_t most_bytes, ty_error *err) {
    int64_t minute = now / NS_PER_MS / MINUTE_MS;
    if (minute == db->thinned_at) return 0;
    db->thinned_at = minute;
    for (;;) {
        int64_t two_hours = (int64_t)120 >> db->pressure, day = (int64_t)(24 * 60) >> db->pressure;
        int result = coarsen(db, 0, MINUTE_MS, (minute - two_hours) * MINUTE_MS, err);
        if (result >= 0)
            result = coarsen(db, MINUTE_MS, (int64_t)10 * MINUTE_MS, (minute - day) / 10 * 10 * MINUTE_MS, err);
        if (result < 0) return result;
        int64_t pages =
            ask_number(db, "SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count");
        if (pages * ask_number(db, "PRAGMA page_size") <= most_bytes) return result;
        if (db->pressure == PRESSURE_MAX) break;
        db->pressure++;
    }
    /* Nothing is left to be made coarser: a tenth of the time goes, the oldest. */
    return run_with(
        db, "DELETE FROM samples WHERE time < (SELECT min(time) + (max(time) - min(time)) / 10 FROM samples)",
        NULL, 0, err);
}

/* -- reading */

/* False for what no sampler of ours wrote. A column of another type is converted by SQLite, to 0 if need be. */
static bool read_row(sqlite3_stmt *statement, struct usage_row *row) {
    const char *what = (const char *)sqlite3_column_text(statement, 3);
    *row = (struct usage_row){.time = sqlite3_column_int64(statement, 0) * NS_PER_MS,
                              .span = sqlite3_column_int64(statement, 1) * NS_PER_MS,
                              .node = (const char *)sqlite3_column_text(statement, 2),
                              .what = usage_of(what),
                              .number = sqlite3_column_int(statement, 4),
                              .n = sqlite3_column_int64(statement, 5),
                              .min = sqlite3_column_double(statement, 6),
                              .mean = sqlite3_column_double(statement, 7),
                              .max = sqlite3_column_double(statement, 8)};
    return row->node != NULL && row->what < USAGES_N && row->n > 0 && row->n <= INT32_MAX;
}

/* Coarse rows are the older ones, so the spans from the coarsest to the finest give rows by time, up to where
 * one span hands over to the next; and each of the three is read in the order of the primary key, without
 * sorting. */
int module_usage_each(struct journal *db, const struct usage_query *query, usage_take_row *each, void *context,
                      ty_error *err) {
    static const char sql[] = "SELECT time, span, node, what, number, n, min, mean, max FROM samples "
                              "WHERE span = ?5 AND time BETWEEN ?1 AND ?2 AND (?3 IS NULL OR node = ?3) "
                              "AND (?4 IS NULL OR what = ?4) ORDER BY time, node, what, number";
    static const int64_t spans[] = {(int64_t)10 * MINUTE_MS, MINUTE_MS, 0};
    int64_t from = query->from / NS_PER_MS, to = query->to / NS_PER_MS;
    sqlite3_stmt *statement = NULL;
    int result = 0, rc = sqlite3_prepare_v2(db->db, sql, -1, &statement, NULL);
    if (query->newest > 0)
        from = ask_number(db, "SELECT max(max(coalesce((SELECT max(time) FROM samples WHERE span = 0), 0), "
                              "coalesce((SELECT max(time) FROM samples WHERE span = 60000), 0)), "
                              "coalesce((SELECT max(time) FROM samples WHERE span = 600000), 0))") -
               query->newest / NS_PER_MS;
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 1, from);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 2, to);
    if (rc == SQLITE_OK) rc = sqlite3_bind_text(statement, 3, query->node, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_bind_text(statement, 4, query->what, -1, SQLITE_STATIC);
    for (size_t i = 0; i < ARRAY_SIZE(spans) && rc == SQLITE_OK && result == 0; i++) {
        rc = sqlite3_bind_int64(statement, 5, spans[i]);
        if (rc == SQLITE_OK)
            while (result == 0 && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
                struct usage_row row;
                if (read_row(statement, &row)) result = each(context, &row);
            }
        if (rc == SQLITE_DONE || rc == SQLITE_ROW) rc = sqlite3_reset(statement);
    }
    if (rc != SQLITE_OK && result == 0) result = sqlite_fail(db, rc, "read", err);
    (void)sqlite3_finalize(statement);
    return result;
}
