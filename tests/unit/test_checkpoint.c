/* Checkpoints: what is copied is what was there; ranks beside each other; what may not be in one. */
#include <errno.h>
#include <jansson.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint_world.h"
#include "descriptors.h"

static bool clone_works;     /* FICLONE is imitated */
static bool renames_replace; /* as on file systems that know no other */

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    if (!renames_replace) return __real_renameat2(a, from, b, to, flags);
    errno = EINVAL;
    return -1;
}

int __real_ioctl(int fd, unsigned long request, int from);
int __wrap_ioctl(int fd, unsigned long request, int from);
int __wrap_ioctl(int fd, unsigned long request, int from) {
    if (request != FICLONE || !clone_works) return __real_ioctl(fd, request, from);
    char room[4096];
    off_t at = 0;
    for (ssize_t n; (n = pread(from, room, sizeof room, at)) > 0; at += n)
        if (pwrite(fd, room, (size_t)n, at) != n) return -1;
    return 0;
}
/* Copying the source is refused, and nothing of it stays. */
static void expect_no_copy(int code, const char *word) {
    BUFFER files = {0};
    buffer_text(&files, "before");
    ty_error err = {0};
    unsigned before = count_descriptors();
    expect_refusal(copy_from(source, &files, &err), code, &err, word);
    assert_string_equal(files.data, "before");
    assert_int_equal(files.size, 6);
    assert_int_equal(count_descriptors(), before);
    if (exists(staging)) assert_int_equal(rmdir(staging), 0);
}

/* ---- names ---- */

static void names(void **state) {
    (void)state;
    char name[CHECKPOINT_NAME_SIZE];
    checkpoint_name(12, name);
    assert_string_equal(name, "checkpoint_000012");
    checkpoint_name(UINT64_MAX, name);
    assert_string_equal(name, "checkpoint_18446744073709551615");
    BUFFER path = {0};
    checkpoint_staging_path("/r", 7, 3, &path);
    assert_string_equal(path.data, "/r/.checkpoint_000007.attempt-3");
}

/* ---- what is refused ---- */

static void sources_that_are_none(void **state) {
    (void)state;
    BUFFER files = {0};
    ty_error err = {0};
    expect_refusal(copy_from(in(base, "nothing"), &files, &err), -ENOENT, &err, "nothing");
    put(in(base, "other"), "a file");
    expect_refusal(copy_from(in(base, "other"), &files, &err), -ENOTDIR, &err, "other");
    assert_false(exists(staging));
}

static void staging_that_cannot_be(void **state) {
    (void)state;
    BUFFER files = {0};
    ty_error err = {0};
    expect_refusal(checkpoint_copy(source, in(base, "no/where"), &(struct checkpoint_copying){0}, &files, &err),
                   -ENOENT, &err, "no/where");
    assert_int_equal(symlink(source, staging), 0); /* planted */
    assert_true(copy_from(source, &files, &err) < 0);
    assert_non_null(strstr(err.message, staging));
}

static void links_that_lead_out(void **state) {
    (void)state;
    static const char *const targets[] = {"/etc/passwd", "..",     "../source/x", "a/..",
                                          "a/../../x",   "./../x", "../.."};
    put(in(source, "a"), "stays out of the staging directory");
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        assert_int_equal(symlink(targets[i], in(source, "link")), 0);
        expect_no_copy(TY_EUSAGE, "source/link");
        assert_int_equal(unlink(in(source, "link")), 0);
    }
    shell("mkdir source/d && ln -s ../../x source/d/link");
    expect_no_copy(TY_EUSAGE, "source/d/link");
    shell("ln -sf x/.. source/d/link"); /* inside as it reads, but x may be a link */
    expect_no_copy(TY_EUSAGE, "source/d/link");
}

