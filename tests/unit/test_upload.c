/* Checkpoints on their way while the training goes on (src/worker/upload.c), through the public calls. The test
 * plays the agent, on all channels of the worker at once. It is also built with ThreadSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <trainyard/report.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "worker/upload.h"
#include "worker_agent.h"

enum { CHANNELS_MAX = 16 };

static char run_path[] = "/tmp/trainyard-upload-XXXXXX"; /* made once, for workers and agent */

/* What the agent has heard, and what it is to do. */
struct heard {
    int channels[CHANNELS_MAX]; /* the first is the worker's own */
    nfds_t n_channels;
    unsigned begun, ended; /* checkpoints */
    unsigned most;         /* under way at once */
    unsigned hold_until;   /* no commit is answered before so many have begun */
    unsigned refused;      /* the commit of this number is refused; 0: none */
    int held[CHANNELS_MAX];
    struct buffer held_answers[CHANNELS_MAX];
    unsigned n_held;
    struct buffer
        commits; /* "main 1", or "own 1" over a channel of the thread's own; each with a blank behind it */
    struct buffer lists;  /* what the commits said, a line each */
    struct buffer aborts; /* "1 TEXT\n" */
};

static void heard_done(struct heard *heard) {
    buffer_done(&heard->commits);
    buffer_done(&heard->lists);
    buffer_done(&heard->aborts);
}

static void begin(struct heard *heard, nfds_t channel) {
    char answer[256];
    heard->begun++;
    if (heard->begun - heard->ended > heard->most) heard->most = heard->begun - heard->ended;
    (void)snprintf(answer, sizeof answer, "directory %u %s/.checkpoint_%06u.attempt-2\n", heard->begun,
                   run_path, heard->begun);
    agent_say(heard->channels[channel], answer);
}

static void commit(struct heard *heard, nfds_t channel, const char *rest) {
    unsigned number = (unsigned)strtoul(rest, NULL, 10);
    struct buffer *answer = &heard->held_answers[heard->n_held];
    buffer_printf(&heard->commits, "%s %u ", channel == 0 ? "main" : "own", number);
    buffer_text(&heard->lists, strchr(rest, ' ') + 1);
    if (number == heard->refused)
        buffer_text(answer, "failed rank 5 gave up\n");
    else
        buffer_printf(answer, "ok %s/checkpoint_%06u\n", run_path, number);
    heard->held[heard->n_held++] = heard->channels[channel];
}

static void answer_commits(struct heard *heard) {
    if (heard->begun < heard->hold_until) return;
    for (unsigned i = 0; i < heard->n_held; i++) {
        heard->ended++;
        agent_say(heard->held[i], heard->held_answers[i].data);
        buffer_done(&heard->held_answers[i]);
    }
    heard->n_held = 0;
}

/* In the place of one that has ended, if there is one. */
static void add_channel(struct heard *heard, int fd) {
    nfds_t place = 0;
    while (place < heard->n_channels && heard->channels[place] >= 0)
        place++;
    assert_true(place < CHANNELS_MAX);
    heard->channels[place] = fd;
    if (place == heard->n_channels) heard->n_channels++;
}

/* False at the end of the channel. */
static bool hear(struct heard *heard, nfds_t channel) {
    int fd = heard->channels[channel];
    char first;
    const char *rest;
    if (recv(fd, &first, 1, MSG_PEEK) <= 0) return false;
    if (first == 'o') {
        add_channel(heard, agent_expect_open(fd));
        return true;
    }
    const char *line = agent_read_line(fd);
    if (str_prefix(line, "checkpoint ", NULL)) begin(heard, channel);
    if (str_prefix(line, "commit ", &rest)) commit(heard, channel, rest);
    if (str_prefix(line, "abort ", &rest)) {
        heard->ended++;
        buffer_text(&heard->aborts, rest);
        agent_say(fd, "ok\n");
    }
    return true;
}

