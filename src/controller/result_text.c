/* A result as text. What comes from workers may hold anything: JSON's strings are escaped here, the line of a
 * success by whoever shows it. */
#include <string.h>

#include "controller/progress.h"
#include "controller/result.h"

void result_add_text(struct buffer *out, const char *key, const char *text) {
    buffer_printf(out, ", \"%s\": ", key);
    buffer_json_text(out, text);
}

void result_begin_json(const struct ty_result *result, struct buffer *out) {
    buffer_text(out, "{\"name\": ");
    buffer_json_text(out, result->name);
    result_add_text(out, "path", result->path);
    buffer_printf(out, ", \"metrics\": %s", result->metrics != NULL ? result->metrics : "null");
    result_add_text(out, "checkpoint", result->checkpoint);
}

static void add_seconds(struct buffer *out, const char *key, bool known, double seconds) {
    if (known)
        buffer_printf(out, ", \"%s\": %.9f", key, seconds);
    else
        buffer_printf(out, ", \"%s\": null", key);
}

void result_history(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct ty_attempt_info *attempt = &items[i];
        bool ended = attempt->outcome != NULL;
        buffer_printf(out, "%s{\"attempt\": %d, \"num_workers\": %d", i > 0 ? ", " : "", attempt->attempt,
                      attempt->num_workers);
        add_seconds(out, "began", true, attempt->began);
        add_seconds(out, "ended", ended, attempt->ended);
        add_seconds(out, "seconds", true,
                    (ended ? attempt->ended : (double)now / (double)NS_PER_S) - attempt->began);
        result_add_text(out, "outcome", attempt->outcome);
        if (attempt->rank >= 0)
            buffer_printf(out, ", \"rank\": %d", attempt->rank);
        else
            result_add_text(out, "rank", NULL);
        result_add_text(out, "node", attempt->node);
        result_add_text(out, "cause", attempt->cause);
        result_add_text(out, "checkpoint", attempt->checkpoint);
        buffer_char(out, '}');
    }
    buffer_char(out, ']');
}

/* "mine succeeded in 3.42 s: loss 0.0505  step 40; best checkpoint by loss: checkpoint_000030; /runs/mine". */
void result_summary(const struct ty_result *result, const struct checkpoints *checkpoints, struct buffer *out) {
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
