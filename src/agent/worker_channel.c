/* Channels of workers: bytes in, lines to worker_request.c, answers out.
 *
 * A channel is freed only by those who call into it from outside (a watch, an answer of the controller, the
 * agent), after they are done with it: channel_close just lets go of the descriptor. */
#include "agent/worker_channel.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/worker_request.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "worker/link.h"

enum { CHANNEL_READ_SIZE = 64 << 10, OUT_MAX = 64 << 10, SEND_MAX = 1 << 20 };
enum { SLOTS_FIRST = 64, SLOTS_MAX = 1 << 16 }; /* powers of two */

/* Of all channels: what is not understood yet is copied out of it. */
static char read_buffer[CHANNEL_READ_SIZE + 1];

static bool is_open(const struct worker_channel *channel) {
    return channel->source.fd >= 0;
}

/* The socket has not taken all answers. */
static bool has_more(const struct worker_channel *channel) {
    return channel->out.size > 0 || channel->value != NULL;
}

/* Writable while answers wait (and nothing is read then: who does not read answers gets no more); readable
 * otherwise, but for a channel that is stalled. */
static void watch(struct worker_channel *channel) {
    struct source *source = &channel->source;
    if (!is_open(channel) || source->resting) return;
    unsigned events = has_more(channel) ? LOOP_WRITABLE : channel->stalled ? 0 : LOOP_READABLE;
    outbox_expect(channel->speaker->all->outbox, source, events);
}

static void drop_descriptors(struct worker_channel *channel) {
    while (channel->n_fds > 0)
        (void)close(channel->fds[--channel->n_fds]);
}

static void channel_close(struct worker_channel *channel) {
    outbox_close(channel->speaker->all->outbox, &channel->source);
    shared_release(TAKE(channel->value));
    drop_descriptors(channel);
}

/* The warning is all that tells the user why the worker hears nothing any more. */
void channel_cut(struct worker_channel *channel, int error) {
    outbox_log(channel->speaker->all->outbox, LOG_LEVEL_WARNING, "rank %u: a channel of it is closed: %s",
               channel->speaker->rank, error == ENOMEM ? "out of memory" : strerror(error));
    channel_close(channel);
}

/* The other end is closed, or its process ended. */
static bool is_end(int error) {
    return error == EPIPE || error == ECONNRESET;
}

static void free_channel(struct worker_channel *channel) {
    channel_close(channel);
    channel->speaker->all->slots[channel->number % SLOTS_MAX] = NULL;
    buffer_done(&channel->in);
    buffer_done(&channel->out);
    buffer_done(&channel->asked);
    free(channel);
}

/* Frees a channel if it was closed, and tells the end of the worker's last one. */
static void release(struct worker_channel *channel) {
    struct speaker *speaker = channel->speaker;
    if (is_open(channel)) return;
    worker_request_abandon(channel);
    worker_request_forget(channel);
    struct worker_channel **link = &speaker->channels;
    while (*link != channel)
        link = &(*link)->next;
    *link = channel->next;
    free_channel(channel);
    if (--speaker->n_channels == 0) speaker->ended(speaker->context);
}

/* Answers that nobody reads any more. What the worker said before may still lie in the socket, and is read. */
static void drop_answers(struct worker_channel *channel) {
    buffer_done(&channel->out);
    shared_release(TAKE(channel->value));
}

/* What the socket takes, but no more than SEND_MAX at a time: others want their answers too. */
static void send_out(struct worker_channel *channel) {
    size_t sent = 0;
    while (has_more(channel) && sent < SEND_MAX && is_open(channel)) {
        struct iovec parts[] = {{channel->out.data, channel->out.size}, {NULL, 0}};
        if (channel->value != NULL)
            parts[1] = (struct iovec){channel->value->bytes + channel->value_sent,
                                      channel->value->size - channel->value_sent};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
        ssize_t n = sendmsg(channel->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            /* The socket took so many bytes: of `out` first, then of the value. */
            size_t size = (size_t)n;
            size_t of_out = size < channel->out.size ? size : channel->out.size;
            buffer_consume(&channel->out, of_out);
            if (channel->out.size == 0) buffer_done(&channel->out);
            channel->value_sent += size - of_out;
            if (channel->out.size == 0 && channel->value != NULL && channel->value_sent == channel->value->size)
                shared_release(TAKE(channel->value));
            sent += (size_t)n;
        } else if (errno == EAGAIN) {
            break;
        } else if (is_end(errno)) {
            drop_answers(channel);
        } else if (errno != EINTR) {
            channel_cut(channel, errno);
        }
    }
    if (channel->speaker->finishing) drop_answers(channel);
}

