/* A log with a limit: whatever is written in whatever pieces, the file keeps its head and its last lines, says
 * how much is between them, and never has more than its limit; also when another writer goes on with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log_file.h"

enum { LIMIT = 65536 };

static char directory[] = "/tmp/test_log_file.XXXXXX";

static int make_directory(void **state) {
    (void)state;
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state) {
    (void)state;
    return rmdir(directory);
}

static struct log_file new_file(int64_t limit) {
    struct log_file file = {.limit = limit, .fd = -1};
    assert_true(asprintf(&file.path, "%s/rank-0.log", directory) > 0);
    return file;
}

/* Lines of different lengths that tell which they are. */
static void add_lines(struct buffer *text, int from, int to) {
    for (int i = from; i < to; i++)
        buffer_printf(text, "line %d %.*s\n", i, i % 90,
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

/* Head and tail are those of what was written, whole lines each, and the mark counts the rest. */
static void check(const struct log_file *file, const struct buffer *written) {
    CLEANUP(buffer_done) struct buffer text = {0};
    ty_error err = {0};
    size_t offset = 0;
    uint64_t left_out = 0;
    assert_int_equal(file_read(file->path, LIMIT, &text, &err), 0); /* refuses more */
    if (written->size <= LIMIT) {
        assert_int_equal(text.size, written->size);
        assert_memory_equal(text.data, written->data, text.size);
        return;
    }
    assert_true(log_mark_find(text.data, text.size, &offset, &left_out));
    size_t tail = text.size - offset - LOG_MARK_SIZE;
    assert_true(offset > LIMIT / 4 - 4096 && tail > LIMIT / 4 - 4096);
    assert_int_equal(offset + left_out + tail, written->size);
    assert_memory_equal(text.data, written->data, offset);
    assert_int_equal(text.data[offset - 1], '\n');
    assert_memory_equal(text.data + offset + LOG_MARK_SIZE, written->data + written->size - tail, tail);
    assert_int_equal(written->data[written->size - tail - 1], '\n');
}

static void drop(struct log_file *file) {
    log_file_close(file);
    assert_int_equal(unlink(file->path), 0);
    free(file->path);
}

static void head_and_tail_stay_however_it_comes(void **state) {
    (void)state;
    static const int pieces[] = {1, 7, 300, 2000, 9000};
    for (size_t i = 0; i < 5; i++) {
        struct log_file file = new_file(LIMIT);
        CLEANUP(buffer_done) struct buffer written = {0};
        for (int line = 0; line < 9000; line += pieces[i]) {
            size_t before = written.size;
            add_lines(&written, line, line + pieces[i]);
            assert_int_equal(log_file_write(&file, written.data + before, written.size - before), 0);
            if (pieces[i] > 1 || line % 1000 == 999) check(&file, &written);
        }
        check(&file, &written);
        drop(&file);
    }
}

static void another_writer_counts_on(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer written = {0};
    struct log_file file = new_file(LIMIT);
    for (int i = 0; i < 20; i++) {
        size_t before = written.size;
        add_lines(&written, i * 400, i * 400 + 400);
        assert_int_equal(log_file_write(&file, written.data + before, written.size - before), 0);
        check(&file, &written);
        log_file_close(&file);
        free(file.path);
        file = new_file(LIMIT);
    }
    drop(&file);
}

static void a_file_that_is_larger_already_is_cut(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer written = {0};
    struct log_file file = new_file(0);
    add_lines(&written, 0, 5000);
    assert_int_equal(log_file_write(&file, written.data, written.size), 0);
    log_file_close(&file);
    file.limit = LIMIT;
    size_t before = written.size;
    add_lines(&written, 5000, 5001);
    assert_int_equal(log_file_write(&file, written.data + before, written.size - before), 0);
    check(&file, &written);
    drop(&file);
}

static void lines_without_end_and_nothing_at_all(void **state) {
    (void)state;
    struct log_file file = new_file(LIMIT);
    CLEANUP_FREE char *bytes = malloc(LIMIT * 3);
    struct stat status;
    memset(bytes, 0, LIMIT * 3);
    assert_int_equal(log_file_write(&file, bytes, 0), 0);
    assert_int_equal(log_file_write(&file, bytes, (size_t)LIMIT * 3), 0);
    assert_int_equal(log_file_write(&file, bytes, LIMIT), 0);
    assert_int_equal(stat(file.path, &status), 0);
    assert_true(status.st_size > LIMIT / 2 && status.st_size <= LIMIT);
    assert_int_equal(file.head + (int64_t)file.left_out + (file.size - file.head - LOG_MARK_SIZE), LIMIT * 4);
    drop(&file);
}

/* A directory in the place of the file that is to take over: nothing of what was there is lost. */
static void what_cannot_be_cut_stays_as_it_is(void **state) {
    (void)state;
    struct log_file file = new_file(LIMIT);
    CLEANUP(buffer_done) struct buffer written = {0};
    CLEANUP_FREE char *obstacle = NULL;
    struct stat status;
    assert_true(asprintf(&obstacle, "%s/.rank-0.log.new", directory) > 0);
    add_lines(&written, 0, 900);
    assert_int_equal(log_file_write(&file, written.data, written.size), 0);
    assert_int_equal(mkdir(obstacle, 0700), 0);
    CLEANUP_FREE char *more = calloc(1, LIMIT);
    assert_int_equal(log_file_write(&file, more, LIMIT), -EEXIST);
    assert_int_equal(stat(file.path, &status), 0);
    assert_int_equal(status.st_size, written.size);
    assert_int_equal(rmdir(obstacle), 0);
    assert_int_equal(log_file_write(&file, more, LIMIT), 0);
    drop(&file);
}

/* Somebody takes the room away, with `truncate` or a rotation that copies: what comes then is kept, within the
 * limit. */
static void one_that_others_cut_goes_on(void **state) {
    (void)state;
    static const off_t left[] = {0, 100, LIMIT / 3};
    for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
        struct log_file file = new_file(LIMIT);
        CLEANUP(buffer_done) struct buffer written = {0}, more = {0}, text = {0};
        ty_error err = {0};
        add_lines(&written, 0, 3000);
        assert_int_equal(log_file_write(&file, written.data, written.size), 0);
        assert_int_equal(truncate(file.path, left[i]), 0);
        for (int line = 3000; line < 6000; line += 100) {
            size_t before = more.size;
            add_lines(&more, line, line + 100);
            assert_int_equal(log_file_write(&file, more.data + before, more.size - before), 0);
        }
        assert_int_equal(file_read(file.path, LIMIT, &text, &err), 0);
        assert_memory_equal(text.data + text.size - LIMIT / 8, more.data + more.size - LIMIT / 8, LIMIT / 8);
        drop(&file);
    }
}

/* What others remove is gone; what comes then is not, and has the name again a moment later, also where the
 * directory went too. A run whose directory is gone stays gone. */
static void one_that_others_remove_is_begun_anew(void **state) {
    (void)state;
    static const int64_t limits[] = {0, LIMIT};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(limits); i++) {
        bool whole = i % 2 == 1;
        CLEANUP_FREE char *logs = NULL;
        CLEANUP(buffer_done) struct buffer text = {0};
        ty_error err = {0};
        struct log_file file = {.limit = limits[i / 2], .in_logs = true, .fd = -1};
        assert_true(asprintf(&logs, "%s/run/logs", directory) > 0);
        assert_true(asprintf(&file.path, "%s/rank-0.log", logs) > 0);
        char *run = strndup(logs, strlen(logs) - strlen("/logs"));
        assert_int_equal(mkdir(run, 0700), 0);
        assert_int_equal(log_file_write(&file, "gone\n", 5), 0);
        assert_int_equal(unlink(file.path), 0);
        assert_int_equal(rmdir(logs), 0);
        assert_int_equal(log_file_write(&file, "one\n", 4), 0);
        assert_true(access(file.path, F_OK) < 0 && !file.anew);
        if (whole) assert_int_equal(rmdir(run), 0);
        file.removed -= 60 * NS_PER_S;
        assert_int_equal(log_file_write(&file, "two\n", 4), 0);
        assert_int_equal(file.anew, !whole);
        assert_int_equal(log_file_write(&file, "three\n", 6), 0);
        assert_false(file.anew);
        if (!whole) {
            assert_int_equal(file_read(file.path, LIMIT, &text, &err), 0);
            assert_string_equal(text.data, "one\ntwo\nthree\n");
            drop(&file);
            assert_int_equal(rmdir(logs), 0);
            assert_int_equal(rmdir(run), 0);
        } else {
            assert_true(access(run, F_OK) < 0);
            log_file_close(&file);
            free(file.path);
        }
        free(run);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_and_tail_stay_however_it_comes),
        cmocka_unit_test(another_writer_counts_on),
        cmocka_unit_test(a_file_that_is_larger_already_is_cut),
        cmocka_unit_test(lines_without_end_and_nothing_at_all),
        cmocka_unit_test(what_cannot_be_cut_stays_as_it_is),
        cmocka_unit_test(one_that_others_cut_goes_on),
        cmocka_unit_test(one_that_others_remove_is_begun_anew),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
