/* Files of nodes whose storage is not this one's. What their ranks log, and what they write of a checkpoint, is
 * put in its place by the thread of the checkpoints' storage, so that a commit, which is posted there as well,
 * finds it whole; each piece is answered for, and an agent has no more than a window of them on their way. The
 * other way goes the checkpoint that an attempt begins with, when an agent asks for it. A node writes nothing
 * but the logs of its own ranks and the staging directories of the attempt. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/str.h"
#include "checkpoint/carry_wire.h"
#include "controller/ty_run.h"

/* -- which nodes those are */

enum { APART_TOLD = 8 };

void carried_tell(struct ty_run *run) {
    CLEANUP(idset_done) struct idset nodes = run->apart.nodes;
    CLEANUP(buffer_done) struct buffer names = {0};
    size_t n = idset_count(&nodes), named = 0;
    run->apart = (struct apart){0};
    for (int64_t node = -1; named < APART_TOLD && (node = idset_next(&nodes, node)) != IDSET_END; named++)
        buffer_printf(&names, "%s%s", named > 0 ? ", " : "", run->agents.peers[node].name);
    if (n > named) buffer_printf(&names, " and %zu more", n - named);
    if (n == 0 || names.failed) return;
    progress_hide(&run->output.progress);
    log_warning("agent",
                "node%s %s: %s of %s is not that of the controller's node: logs and checkpoints go there over "
                "the network",
                n == 1 ? "" : "s", names.data, run->path, n == 1 ? "this node" : "these nodes");
}

void carried_apart(struct peer *peer) {
    (void)idset_add(&peer->run->apart.nodes, peer->node);
}

void carried_started(struct ty_run *run) {
    if (++run->apart.n_started == run_size(run->core)) carried_tell(run);
}

/* -- answers */

static void tell_taken(void *context, uint64_t number, uint64_t size, const ty_error *err) {
    Wire__Taken body = WIRE__TAKEN__INIT;
    body.carry = number;
    body.size = size;
    if (err->code < 0) body.error = (char *)err->message;
    peer_send(context, &WIRE_MESSAGE(TAKEN, taken, &body));
}

/* -- logs */

struct log_job {
    struct storage_job job;
    struct peer *peer;
    struct log_file file;
    char *bytes;
    size_t size;
    int code;
};

static void write_log(struct storage_job *job) {
    struct log_job *log = (struct log_job *)job;
    log->code = log_file_write(&log->file, log->bytes, log->size);
    log_file_close(&log->file);
}

static void end_log(struct storage_job *job) {
    const struct log_job *log = (const struct log_job *)job;
    ty_error err = {0};
    if (log->code < 0)
        (void)ty_fail(&err, log->code, "cannot write %s: %s", log->file.path, strerror(-log->code));
    tell_taken(log->peer, 0, log->size, &err);
}

static void free_log(struct storage_job *job) {
    struct log_job *log = (struct log_job *)job;
    free(log->file.path);
    free(log->bytes);
    free(log);
}

/* The bytes are copied: the message goes with this call, and the storage takes its time. */
static int put_log(struct peer *peer, uint32_t rank, const Wire__File *file, ty_error *err) {
    struct ty_run *run = peer->run;
    struct log_job *log = calloc(1, sizeof *log);
    struct buffer path = {0};
    if (log == NULL) return ty_fail_memory(err);
    buffer_printf(&path, "%s/" LOGS_NAME "/rank-%u.log", run->path, rank);
    *log = (struct log_job){.peer = peer,
                            .file = {.path = buffer_take(&path),
                                     .in_logs = true,
                                     .limit = run->request->settings.log_limit,
                                     .fd = -1},
                            .bytes = malloc(file->bytes.len + 1),
                            .size = file->bytes.len};
    log->job = (struct storage_job){.work = write_log,
                                    .done = end_log,
                                    .release = free_log,
                                    .what = "writing",
                                    .path = log->file.path,
                                    .apart = true,
                                    .series = true};
    if (log->file.path == NULL || log->bytes == NULL) {
        free_log(&log->job);
        return ty_fail_memory(err);
    }
    if (log->size > 0) memcpy(log->bytes, file->bytes.data, log->size);
    storage_post(checkpoints_storage(run->checkpoints), &log->job);
    return 0;
}

/* -- parts of checkpoints */

