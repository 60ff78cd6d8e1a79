/* The thread that works on a run's storage (src/base/storage.c). It is also built with ThreadSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/storage.h"

static const nanoseconds LONG = 60 * NS_PER_S, SHORT = NS_PER_S / 4;

static pthread_t loop_thread;
static char order[256]; /* numbers of the jobs of which the loop has heard */
static atomic_int worked, released;
static atomic_bool hung; /* a job that hangs has begun */
static int gate[2];      /* a job that hangs reads from here */
static char logged[1024];
static bool apart, series; /* how the jobs are done */

struct numbered {
    struct storage_job job;
    struct storage *storage;
    int number;
    bool again; /* what follows is another job */
};

static void note(struct storage_job *job) {
    (void)job;
    assert_false(pthread_equal(pthread_self(), loop_thread));
    worked++;
}

static void hang(struct storage_job *job) {
    char byte;
    (void)job;
    hung = true;
    (void)!read(gate[0], &byte, 1);
    worked++;
}

static void release(struct storage_job *job) {
    free(job);
    released++;
}

static void post(struct storage *storage, int number, void (*work)(struct storage_job *), bool again);

static void heard(struct storage_job *job) {
    const struct numbered *numbered = (const struct numbered *)job;
    size_t size = strlen(order);
    assert_true(pthread_equal(pthread_self(), loop_thread));
    (void)snprintf(order + size, sizeof order - size, "%d ", numbered->number);
    if (numbered->again) post(numbered->storage, numbered->number + 100, note, false);
}

static struct storage_job *make(struct storage *storage, int number, void (*work)(struct storage_job *),
                                bool again) {
    struct numbered *made = malloc(sizeof *made);
    assert_non_null(made);
    *made = (struct numbered){{.work = work,
                               .done = heard,
                               .release = release,
                               .what = "removing",
                               .path = "/runs/r/old",
                               .apart = apart,
                               .series = series},
                              storage,
                              number,
                              again};
    return &made->job;
}

static void post(struct storage *storage, int number, void (*work)(struct storage_job *), bool again) {
    hung = false;
    storage_post(storage, make(storage, number, work, again));
    while (work == hang && !hung) /* the thread may come late to it */
        (void)usleep(1000);
}

static void keep_log(void *context, enum log_level level, const char *subsystem, const char *text) {
    (void)context, (void)level, (void)subsystem;
    size_t size = strlen(logged);
    (void)snprintf(logged + size, sizeof logged - size, "%s\n", text);
}

static int threads(void) {
    DIR *directory = opendir("/proc/self/task");
    int n = 0;
    while (readdir(directory) != NULL)
        n++;
    (void)closedir(directory);
    return n;
}

static int set_up(void **state) {
    ty_error err = {0};
    loop_thread = pthread_self();
    order[0] = logged[0] = '\0';
    worked = released = 0;
    log_set_sink(keep_log, NULL);
    return pipe(gate) < 0 ? -1 : storage_open(-1, (struct storage **)state, &err);
}

static int set_up_apart(void **state) {
    apart = true;
    return set_up(state);
}

static int set_up_series(void **state) {
    series = true;
    return set_up_apart(state);
}

static int tear_down(void **state) {
    (void)state;
    log_set_sink(NULL, NULL);
    apart = series = false;
    return close(gate[0]) | close(gate[1]);
}

static void test_order(void **state) {
    struct storage *storage = *state;
    int before = threads();
    assert_false(storage_busy(storage));
    for (int i = 0; i < 40; i++)
        post(storage, i, note, i == 3);
    assert_true(storage_busy(storage));
    assert_true(storage_wait(storage, LONG));
    assert_false(storage_busy(storage));
    assert_memory_equal(order, "0 1 2 3 4 ", 10);
    assert_string_equal(order + strlen(order) - strlen("38 39 103 "),
                        "38 39 103 "); /* what follows is behind it */
    assert_int_equal(released, 41);
    storage_close(storage, LONG);
    while (threads() > before) /* one that was joined may be listed for a moment */
        (void)usleep(1000);
    assert_string_equal(logged, "");
}

static void test_descriptor_tells(void **state) {
    struct storage *storage = *state;
    struct pollfd fd = {.fd = storage_fd(storage), .events = POLLIN};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll(&fd, 1, 0), 0);
        post(storage, i, note, false);
        assert_int_equal(poll(&fd, 1, 60000), 1);
        storage_take(storage);
    }
    assert_string_equal(order, "0 1 2 ");
    storage_close(storage, LONG);
}

static void test_nothing_posted_starts_no_thread(void **state) {
    int before = threads();
    assert_true(storage_wait(*state, LONG));
    assert_true(threads() <= before); /* one of the test before may end only now */
    storage_close(*state, LONG);
    storage_close(NULL, LONG);
}

