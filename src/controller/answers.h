/* Answers of the store on their way to one agent, in order. Values are held, not copied; a part at a time goes
 * into the channel while that is not full, so that many large answers take the memory of their values and no
 * more. */
#ifndef CONTROLLER_ANSWERS_H
#define CONTROLLER_ANSWERS_H

#include "base/shared.h"
#include "run/store.h"
#include "wire/channel.h"

struct answers { /* zero-initialised is empty */
    struct answer *first, *last;
    size_t sent; /* bytes of the first one's value that the channel has */
};

/* Adds the answer for a channel of a worker; the value, which may be NULL, is held. The same answer as the one
 * before goes to both channels in one. -ENOMEM. */
int answers_add(struct answers *answers, uint32_t channel, enum store_status status, struct shared *value);

/* Gives the channel as much as it has room for. */
void answers_send(struct answers *answers, struct channel *channel);

/* Nobody waits for them any more. */
void answers_drop(struct answers *answers);

#endif
