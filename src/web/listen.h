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

#endif
