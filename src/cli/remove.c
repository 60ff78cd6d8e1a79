/* `trainyard rm` and `trainyard prune`: runs that are no longer wanted. A run that goes on is never removed,
 * and one whose directory holds a checkpoint only by force: that may be all there is of a model. How a run is
 * removed is in controller/run_removal.c. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
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
#include "cluster/cluster.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "run/settings.h"
#include "view/index.h"
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

/* For what fails of a run that somebody else removes meanwhile. */
static bool is_gone(const char *path) {
    return access(path, F_OK) < 0 && errno == ENOENT;
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

static int check_removable(const char *name, const char *path, bool force, ty_error *err) {
    struct view_summary summary;
    if (run_lock_is_driven(path)) return run_lock_refuse(path, err);
    int result = run_remove_check(path, err);
    if (result < 0 || force) return result;
    result = view_summary_read(name, path, &summary, err);
    if (result < 0) return ty_wrap(err, "%s (--force removes it unread)", name);
    bool keeps = has_checkpoint(&summary);
    if (keeps)
        result = ty_fail(err, TY_EUSAGE, "%s holds a checkpoint, %s: --force removes it too", name,
                         summary.last_checkpoint);
    view_summary_done(&summary);
    return result;
}

static int fail_gone(const char *name, ty_error *err) {
    return ty_fail(err, TY_EUSAGE, "the run %s is gone: it was removed meanwhile", name);
}

static int remove_one(const char *name, const char *path, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    struct run_disk disk;
    int result = run_disk_read(path, &disk, err);
    if (result >= 0) view_index_forget(path);
    if (result >= 0) result = run_remove(path, err);
    if (result == -ENOENT) return fail_gone(name, err);
    if (result < 0) return result;
    buffer_printf(&text, "removed %s: ", name);
    bytes_format(disk.bytes, &text);
    buffer_char(&text, '\n');
    (void)cli_print(&text, err);
    return 0;
}

/* All that are named, or none: the first pass through the names only asks whether each may go. Past one that is
 * gone by its turn, or cannot be removed after all: its error is the last word. */
static int rm_run(const struct arguments *arguments, ty_error *err) {
    struct rm_options options = {0};
    struct storage_options storage = {0};
    CLEANUP(words_done) struct words paths = {0};
    ty_error why = {0};
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    for (size_t i = 0; result >= 0 && i < arguments->n_words; i++) {
        const char *name = arguments->words[i];
        char *path = run_directory_find(storage.storage_path, name, err);
        if (path == NULL) return err->code;
        if (words_add(&paths, path) < 0) return ty_fail_memory(err);
        result = check_removable(name, path, options.force, err);
        if (result < 0 && is_gone(path)) result = fail_gone(name, err);
    }
    for (size_t i = 0, n = result < 0 ? 0 : paths.n; i < n; i++) {
        if (remove_one(arguments->words[i], paths.items[i], &why) >= 0) continue;
        if (result < 0) terminal_warning("rm", err->message);
        result = ty_fail(err, why.code, "%s", why.message);
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

/* What becomes of a run. Only the thread that has taken it writes it. */
enum verdict { STAYS, STAYS_UNREAD, STAYS_FOR_CHECKPOINT, STAYS_PROTECTED, GOES, WENT, FAILED };

struct candidate {
    const char *name; /* borrowed */
    char *path;       /* owned, like the message */
    enum verdict verdict;
    enum run_standing standing;
    nanoseconds ended;
    uint64_t bytes;
    int result;
    char *message; /* of what failed */
};

struct prune {
    const struct prune_options *options;
    char *storage; /* owned */
    char **names;  /* n of them, each a candidate's; owned */
    struct candidate *candidates;
    size_t n;
    atomic_size_t next; /* that no thread has taken yet */
};

/* -- threads: what is slow in a run of few files is the way through the kernel */

enum { PRUNE_THREADS = 4, RUNS_A_THREAD = 16 };

/* The next one that a thread takes, or NULL. */
static struct candidate *take_next(struct prune *prune) {
    size_t i = atomic_fetch_add(&prune->next, 1);
    return i < prune->n ? &prune->candidates[i] : NULL;
}

/* Calls `work` in several threads, this one among them, until all have returned; where a thread cannot be had
 * the others do its work. */
static void share(struct prune *prune, void *(*work)(void *prune)) {
    pthread_t threads[PRUNE_THREADS];
    size_t n = (size_t)usable_affinity_cores(), started = 0;
    if (n > PRUNE_THREADS) n = PRUNE_THREADS;
    if (n > prune->n / RUNS_A_THREAD) n = prune->n / RUNS_A_THREAD;
    atomic_store(&prune->next, 0);
    while (started + 1 < n && pthread_create(&threads[started], NULL, work, prune) == 0)
        started++;
    (void)work(prune);
    for (size_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
}

/* One that somebody else has removed by now is no failure. */
static void note_failure(struct candidate *candidate, enum verdict verdict, const ty_error *err) {
    candidate->verdict = err->code == -ENOENT ? STAYS : verdict;
    candidate->result = err->code;
    candidate->message = strdup(err->message);
}

/* -- which */

static enum verdict judge(const struct prune *prune, const struct view_summary *summary) {
    const struct prune_options *options = prune->options;
    if (summary->standing <= STANDING_RUNNING || summary->ended == 0) return STAYS;
    /* One that ended in the future, as the clock was ahead then, has ended all the same. */
    if (options->older_than > 0 && clock_wall() - summary->ended < options->older_than) return STAYS;
    bool failed = summary->standing == STANDING_FAILED || summary->standing == STANDING_DIED;
    if (failed && options->keep_failed) return STAYS;
    if (!options->force && has_checkpoint(summary)) return STAYS_FOR_CHECKPOINT;
    if (run_lock_is_driven(summary->path)) return STAYS;
    /* Runs of other users in a shared storage path are theirs. */
    bool may_rename = faccessat(AT_FDCWD, prune->storage, W_OK | X_OK, AT_EACCESS) == 0;
    int result = may_rename ? run_remove_check(summary->path, NULL) : -EACCES;
    return result == 0 ? GOES : result == -ENOENT ? STAYS : STAYS_PROTECTED;
}

/* A run that cannot be read is told, and stays. */
static void consider(const struct prune *prune, struct journal_ends *ends, struct candidate *candidate) {
    struct view_summary summary = {0};
    struct run_disk disk = {0};
    ty_error err = {0};
    int result = run_name_check(candidate->name, &err);
    if (result >= 0) candidate->path = str_format("%s/%s", prune->storage, candidate->name);
    if (result >= 0 && candidate->path == NULL) result = ty_fail_memory(&err);
    if (result >= 0) result = view_summary_read_end(ends, candidate->name, candidate->path, &summary, &err);
    if (result >= 0) {
        candidate->standing = summary.standing;
        candidate->ended = summary.ended;
        candidate->verdict = judge(prune, &summary);
        view_summary_done(&summary);
    }
    if (result >= 0 && candidate->verdict == GOES) result = run_disk_read(candidate->path, &disk, &err);
    candidate->bytes = disk.bytes;
    if (result < 0)
        note_failure(candidate, candidate->path != NULL && is_gone(candidate->path) ? STAYS : STAYS_UNREAD,
                     &err);
}

static void *consider_some(void *context) {
    struct candidate *candidate;
    struct journal_ends *ends = NULL;
    ty_error err = {0};
    int result = journal_ends_create(&ends, &err);
    while ((candidate = take_next(context)) != NULL)
        if (result >= 0)
            consider(context, ends, candidate);
        else
            note_failure(candidate, STAYS_UNREAD, &err);
    journal_ends_destroy(ends);
    return NULL;
}

static int find_candidates(struct prune *prune, const char *storage_path, ty_error *err) {
    prune->storage = run_directory_storage(storage_path, err);
    if (prune->storage == NULL) return err->code;
    int result = run_directory_names(prune->storage, &prune->names, &prune->n, err);
    if (result < 0) return result;
    prune->candidates = calloc(prune->n + 1, sizeof *prune->candidates);
    if (prune->candidates == NULL) return ty_fail_memory(err);
    for (size_t i = 0; i < prune->n; i++)
        prune->candidates[i].name = prune->names[i];
    share(prune, consider_some);
    for (size_t i = 0; i < prune->n; i++)
        if (prune->candidates[i].verdict == STAYS_UNREAD)
            terminal_warning("prune", prune->candidates[i].message != NULL ? prune->candidates[i].message : "");
    return 0;
}

static void prune_done(struct prune *prune) {
    for (size_t i = 0; i < prune->n && prune->candidates != NULL; i++) {
        free(prune->candidates[i].path);
        free(prune->candidates[i].message);
    }
    free(prune->candidates);
    run_directory_names_free(prune->names, prune->n);
    free(prune->storage);
}

/* -- told and asked */

static size_t count(const struct prune *prune, enum verdict verdict, uint64_t *bytes) {
    size_t n = 0;
    *bytes = 0;
    for (size_t i = 0; i < prune->n; i++) {
        if (prune->candidates[i].verdict != verdict) continue;
        n++;
        *bytes += prune->candidates[i].bytes;
    }
    return n;
}

/* Shows the runs that would go, *n of them, and what that frees. */
static int tell(const struct prune *prune, size_t *n, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP(table_done) struct text_table table = {0};
    uint64_t bytes, nothing;
    TABLE_HEADS(&table, "NAME", "STATE", "ENDED", "DISK");
    for (size_t i = 0; i < prune->n; i++) {
        const struct candidate *candidate = &prune->candidates[i];
        if (candidate->verdict != GOES) continue;
        table_cell(&table, candidate->name);
        table_cell(&table, run_standing_name(candidate->standing));
        duration_format(clock_wall() - candidate->ended, &text);
        table_take(&table, &text);
        bytes_format(candidate->bytes, &text);
        table_take(&table, &text);
    }
    *n = count(prune, GOES, &bytes);
    size_t kept = count(prune, STAYS_FOR_CHECKPOINT, &nothing),
           theirs = count(prune, STAYS_PROTECTED, &nothing);
    if (*n > 0) table_format(&table, &text);
    buffer_printf(&text, "%zu run%s to remove, ", *n, *n == 1 ? "" : "s");
    bytes_format(bytes, &text);
    if (kept > 0)
        buffer_printf(&text, "; %zu kept, as %s a checkpoint (--force)", kept,
                      kept == 1 ? "it holds" : "each holds");
    if (theirs > 0)
        buffer_printf(&text, "; %zu kept, as this user may not remove %s", theirs, theirs == 1 ? "it" : "them");
    buffer_char(&text, '\n');
    return cli_print(&text, err);
}

/* 1: go on; 0: no. */
static int ask(const struct prune_options *options, size_t n, ty_error *err) {
    char line[16];
    if (options->dry || n == 0) return 0;
    if (options->yes) return 1;
    if (!isatty(STDIN_FILENO))
        return ty_fail(err, TY_EUSAGE, "nothing is removed without --yes where nobody can be asked");
    /* To standard error: the answer comes from a terminal wherever the output goes. */
    (void)fputs("Remove them? [y/N] ", stderr);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

/* -- removed */

static void *remove_some(void *context) {
    struct run_remover remover = {0};
    struct candidate *candidate;
    while ((candidate = take_next(context)) != NULL) {
        ty_error err = {0};
        if (candidate->verdict != GOES) continue;
        candidate->verdict = WENT;
        view_index_forget(candidate->path);
        if (run_remover_remove(&remover, candidate->path, &err) < 0) note_failure(candidate, FAILED, &err);
    }
    run_remover_done(&remover);
    return NULL;
}

/* Goes on past a run that cannot be removed, or was taken up meanwhile: its error is the last word. */
static int remove_all(struct prune *prune, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    int result = 0;
    uint64_t freed;
    share(prune, remove_some);
    for (size_t i = 0; i < prune->n; i++) {
        const struct candidate *candidate = &prune->candidates[i];
        if (candidate->verdict != FAILED) continue;
        if (result < 0) terminal_warning("prune", err->message);
        result = ty_fail(err, candidate->result, "%s", candidate->message != NULL ? candidate->message : "");
    }
    size_t removed = count(prune, WENT, &freed);
    buffer_printf(&text, "removed %zu run%s: ", removed, removed == 1 ? "" : "s");
    bytes_format(freed, &text);
    buffer_char(&text, '\n');
    int printed = cli_print(&text, result < 0 ? NULL : err);
    return result < 0 ? result : printed;
}

static int prune_run(const struct arguments *arguments, ty_error *err) {
    struct prune_options options = {0};
    struct storage_options storage = {0};
    CLEANUP(prune_done) struct prune prune = {.options = &options};
    size_t n = 0;
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    if (result >= 0) result = find_candidates(&prune, storage.storage_path, err);
    if (result >= 0) result = tell(&prune, &n, err);
    if (result >= 0) result = ask(&options, n, err);
    if (result > 0) result = remove_all(&prune, err);
    if (result < 0 || options.dry) return result < 0 ? result : 0;
    CLEANUP(buffer_done) struct buffer names = {0}, text = {0};
    result = run_removals_finish(storage.storage_path, &names, err);
    if (names.size == 0 || names.failed) return result < 0 ? result : 0;
    buffer_printf(&text, "removed what a removal that was killed left: %s\n", names.data);
    int printed = cli_print(&text, result < 0 ? NULL : err);
    return result < 0 ? result : printed;
}

const struct command command_prune = {
    .name = "prune",
    .summary = "remove runs that ended",
    .usage = (const char *const[]){"[OPTION...]", NULL},
    .description =
        "Says which runs it would remove and what that frees, asks, and removes them. Runs that go on stay, "
        "and so do runs whose directory holds a checkpoint, unless --force is given, and those that this user "
        "may "
        "not remove. What a removal that was killed left is removed too.",
    .examples = (const char *const[]){"trainyard prune --older-than 30d --keep-failed",
                                      "Runs that ended more than 30 days ago, but for those that failed", NULL},
    .groups = (const struct option_group *const[]){&prune_group, &storage_group, NULL},
    .run = prune_run,
};
