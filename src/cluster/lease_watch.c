/* Waiting for a lease to end without polling. The kernel tells of a lease file's last close, also when its
 * holder was killed, as the end of writing to it; a polite end is told as its removal. What is free then is
 * read anew by whoever waited. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cluster/lease.h"

/* A user has 128 inotify instances; without one, a look each second is better than a run that fails. */
static int readable_each_second(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct itimerspec second = {.it_value.tv_sec = 1, .it_interval.tv_sec = 1};
    if (fd >= 0) (void)timerfd_settime(fd, 0, &second, NULL);
    return fd;
}

/* Each lease by itself, so that nobody else's files in the same directory wake the run. Its removal is a change
 * of its links. */
static int watch_files(const struct lease_holder *holders, size_t n) {
    CLEANUP_FD int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    uint32_t events = IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVE_SELF | IN_DONT_FOLLOW;
    if (fd < 0) return readable_each_second();
    for (size_t i = 0; i < n; i++) {
        CLEANUP_FREE char *path = str_format("%s/%s", lease_directory_path(), holders[i].file);
        bool watched = path != NULL && inotify_add_watch(fd, path, events) >= 0;
        if (!watched && (path == NULL || errno != ENOENT)) return readable_each_second();
    }
    return TAKE_FD(fd);
}

int lease_watch(const struct lease_holder *holders, size_t n, ty_error *err) {
    CLEANUP_FD int directory = lease_directory_open(err);
    if (directory < 0) return directory;
    CLEANUP_FD int fd = watch_files(holders, n);
    /* A holder that went before the watch began is seen now. This also catches the kernel's order at the last
     * close, which tells of the end of writing just before it drops the lock. */
    for (size_t i = 0; fd >= 0 && i < n; i++) {
        CLEANUP_FD int file = lease_file_open(directory, holders[i].file);
        if (file >= 0 && lease_file_held(file) && !lease_changed(file, &holders[i])) continue;
        (void)close(fd);
        fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        break;
    }
    if (fd < 0) return ty_fail(err, -errno, "cannot watch %s: %s", lease_directory_path(), strerror(errno));
    return TAKE_FD(fd);
}
