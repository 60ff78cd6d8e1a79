/* The queue and its thread. All that both know stands under one lock. */
#include "base/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/log.h"

struct queue {
    struct storage_job *first, **end;
};

struct storage {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started; /* there is a thread */
    bool closing; /* it is to end when nothing is left */
    bool left;    /* nobody waits for it any more: it frees all */
    bool held;    /* the storage does not answer: no job begins */
    int fd, run_lock;
    struct queue posted, finished;
    struct storage_job *current;
    nanoseconds since;              /* that it is under way, monotonic */
    const struct storage_job *told; /* of this one it is known that it is slow */
    const struct storage_job *hung; /* nobody waits for this one */
    unsigned n_open;                /* posted and not taken; the loop's */
    struct storage *next;           /* left behind */
};

static void put(struct queue *queue, struct storage_job *job) {
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
}

static struct storage_job *take(struct queue *queue) {
    struct storage_job *job = queue->first;
    if (job == NULL) return NULL;
    queue->first = job->next;
    if (queue->first == NULL) queue->end = &queue->first;
    return job;
}

static void release_all(struct queue *queue) {
    for (struct storage_job *job; (job = take(queue)) != NULL;)
        job->release(job);
}

static void destroy(struct storage *storage) {
    release_all(&storage->posted);
    release_all(&storage->finished);
    (void)close(storage->fd);
    cleanup_fd(&storage->run_lock);
    (void)pthread_cond_destroy(&storage->changed);
    (void)pthread_mutex_destroy(&storage->lock);
    free(storage);
}

/* Under the lock: what the storage is at, or would be if it were not held. */
static struct storage_job *first(const struct storage *storage) {
    return storage->current == NULL && storage->held ? storage->posted.first : storage->current;
}

/* -- in the thread */

static void finish(struct storage *storage, struct storage_job *job) {
    put(&storage->finished, job);
    storage->current = NULL;
    storage->told = storage->hung = NULL;
    (void)eventfd_write(storage->fd, 1);
    (void)pthread_cond_broadcast(&storage->changed);
}

/* What never began may hold files open, and to let go of those is a call on the same storage: it stays as it is
 * until the process ends. */
static void leave_behind(struct storage *storage) {
    static _Atomic(struct storage *) all;
    cleanup_fd(&storage->run_lock);
    storage->next = all;
    while (!atomic_compare_exchange_weak(&all, &storage->next, storage)) {
    }
}

static void *work(void *context) {
    struct storage *storage = context;
    (void)pthread_mutex_lock(&storage->lock);
    while (!storage->left) {
        struct storage_job *job = storage->held ? NULL : take(&storage->posted);
        if (job == NULL && storage->closing) break;
        if (job == NULL) {
            (void)pthread_cond_wait(&storage->changed, &storage->lock);
            continue;
        }
        storage->current = job;
        if (job != storage->told) storage->since = clock_monotonic();
        (void)pthread_mutex_unlock(&storage->lock);
        job->work(job);
        (void)pthread_mutex_lock(&storage->lock);
        finish(storage, job);
    }
    bool left = storage->left, held = storage->held;
    (void)pthread_mutex_unlock(&storage->lock);
    if (left && held)
        leave_behind(storage);
    else if (left)
        destroy(storage);
    return NULL;
}

/* -- on the loop */

