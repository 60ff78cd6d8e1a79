/* The channel of channel.h: two byte queues, one watch.
 *
 * Reading takes what one large read gives and hands on every whole frame of it; the room for the next read
 * grows while the peer fills it and is given back when traffic is small, so that an idle channel costs its
 * struct. Writing sends the whole queue with one call. When writing fails nothing more is sent, and the
 * receiving side is shut down, so that what the peer said before its end is still handed on and the end itself
 * is seen in every case. */
#include "wire/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/descriptors.h"

enum { READ_MIN = 4 << 10, READ_MAX = 256 << 10, KEEP = 16 << 10 };

/* Signs of life. All times by clock_boot, which goes on while the machine is suspended. */
struct pulse {
    enum channel_role role;
    struct loop_timer timer;
    nanoseconds due;      /* when the timer is to fire; 0: the channel has no pulse */
    nanoseconds sent;     /* our last beat */
    nanoseconds heard_at; /* when anything came */
    int64_t peer_sent;    /* the peer's clock in its last beat */
    nanoseconds proven;   /* the controller counts us as alive at this time */
    bool suspected;       /* which was told */
};

struct channel {
    struct loop *loop;
    struct transport transport;
    struct channel_events events;
    void *context;
    struct loop_watch watch;
    unsigned watched; /* what the watch waits for */
    struct loop_timer resume;
    struct pulse pulse;

    struct buffer in;
    size_t taken;      /* bytes at the front of `in` that were handed on */
    size_t read_size;  /* room made for the next read */
    size_t last_taken; /* bytes that came in the last turn in which there were any */
    struct buffer out;
    size_t written; /* bytes at the front of `out` that the socket took */
    size_t held;    /* where in `out` begins what may not be written yet; SIZE_MAX: nowhere */

    int code;         /* why it ended; 0 for the peer's end */
    char *reason;     /* in words: few of ten thousand channels ever need the room that a ty_error has */
    bool greeted;     /* a hello has passed, either way */
    bool paused;      /* by its owner */
    bool blocked;     /* the socket takes nothing more */
    bool was_full;    /* `drained` is owed */
    bool ended;       /* nothing more comes from the socket */
    bool unwritable;  /* nothing more goes to it */
    bool told;        /* `closed` was called */
    bool dispatching; /* callbacks run: memory must stay */
    bool destroyed;   /* during one of them */
};

static size_t queued(const struct channel *channel) {
    return channel->out.size - channel->written;
}

static size_t writable(const struct channel *channel) {
    size_t end = channel->out.size < channel->held ? channel->out.size : channel->held;
    return end - channel->written;
}

/* Waits for what the state asks for, and for nothing else: a paused channel does not wake up. The watch itself
 * stays, so that it takes no memory to go on. */
static void watch(struct channel *channel) {
    unsigned events = 0;
    if (!channel->paused && !channel->ended) events |= LOOP_READABLE;
    if (!channel->unwritable && writable(channel) > 0) events |= LOOP_WRITABLE;
    if (events == channel->watched) return;
    channel->watched = events;
    if (loop_watch_start(channel->loop, &channel->watch, channel->transport.fd, events) < 0)
        channel->watched = 0;
}

static void free_channel(struct channel *channel) {
    buffer_done(&channel->in);
    buffer_done(&channel->out);
    free(channel->reason);
    free(channel);
}

/* Notes why it ends; the first reason stands. The code that stands. */
__attribute__((format(printf, 3, 4))) static int fail(struct channel *channel, int code, const char *format,
                                                      ...) {
    if (channel->code != 0) return channel->code;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&channel->reason, format, arguments) < 0) channel->reason = NULL;
    va_end(arguments);
    return channel->code = code;
}

/* Callbacks run between enter and leave: the owner may destroy the channel in them, and its memory stays until
 * the outermost leave, which is false when the channel is gone. */
static bool enter(struct channel *channel) {
    bool outermost = !channel->dispatching;
    channel->dispatching = true;
    return outermost;
}

static bool leave(struct channel *channel, bool outermost) {
    if (outermost) channel->dispatching = false;
    if (!channel->destroyed) return true;
    if (outermost) free_channel(channel);
    return false;
}

static bool is_greeting(const Wire__Message *message) {
    return message->body_case == WIRE__MESSAGE__BODY_HELLO || message->body_case == WIRE__MESSAGE__BODY_JOIN;
}

