/* `trainyard agent`: the process that an engine starts for each node. Not for people, and on the way of every
 * start: its few words are read by hand. */
#include "agent/agent.h"

#include <limits.h>
#include <stdint.h>

#include "agent/stack_save.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"

int command_agent_main(int argc, char **argv) {
    int64_t channel = -1;
    int64_t copy = 0;
    bool plain =
        argc == 3 || (argc == 5 && str_equal(argv[3], "--copy") && str_to_int64(argv[4], 1, INT_MAX, &copy));
    if (plain && str_equal(argv[1], "--channel-fd") && str_to_int64(argv[2], 0, INT_MAX, &channel))
        return agent_main((int)channel, (pid_t)copy);
    if (argc > 1 && str_equal(argv[1], "--stacks")) return stack_save_main(argc - 1, argv + 1);
    terminal_error("agent", "this is started by `trainyard run`: --channel-fd N");
    return ty_error_exit_status(TY_EUSAGE);
}
