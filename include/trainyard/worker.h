/* Inside a worker: who am I, report, checkpoint, store. */
#ifndef TRAINYARD_WORKER_H
#define TRAINYARD_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/api.h>
#include <trainyard/error.h>
#include <trainyard/list.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This process as a worker of a run. One a process; owned by the library, valid until the process ends. Not to
 * be used by two threads at once.
 *
 * A child that the process forks, at whatever its other threads are about, may use it as well: over a channel
 * of its own it is as good as the worker, so its reports count as this rank's. The communicator is not the
 * child's: TY_EUSAGE. */
typedef struct ty_worker ty_worker;

/* The first line of main in a program that calls ty_fit. In the driver it returns at once. In a worker (started
 * by ty_fit from this same executable) it runs the training function and ends the process with what that
 * returned. */
TY_API void ty_init(int *argc, char ***argv);

/* The worker of this process when it was started by `trainyard run` or ty_fit, also from a program that never
 * calls ty_init; NULL with TY_EUNSUPPORTED outside a run. The first call tells the agent that the worker is
 * ready. */
TY_API ty_worker *ty_worker_self(ty_error *err);

/* Which worker this is: its rank among all workers of the attempt, from 0 on, and how many they are; the same
 * among those of its node; the rank of its node. They do not change while the process lives: another attempt is
 * another process. */
TY_API int ty_world_rank(const ty_worker *worker);
TY_API int ty_world_size(const ty_worker *worker);
TY_API int ty_local_rank(const ty_worker *worker);
TY_API int ty_local_world_size(const ty_worker *worker);
TY_API int ty_node_rank(const ty_worker *worker);
TY_API int ty_attempt(const ty_worker *worker);          /* 1 for the first */
TY_API const char *ty_run_name(const ty_worker *worker); /* borrowed for the life of the process */
TY_API const char *ty_run_path(const ty_worker *worker); /* the run's directory; borrowed likewise */

/* Indices, within the visible devices, of this worker's own; *n of them; borrowed. NULL and 0 without
 * devices. */
TY_API const int *ty_devices(const ty_worker *worker, size_t *n);

/* One named number of a report. Not-a-number and infinities are kept as such. */
typedef struct ty_metric {
    const char *name; /* 1 to 255 bytes of UTF-8 */
    double value;
} ty_metric;

typedef struct ty_metrics {
    const ty_metric *items;
    size_t n;
} ty_metrics;

/* TY_METRICS({"loss", 0.5}, {"step", step}), in C and in C++. */
#ifdef __cplusplus
#define TY_METRICS(...) TY_LIST(ty_metrics, ty_metric, __VA_ARGS__)
#else
#define TY_METRICS(...)                             \
    ((ty_metrics){(const ty_metric[]){__VA_ARGS__}, \
                  sizeof((const ty_metric[]){__VA_ARGS__}) / sizeof(ty_metric)})
#endif

/* Hands metrics, and perhaps a checkpoint, over to the run.
 *
 * Without a checkpoint (NULL) the call queues and returns; it waits only when more than 1 MiB is queued.
 * Nothing is lost as long as the process lives or ends by exit. With a checkpoint, a directory whose files are
 * copied, it returns once the checkpoint of this report is committed, for which every rank must have made the
 * report of the same number. The directory stays the caller's. 0; 1 when the checkpoint was lost and the run
 * goes on without it; TY_EUSAGE for a bad name or directory; TY_EWORKER when the checkpoint failed, or a rank
 * ended without its report; TY_ECOMM when the agent is gone. */
TY_API int ty_report(ty_worker *worker, ty_metrics metrics, const char *checkpoint, ty_error *err);

/* As ty_report; the metrics are any JSON object. What JSON has no number for may stand there as NaN, Infinity,
 * -Infinity, bare or as a string; TY_EUSAGE for a text that is no object, or is longer than 1 MiB. */
TY_API int ty_report_json(ty_worker *worker, const char *metrics_json, const char *checkpoint, ty_error *err);

/* Directory of the last committed checkpoint of the run, read-only to the caller, or NULL when there is none.
 * Borrowed until the next ty_report with a checkpoint. */
TY_API const char *ty_checkpoint_latest(const ty_worker *worker);

/* True once the run asked this worker to stop (Ctrl-C, preemption, another rank's failure). The first call
 * takes over SIGTERM, which until then ends the process at once; afterwards the worker has the run's grace to
 * save and return. Ctrl-C is SIGTERM, too, for a worker that has no handler of SIGINT. */
TY_API bool ty_stop_requested(ty_worker *worker);

/* Why: 1 and a JSON object (malloc'd, the caller's) when the machines are taken away, {"deadline": seconds
 * since the epoch when workers are ended, "ranks": [of workers that lose their machine], "nodes": [names]}; 0
 * when the worker was not asked to stop, or for another reason. Takes over SIGTERM like ty_stop_requested. */
TY_API int ty_preemption(ty_worker *worker, char **json, ty_error *err);

/* "I am alive", for a long time without a report in a run with a hang timeout (ty_run_config). Cheap: nearly
 * always it only looks at the clock. TY_ECOMM when the agent is gone. */
TY_API int ty_heartbeat(ty_worker *worker, ty_error *err);

/* The run's store: small values shared by all workers. Keys are 1 to 255 bytes without blanks and control
 * characters; values are up to 1 MiB of any bytes. ty_store_get: 1 and the value (malloc'd, the caller's, *size
 * bytes and a NUL behind them), 0 when there is none. ty_store_wait: as get, but waits up to `timeout_s` for
 * the key, without limit when that is infinite; TY_ETIMEOUT. ty_store_add adds to a decimal number (absent: 0)
 * and gives the sum. The store holds 512 MiB and 65536 keys an attempt; TY_EUSAGE over that. */
TY_API int ty_store_set(ty_worker *worker, const char *key, const void *value, size_t size, ty_error *err);
TY_API int ty_store_get(ty_worker *worker, const char *key, void **value, size_t *size, ty_error *err);
TY_API int ty_store_wait(ty_worker *worker, const char *key, double timeout_s, void **value, size_t *size,
                         ty_error *err);
TY_API int ty_store_add(ty_worker *worker, const char *key, int64_t delta, int64_t *sum, ty_error *err);

/* Every rank of the attempt gives a piece of up to 1 MiB under one key and gets all: `*all` (malloc'd, the
 * caller's, *all_size bytes) holds world-size pieces in rank order, each a size (4 bytes, little-endian) and
 * its bytes. Waits up to `timeout_s`, negative: without limit; TY_ETIMEOUT names the ranks that did not come,
 * and the call may be made again; TY_EWORKER names those that have ended without it. Pieces that come to more
 * than 256 MiB are TY_EUSAGE for all ranks. */
TY_API int ty_store_gather(ty_worker *worker, const char *key, const void *value, size_t size, double timeout_s,
                           void **all, size_t *all_size, ty_error *err);

/* Tells the run that this worker's process group stands, for programs that set up one of their own. */
TY_API int ty_rendezvous(ty_worker *worker, ty_error *err);

#ifdef __cplusplus
}
#endif
#endif