/* What a node may write is told by the path alone, which is not used as it came: it is made anew from the
 * numbers that were read from it, and compared. What stands behind the staging directory is checked by
 * carry_put. */
static int put(struct peer *peer, Wire__File *file, ty_error *err) {
    struct ty_run *run = peer->run;
    CLEANUP(buffer_done) struct buffer top = {0};
    const char *rest;
    uint32_t rank;
    int end = 0;
    bool log = sscanf(file->path, LOGS_NAME "/rank-%" SCNu32 ".log%n", &rank, &end) == 1 && end > 0;
    if (log && file->path[end] == '\0' && rank < run_size(run->core) && run->agents.node_of[rank] == peer->node)
        return put_log(peer, rank, file, err);
    /* All else lies below a staging directory of the attempt: `top`, and behind it `rest`. */
    uint64_t number;
    end = 0;
    bool staged = sscanf(file->path, "." NAME_PREFIX "%" SCNu64 "%n", &number, &end) == 1 && end > 0;
    if (staged) checkpoint_staging_path(run->path, number, run_attempt(run->core), &top);
    staged = staged && !top.failed && str_prefix(file->path, strrchr(top.data, '/') + 1, &rest);
    if (!staged || *rest++ != '/')
        return ty_fail(err, TY_EPROTOCOL, "%.200s is nothing that it may write", file->path);
    struct carry_piece piece = carry_piece_of(file, rest);
    struct carry_place place = {.top = top.data, .taken = tell_taken, .context = peer, .number = file->carry};
    return carry_put(checkpoints_storage(run->checkpoints), &place, &piece, &file->bytes.data, err);
}

void carried_take(struct peer *peer, Wire__File *file) {
    ty_error err = {0};
    int result = peer_is_remote(peer) ? put(peer, file, &err)
                                      : ty_fail(&err, TY_EPROTOCOL, "its storage is that of the controller");
    if (result == 0) return;
    log_warning("controller", "node %s sends a file that is not taken: %s", peer->name, err.message);
    tell_taken(peer, file->carry, file->bytes.len + CARRY_COST, &err);
}

/* -- checkpoints that are handed out */

struct handing {
    struct peer *peer;
    struct carry *carry;
    uint64_t number; /* the agent's */
};

static void send_file(const struct handing *handing, Wire__File *body) {
    body->carry = handing->number;
    peer_send(handing->peer, &WIRE_MESSAGE(FILE, file, body));
}

static void send_piece(void *context, const struct carry_piece *piece) {
    Wire__File body = carry_message(piece);
    body.path = (char *)piece->path;
    send_file(context, &body);
}

static void end_handing(void *context, const ty_error *err) {
    struct handing *handing = context;
    Wire__File body = WIRE__FILE__INIT;
    if (err->code < 0) body.error = (char *)err->message;
    send_file(handing, &body);
    handing->peer->handing = NULL;
    free(handing);
}

void carried_stop(struct peer *peer) {
    struct handing *handing = TAKE(peer->handing);
    if (handing == NULL) return;
    carry_stop(handing->carry);
    free(handing);
}

/* One at a time: another question of the node, of its next attempt, ends the one before. */
void carried_fetch(struct peer *peer, const Wire__Fetch *fetch) {
    static const struct carry_events events = {.piece = send_piece, .ended = end_handing};
    const struct ty_run *run = peer->run;
    const char *checkpoint = run_checkpoint(run->core);
    ty_error err = {0};
    carried_stop(peer);
    struct handing *handing = calloc(1, sizeof *handing);
    if (handing == NULL) {
        channel_fail(peer->channel, -ENOMEM);
        return;
    }
    *handing = (struct handing){.peer = peer, .number = fetch->carry};
    peer->handing = handing;
    int result = checkpoint == NULL ? ty_fail(&err, TY_EPROTOCOL, "there is no checkpoint")
                                    : carry_start(checkpoints_storage(run->checkpoints), checkpoint, NULL,
                                                  &events, handing, &handing->carry, &err);
    if (result < 0) end_handing(handing, &err);
}

void carried_taken(struct peer *peer, const Wire__Taken *taken) {
    struct handing *handing = peer->handing;
    if (handing != NULL && handing->number == taken->carry)
        carry_taken(handing->carry, taken->size, taken->error);
}
