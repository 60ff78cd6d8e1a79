/* What is new in a run. A run is looked at only while somebody watches it: when the kernel tells of writes, and
 * every 2 s. Nobody tells of what other hosts write; and a transaction is seen only some time after its bytes
 * were written, of which nobody tells either. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "journal/journal.h"
#include "usage/usage.h"
#include "view/summary.h"
#include "web/site.h"

enum {
    REST_MS = 50,
    NEWS_MS = 250,
    DEAR_MS = 800, /* a report is to be seen within a second */
    POLL_MS = 2000,
    SLOW_MS = 20000,
    LOGS_TOLD = 64,
    SILENCE_S = 30
};

#define MINUTE (60 * NS_PER_S)

/* How long to rest behind what took so long, so that it is done in such a part of the time: a fiftieth of what
 * is looked at seldom, a hundredth of what a run that trains has to give away. */
enum { FIFTIETH = 49, HUNDREDTH = 99 };
static nanoseconds rest_behind(nanoseconds took, int part, nanoseconds least_ms, nanoseconds most_ms) {
    nanoseconds rest = part * took, least = least_ms * NS_PER_MS, most = most_ms * NS_PER_MS;
    return rest < least ? least : rest > most ? most : rest;
}

/* -- a look, in the run's lane */

struct log_size {
    int rank;
    int64_t size;
};

struct look_job {
    struct lane_job base;
    struct site_run *run;
    struct news_known told, there;
    bool replaced; /* another journal is in the place of the one that was told of */
    nanoseconds spent;
    bool silent; /* nothing came for a while */
    int result;
    int inotify, directory, logs; /* watches that stand now */
    bool scans;                   /* looks at all logs, not only at those that were written */
    nanoseconds scan_took;
    struct idset written; /* ranks */
    struct hash *sizes;   /* what was told of the logs, lent by news */
    struct log_size changed[LOGS_TOLD];
    size_t n_changed; /* beyond LOGS_TOLD they are only counted */
};

/* A watch stands on a directory, not on its name: it is set anew each time, which changes nothing while the
 * directory is the same. */
static int watch(const struct look_job *job, const char *name, uint32_t events) {
    CLEANUP_FREE char *path = str_format("%s%s", job->run->path, name);
    return path == NULL || job->inotify < 0 ? -1 : inotify_add_watch(job->inotify, path, events | IN_ONLYDIR);
}

/* The journal is the one that was told of where it has the last event of that. */
static int on_event(void *context, int64_t sequence, const struct journal_event *event) {
    struct look_job *job = context;
    if (sequence == job->told.sequence && event->time == job->told.event_time) job->replaced = false;
    if (job->replaced) return 1;
    job->there.sequence = sequence;
    job->there.event_time = event->time;
    return 0;
}

/* One event more is read than is new: the last that was told of shows that the journal is still the same
 * one. */
static int read_news(void *context, struct journal *journal, ty_error *err) {
    struct look_job *job = context;
    uint64_t count = 0;
    job->there.sequence = job->told.sequence;
    job->replaced = job->told.sequence > 0;
    int result = journal_each_event(journal, job->told.sequence - 1, on_event, job, err);
    if (result < 0 || job->replaced) return result; /* a replaced one is looked at as one that is new */
    result = journal_count_reports(journal, &count, err);
    job->there.reports = (int64_t)count;
    return result;
}

/* By its log, or itself without one; 0: there is none. */
static int64_t sampled_at(const char *run_path) {
    static const char *const names[] = {"-wal", ""};
    struct stat status;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        CLEANUP_FREE char *path = str_format("%s/" USAGE_DB_NAME "%s", run_path, names[i]);
        if (path != NULL && lstat(path, &status) == 0)
            return status.st_mtim.tv_sec * NS_PER_S + status.st_mtim.tv_nsec;
    }
    return 0;
}

/* What changed is told one by one, or only that many did. */
static void look_at_log(struct look_job *job, int directory, int rank) {
    struct stat status;
    char name[32], key[16];
    (void)snprintf(name, sizeof name, "rank-%d.log", rank);
    (void)snprintf(key, sizeof key, "%d", rank);
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode)) return;
    const uintptr_t *told = hash_get(job->sizes, key);
    if (told != NULL && *told == (uintptr_t)status.st_size) return;
    (void)hash_set(job->sizes, key, (uintptr_t)status.st_size);
    if (job->n_changed < LOGS_TOLD) job->changed[job->n_changed] = (struct log_size){rank, status.st_size};
    job->n_changed++;
}