bool channel_is_answering(const struct worker_channel *channel) {
    return channel->waiting != WAITING_NOTHING || channel->value != NULL;
}

void channel_answer(struct worker_channel *channel, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size >= (int)sizeof text) size = sizeof text - 1;
    for (int i = 0; i < size; i++)
        if (text[i] == '\n') text[i] = ' ';
    buffer_append(&channel->out, text, size > 0 ? (size_t)size : 0);
    buffer_char(&channel->out, '\n');
}

/* Takes one line and its value from the front; 0 when it must wait. */
static size_t take_line(struct worker_channel *channel, char *bytes, size_t size) {
    char *end = memchr(bytes, '\n', size);
    size_t length = (size_t)((end != NULL ? end : bytes + size) - bytes);
    if (channel->skipping) {
        channel->skipping = end == NULL;
        return end != NULL ? length + 1 : size;
    }
    if (length > WORKER_LINE_MAX) {
        channel->stalled = channel_is_answering(channel);
        if (channel->stalled) return 0;
        channel_answer(channel, "error a line is longer than %d bytes", WORKER_LINE_MAX);
        channel->skipping = end == NULL;
        return end != NULL ? length + 1 : size;
    }
    if (end == NULL) return 0;
    *end = '\0';
    long value = worker_request_handle(channel, bytes, length, end + 1, size - length - 1);
    *end = '\n';
    return value < 0 ? 0 : length + 1 + (size_t)value;
}

/* Understands what it can, while who asks reads the answers; returns how many bytes that were. At the end of
 * the worker there may be nobody who reads them, and what it said is taken all the same. */
static size_t understand(struct worker_channel *channel, char *bytes, size_t size) {
    size_t at = 0, most = channel->speaker->taking ? SEND_MAX : OUT_MAX;
    channel->stalled = false;
    while (at < size && is_open(channel) && channel->out.size < most) {
        size_t taken = channel->skip_bytes < size - at ? channel->skip_bytes : size - at;
        channel->skip_bytes -= taken;
        if (taken == 0) taken = take_line(channel, bytes + at, size - at);
        if (taken == 0) break;
        /* Descriptors belong to the lines that they came with: what none of these took is closed, and never
         * another line's. */
        channel->fds_within -= taken < channel->fds_within ? taken : channel->fds_within;
        if (channel->fds_within == 0) drop_descriptors(channel);
        at += taken;
    }
    return at;
}

/* Bytes that have just come, or none: then those that were left. */
static void take_bytes(struct worker_channel *channel, char *bytes, size_t size) {
    bool early;
    do {
        if (channel->in.size == 0) {
            size_t taken = understand(channel, bytes, size);
            buffer_append(&channel->in, bytes + taken, size - taken);
        } else {
            buffer_append(&channel->in, bytes, size);
            size_t taken = understand(channel, channel->in.data, channel->in.size);
            buffer_consume(&channel->in, taken);
        }
        size = 0;
        if (is_open(channel) && (channel->in.failed || channel->out.failed)) channel_cut(channel, ENOMEM);
        if (channel->in.size == 0) buffer_done(&channel->in);
        /* Lines were left because there were answers enough: they go on as soon as the socket has taken those.
         */
        early = channel->out.size >= OUT_MAX;
        send_out(channel);
    } while (early && channel->in.size > 0 && is_open(channel) && !has_more(channel));
}

