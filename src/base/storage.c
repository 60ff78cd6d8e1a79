/* The queue of jobs and the thread that does them. All that both sides know stands under one lock. A thread
 * that sits in a call on storage which hangs cannot be ended: it is left behind, and frees what it has when
 * the call comes back. */
#include "base/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/idset.h"
#include "base/kernel.h"
#include "base/log.h"

struct queue {
    struct storage_job *first, **end;
};

struct storage {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started; /* there is a thread */
    bool closing; /* the thread is to end when nothing is left */
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

/* Storages that nobody waits for any more, until their threads are back. */
static struct {
    pthread_mutex_t lock;
    struct storage *first;
    bool parting; /* atexit has part(), for the end of this process */
} left_behind = {.lock = PTHREAD_MUTEX_INITIALIZER};

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
    descriptors_close(&storage->fd);
    descriptors_close(&storage->run_lock);
    (void)pthread_cond_destroy(&storage->changed);
    (void)pthread_mutex_destroy(&storage->lock);
    free(storage);
}

/* Under the lock: what the storage is at, or would be if it were not held. */
static struct storage_job *first(const struct storage *storage) {
    return storage->current == NULL && storage->held ? storage->posted.first : storage->current;
}

/* -- in the thread */

/* Under the lock. Where the program has closed the descriptors of the storage those of its jobs may be files
 * of the program's by now: nothing is written any more. */
static bool is_held(struct storage *storage) {
    if (!descriptors_intact(storage->fd) || !descriptors_intact(storage->run_lock)) storage->held = true;
    return storage->held;
}

static void finish(struct storage *storage, struct storage_job *job) {
    put(&storage->finished, job);
    storage->current = NULL;
    storage->told = storage->hung = NULL;
    if (descriptors_intact(storage->fd)) (void)eventfd_write(storage->fd, 1);
    (void)pthread_cond_broadcast(&storage->changed);
}

/* What never began may hold files open, and to let go of those is a call on the same storage: such a one
 * stays as it is until the process ends. */
static void end_left_behind(struct storage *storage, bool held) {
    struct storage **link = &left_behind.first;
    /* Under the lock of the list: the end of the process may be looking for the locks of runs in it. */
    (void)pthread_mutex_lock(&left_behind.lock);
    descriptors_close(&storage->run_lock);
    while (!held && *link != storage)
        link = &(*link)->next;
    if (!held) *link = storage->next;
    (void)pthread_mutex_unlock(&left_behind.lock);
    if (!held) destroy(storage);
}

/* CUT_SHORT: the exit status. STAY: how long the process of a series waits for its next job; starting one costs
 * more than most jobs do. */
enum { CUT_SHORT = 100 };
#define STAY (20 * NS_PER_MS)

static void begin(struct storage *storage, struct storage_job *job) {
    storage->current = job;
    if (job != storage->told) storage->since = clock_monotonic();
}