static void look_at_logs(struct look_job *job) {
    CLEANUP_FREE char *path = str_format("%s/logs", job->run->path);
    int fd = path != NULL ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (entries == NULL) {
        cleanup_fd(&fd);
        return;
    }
    nanoseconds began = clock_monotonic();
    for (int64_t rank = -1; !job->scans && (rank = idset_next(&job->written, rank)) != IDSET_END;)
        look_at_log(job, fd, (int)rank);
    for (struct dirent *entry; job->scans && (entry = readdir(entries)) != NULL;) {
        int rank = run_directory_rank(entry->d_name, ".log");
        if (rank >= 0) look_at_log(job, fd, rank);
    }
    job->scan_took = clock_monotonic() - began;
    (void)closedir(entries);
}

static bool came(const struct news_known *before, const struct news_known *now) {
    return now->sequence != before->sequence || now->reports != before->reports || now->held != before->held;
}

/* What the journal does not tell. Its summary, which says when the run is quiet, is read at first and once in a
 * silence. */
static void look_beside(struct look_job *job) {
    struct news_known *there = &job->there;
    const char *path = job->run->path;
    there->sampled = sampled_at(path);
    there->held = run_lock_is_driven(path);
    if (came(&job->told, there)) there->quiet_from = there->quiet = 0;
    struct view_summary summary = {0};
    if ((job->silent || job->told.sequence == 0) && there->quiet_from == 0 &&
        view_summary_read(job->run->name, path, &summary, NULL) >= 0) {
        nanoseconds from = view_summary_quiet_from(&summary);
        there->quiet_from = from > 0 ? from : INT64_MAX;
        view_summary_done(&summary);
    }
    nanoseconds now = clock_wall();
    if (there->quiet_from > 0 && now > there->quiet_from) there->quiet = 1 + (now - there->quiet_from) / MINUTE;
}

/* In the run's lane. Watches are set before the files are looked at: what is written later wakes us again. A
 * journal that is busy is no news; one that cannot be read is, and what was told of it stays. */
static void look(struct lane_job *base) {
    struct look_job *job = (struct look_job *)base;
    nanoseconds began = clock_thread();
    const char *path = job->run->path;
    ty_error err = {0};
    job->directory = watch(job, "", IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVE | IN_DELETE_SELF);
    job->logs = watch(job, "/logs", IN_MODIFY | IN_CREATE | IN_DONT_FOLLOW);
    int exists = journal_exists(path);
    job->result = exists > 0 ? journal_read(path, read_news, job, &err) : exists;
    if (job->result < 0) job->there = job->told;
    bool gone = exists == 0 || job->replaced;
    if (gone) job->there = (struct news_known){0};
    job->there.gone = gone;
    if (job->result != -EBUSY) job->there.error = job->result < 0 ? job->result : 0;
    if (!gone) look_beside(job);
    look_at_logs(job);
    job->spent = clock_thread() - began;
}

static void free_look(struct lane_job *base) {
    struct look_job *job = (struct look_job *)base;
    idset_done(&job->written);
    hash_destroy(job->sizes);
    free(job);
}

/* -- what it found, on the loop */

static void arm(struct site_run *run);

static void tell_logs(const struct look_job *job) {
    for (size_t i = 0; i < job->n_changed && job->n_changed <= LOGS_TOLD; i++) {
        char data[64];
        (void)snprintf(data, sizeof data, "{\"rank\": %d, \"size\": %lld}", job->changed[i].rank,
                       (long long)job->changed[i].size);
        stream_tell(job->run->site, job->run, "logs", data);
    }
    if (job->n_changed > LOGS_TOLD) stream_tell(job->run->site, job->run, "logs", "{}");
}

