/* Where the page is served: a port of this machine's loopback, or a Unix socket. */
#ifndef WEB_LISTEN_H
#define WEB_LISTEN_H

#include <limits.h>
#include <stdbool.h>

#include "base/error.h"

enum { LISTEN_PORT = 8268, LISTEN_TRIES = 32 };

struct listening {
    int fd;
    bool is_unix;
    int asked, port;     /* TCP: the port that was asked for, and the one that it became */
    char host[64];       /* as it stands in a URL: "127.0.0.1", "[::1]" */
    char path[PATH_MAX]; /* Unix */
};

/* "127.0.0.1:8268", "localhost:0", "[::1]:8268", "8268", "unix:PATH"; NULL: the first. A port that is taken:
 * the next free one, LISTEN_TRIES of them. TY_EUSAGE for an address that others could reach. A socket that is
 * left over from one that is gone is replaced. */
int listen_open(const char *text, struct listening *listening, ty_error *err);
/* Takes the Unix socket away; the descriptor is the server's. */
void listen_close(const struct listening *listening);

/* The dashboards of this user that run: a locked file each in a directory for the user alone,
 * $XDG_RUNTIME_DIR/trainyard or /tmp/trainyard-UID. A lock that is free belongs to one that is gone. */
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
