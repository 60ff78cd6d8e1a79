/* Reads reports of a run that may still be written: in pieces, each of which is read whole before any of it is
 * handed on, so that no reading lasts, and nothing is handed twice where a piece had to be read again. */
#ifndef VIEW_SCAN_H
#define VIEW_SCAN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "journal/journal.h"

enum { SCAN_BLOCKS = 256, SCAN_BLOCK = 16 };

/* Reports behind each other; the texts of their metrics lie in one buffer, in the same order. */
struct scan_rows {
    struct journal_report *items; /* n, owned */
    size_t n;
    struct buffer text;
};

/* The sample that was taken last of a run, for whoever asks for the same again: a page asks for many metrics at
 * once, several pages hear of news at once, and more than half of an answer is reading. One of very large
 * reports is not kept. Rows are never changed, so it is right as long as there are no more of them, in a run
 * that began then, and for a moment longer while there come more. */
struct scan_sample {
    pthread_mutex_t lock;
    nanoseconds began, taken; /* `taken` of the monotonic clock */
    int64_t last, block;
    struct scan_rows rows;
};

void scan_rows_done(struct scan_rows *rows);

void scan_sample_init(struct scan_sample *sample);
void scan_sample_done(struct scan_sample *sample);

/* Zero-initialised: all reports. */
struct view_scan {
    int64_t after;              /* reports behind this id */
    int64_t last;               /* to this one; 0: the last there is, which it becomes */
    size_t most;                /* a sample where there are more than that; 0: never */
    int64_t block;              /* neighbouring reports of a sample; 0: SCAN_BLOCK */
    bool piece;                 /* the first piece alone: `last` becomes where that ends */
    struct scan_rows *rows;     /* memory of the pieces, the caller's to free; NULL: each scan has its own */
    struct scan_rows *given;    /* rows that another scan has read, of which these are handed; NULL: none */
    struct scan_sample *sample; /* of all up to `last`, which is known then; NULL: none is kept */
    nanoseconds began;          /* of the run; beside a sample */
    bool exact;                 /* whether all were handed */
    uint64_t handed;            /* how many */
    double scanned;             /* the share of those between */
};

/* `each` gets the reports by id; other than 0 from it ends the scan and is returned. NULL: the piece that is
 * read last is left in `rows`. */
int view_scan(const char *run_path, struct view_scan *scan,
              int (*each)(void *context, const struct journal_report *report), void *context, ty_error *err);

#endif
