/* Another program, run to its end: a cluster's own commands (scontrol, sbatch, kubectl), whose output is a
 * stable interface. The caller waits; the program is given default signals, and no descriptor but 0 to 2. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"

struct program_call {
    const char *const *argv; /* argv[0] by PATH; NULL-terminated */
    const char *input;       /* its standard input; NULL: at its end at once */
    nanoseconds limit;       /* then it and its children are killed; 0: none */
    struct buffer
        *out; /* what it prints is appended; NULL: it has this process's standard output and error, and
                                 belongs to this process's terminal */
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
