/* What the controller passes on to a worker's standard input (--stdin): a pipe that is written to when it takes
 * something, and the count of what it took, by which the controller keeps its pace. What waits here has no
 * bound of its own: it is the controller that sends no more than it is told of (controller/input.c). */
#include "agent/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void tell(const struct feed *feed, size_t size, bool closed) {
    Wire__Fed fed = WIRE__FED__INIT;
    fed.rank = feed->rank;
    fed.size = size;
    fed.closed = closed;
    outbox_send(feed->outbox, &WIRE_MESSAGE(FED, fed, &fed));
}

void feed_end(struct feed *feed) {
    if (feed->outbox == NULL || feed->fd < 0) return;
    loop_watch_stop(feed->outbox->loop, &feed->watch);
    (void)close(feed->fd);
    feed->fd = -1;
    buffer_done(&feed->queue);
    tell(feed, 0, true);
}

/* Each write is told at once: the controller's window for this worker opens by as much. */
static void write_queue(struct feed *feed) {
    while (feed->queue.size > 0) {
        ssize_t n = write(feed->fd, feed->queue.data, feed->queue.size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            feed_end(feed);
            return;
        }
        buffer_consume(&feed->queue, (size_t)n);
        tell(feed, (size_t)n, false);
    }
    if (feed->queue.size == 0 && feed->last)
        feed_end(feed);
    else
        (void)loop_watch_start(feed->outbox->loop, &feed->watch, feed->fd,
                               feed->queue.size > 0 ? LOOP_WRITABLE : 0);
}

static void on_writable(void *context, unsigned events) {
    (void)events; /* a reader that went away is seen by the write */
    write_queue(context);
}

void feed_start(struct feed *feed, struct outbox *outbox, uint32_t rank, int fd, bool terminal) {
    *feed = (struct feed){.outbox = outbox, .rank = rank, .fd = fd, .terminal = terminal};
    feed->watch = (struct loop_watch){.callback = on_writable, .context = feed};
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void feed_add(struct feed *feed, const void *bytes, size_t size, bool last) {
    if (feed->outbox == NULL || feed->fd < 0) return;
    buffer_append(&feed->queue, bytes, size);
    if (last && feed->terminal) { /* behind a line that has no end the first one only ends it */
        bool whole = size == 0 || ((const char *)bytes)[size - 1] == '\n';
        buffer_text(&feed->queue, whole ? "\004" : "\004\004");
        last = false;
    }
    feed->last = feed->last || last;
    if (feed->queue.failed)
        feed_end(feed); /* out of memory: an end is better than a gap */
    else
        write_queue(feed);
}