/* A run that is gone may come again, under its name: it is looked for every 2 s. */
static void tell_news(struct site_run *run, const struct news_known *there) {
    struct news_known *told = &run->news.told;
    char data[64];
    if (there->gone && !told->gone) {
        stream_tell(run->site, run, "gone", "{}");
        indexing_begin(run); /* which forgets all of it */
    }
    if (!there->gone && (there->sequence != told->sequence || there->error != told->error ||
                         there->held != told->held || there->quiet != told->quiet))
        stream_tell(run->site, run, "run", "{}");
    if (!there->gone && there->reports != told->reports) {
        (void)snprintf(data, sizeof data, "{\"id\": %lld}", (long long)there->reports);
        stream_tell(run->site, run, "reports", data);
        if (told->reports == 0) indexing_begin(run); /* somebody has come; from then on answers take it along */
    }
    if (!there->gone && there->sampled != told->sampled) stream_tell(run->site, run, "usage", "{}");
    if (came(told, there)) run->news.heard = run->news.looked;
    *told = *there;
}

/* What is written between the setting of a watch and this moment nobody took note of: another look follows. */
static void keep_watch(struct site_run *run, int *kept, int now) {
    if (*kept == now) return;
    if (*kept >= 0) (void)inotify_rm_watch(run->site->inotify, *kept);
    *kept = now;
    if (now >= 0) run->news.dirty = true;
    run->news.scan_due = 0;
}

static void drop_watches(struct site_run *run) {
    keep_watch(run, &run->news.directory, -1);
    keep_watch(run, &run->news.logs, -1);
}

/* On the loop. What a look found is told to those who watch by now; sizes that were lent for it come back
 * unless somebody came meanwhile, who is to be told of all logs. */
static void looked(struct lane_job *base) {
    struct look_job *job = (struct look_job *)base;
    struct site_run *run = job->run;
    struct news *news = &run->news;
    news->looking = false;
    news->looked = loop_now(run->site->loop);
    news->spent += job->spent;
    if (job->scans) news->scan_due = news->looked + rest_behind(job->scan_took, FIFTIETH, POLL_MS, SLOW_MS);
    keep_watch(run, &news->directory, job->directory);
    keep_watch(run, &news->logs, job->logs);
    if (job->replaced) news->dirty = true;
    if (job->result == -EBUSY) { /* what is new is told 2 s from now */
        news->dirty = true;
        news->looked += (POLL_MS - NEWS_MS) * NS_PER_MS;
    }
    if (news->n_streams == 0) {
        drop_watches(run);
    } else {
        tell_news(run, &job->there);
        tell_logs(job);
        if (!news->anew) news->sizes = TAKE(job->sizes);
    }
    free_look(base);
    arm(run);
}

/* Begins a look with all that it needs: what is lent to it (sizes, written) the loop does not touch until it is
 * back. */
static void on_due(void *context) {
    struct site_run *run = context;
    struct site *site = run->site;
    struct news *news = &run->news;
    struct look_job *job = calloc(1, sizeof *job);
    if (job != NULL) job->sizes = news->sizes != NULL ? TAKE(news->sizes) : hash_create();
    if (job == NULL || job->sizes == NULL) {
        free(job);
        news->looked = loop_now(site->loop);
        arm(run);
        return;
    }
    job->base = (struct lane_job){.work = look, .done = looked, .drop = free_look};
    job->run = run;
    job->told = job->there = news->told;
    job->inotify = site->inotify;
    job->silent = loop_now(site->loop) - news->heard >= SILENCE_S * NS_PER_S;
    job->scans = news->anew || loop_now(site->loop) >= news->scan_due;
    job->written = news->written;
    news->written = (struct idset){0};
    news->anew = news->dirty = false;
    news->looking = true;
    news->spent = 0;
    lane_post(site->lanes, &run->lane, &job->base);
}

/* At most 4 looks a second, and no more than what is asked for upon them allows. */
static void arm(struct site_run *run) {
    struct news *news = &run->news;
    struct site *site = run->site;
    if (news->n_streams == 0 || news->looking) return;
    nanoseconds rest =
        news->dirty ? rest_behind(news->spent, HUNDREDTH, NEWS_MS, DEAR_MS) : POLL_MS * NS_PER_MS;
    nanoseconds due = news->looked + rest - loop_now(site->loop);
    loop_timer_stop(site->loop, &news->timer);
    news->timer = (struct loop_timer){.callback = on_due, .context = run};
    (void)loop_timer_start(site->loop, &news->timer, due > 0 ? due : 0);
}

void news_spend(struct site_run *run, nanoseconds spent) {
    run->news.spent += spent;
    arm(run);
}

/* All that watch are told of everything again: one event more for each costs less than to keep what each was
 * told. */
