/* Host lists: as many names as were counted, each without a bracket or a comma, and each a list of itself
 * alone. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hostlist.h"
#include "fuzz.h"

enum { MOST_NAMES = 1000 };

static int same_name(void *context, const char *name) {
    fuzz_require(strcmp(context, name) == 0);
    return 0;
}

static int take_name(void *context, const char *name) {
    CLEANUP_FREE char *copy = strdup(name);
    struct hostlist *alone = NULL;
    fuzz_require(copy != NULL && strpbrk(name, "[],") == NULL);
    fuzz_require(hostlist_parse(name, &alone, NULL) == 0 && hostlist_count(alone) == 1);
    (void)hostlist_each(alone, same_name, copy);
    hostlist_destroy(alone);
    return ++*(size_t *)context == MOST_NAMES;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    struct hostlist *list = NULL;
    if (hostlist_parse(text, &list, NULL) < 0) return 0;
    size_t n = hostlist_count(list), taken = 0;
    fuzz_require(n > 0 && n <= HOSTLIST_MAX);
    (void)hostlist_each(list, take_name, &taken);
    fuzz_require(taken == (n < MOST_NAMES ? n : MOST_NAMES));
    hostlist_destroy(list);
    return 0;
}
