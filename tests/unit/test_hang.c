/* How fast ranks go, who hangs and when, and which lines of a stack are shown. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/node_run.h"
#include "agent/stack_save.h"
#include "base/cleanup.h"
#include "run/pace.h"

static void test_the_deadline(void **state) {
    (void)state;
    assert_int_equal(hang_remaining(0, 30, 0), 30);
    assert_int_equal(hang_remaining(10, 30, 15), 25);
    assert_int_equal(hang_remaining(10, 30, 39), 1);
    assert_int_equal(hang_remaining(10, 30, 40), 0);
    assert_int_equal(hang_remaining(10, 30, 4000), 0);
    assert_int_equal(hang_remaining(50, 30, 40), 30); /* heard in this very turn */
}

static void test_who_was_away_blames_nobody(void **state) {
    (void)state;
    const nanoseconds s = NS_PER_S;
    assert_false(hang_was_away(100 * s, 30 * s, 100 * s));
    assert_false(hang_was_away(100 * s, 30 * s, 90 * s)); /* a timer that is early */
    assert_false(hang_was_away(100 * s, 30 * s, 103 * s));
    assert_true(hang_was_away(100 * s, 30 * s, 104 * s));
    assert_true(hang_was_away(100 * s, 30 * s, 4000 * s));
    assert_false(hang_was_away(100 * s, s / 5, 100 * s + s / 10)); /* as late as any timer may be */
    assert_true(hang_was_away(100 * s, s / 5, 101 * s));
}

/* Reports of three ranks, `steps` each, at these intervals. */
static struct pace *run_ranks(const nanoseconds intervals[3], int steps) {
    struct pace *pace = pace_create(3);
    assert_non_null(pace);
    for (int step = 1; step <= steps; step++)
        for (uint32_t rank = 0; rank < 3; rank++)
            pace_note(pace, rank, 1000 + step * intervals[rank]);
    return pace;
}

static bool straggles(const nanoseconds intervals[3], int steps, struct pace_straggler *straggler) {
    struct pace *pace = run_ranks(intervals, steps);
    bool found = pace_straggler(pace, straggler);
    pace_destroy(pace);
    return found;
}

static void test_the_slowest_rank(void **state) {
    (void)state;
    struct pace_straggler straggler;
    assert_true(straggles((const nanoseconds[]){100, 150, 100}, 5, &straggler));
    assert_int_equal(straggler.rank, 1);
    assert_int_equal(straggler.interval, 150);
    assert_int_equal(straggler.usual, 100);
    assert_false(straggles((const nanoseconds[]){100, 149, 100}, 5, &straggler));
    assert_false(straggles((const nanoseconds[]){100, 100, 100}, 50, &straggler));
    assert_false(straggles((const nanoseconds[]){0, 0, 0}, 50, &straggler));
    assert_false(straggles((const nanoseconds[]){100, 300, 100}, 3, &straggler)); /* too early to tell */
    assert_true(straggles((const nanoseconds[]){100, 300, 100}, 4, &straggler));
}

static void test_one_slow_step_is_none(void **state) {
    (void)state;
    struct pace_straggler straggler;
    struct pace *pace = run_ranks((const nanoseconds[]){100, 100, 100}, 8);
    pace_note(pace, 2, 1000 + 8 * 100 + 5000);
    assert_false(pace_straggler(pace, &straggler));
    pace_note(pace, 2, 500); /* a clock that was set back */
    pace_note(pace, 99, 500);
    assert_false(pace_straggler(pace, &straggler));
    pace_destroy(pace);
}

static void test_a_rank_alone(void **state) {
    (void)state;
    struct pace_straggler straggler;
    struct pace *pace = pace_create(1);
    for (int i = 1; i < 9; i++)
        pace_note(pace, 0, i * 100);
    assert_false(pace_straggler(pace, &straggler));
    pace_destroy(pace);
}

