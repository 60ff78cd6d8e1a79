/* `trainyard rm` and `trainyard prune`: runs that are no longer wanted. A run that goes on is never removed,
 * and one whose directory holds a checkpoint only by force: that may be all there is of a model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/quantity.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "view/summary.h"

static bool has_checkpoint(const struct view_summary *summary) {
    CLEANUP(buffer_done) struct buffer path = {0};
    struct stat status;
    if (summary->last_checkpoint == NULL) return false;
    if (checkpoint_is_place(summary->last_checkpoint) && !str_prefix(summary->last_checkpoint, "./", NULL))
        return false; /* the run lies elsewhere, and stays */
    checkpoint_path(summary->path, summary->last_checkpoint, &path);
    return path.failed || stat(path.data, &status) == 0 || errno != ENOENT;
}

/* -- rm */

struct rm_options {
    bool force;
};

static const struct option_spec rm_specs[] = {
    {"force", 0, NULL, "also where the run's directory holds a checkpoint, or its journal cannot be read",
     option_flag, offsetof(struct rm_options, force), NULL},
};
static const struct option_group rm_group = {"Options", rm_specs, ARRAY_SIZE(rm_specs)};

static int check_removable(const char *name, const char *path, ty_error *err) {
    struct view_summary summary;
    int result = view_summary_read(name, path, &summary, err);
    if (result < 0) return ty_wrap(err, "%s (--force removes it unread)", name);
    bool keeps = has_checkpoint(&summary);
    if (keeps)
        result = ty_fail(err, TY_EUSAGE, "%s holds a checkpoint, %s: --force removes it too", name,
                         summary.last_checkpoint);
    view_summary_done(&summary);
    return result;
}

static int remove_run(const char *name, const char *path, bool force, ty_error *err) {
    struct run_disk disk;
    if (run_lock_is_held(path)) return run_lock_refuse(path, err);
    int result = force ? 0 : check_removable(name, path, err);
    if (result >= 0) result = run_disk_read(path, &disk, err);
    if (result >= 0) result = run_remove(path, err);
    if (result >= 0) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "removed %s: ", name);
        bytes_format((quantity)disk.bytes * QUANTITY_ONE, &text);
        buffer_char(&text, '\n');
        (void)cli_print(&text, err);
    }
    return result;
}

static int rm_run(const struct arguments *arguments, ty_error *err) {
    struct rm_options options = {0};
    struct storage_options storage = {0};
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    for (size_t i = 0; result >= 0 && i < arguments->n_words; i++) {
        CLEANUP_FREE char *path = run_directory_find(storage.storage_path, arguments->words[i], err);
        result = path == NULL ? err->code : remove_run(arguments->words[i], path, options.force, err);
    }
    return result;
}