static void what_is_no_file(void **state) {
    (void)state;
    put(in(source, "a"), "a");
    assert_int_equal(mkfifo(in(source, "pipe"), 0600), 0);
    expect_no_copy(TY_EUSAGE, "source/pipe");
    assert_int_equal(unlink(in(source, "pipe")), 0);
    put(in(source, "caf\xe9"), "Latin-1");
    expect_no_copy(TY_EUSAGE, "UTF-8");
    assert_int_equal(unlink(in(source, "caf\xe9")), 0);
    put(in(source, ".trainyard-part-x"), "");
    expect_no_copy(TY_EUSAGE, "keeps for itself");
}

static void a_copy_into_itself(void **state) {
    (void)state;
    BUFFER files = {0};
    ty_error err = {0};
    put(in(run_path, "x"), "x");
    expect_refusal(copy_from(run_path, &files, &err), TY_EUSAGE, &err, "into which");
    shell("test \"$(ls -A run)\" = x");
    assert_int_equal(mkdir(staging, 0755), 0);
    expect_refusal(copy_from(staging, &files, &err), TY_EUSAGE, &err, "into which");
}

static void too_deep_a_tree(void **state) {
    (void)state;
    shell("d=source; for i in $(seq 120); do d=$d/d; done; mkdir -p $d");
    expect_no_copy(TY_EUSAGE, "100 directories");
}

/* ---- what is copied ---- */

static void a_small_tree(void **state) {
    (void)state;
    small_tree();
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP_FREE char *path = publish_well(&files);
    assert_string_equal(path, in(run_path, "checkpoint_000012"));
    assert_false(exists(staging));
    verify_well(path);
    shell("diff -r --no-dereference source run/checkpoint_000012 | grep -v metadata.json | wc -l | grep -qx 0");
    shell("test $(stat -c %a run/checkpoint_000012/shard) = 750");
    shell("test \"$(readlink run/checkpoint_000012/latest)\" = shard/0.bin");
    /* XXH3-128 of nothing and of "weights", by another program: xxhsum -H2 */
    shell("grep -q 99aa06d3014798d86001c324468d497f run/checkpoint_000012/.metadata.json");
}

static void odd_names(void **state) {
    (void)state;
    static const char *const odd[] = {"a b",          "new\nline",
                                      "tab\t",        "quote\"back\\slash",
                                      "-rf",          "~",
                                      "$(x)",         "%s%n",
                                      "\x01",         "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x9a\x82",
                                      "\xef\xbf\xbd", ".hidden",
                                      "...",          "{\"path\": 1}"};
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        put(in(source, odd[i]), odd[i]);
    BUFFER files = {0};
    copy_well(&files);
    assert_null(strchr(files.data, '\n'));
    CLEANUP_FREE char *path = publish_well(&files);
    verify_well(path);
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        assert_true(exists(in(path, odd[i])));
}

static void sparse_and_linked_files(void **state) {
    (void)state;
    shell("truncate -s 3G source/hole && printf x | dd of=source/hole bs=1 seek=1G conv=notrunc status=none"
          " && truncate -s 64M source/all-hole && seq 300000 > source/a && ln source/a source/b");
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP_FREE char *path = publish_well(&files);
    shell("cmp source/a run/checkpoint_000012/b && test $(du -k run/checkpoint_000012/hole | cut -f1) -lt 1024"
          " && test $(stat -c %s run/checkpoint_000012/hole) = 3221225472"
          " && test $(stat -c %s run/checkpoint_000012/all-hole) = 67108864"
          " && test \"$(tail -c +1073741825 run/checkpoint_000012/hole | head -c 1)\" = x");
    verify_well(path);
}

static void a_hole_counts_as_zeros(void **state) {
    (void)state;
    shell("truncate -s 5M source/hole && head -c 5M /dev/zero > source/zeros");
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP(json_decrefp) json_t *list = json_loads(files.data, 0, NULL);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "xxh3")),
                        json_string_value(json_object_get(json_array_get(list, 1), "xxh3")));
}