static void test_hang_is_told_once(void **state) {
    struct storage *storage = *state;
    post(storage, 1, hang, false);
    post(storage, 2, note, false);
    storage_tell_slow(storage, LONG);
    assert_string_equal(logged, "");
    assert_false(storage_hangs(storage));
    assert_false(storage_wait(storage, SHORT));
    assert_true(storage_hangs(storage));
    assert_non_null(strstr(logged, "the storage hangs: removing /runs/r/old has not returned for "));
    size_t size = strlen(logged);
    assert_false(storage_wait(storage, LONG)); /* nobody waits for that one again */
    storage_tell_slow(storage, 0);
    assert_int_equal(strlen(logged), size);
    assert_string_equal(order, "");
    assert_int_equal(write(gate[1], "x", 1), 1); /* it comes back all the same */
    struct pollfd fd = {.fd = storage_fd(storage), .events = POLLIN};
    while (strcmp(order, "1 2 ") != 0) {
        assert_int_equal(poll(&fd, 1, 60000), 1);
        storage_take(storage);
    }
    post(storage, 3, note, false);
    assert_false(storage_hangs(storage));
    assert_true(storage_wait(storage, LONG));
    storage_close(storage, LONG);
    assert_int_equal(released, 3);
}

/* Whoever cannot go on without it waits once. */
static void test_one_that_is_waited_for(void **state) {
    struct storage *storage = *state;
    post(storage, 1, note, false);
    assert_true(storage_do(storage, make(storage, 2, note, false), LONG));
    assert_int_equal(worked, 2);
    assert_string_equal(order, ""); /* the loop hears of it as of any other */
    storage_take(storage);
    assert_string_equal(order, "1 2 ");
    assert_false(storage_do(storage, make(storage, 3, hang, false), SHORT));
    assert_non_null(strstr(logged, "the storage hangs: removing /runs/r/old has not returned for "));
    assert_int_equal(released, 2);
    assert_false(storage_do(storage, make(storage, 4, note, false), LONG)); /* it is known by now */
    assert_int_equal(released, 3);
    assert_int_equal(write(gate[1], "x", 1), 1);
    assert_int_equal(poll(&(struct pollfd){.fd = storage_fd(storage), .events = POLLIN}, 1, 60000), 1);
    storage_take(storage);
    assert_string_equal(order, "1 2 3 ");
    assert_true(storage_do(storage, make(storage, 5, note, false), LONG));
    assert_true(storage_wait(storage, LONG));
}

/* The thread that was left frees all when it comes back, and does nothing more. */
static void test_close_leaves_what_hangs(void **state) {
    post(*state, 1, hang, false);
    post(*state, 2, note, false);
    storage_close(*state, SHORT);
    assert_non_null(strstr(logged, "removing /runs/r/old"));
    assert_int_equal(released, 0);
    assert_int_equal(write(gate[1], "x", 1), 1);
    while (released < 2)
        (void)usleep(1000);
    assert_int_equal(worked, 1);
    assert_string_equal(order, "");
}

/* What waits counts as what hangs, and is done when the storage answers again. */
static void test_nothing_begins_while_it_is_held(void **state) {
    struct storage *storage = *state;
    storage_hold(storage, true);
    assert_int_equal(storage_age(storage), -1);
    post(storage, 1, note, false);
    post(storage, 2, note, false);
    assert_true(storage_age(storage) >= 0);
    assert_false(storage_wait(storage, LONG)); /* at once: nobody would let it go on meanwhile */
    assert_true(storage_hangs(storage) && storage_slow(storage));
    assert_non_null(strstr(logged, "the storage hangs: removing /runs/r/old has not returned for "));
    assert_int_equal(worked, 0);
    storage_hold(storage, false);
    struct pollfd fd = {.fd = storage_fd(storage), .events = POLLIN};
    while (strcmp(order, "1 2 ") != 0) {
        assert_int_equal(poll(&fd, 1, 60000), 1);
        storage_take(storage);
    }
    storage_close(storage, LONG);
}

/* The program closed its descriptor, and has a file of its own under that number. */
static void test_nothing_begins_without_its_descriptors(void **state) {
    int others = threads(), number = storage_fd(*state);
    FILE *own = tmpfile();
    assert_int_equal(dup2(fileno(own), number), number);
    post(*state, 1, note, false);
    assert_false(storage_wait(*state, SHORT));
    storage_close(*state, SHORT);
    while (threads() > others)
        (void)usleep(1000);
    assert_int_equal(worked, 0);
    assert_int_equal(lseek(number, 0, SEEK_END), 0); /* it is open, and nothing was written to it */
    (void)fclose(own);
}

/* The program does so while a job is under way. */
static void test_the_end_of_a_job_is_not_told_to_another_file(void **state) {
    int others = threads(), number = storage_fd(*state);
    FILE *own = tmpfile();
    post(*state, 1, hang, false);
    assert_false(storage_wait(*state, SHORT));
    assert_int_equal(dup2(fileno(own), number), number);
    assert_int_equal(write(gate[1], "x", 1), 1);
    storage_close(*state, LONG);
    while (threads() > others)
        (void)usleep(1000);
    assert_int_equal(worked, 1);
    assert_int_equal(lseek(number, 0, SEEK_END), 0);
    (void)fclose(own);
}

