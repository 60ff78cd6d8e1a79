/* What an earlier controller left half done is finished, and the latest checkpoint looked at before anybody is
 * to go on from it. How files are swept and verified is the room checkpoint's; here is the order, and what the
 * user is told of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "controller/checkpoints_internal.h"

/* Work that is to be finished before the run goes on. All that the thread needs is in here, since the job may
 * outlive the checkpoints. */
struct past {
    struct storage_job job;
    struct checkpoints *checkpoints; /* for what follows */
    char *run_path, run[CHECKPOINT_RUN_SIZE];
    struct checkpoint_swept swept;
    struct goner *removed; /* removals that are on record */
    size_t n_removed;
    char **names; /* that are kept */
    size_t n_names;
    uint64_t last; /* number of the last of these */
    int result;
    ty_error error;
};

void past_free(struct past *past) {
    if (past == NULL) return;
    for (size_t i = 0; i < past->n_removed; i++)
        free(past->removed[i].name);
    for (size_t i = 0; i < past->n_names; i++)
        free(past->names[i]);
    free(past->removed);
    free(past->names);
    checkpoint_swept_done(&past->swept);
    free(past->run_path);
    free(past);
}

static int take_row(void *context, const struct journal_checkpoint *row) {
    char *metrics = row->metrics != NULL ? strdup(row->metrics) : NULL;
    return checkpoints_keep(context, row->number, strdup(row->name), metrics);
}

static int take_removal(void *context, int64_t sequence, const struct journal_event *row) {
    struct past *past = context;
    (void)sequence;
    if (row->kind != EVENT_CHECKPOINT_REMOVED) return 0;
    if (ARRAY_GROW(past->removed, past->n_removed) < 0) return -ENOMEM;
    struct run_event event;
    struct event_memory memory = {0};
    int result = journal_event_values(row, &event, &memory);
    const struct event_checkpoint_removed *removed = &event.of.checkpoint_removed;
    if (result == 0 && removed->name != NULL && removed->number > 0) {
        char *copy = strdup(removed->name);
        if (copy == NULL) result = -ENOMEM;
        if (copy != NULL) past->removed[past->n_removed++] = (struct goner){(uint64_t)removed->number, copy};
    }
    event_memory_done(&memory);
    return result;
}

static void release_past(struct storage_job *job) {
    past_free((struct past *)job);
}

/* In the thread. Files go if they are still there and are the removed one's own, for names may be used
 * again. */
static void finish_past(struct storage_job *job) {
    struct past *past = (struct past *)job;
    struct checkpoint_known known = {
        .run = past->run, .names = (const char *const *)past->names, .n = past->n_names, .last = past->last};
    for (size_t i = 0; i < past->n_removed; i++) {
        struct checkpoint_mark mark = {past->run, past->removed[i].name, past->removed[i].number};
        bool kept = str_find(mark.name, (const char *const *)past->names, past->n_names) >= 0;
        if (mark.number > 0 && !kept) (void)checkpoint_remove(past->run_path, &mark, NULL);
    }
    past->result = checkpoint_sweep(past->run_path, &known, &past->swept, &past->error);
}

int checkpoints_read_past(struct checkpoints *checkpoints, ty_error *err) {
    struct past *past = checkpoints->past = calloc(1, sizeof *past);
    if (past == NULL) return ty_fail_memory(err);
    past->checkpoints = checkpoints;
    struct journal *journal = records_journal(checkpoints->records);
    int result = journal_each_checkpoint(journal, take_row, checkpoints, err);
    if (result >= 0) result = journal_each_event(journal, 0, take_removal, past, err);
    if (result < 0) return result == -ENOMEM ? ty_fail_memory(err) : result;
    past->run_path = strdup(checkpoints->run_path);
    memcpy(past->run, checkpoints->run, sizeof past->run);
    past->names = calloc(checkpoints->n_kept + 1, sizeof *past->names);
    if (past->run_path == NULL || past->names == NULL) return ty_fail_memory(err);
    for (; past->n_names < checkpoints->n_kept; past->n_names++) {
        const struct kept *kept = &checkpoints->kept[past->n_names];
        if ((past->names[past->n_names] = strdup(kept->name)) == NULL) return ty_fail_memory(err);
        past->last = kept->number;
    }
    return 0;
}

