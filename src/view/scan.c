/* Reads reports piece by piece, so that a journal which is being written is never held open for long: a
 * piece is gathered in memory, rows behind each other and their texts in one buffer, and handed on when the
 * journal is closed. More than `most` reports are sampled in blocks. */
#include "view/scan.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"

/* A piece takes a few milliseconds to read; its text stays small, however large a report is. */
enum { PIECE_ROWS = 20000, PIECE_BYTES = 4 << 20, SAMPLE_BYTES = 32 << 20, PIECE_FULL = 1 };

struct scan_piece {
    struct view_scan *scan;
    int64_t first, last; /* ids; the last that was read, once it was */
    bool sampled;
    struct journal_report *rows; /* PIECE_ROWS of them; their metrics are offsets into the text */
    size_t n;
    struct buffer text;
};

static int gather(void *context, const struct journal_report *report) {
    struct scan_piece *piece = context;
    size_t most = piece->sampled ? SAMPLE_BYTES : PIECE_BYTES;
    if (piece->n == PIECE_ROWS || (piece->n > 0 && piece->text.size + report->metrics_size > most))
        return PIECE_FULL;
    piece->rows[piece->n] = *report;
    piece->rows[piece->n++].metrics = NULL;
    buffer_append(&piece->text, report->metrics, report->metrics_size);
    return piece->text.failed ? -ENOMEM : 0;
}

static int read_blocks(struct journal *journal, struct scan_piece *piece, ty_error *err) {
    const struct view_scan *scan = piece->scan;
    int64_t size = scan->block > 0 ? scan->block : SCAN_BLOCK, there = scan->last - scan->after;
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

static int read_piece(void *context, struct journal *journal, ty_error *err) {
    struct scan_piece *piece = context;
    struct view_scan *scan = piece->scan;
    piece->n = 0;
    buffer_clear(&piece->text);
    int result = 0;
    if (scan->last <= 0) {
        uint64_t count = 0;
        nanoseconds first_time;
        result = journal_count_reports(journal, &count, &first_time, err);
        scan->last = (int64_t)count;
        if (result < 0) return result;
    }
    int64_t there = scan->last - scan->after;
    piece->sampled = scan->most > 0 && there > (int64_t)scan->most;
    if (piece->sampled) {
        result = read_blocks(journal, piece, err);
    } else {
        piece->last = piece->first + PIECE_ROWS - 1;
        if (piece->last > scan->last) piece->last = scan->last;
        result = journal_each_report_between(journal, piece->first, piece->last, gather, piece, err);
    }
    if (result == -ENOMEM) return ty_fail_memory(err);
    if (result == PIECE_FULL) piece->last = piece->rows[piece->n - 1].id;
    return result < 0 ? result : 0;
}

static int hand(struct scan_piece *piece, int (*each)(void *context, const struct journal_report *report),
                void *context) {
    const char *text = piece->text.data;
    int result = 0;
    for (size_t i = 0; i < piece->n && result == 0; i++) {
        piece->rows[i].metrics = text;
        text += piece->rows[i].metrics_size;
        result = each(context, &piece->rows[i]);
        piece->scan->handed++;
    }
    return result;
}

int view_scan(const char *run_path, struct view_scan *scan,
              int (*each)(void *context, const struct journal_report *report), void *context, ty_error *err) {
    CLEANUP_FREE struct journal_report *rows = calloc(PIECE_ROWS, sizeof *rows);
    struct scan_piece piece = {.scan = scan, .first = scan->after + 1, .rows = rows};
    int result = rows == NULL ? ty_fail_memory(err) : 0;
    scan->handed = 0;
    while (result == 0) {
        result = journal_read(run_path, read_piece, &piece, err);
        if (result == 0) result = hand(&piece, each, context);
        if (piece.sampled || piece.last >= scan->last) break;
        piece.first = piece.last + 1;
    }
    buffer_done(&piece.text);
    int64_t there = scan->last - scan->after;
    scan->exact = result == 0 && !piece.sampled;
    scan->scanned = scan->exact || there <= 0 ? 1 : (double)scan->handed / (double)there;
    return result;
}
