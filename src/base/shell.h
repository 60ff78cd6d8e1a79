/* Words as a shell reads them. */
#ifndef BASE_SHELL_H
#define BASE_SHELL_H

#include <stdbool.h>

#include "base/buffer.h"

/* Appends a word, in quotes where a shell would read it otherwise. In a script of any POSIX shell any byte may
 * stand in quotes; on a line for people what is no text is escaped, for bash and its kin. */
void shell_quote(const char *word, bool script, struct buffer *out);

#endif
