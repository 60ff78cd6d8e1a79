/* The key of a run: what an agent of another machine must have to take part in it. A text of at least
 * KEY_MIN_CHARACTERS, as `openssl rand -hex 32` prints one; those of the channel are derived from it, and it is
 * never sent. It travels in an environment variable, in a file that only its owner can read, or over a pipe:
 * never on a command line, which all users can read, and never in the environment of workers. */
#ifndef WIRE_KEY_H
#define WIRE_KEY_H

#include "base/error.h"

#define KEY_VARIABLE "TRAINYARD_RUN_KEY"
enum { KEY_MIN_CHARACTERS = 32, KEY_SIZE = 256 };

struct run_key {
    char text[KEY_SIZE]; /* "": there is none */
};

int key_make(struct run_key *key, ty_error *err); /* 32 random bytes, as hexadecimal digits */
/* What reads a key says with TY_EUSAGE what is wrong with it, without showing it. White space around it does
 * not count. */

/* A file that others can read or write, or of another user (but root), is refused. */
int key_read_file(struct run_key *key, const char *path, ty_error *err);
/* The first line of a stream, read byte for byte, so that what follows is the caller's. */
int key_read_line(struct run_key *key, int fd, ty_error *err);
/* TRAINYARD_RUN_KEY; without it the key is "". */
int key_read_variable(struct run_key *key, ty_error *err);
/* The same, which is taken out of this process's environment. */
int key_take_variable(struct run_key *key, ty_error *err);
void key_forget(struct run_key *key); /* overwrites it */

#endif
