/* Server-sent events: what changed, never the data. A run is looked at only while somebody watches it: when the
 * kernel tells of writes, and every 2 s. Nobody tells of what other hosts write; and a transaction is seen only
 * some time after its bytes were written, of which nobody tells either. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "journal/journal.h"
#include "usage/usage.h"
#include "web/site.h"

enum {
    COMMENT_SECONDS = 15,
    REST_MS = 50,
    NEWS_MS = 250,
    POLL_MS = 2000,
    LOGS_TOLD = 64,
    STREAM_AHEAD = 64 << 10
};

struct site_stream {
    struct site_stream *next;
    struct site *site;
    struct http_request *request;
    struct site_run *run;    /* NULL: of the list */
    struct loop_watch watch; /* the client says no more: what can be read is its end */
};

static void put(struct site_stream *stream, const char *event, const char *data) {
    CLEANUP(buffer_done) struct buffer text = {0};
    if (stream->site->http->waiting(stream->request) > STREAM_AHEAD)
        return; /* the client asks for all when it reads on */
    buffer_printf(&text, "event: %s\ndata: %s\n\n", event, data);
    if (!text.failed) stream->site->http->write(stream->request, text.data, text.size);
}

void stream_tell(struct site_run *run, const char *event, const char *data) {
    for (struct site_stream *stream = run->site->streams; stream != NULL; stream = stream->next)
        if (stream->run == run) put(stream, event, data);
    site_stir(run->site);
}

/* -- a look at what is new */

struct log_size {
    int rank;
    int64_t size;
};

struct look_job {
    struct lane_job base;
    struct site_run *run;
    bool there;
    int64_t last_report, last_sequence, after, sampled;
    int ranks[LOGS_TOLD]; /* n_ranks whose logs changed */
    struct log_size sizes[LOGS_TOLD];
    size_t n_ranks, n_sizes;
    int result;
};

static int note_sequence(void *context, int64_t sequence, const struct journal_event *event) {
    (void)event;
    *(int64_t *)context = sequence;
    return 0;
}

static int read_news(void *context, struct journal *journal, ty_error *err) {
    struct look_job *job = context;
    uint64_t count = 0;
    nanoseconds first = 0;
    job->last_sequence = job->after;
    int result = journal_count_reports(journal, &count, &first, err);
    job->last_report = (int64_t)count;
    return result < 0 ? result
                      : journal_each_event(journal, job->after, note_sequence, &job->last_sequence, err);
}

/* By its log, or itself without one; 0: there is none. */
static int64_t sampled_at(const char *run_path) {
    static const char *const names[] = {"-wal", ""};
    struct stat status;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        CLEANUP(buffer_done) struct buffer path = {0};
        buffer_printf(&path, "%s/" USAGE_DB_NAME "%s", run_path, names[i]);
        if (!path.failed && lstat(path.data, &status) == 0)
            return status.st_mtim.tv_sec * NS_PER_S + status.st_mtim.tv_nsec;
    }
    return 0;
}

static void look(struct lane_job *base) {
    struct look_job *job = (struct look_job *)base;
    ty_error err = {0};
    job->there = journal_exists(job->run->path);
    job->result = job->there ? journal_read(job->run->path, read_news, job, &err) : 0;
    job->sampled = sampled_at(job->run->path);
    for (size_t i = 0; i < job->n_ranks; i++) {
        CLEANUP(buffer_done) struct buffer path = {0};
        struct stat status;
        buffer_printf(&path, "%s/logs/rank-%d.log", job->run->path, job->ranks[i]);
        if (path.failed || lstat(path.data, &status) < 0 || !S_ISREG(status.st_mode)) continue;
        job->sizes[job->n_sizes++] = (struct log_size){job->ranks[i], status.st_size};
    }
}

static void arm(struct site_run *run);

static void drop_look(struct lane_job *base) {
    free(base);
}

