/* Who has a run: one controller at a time, whatever others hold and whatever the file system knows of locks;
 * the dead, and children of the dead, hold nobody; who is refused learns by whom. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/process.h"
#include "controller/run_lock.h"

static char run_path[64];
static int locks_fail; /* with this errno; 0: they work */
static bool shared;    /* other machines mount the file system */

int __real_fcntl64(int fd, int call, ...);
int __wrap_fcntl64(int fd, int call, ...);
bool __wrap_file_is_local(int fd);

int __wrap_fcntl64(int fd, int call, ...) {
    va_list arguments;
    va_start(arguments, call);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (locks_fail == 0 || (call != F_OFD_SETLK && call != F_OFD_GETLK))
        return __real_fcntl64(fd, call, argument);
    errno = locks_fail;
    return -1;
}

bool __wrap_file_is_local(int fd) {
    (void)fd;
    return !shared;
}

static const char *lock_path(void) {
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/" LOCK_NAME, run_path);
    return path;
}

static int set_up(void **state) {
    (void)state;
    locks_fail = 0;
    shared = false;
    strcpy(run_path, "/tmp/test_run_lock.XXXXXX");
    return mkdtemp(run_path) == NULL ? -1 : chmod(run_path, 0755);
}

static int tear_down(void **state) {
    (void)state;
    (void)unlink(lock_path());
    return rmdir(run_path); /* nothing else is left there */
}

static struct run_lock *taken(void) {
    struct run_lock *lock = NULL;
    ty_error err = {0};
    if (run_lock_take(run_path, &lock, &err) < 0) fail_msg("%s", err.message);
    assert_true(run_lock_is_held(run_path) || locks_fail != 0 || !shared);
    return lock;
}

static void expect_refused(int code, const char *format, ...) {
    struct run_lock *lock = NULL;
    ty_error err = {0};
    char words[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    assert_int_equal(run_lock_take(run_path, &lock, &err), code);
    assert_null(lock);
    if (strstr(err.message, words) == NULL || strchr(err.message, '\n') != NULL) fail_msg("%s", err.message);
}

static void expect_free(void) {
    assert_false(run_lock_is_held(run_path));
    run_lock_release(taken(), false);
    assert_int_equal(access(lock_path(), F_OK), -1);
}

static void wait_for(pid_t child, int expected) {
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, expected);
}

/* A process that takes the run and is killed once it has `then` done. */
static pid_t kill_holder(void (*then)(void)) {
    pid_t child = fork();
    if (child == 0) {
        (void)taken();
        if (then != NULL) then();
        (void)raise(SIGKILL);
    }
    wait_for(child, SIGKILL);
    return child;
}

static void one_at_a_time(void **state) {
    (void)state;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    static const int errors[] = {0, ENOSYS, ENOLCK, EOPNOTSUPP, EINVAL};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        locks_fail = errors[i];
        struct run_lock *lock = taken();
        assert_true(run_lock_is_held(run_path));
        expect_refused(TY_EEXISTS, "goes on: its controller is process %d on %s, since 20", (int)getpid(),
                       host);
        run_lock_release(lock, false);
        expect_free();
        (void)kill_holder(NULL);
        expect_free();
    }
}

/* All that another user can do: lock the directory, in which that user may look. */
static void what_others_hold_keeps_nobody(void **state) {
    (void)state;
    int gate[2];
    char byte;
    assert_int_equal(pipe(gate), 0);
    (void)kill_holder(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) < 0) _exit(1);
        int fd = open(run_path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX) < 0) _exit(2);
        if (getuid() == 65534 && (open(lock_path(), O_RDONLY) >= 0 || errno != EACCES)) _exit(3);
        if (write(gate[1], "", 1) != 1) _exit(4);
        (void)pause();
    }
    assert_int_equal(read(gate[0], &byte, 1), 1);
    expect_free();
    assert_int_equal(kill(child, SIGKILL), 0);
    wait_for(child, SIGKILL);
    (void)close(gate[0]);
    (void)close(gate[1]);
}

