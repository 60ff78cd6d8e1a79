/* Reads reports of a run that may still be written: in pieces, each of which is read whole before any of it is
 * handed on, so that no reading lasts, and nothing is handed twice where a piece had to be read again. */
#ifndef VIEW_SCAN_H
#define VIEW_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "journal/journal.h"

enum { SCAN_BLOCKS = 256, SCAN_BLOCK = 16 };

/* Zero-initialised: all reports. */
struct view_scan {
    int64_t after;   /* reports behind this id */
    int64_t last;    /* to this one; 0: the last there is, which it becomes */
    size_t most;     /* a sample where there are more than that; 0: never */
    int64_t block;   /* neighbouring reports of a sample; 0: SCAN_BLOCK */
    bool exact;      /* whether all were handed */
    uint64_t handed; /* how many */
    double scanned;  /* the share of those between */
};

/* `each` gets the reports by id; other than 0 from it ends the scan and is returned. */
int view_scan(const char *run_path, struct view_scan *scan,
              int (*each)(void *context, const struct journal_report *report), void *context, ty_error *err);

#endif