static void looked(struct lane_job *base) {
    struct look_job *job = (struct look_job *)base;
    struct site_run *run = job->run;
    struct news *news = &run->news;
    char data[96];
    news->looking = false;
    news->looked = loop_now(run->site->loop);
    if (!job->there) {
        stream_tell(run, "gone", "{}");
        free(job);
        return;
    }
    if (job->result < 0) { /* the journal was busy: what is new is told 2 s from now */
        news->dirty = true;
        news->looked += (POLL_MS - NEWS_MS) * NS_PER_MS;
    }
    if (job->result >= 0 && job->last_sequence != news->last_sequence) {
        news->last_sequence = job->last_sequence;
        stream_tell(run, "run", "{}");
    }
    if (job->result >= 0 && job->last_report != news->last_report) {
        news->last_report = job->last_report;
        (void)snprintf(data, sizeof data, "{\"id\": %lld}", (long long)job->last_report);
        stream_tell(run, "reports", data);
        indexing_begin(run);
    }
    if (job->sampled != news->sampled) {
        news->sampled = job->sampled;
        stream_tell(run, "usage", "{}");
    }
    for (size_t i = 0; i < job->n_sizes; i++) {
        (void)snprintf(data, sizeof data, "{\"rank\": %d, \"size\": %lld}", job->sizes[i].rank,
                       (long long)job->sizes[i].size);
        stream_tell(run, "logs", data);
    }
    free(job);
    arm(run);
}

static void on_due(void *context) {
    struct site_run *run = context;
    struct news *news = &run->news;
    struct look_job *job = news->n_streams > 0 && !news->looking ? calloc(1, sizeof *job) : NULL;
    if (job == NULL) return;
    job->base = (struct lane_job){.work = look, .done = looked, .drop = drop_look};
    job->run = run;
    job->after = news->last_sequence;
    uintptr_t value;
    const char *name;
    int64_t rank;
    for (size_t at = 0; news->log_sizes != NULL && (name = hash_next(news->log_sizes, &at, &value)) != NULL;)
        if (job->n_ranks < LOGS_TOLD && str_to_int64(name, 0, INT32_MAX, &rank))
            job->ranks[job->n_ranks++] = (int)rank;
    hash_destroy(TAKE(news->log_sizes));
    news->dirty = false;
    news->looking = true;
    lane_post(run->site->lanes, &run->lane, &job->base);
}

/* At most 4 looks a second. */
static void arm(struct site_run *run) {
    struct news *news = &run->news;
    struct site *site = run->site;
    if (news->n_streams == 0 || news->looking) return;
    nanoseconds due = news->looked + (news->dirty ? NEWS_MS : POLL_MS) * NS_PER_MS - loop_now(site->loop);
    loop_timer_stop(site->loop, &news->timer);
    news->timer = (struct loop_timer){.callback = on_due, .context = run};
    (void)loop_timer_start(site->loop, &news->timer, due > 0 ? due : 0);
}

static void note_log(struct news *news, const char *name) {
    const char *rest = NULL;
    char rank[16];
    if (!str_prefix(name, "rank-", &rest)) return;
    size_t n = strspn(rest, "0123456789");
    if (n == 0 || n >= sizeof rank || !str_equal(rest + n, ".log")) return;
    memcpy(rank, rest, n);
    rank[n] = '\0';
    if (news->log_sizes == NULL) news->log_sizes = hash_create();
    if (news->log_sizes != NULL) (void)hash_set(news->log_sizes, rank, 0);
}

static void on_change(struct site *site, const struct inotify_event *event) {
    uintptr_t value;
    for (size_t at = 0; hash_next(site->runs, &at, &value) != NULL;) {
        struct site_run *run = (struct site_run *)value;
        if (run->news.n_streams == 0 || (event->wd != run->news.directory && event->wd != run->news.logs))
            continue;
        if (event->wd == run->news.logs && event->len > 0) note_log(&run->news, event->name);
        run->news.dirty = true;
        arm(run);
    }
}

static void listen_to_inotify(void *context) {
    struct site *site = context;
    (void)loop_watch_start(site->loop, &site->inotify_watch, site->inotify, LOOP_READABLE);
}

/* A run that reports writes some thousand times a second: what comes while the watch rests is one wake-up. */
static void on_inotify(void *context, unsigned events) {
    (void)events;
    struct site *site = context;
    char block[8192] __attribute__((aligned(8)));
    for (ssize_t got; (got = read(site->inotify, block, sizeof block)) > 0;)
        for (char *at = block; at < block + got;) {
            struct inotify_event *event = (struct inotify_event *)at;
            on_change(site, event);
            at += sizeof *event + event->len;
        }
    loop_watch_stop(site->loop, &site->inotify_watch);
    (void)loop_timer_start(site->loop, &site->inotify_rest, REST_MS * NS_PER_MS);
}

