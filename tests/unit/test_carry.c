/* Files on their way between two directories, as between machines (src/checkpoint/carry.c): all arrive as they
 * are, no more than a window at a time, and what fails at either end is told at the sending one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "checkpoint/carry.h"
#include "checkpoint/checkpoint.h"

static const nanoseconds LONG = 60 * NS_PER_S;

/* Both ends in one process; what is sent is put down at once, and taken when the other storage says so. */
struct ends {
    char place[64], from[128], to[128];
    struct storage *sending, *receiving;
    struct carry *carry;
    uint64_t on_the_way, most;
    int n_ended, n_pieces, stop_at;
    ty_error err;
};

static void taken(void *context, uint64_t number, uint64_t size, const ty_error *err) {
    struct ends *ends = context;
    assert_int_equal(number, 7);
    ends->on_the_way -= size;
    if (ends->carry != NULL) carry_taken(ends->carry, size, err->message);
}

static void send_piece(void *context, const struct carry_piece *piece) {
    struct ends *ends = context;
    struct carry_place place = {.top = ends->to, .taken = taken, .context = ends, .number = 7};
    ends->on_the_way += piece->size + CARRY_COST;
    if (ends->on_the_way > ends->most) ends->most = ends->on_the_way;
    ends->n_pieces++;
    uint8_t *bytes = malloc(piece->size + 1);
    assert_non_null(bytes);
    if (piece->size > 0) memcpy(bytes, piece->bytes, piece->size);
    assert_int_equal(carry_put(ends->receiving, &place, piece, &bytes, NULL), 0);
    assert_null(bytes);
}

static void ended(void *context, const ty_error *err) {
    struct ends *ends = context;
    ends->n_ended++;
    ends->err = *err;
    ends->carry = NULL;
}

static const struct carry_events events = {.piece = send_piece, .ended = ended};

static int open_ends(void **state) {
    struct ends *ends = calloc(1, sizeof *ends);
    if (ends == NULL) return -1;
    strcpy(ends->place, "/tmp/trainyard-carry-XXXXXX");
    if (mkdtemp(ends->place) == NULL) return -1;
    (void)snprintf(ends->from, sizeof ends->from, "%s/from", ends->place);
    (void)snprintf(ends->to, sizeof ends->to, "%s/to", ends->place);
    if (mkdir(ends->from, 0755) < 0) return -1;
    if (storage_open(-1, &ends->sending, NULL) < 0 || storage_open(-1, &ends->receiving, NULL) < 0) return -1;
    *state = ends;
    return 0;
}

static int close_ends(void **state) {
    struct ends *ends = *state;
    carry_stop(ends->carry);
    storage_close(ends->sending, LONG);
    storage_close(ends->receiving, LONG);
    checkpoint_drop(ends->place);
    free(ends);
    return 0;
}

static void write_file(const char *directory, const char *name, const void *bytes, size_t size) {
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, bytes, size), 0);
    (void)close(fd);
}

