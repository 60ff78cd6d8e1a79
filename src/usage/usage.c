/* The table of what is sampled, and a sample as a packet: how long it is, whether one that came is whole, a
 * number more. Shared by the process that samples and those that read; what is sampled is measured in
 * usage_node.c, usage_workers.c and a file for each vendor. */
#include "usage/usage.h"

#include <math.h>
#include <string.h>

#include "accelerator/accelerator.h"
#include "base/cleanup.h"
#include "base/str.h"

const struct usage_about usage_table[USAGES_N] = {
#define X(id, text, scope, kind, unit, help) {text, unit, help, USAGE_OF_##scope, USAGE_##kind},
    USAGES(X)
#undef X
};

enum usage_what usage_of(const char *text) {
    int what = 0;
    while (what < USAGES_N && !str_equal(usage_table[what].text, text))
        what++;
    return (enum usage_what)what;
}

void usage_limits(unsigned bits, struct buffer *out) {
    static const struct {
        unsigned bit;
        const char *text;
    } limits[] = {
#define X(id, bit, text) {bit, text},
        USAGE_LIMITS(X)
#undef X
    };
    const char *between = "";
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        if ((bits & limits[i].bit) == 0) continue;
        buffer_printf(out, "%s%s", between, limits[i].text);
        between = ", ";
    }
}

size_t usage_size(const struct usage_sample *sample) {
    return offsetof(struct usage_sample, values) + sample->n * sizeof *sample->values;
}

bool usage_is_whole(const struct usage_sample *sample, size_t size) {
    if (size < offsetof(struct usage_sample, values) || sample->n > USAGE_VALUES_MAX) return false;
    if (sample->n_faults > USAGE_FAULTS_MAX) return false;
    if (usage_size(sample) != size) return false;
    for (uint32_t i = 0; i < sample->n_faults; i++)
        if (sample->faults[i].kind >= USAGE_FAULTS_N) return false;
    for (uint32_t i = 0; i < sample->n; i++)
        if (sample->values[i].what >= USAGES_N || !isfinite(sample->values[i].value)) return false;
    return true;
}

void usage_add(struct usage_sample *sample, enum usage_what what, int32_t number, double value) {
    if (sample->n == USAGE_VALUES_MAX || !isfinite(value)) return;
    sample->values[sample->n++] = (struct usage_value){what, number, value};
}

size_t usage_visible(const char *value, size_t count, int indices[USAGE_DEVICES_MAX],
                     void (*entry)(void *context, size_t place, const char *text), void *context) {
    CLEANUP(buffer_done) struct buffer entries = {0};
    int n = accelerator_visible_entries(value, &entries);
    size_t left = 0;
    if (entries.failed) return 0;
    for (; n < 0 && left < count && left < USAGE_DEVICES_MAX; left++)
        indices[left] = (int)left;
    const char *text = entries.data;
    for (int i = 0; i < n && left < USAGE_DEVICES_MAX; i++, text += strlen(text) + 1) {
        int64_t index = -1;
        bool number = str_to_int64(text, 0, INT32_MAX, &index);
        if (number && (size_t)index >= count) index = -1;
        indices[left] = (int)index;
        if (!number && entry != NULL) entry(context, left, text);
        left++;
    }
    return left;
}
