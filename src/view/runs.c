/* What a journal looks like from outside (its file, its log) says whether it must be read again; a run that
 * goes on may also have died without a word, which its lock tells: a look (view/run_look.h) tells both. What a
 * run has to show in detail is summary.c's. */
#include "view/runs.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/hash.h"
#include "base/str.h"
#include "controller/run_directory.h"
#include "view/encode.h"
#include "view/run_look.h"

enum { GONE_KEPT_S = 24 * 3600 };

struct run_entry {
    struct view_run run;
    struct run_files files;
    bool seen;        /* in the look that goes on */
    int64_t quiet;    /* minutes begun, as was told */
    nanoseconds gone; /* since when; monotonic */
};

/* A name below a storage path. */
struct run_name {
    char id[VIEW_ID_SIZE]; /* of the run at its end; "": none was seen yet */
    struct run_look *look; /* owned; NULL between two looks, unless it hangs */
    bool listed;           /* in the look that goes on */
};

struct run_place {
    char *path;            /* owned */
    char *error;           /* owned; why it cannot be listed, else NULL */
    struct run_look *look; /* owned; NULL between two looks, unless it hangs */
};

struct view_runs {
    struct run_place *storages; /* n_storages, owned */
    size_t n_storages;
    struct run_entry **entries; /* n, owned; newest first */
    size_t n;
    struct hash *by_id; /* the same entries */
    struct hash *names; /* path -> struct run_name, owned */
    uint64_t cursor;
};

/* FNV-1a of 64 bits: that two of a hundred thousand paths share one has a chance below 10^-9. */
static void make_id(const char *real, char id[VIEW_ID_SIZE]) {
    (void)snprintf(id, VIEW_ID_SIZE, "%016" PRIx64, str_hash(real, strlen(real)));
}

bool view_run_id(const char *path, char id[VIEW_ID_SIZE]) {
    char real[PATH_MAX];
    if (realpath(path, real) == NULL) return false;
    make_id(real, id);
    return true;
}

struct view_runs *view_runs_create(const char *const *paths, size_t n, ty_error *err) {
    struct view_runs *runs = calloc(1, sizeof *runs);
    if (runs != NULL) runs->storages = calloc(n + 1, sizeof *runs->storages);
    if (runs != NULL) runs->by_id = hash_create();
    if (runs != NULL) runs->names = hash_create();
    if (runs == NULL || runs->storages == NULL || runs->by_id == NULL || runs->names == NULL) {
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
        runs->storages[runs->n_storages++].path = path;
    }
    return runs;
}

static void free_entry(struct run_entry *entry) {
    if (entry == NULL) return;
    free(entry->run.name);
    free(entry->run.path);
    free(entry->run.error);
    view_summary_done(&entry->run.summary);
    free(entry);
}

static void free_name(struct run_name *name) {
    run_look_release(name->look);
    free(name);
}

void view_runs_destroy(struct view_runs *runs) {
    if (runs == NULL) return;
    for (size_t i = 0; i < runs->n; i++)
        free_entry(runs->entries[i]);
    for (size_t i = 0; i < runs->n_storages; i++) {
        run_look_release(runs->storages[i].look);
        free(runs->storages[i].path);
        free(runs->storages[i].error);
    }
    uintptr_t value;
    for (size_t at = 0; runs->names != NULL && hash_next(runs->names, &at, &value) != NULL;)
        free_name((struct run_name *)value);
    hash_destroy(runs->names);
    hash_destroy(runs->by_id);
    free(runs->entries);
    free(runs->storages);
    free(runs);
}

/* -- looking */

static struct run_entry *add_entry(struct view_runs *runs, const char *id, const char *name, const char *path) {
    struct run_entry *entry = ARRAY_GROW(runs->entries, runs->n) < 0 ? NULL : calloc(1, sizeof *entry);
    if (entry == NULL) return NULL;
    (void)snprintf(entry->run.id, sizeof entry->run.id, "%s", id);
    entry->run.name = strdup(name);
    entry->run.path = strdup(path);
    if (entry->run.name == NULL || entry->run.path == NULL || hash_set(runs->by_id, id, (uintptr_t)entry) < 0) {
        free_entry(entry);
        return NULL;
    }
    runs->entries[runs->n++] = entry;
    return entry;
}

static struct run_entry *find_entry(const struct view_runs *runs, const char *id) {
    const uintptr_t *known = hash_get(runs->by_id, id);
    return known != NULL ? (struct run_entry *)*known : NULL;
}