static void assert_same(const struct ends *ends, const char *name) {
    char path[PATH_MAX];
    struct buffer sent = {0}, came = {0};
    (void)snprintf(path, sizeof path, "%s/%s", ends->from, name);
    assert_int_equal(file_read(path, 1 << 30, &sent, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/%s", ends->to, name);
    assert_int_equal(file_read(path, 1 << 30, &came, NULL), 0);
    assert_int_equal(sent.size, came.size);
    if (sent.size > 0) assert_memory_equal(sent.data, came.data, sent.size);
    buffer_done(&sent);
    buffer_done(&came);
}

static void carry_all(struct ends *ends, const char *list) {
    assert_int_equal(carry_start(ends->sending, ends->from, list, &events, ends, &ends->carry, NULL), 0);
    while (ends->n_ended == 0) {
        assert_true(storage_wait(ends->sending, LONG));
        assert_true(storage_wait(ends->receiving, LONG));
    }
    assert_int_equal(ends->n_ended, 1);
}

static void test_all_that_is_there_arrives(void **state) {
    struct ends *ends = *state;
    static char big[(9 << 20) + 5];
    char path[PATH_MAX], target[16] = {0};
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 2654435761U >> 13);
    (void)snprintf(path, sizeof path, "%s/a", ends->from);
    assert_int_equal(mkdir(path, 0755), 0);
    write_file(ends->from, "a/big", big, sizeof big);
    write_file(ends->from, "a/whole", big, CARRY_PIECE); /* as long as a piece */
    write_file(ends->from, "empty", "", 0);
    (void)snprintf(path, sizeof path, "%s/link", ends->from);
    assert_int_equal(symlink("a/big", path), 0);
    carry_all(ends, NULL);
    assert_int_equal(ends->err.code, 0);
    assert_same(ends, "a/big");
    assert_same(ends, "a/whole");
    assert_same(ends, "empty");
    (void)snprintf(path, sizeof path, "%s/link", ends->to);
    assert_int_equal(readlink(path, target, sizeof target - 1), 5);
    assert_string_equal(target, "a/big");
    assert_true(ends->most <= CARRY_WINDOW + CARRY_PIECE + CARRY_COST);
}

static void test_of_a_list_what_it_names_arrives(void **state) {
    struct ends *ends = *state;
    char path[PATH_MAX];
    write_file(ends->from, "mine", "1", 1);
    write_file(ends->from, "other", "2", 1);
    carry_all(ends, "[{\"path\": \"mine\", \"size\": 1}]");
    assert_int_equal(ends->err.code, 0);
    assert_same(ends, "mine");
    (void)snprintf(path, sizeof path, "%s/other", ends->to);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_a_list_without_files_means_all(void **state) {
    struct ends *ends = *state;
    write_file(ends->from, "mine", "1", 1);
    carry_all(ends, "[]");
    assert_same(ends, "mine");
}

static void test_what_cannot_be_read_is_told(void **state) {
    struct ends *ends = *state;
    write_file(ends->from, "there", "1", 1);
    carry_all(ends, "[{\"path\": \"there\", \"size\": 1}, {\"path\": \"not-there\", \"size\": 1}]");
    assert_int_equal(ends->err.code, -ENOENT);
    assert_non_null(strstr(ends->err.message, "not-there"));
}

static void test_what_cannot_be_written_is_told(void **state) {
    struct ends *ends = *state;
    write_file(ends->from, "file", "1", 1);
    write_file(ends->place, "to", "in the way", 10);
    carry_all(ends, NULL);
    assert_int_equal(ends->err.code, -EIO);
    assert_non_null(strstr(ends->err.message, "cannot write"));
}

static void test_no_link_that_was_planted_is_followed(void **state) {
    struct ends *ends = *state;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/a", ends->from);
    assert_int_equal(mkdir(path, 0755), 0);
    write_file(ends->from, "a/file", "1", 1);
    assert_int_equal(mkdir(ends->to, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/a", ends->to);
    assert_int_equal(symlink(ends->place, path), 0);
    carry_all(ends, NULL);
    assert_true(ends->err.code < 0);
    (void)snprintf(path, sizeof path, "%s/file", ends->place);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_one_that_is_stopped_is_silent(void **state) {
    struct ends *ends = *state;
    write_file(ends->from, "file", "1", 1);
    assert_int_equal(carry_start(ends->sending, ends->from, NULL, &events, ends, &ends->carry, NULL), 0);
    carry_stop(ends->carry);
    ends->carry = NULL;
    assert_true(storage_wait(ends->sending, LONG));
    assert_int_equal(ends->n_ended, 0);
    assert_int_equal(ends->n_pieces, 0);
}

static void test_paths_that_lead_out_are_refused(void **state) {
    static const char *const wrong[] = {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "./a"};
    static const char *const right[] = {"a", "a/b", ".a", "..a/b..", "a/.metadata.json"};
    struct ends *ends = *state;
    struct carry_place place = {.top = ends->to, .taken = taken, .context = ends};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ty_error err = {0};
        assert_false(carry_path_is_inside(wrong[i]));
        struct carry_piece piece = {.path = wrong[i], .bytes = "", .last = true};
        uint8_t *bytes = NULL;
        assert_int_equal(carry_put(ends->receiving, &place, &piece, &bytes, &err), TY_EPROTOCOL);
    }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        assert_true(carry_path_is_inside(right[i]));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_ends, close_ends)
    const struct CMUnitTest tests[] = {
        TEST(test_all_that_is_there_arrives),      TEST(test_of_a_list_what_it_names_arrives),
        TEST(test_a_list_without_files_means_all), TEST(test_what_cannot_be_read_is_told),
        TEST(test_what_cannot_be_written_is_told), TEST(test_no_link_that_was_planted_is_followed),
        TEST(test_one_that_is_stopped_is_silent),  TEST(test_paths_that_lead_out_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