/* Plays the agent until the worker has ended. */
static void serve(void (*body)(void), struct heard *heard) {
    struct agent agent = worker_start(body);
    heard->channels[heard->n_channels++] = agent.fd;
    for (bool open = true; open;) {
        struct pollfd fds[CHANNELS_MAX];
        nfds_t n = heard->n_channels;
        for (nfds_t i = 0; i < n; i++)
            fds[i] = (struct pollfd){.fd = heard->channels[i], .events = POLLIN};
        assert_true(poll(fds, n, -1) > 0);
        for (nfds_t i = n; i-- > 0;) /* the first last: its end is the worker's */
            if (fds[i].revents != 0 && !hear(heard, i)) {
                if (i == 0) open = false;
                if (i > 0) (void)close(heard->channels[i]);
                if (i > 0) heard->channels[i] = -1;
            }
        answer_commits(heard);
    }
    worker_expect_end(&agent);
}

/* -- in workers */

static ty_worker *begin_worker(void) {
    CHECK(setenv("TRAINYARD_RUN_PATH", run_path, 1) == 0);
    return worker_self();
}

static char *path_of(const char *name) {
    char *path = NULL;
    CHECK(asprintf(&path, "%s/%s", run_path, name) > 0);
    return path;
}

static void write_file(const char *directory, const char *name, const char *text) {
    CLEANUP_FREE char *path = NULL;
    CHECK(asprintf(&path, "%s/%s", directory, name) > 0);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* A directory with one file; the caller frees its path. */
static char *make_tree(const char *name, const char *file) {
    char *directory = path_of(name);
    CHECK(mkdir(directory, 0755) == 0);
    write_file(directory, file, "abc");
    return directory;
}

static int report(ty_worker *worker, const char *path, enum ty_report_mode mode, bool give, ty_error *err) {
    ty_report_options options = {.checkpoint = path, .mode = mode, .delete_after = give};
    return ty_report_with(worker, "{}", &options, err);
}

static void give(ty_worker *worker, const char *name) {
    ty_error err = {0};
    CLEANUP_FREE char *path = make_tree(name, "weights");
    int rc = report(worker, path, TY_ASYNC, true, &err);
    if (rc != 0) (void)fprintf(stderr, "%s\n", err.message);
    CHECK(rc == 0);
    CHECK(access(path, F_OK) < 0); /* out of reach at once */
}

static bool is_latest(ty_worker *worker, unsigned number) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/checkpoint_%06u", run_path, number);
    const char *latest = ty_checkpoint_latest(worker);
    return latest != NULL && strcmp(latest, path) == 0;
}

/* -- tests */

static void body_modes(void) {
    ty_worker *worker = begin_worker();
    CLEANUP_FREE char *path = make_tree("modes", "weights");
    CHECK(report(worker, path, TY_SYNC, false, NULL) == 0);
    CHECK(is_latest(worker, 1));
    CHECK(report(worker, path, TY_NO_UPLOAD, false, NULL) == 0);
    CHECK(report(worker, "store://bucket/a b", TY_NO_UPLOAD, false, NULL) == 0);
    CHECK(is_latest(worker, 3));
    CHECK(report(worker, path, TY_ASYNC, false, NULL) == 0);
    write_file(path, "weights", "of the next step"); /* its owner's again */
    CHECK(ty_report_drain(worker, NULL) == 0);
    CHECK(is_latest(worker, 4));
    CHECK(report(worker, path, (enum ty_report_mode)7, false, NULL) == TY_EUSAGE);
}

static void test_modes(void **state) {
    (void)state;
    struct heard heard = {0};
    CLEANUP(buffer_done) struct buffer place = {0};
    serve(body_modes, &heard);
    assert_string_equal(heard.commits.data, "main 1 main 2 main 3 own 4 ");
    buffer_printf(&place, "\n\"%s/modes\"\n\"store://bucket/a b\"\n[", run_path);
    assert_true(MENTIONS(heard.lists.data, place.data));
    assert_true(MENTIONS(heard.lists.data, "\"size\": 3")); /* not that of the next step */
    heard_done(&heard);
}

enum { MANY = 12 };

