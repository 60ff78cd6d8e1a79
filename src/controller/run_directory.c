/* The directory of a run: named, made, found again. A run is a directory with a journal in it; what else lies
 * there is told in docs/design.md 5.5. Who drives the run in it is told by its lock (run_lock.c). */
#include "controller/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/idset.h"
#include "base/storage.h"
#include "base/str.h"
#include "controller/site.h"
#include "journal/journal.h"
#include "run/settings.h"

/* Storage that does not answer is told, and given up. */
static const nanoseconds SLOW = 5 * NS_PER_S, LIMIT = 30 * NS_PER_S;

/* -- made */

void run_directory_make_name(char name[64]) {
    unsigned char random[2];
    struct tm now;
    time_t seconds = time(NULL);
    if (getrandom(random, sizeof random, 0) < 0) memset(random, 0, sizeof random);
    (void)localtime_r(&seconds, &now);
    size_t size = strftime(name, 64, "run-%Y%m%d-%H%M%S", &now);
    (void)snprintf(name + size, 64 - size, "-%02x%02x", random[0], random[1]);
}

static void fail_no_storage(const char *path, const char *option, ty_error *err) {
    if (errno == ENODATA)
        (void)ty_fail(err, TY_EUSAGE,
                      "storage path %s: there is no home directory, as HOME is not set and the user %u has no "
                      "entry in /etc/passwd: say with %s where runs are to be kept",
                      path, (unsigned)getuid(), option);
    else
        (void)ty_fail(err, -errno, "storage path %s: %s%s", path, strerror(errno),
                      errno == ENOENT ? " (the working directory was deleted)" : "");
}

char *run_directory_path(const char *storage_path, const char *name, enum face face, ty_error *err) {
    char option[SETTING_SPELLED];
    (void)setting_spelled(SETTING_IS_storage_path, face, option);
    struct buffer path = {0};
    ty_error failure = {0};
    if (storage_path == NULL) storage_path = getenv("TRAINYARD_STORAGE");
    if (storage_path == NULL || *storage_path == '\0') storage_path = site_storage_path(&failure);
    if (failure.code < 0) {
        (void)ty_fail(err, failure.code, "%s", failure.message);
        return NULL;
    }
    if (storage_path == NULL) storage_path = "~/trainyard_runs";
    if (storage_path_check(&storage_path, err) < 0) {
        (void)ty_wrap(err, "storage path %s", storage_path);
        return NULL;
    }
    CLEANUP_FREE char *storage = file_absolute(storage_path);
    if (storage == NULL) {
        fail_no_storage(storage_path, option, err);
        return NULL;
    }
    /* The path is part of results, of reports and of what workers are told: JSON, and lines. */
    if (!utf8_valid(storage, strlen(storage))) {
        (void)ty_fail(err, TY_EUSAGE, "the storage path %s is not UTF-8: give another with %s", storage,
                      option);
        return NULL;
    }
    if (strchr(storage, '\n') != NULL) {
        (void)ty_fail(err, TY_EUSAGE, "the storage path %s has a line end in it: give another with %s", storage,
                      option);
        return NULL;
    }
    buffer_text(&path, storage);
    if (name != NULL) buffer_printf(&path, "%s%s", str_equal(storage, "/") ? "" : "/", name);
    if (path.failed) (void)ty_fail_memory(err);
    return buffer_take(&path);
}

/* Whether files that we make there belong to the directory's owner: file systems may map users, then ids cannot
 * be compared. */