void news_begin(struct site_run *run) {
    struct news *news = &run->news;
    news->n_streams++;
    news->told = (struct news_known){0};
    hash_destroy(TAKE(news->sizes));
    news->anew = news->dirty = true;
    arm(run);
}

void news_end(struct site_run *run) {
    struct news *news = &run->news;
    if (--news->n_streams > 0) return;
    loop_timer_stop(run->site->loop, &news->timer);
    drop_watches(run);
    hash_destroy(TAKE(news->sizes));
    idset_done(&news->written);
}

/* -- the list of runs: looked at every 2 s */

struct list_job {
    struct lane_job base;
    struct site *site;
    uint64_t cursor;
    bool failed;
    nanoseconds took;
};

static void look_at_list(struct lane_job *base) {
    struct list_job *job = (struct list_job *)base;
    nanoseconds began = clock_monotonic();
    job->failed = view_runs_look(job->site->list, NULL) < 0;
    job->cursor = view_runs_cursor(job->site->list);
    job->took = clock_monotonic() - began;
}

static void on_list_due(void *context);

static void arm_list(struct site *site, nanoseconds due) {
    struct list_news *news = &site->list_news;
    if (news->n_streams == 0 || news->looking) return;
    news->timer = (struct loop_timer){.callback = on_list_due, .context = site};
    (void)loop_timer_start(site->loop, &news->timer, due);
}

static void looked_at_list(struct lane_job *base) {
    struct list_job *job = (struct list_job *)base;
    struct site *site = job->site;
    struct list_news *news = &site->list_news;
    nanoseconds rest = rest_behind(job->took, FIFTIETH, POLL_MS, SLOW_MS);
    news->looking = false;
    if (job->cursor != news->told || job->failed != news->failed) stream_tell(site, NULL, "run", "{}");
    news->told = job->cursor;
    news->failed = job->failed;
    free(job);
    arm_list(site, rest);
}

static void on_list_due(void *context) {
    struct site *site = context;
    struct list_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        arm_list(site, POLL_MS * NS_PER_MS);
        return;
    }
    job->base = (struct lane_job){.work = look_at_list, .done = looked_at_list};
    job->site = site;
    site->list_news.looking = true;
    lane_post(site->lanes, &site->list_lane, &job->base);
}

void list_news_begin(struct site *site) {
    site->list_news.n_streams++;
    site->list_news.told = 0;
    loop_timer_stop(site->loop, &site->list_news.timer);
    arm_list(site, 0);
}

void list_news_end(struct site *site) {
    if (--site->list_news.n_streams == 0) loop_timer_stop(site->loop, &site->list_news.timer);
}

/* -- what the kernel tells */

/* A watch is of a directory: its runs are found by its number. Logs that the kernel names are looked at
 * alone. */
static void on_change(struct site *site, const struct inotify_event *event) {
    uintptr_t value;
    for (size_t at = 0; hash_next(site->runs, &at, &value) != NULL;) {
        struct site_run *run = (struct site_run *)value;
        struct news *news = &run->news;
        bool lost = (event->mask & IN_Q_OVERFLOW) != 0; /* of which run, and which log, nobody knows */
        if (news->n_streams == 0 || (!lost && event->wd != news->directory && event->wd != news->logs))
            continue;
        int rank = event->wd == news->logs && event->len > 0 ? run_directory_rank(event->name, ".log") : -1;
        if (lost) news->scan_due = 0;
        if (rank >= 0 && idset_add(&news->written, rank) < 0) news->scan_due = 0;
        news->dirty = true;
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

/* The descriptor is that of all runs, each of which has two watches while it is watched. */
int news_open(struct site *site, ty_error *err) {
    site->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (site->inotify < 0) return 0; /* there are no more to be had: runs are looked at every 2 s */
    site->inotify_watch = (struct loop_watch){.callback = on_inotify, .context = site};
    site->inotify_rest = (struct loop_timer){.callback = listen_to_inotify, .context = site};
    int result = loop_watch_start(site->loop, &site->inotify_watch, site->inotify, LOOP_READABLE);
    return result < 0 ? ty_fail(err, result, "cannot watch for news") : 0;
}

void news_close(struct site *site) {
    if (site->inotify < 0) return;
    loop_watch_stop(site->loop, &site->inotify_watch);
    loop_timer_stop(site->loop, &site->inotify_rest);
    (void)close(site->inotify);
}
