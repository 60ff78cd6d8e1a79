/* `trainyard logs`: what the workers of a run wrote, from its logs/rank-N.log; with --follow also what they go
 * on to write. Nothing is asked of the run: what is in its files is what is shown, and who writes them may cut,
 * replace or remove them meanwhile. Where inotify tells of news only the files that have any are read. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/idset.h"
#include "base/log_file.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"

struct logs_options {
    struct rank_choice wanted;
    int64_t tail; /* -1: all */
    bool follow, no_prefix;
};

/* An empty set would show nothing, and look like a run that wrote nothing. */
static int set_ranks(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    int result = option_ranks(option, target, value, err);
    if (result == 0 && idset_count(&((struct logs_options *)target)->wanted.ranks) == 0)
        return ty_fail(err, TY_EUSAGE, "must be a rank, or ranks as in 0-3,7");
    return result;
}

static int set_tail(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    return option_whole(value, 0, INT32_MAX, &((struct logs_options *)target)->tail, err);
}

#define AT(field) offsetof(struct logs_options, field)

static const struct option_spec specs[] = {
    {"rank", 0, "R[,R-R...]", "only these ranks", set_ranks, offsetof(struct logs_options, wanted), NULL},
    {"follow", 'f', NULL, "go on with what is written until the run ends", option_flag, AT(follow), NULL},
    {"tail", 0, "N", "only the last N lines of each rank", set_tail, 0, NULL},
    {"no-prefix", 0, NULL, "lines as they are, without [rank N]", option_flag, AT(no_prefix), NULL},
};
static const struct option_group logs_group = {"Options", specs, ARRAY_SIZE(specs)};

/* One rank's file, read from its front to its end. */
struct shown_log {
    int rank, fd;
    struct buffer line; /* the beginning of a line whose end is not written yet */
};

struct log_view {
    const struct logs_options *options;
    char *directory;
    int held;                /* of the run's directory; -1: it is gone */
    int fd;                  /* of the directory in it; -1: there was none yet */
    bool escape;             /* standard output is a terminal */
    struct shown_log *files; /* by rank */
    size_t n;
    struct idset known;   /* their ranks */
    struct idset changed; /* ranks whose files are new, or may have more than was read */
    struct buffer out;
};

#define LOGS "logs" /* in the run's directory */
enum { LOG_EVENTS = IN_CREATE | IN_MODIFY | IN_MOVED_TO };
enum { LOG_CHUNK = 64 * 1024, LINE_MAX_HELD = 1024 * 1024, LOOK_MS = 500, LOOK_REST = 10 };

static void put_line(struct log_view *logs, int rank, const char *text, size_t size) {
    if (!logs->options->no_prefix) buffer_printf(&logs->out, "[rank %d] ", rank);
    if (logs->escape)
        utf8_escape(text, size, &logs->out);
    else
        buffer_append(&logs->out, text, size);
    buffer_char(&logs->out, '\n');
}

/* Where in a log a byte stands that is at `position` of the file, had nothing been left out of it. The mark may
 * be anywhere in a file that is, since it has one, not large. */
static int64_t place_in_log(int fd, int64_t position, int64_t *mark_end, uint64_t *left_out) {
    CLEANUP(buffer_done) struct buffer text = {0};
    size_t offset;
    ssize_t size;
    *mark_end = 0;
    *left_out = 0;
    for (int64_t at = 0;; at += size) {
        char *room = buffer_reserve(&text, LOG_CHUNK);
        size = room == NULL ? 0 : pread(fd, room, LOG_CHUNK, at);
        if (size <= 0) break;
        size_t kept = text.size;
        text.size += (size_t)size;
        if (log_mark_find(text.data, text.size, &offset, left_out)) {
            *mark_end = at - (int64_t)kept + (int64_t)offset + LOG_MARK_SIZE;
            break;
        }
        if (text.size > LOG_MARK_SIZE) buffer_consume(&text, text.size - LOG_MARK_SIZE);
    }
    return position < *mark_end ? position : position - LOG_MARK_SIZE * (*mark_end > 0) + (int64_t)*left_out;
}

