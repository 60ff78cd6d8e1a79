/* The queue, its thread, and what the thread does. All that is shared stands under one lock; a process that was
 * forked from a worker starts afresh. What a report is, and its line, is report.c's. */
#include "worker/upload.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/kernel.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "worker/link.h"
#include "worker/worker.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pid_t pid; /* to which all of this belongs */
    struct link *link;
    struct upload *first, **end; /* waiting, and in front the one under way */
    unsigned under_way;
    bool asks;        /* the one under way is written, and waits for its commit */
    ty_error failure; /* the first that nobody was told of */
    char *latest;
    uint64_t latest_number;
} uploads = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void upload_free(struct upload *upload) {
    if (upload == NULL) return;
    free(upload->staging);
    free(upload->source);
    free(upload->original);
    free(upload->files);
    free(upload->failed);
    free(upload);
}

/* -- in the thread */

static int ask(struct buffer *line, struct buffer *answer, ty_error *err) {
    if (line->failed) return ty_fail_memory(err);
    int rc = link_request(uploads.link, line->data, line->size, answer, NULL, err);
    return rc < 0 ? rc : worker_check_answer(answer->data, err);
}

/* Tells the run that this rank's files will not come, so that the other ranks need not wait. What comes of the
 * telling is not looked at: the first failure is the one to tell. */
static int give_up(const struct upload *upload, int code, const char *why) {
    CLEANUP(buffer_done) struct buffer line = {0};
    CLEANUP(buffer_done) struct buffer answer = {0};
    buffer_printf(&line, "abort %" PRIu64 " %s\n", upload->number, why);
    (void)ask(&line, &answer, NULL);
    return code;
}

static void set_asks(bool asks) {
    (void)pthread_mutex_lock(&uploads.lock);
    uploads.asks = asks;
    (void)pthread_mutex_unlock(&uploads.lock);
}

/* The agent answers when all ranks have committed, which may take as long as the slowest of them. Without
 * memory for its path the checkpoint is committed all the same; the latest stays the one before. */
static int commit(const struct upload *upload, const char *files, ty_error *err) {
    CLEANUP(buffer_done) struct buffer line = {0};
    CLEANUP(buffer_done) struct buffer answer = {0};
    buffer_printf(&line, "commit %" PRIu64 " %s\n", upload->number, files);
    set_asks(true);
    int rc = ask(&line, &answer, err);
    set_asks(false);
    if (rc < 0) return rc;
    const char *path;
    if (!str_prefix(answer.data, "ok ", &path)) return worker_fail_answer(answer.data, err);
    char *copy = strdup(path);
    if (copy == NULL) return 0;
    (void)pthread_mutex_lock(&uploads.lock);
    free(uploads.latest);
    uploads.latest = copy;
    uploads.latest_number = upload->number;
    (void)pthread_mutex_unlock(&uploads.lock);
    return 0;
}

static void perform(struct upload *upload) {
    CLEANUP(buffer_done) struct buffer files = {0};
    ty_error *err = &upload->error;
    struct checkpoint_copying how = {upload->give ? CHECKPOINT_GIVE : CHECKPOINT_COPY, upload->may_differ};
    int rc;
    if (upload->failed != NULL) {
        (void)give_up(upload, TY_EUSAGE, upload->failed);
        rc = ty_fail(err, TY_EUSAGE, "%s", upload->failed);
    } else if (upload->source == NULL) {
        rc = commit(upload, upload->files != NULL ? upload->files : "[]", err);
    } else {
        rc = checkpoint_copy(upload->source, upload->staging, &how, &files, err);
        rc = rc < 0 ? give_up(upload, rc, err->message) : commit(upload, files.data, err);
    }
    /* A directory that was given away goes; when its checkpoint failed it goes back to where it was. */
    if (upload->give && rc == 0)
        (void)checkpoint_drop_given(upload->source);
    else if (upload->give)
        checkpoint_give_back(upload->source, upload->original);
    upload->result = rc;
    if (rc != 0 && err->code == 0) (void)ty_fail(err, rc, "%s", ty_error_name(rc));
}

/* One upload after the other, for ever: the process ends without it. The upload at hand stays the first of the
 * queue until it is done, so that whoever counts or waits counts it. One that is awaited is freed by its
 * waiter. */