static void test_what_is_held_in_the_end_never_begins(void **state) {
    int others = threads();
    storage_hold(*state, true);
    post(*state, 1, note, false);
    storage_close(*state, LONG);
    while (threads() > others)
        (void)usleep(1000);
    assert_int_equal(worked, 0);
    assert_int_equal(released, 0); /* to let go of it may be a call as well */
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
struct mapped {
    struct storage_job job;
    volatile char *bytes;
    bool cut, read;
};

static void read_mapped(struct storage_job *job) {
    struct mapped *mapped = (struct mapped *)job;
    mapped->read = mapped->bytes[0] == 0;
}

static void note_cut(struct storage_job *job) {
    ((struct mapped *)job)->cut = true;
}

static void keep(struct storage_job *job) {
    (void)job;
}

/* It does not end this process, is told to who posted it alone, and others go on. */
static void test_a_file_is_cut_short_under_its_mapping(void **state) {
    FILE *file = tmpfile();
    assert_true(file != NULL && ftruncate(fileno(file), 4096) == 0);
    struct mapped mapped = {{.work = read_mapped,
                             .cut = note_cut,
                             .release = keep,
                             .what = "x",
                             .path = "y",
                             .apart = true,
                             .series = series},
                            mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0),
                            false,
                            false};
    assert_true(mapped.bytes != MAP_FAILED);
    storage_post(*state, &mapped.job);
    assert_true(storage_wait(*state, LONG));
    assert_true(mapped.read && !mapped.cut);
    mapped.read = false;
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    storage_post(*state, &mapped.job);
    post(*state, 1, note, false);
    assert_true(storage_wait(*state, LONG));
    assert_true(mapped.cut && !mapped.read);
    assert_string_equal(order, "1 ");
    mapped.cut = false;
    storage_hold(*state, true);
    post(*state, 2, note, false);
    storage_post(*state, &mapped.job); /* in a series, behind one that is over by then */
    post(*state, 3, note, false);
    storage_hold(*state, false);
    assert_true(storage_wait(*state, LONG));
    assert_true(mapped.cut && !mapped.read);
    assert_string_equal(order, "1 2 3 ");
    storage_close(*state, LONG);
    (void)munmap((void *)mapped.bytes, 4096);
    (void)fclose(file);
}
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static pid_t worker;
static int workers;

static void note_worker(struct storage_job *job) {
    (void)job;
    workers += worker != getpid();
    worker = getpid();
}

/* What comes behind it is not. */
static void test_a_series_is_the_work_of_one_process(void **state) {
    struct storage *storage = *state;
    workers = 0;
    storage_hold(storage, true);
    for (int i = 0; i < 20; i++)
        post(storage, i, note_worker, false);
    series = false;
    post(storage, 20, note_worker, false);
    storage_hold(storage, false);
    while (strstr(order, "20 ") == NULL) {
        assert_int_equal(poll(&(struct pollfd){.fd = storage_fd(storage), .events = POLLIN}, 1, 60000), 1);
        storage_take(storage);
    }
    assert_int_equal(workers, 2);
    assert_int_not_equal(worker, getpid());
    assert_memory_equal(order, "0 1 2 3 ", 8);
    storage_close(storage, LONG);
}
#endif

static void *do_nothing(void *context) {
    return context;
}

/* Whoever watches threads starts one of his own with the first. */
static int begin_threads(void **state) {
    pthread_t thread;
    (void)state;
    return pthread_create(&thread, NULL, do_nothing, NULL) | pthread_join(thread, NULL);
}

#define TEST(name)                                               \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down),    \
        {#name "_apart", name, set_up_apart, tear_down, NULL}, { \
#name "_series", name, set_up_series, tear_down, NULL    \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_order),
        TEST(test_descriptor_tells),
        TEST(test_nothing_posted_starts_no_thread),
        TEST(test_hang_is_told_once),
        TEST(test_one_that_is_waited_for),
        TEST(test_close_leaves_what_hangs),
        TEST(test_nothing_begins_while_it_is_held),
        TEST(test_what_is_held_in_the_end_never_begins),
        TEST(test_nothing_begins_without_its_descriptors),
        TEST(test_the_end_of_a_job_is_not_told_to_another_file),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test_setup_teardown(test_a_file_is_cut_short_under_its_mapping, set_up_apart, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_is_cut_short_under_its_mapping, set_up_series, tear_down),
        cmocka_unit_test_setup_teardown(test_a_series_is_the_work_of_one_process, set_up_series, tear_down),
#endif
    };
    return cmocka_run_group_tests(tests, begin_threads, NULL);
}
