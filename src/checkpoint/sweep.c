/* What controllers and workers that were killed left behind. Nothing goes but what has a name of a form that
 * Trainyard alone gives, or what this run published itself (mark.h). Whole runs are removed elsewhere
 * (controller/run_removal.c). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mark.h"
#include "checkpoint/tree.h"

enum { NAMES_TOLD = 8 };

struct checkpoint_sweep {
    const char *run_path;
    const struct checkpoint_known *known; /* NULL: what was on its way alone, */
    int attempt;                          /* of this attempt and those before it */
    bool given;                           /* and what was given away alone */
    struct checkpoint_swept *swept;
};

static void note(struct checkpoint_names *names, const char *name) {
    if (names->n > 0 && names->n < NAMES_TOLD) buffer_text(&names->text, ", ");
    if (names->n < NAMES_TOLD) utf8_escape(name, strlen(name), &names->text);
    names->n++;
}

/* The number of a name that a checkpoint gets by itself; 0 for another. */
static uint64_t number_of_name(const char *name) {
    int64_t number;
    const char *digits;
    char made[CHECKPOINT_NAME_SIZE];
    if (!str_prefix(name, NAME_PREFIX, &digits) || !str_to_int64(digits, 0, INT64_MAX, &number)) return 0;
    checkpoint_name((uint64_t)number, made);
    return str_equal(made, name) ? (uint64_t)number : 0;
}

static int fail(const struct checkpoint_sweep *sweep, const char *name, int result, ty_error *err) {
    return ty_fail(err, result, "cannot remove %s/%s, which a killed run left: %s", sweep->run_path, name,
                   strerror(-result));
}

/* A checkpoint whose row was never written. */
static int sweep_published(const struct checkpoint_sweep *sweep, const struct tree_entry *entry,
                           ty_error *err) {
    const struct checkpoint_known *known = sweep->known;
    bool is_known = entry->name[0] == '.';
    for (size_t i = 0; i < known->n && !is_known; i++) {
        const char *kept = known->names[i];
        is_known = str_equal(kept, entry->name) ||
                   (str_prefix(kept, PLACE_PREFIX, &kept) && str_equal(kept, entry->name));
    }
    if (is_known) return TREE_SKIP;
    struct mark_found found = mark_find(entry->directory, entry->name, known->run);
    uint64_t number = found.number > 0 ? found.number : number_of_name(entry->name);
    if (number <= known->last) return TREE_SKIP;
    note(found.original ? &sweep->swept->gone : &sweep->swept->stays, entry->name);
    int result = found.original ? tree_take_away(entry->directory, entry->name, number) : 0;
    return result < 0 ? fail(sweep, entry->name, result, err) : TREE_SKIP;
}

/* A later attempt may be writing there while slow storage still sweeps behind the one before. */
static int sweep_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    const struct checkpoint_sweep *sweep = context;
    int64_t attempt;
    enum mark_form form = mark_form(entry->name, &attempt);
    (void)visit;
    bool link = S_ISLNK(entry->status.st_mode) && form == FORM_GIVEN;
    if (!S_ISDIR(entry->status.st_mode) && !link) return TREE_SKIP;
    if (form == FORM_OTHER) return sweep->known != NULL ? sweep_published(sweep, entry, err) : TREE_SKIP;
    if (sweep->known == NULL && (form == FORM_TRASH || attempt > sweep->attempt)) return TREE_SKIP;
    if (sweep->given && form != FORM_GIVEN) return TREE_SKIP;
    note(&sweep->swept->gone, entry->name);
    int result;
    if (link) {
        CLEANUP(buffer_done) struct buffer path = {0};
        buffer_printf(&path, "%s/%s", sweep->run_path, entry->name);
        result = path.failed ? -ENOMEM : checkpoint_drop_given(path.data);
    } else {
        result = tree_remove(entry->directory, entry->name);
    }
    return result < 0 ? fail(sweep, entry->name, result, err) : TREE_SKIP;
}

/* Entries of the run's directory alone are looked at: a visitor that removes or skips enters nothing. */
static int sweep_run(const struct checkpoint_sweep *sweep, ty_error *err) {
    CLEANUP_FD int top = tree_open(AT_FDCWD, sweep->run_path, true, err);
    if (top < 0) return top;
    return tree_walk(top, sweep->run_path, sweep_entry, (void *)sweep, err);
}

int checkpoint_sweep(const char *run_path, const struct checkpoint_known *known, struct checkpoint_swept *swept,
                     ty_error *err) {
    return sweep_run(&(struct checkpoint_sweep){.run_path = run_path, .known = known, .swept = swept}, err);
}

void checkpoint_swept_done(struct checkpoint_swept *swept) {
    buffer_done(&swept->gone.text);
    buffer_done(&swept->stays.text);
}

static void sweep_attempt(const char *run_path, int attempt, bool given) {
    CLEANUP(checkpoint_swept_done) struct checkpoint_swept swept = {0};
    struct checkpoint_sweep sweep = {.run_path = run_path, .attempt = attempt, .given = given, .swept = &swept};
    (void)sweep_run(&sweep, NULL);
}

void checkpoint_sweep_staging(const char *run_path, int attempt) {
    sweep_attempt(run_path, attempt, false);
}

void checkpoint_sweep_given(const char *run_path, int attempt) {
    sweep_attempt(run_path, attempt, true);
}