/* What comes behind a job of a series that is done, within a moment: NULL when that is none of a series. */
static struct storage_job *go_on(struct storage *storage, struct storage_job *job) {
    nanoseconds end = clock_monotonic() + STAY;
    const struct timespec until = {.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
    (void)pthread_mutex_lock(&storage->lock);
    finish(storage, job);
    /* This process has all in common with the thread, the queue and its lock among it: what is posted meanwhile
     * wakes it as it would wake the thread, which stands still. */
    while (storage->posted.first == NULL && !storage->closing && !storage->left && !storage->held)
        if (pthread_cond_timedwait(&storage->changed, &storage->lock, &until) != 0) break;
    job = storage->posted.first;
    if (job == NULL || !job->series || storage->left || is_held(storage))
        job = NULL;
    else
        begin(storage, take(&storage->posted));
    (void)pthread_mutex_unlock(&storage->lock);
    return job;
}

static void on_cut(int signal) {
    (void)signal;
    _exit(CUT_SHORT);
}

/* The thread that this process stands for waits for its end, and holds no lock. */
static void work_apart(void *context) {
    struct storage *storage = context;
    sigset_t cut;
    sigemptyset(&cut);
    sigaddset(&cut, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &cut, NULL);
    for (struct storage_job *job = storage->current; job != NULL;
         job = job->series ? go_on(storage, job) : NULL) {
        (void)sigaction(SIGBUS, &(struct sigaction){.sa_handler = job->cut != NULL ? on_cut : SIG_DFL}, NULL);
        job->work(job);
    }
}

/* What ended a process of ours otherwise would have ended the thread's, that is all of us. */
static void do_job(struct storage *storage, struct storage_job *job) {
    /* The sanitizers take any child for one with memory of its own, and look at the end of a process at all
     * that has its memory. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    job->apart = false;
#endif
    int status = job->apart ? kernel_call_apart(work_apart, storage, !job->bare) : -ENOSYS;
    if (status < 0)
        job->work(job);
    else if (WIFSIGNALED(status))
        (void)kill(getpid(), WTERMSIG(status));
    else if (WEXITSTATUS(status) == CUT_SHORT)
        storage->current->cut(storage->current); /* of a series it may be a later one */
}

static void *work(void *context) {
    struct storage *storage = context;
    (void)pthread_mutex_lock(&storage->lock);
    while (!storage->left) {
        struct storage_job *job = is_held(storage) ? NULL : take(&storage->posted);
        if (job == NULL && storage->closing) break;
        if (job == NULL) {
            (void)pthread_cond_wait(&storage->changed, &storage->lock);
            continue;
        }
        begin(storage, job);
        (void)pthread_mutex_unlock(&storage->lock);
        do_job(storage, job);
        (void)pthread_mutex_lock(&storage->lock);
        if (storage->current != NULL) finish(storage, storage->current);
    }
    bool left = storage->left, held = storage->held;
    (void)pthread_mutex_unlock(&storage->lock);
    if (left) end_left_behind(storage, held);
    return NULL;
}

/* -- on the loop */

int storage_open(int lock, struct storage **out, ty_error *err) {
    struct storage *storage = calloc(1, sizeof *storage);
    if (storage == NULL) return ty_fail_memory(err);
    int result = 0;
    storage->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    storage->run_lock = -1;
    if (storage->fd < 0)
        result = ty_fail(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    else if (lock >= 0 && (storage->run_lock = fcntl(lock, F_DUPFD_CLOEXEC, 0)) < 0)
        result = ty_fail(err, -errno, "cannot keep the lock of the run: %s", strerror(errno));
    if (result < 0) {
        cleanup_fd(&storage->fd);
        free(storage);
        return result;
    }
    descriptors_withhold(storage->fd);
    descriptors_withhold(storage->run_lock);
    storage->posted.end = &storage->posted.first;
    storage->finished.end = &storage->finished.first;
    (void)pthread_mutex_init(&storage->lock, NULL);
    kernel_condition(&storage->changed);
    *out = storage;
    return 0;
}

void storage_post(struct storage *storage, struct storage_job *job) {
    storage->n_open++;
    if (!storage->started) storage->started = kernel_thread(&storage->thread, 0, work, storage) == 0;
    bool ready = storage->started;
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

void storage_take(struct storage *storage) {
    eventfd_t count;
    if (descriptors_intact(storage->fd)) (void)eventfd_read(storage->fd, &count);
    for (;;) {
        (void)pthread_mutex_lock(&storage->lock);
        struct storage_job *job = take(&storage->finished);
        (void)pthread_mutex_unlock(&storage->lock);
        if (job == NULL) break;
        storage->n_open--;
        if (job->done != NULL) job->done(job);
        job->release(job);
    }
}

/* Under the lock; whoever is told may ask for the storage, so that the lock must be free again then. */
static void describe(const struct storage *storage, nanoseconds now, const char *what_follows,
                     struct buffer *out) {
    const struct storage_job *job = first(storage);
    double seconds = duration_seconds(now - storage->since);
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

/* True when all is done. */
static bool wait_for_work(struct storage *storage, nanoseconds limit) {
    CLEANUP(buffer_done) struct buffer text = {0};
    (void)pthread_mutex_lock(&storage->lock);
    nanoseconds end = clock_monotonic() + limit;
    const struct timespec until = {.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
    bool idle = false;
    for (int code = 0;; code = pthread_cond_timedwait(&storage->changed, &storage->lock, &until)) {
        bool hopeless = storage->current != NULL && storage->current == storage->hung;
        idle = storage->current == NULL && storage->posted.first == NULL;
        if (idle || code != 0 || storage->held || hopeless) break;
    }
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

bool storage_do(struct storage *storage, struct storage_job *job, nanoseconds limit) {
    bool hopeless = storage_slow(storage);
    if (hopeless)
        job->release(job);
    else
        storage_post(storage, job);
    return !hopeless && wait_for_work(storage, limit);
}

nanoseconds storage_patience(struct storage *storage, nanoseconds limit) {
    const nanoseconds least = 2 * NS_PER_S;
    return limit < least && !storage_slow(storage) ? least : limit;
}

/* -- at the end of this process
 *
 * What hangs in a process of its own shares our descriptors, so that whoever waits for the end of our
 * output, or for a lease, would wait for the storage. All that still runs here takes copies then; but for
 * the locks of runs, what hangs loses all. */

struct parting {
    pthread_mutex_t lock; /* of the rest of us, until that is done */
    bool parted;
};

/* The locks become the first descriptors: in the order of their numbers none is in the way of another. */
static void *close_shared(void *context) {
    struct parting *parting = context;
    CLEANUP(idset_done) struct idset locks = {0};
    int n = 0;
    (void)pthread_mutex_lock(&parting->lock);
    if (!parting->parted) return NULL;
    (void)pthread_mutex_lock(&left_behind.lock);
    for (const struct storage *left = left_behind.first; left != NULL; left = left->next)
        if (left->run_lock >= 0 && descriptors_intact(left->run_lock)) (void)idset_add(&locks, left->run_lock);
    for (int64_t fd = -1; (fd = idset_next(&locks, fd)) != IDSET_END; n++)
        (void)dup2((int)fd, n);
    kernel_close_from(n, false);
    (void)pthread_mutex_unlock(&left_behind.lock);
    return NULL;
}

static void part(void) {
    struct parting parting = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    (void)pthread_mutex_lock(&parting.lock);
    /* This thread takes a copy of the descriptors; the other one, which still shares them with what hangs, then
     * closes them there. */
    if (pthread_create(&thread, NULL, close_shared, &parting) != 0) return;
    parting.parted = kernel_part_descriptors();
    (void)pthread_mutex_unlock(&parting.lock);
    (void)pthread_join(thread, NULL);
}

void storage_close(struct storage *storage, nanoseconds limit) {
    if (storage == NULL) return;
    bool idle = !storage->started || storage->held || wait_for_work(storage, storage_patience(storage, limit));
    (void)pthread_mutex_lock(&storage->lock);
    if (storage->held) idle = first(storage) == NULL;
    storage->closing = idle;
    bool started = storage->started;
    if (!idle) {
        /* As soon as the lock is free the thread may end, and free the storage: that is in the list before,
         * where the thread looks for it. */
        storage->left = true;
        (void)pthread_detach(storage->thread);
        (void)pthread_mutex_lock(&left_behind.lock);
        storage->next = left_behind.first;
        left_behind.first = storage;
        if (!left_behind.parting) left_behind.parting = atexit(part) == 0;
        (void)pthread_mutex_unlock(&left_behind.lock);
    }
    (void)pthread_cond_broadcast(&storage->changed);
    (void)pthread_mutex_unlock(&storage->lock); /* what was left is the thread's from here on */
    if (!idle) return;
    if (started) (void)pthread_join(storage->thread, NULL);
    destroy(storage);
}

/* -- one job */

int storage_try(struct storage_job *job, nanoseconds slow, nanoseconds limit, ty_error *err) {
    struct storage *storage = NULL;
    int result = storage_open(-1, &storage, err);
    if (result < 0) {
        job->release(job);
        return result;
    }
    struct pollfd finished = {.fd = storage_fd(storage), .events = POLLIN};
    storage_post(storage, job);
    if (poll(&finished, 1, (int)(slow / NS_PER_MS)) == 0) storage_tell_slow(storage, 0);
    if (poll(&finished, 1, (int)((limit - slow) / NS_PER_MS)) == 0)
        result = ty_fail(err, -ETIMEDOUT, "%s has not answered for %lld s", job->path,
                         (long long)(limit / NS_PER_S));
    else
        storage_take(storage);
    storage_close(storage, 0);
    return result;
}
