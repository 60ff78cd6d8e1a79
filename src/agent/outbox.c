/* Batches for the controller, and rest for those who read too fast for it. For each batch its messages are made
 * of arrays that lie side by side, and freed when they are sent. What the channel does with bytes that its
 * socket does not take is the channel's (wire/channel.c). */
#include "agent/outbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"

enum { BATCH_BYTES = 256 << 10, KEPT_BYTES = 16 << 10, MESSAGE_BYTES = FRAME_MAX / 4 };
/* Of reports for another controller: a half of what is kept, and all that is kept while there is none. */
enum { KEPT_HALF = 2 << 20, KEPT_ADRIFT = 8 << 20 };

int outbox_watch(struct outbox *outbox, struct source *source, int fd, void (*callback)(void *, unsigned),
                 void *context) {
    *source =
        (struct source){.fd = fd, .events = LOOP_READABLE, .watch = {.callback = callback, .context = context}};
    int code = loop_watch_start(outbox->loop, &source->watch, fd, LOOP_READABLE);
    if (code < 0) source->fd = -1;
    return code;
}

void outbox_expect(struct outbox *outbox, struct source *source, unsigned events) {
    if (source->events == events) return;
    source->events = events;
    (void)loop_watch_start(outbox->loop, &source->watch, source->fd, events);
}

static void stop_resting(struct outbox *outbox, struct source *source) {
    struct source **link = &outbox->resting;
    while (*link != source)
        link = &(*link)->next_resting;
    *link = source->next_resting;
    if (*link == NULL) outbox->resting_end = link;
    source->resting = false;
}

void outbox_close(struct outbox *outbox, struct source *source) {
    if (source->fd < 0) return;
    if (source->resting) stop_resting(outbox, source);
    loop_watch_stop(outbox->loop, &source->watch);
    (void)close(source->fd);
    source->fd = -1;
}

static void send_reports(struct outbox *outbox);
static void send_events(struct outbox *outbox, struct outbox_events *events);

/* Until another controller comes, or none does. */
static bool is_full_adrift(const struct outbox *outbox) {
    const struct outbox_kept *kept = &outbox->kept;
    return outbox->adrift && kept->older.size + kept->newer.size + outbox->bytes.size > KEPT_ADRIFT;
}

static bool is_full(struct outbox *outbox) {
    if (outbox->adrift) return is_full_adrift(outbox);
    if (outbox->channel == NULL) return false;
    if (outbox->bytes.size + outbox->early.bytes > BATCH_BYTES) {
        send_events(outbox, &outbox->early);
        send_reports(outbox);
    }
    if (channel_full(outbox->channel)) channel_flush(outbox->channel);
    return channel_full(outbox->channel);
}

bool outbox_must_rest(struct outbox *outbox, struct source *source) {
    if (!is_full(outbox)) return false;
    if (source->resting) return true;
    outbox_expect(outbox, source, 0);
    source->resting = true;
    source->next_resting = NULL;
    *(outbox->resting != NULL ? outbox->resting_end : &outbox->resting) = source;
    outbox->resting_end = &source->next_resting;
    return true;
}

/* One that finds the channel full again goes back to the end of the list, and ends the loop. */
static void wake_all(void *context) {
    struct outbox *outbox = context;
    while (outbox->resting != NULL && !is_full(outbox)) {
        struct source *source = outbox->resting;
        stop_resting(outbox, source);
        outbox_expect(outbox, source, LOOP_READABLE);
        source->watch.callback(source->watch.context, LOOP_READABLE);
    }
}

void outbox_wake(struct outbox *outbox) {
    if (outbox->resting == NULL || is_full_adrift(outbox)) return;
    if (outbox->channel != NULL && channel_full(outbox->channel)) return;
    outbox->wake = (struct loop_timer){.callback = wake_all, .context = outbox, .state = outbox->wake.state};
    (void)loop_timer_start(outbox->loop, &outbox->wake, 0);
}

static void free_event(Wire__WorkerEvent *event) {
    if (event->text != protobuf_c_empty_string) free(event->text);
    free(event->tail.data);
}

