/* The workers' output and saved stacks, as files of a run that anybody may have made anything of: only regular
 * files that lie in its logs/ are opened, reads are bounded, and what is no UTF-8 becomes U+FFFD. All call out
 * to the storage, and belong into a thread. */
#ifndef WEB_RUN_OUTPUT_H
#define WEB_RUN_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/idset.h"

enum {
    OUTPUT_READ_MAX = 1 << 20,
    OUTPUT_READ = 64 << 10,
    OUTPUT_HITS = 200,
    OUTPUT_SEARCH_MS = 200,
    OUTPUT_QUERY_MAX = 256
};

/* A descriptor of rank's log, or of what torch's profiler wrote of it. -ENOENT, or TY_EUSAGE where it is no
 * regular file of the run. */
int run_output_open(const char *run_path, int rank, ty_error *err);
int run_output_profile(const char *run_path, int rank, ty_error *err);

/* {"ranks": [{"rank", "size", "modified"}]}, by rank. */
int run_output_list(const char *run_path, struct buffer *out, ty_error *err);
/* {"profiles": [{"rank", "name", "size"}]}, by rank: what torch's profiler wrote of each. */
void run_output_profiles(const char *run_path, struct buffer *out);

/* {"rank", "from", "next", "size", "text"}: `bytes` from byte `from` on, one from below 0 counted from the end.
 * A character of which the rest is not written yet stays for the next read. */
int run_output_read(const char *run_path, int rank, int64_t from, int64_t bytes, struct buffer *out,
                    ty_error *err);

/* Appends the last lines of rank's log, at most so many and 4 KiB, each as it stands on a terminal at last:
 * behind its last CR, and without colours; other escapes are told. Nothing where there is no log. */
void run_output_last(const char *run_path, int rank, int lines, struct buffer *out);

/* Lines with the text in them, capitals or not (ASCII), rank after rank: {"hits": [{"rank", "offset", "line"}],
 * "counts": [{"rank", "hits"}], "cursor": where the next call goes on, or null}. OUTPUT_HITS hits and
 * OUTPUT_SEARCH_MS a call. `chosen` ranks, NULL: all; `cursor` NULL: from the beginning. */
int run_output_search(const char *run_path, const char *text, const struct idset *chosen, const char *cursor,
                      struct buffer *out, ty_error *err);

/* {"actions": as given, "groups": [{"ranks": "0-2,4", "n", "rank", "frames", "at"}]}: the newest stack of each
 * rank that has one, equal ones together, the smallest group first. */
int run_output_stacks(const char *run_path, bool actions, struct buffer *out, ty_error *err);

#endif
