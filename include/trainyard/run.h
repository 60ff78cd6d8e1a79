/* A run that its owner steps: for programs with a loop of their own, and for languages whose signals and
 * threads must stay theirs. Nothing is called back, no signal's disposition is changed. The files of
 * checkpoints are put into their places and removed by a thread, which begins with the first of them, takes no
 * signal and is gone when ty_run_close returns, unless the storage hangs.
 *
 *     ty_run_open(request, NULL, 0, &run, &err);
 *     while (ty_run_dispatch(run, &err) > 0) {
 *         while (ty_run_next_event(run, &event) > 0) ...
 *         poll(&(struct pollfd){ty_run_fd(run), POLLIN, 0}, 1, ty_run_timeout_ms(run));
 *     }
 *     ... the last events
 *     ty_run_close(run, &result, &err);
 *
 * While a run is open the process is a sub-reaper (restored when its last one is closed): what a dead agent
 * leaves behind becomes its child, and is ended. Several runs may be open, one within the events of another or
 * each in a thread of its own; all calls of one from one thread at a time.
 *
 * A child that the process forks has no part in the run: nothing of it stays open there, however the child ends
 * is nothing to the run, and each call with it is TY_EUSAGE (ty_run_fd is -1, ty_run_close frees nothing). */
#ifndef TRAINYARD_RUN_H
#define TRAINYARD_RUN_H

#include <trainyard/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One run on its way. */
typedef struct ty_run ty_run;

/* Checks, plans and begins a run. `request_json` is an object; every key but `argv` may be left out, null is
 * the same:
 *
 *   scaling            the fields of Python's ScalingConfig (see ty_scaling_resolve)
 *   name, storage_path, resume (bool)                as in ty_run_config
 *   join               {"nodes": N or [MIN, MAX], "rank": 0, "address": "HOST:PORT"}: the node that has the
 *                      controller of several, with the key in TRAINYARD_RUN_KEY
 *   hosts              {"names": "a,b:8"} or {"file": PATH}, and perhaps "copy" (bool): agents are started
 *                      there by ssh, as --hosts, --hostfile and --copy of `trainyard run` do
 *   engine             "auto", "local", "join", "slurm"
 *   cluster            path of a cluster file: its nodes are logical nodes of this machine
 *   num_cpus, num_gpus, node_resources {name: amount}   instead of what this machine has
 *   argv               [program, argument..]: executed once for each worker
 *   environment        {name: value}, complete; without it workers inherit that of this process. null: as this
 *                      process has it, for a value that is no UTF-8
 *   framework          "plain", "torch", "jax", "tensorflow", "mpi"
 *   backend            "auto", "gloo", "nccl"
 *   isolate_devices, no_wait, quiet (bool)           as in ty_run_config
 *   stdin              ("0", "all", "none") the rank that gets this process's standard input
 *   pty                (bool) a terminal for each worker
 *   debug              ("0") this rank has a terminal, which gets this process's standard input
 *   no_prefix          (bool) workers' lines as they are, without [rank N]
 *   bind               "numa": workers near their devices' cores and memory, where there are several NUMA nodes
 *                      (default); "none"
 *   grace_s, time_limit_s                            seconds; 5 and none
 *   spares             how many of the nodes wait, to take the places of those that are lost; 0
 *   linger_s           seconds that what a worker which ended well leaves running may go on; 0
 *   outlive_s          seconds that workers of joined nodes go on where the process that drives the run dies:
 *                      one that resumes the run meanwhile adopts them; 60
 *   log_limit          bytes, or a text as "100MiB", that each rank's log may have; 0: any
 *   sample             seconds, a text as "10s", or "off": how often what the hardware says is kept; "10s"
 *   metrics_file       path of a file for Prometheus' node_exporter, written every 15 s while the run goes on
 *   hang_timeout_s     seconds without a word after which a worker has failed; null: none has
 *   preempt_signal     name of the signal that ends the run as a preemption; "TERM"
 *   chaos              "SEED[:EVERY]": workers are killed, stopped and starved, as by `trainyard run --chaos`
 *   failure_config     {max_failures, controller_failure_limit, max_preemption_failures}: -1 is without bound;
 *                      0, 3, and for preemptions 0, or -1 where max_failures is not 0
 *   checkpoint_config  {num_to_keep, checkpoint_score_attribute, checkpoint_score_order "max|min",
 *                      on_checkpoint_error "fail|continue", manifest "inside|beside"}
 *   progress           "auto", "plain", "none": the live line on standard error
 *   output             "inherit": workers' lines go to standard output and error; "events": they become events
 *                      only
 *   events             kinds of events wanted, see ty_run_next_event
 *   start_method       "spawn" executes argv (default); "template" forks workers from a process that was made
 *                      by template_argv; "auto" does so where it is safe; "fork" forks them from the copy that
 *                      ty_run_fork made before
 *   template_argv      [program, argument..]
 *   keep_agents        agents rest when the run ends, for the next run of this process
 *
 * `payload` is copied and handed to every worker, up to 32 MiB. A key that is unknown, or a value of the wrong
 * type or out of range, is TY_EUSAGE with one line; else as ty_fit. On failure nothing was started and `*run`
 * is not written. */