/* Ends are sent behind the turn's reports, as what a worker said came before them. */
void outbox_event(struct outbox *outbox, Wire__WorkerEvent event) {
    bool late = event.kind == WIRE__WORKER_EVENT__KIND__EXITED || event.kind == WIRE__WORKER_EVENT__KIND__GONE;
    struct outbox_events *events = late ? &outbox->late : &outbox->early;
    event.time = clock_wall();
    if ((outbox->channel == NULL && !outbox->adrift) || ARRAY_GROW(events->items, events->n) < 0) {
        outbox->failed = true;
        free_event(&event);
        return;
    }
    events->items[events->n++] = event;
    events->bytes += event.tail.len;
}

/* Bytes and names are places in `bytes`, which moves as it grows; send_reports makes pointers of them. */
void outbox_report(struct outbox *outbox, Wire__Report report, const void *bytes, size_t size) {
    size_t offset = outbox->bytes.size;
    if ((outbox->channel == NULL && !outbox->adrift) || ARRAY_GROW(outbox->reports, outbox->n_reports) < 0) {
        outbox->failed = true;
        return;
    }
    buffer_append(&outbox->bytes, bytes, size);
    ProtobufCBinaryData data = {.len = size, .data = (uint8_t *)offset};
    if (report.kind == WIRE__REPORT__KIND__METRICS || report.kind == WIRE__REPORT__KIND__BEGIN)
        report.metrics = data;
    else
        report.files = data;
    if (report.name != protobuf_c_empty_string) {
        const char *name = report.name;
        report.name = (char *)outbox->bytes.size;
        buffer_append(&outbox->bytes, name, strlen(name) + 1);
    }
    outbox->reports[outbox->n_reports++] = report;
}

void outbox_send(struct outbox *outbox, const Wire__Message *message) {
    if (outbox->channel == NULL || outbox->failed) return;
    /* Of any other failure the channel tells. */
    outbox->failed = channel_send(outbox->channel, message) == -ENOMEM;
}

void outbox_log(struct outbox *outbox, int level, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_write((enum log_level)level, "agent", "%s", text);
    Wire__Log log = WIRE__LOG__INIT;
    log.level = (uint32_t)level;
    log.text = text;
    outbox_send(outbox, &WIRE_MESSAGE(LOG, log, &log));
}

/* protobuf-c wants arrays of pointers: to items that lie side by side. */
static void **point_at(void *items, size_t n, size_t item_size) {
    void **pointers = reallocarray(NULL, n, sizeof *pointers);
    for (size_t i = 0; pointers != NULL && i < n; i++)
        pointers[i] = (char *)items + i * item_size;
    return pointers;
}

/* What another controller cannot know by asking the worker: that it failed and why, and its end. */
static void keep_end(struct outbox *outbox, Wire__WorkerEvent *event) {
    Wire__WorkerEvents body = WIRE__WORKER_EVENTS__INIT;
    bool keeps = event->kind == WIRE__WORKER_EVENT__KIND__FAILED ||
                 event->kind == WIRE__WORKER_EVENT__KIND__EXITED ||
                 event->kind == WIRE__WORKER_EVENT__KIND__GONE;
    if (!keeps) return;
    body.n_events = 1;
    body.events = &event;
    if (frame_message(&WIRE_MESSAGE(EVENTS, events, &body), &outbox->kept.ends) < 0) outbox->failed = true;
}

/* Adrift, events stay where they are: they go to whichever controller comes, behind what that is told first. */
static void send_events(struct outbox *outbox, struct outbox_events *events) {
    if (events->n == 0 || outbox->adrift) return;
    for (size_t i = 0; i < events->n && outbox->kept.wanted; i++)
        keep_end(outbox, &events->items[i]);
    Wire__WorkerEvent **pointers =
        (Wire__WorkerEvent **)point_at(events->items, events->n, sizeof *events->items);
    if (pointers == NULL) outbox->failed = true;
    for (size_t at = 0; pointers != NULL && at < events->n;) {
        Wire__WorkerEvents body = WIRE__WORKER_EVENTS__INIT;
        /* How many of the items, from this one, fit into one message: all of them, but for a node full of
         * workers that end with long tails. */
        size_t n = 0, bytes = 0;
        while (at + n < events->n && (n == 0 || bytes < MESSAGE_BYTES))
            bytes += events->items[at + n++].tail.len;
        body.n_events = n;
        body.events = pointers + at;
        outbox_send(outbox, &WIRE_MESSAGE(EVENTS, events, &body));
        at += body.n_events;
    }
    free(pointers);
    for (size_t i = 0; i < events->n; i++)
        free_event(&events->items[i]);
    free(events->items);
    *events = (struct outbox_events){0};
}