/* A log that has reached its limit is written anew and takes the old one's place (base/log_file.h). Goes on in
 * the new one, where the old one, of which all is printed, ended; where that was removed, at its front, which
 * repeats what was written meanwhile. True when there is one. */
static bool change_over(struct log_view *logs, struct shown_log *file) {
    struct stat old, new;
    int64_t mark_end;
    uint64_t left_out;
    char name[32];
    (void)snprintf(name, sizeof name, "rank-%d.log", file->rank);
    if (fstat(file->fd, &old) < 0 || fstatat(logs->fd, name, &new, AT_SYMLINK_NOFOLLOW) < 0 ||
        old.st_ino == new.st_ino)
        return false;
    int fd = openat(logs->fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    int64_t end = place_in_log(file->fd, lseek(file->fd, 0, SEEK_CUR), &mark_end, &left_out);
    (void)place_in_log(fd, 0, &mark_end, &left_out);
    int64_t position = mark_end == 0 ? 0 : end - (int64_t)left_out + LOG_MARK_SIZE;
    (void)lseek(fd, position < mark_end ? mark_end - LOG_MARK_SIZE : position, SEEK_SET);
    (void)close(file->fd);
    file->fd = fd;
    return true;
}

/* Whoever wants the room of a log may cut it while it is written: what comes then is read from its
 * beginning. */
static bool begin_anew(const struct shown_log *file) {
    struct stat status;
    return fstat(file->fd, &status) == 0 && status.st_size < lseek(file->fd, 0, SEEK_CUR) &&
           lseek(file->fd, 0, SEEK_SET) == 0;
}

/* Whole lines go out; what is left waits for its newline, but not without bound. */
static void put_lines(struct log_view *logs, struct shown_log *file, bool last) {
    size_t at = 0;
    for (char *text, *end; at < file->line.size; at += (size_t)(end - text) + 1) {
        text = file->line.data + at;
        end = memchr(text, '\n', file->line.size - at);
        if (end == NULL) break;
        put_line(logs, file->rank, text, (size_t)(end - text));
    }
    buffer_consume(&file->line, at);
    if (file->line.size == 0 || (!last && file->line.size < LINE_MAX_HELD)) return;
    put_line(logs, file->rank, file->line.data, file->line.size);
    buffer_clear(&file->line);
}

/* Prints what the file has beyond what was read. */
static int drain(struct log_view *logs, struct shown_log *file, bool last, ty_error *err) {
    for (;;) {
        char *room = buffer_reserve(&file->line, LOG_CHUNK);
        if (room == NULL) return ty_fail_memory(err);
        ssize_t size = read(file->fd, room, LOG_CHUNK);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0)
            return ty_fail(err, -errno, "cannot read %.200s/rank-%d.log: %s", logs->directory, file->rank,
                           strerror(errno));
        file->line.size += (size_t)size;
        if (size == 0 && (change_over(logs, file) || begin_anew(file))) continue;
        put_lines(logs, file, last && size == 0);
        int result = cli_print(&logs->out, err);
        buffer_clear(&logs->out);
        if (result < 0 || size == 0) return result;
    }
}

/* Moves to where the last `lines` lines begin, looking back from the end. */
static void seek_tail(int fd, int64_t lines) {
    off_t at = lseek(fd, 0, SEEK_END);
    char chunk[4096];
    bool at_end = true; /* the newline that ends the file ends its last line, and begins none */
    while (at > 0) {
        size_t size = at < (off_t)sizeof chunk ? (size_t)at : sizeof chunk;
        if (pread(fd, chunk, size, at - (off_t)size) != (ssize_t)size) break;
        for (size_t i = size; i > 0; i--) {
            if (chunk[i - 1] == '\n' && !at_end && --lines <= 0) {
                (void)lseek(fd, at - (off_t)size + (off_t)i, SEEK_SET);
                return;
            }
            at_end = false;
        }
        at -= (off_t)size;
    }
    (void)lseek(fd, 0, SEEK_SET);
}