/* A message is borrowed by the owner during the call and freed here, also where the owner destroys the channel
 * in it: the memory of the channel itself stays for as long. */
static int handle_message(struct channel *channel, const struct frame *frame) {
    ty_error err = {0};
    Wire__Message *message = frame_unpack(frame, &err);
    if (message == NULL) return fail(channel, err.code, "%s", err.message);
    int result = 0;
    if (!channel->greeted && !is_greeting(message))
        result = fail(channel, TY_EPROTOCOL, "the peer did not begin with a hello");
    channel->greeted = true;
    if (result == 0) channel->events.message(channel->context, message);
    wire__message__free_unpacked(message, NULL);
    return result;
}

/* What the controller has heard was sent at `heard`; what lies in the future is no proof. */
static int handle_beat(struct channel *channel, const struct frame *frame) {
    struct pulse *pulse = &channel->pulse;
    struct frame_beat beat;
    if (!channel->greeted || frame_beat_read(frame, &beat) < 0)
        return fail(channel, TY_EPROTOCOL, "a beat came from a peer that has not begun");
    nanoseconds now = clock_boot();
    pulse->peer_sent = beat.sent;
    if (beat.heard <= 0 || beat.heard > now || beat.credit < 0 || beat.credit > now) return 0;
    nanoseconds proven = beat.heard + beat.credit;
    if (proven > now) proven = now;
    if (proven > pulse->proven) pulse->proven = proven;
    return 0;
}

/* Hands on one frame: 1, 0 when none is whole, or negative with the reason set. */
static int handle_one(struct channel *channel) {
    if (channel->in.size == channel->taken) return 0;
    struct frame frame;
    ty_error err = {0};
    const uint8_t *bytes = (const uint8_t *)channel->in.data + channel->taken;
    size_t limit = channel->greeted ? FRAME_MAX : FRAME_MAX_HELLO;
    int64_t size = frame_next(bytes, channel->in.size - channel->taken, limit, &frame, &err);
    if (size < 0) return fail(channel, err.code, "%s", err.message);
    if (size == 0) return 0;
    channel->taken += (size_t)size;
    uint32_t rank;
    int stream, result = 0;
    size_t output_size;
    if (frame.kind == FRAME_MESSAGE)
        result = handle_message(channel, &frame);
    else if (frame.kind == FRAME_BEAT)
        result = handle_beat(channel, &frame);
    else if (!channel->greeted || frame_output(&frame, &rank, &stream, &bytes, &output_size) < 0)
        result = fail(channel, TY_EPROTOCOL, "a frame of output from the peer cannot be understood");
    else if (channel->events.output != NULL)
        channel->events.output(channel->context, rank, stream, bytes, output_size);
    return result < 0 ? result : 1;
}

/* Hands on all whole frames, then the end when it has come. The owner may pause or destroy the channel
 * meanwhile. */
static void dispatch(struct channel *channel) {
    bool outermost = enter(channel);
    int result = 1;
    while (result > 0 && !channel->paused && !channel->destroyed)
        result = handle_one(channel);
    if (!channel->destroyed) {
        /* What was handed on is dropped from the queue once per read, not once per frame. */
        if (channel->taken > 0) buffer_consume(&channel->in, channel->taken);
        channel->taken = 0;
        if (channel->in.size == 0 && channel->last_taken <= KEEP) buffer_done(&channel->in);
    }
    bool over = result < 0 || (result == 0 && channel->ended);
    if (over && !channel->destroyed && !channel->told) {
        channel->ended = true;
        if (channel->in.size > channel->taken)
            (void)fail(channel, TY_EPROTOCOL, "the peer ended in the middle of a message");
        channel->unwritable = channel->told = true;
        loop_timer_stop(channel->loop, &channel->pulse.timer);
        watch(channel);
        ty_error reason = {.code = channel->code};
        (void)snprintf(reason.message, sizeof reason.message, "%s",
                       channel->reason != NULL ? channel->reason : "");
        channel->events.closed(channel->context, &reason);
    }
    if (leave(channel, outermost)) watch(channel);
}

static void take_in(struct channel *channel);

/* In a turn of its own: who ends a pause does not expect to be called from within. */
static void resume(void *context) {
    struct channel *channel = context;
    if (channel->paused || channel->told) return;
    if (transport_pending(&channel->transport)) take_in(channel);
    dispatch(channel);
}

