/* Loopback and Unix sockets alone: whoever may look is decided by this machine, and the way from others is ssh.
 * Who is answered is guard.c's. */
#include "web/site.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"

enum { ACCEPTED_LATER = 128 };

union listen_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int fail_address(const char *text, ty_error *err) {
    return ty_fail(
        err, TY_EUSAGE,
        "'%.80s' is no loopback address: use ssh -L, or unix:PATH (allowed: 127.0.0.1:PORT, [::1]:PORT, "
        "localhost:PORT, unix:PATH)",
        text);
}

/* "HOST:PORT", "HOST" or "PORT". */
static int parse(const char *text, struct listening *listening, union listen_address *address, ty_error *err) {
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

/* SO_REUSEADDR lets a port be bound whose last connections the kernel still remembers; one that somebody
 * listens on stays taken. Without waiting, as a client may be gone again before it is accepted. */
static int bind_port(struct listening *listening, union listen_address *address, int port) {
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

/* The port that was asked for, or one of the next ones: a second dashboard needs no option. */
static int open_port(const char *text, struct listening *listening, ty_error *err) {
    union listen_address address = {0};
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

/* -- a Unix socket has its name when it listens: one that does not answer is left over, and is replaced */

static int open_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Nobody answers on a socket whose server is gone. */
static bool is_left_over(const char *path) {
    struct stat status;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (lstat(path, &status) < 0 || !S_ISSOCK(status.st_mode)) return false;
    CLEANUP_FD int fd = open_socket();
    return fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 &&
           errno == ECONNREFUSED;
}

/* Gives the socket its name, that of one that is left over too. Another that begins at this moment may have
 * taken that one's place first, and gets it back. */
static int take_name(const char *hidden, const char *path) {
    int result = linkat(AT_FDCWD, hidden, AT_FDCWD, path, 0) < 0 ? -errno : 0;
    if (result != -EEXIST || !is_left_over(path)) return result;
    if (renameat2(AT_FDCWD, hidden, AT_FDCWD, path, RENAME_EXCHANGE) < 0) return -errno;
    if (is_left_over(hidden)) return 0;
    (void)renameat2(AT_FDCWD, hidden, AT_FDCWD, path, RENAME_EXCHANGE);
    return -EEXIST;
}

/* First under a name beside `path`, which may be as long as a socket's can be: its directory leads there. The
 * mode is set before the name is there: Linux takes it from the descriptor when it binds. */
static int listen_at(int fd, const char *path, struct stat *made) {
    struct sockaddr_un hidden = {.sun_family = AF_UNIX};
    const char *slash = strrchr(path, '/');
    CLEANUP_FREE char *above = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash + 1 - path));
    CLEANUP_FD int directory = above == NULL ? -1 : open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -errno;
    (void)snprintf(hidden.sun_path, sizeof hidden.sun_path, "/proc/self/fd/%d/.trainyard-%d", directory,
                   (int)getpid());
    (void)unlink(hidden.sun_path); /* of a process that had this number before */
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)&hidden, sizeof hidden) < 0) return -errno;
    int result = listen(fd, ACCEPTED_LATER) < 0 || lstat(hidden.sun_path, made) < 0 ? -errno : 0;
    if (result == 0) result = take_name(hidden.sun_path, path);
    (void)unlink(hidden.sun_path);
    return result;
}

static int open_unix(const char *path, struct listening *listening, ty_error *err) {
    const size_t room = sizeof((struct sockaddr_un *)NULL)->sun_path;
    if (*path == '\0' || strlen(path) >= room)
        return ty_fail(err, TY_EUSAGE, "unix:PATH: the path must have 1 to %zu bytes", room - 1);
    (void)strcpy(listening->path, path);
    listening->is_unix = true;
    CLEANUP_FD int fd = open_socket();
    if (fd < 0) return ty_fail(err, -errno, "cannot make a socket: %s", strerror(errno));
    int result = listen_at(fd, path, &listening->socket);
    if (result == -EEXIST) return ty_fail(err, TY_EUSAGE, "%s is taken: remove it, or name another path", path);
    if (result < 0) return ty_fail(err, result, "cannot listen on %s: %s", path, strerror(-result));
    listening->fd = TAKE_FD(fd);
    return 0;
}

int listen_open(const char *text, struct listening *listening, ty_error *err) {
    const char *path = NULL;
    *listening = (struct listening){.fd = -1};
    if (text == NULL) text = "127.0.0.1";
    if (str_prefix(text, "unix:", &path)) return open_unix(path, listening, err);
    return open_port(text, listening, err);
}

void listen_close(const struct listening *listening) {
    if (listening->fd >= 0) (void)close(listening->fd);
    if (listening->is_unix) (void)file_remove_own(listening->path, &listening->socket);
}
