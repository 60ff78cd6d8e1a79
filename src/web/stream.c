/* Server-sent events: what changed (news.c), never the data, which whoever is told asks for. A client that does
 * not read is told no more until it does, and asks for all then. What changed is found out once for all
 * clients. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "web/site.h"

enum { COMMENT_SECONDS = 15, STREAM_AHEAD = 64 << 10 };

struct site_stream {
    struct site_stream *next;
    struct site *site;
    struct http_request *request;
    struct site_run *run;    /* NULL: of the list */
    struct loop_watch watch; /* the client says no more: what can be read is its end */
};

/* Events are not kept for a client that does not read: each one says only that there is news, and one is as
 * good as all of them. */
static void put(struct site_stream *stream, const char *event, const char *data) {
    CLEANUP(buffer_done) struct buffer text = {0};
    if (stream->site->http->waiting(stream->request) > STREAM_AHEAD)
        return; /* the client asks for all when it reads on */
    buffer_printf(&text, "event: %s\ndata: %s\n\n", event, data);
    if (!text.failed) stream->site->http->write(stream->request, text.data, text.size);
}

void stream_tell(struct site *site, struct site_run *run, const char *event, const char *data) {
    if (run != NULL) run->told++;
    for (struct site_stream *stream = site->streams; stream != NULL; stream = stream->next)
        if (stream->run == run) put(stream, event, data);
    site_stir(site);
}

/* Proxies and browsers give up a connection that says nothing for long. */
static void on_comment(void *context) {
    struct site *site = context;
    for (struct site_stream *stream = site->streams; stream != NULL; stream = stream->next)
        if (stream->site->http->waiting(stream->request) <= STREAM_AHEAD)
            site->http->write(stream->request, ":\n\n", 3);
    (void)loop_timer_start(site->loop, &site->comment, COMMENT_SECONDS * NS_PER_S);
    site_stir(site);
}

static void on_end(void *context, unsigned events) {
    (void)events;
    struct site_stream *stream = context;
    loop_watch_stop(stream->site->loop, &stream->watch);
    stream->site->http->finish(stream->request, true);
    site_stir(stream->site);
}

/* The first comment goes out at once, so that the client knows that it is connected. */
void stream_begin(struct site *site, struct http_request *request, struct site_run *run) {
    struct site_stream *stream = site->n_streams < SITE_STREAMS ? calloc(1, sizeof *stream) : NULL;
    if (stream == NULL) {
        api_fail(site, request, 503, "too many pages watch already: 32 at most");
        return;
    }
    *stream = (struct site_stream){.next = site->streams, .site = site, .request = request, .run = run};
    stream->watch = (struct loop_watch){.callback = on_end, .context = stream};
    site->streams = stream;
    if (site->n_streams++ == 0) {
        site->comment = (struct loop_timer){.callback = on_comment, .context = site};
        (void)loop_timer_start(site->loop, &site->comment, COMMENT_SECONDS * NS_PER_S);
    }
    site->http->stream(request, "text/event-stream", NULL);
    site->http->write(request, ":\n\n", 3);
    (void)loop_watch_start(site->loop, &stream->watch, request->fd, LOOP_READABLE);
    if (run != NULL)
        news_begin(run);
    else
        list_news_begin(site);
    site_stir(site);
}

void stream_gone(struct site *site, struct http_request *request) {
    struct site_stream **place = &site->streams;
    while (*place != NULL && (*place)->request != request)
        place = &(*place)->next;
    struct site_stream *stream = *place;
    if (stream == NULL) return;
    *place = stream->next;
    loop_watch_stop(site->loop, &stream->watch);
    if (--site->n_streams == 0) loop_timer_stop(site->loop, &site->comment);
    if (stream->run != NULL)
        news_end(stream->run);
    else
        list_news_end(site);
    free(stream);
}

void stream_close(struct site *site) {
    for (struct site_stream *stream = site->streams; stream != NULL; stream = stream->next) {
        put(stream, "bye", "{}");
        site->http->finish(stream->request, true);
    }
    loop_timer_stop(site->loop, &site->comment);
}
