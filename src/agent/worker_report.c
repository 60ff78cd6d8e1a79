/* Reports of a worker, its checkpoints from begin to commit, and the exception that it ends with: the part of
 * docs/worker-protocol.md that is about them. A report is checked, numbered and passed on; when a checkpoint is
 * committed is decided by the run (run/report.c), and no file of it is read here. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node_storage.h"
#include "agent/worker_request.h"
#include "base/cleanup.h"
#include "base/document.h"
#include "base/metrics.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"

static void report(struct worker_channel *channel, Wire__Report__Kind kind, uint64_t number, char *name,
                   const char *bytes, size_t size) {
    Wire__Report report = WIRE__REPORT__INIT;
    report.kind = kind;
    report.rank = channel->speaker->rank;
    report.number = number;
    report.time = clock_wall();
    if (name != NULL) report.name = name;
    if (kind == WIRE__REPORT__KIND__LIST) {
        Wire__Reports asked = WIRE__REPORTS__INIT;
        report.channel = channel->number;
        asked.n_reports = 1;
        asked.reports = (Wire__Report *[]){&report};
        channel_keep_asked(channel, &WIRE_MESSAGE(REPORTS, reports, &asked));
    }
    outbox_report(channel->speaker->all->outbox, report, bytes, size);
}

/* The name of a checkpoint, a JSON string before the metrics; left NULL without. The caller frees. */
static int take_name(struct worker_request *request, char **name, ty_error *err) {
    json_error_t end;
    ty_error why = {0};
    if (*request->at != '"') return 0;
    json_t *string =
        json_parse(request->at, strlen(request->at), JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &end, &why);
    if (string == NULL && why.code == -ENOMEM) return ty_fail_memory(err);
    if (string == NULL)
        return ty_fail(err, TY_EUSAGE, "the checkpoint's name must be a JSON string: %s", end.text);
    int result = checkpoint_check_name(json_string_value(string), err);
    if (result == 0) *name = strdup(json_string_value(string));
    if (result == 0 && *name == NULL) result = ty_fail_memory(err);
    json_decref(string);
    request->at += end.position;
    request->at += strspn(request->at, " ");
    return result;
}

/* Metrics of a report, kept as they came, or corrected where JSON has no number for them. */
static long handle_metrics(struct worker_request *request, Wire__Report__Kind kind) {
    struct speaker *speaker = request->channel->speaker;
    CLEANUP_FREE char *name = NULL;
    CLEANUP(buffer_done) struct buffer corrected = {0};
    ty_error err = {0};
    int result = take_name(request, &name, &err);
    size_t size = strlen(request->at);
    if (result == 0) result = metrics_check(request->at, size, &corrected, &err);
    if (result == -ENOMEM && kind == WIRE__REPORT__KIND__METRICS) {
        /* Nobody waits for an answer to a report: one that is not wrong must not be answered, nor left out. */
        channel_cut(request->channel, ENOMEM);
        return 0;
    }
    if (result == -ENOMEM) return worker_request_fail_memory(request);
    if (result < 0) return worker_request_refuse(request, err.message);
    bool as_it_came = result == 0;
    report(request->channel, kind, ++speaker->reports, name, as_it_came ? request->at : corrected.data,
           as_it_came ? size : corrected.size);
    return 0;
}

long request_report(struct worker_request *request) {
    return handle_metrics(request, WIRE__REPORT__KIND__METRICS);
}

/* What stands for the checkpoint of this number, or for a free place (0); NULL when there is none. */
static struct writing *find_writing(struct speaker *speaker, uint64_t number) {
    for (size_t i = 0; i < SPEAKER_WRITING_MAX; i++)
        if (speaker->writing[i].number == number) return &speaker->writing[i];
    return NULL;
}

#define BAD_BEGIN "16 checkpoints are being written: commit or abort one of them first"
_Static_assert(SPEAKER_WRITING_MAX == 16, "the text above says so");

/* Answered at once, without the controller: the directory follows from the number, which the next report of
 * this rank has in any case. */
long request_checkpoint(struct worker_request *request) {
    struct speaker *speaker = request->channel->speaker;
    struct writing *writing = find_writing(speaker, 0);
    uint64_t before = speaker->reports;
    if (writing == NULL) return worker_request_refuse(request, BAD_BEGIN);
    CLEANUP(buffer_done) struct buffer path = {0};
    checkpoint_staging_path(speaker->all->run_path, before + 1, (int)speaker->all->attempt, &path);
    if (path.failed) return worker_request_fail_memory(request);
    long result = handle_metrics(request, WIRE__REPORT__KIND__BEGIN);
    if (speaker->reports == before) return result;
    *writing = (struct writing){speaker->reports, request->channel->number};
    channel_answer(request->channel, "directory %" PRIu64 " %s", speaker->reports, path.data);
    return 0;
}

/* The checkpoint that is being written, by the number that comes next; NULL when that is none. */
static struct writing *next_writing(struct worker_request *request) {
    int64_t number;
    if (!str_to_int64(worker_request_word(request), 1, INT64_MAX, &number)) return NULL;
    return find_writing(request->channel->speaker, (uint64_t)number);
}

