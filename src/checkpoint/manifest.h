/* The manifest of a checkpoint as a JSON tree: read, and checked entry by entry before anything relies on
 * it. */
#ifndef CHECKPOINT_MANIFEST_H
#define CHECKPOINT_MANIFEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* One entry of a list of files. Strings are borrowed from the tree. */
struct manifest_entry {
    const char *path;
    const char *link; /* NULL for a file */
    int64_t size;
    const char *xxh3; /* NULL when it was not taken */
};

/* False for what is no entry: unknown forms, paths that are absolute or hold "..", negative sizes. */
bool manifest_entry_read(const json_t *value, struct manifest_entry *entry);

/* The list of a rank as it sends it: a JSON list of entries, or [{"list": NAME}] for the file in the open
 * directory that holds it; NULL when it is neither, or the file is not what its name says. The caller's. */
json_t *manifest_read_list(int directory, const char *text);
/* That name, a JSON string, the caller's; NULL where the list is no file's. */
json_t *manifest_list_name(const char *text);

/* The object in .metadata.json of an open directory, the caller's, with our part of it, wherever that stands: 1
 * where that is beside the directory; `*metadata` is NULL when there is neither. `name` is the path or the name
 * of the directory; a file that is no JSON object is TY_EUSAGE. */
int manifest_read(int directory, const char *name, json_t **metadata, ty_error *err);

/* Whether each file that our part of a manifest lists is in the open directory, byte for byte: an empty list,
 * or one of which some file was never read, tells nothing. (verify.c) */
bool manifest_proves(int directory, const char *name, const json_t *ours);

/* The manifest in the checkpoint `name`, in the open directory of its run, moves out where it is to stand
 * beside: one rename, and where that fails it is found where it was. Where it stays, that of an earlier
 * checkpoint of this name goes. */
void manifest_place(int run, const char *name, bool beside);
/* It moves back in; that of a checkpoint that is not there goes. */
void manifest_put_back(int run, const char *name);

#endif
