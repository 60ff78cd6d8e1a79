/* Checkpoints on disk: copied beside, checked, renamed into place (DESIGN.md 4, "Reports do not block").
 *
 * While the ranks write, their files gather in {run}/.checkpoint_000012.attempt-1; when all are in place the controller writes
 * the manifest .metadata.json, fsyncs, and renames it to {run}/checkpoint_000012: no directory that looks complete is incomplete.
 * The manifest: {"trainyard": {"version": 1, "number": 12, "attempt": 1, "files": [{"path": "model.bin", "size": 123, "xxh3":
 * "16 hex digits x 2"}]}}; other top-level keys belong to the user's metadata. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

enum { CHECKPOINT_NAME_SIZE = 32 };

void checkpoint_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE]); /* "checkpoint_000012" */
/* Path of the directory in which the ranks gather their files; appended to `out`. */
void checkpoint_staging_path(const char *run_path, uint64_t number, int attempt, struct buffer *out);

/* In the worker: copies the tree `source` into the staging directory (made when missing), each file fsynced, its checksum
 * taken in the same pass; reflink or copy_file_range where the file system can. Refuses a source that is no directory, links
 * that lead out of it, sockets and devices; two ranks may write different files, and the same file twice is refused (TY_EUSAGE,
 * names it) unless both are equal. Appends the JSON list of files to `files`. What it wrote is removed when it fails. */
int checkpoint_copy(const char *source, const char *staging, struct buffer *files, ty_error *err);

/* In the controller: manifest of all ranks' file lists (JSON lists), fsync, rename. With an empty list the directory is listed
 * and sizes alone are recorded. `*path` (the caller's to free) is the committed directory. */
int checkpoint_publish(const char *run_path, uint64_t number, int attempt, const char *const *files, size_t n,
                       char **path, ty_error *err);

/* Removes a staging directory and what is in it; a missing one is fine. */
void checkpoint_discard(const char *run_path, uint64_t number, int attempt);

/* Checks a committed checkpoint against its manifest: TY_ECORRUPT names the first file that is missing, short or different. */
int checkpoint_verify(const char *path, ty_error *err);

#endif
