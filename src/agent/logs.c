/* The logs of ranks, written by a thread in batches: what gathers while a batch of a log is being written is
 * the next. Batches and the descriptor belong to the thread. What else an agent has to do on the run's storage
 * goes the same way, as errands; lines are made elsewhere (lines.c). */
#include "agent/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/log_file.h"

enum {
    ROOM = 8 << 20,      /* bytes that may wait */
    BATCH = 1 << 20,     /* whose write shows whether the storage hangs */
    ERRAND_MAX = 1 << 20 /* bytes that are read */
};
static const nanoseconds SLOW = 5 * NS_PER_S;
static const nanoseconds STALL = NS_PER_S;        /* soon enough for others to keep clear of that storage */
static const nanoseconds HOLDS_UP = 2 * NS_PER_S; /* an errand, the loop */

struct log {
    struct log *next;
    struct logs *logs;
    long rank;
    struct buffer gathered;
    uint64_t gap;         /* bytes left out behind what has gathered */
    uint64_t unlogged;    /* all bytes that are not in the file */
    unsigned writing;     /* batches in the thread's hands */
    bool closed;          /* nothing more is added */
    bool failed;          /* that it cannot be written was told */
    unsigned uses;        /* the owner's, and one of each batch */
    struct log_file file; /* the thread's */
};

struct log_batch {
    struct storage_job job;
    struct log *log;
    struct buffer bytes;
    bool last, anew; /* anew: the log was removed, and is another file by now */
    int code;
    struct log_batch *next_carried;
    nanoseconds since; /* it is on its way */
};

/* -- in the thread */

static void write_batch(struct storage_job *job) {
    struct log_batch *batch = (struct log_batch *)job;
    struct log *log = batch->log;
    if (batch->bytes.size > 0) batch->code = log_file_write(&log->file, batch->bytes.data, batch->bytes.size);
    batch->anew = log->file.anew;
    bool seldom = log->rank < 0; /* the agent's own */
    if (batch->last || seldom) log_file_close(&log->file);
}

static void let_go(struct log *log) {
    if (--log->uses > 0) return;
    log_file_close(&log->file);
    buffer_done(&log->gathered);
    free(log->file.path);
    free(log);
}

static void free_batch(struct storage_job *job) {
    struct log_batch *batch = (struct log_batch *)job;
    buffer_done(&batch->bytes);
    let_go(batch->log);
    free(batch);
}

/* -- on the loop */

static void warn(const struct logs *logs, struct buffer *text) {
    logs->warn(logs->context, text->failed ? "a log cannot be written: out of memory" : text->data);
    buffer_done(text);
}

static void note_failure(struct log *log, size_t size, int code) {
    struct buffer text = {0};
    if (code == -ENOENT) return; /* removed with the run's directory: the run's end tells that */
    log->unlogged += size;
    if (log->failed || log->rank < 0) return;
    log->failed = true;
    buffer_printf(&text, "cannot write %s: %s (the run goes on)", log->file.path, strerror(-code));
    warn(log->logs, &text);
}

/* Once for all: a user who removes them removes many. */
static void note_removal(const struct log *log) {
    struct logs *logs = log->logs;
    struct buffer text = {0};
    if (logs->told_removal || log->rank < 0) return;
    logs->told_removal = true;
    buffer_printf(&text,
                  "%s was removed while the run goes on: what was in it is lost, and it is begun anew (to make"
                  " room, cut it with truncate; --log-limit bounds it)",
                  log->file.path);
    warn(logs, &text);
}

static void remove_log(struct log *log) {
    struct log **link = &log->logs->first;
    while (*link != log)
        link = &(*link)->next;
    *link = log->next;
    struct buffer text = {0};
    if (log->unlogged != 0 && log->rank >= 0) {
        buffer_printf(&text, "%llu bytes of the output of rank %ld are not in its log",
                      (unsigned long long)log->unlogged, log->rank);
        warn(log->logs, &text);
    }
    let_go(log);
}

static void end_batch(struct storage_job *job);

static bool is_busy(const struct logs *logs) {
    return storage_busy(logs->storage) || logs->carried != NULL;
}

static bool is_slow(const struct logs *logs) {
    return storage_slow(logs->storage) ||
           (logs->carried != NULL && clock_monotonic() - logs->carried->since > SLOW);
}

static void start_slow(struct logs *logs, nanoseconds delay) {
    logs->due = clock_monotonic() + delay;
    (void)loop_timer_start(logs->loop, &logs->slow, delay);
}

static void watch_slow(struct logs *logs) {
    if (is_busy(logs) && logs->slow.state == NULL) start_slow(logs, STALL);
}

static void tell_stall(struct logs *logs) {
    bool stalled = storage_age(logs->storage) >= STALL;
    if (stalled == logs->stalled) return;
    logs->stalled = stalled;
    logs->stall(logs->context, stalled);
}

