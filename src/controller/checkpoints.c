/* Rows and directories of checkpoints, kept in step. */
#include "controller/checkpoints.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "run/retention.h"

/* A committed checkpoint that is kept. */
struct kept {
    uint64_t number;
    char *name, *path;
    char *metrics; /* NULL: not known */
    double score;  /* NaN: none */
};

/* One that is no longer kept, and whose files are still there. */
struct goner {
    uint64_t number;
    char *name;
};

/* A commit on its way. */
struct publication {
    struct storage_job job;
    struct checkpoints *checkpoints; /* for what follows */
    char *run_path, *staging;
    int attempt;
    char *name; /* NULL: by its number */
    char **files;
    size_t n_files;
    char *place;   /* where the files lie; NULL: in the staging directory */
    char *metrics; /* NULL: not known */
    struct published made;
};

/* What is to be finished before the run goes on. It knows nothing but itself: it may outlive the checkpoints. */
struct past {
    struct storage_job job;
    struct checkpoints *checkpoints; /* for what follows */
    char *run_path;
    struct goner *removed; /* removals that are on record */
    size_t n_removed;
    char **names; /* that are kept */
    size_t n_names;
    uint64_t last; /* number of the last of these */
    int result;
    ty_error error;
};

/* A commit whose files are in place, while its row is written. */
struct entry {
    struct published made;
    char *name; /* NULL: there is none */
};

struct checkpoints {
    char *run_path;
    const struct checkpoint_policy *policy;
    struct records *records;
    struct kept *kept; /* in the order of their numbers */
    size_t n_kept;
    struct goner *goners; /* the rows of the first of them are gone for good */
    size_t n_goners, n_gone;
    struct entry entry;
    struct storage *storage;
    struct publication *publication; /* under way; NULL: none */
    struct past *past;               /* what is to be finished first; NULL: nothing */
    struct chore *check;             /* of the latest, that somebody waits for; NULL: nobody does */
    bool thorough;                   /* every byte, however many there are */
    bool stopped;                    /* nobody wants to know any more */
    void (*checked)(void *context);
    void *checked_context;
    void (*ready)(void *context, const ty_error *err); /* when the past is finished */
    void *ready_context;
    void (*listener)(void *context, struct published *published);
    void *listener_context;
};

static void free_kept(struct kept *kept) {
    free(kept->name);
    free(kept->path);
    free(kept->metrics);
}

static void free_past(struct storage_job *job) {
    struct past *past = (struct past *)job;
    for (size_t i = 0; i < past->n_removed; i++)
        free(past->removed[i].name);
    for (size_t i = 0; i < past->n_names; i++)
        free(past->names[i]);
    free(past->removed);
    free(past->names);
    free(past->run_path);
    free(past);
}

static void drop_entry(struct checkpoints *checkpoints) {
    free(checkpoints->entry.made.path);
    free(checkpoints->entry.name);
    checkpoints->entry = (struct entry){0};
}

/* Files whose end is not on record stay: the journal's rows still speak of them. */
static void spare_goners(struct checkpoints *checkpoints) {
    while (checkpoints->n_goners > checkpoints->n_gone)
        free(checkpoints->goners[--checkpoints->n_goners].name);
}

void checkpoints_close(struct checkpoints *checkpoints, nanoseconds limit) {
    if (checkpoints == NULL) return;
    checkpoints_clean(checkpoints);
    checkpoints_stop_check(checkpoints);
    storage_close(checkpoints->storage, limit);
    if (checkpoints->past != NULL) free_past(&checkpoints->past->job);
    if (checkpoints->records != NULL) records_then(checkpoints->records, NULL, NULL);
    drop_entry(checkpoints);
    spare_goners(checkpoints);
    for (size_t i = 0; i < checkpoints->n_kept; i++)
        free_kept(&checkpoints->kept[i]);
    free(checkpoints->kept);
    free(checkpoints->goners);
    free(checkpoints->run_path);
    free(checkpoints);
}

/* A number, or one of the texts that stand for what JSON has no number for. */
static double number_of(const json_t *value) {
    if (json_is_number(value)) return json_number_value(value);
    if (str_equal(json_string_value(value), "Infinity")) return (double)INFINITY;
    if (str_equal(json_string_value(value), "-Infinity")) return -(double)INFINITY;
    return (double)NAN;
}

