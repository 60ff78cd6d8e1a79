/* The lines that a worker may say, one handler each. Everything here reads bytes of a program that nobody checked: each
 * part of a line has a bound, and what does not fit is answered with what would have. */
#include "agent/worker_request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/metrics.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "worker/link.h"

/* A line in the hands of its handler. */
struct request {
    struct worker_channel *channel;
    char *at; /* what is left of the line, NUL-terminated */
    const char *value;
    size_t available;
};

static long refuse(struct request *request, const char *why) {
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER; /* answers keep their order */
    channel_answer(request->channel, "error %s", why);
    return 0;
}

/* It was right, but nothing can come of it. */
static long fail_memory(struct request *request) {
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    channel_answer(request->channel, "failed out of memory");
    return 0;
}

/* The next word, "" at the end of the line. */
static char *next_word(struct request *request) {
    char *word = request->at;
    char *end = word + strcspn(word, " ");
    request->at = end + (*end == ' ');
    *end = '\0';
    return word;
}

/* Handlers split a line in place, and may have to see it again: what they cut is put together from the end. */
static void restore_words(char *line, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (line[i] == '\0') line[i] = ' ';
}

static bool is_key(const char *key) {
    size_t size = strlen(key);
    if (size == 0 || size > WORKER_KEY_MAX) return false;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)key[i] <= ' ' || key[i] == 0x7f) return false;
    return true;
}

#define BAD_KEY "a key must be 1 to 255 bytes without blanks and control characters"
#define BAD_TIMEOUT "a time-out must be a whole number of milliseconds, -1 for none"
#define BAD_SIZE "a size must be a whole number of at most 1048576 bytes"
_Static_assert(WORKER_KEY_MAX == 255 && WORKER_VALUE_MAX == 1048576, "the texts above say so");

static void say(struct request *request, bool *said, Wire__WorkerEvent__Kind kind) {
    if (*said) return;
    *said = true;
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = kind;
    event.rank = request->channel->speaker->rank;
    outbox_event(request->channel->speaker->all->outbox, event);
}

static long handle_ready(struct request *request) {
    say(request, &request->channel->speaker->ready, WIRE__WORKER_EVENT__KIND__READY);
    return 0;
}

/* That it was said is all there is to it. */
static long handle_heartbeat(struct request *request) {
    (void)request;
    return 0;
}

static long handle_preemption(struct request *request) {
    const char *text = request->channel->speaker->all->preemption;
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    if (text == NULL)
        channel_answer(request->channel, "none");
    else
        channel_answer_value(request->channel, text, strlen(text));
    return 0;
}

static long handle_rendezvous(struct request *request) {
    say(request, &request->channel->speaker->rendezvous, WIRE__WORKER_EVENT__KIND__RENDEZVOUS);
    return 0;
}

static void report_named(struct worker_channel *channel, Wire__Report__Kind kind, uint64_t number, char *name,
                         const char *bytes, size_t size) {
    Wire__Report report = WIRE__REPORT__INIT;
    report.kind = kind;
    report.rank = channel->speaker->rank;
    report.number = number;
    report.time = clock_wall();
    if (name != NULL) report.name = name;
    if (kind == WIRE__REPORT__KIND__COMMIT || kind == WIRE__REPORT__KIND__LIST)
        report.channel = channel->number;
    outbox_report(channel->speaker->all->outbox, report, bytes, size);
}

static void report(struct worker_channel *channel, Wire__Report__Kind kind, uint64_t number, const char *bytes,
                   size_t size) {
    report_named(channel, kind, number, NULL, bytes, size);
}

