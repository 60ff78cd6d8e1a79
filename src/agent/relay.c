/* Output of a worker on its way to its log and to the controller. */
#include "agent/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"

/* A pipe holds 64 KiB by default; one whose reads come half full gets PIPE_SIZE, so that its writer waits less often. */
enum { READ_SIZE = 256 << 10, PIPE_HALF_FULL = 32 << 10, PIPE_SIZE = 512 << 10 };

static char read_buffer[READ_SIZE]; /* of all relays: nothing stays in it */

/* The run's directory itself is never made again: once it was removed, nothing of the run may seem to be there. */
static int open_log(const struct relay *relay) {
    CLEANUP(buffer_done) struct buffer path = {0};
    buffer_printf(&path, "%s/logs", relay->config.run_path);
    if (path.failed) return -1;
    size_t directory = path.size;
    buffer_printf(&path, "/rank-%u.log", relay->config.rank);
    if (path.failed) return -1;
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path.data, flags, 0644);
    if (fd >= 0 || errno != ENOENT) return fd;
    path.data[directory] = '\0';
    if (mkdir(path.data, 0755) < 0 && errno != EEXIST) return -1;
    path.data[directory] = '/';
    return open(path.data, flags, 0644);
}

/* A log that cannot be written does not stop the worker: it is told once, and what is missing is counted. */
static void note_unlogged(struct relay *relay, size_t size, int code) {
    if (relay->unlogged == 0)
        outbox_log(relay->outbox, LOG_LEVEL_WARNING, "cannot write %s/logs/rank-%u.log: %s (the run goes on)",
                   relay->config.run_path, relay->config.rank, strerror(code));
    relay->unlogged += size;
}

static void write_log(struct relay *relay, const char *bytes, size_t size) {
    if (relay->config.run_path[0] == '\0') return;
    if (relay->log_fd < 0) relay->log_fd = open_log(relay);
    int code = relay->log_fd < 0 ? -errno : file_write_all(relay->log_fd, bytes, size);
    bool removed = code == -ENOENT; /* with the run's directory: the run's end tells that */
    if (code < 0 && !removed) note_unlogged(relay, size, -code);
}

/* The buffer holds up to twice what is wanted, so that small writes seldom move it. */
static void keep_tail(struct relay *relay, const char *bytes, size_t size) {
    if (size >= RELAY_TAIL_BYTES) {
        buffer_clear(&relay->tail);
        bytes += size - RELAY_TAIL_BYTES;
        size = RELAY_TAIL_BYTES;
    } else if (relay->tail.size + size > 2 * RELAY_TAIL_BYTES) {
        buffer_consume(&relay->tail, relay->tail.size - RELAY_TAIL_BYTES);
    }
    buffer_append(&relay->tail, bytes, size);
}

static struct buffer *begin_output(const struct relay_stream *stream, size_t *offset) {
    const struct relay *relay = stream->relay;
    if (relay->config.quiet || relay->outbox->channel == NULL) return NULL;
    struct buffer *out = channel_out(relay->outbox->channel);
    *offset = frame_output_begin(out, relay->config.rank, stream->number);
    return out;
}

static void take_bytes(struct relay_stream *stream, const char *bytes, size_t size) {
    write_log(stream->relay, bytes, size);
    keep_tail(stream->relay, bytes, size);
    size_t offset;
    struct buffer *out = begin_output(stream, &offset);
    if (out == NULL) return;
    lines_add(&stream->lines, bytes, size, out);
    frame_output_end(out, offset);
}

static void end_stream(struct relay_stream *stream) {
    struct relay *relay = stream->relay;
    size_t offset;
    struct buffer *out = begin_output(stream, &offset);
    if (out != NULL) {
        lines_end(&stream->lines, out);
        frame_output_end(out, offset);
    }
    outbox_close(relay->outbox, &stream->source);
    lines_done(&stream->lines);
    if (!relay_has_ended(relay)) return;
    if (relay->unlogged > 0)
        outbox_log(relay->outbox, LOG_LEVEL_WARNING, "%llu bytes of the output of rank %u are not in its log",
                   (unsigned long long)relay->unlogged, relay->config.rank);
    relay->ended(relay->context);
}

static void enlarge(struct relay_stream *stream) {
    stream->enlarged = true;
    (void)fcntl(stream->source.fd, F_SETPIPE_SZ, PIPE_SIZE); /* the limit of this user may refuse it */
}

