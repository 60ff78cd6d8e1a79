/* The command that goes on with a run that was interrupted: the one that was given, with --resume and the run's
 * name in place of what named it, quoted for a shell. */
#ifndef CLI_GO_ON_H
#define CLI_GO_ON_H

#include "base/buffer.h"
#include "cli/options.h"

void go_on_format(const struct arguments *arguments, const char *name, struct buffer *out);

/* The same line for another place: `program` run `more` OPTIONS --resume NAME -- PROG, without the options in `less`
 * (NULL-terminated). */
struct go_on_line {
    const char *program, *more;
    const char *const *less;
};
void go_on_format_line(const struct go_on_line *line, const struct arguments *arguments, const char *name,
                       struct buffer *out);

#endif
