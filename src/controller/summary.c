/* "mine succeeded in 3.42 s: loss 0.0505  step 40; best checkpoint by loss: checkpoint_000030; /runs/mine".
 * What comes from workers may hold anything: whoever shows the line escapes it. */
#include "controller/past_result.h"

#include <string.h>

#include "controller/progress.h"

void summary_format(const struct ty_result *result, const struct checkpoints *checkpoints, struct buffer *out) {
    buffer_printf(out, "%s succeeded in ", result->name);
    /* Of all attempts, those before a resume among them. */
    double seconds = 0;
    for (size_t i = 0; i < result->n_history; i++)
        if (result->history[i].ended > result->history[i].began)
            seconds += result->history[i].ended - result->history[i].began;
    duration_format((nanoseconds)(seconds * (double)NS_PER_S), out);
    if (result->attempts > 1) buffer_printf(out, ", with attempt %d", result->attempts);
    if (result->metrics != NULL) {
        buffer_text(out, ": ");
        progress_words(result->metrics, strlen(result->metrics), out);
    }
    const char *attribute, *best = checkpoints_best(checkpoints, &attribute);
    if (best != NULL) {
        const char *name = strrchr(best, '/');
        buffer_printf(out, attribute != NULL ? "; best checkpoint by %s: " : "; last checkpoint: ", attribute);
        buffer_text(out, name != NULL ? name + 1 : best);
    }
    buffer_printf(out, "; %s", result->path);
}
