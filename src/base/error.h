/* How code inside Trainyard fails: one line that says what, on which object, and what to do.
 *
 *     return ty_fail(err, TY_EUSAGE, "cannot open %s: %s", path, strerror(errno));
 *     if (node_start(node, err) < 0) return ty_wrap(err, "node %s", name);
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <trainyard/error.h>

/* Fills `err` (may be NULL) and returns `code`. Newlines and control characters in the text become spaces; a
 * text that is too long is cut. Allocates nothing; errno is kept. */
int ty_fail(ty_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int ty_vfail(ty_error *err, int code, const char *format, va_list args) __attribute__((format(printf, 3, 0)));

/* Puts "format: " before the message already in `err` and returns its code (TY_EFAULT when err is NULL or
 * empty). */
int ty_wrap(ty_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True for what may go well the next time: no process, memory or descriptor was left, or whoever was spoken to
 * had died. */
bool error_may_pass(int code);

/* -ENOMEM with its message. */
int ty_fail_memory(ty_error *err);

/* What a message calls a field or a setting depends on who reads it: by its name, as Python, C, JSON and config
 * files have it (`use_gpu`), or by the option of the command (--use-gpu). A request carries the face that it
 * came through; whoever refuses it asks the table of the names for the spelling of that face. */
enum face { FACE_FIELDS, FACE_COMMAND, FACES };

#endif