/* The entry of the run at the end of this path, which is there. NULL when memory is short. */
static struct run_entry *see(struct view_runs *runs, struct run_name *name, const char *real) {
    make_id(real, name->id);
    struct run_entry *entry = find_entry(runs, name->id);
    if (entry == NULL) entry = add_entry(runs, name->id, name->look->name, real);
    if (entry != NULL) entry->seen = true;
    return entry;
}

/* What was read of the run is forgotten: `summary` is empty until whoever calls puts another one there. Takes
 * the error. */
static void renew(struct view_runs *runs, struct run_entry *entry, struct run_files files, char *error) {
    entry->run.there = true;
    entry->run.changed = ++runs->cursor;
    entry->files = files;
    free(entry->run.error);
    entry->run.error = error;
    view_summary_done(&entry->run.summary);
}

/* 1: the run changed. */
static int take_news(struct view_runs *runs, struct run_name *name) {
    struct run_look *look = name->look;
    if (look->failed) return -ENOMEM;
    if (look->found == FOUND_NOTHING) return 0;
    struct run_entry *entry = see(runs, name, look->real);
    if (entry == NULL) return -ENOMEM;
    if (look->found == FOUND_SAME) return 0;
    renew(runs, entry, look->files, TAKE(look->error));
    entry->run.summary = look->summary;
    look->summary = (struct view_summary){0};
    return 1;
}

/* NULL when memory is short. */
static char *say_hangs(void) {
    return str_format("not answering for %d s", RUN_LOOK_SECONDS);
}

/* What it was is known no more. 1: that is news. */
static int note_hanging(struct view_runs *runs, struct run_entry *entry) {
    CLEANUP_FREE char *error = say_hangs();
    entry->seen = true;
    if (error == NULL) return -ENOMEM;
    if (entry->run.there && str_equal(entry->run.error, error)) return 0;
    renew(runs, entry, (struct run_files){0}, TAKE(error));
    return 1;
}

/* A look that goes on stays with its name, and the next looks leave that out. */
static int take_look(struct view_runs *runs, struct run_name *name) {
    struct run_entry *entry = find_entry(runs, name->id);
    enum run_look_state state = run_look_state(name->look);
    if (state == LOOK_GOES_ON) { /* and there is no other one of it meanwhile */
        if (entry == NULL) entry = see(runs, name, name->look->path);
        return entry != NULL ? note_hanging(runs, entry) : -ENOMEM;
    }
    int changed = state == LOOK_IS_DONE ? take_news(runs, name) : 0;
    if (state == LOOK_WAITS && entry != NULL) entry->seen = true; /* its turn did not come */
    run_look_release(TAKE(name->look));
    return changed;
}

/* Names are told apart by their paths; links may lead several of them to one run, which its ID shows. */
static struct run_name *find_name(struct view_runs *runs, const char *path) {
    const uintptr_t *known = hash_get(runs->names, path);
    if (known != NULL) return (struct run_name *)*known;
    struct run_name *name = calloc(1, sizeof *name);
    if (name != NULL && hash_set(runs->names, path, (uintptr_t)name) >= 0) return name;
    free(name);
    return NULL;
}

static int add_look(const struct view_runs *runs, struct run_name *name, const char *path) {
    const struct run_entry *entry = find_entry(runs, name->id);
    const struct run_files none = {0};
    name->listed = true;
    if (name->look == NULL) name->look = run_look_create(path, entry != NULL ? &entry->files : &none);
    return name->look != NULL ? 0 : -ENOMEM;
}

/* Each name that is listed is looked at: what of them is a run the look tells. */
static int add_names(struct view_runs *runs, const struct run_place *storage) {
    const struct run_look *look = storage->look;
    for (size_t i = 0; i < look->n_names; i++) {
        CLEANUP_FREE char *path = str_format("%s/%s", storage->path, look->names[i]);
        struct run_name *name = path != NULL ? find_name(runs, path) : NULL;
        if (name == NULL || add_look(runs, name, path) < 0) return -ENOMEM;
    }
    return 0;
}

static bool lies_in(const char *path, const char *storage) {
    size_t size = strlen(storage);
    return strncmp(path, storage, size) == 0 && path[size] == '/' && strchr(path + size + 1, '/') == NULL;
}

/* What was listed before is there still. Where the storage hangs it would hang too, and is not looked at. 1:
 * that is news. */
static int keep_names(struct view_runs *runs, const struct run_place *storage, bool hangs) {
    uintptr_t value;
    const char *path;
    int changed = 0;
    for (size_t at = 0; (path = hash_next(runs->names, &at, &value)) != NULL;) {
        struct run_name *name = (struct run_name *)value;
        struct run_entry *entry = find_entry(runs, name->id);
        if (!lies_in(path, storage->path)) continue;
        name->listed = true;
        int result = !hangs ? add_look(runs, name, path) : entry != NULL ? note_hanging(runs, entry) : 0;
        if (result < 0) return result;
        changed |= result;
    }
    return changed;
}

