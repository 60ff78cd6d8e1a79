/* Parts that bring a heavy library with them are modules, loaded when first used: journal (SQLite), gloo,
 * driver (everything that only the process that calls ty_fit needs), topology (hwloc), pmix. They lie in
 * trainyard-modules/ beside libtrainyard.so or the trainyard command, or in the installed library directory.
 * Each exports one symbol, `trainyard_NAME`, a const struct of functions, whose first member is the build
 * (below), which must equal ours. */
#ifndef BASE_MODULE_H
#define BASE_MODULE_H

#include "base/error.h"

/* The struct of module `name` (static for the life of the process), or NULL with TY_EUNSUPPORTED or
 * TY_EVERSION. */
const void *module_load(const char *name, ty_error *err);

/* The directory in which this library or command lies; static storage, "" when unknown. */
const char *module_home(void);

/* Path of the `trainyard` command that belongs to this library (agents are started from it), or NULL. Static
 * storage. */
const char *module_command(ty_error *err);

/* Which build this is. Parts that were built apart (modules, the agent's command) may lay the same structs and
 * messages out in another way, though their version is the same: they are refused by this name. */

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0+1f3a5c7e9b2d": the version, and a digest of the headers and messages that parts share
 * (make_build.py). */
extern const char base_build[];

#ifdef __cplusplus
}
#endif

#endif