TY_API int ty_run_open(const char *request_json, const void *payload, size_t payload_size, ty_run **run,
                       ty_error *err);

/* Checks the keys of a request by themselves and against each other, as ty_run_open does before it looks at the
 * machine; `argv` and what goes with it may be missing. 0, or TY_EUSAGE with the line that ty_run_open would
 * give. */
TY_API int ty_run_check(const char *request_json, ty_error *err);

/* Where a run is kept that does not say: $TRAINYARD_STORAGE, else what the files of settings for all runs say
 * (docs/configuration.md), else ~/trainyard_runs. `*path` is absolute, and the caller's (free). TY_EUSAGE. */
TY_API int ty_storage_path(char **path, ty_error *err);

/* Forks a copy of this process, which must have one thread, for workers of the next run with `start_method`
 * "fork" to be forked from as from a template (it has to speak what src/agent/template/template.h tells of the
 * run's). Returns 1 here, and 0 in the copy with its socket in `*control_fd`: it belongs to the agent of that
 * run, and is killed when that ends. Where this process is a worker itself, the copy is none. Negative:
 * TY_ESTART, -errno. */
TY_API int ty_run_fork(int *control_fd, ty_error *err);
/* Ends the copy if no run has taken it. */
TY_API void ty_run_fork_drop(void);

/* A descriptor that is readable when ty_run_dispatch has something to do; the run's. To be asked once. */
TY_API int ty_run_fd(const ty_run *run);

/* The longest time to wait for that descriptor before ty_run_dispatch is called: -1 without limit, 0 not at
 * all. To be asked before each wait. */
TY_API int ty_run_timeout_ms(const ty_run *run);

/* Does what can be done without waiting. 1: the run goes on. 0: it has ended; what it came to is told by
 * ty_run_close. Negative: it ended because it could not be driven. */
TY_API int ty_run_dispatch(ty_run *run, ty_error *err);

/* 1 and the next event, the caller's to free(); 0: there is none now; -ENOMEM. Events are JSON objects with
 * "event", their kind:
 *   "output"      stream (1, 2), rank, text: whole lines, as they would have been printed
 *   "log"         level ("error", "warning", "info", "debug"), subsystem ("scaling": a line that
 *                 ty_scaling_resolve gives as well), text
 *   "report"      rank, number, attempt, checkpoint (whether this rank brings files), metrics
 *   "failure"     rank, attempt, failure: what the worker told of the exception that it ends with
 *                 (ty_report_failure)
 *   "checkpoint"  number, path, metrics (those of rank 0), attempt, time
 *   and the names of what the journal records (docs/journal.md), with attempt, rank, node, time, and their
 *   data.
 * While more than 1 MiB waits here, agents are not heard: take them after each dispatch. */
TY_API int ty_run_next_event(ty_run *run, char **event_json);

/* The checkpoint of this number, where it is kept, has these metrics from now on, a JSON object in which NaN,
 * Infinity and -Infinity may be bare words, in place of what rank 0 reported: it is told with them, and ranked
 * by them. One whose metrics hold an object "$validation" is not removed before it has others. Also when the
 * run has ended, until it is closed. 1; 0: it is not kept. TY_EUSAGE, -ENOMEM. */
TY_API int ty_run_checkpoint_metrics(ty_run *run, uint64_t number, const char *metrics_json, ty_error *err);

/* As one Ctrl-C: workers are told to end, and get their grace; once more ends them at once. `signal_number` is
 * for the exit status (128 + n), or 0 where no signal came: told as such, and then as SIGINT. TY_EUSAGE for
 * what is no signal. Not for signal handlers. */
TY_API int ty_run_stop(ty_run *run, int signal_number);

/* Frees the run; one that has not ended is ended by force first, which leaves no process behind. The result and
 * the error are those of ty_fit; `result` may be NULL. */
TY_API int ty_run_close(ty_run *run, ty_result **result, ty_error *err);

#ifdef __cplusplus
}
#endif
#endif
