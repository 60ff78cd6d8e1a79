/* Rows and directories of checkpoints, kept in step. */
#include "controller/checkpoints.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
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

struct checkpoints {
    char *run_path;
    const struct checkpoint_policy *policy;
    struct journal *journal;
    struct kept *kept; /* in the order of their numbers */
    size_t n_kept;
    struct goner *goners;
    size_t n_goners;
};

static void free_kept(struct kept *kept) {
    free(kept->name);
    free(kept->path);
    free(kept->metrics);
}

void checkpoints_close(struct checkpoints *checkpoints) {
    if (checkpoints == NULL) return;
    checkpoints_clean(checkpoints);
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

/* A removal that is on record: its files go if they are still there and are its own, for names may be used again. */
static int finish_removal(void *context, int64_t sequence, const struct run_event *event) {
    struct checkpoints *checkpoints = context;
    (void)sequence;
    if (event->kind != EVENT_CHECKPOINT_REMOVED || event->data == NULL) return 0;
    json_t *data = json_loads(event->data, 0, NULL);
    const char *name = json_string_value(json_object_get(data, "name"));
    json_int_t number = json_integer_value(json_object_get(data, "number"));
    CLEANUP(buffer_done) struct buffer path = {0};
    if (name != NULL) checkpoint_path(checkpoints->run_path, name, &path);
    if (name != NULL && !path.failed && number > 0 && checkpoint_number(path.data) == (uint64_t)number)
        (void)checkpoint_remove(checkpoints->run_path, name, NULL);
    json_decref(data);
    return 0;
}

static int sweep(const struct checkpoints *checkpoints, ty_error *err) {
    CLEANUP_FREE const char **names = calloc(checkpoints->n_kept + 1, sizeof *names);
    if (names == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < checkpoints->n_kept; i++)
        names[i] = checkpoints->kept[i].name;
    struct checkpoint_known known = {.names = names, .n = checkpoints->n_kept};
    if (known.n > 0) known.last = checkpoints->kept[known.n - 1].number;
    return checkpoint_sweep(checkpoints->run_path, &known, err);
}

/* How much is read of the latest checkpoint before the next attempt of a run: more would hold up the restart. */
enum { QUICK_BYTES = 64 << 20 };

static int check(const struct kept *kept, bool thoroughly, ty_error *err) {
    size_t n_files;
    int64_t bytes = 0;
    if (checkpoint_is_outside(kept->name)) return 0;
    bool small = checkpoint_measure(kept->path, &n_files, &bytes) && bytes <= QUICK_BYTES;
    return thoroughly || small ? checkpoint_verify(kept->path, err) : checkpoint_verify_sizes(kept->path, err);
}

void checkpoints_check_latest(struct checkpoints *checkpoints, bool thoroughly) {
    ty_error err = {0};
    while (checkpoints->n_kept > 0) {
        struct kept *latest = &checkpoints->kept[checkpoints->n_kept - 1];
        int result = check(latest, thoroughly, &err);
        if (result >= 0 || result == -ENOMEM) return;
        free_kept(latest);
        checkpoints->n_kept--;
        const char *before = checkpoints_latest(checkpoints);
        log_warning("controller", "a checkpoint is damaged and not used: %s; %s%s", err.message,
                    before != NULL ? "the one before it is " : "there is none before it",
                    before != NULL ? before : "");
    }
}

static int take_past(struct checkpoints *checkpoints, ty_error *err) {
    int result = journal_each_checkpoint(checkpoints->journal, take_row, checkpoints, err);
    if (result == -ENOMEM) return ty_fail_memory(err);
    if (result >= 0) result = journal_each_event(checkpoints->journal, 0, finish_removal, checkpoints, err);
    if (result >= 0) result = sweep(checkpoints, err);
    if (result >= 0) checkpoints_check_latest(checkpoints, true);
    return result;
}

int checkpoints_open(const char *run_path, const struct checkpoint_policy *policy, struct journal *journal,
                     bool past, struct checkpoints **out, ty_error *err) {
    struct checkpoints *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct checkpoints){.run_path = strdup(run_path), .policy = policy, .journal = journal};
    int result = made->run_path == NULL ? ty_fail_memory(err) : past ? take_past(made, err) : 0;
    if (result < 0) {
        checkpoints_close(made);
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

static int put_in_place(struct checkpoints *checkpoints, const struct run_commit *commit, char **path,
                        ty_error *err) {
    char *place;
    int result = find_place(commit, &place, err);
    if (result < 0) return result;
    if (place != NULL) {
        checkpoint_discard(checkpoints->run_path, commit->number, commit->attempt);
        *path = place;
        return 0;
    }
    struct checkpoint_parts parts = {commit->number, commit->attempt, commit->name, commit->files, commit->n};
    return checkpoint_publish(checkpoints->run_path, &parts, path, err);
}

static void note_removal(struct checkpoints *checkpoints, const struct kept *kept, ty_error *unrecorded) {
    CLEANUP(buffer_done) struct buffer data = {0};
    buffer_printf(&data, "{\"number\": %llu, \"name\": ", (unsigned long long)kept->number);
    buffer_json_text(&data, kept->name);
    buffer_char(&data, '}');
    struct run_event event = {clock_wall(), EVENT_CHECKPOINT_REMOVED,      0, -1,
                              -1,           data.failed ? NULL : data.data};
    (void)journal_event(checkpoints->journal, &event, unrecorded);
    (void)journal_forget_checkpoint(checkpoints->journal, kept->number, unrecorded);
}

/* Rows of those that go; their files go later (checkpoints_clean). Without memory all of them stay. */
static void retain(struct checkpoints *checkpoints, ty_error *unrecorded) {
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
        note_removal(checkpoints, kept, unrecorded);
        grown[checkpoints->n_goners++] = (struct goner){kept->number, TAKE(kept->name)};
        free_kept(kept);
    }
    checkpoints->n_kept = left;
}

/* The metrics of rank 0's report of this number: it may have made others since. The caller frees. */
static char *find_metrics(const struct checkpoints *checkpoints, const struct run_commit *commit,
                          const char *last) {
    char *metrics = NULL;
    if (journal_find_report(checkpoints->journal, commit->attempt, 0, commit->number, &metrics, NULL) == 1)
        return metrics;
    return last != NULL ? strdup(last) : NULL;
}

/* Files whose end is not on record stay: the journal's rows still speak of them. */
static void spare_goners(struct checkpoints *checkpoints, size_t since) {
    while (checkpoints->n_goners > since)
        free(checkpoints->goners[--checkpoints->n_goners].name);
}

/* Without its row a checkpoint would be swept by the next controller: it counts for nobody. */
static int put_on_record(struct checkpoints *checkpoints, const struct run_commit *commit, const char *path,
                         const char *metrics, ty_error *unrecorded) {
    char *name = name_of(checkpoints, path), *found = find_metrics(checkpoints, commit, metrics);
    struct journal_checkpoint row = {commit->number, commit->attempt, clock_wall(), name, found};
    int result =
        name == NULL ? ty_fail_memory(unrecorded) : journal_checkpoint(checkpoints->journal, &row, unrecorded);
    if (result < 0) {
        free(name);
        free(found);
        return result;
    }
    if (keep(checkpoints, commit->number, name, found) < 0) return ty_fail_memory(unrecorded);
    size_t n_goners = checkpoints->n_goners;
    retain(checkpoints, unrecorded);
    result = journal_commit_durable(checkpoints->journal, unrecorded);
    if (result < 0) {
        spare_goners(checkpoints, n_goners);
        free_kept(&checkpoints->kept[--checkpoints->n_kept]); /* the latest is always kept, and the last */
    }
    return result;
}

int checkpoints_publish(struct checkpoints *checkpoints, const struct run_commit *commit, const char *metrics,
                        char **path, ty_error *unrecorded, ty_error *err) {
    *unrecorded = (ty_error){0};
    int result = put_in_place(checkpoints, commit, path, err);
    if (result < 0) {
        checkpoint_discard(checkpoints->run_path, commit->number, commit->attempt);
        return result;
    }
    if (put_on_record(checkpoints, commit, *path, metrics, unrecorded) >= 0) return 0;
    free(TAKE(*path)); /* the files stay: a sync that failed may have written the row all the same */
    return ty_fail(err, unrecorded->code, "checkpoint %llu cannot be put on record: %s",
                   (unsigned long long)commit->number, unrecorded->message);
}

void checkpoints_discard(struct checkpoints *checkpoints, uint64_t number, int attempt) {
    checkpoint_discard(checkpoints->run_path, number, attempt);
}

bool checkpoints_to_clean(const struct checkpoints *checkpoints) {
    return checkpoints->n_goners > 0;
}

void checkpoints_clean(struct checkpoints *checkpoints) {
    for (size_t i = 0; i < checkpoints->n_goners; i++) {
        ty_error err = {0};
        if (checkpoint_remove(checkpoints->run_path, checkpoints->goners[i].name, &err) < 0)
            log_warning("controller", "%s", err.message);
        free(checkpoints->goners[i].name);
    }
    checkpoints->n_goners = 0;
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
