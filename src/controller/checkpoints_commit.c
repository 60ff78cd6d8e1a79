/* Commits: files get into their place, then on record, then those go that are no longer kept. In this order,
 * since a row without files would be a checkpoint that cannot be restored, while files without a row are
 * swept by the next controller. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "controller/checkpoints_internal.h"
#include "controller/run_lock.h"
#include "run/settings.h"

/* A commit on its way. What the thread uses of it are copies, and the descriptor of the lock: whoever waited
 * for the commit may be gone when the thread comes to it. */
struct publication {
    struct storage_job job;
    struct checkpoints *checkpoints; /* for what follows */
    char *run_path, *staging, run[CHECKPOINT_RUN_SIZE];
    int lock; /* of the run; -1: none */
    int attempt;
    char *name; /* NULL: by its number */
    uint64_t adds_to;
    bool beside;
    char **files;
    size_t n_files;
    char *place;   /* where the files lie; NULL: in the staging directory */
    bool again;    /* an earlier controller may have done it */
    bool joins;    /* some do, and are to join those in the place */
    char *metrics; /* NULL: not known */
    struct published made;
};

/* -- in the thread */

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

/* Files that lie in a place of a user's are not moved, only looked at; those that some ranks wrote into the
 * staging directory join them there. What failed is left as it is: checkpoints_discard follows. */
static void publish(struct storage_job *job) {
    struct publication *publication = (struct publication *)job;
    struct published *made = &publication->made;
    struct checkpoint_parts parts = {publication->run,
                                     made->number,
                                     publication->attempt,
                                     publication->name,
                                     publication->adds_to,
                                     publication->beside,
                                     (const char *const *)publication->files,
                                     publication->n_files,
                                     publication->again};
    const char *place = publication->place;
    /* A controller that has lost the run puts nothing into its place; the journal would tell behind the
     * rename. */
    if (publication->lock >= 0)
        made->result = run_lock_check(publication->lock, publication->run_path, &made->error);
    if (made->result < 0) return;
    if (place == NULL)
        made->result = checkpoint_publish(publication->run_path, &parts, &made->path, &made->error);
    else
        made->result = checkpoint_check_place(publication->run_path, publication->run, place, &made->error);
    if (publication->joins && made->result >= 0)
        made->result = checkpoint_add_to_place(publication->staging, place, &made->error);
    if (place != NULL && made->result >= 0 && (made->path = strdup(place)) == NULL)
        made->result = ty_fail_memory(&made->error);
    if (place != NULL && made->result >= 0) checkpoint_drop(publication->staging);
}

/* -- on the loop */

/* The place that every rank named whose files lie outside, NULL when all of them wrote into the staging
 * directory. Some may have written there where the place is the one that the checkpoint has by its name: 1,
 * since their files are to join those of the others; else 0 or negative. The caller frees. */
static int find_place(const char *run_path, const struct run_commit *commit, char **place, ty_error *err) {
    size_t n = 0, named = 0;
    const char *name;
    *place = NULL;
    for (size_t i = 0; i < commit->n; i++) {
        json_t *value = commit->files[i][0] == '"' ? json_loads(commit->files[i], JSON_DECODE_ANY, NULL) : NULL;
        const char *text = json_string_value(value);
        bool same = text != NULL && (*place == NULL || str_equal(*place, text));
        if (same && *place == NULL) *place = strdup(text);
        named += text != NULL;
        json_decref(value);
        n += same;
    }
    if (named > 0 && *place == NULL) return ty_fail_memory(err);
    if (n == 0 || n == commit->n) return 0;
    CLEANUP_FREE char *by_name = checkpoint_place_name(run_path, *place);
    if (by_name != NULL && n == named && str_prefix(by_name, PLACE_PREFIX, &name) &&
        str_equal(name, commit->name))
        return 1;
    free(TAKE(*place));
    return ty_fail(err, TY_EUSAGE,
                   "the ranks name different places of checkpoint %llu: it must be the same for all",
                   (unsigned long long)commit->number);
}