static ssize_t receive(struct worker_channel *channel, size_t most) {
    struct iovec bytes = {.iov_base = read_buffer,
                          .iov_len = most < CHANNEL_READ_SIZE ? most : CHANNEL_READ_SIZE};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * CHANNEL_FDS)];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (channel->speaker->finishing && channel->left < bytes.iov_len) bytes.iov_len = channel->left;
    ssize_t n = recvmsg(channel->source.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 || message.msg_controllen == 0) return n;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n_fds; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (channel->n_fds < CHANNEL_FDS)
                channel->fds[channel->n_fds++] = fd;
            else
                (void)close(fd);
        }
    }
    channel->fds_within = channel->in.size + (size_t)n;
    return n;
}

static bool may_read(struct worker_channel *channel) {
    if (!is_open(channel) || channel->stalled) return false;
    return channel->speaker->taking ||
           (!has_more(channel) && !outbox_must_rest(channel->speaker->all->outbox, &channel->source));
}

/* One read; returns how many bytes it gave, 0 when there is nothing more to take now. At its end a channel is
 * closed. */
static size_t read_once(struct worker_channel *channel, size_t most) {
    ssize_t n;
    if (!may_read(channel)) return 0;
    do
        n = receive(channel, most);
    while (n < 0 && errno == EINTR);
    if (n > 0 && channel->speaker->finishing) channel->left -= (size_t)n;
    if (n < 0 && errno == EAGAIN && !channel->speaker->finishing) return 0;
    if (n < 0 && errno != EAGAIN && !is_end(errno)) channel_cut(channel, errno);
    if (n <= 0) {
        channel_close(channel);
        return 0;
    }
    take_bytes(channel, read_buffer, (size_t)n);
    return (size_t)n;
}

/* Nobody says anything more on it. */
static bool is_closed(const struct worker_channel *channel) {
    struct pollfd end = {.fd = channel->source.fd, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0;
}

/* Bytes that lie in its socket. */
static size_t count_bytes(const struct worker_channel *channel) {
    int size = 0;
    if (is_open(channel) && ioctl(channel->source.fd, FIONREAD, &size) < 0) size = 0;
    return (size_t)size;
}

static struct worker_channel *read_on(struct worker_channel *channel);

/* One read, behind all that children have said, who opened their channels later, and have ended: their parent
 * may speak of it. What it says only while they are looked at is left, as one may have ended meanwhile. A read
 * ends behind an open, so none of them is passed over. */
static size_t read_next(struct worker_channel *channel) {
    if (channel->next == NULL) return read_once(channel, CHANNEL_READ_SIZE);
    bool ends = channel->speaker->finishing || is_closed(channel);
    size_t size = count_bytes(channel);
    for (struct worker_channel *later = channel->next; later != NULL;)
        later = may_read(later) && is_closed(later) ? read_on(later) : later->next;
    return size > 0 || ends ? read_once(channel, size) : 0;
}

/* What lies in its socket now, and the end behind it. */
static void read_some(struct worker_channel *channel) {
    for (size_t left = count_bytes(channel) + 1, n; left > 0 && (n = read_next(channel)) > 0;)
        left -= n < left ? n : left;
}

/* The channel's worker is gone: what lies in the socket now is read on, whatever a stranger adds. */
static void begin_end(struct worker_channel *channel) {
    drop_answers(channel);
    channel->left = count_bytes(channel);
}

/* A channel whose worker is gone is closed once it is read, or cannot be read on. */
static void end_when_read(struct worker_channel *channel) {
    bool readable = may_read(channel) || channel->source.resting;
    if (is_open(channel) && (channel->left == 0 || !readable)) channel_close(channel);
}

/* Reads what there is now; returns the channel behind it, as it may be freed. */
static struct worker_channel *read_on(struct worker_channel *channel) {
    read_some(channel);
    if (channel->speaker->finishing) end_when_read(channel);
    watch(channel);
    struct worker_channel *next = channel->next; /* it may have opened the first one behind it */
    release(channel);
    return next;
}

static void on_ready(void *context, unsigned events) {
    struct worker_channel *channel = context;
    if ((events & LOOP_WRITABLE) != 0) {
        send_out(channel);
        if (!has_more(channel) && channel->in.size > 0) take_bytes(channel, read_buffer, 0);
    }
    if ((events & LOOP_READABLE) != 0) (void)read_next(channel);
    if (channel->speaker->finishing) end_when_read(channel);
    watch(channel);
    release(channel);
}

/* A free place in the table: its index, or negative. Looked for behind the last one that was given, so that a
 * place is used again as late as can be. */
static long find_slot(struct worker_channels *all) {
    for (size_t i = 0; i < all->n_slots; i++)
        if (all->slots[(all->opened + i) % all->n_slots] == NULL)
            return (long)((all->opened + i) % all->n_slots);
    if (all->n_slots == SLOTS_MAX) return -EMFILE;
    size_t found = all->n_slots;
    if (ARRAY_REACH(all->slots, all->n_slots, found > 0 ? found + 1 : SLOTS_FIRST) < 0) return -ENOMEM;
    return (long)found;
}

int channel_open(struct speaker *speaker, int fd) {
    struct worker_channels *all = speaker->all;
    CLEANUP_FREE struct worker_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL) return -ENOMEM;
    channel->speaker = speaker;
    long slot = find_slot(all);
    if (slot < 0) return (int)slot;
    int code = outbox_watch(all->outbox, &channel->source, fd, on_ready, channel);
    if (code < 0) return code;
    /* The place in the table, and behind it how many channels were opened before: an answer that comes late
     * finds no other channel in that place. */
    channel->number = (uint32_t)slot | ++all->opened << 16;
    all->slots[slot] = channel;
    if (speaker->finishing) begin_end(channel);
    struct worker_channel **end = &speaker->channels;
    while (*end != NULL)
        end = &(*end)->next;
    *end = TAKE(channel);
    speaker->n_channels++;
    return 0;
}

