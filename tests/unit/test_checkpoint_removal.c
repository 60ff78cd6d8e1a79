/* Checkpoints that go: discarded, swept, removed; and whatever is not the run's own stays. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint_world.h"

static void discarding(void **state) {
    (void)state;
    checkpoint_discard(run_path, 12, 1);
    shell(
        "mkdir -p run/.checkpoint_000012.attempt-1/a/b && cd run/.checkpoint_000012.attempt-1 && echo x > a/b/c"
        " && ln -s ../../../source out && chmod 500 a/b");
    put(in(source, "precious"), "stays");
    checkpoint_discard(run_path, 12, 2);
    assert_true(exists(staging));
    checkpoint_discard(run_path, 12, 1);
    assert_false(exists(staging));
    assert_true(exists(in(source, "precious")));
    assert_int_equal(symlink(source, staging), 0); /* planted */
    checkpoint_discard(run_path, 12, 1);
    assert_true(exists(in(source, "precious")));
}

static void expect_left(const char *names) {
    BUFFER command = {0};
    buffer_printf(&command, "cd run && test \"$(ls -A | LC_ALL=C sort | tr '\\n' ' ')\" = '%s'", names);
    shell(command.data);
}

static void sweep_well(const struct checkpoint_known *known, const char *gone, const char *stays) {
    CLEANUP(checkpoint_swept_done) struct checkpoint_swept swept = {0};
    ty_error err = {0};
    if (checkpoint_sweep(run_path, known, &swept, &err) < 0) fail_msg("%s", err.message);
    assert_string_equal(swept.gone.n > 0 ? swept.gone.text.data : "", gone);
    assert_string_equal(swept.stays.n > 0 ? swept.stays.text.data : "", stays);
}

/* What this run published, and what has a name of a form that nothing else gets; a name of a checkpoint is no
 * proof. */
static void sweeping(void **state) {
    (void)state;
    const struct checkpoint_known known = {.run = RUN, .last = 9};
    shell("cd run && mkdir -p logs checkpoint_000003/a checkpoint_000009/b checkpoint_000010 checkpoint_10"
          " checkpoint_000011x .checkpoint_000010.attempt-2/c && echo > run.db"
          " && echo > checkpoint_000044 && ln -s logs checkpoint_000055");
    mark("checkpoint_000010", 10, true);
    mark("checkpoint_000009", 9, true);
    CLEANUP(checkpoint_swept_done) struct checkpoint_swept swept = {0};
    assert_int_equal(checkpoint_sweep(run_path, &known, &swept, NULL), 0);
    assert_int_equal(swept.gone.n, 2);
    assert_non_null(strstr(swept.gone.text.data, "checkpoint_000010"));
    assert_non_null(strstr(swept.gone.text.data, ".checkpoint_000010.attempt-2"));
    assert_int_equal(swept.stays.n, 0);
    expect_left("checkpoint_000003 checkpoint_000009 checkpoint_000011x checkpoint_000044 checkpoint_000055 "
                "checkpoint_10 logs run.db ");
    ty_error err = {0};
    expect_refusal(checkpoint_sweep(in(base, "nothing"), &known, &swept, &err), -ENOENT, &err, "nothing");
}

/* By their names, those of the journal stay, whatever their numbers; of others those that say so themselves
 * go. */
static void sweeping_of_given_names(void **state) {
    (void)state;
    static const char *const names[] = {"best", "checkpoint_000031", "./checkpoint_000032"};
    const struct checkpoint_known known = {.run = RUN, .names = names, .n = ARRAY_SIZE(names), .last = 9};
    shell(
        "cd run && mkdir best late early checkpoint_000031 checkpoint_000032 'odd\"name' theirs other-json "
        "broken"
        " .theirs && echo '{\"number\": 99}' > other-json/.metadata.json && echo '{' > broken/.metadata.json");
    mark("best", 30, true);
    mark("early", 9, true);
    mark("checkpoint_000031", 31, true);
    sweep_well(&known, "", "");
    mark("late", 12, true);
    sweep_well(&known, "late", "");
    mark("odd\"name", 10, true);
    sweep_well(&known, "odd\"name", "");
    expect_left(".theirs best broken checkpoint_000031 checkpoint_000032 early other-json theirs ");
}

