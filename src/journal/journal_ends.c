/* The ends of many journals, one after the other, at a tenth of what opening each costs: one connection keeps
 * its schema and its statement, and the bytes that it reads are exchanged below it.
 *
 * That is right where the first page of a journal is that of a new one, but for counters: then the tables are
 * those that the statement was made for, and lie where it looks. Any other, one with a log, and a large one is
 * left to who reads one journal at a time. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "journal/journal_sqlite.h"

enum { END_BYTES = 1 << 20 }; /* of a journal, at most */

/* The head of a database: sqlite.org/fileformat2.html, 1.3. */
enum {
    MODES_AT = 18,
    MODES_END = 20,
    CHANGES_AT = 24,
    PAGES_AT = 28,
    COUNTERS_END = 40,
    VALID_AT = 92,
    HEAD_END = 100
};

struct journal_ends {
    sqlite3 *db;
    sqlite3_stmt *last;
    unsigned char *bytes, *form; /* END_BYTES; form: a journal without rows, of SQLite's */
    size_t page_size;
};

static uint32_t number_at(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* What may differ in the head are the modes (2: written ahead; here all are read as 1), the counters of
 * changes, pages and free pages, of which change the number of pages is, and which SQLite wrote last. The
 * number of pages holds where it is of the last change, and must be what the file has. Behind the head all of
 * the first page is the same: it holds the statements that made the tables, and where these begin. */
static bool is_of_the_form(const struct journal_ends *ends, size_t size) {
    const unsigned char *bytes = ends->bytes, *form = ends->form;
    return size >= ends->page_size && number_at(bytes + PAGES_AT) == size / ends->page_size &&
           size % ends->page_size == 0 && number_at(bytes + CHANGES_AT) == number_at(bytes + VALID_AT) &&
           memcmp(bytes, form, MODES_AT) == 0 &&
           memcmp(bytes + MODES_END, form + MODES_END, CHANGES_AT - MODES_END) == 0 &&
           memcmp(bytes + COUNTERS_END, form + COUNTERS_END, VALID_AT - COUNTERS_END) == 0 &&
           memcmp(bytes + HEAD_END, form + HEAD_END, ends->page_size - HEAD_END) == 0;
}

/* The empty journal stands in `bytes` while the statement is prepared, so that it is prepared for these tables.
 * SQLite frees none of the memory that it is lent, and is told that nobody writes to it. */
int module_ends_create(struct journal_ends **out, ty_error *err) {
    size_t size = 0;
    struct journal_ends *ends = calloc(1, sizeof *ends);
    if (ends == NULL) return ty_fail_memory(err);
    ends->form = journal_image(&journal_of_run, &size);
    ends->bytes = malloc(END_BYTES);
    int rc = ends->form == NULL || ends->bytes == NULL ? SQLITE_NOMEM : SQLITE_OK;
    if (rc == SQLITE_OK) {
        ends->page_size = size / number_at(ends->form + PAGES_AT);
        ends->form[MODES_AT] = ends->form[MODES_AT + 1] = 1; /* memory has no log */
        memcpy(ends->bytes, ends->form, size);
        rc = sqlite3_open_v2(":memory:", &ends->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    }
    if (rc == SQLITE_OK)
        rc = sqlite3_deserialize(ends->db, "main", ends->bytes, END_BYTES, END_BYTES,
                                 SQLITE_DESERIALIZE_READONLY);
    if (rc == SQLITE_OK) rc = sqlite3_prepare_v2(ends->db, JOURNAL_LAST, -1, &ends->last, NULL);
    if (rc == SQLITE_OK) {
        *out = ends;
        return 0;
    }
    module_ends_destroy(ends);
    return ty_fail_memory(err);
}

void module_ends_destroy(struct journal_ends *ends) {
    (void)sqlite3_finalize(ends->last);
    (void)sqlite3_close(ends->db);
    sqlite3_free(ends->form);
    free(ends->bytes);
    free(ends);
}

/* The size of the journal; 0 where it cannot be read in this way. A file that fills the memory may be
 * longer. */
static size_t load(struct journal_ends *ends, const char *path) {
    CLEANUP_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : pread(fd, ends->bytes, END_BYTES, 0);
    return size <= 0 || size == END_BYTES || !is_of_the_form(ends, (size_t)size) ? 0 : (size_t)size;
}

/* Two looks, before and behind the bytes: a controller that has resumed the run meanwhile has begun a log.
 * Pages of the journal before this one are in SQLite's cache, and are forgotten. */
int module_ends_read(struct journal_ends *ends, const char *run_path, journal_take_end *take, void *context) {
    CLEANUP_FREE char *path = str_format("%s/%s", run_path, journal_of_run.name);
    struct journal_look look;
    struct journal journal = {.db = ends->db, .form = &journal_of_run};
    int result = -EAGAIN;
    if (path == NULL || journal_look(path, &look, NULL) < 0 || look.way != JOURNAL_ALONE ||
        load(ends, path) == 0)
        return -EAGAIN;
    if (!journal_look_stays(&look, path)) return -EAGAIN;
    ends->bytes[MODES_AT] = ends->bytes[MODES_AT + 1] = 1;
    journal.path = path;
    if (sqlite3_file_control(ends->db, "main", SQLITE_FCNTL_RESET_CACHE, NULL) == SQLITE_OK &&
        sqlite3_step(ends->last) == SQLITE_ROW)
        result = journal_hand_last(&journal, ends->last, take, context);
    (void)sqlite3_reset(ends->last);
    return result;
}
