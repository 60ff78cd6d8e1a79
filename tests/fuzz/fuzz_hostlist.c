/* Host lists: what is read is compressed and read again to the same names. */
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/hostlist.h"
#include "fuzz.h"

enum { MOST_NAMES = 1000 };

/* Both lists have the same names in the same order. */
static void compare(const struct hostlist *list, const struct hostlist *again) {
    fuzz_require(hostlist_count(list) == hostlist_count(again));
    for (size_t i = 0; i < hostlist_count(list); i++) {
        CLEANUP(buffer_done) struct buffer a = {0};
        CLEANUP(buffer_done) struct buffer b = {0};
        hostlist_nth(list, i, &a);
        hostlist_nth(again, i, &b);
        fuzz_require(strcmp(a.data, b.data) == 0);
    }
}

static void compress(const struct hostlist *list, struct buffer *out) {
    char *names[MOST_NAMES];
    size_t n = hostlist_count(list);
    for (size_t i = 0; i < n; i++) {
        struct buffer name = {0};
        hostlist_nth(list, i, &name);
        names[i] = buffer_take(&name);
    }
    hostlist_compress((const char *const *)names, n, out);
    for (size_t i = 0; i < n; i++)
        free(names[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CLEANUP_FREE char *text = fuzz_text(data, size);
    CLEANUP(buffer_done) struct buffer compressed = {0};
    struct hostlist *list = NULL, *again = NULL;
    if (hostlist_parse(text, &list, NULL) < 0) return 0;
    size_t n = hostlist_count(list);
    fuzz_require(n > 0 && n <= HOSTLIST_MAX);
    hostlist_nth(list, n - 1, &compressed);
    buffer_clear(&compressed);
    if (n <= MOST_NAMES) {
        compress(list, &compressed);
        fuzz_require(hostlist_parse(compressed.data, &again, NULL) == 0);
        compare(list, again);
        hostlist_destroy(again);
    }
    hostlist_destroy(list);
    return 0;
}
