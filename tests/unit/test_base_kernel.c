/* The calls that may be missing: with them, and with what does instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"

static pid_t fork_sleeper(void) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;)
            (void)pause();
    return pid;
}

static void await_and_kill(int held, pid_t pid) {
    int status;
    assert_false(kernel_await(held, pid, 0));
    assert_false(kernel_await(held, pid, 10));
    (void)kernel_signal(held, pid, SIGKILL);
    assert_true(kernel_await(held, pid, 10000));
    assert_true(kernel_await(held, pid, 0));
    assert_int_equal(waitpid(pid, &status, 0), pid); /* it was not reaped */
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void an_end_is_seen_with_a_pidfd(void **state) {
    (void)state;
    pid_t pid = fork_sleeper();
    int held = kernel_hold(pid);
    await_and_kill(held, pid);
    if (held >= 0) (void)close(held);
}

static void an_end_is_seen_without_a_pidfd(void **state) {
    (void)state;
    pid_t pid = fork_sleeper();
    await_and_kill(-1, pid);
    assert_true(kernel_await(-1, pid, 0)); /* it is nobody any more */
}

static void on_alarm(int number) {
    (void)number;
}

/* A program's own signal handlers end calls, and not what is waited for. */
static void a_signal_does_not_end_the_wait(void **state) {
    (void)state;
    const struct sigaction handled = {.sa_handler = on_alarm};
    const struct itimerval often = {{.tv_usec = 20000}, {.tv_usec = 20000}}, never = {{0}, {0}};
    struct sigaction before;
    int go[2];
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        (void)close(go[1]);
        (void)!read(go[0], &byte, 1);
        (void)usleep(300000);
        _exit(7);
    }
    int held = kernel_hold(pid), status = 0;
    assert_int_equal(sigaction(SIGALRM, &handled, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    assert_false(kernel_await(held, pid, 50));
    assert_int_equal(close(go[0]) | close(go[1]), 0);
    assert_true(kernel_reap(held, pid, 60000, &status));
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(WEXITSTATUS(status), 7);
    if (held >= 0) (void)close(held);
}

static void no_number_means_more_than_one_process(void **state) {
    (void)state;
    pid_t pid = fork_sleeper();
    (void)kernel_signal(-1, 0, SIGKILL);
    (void)kernel_signal(-1, -1, SIGKILL);
    (void)kernel_signal(-1, -pid, SIGKILL);
    assert_false(kernel_await(-1, pid, 10));
    await_and_kill(-1, pid);
}

static void a_sealed_file_cannot_be_written(void **state) {
    (void)state;
    char byte = 0;
    int fd = kernel_memory_file("test");
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(kernel_seal(fd), 0);
    assert_int_equal(write(fd, "y", 1), -1);
    assert_int_equal(pread(fd, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    (void)close(fd);
}

static void a_plain_file_need_not_be_sealed(void **state) {
    (void)state;
    static const char *const places[] = {"/dev/shm", "/tmp"};
    for (int i = 0; i < 2; i++) {
        int fd = open(places[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) continue;
        assert_int_equal(kernel_seal(fd), 0);
        (void)close(fd);
    }
}

static void descriptors_are_closed_from_a_number_on(void **state) {
    (void)state;
    int low = fcntl(STDIN_FILENO, F_DUPFD, 200), high = fcntl(STDIN_FILENO, F_DUPFD, 300);
    assert_true(low >= 200 && high >= 300);
    kernel_close_from(high, true);
    assert_false(fcntl(low, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(high, F_GETFD) & FD_CLOEXEC);
    kernel_close_from(high, false);
    assert_int_equal(fcntl(high, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(close(low), 0);
}

enum { NEVER_OPEN = 700 };

/* As an old kernel, or a container's filter, without close_range; and a number that is not open is asked for by
 * nobody. */
static void filter_calls(void) {
    enum { CALL = offsetof(struct seccomp_data, nr), FIRST = offsetof(struct seccomp_data, args) };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CALL),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIRST),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NEVER_OPEN, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        _exit(10);
}

static int close_without_close_range(bool on_exec) {
    static const int open_ones[] = {200, 300, 5000};
    struct rlimit limit = {8192, 8192};
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 3; i++)
        if (dup2(STDIN_FILENO, open_ones[i]) < 0) return 11;
    for (int fd = 1000; fd < 1400; fd++) /* more than one look at the list holds */
        if (dup2(STDIN_FILENO, fd) < 0) return 11;
    filter_calls();
    kernel_close_from(300, on_exec);
    if (fcntl(200, F_GETFD) != 0) return 12;
    for (int fd = 300; fd <= 5000; fd++) {
        bool was_open = fd == 300 || fd == 5000 || (fd >= 1000 && fd < 1400);
        int wanted = was_open && on_exec ? FD_CLOEXEC : -1;
        if (fd != NEVER_OPEN && fcntl(fd, F_GETFD) != wanted) return 13;
    }
    return 0;
}

static void without_close_range_those_that_are_open_are_closed(void **state) {
    (void)state;
    for (int on_exec = 0; on_exec < 2; on_exec++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) _exit(close_without_close_range(on_exec));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void *note_mask(void *context) {
    (void)pthread_sigmask(SIG_SETMASK, NULL, context);
    return NULL;
}

static void a_thread_takes_no_signals(void **state) {
    (void)state;
    pthread_t thread;
    sigset_t within, before, after;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    (void)sigemptyset(&within);
    assert_int_equal(kernel_thread(&thread, 512 << 10, note_mask, &within), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    static const int signals[] = {SIGTERM, SIGINT, SIGCHLD, SIGUSR1, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(sigismember(&within, signals[i]), 1);
        assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
    }
}

static void random_digits_are_as_many_as_asked_for(void **state) {
    (void)state;
    char one[65], other[65];
    assert_int_equal(kernel_random_digits(one, 32), 0);
    assert_int_equal(kernel_random_digits(other, 32), 0);
    assert_int_equal(strlen(one), 64);
    assert_int_equal(strspn(one, "0123456789abcdef"), 64);
    assert_string_not_equal(one, other);
    assert_int_equal(kernel_random_digits(one, 2), 0);
    assert_int_equal(strlen(one), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_is_seen_with_a_pidfd),
        cmocka_unit_test(an_end_is_seen_without_a_pidfd),
        cmocka_unit_test(a_signal_does_not_end_the_wait),
        cmocka_unit_test(no_number_means_more_than_one_process),
        cmocka_unit_test(a_thread_takes_no_signals),
        cmocka_unit_test(random_digits_are_as_many_as_asked_for),
        cmocka_unit_test(a_sealed_file_cannot_be_written),
        cmocka_unit_test(a_plain_file_need_not_be_sealed),
        cmocka_unit_test(descriptors_are_closed_from_a_number_on),
        cmocka_unit_test(without_close_range_those_that_are_open_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
