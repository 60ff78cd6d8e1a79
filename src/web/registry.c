/* A file for each dashboard, locked as long as the process lives: the lock, not the file, says that there is
 * one. The directory must be the user's own and closed to others: in /tmp anybody may have made one of that
 * name. */
#include "web/site.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/program.h"
#include "base/str.h"

/* Held while a file gets its name, and while those that were left over are found and removed: a new process of
 * such a number could else take the name in between, and its file would go. The caller closes it. */
static int lock_directory(const char *path, ty_error *err) {
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int result = fd < 0 ? -1 : flock(fd, LOCK_EX);
    while (result < 0 && errno == EINTR)
        result = flock(fd, LOCK_EX);
    return result < 0 ? ty_fail(err, -errno, "cannot lock %s: %s", path, strerror(errno)) : TAKE_FD(fd);
}

/* The file has its name when it is locked and whole: whoever lists the dashboards at this moment would take one
 * that is not locked for left over, and remove it. One of that name is of a process that had this number
 * before. */
int registry_enter(const struct listening *listening, struct registry *registry, ty_error *err) {
    char directory[PATH_MAX], begun[PATH_MAX];
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = file_private_directory(directory, true, err);
    if (result < 0) return result;
    if (snprintf(registry->path, PATH_MAX, "%s/dashboard-%d", directory, getpid()) >= PATH_MAX ||
        snprintf(begun, PATH_MAX, "%s/.dashboard-%d", directory, getpid()) >= PATH_MAX)
        return ty_fail(err, -ENAMETOOLONG, "XDG_RUNTIME_DIR is too long");
    if (listening->is_unix)
        buffer_printf(&text, "unix:%s\n", listening->path);
    else
        buffer_printf(&text, "http://%s:%d/\n", listening->host, listening->port);
    CLEANUP_FD int lock = lock_directory(directory, err);
    if (lock < 0) return lock;
    (void)unlink(begun); /* of a process that had this number before */
    CLEANUP_FD int fd = open(begun, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || file_write_all(fd, text.data, text.size) < 0 ||
        rename(begun, registry->path) < 0) {
        result = ty_fail(err, -errno, "cannot write %s: %s", registry->path, strerror(errno));
        (void)unlink(begun);
        return result;
    }
    registry->fd = TAKE_FD(fd);
    return 0;
}

void registry_leave(struct registry *registry) {
    if (registry->page[0] != '\0') (void)unlink(registry->page);
    if (registry->fd < 0) return;
    (void)unlink(registry->path);
    (void)close(registry->fd);
    registry->fd = -1;
}

/* The address with its token is in the file alone, which only its owner reads. */
static int write_page(const char *path, const char *address, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text,
                  "<!DOCTYPE html>\n<meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">"
                  "<meta http-equiv=\"refresh\" content=\"0; url=%s\">\n<title>Trainyard</title>\n",
                  address);
    (void)unlink(path);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int result = fd < 0 ? -errno : text.failed ? -ENOMEM : file_write_all(fd, text.data, text.size);
    return result < 0 ? ty_fail(err, result, "cannot write %s: %s", path, strerror(-result)) : 0;
}

/* The browser outlives us, as browsers do. */
int registry_open_browser(struct registry *registry, const char *address, ty_error *err) {
    const char *browser = getenv("BROWSER");
    if (browser == NULL || *browser == '\0') browser = "xdg-open";
    if (snprintf(registry->page, PATH_MAX, "%s.html", registry->path) >= PATH_MAX)
        return ty_fail(err, -ENAMETOOLONG, "XDG_RUNTIME_DIR is too long");
    int result = write_page(registry->page, address, err);
    if (result < 0) return result;
    static const int nothing[] = {PROGRAM_NOTHING, PROGRAM_NOTHING, PROGRAM_NOTHING};
    const char *const argv[] = {browser, registry->page, NULL};
    result = program_start(
        &(struct program_start){
            .argv = argv, .fds = nothing, .n_fds = ARRAY_SIZE(nothing), .place = PROGRAM_SESSION},
        &registry->browser);
    if (result < 0)
        (void)fprintf(stderr, "cannot start the browser %s: %s (BROWSER names another)\n", browser,
                      strerror(-result));
    return 0;
}

void registry_reap_browser(struct registry *registry) {
    if (registry->browser > 0 && waitpid(registry->browser, NULL, WNOHANG) != 0) registry->browser = 0;
}

/* True when its server lives; the file of one that is gone goes. */
static bool lives(const char *path) {
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0) return errno == EWOULDBLOCK;
    (void)unlink(path);
    return false;
}

int dashboard_list(struct buffer *out, ty_error *err) {
    char directory[PATH_MAX], path[PATH_MAX + 256];
    int result = file_private_directory(directory, false, err);
    if (result == -ENOENT) return 0;
    CLEANUP_FD int lock = result < 0 ? -1 : lock_directory(directory, err);
    if (result >= 0 && lock < 0) return lock;
    DIR *entries = result < 0 ? NULL : opendir(directory);
    if (entries == NULL)
        return result < 0 ? result : ty_fail(err, -errno, "cannot read %s: %s", directory, strerror(errno));
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *rest = NULL;
        int64_t pid;
        CLEANUP(buffer_done) struct buffer text = {0};
        if (!str_prefix(entry->d_name, "dashboard-", &rest) || !str_to_int64(rest, 1, INT32_MAX, &pid))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (!lives(path) || file_read(path, PATH_MAX + 64, &text, NULL) < 0) continue;
        buffer_printf(out, "%.*s  process %lld\n", (int)strcspn(text.data, "\n"), text.data, (long long)pid);
    }
    (void)closedir(entries);
    return out->failed ? ty_fail_memory(err) : 0;
}
