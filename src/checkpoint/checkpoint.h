/* Checkpoints on disk: copied beside, checked, renamed into place (docs/design.md 4, "Reports do not block").
 *
 * While the ranks write, their files gather in {run}/.checkpoint_000012.attempt-1; when all are in place the
 * controller writes the manifest .metadata.json, fsyncs, and renames it to {run}/checkpoint_000012: no
 * directory that looks complete is incomplete. The manifest: {"trainyard": {"version": 1, "run": "16 hex
 * digits", "name": "checkpoint_000012", "number": 12, "directory": its inode, "attempt": 1, "files": [{"path":
 * "model.bin", "size": 123, "xxh3": "32 hex digits"}, {"path": "latest", "link": "model.bin"}]}}; other
 * top-level keys belong to the user's metadata: they are taken from the .metadata.json of the source where
 * there is one. A run may have it beside, as {run}/.checkpoint_000012.manifest, moved there by another rename
 * behind the first: then a checkpoint holds what the ranks brought and nothing else, unless that is metadata.
 *
 * A user may also put files where he wants to and name the place: it is recorded as it is, has no manifest, and
 * is never removed. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

enum { CHECKPOINT_NAME_SIZE = 32 };

void checkpoint_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE]); /* "checkpoint_000012" */
/* A name that a user gives: 1 to 200 bytes of UTF-8 without '/', control characters and a leading '.';
 * TY_EUSAGE. */
int checkpoint_check_name(const char *name, ty_error *err);

/* A run is known by an id that its journal keeps: 16 hex digits. */
enum { CHECKPOINT_RUN_SIZE = 17 };

/* By what a checkpoint is known as one that its run published: all of it stands in the manifest. */
struct checkpoint_mark {
    const char *run; /* id */
    const char *name;
    uint64_t number;
};

/* A name that the journal has of a place of a user's: it holds a '/', as no other does. */
bool checkpoint_is_place(const char *name);
/* A place with a scheme, such as "s3://bucket/model": nobody here can look at it. */
bool checkpoint_is_address(const char *place);
/* The name of a place, an absolute path or an address: "./mine" where it is in the run's directory, so that it
 * moves with that, else as it is. The caller frees; NULL without memory. */
char *checkpoint_place_name(const char *run_path, const char *place);
/* Where the checkpoint of this name lies. Appended to `out`. */
void checkpoint_path(const char *run_path, const char *name, struct buffer *out);

/* Whether a place can be a checkpoint, as far as that can be seen: it is a directory with something in it, and
 * neither the run's directory, nor around it, nor in anything there that is the run's own, by whatever path it
 * is named. An address is not looked at. TY_EUSAGE. */
int checkpoint_check_place(const char *run_path, const char *run, const char *place, ty_error *err);

/* The files of ranks that have copied theirs, in the staging directory, join those in a place; what has the
 * name there stays. Nothing is done where no rank has. 0 or negative. */
int checkpoint_add_to_place(const char *staging, const char *place, ty_error *err);

/* Path of the directory in which the ranks gather their files; appended to `out`. */
void checkpoint_staging_path(const char *run_path, uint64_t number, int attempt, struct buffer *out);

/* How the files of a tree come into the staging directory. GIVE: hard links where the file system can, so that
 * not a byte is copied; the source must not be written to any more. */
enum checkpoint_hand { CHECKPOINT_COPY, CHECKPOINT_GIVE };

struct checkpoint_copying {
    enum checkpoint_hand hand;
    bool may_differ; /* of a file that another rank brings with other content the one that came first is kept */
};

/* In the worker: copies the tree `source` into the staging directory (made when missing), checksums taken in
 * the same pass, blocks shared where the file system can (reflink), the content of all files synced. Refuses
 * (TY_EUSAGE, names it) a source that holds the staging directory, links that lead out, what is no file,
 * directory or link, names that are not UTF-8. Ranks copy at the same time: they may bring different files, or
 * the same file with the same content, unless it may differ. Appends the JSON list of files to `files`; one of
 * more than 512 KiB lies in the staging directory until it is published, and [{"list": NAME}] stands for it.
 * What it wrote is removed when it fails; -ENOSPC tells what was needed and what is free. 0; 1 when another
 * rank's file was kept, which `err` then names. */
int checkpoint_copy(const char *source, const char *staging, const struct checkpoint_copying *how,
                    struct buffer *files, ty_error *err);

/* In the worker: takes a directory that its owner gives away out of his reach at once, by a rename next to the
 * staging directory, or, on another file system, next to itself, with a link next to the staging directory.
 * `*taken` (the caller's to free) is that name, through which it can be read; NULL where it cannot be moved (a
 * mount point, a link, a directory of others, a committed checkpoint): then it is as it was. TY_EUSAGE: it
 * holds the staging directory. */
int checkpoint_take(const char *source, const char *staging, char **taken, ty_error *err);
/* The end of what was taken: it goes back, or, where something stands in its place by now, goes; or it goes for
 * good, with the link that leads there (one that leads to anything else goes alone): 0 or -errno. */
void checkpoint_give_back(const char *taken, const char *original);
int checkpoint_drop_given(const char *taken);
/* True for what lies in the directory of a run, such as a committed checkpoint, or a part of it: nobody can
 * give it away. */
bool checkpoint_is_of_run(const char *path);
/* Removes a tree; goes on past what cannot be removed. */
void checkpoint_drop(const char *path);

