#include "checkpoint_world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"

char base[64], run_path[96], source[96], staging[160];

char *in(const char *directory, const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", directory, name);
    return path[turn];
}

void put_sized(const char *path, const char *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(close(fd), 0);
}

void put(const char *path, const char *text) {
    put_sized(path, text, strlen(text));
}

void shell(const char *command) {
    BUFFER line = {0};
    buffer_printf(&line, "cd %s && %s", base, command);
    assert_int_equal(system(line.data), 0);
}

bool exists(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

int checkpoint_world_begin(void **state) {
    (void)state;
    strcpy(base, "/tmp/test_checkpoint.XXXXXX");
    if (mkdtemp(base) == NULL) return -1;
    (void)snprintf(run_path, sizeof run_path, "%s/run", base);
    (void)snprintf(source, sizeof source, "%s/source", base);
    (void)snprintf(staging, sizeof staging, "%s/.checkpoint_000012.attempt-1", run_path);
    return mkdir(run_path, 0755) < 0 ? -1 : mkdir(source, 0755);
}

int checkpoint_world_end(void **state) {
    (void)state;
    shell("chmod -R u+rwx . && rm -rf run source other");
    return rmdir(base);
}

void mark(const char *name, unsigned number, bool original) {
    struct stat status;
    BUFFER text = {0};
    BUFFER path = {0};
    assert_int_equal(stat(in(run_path, name), &status), 0);
    buffer_printf(&text, "{\"trainyard\": {\"version\": 1, \"attempt\": 1, \"run\": \"" RUN "\", \"name\": ");
    buffer_json_text(&text, name);
    buffer_printf(&text, ", \"number\": %u, \"directory\": %llu, \"files\": []}}", number,
                  (unsigned long long)status.st_ino + !original);
    buffer_printf(&path, "%s/%s/.metadata.json", run_path, name);
    put(path.data, text.data);
}

void small_tree(void) {
    put(in(source, "model.bin"), "weights");
    put(in(source, "empty"), "");
    assert_int_equal(mkdir(in(source, "shard"), 0750), 0);
    put(in(source, "shard/0.bin"), "zero");
    assert_int_equal(symlink("shard/0.bin", in(source, "latest")), 0);
}

int copy_from(const char *from, struct buffer *files, ty_error *err) {
    return checkpoint_copy(from, staging, &(struct checkpoint_copying){CHECKPOINT_COPY, false}, files, err);
}

int publish_lists(const char *const *lists, size_t n, char **path, ty_error *err) {
    struct checkpoint_parts parts = {.run = RUN, .number = 12, .attempt = 1, .lists = lists, .n = n};
    return checkpoint_publish(run_path, &parts, path, err);
}

int publish(const struct buffer *files, char **path, ty_error *err) {
    const char *lists[] = {files->data};
    return publish_lists(lists, 1, path, err);
}

void copy_well(struct buffer *files) {
    ty_error err = {0};
    if (copy_from(source, files, &err) < 0) fail_msg("%s", err.message);
}

char *publish_well(const struct buffer *files) {
    char *path = NULL;
    ty_error err = {0};
    if (publish(files, &path, &err) < 0) fail_msg("%s", err.message);
    return path;
}

void verify_well(const char *path) {
    ty_error err = {0};
    if (checkpoint_verify(path, &err) < 0) fail_msg("%s", err.message);
}

void checkpoint_discard(const char *run, uint64_t number, int attempt) {
    BUFFER place = {0};
    checkpoint_staging_path(run, number, attempt, &place);
    assert_false(place.failed);
    checkpoint_drop(place.data);
}

void expect_refusal(int result, int code, const ty_error *err, const char *word) {
    if (result != code || err->code != code || strstr(err->message, word) == NULL)
        fail_msg("%d: %d %s", result, err->code, err->message);
}
