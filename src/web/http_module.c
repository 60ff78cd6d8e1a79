/* The module: libmicrohttpd without threads, its epoll descriptor in our loop. A request that is not answered
 * in the call that tells of it is suspended until it is; a stream likewise while nothing is to be sent.
 *
 * libmicrohttpd knows one time limit, without traffic. Whoever sends a head byte by byte would hold a
 * connection for good, so heads are timed here: each connection that waits for one stands in a list, the
 * longest first. */
#include "web/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/module.h"
#include "base/str.h"

enum { GZIP_FROM = 8 << 10, STREAM_BLOCK = 16 << 10, UNPACKED_MAX = 16 << 20 };

/* A connection; in the list while its next head is awaited. */
struct http_link {
    struct http_link *before, *next;
    nanoseconds since;
    int fd;
};

enum reply_state { ANSWER_NONE, ANSWER_READY, ANSWER_STREAM, ANSWER_SENT };

struct exchange {
    struct http_request base; /* first: owners have its address */
    struct http_server *server;
    struct MHD_Connection *connection; /* NULL before its head is whole */
    char *url;
    enum reply_state answer;
    struct MHD_Response *response;
    unsigned status;
    bool told, suspended, finished;
    struct buffer out; /* of a stream */
    struct exchange *before, *after;
};

struct http_server {
    struct http_config config;
    struct MHD_Daemon *daemon;
    struct http_link waiting; /* the ends of the list */
    struct exchange *exchanges;
    bool stirred; /* something was resumed outside of a turn, of which the descriptor does not tell */
};

static void wait_for_head(struct http_server *server, struct http_link *link) {
    link->since = clock_monotonic();
    link->next = &server->waiting;
    link->before = server->waiting.before;
    link->before->next = link->next->before = link;
}

static void stop_waiting(struct http_link *link) {
    if (link->next == NULL) return;
    link->before->next = link->next;
    link->next->before = link->before;
    link->next = link->before = NULL;
}

static struct http_link *link_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* Every connection has its link from here on, which is in the list while a head is awaited, and is freed with
 * it. */
static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http_server *server = context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*socket_context != NULL) stop_waiting(*socket_context);
        free(TAKE(*socket_context));
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_link *link = calloc(1, sizeof *link);
    *socket_context = link;
    if (link == NULL) return; /* the connection is not timed, which memory that is short must bear */
    link->fd = info->connect_fd;
    wait_for_head(server, link);
}

/* The first line is there: what it asks for, as it came. libmicrohttpd would put each parameter of the query
 * into the memory of the connection next, and break that off without a word where it does not suffice: the
 * query is ours alone, and ends for it here. */
static void *on_url(void *context, const char *url, struct MHD_Connection *connection) {
    struct exchange *exchange = calloc(1, sizeof *exchange);
    struct http_link *link = link_of(connection);
    if (exchange == NULL) return NULL;
    exchange->server = context;
    exchange->url = strndup(url, HTTP_URL_MAX);
    exchange->base.url_too_long = strlen(url) > HTTP_URL_MAX;
    char *query = strchr(url, '?');
    if (query != NULL) query[1] = '\0';
    exchange->base.fd = link != NULL ? link->fd : -1;
    exchange->after = exchange->server->exchanges;
    if (exchange->after != NULL) exchange->after->before = exchange;
    exchange->server->exchanges = exchange;
    return exchange;
}

/* Behind a request, whether it was answered or broke off: the next head of the connection is awaited from now
 * on. */
static void on_completed(void *context, struct MHD_Connection *connection, void **memory,
                         enum MHD_RequestTerminationCode code) {
    (void)code;
    struct http_server *server = context;
    struct exchange *exchange = TAKE(*memory);
    struct http_link *link = link_of(connection);
    if (link != NULL) {
        stop_waiting(link);
        wait_for_head(server, link);
    }
    if (exchange == NULL) return;
    if (exchange->before != NULL)
        exchange->before->after = exchange->after;
    else
        server->exchanges = exchange->after;
    if (exchange->after != NULL) exchange->after->before = exchange->before;
    if (exchange->told) server->config.gone(server->config.context, &exchange->base);
    if (exchange->response != NULL) MHD_destroy_response(exchange->response);
    buffer_done(&exchange->base.body);
    buffer_done(&exchange->out);
    free(exchange->url);
    free(exchange);
}

