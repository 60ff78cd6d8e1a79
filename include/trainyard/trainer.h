/* Running a training function on many workers, from C. */
#ifndef TRAINYARD_TRAINER_H
#define TRAINYARD_TRAINER_H

#include <trainyard/scaling.h>
#include <trainyard/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs in every worker. `config` is a copy of the driver's bytes. What it returns is the worker's exit status:
 * 0 success. */
typedef int ty_train_function(ty_worker *worker, const void *config, size_t config_size);

/* How a run is named, stored and bounded. Zero-initialised is the default. Pointers are borrowed during
 * ty_fit. */
typedef struct ty_run_config {
    const char *name;         /* NULL: run-YYYYMMDD-HHMMSS-xxxx */
    const char *storage_path; /* NULL: as ty_storage_path of run.h tells */
    /* The run of this name, which must be given, goes on; without one a new run begins, and a line on standard
     * error says so. False: a name that exists is refused (TY_EEXISTS). */
    bool resume;
    int max_failures;    /* attempts after the first that a failure may cost; -1 without bound */
    double time_limit_s; /* 0: none */
    double grace_s;      /* from the first signal to SIGKILL; 0: the default, 5 */
    /* A worker that is up and makes no report, request or heartbeat for so long has failed; the stacks of all
     * are saved in {path}/logs first; 0: none has. */
    double hang_timeout_s;
    int preempt_signal;   /* ends the run "preempted" (TY_EPREEMPTED), to be resumed; 0: SIGTERM */
    const char *backend;  /* NULL: nccl where the workers hold GPUs and NCCL is there, else gloo */
    bool isolate_devices; /* a worker sees only its own devices */
    bool no_wait;         /* refuse (TY_EBUSY) instead of waiting for devices that other runs hold */
    bool quiet;           /* no output of workers, no progress, no warnings; logs are written all the same */
    int num_to_keep;      /* checkpoints that are kept, beside the latest; 0: all */
    const char *checkpoint_score_attribute; /* the metric that tells which are best; NULL: the newest are */
    const char *checkpoint_score_order;     /* "max", "min": which score is best; NULL: "max" */
    /* "fail": a report whose checkpoint cannot be written fails. "continue": the checkpoint is lost (ty_report
     * gives 1), and that is no error. NULL: "fail". */
    const char *on_checkpoint_error;
    int64_t log_limit; /* bytes of each rank's log: its head and its last lines are kept; 0: any */
} ty_run_config;

typedef struct ty_trainer_config {
    ty_train_function *train;
    const void *config;               /* handed to every worker */
    size_t config_size;               /* bytes, up to 32 MiB: what is larger belongs in a file */
    const ty_scaling_config *scaling; /* NULL: the default */
    const ty_run_config *run;         /* NULL: the default */
    /* Called by ty_fit, in its thread, when the run begins ("run"), when an attempt begins ("attempt") and ends
     * ("attempt_end"), with each checkpoint that is in its place ("checkpoint"), and at the end ("run_end"):
     * `event_json` is an object as of ty_run_next_event, borrowed. Workers go on meanwhile, but nothing is done
     * for them. Not 0: the run is to end, as by one Ctrl-C. NULL: nobody is told. */
    int (*on_event)(void *context, const char *event_json);
    void *event_context;
} ty_trainer_config;

/* What a run came to. */
typedef struct ty_result ty_result;

/* Starts the workers, waits for their end, and gives the result.
 *
 * Where is this machine, an allocation of Slurm's, or what variables of the environment say: hosts for ssh
 * (TRAINYARD_HOSTS), or that the same program is started on each of several nodes (TRAINYARD_NNODES,
 * TRAINYARD_NODE_RANK, TRAINYARD_RENDEZVOUS). On a node of another rank than 0 it does not return then: the
 * process executes the agent of its node, and ends with the run's exit status.
 *
 * 0 when every worker succeeded. TY_EUSAGE, TY_EEXISTS, TY_EINFEASIBLE, TY_EBUSY: nothing was started.
 * TY_EWORKER: a worker failed; `err` tells the first cause. TY_ESTART, TY_ENODE, TY_ETIMEOUT, TY_EINTERRUPTED,
 * TY_EPREEMPTED.
 * `*result` is also set when the run started and failed, and is the caller's to ty_result_free. Only one run at
 * a time in a process; ty_init must have been called. */
