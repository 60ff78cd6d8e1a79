/* Reads reports piece by piece, so that a journal which is being written is never held open for long: a
 * piece is gathered in memory, rows behind each other and their texts in one buffer, and handed on when the
 * journal is closed. More than `most` reports are sampled in blocks. */
#include "view/scan.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"

/* A piece takes a few milliseconds to read; its text stays small, however large a report is. */
enum { PIECE_ROWS = 20000, PIECE_BYTES = 4 << 20, SAMPLE_BYTES = 32 << 20, PIECE_FULL = 1 };
enum { SAMPLE_KEPT_BYTES = 1 << 20, SAMPLE_MOMENT_MS = 200 };

struct scan_piece {
    struct view_scan *scan;
    int64_t first, last; /* ids; the last that was read, once it was */
    bool sampled;
    struct scan_rows rows; /* room for PIECE_ROWS */
};

static int64_t block_of(const struct view_scan *scan) {
    return scan->block > 0 ? scan->block : SCAN_BLOCK;
}

/* A sample has two blocks at least, however large they are. */
static size_t room_for(const struct view_scan *scan) {
    int64_t sample = 2 * block_of(scan);
    return scan->most > 0 && sample > PIECE_ROWS ? (size_t)sample : PIECE_ROWS;
}

/* A text of any size is taken as the first of its piece: else a reading would never get past it. */
static int gather(void *context, const struct journal_report *report) {
    struct scan_piece *piece = context;
    size_t most = piece->sampled ? SAMPLE_BYTES : PIECE_BYTES;
    struct scan_rows *rows = &piece->rows;
    if (rows->n == (piece->sampled ? room_for(piece->scan) : PIECE_ROWS) ||
        (rows->n > 0 && rows->text.size + report->metrics_size > most))
        return PIECE_FULL;
    rows->items[rows->n++] = *report;
    buffer_append(&rows->text, report->metrics, report->metrics_size);
    return rows->text.failed ? -ENOMEM : 0;
}

/* As many blocks as a piece has room for, 256 at most, evenly spread, the first at the beginning and the last
 * at the end: what is at the ends of a plot is always of the ends of the run. */
static int read_blocks(struct journal *journal, struct scan_piece *piece, ty_error *err) {
    const struct view_scan *scan = piece->scan;
    int64_t size = block_of(scan), there = scan->last - scan->after;
    int64_t blocks = SCAN_BLOCKS < PIECE_ROWS / size ? SCAN_BLOCKS : PIECE_ROWS / size;
    int result = 0;
    if (blocks < 2) blocks = 2;
    for (int64_t i = 0; i < blocks && result == 0; i++) {
        int64_t first = scan->after + 1 + (int64_t)((double)(there - size) * (double)i / (double)(blocks - 1));
        result = journal_each_report_between(journal, first, first + size - 1, gather, piece, err);
    }
    piece->last = scan->last;
    return result;
}

/* Called again, from the beginning, where the journal was written while it was read without an index
 * (journal_read). */
static int read_piece(void *context, struct journal *journal, ty_error *err) {
    struct scan_piece *piece = context;
    struct view_scan *scan = piece->scan;
    piece->rows.n = 0;
    buffer_clear(&piece->rows.text);
    int result = 0;
    if (scan->last <= 0) {
        uint64_t count = 0;
        result = journal_count_reports(journal, &count, err);
        scan->last = (int64_t)count;
        if (result < 0) return result;
    }
    int64_t there = scan->last - scan->after;
    piece->sampled = scan->most > 0 && there > (int64_t)scan->most;
    if (piece->sampled) {
        result = read_blocks(journal, piece, err);
    } else {
        piece->last = scan->last; /* unless the piece is full before: ids of a damaged journal have gaps */
        result = journal_each_report_between(journal, piece->first, piece->last, gather, piece, err);
    }
    if (result == -ENOMEM) return ty_fail_memory(err);
    if (result == PIECE_FULL) piece->last = piece->rows.items[piece->rows.n - 1].id;
    return result < 0 ? result : 0;
}

/* Texts lie behind each other without ends: each report's begins where the one before it ended. */
static int hand(struct view_scan *scan, const struct scan_rows *rows,
                int (*each)(void *context, const struct journal_report *report), void *context) {
    const char *text = rows->text.data;
    int result = 0;
    for (size_t i = 0; i < rows->n && result == 0; i++) {
        struct journal_report *report = &rows->items[i];
        report->metrics = text;
        text += report->metrics_size;
        if (each == NULL || (scan->given != NULL && (report->id <= scan->after || report->id > scan->last)))
            continue;
        result = each(context, report);
        scan->handed++;
    }
    return result;
}

