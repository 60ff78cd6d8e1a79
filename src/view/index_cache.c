/* An index in the user's cache: a file for each run, as the index lies in memory, which is void once the
 * journal is another one. Anybody may have damaged it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "view/index_parts.h"
#include "view/runs.h"

bool index_cache_lags(const struct view_index *index) {
    int64_t last = index->head.last;
    return index->cache != NULL && (last < index->kept || last - index->kept > index->kept / 8);
}

/* $XDG_CACHE_HOME/trainyard/index/ID.db, in directories that are the user's alone; NULL: there is no place. */
static char *cache_path(const char *run_path) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    CLEANUP(buffer_done) struct buffer path = {0};
    char id[VIEW_ID_SIZE];
    if (!view_run_id(run_path, id)) return NULL;
    if (cache != NULL && cache[0] == '/')
        buffer_printf(&path, "%s/trainyard/index/%s.db", cache, id);
    else if (home != NULL && home[0] == '/')
        buffer_printf(&path, "%s/.cache/trainyard/index/%s.db", home, id);
    return path.size == 0 || path.failed ? NULL : buffer_take(&path);
}

/* The head, then each metric with its rows, as they lie in memory: INDEX_VERSION changes with any of these
 * structs. A row is written at a time, so that the whole is not in memory twice. */
static int write_cache(const struct view_index *index, int fd) {
    CLEANUP(buffer_done) struct buffer out = {0};
    buffer_append(&out, &index->head, sizeof index->head);
    for (size_t i = 0; i < index->head.n_metrics; i++) {
        const struct index_metric *metric = &index->metrics[i];
        uint64_t size = strlen(metric->name);
        buffer_append(&out, &size, sizeof size);
        buffer_append(&out, metric->name, size);
        for (size_t row = 0; row < 2 * INDEX_AXES_N; row++) {
            const struct index_row *slots = &metric->rows[row / INDEX_AXES_N][row % INDEX_AXES_N];
            uint64_t n = slots->n;
            buffer_append(&out, &n, sizeof n);
            buffer_append(&out, &slots->base, sizeof slots->base);
            buffer_append(&out, &slots->scale, sizeof slots->scale);
            if (n > 0) buffer_append(&out, slots->slots, n * sizeof *slots->slots);
            if (out.failed) return -ENOMEM;
            int result = file_write_all(fd, out.data, out.size);
            if (result < 0) return result;
            buffer_clear(&out);
        }
    }
    return out.size > 0 ? file_write_all(fd, out.data, out.size) : 0;
}

/* What a dashboard that was killed while it wrote has left: a file takes seconds to write. And the index of a
 * run that nobody asked about for long: where that was removed by other means than ours nothing else tells. */
static void sweep(const char *directory) {
    enum { PART_S = 3600, UNUSED_S = 30 * 24 * 3600 };
    DIR *entries = opendir(directory);
    struct stat status;
    if (entries == NULL) return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *ending = strstr(entry->d_name, ".db");
        bool whole = str_equal(ending, ".db");
        if (ending != NULL && (whole || str_prefix(ending, ".db.part-", NULL)) &&
            fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - status.st_mtime > (whole ? UNUSED_S : PART_S))
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    (void)closedir(entries);
}

void view_index_forget(const char *run_path) {
    CLEANUP_FREE char *cache = cache_path(run_path);
    if (cache != NULL) (void)unlink(cache);
}

/* What could not be written is tried again when there is an eighth more, and not before. */
static int keep(struct view_index *index, ty_error *err) {
    if (!index_cache_lags(index)) return 0;
    index->kept = index->head.last;
    CLEANUP_FREE char *directory = strdup(index->cache);
    struct file_draft draft;
    if (directory == NULL) return ty_fail_memory(err);
    *strrchr(directory, '/') = '\0';
    int result = file_make_directories(directory, 0700, err);
    if (result < 0) return result;
    sweep(directory);
    result = file_draft_open(index->cache, 0600, &draft);
    if (result == 0) result = file_draft_close(&draft, write_cache(index, draft.fd));
    return result < 0 ? ty_fail(err, result, "cannot keep the index in %s: %s", index->cache, strerror(-result))
                      : 0;
}

int view_index_keep(struct view_index *index, ty_error *err) {
    (void)pthread_mutex_lock(&index->growing);
    int result = keep(index, err);
    (void)pthread_mutex_unlock(&index->growing);
    return result;
}

/* A cache that anybody may have damaged: nothing behind its end is taken. It is as large as the index, so it is
 * never in memory as a whole. */
struct cache_reading {
    FILE *file;
    size_t left;
};

static bool take(struct cache_reading *reading, void *into, size_t size) {
    if (reading->left < size || fread(into, 1, size, reading->file) != size) return false;
    reading->left -= size;
    return true;
}

/* A row that could have been one of ours: what is computed of its base and scale later stays within the
 * numbers. */
static bool take_row(struct view_index *index, struct cache_reading *reading, struct index_row *row) {
    uint64_t n;
    if (!take(reading, &n, sizeof n) || !take(reading, &row->base, sizeof row->base) ||
        !take(reading, &row->scale, sizeof row->scale) || n > INDEX_SLOTS ||
        n * sizeof *row->slots > reading->left)
        return false;
    if (n == 0) return true;
    if (!(row->scale > 1e-18 && row->scale <= FINEST_SCALE) || row->base > INT64_MAX / 4 ||
        row->base < INT64_MIN / 4)
        return false;
    if (index_reserve(row, n) < 0) return false;
    row->n = n;
    index->n_slots += n;
    return take(reading, row->slots, n * sizeof *row->slots);
}

static bool take_metric(struct view_index *index, struct cache_reading *reading) {
    uint64_t size;
    char name[INDEX_NAME_BYTES];
    if (!take(reading, &size, sizeof size) || size >= sizeof name || !take(reading, name, size)) return false;
    name[size] = '\0';
    if (hash_get(index->places, name) != NULL || index_add_metric(index, strdup(name)) < 0) return false;
    struct index_metric *metric = &index->metrics[index->head.n_metrics - 1];
    for (size_t row = 0; row < 2 * INDEX_AXES_N; row++)
        if (!take_row(index, reading, &metric->rows[row / INDEX_AXES_N][row % INDEX_AXES_N])) return false;
    return true;
}

static bool take_all(struct view_index *index, struct cache_reading *reading) {
    struct index_head head;
    if (!take(reading, &head, sizeof head) || head.version != INDEX_VERSION || head.n_metrics > INDEX_METRICS ||
        head.last < 0)
        return false;
    uint64_t n = head.n_metrics;
    head.n_metrics = 0;
    index->head = head;
    for (uint64_t i = 0; i < n; i++)
        if (!take_metric(index, reading)) return false;
    return reading->left == 0;
}

/* Whether the file is of this journal, as it is now, check() finds out, before anything is taken of it. */
void index_cache_read(struct view_index *index) {
    struct stat status;
    index->cache = cache_path(index->run_path);
    if (index->cache == NULL || stat(index->cache, &status) < 0 || !S_ISREG(status.st_mode)) return;
    FILE *file = fopen(index->cache, "re");
    if (file == NULL) return;
    struct cache_reading reading = {file, (size_t)status.st_size};
    (void)futimens(fileno(file), NULL); /* it is used (sweep) */
    (void)pthread_mutex_lock(&index->lock);
    if (!take_all(index, &reading)) index_forget(index);
    index->kept = index->head.last;
    (void)pthread_mutex_unlock(&index->lock);
    (void)fclose(file);
}