void checkpoints_leave_past(struct checkpoints *checkpoints) {
    past_free(TAKE(checkpoints->past));
    checkpoints->follows = true;
}

/* -- whether the latest is whole */

/* The path of a latest that can be looked at; NULL: there is none. */
static const char *path_to_check(const struct checkpoints *checkpoints) {
    if (checkpoints->n_kept == 0) return NULL;
    const struct kept *latest = &checkpoints->kept[checkpoints->n_kept - 1];
    return checkpoint_is_address(latest->path) ? NULL : latest->path;
}

static void take_check(struct storage_job *job);

/* False when there is nothing to look at. */
static bool post_check(struct checkpoints *checkpoints) {
    const char *path = path_to_check(checkpoints);
    checkpoints->check = NULL;
    if (path == NULL || checkpoints->stopped) return false;
    bool place = checkpoint_is_place(checkpoints->kept[checkpoints->n_kept - 1].name);
    struct chore chore = {.act = place                   ? CHORE_CHECK_PLACE
                                 : checkpoints->thorough ? CHORE_CHECK_WHOLE
                                                         : CHORE_CHECK,
                          .path = strdup(path),
                          .lengthy = checkpoints->thorough && !place};
    checkpoints->check = checkpoints_post(checkpoints, "verifying", chore, take_check);
    return checkpoints->check != NULL;
}

/* The latest is still the one that was looked at, unless that took longer than anybody waited. */
static void take_check(struct storage_job *job) {
    const struct chore *chore = (const struct chore *)job;
    struct checkpoints *checkpoints = chore->checkpoints;
    const char *path = path_to_check(checkpoints);
    bool awaited = checkpoints->check == chore;
    bool fails = chore->result < 0 && chore->result != -ENOMEM && chore->result != -ECANCELED;
    bool damaged = fails && path != NULL && str_equal(path, chore->path);
    if (damaged) {
        /* The checkpoint before it takes its place. */
        kept_done(&checkpoints->kept[--checkpoints->n_kept]);
        const char *before = checkpoints_latest(checkpoints);
        log_warning("controller", "a checkpoint is damaged and not used: %s; %s%s", chore->error.message,
                    before != NULL ? "the one before it is " : "there is none before it",
                    before != NULL ? before : "");
    }
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

/* "a, b and 3 more". */
static void tell_names(const char *run_path, const struct checkpoint_names *names, const char *what) {
    size_t told = 8 < names->n ? 8 : names->n;
    char more[32] = "";
    if (names->n > told) (void)snprintf(more, sizeof more, " and %zu more", names->n - told);
    if (names->n > 0 && !names->text.failed)
        log_warning("controller", "%s: %s: %s%s", run_path, what, names->text.data, more);
}

/* Now that the leftovers are gone the latest is looked at, every byte of it. */
static void take_past(struct storage_job *job) {
    struct past *past = (struct past *)job;
    struct checkpoints *checkpoints = past->checkpoints;
    tell_names(past->run_path, &past->swept.gone, "removed what was on its way when the run was cut off");
    tell_names(past->run_path, &past->swept.stays,
               "named like checkpoints, but not made by this run: these stay");
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
    past->job = (struct storage_job){.work = finish_past,
                                     .done = take_past,
                                     .release = release_past,
                                     .what = "clearing up",
                                     .path = past->run_path};
    checkpoints->ready = ready;
    checkpoints->ready_context = context;
    storage_post(checkpoints->storage, &past->job);
    return true;
}