/* The last of a log may be empty: nobody answers for it, it only keeps its place. */
static void end_carried(struct logs *logs, int code) {
    do {
        struct log_batch *batch = logs->carried;
        logs->carried = batch->next_carried;
        batch->code = code;
        end_batch(&batch->job);
        free_batch(&batch->job);
    } while (logs->carried != NULL && logs->carried->bytes.size == 0);
}

static void carry(struct logs *logs, struct log_batch *batch) {
    batch->since = clock_monotonic();
    *(logs->carried != NULL ? logs->carried_end : &logs->carried) = batch;
    logs->carried_end = &batch->next_carried;
    if (batch->bytes.size > 0)
        logs->carry(logs->context, batch->log->rank, &batch->bytes);
    else if (logs->carried == batch)
        end_carried(logs, 0);
}

void logs_taken(struct logs *logs, const char *error) {
    if (logs->carried == NULL) return;
    end_carried(logs, error[0] != '\0' ? -EIO : 0);
    if (logs->waiting <= ROOM / 2) logs->drained(logs->context);
}

void logs_lose(struct logs *logs) {
    logs->apart = false;
    while (logs->carried != NULL)
        end_carried(logs, -ECONNRESET);
}

/* What has gathered; of a log that is closed, the last. */
static void post(struct log *log) {
    struct log_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) {
        size_t size = log->gathered.size;
        log->logs->waiting -= size;
        buffer_done(&log->gathered);
        note_failure(log, size, -ENOMEM);
        if (log->closed && log->writing == 0) remove_log(log);
        return;
    }
    *batch = (struct log_batch){.job = {.work = write_batch,
                                        .done = end_batch,
                                        .release = free_batch,
                                        .what = "writing",
                                        .path = log->file.path},
                                .log = log,
                                .bytes = log->gathered,
                                .last = log->closed};
    log->gathered = (struct buffer){0};
    log->writing++;
    log->uses++;
    struct logs *logs = log->logs;
    if (logs->apart && log->rank >= 0)
        carry(logs, batch);
    else
        storage_post(logs->storage, &batch->job);
    watch_slow(logs);
}

static void end_batch(struct storage_job *job) {
    const struct log_batch *batch = (const struct log_batch *)job;
    struct log *log = batch->log;
    struct logs *logs = log->logs;
    log->writing--;
    logs->waiting -= batch->bytes.size;
    if (batch->code < 0) note_failure(log, batch->bytes.size, batch->code);
    if (batch->anew) note_removal(log);
    if (log->writing > 0 && !batch->last) return;
    if (log->closed && (batch->last || log->gathered.size == 0)) /* its last batch may have found no memory */
        remove_log(log);
    else if (log->gathered.size > 0)
        post(log);
}

static void on_written(void *context, unsigned events) {
    (void)events;
    struct logs *logs = context;
    storage_take(logs->storage);
    tell_stall(logs);
    if (logs->waiting <= ROOM / 2) logs->drained(logs->context);
}

/* The timer finds out by itself that there is nothing to tell: logs are written many times a second. A look
 * that is late tells nothing: the agent stood still, and with it the thread that writes. */
static void on_slow(void *context) {
    struct logs *logs = context;
    nanoseconds age = storage_age(logs->storage);
    if (clock_monotonic() - logs->due < STALL) {
        tell_stall(logs);
        storage_tell_slow(logs->storage, SLOW);
        if (is_slow(logs)) logs->drained(logs->context);
    }
    if (is_busy(logs)) start_slow(logs, age < 0 ? STALL : STALL - age % STALL);
}

static void on_end(void *context) {
    struct logs *logs = context;
    logs->given_up = true;
    (void)storage_wait(logs->storage, 0); /* tells it */
}

int logs_open(struct logs *logs, ty_error *err) {
    int result = storage_open(-1, &logs->storage, err);
    if (result < 0) return result;
    logs->watch = (struct loop_watch){.callback = on_written, .context = logs};
    logs->slow = (struct loop_timer){.callback = on_slow, .context = logs};
    logs->end = (struct loop_timer){.callback = on_end, .context = logs};
    result = loop_watch_start(logs->loop, &logs->watch, storage_fd(logs->storage), LOOP_READABLE);
    if (result < 0) return ty_fail(err, result, "cannot watch an eventfd: %s", strerror(-result));
    return 0;
}

void logs_close(struct logs *logs) {
    if (logs->storage == NULL) return;
    for (struct log *log = logs->first, *next; log != NULL; log = next) {
        next = log->next;
        log_close(log);
    }
    logs_lose(logs);
    /* Where it was given up already, nobody waits for it a second time. */
    (void)storage_wait(logs->storage, logs->given_up ? 0 : SLOW);
    loop_watch_stop(logs->loop, &logs->watch);
    loop_timer_stop(logs->loop, &logs->slow);
    loop_timer_stop(logs->loop, &logs->end);
    while (logs->first != NULL) {
        struct log *log = logs->first;
        log->unlogged += log->gathered.size;
        remove_log(log);
    }
    storage_close(TAKE(logs->storage), 0);
}

