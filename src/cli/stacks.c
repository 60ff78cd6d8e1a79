/* `trainyard stacks`: where the workers of a run stand now, from outside: nothing is asked of the run's
 * controller or agents, which may hang themselves. Whose processes they are is in the journal. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/stack_save.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/idset.h"
#include "base/process.h"
#include "cli/command.h"
#include "controller/run_directory.h"
#include "controller/run_lock.h"
#include "journal/journal.h"

struct stacks_options {
    struct idset ranks;
    bool chosen; /* else all */
};

static int set_ranks(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    struct stacks_options *options = target;
    options->chosen = true;
    return idset_parse(&options->ranks, value, err);
}

static const struct option_spec specs[] = {
    {"rank", 0, "R[,R-R...]", "only these ranks", set_ranks, 0, NULL},
};
static const struct option_group stacks_group = {"Options", specs, ARRAY_SIZE(specs)};

static int read_workers(void *context, struct journal *journal, ty_error *err) {
    replay_done(context);
    return journal_replay(journal, context, err);
}

/* A pid that was given to another process since is that of one which began later. */
static bool is_worker(const struct replay_worker *worker) {
    struct process process;
    bool runs = worker->state == WORKER_STARTED || worker->state == WORKER_READY;
    if (!runs || worker->pid <= 0 || worker->pid > INT_MAX || !process_read((pid_t)worker->pid, &process) ||
        process.session != worker->pid)
        return false;
    double age = (double)(process_clock() - process.started) / (double)sysconf(_SC_CLK_TCK);
    return clock_wall() - (nanoseconds)(age * (double)NS_PER_S) < worker->executed + NS_PER_S;
}

static int save_one(const char *run_path, int rank, int attempt, int pid, ty_error *err) {
    CLEANUP(buffer_done) struct buffer path = {0}, before = {0};
    char words[3][16];
    buffer_printf(&path, "%s/logs/rank-%d.stack", run_path, rank);
    if (path.failed) return ty_fail_memory(err);
    (void)snprintf(words[0], sizeof words[0], "%d", pid);
    (void)snprintf(words[1], sizeof words[1], "%d", rank);
    (void)snprintf(words[2], sizeof words[2], "%d", attempt);
    (void)file_read(path.data, SIZE_MAX / 2, &before, NULL); /* there may be none */
    char *argv[] = {"--stacks", words[0], path.data, words[1], words[2], "other", NULL};
    if (stack_save_main(6, argv) != 0) return ty_fail(err, -EIO, "cannot write %s", path.data);
    /* Behind what the file had before. */
    CLEANUP(buffer_done) struct buffer text = {0}, news = {0};
    int result = file_read(path.data, SIZE_MAX / 2, &text, err);
    if (result < 0) return result;
    if (text.size > before.size) buffer_append(&news, text.data + before.size, text.size - before.size);
    return cli_print(&news, err);
}

static int show(const struct stacks_options *options, const char *name, const char *path,
                const struct run_replay *replay, ty_error *err) {
    int result = 0;
    size_t n = 0;
    for (size_t rank = 0; rank < replay->n_workers && result >= 0; rank++) {
        if (options->chosen && !idset_has(&options->ranks, (int64_t)rank)) continue;
        if (!is_worker(&replay->workers[rank])) continue;
        result = save_one(path, (int)rank, replay->attempt, (int)replay->workers[rank].pid, err);
        n++;
    }
    if (result >= 0 && n == 0)
        return ty_fail(err, TY_EUSAGE, "%s: no such worker runs on this machine now", name);
    return result;
}

/* The journal says which processes are looked at, and its directory takes what is found: both are another's,
 * who may have chosen them. */
static int check_owner(const char *name, const char *path, ty_error *err) {
    struct stat status;
    if (stat(path, &status) < 0) return ty_fail(err, TY_EUSAGE, "cannot look at %s: %s", path, strerror(errno));
    if (status.st_uid == geteuid()) return 0;
    return ty_fail(err, TY_EUSAGE,
                   "%s belongs to user %u, whose stacks are for that user to save: setpriv --reuid=%u "
                   "--clear-groups trainyard stacks ...",
                   name, (unsigned)status.st_uid, (unsigned)status.st_uid);
}

static int command_stacks_run(const struct arguments *arguments, ty_error *err) {
    CLEANUP(idset_done) struct idset ranks = {0};
    struct stacks_options options = {0};
    struct storage_options storage = {0};
    CLEANUP(replay_done) struct run_replay replay = {0};
    const char *name = arguments->words[0];
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    ranks = options.ranks;
    if (result < 0) return result;
    CLEANUP_FREE char *path = run_directory_find(storage.storage_path, name, err);
    if (path == NULL || check_owner(name, path, err) < 0) return err->code;
    if (!run_lock_is_held(path))
        return ty_fail(err, TY_EUSAGE, "%s is not running; stacks that were saved are in %s/logs", name, path);
    result = journal_read(path, read_workers, &replay, err);
    if (result >= 0) result = show(&options, name, path, &replay, err);
    return result;
}

const struct command command_stacks = {
    .name = "stacks",
    .summary = "show where the workers of a run stand",
    .usage = (const char *const[]){"NAME [OPTION...]", NULL},
    .description =
        "For each worker that runs on this machine: what the kernel tells of its threads, the Python lines of "
        "workers of the Python package, and frames by gdb or eu-stack where one is installed. The run goes on. "
        "What is shown is added to logs/rank-N.stack of the run, too. Ctrl-\\ at the run's own terminal saves "
        "the same, and then ends the run.",
    .groups = (const struct option_group *const[]){&stacks_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = 1,
    .missing = "which run? `trainyard status` lists them",
    .run = command_stacks_run,
};