TY_API int ty_fit(const ty_trainer_config *trainer, ty_result **result, ty_error *err);

TY_API void ty_result_free(ty_result *result); /* NULL is fine */

/* The result of the run in this directory (an absolute path), as its journal tells it, also while it goes on,
 * and whoever drives it. Exits, failure and the keys of ty_result_json that tell of the end on a screen are not
 * there; beside the others that has "checkpoint_score_attribute" and "checkpoint_score_order", by which the
 * checkpoints are ranked (null: by time), and "num_to_keep" (null: all). Nothing is written. TY_ECORRUPT names
 * the journal that is damaged, -EBUSY one that changes all the time. */
TY_API int ty_result_read(const char *path, ty_result **result, ty_error *err);
/* The run's name, and its directory; borrowed from the result. */
TY_API const char *ty_result_name(const ty_result *result);
TY_API const char *ty_result_path(const ty_result *result);
/* The last report of rank 0 as a JSON object, NULL without a report; borrowed from the result. */
TY_API const char *ty_result_metrics(const ty_result *result);
/* 1 and the value of one metric of that report, 0 when it is not there. */
TY_API int ty_result_metric(const ty_result *result, const char *name, double *value);
/* Directory of the last committed checkpoint, NULL without; borrowed from the result. */
TY_API const char *ty_result_checkpoint(const ty_result *result);
/* The number of the last attempt; those before a resume count. */
TY_API int ty_result_attempts(const ty_result *result);

/* One attempt of a run. Texts are borrowed from the result. */
typedef struct ty_attempt_info {
    int attempt;     /* from 1 on */
    int num_workers; /* that it had */
    double began;    /* seconds since the epoch */
    double ended;    /* the same; of one that died: its last sign of life */
    /* "succeeded", "failed", "start_failed", "node_lost", "time_limit", "interrupted", "preempted", "resized"
     * (it made way for one of another size) or "died" (its controller did). */
    const char *outcome;
    int rank;               /* which failed first; -1 when no worker did */
    const char *node;       /* name of the node of the failure; NULL without */
    const char *cause;      /* one line: how; NULL without a failure */
    const char *checkpoint; /* directory of the one that it began from; NULL: from nothing */
} ty_attempt_info;

/* Attempt `index` (from 0 on, in their order) of the run, those before a resume among them. Borrowed from the
 * result; NULL when there is no such attempt. */
TY_API const ty_attempt_info *ty_result_attempt(const ty_result *result, int index);
/* How many workers the last attempt had. */
TY_API int ty_result_num_workers(const ty_result *result);
/* How worker `rank` of the last attempt ended: exit code, 128 + signal, or -1 when it was never started. */
TY_API int ty_result_exit(const ty_result *result, int rank);
/* What failed first and how, its last lines of output, and what became of the rest: lines for a person. NULL
 * without a failure. */
TY_API const char *ty_result_failure(const ty_result *result);

/* The whole result as a JSON object, borrowed from it:
 *   {"name", "path", "metrics": {..}|null, "checkpoint": path|null, "summary": line|null (what succeeded,
 *    in words),
 *    "checkpoints": [{"number", "name", "metrics": {..}|null}]  that are kept, oldest first; a name is that of
 *    a directory in the run's, or, with a "/", a place (docs/journal.md),
 *    "failure": lines|null, "attempts", "num_workers", "status",
 *    "history": [{"attempt", "num_workers", "began", "ended", "seconds", "outcome", "rank": rank|null, "node":
 *    name|null,
 *                 "cause": line|null, "checkpoint": path|null}]  the attempts, see ty_attempt_info,
 *    "outcome": "succeeded|failed|start_failed|node_lost|time_limit|interrupted|preempted", "cause": line|null,
 *    "first_rank": rank|null, "first_node": name|null, "preemption": {"deadline", "ranks", "nodes"}|null (see
 *    ty_preemption),
 *    "error": {"code": "TY_EWORKER", "message"}|null, "exits": [exit by rank, see ty_result_exit],
 *    "workers": [{"rank", "node", "node_rank", "local_rank", "pid", "exit", "stopped"}],
 *    "failed": [{"rank", "cause": line}]  those that failed by themselves, the first cause first}. */
TY_API const char *ty_result_json(const ty_result *result);

#ifdef __cplusplus
}
#endif
#endif