static void body_places(void) {
    ty_worker *worker = begin_worker();
    ty_error err = {0};
    uint64_t number;
    CLEANUP_FREE char *path = NULL, *gone = path_of("gone");
    CHECK(mkdir(gone, 0755) == 0 && chdir(gone) == 0 && rmdir(gone) == 0);
    CHECK(report(worker, "model", TY_NO_UPLOAD, false, &err) < 0);
    CHECK(MENTIONS(err.message, "checkpoint model: "));
    CHECK(ty_report_begin(worker, "{}", NULL, &number, &path, NULL) == 0);
    CHECK(ty_report_end(worker, number, "model", &err) < 0);
    CHECK(MENTIONS(err.message, "checkpoint model: "));
}

/* A path from a directory that is gone leads nowhere: nobody waits for what this rank cannot name. */
static void test_places_without_a_path(void **state) {
    (void)state;
    CLEANUP(heard_done) struct heard heard = {0};
    serve(body_places, &heard);
    assert_int_equal(heard.begun, 1);
    assert_int_equal(heard.ended, 1);
    assert_true(MENTIONS(heard.aborts.data, "1 checkpoint model: "));
}

static void body_order(void) {
    ty_worker *worker = begin_worker();
    char name[32];
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "order-%d", i);
        give(worker, name);
    }
    CHECK(ty_report_drain(worker, NULL) == 0);
    CHECK(is_latest(worker, MANY));
}

/* The reports go on while no commit is answered, up to their limit; what comes is in their order. */
static void test_order_and_limit(void **state) {
    (void)state;
    struct heard heard = {.hold_until = UPLOADS_MAX};
    CLEANUP(buffer_done) struct buffer expected = {0};
    serve(body_order, &heard);
    for (int i = 1; i <= MANY; i++)
        buffer_printf(&expected, "own %d ", i);
    assert_string_equal(heard.commits.data, expected.data);
    assert_true(heard.most >= UPLOADS_MAX && heard.most <= UPLOADS_MAX + 1); /* the next has begun, and waits */
    heard_done(&heard);
}

static void body_exit(void) {
    give(begin_worker(), "exit");
}

static void test_exit_drains(void **state) {
    (void)state;
    struct heard heard = {0};
    serve(body_exit, &heard);
    assert_string_equal(heard.commits.data, "own 1 ");
    heard_done(&heard);
}

/* A pipe is nothing for a checkpoint: the copy fails, in the thread. */
static char *make_bad_tree(const char *name) {
    char *path = make_tree(name, "weights");
    CLEANUP_FREE char *pipe = NULL;
    CHECK(asprintf(&pipe, "%s/pipe", path) > 0);
    CHECK(mkfifo(pipe, 0600) == 0);
    return path;
}

static void body_failing_copy(void) {
    ty_worker *worker = begin_worker();
    ty_error err = {0};
    CLEANUP_FREE char *path = make_bad_tree("bad"), *again = make_bad_tree("worse");
    CHECK(report(worker, path, TY_ASYNC, true, &err) == 0);
    CHECK(ty_report_drain(worker, &err) == TY_EUSAGE);
    CHECK(MENTIONS(err.message, "pipe"));
    CHECK(access(path, F_OK) == 0); /* back where it was */
    CHECK(ty_report_drain(worker, NULL) == 0);

    CHECK(report(worker, again, TY_ASYNC, true, &err) == 0);
    err = (ty_error){0};
    while (ty_report_json(worker, "{}", NULL, &err) == 0)
        (void)usleep(1000);
    CHECK(err.code == TY_EUSAGE && MENTIONS(err.message, "pipe"));
    CHECK(ty_report_json(worker, "{}", NULL, NULL) == 0); /* told once */
    give(worker, "good");
    CHECK(ty_report_drain(worker, NULL) == 0);
    CHECK(is_latest(worker, 3));
}

static void test_failing_copy_is_told_once(void **state) {
    (void)state;
    struct heard heard = {0};
    serve(body_failing_copy, &heard);
    assert_string_equal(heard.commits.data, "own 3 ");
    assert_memory_equal(heard.aborts.data, "1 ", 2);
    assert_true(MENTIONS(heard.aborts.data, "\n2 "));
    heard_done(&heard);
}