static void many_files(void **state) {
    (void)state;
    shell("mkdir source/d && cd source/d && seq 1000 | split -l 1 -a 4 - f");
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP_FREE char *path = publish_well(&files);
    verify_well(path);
    shell("diff -r source/d run/checkpoint_000012/d");
}

/* Every file of the list has its checksum all the same, and two ranks with the same one share it. */
static void a_list_too_long_for_a_message(void **state) {
    (void)state;
    shell("mkdir source/d && cd source/d && long=$(printf %0200d 0) && seq 2000 | split -l 1 -a 4 - $long");
    BUFFER files = {0}, second = {0};
    copy_well(&files);
    copy_well(&second);
    assert_in_range(files.size, 1, 200);
    assert_string_equal(files.data, second.data);
    const char *lists[] = {files.data, second.data};
    char *path = NULL;
    ty_error err = {0};
    if (publish_lists(lists, 2, &path, &err) < 0) fail_msg("%s", err.message);
    verify_well(path);
    shell("diff -r source/d run/checkpoint_000012/d && test -z \"$(find run -name '.trainyard-part-*')\"");
    shell("test $(grep -c xxh3 run/checkpoint_000012/.metadata.json) = 2000");
    free(path);
}

static void a_long_list_is_what_its_name_says(void **state) {
    (void)state;
    shell("mkdir source/d && cd source/d && long=$(printf %0200d 0) && seq 2000 | split -l 1 -a 4 - $long");
    BUFFER files = {0};
    copy_well(&files);
    char *path = NULL;
    ty_error err = {0};
    shell("for list in run/.checkpoint_000012.attempt-1/.trainyard-part-list-*; do printf ' ' >>$list; done");
    expect_refusal(publish(&files, &path, &err), TY_EPROTOCOL, &err, "rank 0");
    shell("rm run/.checkpoint_000012.attempt-1/.trainyard-part-list-*");
    expect_refusal(publish(&files, &path, &err), TY_EPROTOCOL, &err, "rank 0");
    assert_null(path);
}

static void shared_blocks(void **state) {
    (void)state;
    clone_works = true;
    shell("seq 100000 > source/large");
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP_FREE char *path = publish_well(&files);
    shell("cmp source/large run/checkpoint_000012/large");
    verify_well(path);
    clone_works = false;
}

static void read_only_files(void **state) {
    (void)state;
    shell("mkdir source/d && echo x > source/d/f && chmod 400 source/d/f && chmod 500 source/d");
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP_FREE char *path = publish_well(&files);
    shell("test $(stat -c %a run/checkpoint_000012/d/f) = 400");
    verify_well(path);
}

static void an_empty_checkpoint(void **state) {
    (void)state;
    BUFFER files = {0};
    copy_well(&files);
    assert_string_equal(files.data, "[]");
    CLEANUP_FREE char *path = publish_well(&files);
    verify_well(path);
}

/* ---- metadata ---- */