/* A copy says something that is not so where it lies; and so do a checkpoint of another run, and one that was
 * renamed. */
static void sweeping_spares_what_is_not_the_runs(void **state) {
    (void)state;
    const struct checkpoint_known known = {.run = RUN, .last = 9},
                                  other = {.run = "fedcba9876543210", .last = 9};
    static const char *const theirs[] = {"cp -r checkpoint_000010 pretrained",
                                         "mv checkpoint_000010 pretrained"};
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++) {
        BUFFER command = {0};
        shell("mkdir run/checkpoint_000010 run/checkpoint_000020");
        mark("checkpoint_000010", 10, true);
        sweep_well(&other, "", "checkpoint_000010, checkpoint_000020");
        buffer_printf(&command, "cd run && %s && rm -rf checkpoint_000010", theirs[i]);
        shell(command.data);
        sweep_well(&known, "", "checkpoint_000020");
        shell("cd run && cp -r pretrained checkpoint_000010"); /* in its place */
        mark("checkpoint_000010", 10, false);
        shell("rmdir run/checkpoint_000020");
        sweep_well(&known, "", "checkpoint_000010");
        expect_left("checkpoint_000010 pretrained ");
        shell("rm -r run/*");
    }
}

static void sweeping_of_many_is_told_with_the_first(void **state) {
    (void)state;
    CLEANUP(checkpoint_swept_done) struct checkpoint_swept swept = {0};
    shell("cd run && for i in $(seq 10 40); do mkdir .checkpoint_0000$i.attempt-1; done");
    assert_int_equal(checkpoint_sweep(run_path, &(struct checkpoint_known){.run = RUN}, &swept, NULL), 0);
    assert_int_equal(swept.gone.n, 31);
    assert_true(swept.gone.text.size < 400);
    expect_left("");
}

/* Forms that are nearly ours are somebody else's. */
static void forms_of_names(void **state) {
    (void)state;
    static const char *const theirs[] = {".old.removed",
                                         ".checkpoint_12.attempt-1",
                                         ".checkpoint_0000012.attempt-1",
                                         ".checkpoint_000012.attempt-",
                                         ".checkpoint_000012.attempt-01",
                                         ".checkpoint_000012.attempt--1",
                                         ".checkpoint_000012.attempt-x",
                                         ".checkpoint_000012.attempt-1x",
                                         ".checkpoint_000012.attempt-1.rank-",
                                         ".checkpoint_000012.attempt-1.rank-0123456",
                                         ".checkpoint_000012.attempt-1.rank-012345678",
                                         ".checkpoint_000012.attempt-1.rank-0123456X",
                                         ".checkpoint_000012.attempt-1.given-",
                                         ".checkpoint_000012.attempt-1.backup",
                                         ".checkpoint_000012.attempt-99999999999999999999",
                                         ".checkpoint_99999999999999999999.attempt-1",
                                         ".checkpoint_+00012.attempt-1",
                                         ".checkpoint_000012.removed.old",
                                         ".checkpoint_notes.attempt-1",
                                         "checkpoint_000012.attempt-1"};
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
        assert_int_equal(mkdir(in(run_path, theirs[i]), 0755), 0);
    sweep_well(&(struct checkpoint_known){.run = RUN}, "", "");
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
        assert_int_equal(rmdir(in(run_path, theirs[i])), 0);
    static const char *const ours[] = {".checkpoint_000012.attempt-1",
                                       ".checkpoint_1234567.attempt-2147483647",
                                       ".checkpoint_000012.attempt-1.rank-0123cdef",
                                       ".checkpoint_000012.attempt-1.given-0123cdef",
                                       ".checkpoint_000012.removed",
                                       ".checkpoint_18446744073709551615.removed"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        assert_int_equal(mkdir(in(run_path, ours[i]), 0755), 0);
        sweep_well(&(struct checkpoint_known){.run = RUN}, ours[i], "");
    }
}

