/* The pool belongs to the process that filled it: a child that this process forks inherits the list, and begins
 * with an empty one. An agent of another build of the command is not used: a rebuilt command means new
 * agents. */
#include "engine/local.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/kernel.h"

static const int END_LIMIT_MS = 2000;

static struct {
    struct engine_handle agents[POOL_MAX];
    size_t n;
    pid_t owner;
} pool;

void pool_forget(void) {
    if (pool.owner == getpid()) return;
    pool.n = 0; /* their descriptors were closed as this process was forked */
    pool.owner = getpid();
}

static bool has_ended(const struct engine_handle *handle, int limit_ms) {
    return kernel_await(handle->pidfd, handle->pid, limit_ms);
}

/* An agent ends when its channel closes, which the program may have done between two runs. */
void pool_drop(struct engine_handle *handle) {
    descriptors_close(&handle->channel_fd);
    (void)kernel_reap(descriptors_intact(handle->pidfd) ? handle->pidfd : -1, handle->pid, END_LIMIT_MS, NULL);
    descriptors_close(&handle->pidfd);
    *handle = (struct engine_handle){.channel_fd = -1, .pid = -1, .pidfd = -1};
}

bool pool_take(const char *command, struct engine_handle *handle) {
    pool_forget();
    while (pool.n > 0) {
        *handle = pool.agents[--pool.n];
        char link[32];
        struct stat running, wanted;
        (void)snprintf(link, sizeof link, "/proc/%d/exe", handle->pid);
        bool intact = descriptors_intact(handle->channel_fd) && descriptors_intact(handle->pidfd);
        bool same = intact && !has_ended(handle, 0) && stat(link, &running) == 0 &&
                    stat(command, &wanted) == 0 && running.st_dev == wanted.st_dev &&
                    running.st_ino == wanted.st_ino;
        if (same) return true;
        pool_drop(handle);
    }
    return false;
}

void pool_put(struct engine_handle *handle) {
    pool_forget();
    if (pool.n == POOL_MAX || has_ended(handle, 0)) {
        pool_drop(handle);
        return;
    }
    pool.agents[pool.n++] = *handle;
    *handle = (struct engine_handle){.channel_fd = -1, .pid = -1, .pidfd = -1};
}

void pool_close(void) {
    pool_forget();
    for (size_t i = 0; i < pool.n; i++) /* all at once, then each is waited for */
        descriptors_close(&pool.agents[i].channel_fd);
    while (pool.n > 0)
        pool_drop(&pool.agents[--pool.n]);
}