static void the_users_metadata_stays(void **state) {
    (void)state;
    small_tree();
    put(in(source, ".metadata.json"), "{\"epoch\": 3, \"trainyard\": {\"files\": [\"of an older one\"]}}");
    BUFFER files = {0};
    copy_well(&files);
    assert_null(strstr(files.data, "metadata"));
    CLEANUP_FREE char *path = publish_well(&files);
    verify_well(path);
    CLEANUP(json_decrefp) json_t *metadata = json_load_file(in(path, ".metadata.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(metadata, "epoch")), 3);
    const json_t *ours = json_object_get(metadata, "trainyard");
    assert_int_equal(json_integer_value(json_object_get(ours, "version")), 1);
    assert_int_equal(json_integer_value(json_object_get(ours, "number")), 12);
    assert_int_equal(json_integer_value(json_object_get(ours, "attempt")), 1);
    assert_int_equal(json_array_size(json_object_get(ours, "files")), 4);
}

static int publish_beside(unsigned number, const char *name, uint64_t adds_to, char **path, ty_error *err) {
    BUFFER files = {0};
    BUFFER place = {0};
    checkpoint_staging_path(run_path, number, 1, &place);
    if (checkpoint_copy(source, place.data, &(struct checkpoint_copying){CHECKPOINT_COPY, false}, &files, err) <
        0)
        fail_msg("%s", err->message);
    const char *lists[] = {files.data};
    struct checkpoint_parts parts = {RUN, number, 1, name, adds_to, true, lists, 1, false};
    return checkpoint_publish(run_path, &parts, path, err);
}

/* The directory is what was saved; all that the manifest is for goes on. */
static void a_manifest_beside(void **state) {
    (void)state;
    ty_error err = {0};
    CLEANUP_FREE char *path = NULL, *same = NULL;
    small_tree();
    if (publish_beside(7, "best", 0, &path, &err) < 0) fail_msg("%s", err.message);
    shell("diff -r --no-dereference source run/best && test -f run/.best.manifest");
    verify_well(path);
    expect_refusal(publish_beside(9, "best", 0, &same, &err), -EEXIST, &err, "choose another name");
    checkpoint_discard(run_path, 9, 1);
    put(in(path, ".metadata.json"), "{\"epoch\": 3}"); /* the user's, who came later */
    verify_well(path);
    put(in(path, "empty"), "no longer");
    expect_refusal(checkpoint_verify(path, &err), TY_ECORRUPT, &err, "empty has not the size");
    shell("cp run/.best.manifest other && truncate -s 100 run/.best.manifest");
    expect_refusal(checkpoint_verify(path, &err), TY_ECORRUPT, &err, "the manifest of ");
    shell("mv other run/.best.manifest");
    shell("cp -r run/best other && rm -r run/best && mv other run/best"); /* a copy has the name */
    expect_refusal(checkpoint_remove(run_path, &(struct checkpoint_mark){RUN, "best", 7}, &err), TY_EUSAGE,
                   &err, "but stays");
    shell("rm -r run/best");
    assert_int_equal(checkpoint_remove(run_path, &(struct checkpoint_mark){RUN, "best", 7}, &err), 0);
    shell("test -z \"$(ls -A run)\"");
}

/* The directory is another one then, its files are those of the manifest: it is added to, and it goes. */
static void a_manifest_beside_in_a_run_that_was_copied(void **state) {
    (void)state;
    ty_error err = {0};
    CLEANUP_FREE char *first = NULL, *second = NULL;
    static const char copy[] = "cp -a run/best other && rm -r run/best && mv other run/best";
    put(in(source, "a"), "1");
    if (publish_beside(7, "best", 0, &first, &err) < 0) fail_msg("%s", err.message);
    shell(copy);
    shell("mv source/a source/b");
    if (publish_beside(8, "best", 7, &second, &err) < 0) fail_msg("%s", err.message);
    verify_well(second);
    shell("test \"$(cat run/best/a run/best/b)\" = 11");
    shell(copy);
    put(in(second, "a"), "2"); /* of the same size */
    struct checkpoint_mark mark = {RUN, "best", 8};
    expect_refusal(checkpoint_remove(run_path, &mark, &err), TY_EUSAGE, &err, "but stays");
    put(in(second, "a"), "1");
    assert_int_equal(checkpoint_remove(run_path, &mark, &err), 0);
    shell("test -z \"$(ls -A run)\"");
}

/* Of no file at all any directory would be the same. */
static void a_manifest_beside_that_lists_nothing(void **state) {
    (void)state;
    ty_error err = {0};
    CLEANUP_FREE char *path = NULL;
    if (publish_beside(7, "best", 0, &path, &err) < 0) fail_msg("%s", err.message);
    shell("mkdir other && rm -r run/best && mv other run/best && echo mine > run/best/mine");
    expect_refusal(checkpoint_remove(run_path, &(struct checkpoint_mark){RUN, "best", 7}, &err), TY_EUSAGE,
                   &err, "but stays");
}

/* Where it stands decides nothing about whose the name is. */
static void a_manifest_beside_of_one_that_is_added_to(void **state) {
    (void)state;
    ty_error err = {0};
    CLEANUP_FREE char *first = NULL, *second = NULL, *third = NULL;
    put(in(source, "a"), "1");
    if (publish_beside(7, "best", 0, &first, &err) < 0) fail_msg("%s", err.message);
    put(in(first, ".metadata.json"), "{\"epoch\": 3}");
    shell("mv source/a source/b");
    if (publish_beside(8, "best", 7, &second, &err) < 0) fail_msg("%s", err.message);
    verify_well(second);
    shell("test \"$(cat run/best/a run/best/b)\" = 11 && grep -q epoch run/best/.metadata.json && "
          "test \"$(ls -A run)\" = best");
    shell("rm source/b && echo c > source/c");
    if (publish_beside(9, "best", 8, &third, &err) < 0) fail_msg("%s", err.message);
    verify_well(third);
    assert_int_equal(checkpoint_remove(run_path, &(struct checkpoint_mark){RUN, "best", 9}, &err), 0);
    shell("test -z \"$(ls -A run)\"");
}

static void bad_metadata_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"", "[]", "{\"a\": ", "\xff"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        put(in(source, ".metadata.json"), bad[i]);
        BUFFER files = {0};
        copy_well(&files);
        char *path = NULL;
        ty_error err = {0};
        expect_refusal(publish(&files, &path, &err), TY_EUSAGE, &err, ".metadata.json");
        assert_null(path);
        checkpoint_discard(run_path, 12, 1);
        assert_false(exists(staging));
    }
}

