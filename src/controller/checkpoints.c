/* Rows and directories of checkpoints, kept in step: which are kept, and what goes. How one is committed is in
 * checkpoints_commit.c, what an earlier controller left in checkpoints_past.c, and what is done with the files
 * themselves in src/checkpoint. */
#include "controller/checkpoints_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "run/settings.h"

void kept_done(struct kept *kept) {
    free(kept->name);
    free(kept->path);
    free(kept->metrics);
}

void kept_rate(struct kept *kept, char *metrics, const struct checkpoint_policy *policy) {
    free(kept->metrics);
    kept->metrics = metrics;
    kept->score = retention_score(metrics, policy->score_attribute);
    kept->awaited = retention_is_awaited(metrics);
}

void checkpoints_spare(struct checkpoints *checkpoints) {
    while (checkpoints->n_goners > checkpoints->n_gone)
        free(checkpoints->goners[--checkpoints->n_goners].name);
}

/* The records outlive this, and call nobody any more. Jobs that hang keep what is theirs. */
void checkpoints_close(struct checkpoints *checkpoints, nanoseconds limit) {
    if (checkpoints == NULL) return;
    checkpoints_clean(checkpoints);
    checkpoints_stop_check(checkpoints);
    storage_close(checkpoints->storage, limit);
    past_free(checkpoints->past);
    if (checkpoints->records != NULL) records_then(checkpoints->records, NULL, NULL);
    free(checkpoints->entry.made.path);
    free(checkpoints->entry.name);
    checkpoints_spare(checkpoints);
    for (size_t i = 0; i < checkpoints->n_kept; i++)
        kept_done(&checkpoints->kept[i]);
    free(checkpoints->kept);
    free(checkpoints->goners);
    free(checkpoints->run_path);
    free(checkpoints);
}

int checkpoints_keep(struct checkpoints *checkpoints, uint64_t number, char *name, char *metrics) {
    int result = ARRAY_GROW(checkpoints->kept, checkpoints->n_kept);
    struct buffer path = {0};
    struct kept made = {.number = number, .made = number, .name = name};
    if (name != NULL) checkpoint_path(checkpoints->run_path, name, &path);
    made.path = name != NULL ? buffer_take(&path) : NULL;
    kept_rate(&made, metrics, checkpoints->policy);
    if (result < 0 || made.path == NULL) {
        kept_done(&made);
        return -ENOMEM;
    }
    /* A name that is given again is that of one directory, the newest, by whose number it is known. */
    for (size_t i = 0; i < checkpoints->n_kept; i++)
        if (str_equal(checkpoints->kept[i].name, name)) checkpoints->kept[i].made = number;
    checkpoints->kept[checkpoints->n_kept++] = made;
    return 0;
}

struct kept *checkpoints_find(const struct checkpoints *checkpoints, const char *name) {
    for (size_t i = checkpoints->n_kept; name != NULL && i-- > 0;)
        if (str_equal(checkpoints->kept[i].name, name)) return &checkpoints->kept[i];
    return NULL;
}

struct kept *checkpoints_numbered(const struct checkpoints *checkpoints, uint64_t number) {
    for (size_t i = 0; i < checkpoints->n_kept; i++)
        if (checkpoints->kept[i].number == number) return &checkpoints->kept[i];
    return NULL;
}

int checkpoints_open(const struct checkpoints_place *place, const struct checkpoint_policy *policy,
                     struct checkpoints **out, ty_error *err) {
    struct checkpoints *made = calloc(1, sizeof *made);
    if (made == NULL) return ty_fail_memory(err);
    *made = (struct checkpoints){
        .run_path = strdup(place->run_path), .lock = place->lock, .policy = policy, .records = place->records};
    (void)snprintf(made->run, sizeof made->run, "%s", place->run);
    int result = made->run_path == NULL ? ty_fail_memory(err) : storage_open(place->lock, &made->storage, err);
    if (result >= 0 && place->past) result = checkpoints_read_past(made, err);
    if (result < 0) {
        checkpoints_close(made, 0);
        return result;
    }
    *out = made;
    return 0;
}

/* -- work for the thread: it may outlive the checkpoints, so that all it needs is its own */

/* More of the latest checkpoint is not read before the next attempt of a run, as that would hold it up. */
enum { QUICK_BYTES = 64 << 20 };

/* A check before another attempt must not take long: it reads every byte of a small checkpoint, and of others
 * the sizes. The first look of a controller (CHORE_CHECK_WHOLE) reads every byte of any. */
static void work_chore(struct storage_job *job) {
    struct chore *chore = (struct chore *)job;
    struct checkpoint_mark mark;
    ty_error *err = &chore->error;
    size_t n_files;
    int64_t bytes = 0;
    switch (chore->act) {
    case CHORE_REMOVE:
        mark = (struct checkpoint_mark){chore->run, strrchr(chore->path, '/') + 1, chore->number};
        chore->result = checkpoint_remove(chore->run_path, &mark, err);
        break;
    case CHORE_DROP:
        checkpoint_drop(chore->path);
        break;
    case CHORE_SWEEP:
        checkpoint_sweep_staging(chore->path, chore->attempt);
        break;
    case CHORE_CHECK:
        if (checkpoint_measure(chore->path, &n_files, &bytes) && bytes <= QUICK_BYTES)
            chore->result = checkpoint_verify(chore->path, err);
        else
            chore->result = checkpoint_verify_sizes(chore->path, err);
        break;
    case CHORE_CHECK_WHOLE:
        chore->result = checkpoint_verify_until(chore->path, &chore->enough, err);
        break;
    case CHORE_CHECK_PLACE: /* nobody knows what is to be in a place of a user's */
        chore->result = checkpoint_check_place(chore->run_path, chore->run, chore->path, err);
        break;
    }
}

