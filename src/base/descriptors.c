/* One message with ancillary data. */
#include "base/descriptors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

ssize_t descriptors_send(int socket, const void *bytes, size_t size, const int *fds, size_t n, int flags) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n * sizeof *fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof *fds)};
        memcpy(CMSG_DATA(header), fds, n * sizeof *fds);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}
