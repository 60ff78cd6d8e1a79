/* The queue of answers.h. A value may be of many MiB and go to every rank: it is held once, a part of it is
 * copied into a frame when the channel has room, and ranks that wait for the same value behind one agent are
 * named together. */
#include "controller/answers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

enum { PART = 256 << 10 };

struct answer {
    struct answer *next;
    enum store_status status;
    struct shared *value;
    uint32_t *channels;
    size_t n_channels;
};

static int add_channel(struct answer *answer, uint32_t channel) {
    if (ARRAY_GROW(answer->channels, answer->n_channels) < 0) return -ENOMEM;
    answer->channels[answer->n_channels++] = channel;
    return 0;
}

int answers_add(struct answers *answers, uint32_t channel, enum store_status status, struct shared *value) {
    struct answer *last = answers->last;
    if (last != NULL && last->status == status && last->value == value) return add_channel(last, channel);
    struct answer *answer = calloc(1, sizeof *answer);
    if (answer == NULL || add_channel(answer, channel) < 0) {
        free(answer);
        return -ENOMEM;
    }
    answer->status = status;
    answer->value = shared_hold(value);
    *(last != NULL ? &last->next : &answers->first) = answer;
    answers->last = answer;
    return 0;
}

static void remove_first(struct answers *answers) {
    struct answer *first = answers->first;
    answers->first = first->next;
    if (answers->first == NULL) answers->last = NULL;
    answers->sent = 0;
    shared_release(first->value);
    free(first->channels);
    free(first);
}

void answers_send(struct answers *answers, struct channel *channel) {
    while (answers->first != NULL && !channel_full(channel)) {
        /* The channels that wait are named in the last part alone: others may join them until then. */
        struct answer *answer = answers->first;
        const struct shared *value = answer->value;
        Wire__Answer body = WIRE__ANSWER__INIT;
        body.status = (Wire__Answer__Status)answer->status;
        body.size = value != NULL ? value->size : 0;
        size_t left = body.size - answers->sent;
        body.value.len = left < PART ? left : PART;
        if (body.value.len > 0) body.value.data = (uint8_t *)value->bytes + answers->sent;
        answers->sent += body.value.len;
        bool last = answers->sent == body.size;
        if (last) {
            body.channels = answer->channels;
            body.n_channels = answer->n_channels;
        }
        (void)channel_send(channel, &WIRE_MESSAGE(ANSWER, answer, &body));
        if (last) remove_first(answers);
    }
}

void answers_drop(struct answers *answers) {
    while (answers->first != NULL)
        remove_first(answers);
}