/* Outside of a turn the epoll descriptor does not tell of a connection that was resumed: `stirred` has the loop
 * take a turn at once. */
static void wake(struct exchange *exchange) {
    if (!exchange->suspended) return;
    exchange->suspended = false;
    exchange->server->stirred = true;
    MHD_resume_connection(exchange->connection);
}

static void rest(struct exchange *exchange) {
    exchange->suspended = true;
    MHD_suspend_connection(exchange->connection);
}

/* libmicrohttpd calls this for the head, for each piece of the body, at the body's end, and again whenever the
 * connection is resumed. A reply of MHD_NO breaks the connection: where memory is short there is nothing
 * better. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *size,
                                  void **memory) {
    (void)url, (void)version;
    struct http_server *server = context;
    struct exchange *exchange = *memory;
    if (exchange == NULL || exchange->url == NULL) return MHD_NO;
    if (exchange->connection == NULL) {
        /* The head alone; the next call has the body, or tells that there is none. */
        exchange->connection = connection;
        return MHD_YES;
    }
    if (*size > 0) {
        if (exchange->base.body.size + *size > HTTP_BODY_MAX)
            exchange->base.body_too_large = true;
        else
            buffer_append(&exchange->base.body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (!exchange->told) {
        struct http_link *link = link_of(connection);
        if (link != NULL) stop_waiting(link);
        char *query = strchr(exchange->url, '?');
        if (query != NULL) *query++ = '\0';
        exchange->base.method = method;
        exchange->base.path = exchange->url;
        exchange->base.query = query != NULL ? query : "";
        exchange->told = true;
        server->config.request(server->config.context, &exchange->base);
    }
    if (exchange->answer == ANSWER_NONE) {
        rest(exchange);
        return MHD_YES;
    }
    if (exchange->answer == ANSWER_SENT) return MHD_YES;
    if (exchange->answer == ANSWER_READY) exchange->answer = ANSWER_SENT;
    return exchange->response != NULL ? MHD_queue_response(connection, exchange->status, exchange->response)
                                      : MHD_NO;
}

static const char *module_header(const struct http_request *request, const char *name) {
    const struct exchange *exchange = (const struct exchange *)request;
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

/* Packs (`level` 1 to 9) or unpacks (0) the whole body in place; false, and it stays, where memory is short or
 * it is no gzip. */
static bool repack(struct buffer *body, int level) {
    enum { GZIP_WINDOW = 15 + 16 };
    CLEANUP(buffer_done) struct buffer out = {0};
    z_stream z = {.next_in = (Bytef *)body->data, .avail_in = (uInt)body->size};
    int code = level > 0 ? deflateInit2(&z, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY)
                         : inflateInit2(&z, GZIP_WINDOW);
    if (code != Z_OK) return false;
    do {
        z.next_out = (Bytef *)buffer_reserve(&out, STREAM_BLOCK);
        z.avail_out = STREAM_BLOCK;
        if (z.next_out == NULL || out.size > UNPACKED_MAX) break;
        code = level > 0 ? deflate(&z, Z_FINISH) : inflate(&z, Z_NO_FLUSH);
        out.size += STREAM_BLOCK - z.avail_out;
    } while (code == Z_OK);
    (void)(level > 0 ? deflateEnd(&z) : inflateEnd(&z));
    if (code != Z_STREAM_END) return false;
    struct buffer packed = out;
    out = *body;
    *body = packed;
    return true;
}

static void add_headers(struct exchange *exchange, const char *type, const char *file) {
    const char *const *headers = exchange->server->config.headers;
    for (size_t i = 0; headers != NULL && headers[i] != NULL; i += 2)
        (void)MHD_add_response_header(exchange->response, headers[i], headers[i + 1]);
    if (type != NULL) (void)MHD_add_response_header(exchange->response, "Content-Type", type);
    if (file == NULL) return;
    CLEANUP(buffer_done) struct buffer value = {0};
    buffer_printf(&value, "attachment; filename=\"%s\"", file);
    if (!value.failed) (void)MHD_add_response_header(exchange->response, "Content-Disposition", value.data);
}

/* "br, gzip;q=0.5": a weight of 0 refuses. */
static bool takes_gzip(const char *accepted) {
    for (const char *at = accepted; at != NULL; at = strchr(at, ',')) {
        at += strspn(at, ", \t");
        if (strncasecmp(at, "gzip", 4) != 0 || strchr(", \t;", at[4]) == NULL) continue;
        at += 4 + strspn(at + 4, "; \t");
        return strncasecmp(at, "q=", 2) != 0 || strtod(at + 2, NULL) > 0;
    }
    return false;
}

/* The body becomes libmicrohttpd's memory. What is small is sent as it is; a body that is packed already is
 * unpacked for a client that does not take gzip, as HTTP demands. */
static void module_reply(struct http_request *request, const struct http_reply *reply) {
    struct exchange *exchange = (struct exchange *)request;
    struct buffer none = {0}, *body = reply->body != NULL ? reply->body : &none;
    bool gzip = takes_gzip(module_header(request, "Accept-Encoding"));
    bool packed = reply->gzipped;
    if (packed && !gzip) packed = !repack(body, 0);
    if (!packed && gzip && body->size >= GZIP_FROM && body->size <= UNPACKED_MAX) packed = repack(body, 1);
    size_t size = body->size;
    char *bytes = TAKE(body->data);
    *body = (struct buffer){0};
    exchange->response = MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE);
    exchange->status = reply->status;
    exchange->answer = ANSWER_READY;
    if (exchange->response == NULL) {
        free(bytes);
    } else {
        add_headers(exchange, reply->type, reply->file);
        (void)MHD_add_response_header(exchange->response, "Cache-Control",
                                      reply->cache != NULL ? reply->cache : "no-store");
        if (packed) (void)MHD_add_response_header(exchange->response, "Content-Encoding", "gzip");
        if (size >= GZIP_FROM || reply->gzipped)
            (void)MHD_add_response_header(exchange->response, "Vary", "Accept-Encoding");
        if (reply->etag != NULL) (void)MHD_add_response_header(exchange->response, "ETag", reply->etag);
        if (reply->allow != NULL) (void)MHD_add_response_header(exchange->response, "Allow", reply->allow);
        if (reply->status == 401)
            (void)MHD_add_response_header(exchange->response, "WWW-Authenticate", "Bearer");
    }
    wake(exchange);
}

/* What waits goes out; without any the connection rests until there is more. */
static ssize_t read_stream(void *context, uint64_t position, char *out, size_t room) {
    (void)position;
    struct exchange *exchange = context;
    struct http_server *server = exchange->server;
    if (exchange->out.size == 0 && !exchange->finished)
        server->config.drained(server->config.context, &exchange->base);
    size_t size = exchange->out.size < room ? exchange->out.size : room;
    if (size == 0 && exchange->finished)
        return exchange->out.failed ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    if (size == 0) {
        rest(exchange);
        return 0;
    }
    memcpy(out, exchange->out.data, size);
    buffer_consume(&exchange->out, size);
    return (ssize_t)size;
}

static void module_stream(struct http_request *request, const char *type, const char *file) {
    struct exchange *exchange = (struct exchange *)request;
    exchange->response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, exchange, NULL);
    exchange->status = MHD_HTTP_OK;
    exchange->answer = ANSWER_READY;
    if (exchange->response != NULL) {
        add_headers(exchange, type, file);
        (void)MHD_add_response_header(exchange->response, "Cache-Control", "no-store");
        /* A proxy passes it on at once. */
        (void)MHD_add_response_header(exchange->response, "X-Accel-Buffering", "no");
    }
    wake(exchange);
}

