/* The port is anybody's on this machine, and a browser on it sends what any page tells it to: so nothing counts
 * that a browser adds by itself (cookies), and the name by which we were asked for must be ours (DNS that is
 * rebound). */
#include "web/site.h"

#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/str.h"

int guard_make_token(char token[TOKEN_SIZE], ty_error *err) {
    int result = kernel_random_digits(token, (TOKEN_SIZE - 1) / 2);
    return result < 0 ? ty_fail(err, result, "cannot draw a token: %s", strerror(-result)) : 0;
}

/* Any port is fine: a tunnel changes it. */
static bool is_host(const char *authority, const char *host) {
    size_t size = strlen(host);
    if (strncasecmp(authority, host, size) != 0) return false;
    if (authority[size] == '\0') return true;
    int64_t port;
    return authority[size] == ':' && str_to_int64(authority + size + 1, 0, 65535, &port);
}

static bool is_our_host(const struct guard *guard, const char *authority) {
    static const char *const ours[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        if (is_host(authority, ours[i])) return true;
    for (size_t i = 0; i < guard->n_hosts; i++)
        if (is_host(authority, guard->hosts[i]) || strcasecmp(authority, guard->hosts[i]) == 0) return true;
    return false;
}

/* Host must be one of ours, as a name of somebody else's may lead here too. Origin, where a browser sends it,
 * must be the same as Host, and Sec-Fetch-Site say that no other site asks. A Unix socket tells whose process
 * has connected: another user's, to whom the socket was handed, is refused. */
bool guard_origin(const struct guard *guard, const struct http_module *http,
                  const struct http_request *request) {
    const char *host = http->header(request, "Host"), *origin = http->header(request, "Origin");
    const char *site = http->header(request, "Sec-Fetch-Site"), *authority = origin;
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (host == NULL || !is_our_host(guard, host)) return false;
    if (origin != NULL &&
        !(str_prefix(origin, "http://", &authority) || str_prefix(origin, "https://", &authority)))
        return false;
    if (origin != NULL && strcasecmp(authority, host) != 0) return false;
    if (site != NULL && !str_equal(site, "same-origin") && !str_equal(site, "none")) return false;
    return !guard->is_unix || (getsockopt(request->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                               (peer.uid == getuid() || peer.uid == 0));
}

bool guard_token(const struct guard *guard, const struct http_module *http,
                 const struct http_request *request) {
    const char *header = http->header(request, "Authorization");
    const char *given = header != NULL && strncasecmp(header, "Bearer ", 7) == 0 ? header + 7 : "";
    char padded[TOKEN_SIZE] = {0};
    memcpy(padded, given, strnlen(given, TOKEN_SIZE));
    volatile unsigned char differs = 0;
    for (size_t i = 0; i < TOKEN_SIZE; i++) /* the NUL too: nothing longer is taken */
        differs = (unsigned char)(differs | (padded[i] ^ guard->token[i]));
    return differs == 0;
}