/* ---- several ranks ---- */

static void ranks_beside_each_other(void **state) {
    (void)state;
    enum { RANKS = 4 };
    pid_t ranks[RANKS];
    shell("seq 50000 > source/shared && mkdir source/d && echo same > source/d/common");
    for (int rank = 0; rank < RANKS; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] != 0) continue;
        char command[256], from[128];
        (void)snprintf(from, sizeof from, "%s/other/%d", base, rank);
        (void)snprintf(command, sizeof command,
                       "mkdir -p other && cp -r source other/%d && seq %d 70000 > other/%d/d/own-%d", rank,
                       rank, rank, rank);
        shell(command);
        BUFFER files = {0};
        ty_error err = {0};
        if (copy_from(from, &files, &err) < 0) fail_msg("%s", err.message);
        (void)snprintf(command, sizeof command, "%s.list", from);
        put(command, files.data);
        _exit(0);
    }
    struct buffer lists[RANKS] = {0};
    const char *texts[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        int status = -1;
        assert_int_equal(waitpid(ranks[rank], &status, 0), ranks[rank]);
        assert_int_equal(status, 0);
        char name[32];
        (void)snprintf(name, sizeof name, "other/%d.list", rank);
        FILE *list = fopen(in(base, name), "r");
        assert_non_null(list);
        for (int c; (c = fgetc(list)) != EOF;)
            buffer_char(&lists[rank], (char)c);
        assert_int_equal(fclose(list), 0);
        texts[rank] = lists[rank].data;
    }
    shell("test -z \"$(find run -name '.trainyard-part*')\"");
    CLEANUP_FREE char *path = NULL;
    assert_int_equal(publish_lists(texts, RANKS, &path, NULL), 0);
    for (int rank = 0; rank < RANKS; rank++)
        buffer_done(&lists[rank]);
    verify_well(path);
    CLEANUP(json_decrefp) json_t *metadata = json_load_file(in(path, ".metadata.json"), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json_object_get(metadata, "trainyard"), "files")),
                     RANKS + 2);
}

