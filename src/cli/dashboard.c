/* `trainyard dashboard`: the page of all runs, served to this machine alone, or written as one file. Here are
 * the options, the list of dashboards that run, and the writing of the file; what is served, to whom, and what
 * the page may do to a run is in the room web. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "cli/command.h"
#include "controller/run_directory.h"
#include "web/dashboard.h"

struct dashboard_options {
    struct text_list storage_paths, hosts;
    const char *listen, *token_file, *output;
    bool open, allow_actions, no_cache, list;
};

#define AT(field) offsetof(struct dashboard_options, field)

static const struct option_spec specs[] = {
    {"listen", 0, "ADDRESS",
     "127.0.0.1:8268, another port or loopback address, or unix:PATH. Of a port that is taken, the next free "
     "one of 32",
     option_text, AT(listen), NULL},
    {"output", 'o', "FILE.html",
     "write the page of the named runs to a file instead: no script, nothing from outside", option_output,
     AT(output), NULL},
    {"open", 0, NULL, "open it in $BROWSER, else by xdg-open", option_flag, AT(open), NULL},
    {"list", 0, NULL, "show the dashboards of yours that run", option_flag, AT(list), NULL},
    {"storage-path", 0, "DIR", STORAGE_PATH_HELP "; may be given several times", option_texts,
     AT(storage_paths), NULL},
    {"allow-host", 0, "H", "take requests for this host name too, as a proxy in front sends them", option_texts,
     AT(hosts), NULL},
    {"token-file", 0, "PATH", "write the token to this file, mode 0600, and do not print it", option_text,
     AT(token_file), NULL},
    {"allow-actions", 0, NULL, "let the page stop runs of yours and take stacks", option_flag,
     AT(allow_actions), NULL},
    {"no-cache", 0, NULL, "keep indexes in memory, and nothing in $XDG_CACHE_HOME", option_flag, AT(no_cache),
     NULL},
};
static const struct option_group dashboard_group = {"Options", specs, ARRAY_SIZE(specs)};

/* What has no effect on a file is refused: its user would look for that effect in vain. */
static int check(const struct dashboard_options *options, size_t n_words, ty_error *err) {
    if (options->output != NULL && n_words == 0)
        return ty_fail(err, TY_EUSAGE, "--output: of which runs? `trainyard status` lists them");
    if (options->output != NULL &&
        (options->listen != NULL || options->open || options->allow_actions || options->token_file != NULL))
        return ty_fail(err, TY_EUSAGE,
                       "--output writes a file and serves nothing: leave out --listen, --open, "
                       "--allow-actions, --token-file");
    return 0;
}

/* Under its name when it is whole, so that a browser that has the old one open never loads half of the new. */
static int put_file(const char *path, const struct buffer *page, ty_error *err) {
    struct file_draft draft;
    int result = file_draft_open_output(path, 0666, &draft);
    if (result == 0) result = file_draft_close(&draft, file_write_all(draft.fd, page->data, page->size));
    return result < 0 ? ty_fail(err, result, "cannot write %s: %s", path, strerror(-result)) : 0;
}

/* All runs are found before the first is read: a name that is wrong costs no wait, and writes nothing. */
static int write_file(const struct dashboard_options *options, char *const *names, size_t n, ty_error *err) {
    CLEANUP(buffer_done) struct buffer page = {0};
    char **paths = calloc(n + 1, sizeof *paths);
    int result = paths == NULL ? ty_fail_memory(err) : 0;
    for (size_t i = 0; result == 0 && i < n; i++) {
        /* A run is taken from the first storage path that has a run of this name. */
        for (size_t at = 0; paths[i] == NULL && at < options->storage_paths.n; at++)
            paths[i] = run_directory_find(options->storage_paths.items[at], names[i], err);
        if (paths[i] == NULL) result = err->code;
    }
    if (result == 0)
        result = dashboard_file((const char *const *)names, (const char *const *)paths, n, &page, err);
    if (result == 0) result = put_file(options->output, &page, err);
    for (size_t i = 0; paths != NULL && i < n; i++)
        free(paths[i]);
    free(paths);
    return result;
}

static int dashboard_run(const struct arguments *arguments, ty_error *err) {
    struct dashboard_options options = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = options_apply(arguments, (void *[]){&options}, err);
    if (result >= 0) result = check(&options, arguments->n_words, err);
    if (result >= 0 && options.storage_paths.n == 0 && text_list_add(&options.storage_paths, NULL) < 0)
        result = ty_fail_memory(err); /* NULL: the default */
    if (result >= 0 && options.list) {
        result = dashboard_list(&text, err);
        if (result >= 0) result = cli_print(&text, err);
    } else if (result >= 0 && options.output != NULL) {
        result = write_file(&options, arguments->words, arguments->n_words, err);
    } else if (result >= 0) {
        const struct dashboard_config config = {
            .listen = options.listen,
            .storage_paths = options.storage_paths.items,
            .n_storage_paths = options.storage_paths.n,
            .hosts = options.hosts.items,
            .n_hosts = options.hosts.n,
            .names = (const char *const *)arguments->words,
            .n_names = arguments->n_words,
            .token_file = options.token_file,
            .open = options.open,
            .allow_actions = options.allow_actions,
            .no_cache = options.no_cache,
        };
        result = dashboard_serve(&config, err);
    }
    text_list_done(&options.storage_paths);
    text_list_done(&options.hosts);
    return result;
}

const struct command command_dashboard = {
    .name = "dashboard",
    .summary = "show runs in a browser, or write their page to a file",
    .usage = (const char *const[]){"[NAME...] [OPTION...]", "NAME... -o FILE.html", NULL},
    .description = "Serves a page of all runs to browsers on this machine, until Ctrl-C: plots of what was "
                   "reported with bands over ranks, who "
                   "is slow, where the time went, attempts, checkpoints, logs. It reads what the runs have "
                   "written and changes nothing. The "
                   "address that is printed has a token, new each time, without which nothing is shown. For a "
                   "machine that is reached by ssh "
                   "the line to forward the port is printed too.",
    .examples =
        (const char *const[]){"trainyard dashboard", "all runs", "trainyard dashboard llama-03 -o llama.html",
                              "one run as one file, to mail", NULL},
    .groups = (const struct option_group *const[]){&dashboard_group, NULL},
    .max_words = 64,
    .run = dashboard_run,
};
