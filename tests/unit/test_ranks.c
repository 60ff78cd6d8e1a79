/* The order of ranks and their places on nodes (docs/spec/train-api.md 8, vectors 56 to 65). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "placement/ranks.h"

/* Nodes and lowest device of each bundle -> bundles in rank order, as "2,3,0,1". */
static const char *order_of(const uint32_t *nodes, const int64_t *devices, size_t n) {
    static char text[128];
    struct rank_key keys[16] = {{0, NULL}};
    uint32_t order[16];
    for (size_t i = 0; i < n && devices; i++)
        keys[i].number = devices[i];
    assert_int_equal(ranks_order(nodes, keys, n, 8, order), 0);
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i ? "," : "", order[i]);
    return text;
}

#define U32(...) ((const uint32_t[]){__VA_ARGS__})
#define I64(...) ((const int64_t[]){__VA_ARGS__})

static void test_rank_order(void **state) {
    (void)state;
    assert_string_equal(order_of(U32(1, 0, 1, 0), I64(1, 0, 0, 1), 4), "2,0,1,3"); /* 56 */
    assert_string_equal(order_of(U32(2, 3, 1, 4, 2, 3, 1, 3, 2, 4), NULL, 10), "0,4,8,1,5,7,2,6,3,9");
    assert_string_equal(order_of(U32(2, 2, 1, 1, 2, 1, 1, 2), NULL, 8), "0,1,4,7,2,3,5,6"); /* 59 */
    assert_string_equal(order_of(U32(2, 1, 1, 2), I64(1, 1, 0, 0), 4), "3,0,2,1");          /* 61 */
    assert_string_equal(order_of(U32(0, 0), I64(10, 2), 2), "1,0");
    assert_string_equal(order_of(U32(5), NULL, 1), "0");
}

/* Ids that are no numbers go as text. */
static void test_rank_order_by_text(void **state) {
    (void)state;
    const struct rank_key keys[] = {{0, "GPU-b"}, {0, "GPU-10"}, {0, "GPU-2"}};
    uint32_t order[3];
    assert_int_equal(ranks_order(U32(0, 0, 0), keys, 3, 1, order), 0);
    assert_memory_equal(order, U32(1, 2, 0), sizeof order);
}

static void expect_places(const uint32_t *nodes, size_t n, const struct rank_place *expected) {
    struct rank_place places[16];
    ranks_locate(nodes, n, places);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(places[i].node_rank, expected[i].node_rank);
        assert_int_equal(places[i].local_rank, expected[i].local_rank);
        assert_int_equal(places[i].local_world_size, expected[i].local_world_size);
    }
}

static void test_rank_places(void **state) {
    (void)state;
    const struct rank_place two_nodes[] = {{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}};
    expect_places(U32(7, 7, 3, 3), 4, two_nodes); /* 62 */
    const struct rank_place replaced[] = {{0, 0, 1}, {1, 0, 1}};
    expect_places(U32(4, 5), 2, replaced); /* 65 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_order),
        cmocka_unit_test(test_rank_order_by_text),
        cmocka_unit_test(test_rank_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
