/* What one page was answered, another one gets that asks for the same, unless something was told in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "web/api.h"

static struct site site = {.kept.lock = PTHREAD_MUTEX_INITIALIZER};
static char curve[] = "/api/series?run=1&metric=loss", other[] = "/api/series?run=1&metric=lr";

static void answer(char *asked, uint64_t told, nanoseconds spent, const char *text) {
    struct api_call call = {.site = &site, .asked = asked, .told = told, .spent = spent};
    buffer_text(&call.out, text);
    kept_add(&call);
    buffer_done(&call.out);
}

static bool is_answered(char *asked, uint64_t told, const char *text) {
    struct api_call call = {.site = &site, .asked = asked, .told = told};
    bool taken = kept_take(&call);
    assert_true(taken ? strcmp(call.out.data, text) == 0 : call.out.size == 0);
    buffer_done(&call.out);
    return taken;
}

static void forget_all(void) {
    for (size_t i = 0; i < KEPT_ANSWERS; i++)
        kept_forget(&site.kept.items[i]);
}

static void test_the_same_is_answered_once(void **state) {
    (void)state;
    bool taken = false;
    for (int i = 0; i < 100 && !taken; i++) { /* they are kept for a moment alone, and a machine may be busy */
        answer(curve, 1, 10 * NS_PER_MS, "a");
        taken = is_answered(curve, 1, "a");
    }
    assert_true(taken);
    assert_false(is_answered(other, 1, ""));
    assert_false(is_answered(NULL, 1, ""));
    assert_false(is_answered(curve, 2, "")); /* something was told since */
    forget_all();
    assert_false(is_answered(curve, 1, ""));
}

static void test_what_is_not_kept(void **state) {
    (void)state;
    static char large[1 << 20];
    memset(large, 'x', sizeof large - 1);
    answer(curve, 1, 1000, "made in no time");
    answer(NULL, 1, NS_PER_S, "of nobody who watches");
    answer(curve, 1, NS_PER_S, large);
    assert_false(is_answered(curve, 1, ""));
    answer(curve, 1, NS_PER_S, "a");
    for (size_t i = 0; i < KEPT_ANSWERS; i++)
        answer(other, 1, NS_PER_S, "b");
    assert_false(is_answered(curve, 1, ""));
    site.kept.items[0].until = 0; /* a moment later */
    for (size_t i = 1; i < KEPT_ANSWERS; i++)
        kept_forget(&site.kept.items[i]);
    assert_false(is_answered(other, 1, ""));
    forget_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_is_answered_once),
        cmocka_unit_test(test_what_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