static void module_write(struct http_request *request, const void *bytes, size_t size) {
    struct exchange *exchange = (struct exchange *)request;
    buffer_append(&exchange->out, bytes, size);
    if (exchange->out.failed) exchange->finished = true;
    wake(exchange);
}

static size_t module_waiting(const struct http_request *request) {
    return ((const struct exchange *)request)->out.size;
}

static void module_finish(struct http_request *request, bool whole) {
    struct exchange *exchange = (struct exchange *)request;
    exchange->out.failed |= !whole;
    exchange->finished = true;
    wake(exchange);
}

static int module_start(const struct http_config *config, struct http_server **out, ty_error *err) {
    struct http_server *server = calloc(1, sizeof *server);
    if (server == NULL) return ty_fail_memory(err);
    server->config = *config;
    errno = EINVAL; /* unless a call of the system says why not */
    server->waiting.before = server->waiting.next = &server->waiting;
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, server,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_STALL_SECONDS,
        MHD_OPTION_URI_LOG_CALLBACK, on_url, server, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_END);
    if (server->daemon == NULL) {
        int why = errno;
        free(server);
        return ty_fail(err, -why, "cannot start the HTTP server (libmicrohttpd): %s", strerror(why));
    }
    *out = server;
    return 0;
}

/* The connections end with the daemon, and each tells `gone` of its request. */
static void module_stop(struct http_server *server) {
    if (server == NULL) return;
    for (struct exchange *exchange = server->exchanges; exchange != NULL; exchange = exchange->after)
        wake(exchange); /* libmicrohttpd takes no suspended connection into its end */
    MHD_stop_daemon(server->daemon);
    free(server);
}

