/* `trainyard agent`: the process that an engine starts for each node. Not for people, and on the way of every
 * start: the few options are read by hand. */
#include "agent/agent.h"

#include <limits.h>
#include <stdint.h>

#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"

static bool set_number(const char *text, int64_t max, int64_t *number) {
    return str_to_int64(text, 0, max, number);
}

static bool set_option(struct agent_config *config, const char *name, const char *value) {
    int64_t number = 0;
    if (str_equal(name, "--name")) {
        config->node_name = value;
    } else if (str_equal(name, "--log")) {
        config->log_path = value;
    } else if (str_equal(name, "--channel-fd") && set_number(value, INT_MAX, &number)) {
        config->channel_fd = (int)number;
    } else if (str_equal(name, "--lease-fd") && set_number(value, INT_MAX, &number)) {
        config->lease_fd = (int)number;
    } else if (str_equal(name, "--node") && set_number(value, UINT_MAX, &number)) {
        config->node = (unsigned)number;
    } else {
        return false;
    }
    return true;
}

int command_agent_main(int argc, char **argv) {
    struct agent_config config = {.channel_fd = -1, .lease_fd = -1};
    bool good = argc % 2 == 1;
    for (int i = 1; good && i < argc; i += 2)
        good = set_option(&config, argv[i], argv[i + 1]);
    if (good && config.channel_fd >= 0 && config.node_name != NULL) return agent_main(&config);
    terminal_error(
        "agent",
        "this is started by `trainyard run`: --channel-fd N --node I --name NAME [--lease-fd N] [--log PATH]");
    return ty_error_exit_status(TY_EUSAGE);
}
