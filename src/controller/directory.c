/* Names and paths of runs. */
#include "controller/directory.h"

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

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/utf8.h"
#include "controller/controller.h"

void controller_make_name(char name[64]) {
    unsigned char random[2];
    struct tm now;
    time_t seconds = time(NULL);
    if (getrandom(random, sizeof random, 0) < 0) memset(random, 0, sizeof random);
    (void)localtime_r(&seconds, &now);
    size_t size = strftime(name, 64, "run-%Y%m%d-%H%M%S", &now);
    (void)snprintf(name + size, 64 - size, "-%02x%02x", random[0], random[1]);
}

char *controller_run_path(const char *storage_path, const char *name, ty_error *err) {
    const char *site = getenv("TRAINYARD_STORAGE");
    struct buffer path = {0};
    if (storage_path == NULL) storage_path = site != NULL && *site != '\0' ? site : "~/trainyard_runs";
    if (strstr(storage_path, "://") != NULL) {
        (void)ty_fail(err, TY_EUSAGE,
                      "storage path %s: must be a directory; other file systems are not provided (mount it, or "
                      "copy checkpoints there)",
                      storage_path);
        return NULL;
    }
    CLEANUP_FREE char *storage = file_absolute(storage_path);
    if (storage == NULL) {
        (void)ty_fail(err, -errno, "storage path %s: %s%s", storage_path, strerror(errno),
                      errno == ENOENT ? " (the working directory was deleted)" : "");
        return NULL;
    }
    if (!utf8_valid(
            storage,
            strlen(storage))) { /* it is part of results, of reports and of what workers are told: JSON */
        (void)ty_fail(err, TY_EUSAGE,
                      "the storage path %s is not UTF-8: give another with --storage-path (storage_path)",
                      storage);
        return NULL;
    }
    buffer_printf(&path, "%s/%s", storage, name);
    if (path.failed) (void)ty_fail_memory(err);
    return buffer_take(&path);
}

/* Whether files that we make there belong to the directory's owner: file systems may map users, then ids cannot
 * be compared. */
static bool is_ours(int directory, const struct stat *status) {
    static const char probe[] = ".trainyard-owner";
    struct stat made;
    if (status->st_uid == geteuid()) return true;
    int fd = openat(directory, probe, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool same = fstat(fd, &made) == 0 && made.st_uid == status->st_uid;
    (void)close(fd);
    (void)unlinkat(directory, probe, 0);
    return same;
}

/* A directory that is to be gone on with must be our own, and one that its owner may read, write and enter. */
static int check_owner(int directory, const char *path, ty_error *err) {
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
                   mine ? "its owner must be able to read, write and enter it (chmod u+rwx)"
                        : "only its owner can go on with it");
}

static int make_directory(const char *path, bool resume, bool *existed, ty_error *err) {
    CLEANUP_FREE char *parent = strdup(path);
    if (parent == NULL) return ty_fail_memory(err);
    *strrchr(parent, '/') = '\0';
    int result = parent[0] == '\0' ? 0 : file_make_directories(parent, 0777, err);
    if (result == -ENOMEM) return result;
    if (result < 0)
        return ty_fail(err, TY_EUSAGE, "storage path %s: %s", parent, err != NULL ? err->message : "");
    *existed = mkdir(path, 0777) < 0;
    if (!*existed) return 0;
    if (errno != EEXIST) return ty_fail(err, TY_EUSAGE, "cannot make directory %s: %s", path, strerror(errno));
    if (resume) return 0;
    if (run_lock_is_held(path)) return run_lock_refuse(path, err);
    return ty_fail(err, TY_EEXISTS,
                   "the run %s exists already: choose another name, or resume it (--resume, resume=True)",
                   path);
}

int directory_open(const char *path, bool resume, bool *existed, struct run_lock **lock, ty_error *err) {
    struct buffer logs = {0};
    int result = make_directory(path, resume, existed, err);
    if (result < 0) return result;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ty_fail(err, TY_EUSAGE, "cannot open %s: %s", path, strerror(errno));
    if (*existed && check_owner(fd, path, err) < 0) return err->code;
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
    if (!*existed) directory_remove(path);
    return result;
}

void directory_remove(const char *path) {
    CLEANUP(buffer_done) struct buffer logs = {0};
    buffer_printf(&logs, "%s/logs", path);
    if (!logs.failed) (void)rmdir(logs.data);
    (void)rmdir(path);
}