/* How many bytes came. */
static size_t read_once(struct channel *channel) {
    char *to = buffer_reserve(&channel->in, channel->read_size);
    if (to == NULL) {
        (void)fail(channel, -ENOMEM, "out of memory");
        channel->ended = true;
        return 0;
    }
    ssize_t n = transport_read(&channel->transport, to, channel->read_size);
    if (n > 0) {
        size_t size = (size_t)n;
        channel->in.size += size;
        /* Doubles while the peer fills the room, shrinks when it uses little of it. */
        if (size == channel->read_size && channel->read_size < READ_MAX)
            channel->read_size *= 2;
        else if (size < channel->read_size / 4 && channel->read_size > READ_MIN)
            channel->read_size /= 2;
        channel->pulse.heard_at = clock_boot();
        return size;
    }
    if (n == -EAGAIN || n == -EINTR) return 0;
    if (n < 0) (void)fail(channel, TY_ECOMM, "cannot read from the peer: %s", strerror((int)-n));
    channel->ended = true;
    return 0;
}

/* Bytes that TLS has taken from the socket already make no descriptor readable: they are asked for, though not
 * without end in one turn. Of a record that is not whole the rest will. */
static void take_in(struct channel *channel) {
    size_t taken = 0, n;
    do
        taken += n = read_once(channel);
    while (n > 0 && taken < READ_MAX && transport_pending(&channel->transport));
    if (taken > 0) channel->last_taken = taken;
    if (n > 0 && transport_pending(&channel->transport))
        (void)loop_timer_start(channel->loop, &channel->resume, 0);
}

static void drop_out(struct channel *channel) {
    buffer_done(&channel->out);
    channel->written = 0;
    channel->held = SIZE_MAX;
}

/* No `closed` from within, which callers do not expect: the receiving side is shut down, its end is read in a
 * later turn, and behind what the peer has said before. */
static void stop_writing(struct channel *channel, int code) {
    channel->unwritable = true;
    drop_out(channel);
    (void)fail(channel, TY_ECOMM, "cannot write to the peer: %s", strerror(code));
    (void)shutdown(channel->transport.fd, SHUT_RD);
}

/* TLS may have sealed more than the socket took: it is given the same bytes again, from `written` on, which is
 * why nothing is put in front of them (beat) and nothing of them is dropped. */
static void send_queue(struct channel *channel) {
    if (channel->unwritable)
        drop_out(channel);
    else if (channel->out.failed)
        stop_writing(channel, ENOMEM);
    if (writable(channel) == 0) return;
    if (channel_full(channel)) channel->was_full = true;
    while (writable(channel) > 0 && !channel->blocked) {
        const char *from = channel->out.data + channel->written;
        ssize_t n = transport_write(&channel->transport, from, writable(channel));
        if (n >= 0)
            channel->written += (size_t)n;
        else if (n == -EAGAIN)
            channel->blocked = true;
        else if (n != -EINTR)
            stop_writing(channel, (int)-n);
    }
    /* The queue's front is dropped when that is cheap: all of it, or more than what would have to move. */
    if (channel->written == 0 || channel->written < queued(channel)) return;
    bool small = channel->written <= KEEP;
    buffer_consume(&channel->out, channel->written);
    if (channel->held != SIZE_MAX) channel->held -= channel->written;
    channel->written = 0;
    if (channel->out.size == 0 && small) buffer_done(&channel->out);
}

/* Sends, and tells the owner when there is room again. False when the owner then destroyed the channel. */
static bool flush(struct channel *channel) {
    send_queue(channel);
    bool outermost = enter(channel);
    if (channel->was_full && queued(channel) <= CHANNEL_LOW && !channel->told) {
        channel->was_full = false;
        if (channel->events.drained != NULL) channel->events.drained(channel->context);
    }
    if (!leave(channel, outermost)) return false;
    watch(channel);
    return true;
}

void channel_flush(struct channel *channel) {
    (void)flush(channel);
}

static void on_ready(void *context, unsigned events) {
    struct channel *channel = context;
    if ((events & LOOP_WRITABLE) != 0) {
        channel->blocked = false;
        if (!flush(channel)) return;
    }
    if ((events & LOOP_READABLE) == 0 || channel->paused || channel->ended) return;
    take_in(channel);
    dispatch(channel);
}

