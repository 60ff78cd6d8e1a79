/* Reports with all their options: checkpoints that are copied while the training goes on, that lie elsewhere
 * already, or that an upload function of the program's own puts away. ty_report in worker.h is the short
 * form. */
#ifndef TRAINYARD_REPORT_H
#define TRAINYARD_REPORT_H

#include <trainyard/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the checkpoint of a report is handed over. */
enum ty_report_mode {
    /* The call returns when the checkpoint is committed. */
    TY_SYNC,
    /* It returns at once; files are copied meanwhile, in the order of the reports. */
    TY_ASYNC,
    /* The files lie where they are to stay: the path, or an address with "://", is recorded as it is, and never
     * removed. It may be in the run's directory, but in nothing there that is the run's own. */
    TY_NO_UPLOAD
};

/* Zero-initialised: metrics alone. Pointers are borrowed during the call. */
typedef struct ty_report_options {
    /* A directory; NULL: metrics alone. */
    const char *checkpoint;
    /* Of the checkpoint's directory: 1 to 200 bytes of UTF-8 without '/', control characters, a '.' first; that
     * of rank 0 counts for all. NULL: checkpoint_000012, by the number of the report. */
    const char *name;
    enum ty_report_mode mode;
    /* The directory is given away: linked instead of copied where it can be, and gone afterwards. */
    bool delete_after;
    /* Of a file that several ranks bring under one name with other content the one that came first is kept;
     * else the checkpoint fails. */
    bool may_differ;
} ty_report_options;

/* Makes a report of a JSON object (see ty_report_json).
 *
 * TY_ASYNC: a directory that is given away (delete_after) is moved aside at once, and copied meanwhile; one
 * that is not, or that cannot be moved, is copied before the call returns, since it may change afterwards. At
 * most 8 are under way: the next call waits for the first of them. What went wrong with one is told by the next
 * call of this header or by ty_report_drain, which then does nothing else.
 *
 * 0; 1 when the checkpoint was lost and the run goes on without it (on_checkpoint_error "continue"): `err`
 * tells why; 2 when the file of another rank was kept (may_differ, TY_SYNC): `err` names it; TY_EUSAGE for
 * wrong metrics, names and directories; TY_EWORKER when the run could not make it of what the ranks gave;
 * -errno when its files could not be written; TY_ECOMM when the agent is gone. A directory whose checkpoint
 * failed is where it was. */
TY_API int ty_report_with(ty_worker *worker, const char *metrics_json, const ty_report_options *options,
                          ty_error *err);

/* Waits until all that is queued is sent, and every checkpoint that was handed over is committed; programs that
 * end by exit do so without being asked. As ty_report_with. */
TY_API int ty_report_drain(ty_worker *worker, ty_error *err);

/* Whether files of a checkpoint that was handed over (TY_ASYNC) are still being written in this process. While
 * they are not, ty_report_drain waits for other ranks and the run. Any thread may call it; false for NULL. */
TY_API bool ty_report_is_writing(const ty_worker *worker);

/* For an upload function of the program's own: makes the report, and gives its number and the directory (which
 * may not exist yet) into which files may be written to become the checkpoint; `*path` is malloc'd, the
 * caller's. Each is to be followed by ty_report_end, in any order. As ty_report_with. */
TY_API int ty_report_begin(ty_worker *worker, const char *metrics_json, const char *name, uint64_t *number,
                           char **path, ty_error *err);

/* The files of that report lie at `place`: the directory that ty_report_begin gave, or any other path or
 * address, which is then recorded as it is, and must be the same in all ranks that make one. NULL: they could
 * not be written, the checkpoint is given up for all ranks. Waits for the commit. May be called by another
 * thread than the rest. As ty_report_with. */
TY_API int ty_report_end(ty_worker *worker, uint64_t number, const char *place, ty_error *err);

/* Waits until every rank has made the reports that this one has made and their checkpoints are committed, but
 * no longer than `timeout_s`, negative: without limit. `*json` (malloc'd, the caller's) lists those that are
 * kept by then, oldest first: [{"number": 3, "path": "/...", "metrics": {...}}]. */
TY_API int ty_checkpoints_reported(ty_worker *worker, double timeout_s, char **json, ty_error *err);

/* Waits until every rank that has not ended has made `count` reports in this attempt, 0: as many as this one,
 * and no longer than `timeout_s`, 0: only looks, negative: without limit. TY_ETIMEOUT names the ranks that
 * have not. Any thread may call it, beside another that reports. A look is no sign of life (ty_heartbeat). */
TY_API int ty_report_wait(ty_worker *worker, uint64_t count, double timeout_s, ty_error *err);

/* Tells the run of the exception that this worker is about to end with: a JSON object of at most 1 MiB, whose
 * "traceback", a string, goes to the rank's log and to the screen of the first cause, so the worker need not
 * print it. The rest is for whoever drives the run (event "failure"). The worker's end and its exit code are
 * its own business. Any thread may call it. TY_EUSAGE for what is no such object; TY_EUNSUPPORTED outside a
 * run; TY_ECOMM when the agent is gone. */
TY_API int ty_report_failure(const char *failure_json, ty_error *err);

#ifdef __cplusplus
}
#endif
#endif
