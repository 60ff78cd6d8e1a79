/* From a line of a worker to its handler, and those that are neither reports (worker_report.c) nor for the
 * store (worker_store.c). Everything here reads bytes of a program that nobody checked: each part of a line
 * has a bound, and what does not fit is answered with what would have. */
#include "agent/worker_request.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "worker/link.h"

long worker_request_refuse(struct worker_request *request, const char *why) {
    if (channel_is_answering(request->channel)) return REQUEST_LATER; /* answers keep their order */
    channel_answer(request->channel, "error %s", why);
    return 0;
}

long worker_request_fail_memory(struct worker_request *request) {
    channel_answer(request->channel, "failed out of memory");
    return 0;
}

char *worker_request_word(struct worker_request *request) {
    char *word = request->at;
    char *end = word + strcspn(word, " ");
    request->at = end + (*end == ' ');
    *end = '\0';
    return word;
}

#define BAD_SIZE "a size must be a whole number of at most 1048576 bytes"
_Static_assert(WORKER_VALUE_MAX == 1048576, "the text above says so");

long worker_request_value(struct worker_request *request, ProtobufCBinaryData *value) {
    int64_t size;
    bool is_number = str_to_int64(worker_request_word(request), 0, INT64_MAX, &size);
    if (!is_number || size > WORKER_VALUE_MAX) {
        (void)worker_request_refuse(request, BAD_SIZE);
        if (is_number) request->channel->skip_bytes = (size_t)size;
        return -2;
    }
    if ((size_t)size > request->available) return REQUEST_LATER;
    *value = (ProtobufCBinaryData){.len = (size_t)size, .data = (uint8_t *)request->value};
    return (long)size;
}

static void say(struct worker_request *request, bool *said, Wire__WorkerEvent__Kind kind) {
    if (*said) return;
    *said = true;
    Wire__WorkerEvent event = WIRE__WORKER_EVENT__INIT;
    event.kind = kind;
    event.rank = request->channel->speaker->rank;
    outbox_event(request->channel->speaker->all->outbox, event);
}

long request_ready(struct worker_request *request) {
    say(request, &request->channel->speaker->ready, WIRE__WORKER_EVENT__KIND__READY);
    return 0;
}

long request_preemption(struct worker_request *request) {
    const char *text = request->channel->speaker->all->preemption;
    if (text == NULL)
        channel_answer(request->channel, "none");
    else
        buffer_printf(&request->channel->out, "value %zu\n%s", strlen(text), text);
    return 0;
}

long request_rendezvous(struct worker_request *request) {
    say(request, &request->channel->speaker->rendezvous, WIRE__WORKER_EVENT__KIND__RENDEZVOUS);
    return 0;
}

#define MANY_CHANNELS "256 are open"
_Static_assert(SPEAKER_CHANNELS_MAX == 256, "the text above says so");

long request_open(struct worker_request *request) {
    struct worker_channel *channel = request->channel;
    if (channel->n_fds == 0) return worker_request_refuse(request, "a socket must come with an open");
    int fd = channel->fds[0];
    channel->n_fds--;
    memmove(channel->fds, channel->fds + 1, channel->n_fds * sizeof fd);
    int domain, type;
    socklen_t length = sizeof domain;
    bool is_local_stream = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX &&
                           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
    if (!is_local_stream) {
        (void)close(fd);
        return worker_request_refuse(request, "an open needs a local stream socket");
    }
    bool fits = channel->speaker->n_channels < SPEAKER_CHANNELS_MAX;
    int code = fits ? channel_open(channel->speaker, fd) : -EMFILE;
    if (code < 0) {
        /* Told over that socket, where somebody waits, and which is closed: over this channel nobody expects
         * an answer. */
        char line[160];
        int size = snprintf(line, sizeof line, "failed no other channel can be opened: %s\n",
                            !fits             ? MANY_CHANNELS
                            : code == -ENOMEM ? "out of memory"
                                              : strerror(-code));
        (void)send(fd, line, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)close(fd);
    }
    return 0;
}

static const struct verb {
    const char *word;
    size_t size;
    bool in_turn, alive;
    long (*handle)(struct worker_request *request);
} verbs[] = {
#define X(word, in_turn, alive) {#word, sizeof #word - 1, in_turn, alive, request_##word},
    REQUESTS(X)
#undef X
};

long worker_request_handle(struct worker_channel *channel, char *line, size_t size, const char *value,
                           size_t available) {
    struct worker_request request = {.channel = channel, .at = line, .value = value, .available = available};
    long result;
    const struct verb *verb = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(verbs) && verb == NULL; i++)
        if (size >= verbs[i].size && memcmp(line, verbs[i].word, verbs[i].size) == 0 &&
            (line[verbs[i].size] == ' ' || line[verbs[i].size] == '\0'))
            verb = &verbs[i];
    if (verb == NULL || verb->alive) channel->speaker->heard = loop_now(channel->speaker->all->outbox->loop);
    if (memchr(line, '\0', size) != NULL) {
        result = worker_request_refuse(&request, "a line must not hold a NUL byte");
    } else if (verb == NULL) {
        result = worker_request_refuse(
            &request, "unknown word: report, ready, rendezvous, heartbeat, preemption, failure, checkpoint, "
                      "checkpoints, reported, commit, abort, set, get, wait, add, gather and open are known");
    } else {
        request.at = line + verb->size + (line[verb->size] == ' ');
        bool early = verb->in_turn && channel_is_answering(channel);
        result = early ? REQUEST_LATER : verb->handle(&request);
        if (result == REQUEST_LATER) {
            /* Handlers split a line in place, and may have to see it again: what they cut is put together
             * from the end. */
            for (size_t i = 0; i < size; i++)
                if (line[i] == '\0') line[i] = ' ';
        }
    }
    if (result == REQUEST_LATER) channel->stalled = channel_is_answering(channel);
    return result;
}
