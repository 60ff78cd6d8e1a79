/* The metadata server of Google's cloud, over plain HTTP to a link-local address: what slice a TPU host
 * belongs to. GCE_METADATA_HOST (ADDRESS[:PORT]) names another one. Whatever goes wrong leaves the answers
 * unknown, within the limit in all. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "accelerator/vendors.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"

enum { REPLY_SIZE = 65536 };
static const nanoseconds limit = 500 * NS_PER_MS;

/* Waits until `fd` is ready for `events`; false when the deadline comes first. */
static bool wait_for(int fd, short events, nanoseconds deadline) {
    for (;;) {
        nanoseconds left = deadline - clock_monotonic();
        struct pollfd ready = {fd, events, 0};
        int n = left <= 0 ? 0 : poll(&ready, 1, (int)(left / NS_PER_MS) + 1);
        if (n < 0 && errno == EINTR) continue;
        return n > 0;
    }
}

static int connect_server(nanoseconds deadline) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const char *given = getenv("GCE_METADATA_HOST");
    struct addrinfo *found = NULL;
    char host[64];
    (void)snprintf(host, sizeof host, "%s", given == NULL || given[0] == '\0' ? "169.254.169.254" : given);
    char *colon = strchr(host, ':');
    if (colon != NULL) *colon = '\0';
    struct addrinfo *address =
        getaddrinfo(host, colon == NULL ? "80" : colon + 1, &hints, &found) == 0 ? found : NULL;
    if (address == NULL) return -1;
    CLEANUP_FD int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int result = fd < 0 ? -1 : connect(fd, address->ai_addr, address->ai_addrlen);
    bool under_way = result < 0 && fd >= 0 && errno == EINPROGRESS;
    freeaddrinfo(address);
    if (under_way) {
        int error = 0;
        socklen_t size = sizeof error;
        if (!wait_for(fd, POLLOUT, deadline) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ||
            error != 0)
            return -1;
    } else if (result < 0) {
        return -1;
    }
    return TAKE_FD(fd);
}

/* Everything that the server sends until it closes; NUL-terminated. A reply that is cut short by the deadline,
 * or too long, is none: half of it might be half a name. */
static bool receive(int fd, nanoseconds deadline, char *reply) {
    size_t used = 0;
    while (used < REPLY_SIZE - 1 && wait_for(fd, POLLIN, deadline)) {
        ssize_t got = recv(fd, reply + used, REPLY_SIZE - 1 - used, 0);
        if (got == 0) {
            reply[used] = '\0';
            return true;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN) return false;
        if (got > 0) used += (size_t)got;
    }
    return false;
}

/* The body of an attribute, inside `reply`; NULL when there is none. HTTP/1.0, so that it comes in one piece,
 * and ends with the connection. The request is shorter than any socket's buffer, and goes in one piece, too. */
static const char *ask(const char *attribute, nanoseconds deadline, char *reply) {
    char request[256];
    CLEANUP_FD int fd = connect_server(deadline);
    if (fd < 0) return NULL;
    int size =
        snprintf(request, sizeof request,
                 "GET /computeMetadata/v1/instance/attributes/%s HTTP/1.0\r\nHost: metadata.google.internal\r\n"
                 "Metadata-Flavor: Google\r\n\r\n",
                 attribute);
    if (send(fd, request, (size_t)size, MSG_NOSIGNAL) != size || !receive(fd, deadline, reply)) return NULL;
    if (!str_prefix(reply, "HTTP/1.", NULL) || strncmp(reply + 8, " 200", 4) != 0) return NULL;
    const char *body = strstr(reply, "\r\n\r\n");
    return body == NULL ? NULL : body + 4;
}

bool metadata_find(const char *text, const char *key, char *value, size_t size) {
    size_t key_size = strlen(key);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, key_size) != 0 || line[key_size] != ':') continue;
        const char *begin = line + key_size + 1;
        begin += strspn(begin, " \t'\"");
        size_t length = strcspn(begin, "'\"\r\n");
        if (length == 0 || length >= size) return false;
        memcpy(value, begin, length);
        value[length] = '\0';
        return true;
    }
    return false;
}

static void fill_text(const char *attribute, nanoseconds deadline, char *reply, char *value, size_t size) {
    const char *body = value[0] == '\0' ? ask(attribute, deadline, reply) : NULL;
    if (body == NULL) return;
    size_t length = strcspn(body, "\r\n");
    if (length < size) (void)snprintf(value, size, "%.*s", (int)length, body);
}

/* The type is asked first: where nobody answers to that, or knows it, this is no TPU host of that cloud, and
 * the rest of the time is not spent. */
void metadata_fill(struct tpu_host *host) {
    nanoseconds deadline = clock_monotonic() + limit;
    char number[24] = "";
    CLEANUP_FREE char *reply = malloc(REPLY_SIZE);
    if (reply == NULL) return;
    fill_text("accelerator-type", deadline, reply, host->pod_type, sizeof host->pod_type);
    if (host->pod_type[0] == '\0') return; /* nobody answers, or this is no TPU host */
    if (host->topology[0] == '\0') {
        const char *body = ask("tpu-env", deadline, reply);
        if (body != NULL) (void)metadata_find(body, "TOPOLOGY", host->topology, sizeof host->topology);
    }
    fill_text("instance-id", deadline, reply, host->slice, sizeof host->slice);
    if (host->worker_id >= 0) return;
    fill_text("agent-worker-number", deadline, reply, number, sizeof number);
    (void)str_to_int64(number, 0, INT32_MAX, &host->worker_id);
}
