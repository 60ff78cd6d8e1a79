/* Checkpoints on disk: copied beside, checked, renamed into place (DESIGN.md 4, "Reports do not block").
 *
 * While the ranks write, their files gather in {run}/.checkpoint_000012.attempt-1; when all are in place the
 * controller writes the manifest .metadata.json, fsyncs, and renames it to {run}/checkpoint_000012: no
 * directory that looks complete is incomplete. The manifest: {"trainyard": {"version": 1, "number": 12,
 * "attempt": 1, "files": [{"path": "model.bin", "size": 123, "xxh3": "32 hex digits"}, {"path": "latest",
 * "link": "model.bin"}]}}; other top-level keys belong to the user's metadata: they are taken from the
 * .metadata.json of the source where there is one. */
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

/* In the worker: copies the tree `source` into the staging directory (made when missing), checksums taken in
 * the same pass, blocks shared where the file system can (reflink), all of it synced. Refuses (TY_EUSAGE, names
 * it) a source that holds the staging directory, links that lead out, what is no file, directory or link, names
 * that are not UTF-8. Ranks copy at the same time: they may bring different files, or the same file with the
 * same content. Appends the JSON list of files to `files`. What it wrote is removed when it fails; -ENOSPC
 * tells what was needed and what is free. */
int checkpoint_copy(const char *source, const char *staging, struct buffer *files, ty_error *err);

/* In the controller: checks the staging directory against the ranks' JSON lists (list i is rank i's), writes
 * the manifest, syncs, renames. A file that no list names (a rank that wrote into the directory itself and gave
 * "[]") is synced here, which may take long, and recorded with its size alone. TY_EPROTOCOL: a list is
 * malformed; TY_ECORRUPT: a listed file is missing or of another size; TY_EUSAGE: ranks differ about a file;
 * -EEXIST: there is such a checkpoint. After a failure the staging directory is there still. `*path` (the
 * caller's to free) is the committed directory. */
int checkpoint_publish(const char *run_path, uint64_t number, int attempt, const char *const *files, size_t n,
                       char **path, ty_error *err);

/* Removes a staging directory and what is in it; a missing one is fine. */
void checkpoint_discard(const char *run_path, uint64_t number, int attempt);

/* Before a run is resumed: removes what a killed controller left, which is every staging directory, and
 * checkpoints with a number above `last`, the highest that the journal knows: their row was never written. 0 or
 * -errno. */
int checkpoint_sweep(const char *run_path, uint64_t last, ty_error *err);

/* Checks a committed checkpoint against its manifest: TY_ECORRUPT names the first file that is missing, short
 * or different. */
int checkpoint_verify(const char *path, ty_error *err);

#endif