static void sweeping_of_staging_alone(void **state) {
    (void)state;
    shell("cd run && mkdir checkpoint_000099 .checkpoint_000004.attempt-1 .checkpoint_000004.attempt-2 "
          ".checkpoint_000005.attempt-10 .checkpoint_000006.attempt-x .checkpoint_000001.removed "
          ".checkpoint_000004.attempt-1.given-01234567 .checkpoint_000005.attempt-10.rank-01234567");
    mark("checkpoint_000099", 99, true);
    checkpoint_sweep_staging(run_path, 2); /* slow storage: the next attempts have begun meanwhile */
    expect_left(
        ".checkpoint_000001.removed .checkpoint_000005.attempt-10 .checkpoint_000005.attempt-10.rank-01234567 "
        ".checkpoint_000006.attempt-x checkpoint_000099 ");
    checkpoint_sweep_staging(run_path, 10);
    expect_left(".checkpoint_000001.removed .checkpoint_000006.attempt-x checkpoint_000099 ");
    checkpoint_sweep_staging(in(base, "nothing"), 1);
}

static int remove_named(const char *name, ty_error *err) {
    return checkpoint_remove(run_path, &(struct checkpoint_mark){RUN, name, 7}, err);
}

static void removing(void **state) {
    (void)state;
    put(in(source, "precious"), "stays");
    shell("mkdir -p run/best/a/b && cd run/best && echo x > a/b/c && ln -s ../../source out && chmod 500 a/b a"
          " && mkdir ../.checkpoint_000007.removed && echo > ../.checkpoint_000007.removed/half");
    mark("best", 7, true);
    assert_int_equal(remove_named("best", NULL), 0);
    assert_int_equal(remove_named("best", NULL), 0); /* not there any more */
    shell("test -z \"$(ls -A run)\"");
    assert_true(exists(in(source, "precious")));
    assert_int_equal(remove_named(source, NULL), 0); /* places: not ours */
    assert_int_equal(remove_named("store://bucket/a", NULL), 0);
    assert_true(exists(in(source, "precious")));
    ty_error err = {0};
    struct checkpoint_mark best = {RUN, "best", 7};
    expect_refusal(checkpoint_remove(in(base, "nothing"), &best, &err), -ENOENT, &err, "nothing");
}

/* What has the name by now stays. */
static void removing_spares_what_is_not_the_runs(void **state) {
    (void)state;
    static const char *const others[] = {"mkdir run/best", "ln -s ../source run/best", "echo > run/best",
                                         "mkdir run/best && echo '{' > run/best/.metadata.json"};
    put(in(source, "precious"), "stays");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        ty_error err = {0};
        shell(others[i]);
        expect_refusal(remove_named("best", &err), TY_EUSAGE, &err, "run/best is no longer kept, but stays");
        assert_true(exists(in(run_path, "best")) && exists(in(source, "precious")));
        shell("rm -r run/best");
    }
    ty_error err = {0};
    shell("mkdir run/best");
    mark("best", 8, true);
    expect_refusal(remove_named("best", &err), TY_EUSAGE, &err, "as checkpoint 7");
    mark("best", 7, false); /* a copy, but the journal knows its name */
    assert_int_equal(remove_named("best", NULL), 0);
    assert_false(exists(in(run_path, "best")));
}

/* Whoever has it open reads on; whoever looks for its name finds all of it or nothing. */
static void removing_beside_a_reader(void **state) {
    (void)state;
    char text[8] = "";
    shell("mkdir run/best && echo weights > run/best/model");
    mark("best", 7, true);
    int file = open(in(run_path, "best/model"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(remove_named("best", NULL), 0);
    assert_int_equal(read(file, text, 7), 7);
    assert_string_equal(text, "weights");
    assert_int_equal(close(file), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, checkpoint_world_begin, checkpoint_world_end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(discarding),
        TEST(sweeping),
        TEST(sweeping_of_given_names),
        TEST(sweeping_spares_what_is_not_the_runs),
        TEST(sweeping_of_many_is_told_with_the_first),
        TEST(forms_of_names),
        TEST(sweeping_of_staging_alone),
        TEST(removing),
        TEST(removing_spares_what_is_not_the_runs),
        TEST(removing_beside_a_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
