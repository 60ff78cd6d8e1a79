/* A run is a directory with a journal in it. */
#include "controller/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
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

int run_directory_names(const char *storage_path, char ***names, size_t *n, ty_error *err) {
    CLEANUP_FREE char *directory = controller_run_path(storage_path, "x", err);
    if (directory == NULL) return err->code;
    *strrchr(directory, '/') = '\0';
    char **found = NULL;
    size_t n_found = 0;
    int result = list(*directory != '\0' ? directory : "/", &found, &n_found, err);
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

char *run_directory_find(const char *storage_path, const char *name, ty_error *err) {
    if (run_name_check(name, err) < 0) return NULL;
    CLEANUP_FREE char *path = controller_run_path(storage_path, name, err);
    if (path == NULL) return NULL;
    if (journal_exists(path)) return TAKE(path);
    fail_unknown(storage_path, name, path, err);
    return NULL;
}