static void assert_frames(const char *text, const char *expected) {
    struct buffer out = {0};
    stack_text_frames(text, strlen(text), &out);
    buffer_char(&out, '\0');
    assert_string_equal(out.data, expected);
    buffer_done(&out);
}

#define FACTS                                                                                               \
    "==== now, attempt 1: rank 0\n== process 7\nprocess 7: sleeping (S)\n  thread 7 (x): sleeping (S), in " \
    "pipe_read\n"
#define NATIVE                                                                    \
    "== native, process 7\nnoise\n\nThread 2 (LWP 8):\n#0  other () at o.c:1\n\n" \
    "Thread 1 (LWP 7):\n#0  inner () at a.c:1\n#1  main () at a.c:9\n[Inferior 1 detached]\n"
#define PYTHON                                                                                                \
    "== python (faulthandler), process 7\nThread 0x8 (most recent call first):\n  File \"o.py\", line 1 in "  \
    "o\n\n"                                                                                                   \
    "Current thread 0x7 (most recent call first):\n  File \"a.py\", line 3 in f\n  File \"a.py\", line 9 in " \
    "<module>\n"

static void test_the_lines_that_matter(void **state) {
    (void)state;
    assert_frames("", "");
    assert_frames("no stack at all\n", "");
    assert_frames(FACTS, "thread 7 (x): sleeping (S), in pipe_read\n");
    assert_frames(FACTS NATIVE, "#0  inner () at a.c:1\n#1  main () at a.c:9\n");
    assert_frames(FACTS NATIVE PYTHON, "File \"a.py\", line 3 in f\nFile \"a.py\", line 9 in <module>\n");
    assert_frames(FACTS PYTHON "== process 8\n  File \"no\", line 1\n",
                  "File \"a.py\", line 3 in f\nFile \"a.py\", line 9 in <module>\n");
    assert_frames(
        FACTS "== native, process 7\nPID 7 - process\nTID 7:\n#0  0x1 inner\n#1  0x2 main\nTID 8:\n#0  0x3 o\n",
        "#0  0x1 inner\n#1  0x2 main\n");
    assert_frames(FACTS "== native, process 7\nnone: neither gdb nor eu-stack is installed on this node\n",
                  "thread 7 (x): sleeping (S), in pipe_read\n");
}

static void test_lines_are_few_and_harmless(void **state) {
    (void)state;
    struct buffer text = {0};
    buffer_text(&text, "== native, process 7\n");
    for (int i = 0; i < 20; i++)
        buffer_printf(&text, "#%d  f\033[31m () at a.c:%d\n", i, i);
    buffer_char(&text, '\0');
    assert_frames(text.data, "#0  f?[31m () at a.c:0\n#1  f?[31m () at a.c:1\n#2  f?[31m () at a.c:2\n"
                             "#3  f?[31m () at a.c:3\n#4  f?[31m () at a.c:4\n#5  f?[31m () at a.c:5\n");
    buffer_done(&text);
}

static void assert_folded(const char *text, const char *expected) {
    struct buffer out = {0};
    stack_text_folded(text, strlen(text), &out);
    buffer_text(&out, "");
    assert_string_equal(out.data, expected);
    buffer_done(&out);
}

static void test_frames_on_a_line(void **state) {
    (void)state;
    static const char other[] = "Thread 0x1 (most recent call first):\n  File \"no.py\", line 1 in no\n\n";
    assert_folded("", "");
    assert_folded("nothing\n", "");
    assert_folded(other, "no (no.py:1)");
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text,
                  "%sCurrent thread 0x2 (most recent call first):\n"
                  "  File \"/x y/a;b.py\", line 3 in f\n  File \"c.py\", line 44 in <module>\n\n%s",
                  other, other);
    assert_folded(text.data, "<module> (c.py:44);f (a?b.py:3)");
    /* Cut off at the outer end by the one who wrote it; without what is expected; a frame in the midst of being
     * written. */
    assert_folded("Current thread 0x2:\n  File \"a.py\", line 3 in f\n  ...\n", "...;f (a.py:3)");
    assert_folded("Current thread 0x2:\n  File \"a.py\", line 3\n", "File \"a.py\", line 3");
    assert_folded("Current thread 0x2:\n  File \"a.p", "File \"a.p");
}

