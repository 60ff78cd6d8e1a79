/* `trainyard dashboard`: the page over HTTP until it is told to end, or as one file. */
#ifndef WEB_DASHBOARD_H
#define WEB_DASHBOARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

struct dashboard_config {
    const char *listen;               /* web/site.h; NULL: the default */
    const char *const *storage_paths; /* n_storage_paths, at least 1; NULL is the default one */
    size_t n_storage_paths;
    const char *const *hosts; /* n_hosts allowed as Host beside the loopback's */
    size_t n_hosts;
    const char *const *names; /* n_names runs, which the page shows first */
    size_t n_names;
    const char *token_file; /* the token goes there, mode 0600, and is not printed; NULL: printed */
    bool open;              /* a browser */
    bool allow_actions;
    bool no_cache; /* indexes in memory alone */
};

/* Serves until SIGINT, SIGTERM or SIGHUP: 0. Prints its address to standard output, hints to standard error. */
int dashboard_serve(const struct dashboard_config *config, ty_error *err);

/* The dashboards of this user that run, a line each. */
int dashboard_list(struct buffer *out, ty_error *err);

/* The runs as one page without scripts and without anything from outside, compared where there are several;
 * below 1 MiB. */
int dashboard_file(const char *const *names, const char *const *paths, size_t n, struct buffer *out,
                   ty_error *err);

#endif