/* The metric of this name; "a/b" is also b in the object a. */
static double score_of(const char *metrics, const char *attribute) {
    json_t *tree = metrics == NULL || attribute == NULL ? NULL : json_loads(metrics, 0, NULL);
    const json_t *value = json_object_get(tree, attribute), *at = tree;
    CLEANUP_FREE char *path = attribute == NULL ? NULL : strdup(attribute);
    char *rest = path;
    for (char *part; value == NULL && (part = strsep(&rest, "/")) != NULL; at = json_object_get(at, part))
        if (rest == NULL) value = json_object_get(at, part);
    double score = number_of(value);
    json_decref(tree);
    return score;
}

/* Steals `name` and `metrics`, also when it fails. */
static int keep(struct checkpoints *checkpoints, uint64_t number, char *name, char *metrics) {
    struct kept *grown = reallocarray(checkpoints->kept, checkpoints->n_kept + 1, sizeof *grown);
    struct buffer path = {0};
    struct kept made = {.number = number, .name = name, .metrics = metrics};
    if (grown != NULL) checkpoints->kept = grown;
    if (name != NULL) checkpoint_path(checkpoints->run_path, name, &path);
    made.path = name != NULL ? buffer_take(&path) : NULL;
    if (grown == NULL || made.path == NULL) {
        free_kept(&made);
        return -ENOMEM;
    }
    made.score = score_of(metrics, checkpoints->policy->score_attribute);
    grown[checkpoints->n_kept++] = made;
    return 0;
}

/* -- what an earlier controller left */

static int take_row(void *context, const struct journal_checkpoint *row) {
    char *metrics = row->metrics != NULL ? strdup(row->metrics) : NULL;
    return keep(context, row->number, strdup(row->name), metrics);
}

static int take_removal(void *context, int64_t sequence, const struct run_event *event) {
    struct past *past = context;
    (void)sequence;
    if (event->kind != EVENT_CHECKPOINT_REMOVED || event->data == NULL) return 0;
    struct goner *grown = reallocarray(past->removed, past->n_removed + 1, sizeof *grown);
    if (grown == NULL) return -ENOMEM;
    past->removed = grown;
    json_t *data = json_loads(event->data, 0, NULL);
    const char *name = json_string_value(json_object_get(data, "name"));
    json_int_t number = json_integer_value(json_object_get(data, "number"));
    char *copy = name != NULL ? strdup(name) : NULL;
    if (copy != NULL) grown[past->n_removed++] = (struct goner){(uint64_t)number, copy};
    json_decref(data);
    return copy == NULL && name != NULL ? -ENOMEM : 0;
}

/* Files go if they are still there and are the removed one's own, for names may be used again. */
static void finish_removals(const struct past *past) {
    for (size_t i = 0; i < past->n_removed; i++) {
        CLEANUP(buffer_done) struct buffer path = {0};
        checkpoint_path(past->run_path, past->removed[i].name, &path);
        if (!path.failed && past->removed[i].number > 0 &&
            checkpoint_number(path.data) == past->removed[i].number)
            (void)checkpoint_remove(past->run_path, past->removed[i].name, NULL);
    }
}

/* In the thread. */
static void finish_past(struct storage_job *job) {
    struct past *past = (struct past *)job;
    struct checkpoint_known known = {
        .names = (const char *const *)past->names, .n = past->n_names, .last = past->last};
    finish_removals(past);
    past->result = checkpoint_sweep(past->run_path, &known, &past->error);
}

static int copy_names(struct past *past, const struct checkpoints *checkpoints) {
    past->run_path = strdup(checkpoints->run_path);
    past->names = calloc(checkpoints->n_kept + 1, sizeof *past->names);
    if (past->run_path == NULL || past->names == NULL) return -ENOMEM;
    for (; past->n_names < checkpoints->n_kept; past->n_names++) {
        const struct kept *kept = &checkpoints->kept[past->n_names];
        if ((past->names[past->n_names] = strdup(kept->name)) == NULL) return -ENOMEM;
        past->last = kept->number;
    }
    return 0;
}

