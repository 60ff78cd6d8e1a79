/* The file of one log, as the thread that writes logs has it: opened when the first bytes come, and bounded
 * where the run has a --log-limit. A file that has reached its limit keeps its head (a quarter of the limit)
 * and its last lines (a quarter at least); a line between the two says how many bytes are left out. It is
 * written anew for that and renamed into place, so that a reader finds at any time a whole file, and one
 * that has the file open reads on to what was its end. What was left out by an earlier attempt, or an
 * earlier controller, is counted on. One that is removed while it is written is soon begun anew. */
#ifndef BASE_LOG_FILE_H
#define BASE_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/duration.h"

struct log_file {
    char *path;           /* owned */
    bool in_logs;         /* its directory is the run's logs/, and is made when it is missing */
    int64_t limit;        /* bytes; 0: none */
    int fd;               /* -1: not open */
    nanoseconds removed;  /* since when it is known to have no name any more, monotonic; 0: it has one */
    int64_t removed_size; /* how large it was then */
    bool anew;            /* it was begun anew by the last write */
    int64_t size;         /* the members from here on are those of a file with a limit */
    int64_t head;         /* its bytes before the mark; 0: nothing is left out yet */
    uint64_t left_out;
};

/* Adds at the end. 0, or -errno: some of the bytes may then be there. */
int log_file_write(struct log_file *file, const char *bytes, size_t size);
void log_file_close(struct log_file *file); /* it may be written again; one that is not open is fine */

/* The line that stands for what the limit left out, written by agents and understood by readers. Its length is
 * always the same. */
enum { LOG_MARK_SIZE = 74 };
/* Looks for a mark in text: its offset and the number, or false. */
bool log_mark_find(const char *text, size_t size, size_t *offset, uint64_t *left_out);

#endif
