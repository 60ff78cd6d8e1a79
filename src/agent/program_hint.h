/* Why a program could not be executed, and what would run it: a script needs its interpreter or a mode, a file
 * of the working directory its "./", and a directory is no program. Looks at the file only once it was
 * refused. */
#ifndef AGENT_PROGRAM_HINT_H
#define AGENT_PROGRAM_HINT_H

#include "base/error.h"

/* `path` was refused with `error` (an errno); relative ones begin at `directory` (NULL: this process's).
 * TY_ESTART. */
int program_refuse(const char *path, const char *directory, int error, ty_error *err);

/* `name` is in none of the entries of `search`. TY_ESTART. */
int program_refuse_unfound(const char *name, const char *search, const char *directory, ty_error *err);

#endif