static void *work(void *unused) {
    (void)unused;
    (void)pthread_mutex_lock(&uploads.lock);
    for (;;) {
        while (uploads.first == NULL)
            (void)pthread_cond_wait(&uploads.changed, &uploads.lock);
        struct upload *upload = uploads.first;
        (void)pthread_mutex_unlock(&uploads.lock);
        perform(upload);
        (void)pthread_mutex_lock(&uploads.lock);
        /* Under the lock: the first of the queue is done. */
        uploads.first = upload->next;
        if (uploads.first == NULL) uploads.end = &uploads.first;
        uploads.under_way--;
        if (upload->awaited) {
            upload->done = true;
        } else {
            if (upload->result < 0 && uploads.failure.code == 0) uploads.failure = upload->error;
            upload_free(upload);
        }
        (void)pthread_cond_broadcast(&uploads.changed);
    }
    return NULL;
}

/* -- in the callers */

/* What belonged to a parent is left alone: its threads may have been at work on it. */
static void forget(void) {
    link_abandon(TAKE(uploads.link));
    uploads.first = NULL;
    uploads.end = &uploads.first;
    uploads.under_way = 0;
    uploads.asks = false;
    uploads.failure = (ty_error){0};
    uploads.latest = NULL;
    uploads.pid = 0;
}

/* The lock is made anew and not unlocked: at the fork another thread may have held it, and that thread is not
 * in the child. */
void upload_begin_child(void) {
    uploads.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    uploads.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    forget();
}

/* Under the lock: the thread and its channel are there. */
static int make_ready(ty_error *err) {
    if (uploads.pid == getpid()) return 0;
    forget();
    int rc = link_open_own(&uploads.link, err);
    if (rc == 0) {
        rc = kernel_thread(NULL, 0, work, NULL);
        if (rc < 0) (void)ty_fail(err, rc, "cannot start a thread for checkpoints: %s", strerror(-rc));
    }
    if (rc < 0)
        link_close(TAKE(uploads.link));
    else
        uploads.pid = getpid();
    return rc;
}

/* Under the lock. */
static int post(struct upload *upload, ty_error *err) {
    int rc = make_ready(err);
    if (rc < 0) return rc;
    while (uploads.under_way >= UPLOADS_MAX)
        (void)pthread_cond_wait(&uploads.changed, &uploads.lock);
    upload->next = NULL;
    *uploads.end = upload;
    uploads.end = &upload->next;
    uploads.under_way++;
    (void)pthread_cond_broadcast(&uploads.changed);
    return 0;
}

int upload_post(struct upload **upload, ty_error *err) {
    (void)pthread_mutex_lock(&uploads.lock);
    int rc = post(*upload, err);
    (void)pthread_mutex_unlock(&uploads.lock);
    if (rc == 0) *upload = NULL;
    return rc;
}

int upload_wait(struct upload **posted, ty_error *err) {
    struct upload *upload = TAKE(*posted);
    upload->awaited = true;
    (void)pthread_mutex_lock(&uploads.lock);
    int rc = post(upload, err);
    while (rc == 0 && !upload->done)
        (void)pthread_cond_wait(&uploads.changed, &uploads.lock);
    (void)pthread_mutex_unlock(&uploads.lock);
    if (rc == 0 && (rc = upload->result) < 0 && err != NULL) *err = upload->error;
    upload_free(upload);
    return rc;
}

/* Under the lock. */
static int take_failure(ty_error *err) {
    int code = uploads.pid == getpid() ? uploads.failure.code : 0;
    if (code != 0 && err != NULL) *err = uploads.failure;
    if (code != 0) uploads.failure = (ty_error){0};
    return code;
}

int upload_failure(ty_error *err) {
    (void)pthread_mutex_lock(&uploads.lock);
    int code = take_failure(err);
    (void)pthread_mutex_unlock(&uploads.lock);
    return code;
}

int upload_drain(ty_error *err) {
    (void)pthread_mutex_lock(&uploads.lock);
    while (uploads.pid == getpid() && uploads.under_way > 0)
        (void)pthread_cond_wait(&uploads.changed, &uploads.lock);
    int code = take_failure(err);
    (void)pthread_mutex_unlock(&uploads.lock);
    return code;
}

bool upload_is_writing(void) {
    (void)pthread_mutex_lock(&uploads.lock);
    bool writes = uploads.pid == getpid() && uploads.under_way > 0 && !uploads.asks;
    (void)pthread_mutex_unlock(&uploads.lock);
    return writes;
}

char *upload_take_latest(uint64_t *number) {
    (void)pthread_mutex_lock(&uploads.lock);
    char *latest = uploads.pid == getpid() ? TAKE(uploads.latest) : NULL;
    *number = uploads.latest_number;
    (void)pthread_mutex_unlock(&uploads.lock);
    return latest;
}