/* libmicrohttpd closes what it does not take. */
static void module_add(struct http_server *server, int fd) {
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0)
        (void)close(fd);
    else
        (void)MHD_add_connection(server->daemon, fd, (const struct sockaddr *)&peer, size);
}

static bool module_full(const struct http_server *server) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info != NULL && info->num_connections >= HTTP_CONNECTIONS;
}

static int module_fd(const struct http_server *server) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    return info != NULL ? info->epoll_fd : -1;
}

/* The sooner of two times: libmicrohttpd's own, and that of the oldest head that is awaited. */
static int module_timeout_ms(const struct http_server *server) {
    MHD_UNSIGNED_LONG_LONG after = 0;
    if (server->stirred) return 0;
    int least = MHD_get_timeout(server->daemon, &after) == MHD_YES ? (int)(after < 60000 ? after : 60000) : -1;
    const struct http_link *oldest = server->waiting.next;
    if (oldest == &server->waiting) return least;
    nanoseconds left = oldest->since + HTTP_HEAD_SECONDS * NS_PER_S - clock_monotonic();
    int head = left <= 0 ? 0 : (int)(left / NS_PER_MS) + 1;
    return least < 0 || head < least ? head : least;
}

static void module_turn(struct http_server *server) {
    nanoseconds limit = clock_monotonic() - HTTP_HEAD_SECONDS * NS_PER_S;
    for (struct http_link *link = server->waiting.next; link != &server->waiting && link->since <= limit;) {
        struct http_link *next = link->next;
        (void)shutdown(link->fd, SHUT_RDWR); /* libmicrohttpd sees its end, and closes it */
        stop_waiting(link);
        link = next;
    }
    server->stirred = false;
    (void)MHD_run(server->daemon);
}

__attribute__((visibility("default"))) const struct http_module trainyard_http = {
    .version = base_build,
    .start = module_start,
    .stop = module_stop,
    .add = module_add,
    .full = module_full,
    .fd = module_fd,
    .timeout_ms = module_timeout_ms,
    .turn = module_turn,
    .header = module_header,
    .reply = module_reply,
    .stream = module_stream,
    .write = module_write,
    .waiting = module_waiting,
    .finish = module_finish,
    .assets = web_assets,
};
