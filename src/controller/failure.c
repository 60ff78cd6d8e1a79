/* The first cause on one screen: a headline, the last lines of output, one folded line for the rest, the proof
 * of death, the logs. Which failure is the first is the core's to decide (run/run.c). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/idset.h"
#include "controller/ty_run.h"

void failure_line(const struct run_failure *failure, const char *node, struct buffer *out) {
    buffer_text(out, failure->text);
    if (node != NULL && !replay_cause_names_node(failure->text, node)) buffer_printf(out, ", on node %s", node);
}

/* "ranks 0-1,3 were told to stop", and so on, a line for each way to end. */
static void add_ranks(struct buffer *out, struct idset *ranks, const char *what) {
    size_t n = idset_count(ranks);
    if (n > 0) {
        buffer_text(out, n == 1 ? "  rank " : "  ranks ");
        idset_format(ranks, out);
        buffer_printf(out, " %s\n", what);
    }
    idset_done(ranks);
}

static void add_others(const struct ty_run *run, const struct run_failure *failure, struct buffer *out) {
    struct idset stopped = {0}, failed = {0}, finished = {0}, unstarted = {0};
    for (uint32_t rank = 0; rank < run_size(run->core); rank++) {
        const struct run_worker *worker = run_worker(run->core, rank);
        if ((int)rank == failure->rank) continue;
        struct idset *set = worker->stopped  ? &stopped
                            : worker->failed ? &failed
                            : worker->exited ? &finished
                                             : &unstarted;
        (void)idset_add(set, rank);
    }
    /* The time limit is what kept another attempt from following theirs. */
    bool earlier = failure->outcome == OUTCOME_TIME_LIMIT;
    add_ranks(out, &failed, earlier ? "failed" : "failed after it");
    add_ranks(out, &stopped, "stopped when told to");
    add_ranks(out, &finished, "had finished");
    add_ranks(out, &unstarted, "did not run to the end");
}

/* How long it took from the order to stop until all were gone is told as well: the price of the failure. */
static void add_proof(const struct ty_run *run, struct buffer *out) {
    uint32_t leftovers = 0;
    if (!run_clean(run->core, &leftovers)) {
        buffer_text(out, "  not every node could prove that nothing is left of the run\n");
        return;
    }
    buffer_text(out, "  nothing is left of the run");
    if (leftovers > 0)
        buffer_printf(out, "; %u leftover process%s ended", leftovers, leftovers == 1 ? " was" : "es were");
    nanoseconds stop_time = run->launched.failed > 0 ? run->launched.ended - run->launched.failed : 0;
    if (stop_time > 0) {
        buffer_text(out, "; all were gone ");
        duration_format(stop_time, out);
        buffer_text(out, " after the failure");
    }
    buffer_char(out, '\n');
}

static bool names_log(const struct run_failure *failure) {
    return failure->rank >= 0 && failure->outcome == OUTCOME_FAILED;
}

static void add_log_path(const struct ty_run *run, struct buffer *out) {
    buffer_printf(out, "%s/" LOGS_NAME "/rank-%d.log", run->path, run_failure(run->core)->rank);
}

void failure_format(const struct ty_run *run, struct buffer *out) {
    const struct run_failure *failure = run_failure(run->core);
    if (failure->outcome == OUTCOME_NONE) return;
    buffer_text(out, "first cause: ");
    failure_line(failure, agents_failed_name(run), out);
    if (failure->time > run->launched.at && run->launched.at > 0) {
        buffer_text(out, ", ");
        duration_format(failure->time - run->launched.at, out);
        buffer_text(out, " after the launch");
    }
    buffer_char(out, '\n');
    if (failure->tail_size != 0) {
        buffer_printf(
            out, failure->hung ? "  where rank %d stands, innermost first:\n" : "  last lines of rank %d:\n",
            failure->rank);
        const char *at = failure->tail, *end = at + failure->tail_size;
        while (at < end) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            const char *stop = newline == NULL ? end : newline;
            buffer_text(out, "    | ");
            buffer_append(out, at, (size_t)(stop - at));
            buffer_char(out, '\n');
            at = stop + 1;
        }
    }
    add_others(run, failure, out);
    add_proof(run, out);
    if (!names_log(failure)) return;
    buffer_text(out, "  all of its output: ");
    add_log_path(run, out);
    buffer_char(out, '\n');
}

/* -- the log that the screen names */

struct making {
    struct storage_job job;
    char *path;
};

static void make_log(struct storage_job *job) {
    const struct making *making = (const struct making *)job;
    CLEANUP_FD int fd =
        open(making->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    (void)fd;
}

static void free_making(struct storage_job *job) {
    struct making *making = (struct making *)job;
    free(making->path);
    free(making);
}

void failure_make_log(struct ty_run *run) {
    struct buffer path = {0};
    if (!names_log(run_failure(run->core)) || run_storage_is_lost(run)) return;
    struct making *making = calloc(1, sizeof *making);
    if (making == NULL) return;
    add_log_path(run, &path);
    making->path = buffer_take(&path);
    making->job = (struct storage_job){
        .work = make_log, .release = free_making, .what = "making", .path = making->path, .apart = true};
    if (making->path != NULL)
        storage_post(checkpoints_storage(run->checkpoints), &making->job);
    else
        free_making(&making->job);
}