/* What a transport has read already makes no descriptor readable: it is handed on in the loop's next turn, not
 * from within, where the caller does not have the channel yet. */
int channel_create_over(struct loop *loop, struct transport *transport, const struct channel_events *events,
                        void *context, struct channel **channel, ty_error *err) {
    int flags = fcntl(transport->fd, F_GETFL);
    if (flags < 0 || fcntl(transport->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return ty_fail(err, -errno, "cannot use descriptor %d as a channel: %s", transport->fd,
                       strerror(errno));
    struct channel *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct channel){.loop = loop,
                             .transport = *transport,
                             .events = *events,
                             .context = context,
                             .read_size = READ_MIN,
                             .held = SIZE_MAX};
    made->watch = (struct loop_watch){.callback = on_ready, .context = made};
    made->resume = (struct loop_timer){.callback = resume, .context = made};
    watch(made);
    if (made->watched == 0) {
        free_channel(made);
        return ty_fail(err, -EBADF, "cannot watch descriptor %d as a channel", transport->fd);
    }
    if (transport_pending(&made->transport)) (void)loop_timer_start(loop, &made->resume, 0);
    descriptors_withhold(made->transport.fd);
    *transport = TRANSPORT_PLAIN(-1);
    *channel = made;
    return 0;
}

int channel_create(struct loop *loop, int fd, const struct channel_events *events, void *context,
                   struct channel **channel, ty_error *err) {
    struct transport plain = TRANSPORT_PLAIN(fd);
    return channel_create_over(loop, &plain, events, context, channel, err);
}

struct transport channel_release_transport(struct channel *channel) {
    struct transport transport = channel->transport;
    size_t unread = channel->in.size - channel->taken;
    /* Without memory for it the transport fails at the next read: the stream would go on in its middle. */
    if (unread > 0) buffer_append(&transport.unread, channel->in.data + channel->taken, unread);
    loop_watch_stop(channel->loop, &channel->watch);
    loop_timer_stop(channel->loop, &channel->resume);
    loop_timer_stop(channel->loop, &channel->pulse.timer);
    channel->destroyed = true;
    if (!channel->dispatching) free_channel(channel);
    return transport;
}

int channel_release(struct channel *channel) {
    struct transport transport = channel_release_transport(channel);
    buffer_done(&transport.unread);
    return transport.fd;
}

void channel_destroy(struct channel *channel) {
    if (channel == NULL) return;
    struct transport transport = channel_release_transport(channel);
    transport_close(&transport);
}

void channel_adopt(struct channel *channel, const struct channel_events *events, void *context) {
    channel->events = *events;
    channel->context = context;
}

/* -- signs of life */

/* A beat of one that judges gives credit for a pause: what the peer sent meanwhile lies unread in this kernel,
 * and must not cost the peer its lease. */
static void beat(struct channel *channel, nanoseconds now) {
    struct pulse *pulse = &channel->pulse;
    if (channel->unwritable) return;
    if (writable(channel) > 0) { /* a beat would stand behind what is not taken */
        (void)flush(channel);
        return;
    }
    struct frame_beat beat = {.sent = now, .heard = pulse->peer_sent};
    if (channel->paused && pulse->role == CHANNEL_JUDGES) beat.credit = now - pulse->heard_at;
    CLEANUP(buffer_done) struct buffer frame = {0};
    frame_beat(&beat, &frame);
    if (!frame.failed && buffer_reserve(&channel->out, frame.size) != NULL) {
        /* In front of what is held: that may take long. */
        size_t at = channel->held < channel->out.size ? channel->held : channel->out.size;
        memmove(channel->out.data + at + frame.size, channel->out.data + at, channel->out.size - at);
        memcpy(channel->out.data + at, frame.data, frame.size);
        channel->out.size += frame.size;
        if (channel->held != SIZE_MAX) channel->held += frame.size;
    }
    pulse->sent = now;
    (void)flush(channel);
}

static void fail_silent(struct channel *channel, const char *why, nanoseconds since) {
    (void)fail(channel, TY_ECOMM, "%s for %lld s", why, (long long)(since / NS_PER_S));
    channel->ended = channel->unwritable = true;
    /* A peer that lives after all is to see a fault, and no orderly end (agent/adrift.h). */
    const struct linger at_once = {.l_onoff = 1};
    (void)setsockopt(channel->transport.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    dispatch(channel);
}

/* True while the peer counts as alive. A silence in which this process did not look is none of the peer's. */
static bool judge(struct channel *channel, nanoseconds now) {
    struct pulse *pulse = &channel->pulse;
    nanoseconds late = now - pulse->due;
    if (late > CHANNEL_BEAT) pulse->heard_at += late;
    nanoseconds silence = channel->paused ? 0 : now - pulse->heard_at;
    bool suspected = silence > CHANNEL_SUSPECT;
    if (silence > CHANNEL_DEAD) {
        fail_silent(channel, "nothing was heard of it", silence);
        return false;
    }
    if (suspected == pulse->suspected || channel->events.silent == NULL) return true;
    pulse->suspected = suspected;
    bool outermost = enter(channel);
    channel->events.silent(channel->context, suspected ? silence : 0);
    return leave(channel, outermost);
}

static void schedule_beat(struct channel *channel, nanoseconds now) {
    channel->pulse.due = now + CHANNEL_BEAT;
    (void)loop_timer_start(channel->loop, &channel->pulse.timer, CHANNEL_BEAT);
}

/* The one that judges looks at the peer, the leased one at itself: its lease is renewed by a beat of the
 * controller's, or when the controller's kernel has taken all that it sent. */
static void on_beat(void *context) {
    struct channel *channel = context;
    nanoseconds now = clock_boot();
    struct pulse *pulse = &channel->pulse;
    if (channel->told) return;
    if (pulse->role == CHANNEL_JUDGES) {
        if (!judge(channel, now)) return;
    } else {
        bool taken = queued(channel) == 0 && transport_acknowledged(&channel->transport);
        if (taken && pulse->sent > pulse->proven) pulse->proven = pulse->sent;
        if (now - pulse->proven > CHANNEL_LEASE) {
            fail_silent(channel, "the controller has not heard of this node", now - pulse->proven);
            return;
        }
    }
    schedule_beat(channel, now);
    beat(channel, now);
}

void channel_keep_alive(struct channel *channel, enum channel_role role) {
    nanoseconds now = clock_boot();
    channel->greeted = true;
    channel->pulse = (struct pulse){.role = role,
                                    .timer = {.callback = on_beat, .context = channel},
                                    .sent = now,
                                    .heard_at = now,
                                    .proven = now};
    schedule_beat(channel, now);
    beat(channel, now);
}

nanoseconds channel_heard_at(const struct channel *channel) {
    return channel->pulse.heard_at;
}

nanoseconds channel_proven_at(const struct channel *channel) {
    return channel->pulse.proven;
}

/* Whatever cannot be said ends the channel: the peer would miss it and never know. */
int channel_send(struct channel *channel, const Wire__Message *message) {
    if (channel->unwritable) return TY_ECOMM;
    int result = frame_message(message, &channel->out);
    if (result == 0 && is_greeting(message)) channel->greeted = true;
    if (result == -EMSGSIZE)
        (void)fail(channel, TY_ECOMM,
                   "cannot write to the peer: a message of %zu bytes is over the limit of %d",
                   wire__message__get_packed_size(message), FRAME_MAX);
    if (result < 0) stop_writing(channel, -result);
    return result;
}

void channel_fail(struct channel *channel, int code) {
    if (!channel->unwritable) stop_writing(channel, -code);
}

struct buffer *channel_out(struct channel *channel) {
    return &channel->out;
}

bool channel_full(const struct channel *channel) {
    return queued(channel) > CHANNEL_HIGH;
}

bool channel_empty(const struct channel *channel) {
    return queued(channel) == 0;
}

void channel_hold(struct channel *channel) {
    if (channel->held == SIZE_MAX) channel->held = channel->out.size;
}

void channel_let_go(struct channel *channel) {
    channel->held = SIZE_MAX;
}

void channel_pause(struct channel *channel, bool paused) {
    if (channel->paused == paused || channel->told) return;
    channel->paused = paused;
    bool waiting =
        channel->in.size > channel->taken || channel->ended || transport_pending(&channel->transport);
    if (!paused && waiting) (void)loop_timer_start(channel->loop, &channel->resume, 0);
    watch(channel);
}
