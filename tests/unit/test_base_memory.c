/* Out of memory is an ordinary error: each scenario is run with its first, second, third ... allocation
 * failing, until it gets through; every time it must say -ENOMEM and leave nothing behind. Linked with --wrap
 * for the allocating functions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/document.h"
#include "base/hash.h"
#include "base/hostlist.h"
#include "base/idset.h"
#include "base/quantity.h"
#include "base/str.h"
#include "failing_memory.h"

/* Runs `scenario` with ever later failures; it returns 0 or -ENOMEM. */
static void exhaust(int (*scenario)(ty_error *err)) {
    for (long k = 0;; k++) {
        ty_error err = {0};
        (void)memory_fails_after(k, true);
        int result = scenario(&err);
        (void)memory_fails_after(-1, true);
        if (result == 0) {
            assert_true(k > 0); /* or nothing was tried */
            return;
        }
        assert_int_equal(result, -ENOMEM);
        if (err.code != 0) assert_string_equal(err.message, "out of memory");
        assert_true(k < 1000);
    }
}

static int build_text(ty_error *err) {
    (void)err;
    struct buffer buffer = {0};
    for (int i = 0; i < 200; i++)
        buffer_printf(&buffer, "%d,", i);
    buffer_json_string(&buffer, "x\n", 2);
    CLEANUP_FREE char *text = buffer_take(&buffer);
    return text == NULL ? -ENOMEM : 0;
}

static int fill_hash(ty_error *err) {
    (void)err;
    struct hash *hash = hash_create();
    if (hash == NULL) return -ENOMEM;
    int result = 0;
    for (size_t i = 0; i < 30 && result >= 0; i++) {
        char key[2] = {(char)('a' + i), '\0'};
        result = hash_set(hash, key, i);
        if (hash_size(hash) != (result < 0 ? i : i + 1)) result = -EINVAL;
    }
    hash_destroy(hash);
    return result < 0 ? result : 0;
}

static int read_hostlist(ty_error *err) {
    struct hostlist *list = NULL;
    int result = hostlist_parse("r[1-2,5]n[01-03,7,9]-x,login,a,b,c", &list, err);
    if (result == 0) hostlist_destroy(list);
    return result < 0 && list != NULL ? -EINVAL : result;
}

static int walk_hostlist_name(void *context, const char *name) {
    (void)context, (void)name;
    return 0;
}

static int walk_hostlist(ty_error *err) {
    struct hostlist *list = NULL;
    long budget = memory_fails_after(-1, true);
    int result = hostlist_parse("n[1-100]", &list, err);
    (void)memory_fails_after(budget, true);
    if (result == 0) result = hostlist_each(list, walk_hostlist_name, NULL);
    hostlist_destroy(list);
    return result;
}

static int read_idset(ty_error *err) {
    CLEANUP(idset_done) struct idset set = {0};
    int result = idset_parse(&set, "0-3,200,5000", err);
    return result < 0 && set.words != NULL ? -EINVAL : result;
}

static int read_resources(ty_error *err) {
    CLEANUP(resources_done) struct resources resources = {0};
    CLEANUP(resources_done) struct resources copy = {0};
    int result = resources_parse(&resources, "CPU=1", err);
    if (result == 0) result = resources_parse(&resources, "GPU=1,memory=8GiB", err);
    if (result < 0) return resources.n < 2 ? result : -EINVAL;
    result = resources_copy(&copy, &resources);
    return result < 0 && copy.n > 0 ? -EINVAL : result;
}

static int accept_piece(void *context, char *piece) {
    (void)context, (void)piece;
    return 0;
}

static int split_text(ty_error *err) {
    (void)err;
    return str_split("a,b", ',', accept_piece, NULL);
}

static int read_document(ty_error *err) {
    static const char text[] =
        "name: a\nlist: [1, 2.5, true, {x: y}]\nmap: {a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7}\n";
    struct document *document = NULL;
    int result = document_parse(text, sizeof text - 1, "f.yaml", &document, err);
    if (result == 0) document_destroy(document);
    return result < 0 && document != NULL ? -EINVAL : result;
}

#define SCENARIOS(X)  \
    X(build_text)     \
    X(fill_hash)      \
    X(read_hostlist)  \
    X(walk_hostlist)  \
    X(read_idset)     \
    X(read_resources) \
    X(split_text)     \
    X(read_document)

#define X(scenario)                                \
    static void exhaust_##scenario(void **state) { \
        (void)state;                               \
        exhaust(scenario);                         \
    }
SCENARIOS(X)
#undef X

int main(void) {
    json_set_alloc_funcs(malloc, free); /* wrapped here, not in the library */
    const struct CMUnitTest tests[] = {
#define X(scenario) cmocka_unit_test(exhaust_##scenario),
        SCENARIOS(X)
#undef X
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
