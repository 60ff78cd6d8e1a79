/* Looking at /dev, /sys and /proc of this machine. All paths are taken below $TRAINYARD_SYSROOT when that is
 * set, so that a tree of files can stand for a machine that is not there. */
#ifndef ACCELERATOR_MACHINE_H
#define ACCELERATOR_MACHINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/idset.h"

enum { MACHINE_PATH_SIZE = PATH_MAX };

bool machine_has(const char *path);
/* The text of a small file without the white space at its end; false when it cannot be read or does not fit. */
bool machine_read(const char *path, char *text, size_t size);
/* A whole number as /sys writes it, decimal or 0x hexadecimal. */
bool machine_read_number(const char *path, int64_t *number);
/* Last part of the path that a link points to ("0000:3b:00.0"); false when it is no link. */
bool machine_link(const char *path, char *name, size_t size);
/* The value of "KEY VALUE" or "KEY: VALUE" lines in a small file. */
bool machine_property(const char *path, const char *key, int64_t *value);

/* Adds the number of every entry PREFIX<number>SUFFIX of a directory that is not a directory itself (with
 * `directories`: whatever it is). 0 when the directory is missing; -errno when it cannot be read or memory
 * is short. */
int machine_numbers(const char *directory, const char *prefix, const char *suffix, bool directories,
                    struct idset *numbers);

/* Calls `each` with the name of every entry of a directory, in byte order, until it returns other than 0,
 * which is returned. */
int machine_each(const char *directory, int (*each)(void *context, const char *name), void *context);

#endif
