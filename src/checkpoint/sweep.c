/* What controllers and workers that were killed left behind, found by its name, or by its manifest. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/names.h"
#include "checkpoint/tree.h"

struct sweep {
    const char *run_path;
    const struct checkpoint_known *known; /* NULL: staging directories alone, */
    int attempt;                          /* of this attempt and those before it */
};

static bool is_known(const char *name, const struct checkpoint_known *known) {
    for (size_t i = 0; i < known->n; i++)
        if (str_equal(known->names[i], name)) return true;
    return false;
}

/* By its name, if that is one of ours, else by its manifest. */
static uint64_t number_of(const char *run_path, const char *name) {
    int64_t number;
    const char *digits = NULL;
    char made[CHECKPOINT_NAME_SIZE];
    if (str_prefix(name, NAME_PREFIX, &digits) && str_to_int64(digits, 0, INT64_MAX, &number)) {
        checkpoint_name((uint64_t)number, made);
        if (str_equal(made, name)) return (uint64_t)number;
    }
    CLEANUP(buffer_done) struct buffer path = {0};
    buffer_printf(&path, "%s/%s", run_path, name);
    return path.failed ? 0 : checkpoint_number(path.data);
}

/* A staging directory, or one of a rank that gathers there: a later attempt may be writing there while slow storage still sweeps behind
 * the one before. */
static bool is_staging(const struct sweep *sweep, const char *name) {
    const char *mark = strstr(name, STAGING_MARK);
    if (name[0] != '.' || !str_prefix(name + 1, NAME_PREFIX, NULL) || mark == NULL) return false;
    return sweep->known != NULL || strtoll(mark + strlen(STAGING_MARK), NULL, 10) <= sweep->attempt;
}

static bool is_left_over(const struct sweep *sweep, const char *name) {
    size_t size = strlen(name), mark = strlen(TRASH_MARK);
    if (is_staging(sweep, name)) return true;
    if (sweep->known == NULL) return false;
    if (name[0] == '.') return size > mark && str_equal(name + size - mark, TRASH_MARK);
    return !is_known(name, sweep->known) && number_of(sweep->run_path, name) > sweep->known->last;
}

static int sweep_entry(void *context, enum tree_visit visit, const struct tree_entry *entry, ty_error *err) {
    const struct sweep *sweep = context;
    (void)visit;
    if (!S_ISDIR(entry->status.st_mode) || !is_left_over(sweep, entry->name)) return TREE_SKIP;
    int result = tree_remove(entry->directory, entry->name);
    if (result < 0)
        return ty_fail(err, result, "cannot remove %s/%s, which a killed run left: %s", sweep->run_path,
                       entry->name, strerror(-result));
    return 0;
}

static int sweep_run(const struct sweep *sweep, ty_error *err) {
    CLEANUP_FD int top = tree_open(AT_FDCWD, sweep->run_path, true, err);
    if (top < 0) return top;
    return tree_walk(top, sweep->run_path, sweep_entry, (void *)sweep, err);
}

int checkpoint_sweep(const char *run_path, const struct checkpoint_known *known, ty_error *err) {
    return sweep_run(&(struct sweep){.run_path = run_path, .known = known}, err);
}

void checkpoint_sweep_staging(const char *run_path, int attempt) {
    (void)sweep_run(&(struct sweep){.run_path = run_path, .attempt = attempt}, NULL);
}
