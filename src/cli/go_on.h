/* The command that goes on with a run that was interrupted: the one that was given, with --resume and the run's
 * name in place of what named it, quoted for a shell. */
#ifndef CLI_GO_ON_H
#define CLI_GO_ON_H

#include "base/buffer.h"
#include "cli/options.h"

void go_on_format(const struct arguments *arguments, const char *name, struct buffer *out);

#endif
