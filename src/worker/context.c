/* The worker of this process: made when first asked for, kept until the process ends, and shared with nobody: a
 * child that this process forks is as good as the worker itself, and talks to the agent over a channel of its
 * own. At the fork other threads may have been in the middle of anything, so the child begins with nothing of
 * what they were at. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "worker/upload.h"
#include "worker/worker.h"

static struct {
    struct ty_worker worker;
    bool made;
} self;

/* Reports that the socket did not take at once must not be lost at the end of the process, nor checkpoints that
 * the upload thread has not committed. A child that came by fork inherits this, and has nothing to flush. */
static void flush_at_exit(void) {
    struct ty_worker *worker = &self.worker;
    if (worker->pid == getpid()) (void)upload_drain(NULL);
    if (worker->link != NULL && worker->pid == getpid()) (void)link_flush(worker->link, NULL);
}

/* In a child: what was queued is the parent's to send. Its buffers are put by, not freed: a thread may have
 * been about to move them. */
static void begin_child(void) {
    static struct buffers {
        struct buffers *next;
        struct buffer line, answer;
    } * abandoned;
    struct buffers *buffers = malloc(sizeof *buffers);
    if (buffers != NULL) {
        *buffers = (struct buffers){abandoned, self.worker.line, self.worker.answer};
        abandoned = buffers;
    }
    link_abandon(TAKE(self.worker.link));
    self.worker.line = self.worker.answer = (struct buffer){0};
    self.worker.pid = 0; /* the number may be used again */
    upload_begin_child();
}

static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, begin_child);
}

/* The link comes first: outside of a run its error is the one that helps. "ready" is of the rank, so a child
 * that asks before its parent does not say it. */
ty_worker *ty_worker_self(ty_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (self.made) return &self.worker;
    (void)pthread_once(&once, watch_forks);
    struct link *link = NULL;
    if (link_open(&link, err) < 0) return NULL;
    if (worker_read_environment(&self.worker, err) < 0) {
        link_close(link);
        return NULL;
    }
    self.worker.link = link;
    self.worker.pid = getpid();
    static const char ready[] = "ready\n";
    if (link_is_worker(link) && link_post(link, ready, sizeof ready - 1, err) < 0) {
        worker_done(&self.worker);
        return NULL;
    }
    (void)atexit(flush_at_exit); /* when there is no room for it only queued reports are at risk */
    self.made = true;
    return &self.worker;
}

void worker_forget(void) {
    self.worker = (struct ty_worker){0};
    self.made = false;
}

/* The pid is asked for at each call, since pthread_atfork hears nothing of a fork by a bare system call. */
int worker_link(struct ty_worker *worker, struct link **link, ty_error *err) {
    pid_t pid = getpid();
    if (worker->link == NULL || worker->pid != pid) {
        if (worker->link != NULL) begin_child(); /* forked by a bare system call */
        int rc = link_open(&worker->link, err);
        if (rc < 0) return rc;
        worker->pid = pid;
    }
    *link = worker->link;
    return 0;
}

/* A fork at any moment finds one of the two. */
void worker_set_checkpoint(struct ty_worker *worker, char *path, uint64_t number) {
    char *before = worker->checkpoint;
    worker->checkpoint = path;
    worker->checkpoint_number = number;
    free(before);
}

int worker_check_answer(const char *answer, ty_error *err) {
    const char *text;
    int code = 0;
    if (str_prefix(answer, "error ", &text))
        code = ty_fail(err, TY_EUSAGE, "%s", text);
    else if (str_prefix(answer, "failed ", &text))
        code = ty_fail(err, TY_EWORKER, "%s", text);
    if (code < 0 && err != NULL && err->message[0] == '\0')
        (void)ty_fail(err, code, "the agent gave no reason");
    return code;
}

int worker_request(struct ty_worker *worker, struct buffer *value, ty_error *err) {
    if (worker->line.failed) {
        buffer_done(&worker->line);
        return ty_fail_memory(err);
    }
    struct link *link;
    int rc = worker_link(worker, &link, err);
    if (rc == 0) rc = link_request(link, worker->line.data, worker->line.size, &worker->answer, value, err);
    return rc < 0 ? rc : worker_check_answer(worker->answer.data, err);
}

int worker_fail_answer(const char *answer, ty_error *err) {
    return ty_fail(err, TY_EPROTOCOL, "the agent's answer \"%.80s\" is not understood", answer);
}

int ty_world_rank(const ty_worker *worker) {
    return worker->rank;
}

int ty_world_size(const ty_worker *worker) {
    return worker->world_size;
}

int ty_local_rank(const ty_worker *worker) {
    return worker->local_rank;
}

int ty_local_world_size(const ty_worker *worker) {
    return worker->local_world_size;
}

int ty_node_rank(const ty_worker *worker) {
    return worker->node_rank;
}

int ty_attempt(const ty_worker *worker) {
    return worker->attempt;
}

const char *ty_run_name(const ty_worker *worker) {
    return worker->run_name;
}

const char *ty_run_path(const ty_worker *worker) {
    return worker->run_path;
}

const int *ty_devices(const ty_worker *worker, size_t *n) {
    if (n != NULL) *n = worker->n_devices;
    return worker->n_devices > 0 ? worker->devices : NULL;
}
