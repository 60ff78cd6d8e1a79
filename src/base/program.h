/* Other programs, with default signals, an empty mask, and of our descriptors, which all are close-on-exec,
 * those that they are given: started, and the caller's to wait for; or run to their end, as a cluster's own
 * commands (scontrol, sbatch, kubectl), whose output is a stable interface. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <stddef.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"

enum { PROGRAM_NOTHING = -1, PROGRAM_OURS = -2 };

enum program_place { PROGRAM_BESIDE, PROGRAM_GROUP, PROGRAM_SESSION };

struct program_start {
    const char *path;        /* NULL: argv[0], by PATH */
    const char *const *argv; /* NULL-terminated */
    char *const *envp;       /* NULL: this process's */
    const int *fds;          /* its descriptors from 0 on, each above all of these; or PROGRAM_NOTHING, which is
                                /dev/null, or PROGRAM_OURS, for this process's of that number */
    size_t n_fds;
    enum program_place place; /* in this process's group, in a group or in a session of its own */
};

/* 0, or -errno. */
int program_start(const struct program_start *start, pid_t *pid);

struct program_call {
    const char *const *argv; /* argv[0] by PATH; NULL-terminated */
    const char *input;       /* its standard input; NULL: at its end at once */
    nanoseconds limit;       /* then it and its children are killed; 0: none */
    /* What it prints is appended; NULL: it has this process's standard output and error, and belongs to this
     * process's terminal. */
    struct buffer *out;
    struct buffer *complaint; /* what it prints on standard error; NULL: dropped, or as `out` */
};

enum { PROGRAM_OUTPUT_MAX = 256 * 1024 * 1024 };

/* Its exit status, 128 + signal where one ended it. TY_EUNSUPPORTED where there is no such program,
 * TY_ETIMEOUT at the limit, TY_ESTART for what else goes wrong; the message names the program. */
int program_run(const struct program_call *call, ty_error *err);

/* The same for a program that must succeed: any other status is TY_ESTART with its own words (the first
 * line). */
int program_ask(const struct program_call *call, ty_error *err);

#endif
