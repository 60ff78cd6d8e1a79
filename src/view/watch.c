/* News of a run that goes on. The directory is watched, as its log comes and goes; what is in `logs` makes no
 * news. Where the kernel can tell nothing (a file system of the network, no watch left) whoever waits looks
 * again after VIEW_LOOK_MS. What changed is not known here. */
#include "view/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"

int view_watch_open(const char *run_path) {
    CLEANUP_FD int directory = open(run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || !file_is_local(directory)) return -1;
    CLEANUP_FD int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    const uint32_t news = IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF;
    if (watch < 0 || inotify_add_watch(watch, run_path, news) < 0) return -1;
    return TAKE_FD(watch);
}

/* Of a descriptor below 0 poll knows nothing, and rests. What is read is thrown away: where to look is
 * known. */
void view_watch_wait(int watch) {
    const struct timespec moment = {.tv_nsec = 100 * NS_PER_MS};
    struct pollfd watched = {.fd = watch, .events = POLLIN};
    char events[4096];
    if (poll(&watched, 1, VIEW_LOOK_MS) > 0) (void)nanosleep(&moment, NULL);
    while (watch >= 0 && read(watch, events, sizeof events) > 0)
        continue;
}