/* Where locks are seen by everybody nothing is written while a run goes on, so that no thread hangs with the
 * storage. */
static void a_local_run_is_held_without_a_write(void **state) {
    (void)state;
    struct run_lock *lock = taken();
    struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(futimens(run_lock_fd(lock), long_ago), 0);
    pid_t other = fork();
    if (other == 0) _exit(geteuid() == 0 && setuid(65534) < 0 ? 1 : !run_lock_is_held(run_path));
    wait_for(other, 0);
    run_lock_release(lock, true);
    assert_int_equal(access(lock_path(), F_OK), 0);
    assert_false(run_lock_is_held(run_path));
    expect_free();
}

static int child_gate[2];

static void leave_a_child(void) {
    pid_t child = fork();
    if (child == 0) {
        child = getpid();
        if (write(child_gate[1], &child, sizeof child) < 0) _exit(1);
        (void)pause();
    }
}

static void a_child_of_the_dead_holds_nobody(void **state) {
    (void)state;
    pid_t left = 0;
    assert_int_equal(pipe(child_gate), 0);
    (void)kill_holder(leave_a_child);
    assert_int_equal(read(child_gate[0], &left, sizeof left), sizeof left);
    bool held = run_lock_is_held(run_path);
    assert_int_equal(kill(left, SIGKILL), 0);
    assert_false(held);
    expect_free();
    (void)close(child_gate[0]);
    (void)close(child_gate[1]);
}

/* As a thread does that storage hangs on. */
static void a_copy_of_the_descriptor_holds_on(void **state) {
    (void)state;
    struct run_lock *lock = taken();
    int copy = fcntl(run_lock_fd(lock), F_DUPFD_CLOEXEC, 0);
    assert_true(copy >= 0);
    run_lock_release(lock, false);
    assert_true(run_lock_is_held(run_path));
    expect_refused(TY_EEXISTS, "process %d", (int)getpid());
    assert_int_equal(close(copy), 0);
    expect_free();
}

static void *stay(void *context) {
    (void)context;
    (void)pause();
    return NULL;
}

/* As of a program that calls pthread_exit in main while another thread drives its run. */
static void one_whose_main_thread_has_ended_lives(void **state) {
    (void)state;
    int ready[2];
    char byte;
    struct process process = {.state = 'R'};
    assert_int_equal(pipe(ready), 0);
    pid_t driver = fork();
    if (driver == 0) {
        pthread_t thread;
        (void)taken();
        if (pthread_create(&thread, NULL, stay, NULL) != 0 || write(ready[1], "x", 1) != 1) _exit(1);
        (void)syscall(SYS_exit, 0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    while (process.state != 'Z')
        assert_true(process_read(driver, &process));
    assert_true(run_lock_is_driven(run_path));
    assert_int_equal(kill(driver, SIGKILL), 0);
    assert_int_equal(waitpid(driver, NULL, 0), driver);
    assert_int_equal(close(ready[0]) | close(ready[1]), 0);
    expect_free();
}

/* One that left its open file to a process which was made without a fork. */
static void the_dead_are_told_to_be_dead(void **state) {
    (void)state;
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    wait_for(dead, 0);
    struct run_lock *lock = taken();
    int fd = run_lock_fd(lock);
    char text[1024] = "", changed[1100], own[32];
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    (void)snprintf(own, sizeof own, "\"pid\":%d,", (int)getpid());
    char *at = strstr(text, own);
    assert_non_null(at);
    int size = snprintf(changed, sizeof changed, "%.*s\"pid\":%d,%s", (int)(at - text), text, (int)dead,
                        at + strlen(own));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, changed, (size_t)size, 0), size);
    expect_refused(TY_EEXISTS, "its controller, process %d on ", (int)dead);
    expect_refused(TY_EEXISTS, "is dead, but a process that it left has %s open", lock_path());

    /* A process that is on its way out is waited for. */
    pid_t leaving = fork();
    if (leaving == 0) {
        const struct timespec moment = {.tv_nsec = 300000000};
        (void)nanosleep(&moment, NULL);
        _exit(0);
    }
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(dup3(nothing, fd, O_CLOEXEC), fd);
    assert_int_equal(close(nothing), 0);
    struct run_lock *next = taken();
    wait_for(leaving, 0);
    run_lock_release(lock, true);
    run_lock_release(next, false);
}