/* Rows are written in their order: also called when that of a later commit is. */
static void note_gone(void *context, const char *metrics) {
    struct checkpoints *checkpoints = context;
    (void)metrics;
    if (records_error(checkpoints->records)->code != 0) checkpoints_spare(checkpoints);
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
    if (gone == 0 || ARRAY_RESIZE(checkpoints->goners, checkpoints->n_goners + gone) < 0) return;
    for (size_t i = 0; i < n; i++) {
        struct kept *kept = &checkpoints->kept[i];
        if (!surplus[i] || kept->awaited) {
            checkpoints->kept[left++] = *kept;
            continue;
        }
        struct run_event event = run_event_new(EVENT_CHECKPOINT_REMOVED);
        event.time = clock_wall();
        event.of.checkpoint_removed = (struct event_checkpoint_removed){(int64_t)kept->number, kept->name};
        records_event(checkpoints->records, &event);
        records_forget_checkpoint(checkpoints->records, kept->number);
        checkpoints->goners[checkpoints->n_goners++] = (struct goner){kept->made, TAKE(kept->name)};
        kept_done(kept);
    }
    checkpoints->n_kept = left;
    if (checkpoints->entry.name == NULL) records_then(checkpoints->records, note_gone, checkpoints);
}

static int fail_unrecorded(uint64_t number, const ty_error *why, ty_error *err) {
    return ty_fail(err, why->code, "checkpoint %llu cannot be put on record: %s", (unsigned long long)number,
                   why->message);
}

int checkpoints_set_metrics(struct checkpoints *checkpoints, uint64_t number, const char *metrics,
                            ty_error *err) {
    struct kept *kept = checkpoints_numbered(checkpoints, number);
    if (kept == NULL) return 0;
    char *copy = strdup(metrics);
    if (copy == NULL) return ty_fail_memory(err);
    kept_rate(kept, copy, checkpoints->policy);
    records_checkpoint_metrics(checkpoints->records, number, metrics);
    retain(checkpoints);
    return 1;
}

/* Without its row a checkpoint would be swept by the next controller: it counts for nobody. Its files stay: a
 * sync that failed, or hangs, may have written the row all the same. */
static void fail_entry(struct published *made, const ty_error *why) {
    free(TAKE(made->path));
    made->result = fail_unrecorded(made->number, why, &made->error);
}

/* Workers that wait for the commit are answered before the rows of the checkpoints that go are written, which
 * takes as long again. */
static void end_entry(void *context, const char *metrics) {
    struct checkpoints *checkpoints = context;
    struct published made = checkpoints->entry.made;
    const ty_error *failure = records_error(checkpoints->records);
    char *name = TAKE(checkpoints->entry.name), *copy = metrics != NULL ? strdup(metrics) : NULL;
    checkpoints->entry = (struct entering){0};
    note_gone(checkpoints, NULL);
    ty_error memory = {0};
    if (failure->code != 0) {
        free(name);
        free(copy);
    } else if (checkpoints_keep(checkpoints, made.number, name, copy) < 0) {
        (void)ty_fail_memory(&memory);
        failure = &memory;
    }
    if (failure->code != 0) fail_entry(&made, failure);
    bool kept = made.result >= 0;
    checkpoints->listener(checkpoints->listener_context, &made);
    records_commit(checkpoints->records);
    if (kept) retain(checkpoints);
}

/* The listener hears of it when its row is written. What was made is taken over. */
static void put_on_record(struct checkpoints *checkpoints, const struct publication *publication) {
    struct published made = publication->made;
    char *name = publication->place != NULL ? checkpoint_place_name(publication->run_path, made.path)
                                            : strdup(strrchr(made.path, '/') + 1);
    struct journal_checkpoint row = {made.number, publication->attempt, clock_wall(), name,
                                     publication->metrics};
    if (name == NULL) {
        ty_error err;
        (void)ty_fail_memory(&err);
        fail_entry(&made, &err);
        checkpoints->listener(checkpoints->listener_context, &made);
        return;
    }
    checkpoints->entry = (struct entering){made, name};
    records_checkpoint(checkpoints->records, &row);
    records_then(checkpoints->records, end_entry, checkpoints);
    records_commit(checkpoints->records);
}

