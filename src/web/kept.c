/* Several pages of one run hear of news at once, and ask for the same: what took long to answer is kept for a
 * moment, as long as nothing more was told of the run. Which calls may take a kept answer is api.c's to say
 * (note_asked); a page that watches nothing is always answered anew. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "web/api.h"

enum { KEPT_ANSWER_MS = 250, KEPT_ANSWER_US = 500, KEPT_ANSWER_BYTES = 512 << 10 };

bool kept_take(struct api_call *call) {
    struct kept_answers *answers = &call->site->kept;
    nanoseconds now = clock_monotonic();
    bool found = false;
    if (call->asked == NULL) return false;
    (void)pthread_mutex_lock(&answers->lock);
    for (size_t i = 0; i < KEPT_ANSWERS && !found; i++) {
        const struct kept_answer *kept = &answers->items[i];
        found = kept->told == call->told && now < kept->until && str_equal(kept->asked, call->asked);
        if (found) buffer_append(&call->out, kept->body.data, kept->body.size);
    }
    (void)pthread_mutex_unlock(&answers->lock);
    return found;
}

/* What was cheap, or is large, is not worth its memory. */
void kept_add(const struct api_call *call) {
    struct kept_answers *answers = &call->site->kept;
    if (call->asked == NULL || call->spent < KEPT_ANSWER_US * (NS_PER_MS / 1000) || call->out.failed ||
        call->out.size > KEPT_ANSWER_BYTES)
        return;
    struct kept_answer fresh = {.asked = strdup(call->asked),
                                .told = call->told,
                                .until = clock_monotonic() + KEPT_ANSWER_MS * NS_PER_MS};
    buffer_append(&fresh.body, call->out.data, call->out.size);
    if (fresh.asked == NULL || fresh.body.failed) {
        kept_forget(&fresh);
        return;
    }
    (void)pthread_mutex_lock(&answers->lock);
    struct kept_answer *oldest = &answers->items[answers->next++ % KEPT_ANSWERS];
    kept_forget(oldest);
    *oldest = fresh;
    (void)pthread_mutex_unlock(&answers->lock);
}

void kept_forget(struct kept_answer *kept) {
    free(kept->asked);
    buffer_done(&kept->body);
    *kept = (struct kept_answer){0};
}
