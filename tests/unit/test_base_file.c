/* Files: reading with a limit, making directories, absolute paths. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"

static char directory[64];

static int enter_directory(void **state) {
    (void)state;
    (void)strcpy(directory, "/tmp/test_base_file.XXXXXX");
    return mkdtemp(directory) == NULL || chdir(directory) < 0 ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static int leave_directory(void **state) {
    (void)state;
    return chdir("/") < 0 ? -1 : nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *path, const char *text) {
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
}

static void expect_content(const char *path, const char *content) {
    CLEANUP(buffer_done) struct buffer read = {0};
    assert_int_equal(file_read(path, 1 << 20, &read, NULL), 0);
    assert_string_equal(read.data, content);
}

static void reading_names_what_is_wrong(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    ty_error err = {0};
    buffer_text(&out, "kept");
    assert_int_equal(file_read("missing", 10, &out, &err), -ENOENT);
    assert_string_equal(err.message, "cannot open missing: No such file or directory");
    assert_int_equal(file_read(".", 10, &out, &err), -EISDIR);
    assert_string_equal(err.message, "cannot read .: Is a directory");
    put("long", "12345678901");
    assert_int_equal(file_read("long", 10, &out, &err), TY_EUSAGE);
    assert_string_equal(err.message, "long is too long: at most 10 bytes are read");
    assert_string_equal(out.data, "kept");
    assert_int_equal(out.size, 4);
}

static void reading_appends(void **state) {
    (void)state;
    CLEANUP(buffer_done) struct buffer out = {0};
    put("digits", "1234567890");
    put("nothing", "");
    assert_int_equal(file_read("nothing", 10, &out, NULL), 0);
    assert_string_equal(out.data, "");
    assert_int_equal(file_read("digits", 10, &out, NULL), 0);
    assert_int_equal(file_read("digits", 10, &out, NULL), 0);
    assert_string_equal(out.data, "12345678901234567890");
}

static void reads_standard_input(void **state) {
    (void)state;
    int saved = dup(STDIN_FILENO), ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(file_write_all(ends[1], "piped", 5), 0);
    (void)close(ends[1]);
    (void)dup2(ends[0], STDIN_FILENO);
    (void)close(ends[0]);
    expect_content("-", "piped");
    (void)dup2(saved, STDIN_FILENO);
    (void)close(saved);
}

static void writing_reports_errno(void **state) {
    (void)state;
    assert_int_equal(file_write_all(-1, "a", 1), -EBADF);
    assert_int_equal(file_write_all(-1, "a", 0), 0);
    CLEANUP_FD int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(file_write_all(full, "a", 1), -ENOSPC);
}

static bool has(const char *path, mode_t kind, const char *text) {
    struct stat status;
    CLEANUP(buffer_done) struct buffer got = {0};
    if (lstat(path, &status) < 0 || (status.st_mode & S_IFMT) != kind) return false;
    return text == NULL || (file_read(path, 64, &got, NULL) == 0 && strcmp(got.data, text) == 0);
}

static void drafts_take_their_name_when_whole(void **state) {
    (void)state;
    struct file_draft draft;
    for (int again = 0; again < 2; again++) { /* where nothing is, and where a file is */
        assert_int_equal(file_draft_open("draft", 0600, &draft), 0);
        assert_string_not_equal(draft.part, "draft");
        assert_int_equal(file_write_all(draft.fd, again ? "two" : "one", 3), 0);
        assert_true(again ? has("draft", S_IFREG, "one") : access("draft", F_OK) < 0);
        assert_int_equal(file_draft_close(&draft, 0), 0);
        assert_true(has("draft", S_IFREG, again ? "two" : "one"));
    }
    assert_int_equal(file_draft_open("draft", 0600, &draft), 0);
    CLEANUP_FREE char *part = strdup(draft.part);
    assert_int_equal(file_draft_close(&draft, -EIO), -EIO);
    assert_int_equal(access(part, F_OK), -1);
    assert_true(has("draft", S_IFREG, "two"));
    assert_int_equal(file_draft_open("nowhere/draft", 0600, &draft), -ENOENT);
    assert_int_equal(file_draft_close(&draft, -ENOENT), -ENOENT);
    assert_int_equal(mkdir("taken", 0700), 0);
    assert_int_equal(file_draft_open("taken", 0600, &draft), 0);
    assert_int_equal(file_draft_close(&draft, 0), -EISDIR);
    assert_int_equal(rmdir("taken"), 0);
}