static int take_listing(struct view_runs *runs, struct run_place *storage) {
    struct run_look *look = storage->look;
    bool hangs = run_look_state(look) != LOOK_IS_DONE;
    char *error = hangs ? say_hangs() : TAKE(look->error);
    if (hangs ? error == NULL : look->failed) return -ENOMEM;
    bool changed = !str_equal(storage->error, error);
    free(storage->error);
    storage->error = error;
    if (changed) runs->cursor++;
    int result = error != NULL ? keep_names(runs, storage, hangs) : add_names(runs, storage);
    if (!hangs) run_look_release(TAKE(storage->look));
    return result < 0 ? result : result | changed;
}

/* An error where none of them can be listed, but for those that hang. */
static int list_storages(struct view_runs *runs, ty_error *err) {
    CLEANUP_FREE struct run_look **looks = calloc(runs->n_storages + 1, sizeof(struct run_look *));
    size_t n = 0, n_failed = 0;
    int changed = 0;
    for (size_t i = 0; i < runs->n_storages && looks != NULL; i++) {
        struct run_place *storage = &runs->storages[i];
        if (storage->look == NULL) storage->look = run_look_create(storage->path, NULL);
        if (storage->look == NULL) return ty_fail_memory(err);
        if (run_look_state(storage->look) == LOOK_WAITS) looks[n++] = storage->look;
    }
    int result = looks != NULL ? run_looks_make(looks, n, err) : ty_fail_memory(err);
    for (size_t i = 0; i < runs->n_storages && result >= 0; i++) {
        struct run_place *storage = &runs->storages[i];
        result = take_listing(runs, storage);
        if (result < 0) return ty_fail_memory(err);
        changed |= result;
        n_failed += storage->error != NULL && storage->look == NULL;
    }
    if (n_failed > 0 && n_failed == runs->n_storages)
        return ty_fail(err, TY_EUSAGE, "%s", runs->storages[0].error);
    return result < 0 ? result : changed;
}

/* A look that hangs goes on without its name, and frees itself when it ends. The run's entry is drop_gone's. */
static void drop_names(struct view_runs *runs) {
    uintptr_t value;
    const char *path;
    for (size_t at = 0; (path = hash_next(runs->names, &at, &value)) != NULL;) {
        struct run_name *name = (struct run_name *)value;
        if (name->listed) continue;
        (void)hash_remove(runs->names, path);
        free_name(name);
    }
}

/* All that is listed, but what an earlier look is still at. */
static int make_looks(struct view_runs *runs, ty_error *err) {
    CLEANUP_FREE struct run_look **looks = calloc(hash_size(runs->names) + 1, sizeof(struct run_look *));
    uintptr_t value;
    size_t n = 0;
    if (looks == NULL) return ty_fail_memory(err);
    for (size_t at = 0; hash_next(runs->names, &at, &value) != NULL;) {
        const struct run_name *name = (struct run_name *)value;
        if (name->listed && name->look != NULL && run_look_state(name->look) == LOOK_WAITS)
            looks[n++] = name->look;
    }
    int result = run_looks_make(looks, n, err), changed = 0;
    for (size_t at = 0; result >= 0 && hash_next(runs->names, &at, &value) != NULL;) {
        struct run_name *name = (struct run_name *)value;
        if (name->listed && name->look != NULL) result = take_look(runs, name);
        if (result > 0) changed = 1;
    }
    return result == -ENOMEM ? ty_fail_memory(err) : changed;
}

/* What no file tells. */
static int note_quiet(struct view_runs *runs) {
    int changed = 0;
    for (size_t i = 0; i < runs->n; i++) {
        struct run_entry *entry = runs->entries[i];
        nanoseconds quiet = view_summary_quiet(&entry->run.summary);
        int64_t minutes = quiet > 0 ? 1 + quiet / (60 * NS_PER_S) : 0;
        if (minutes == entry->quiet) continue;
        entry->quiet = minutes;
        entry->run.changed = ++runs->cursor;
        changed = 1;
    }
    return changed;
}