static void ranks_that_differ(void **state) {
    (void)state;
    small_tree();
    BUFFER files = {0};
    copy_well(&files);
    put(in(source, "model.bin"), "others!");
    ty_error err = {0};
    BUFFER second = {0};
    expect_refusal(copy_from(source, &second, &err), TY_EUSAGE, &err, "model.bin");
    shell("rm -r source/* && mkdir source/model.bin");
    expect_refusal(copy_from(source, &second, &err), TY_EUSAGE, &err, "model.bin");
    shell("rm -r source/* && echo > source/shard");
    expect_refusal(copy_from(source, &second, &err), TY_EUSAGE, &err, "shard");
    shell("rm -r source/* && ln -s empty source/latest");
    expect_refusal(copy_from(source, &second, &err), TY_EUSAGE, &err, "latest");
    shell("rm -r source/* && ln -s . source/shard");
    expect_refusal(copy_from(source, &second, &err), TY_EUSAGE, &err, "shard");
    CLEANUP_FREE char *path = publish_well(&files); /* the first rank's is unharmed */
    verify_well(path);
}

/* Nothing that was there first is replaced. */
static void ranks_where_renames_replace(void **state) {
    (void)state;
    small_tree();
    renames_replace = true;
    BUFFER first = {0};
    copy_well(&first);
    shell("rm source/empty && echo own > source/own && echo own > source/shard/own");
    BUFFER second = {0};
    copy_well(&second);
    put(in(source, "model.bin"), "others!");
    ty_error err = {0};
    expect_refusal(copy_from(source, &second, &err), TY_EUSAGE, &err, "model.bin");
    const char *lists[] = {first.data, second.data};
    CLEANUP_FREE char *path = NULL;
    if (publish_lists(lists, 2, &path, &err) < 0) fail_msg("%s", err.message);
    renames_replace = false;
    verify_well(path);
    shell("test \"$(ls -A run)\" = checkpoint_000012 && cd run/checkpoint_000012 && test $(cat model.bin) = "
          "weights && test "
          "$(cat own shard/own | wc -l) = 2 && test -e empty");
}

/* The first rank's stays, and is the only one that is listed. */
static void ranks_that_may_differ(void **state) {
    (void)state;
    const struct checkpoint_copying how = {CHECKPOINT_COPY, .may_differ = true};
    small_tree();
    BUFFER first = {0};
    copy_well(&first);
    put(in(source, "model.bin"), "others!");
    put(in(source, "own"), "own");
    shell("ln -sf empty source/latest");
    ty_error err = {0};
    BUFFER second = {0};
    assert_int_equal(checkpoint_copy(source, staging, &how, &second, &err), 1);
    assert_non_null(strstr(err.message, " differs between the ranks"));
    assert_null(strstr(second.data, "model.bin"));
    assert_null(strstr(second.data, "latest"));
    assert_non_null(strstr(second.data, "own"));
    const char *lists[] = {first.data, second.data};
    CLEANUP_FREE char *path = NULL;
    if (publish_lists(lists, 2, &path, &err) < 0) fail_msg("%s", err.message);
    verify_well(path);
    shell("cd run/checkpoint_000012 && test $(cat model.bin) = weights && test -e own");
    shell("rm -r source/* && mkdir source/model.bin");
    expect_refusal(checkpoint_copy(source, in(run_path, "checkpoint_000012"), &how, &second, &err), TY_EUSAGE,
                   &err, "model.bin");
}

/* ---- publishing ---- */