static void body_refused(void) {
    ty_worker *worker = begin_worker();
    ty_error err = {0};
    for (int i = 0; i < 3; i++)
        give(worker, i == 0 ? "refused-0" : i == 1 ? "refused-1" : "refused-2");
    CHECK(ty_report_drain(worker, &err) == TY_EWORKER);
    CHECK(MENTIONS(err.message, "rank 5 gave up"));
    CLEANUP_FREE char *first = path_of("refused-0"), *second = path_of("refused-1");
    CHECK(access(first, F_OK) < 0);
    CHECK(access(second, F_OK) == 0);
    CHECK(is_latest(worker, 3)); /* those behind it go on */
    CHECK(setenv("TRAINYARD_CHECKPOINT_LOSS", "continue", 1) == 0);
    CHECK(report(worker, second, TY_ASYNC, true, NULL) == 0);
    CHECK(ty_report_drain(worker, NULL) == 0);
}

static void test_refused_commit(void **state) {
    (void)state;
    struct heard heard = {.refused = 2, .hold_until = 3};
    serve(body_refused, &heard);
    assert_string_equal(heard.commits.data, "own 1 own 2 own 3 own 4 ");
    heard_done(&heard);
}

static void body_written(void) {
    ty_worker *worker = begin_worker();
    CHECK(!ty_report_is_writing(NULL) && !ty_report_is_writing(worker));
    give(worker, "written-0");
    while (ty_report_is_writing(worker)) /* not until it is committed: that needs the second */
        (void)usleep(1000);
    CHECK(ty_checkpoint_latest(worker) == NULL);
    give(worker, "written-1");
    CHECK(ty_report_drain(worker, NULL) == 0);
    CHECK(!ty_report_is_writing(worker) && is_latest(worker, 2));
}

static void test_what_is_written_waits_for_others(void **state) {
    (void)state;
    struct heard heard = {.hold_until = 2};
    serve(body_written, &heard);
    assert_string_equal(heard.commits.data, "own 1 own 2 ");
    heard_done(&heard);
}

static void body_odd_names(void) {
    ty_worker *worker = begin_worker();
    static const char *const names[] = {"a b",       "-rf",         "\"quoted\"", "back\\slash",
                                        "tab\there", "line\nbreak", "\u00fc",     "%s"};
    CLEANUP_FREE char *path = make_tree(" odd \"name\"\n%d", "weights"), *kept = path_of("odd-kept");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        write_file(path, names[i], "");
    CHECK(rename(path, kept) == 0 && symlink("odd-kept", path) == 0); /* what cannot be moved is copied */
    CHECK(report(worker, path, TY_ASYNC, true, NULL) == 0);
    CHECK(access(path, F_OK) == 0);
    CHECK(unlink(path) == 0 && rename(kept, path) == 0);
    CHECK(report(worker, path, TY_ASYNC, true, NULL) == 0);
    CHECK(access(path, F_OK) < 0);
    CHECK(ty_report_drain(worker, NULL) == 0);
}

static void test_odd_names(void **state) {
    (void)state;
    struct heard heard = {0};
    serve(body_odd_names, &heard);
    assert_string_equal(heard.commits.data, "own 1 own 2 ");
    const char *second = strchr(heard.lists.data, '\n') + 1;
    for (const char *list = heard.lists.data; list != NULL; list = list == second ? NULL : second) {
        assert_true(MENTIONS(list, "\"a b\"") && MENTIONS(list, "\"-rf\"") && MENTIONS(list, "\"%s\""));
        assert_true(MENTIONS(list, "\"\\\"quoted\\\"\"") && MENTIONS(list, "\"back\\\\slash\""));
        assert_true(MENTIONS(list, "\"tab\\there\"") && MENTIONS(list, "\"line\\nbreak\"") &&
                    MENTIONS(list, "\"\u00fc\""));
    }
    heard_done(&heard);
}

static ty_worker *shared;

static void *end_one(void *number) {
    ty_error err = {0};
    uint64_t own = (uint64_t)(uintptr_t)number;
    int rc = ty_report_end(shared, own, own == 2 ? NULL : "store://elsewhere", &err);
    CHECK(rc == 0);
    return NULL;
}

