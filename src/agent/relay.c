/* Output of a worker on its way to its log and to the controller: read once a turn, made into lines (lines.c),
 * and appended to the channel. A stream rests while the controller or the logs do not keep up. What a worker
 * says on its channel goes another way (worker_channel.c). */
#include "agent/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"

/* A pipe holds 64 KiB by default; one whose reads come half full gets PIPE_SIZE, so that its writer waits less
 * often. */
enum { READ_SIZE = 256 << 10, PIPE_HALF_FULL = 32 << 10, PIPE_SIZE = 512 << 10 };

/* Between two drawings of a bar that are told. */
#define LIVE_INTERVAL (100 * NS_PER_MS)

static char read_buffer[READ_SIZE]; /* of all relays: nothing stays in it */

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
    if (relay->config.quiet || (relay->config.hidden & (unsigned)stream->number) != 0 ||
        relay->outbox->channel == NULL)
        return NULL;
    struct buffer *out = channel_out(relay->outbox->channel);
    *offset = frame_output_begin(out, relay->config.rank, stream->number);
    return out;
}

static bool is_live(const struct relay_stream *stream) {
    const struct relay *relay = stream->relay;
    return (relay->config.live >> (stream->number - 1) & 1) != 0 && !relay->config.quiet &&
           relay->outbox->channel != NULL;
}

static void tell_live(void *context) {
    struct relay_stream *stream = context;
    struct relay *relay = stream->relay;
    CLEANUP(buffer_done) struct buffer text = {0};
    lines_live(&stream->lines, &text);
    if (text.failed || (text.size == 0 && !stream->live_shown)) return;
    Wire__Live live = WIRE__LIVE__INIT;
    live.rank = relay->config.rank;
    live.stream = (uint32_t)stream->number;
    live.text = (ProtobufCBinaryData){text.size, (uint8_t *)text.data};
    outbox_send(relay->outbox, &WIRE_MESSAGE(LIVE, live, &live));
    stream->live_shown = text.size > 0;
    stream->live_told = loop_now(relay->outbox->loop);
}

/* The log and the last lines get the bytes as they are, and the user whole lines. Also where nobody is shown
 * them: the last lines are for the failure. */
static void take_bytes(struct relay_stream *stream, const char *bytes, size_t size) {
    struct relay *relay = stream->relay;
    struct lines *lines = &stream->lines;
    log_add(relay->log, bytes, size);
    keep_tail(relay, bytes, size);
    if (relay->config.pty != NULL) pty_show(relay->config.pty, bytes, size);
    size_t offset;
    struct buffer *out = begin_output(stream, &offset);
    if (out == NULL) return;
    lines_add(lines, bytes, size, out);
    frame_output_end(out, offset);
    if (!is_live(stream)) return;
    /* A bar is told as often as LIVE_INTERVAL allows; what is merely not ended yet once it has stood so long:
     * it is perhaps a question, and nearly always just the first half of a line. */
    struct loop *loop = relay->outbox->loop;
    if (lines->settled && stream->live_shown) tell_live(stream);
    lines->settled = false;
    bool often = lines->redrawn || lines->terminal; /* a terminal shows what is typed there */
    if (lines->partial.size == 0 && !stream->live_shown) {
        loop_timer_stop(loop, &stream->live_timer);
    } else if (!often || stream->live_timer.state == NULL) {
        nanoseconds since = often ? loop_now(loop) - stream->live_told : 0;
        (void)loop_timer_start(loop, &stream->live_timer, since < LIVE_INTERVAL ? LIVE_INTERVAL - since : 0);
    }
}

static void end_stream(struct relay_stream *stream) {
    struct relay *relay = stream->relay;
    size_t offset;
    struct buffer *out = begin_output(stream, &offset);
    if (out != NULL) {
        lines_end(&stream->lines, out);
        frame_output_end(out, offset);
    }
    loop_timer_stop(relay->outbox->loop, &stream->live_timer);
    if (is_live(stream) && stream->live_shown) tell_live(stream);
    outbox_close(relay->outbox, &stream->source);
    lines_done(&stream->lines);
    if (relay_has_ended(relay)) relay->ended(relay->context);
}

/* Reads once; false when there is nothing more to take now. */
static bool read_once(struct relay_stream *stream) {
    struct source *source = &stream->source;
    struct relay *relay = stream->relay;
    bool finishing = relay->finishing;
    if (source->fd < 0) return false;
    if (finishing && stream->left == 0) {
        end_stream(stream);
        return false;
    }
    /* A stream that rests for the controller is not changed: it is woken, and then waits here. */
    if (!relay->taking_last && outbox_must_rest(relay->outbox, source)) return false;
    if (!relay->taking_last && relay->log != NULL && logs_full(relay->config.logs)) {
        outbox_expect(relay->outbox, source, 0);
        stream->held = true;
        return false;
    }
    ssize_t n = read(source->fd, read_buffer, finishing && stream->left < READ_SIZE ? stream->left : READ_SIZE);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && errno == EAGAIN && !finishing) return false;
    if (n > 0) {
        relay->bytes += (uint64_t)n;
        take_bytes(stream, read_buffer, (size_t)n);
        if (finishing) stream->left -= (size_t)n;
    }
    if (n <= 0 || (finishing && stream->left == 0)) {
        end_stream(stream);
        return false;
    }
    if (n >= PIPE_HALF_FULL && !stream->enlarged) {
        stream->enlarged = true;
        (void)fcntl(source->fd, F_SETPIPE_SZ, PIPE_SIZE); /* the limit of this user may refuse it */
    }
    return true;
}

