/* Samples of where workers stand, for a flame graph: Python's dumps, taken apart and counted, until the time is
 * over. A dump that is late, as on a busy machine, is waited for before the next is asked for: a half of one
 * would be another place. A process that does not answer is told by what /proc says. */
#include "agent/stack_save.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/str.h"

enum { QUIET_LOOKS = 2 }; /* without news: the dump is whole */
#define STEP_MOST (20 * NS_PER_MS)
#define LAST_WAIT (2 * NS_PER_S)

static int count(struct stack_sampled *item, struct buffer *line) {
    if (line->size == 0) return 0;
    buffer_text(line, ""); /* its end */
    if (line->failed) return -ENOMEM;
    const uintptr_t *before = hash_get(item->counts, line->data);
    item->n++;
    return hash_set(item->counts, line->data, before != NULL ? *before + 1 : 1) < 0 ? -ENOMEM : 0;
}

/* Asks Python for its dump; of one that does not tell, or is stopped, what is read from outside counts at
 * once. */
static int ask(struct stack_sampled *item) {
    CLEANUP(buffer_done) struct buffer line = {0}, dump = {0};
    if (item->asked) return 0;
    item->asked = item->tells && stack_python_ask(&item->python, NULL) == 0;
    if (item->asked) return 0;
    if (item->is_read && stack_cpython_read(&item->cpython, &dump))
        stack_text_folded(dump.data, dump.size, &line);
    if (line.size == 0) stack_facts_folded(item->pid, &line);
    return count(item, &line);
}

/* Takes the dumps that come until `end`; without `all` only as long as one that was asked for is missing. */
static int take_until(struct stack_sampled *items, size_t n, nanoseconds end, nanoseconds step, bool all) {
    int missing = 1;
    for (nanoseconds now; (now = clock_monotonic()) < end && (missing > 0 || all);) {
        nanoseconds wait = end - now < step ? end - now : step;
        (void)nanosleep(&(struct timespec){.tv_sec = wait / NS_PER_S, .tv_nsec = wait % NS_PER_S}, NULL);
        missing = 0;
        for (size_t i = 0; i < n; i++) {
            CLEANUP(buffer_done) struct buffer dump = {0}, line = {0};
            struct stack_sampled *item = &items[i];
            if (!item->asked) continue;
            item->asked = !stack_python_take(&item->python, QUIET_LOOKS, &dump);
            missing += item->asked;
            if (dump.size > 0) stack_text_folded(dump.data, dump.size, &line);
            if (dump.failed || count(item, &line) < 0) return -ENOMEM;
        }
    }
    return 0;
}

/* What the looks are late is not made up for: samples that follow each other too fast would tell of one place.
 * Dumps that are under way at the end are still waited for, a while. */
int stack_sample(struct stack_sampled *items, size_t n, nanoseconds length, nanoseconds period, ty_error *err) {
    nanoseconds step = period / (QUIET_LOOKS + 2) < STEP_MOST ? period / (QUIET_LOOKS + 2) : STEP_MOST;
    nanoseconds due = clock_monotonic(), end = due + length;
    int result = 0;
    for (size_t i = 0; i < n && result == 0; i++) {
        items[i].python = (struct stack_python){.pid = items[i].pid};
        items[i].cpython = (struct stack_cpython){.pid = items[i].pid};
        items[i].tells = stack_python_open(&items[i].python);
        items[i].is_read = !items[i].tells && stack_cpython_open(&items[i].cpython);
        items[i].counts = hash_create();
        result = items[i].counts != NULL ? 0 : -ENOMEM;
    }
    do {
        for (size_t i = 0; i < n && result == 0; i++)
            result = ask(&items[i]);
        due += period;
        if (due < clock_monotonic()) due = clock_monotonic(); /* what was missed is not made up for */
        if (result == 0) result = take_until(items, n, due < end ? due : end, step, true);
    } while (result == 0 && due < end);
    if (result == 0) result = take_until(items, n, clock_monotonic() + LAST_WAIT, step, false);
    return result < 0 ? ty_fail_memory(err) : 0;
}

void stack_sample_folded(const struct stack_sampled *items, size_t n, struct buffer *out) {
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        uintptr_t times;
        for (const char *line; (line = hash_next(items[i].counts, &at, &times)) != NULL;)
            buffer_printf(out, "rank %d;%s %zu\n", items[i].rank, line, (size_t)times);
    }
}

int stack_sample_unfold(struct stack_sampled *items, size_t n, char *line) {
    const char *rest = NULL;
    char *place = strchr(line, ';'), *times = strrchr(line, ' ');
    int64_t rank, count;
    if (place == NULL || times == NULL || times < place || !str_prefix(line, "rank ", &rest)) return -EINVAL;
    *place++ = '\0';
    *times++ = '\0';
    if (!str_to_int64(rest, 0, INT32_MAX, &rank) || !str_to_int64(times, 1, INT32_MAX, &count)) return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        if (items[i].rank != rank) continue;
        items[i].n += (size_t)count;
        return hash_set(items[i].counts, place, (uintptr_t)count) < 0 ? -ENOMEM : 0;
    }
    return -EINVAL;
}

void stack_sample_done(struct stack_sampled *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (items[i].tells) stack_python_close(&items[i].python);
        hash_destroy(items[i].counts);
        items[i].counts = NULL;
    }
}