/* What the journal tells of it. */
static int read_past(struct checkpoints *checkpoints, ty_error *err) {
    struct past *past = checkpoints->past = calloc(1, sizeof *past);
    if (past == NULL) return ty_fail_memory(err);
    *past = (struct past){.checkpoints = checkpoints};
    struct journal *journal = records_journal(checkpoints->records);
    int result = journal_each_checkpoint(journal, take_row, checkpoints, err);
    if (result >= 0) result = journal_each_event(journal, 0, take_removal, past, err);
    if (result >= 0) result = copy_names(past, checkpoints);
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* How much is read of the latest checkpoint before the next attempt of a run: more would hold up the restart. */
enum { QUICK_BYTES = 64 << 20 };

static int check_quickly(const char *path, ty_error *err) {
    size_t n_files;
    int64_t bytes = 0;
    bool small = checkpoint_measure(path, &n_files, &bytes) && bytes <= QUICK_BYTES;
    return small ? checkpoint_verify(path, err) : checkpoint_verify_sizes(path, err);
}

/* The latest is damaged: the one before it takes its place. */
static void pass_over_latest(struct checkpoints *checkpoints, const char *why) {
    free_kept(&checkpoints->kept[--checkpoints->n_kept]);
    const char *before = checkpoints_latest(checkpoints);
    log_warning("controller", "a checkpoint is damaged and not used: %s; %s%s", why,
                before != NULL ? "the one before it is " : "there is none before it",
                before != NULL ? before : "");
}

/* The path of a latest that can be looked at; NULL: there is none. */
static const char *path_to_check(const struct checkpoints *checkpoints) {
    if (checkpoints->n_kept == 0) return NULL;
    const struct kept *latest = &checkpoints->kept[checkpoints->n_kept - 1];
    return checkpoint_is_outside(latest->name) ? NULL : latest->path;
}

static bool is_damage(int result) {
    return result < 0 && result != -ENOMEM && result != -ECANCELED;
}

int checkpoints_open(const struct checkpoints_place *place, const struct checkpoint_policy *policy,
                     struct checkpoints **out, ty_error *err) {
    struct checkpoints *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made =
        (struct checkpoints){.run_path = strdup(place->run_path), .policy = policy, .records = place->records};
    int result = made->run_path == NULL ? ty_fail_memory(err) : storage_open(place->lock, &made->storage, err);
    if (result >= 0 && place->past) result = read_past(made, err);
    if (result < 0) {
        checkpoints_close(made, 0);
        return result;
    }
    *out = made;
    return 0;
}

/* -- commits */

/* The place that every rank named whose files lie outside, NULL when all of them wrote into the staging directory. The caller
 * frees. */
static int find_place(const struct run_commit *commit, char **place, ty_error *err) {
    size_t n = 0;
    *place = NULL;
    for (size_t i = 0; i < commit->n; i++) {
        json_t *value = commit->files[i][0] == '"' ? json_loads(commit->files[i], JSON_DECODE_ANY, NULL) : NULL;
        const char *text = json_string_value(value);
        bool same = text != NULL && (*place == NULL || str_equal(*place, text));
        if (same && *place == NULL) *place = strdup(text);
        json_decref(value);
        n += same;
    }
    if (n == 0 || n == commit->n) return 0;
    free(TAKE(*place));
    return ty_fail(err, TY_EUSAGE,
                   "the ranks name different places of checkpoint %llu: it must be the same for all",
                   (unsigned long long)commit->number);
}

/* What the journal calls it: the last part of its path when it lies in the run's directory. */
static char *name_of(const struct checkpoints *checkpoints, const char *path) {
    const char *rest;
    bool inside =
        str_prefix(path, checkpoints->run_path, &rest) && *rest == '/' && strchr(rest + 1, '/') == NULL;
    return strdup(inside && rest[1] != '\0' && rest[1] != '.' ? rest + 1 : path);
}

static void note_removal(struct checkpoints *checkpoints, const struct kept *kept) {
    CLEANUP(buffer_done) struct buffer data = {0};
    buffer_printf(&data, "{\"number\": %llu, \"name\": ", (unsigned long long)kept->number);
    buffer_json_text(&data, kept->name);
    buffer_char(&data, '}');
    struct run_event event = {clock_wall(), EVENT_CHECKPOINT_REMOVED,      0, -1,
                              -1,           data.failed ? NULL : data.data};
    records_event(checkpoints->records, &event);
    records_forget_checkpoint(checkpoints->records, kept->number);
}

/* Rows are written in their order: also called when that of a later commit is. */
static void note_gone(void *context, const char *metrics) {
    struct checkpoints *checkpoints = context;
    (void)metrics;
    if (records_error(checkpoints->records)->code != 0) spare_goners(checkpoints);
    checkpoints->n_gone = checkpoints->n_goners;
}

/* Rows of those that go; their files go later (checkpoints_clean). Without memory all of them stay. */
static void retain(struct checkpoints *checkpoints) {
    size_t n = checkpoints->n_kept, left = 0;
    CLEANUP_FREE double *scores = calloc(n + 1, sizeof *scores);
    CLEANUP_FREE bool *surplus = calloc(n + 1, sizeof *surplus);
    if (scores == NULL || surplus == NULL) return;
    for (size_t i = 0; i < n; i++)
        scores[i] = checkpoints->kept[i].score;
    size_t gone = retention_choose(checkpoints->policy, scores, n, surplus);
    struct goner *grown =
        gone == 0 ? NULL : reallocarray(checkpoints->goners, checkpoints->n_goners + gone, sizeof *grown);
    if (grown == NULL) return;
    checkpoints->goners = grown;
    for (size_t i = 0; i < n; i++) {
        struct kept *kept = &checkpoints->kept[i];
        if (!surplus[i]) {
            checkpoints->kept[left++] = *kept;
            continue;
        }
        note_removal(checkpoints, kept);
        grown[checkpoints->n_goners++] = (struct goner){kept->number, TAKE(kept->name)};
        free_kept(kept);
    }
    checkpoints->n_kept = left;
    if (checkpoints->entry.name == NULL) records_then(checkpoints->records, note_gone, checkpoints);
}

/* Without its row a checkpoint would be swept by the next controller: it counts for nobody. Its files stay: a sync that failed, or
 * hangs, may have written the row all the same. */
static void fail_entry(struct published *made, const ty_error *why) {
    free(TAKE(made->path));
    made->result = ty_fail(&made->error, why->code, "checkpoint %llu cannot be put on record: %s",
                           (unsigned long long)made->number, why->message);
}

/* Who waits for it is answered before the rows of those that go make their way, which is as long. */
static void end_entry(void *context, const char *metrics) {
    struct checkpoints *checkpoints = context;
    struct published made = checkpoints->entry.made;
    const ty_error *failure = records_error(checkpoints->records);
    char *name = TAKE(checkpoints->entry.name), *copy = metrics != NULL ? strdup(metrics) : NULL;
    checkpoints->entry = (struct entry){0};
    note_gone(checkpoints, NULL);
    ty_error memory = {0};
    if (failure->code != 0) {
        free(name);
        free(copy);
    } else if (keep(checkpoints, made.number, name, copy) < 0) {
        (void)ty_fail_memory(&memory);
        failure = &memory;
    }
    if (failure->code != 0) fail_entry(&made, failure);
    bool kept = made.result >= 0;
    checkpoints->listener(checkpoints->listener_context, &made);
    records_commit(checkpoints->records);
    if (kept) retain(checkpoints);
}

/* The listener hears of it when its row is written. `made` is taken over. */
static void put_on_record(struct checkpoints *checkpoints, struct published made, int attempt,
                          const char *metrics) {
    char *name = name_of(checkpoints, made.path);
    struct journal_checkpoint row = {made.number, attempt, clock_wall(), name, metrics};
    if (name == NULL) {
        ty_error err;
        (void)ty_fail_memory(&err);
        fail_entry(&made, &err);
        checkpoints->listener(checkpoints->listener_context, &made);
        return;
    }
    checkpoints->entry = (struct entry){made, name};
    records_checkpoint(checkpoints->records, &row);
    records_then(checkpoints->records, end_entry, checkpoints);
    records_commit(checkpoints->records);
}

/* -- work for the thread: it may outlive the checkpoints, so that all it needs is its own */

static void free_publication(struct storage_job *job) {
    struct publication *publication = (struct publication *)job;
    for (size_t i = 0; i < publication->n_files; i++)
        free(publication->files[i]);
    free(publication->files);
    free(publication->run_path);
    free(publication->staging);
    free(publication->name);
    free(publication->place);
    free(publication->metrics);
    free(publication->made.path);
    free(publication);
}

static void publish(struct storage_job *job) {
    struct publication *publication = (struct publication *)job;
    struct published *made = &publication->made;
    struct checkpoint_parts parts = {made->number, publication->attempt, publication->name,
                                     (const char *const *)publication->files, publication->n_files};
    bool elsewhere = publication->place != NULL;
    if (elsewhere)
        made->path = TAKE(publication->place);
    else
        made->result = checkpoint_publish(publication->run_path, &parts, &made->path, &made->error);
    if (elsewhere || made->result < 0) checkpoint_drop(publication->staging);
}

/* A directory, and what is to be done with it. */
struct chore {
    struct storage_job job;
    struct checkpoints *checkpoints; /* for what follows */
    int (*act)(const struct chore *chore, ty_error *err);
    char *path;
    int attempt;        /* that has ended, of a clear-up */
    atomic_bool enough; /* of a check: nobody wants to know any more */
    int result;
    ty_error error;
};

static void work_chore(struct storage_job *job) {
    struct chore *chore = (struct chore *)job;
    chore->result = chore->act(chore, &chore->error);
}

static void free_chore(struct storage_job *job) {
    struct chore *chore = (struct chore *)job;
    free(chore->path);
    free(chore);
}

static int check(const struct chore *chore, ty_error *err) {
    return check_quickly(chore->path, err);
}

static int check_thoroughly(const struct chore *chore, ty_error *err) {
    return checkpoint_verify_until(chore->path, &chore->enough, err);
}

/* `wanted.path` is stolen. Without memory nothing is done (NULL): what was to go is left to the next controller's sweep. */
static struct chore *post_chore(struct checkpoints *checkpoints, const char *what, struct chore wanted,
                                void (*done)(struct storage_job *job)) {
    struct chore *chore = wanted.path == NULL ? NULL : calloc(1, sizeof *chore);
    if (chore == NULL) {
        free(wanted.path);
        return NULL;
    }
    *chore = wanted;
    chore->job = (struct storage_job){
        NULL, work_chore, done, free_chore, what, wanted.path, wanted.act == check_thoroughly};
    chore->checkpoints = checkpoints;
    storage_post(checkpoints->storage, &chore->job);
    return chore;
}

static int remove_committed(const struct chore *chore, ty_error *err) {
    const char *path = chore->path, *name = strrchr(path, '/') + 1;
    CLEANUP_FREE char *run_path = strndup(path, (size_t)(name - 1 - path));
    return run_path == NULL ? ty_fail_memory(err) : checkpoint_remove(run_path, name, err);
}

static void tell_failure(struct storage_job *job) {
    const struct chore *chore = (const struct chore *)job;
    if (chore->result < 0) log_warning("controller", "%s", chore->error.message);
}

static int drop(const struct chore *chore, ty_error *err) {
    (void)err;
    checkpoint_drop(chore->path);
    return 0;
}

static int sweep_staging(const struct chore *chore, ty_error *err) {
    (void)err;
    checkpoint_sweep_staging(chore->path, chore->attempt);
    return 0;
}

static void take_check(struct storage_job *job);

/* False when there is nothing to look at. */
static bool post_check(struct checkpoints *checkpoints) {
    const char *path = path_to_check(checkpoints);
    checkpoints->check = NULL;
    if (path != NULL && !checkpoints->stopped)
        checkpoints->check = post_chore(
            checkpoints, "verifying",
            (struct chore){.act = checkpoints->thorough ? check_thoroughly : check, .path = strdup(path)},
            take_check);
    return checkpoints->check != NULL;
}

/* The latest is still the one that was looked at, unless that took longer than anybody waited. */
static void take_check(struct storage_job *job) {
    const struct chore *chore = (const struct chore *)job;
    struct checkpoints *checkpoints = chore->checkpoints;
    const char *path = path_to_check(checkpoints);
    bool awaited = checkpoints->check == chore;
    bool damaged = path != NULL && str_equal(path, chore->path) && is_damage(chore->result);
    if (damaged) pass_over_latest(checkpoints, chore->error.message);
    if (!awaited || (damaged && post_check(checkpoints))) return;
    checkpoints->check = NULL;
    checkpoints->checked(checkpoints->checked_context);
}

bool checkpoints_check_latest(struct checkpoints *checkpoints, void (*checked)(void *context), void *context) {
    checkpoints->checked = checked;
    checkpoints->checked_context = context;
    checkpoints->thorough = false;
    return post_check(checkpoints);
}

void checkpoints_stop_check(struct checkpoints *checkpoints) {
    checkpoints->stopped = true;
    if (checkpoints->check != NULL) checkpoints->check->enough = true;
}

static void on_past_checked(void *context) {
    struct checkpoints *checkpoints = context;
    checkpoints->ready(checkpoints->ready_context, NULL);
}

/* What was left is gone: now the latest is looked at, every byte of it. */
static void take_past(struct storage_job *job) {
    struct past *past = (struct past *)job;
    struct checkpoints *checkpoints = past->checkpoints;
    if (past->result < 0) {
        checkpoints->ready(checkpoints->ready_context, &past->error);
        return;
    }
    checkpoints->checked = on_past_checked;
    checkpoints->checked_context = checkpoints;
    checkpoints->thorough = true;
    if (!post_check(checkpoints)) on_past_checked(checkpoints);
}

bool checkpoints_begin(struct checkpoints *checkpoints, void (*ready)(void *context, const ty_error *err),
                       void *context) {
    struct past *past = TAKE(checkpoints->past);
    if (past == NULL) return false;
    past->job =
        (struct storage_job){NULL, finish_past, take_past, free_past, "clearing up", past->run_path, false};
    checkpoints->ready = ready;
    checkpoints->ready_context = context;
    storage_post(checkpoints->storage, &past->job);
    return true;
}

void checkpoints_discard(struct checkpoints *checkpoints, uint64_t number, int attempt) {
    struct buffer staging = {0};
    checkpoint_staging_path(checkpoints->run_path, number, attempt, &staging);
    (void)post_chore(checkpoints, "removing", (struct chore){.act = drop, .path = buffer_take(&staging)}, NULL);
}

void checkpoints_clear_up(struct checkpoints *checkpoints, int attempt) {
    struct chore chore = {.act = sweep_staging, .path = strdup(checkpoints->run_path), .attempt = attempt};
    (void)post_chore(checkpoints, "clearing up", chore, NULL);
}

void checkpoints_clean(struct checkpoints *checkpoints) {
    for (size_t i = 0; i < checkpoints->n_gone; i++) {
        struct buffer path = {0};
        char *name = TAKE(checkpoints->goners[i].name);
        if (!checkpoint_is_outside(name)) {
            checkpoint_path(checkpoints->run_path, name, &path);
            (void)post_chore(checkpoints, "removing",
                             (struct chore){.act = remove_committed, .path = buffer_take(&path)}, tell_failure);
        }
        free(name);
    }
    checkpoints->n_goners -= checkpoints->n_gone;
    memmove(checkpoints->goners, checkpoints->goners + checkpoints->n_gone,
            checkpoints->n_goners * sizeof *checkpoints->goners);
    checkpoints->n_gone = 0;
}

/* -- commits, begun and ended on the loop */

void checkpoints_listen(struct checkpoints *checkpoints,
                        void (*listener)(void *context, struct published *published), void *context) {
    checkpoints->listener = listener;
    checkpoints->listener_context = context;
}

/* Nobody waits for it any more: its files go, and nobody hears of it. */
static void drop_late(struct checkpoints *checkpoints, struct publication *publication) {
    CLEANUP_FREE char *name = name_of(checkpoints, publication->made.path);
    if (name == NULL || checkpoint_is_outside(name)) return;
    struct chore chore = {.act = remove_committed, .path = TAKE(publication->made.path)};
    (void)post_chore(checkpoints, "removing", chore, tell_failure);
}

static void end_publication(struct storage_job *job) {
    struct publication *publication = (struct publication *)job;
    struct checkpoints *checkpoints = publication->checkpoints;
    struct published *made = &publication->made;
    if (checkpoints->publication != publication) {
        if (made->result >= 0) drop_late(checkpoints, publication);
        return;
    }
    checkpoints->publication = NULL;
    if (made->result >= 0)
        put_on_record(checkpoints, *made, publication->attempt, publication->metrics);
    else
        checkpoints->listener(checkpoints->listener_context, made);
    made->path = NULL;
}

/* Copies of all that the thread needs. */
static int fill(struct publication *publication, const struct checkpoints *checkpoints,
                const struct run_commit *commit, const char *metrics, ty_error *err) {
    struct buffer staging = {0};
    checkpoint_staging_path(checkpoints->run_path, commit->number, commit->attempt, &staging);
    publication->run_path = strdup(checkpoints->run_path);
    publication->job.path = publication->staging = buffer_take(&staging);
    publication->name = commit->name != NULL ? strdup(commit->name) : NULL;
    publication->metrics = metrics != NULL ? strdup(metrics) : NULL;
    publication->files = calloc(commit->n + 1, sizeof *publication->files);
    bool whole = publication->run_path != NULL && publication->staging != NULL && publication->files != NULL &&
                 (publication->name != NULL) == (commit->name != NULL);
    for (; whole && publication->n_files < commit->n; publication->n_files++) {
        char *copy = strdup(commit->files[publication->n_files]);
        if (copy == NULL) return ty_fail_memory(err);
        publication->files[publication->n_files] = copy;
    }
    return whole ? find_place(commit, &publication->place, err) : ty_fail_memory(err);
}

int checkpoints_publish(struct checkpoints *checkpoints, const struct run_commit *commit, const char *metrics,
                        ty_error *err) {
    struct publication *publication = calloc(1, sizeof *publication);
    if (publication == NULL) return ty_fail_memory(err);
    *publication = (struct publication){
        .job = {NULL, publish, end_publication, free_publication, "committing", NULL, false},
        .checkpoints = checkpoints,
        .attempt = commit->attempt,
        .made.number = commit->number,
    };
    int result = fill(publication, checkpoints, commit, metrics, err);
    if (result < 0) {
        free_publication(&publication->job);
        return result;
    }
    checkpoints->publication = publication;
    storage_post(checkpoints->storage, &publication->job);
    return 0;
}

struct storage *checkpoints_storage(const struct checkpoints *checkpoints) {
    return checkpoints->storage;
}

/* The files hang, or the row behind them. */
void checkpoints_settle(struct checkpoints *checkpoints, nanoseconds limit) {
    nanoseconds end = clock_monotonic() + limit;
    bool idle = storage_wait(checkpoints->storage, limit);
    if (checkpoints->publication == NULL) {
        if (checkpoints->entry.name != NULL) records_wait(checkpoints->records, end - clock_monotonic());
        return;
    }
    if (idle) return;
    const struct publication *hangs = TAKE(checkpoints->publication);
    struct published failed = {.number = hangs->made.number};
    failed.result =
        ty_fail(&failed.error, -ETIMEDOUT, "the storage hangs: %s was not committed in time", hangs->staging);
    checkpoints->listener(checkpoints->listener_context, &failed);
}

const char *checkpoints_latest(const struct checkpoints *checkpoints) {
    return checkpoints->n_kept > 0 ? checkpoints->kept[checkpoints->n_kept - 1].path : NULL;
}

const char *checkpoints_latest_metrics(const struct checkpoints *checkpoints) {
    return checkpoints->n_kept > 0 ? checkpoints->kept[checkpoints->n_kept - 1].metrics : NULL;
}

void checkpoints_list(const struct checkpoints *checkpoints, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < checkpoints->n_kept; i++) {
        const struct kept *kept = &checkpoints->kept[i];
        buffer_printf(out, "%s{\"number\": %llu, \"path\": ", i > 0 ? ", " : "",
                      (unsigned long long)kept->number);
        buffer_json_text(out, kept->path);
        buffer_printf(out, ", \"metrics\": %s}", kept->metrics != NULL ? kept->metrics : "null");
    }
    buffer_char(out, ']');
}