static void place_bytes(ProtobufCBinaryData *data, const struct buffer *bytes) {
    if (data->len > 0) data->data = (uint8_t *)bytes->data + (size_t)data->data;
}

/* -- reports for another controller */

void outbox_keep(struct outbox *outbox, bool wanted) {
    buffer_done(&outbox->kept.older);
    buffer_done(&outbox->kept.newer);
    buffer_done(&outbox->kept.ends);
    outbox->kept.wanted = wanted;
}

/* Kept as the frames that were sent, so that to keep a report costs a copy. When the newer half is full the
 * older one is let go of: by then the controller has had time to write it, which `turned` makes known. */
static void keep(struct outbox *outbox, Wire__Reports body) {
    struct outbox_kept *kept = &outbox->kept;
    size_t n = 0;
    for (size_t i = 0; i < body.n_reports; i++) {
        /* What a rank waits for is asked for anew by its channel, and a heartbeat is of its moment. */
        Wire__Report__Kind kind = body.reports[i]->kind;
        bool keeps = kind != WIRE__REPORT__KIND__LIST && kind != WIRE__REPORT__KIND__ALIVE;
        if (keeps) body.reports[n++] = body.reports[i];
    }
    body.n_reports = n;
    if (n > 0 && frame_message(&WIRE_MESSAGE(REPORTS, reports, &body), &kept->newer) < 0) outbox->failed = true;
    if (outbox->adrift || kept->newer.size < KEPT_HALF) return;
    buffer_done(&kept->older);
    kept->older = kept->newer;
    kept->newer = (struct buffer){0};
    kept->turned(kept->context);
}

void outbox_send_kept(struct outbox *outbox) {
    const struct buffer *const parts[] = {&outbox->kept.older, &outbox->kept.newer, &outbox->kept.ends};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (parts[i]->size > 0) buffer_append(channel_out(outbox->channel), parts[i]->data, parts[i]->size);
}

static void send_reports(struct outbox *outbox) {
    if (outbox->n_reports == 0) return;
    Wire__Reports body = WIRE__REPORTS__INIT;
    body.n_reports = outbox->n_reports;
    body.reports = (Wire__Report **)point_at(outbox->reports, outbox->n_reports, sizeof *outbox->reports);
    for (size_t i = 0; i < outbox->n_reports; i++) {
        place_bytes(&outbox->reports[i].metrics, &outbox->bytes);
        place_bytes(&outbox->reports[i].files, &outbox->bytes);
        if (outbox->reports[i].name != protobuf_c_empty_string)
            outbox->reports[i].name = outbox->bytes.data + (size_t)outbox->reports[i].name;
    }
    if (body.reports != NULL && !outbox->bytes.failed) {
        outbox_send(outbox, &WIRE_MESSAGE(REPORTS, reports, &body));
        if (outbox->kept.wanted) keep(outbox, body);
    } else {
        outbox->failed = true;
    }
    free(body.reports);
    outbox->n_reports = 0;
    buffer_clear(&outbox->bytes);
    /* What an unusual turn took is given back. */
    if (outbox->bytes.capacity <= KEPT_BYTES && !outbox->bytes.failed) return;
    buffer_done(&outbox->bytes);
    free(TAKE(outbox->reports));
}

void outbox_send_behind(struct outbox *outbox, const Wire__Message *message) {
    send_events(outbox, &outbox->early);
    send_reports(outbox);
    outbox_send(outbox, message);
}

void outbox_flush(struct outbox *outbox) {
    send_events(outbox, &outbox->early);
    send_reports(outbox);
    send_events(outbox, &outbox->late);
    if (outbox->channel != NULL) channel_flush(outbox->channel);
    outbox_wake(outbox);
}

void outbox_done(struct outbox *outbox) {
    loop_timer_stop(outbox->loop, &outbox->wake);
    outbox->adrift = false;
    send_events(outbox, &outbox->early);
    send_reports(outbox);
    send_events(outbox, &outbox->late);
    free(outbox->reports);
    buffer_done(&outbox->bytes);
    outbox_keep(outbox, false);
}
