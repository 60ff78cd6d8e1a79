/* What the files of `trainyard torchrun` share: the options that torchrun reads from PET_ variables, and the
 * command line that is made of them and of what was typed. */
#ifndef CLI_TORCHRUN_H
#define CLI_TORCHRUN_H

#include "cli/command.h"

extern const struct option_group torchrun_group;

/* torchrun's command line as options_parse takes one: PET_ variables first, so that options win over them;
 * names with dashes for underscores, and spelled out where they were cut to a beginning of one name alone. */
int torchrun_rewrite(char **argv, struct words *made, ty_error *err);

#endif