/* Of a run that is gone the ID stays, for whoever asks with an older cursor. */
static int drop_gone(struct view_runs *runs) {
    size_t kept = 0;
    int changed = 0;
    nanoseconds now = clock_monotonic();
    for (size_t i = 0; i < runs->n; i++) {
        struct run_entry *entry = runs->entries[i];
        if (!entry->seen && entry->run.there) {
            renew(runs, entry, (struct run_files){0}, NULL); /* the same files may be back */
            entry->run.there = false;
            entry->gone = now;
            changed = 1;
        }
        if (!entry->run.there && now - entry->gone > GONE_KEPT_S * NS_PER_S) {
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

/* All entries are taken for gone until a look has seen them: first the storage paths are listed, then what lies
 * below them is looked at, all together, as one that hangs must not keep the others waiting. */
int view_runs_look(struct view_runs *runs, ty_error *err) {
    uintptr_t value;
    for (size_t i = 0; i < runs->n; i++)
        runs->entries[i]->seen = false;
    for (size_t at = 0; hash_next(runs->names, &at, &value) != NULL;)
        ((struct run_name *)value)->listed = false;
    int changed = list_storages(runs, err);
    if (changed < 0) return changed;
    int looked = make_looks(runs, err);
    drop_names(runs);
    if (looked < 0) return looked;
    changed |= looked | drop_gone(runs) | note_quiet(runs);
    if (changed && runs->n > 0) qsort(runs->entries, runs->n, sizeof(struct run_entry *), newest_first);
    return changed;
}

/* -- asked */

const struct view_run *view_runs_at(const struct view_runs *runs, size_t index) {
    return index < runs->n ? &runs->entries[index]->run : NULL;
}

uint64_t view_runs_cursor(const struct view_runs *runs) {
    return runs->cursor;
}

size_t view_runs_count(const struct view_runs *runs) {
    return runs->n;
}

const char *view_runs_storage_error(const struct view_runs *runs, size_t index, const char **path) {
    *path = index < runs->n_storages ? runs->storages[index].path : NULL;
    return *path != NULL ? runs->storages[index].error : NULL;
}

static void encode_row(const struct view_run *run, struct buffer *out) {
    const struct view_summary *summary = &run->summary;
    double quiet = duration_seconds(view_summary_quiet(summary));
    buffer_printf(out, "{\"id\": \"%s\", \"name\": ", run->id);
    buffer_json_text(out, run->name);
    buffer_printf(out, ", \"state\": \"%s\", \"quiet_s\": ", run_standing_name(summary->standing));
    encode_number_if(out, quiet > 0, quiet);
    buffer_printf(out, ", \"workers\": %lld, \"nodes\": %zu, \"began\": ", (long long)summary->workers,
                  summary->nodes);
    encode_number(out, duration_seconds(summary->began));
    buffer_text(out, ", \"seconds\": ");
    encode_number(out, duration_seconds(view_summary_time(summary)));
    buffer_printf(out, ", \"attempts\": %d, \"cause\": ", summary->attempts);
    buffer_json_text(out, summary->cause);
    CLEANUP_FREE char *metrics = summary->metrics != NULL ? json_format(summary->metrics, JSON_COMPACT) : NULL;
    buffer_printf(out, ", \"metrics\": %s, \"exit_status\": ", metrics != NULL ? metrics : "null");
    encode_rank(out, summary->status);
    buffer_char(out, '}');
}

/* `id`: "" of a storage path. */
static void encode_unreadable(const char *id, const char *name, const char *error, bool *any,
                              struct buffer *out) {
    encode_next(out, any);
    buffer_text(out, "{\"id\": ");
    buffer_json_text(out, *id != '\0' ? id : NULL);
    buffer_text(out, ", \"name\": ");
    buffer_json_text(out, name);
    buffer_text(out, ", \"error\": ");
    buffer_json_text(out, error);
    buffer_char(out, '}');
}

void view_runs_encode(const struct view_runs *runs, uint64_t after, struct buffer *out) {
    bool any = false;
    buffer_printf(out, "{\"cursor\": %" PRIu64 ", \"runs\": [", runs->cursor);
    for (size_t i = 0; i < runs->n; i++) {
        const struct view_run *run = &runs->entries[i]->run;
        if (!run->there || run->error != NULL || run->changed <= after) continue;
        encode_next(out, &any);
        encode_row(run, out);
    }
    buffer_text(out, "], \"unreadable\": [");
    any = false;
    for (size_t i = 0; i < runs->n_storages; i++)
        if (runs->storages[i].error != NULL)
            encode_unreadable("", runs->storages[i].path, runs->storages[i].error, &any, out);
    for (size_t i = 0; i < runs->n; i++) {
        const struct view_run *run = &runs->entries[i]->run;
        if (run->there && run->error != NULL) encode_unreadable(run->id, run->name, run->error, &any, out);
    }
    buffer_text(out, "], \"gone\": [");
    any = false;
    for (size_t i = 0; i < runs->n; i++) {
        const struct view_run *run = &runs->entries[i]->run;
        if (run->there || after == 0 || run->changed <= after) continue;
        encode_next(out, &any);
        buffer_printf(out, "\"%s\"", run->id);
    }
    buffer_text(out, "]}");
}