static int open_descriptors(struct storage *storage, int lock, ty_error *err) {
    storage->run_lock = -1;
    storage->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (storage->fd < 0) return ty_fail(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    if (lock < 0) return 0;
    storage->run_lock = fcntl(lock, F_DUPFD_CLOEXEC, 0);
    if (storage->run_lock >= 0) {
        descriptors_withhold(storage->run_lock);
        return 0;
    }
    int result = ty_fail(err, -errno, "cannot keep the lock of the run: %s", strerror(errno));
    (void)close(storage->fd);
    return result;
}

int storage_open(int lock, struct storage **out, ty_error *err) {
    pthread_condattr_t attributes;
    struct storage *storage = calloc(1, sizeof *storage);
    if (storage == NULL) return ty_fail_memory(err);
    int result = open_descriptors(storage, lock, err);
    if (result < 0) {
        free(storage);
        return result;
    }
    storage->posted.end = &storage->posted.first;
    storage->finished.end = &storage->finished.first;
    (void)pthread_mutex_init(&storage->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&storage->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    *out = storage;
    return 0;
}

/* No signal of the program's is handled in our thread. */
static bool start_thread(struct storage *storage) {
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    storage->started = pthread_create(&storage->thread, NULL, work, storage) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return storage->started;
}

void storage_post(struct storage *storage, struct storage_job *job) {
    storage->n_open++;
    bool ready = storage->started || start_thread(storage);
    if (!ready) job->work(job);
    (void)pthread_mutex_lock(&storage->lock);
    if (storage->held && first(storage) == NULL) storage->since = clock_monotonic();
    if (ready)
        put(&storage->posted, job);
    else
        finish(storage, job);
    (void)pthread_cond_broadcast(&storage->changed);
    (void)pthread_mutex_unlock(&storage->lock);
}

void storage_hold(struct storage *storage, bool held) {
    (void)pthread_mutex_lock(&storage->lock);
    if (held && !storage->held && storage->current == NULL) storage->since = clock_monotonic();
    storage->held = held;
    (void)pthread_cond_broadcast(&storage->changed);
    (void)pthread_mutex_unlock(&storage->lock);
}

int storage_fd(const struct storage *storage) {
    return storage->fd;
}

bool storage_busy(const struct storage *storage) {
    return storage->n_open > 0;
}

bool storage_hangs(struct storage *storage) {
    (void)pthread_mutex_lock(&storage->lock);
    bool hangs = first(storage) != NULL && first(storage) == storage->hung;
    (void)pthread_mutex_unlock(&storage->lock);
    return hangs;
}

bool storage_slow(struct storage *storage) {
    (void)pthread_mutex_lock(&storage->lock);
    bool slow = first(storage) != NULL && first(storage) == storage->told;
    (void)pthread_mutex_unlock(&storage->lock);
    return slow;
}

nanoseconds storage_age(struct storage *storage) {
    (void)pthread_mutex_lock(&storage->lock);
    nanoseconds age = first(storage) != NULL ? clock_monotonic() - storage->since : -1;
    (void)pthread_mutex_unlock(&storage->lock);
    return age;
}

static struct storage_job *take_finished(struct storage *storage) {
    (void)pthread_mutex_lock(&storage->lock);
    struct storage_job *job = take(&storage->finished);
    (void)pthread_mutex_unlock(&storage->lock);
    return job;
}

void storage_take(struct storage *storage) {
    eventfd_t count;
    (void)eventfd_read(storage->fd, &count);
    for (struct storage_job *job; (job = take_finished(storage)) != NULL;) {
        storage->n_open--;
        if (job->done != NULL) job->done(job);
        job->release(job);
    }
}

/* Under the lock; whoever is told may ask for the storage, so that the lock must be free again then. */
static void describe(const struct storage *storage, nanoseconds now, const char *what_follows,
                     struct buffer *out) {
    const struct storage_job *job = first(storage);
    double seconds = (double)(now - storage->since) / (double)NS_PER_S;
    buffer_printf(out,
                  job->lengthy ? "%s %s takes long: %.1f s by now%s"
                               : "the storage hangs: %s %s has not returned for %.1f s%s",
                  job->what, job->path, seconds, what_follows);
}

static void tell(const struct buffer *text) {
    if (text->failed || text->size > 0)
        log_warning("storage", "%s", text->failed ? "the storage hangs" : text->data);
}

void storage_tell_slow(struct storage *storage, nanoseconds limit) {
    CLEANUP(buffer_done) struct buffer text = {0};
    nanoseconds now = clock_monotonic();
    (void)pthread_mutex_lock(&storage->lock);
    const struct storage_job *job = first(storage);
    if (job != NULL && job != storage->told && now - storage->since >= limit) {
        storage->told = job;
        describe(storage, now, "", &text);
    }
    (void)pthread_mutex_unlock(&storage->lock);
    tell(&text);
}

/* Under the lock. True when all is done. */
static bool wait_until(struct storage *storage, nanoseconds end) {
    struct timespec limit = {.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
    int code = 0;
    for (;;) {
        bool idle = storage->current == NULL && storage->posted.first == NULL;
        if (idle || code != 0 || storage->held) return idle;
        if (storage->current != NULL && storage->current == storage->hung) return false;
        code = pthread_cond_timedwait(&storage->changed, &storage->lock, &limit);
    }
}

static bool wait_for_work(struct storage *storage, nanoseconds limit) {
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)pthread_mutex_lock(&storage->lock);
    bool idle = wait_until(storage, clock_monotonic() + limit);
    if (!idle && first(storage) != NULL && first(storage) != storage->hung) {
        storage->hung = storage->told = first(storage);
        describe(storage, clock_monotonic(), "; it is not waited for any longer", &text);
    }
    (void)pthread_mutex_unlock(&storage->lock);
    tell(&text);
    return idle;
}

bool storage_wait(struct storage *storage, nanoseconds limit) {
    nanoseconds end = clock_monotonic() + limit;
    bool idle = true;
    while (idle && storage_busy(storage)) { /* what is taken may post more */
        idle = wait_for_work(storage, end - clock_monotonic());
        storage_take(storage);
    }
    return idle;
}

nanoseconds storage_patience(struct storage *storage, nanoseconds limit) {
    const nanoseconds least = 2 * NS_PER_S;
    return limit < least && !storage_slow(storage) ? least : limit;
}

void storage_close(struct storage *storage, nanoseconds limit) {
    if (storage == NULL) return;
    bool idle = !storage->started || storage->held || wait_for_work(storage, storage_patience(storage, limit));
    (void)pthread_mutex_lock(&storage->lock);
    if (storage->held) idle = first(storage) == NULL;
    storage->closing = idle;
    storage->left = !idle;
    bool started = storage->started;
    pthread_t thread = storage->thread;
    (void)pthread_cond_broadcast(&storage->changed);
    if (!idle) (void)pthread_detach(thread);
    (void)pthread_mutex_unlock(&storage->lock); /* what was left is the thread's from here on */
    if (!idle) return;
    if (started) (void)pthread_join(thread, NULL);
    destroy(storage);
}
