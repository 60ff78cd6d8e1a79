/* Names that the files of this room agree on. */
#ifndef CHECKPOINT_NAMES_H
#define CHECKPOINT_NAMES_H

#define MANIFEST_NAME ".metadata.json"
#define MANIFEST_KEY "trainyard" /* ours in it; all others are the user's */
#define NAME_PREFIX "checkpoint_"
#define STAGING_MARK ".attempt-"       /* .checkpoint_000012.attempt-1: the ranks' files gather there */
#define OWN_MARK ".rank-"              /* .checkpoint_000012.attempt-1.rank-0123abcd: a rank copies there */
#define TRASH_MARK ".removed"          /* .NAME.removed: it has lost its name */
#define PART_PREFIX ".trainyard-part-" /* what no checkpoint holds: it goes when the checkpoint is published */
#define LIST_PREFIX \
    PART_PREFIX "list-" /* a list of files too long for a message; the XXH3-128 of its bytes follows */

enum { LIST_MAX = 512 << 10 }; /* bytes of a list in a message: well below a line of the worker's protocol */
enum { MANIFEST_VERSION = 1, MANIFEST_MAX = 256 << 20 };

#endif