int speaker_start(struct speaker *speaker, int fd, ty_error *err) {
    int code = channel_open(speaker, fd);
    if (code == 0) return 0;
    (void)close(fd);
    return ty_fail(err, TY_ESTART, "cannot make the channel of rank %u: %s", speaker->rank, strerror(-code));
}

void speaker_done(struct speaker *speaker) {
    while (speaker->channels != NULL) {
        struct worker_channel *channel = speaker->channels;
        speaker->channels = channel->next;
        free_channel(channel);
    }
    speaker->n_channels = 0;
}

void speaker_take(struct speaker *speaker) {
    speaker->taking = true;
    for (struct worker_channel *channel = speaker->channels; channel != NULL;)
        channel = read_on(channel);
    speaker->taking = false;
}

/* First what lies in every socket is measured, and then all are read: a channel may hand the end of another one
 * over, whose bytes count as well. */
void speaker_finish(struct speaker *speaker) {
    if (speaker->finishing) return;
    speaker->finishing = true;
    for (struct worker_channel *channel = speaker->channels; channel != NULL; channel = channel->next)
        begin_end(channel);
    for (struct worker_channel *channel = speaker->channels; channel != NULL; channel = read_on(channel))
        if (channel->in.size > 0) take_bytes(channel, read_buffer, 0);
}

static struct worker_channel *find_waiting(struct worker_channels *all, uint32_t number) {
    size_t slot = number % SLOTS_MAX;
    struct worker_channel *channel = slot < all->n_slots ? all->slots[slot] : NULL;
    return channel != NULL && channel->number == number && channel->waiting != WAITING_NOTHING ? channel : NULL;
}

/* The answer is in `out`; lines that waited for it are next, when the socket has taken it. */
static void go_on(struct worker_channel *channel) {
    if (channel->waiting != WAITING_LOOK)
        channel->speaker->heard = loop_now(channel->speaker->all->outbox->loop);
    channel->waiting = WAITING_NOTHING;
    if (channel->out.failed) channel_cut(channel, ENOMEM);
    send_out(channel);
    if (!has_more(channel)) take_bytes(channel, read_buffer, 0);
    watch(channel);
    release(channel);
}