/* The name of a checkpoint, a JSON string before the metrics; left NULL without. The caller frees. */
static int take_name(struct request *request, char **name, ty_error *err) {
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

/* Nobody waits for an answer to a report: one that is not wrong must not be answered, nor left out. */
static long lose_report(struct request *request) {
    channel_cut(request->channel, ENOMEM);
    return 0;
}

/* Metrics of a report, kept as they came, or corrected where JSON has no number for them. */
static long handle_metrics(struct request *request, Wire__Report__Kind kind) {
    struct speaker *speaker = request->channel->speaker;
    CLEANUP_FREE char *name = NULL;
    CLEANUP(buffer_done)
    struct buffer corrected = {0};
    ty_error err = {0};
    int result = take_name(request, &name, &err);
    size_t size = strlen(request->at);
    if (result == 0) result = metrics_check(request->at, size, &corrected, &err);
    if (result == -ENOMEM && kind == WIRE__REPORT__KIND__METRICS) return lose_report(request);
    if (result == -ENOMEM) return fail_memory(request);
    if (result < 0) return refuse(request, err.message);
    if (kind == WIRE__REPORT__KIND__BEGIN && request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    if (result > 0)
        report_named(request->channel, kind, ++speaker->reports, name, corrected.data, corrected.size);
    else
        report_named(request->channel, kind, ++speaker->reports, name, request->at, size);
    return 0;
}

static long handle_report(struct request *request) {
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

static long handle_checkpoint(struct request *request) {
    struct speaker *speaker = request->channel->speaker;
    struct writing *writing = find_writing(speaker, 0);
    uint64_t before = speaker->reports;
    if (writing == NULL) return refuse(request, BAD_BEGIN);
    CLEANUP(buffer_done) struct buffer path = {0};
    checkpoint_staging_path(speaker->all->run_path, before + 1, (int)speaker->all->attempt, &path);
    if (path.failed) return fail_memory(request);
    long result = handle_metrics(request, WIRE__REPORT__KIND__BEGIN);
    if (speaker->reports == before) return result;
    *writing = (struct writing){speaker->reports, request->channel->number};
    channel_answer(request->channel, "directory %" PRIu64 " %s", speaker->reports, path.data);
    return 0;
}

/* The checkpoint that is being written, by the number that comes next; NULL when that is none. */
static struct writing *next_writing(struct request *request) {
    int64_t number;
    if (!str_to_int64(next_word(request), 1, INT64_MAX, &number)) return NULL;
    return find_writing(request->channel->speaker, (uint64_t)number);
}

#define BAD_NUMBER "the number must be that of a checkpoint that was begun, and not committed or aborted yet"

static long handle_commit(struct request *request) {
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    struct writing *writing = next_writing(request);
    ty_error err = {0};
    if (writing == NULL) return refuse(request, BAD_NUMBER);
    int result = files_check(request->at, strlen(request->at), &err);
    if (result < 0) return result == -ENOMEM ? fail_memory(request) : refuse(request, err.message);
    request->channel->waiting = WAITING_COMMIT;
    report(request->channel, WIRE__REPORT__KIND__COMMIT, writing->number, request->at, strlen(request->at));
    writing->number = 0;
    return 0;
}

static long handle_abort(struct request *request) {
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    struct writing *writing = next_writing(request);
    if (writing == NULL) return refuse(request, BAD_NUMBER);
    report(request->channel, WIRE__REPORT__KIND__ABORT, writing->number, request->at, strlen(request->at));
    writing->number = 0;
    channel_answer(request->channel, "ok");
    return 0;
}

static long handle_checkpoints(struct request *request) {
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    request->channel->waiting = WAITING_LIST;
    report(request->channel, WIRE__REPORT__KIND__LIST, request->channel->speaker->reports, "", 0);
    return 0;
}

void request_abandon(struct worker_channel *channel) {
    static const char why[] = "its channel was closed before the commit";
    struct speaker *speaker = channel->speaker;
    for (size_t i = 0; i < SPEAKER_WRITING_MAX; i++) {
        struct writing *writing = &speaker->writing[i];
        if (writing->number == 0 || writing->channel != channel->number) continue;
        report(channel, WIRE__REPORT__KIND__ABORT, writing->number, why, sizeof why - 1);
        writing->number = 0;
    }
}

/* Sends a request to the store, whose answer the channel then waits for. */
static void ask_store(struct request *request, Wire__StoreRequest__Operation operation, char *key,
                      ProtobufCBinaryData value, int64_t timeout_ms, enum waiting waiting) {
    struct worker_channel *channel = request->channel;
    Wire__StoreRequest body = WIRE__STORE_REQUEST__INIT;
    body.operation = operation;
    body.rank = channel->speaker->rank;
    body.channel = channel->number;
    body.key = key;
    body.value = value;
    body.timeout_ms = timeout_ms;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_STORE_REQUEST;
    message.store_request = &body;
    channel->waiting = waiting;
    outbox_send(channel->speaker->all->outbox, &message);
}

/* A value that follows a line: its size, or REQUEST_LATER while it is not whole, or -2 when refused (a long one is dropped). */
static long take_value(struct request *request, ProtobufCBinaryData *value) {
    int64_t size;
    if (!str_to_int64(next_word(request), 0, INT64_MAX, &size)) {
        (void)refuse(request, BAD_SIZE);
        return -2;
    }
    if (size > WORKER_VALUE_MAX) {
        (void)refuse(request, BAD_SIZE);
        request->channel->skip_bytes = (size_t)size;
        return -2;
    }
    if ((size_t)size > request->available) return REQUEST_LATER;
    *value = (ProtobufCBinaryData){.len = (size_t)size, .data = (uint8_t *)request->value};
    return (long)size;
}

static long handle_set(struct request *request) {
    ProtobufCBinaryData value;
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    char *key = next_word(request);
    long size = take_value(request, &value);
    if (size < 0) return size == REQUEST_LATER ? REQUEST_LATER : 0;
    if (is_key(key))
        ask_store(request, WIRE__STORE_REQUEST__OPERATION__SET, key, value, -1, WAITING_OK);
    else
        (void)refuse(request, BAD_KEY);
    return size;
}

static long handle_gather(struct request *request) {
    ProtobufCBinaryData value;
    int64_t timeout_ms;
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    char *key = next_word(request);
    bool timed = str_to_int64(next_word(request), -1, INT64_MAX, &timeout_ms);
    long size = take_value(request, &value);
    if (size < 0) return size == REQUEST_LATER ? REQUEST_LATER : 0;
    if (!is_key(key))
        (void)refuse(request, BAD_KEY);
    else if (!timed)
        (void)refuse(request, BAD_TIMEOUT);
    else
        ask_store(request, WIRE__STORE_REQUEST__OPERATION__GATHER, key, value, timeout_ms, WAITING_IDSET);
    return size;
}

/* The traceback for people, the whole for whoever owns the run: false when memory is short for that. */
static bool tell_failure(struct speaker *speaker, const char *traceback, const ProtobufCBinaryData *whole) {
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = WIRE__WORKER_EVENT__KIND__FAILED;
    event.rank = speaker->rank;
    event.tail.data = malloc(whole->len);
    bool told = event.tail.data != NULL;
    if (told) {
        memcpy(event.tail.data, whole->data, whole->len);
        event.tail.len = whole->len;
        outbox_event(speaker->all->outbox, event);
    }
    speaker->failed(speaker->context, traceback);
    return told;
}

static long handle_failure(struct request *request) {
    ProtobufCBinaryData value;
    json_error_t error;
    ty_error err = {0};
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    long size = take_value(request, &value);
    if (size < 0) return size == REQUEST_LATER ? REQUEST_LATER : 0;
    json_t *failure = json_parse((const char *)value.data, value.len, 0, &error, &err);
    const char *traceback = json_string_value(json_object_get(failure, "traceback"));
    if (err.code == -ENOMEM)
        (void)fail_memory(request);
    else if (traceback == NULL)
        (void)refuse(request, "a failure must be a JSON object with a \"traceback\", a string");
    else if (!tell_failure(request->channel->speaker, traceback, &value))
        (void)fail_memory(request);
    else
        channel_answer(request->channel, "ok");
    json_decref(failure);
    return size;
}

static long handle_get(struct request *request) {
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    char *key = next_word(request);
    if (!is_key(key)) return refuse(request, BAD_KEY);
    ask_store(request, WIRE__STORE_REQUEST__OPERATION__GET, key, (ProtobufCBinaryData){0}, -1, WAITING_VALUE);
    return 0;
}

static long handle_wait(struct request *request) {
    int64_t timeout_ms;
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    char *key = next_word(request);
    if (!is_key(key)) return refuse(request, BAD_KEY);
    if (!str_to_int64(next_word(request), -1, INT64_MAX, &timeout_ms)) return refuse(request, BAD_TIMEOUT);
    ask_store(request, WIRE__STORE_REQUEST__OPERATION__WAIT, key, (ProtobufCBinaryData){0}, timeout_ms,
              WAITING_VALUE);
    return 0;
}

static long handle_add(struct request *request) {
    int64_t delta;
    if (request->channel->waiting != WAITING_NOTHING) return REQUEST_LATER;
    char *key = next_word(request);
    char *text = next_word(request);
    if (!is_key(key)) return refuse(request, BAD_KEY);
    if (!str_to_int64(text, INT64_MIN, INT64_MAX, &delta))
        return refuse(request, "a delta must be a whole number");
    ProtobufCBinaryData value = {.len = strlen(text), .data = (uint8_t *)text};
    ask_store(request, WIRE__STORE_REQUEST__OPERATION__ADD, key, value, -1, WAITING_VALUE);
    return 0;
}

static bool is_local_stream(int fd) {
    int domain, type;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_UNIX) return false;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* Told over that socket, where somebody waits, and which is closed: over this channel nobody expects an answer. */
static void refuse_open(int fd, const char *why) {
    char line[160];
    int size = snprintf(line, sizeof line, "failed no other channel can be opened: %s\n", why);
    (void)send(fd, line, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(fd);
}

#define MANY_CHANNELS "256 are open"
_Static_assert(SPEAKER_CHANNELS_MAX == 256, "the text above says so");

static long handle_open(struct request *request) {
    struct worker_channel *channel = request->channel;
    if (channel->n_fds == 0) return refuse(request, "a socket must come with an open");
    int fd = channel->fds[0];
    channel->n_fds--;
    memmove(channel->fds, channel->fds + 1, channel->n_fds * sizeof fd);
    if (!is_local_stream(fd)) {
        (void)close(fd);
        return refuse(request, "an open needs a local stream socket");
    }
    bool fits = channel->speaker->n_channels < SPEAKER_CHANNELS_MAX;
    int code = fits ? channel_open(channel->speaker, fd) : -EMFILE;
    if (code < 0) refuse_open(fd, !fits ? MANY_CHANNELS : code == -ENOMEM ? "out of memory" : strerror(-code));
    return 0;
}

/* X(word, handler, the form that is told when there is no such word) */
#define REQUESTS(X)                      \
    X("report", handle_report)           \
    X("ready", handle_ready)             \
    X("rendezvous", handle_rendezvous)   \
    X("heartbeat", handle_heartbeat)     \
    X("preemption", handle_preemption)   \
    X("failure", handle_failure)         \
    X("checkpoint", handle_checkpoint)   \
    X("checkpoints", handle_checkpoints) \
    X("commit", handle_commit)           \
    X("abort", handle_abort)             \
    X("set", handle_set)                 \
    X("get", handle_get)                 \
    X("wait", handle_wait)               \
    X("add", handle_add)                 \
    X("gather", handle_gather)           \
    X("open", handle_open)

static const struct verb {
    const char *word;
    size_t size;
    long (*handle)(struct request *request);
} verbs[] = {
#define X(word, handle) {word, sizeof word - 1, handle},
    REQUESTS(X)
#undef X
};

static const struct verb *find_verb(const char *line, size_t size) {
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        if (size >= verbs[i].size && memcmp(line, verbs[i].word, verbs[i].size) == 0 &&
            (line[verbs[i].size] == ' ' || line[verbs[i].size] == '\0'))
            return &verbs[i];
    return NULL;
}

long request_handle(struct worker_channel *channel, char *line, size_t size, const char *value,
                    size_t available) {
    struct request request = {.channel = channel, .at = line, .value = value, .available = available};
    long result;
    const struct verb *verb = find_verb(line, size);
    if (memchr(line, '\0', size) != NULL) {
        result = refuse(&request, "a line must not hold a NUL byte");
    } else if (verb == NULL) {
        result = refuse(&request,
                        "unknown word: report, ready, rendezvous, heartbeat, preemption, failure, checkpoint, "
                        "checkpoints, commit, abort, set, get, wait, add, gather and open are known");
    } else {
        request.at = line + verb->size + (line[verb->size] == ' ');
        result = verb->handle(&request);
        if (result == REQUEST_LATER) restore_words(line, size);
    }
    if (result == REQUEST_LATER) channel->stalled = channel->waiting != WAITING_NOTHING;
    return result;
}