/* A rename by root would leave a file where /dev/full was. */
static void what_is_no_file_is_written_in_place(void **state) {
    (void)state;
    struct file_draft draft;
    assert_int_equal(symlink("/dev/full", "full"), 0);
    assert_int_equal(file_draft_open_output("full", 0600, &draft), 0);
    assert_int_equal(file_draft_close(&draft, file_write_all(draft.fd, "a", 1)), -ENOSPC);
    assert_true(has("full", S_IFLNK, NULL));
    assert_int_equal(mkfifo("pipe", 0600), 0);
    CLEANUP_FD int reader = open("pipe", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(file_draft_open_output("pipe", 0600, &draft), 0);
    assert_int_equal(file_draft_close(&draft, file_write_all(draft.fd, "a", 1)), 0);
    char byte = 0;
    assert_int_equal(read(reader, &byte, 1), 1);
    assert_int_equal(byte, 'a');
    assert_true(has("pipe", S_IFIFO, NULL));
    assert_int_equal(file_draft_open_output("file", 0600, &draft), 0);
    assert_int_equal(file_draft_close(&draft, file_write_all(draft.fd, "a", 1)), 0);
    assert_true(has("file", S_IFREG, "a"));
}

static void an_output_stays_as_private_as_it_was(void **state) {
    (void)state;
    static const struct {
        mode_t there, asked, kept;
    } cases[] = {{0600, 0666, 0600}, {0664, 0666, 0664}, {0755, 0666, 0644}, {0644, 0600, 0600}};
    mode_t before = umask(022);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct file_draft draft;
        struct stat status;
        put("output", "before");
        assert_int_equal(chmod("output", cases[i].there), 0);
        assert_int_equal(file_draft_open_output("output", cases[i].asked, &draft), 0);
        assert_int_equal(file_draft_close(&draft, file_write_all(draft.fd, "a", 1)), 0);
        assert_int_equal(stat("output", &status), 0);
        assert_int_equal(status.st_mode & 07777, cases[i].kept);
        assert_int_equal(unlink("output"), 0);
    }
    (void)umask(before);
}

/* A rename would put a file in the place of /dev/stdout; one of another user's may lead anywhere. */
static void links_of_others_are_not_followed(void **state) {
    (void)state;
    struct file_draft draft;
    put("target", "before");
    for (int others = 0; others < 2; others++) {
        assert_int_equal(symlink("target", "named"), 0);
        if (others && lchown("named", 61234, (gid_t)-1) < 0) break; /* root alone gives links away */
        assert_int_equal(file_draft_open_output("named", 0600, &draft), 0);
        assert_int_equal(file_draft_close(&draft, file_write_all(draft.fd, others ? "b" : "a", 1)), 0);
        assert_true(has("named", others ? S_IFREG : S_IFLNK, others ? "b" : NULL));
        assert_true(has("target", S_IFREG, "a"));
        assert_int_equal(unlink("named"), 0);
    }
    (void)unlink("named");
}

