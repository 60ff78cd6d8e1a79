/* Names that the files of this room agree on. */
#ifndef CHECKPOINT_NAMES_H
#define CHECKPOINT_NAMES_H

#define MANIFEST_NAME ".metadata.json"
#define MANIFEST_KEY "trainyard" /* ours in it; all others are the user's */
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

/* What lies in a run's directory beside its checkpoints: the workers' output, and the journal with all that
 * begins like it. */
#define LOGS_NAME "logs"
#define JOURNAL_NAME "run.db"
#define LOCK_NAME "run.lock"

enum { LIST_MAX = 512 << 10 }; /* bytes of a list in a message: well below a line of the worker's protocol */
enum { MANIFEST_VERSION = 1, MANIFEST_MAX = 256 << 20 };

#endif
