/* What ty_result_json and `trainyard status` tell of each attempt. */
#include "controller/history.h"

static void add_text(struct buffer *out, const char *key, const char *text) {
    buffer_printf(out, ", \"%s\": ", key);
    buffer_json_text(out, text);
}

static void add_number(struct buffer *out, const char *key, bool known, double number) {
    if (known)
        buffer_printf(out, ", \"%s\": %.9f", key, number);
    else
        buffer_printf(out, ", \"%s\": null", key);
}

void history_json(const struct ty_attempt_info *items, size_t n, nanoseconds now, struct buffer *out) {
    buffer_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct ty_attempt_info *attempt = &items[i];
        bool ended = attempt->outcome != NULL;
        buffer_printf(out, "%s{\"attempt\": %d, \"num_workers\": %d", i > 0 ? ", " : "", attempt->attempt,
                      attempt->num_workers);
        add_number(out, "began", true, attempt->began);
        add_number(out, "ended", ended, attempt->ended);
        add_number(out, "seconds", true,
                   (ended ? attempt->ended : (double)now / (double)NS_PER_S) - attempt->began);
        add_text(out, "outcome", attempt->outcome);
        if (attempt->rank >= 0)
            buffer_printf(out, ", \"rank\": %d", attempt->rank);
        else
            add_text(out, "rank", NULL);
        add_text(out, "node", attempt->node);
        add_text(out, "cause", attempt->cause);
        add_text(out, "checkpoint", attempt->checkpoint);
        buffer_char(out, '}');
    }
    buffer_char(out, ']');
}
