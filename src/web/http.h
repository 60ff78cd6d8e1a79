/* HTTP as the page needs it: what the module `http` (libmicrohttpd and zlib, http_module.c) offers to the rest
 * of this room, as the struct that it exports as `trainyard_http`. The server has no thread and no timer of its
 * own, and does not listen: its descriptor is watched by our loop, which calls turn().
 *
 * A request is whole when the owner hears of it, its head and a body of at most HTTP_BODY_MAX. It is answered
 * then or later, once, by reply(), or by stream() and write() until finish(); when its connection breaks first,
 * or when all is sent, `gone` tells that, and the request is no more. */
#ifndef WEB_HTTP_H
#define WEB_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"

enum {
    HTTP_CONNECTIONS = 512,
    HTTP_CONNECTION_BYTES = 16 << 10,
    HTTP_URL_MAX = 4096,
    HTTP_BODY_MAX = 4096,
    HTTP_HEAD_SECONDS = 10,
    HTTP_STALL_SECONDS = 60, /* a client that takes nothing of its reply */
};

struct http_request {
    const char *method;
    const char *path, *query; /* as they came, escapes and all; the query without its '?', "" without one */
    bool url_too_long;
    struct buffer body;
    bool body_too_large;
    int fd;      /* of the connection, the server's */
    void *owner; /* whoever answers keeps here what it will */
};

struct http_reply {
    unsigned status;
    const char *type;    /* Content-Type; static */
    const char *etag;    /* or NULL */
    const char *cache;   /* Cache-Control */
    const char *allow;   /* Allow, of a 405; or NULL */
    const char *file;    /* offered for saving under this name; or NULL */
    struct buffer *body; /* taken over; NULL: none */
    bool gzipped;        /* the body is: it goes out as it is where the client takes that, else unpacked */
};

struct http_asset {
    const char *path, *type, *etag;
    const unsigned char *gzip;
    size_t size;
};

struct http_config {
    void (*request)(void *context, struct http_request *request);
    void (*gone)(void *context, struct http_request *request);
    void (*drained)(void *context, struct http_request *request); /* of a stream: what was written is sent */
    void *context;
    const char *const *headers; /* of every reply: name and value by turns, NULL-terminated */
};

struct http_server; /* opaque */

struct http_module {
    const char *version;
    int (*start)(const struct http_config *config, struct http_server **server, ty_error *err);
    void (*stop)(struct http_server *server);        /* breaks all connections */
    void (*add)(struct http_server *server, int fd); /* somebody has connected: taken over */
    /* HTTP_CONNECTIONS are there, and another one would be broken. */
    bool (*full)(const struct http_server *server);
    int (*fd)(const struct http_server *server);
    /* Until turn() has something to do unasked; -1: never. */
    int (*timeout_ms)(const struct http_server *server);
    void (*turn)(struct http_server *server);
    /* NULL: not there, "": empty. */
    const char *(*header)(const struct http_request *request, const char *name);
    void (*reply)(struct http_request *request, const struct http_reply *reply);
    void (*stream)(struct http_request *request, const char *type, const char *file);
    void (*write)(struct http_request *request, const void *bytes, size_t size);
    size_t (*waiting)(const struct http_request *request);    /* bytes of a stream that were not sent yet */
    void (*finish)(struct http_request *request, bool whole); /* else the client sees it break off */
    const struct http_asset *assets; /* the files of the page, NULL path behind the last */
};

extern const struct http_module trainyard_http;

/* The files of the page, embedded by embed.py: each packed with gzip, and named by its path in a URL. */
extern const struct http_asset web_assets[]; /* NULL path behind the last */

#endif
