/* Parts that bring a heavy library with them are modules, loaded when first used: journal (SQLite), gloo,
 * driver (everything that only the process that calls ty_fit needs), topology (hwloc). They lie in
 * trainyard-modules/ beside libtrainyard.so or the trainyard command, or in the installed library directory.
 * Each exports one symbol, `trainyard_NAME`, a const struct of functions, whose first member is the build
 * (base/build.h), which must equal ours. */
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

#endif
