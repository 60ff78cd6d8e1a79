/* Sending: one message with ancillary data. Withholding: a table by number, which a handler of forks goes
 * through in the child. No descriptor is opened here but those that are accepted. */
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/array.h"

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

void descriptors_raise_limit(struct rlimit *before) {
    (void)getrlimit(RLIMIT_NOFILE, before);
    const struct rlimit raised = {.rlim_cur = before->rlim_max, .rlim_max = before->rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &raised);
}

/* The first byte of the path is 0. */
socklen_t descriptors_name(struct sockaddr_un *address, const char *format, ...) {
    char *name = address->sun_path + 1;
    va_list args;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    va_start(args, format);
    (void)vsnprintf(name, sizeof address->sun_path - 1, format, args);
    va_end(args);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

int descriptors_accept(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) return fd;
        if (errno != EINTR && errno != ECONNABORTED) return -errno;
    }
}

/* -- withheld */

/* An open file of ours is known by the signal that would announce input on it, which none ever does, as nobody
 * asks for it. To look at that is no call on the file's storage, which may hang. What has no such signal
 * (O_PATH) is known by its inode. */
enum { MARK = SIGPWR };

struct file {
    enum { FILE_UNKNOWN, FILE_MARKED, FILE_NAMED, FILE_GONE } state; /* gone: it was the parent's */
    dev_t device;
    ino_t inode;
};

static struct {
    pthread_mutex_t lock;
    struct file *files; /* by number */
    size_t room;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_intact(const struct file *file, int fd) {
    struct stat status;
    switch (file->state) {
    case FILE_MARKED:
        return fcntl(fd, F_GETSIG) == MARK;
    case FILE_NAMED:
        return fstat(fd, &status) == 0 && status.st_dev == file->device && status.st_ino == file->inode;
    case FILE_GONE:
        return false;
    default:
        return true;
    }
}

static void lock_table(void) {
    (void)pthread_mutex_lock(&table.lock);
}

static void unlock_table(void) {
    (void)pthread_mutex_unlock(&table.lock);
}

static void begin_child(void) {
    for (size_t fd = 0; fd < table.room; fd++) {
        struct file *file = &table.files[fd];
        if (file->state == FILE_UNKNOWN) continue;
        if (is_intact(file, (int)fd)) (void)close((int)fd);
        file->state = FILE_GONE;
    }
    (void)pthread_mutex_init(&table.lock, NULL); /* held since before the fork, by a thread of the parent */
}

static void watch_forks(void) {
    (void)pthread_atfork(lock_table, unlock_table, begin_child);
}

void descriptors_withhold(int fd) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct file file = {.state = FILE_MARKED};
    struct stat status;
    if (fcntl(fd, F_SETSIG, MARK) < 0) {
        if (fstat(fd, &status) < 0) return;
        file = (struct file){FILE_NAMED, status.st_dev, status.st_ino};
    }
    (void)pthread_once(&once, watch_forks);
    lock_table();
    /* Without memory a child may hold the descriptor, and it counts as intact. */
    bool fits = (size_t)fd < table.room || ARRAY_REACH(table.files, table.room, 2 * (size_t)fd + 32) == 0;
    if (fits) table.files[fd] = file;
    unlock_table();
}

bool descriptors_intact(int fd) {
    struct file file = {.state = FILE_UNKNOWN};
    lock_table();
    if (fd >= 0 && (size_t)fd < table.room) file = table.files[fd];
    unlock_table();
    return is_intact(&file, fd);
}

/* Returns what the number stood for. */
static struct file forget(int fd) {
    struct file file = {.state = FILE_UNKNOWN};
    lock_table();
    if (fd >= 0 && (size_t)fd < table.room) {
        file = table.files[fd];
        table.files[fd].state = FILE_UNKNOWN;
    }
    unlock_table();
    return file;
}

void descriptors_close(int *fd) {
    struct file file = forget(*fd); /* first, since the number may be another's behind the close */
    if (*fd >= 0 && is_intact(&file, *fd)) (void)close(*fd);
    *fd = -1;
}

void descriptors_let_go(int fd) {
    (void)forget(fd);
}
