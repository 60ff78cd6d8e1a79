/* The agent's end of the protocol in worker/link.h (docs/worker-protocol.md): channels of workers, and of
 * processes that workers started. What they say goes to the outbox; what the controller answers goes back to
 * the channel that asked.
 *
 * A channel has at most one request that waits for the controller. Lines that need no answer are taken
 * meanwhile; the next that needs one waits in the channel, and with it everything behind. */
#ifndef AGENT_WORKER_CHANNEL_H
#define AGENT_WORKER_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/outbox.h"
#include "base/hash.h"
#include "base/shared.h"

/* What the workers of a node gave to the store, for another controller (adrift.h): values that were set, and
 * sums of what was added. Too much of it, or what would not do there, is lost, and then nothing is kept any
 * more. */

/* Bytes that all of it takes in a message at most. */
enum { KEPT_VALUES_MAX = 32 << 10 };

struct kept_value {
    char *key, *value; /* owned; no value: only added to */
    size_t size;
    int64_t sum;
};

struct kept_values {   /* zero-initialised */
    struct hash *keys; /* key -> index of */
    struct kept_value *items;
    size_t n;
    size_t bytes; /* in a message, at most */
    bool lost;
};

void kept_values_set(struct kept_values *values, const char *key, const void *bytes, size_t size);
/* `delta`: a number's text. */
void kept_values_add(struct kept_values *values, const char *key, const void *delta, size_t size);
void kept_values_lose(struct kept_values *values);
void kept_values_done(struct kept_values *values); /* they are as at first again */

struct worker_channel; /* opaque */

/* All channels of an agent. */
struct worker_channels {
    struct outbox *outbox;
    struct worker_channel **slots; /* by the lower half of their number */
    size_t n_slots;
    uint32_t opened;        /* makes the upper half of numbers */
    const char *run_path;   /* of the current launch; borrowed */
    const char *token;      /* the same */
    const char *preemption; /* what workers are told of it: JSON, NULL: there is none; borrowed */
    uint32_t attempt;
    struct node_storage *storage; /* through which files of checkpoints go; borrowed */
    struct arriving {             /* an answer of the controller, part by part */
        struct shared *value;
        size_t have; /* bytes of it, also of one that has no room */
        bool over;   /* it has no room: WORKER_ANSWERS_MAX */
    } arriving;
    size_t answer_bytes; /* of values that workers have not read yet */
    bool keeps;          /* what another controller would ask for (adrift.h) */
    struct kept_values values;
};

/* Values of answers that an agent holds for workers that do not read them. */
enum { WORKER_ANSWERS_MAX = 512 << 20 };

/* Checkpoints that a worker may write at a time. */
enum { SPEAKER_WRITING_MAX = 16 };

/* One worker as a speaker. */
struct speaker {
    struct worker_channels *all;
    uint32_t rank;
    uint64_t reports;         /* number of its last report */
    uint64_t report_base;     /* that of the last one before this attempt */
    uint64_t turned, dropped; /* of reports that are kept: up to these in the older half, and gone */
    uint64_t gathers;         /* that were answered */
    struct writing {
        uint64_t number;  /* of a checkpoint that was begun and neither committed nor aborted; 0: free */
        uint32_t channel; /* that began it */
    } writing[SPEAKER_WRITING_MAX];
    bool ready, rendezvous;
    nanoseconds heard; /* when it last said or got something, looks at others' reports aside; monotonic */
    bool taking;       /* what it has said is read though neither the controller nor its answers keep up */
    bool finishing;    /* an empty socket is as good as a closed one */
    unsigned n_channels;
    struct worker_channel *channels; /* in the order in which they were opened, for that of what they say */
    void (*ended)(void *context);    /* its last channel was closed */
    void (*failed)(void *context, const char *traceback); /* it ends with an exception */
    void *context;
};

enum { SPEAKER_CHANNELS_MAX = 256 };

void worker_channels_done(struct worker_channels *all);
/* Begins to keep, with nothing, or keeps nothing any more. */
void worker_channels_keep(struct worker_channels *all, bool keeps);

/* Opens a worker's first channel on `fd`, which it takes over, also when it fails. The speaker is filled in
 * before. */
int speaker_start(struct speaker *speaker, int fd, ty_error *err);
void speaker_done(struct speaker *speaker); /* closes all channels without a call to `ended` */

/* Its worker has ended: reads what lies in its sockets, whose reports come before that end. */
void speaker_take(struct speaker *speaker);
void speaker_finish(struct speaker *speaker); /* as relay_finish */

/* Answers of the controller. One for a channel that is gone is dropped. */
void worker_channels_answer(struct worker_channels *all, const Wire__Answer *answer);
void worker_channels_committed(struct worker_channels *all, const Wire__Committed *committed);
/* The controller is gone: an answer of which it has sent a part will not be whole, and another controller
 * answers from the beginning. */
void worker_channels_forget_part(struct worker_channels *all);

/* For another controller, where channels keep what they asked. Some channel waits for what must not be asked
 * twice: */
bool speaker_waits_for_sum(const struct speaker *speaker);
/* The first checkpoint that was begun and neither answered for nor given up; 0: none. */
uint64_t speaker_unfinished(const struct speaker *speaker);
void speaker_ask_again(struct speaker *speaker); /* what its channels wait for, but for commits */

#endif
