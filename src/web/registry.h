/* The dashboards of this user that run: a locked file each in a directory for the user alone,
 * $XDG_RUNTIME_DIR/trainyard or /tmp/trainyard-UID. A lock that is free belongs to one that is gone. */
#ifndef WEB_REGISTRY_H
#define WEB_REGISTRY_H

#include <limits.h>

#include "base/error.h"
#include "web/listen.h"

struct registry {
    int fd; /* holds the lock; -1: not entered */
    char path[PATH_MAX];
    char page[PATH_MAX]; /* the file that leads a browser to us; "": none */
};

int registry_enter(const struct listening *listening, struct registry *registry, ty_error *err);
void registry_leave(struct registry *registry);

/* Starts a browser with a file, for the user alone, that leads on to the address: so the token is in no list of
 * processes. The browser is $BROWSER, else xdg-open. */
int registry_open_browser(struct registry *registry, const char *address, ty_error *err);

#endif
