/* `trainyard store`: the run's shared store, from inside a worker: set, get, wait and add, for programs in any
 * language. A value goes to standard output byte for byte. What the store does, and how much it holds, is in
 * run/store.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/str.h"
#include "cli/command.h"

struct store_options {
    nanoseconds timeout;
};

static const struct option_spec specs[] = {
    {"timeout", 0, "DURATION", "with wait: how long at most (default: 5m)", option_duration,
     offsetof(struct store_options, timeout), NULL},
};
static const struct option_group store_group = {"Options", specs, ARRAY_SIZE(specs)};

struct store_call {
    ty_worker *worker;
    const char *key, *value;
    nanoseconds timeout;
};

/* The newline behind it is taken off again by $(...). */
static int print_value(const void *value, size_t size, ty_error *err) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_append(&text, value, size);
    buffer_char(&text, '\n');
    return cli_print(&text, err);
}

static int do_set(const struct store_call *call, ty_error *err) {
    return ty_store_set(call->worker, call->key, call->value, strlen(call->value), err);
}

static int do_get(const struct store_call *call, ty_error *err) {
    CLEANUP_FREE void *value = NULL;
    size_t size = 0;
    int result = ty_store_get(call->worker, call->key, &value, &size, err);
    if (result < 0) return result;
    if (result == 0) return EXIT_FAILURE; /* no such key: told by the status alone, as scripts want it */
    return print_value(value, size, err);
}

static int do_wait(const struct store_call *call, ty_error *err) {
    CLEANUP_FREE void *value = NULL;
    size_t size = 0;
    int result = ty_store_wait(call->worker, call->key, duration_seconds(call->timeout), &value, &size, err);
    return result < 0 ? result : print_value(value, size, err);
}

/* The sum is made where the store is, so that two ranks that add at once both count. */
static int do_add(const struct store_call *call, ty_error *err) {
    int64_t delta = 0, sum = 0;
    if (!str_to_int64(call->value, INT64_MIN, INT64_MAX, &delta))
        return ty_fail(err, TY_EUSAGE, "add %.80s: '%.80s' must be a whole number", call->key, call->value);
    int result = ty_store_add(call->worker, call->key, delta, &sum, err);
    if (result < 0) return result;
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text, "%lld\n", (long long)sum);
    return cli_print(&text, err);
}

static const struct store_verb {
    const char *name;
    size_t n_words;
    const char *usage;
    int (*act)(const struct store_call *call, ty_error *err);
} verbs[] = {{"get", 2, "get KEY", do_get},
             {"set", 3, "set KEY VALUE", do_set},
             {"wait", 2, "wait KEY [--timeout DURATION]", do_wait},
             {"add", 3, "add KEY NUMBER", do_add}};

static int store_run(const struct arguments *arguments, ty_error *err) {
    struct store_options options = {.timeout = 300 * NS_PER_S};
    const char *names[ARRAY_SIZE(verbs)], *given = arguments->words[0];
    char hint[STR_HINT_SIZE];
    size_t n = 0;
    int result = options_apply(arguments, (void *[]){&options}, err);
    if (result < 0) return result;
    for (; n < ARRAY_SIZE(verbs) && !str_equal(verbs[n].name, given); n++)
        names[n] = verbs[n].name;
    if (n == ARRAY_SIZE(verbs))
        return ty_fail(err, TY_EUSAGE, "'%.80s' must be one of get, set, wait, add%s", given,
                       str_hint(given, names, n, hint));
    const struct store_verb *verb = &verbs[n];
    if (arguments->n_words != verb->n_words)
        return ty_fail(err, TY_EUSAGE, "%s takes %zu arguments, not %zu: trainyard store %s", verb->name,
                       verb->n_words - 1, arguments->n_words - 1, verb->usage);
    struct store_call call = {.key = arguments->words[1], .timeout = options.timeout};
    if (arguments->n_words > 2) call.value = arguments->words[2];
    call.worker = inside_worker(err);
    return call.worker == NULL ? err->code : verb->act(&call, err);
}

const struct command command_store = {
    .name = "store",
    .summary = "read and write the run's shared store from inside a worker",
    .usage = (const char *const[]){"get KEY", "set KEY VALUE", "wait KEY [--timeout DURATION]",
                                   "add KEY NUMBER", NULL},
    .description =
        "Small values that all workers of the run share. get prints the value, or ends with status 1 "
        "when there is none; wait waits for it; add adds to a number and prints the sum. A value that "
        "begins with a dash goes behind --.",
    .groups = (const struct option_group *const[]){&store_group, NULL},
    .min_words = 1,
    .max_words = 4,
    .missing = "what to do? get KEY, set KEY VALUE, wait KEY or add KEY NUMBER",
    .run = store_run,
};
