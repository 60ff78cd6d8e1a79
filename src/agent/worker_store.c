/* What a worker asks of the run's store, and of the other ranks' reports: checked here, answered by the
 * controller. What the store does with a request is in run/store.c. */
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

/* Sends a request to the store, whose answer the channel then waits for. It is kept until then: where the
 * controller dies the next one is asked the same. */
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
    channel_keep_asked(channel, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
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
    channel_keep_asked(channel, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
    /* Reports of this turn are still in the batch, and count. */
    outbox_send_behind(speaker->all->outbox, &WIRE_MESSAGE(STORE_REQUEST, store_request, &body));
    return 0;
}

/* -- for another controller */

void channel_keep_asked(struct worker_channel *channel, const Wire__Message *message) {
    struct worker_channels *all = channel->speaker->all;
    buffer_clear(&channel->asked);
    if (all->keeps && !all->values.lost && frame_message(message, &channel->asked) < 0)
        all->outbox->failed = true;
}

static Wire__Message *unpack_asked(const struct worker_channel *channel) {
    struct frame frame;
    const struct buffer *asked = &channel->asked;
    if (asked->size == 0) return NULL;
    if (frame_next((const uint8_t *)asked->data, asked->size, FRAME_MAX, &frame, NULL) <= 0) return NULL;
    return frame_unpack(&frame, NULL);
}

/* An answer ends what was asked. What that has changed in the store is noted, since the store dies with its
 * controller. Where it cannot be noted no other controller can go on with the values that are left. */
void channel_note_answer(struct worker_channel *channel, Wire__Answer__Status status) {
    struct kept_values *values = &channel->speaker->all->values;
    if (!channel->speaker->all->keeps || channel->asked.size == 0) return;
    bool good = status == WIRE__ANSWER__STATUS__OK;
    Wire__Message *message = values->lost ? NULL : unpack_asked(channel);
    if (message == NULL) {
        kept_values_lose(values);
    } else if (message->body_case == WIRE__MESSAGE__BODY_STORE_REQUEST) {
        const Wire__StoreRequest *asked = message->store_request;
        bool gather = asked->operation == WIRE__STORE_REQUEST__OPERATION__GATHER;
        if (good && asked->operation == WIRE__STORE_REQUEST__OPERATION__SET)
            kept_values_set(values, asked->key, asked->value.data, asked->value.len);
        if (good && asked->operation == WIRE__STORE_REQUEST__OPERATION__ADD)
            kept_values_add(values, asked->key, asked->value.data, asked->value.len);
        channel->speaker->gathers += gather && good;
        if (gather && status == WIRE__ANSWER__STATUS__TIMEOUT)
            kept_values_lose(values); /* its piece counts all the same */
    }
    wire__message__free_unpacked(message, NULL);
    buffer_done(&channel->asked);
}

bool speaker_waits_for_sum(const struct speaker *speaker) {
    bool found = false;
    for (const struct worker_channel *channel = speaker->channels; channel != NULL; channel = channel->next) {
        Wire__Message *message = unpack_asked(channel);
        found |= message != NULL && message->body_case == WIRE__MESSAGE__BODY_STORE_REQUEST &&
                 message->store_request->operation == WIRE__STORE_REQUEST__OPERATION__ADD;
        wire__message__free_unpacked(message, NULL);
    }
    return found;
}

/* One that is being written, or whose commit is not answered. */
uint64_t speaker_unfinished(const struct speaker *speaker) {
    uint64_t first = 0;
    for (size_t i = 0; i < SPEAKER_WRITING_MAX; i++) {
        uint64_t number = speaker->writing[i].number;
        if (number > 0 && (first == 0 || number < first)) first = number;
    }
    for (const struct worker_channel *channel = speaker->channels; channel != NULL; channel = channel->next)
        if (channel->waiting == WAITING_COMMIT && (first == 0 || channel->commit < first))
            first = channel->commit;
    return first;
}

void speaker_ask_again(struct speaker *speaker) {
    struct buffer *out = channel_out(speaker->all->outbox->channel);
    for (const struct worker_channel *channel = speaker->channels; channel != NULL; channel = channel->next)
        if (channel->asked.size > 0) buffer_append(out, channel->asked.data, channel->asked.size);
}

void worker_channels_keep(struct worker_channels *all, bool keeps) {
    kept_values_done(&all->values);
    all->keeps = keeps;
}
