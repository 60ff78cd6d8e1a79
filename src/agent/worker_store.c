/* What a worker asks of the run's store, and of the other ranks' reports: checked here, answered by the
 * controller. */
#include <stdint.h>
#include <string.h>

#include "agent/worker_request.h"
#include "base/str.h"
#include "worker/link.h"

#define BAD_KEY "a key must be 1 to 255 bytes without blanks and control characters"
#define BAD_TIMEOUT "a time-out must be a whole number of milliseconds, -1 for none"
_Static_assert(WORKER_KEY_MAX == 255, "the text above says so");

static bool is_key(const char *key) {
    size_t size = strlen(key);
    if (size == 0 || size > WORKER_KEY_MAX) return false;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)key[i] <= ' ' || key[i] == 0x7f) return false;
    return true;
}

/* Sends a request to the store, whose answer the channel then waits for. */
static void ask_store(struct worker_request *request, Wire__StoreRequest__Operation operation, char *key,
                      ProtobufCBinaryData value, int64_t timeout_ms, enum waiting waiting) {
    struct worker_channel *channel = request->channel;
    Wire__StoreRequest body = WIRE__STORE_REQUEST__INIT;
    body.operation = operation;
    body.rank = channel->speaker->rank;
    body.channel = channel->number;
    body.key = key;
    body.value = value;
    body.timeout_ms = timeout_ms;
    channel->waiting = waiting;
    outbox_send(channel->speaker->all->outbox, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
}

void worker_request_forget(struct worker_channel *channel) {
    if (channel->waiting != WAITING_OK && channel->waiting != WAITING_VALUE) return;
    Wire__StoreRequest body = WIRE__STORE_REQUEST__INIT;
    body.operation = WIRE__STORE_REQUEST__OPERATION__FORGET;
    body.rank = channel->speaker->rank;
    body.channel = channel->number;
    outbox_send(channel->speaker->all->outbox, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
}

long request_set(struct worker_request *request) {
    ProtobufCBinaryData value;
    char *key = worker_request_word(request);
    long size = worker_request_value(request, &value);
    if (size < 0) return size == REQUEST_LATER ? REQUEST_LATER : 0;
    if (is_key(key))
        ask_store(request, WIRE__STORE_REQUEST__OPERATION__SET, key, value, -1, WAITING_OK);
    else
        (void)worker_request_refuse(request, BAD_KEY);
    return size;
}

long request_gather(struct worker_request *request) {
    ProtobufCBinaryData value;
    int64_t timeout_ms;
    char *key = worker_request_word(request);
    bool timed = str_to_int64(worker_request_word(request), -1, INT64_MAX, &timeout_ms);
    long size = worker_request_value(request, &value);
    if (size < 0) return size == REQUEST_LATER ? REQUEST_LATER : 0;
    if (!is_key(key))
        (void)worker_request_refuse(request, BAD_KEY);
    else if (!timed)
        (void)worker_request_refuse(request, BAD_TIMEOUT);
    else
        ask_store(request, WIRE__STORE_REQUEST__OPERATION__GATHER, key, value, timeout_ms, WAITING_VALUE);
    return size;
}

long request_get(struct worker_request *request) {
    char *key = worker_request_word(request);
    if (!is_key(key)) return worker_request_refuse(request, BAD_KEY);
    ask_store(request, WIRE__STORE_REQUEST__OPERATION__GET, key, (ProtobufCBinaryData){0}, -1, WAITING_VALUE);
    return 0;
}

long request_wait(struct worker_request *request) {
    int64_t timeout_ms;
    char *key = worker_request_word(request);
    if (!is_key(key)) return worker_request_refuse(request, BAD_KEY);
    if (!str_to_int64(worker_request_word(request), -1, INT64_MAX, &timeout_ms))
        return worker_request_refuse(request, BAD_TIMEOUT);
    ask_store(request, WIRE__STORE_REQUEST__OPERATION__WAIT, key, (ProtobufCBinaryData){0}, timeout_ms,
              WAITING_VALUE);
    return 0;
}

long request_add(struct worker_request *request) {
    int64_t delta;
    char *key = worker_request_word(request);
    char *text = worker_request_word(request);
    if (!is_key(key)) return worker_request_refuse(request, BAD_KEY);
    if (!str_to_int64(text, INT64_MIN, INT64_MAX, &delta))
        return worker_request_refuse(request, "a delta must be a whole number");
    ProtobufCBinaryData value = {.len = strlen(text), .data = (uint8_t *)text};
    ask_store(request, WIRE__STORE_REQUEST__OPERATION__ADD, key, value, -1, WAITING_VALUE);
    return 0;
}

long request_reported(struct worker_request *request) {
    int64_t reports, timeout_ms;
    if (!str_to_int64(worker_request_word(request), 0, INT64_MAX, &reports))
        return worker_request_refuse(request,
                                     "a number of reports must be a whole number, 0 for as many as this "
                                     "worker has made");
    if (!str_to_int64(worker_request_word(request), -1, INT64_MAX, &timeout_ms))
        return worker_request_refuse(request, BAD_TIMEOUT);
    struct worker_channel *channel = request->channel;
    const struct speaker *speaker = channel->speaker;
    uint64_t made = speaker->reports - speaker->report_base;
    Wire__StoreRequest body = WIRE__STORE_REQUEST__INIT;
    body.operation = WIRE__STORE_REQUEST__OPERATION__REPORTS;
    body.rank = speaker->rank;
    body.channel = channel->number;
    body.reports = reports > 0 ? (uint64_t)reports : made;
    body.timeout_ms = timeout_ms;
    channel->waiting = timeout_ms == 0 ? WAITING_LOOK : WAITING_OK;
    outbox_send_behind(speaker->all->outbox, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
    return 0;
}
