/* Sending: one message with ancillary data. Withholding: a table that a handler of forks goes through in the
 * child. */
#include "base/descriptors.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The file tells whether the number still stands for the same. */
struct withheld {
    int fd;
    dev_t device;
    ino_t inode;
};

static struct {
    pthread_mutex_t lock;
    struct withheld *items;
    size_t n, room;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_open(const struct withheld *item) {
    struct stat status;
    return fstat(item->fd, &status) == 0 && status.st_dev == item->device && status.st_ino == item->inode;
}

static void before_fork(void) {
    (void)pthread_mutex_lock(&table.lock);
}

static void after_fork(void) {
    (void)pthread_mutex_unlock(&table.lock);
}

static void begin_child(void) {
    for (size_t i = 0; i < table.n; i++)
        if (is_open(&table.items[i])) (void)close(table.items[i].fd);
    table.n = 0;
    (void)pthread_mutex_init(&table.lock, NULL);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, begin_child);
}

void descriptors_withhold(int fd) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat status;
    if (fstat(fd, &status) < 0) return;
    (void)pthread_once(&once, watch_forks);
    before_fork();
    if (table.n == table.room) {
        /* Descriptors that were closed make room. */
        size_t n = 0;
        for (size_t i = 0; i < table.n; i++)
            if (is_open(&table.items[i])) table.items[n++] = table.items[i];
        table.n = n;
    }
    if (table.n == table.room) {
        size_t room = 2 * table.room + 16;
        struct withheld *items = reallocarray(table.items, room, sizeof *items);
        if (items != NULL) {
            table.items = items;
            table.room = room;
        }
    }
    /* Without memory the table stays as it is, and a child may hold the descriptor. */
    if (table.n < table.room) table.items[table.n++] = (struct withheld){fd, status.st_dev, status.st_ino};
    after_fork();
}