static void watch_run(struct site_run *run) {
    struct news *news = &run->news;
    CLEANUP(buffer_done) struct buffer logs = {0};
    buffer_printf(&logs, "%s/logs", run->path);
    news->directory =
        inotify_add_watch(run->site->inotify, run->path,
                          IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF | IN_ONLYDIR);
    if (!logs.failed)
        news->logs = inotify_add_watch(run->site->inotify, logs.data,
                                       IN_MODIFY | IN_CREATE | IN_ONLYDIR | IN_DONT_FOLLOW);
}

/* -- the list: looked at every 2 s while somebody sees it */

static void on_comment(void *context) {
    struct site *site = context;
    for (struct site_stream *stream = site->streams; stream != NULL; stream = stream->next)
        if (stream->site->http->waiting(stream->request) <= STREAM_AHEAD)
            site->http->write(stream->request, ":\n\n", 3);
    (void)loop_timer_start(site->loop, &site->comment, COMMENT_SECONDS * NS_PER_S);
    site_stir(site);
}

static void on_end(void *context, unsigned events) {
    (void)events;
    struct site_stream *stream = context;
    loop_watch_stop(stream->site->loop, &stream->watch);
    stream->site->http->finish(stream->request, true);
    site_stir(stream->site);
}

void stream_begin(struct site *site, struct http_request *request, struct site_run *run) {
    struct site_stream *stream = site->n_streams < SITE_STREAMS ? calloc(1, sizeof *stream) : NULL;
    if (stream == NULL) {
        api_fail(site, request, 503, "too many pages watch already: 32 at most");
        return;
    }
    *stream = (struct site_stream){.next = site->streams, .site = site, .request = request, .run = run};
    stream->watch = (struct loop_watch){.callback = on_end, .context = stream};
    site->streams = stream;
    if (site->n_streams++ == 0) {
        site->comment = (struct loop_timer){.callback = on_comment, .context = site};
        (void)loop_timer_start(site->loop, &site->comment, COMMENT_SECONDS * NS_PER_S);
    }
    site->http->stream(request, "text/event-stream", NULL);
    site->http->write(request, ":\n\n", 3);
    (void)loop_watch_start(site->loop, &stream->watch, request->fd, LOOP_READABLE);
    if (run != NULL) {
        if (run->news.n_streams++ == 0) watch_run(run);
        run->news.last_report = run->news.last_sequence = 0; /* so that the new one hears of it all */
        run->news.dirty = true;
        arm(run);
    }
    site_stir(site);
}

void stream_gone(struct site *site, struct http_request *request) {
    struct site_stream **place = &site->streams;
    while (*place != NULL && (*place)->request != request)
        place = &(*place)->next;
    struct site_stream *stream = *place;
    if (stream == NULL) return;
    *place = stream->next;
    loop_watch_stop(site->loop, &stream->watch);
    if (--site->n_streams == 0) loop_timer_stop(site->loop, &site->comment);
    struct news *news = stream->run != NULL ? &stream->run->news : NULL;
    if (news != NULL && --news->n_streams == 0) {
        loop_timer_stop(site->loop, &news->timer);
        if (news->directory >= 0) (void)inotify_rm_watch(site->inotify, news->directory);
        if (news->logs >= 0) (void)inotify_rm_watch(site->inotify, news->logs);
        news->directory = news->logs = -1;
        hash_destroy(TAKE(news->log_sizes));
    }
    free(stream);
}

int stream_open(struct site *site, ty_error *err) {
    site->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (site->inotify < 0) return 0; /* there are no more to be had: runs are looked at every 2 s */
    site->inotify_watch = (struct loop_watch){.callback = on_inotify, .context = site};
    site->inotify_rest = (struct loop_timer){.callback = listen_to_inotify, .context = site};
    int result = loop_watch_start(site->loop, &site->inotify_watch, site->inotify, LOOP_READABLE);
    return result < 0 ? ty_fail(err, result, "cannot watch for news") : 0;
}

void stream_close(struct site *site) {
    for (struct site_stream *stream = site->streams; stream != NULL; stream = stream->next) {
        put(stream, "bye", "{}");
        site->http->finish(stream->request, true);
    }
    loop_timer_stop(site->loop, &site->comment);
    loop_watch_stop(site->loop, &site->inotify_watch);
    loop_timer_stop(site->loop, &site->inotify_rest);
    if (site->inotify >= 0) (void)close(site->inotify);
}