static void free_chore(struct storage_job *job) {
    struct chore *chore = (struct chore *)job;
    free(chore->path);
    free(chore->run_path);
    free(chore);
}

struct chore *checkpoints_post(struct checkpoints *checkpoints, const char *what, struct chore wanted,
                               void (*done)(struct storage_job *job)) {
    struct chore *chore = wanted.path == NULL ? NULL : calloc(1, sizeof *chore);
    wanted.run_path = chore == NULL ? NULL : strdup(checkpoints->run_path);
    if (wanted.run_path == NULL) {
        free(wanted.path);
        free(chore);
        return NULL;
    }
    *chore = wanted;
    chore->job = (struct storage_job){.work = work_chore,
                                      .done = done,
                                      .release = free_chore,
                                      .what = what,
                                      .path = wanted.path,
                                      .lengthy = wanted.lengthy,
                                      .apart = !wanted.lengthy};
    chore->checkpoints = checkpoints;
    memcpy(chore->run, checkpoints->run, sizeof chore->run);
    storage_post(checkpoints->storage, &chore->job);
    return chore;
}

static void tell(struct storage_job *job) {
    const struct chore *chore = (const struct chore *)job;
    if (chore->result < 0) log_warning("controller", "%s", chore->error.message);
}

void checkpoints_remove(struct checkpoints *checkpoints, char *path, uint64_t number) {
    struct chore chore = {.act = CHORE_REMOVE, .path = path, .number = number};
    (void)checkpoints_post(checkpoints, "removing", chore, tell);
}

void checkpoints_discard(struct checkpoints *checkpoints, uint64_t number, int attempt) {
    struct buffer staging = {0};
    checkpoint_staging_path(checkpoints->run_path, number, attempt, &staging);
    (void)checkpoints_post(checkpoints, "removing",
                           (struct chore){.act = CHORE_DROP, .path = buffer_take(&staging)}, NULL);
}

void checkpoints_clear_up(struct checkpoints *checkpoints, int attempt) {
    struct chore chore = {.act = CHORE_SWEEP, .path = strdup(checkpoints->run_path), .attempt = attempt};
    (void)checkpoints_post(checkpoints, "clearing up", chore, NULL);
}

/* Only the first n_gone: rows of those behind them are not written yet. */
void checkpoints_clean(struct checkpoints *checkpoints) {
    if (checkpoints->n_gone == 0) return;
    for (size_t i = 0; i < checkpoints->n_gone; i++) {
        struct buffer path = {0};
        char *name = TAKE(checkpoints->goners[i].name);
        checkpoint_path(checkpoints->run_path, name, &path);
        /* A place is its user's; a name may be that of a newer one, which is kept. */
        if (!checkpoint_is_place(name) && checkpoints_find(checkpoints, name) == NULL)
            checkpoints_remove(checkpoints, buffer_take(&path), checkpoints->goners[i].number);
        buffer_done(&path);
        free(name);
    }
    checkpoints->n_goners -= checkpoints->n_gone;
    memmove(checkpoints->goners, checkpoints->goners + checkpoints->n_gone,
            checkpoints->n_goners * sizeof *checkpoints->goners);
    checkpoints->n_gone = 0;
}

void checkpoints_listen(struct checkpoints *checkpoints,
                        void (*listener)(void *context, struct published *published), void *context) {
    checkpoints->listener = listener;
    checkpoints->listener_context = context;
}

struct storage *checkpoints_storage(const struct checkpoints *checkpoints) {
    return checkpoints->storage;
}

const char *checkpoints_latest(const struct checkpoints *checkpoints) {
    return checkpoints->n_kept > 0 ? checkpoints->kept[checkpoints->n_kept - 1].path : NULL;
}

uint64_t checkpoints_last_number(const struct checkpoints *checkpoints) {
    return checkpoints->n_kept > 0 ? checkpoints->kept[checkpoints->n_kept - 1].number : 0;
}

const char *checkpoints_path_of(const struct checkpoints *checkpoints, uint64_t number) {
    const struct kept *kept = checkpoints_numbered(checkpoints, number);
    return kept != NULL ? kept->path : NULL;
}

const char *checkpoints_latest_metrics(const struct checkpoints *checkpoints) {
    return checkpoints->n_kept > 0 ? checkpoints->kept[checkpoints->n_kept - 1].metrics : NULL;
}

const char *checkpoints_best(const struct checkpoints *checkpoints, const char **attribute) {
    size_t n = checkpoints->n_kept;
    CLEANUP_FREE double *scores = calloc(n + 1, sizeof *scores);
    *attribute = NULL;
    if (scores == NULL || n == 0) return NULL;
    for (size_t i = 0; i < n; i++)
        scores[i] = checkpoints->kept[i].score;
    size_t best = retention_best(checkpoints->policy, scores, n);
    if (!isnan(scores[best])) *attribute = checkpoints->policy->score_attribute;
    return checkpoints->kept[best].path;
}

void checkpoints_list(const struct checkpoints *checkpoints, bool by_name, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < checkpoints->n_kept; i++) {
        const struct kept *kept = &checkpoints->kept[i];
        buffer_printf(out, "%s{\"number\": %llu, \"%s\": ", i > 0 ? ", " : "", (unsigned long long)kept->number,
                      by_name ? "name" : "path");
        buffer_json_text(out, by_name ? kept->name : kept->path);
        buffer_printf(out, ", \"metrics\": %s}", kept->metrics != NULL ? kept->metrics : "null");
    }
    buffer_char(out, ']');
}