/* A word and the text of the answer, one line. */
static void answer_text(struct worker_channel *channel, const char *word, const struct shared *text) {
    size_t at = channel->out.size;
    buffer_text(&channel->out, word);
    if (text != NULL && text->size > 0) {
        buffer_char(&channel->out, ' ');
        buffer_append(&channel->out, text->bytes, text->size);
    }
    for (; at < channel->out.size; at++)
        if (channel->out.data[at] == '\n') channel->out.data[at] = ' ';
    buffer_char(&channel->out, '\n');
}

static void answer_one(struct worker_channel *channel, Wire__Answer__Status status, struct shared *value) {
    bool bare = channel->waiting == WAITING_OK || channel->waiting == WAITING_LOOK;
    switch (status) {
    case WIRE__ANSWER__STATUS__OK:
        if (bare || value == NULL) {
            channel_answer(channel, bare ? "ok" : "value 0");
        } else {
            buffer_printf(&channel->out, "value %zu\n", value->size);
            channel->value = shared_hold(value);
            channel->value_sent = 0;
        }
        break;
    case WIRE__ANSWER__STATUS__NONE:
        channel_answer(channel, "none");
        break;
    case WIRE__ANSWER__STATUS__TIMEOUT:
        answer_text(channel, "timeout", value);
        break;
    case WIRE__ANSWER__STATUS__FAILED:
        if (value != NULL)
            answer_text(channel, "failed", value);
        else
            channel_answer(channel, "failed out of memory");
        break;
    default:
        answer_text(channel, "error", value);
        break;
    }
}

/* The value is held once for all the channels that it is for, and written to each straight from there. */
void worker_channels_answer(struct worker_channels *all, const Wire__Answer *answer) {
    /* A large answer comes in parts, each with the size of the whole, and no other comes between them. */
    struct arriving *part = &all->arriving;
    if (part->have == 0 && answer->size > 0) {
        part->over = answer->size > WORKER_ANSWERS_MAX - all->answer_bytes;
        if (!part->over) part->value = shared_create(answer->size, &all->answer_bytes);
    }
    if (part->value != NULL && answer->value.len > 0 && part->have + answer->value.len <= part->value->size)
        memcpy(part->value->bytes + part->have, answer->value.data, answer->value.len);
    part->have += answer->value.len;
    if (part->have < answer->size) return;
    struct arriving arriving = *part;
    *part = (struct arriving){0};
    for (size_t i = 0; i < answer->n_channels; i++) {
        struct worker_channel *channel = find_waiting(all, answer->channels[i]);
        if (channel == NULL || channel->waiting == WAITING_COMMIT) continue;
        channel_note_answer(channel, answer->status);
        if (arriving.value == NULL && arriving.have > 0) {
            /* A value for which the agent has no room is no answer; why is. */
            if (arriving.over)
                channel_answer(
                    channel,
                    "failed the answer of %zu bytes has no room: workers of this node have not read %zu bytes "
                    "of answers, and the limit is %d",
                    arriving.have, all->answer_bytes, WORKER_ANSWERS_MAX);
            else
                channel_answer(channel, "failed out of memory for an answer of %zu bytes", arriving.have);
        } else {
            answer_one(channel, answer->status, arriving.value);
        }
        go_on(channel);
    }
    shared_release(arriving.value);
}

void worker_channels_forget_part(struct worker_channels *all) {
    shared_release(all->arriving.value);
    all->arriving = (struct arriving){0};
}

void worker_channels_committed(struct worker_channels *all, const Wire__Committed *committed) {
    struct worker_channel *channel = find_waiting(all, committed->channel);
    if (channel == NULL || channel->waiting != WAITING_COMMIT || channel->commit != committed->number) return;
    if (committed->path[0] != '\0')
        channel_answer(channel, "ok %s", committed->path);
    else
        channel_answer(channel, "failed %s",
                       committed->error[0] != '\0' ? committed->error : "the checkpoint failed");
    go_on(channel);
}

void worker_channels_done(struct worker_channels *all) {
    worker_channels_forget_part(all);
    worker_channels_keep(all, false);
    free(all->slots);
}
