/* The first message to an agent, over a stream socket before there is a channel. A lease travels with the first
 * byte of its frame. What comes behind it goes over the channel (channel.h). */
#include "wire/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "wire/frame.h"

/* Room for one descriptor beside the bytes. */
union sent_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* A Start of which the socket takes a part only has failed: whoever sends it gives that agent up. */
int start_send(int fd, const Wire__Start *start, int lease_fd, ty_error *err) {
    CLEANUP(buffer_done) struct buffer bytes = {0};
    int result = frame_message(&WIRE_MESSAGE(START, start, (Wire__Start *)start), &bytes);
    if (result == 0) {
        ssize_t n =
            descriptors_send(fd, bytes.data, bytes.size, &lease_fd, lease_fd >= 0 ? 1 : 0, MSG_DONTWAIT);
        result = n < 0 ? (int)n : (size_t)n == bytes.size ? 0 : -EAGAIN;
    }
    return result == 0 ? 0 : ty_fail(err, TY_ECOMM, "cannot reach the agent: %s", strerror(-result));
}

/* 1, 0 at the end, or -errno. */
static int read_exactly(int fd, void *to, size_t size, int *lease_fd) {
    for (size_t have = 0; have < size;) {
        union sent_control control;
        struct iovec part = {.iov_base = (char *)to + have, .iov_len = size - have};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == ECONNRESET ? 0 : -errno;
        if (n == 0) return 0;
        /* The descriptor that came, in place of the one in `lease_fd`. */
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
            if (*lease_fd >= 0) (void)close(*lease_fd);
            memcpy(lease_fd, CMSG_DATA(header), sizeof *lease_fd);
        }
        have += (size_t)n;
    }
    return 1;
}

/* The next frame's bytes, complete; 1, 0 at the end, or negative. Header and payload are read apart, and not a
 * byte more: what follows is the channel's. */
static int read_frame(int fd, struct buffer *bytes, int *lease_fd, ty_error *err) {
    uint8_t header[FRAME_HEADER];
    int result = read_exactly(fd, header, sizeof header, lease_fd);
    if (result < 0) return ty_fail(err, TY_ECOMM, "cannot read from the controller: %s", strerror(-result));
    if (result == 0) return 0;
    struct frame frame;
    if (frame_next(header, sizeof header, FRAME_MAX, &frame, err) < 0) return TY_EPROTOCOL;
    size_t size =
        (size_t)header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16 | (size_t)header[3] << 24;
    buffer_append(bytes, header, sizeof header);
    char *to = buffer_reserve(bytes, size);
    if (to == NULL) return ty_fail_memory(err);
    result = read_exactly(fd, to, size, lease_fd);
    if (result <= 0) return result;
    bytes->size += size;
    return 1;
}

/* The descriptor may come from a channel, which made it non-blocking; here an agent that has no run waits. */
int start_receive(int fd, Wire__Message **message, int *lease_fd, ty_error *err) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return ty_fail(err, TY_ECOMM, "cannot use descriptor %d as a channel: %s", fd, strerror(errno));
    CLEANUP_FD int lease = -1;
    for (;;) {
        CLEANUP(buffer_done) struct buffer bytes = {0};
        ty_error refused = {0};
        int result = read_frame(fd, &bytes, &lease, err);
        if (result <= 0) return result;
        struct frame frame;
        bool whole = frame_next((const uint8_t *)bytes.data, bytes.size, FRAME_MAX, &frame, &refused) > 0;
        Wire__Message *found = whole && frame.kind == FRAME_MESSAGE ? frame_unpack(&frame, &refused) : NULL;
        if (refused.code != 0) return ty_fail(err, refused.code, "%s", refused.message);
        if (found == NULL || found->body_case != WIRE__MESSAGE__BODY_START) {
            if (found != NULL) wire__message__free_unpacked(found, NULL);
            continue;
        }
        *message = found;
        *lease_fd = TAKE_FD(lease);
        return 1;
    }
}