/* One read a turn, so that no rank keeps the others waiting. */
static void on_readable(void *context, unsigned events) {
    struct relay_stream *stream = context;
    (void)events;
    /* The end of a terminal that strangers have open too comes as no event. */
    while (read_once(stream) && stream->relay->finishing && stream->relay->config.pty != NULL) {
    }
}

int relay_start(struct relay *relay, struct outbox *outbox, const struct relay_config *config, const int fds[2],
                void (*ended)(void *context), void *context, ty_error *err) {
    *relay = (struct relay){.outbox = outbox, .config = *config, .ended = ended, .context = context};
    if (config->run_path[0] != '\0') relay->log = log_open(config->logs, config->run_path, (long)config->rank);
    int code = 0;
    for (int i = 0; i < 2; i++) {
        struct relay_stream *stream = &relay->streams[i];
        *stream = (struct relay_stream){.relay = relay, .number = i + 1, .source.fd = -1};
        stream->live_timer = (struct loop_timer){.callback = tell_live, .context = stream};
        lines_init(&stream->lines, config->prefix ? (long)config->rank : -1, config->escape);
        stream->lines.pass = config->pass;
        stream->lines.terminal = config->pty != NULL;
        stream->lines.colour = config->colour;
        if (fds[i] < 0) continue;
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
        loop_timer_stop(relay->outbox->loop, &relay->streams[i].live_timer);
        outbox_close(relay->outbox, &relay->streams[i].source);
        lines_done(&relay->streams[i].lines);
    }
    log_close(TAKE(relay->log));
    buffer_done(&relay->tail);
    buffer_done(&relay->note);
    relay->outbox = NULL;
}

bool relay_has_ended(const struct relay *relay) {
    return relay->streams[0].source.fd < 0 && relay->streams[1].source.fd < 0;
}

void relay_go_on(struct relay *relay) {
    for (int i = 0; i < 2; i++) {
        struct relay_stream *stream = &relay->streams[i];
        if (!stream->held) continue;
        stream->held = false;
        if (stream->source.fd >= 0 && !stream->source.resting)
            outbox_expect(relay->outbox, &stream->source, LOOP_READABLE);
    }
}

/* Each pipe at most once over: a writer that is faster than we are must not hold us. */
void relay_take(struct relay *relay) {
    /* A terminal gives a page at a time, and holds 64 KiB at most. */
    int most = relay->config.pty != NULL ? 64 : 1 + PIPE_SIZE / READ_SIZE;
    for (int i = 0; i < 2; i++)
        for (int reads = most; reads > 0 && read_once(&relay->streams[i]); reads--) {
        }
}

void relay_take_last(struct relay *relay) {
    relay->taking_last = true;
    relay_take(relay);
    relay->taking_last = false;
}

/* What is more than a pipe holds by default is read a piece a turn. */
void relay_finish(struct relay *relay) {
    if (relay->finishing) return;
    relay->finishing = true;
    for (int i = 0; i < 2; i++) {
        struct relay_stream *stream = &relay->streams[i];
        int size = 0;
        if (stream->source.fd >= 0 && ioctl(stream->source.fd, FIONREAD, &size) < 0) size = 0;
        if (stream->relay->config.pty != NULL) size = READ_SIZE; /* what its kernel buffers hold is not told */
        stream->left = (size_t)size;
    }
    relay_take(relay);
}

/* The last lines of output, `*size` bytes: after a cut at the front, from the first whole one. */
static const char *last_lines(const struct relay *relay, size_t *size) {
    bool cut = relay->tail.size >= RELAY_TAIL_BYTES;
    *size = cut ? RELAY_TAIL_BYTES : relay->tail.size;
    if (*size == 0) return "";
    const char *end = relay->tail.data + relay->tail.size;
    const char *bytes = end - *size, *start = bytes;
    const char *at = end[-1] == '\n' ? end - 1 : end;
    int lines = 0;
    while (at > bytes && !(at[-1] == '\n' && ++lines == RELAY_TAIL_LINES))
        at--;
    if (at > bytes) {
        start = at;
    } else if (cut) {
        const char *lf = memchr(bytes, '\n', *size);
        if (lf != NULL && lf + 1 < end) start = lf + 1;
    }
    *size = (size_t)(end - start);
    return start;
}

void relay_note(struct relay *relay, const char *text, size_t size) {
    if (relay->tail.size > 0 && relay->tail.data[relay->tail.size - 1] != '\n') {
        log_add(relay->log, "\n", 1);
        keep_tail(relay, "\n", 1);
    }
    log_add(relay->log, text, size);
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

void relay_recent(const struct relay *relay, struct buffer *out) {
    size_t size;
    const char *lines = last_lines(relay, &size);
    if (size > 0) buffer_append(out, lines, size);
}

bool relay_has_shown(const struct relay *relay, const char *text) {
    size_t size = strlen(text);
    while (size > 0 && text[size - 1] == '\n')
        size--;
    const char *line = text + size;
    while (line > text && line[-1] != '\n')
        line--;
    size -= (size_t)(line - text);
    return size > 0 && relay->tail.size >= size &&
           memmem(relay->tail.data, relay->tail.size, line, size) != NULL;
}

void relay_tail(const struct relay *relay, struct buffer *out) {
    size_t size;
    const char *lines = last_lines(relay, &size);
    if (size > 0) add_escaped(lines, size, out);
    if (relay->note.size > 0) add_escaped(relay->note.data, relay->note.size, out);
}
