/* Loopback and Unix sockets alone: whoever may look is decided by this machine, and the way from others is
 * ssh. */
#include "web/site.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"

enum { ACCEPTED_LATER = 128 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

static int fail_address(const char *text, ty_error *err) {
    return ty_fail(
        err, TY_EUSAGE,
        "'%.80s' is no loopback address: use ssh -L, or unix:PATH (allowed: 127.0.0.1:PORT, [::1]:PORT, "
        "localhost:PORT, unix:PATH)",
        text);
}

/* "HOST:PORT", "HOST" or "PORT". */
static int parse(const char *text, struct listening *listening, union address *address, ty_error *err) {
    char host[64] = "127.0.0.1";
    const char *colon = strrchr(text, ':'), *port = text;
    if (colon != NULL && strchr(colon, ']') == NULL) {
        if (colon == text || (size_t)(colon - text) >= sizeof host) return fail_address(text, err);
        (void)snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
        port = colon + 1;
    } else if (strspn(text, "0123456789") != strlen(text)) {
        if (strlen(text) >= sizeof host) return fail_address(text, err);
        (void)strcpy(host, text);
        port = NULL;
    }
    int64_t number = LISTEN_PORT;
    if (port != NULL && !str_to_int64(port, 0, 65535, &number))
        return ty_fail(err, TY_EUSAGE, "'%.80s': the port must be a whole number from 0 to 65535", text);
    if (str_equal(host, "localhost")) (void)strcpy(host, "127.0.0.1");
    listening->asked = (int)number;
    if (str_equal(host, "[::1]") || str_equal(host, "::1")) {
        (void)strcpy(listening->host, "[::1]");
        address->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
        return 0;
    }
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) != 1 || ntohl(v4.s_addr) >> 24 != 127) return fail_address(text, err);
    (void)strcpy(listening->host, host);
    address->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = v4};
    return 0;
}

static int bind_port(struct listening *listening, union address *address, int port) {
    bool v6 = address->any.sa_family == AF_INET6;
    socklen_t size = v6 ? sizeof address->v6 : sizeof address->v4;
    *(v6 ? &address->v6.sin6_port : &address->v4.sin_port) = htons((uint16_t)port);
    int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, &address->any, size) < 0 || listen(fd, ACCEPTED_LATER) < 0 ||
        getsockname(fd, &address->any, &size) < 0) {
        int result = -errno;
        (void)close(fd);
        return result;
    }
    listening->fd = fd;
    listening->port = ntohs(v6 ? address->v6.sin6_port : address->v4.sin_port);
    return 0;
}

static int open_port(const char *text, struct listening *listening, ty_error *err) {
    union address address = {0};
    int result = parse(text, listening, &address, err);
    if (result < 0) return result;
    int port = listening->asked, last = port == 0 ? 0 : port + LISTEN_TRIES - 1;
    do {
        result = bind_port(listening, &address, port);
    } while (result == -EADDRINUSE && ++port <= last && port <= 65535);
    if (result == -EADDRINUSE)
        return ty_fail(err, TY_EUSAGE, "ports %d to %d of %s are all taken; --listen %s:0 takes any",
                       listening->asked, port - 1, listening->host, listening->host);
    if (result < 0)
        return ty_fail(err, result, "cannot listen on %s:%d: %s", listening->host, port, strerror(-result));
    return 0;
}

/* Nobody answers on a socket whose server is gone. */
static bool is_left_over(const union address *address) {
    struct stat status;
    if (lstat(address->local.sun_path, &status) < 0 || !S_ISSOCK(status.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 && connect(fd, &address->any, sizeof address->local) < 0 && errno == ECONNREFUSED;
    if (fd >= 0) (void)close(fd);
    return refused;
}

static int open_unix(const char *path, struct listening *listening, ty_error *err) {
    union address address = {.local = {.sun_family = AF_UNIX}};
    if (*path == '\0' || strlen(path) >= sizeof address.local.sun_path)
        return ty_fail(err, TY_EUSAGE, "unix:PATH: the path must have 1 to %zu bytes",
                       sizeof address.local.sun_path - 1);
    (void)strcpy(address.local.sun_path, path);
    (void)strcpy(listening->path, path);
    listening->is_unix = true;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return ty_fail(err, -errno, "cannot make a socket: %s", strerror(errno));
    mode_t before = umask(0177);
    int bound = bind(fd, &address.any, sizeof address.local);
    if (bound < 0 && errno == EADDRINUSE && is_left_over(&address) && unlink(path) == 0)
        bound = bind(fd, &address.any, sizeof address.local);
    int why = errno;
    (void)umask(before);
    if (bound == 0 && listen(fd, ACCEPTED_LATER) == 0) {
        listening->fd = fd;
        return 0;
    }
    (void)close(fd);
    if (why == EADDRINUSE) return ty_fail(err, TY_EUSAGE, "%s is taken: remove it, or name another path", path);
    return ty_fail(err, -why, "cannot listen on %s: %s", path, strerror(why));
}

int listen_open(const char *text, struct listening *listening, ty_error *err) {
    const char *path = NULL;
    *listening = (struct listening){.fd = -1};
    if (text == NULL) text = "127.0.0.1";
    if (str_prefix(text, "unix:", &path)) return open_unix(path, listening, err);
    return open_port(text, listening, err);
}

void listen_close(const struct listening *listening) {
    if (listening->is_unix) (void)unlink(listening->path);
}