static void lists_that_are_wrong(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "",
        "{}",
        "[1]",
        "[{}]",
        "[",
        "[{\"path\": \"a\"}]",
        "[{\"path\": \"/a\", \"size\": 1}]",
        "[{\"path\": \"../a\", \"size\": 1}]",
        "[{\"path\": \"a/../b\", \"size\": 1}]",
        "[{\"path\": \"a//b\", \"size\": 1}]",
        "[{\"path\": \"\", \"size\": 1}]",
        "[{\"path\": \"a\", \"size\": -1}]",
        "[{\"path\": \"a\", \"size\": 1.5}]",
        "[{\"path\": \"a\", \"size\": 1, \"xxh3\": \"zz\"}]",
        "[{\"path\": \"a\", \"size\": 1, \"xxh3\": 5}]",
        "[{\"path\": \"a\", \"size\": 1, \"link\": \"b\"}]",
        "[{\"path\": \"a\\u0000b\", \"size\": 1}]",
        "[{\"path\": \"a\", \"size\": 1, \"size\": 2}]",
        "[{\"list\": \"a\"}]",
        "[{\"list\": \".trainyard-part-list-../../../../../../../../../../etc/x\"}]",
        "[{\"list\": \".trainyard-part-list-0123456789abcdef0123456789abcdef\"}]",
    };
    assert_int_equal(mkdir(staging, 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        const char *lists[] = {"[]", wrong[i]};
        char *path = NULL;
        ty_error err = {0};
        expect_refusal(publish_lists(lists, 2, &path, &err), TY_EPROTOCOL, &err, "rank 1");
        assert_null(path);
    }
}

static void lists_that_are_not_so(void **state) {
    (void)state;
    small_tree();
    BUFFER files = {0};
    copy_well(&files);
    char *path = NULL;
    ty_error err = {0};
    put(in(staging, "model.bin"), "torn");
    expect_refusal(publish(&files, &path, &err), TY_ECORRUPT, &err, "model.bin");
    assert_int_equal(unlink(in(staging, "model.bin")), 0);
    expect_refusal(publish(&files, &path, &err), TY_ECORRUPT, &err, "model.bin is missing");
    put(in(staging, "model.bin"), "weights");
    assert_int_equal(unlink(in(staging, "latest")), 0);
    put(in(staging, "latest"), "no link");
    expect_refusal(publish(&files, &path, &err), TY_ECORRUPT, &err, "latest");
    const char *lists[] = {files.data, "[{\"path\": \"model.bin\", \"size\": 9}]"};
    expect_refusal(publish_lists(lists, 2, &path, &err), TY_EUSAGE, &err, "model.bin");
    assert_null(path);
    assert_false(exists(in(run_path, "checkpoint_000012")));
}

static void a_directory_is_listed(void **state) {
    (void)state;
    shell("mkdir -p run/.checkpoint_000012.attempt-1/d && cd run/.checkpoint_000012.attempt-1 && echo one > d/a"
          " && ln -s d/a link && echo rest > .trainyard-part-0123");
    const char *lists[] = {"[]", "[]"};
    CLEANUP_FREE char *path = NULL;
    assert_int_equal(publish_lists(lists, 2, &path, NULL), 0);
    verify_well(path);
    assert_false(exists(in(path, ".trainyard-part-0123")));
    put(in(path, "d/a"), "two!"); /* only the size is known */
    verify_well(path);
    put(in(path, "d/a"), "three");
    ty_error err = {0};
    expect_refusal(checkpoint_verify(path, &err), TY_ECORRUPT, &err, "d/a");
}

static void a_listed_directory_has_rules_too(void **state) {
    (void)state;
    assert_int_equal(mkdir(staging, 0755), 0);
    assert_int_equal(symlink("/etc/passwd", in(staging, "link")), 0);
    const char *lists[] = {"[]"};
    char *path = NULL;
    ty_error err = {0};
    expect_refusal(publish_lists(lists, 1, &path, &err), TY_EUSAGE, &err, "link");
    assert_null(path);
}

static void a_number_is_published_once(void **state) {
    (void)state;
    small_tree();
    BUFFER files = {0};
    copy_well(&files);
    free(publish_well(&files));
    buffer_clear(&files);
    copy_well(&files);
    char *path = NULL;
    ty_error err = {0};
    expect_refusal(publish(&files, &path, &err), -EEXIST, &err, "checkpoint_000012");
    verify_well(in(run_path, "checkpoint_000012"));
    checkpoint_discard(run_path, 12, 1);
    expect_refusal(publish(&files, &path, &err), -ENOENT, &err, "checkpoint_000012");
    checkpoint_discard(run_path, 12, 1);
}

