/* What a journal looks like from outside (its file, its log) says whether it must be read again; a run that
 * goes on may also have died without a word, which its lock tells. */
#include "view/runs.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/hash.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "view/encode.h"
#include "view/export.h"

struct files_look {
    struct stat file, log;
    bool held;
};

struct run_entry {
    struct view_run run;
    struct files_look look;
    bool seen; /* in the look that goes on */
};

struct view_runs {
    char **paths; /* n_paths, owned; each may be NULL: the default */
    size_t n_paths;
    struct run_entry **entries; /* n, owned; newest first */
    size_t n;
    struct hash *by_id; /* the same entries; a look finds each name's in it */
    uint64_t cursor;
};

bool view_run_id(const char *path, char id[VIEW_ID_SIZE]) {
    char real[PATH_MAX];
    if (realpath(path, real) == NULL) return false;
    (void)snprintf(id, VIEW_ID_SIZE, "%016" PRIx64, str_hash(real, strlen(real)));
    return true;
}

struct view_runs *view_runs_create(const char *const *paths, size_t n, ty_error *err) {
    struct view_runs *runs = calloc(1, sizeof *runs);
    if (runs != NULL) runs->paths = calloc(n + 1, sizeof *runs->paths);
    if (runs != NULL) runs->by_id = hash_create();
    if (runs == NULL || runs->paths == NULL || runs->by_id == NULL) {
        view_runs_destroy(runs);
        (void)ty_fail_memory(err);
        return NULL;
    }
    /* A cursor of an earlier server, in a page that was left open, is behind all of these. */
    runs->cursor = (uint64_t)(clock_wall() / NS_PER_MS);
    for (size_t i = 0; i < n; i++) {
        char *path = run_directory_storage(paths[i], err);
        if (path == NULL) {
            view_runs_destroy(runs);
            return NULL;
        }
        runs->paths[runs->n_paths++] = path;
    }
    return runs;
}

static void free_entry(struct run_entry *entry) {
    if (entry == NULL) return;
    free(entry->run.name);
    free(entry->run.path);
    free(entry->run.error);
    if (entry->run.counts != NULL) view_counts_done(entry->run.counts);
    free(entry->run.counts);
    view_summary_done(&entry->run.summary);
    free(entry);
}

void view_runs_destroy(struct view_runs *runs) {
    if (runs == NULL) return;
    for (size_t i = 0; i < runs->n; i++)
        free_entry(runs->entries[i]);
    for (size_t i = 0; i < runs->n_paths; i++)
        free(runs->paths[i]);
    hash_destroy(runs->by_id);
    free(runs->entries);
    free(runs->paths);
    free(runs);
}

/* -- looking */

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* 1: the run changed. */
static int look_again(struct view_runs *runs, struct run_entry *entry) {
    char name[PATH_MAX + 16];
    struct files_look look = {.held = run_lock_is_held(entry->run.path)};
    (void)snprintf(name, sizeof name, "%s/run.db", entry->run.path);
    (void)stat(name, &look.file);
    (void)snprintf(name, sizeof name, "%s/run.db-wal", entry->run.path);
    (void)stat(name, &look.log);
    if (look.file.st_ino == 0 && entry->run.there) {
        entry->run.there = false;
        entry->run.changed = ++runs->cursor;
        return 1;
    }
    if (is_same_file(&look.file, &entry->look.file) && is_same_file(&look.log, &entry->look.log) &&
        look.held == entry->look.held)
        return 0;
    entry->run.there = look.file.st_ino != 0;
    entry->look = look;
    entry->run.changed = ++runs->cursor;
    ty_error err = {0};
    view_summary_done(&entry->run.summary);
    free(TAKE(entry->run.error));
    int result = view_summary_read(entry->run.name, entry->run.path, &entry->run.summary, &err);
    if (result >= 0) return 1;
    entry->run.error = strdup(err.message);
    return result == -ENOMEM || entry->run.error == NULL ? -ENOMEM : 1;
}

static struct run_entry *add_entry(struct view_runs *runs, const char *id, const char *name, const char *path) {
    struct run_entry *entry = ARRAY_GROW(runs->entries, runs->n) < 0 ? NULL : calloc(1, sizeof *entry);
    if (entry == NULL) return NULL;
    (void)snprintf(entry->run.id, sizeof entry->run.id, "%s", id);
    entry->run.name = strdup(name);
    entry->run.path = realpath(path, NULL);
    entry->run.counts = calloc(1, sizeof *entry->run.counts);
    if (entry->run.name == NULL || entry->run.path == NULL || entry->run.counts == NULL ||
        hash_set(runs->by_id, id, (uintptr_t)entry) < 0) {
        free_entry(entry);
        return NULL;
    }
    runs->entries[runs->n++] = entry;
    return entry;
}