const struct command command_rm = {
    .name = "rm",
    .summary = "remove runs, with their logs and checkpoints",
    .usage = (const char *const[]){"NAME... [OPTION...]", NULL},
    .description = "Removes the run's directory with all that lies in it, and says how much that frees. "
                   "Checkpoints that a program put elsewhere stay.",
    .groups = (const struct option_group *const[]){&rm_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = SIZE_MAX,
    .missing = "which run? `trainyard status` lists them",
    .run = rm_run,
};

/* -- prune */

struct prune_options {
    nanoseconds older_than;
    bool keep_failed, force, yes, dry;
};

static const struct option_spec prune_specs[] = {
    {"older-than", 0, "DURATION", "only runs that ended that long ago, such as 30d (default: all that ended)",
     option_duration, offsetof(struct prune_options, older_than), NULL},
    {"keep-failed", 0, NULL, "not runs that failed or died", option_flag,
     offsetof(struct prune_options, keep_failed), NULL},
    {"force", 0, NULL, "also runs whose directory holds a checkpoint", option_flag,
     offsetof(struct prune_options, force), NULL},
    {"yes", 'y', NULL, "do not ask; needed where standard input is no terminal", option_flag,
     offsetof(struct prune_options, yes), NULL},
    {"dry-run", 0, NULL, "only say what would be removed", option_flag, offsetof(struct prune_options, dry),
     NULL},
};
static const struct option_group prune_group = {"Options", prune_specs, ARRAY_SIZE(prune_specs)};

struct candidate {
    char *path; /* owned */
    uint64_t bytes;
};

struct prune {
    const struct prune_options *options;
    struct candidate *candidates; /* n of them */
    size_t n;
    uint64_t bytes;
    size_t kept_for_checkpoints;
    struct text_table table;
};

static bool is_wanted(struct prune *prune, const struct view_summary *summary) {
    if (summary->standing <= STANDING_RUNNING || summary->ended == 0) return true;
    if (clock_wall() - summary->ended < prune->options->older_than) return true;
    bool failed = summary->standing == STANDING_FAILED || summary->standing == STANDING_DIED;
    if (failed && prune->options->keep_failed) return true;
    if (prune->options->force || !has_checkpoint(summary)) return false;
    prune->kept_for_checkpoints++;
    return true;
}

/* A run that cannot be read is told, and stays. */
static void consider(struct prune *prune, const char *storage_path, const char *name) {
    struct view_summary summary;
    struct run_disk disk;
    ty_error err = {0};
    CLEANUP_FREE char *path = run_directory_find(storage_path, name, &err);
    int result = path == NULL ? err.code : view_summary_read(name, path, &summary, &err);
    if (result < 0) {
        terminal_warning("prune", err.message);
        return;
    }
    if (!is_wanted(prune, &summary) && !run_lock_is_held(path)) {
        if (run_disk_read(path, &disk, &err) < 0) {
            terminal_warning("prune", err.message);
        } else {
            CLEANUP(buffer_done) struct buffer text = {0};
            table_cell(&prune->table, summary.name);
            table_cell(&prune->table, run_standing_name(summary.standing));
            duration_format(clock_wall() - summary.ended, &text);
            table_take(&prune->table, &text);
            bytes_format((quantity)disk.bytes * QUANTITY_ONE, &text);
            table_take(&prune->table, &text);
            prune->bytes += disk.bytes;
            prune->candidates[prune->n++] = (struct candidate){TAKE(path), disk.bytes};
        }
    }
    view_summary_done(&summary);
}

/* 1: go on; 0: no. */
static int ask(const struct prune *prune, ty_error *err) {
    char line[16];
    if (prune->options->dry || prune->n == 0) return 0;
    if (prune->options->yes) return 1;
    if (!isatty(STDIN_FILENO))
        return ty_fail(err, TY_EUSAGE, "nothing is removed without --yes where nobody can be asked");
    (void)fputs("Remove them? [y/N] ", stderr);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

/* Goes on past a run that cannot be removed, or was taken up meanwhile: its error is the last word. */
static int remove_all(const struct prune *prune, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = 0;
    uint64_t freed = 0;
    size_t removed = 0;
    for (size_t i = 0; i < prune->n; i++) {
        ty_error own = {0};
        int one = run_remove(prune->candidates[i].path, &own);
        if (one >= 0) {
            freed += prune->candidates[i].bytes;
            removed++;
            continue;
        }
        if (result < 0) terminal_warning("prune", err->message);
        *err = own;
        result = one;
    }
    buffer_printf(&text, "removed %zu run%s: ", removed, removed == 1 ? "" : "s");
    bytes_format((quantity)freed * QUANTITY_ONE, &text);
    buffer_char(&text, '\n');
    int printed = cli_print(&text, result < 0 ? NULL : err);
    return result < 0 ? result : printed;
}

static void prune_done(struct prune *prune) {
    for (size_t i = 0; i < prune->n; i++)
        free(prune->candidates[i].path);
    free(prune->candidates);
    table_done(&prune->table);
}

static int find_candidates(struct prune *prune, const char *storage_path, ty_error *err) {
    static const char *const heads[] = {"NAME", "STATE", "ENDED", "DISK"};
    char **names = NULL;
    size_t n = 0;
    int result = run_directory_names(storage_path, &names, &n, err);
    if (result < 0) return result;
    prune->table.n_columns = ARRAY_SIZE(heads);
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
        table_cell(&prune->table, heads[i]);
    prune->candidates = calloc(n + 1, sizeof *prune->candidates);
    for (size_t i = 0; prune->candidates != NULL && i < n; i++)
        consider(prune, storage_path, names[i]);
    run_directory_names_free(names, n);
    return prune->candidates == NULL ? ty_fail_memory(err) : 0;
}

static int finish_removals(const char *storage_path, ty_error *err) {
    CLEANUP(buffer_done) struct buffer names = {0}, text = {0};
    int result = run_removals_finish(storage_path, &names, err);
    if (names.size == 0 || names.failed) return result;
    buffer_printf(&text, "removed what a removal that was killed left: %s\n", names.data);
    int printed = cli_print(&text, result < 0 ? NULL : err);
    return result < 0 ? result : printed;
}

static int prune_run(const struct arguments *arguments, ty_error *err) {
    struct prune_options options = {0};
    struct storage_options storage = {0};
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP(prune_done) struct prune prune = {.options = &options};
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    if (result >= 0) result = find_candidates(&prune, storage.storage_path, err);
    if (result < 0) return result;
    if (prune.n > 0) table_format(&prune.table, &text);
    buffer_printf(&text, "%zu run%s to remove, ", prune.n, prune.n == 1 ? "" : "s");
    bytes_format((quantity)prune.bytes * QUANTITY_ONE, &text);
    if (prune.kept_for_checkpoints > 0)
        buffer_printf(&text, "; %zu kept, as %s a checkpoint (--force)", prune.kept_for_checkpoints,
                      prune.kept_for_checkpoints == 1 ? "it holds" : "each holds");
    buffer_char(&text, '\n');
    result = cli_print(&text, err);
    if (result >= 0) result = ask(&prune, err);
    if (result > 0) result = remove_all(&prune, err);
    if (result >= 0 && !options.dry) result = finish_removals(storage.storage_path, err);
    return result < 0 ? result : 0;
}

const struct command command_prune = {
    .name = "prune",
    .summary = "remove runs that ended",
    .usage = (const char *const[]){"[OPTION...]", NULL},
    .description =
        "Says which runs it would remove and what that frees, asks, and removes them. Runs that go on stay, "
        "and so do runs whose directory holds a checkpoint, unless --force is given. What a removal that was "
        "killed left is removed too.",
    .examples = (const char *const[]){"trainyard prune --older-than 30d --keep-failed",
                                      "Runs that ended more than 30 days ago, but for those that failed", NULL},
    .groups = (const struct option_group *const[]){&prune_group, &storage_group, NULL},
    .run = prune_run,
};
