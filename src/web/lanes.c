/* Threads that read for the page: a queue of lanes that have work, and the threads that take from it; of one
 * lane one job at a time. A thread sleeps without a limit while there is none, so that nothing runs when nobody
 * looks. */
#include "web/site.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/kernel.h"

struct lanes {
    struct loop *loop;
    struct loop_watch watch;
    int fd; /* an eventfd: something is done */
    int nice;
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct lane *first, *last;       /* n_waiting with work that no thread is at */
    struct lane_job *done, **behind; /* not taken by the loop yet */
    size_t n_waiting, n_threads, n_idle;
    pthread_t threads[LANE_THREADS];
    size_t n_started; /* of `threads`; none ends before the lanes do */
    bool over;
};

/* Under the lock, as take_lane and do_one are. */
static void put_lane(struct lanes *lanes, struct lane *lane) {
    lane->next = NULL;
    lane->at_work = true;
    if (lanes->last != NULL)
        lanes->last->next = lane;
    else
        lanes->first = lane;
    lanes->last = lane;
    lanes->n_waiting++;
}

static struct lane *take_lane(struct lanes *lanes) {
    struct lane *lane = lanes->first;
    lanes->first = lane->next;
    if (lanes->first == NULL) lanes->last = NULL;
    lanes->n_waiting--;
    return lane;
}

/* One job of the lane, which stands behind the others again when it has more: a run of which much is asked
 * takes turns with all others. The lock is given up for the work. */
static void do_one(struct lanes *lanes, struct lane *lane) {
    struct lane_job *job = lane->first;
    lane->first = job->next;
    if (lane->first == NULL) lane->last = NULL;
    pthread_mutex_unlock(&lanes->lock);
    job->work(job);
    pthread_mutex_lock(&lanes->lock);
    job->next = NULL;
    *lanes->behind = job;
    lanes->behind = &job->next;
    if (lane->first != NULL)
        put_lane(lanes, lane);
    else
        lane->at_work = false;
    ssize_t written = write(lanes->fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* the write fails only when the owner is told already, 2^64 times */
}

/* A thread that nobody needs sleeps, and ends with the lanes alone. */
static void *thread_main(void *context) {
    struct lanes *lanes = context;
    if (lanes->nice > 0)
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + lanes->nice); /* 0: this thread */
    pthread_mutex_lock(&lanes->lock);
    while (!lanes->over) {
        if (lanes->first != NULL) {
            do_one(lanes, take_lane(lanes));
            continue;
        }
        lanes->n_idle++;
        pthread_cond_wait(&lanes->work, &lanes->lock);
        lanes->n_idle--;
    }
    lanes->n_threads--;
    pthread_cond_signal(&lanes->ended);
    pthread_mutex_unlock(&lanes->lock);
    return NULL;
}

static bool start_thread(struct lanes *lanes) {
    enum { STACK_BYTES = 2 << 20 }; /* SQLite follows 200 links that lead in a circle, 4 KiB each */
    bool started = kernel_thread(&lanes->threads[lanes->n_started], STACK_BYTES, thread_main, lanes) == 0;
    if (started) lanes->n_threads = ++lanes->n_started;
    return started;
}

/* From the loop's thread. A new thread is started where more lanes wait than threads are free, one for each
 * post at most; where none can be had at all the job is done here and now. */
void lane_post(struct lanes *lanes, struct lane *lane, struct lane_job *job) {
    pthread_mutex_lock(&lanes->lock);
    job->next = NULL;
    if (lane->last != NULL)
        lane->last->next = job;
    else
        lane->first = job;
    lane->last = job;
    if (!lane->at_work) put_lane(lanes, lane);
    if (lanes->n_waiting <= lanes->n_idle) /* one that was woken is idle until it has taken its lane */
        pthread_cond_signal(&lanes->work);
    else if (lanes->n_threads < LANE_THREADS && !start_thread(lanes) && lanes->n_threads == 0)
        do_one(lanes, take_lane(lanes)); /* no thread can be had at all */
    pthread_mutex_unlock(&lanes->lock);
}

static void on_done(void *context, unsigned events) {
    (void)events;
    struct lanes *lanes = context;
    uint64_t count;
    ssize_t taken = read(lanes->fd, &count, sizeof count);
    (void)taken;
    pthread_mutex_lock(&lanes->lock);
    struct lane_job *job = TAKE(lanes->done);
    lanes->behind = &lanes->done;
    pthread_mutex_unlock(&lanes->lock);
    while (job != NULL) {
        struct lane_job *next = job->next;
        job->done(job);
        job = next;
    }
}

int lanes_create(struct loop *loop, int nice, struct lanes **out, ty_error *err) {
    struct lanes *lanes = calloc(1, sizeof *lanes);
    if (lanes == NULL) return ty_fail_memory(err);
    lanes->loop = loop;
    lanes->nice = nice;
    lanes->behind = &lanes->done;
    lanes->watch = (struct loop_watch){.callback = on_done, .context = lanes};
    lanes->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int result = lanes->fd < 0 ? ty_fail(err, -errno, "cannot make an eventfd: %s", strerror(errno)) : 0;
    if (result == 0) result = loop_watch_start(loop, &lanes->watch, lanes->fd, LOOP_READABLE);
    if (result < 0) {
        if (lanes->fd >= 0) (void)close(lanes->fd);
        free(lanes);
        return result;
    }
    (void)pthread_mutex_init(&lanes->lock, NULL);
    (void)pthread_cond_init(&lanes->work, NULL);
    (void)pthread_cond_init(&lanes->ended, NULL);
    *out = lanes;
    return 0;
}

static void drop_jobs(struct lane_job *job) {
    while (job != NULL) {
        struct lane_job *next = job->next;
        if (job->drop != NULL)
            job->drop(job);
        else
            free(job);
        job = next;
    }
}

/* Threads end by themselves, each behind the job that it is at. Who waits for them waits a second, not for a
 * storage that hangs. */
bool lanes_destroy(struct lanes *lanes) {
    enum { PATIENCE_SECONDS = 1 };
    if (lanes == NULL) return true;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_SECONDS;
    loop_watch_stop(lanes->loop, &lanes->watch);
    pthread_mutex_lock(&lanes->lock);
    lanes->over = true;
    pthread_cond_broadcast(&lanes->work);
    int late = 0;
    while (lanes->n_threads > 0 && late == 0)
        late = pthread_cond_clockwait(&lanes->ended, &lanes->lock, CLOCK_MONOTONIC, &until);
    bool all = lanes->n_threads == 0;
    pthread_mutex_unlock(&lanes->lock);
    if (!all) return false;
    for (size_t i = 0; i < lanes->n_started; i++)
        (void)pthread_join(lanes->threads[i], NULL);
    while (lanes->first != NULL)
        drop_jobs(take_lane(lanes)->first);
    drop_jobs(lanes->done);
    (void)close(lanes->fd);
    (void)pthread_cond_destroy(&lanes->work);
    (void)pthread_cond_destroy(&lanes->ended);
    (void)pthread_mutex_destroy(&lanes->lock);
    free(lanes);
    return true;
}