static void test_a_place_in_short(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"File \"/x/data.py\", line 88 in load_batch", "load_batch data.py:88"},
        {"File \"\", line 1 in \x1b[31m", "?[31m :1"},
        {"#0  main () at a.c:1", "#0  main () at a.c:1"},
        {"", ""}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CLEANUP(buffer_done) struct buffer out = {0};
        stack_text_place(texts[i][0], strlen(texts[i][0]), &out);
        buffer_text(&out, "");
        assert_string_equal(out.data, texts[i][1]);
    }
}

static void test_groups_begin_with_the_odd_ones(void **state) {
    (void)state;
    CLEANUP(stack_groups_done) struct stack_groups groups = {0};
    for (int rank = 0; rank < 5; rank++)
        assert_int_equal(stack_groups_add(&groups, rank, strdup(rank == 3 ? "alone" : "together"), rank), 0);
    assert_int_equal(stack_groups_add(&groups, 9, NULL, 0), -ENOMEM);
    stack_groups_sort(&groups);
    CLEANUP(buffer_done) struct buffer out = {0};
    stack_groups_json(&groups, &out);
    assert_string_equal(out.data,
                        "[{\"ranks\": \"3\", \"n\": 1, \"rank\": 3, \"at\": 3.000, \"frames\": \"alone\"}, "
                        "{\"ranks\": \"0-2,4\", \"n\": 4, \"rank\": 0, \"at\": 4.000, \"frames\": "
                        "\"together\"}]");
}

/* Processes of one program have their stacks, heaps and libraries at places of their own. */
static void test_groups_of_frames_of_c(void **state) {
    (void)state;
    static const char *const frames[] = {
        "#0  0x00007f0f6a315ada in read (fd=7, at=0x7fff0f4d) at io.c:9\n#1  wait_for (all=0x55d0 <peers+(8)>) "
        "at a.c:3\n",
        "#0  0x00007fce0a115ada in read (fd=9, at=0x7fff4970) at io.c:9\n#1  wait_for (all=0x5650 <peers+(8)>) "
        "at a.c:3\n",
        "#0  0x00007fce0a115ada in read (fd=9, at=0x7fff4970) at io.c:9\n#1  load (all=0x5650) at a.c:3\n",
        "  File \"/a(1).py\", line 3 in f\n", "  File \"/a(2).py\", line 3 in f\n"};
    CLEANUP(stack_groups_done) struct stack_groups groups = {0};
    for (int rank = 0; rank < 5; rank++)
        assert_int_equal(stack_groups_add(&groups, rank, strdup(frames[rank]), 0), 0);
    stack_groups_sort(&groups);
    assert_int_equal(groups.n, 4);
    assert_int_equal(groups.items[3].n, 2);
    assert_true(idset_has(&groups.items[3].ranks, 0) && idset_has(&groups.items[3].ranks, 1));
    assert_string_equal(groups.items[3].frames, frames[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_frames_of_c),
        cmocka_unit_test(test_the_deadline),
        cmocka_unit_test(test_who_was_away_blames_nobody),
        cmocka_unit_test(test_the_slowest_rank),
        cmocka_unit_test(test_one_slow_step_is_none),
        cmocka_unit_test(test_a_rank_alone),
        cmocka_unit_test(test_the_lines_that_matter),
        cmocka_unit_test(test_lines_are_few_and_harmless),
        cmocka_unit_test(test_frames_on_a_line),
        cmocka_unit_test(test_a_place_in_short),
        cmocka_unit_test(test_groups_begin_with_the_odd_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
