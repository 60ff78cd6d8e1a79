/* What a worker that failed has written of it: the file that TORCHELASTIC_ERROR_FILE names, as PyTorch's
 * `@record` fills it. It is read on the thread of the logs, so that no storage keeps the agent, and as what a
 * stranger may have put there: a plain file of this attempt, of bounded size, of JSON in that form, or nothing.
 * By then the rank has a log as well, if an empty one. */
#ifndef AGENT_LAST_WORDS_H
#define AGENT_LAST_WORDS_H

#include "agent/logs.h"

enum { LAST_WORDS_MAX = 1 << 20 };

struct last_words_found {
    char *message;    /* one line, harmless; NULL without */
    char *traceback;  /* lines; NULL without */
    nanoseconds time; /* wall; 0 when it is not told, or told wrong */
};

struct last_words; /* opaque: a question */

/* Looks for what rank `rank` has written since `since` (wall, of the clock of files). `told` is called once, on
 * the loop: with what there is, or with nothing when the storage does not answer in time. NULL where there is
 * nobody to ask. */
struct last_words *last_words_ask(struct logs *logs, const char *run_path, uint32_t rank, nanoseconds since,
                                  void (*told)(void *context, const struct last_words_found *found),
                                  void *context);
/* Nobody waits any more; NULL is fine. */
void last_words_drop(struct last_words *words);

/* The clock by which the kernel dates files, which may be a tick behind. */
nanoseconds last_words_now(void);

#endif