static int add_file(struct log_view *logs, const char *name, int rank, bool tail, ty_error *err) {
    bool wanted = !logs->options->wanted.chosen || idset_has(&logs->options->wanted.ranks, rank);
    if (!wanted || idset_has(&logs->known, rank)) return 0;
    if (ARRAY_GROW(logs->files, logs->n) < 0) return ty_fail_memory(err);
    struct stat status;
    const char *in = logs->directory;
    /* A link is none that we made, and may lead to what whoever looks may read, and its owner may not. */
    int fd = openat(logs->fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return ty_fail(err, TY_ECORRUPT, "cannot read %.300s/%s: it is no regular file, but a link", in, name);
    if (fd < 0) return ty_fail(err, -errno, "cannot read %.300s/%s: %s", in, name, strerror(errno));
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        (void)close(fd);
        return ty_fail(err, TY_ECORRUPT, "cannot read %.300s/%s: it is no regular file", in, name);
    }
    if (idset_add(&logs->known, rank) < 0) {
        (void)close(fd);
        return ty_fail_memory(err);
    }
    if (tail && logs->options->tail == 0) (void)lseek(fd, 0, SEEK_END);
    if (tail && logs->options->tail > 0) seek_tail(fd, logs->options->tail);
    logs->files[logs->n++] = (struct shown_log){.rank = rank, .fd = fd};
    return 0;
}

static int compare_ranks(const void *a, const void *b) {
    return ((const struct shown_log *)a)->rank - ((const struct shown_log *)b)->rank;
}

static int fail_directory(const struct log_view *logs, ty_error *err) {
    return ty_fail(err, -errno, "cannot read %.300s: %s", logs->directory, strerror(errno));
}

