/* A run is a directory with a journal in it. */
#include "controller/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/str.h"
#include "controller/controller.h"
#include "journal/journal.h"

static bool has_journal(const char *directory, const char *name) {
    CLEANUP_FREE char *path = NULL;
    if (name[0] == '.') return false;
    if (asprintf(&path, "%s/%s", directory, name) < 0) {
        path = NULL;
        return false;
    }
    return journal_exists(path);
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(char ***names, size_t *n, const char *name, ty_error *err) {
    char **more = reallocarray(*names, *n + 1, sizeof *more);
    if (more == NULL) return ty_fail_memory(err);
    *names = more;
    more[*n] = strdup(name);
    if (more[*n] == NULL) return ty_fail_memory(err);
    (*n)++;
    return 0;
}

static int list(const char *directory, char ***names, size_t *n, ty_error *err) {
    DIR *stream = opendir(directory);
    if (stream == NULL && errno == ENOENT) return 0;
    if (stream == NULL) return ty_fail(err, TY_EUSAGE, "cannot read %.300s: %s", directory, strerror(errno));
    int result = 0;
    for (struct dirent *entry = readdir(stream); entry != NULL && result >= 0; entry = readdir(stream))
        if (has_journal(directory, entry->d_name)) result = add_name(names, n, entry->d_name, err);
    (void)closedir(stream);
    return result;
}

char *run_directory_storage(const char *storage_path, ty_error *err) {
    char *path = controller_run_path(storage_path, "x", err);
    if (path == NULL) return NULL;
    char *slash = strrchr(path, '/');
    slash[slash == path] = '\0'; /* "/" keeps its own */
    return path;
}

int run_directory_names(const char *storage_path, char ***names, size_t *n, ty_error *err) {
    CLEANUP_FREE char *directory = run_directory_storage(storage_path, err);
    if (directory == NULL) return err->code;
    char **found = NULL;
    size_t n_found = 0;
    int result = list(directory, &found, &n_found, err);
    if (result < 0) {
        run_directory_names_free(found, n_found);
        return result;
    }
    if (n_found > 0) qsort(found, n_found, sizeof *found, compare);
    *names = found;
    *n = n_found;
    return 0;
}

void run_directory_names_free(char **names, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static void fail_unknown(const char *storage_path, const char *name, const char *path, ty_error *err) {
    char **names = NULL;
    size_t n = 0;
    if (run_directory_names(storage_path, &names, &n, err) < 0) return;
    const char *near = str_nearest(name, (const char *const *)names, n);
    (void)ty_fail(err, TY_EUSAGE, "no run '%.100s': %.300s has no journal%s%s%s", name, path,
                  near != NULL ? "; did you mean "
                  : n > 0      ? "; `trainyard status` lists the runs"
                               : "",
                  near != NULL ? near : "", near != NULL ? "?" : "");
    run_directory_names_free(names, n);
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

/* When its directory was made; where the file system does not tell, when something was last made in it. */
static int64_t made_at(const char *directory, const char *name) {
    CLEANUP_FREE char *path = NULL;
    struct statx status;
    if (asprintf(&path, "%s/%s", directory, name) < 0) path = NULL;
    if (path == NULL || statx(AT_FDCWD, path, 0, STATX_BTIME | STATX_MTIME, &status) < 0) return -1;
    bool born = (status.stx_mask & STATX_BTIME) != 0;
    const struct statx_timestamp *time = born ? &status.stx_btime : &status.stx_mtime;
    return time->tv_sec * NS_PER_S + time->tv_nsec;
}

char *run_directory_latest(const char *storage_path, ty_error *err) {
    CLEANUP_FREE char *directory = run_directory_storage(storage_path, err);
    char **names = NULL;
    size_t n = 0, latest = 0;
    if (directory == NULL || run_directory_names(storage_path, &names, &n, err) < 0) return NULL;
    int64_t newest = -1;
    for (size_t i = 0; i < n; i++) {
        int64_t made = made_at(directory, names[i]);
        if (made <= newest) continue;
        newest = made;
        latest = i;
    }
    char *name = n > 0 ? strdup(names[latest]) : NULL;
    if (n == 0)
        (void)ty_fail(err, TY_EUSAGE, "no runs in %s; --storage-path names another place", directory);
    else if (name == NULL)
        (void)ty_fail_memory(err);
    run_directory_names_free(names, n);
    return name;
}

char *run_directory_find(const char *storage_path, const char *name, ty_error *err) {
    if (run_name_check(name, err) < 0) return NULL;
    CLEANUP_FREE char *path = controller_run_path(storage_path, name, err);
    if (path == NULL) return NULL;
    if (journal_exists(path)) return TAKE(path);
    fail_unknown(storage_path, name, path, err);
    return NULL;
}