/* What makes a checkpoint. */
struct checkpoint_parts {
    const char *run; /* id */
    uint64_t number;
    int attempt;
    const char *name; /* NULL: by its number, "checkpoint_000012-2" where that is taken */
    uint64_t adds_to; /* number of the one that has this name; 0: it is to be nobody's */
    bool beside;      /* where the manifest is to stand, but for one with metadata of the user's */
    const char *const *lists;
    size_t n;
    bool again; /* a controller that died may have begun, or done it: it is brought to its end */
};

/* In the controller: checks the staging directory against the ranks' JSON lists (list i is rank i's), writes
 * the manifest, syncs it and each directory, renames. A file that no list names (a rank that wrote into the
 * directory itself and gave "[]") is synced here, which may take long, and recorded with its size alone.
 * TY_EPROTOCOL: a list is malformed; TY_ECORRUPT: a listed file is missing or of another size; TY_EUSAGE: ranks
 * differ about a file; -EEXIST: its name is taken. After a failure the staging directory is there still. With
 * `adds_to` the files of that one become part of it, but for those that the ranks brought anew, and the two
 * change places in one step: who reads the name sees one of them, whole. `*path` (the caller's to free) is the
 * committed directory. */
int checkpoint_publish(const char *run_path, const struct checkpoint_parts *parts, char **path, ty_error *err);

/* Removes a committed checkpoint: it loses its name at once, its files after that. A place, and what is not
 * there, is let be; what is another directory by now stays as well, which is TY_EUSAGE. 0 or -errno. */
int checkpoint_remove(const char *run_path, const struct checkpoint_mark *mark, ty_error *err);

/* What the journal knows. */
struct checkpoint_known {
    const char *run;          /* id */
    const char *const *names; /* of the committed checkpoints that are kept */
    size_t n;
    uint64_t last; /* the highest number of them */
};

/* The first names of many; both zero at first, the text freed with buffer_done. */
struct checkpoint_names {
    struct buffer text; /* "a, b, c" */
    size_t n;           /* all of them */
};
struct checkpoint_swept {
    struct checkpoint_names gone;
    struct checkpoint_names stays; /* named like what goes, but not made by this run, or a copy */
};

/* Before a run is resumed: removes what a killed controller left, which is every staging directory, every
 * checkpoint that has lost its name, and those that this run published with a number above `last` and of which
 * the journal does not know: their row was never written. All else stays. 0 or -errno. */
int checkpoint_sweep(const char *run_path, const struct checkpoint_known *known, struct checkpoint_swept *swept,
                     ty_error *err);
void checkpoint_swept_done(struct checkpoint_swept *swept);
/* When the workers of an attempt are gone: removes the staging directories of it and of those before it, never
 * of a later one, and what was given away; or the latter alone. */
void checkpoint_sweep_staging(const char *run_path, int attempt);
void checkpoint_sweep_given(const char *run_path, int attempt);

/* A checkpoint's files and their bytes as the manifest lists them; false when no manifest can be read. */
bool checkpoint_measure(const char *path, size_t *n_files, int64_t *bytes);

/* Checks a committed checkpoint against its manifest: TY_ECORRUPT names the first file that is missing, short
 * or different. */
int checkpoint_verify(const char *path, ty_error *err);
/* The same, until nobody wants to know any more (another thread says so): -ECANCELED. */
int checkpoint_verify_until(const char *path, const atomic_bool *enough, ty_error *err);
/* The same without reading the files: what is missing or of another size. */
int checkpoint_verify_sizes(const char *path, ty_error *err);

/* Names that the files of this room agree on. */

#define MANIFEST_NAME ".metadata.json"
#define MANIFEST_KEY "trainyard"  /* ours in it; all others are the user's */
#define BESIDE_SUFFIX ".manifest" /* .checkpoint_000012.manifest: what would stand in the checkpoint */
#define NAME_PREFIX "checkpoint_"
#define STAGING_MARK ".attempt-" /* .checkpoint_000012.attempt-1: the ranks' files gather there */
#define OWN_MARK ".rank-"        /* .checkpoint_000012.attempt-1.rank-0123abcd: a rank copies there */
#define GIVEN_MARK ".given-"     /* .checkpoint_000012.attempt-1.given-0123abcd: given away by its owner */
#define GIVEN_PREFIX \
    ".trainyard-given-"                /* where it lies then, on another file system; the same digits follow */
#define TRASH_MARK ".removed"          /* .checkpoint_000012.removed: it has lost its name */
#define PART_PREFIX ".trainyard-part-" /* what no checkpoint holds: it goes when the checkpoint is published */
#define LIST_PREFIX \
    PART_PREFIX "list-" /* a list of files too long for a message; the XXH3-128 of its bytes follows */

#define PLACE_PREFIX "./" /* of a place of a user's in the run's directory, as the journal has it */

/* What lies in a run's directory beside its checkpoints: the workers' output, and the two databases (the other
 * is USAGE_DB_NAME) with all that begins like them. */
#define LOGS_NAME "logs"
#define JOURNAL_NAME "run.db"
#define LOCK_NAME "run.lock"

enum { LIST_MAX = 512 << 10 }; /* bytes of a list in a message: well below a line of the worker's protocol */
enum { MANIFEST_VERSION = 1, MANIFEST_MAX = 256 << 20 };

#endif