void scan_rows_done(struct scan_rows *rows) {
    free(rows->items);
    buffer_done(&rows->text);
    *rows = (struct scan_rows){0};
}

/* -- a sample that is kept */

void scan_sample_init(struct scan_sample *sample) {
    *sample = (struct scan_sample){0};
    (void)pthread_mutex_init(&sample->lock, NULL);
}

void scan_sample_done(struct scan_sample *sample) {
    scan_rows_done(&sample->rows);
    (void)pthread_mutex_destroy(&sample->lock);
}

/* Rows are kept in as much memory as they need. */
static int take_sample(const char *run_path, struct view_scan *scan, struct scan_sample *sample,
                       ty_error *err) {
    struct scan_piece piece = {.scan = scan};
    scan_rows_done(&sample->rows);
    piece.rows.items = calloc(room_for(scan), sizeof *piece.rows.items);
    int result =
        piece.rows.items == NULL ? ty_fail_memory(err) : journal_read(run_path, read_piece, &piece, err);
    if (result < 0) {
        scan_rows_done(&piece.rows);
        return result;
    }
    (void)ARRAY_RESIZE(piece.rows.items, piece.rows.n + 1);
    sample->rows = piece.rows;
    sample->began = scan->began;
    sample->taken = clock_monotonic();
    sample->last = scan->last;
    sample->block = scan->block;
    return 0;
}

/* Whoever asks second waits for the reading of the first, and is handed the same rows. */
static int hand_sample(const char *run_path, struct view_scan *scan,
                       int (*each)(void *context, const struct journal_report *report), void *context,
                       ty_error *err) {
    struct scan_sample *sample = scan->sample;
    (void)pthread_mutex_lock(&sample->lock);
    bool same = sample->rows.n > 0 && sample->began == scan->began && sample->block == scan->block;
    bool fresh = sample->last == scan->last || (sample->last < scan->last && clock_monotonic() - sample->taken <
                                                                                 SAMPLE_MOMENT_MS * NS_PER_MS);
    int result = same && fresh ? 0 : take_sample(run_path, scan, sample, err);
    if (result == 0) result = hand(scan, &sample->rows, each, context);
    if (sample->rows.text.size > SAMPLE_KEPT_BYTES) scan_rows_done(&sample->rows);
    (void)pthread_mutex_unlock(&sample->lock);
    return result;
}

/* -- together */

static int hand_pieces(const char *run_path, struct view_scan *scan,
                       int (*each)(void *context, const struct journal_report *report), void *context,
                       ty_error *err) {
    struct scan_piece piece = {.scan = scan, .first = scan->after + 1};
    if (scan->rows != NULL) piece.rows = *scan->rows;
    if (piece.rows.items == NULL) piece.rows.items = calloc(room_for(scan), sizeof *piece.rows.items);
    int result = piece.rows.items == NULL ? ty_fail_memory(err) : 0;
    while (result == 0) {
        result = journal_read(run_path, read_piece, &piece, err);
        if (result == 0) result = hand(scan, &piece.rows, each, context);
        if (scan->piece) scan->last = piece.last;
        if (piece.sampled || piece.last >= scan->last) break;
        piece.first = piece.last + 1;
    }
    scan->exact = result == 0 && !piece.sampled;
    if (scan->rows != NULL)
        *scan->rows = piece.rows;
    else
        scan_rows_done(&piece.rows);
    return result;
}

int view_scan(const char *run_path, struct view_scan *scan,
              int (*each)(void *context, const struct journal_report *report), void *context, ty_error *err) {
    bool kept = scan->sample != NULL && scan->most > 0 && scan->last - scan->after > (int64_t)scan->most;
    scan->handed = 0;
    scan->exact = scan->given != NULL;
    int result = scan->given != NULL ? hand(scan, scan->given, each, context)
                 : kept              ? hand_sample(run_path, scan, each, context, err)
                                     : hand_pieces(run_path, scan, each, context, err);
    int64_t there = scan->last - scan->after;
    scan->scanned = scan->exact || there <= 0 ? 1 : (double)scan->handed / (double)there;
    return result;
}