/* Whoever removed the directory of the logs has others in a new one, made by those who write. */
static void renew_directory(struct log_view *logs) {
    struct stat known, now;
    if (logs->held < 0 || fstatat(logs->held, LOGS, &now, AT_SYMLINK_NOFOLLOW) < 0) return;
    if (logs->fd >= 0 && fstat(logs->fd, &known) == 0 && known.st_ino == now.st_ino) return;
    int fd = openat(logs->held, LOGS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    cleanup_fd(&logs->fd);
    logs->fd = fd;
}

/* By rank: in that order what is there is shown, and drain_changed finds a file. */
static void sort_files(struct log_view *logs) {
    if (logs->n > 0) qsort(logs->files, logs->n, sizeof *logs->files, compare_ranks);
}

/* Opens the files that are there and not yet open. */
static int find_files(struct log_view *logs, bool tail, ty_error *err) {
    renew_directory(logs);
    int fd = logs->fd < 0 ? -1 : openat(logs->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return logs->fd < 0 || errno == ENOENT ? 0 : fail_directory(logs, err);
    DIR *stream = fdopendir(fd);
    if (stream == NULL) {
        (void)close(fd);
        return ty_fail_memory(err);
    }
    int result = 0;
    for (struct dirent *entry = readdir(stream); entry != NULL && result >= 0; entry = readdir(stream)) {
        int rank = run_directory_rank(entry->d_name, ".log");
        if (rank >= 0) result = add_file(logs, entry->d_name, rank, tail, err);
    }
    (void)closedir(stream);
    sort_files(logs);
    return result;
}

static int drain_all(struct log_view *logs, bool last, ty_error *err) {
    int result = 0;
    for (size_t i = 0; i < logs->n && result >= 0; i++)
        result = drain(logs, &logs->files[i], last, err);
    return result;
}

static bool stands_before(const void *item, const void *rank) {
    return ((const struct shown_log *)item)->rank < *(const int *)rank;
}

/* What is new of those that have changed, and no look at the others: there may be thousands. */
static int drain_changed(struct log_view *logs, ty_error *err) {
    int result = 0;
    size_t n = logs->n;
    char name[32];
    for (int64_t rank = -1; result >= 0 && (rank = idset_next(&logs->changed, rank)) != IDSET_END;) {
        (void)snprintf(name, sizeof name, "rank-%d.log", (int)rank);
        result = add_file(logs, name, (int)rank, false, err);
        if (result == -ENOENT) result = 0; /* somebody removed it again */
    }
    if (logs->n > n) sort_files(logs);
    for (int64_t next = -1; result >= 0 && (next = idset_next(&logs->changed, next)) != IDSET_END;) {
        int rank = (int)next;
        size_t at = array_place(logs->files, logs->n, sizeof *logs->files, stands_before, &rank);
        if (at < logs->n && logs->files[at].rank == rank) result = drain(logs, &logs->files[at], false, err);
    }
    idset_done(&logs->changed);
    return result;
}

/* Looks until no controller has the run any longer, then closes the pipe's end: to wait for the lock would be
 * to take it, and a reader takes none. A run that was removed has ended, whatever has its name by now. */
struct end_watch {
    const char *run_path;
    int held, pipe;
};

static void *watch_end(void *context) {
    const struct end_watch *watch = context;
    const struct timespec moment = {.tv_nsec = 200 * NS_PER_MS};
    while (run_directory_is_still(watch->held, watch->run_path) && run_lock_is_held(watch->run_path))
        (void)nanosleep(&moment, NULL);
    (void)close(watch->pipe);
    return NULL;
}

/* IN_ONLYDIR: where a link or a file stands in the place of a directory nothing is watched, and the logs are
 * looked at again and again. */
static bool watch_directory(int notify, const char *path, uint32_t events) {
    return inotify_add_watch(notify, path, events | IN_ONLYDIR) >= 0;
}

/* Where news of the logs, and of their directory, comes; -1 where none does: there is no inotify to be had, or
 * another machine may write them. Then they are looked at again and again. */
static int watch_logs(const struct log_view *logs, const char *run_path) {
    if (logs->held < 0 || !file_is_local(logs->held)) return -1;
    CLEANUP_FD int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (notify < 0 || !watch_directory(notify, run_path, IN_CREATE | IN_MOVED_TO)) return -1;
    if (!watch_directory(notify, logs->directory, LOG_EVENTS) && errno != ENOENT) return -1;
    return TAKE_FD(notify);
}

/* Notes which files have changed; false where that is not known, as of those of a new directory. */
static bool take_news(struct log_view *logs, int notify) {
    _Alignas(struct inotify_event) char events[16 * 1024];
    ssize_t size = read(notify, events, sizeof events);
    for (ssize_t at = 0; at < size;) {
        const struct inotify_event *event = (const struct inotify_event *)(const void *)&events[at];
        int rank = event->len > 0 ? run_directory_rank(event->name, ".log") : -1;
        at += (ssize_t)(sizeof *event + event->len);
        if ((event->mask & IN_Q_OVERFLOW) != 0) return false;
        if (event->len > 0 && str_equal(event->name, LOGS)) {
            (void)watch_directory(notify, logs->directory, LOG_EVENTS); /* if it is gone, another one is news */
            return false;
        }
        if (rank >= 0 && idset_add(&logs->changed, rank) < 0) return false;
    }
    return true;
}

/* The end of the run is looked for before the last look at the logs begins: what was written by then is shown.
 * Where nothing tells of news, looks take a tenth of the time at most. */
static int follow(struct log_view *logs, const char *run_path, ty_error *err) {
    static struct end_watch watch; /* with its thread it stays as long as this process */
    int ends[2];
    pthread_t thread;
    CLEANUP_FD int notify = watch_logs(logs, run_path);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ty_fail(err, -errno, "cannot watch %.300s: %s", run_path, strerror(errno));
    CLEANUP_FD int end = ends[0]; /* hangs up when the run is over */
    watch = (struct end_watch){run_path, logs->held, ends[1]};
    int result = -pthread_create(&thread, NULL, watch_end, &watch);
    if (result < 0) return ty_fail(err, result, "cannot watch %.300s: %s", run_path, strerror(-result));
    (void)pthread_detach(thread);
    struct pollfd watched[] = {{.fd = notify, .events = POLLIN}, {.fd = end, .events = POLLIN}};
    for (bool over = false, all = true;; over = watched[1].revents != 0) {
        nanoseconds began = clock_monotonic();
        if (all || over) {
            result = find_files(logs, false, err);
            if (result >= 0) result = drain_all(logs, over, err);
        } else {
            result = drain_changed(logs, err);
        }
        if (over || result < 0) return result;
        int rest = (int)((clock_monotonic() - began) / NS_PER_MS) * LOOK_REST;
        if (rest < LOOK_MS) rest = LOOK_MS;
        while (poll(watched, ARRAY_SIZE(watched), notify < 0 ? rest : -1) < 0 && errno == EINTR)
            continue;
        all = notify < 0;
        if (watched[0].revents != 0) all = !take_news(logs, notify);
    }
}

/* A rank that was asked for and has written nothing. Of a run that is followed this is known at its end: until
 * then an elastic run may grow, and a rank may be silent. */
static int check_ranks(const struct log_view *logs, const char *name, ty_error *err) {
    const struct idset *ranks = rank_choice_get(&logs->options->wanted);
    for (int64_t rank = -1; ranks != NULL && (rank = idset_next(ranks, rank)) >= 0;)
        if (!idset_has(&logs->known, rank))
            return ty_fail(err, TY_EUSAGE, "--rank %lld: run %.100s has no log of that rank", (long long)rank,
                           name);
    return 0;
}

/* Without it the end would look like that of the run. */
static void tell_removal(const char *name) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text, "%.100s was removed while it was followed", name);
    if (!text.failed) terminal_warning("logs", text.data);
}

