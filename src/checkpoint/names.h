/* Names that the files of this room agree on. */
#ifndef CHECKPOINT_NAMES_H
#define CHECKPOINT_NAMES_H

#define MANIFEST_NAME ".metadata.json"
#define MANIFEST_KEY "trainyard" /* ours in it; all others are the user's */
#define NAME_PREFIX "checkpoint_"
#define STAGING_MARK ".attempt-"       /* .checkpoint_000012.attempt-1: ranks write there */
#define TRASH_MARK ".removed"          /* .NAME.removed: it has lost its name */
#define PART_PREFIX ".trainyard-part-" /* a file that is still being written */

enum { MANIFEST_VERSION = 1, MANIFEST_MAX = 256 << 20 };

#endif
