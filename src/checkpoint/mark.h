/* What Trainyard made in a run's directory, told from whatever else lies there.
 *
 * A checkpoint says so itself: its manifest names the run, the name and the number that it was published under,
 * and the directory that it was published in. A copy of it, a checkpoint of another run, or one that was
 * renamed says something that is not so where it lies. A run may have been copied as a whole: a manifest beside
 * a directory that is not the one of which it speaks counts where the files are the same, byte for byte. What
 * has no manifest yet, or no longer, has a name of a form that nothing else gets. */
#ifndef CHECKPOINT_MARK_H
#define CHECKPOINT_MARK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"

/* Puts the mark into our part of the manifest of the open directory `top`; false without memory. */
bool mark_write(json_t *ours, int top, const struct checkpoint_mark *mark);
/* Whether it is this one, of that directory and of no copy. */
bool mark_speaks_of(const json_t *ours, int top, const struct checkpoint_mark *mark);

/* What the run in the open directory `run` published under this name. */
struct mark_found {
    uint64_t number; /* 0: nothing */
    bool original;   /* this is the directory that was published, and no copy in its place */
};
struct mark_found mark_find(int run, const char *name, const char *id);
/* Whether it holds what its manifest lists, as a copy does. Reads every byte. */
bool mark_is_whole(int run, const char *name);

/* Names of what is on its way: a staging directory, one of a rank or an owner beside it, or a checkpoint that
 * has lost its name. */
enum mark_form { FORM_OTHER, FORM_STAGING, FORM_GIVEN, FORM_TRASH };
enum mark_form mark_form(const char *name, int64_t *attempt);
/* The name of a checkpoint that has lost its own. */
void mark_trash_name(uint64_t number, char name[CHECKPOINT_NAME_SIZE + 16]);

/* A name of the run's own files, which no checkpoint gets. */
bool mark_is_reserved(const char *name);

#endif