static void only_what_was_made_is_removed(void **state) {
    (void)state;
    struct file_draft draft;
    struct stat made;
    for (int others = 0; others < 2; others++) {
        assert_int_equal(file_draft_open("own", 0600, &draft), 0);
        assert_int_equal(file_draft_close(&draft, file_write_all(draft.fd, "a", 1)), 0);
        made = draft.status;
        if (others) {
            put("theirs", "b");
            assert_int_equal(rename("theirs", "own"), 0);
        }
        assert_int_equal(file_remove_own("own", &made), 0);
        assert_int_equal(access("own", F_OK), others ? 0 : -1);
    }
    assert_int_equal(unlink("own"), 0);
    assert_int_equal(file_remove_own("own", &made), 0);
    assert_int_equal(symlink("nowhere", "own"), 0);
    assert_int_equal(file_remove_own("own", &made), 0);
    assert_true(has("own", S_IFLNK, NULL));
}

static bool is_directory(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static void makes_every_directory(void **state) {
    (void)state;
    ty_error err = {0};
    CLEANUP_FREE char *absolute = NULL;
    assert_int_equal(file_make_directories("a/b//c/", 0755, &err), 0);
    assert_true(is_directory("a/b/c"));
    assert_int_equal(file_make_directories("a/b/c", 0755, &err), 0);
    assert_true(asprintf(&absolute, "%s/x/y", directory) > 0);
    assert_int_equal(file_make_directories(absolute, 0755, &err), 0);
    assert_true(is_directory("x/y"));
    assert_int_equal(file_make_directories("/", 0755, &err), 0);
    put("a/file", "");
    assert_int_equal(file_make_directories("a/file/c", 0755, &err), -ENOTDIR);
    assert_string_equal(err.message, "cannot make directory a/file: Not a directory");
}

static void expect_absolute(const char *path, const char *expected) {
    CLEANUP_FREE char *absolute = file_absolute(path);
    assert_string_equal(absolute, expected);
}

static void absolute_paths(void **state) {
    (void)state;
    assert_int_equal(setenv("HOME", "/home/me", 1), 0);
    expect_absolute("/", "/");
    expect_absolute("//a/.//b/./", "/a/b");
    expect_absolute("/a/../b", "/a/../b");
    expect_absolute("~", "/home/me");
    expect_absolute("~/runs", "/home/me/runs");
    expect_absolute("/a/~/b", "/a/~/b");
    char expected[128];
    (void)snprintf(expected, sizeof expected, "%s/a/~you/.b", directory);
    expect_absolute("./a/~you/.b", expected);
    (void)snprintf(expected, sizeof expected, "%s/~you", directory);
    expect_absolute("~you", expected);
    expect_absolute("", directory);
}

static void a_file_is_known_by_more_than_its_name(void **state) {
    (void)state;
    struct stat first, again, other;
    CLEANUP_FD int fd = open("known", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &first), 0);
    assert_int_equal(link("known", "linked"), 0);
    assert_int_equal(stat("linked", &again), 0);
    assert_true(file_is_same(&first, &again));
    assert_true(file_is_unchanged(&first, &again));
    assert_int_equal(file_write_all(fd, "more", 4), 0);
    assert_int_equal(fstat(fd, &again), 0);
    assert_true(file_is_same(&first, &again));
    assert_false(file_is_unchanged(&first, &again));
    assert_int_equal(stat(".", &other), 0);
    assert_false(file_is_same(&first, &other));
    assert_int_equal(unlink("known") | unlink("linked"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_names_what_is_wrong),
        cmocka_unit_test(reading_appends),
        cmocka_unit_test(reads_standard_input),
        cmocka_unit_test(writing_reports_errno),
        cmocka_unit_test(drafts_take_their_name_when_whole),
        cmocka_unit_test(an_output_stays_as_private_as_it_was),
        cmocka_unit_test(links_of_others_are_not_followed),
        cmocka_unit_test(only_what_was_made_is_removed),
        cmocka_unit_test(a_file_is_known_by_more_than_its_name),
        cmocka_unit_test(what_is_no_file_is_written_in_place),
        cmocka_unit_test(makes_every_directory),
        cmocka_unit_test(absolute_paths),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
