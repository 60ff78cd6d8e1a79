/* What a worker wrote of its failure, and how long its agent waits for storage that does not give it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/worker_process.h"

static char place[] = "/tmp/test_last_words.XXXXXX";
static char logs_path[64], words_path[96];
static struct logs logs;
static struct last_words *asked;
static int gate[2]; /* what is in front of the question reads from here */
static int told;
static char message[64];

static void ignore(void *context) {
    (void)context;
}

static void ignore_text(void *context, const char *text) {
    (void)context;
    (void)text;
}

static void ignore_stall(void *context, bool stalled) {
    (void)context;
    (void)stalled;
}

static void note(void *context, const struct last_words_found *found) {
    (void)context;
    (void)snprintf(message, sizeof message, "%s", found->message != NULL ? found->message : "nothing");
    told++;
}

static void wait_at_gate(struct storage_job *job) {
    char byte;
    (void)job;
    (void)!read(gate[0], &byte, 1);
}

static void release(struct storage_job *job) {
    free(job);
}

/* The file is there, and the storage is at something else when it is asked for. */
static int ask(void **state) {
    (void)state;
    struct last_words_moment since = last_words_now();
    struct storage_job *job = malloc(sizeof *job);
    FILE *file = fopen(words_path, "w");
    assert_non_null(job);
    assert_non_null(file);
    assert_true(fputs("{\"message\": \"the reason\"}", file) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(pipe(gate), 0);
    told = 0;
    logs =
        (struct logs){.loop = loop_create(NULL), .warn = ignore_text, .drained = ignore, .stall = ignore_stall};
    assert_non_null(logs.loop);
    assert_int_equal(logs_open(&logs, NULL), 0);
    *job =
        (struct storage_job){.work = wait_at_gate, .release = release, .what = "reading", .path = words_path};
    logs_post(&logs, job);
    asked = last_words_ask(&logs, place, 0, since, note, NULL);
    assert_non_null(asked);
    return 0;
}

static void open_gate(void) {
    assert_int_equal(write(gate[1], "", 1), 1);
}

static int end(void **state) {
    (void)state;
    logs_close(&logs);
    loop_destroy(logs.loop);
    (void)close(gate[0]);
    (void)close(gate[1]);
    return 0;
}

static void turn_until_told(void) {
    while (told == 0)
        (void)loop_turn(logs.loop, true);
}

static void test_time_in_which_nobody_looks_does_not_count(void **state) {
    (void)state;
    (void)nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 500 * 1000 * 1000}, NULL);
    (void)loop_turn(logs.loop, false);
    assert_int_equal(told, 0);
    open_gate();
    turn_until_told();
    assert_string_equal(message, "the reason");
}

static void test_storage_that_hangs_is_not_waited_for(void **state) {
    (void)state;
    turn_until_told();
    assert_string_equal(message, "nothing");
    open_gate();
}

/* Nor for the storage: it is only known that nobody looked. */
static void test_storage_does_not_hang_while_nobody_looks(void **state) {
    (void)state;
    (void)nanosleep(&(struct timespec){.tv_sec = 6}, NULL);
    (void)loop_turn(logs.loop, false);
    assert_false(storage_slow(logs.storage));
    while (!storage_slow(logs.storage))
        (void)loop_turn(logs.loop, true);
    open_gate();
}

static void test_nobody_is_told_who_does_not_wait_any_more(void **state) {
    (void)state;
    last_words_drop(asked);
    open_gate();
    while (storage_busy(logs.storage))
        (void)loop_turn(logs.loop, true);
    assert_int_equal(told, 0);
}

static int make_place(void **state) {
    (void)state;
    if (mkdtemp(place) == NULL) return -1;
    (void)snprintf(logs_path, sizeof logs_path, "%s/logs", place);
    (void)snprintf(words_path, sizeof words_path, "%s/rank-0.error.json", logs_path);
    return mkdir(logs_path, 0700);
}

static int remove_place(void **state) {
    (void)state;
    return unlink(words_path) < 0 || rmdir(logs_path) < 0 || rmdir(place) < 0 ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_time_in_which_nobody_looks_does_not_count, ask, end),
        cmocka_unit_test_setup_teardown(test_storage_does_not_hang_while_nobody_looks, ask, end),
        cmocka_unit_test_setup_teardown(test_storage_that_hangs_is_not_waited_for, ask, end),
        cmocka_unit_test_setup_teardown(test_nobody_is_told_who_does_not_wait_any_more, ask, end),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