/* ---- loading ---- */

static void damage_is_found(void **state) {
    (void)state;
    small_tree();
    BUFFER files = {0};
    copy_well(&files);
    CLEANUP_FREE char *path = publish_well(&files);
    static const char *const damage[][3] = {
        {"printf weightz > model.bin", "model.bin has other content", "printf weights > model.bin"},
        {"printf weight > model.bin", "model.bin has not the size", "printf weights > model.bin"},
        {"rm model.bin", "model.bin is missing", "printf weights > model.bin"},
        {"rm model.bin && mkdir model.bin", "model.bin cannot be read",
         "rmdir model.bin && printf weights > model.bin"},
        {"mv shard x", "shard/0.bin is missing", "mv x shard"},
        {"ln -sf empty latest", "latest is not the link", "ln -sf shard/0.bin latest"},
        {"mv .metadata.json x", "no list", "mv x .metadata.json"},
        {"cp .metadata.json x && truncate -s 100 .metadata.json", "is damaged", "mv x .metadata.json"},
        {"cp .metadata.json x && echo '{}' > .metadata.json", "no list", "mv x .metadata.json"},
        {"cp .metadata.json x && echo '{\"trainyard\": {\"files\": [3]}}' > .metadata.json",
         "damaged at file 0", "mv x .metadata.json"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
        BUFFER command = {0};
        buffer_printf(&command, "cd run/checkpoint_000012 && %s", damage[i][0]);
        shell(command.data);
        ty_error err = {0};
        expect_refusal(checkpoint_verify(path, &err), TY_ECORRUPT, &err, damage[i][1]);
        assert_non_null(strstr(err.message, path));
        if (i == 0) /* only its bytes tell */
            assert_int_equal(checkpoint_verify_sizes(path, &err), 0);
        else
            expect_refusal(checkpoint_verify_sizes(path, &err), TY_ECORRUPT, &err, damage[i][1]);
        buffer_clear(&command);
        buffer_printf(&command, "cd run/checkpoint_000012 && %s", damage[i][2]);
        shell(command.data);
        verify_well(path);
    }
    ty_error err = {0};
    expect_refusal(checkpoint_verify(in(run_path, "nothing"), &err), -ENOENT, &err, "nothing");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_world_begin, checkpoint_world_end)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        TEST(sources_that_are_none),
        TEST(staging_that_cannot_be),
        TEST(links_that_lead_out),
        TEST(what_is_no_file),
        TEST(a_copy_into_itself),
        TEST(too_deep_a_tree),
        TEST(a_small_tree),
        TEST(odd_names),
        TEST(sparse_and_linked_files),
        TEST(a_hole_counts_as_zeros),
        TEST(many_files),
        TEST(a_list_too_long_for_a_message),
        TEST(a_long_list_is_what_its_name_says),
        TEST(shared_blocks),
        TEST(read_only_files),
        TEST(an_empty_checkpoint),
        TEST(the_users_metadata_stays),
        TEST(a_manifest_beside),
        TEST(a_manifest_beside_of_one_that_is_added_to),
        TEST(a_manifest_beside_in_a_run_that_was_copied),
        TEST(a_manifest_beside_that_lists_nothing),
        TEST(bad_metadata_is_refused),
        TEST(ranks_beside_each_other),
        TEST(ranks_that_differ),
        TEST(ranks_where_renames_replace),
        TEST(ranks_that_may_differ),
        TEST(lists_that_are_wrong),
        TEST(lists_that_are_not_so),
        TEST(a_directory_is_listed),
        TEST(a_listed_directory_has_rules_too),
        TEST(a_number_is_published_once),
        TEST(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