/* The holder as another machine wrote it, who touched the file so many seconds ago. */
static void write_elsewhere(int seconds_ago) {
    static const char text[] =
        "{\"pid\":7,\"start\":8,\"boot\":\"b\",\"processes\":\"p\",\"host\":\"far\",\"since\":1700000000.0}";
    int fd = open(lock_path(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    struct timespec times[2];
    (void)clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds_ago;
    times[1] = times[0];
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
}

static void a_holder_elsewhere_is_heard_of(void **state) {
    (void)state;
    static const int errors[] = {0, ENOSYS}; /* 0: each machine has locks of its own */
    shared = true;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        locks_fail = errors[i];
        write_elsewhere(3);
        assert_true(run_lock_is_held(run_path));
        expect_refused(TY_EEXISTS, "goes on: its controller is process 7 on far, since 2023-11-1");
        expect_refused(TY_EEXISTS,
                       "s ago; stop that one there; one that was not heard of for 30 s is taken for dead");
        write_elsewhere(40);
        expect_free();
    }
    locks_fail = 0;
    shared =
        false; /* the machine's own disk, in a container or behind a new start of the machine: its lock tells */
    write_elsewhere(0);
    expect_free();
}

static void a_file_of_another_user_is_told(void **state) {
    (void)state;
    if (geteuid() != 0) return;
    int fd = open(lock_path(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(fchown(fd, 65534, 65534), 0);
    assert_int_equal(close(fd), 0);
    expect_refused(TY_EUSAGE, "%s is no file of the owner of the run (uid 65534): remove it", lock_path());
    assert_int_equal(unlink(lock_path()), 0);
    assert_int_equal(symlink("/etc/passwd", lock_path()), 0);
    expect_refused(TY_EUSAGE, "%s", lock_path());
    assert_int_equal(unlink(lock_path()), 0);
    assert_int_equal(mkfifo(lock_path(), 0600), 0);
    expect_refused(TY_EUSAGE, "%s", lock_path());
}

/* Where no lock is seen the holder finds out that another one has taken the run. */
static void who_lost_it_is_told(void **state) {
    (void)state;
    char another[160];
    (void)snprintf(another, sizeof another, "%s.another", lock_path());
    locks_fail = ENOLCK;
    struct run_lock *lock = taken();
    assert_int_equal(close(open(another, O_CREAT | O_WRONLY, 0600)), 0);
    assert_false(run_lock_is_lost(lock));
    assert_int_equal(rename(another, lock_path()), 0);
    for (int i = 0; i < 6000 && !run_lock_is_lost(lock); i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_true(run_lock_is_lost(lock));
    run_lock_release(lock, false);
    assert_int_equal(access(lock_path(), F_OK), 0);
}

/* Whoever took it from another machine, and has ended since, as a holder sees that stood still: where there are
 * no locks, and where each machine has its own. */
static void who_stood_still_sees_that_it_was_taken(void **state) {
    (void)state;
    static const int errors[] = {0, ENOLCK};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        ty_error err = {0};
        locks_fail = 0;
        shared = false;
        struct run_lock *still = taken();
        int fd = run_lock_fd(still);
        struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        assert_int_equal(__real_fcntl64(fd, F_OFD_SETLK, &none), 0);
        write_elsewhere(40);
        shared = true;
        locks_fail = errors[i];
        assert_int_equal(run_lock_check(fd, run_path, &err), 0);
        struct run_lock *other = taken();
        assert_int_equal(run_lock_check(fd, run_path, &err), TY_EEXISTS);
        assert_non_null(strstr(err.message, "another controller has taken the run over"));
        assert_int_equal(run_lock_check(run_lock_fd(other), run_path, &err), 0);
        run_lock_release(other, false);
        assert_int_equal(access(lock_path(), F_OK), -1);
        assert_int_equal(run_lock_check(fd, run_path, &err), TY_EEXISTS);
        shared = false; /* there nobody takes it, and a file that is gone was removed by hand */
        assert_int_equal(run_lock_check(fd, run_path, &err), 0);
        run_lock_release(still, true);
    }
}

/* From run to run, and with one that is renamed; never over the file of another holder. */
static void a_lock_goes_on(void **state) {
    (void)state;
    char first[64], second[96];
    strcpy(first, run_path);
    (void)snprintf(second, sizeof second, "%s.second", first);
    assert_int_equal(mkdir(second, 0755), 0);
    struct run_lock *lock = taken();
    assert_int_equal(run_lock_move(lock, second), 0);
    expect_free();
    assert_true(run_lock_is_held(second));
    struct run_lock *other = taken();
    assert_int_equal(run_lock_move(lock, first), -EEXIST);
    assert_true(run_lock_is_held(first) && run_lock_is_held(second));
    run_lock_release(other, false);
    strcat(run_path, ".renamed");
    assert_int_equal(rename(second, run_path), 0);
    assert_int_equal(run_lock_follow(lock, run_path), 0);
    expect_refused(TY_EEXISTS, "process %d", getpid());
    assert_int_equal(run_lock_move(lock, second), -ENOENT);
    run_lock_release(lock, false);
    assert_int_equal(rmdir(run_path), 0); /* the file is gone from there */
    strcpy(run_path, first);
}

/* Many want it at the same moment, where a dead one had it; one gets it. */
static void one_of_many_has_it(void **state) {
    (void)state;
    static const int errors[] = {0, ENOSYS};
    enum { MANY = 8 };
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        int gate[2], wins[2];
        locks_fail = errors[i];
        (void)kill_holder(NULL);
        assert_int_equal(pipe(gate), 0);
        assert_int_equal(pipe(wins), 0);
        for (int k = 0; k < MANY; k++) {
            if (fork() != 0) continue;
            char byte;
            struct run_lock *lock = NULL;
            (void)close(gate[1]);
            (void)!read(gate[0], &byte, 1);
            char won = run_lock_take(run_path, &lock, NULL) == 0 ? 'w' : 'l';
            (void)!write(wins[1], &won, 1);
            (void)pause(); /* who has it keeps it */
        }
        (void)close(gate[0]);
        (void)close(gate[1]);
        int won = 0;
        for (int k = 0; k < MANY; k++) {
            char byte = 0;
            assert_int_equal(read(wins[0], &byte, 1), 1);
            won += byte == 'w';
        }
        assert_int_equal(won, 1);
        assert_true(run_lock_is_held(run_path));
        (void)signal(SIGTERM, SIG_IGN);
        (void)kill(0, SIGTERM);
        (void)signal(SIGTERM, SIG_DFL);
        while (wait(NULL) > 0)
            continue;
        (void)close(wins[0]);
        (void)close(wins[1]);
        expect_free();
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    (void)setpgid(0, 0); /* what is told to end is ours */
    const struct CMUnitTest tests[] = {
        TEST(one_at_a_time),
        TEST(what_others_hold_keeps_nobody),
        TEST(a_local_run_is_held_without_a_write),
        TEST(a_child_of_the_dead_holds_nobody),
        TEST(a_copy_of_the_descriptor_holds_on),
        TEST(one_whose_main_thread_has_ended_lives),
        TEST(the_dead_are_told_to_be_dead),
        TEST(a_holder_elsewhere_is_heard_of),
        TEST(a_file_of_another_user_is_told),
        TEST(who_lost_it_is_told),
        TEST(who_stood_still_sees_that_it_was_taken),
        TEST(a_lock_goes_on),
        TEST(one_of_many_has_it),
    };
    return cmocka_run_group_tests_name("run_lock", tests, NULL, NULL);
}