/* The files of a checkpoint are a JSON list; or a JSON string that names a directory by its absolute path, or
 * another place by an address with "://". */
static int check_files(const char *text, ty_error *err) {
    json_error_t error;
    ty_error why = {0};
    json_t *tree = json_parse(text, strlen(text), JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY, &error, &why);
    const char *place = json_string_value(tree);
    bool known = json_is_array(tree) || (place != NULL && json_string_length(tree) < PATH_MAX &&
                                         (*place == '/' || checkpoint_is_address(place)));
    json_decref(tree);
    if (known) return 0;
    if (why.code == -ENOMEM) return ty_fail_memory(err);
    return ty_fail(err, TY_EUSAGE,
                   "files must be a JSON list, or a path or address as a JSON string, on one line");
}

#define BAD_NUMBER "the number must be that of a checkpoint that was begun, and not committed or aborted yet"

long request_commit(struct worker_request *request) {
    struct writing *writing = next_writing(request);
    ty_error err = {0};
    if (writing == NULL) return worker_request_refuse(request, BAD_NUMBER);
    int result = check_files(request->at, &err);
    if (result < 0)
        return result == -ENOMEM ? worker_request_fail_memory(request)
                                 : worker_request_refuse(request, err.message);
    struct node_storage_commit commit = {.rank = request->channel->speaker->rank,
                                         .channel = request->channel->number,
                                         .number = writing->number,
                                         .files = request->at};
    if (node_storage_commit(request->channel->speaker->all->storage, &commit) < 0) {
        static const char why[] = "out of memory";
        report(request->channel, WIRE__REPORT__KIND__ABORT, writing->number, NULL, why, sizeof why - 1);
        writing->number = 0;
        return worker_request_fail_memory(request);
    }
    request->channel->waiting = WAITING_COMMIT;
    request->channel->commit = writing->number;
    writing->number = 0;
    return 0;
}

long request_abort(struct worker_request *request) {
    struct writing *writing = next_writing(request);
    if (writing == NULL) return worker_request_refuse(request, BAD_NUMBER);
    report(request->channel, WIRE__REPORT__KIND__ABORT, writing->number, NULL, request->at,
           strlen(request->at));
    writing->number = 0;
    channel_answer(request->channel, "ok");
    return 0;
}

/* That it was said is all there is to it, but for a worker that trains on while a checkpoint waits for other
 * ranks: to the controller it would look as if it stood still. */
long request_heartbeat(struct worker_request *request) {
    const struct speaker *speaker = request->channel->speaker;
    const struct worker_channel *channel = speaker->channels;
    while (channel != NULL && channel->waiting != WAITING_COMMIT && channel->waiting != WAITING_LIST)
        channel = channel->next;
    if (channel != NULL) report(request->channel, WIRE__REPORT__KIND__ALIVE, speaker->reports, NULL, "", 0);
    return 0;
}

long request_checkpoints(struct worker_request *request) {
    bool now = str_equal(request->at, "now");
    if (!now && *request->at != '\0')
        return worker_request_refuse(request, "behind checkpoints only \"now\" is known");
    request->channel->waiting = WAITING_LIST;
    report(request->channel, WIRE__REPORT__KIND__LIST, now ? 0 : request->channel->speaker->reports, NULL, "",
           0);
    return 0;
}

void worker_request_abandon(struct worker_channel *channel) {
    static const char why[] = "its channel was closed before the commit";
    struct speaker *speaker = channel->speaker;
    for (size_t i = 0; i < SPEAKER_WRITING_MAX; i++) {
        struct writing *writing = &speaker->writing[i];
        if (writing->number == 0 || writing->channel != channel->number) continue;
        report(channel, WIRE__REPORT__KIND__ABORT, writing->number, NULL, why, sizeof why - 1);
        writing->number = 0;
    }
}

long request_failure(struct worker_request *request) {
    ProtobufCBinaryData value;
    json_error_t error;
    ty_error err = {0};
    long size = worker_request_value(request, &value);
    if (size < 0) return size == REQUEST_LATER ? REQUEST_LATER : 0;
    json_t *failure = json_parse((const char *)value.data, value.len, 0, &error, &err);
    const char *traceback = json_string_value(json_object_get(failure, "traceback"));
    bool told = false;
    if (traceback != NULL) {
        /* The traceback is for people, the whole for whoever owns the run. */
        struct speaker *speaker = request->channel->speaker;
        Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
        event.kind = WIRE__WORKER_EVENT__KIND__FAILED;
        event.rank = speaker->rank;
        event.tail.data = malloc(value.len);
        told = event.tail.data != NULL;
        if (told) {
            event.tail.len = value.len;
            memcpy(event.tail.data, value.data, value.len);
            outbox_event(speaker->all->outbox, event);
        }
        speaker->failed(speaker->context, traceback);
    }
    if (told)
        channel_answer(request->channel, "ok");
    else if (traceback != NULL || err.code == -ENOMEM)
        (void)worker_request_fail_memory(request);
    else
        (void)worker_request_refuse(request, "a failure must be a JSON object with a \"traceback\", a string");
    json_decref(failure);
    return size;
}