/* A commit that was given up (checkpoints_settle) and has got into its place all the same goes again: workers
 * were told that it failed, and may have begun another one. One that became part of an older checkpoint stays:
 * the older one's row speaks of it. */
static void end_publication(struct storage_job *job) {
    struct publication *publication = (struct publication *)job;
    struct checkpoints *checkpoints = publication->checkpoints;
    struct published *made = &publication->made;
    if (checkpoints->publication != publication) { /* nobody waits for it any more, or hears of it */
        if (made->result >= 0 && publication->place == NULL && publication->adds_to == 0)
            checkpoints_remove(checkpoints, TAKE(made->path), made->number);
        return;
    }
    checkpoints->publication = NULL;
    if (made->result >= 0) {
        char usual[CHECKPOINT_NAME_SIZE];
        checkpoint_name(made->number, usual);
        bool by_number = publication->place == NULL && publication->name == NULL;
        if (by_number && !str_equal(strrchr(made->path, '/') + 1, usual)) /* somebody else's has that name */
            log_warning("controller", "%s/%s is taken: checkpoint %llu is %s", publication->run_path, usual,
                        (unsigned long long)made->number, made->path);
        put_on_record(checkpoints, publication);
    } else {
        checkpoints->listener(checkpoints->listener_context, made);
    }
    made->path = NULL;
}

/* Copies of all that the thread needs. */
static int fill(struct publication *publication, const struct checkpoints *checkpoints,
                const struct run_commit *commit, const char *metrics, ty_error *err) {
    struct buffer staging = {0};
    checkpoint_staging_path(checkpoints->run_path, commit->number, commit->attempt, &staging);
    publication->run_path = strdup(checkpoints->run_path);
    memcpy(publication->run, checkpoints->run, sizeof publication->run);
    publication->lock = checkpoints->lock;
    publication->job.path = publication->staging = buffer_take(&staging);
    publication->name = commit->name != NULL ? strdup(commit->name) : NULL;
    const struct kept *older = checkpoints_find(checkpoints, commit->name);
    publication->adds_to = older != NULL ? older->number : 0;
    publication->beside = checkpoints->policy->manifest == MANIFEST_BESIDE;
    publication->again = checkpoints->follows;
    publication->metrics = metrics != NULL ? strdup(metrics) : NULL;
    publication->files = calloc(commit->n + 1, sizeof *publication->files);
    bool whole = publication->run_path != NULL && publication->staging != NULL && publication->files != NULL &&
                 (publication->name != NULL) == (commit->name != NULL);
    for (; whole && publication->n_files < commit->n; publication->n_files++) {
        char *copy = strdup(commit->files[publication->n_files]);
        if (copy == NULL) return ty_fail_memory(err);
        publication->files[publication->n_files] = copy;
    }
    if (!whole) return ty_fail_memory(err);
    int result = find_place(checkpoints->run_path, commit, &publication->place, err);
    publication->joins = result == 1;
    return result;
}

/* Workers start behind the row that names the run, or when it has failed. So where no row has failed that one
 * is on record, and the next controller knows by the run's id what this one put into its place. */
int checkpoints_publish(struct checkpoints *checkpoints, const struct run_commit *commit, const char *metrics,
                        ty_error *err) {
    const ty_error *failure = records_error(checkpoints->records);
    if (failure->code != 0) return fail_unrecorded(commit->number, failure, err);
    struct publication *publication = calloc(1, sizeof *publication);
    if (publication == NULL) return ty_fail_memory(err);
    *publication = (struct publication){
        .job = {.work = publish,
                .done = end_publication,
                .release = free_publication,
                .what = "committing",
                .apart = true},
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