/* Threads of the program's own end their uploads while its main thread reports on. */
static void body_threads(void) {
    pthread_t threads[4];
    uint64_t number;
    shared = begin_worker();
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        char *path = NULL;
        CHECK(ty_report_begin(shared, "{}", NULL, &number, &path, NULL) == 0 && number == i + 1);
        free(path);
    }
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        CHECK(pthread_create(&threads[i], NULL, end_one, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < 20; i++) {
        CHECK(ty_report_json(shared, "{}", NULL, NULL) == 0);
        (void)ty_checkpoint_latest(shared);
    }
    give(shared, "threads");
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ty_report_drain(shared, NULL) == 0);
}

static void test_threads(void **state) {
    (void)state;
    struct heard heard = {0};
    serve(body_threads, &heard);
    assert_string_equal(heard.aborts.data, "2 its upload failed\n");
    for (unsigned number = 1; number <= 5; number++) {
        char text[32];
        (void)snprintf(text, sizeof text, "own %u ", number);
        assert_int_equal(MENTIONS(heard.commits.data, text), number != 2);
    }
    heard_done(&heard);
}

#ifndef __SANITIZE_THREAD__ /* which knows no threads in a child that was forked among threads */
/* Forked at whatever the thread is about, a child has its own. */
static void body_fork(void) {
    ty_worker *worker = begin_worker();
    char name[32];
    for (int i = 0; i < 30; i++) {
        int status = -1;
        (void)snprintf(name, sizeof name, "fork-%d", i);
        give(worker, name);
        pid_t pid = fork();
        if (pid == 0) {
            (void)ty_report_drain(worker, NULL);
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    CHECK(ty_report_drain(worker, NULL) == 0);
}

static void test_forked_child_waits_for_nothing(void **state) {
    (void)state;
    struct heard heard = {0};
    serve(body_fork, &heard);
    heard_done(&heard);
}

enum { FORKS = 200 };

static void *look(void *worker) {
    for (;;) {
        (void)ty_checkpoint_latest(worker);
        pthread_testcancel();
    }
    return NULL;
}

/* Whatever other threads are in the middle of as a process forks, no lock of ours is held for ever in the
 * child. */
static void body_forks(void) {
    ty_worker *worker = begin_worker();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, look, worker) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            (void)alarm(120); /* instead of a hang */
            bool none = ty_checkpoint_latest(worker) == NULL && ty_report_drain(worker, NULL) == 0;
            _exit(none ? 0 : 1);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
}

static void body_forks_behind_an_upload(void) {
    ty_worker *worker = begin_worker();
    give(worker, "before-forks");
    CHECK(ty_report_drain(worker, NULL) == 0);
    CHECK(is_latest(worker, 1));
    ty_error err = {0};
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(120);
        CHECK(is_latest(worker, 1));
        give(worker, "in-the-child"); /* with a thread and channels of its own */
        CHECK(ty_report_drain(worker, &err) == 0);
        CHECK(is_latest(worker, 2));
        exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    give(worker, "behind-forks");
    CHECK(ty_report_drain(worker, NULL) == 0);
    CHECK(is_latest(worker, 3));
}

static void test_forks_beside_threads(void **state) {
    (void)state;
    struct heard heard = {0}, behind = {0};
    serve(body_forks, &heard);
    serve(body_forks_behind_an_upload, &behind);
    assert_string_equal(behind.commits.data, "own 1 own 2 own 3 ");
    heard_done(&heard);
    heard_done(&behind);
}
#endif

static int make_run(void **state) {
    (void)state;
    return mkdtemp(run_path) != NULL ? 0 : -1;
}

static int remove_run(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", run_path);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_places_without_a_path),
        cmocka_unit_test(test_order_and_limit),
        cmocka_unit_test(test_exit_drains),
        cmocka_unit_test(test_failing_copy_is_told_once),
        cmocka_unit_test(test_refused_commit),
        cmocka_unit_test(test_what_is_written_waits_for_others),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_threads),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(test_forked_child_waits_for_nothing),
        cmocka_unit_test(test_forks_beside_threads),
#endif
    };
    return cmocka_run_group_tests(tests, make_run, remove_run);
}