struct log *log_open(struct logs *logs, const char *path, long rank) {
    struct log *log = calloc(1, sizeof *log);
    struct buffer file = {0};
    buffer_text(&file, path);
    if (rank >= 0) buffer_printf(&file, "/logs/rank-%ld.log", rank);
    if (log == NULL || file.failed) {
        buffer_done(&file);
        free(log);
        return NULL;
    }
    *log = (struct log){
        .next = logs->first,
        .logs = logs,
        .rank = rank,
        .uses = 1,
        .file = {
            .path = buffer_take(&file), .in_logs = rank >= 0, .limit = rank < 0 ? 0 : logs->limit, .fd = -1}};
    logs->first = log;
    return log;
}

static void mark_gap(struct log *log) {
    size_t before = log->gathered.size;
    buffer_printf(&log->gathered, "\n[trainyard: %llu bytes are missing here: the storage did not take them]\n",
                  (unsigned long long)log->gap);
    log->logs->waiting += log->gathered.size - before;
    log->gap = 0;
}

void log_add(struct log *log, const char *bytes, size_t size) {
    if (log == NULL || size == 0) return;
    struct logs *logs = log->logs;
    /* Workers are held up while the logs are full (logs_full), but neither at their end nor by storage that
     * does not answer: then bytes are left out, and their place is marked. */
    if (logs->waiting + size > ROOM && (logs->hurried || is_slow(logs))) {
        log->gap += size;
        log->unlogged += size;
        return;
    }
    if (log->gap > 0) mark_gap(log);
    buffer_append(&log->gathered, bytes, size);
    logs->waiting += size;
    if (log->gathered.failed) { /* of memory */
        buffer_done(&log->gathered);
        note_failure(log, size, -ENOMEM);
        logs->waiting -= size;
    }
    if (log->writing == 0 || log->gathered.size >= BATCH) post(log);
}

void log_close(struct log *log) {
    if (log == NULL || log->closed) return;
    log->closed = true;
    if (log->gap > 0) mark_gap(log);
    bool untouched = !log->logs->apart && log->writing == 0 && log->gathered.size == 0 && log->file.fd < 0;
    if (untouched) /* there is no file to be closed */
        remove_log(log);
    else
        post(log);
}

void logs_post(struct logs *logs, struct storage_job *job) {
    storage_post(logs->storage, job);
    watch_slow(logs);
}

/* -- errands */

void errand_append(struct errand *errand) {
    struct stat status;
    errand->fd = open(errand->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (errand->fd < 0)
        errand->fd = -errno;
    else if (fstat(errand->fd, &status) == 0)
        errand->size = status.st_size;
}

void errand_read(struct errand *errand) {
    struct stat status;
    CLEANUP_FD int fd = open(errand->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) return;
    errand->size = status.st_size;
    int64_t from = errand->size - ERRAND_MAX > errand->from ? errand->size - ERRAND_MAX : errand->from;
    if (from >= errand->size) return;
    size_t size = (size_t)(errand->size - from);
    char *room = buffer_reserve(&errand->text, size);
    ssize_t n = room != NULL ? pread(fd, room, size, from) : -1;
    errand->text.size = n > 0 ? (size_t)n : 0;
}

static void work_errand(struct storage_job *job) {
    struct errand *errand = (struct errand *)job;
    errand->act(errand);
}

static void free_errand(struct storage_job *job) {
    struct errand *errand = (struct errand *)job;
    cleanup_fd(&errand->fd);
    buffer_done(&errand->text);
    free(errand->path);
    free(errand);
}

static struct errand *make_errand(struct errand wanted) {
    struct errand *errand = calloc(1, sizeof *errand);
    char *path = errand == NULL ? NULL : strdup(wanted.path);
    if (path == NULL) {
        free(errand);
        return NULL;
    }
    *errand = wanted;
    errand->fd = -1;
    errand->path = path;
    errand->job =
        (struct storage_job){.work = work_errand, .release = free_errand, .what = wanted.what, .path = path};
    return errand;
}

struct errand *logs_do(struct logs *logs, struct errand wanted) {
    struct errand *errand = make_errand(wanted);
    bool done = errand != NULL && storage_do(logs->storage, &errand->job, HOLDS_UP);
    watch_slow(logs);
    return done ? errand : NULL;
}

void logs_leave_to(struct logs *logs, struct errand wanted) {
    struct errand *errand = make_errand(wanted);
    if (errand != NULL) logs_post(logs, &errand->job);
}

bool logs_full(const struct logs *logs) {
    return logs->waiting > ROOM && !logs->hurried && !is_slow(logs);
}

void logs_hurry(struct logs *logs) {
    if (logs->storage == NULL || logs->hurried) return;
    logs->hurried = true;
    logs->drained(logs->context);
}

bool logs_finish(struct logs *logs, nanoseconds limit) {
    if (logs->given_up || !is_busy(logs)) return true;
    limit = storage_patience(logs->storage, limit);
    if (logs->end.state == NULL || limit < logs->patience)
        (void)loop_timer_start(logs->loop, &logs->end, limit);
    logs->patience = limit;
    return false;
}