static int look_at_name(struct view_runs *runs, const char *storage, const char *name) {
    CLEANUP_FREE char *path = NULL;
    char id[VIEW_ID_SIZE];
    if (asprintf(&path, "%s/%s", storage, name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    if (!view_run_id(path, id)) return 0; /* gone since it was listed */
    const uintptr_t *known = hash_get(runs->by_id, id);
    struct run_entry *entry = known != NULL ? (struct run_entry *)*known : add_entry(runs, id, name, path);
    if (entry == NULL) return -ENOMEM;
    entry->seen = true;
    return look_again(runs, entry);
}

static int look_at_storage(struct view_runs *runs, const char *storage, ty_error *err) {
    char **names = NULL;
    size_t n = 0;
    int changed = 0;
    int result = run_directory_names(storage, &names, &n, err);
    if (result < 0) return result;
    for (size_t i = 0; i < n && result >= 0; i++) {
        result = look_at_name(runs, storage, names[i]);
        if (result > 0) changed = 1;
    }
    run_directory_names_free(names, n);
    return result < 0 ? ty_fail_memory(err) : changed;
}

/* A run that went since is told once, and then forgotten. */
static int drop_gone(struct view_runs *runs) {
    size_t kept = 0;
    int changed = 0;
    for (size_t i = 0; i < runs->n; i++) {
        struct run_entry *entry = runs->entries[i];
        bool told = !entry->run.there && !entry->seen;
        if (!entry->seen && entry->run.there) {
            entry->run.there = false;
            entry->run.changed = ++runs->cursor;
            changed = 1;
        }
        if (told) {
            (void)hash_remove(runs->by_id, entry->run.id);
            free_entry(entry);
        } else {
            runs->entries[kept++] = entry;
        }
    }
    runs->n = kept;
    return changed;
}

static int newest_first(const void *a, const void *b) {
    const struct view_run *x = &(*(struct run_entry *const *)a)->run,
                          *y = &(*(struct run_entry *const *)b)->run;
    if (x->summary.began != y->summary.began) return x->summary.began < y->summary.began ? 1 : -1;
    return strcmp(x->name, y->name);
}

int view_runs_look(struct view_runs *runs, ty_error *err) {
    int changed = 0;
    for (size_t i = 0; i < runs->n; i++)
        runs->entries[i]->seen = false;
    for (size_t i = 0; i < runs->n_paths; i++) {
        int result = look_at_storage(runs, runs->paths[i], err);
        if (result < 0) return result;
        changed |= result;
    }
    changed |= drop_gone(runs);
    if (changed && runs->n > 0) qsort(runs->entries, runs->n, sizeof(struct run_entry *), newest_first);
    return changed;
}

/* -- asked */

const struct view_run *view_runs_at(const struct view_runs *runs, size_t index) {
    return index < runs->n ? &runs->entries[index]->run : NULL;
}

size_t view_runs_count(const struct view_runs *runs) {
    return runs->n;
}

static void encode_row(const struct view_run *run, struct buffer *out) {
    const struct view_summary *summary = &run->summary;
    double quiet = (double)view_summary_quiet(summary) / (double)NS_PER_S;
    buffer_printf(out, "{\"id\": \"%s\", \"name\": ", run->id);
    buffer_json_text(out, run->name);
    buffer_printf(out, ", \"state\": \"%s\", \"quiet_s\": ", run_standing_name(summary->standing));
    encode_number_if(out, quiet > 0, quiet);
    buffer_printf(out, ", \"workers\": %lld, \"nodes\": %zu, \"began\": ", (long long)summary->workers,
                  summary->nodes);
    encode_number(out, (double)summary->began / (double)NS_PER_S);
    buffer_text(out, ", \"seconds\": ");
    encode_number(out, (double)view_summary_time(summary) / (double)NS_PER_S);
    buffer_printf(out, ", \"attempts\": %d, \"cause\": ", summary->attempts);
    buffer_json_text(out, summary->cause);
    CLEANUP_FREE char *metrics = summary->metrics != NULL ? json_format(summary->metrics, JSON_COMPACT) : NULL;
    buffer_printf(out, ", \"metrics\": %s, \"exit_status\": ", metrics != NULL ? metrics : "null");
    encode_rank(out, summary->status);
    buffer_char(out, '}');
}

static void separate(bool *any, struct buffer *out) {
    if (*any) buffer_text(out, ", ");
    *any = true;
}

void view_runs_encode(const struct view_runs *runs, uint64_t after, struct buffer *out) {
    bool any = false;
    buffer_printf(out, "{\"cursor\": %" PRIu64 ", \"runs\": [", runs->cursor);
    for (size_t i = 0; i < runs->n; i++) {
        const struct view_run *run = &runs->entries[i]->run;
        if (!run->there || run->error != NULL || run->changed <= after) continue;
        separate(&any, out);
        encode_row(run, out);
    }
    buffer_text(out, "], \"unreadable\": [");
    any = false;
    for (size_t i = 0; i < runs->n; i++) {
        const struct view_run *run = &runs->entries[i]->run;
        if (!run->there || run->error == NULL) continue;
        separate(&any, out);
        buffer_text(out, "{\"name\": ");
        buffer_json_text(out, run->name);
        buffer_text(out, ", \"error\": ");
        buffer_json_text(out, run->error);
        buffer_char(out, '}');
    }
    buffer_text(out, "], \"gone\": [");
    any = false;
    for (size_t i = 0; i < runs->n; i++) {
        if (runs->entries[i]->run.there || after == 0) continue;
        separate(&any, out);
        buffer_printf(out, "\"%s\"", runs->entries[i]->run.id);
    }
    buffer_text(out, "]}");
}
