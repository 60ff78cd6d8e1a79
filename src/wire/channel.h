/* One end of the channel between the controller and an agent, on a loop: frames in, frames out, credits.
 *
 * The channel never blocks. What is sent is queued and written at the end of the loop's turn (channel_flush),
 * so that a batch costs one system call. Above CHANNEL_HIGH queued bytes the channel is `full`; its owner then
 * stops reading what it forwards until `drained` is called (back-pressure, no loss).
 *
 * The first message is a Hello, or between machines a Join: an end that has neither sent nor received one takes
 * nothing else, and at most FRAME_MAX_HELLO bytes. Any callback may destroy the channel.
 *
 * Between machines both ends say every second that they live (channel_keep_alive). The controller judges: a
 * peer is suspect after CHANNEL_SUSPECT of silence and dead after CHANNEL_DEAD; a silence of its own counts for
 * nothing. An agent holds a lease: it counts from when that was sent which the controller has last heard of it
 * (or which at least lies in the controller's kernel), so that it has run out before the controller can think
 * it dead, whichever way the network is cut; the agent then ends its workers by itself. What the peer ran is
 * gone CHANNEL_FENCED after it was last heard. */
#ifndef WIRE_CHANNEL_H
#define WIRE_CHANNEL_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "loop/loop.h"
#include "wire/frame.h"
#include "wire/trainyard.pb-c.h"

/* -- below a channel */

/* A stream of bytes over a socket, plain, or TLS (tls.h). It never blocks. */
struct tls;

struct transport {
    int fd;
    struct tls *tls;      /* NULL: plain */
    struct buffer unread; /* was read from the socket, and is to be read here first */
};

#define TRANSPORT_PLAIN(descriptor) ((struct transport){.fd = (descriptor)})

/* Bytes, 0 at the peer's end, or -errno: -EAGAIN when there is nothing yet, or no room. */
ssize_t transport_read(struct transport *transport, void *to, size_t size);
ssize_t transport_write(struct transport *transport, const void *from, size_t size);
/* There is more to read though the socket need not say so. */
bool transport_pending(const struct transport *transport);
/* The kernel of the peer has taken all that was written: of TCP only, else false. */
bool transport_acknowledged(const struct transport *transport);
/* Says goodbye to the peer, where that can be without waiting, and closes (descriptors_close). */
void transport_close(struct transport *transport);

/* -- a channel */

enum { CHANNEL_HIGH = 1 << 20, CHANNEL_LOW = 256 << 10 };
#define CHANNEL_BEAT (1 * NS_PER_S)
#define CHANNEL_SUSPECT (3 * NS_PER_S)
#define CHANNEL_LEASE (8 * NS_PER_S)
#define CHANNEL_DEAD (10 * NS_PER_S)
#define CHANNEL_FENCED (12 * NS_PER_S)

struct channel_events {
    void (*message)(void *context, const Wire__Message *message); /* borrowed during the call */
    void (*output)(void *context, uint32_t rank, int stream, const uint8_t *bytes,
                   size_t size);    /* NULL: passed over */
    void (*drained)(void *context); /* may be NULL */
    void (*closed)(void *context,
                   const ty_error *reason); /* once: peer's end (code 0) or an error; may destroy it */
    void (*silent)(void *context,
                   nanoseconds silence); /* of one that judges: suspect; 0: heard again. May be NULL */
};

struct channel; /* opaque */

/* Takes over `fd` (a stream socket, made non-blocking). */
int channel_create(struct loop *loop, int fd, const struct channel_events *events, void *context,
                   struct channel **channel, ty_error *err);
/* The same over what a handshake has made of a socket; taken over, and left empty. */
int channel_create_over(struct loop *loop, struct transport *transport, const struct channel_events *events,
                        void *context, struct channel **channel, ty_error *err);
/* Closes its descriptor (descriptors_close); queued bytes are lost unless flushed. NULL is fine. */
void channel_destroy(struct channel *channel);

/* Destroys the channel and hands its descriptor, still open, to the caller: for an end that has flushed what it
 * had to say and whose peer says nothing before it is spoken to again. */
int channel_release(struct channel *channel);
/* The same between machines, where the peer may have spoken: what was read and not handed on stays in the
 * transport. */
struct transport channel_release_transport(struct channel *channel);

/* From now on somebody else hears of it. */
void channel_adopt(struct channel *channel, const struct channel_events *events, void *context);

enum channel_role { CHANNEL_JUDGES, CHANNEL_LEASED };
/* The Join has passed, over this channel or one that the transport had before. */
void channel_keep_alive(struct channel *channel, enum channel_role role);
/* When the peer was last heard, by clock_boot. */
nanoseconds channel_heard_at(const struct channel *channel);
/* Of one that is leased, by the same clock: the controller counts it as alive at this time. */
nanoseconds channel_proven_at(const struct channel *channel);

/* Queues. 0, TY_ECOMM once the peer is gone, -EMSGSIZE over FRAME_MAX, -ENOMEM: the channel has then failed, so
 * that a caller need not look: the owner hears of it by `closed`. */
int channel_send(struct channel *channel, const Wire__Message *message);
/* The owner cannot say what it must: nothing more is sent, and `closed` comes in a later turn with the reason,
 * this negative errno. */
void channel_fail(struct channel *channel, int code);
/* To append output frames to directly; an offset into it holds until the next flush. */
struct buffer *channel_out(struct channel *channel);
bool channel_full(const struct channel *channel);
bool channel_empty(const struct channel *channel); /* everything queued has been written */
void channel_flush(struct channel *channel); /* writes what the socket takes; the rest follows by itself */
/* What is queued from here on is not written until channel_let_go. */
void channel_hold(struct channel *channel);
void channel_let_go(struct channel *channel);
void channel_pause(struct channel *channel, bool paused); /* nothing is handed on meanwhile */

/* -- before there is a channel */

/* The message with which a run begins on an agent: Start, alone in its send, with the lease's descriptor beside
 * it. It is read without a channel, byte for byte, so that an agent that waits for one holds nothing of a run,
 * and takes nothing that follows. */

/* Sends without waiting. `lease_fd` may be -1. TY_ECOMM when the agent is gone. */
int start_send(int fd, const Wire__Start *start, int lease_fd, ty_error *err);

/* Waits for the next Start: 1 with the message, to be freed with wire__message__free_unpacked(m, NULL), and the
 * lease (close-on-exec, the caller's; -1 without); 0 at the end of the peer; TY_EPROTOCOL, TY_ECOMM. Other
 * messages, the last ones of the run before, are passed over. */
int start_receive(int fd, Wire__Message **message, int *lease_fd, ty_error *err);

#endif