static bool is_ours(int directory, const struct stat *status) {
    char probe[64];
    struct stat made;
    if (status->st_uid == geteuid()) return true;
    /* A file without a name leaves nothing behind; NFS has none. */
    (void)snprintf(probe, sizeof probe, ".trainyard-owner-%d", getpid());
    int fd = openat(directory, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    bool named = fd < 0;
    if (named) fd = openat(directory, probe, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool same = fstat(fd, &made) == 0 && made.st_uid == status->st_uid;
    (void)close(fd);
    if (named) (void)unlinkat(directory, probe, 0);
    return same;
}

int run_directory_check_owner(int directory, const char *path, const char *what, ty_error *err) {
    struct stat status;
    if (fstat(directory, &status) < 0)
        return ty_fail(err, TY_EUSAGE, "cannot look at %s: %s", path, strerror(errno));
    bool mine = is_ours(directory, &status);
    if (mine && (status.st_mode & 0700) == 0700) return 0;
    char name[64], buffer[1024];
    struct passwd entry, *owner = NULL;
    (void)getpwuid_r(status.st_uid, &entry, buffer, sizeof buffer, &owner);
    (void)snprintf(name, sizeof name, "%.40s", owner == NULL ? "a user without a name" : owner->pw_name);
    return ty_fail(err, TY_EUSAGE, "the run %s belongs to %s (uid %u), mode %04o: %s", path, name,
                   (unsigned)status.st_uid, (unsigned)status.st_mode & 07777U,
                   mine ? "its owner must be able to read, write and enter it (chmod u+rwx)" : what);
}

/* -- the storage path: nothing of a run is there yet, and nobody hears signals for it */

struct storage_path {
    struct storage_job job;
    char *path;
    int result;
    ty_error error, *answer; /* answer: of the one who waits */
};

/* One that is there is touched, as the directory of the run will touch it: that shows whether the file system
 * takes anything. */
static void make_place(struct storage_job *job) {
    struct storage_path *place = (struct storage_path *)job;
    place->result = file_make_directories(place->path, 0777, &place->error);
    if (place->result >= 0) (void)utimensat(AT_FDCWD, place->path, NULL, 0);
}

static void answer_place(struct storage_job *job) {
    struct storage_path *place = (struct storage_path *)job;
    if (place->result < 0) *place->answer = place->error;
}

static void release_place(struct storage_job *job) {
    struct storage_path *place = (struct storage_path *)job;
    free(place->path);
    free(place);
}

/* By a thread of the storage's: a file system that hangs is told after 5 s, and given up after 30 s. */
static int make_storage_path(const char *path, ty_error *err) {
    struct storage_path *place = calloc(1, sizeof *place);
    if (place == NULL || (place->path = strdup(path)) == NULL) {
        free(place);
        return ty_fail_memory(err);
    }
    place->answer = err;
    place->job = (struct storage_job){.work = make_place,
                                      .done = answer_place,
                                      .release = release_place,
                                      .what = "making",
                                      .path = place->path,
                                      .apart = true,
                                      .bare = true};
    int result = storage_try(&place->job, SLOW, LIMIT, err);
    return result < 0 ? result : err->code;
}

static int make_directory(const char *path, bool resume, enum face face, bool *existed, ty_error *err) {
    char option[SETTING_SPELLED];
    ty_error why = {0};
    CLEANUP_FREE char *parent = strdup(path);
    if (parent == NULL) return ty_fail_memory(err);
    *strrchr(parent, '/') = '\0';
    int result = make_storage_path(parent[0] == '\0' ? "/" : parent, &why);
    if (result == -ENOMEM) return ty_fail_memory(err);
    if (result < 0)
        return ty_fail(err, TY_EUSAGE, "storage path %s: %s; give another with %s", parent, why.message,
                       setting_spelled(SETTING_IS_storage_path, face, option));
    *existed = mkdir(path, 0777) < 0;
    if (!*existed) return 0;
    if (errno != EEXIST)
        return ty_fail(err, TY_EUSAGE, "cannot make directory %s: %s; give another place with %s", path,
                       strerror(errno), setting_spelled(SETTING_IS_storage_path, face, option));
    if (resume) return 0;
    if (run_lock_is_driven(path)) return run_lock_refuse(path, err);
    if (face == FACE_COMMAND)
        return ty_fail(err, TY_EEXISTS,
                       "the run %s exists already: go on with it by adding --resume, or choose another %s",
                       path, setting_spelled(SETTING_IS_name, face, option));
    return ty_fail(err, TY_EEXISTS,
                   "the run %s exists already: resume=True beside name=\"%.80s\" goes on with it, and another "
                   "name begins a new one",
                   path, strrchr(path, '/') + 1);
}

/* Made first and locked then: of two that make the same name up one finds the directory there. What fails
 * behind that leaves no directory that was not there before. */
int run_directory_open(const char *path, bool resume, enum face face, bool *existed, struct run_lock **lock,
                       ty_error *err) {
    struct buffer logs = {0};
    int result = make_directory(path, resume, face, existed, err);
    if (result < 0) return result;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) result = ty_fail(err, TY_EUSAGE, "cannot open %s: %s", path, strerror(errno));
    if (fd < 0 && !*existed) (void)rmdir(path); /* a umask may keep us out of what we make */
    if (fd < 0) return result;
    if (*existed && run_directory_check_owner(fd, path, "only its owner can go on with it", err) < 0)
        return err->code;
    result = run_lock_take(path, lock, err);
    if (result < 0) {
        if (!*existed) (void)rmdir(path);
        return result;
    }
    buffer_printf(&logs, "%s/logs", path);
    result = logs.failed ? ty_fail_memory(err) : file_make_directories(logs.data, 0777, err);
    buffer_done(&logs);
    if (result >= 0) return TAKE_FD(fd);
    run_lock_release(TAKE(*lock), false);
    if (!*existed) run_directory_remove(path);
    return result;
}

void run_directory_remove(const char *path) {
    CLEANUP(buffer_done) struct buffer logs = {0};
    buffer_printf(&logs, "%s/logs", path);
    if (!logs.failed) (void)rmdir(logs.data);
    (void)rmdir(path);
}

/* -- found */

/* `looked`: those alone that have a journal, which may take long where a directory of them lies on storage that
 * does not answer. */
static int list(const char *directory, bool looked, char ***names, size_t *n, ty_error *err) {
    DIR *stream = opendir(directory);
    if (stream == NULL && errno == ENOENT) return 0;
    if (stream == NULL) return ty_fail(err, TY_EUSAGE, "cannot read %.300s: %s", directory, strerror(errno));
    int result = 0;
    for (struct dirent *entry = readdir(stream); entry != NULL && result >= 0; entry = readdir(stream)) {
        CLEANUP_FREE char *path = NULL;
        bool directory_or_link =
            entry->d_type == DT_DIR || entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;
        /* What begins with a dot is no run, nor what a file system keeps for itself. */
        if (!directory_or_link || entry->d_name[0] == '.' || str_equal(entry->d_name, "lost+found")) continue;
        if (looked && asprintf(&path, "%s/%s", directory, entry->d_name) < 0) path = NULL;
        if (looked && (path == NULL || journal_exists(path) <= 0)) continue;
        char *copy = ARRAY_GROW(*names, *n) < 0 ? NULL : strdup(entry->d_name);
        if (copy != NULL)
            (*names)[(*n)++] = copy;
        else
            result = ty_fail_memory(err);
    }
    (void)closedir(stream);
    return result;
}

int run_directory_candidates(const char *storage_path, char ***names, size_t *n, ty_error *err) {
    char **found = NULL;
    size_t n_found = 0;
    int result = list(storage_path, false, &found, &n_found, err);
    if (result < 0) {
        run_directory_names_free(found, n_found);
        return result;
    }
    *names = found;
    *n = n_found;
    return 0;
}

char *run_directory_storage(const char *storage_path, ty_error *err) {
    return run_directory_path(storage_path, NULL, FACE_COMMAND, err);
}

struct made_name {
    int64_t made;
    char *name;
};

static int compare_made(const void *a, const void *b) {
    const struct made_name *x = a, *y = b;
    if (x->made != y->made) return x->made < y->made ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* By when their directories were made; where the file system does not tell, when something was last made in
 * them. */
static int sort_newest_first(const char *directory, char **names, size_t n) {
    CLEANUP_FREE struct made_name *made = calloc(n + 1, sizeof *made);
    CLEANUP_FD int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (made == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct statx status = {0};
        made[i] = (struct made_name){.made = -1, .name = names[i]};
        if (statx(at, names[i], 0, STATX_BTIME | STATX_MTIME, &status) < 0) continue;
        bool born = (status.stx_mask & STATX_BTIME) != 0;
        const struct statx_timestamp *time = born ? &status.stx_btime : &status.stx_mtime;
        made[i].made = time->tv_sec * NS_PER_S + time->tv_nsec;
    }
    qsort(made, n, sizeof *made, compare_made);
    for (size_t i = 0; i < n; i++)
        names[i] = made[i].name;
    return 0;
}

int run_directory_names(const char *storage_path, char ***names, size_t *n, ty_error *err) {
    CLEANUP_FREE char *directory = run_directory_storage(storage_path, err);
    if (directory == NULL) return err->code;
    char **found = NULL;
    size_t n_found = 0;
    int result = list(directory, true, &found, &n_found, err);
    if (result >= 0 && sort_newest_first(directory, found, n_found) < 0) result = ty_fail_memory(err);
    if (result < 0) {
        run_directory_names_free(found, n_found);
        return result;
    }
    *names = found;
    *n = n_found;
    return 0;
}

void run_directory_names_free(char **names, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

char *run_directory_nearest(const char *storage_path, const char *name) {
    char **names = NULL;
    size_t n = 0, others = 0;
    ty_error own = {0};
    if (run_directory_names(storage_path, &names, &n, &own) < 0) return NULL;
    CLEANUP_FREE const char **other = calloc(n + 1, sizeof *other);
    for (size_t i = 0; other != NULL && i < n; i++)
        if (!str_equal(names[i], name)) other[others++] = names[i];
    const char *near = str_nearest(name, other, others);
    char *copy = near != NULL ? strdup(near) : NULL;
    run_directory_names_free(names, n);
    return copy;
}

char *run_directory_latest(const char *storage_path, ty_error *err) {
    CLEANUP_FREE char *directory = run_directory_storage(storage_path, err);
    char **names = NULL;
    size_t n = 0;
    if (directory == NULL || run_directory_names(storage_path, &names, &n, err) < 0) return NULL;
    char *name = n > 0 ? strdup(names[0]) : NULL;
    if (n == 0)
        (void)ty_fail(err, TY_EUSAGE, "no runs in %s; --storage-path names another place", directory);
    else if (name == NULL)
        (void)ty_fail_memory(err);
    run_directory_names_free(names, n);
    return name;
}

char *run_directory_find(const char *storage_path, const char *name, ty_error *err) {
    char **names = NULL;
    size_t n = 0;
    if (run_name_check(name, err) < 0) return NULL;
    CLEANUP_FREE char *path = run_directory_path(storage_path, name, FACE_COMMAND, err);
    if (path == NULL) return NULL;
    if (journal_exists(path) != 0) return TAKE(path); /* where nobody can tell, the reader says why */
    if (run_directory_names(storage_path, &names, &n, err) < 0) return NULL;
    const char *near = str_nearest(name, (const char *const *)names, n);
    (void)ty_fail(err, TY_EUSAGE, "no run '%.100s': %.300s has no journal%s%s%s", name, path,
                  near != NULL ? "; did you mean "
                  : n > 0      ? "; `trainyard status` lists the runs"
                               : "",
                  near != NULL ? near : "", near != NULL ? "?" : "");
    run_directory_names_free(names, n);
    return NULL;
}

int run_directory_hold(const char *path) {
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* An inode that is open keeps its number. */
bool run_directory_is_still(int held, const char *path) {
    struct stat own, now;
    return fstat(held, &own) == 0 && stat(path, &now) == 0 && file_is_same(&own, &now);
}

int run_directory_rank(const char *name, const char *ending) {
    const char *digits = NULL;
    char same[128];
    if (!str_prefix(name, "rank-", &digits)) return -1;
    long rank = strtol(digits, NULL, 10);
    if (rank < 0 || rank >= IDSET_MAX) return -1;
    (void)snprintf(same, sizeof same, "rank-%ld%s", rank, ending);
    return str_equal(same, name) ? (int)rank : -1;
}
