/* The pool belongs to the process that filled it, whose runs may be driven by several threads: a child that
 * this process forks inherits the list, and begins with an empty one. An agent of another build of the command
 * is not used: a rebuilt command means new agents. */
#include "engine/local.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/str.h"

static const int END_LIMIT_MS = 2000;

static struct {
    pthread_mutex_t lock;
    struct engine_handle agents[POOL_MAX];
    size_t n;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock_pool(void) {
    (void)pthread_mutex_lock(&pool.lock);
}

static void unlock_pool(void) {
    (void)pthread_mutex_unlock(&pool.lock);
}

static void begin_child(void) {
    (void)pthread_mutex_init(&pool.lock, NULL);
    pool.n = 0; /* their descriptors were closed as this process was forked */
}

static void watch_forks(void) {
    (void)pthread_atfork(lock_pool, unlock_pool, begin_child);
}

/* -- what is inherited */

static void add_file(const char *name, const char *const *wanted, size_t n, struct buffer *out) {
    enum { INHERITED_MAX = 2 << 20 };
    char path[64];
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/thread-self/%s", name);
    if (file_read(path, INHERITED_MAX, &text, NULL) < 0 || text.size == 0) return;
    for (const char *line = text.data, *end = line + text.size, *next; line < end; line = next) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next != NULL ? next + 1 : end;
        bool takes = n == 0;
        for (size_t i = 0; i < n && !takes; i++)
            takes = str_prefix(line, wanted[i], NULL);
        if (takes) buffer_append(out, line, (size_t)(next - line));
    }
}

uint64_t pool_inheritance(void) {
    static const char *const of_status[] = {"Umask:",      "Uid:",    "Gid:",          "Groups:",      "Cap",
                                            "NoNewPrivs:", "Seccomp", "Cpus_allowed:", "Mems_allowed:"};
    static const char *const links[] = {"root", "ns/mnt", "ns/net", "ns/ipc", "ns/uts", "ns/user"};
    CLEANUP(buffer_done) struct buffer text = {0};
    add_file("status", of_status, ARRAY_SIZE(of_status), &text);
    add_file("limits", NULL, 0, &text);
    add_file("cgroup", NULL, 0, &text);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        char path[64], target[256];
        (void)snprintf(path, sizeof path, "/proc/thread-self/%s", links[i]);
        ssize_t size = readlink(path, target, sizeof target);
        buffer_append(&text, target, size > 0 ? (size_t)size : 0);
    }
    /* Variables that agents go by themselves; those of workers come with each run. */
    for (char *const *entry = environ; *entry != NULL; entry++)
        if (str_prefix(*entry, "TRAINYARD_", NULL) || strstr(*entry, "VISIBLE_DEVICES=") != NULL)
            buffer_text(&text, *entry);
    buffer_printf(&text, "%d %d", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    return text.failed ? 0 : str_hash(text.data, text.size);
}

/* -- who rests */

static bool take_one(struct engine_handle *handle) {
    lock_pool();
    bool any = pool.n > 0;
    if (any) *handle = pool.agents[--pool.n];
    unlock_pool();
    return any;
}

static bool has_ended(const struct engine_handle *handle) {
    return kernel_await(handle->pidfd, handle->pid, 0);
}

/* An agent ends when its channel closes, which the program may have done between two runs. */
void pool_drop(struct engine_handle *handle) {
    descriptors_close(&handle->channel_fd);
    (void)kernel_reap(descriptors_intact(handle->pidfd) ? handle->pidfd : -1, handle->pid, END_LIMIT_MS, NULL);
    descriptors_close(&handle->pidfd);
    *handle = (struct engine_handle){.channel_fd = -1, .pid = -1, .pidfd = -1};
}

/* The executable is compared by its file: a command that was built anew at the same path has another one. */
bool pool_take(const char *command, uint64_t inheritance, struct engine_handle *handle) {
    while (take_one(handle)) {
        char link[32];
        struct stat running, wanted;
        (void)snprintf(link, sizeof link, "/proc/%d/exe", handle->pid);
        bool intact = descriptors_intact(handle->channel_fd) && descriptors_intact(handle->pidfd);
        bool same = intact && handle->inheritance == inheritance && !has_ended(handle) &&
                    stat(link, &running) == 0 && stat(command, &wanted) == 0 && file_is_same(&running, &wanted);
        if (same) return true;
        pool_drop(handle);
    }
    return false;
}

void pool_put(struct engine_handle *handle) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    bool rests = !has_ended(handle);
    lock_pool();
    rests = rests && pool.n < POOL_MAX;
    if (rests) pool.agents[pool.n++] = *handle;
    unlock_pool();
    if (rests)
        *handle = (struct engine_handle){.channel_fd = -1, .pid = -1, .pidfd = -1};
    else
        pool_drop(handle);
}

void pool_close(void) {
    struct engine_handle agents[POOL_MAX];
    size_t n = 0;
    while (n < POOL_MAX && take_one(&agents[n])) /* all are told at once, then each is waited for */
        descriptors_close(&agents[n++].channel_fd);
    while (n > 0)
        pool_drop(&agents[--n]);
}
