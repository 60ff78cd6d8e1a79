/* Where output of a run goes that may not hold it up: standard output and error, written as they take it. Pipes
 * and terminals are opened anew through /proc, so that setting O_NONBLOCK does not reach whoever shares the
 * descriptor; regular files never block, and what cannot be opened anew (sockets) is written as it is. */
#include "controller/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"

int sink_open_anew(int fd, int mode) {
    char path[32];
    struct stat status;
    if (fstat(fd, &status) < 0 || !(S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) return -1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, mode | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

/* Writes until all is taken, or would block. The number of bytes taken. */
static size_t write_some(struct sink *sink, const char *bytes, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(sink->fd, bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            sink->error = errno;
            return size;
        }
        done += (size_t)n;
    }
    return done;
}

static void write_queue(void *context, unsigned events) {
    (void)events;
    struct sink *sink = context;
    buffer_consume(&sink->queue, write_some(sink, sink->queue.data, sink->queue.size));
    if (sink->queue.size > 0) return;
    buffer_done(&sink->queue);
    loop_watch_stop(sink->loop, &sink->watch);
    bool was_full = sink->was_full;
    sink->was_full = false;
    if (was_full && sink->drained != NULL) sink->drained(sink->context);
}

void sink_open(struct sink *sink, struct loop *loop, int fd, void (*drained)(void *context), void *context) {
    *sink =
        (struct sink){.loop = loop, .fd = sink_open_anew(fd, O_WRONLY), .drained = drained, .context = context};
    sink->owned = sink->fd >= 0;
    descriptors_withhold(sink->fd);
    if (!sink->owned) sink->fd = fd;
    sink->watch = (struct loop_watch){.callback = write_queue, .context = sink};
}

void sink_write(struct sink *sink, const void *bytes, size_t size) {
    if (sink->error != 0) return;
    size_t done = sink->queue.size > 0 ? 0 : write_some(sink, bytes, size);
    if (done == size) return;
    bool idle = sink->queue.size == 0;
    buffer_append(&sink->queue, (const char *)bytes + done, size - done);
    if (sink_full(sink)) sink->was_full = true;
    if (idle) (void)loop_watch_start(sink->loop, &sink->watch, sink->fd, LOOP_WRITABLE);
}

bool sink_full(const struct sink *sink) {
    return sink->queue.size > SINK_HIGH;
}

void sink_discard(struct sink *sink) {
    if (sink->error == 0) sink->error = ECANCELED;
    loop_watch_stop(sink->loop, &sink->watch);
    buffer_done(&sink->queue);
    sink->was_full = false;
}

static void drain(struct sink *sink, nanoseconds limit) {
    nanoseconds end = clock_monotonic() + limit, left = limit;
    while (sink->queue.size > 0 && sink->error == 0 && (limit < 0 || left > 0)) {
        struct pollfd ready = {sink->fd, POLLOUT, 0};
        int n = poll(&ready, 1, limit < 0 ? -1 : (int)((left + NS_PER_MS - 1) / NS_PER_MS));
        if (n < 0 && errno != EINTR) break;
        if (n > 0) buffer_consume(&sink->queue, write_some(sink, sink->queue.data, sink->queue.size));
        left = end - clock_monotonic();
    }
}

bool sink_close(struct sink *sink, nanoseconds limit) {
    if (!descriptors_intact(sink->fd)) sink_discard(sink);
    drain(sink, limit);
    bool all = sink->queue.size == 0 || sink->error != 0;
    loop_watch_stop(sink->loop, &sink->watch);
    buffer_done(&sink->queue);
    if (sink->owned) descriptors_close(&sink->fd);
    sink->fd = -1;
    return all;
}

/* -- our own words */

static struct {
    pthread_mutex_t lock;
    atomic_bool hurried; /* also while a line waits under the lock */
    struct buffer waiting;
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Opened anew for each line, as standard error may be another file by now. Lines that were not taken stand in
 * front of the next one, whichever run or thread says it; above 1 MiB of them they are given up. */
void sink_say(const struct buffer *line) {
    static const nanoseconds PATIENCE = NS_PER_S;
    int anew = sink_open_anew(STDERR_FILENO, O_WRONLY);
    (void)pthread_mutex_lock(&said.lock);
    bool stuck = said.waiting.size > 0;
    if (said.waiting.size > SINK_HIGH) buffer_done(&said.waiting);
    if (!line->failed) buffer_append(&said.waiting, line->data, line->size);
    struct sink sink = {.fd = anew >= 0 ? anew : STDERR_FILENO, .queue = said.waiting};
    buffer_consume(&sink.queue, write_some(&sink, sink.queue.data, sink.queue.size));
    drain(&sink, !said.hurried ? -1 : stuck ? 0 : PATIENCE);
    if (sink.queue.size == 0 || sink.error != 0) buffer_done(&sink.queue);
    said.waiting = sink.queue;
    (void)pthread_mutex_unlock(&said.lock);
    if (anew >= 0) (void)close(anew);
}

void sink_hurry(bool hurried) {
    said.hurried = hurried;
    if (!hurried) sink_say(&(struct buffer){0});
}
