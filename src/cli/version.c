/* `trainyard version`: ours, which build it is of, and those of the libraries that the command runs with, as
 * they say themselves. Libraries of modules are not loaded for it: whether one is there is told by the command
 * that needs it. */
#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <trainyard/version.h>
#include <uv.h>
#include <yaml.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/module.h"
#include "cli/command.h"

struct build_part {
    const char *name, *version;
};

static int version_run(const struct arguments *arguments, ty_error *err) {
    struct format_options format = {0};
    int result = options_apply(arguments, (void *[]){&format}, err);
    if (result < 0) return result;
    const struct build_part parts[] = {{"libuv", uv_version_string()},
                                       {"protobuf-c", protobuf_c_version()},
                                       {"jansson", jansson_version_str()},
                                       {"libyaml", yaml_get_version_string()}};
    bool json = format.format == FORMAT_JSON;
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(
        &text,
        json ? "{\"trainyard\": \"%s\", \"build\": \"%s\", \"licence\": \"Apache-2.0\", \"libraries\": {"
             : "trainyard %s (build %s, licence Apache-2.0, ",
        TY_VERSION, base_build);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        buffer_printf(&text, json ? "%s\"%s\": \"%s\"" : "%s%s %s", i > 0 ? ", " : "", parts[i].name,
                      parts[i].version);
    buffer_text(&text, json ? "}}\n" : ")\n");
    return cli_print(&text, err);
}

const struct command command_version = {
    .name = "version",
    .summary = "print the version, and those of the libraries in use",
    .usage = (const char *const[]){"[--format text|json]", NULL},
    .description = "",
    .groups = (const struct option_group *const[]){&format_group, NULL},
    .run = version_run,
};