static int show(struct log_view *logs, const char *name, const char *run_path, ty_error *err) {
    logs->directory = str_format("%s/" LOGS, run_path);
    if (logs->directory == NULL) return ty_fail_memory(err);
    /* To the end of this process: the thread that sees the run end has it. */
    logs->held = run_directory_hold(run_path);
    if (logs->held >= 0) logs->fd = openat(logs->held, LOGS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (logs->fd < 0 && errno != ENOENT) return fail_directory(logs, err);
    int result = find_files(logs, true, err);
    if (result < 0) return result;
    if (!logs->options->follow) {
        result = check_ranks(logs, name, err);
        return result < 0 ? result : drain_all(logs, true, err);
    }
    result = follow(logs, run_path, err);
    if (result < 0) return result;
    if (run_directory_is_still(logs->held, run_path)) return check_ranks(logs, name, err);
    tell_removal(name);
    return 0;
}

static int logs_run(const struct arguments *arguments, ty_error *err) {
    struct logs_options options = {.tail = -1};
    struct storage_options storage = {0};
    struct rlimit before;
    descriptors_raise_limit(&before); /* each rank's file is open */
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    CLEANUP_FREE char *path = NULL, *latest = NULL;
    const char *name = arguments->words[0];
    if (result >= 0 && name == NULL) name = latest = run_directory_latest(storage.storage_path, err);
    if (result >= 0 && name != NULL) path = submitted_find_run(storage.storage_path, name, err);
    if (result >= 0 && path == NULL) result = err->code;
    if (result >= 0) {
        struct log_view logs = {
            .options = &options, .held = -1, .fd = -1, .escape = isatty(STDOUT_FILENO) != 0};
        result = show(&logs, name, path, err);
        for (size_t i = 0; i < logs.n; i++) {
            (void)close(logs.files[i].fd);
            buffer_done(&logs.files[i].line);
        }
        free(logs.files);
        idset_done(&logs.known);
        idset_done(&logs.changed);
        free(logs.directory);
        cleanup_fd(&logs.fd);
        buffer_done(&logs.out);
    }
    idset_done(&options.wanted.ranks);
    return result;
}

const struct command command_logs = {
    .name = "logs",
    .summary = "show what the workers of a run wrote",
    .usage = (const char *const[]){"[NAME] [OPTION...]", NULL},
    .description = "Without NAME: of the run that was begun last. The whole output of each rank, in rank "
                   "order, each line with its rank in front. On a terminal "
                   "control characters are shown, not obeyed; elsewhere the bytes are as they were written.",
    .groups = (const struct option_group *const[]){&logs_group, &storage_group, NULL},
    .max_words = 1,
    .run = logs_run,
};