/* One read; false when there is nothing more to take now. */
static bool read_once(struct relay_stream *stream) {
    struct source *source = &stream->source;
    bool finishing = stream->relay->finishing;
    if (source->fd < 0 || outbox_must_rest(stream->relay->outbox, source)) return false;
    ssize_t n = read(source->fd, read_buffer, finishing && stream->left < READ_SIZE ? stream->left : READ_SIZE);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && errno == EAGAIN && !finishing) return false;
    if (n > 0) take_bytes(stream, read_buffer, (size_t)n);
    if (n > 0 && finishing) stream->left -= (size_t)n;
    if (n <= 0 || (finishing && stream->left == 0)) {
        end_stream(stream);
        return false;
    }
    if (n >= PIPE_HALF_FULL && !stream->enlarged) enlarge(stream);
    return true;
}

/* One read a turn, so that no rank keeps the others waiting. */
static void on_readable(void *context, unsigned events) {
    (void)events;
    (void)read_once(context);
}

int relay_start(struct relay *relay, struct outbox *outbox, const struct relay_config *config, const int fds[2],
                void (*ended)(void *context), void *context, ty_error *err) {
    *relay =
        (struct relay){.outbox = outbox, .config = *config, .ended = ended, .context = context, .log_fd = -1};
    int code = 0;
    for (int i = 0; i < 2; i++) {
        struct relay_stream *stream = &relay->streams[i];
        *stream = (struct relay_stream){.relay = relay, .number = i + 1, .source.fd = -1};
        lines_init(&stream->lines, config->prefix ? (long)config->rank : -1, config->escape);
        if (code == 0) code = outbox_watch(outbox, &stream->source, fds[i], on_readable, stream);
        if (code < 0) (void)close(fds[i]);
    }
    if (code == 0) return 0;
    relay_done(relay);
    return ty_fail(err, TY_ESTART, "cannot read the output of rank %u: %s", config->rank, strerror(-code));
}

void relay_done(struct relay *relay) {
    if (relay->outbox == NULL) return;
    for (int i = 0; i < 2; i++) {
        outbox_close(relay->outbox, &relay->streams[i].source);
        lines_done(&relay->streams[i].lines);
    }
    if (relay->log_fd >= 0) (void)close(relay->log_fd);
    buffer_done(&relay->tail);
    buffer_done(&relay->note);
    relay->outbox = NULL;
}

bool relay_has_ended(const struct relay *relay) {
    return relay->streams[0].source.fd < 0 && relay->streams[1].source.fd < 0;
}

/* Each pipe at most once over: a writer that is faster than we are must not hold us. */
void relay_take(struct relay *relay) {
    for (int i = 0; i < 2; i++)
        for (int reads = 1 + PIPE_SIZE / READ_SIZE; reads > 0 && read_once(&relay->streams[i]); reads--) {
        }
}

static void begin_end(struct relay_stream *stream) {
    int size = 0;
    if (stream->source.fd >= 0 && ioctl(stream->source.fd, FIONREAD, &size) < 0) size = 0;
    stream->left = (size_t)size;
}

/* What is more than a pipe holds by default is read a piece a turn. */
void relay_finish(struct relay *relay) {
    if (relay->finishing) return;
    relay->finishing = true;
    for (int i = 0; i < 2; i++)
        begin_end(&relay->streams[i]);
    relay_take(relay);
}

/* The start of the last lines: after a cut at the front, the first whole one. */
static const char *tail_start(const char *bytes, size_t size, bool cut) {
    const char *end = bytes + size;
    const char *at = end;
    int lines = 0;
    if (at > bytes && at[-1] == '\n') at--;
    for (; at > bytes; at--)
        if (at[-1] == '\n' && ++lines == RELAY_TAIL_LINES) return at;
    if (!cut) return bytes;
    const char *lf = memchr(bytes, '\n', size);
    return lf != NULL && lf + 1 < end ? lf + 1 : bytes;
}

void relay_note(struct relay *relay, const char *text, size_t size) {
    if (relay->tail.size > 0 && relay->tail.data[relay->tail.size - 1] != '\n') {
        write_log(relay, "\n", 1);
        keep_tail(relay, "\n", 1);
    }
    write_log(relay, text, size);
    buffer_clear(&relay->note);
    buffer_append(&relay->note, text, size);
}

static void add_escaped(const char *bytes, size_t size, struct buffer *out) {
    struct lines lines;
    lines_init(&lines, -1, true);
    lines_add(&lines, bytes, size, out);
    lines_end(&lines, out);
    lines_done(&lines);
}

void relay_tail(const struct relay *relay, struct buffer *out) {
    size_t size = relay->tail.size;
    bool cut = size >= RELAY_TAIL_BYTES;
    if (cut) size = RELAY_TAIL_BYTES;
    if (size > 0) {
        const char *bytes = relay->tail.data + relay->tail.size - size;
        const char *start = tail_start(bytes, size, cut);
        add_escaped(start, (size_t)(bytes + size - start), out);
    }
    if (relay->note.size > 0) add_escaped(relay->note.data, relay->note.size, out);
}
