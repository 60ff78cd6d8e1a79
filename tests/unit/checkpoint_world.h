/* A run's directory and a tree to be copied into it as checkpoint 12 of attempt 1, for tests of checkpoints.
 * What should go well and does not fails the test. */
#ifndef UNIT_CHECKPOINT_WORLD_H
#define UNIT_CHECKPOINT_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/error.h"

#define BUFFER CLEANUP(buffer_done) struct buffer

/* A directory for all of it, the run's and the source in it, and where the checkpoint gathers. */
extern char base[64], run_path[96], source[96], staging[160];

int checkpoint_world_begin(void **state);
int checkpoint_world_end(void **state);

char *in(const char *directory, const char *name); /* its path, good for the next three calls */
void put(const char *path, const char *text);
void put_sized(const char *path, const char *bytes, size_t size);
void shell(const char *command); /* in `base`; must succeed */
bool exists(const char *path);
void small_tree(void); /* fills the source: two files, a directory with another one, a link */

#define RUN "0123456789abcdef" /* the run's id */

/* The manifest of an empty checkpoint of the run, for a directory made by hand: its name and number, and
 * whether it says that it is the directory that was published. */
void mark(const char *name, unsigned number, bool original);

/* The calls of checkpoint.h, for the source and with one rank's list, and with as many. */
int copy_from(const char *from, struct buffer *files, ty_error *err);
int publish(const struct buffer *files, char **path, ty_error *err);
int publish_lists(const char *const *lists, size_t n, char **path, ty_error *err);
void copy_well(struct buffer *files);
char *publish_well(const struct buffer *files); /* the caller frees */
void verify_well(const char *path);
/* Removes a staging directory and what is in it; a missing one is fine. */
void checkpoint_discard(const char *run, uint64_t number, int attempt);
void expect_refusal(int result, int code, const ty_error *err, const char *word);

#endif
