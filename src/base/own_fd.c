/* A list under a lock that a fork takes, so that a child finds it whole. */
#include "base/own_fd.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

enum { MOST = 64 }; /* a run has five, and a process has few runs at a time; beyond that a child keeps them */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *owned[MOST];

static void before_fork(void) {
    (void)pthread_mutex_lock(&lock);
}

static void after_fork(void) {
    (void)pthread_mutex_unlock(&lock);
}

static void begin_child(void) {
    for (size_t i = 0; i < MOST; i++) {
        if (owned[i] == NULL) continue;
        (void)close(*owned[i]);
        *owned[i] = -1;
        owned[i] = NULL;
    }
    (void)pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, begin_child);
}

/* Puts `fd` in the place of `there`, NULL: a free one. */
static void replace(int *there, int *fd) {
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < MOST; i++) {
        if (owned[i] != there) continue;
        owned[i] = fd;
        break;
    }
    (void)pthread_mutex_unlock(&lock);
}

void own_fd_add(int *fd) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (*fd < 0) return;
    (void)pthread_once(&once, watch_forks);
    replace(NULL, fd);
}

void own_fd_close(int *fd) {
    if (*fd < 0) return;
    replace(fd, NULL);
    (void)close(*fd);
    *fd = -1;
}
