/* Processes as /proc tells of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

static void a_stat_is_counted_from_behind_the_name(void **state) {
    (void)state;
    struct process process;
    const char *rest = " S 7 8 9 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 123456789012 9 9";
    const char *names[] = {"(sh)", "(a b)", "()) Z 1 1 1)", "(\n)", "()"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[256] = "42 ";
        strcat(strcat(text, names[i]), rest);
        assert_true(process_parse(text, &process));
        assert_true(process.pid == 42 && process.state == 'S' && process.ending);
        assert_true(process.parent == 7 && process.group == 8 && process.session == 9);
        assert_true(process.started == 123456789012 && process.ticks == 5 + 6 + 7 + 8);
    }
}

static void a_stat_that_is_not_whole_tells_nothing(void **state) {
    (void)state;
    struct process process;
    const char *texts[] = {"", "42", "42 (sh", "42 (sh)", "42 (sh) S 7 8", "42 (sh) S x 8 9 0 -1 4 1 2 3"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(&process, 1, sizeof process);
        assert_false(process_parse(texts[i], &process));
        assert_true(process.pid == 0 && process.parent == 0 && process.state == 0 && process.started == 0);
    }
}

static void this_process_and_its_children_are_told(void **state) {
    (void)state;
    struct process me, child;
    pid_t pids[2] = {0};
    uint64_t before = process_clock();
    assert_false(process_has_children());
    assert_int_equal(process_children(getpid(), pids, 2), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_NAME, "a) R 1 (b");
        for (;;)
            (void)pause();
    }
    assert_true(process_has_children());
    assert_int_equal(process_children(getpid(), pids, 2), 1);
    assert_int_equal(pids[0], pid);
    assert_int_equal(process_children(getpid(), pids, 0), 0);
    assert_true(process_read(getpid(), &me) && process_read(pid, &child));
    assert_true(me.pid == getpid() && me.parent == getppid() && me.group == getpgrp() &&
                me.session == getsid(0));
    assert_true(child.pid == pid && child.parent == getpid() && !child.ending);
    assert_true(child.started >= before && child.started <= process_clock() && me.started <= child.started);
    kill(pid, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(process_read(pid, &child));
    assert_int_equal(child.state, 'Z');
    assert_true(child.ending);
    assert_true(process_has_children()); /* ended, not reaped */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(process_read(pid, &child));
    assert_false(process_has_children());
}

static void the_walk_meets_this_process_once(void **state) {
    (void)state;
    int met = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (pid_t pid; (pid = process_next(proc)) != 0;)
        met += pid == getpid();
    closedir(proc);
    assert_int_equal(met, 1);
}

static void entries_of_the_environment_are_whole(void **state) {
    (void)state;
    assert_true(process_carries(getpid(), "PROCESS_TEST=token"));
    assert_false(process_carries(getpid(), "PROCESS_TEST=toke"));
    assert_false(process_carries(getpid(), "PROCESS_TEST=token2"));
    assert_false(process_carries(getpid(), "ROCESS_TEST=token"));
    assert_false(process_carries(getpid(), ""));
    assert_false(process_carries(INT32_MAX, "PROCESS_TEST=token"));
}

/* A child that waits for its input's end, with words that no terminal shows. */
static void words_of_a_command_line_are_one_line(void **state) {
    (void)state;
    int input[2];
    assert_int_equal(pipe(input), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(input[0], STDIN_FILENO);
        (void)close(input[1]);
        (void)execl("/bin/cat", "cat", "-", "a\nb\033[1m", "", NULL);
        _exit(127);
    }
    struct buffer words = {0};
    for (int i = 0; i < 60000 && (words.size < 3 || memcmp(words.data, "cat", 3) != 0); i++) {
        buffer_done(&words);
        process_words(child, &words);
        (void)usleep(1000);
    }
    (void)close(input[0]);
    (void)close(input[1]);
    assert_int_equal(words.size, strlen("cat - a?b?[1m"));
    assert_memory_equal(words.data, "cat - a?b?[1m", words.size);
    buffer_done(&words);
    assert_int_equal(waitpid(child, NULL, 0), child);
    process_words(INT32_MAX, &words);
    assert_int_equal(words.size, 0);
    buffer_done(&words);
}

static void ignore_number(int number) {
    (void)number;
}

static void handlers_of_signals_are_seen(void **state) {
    (void)state;
    const int numbers[] = {SIGHUP, SIGUSR1, SIGRTMIN, SIGRTMAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)signal(numbers[i], SIG_DFL); /* below nohup SIGHUP comes in ignored */
        assert_false(process_catches(getpid(), numbers[i]) || process_ignores(getpid(), numbers[i]));
        (void)signal(numbers[i], SIG_IGN);
        assert_true(!process_catches(getpid(), numbers[i]) && process_ignores(getpid(), numbers[i]));
        (void)signal(numbers[i], ignore_number);
        assert_true(process_catches(getpid(), numbers[i]) && !process_ignores(getpid(), numbers[i]));
        (void)signal(numbers[i], SIG_DFL);
    }
}

/* As where a directory service has thousands of them. */
static void handlers_of_a_user_in_many_groups_are_seen(void **state) {
    enum { GROUPS = 4000 };
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        gid_t groups[GROUPS];
        for (gid_t i = 0; i < GROUPS; i++)
            groups[i] = 2000000000 + i;
        if (setgroups(GROUPS, groups) < 0) _exit(2);
        (void)signal(SIGUSR1, ignore_number);
        (void)signal(SIGUSR2, SIG_IGN);
        _exit(!process_catches(getpid(), SIGUSR1) || !process_ignores(getpid(), SIGUSR2));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 2) skip(); /* for the superuser alone */
    assert_int_equal(status, 0);
}

static void groups_are_found_by_their_controller(void **state) {
    (void)state;
    char group[32];
    const char *text = "12:cpu,cpuacct:/a\n4:memory:/b:c\n1:name=systemd:/d\n0::/e\n";
    assert_true(process_cgroup(text, "cpu", group, sizeof group));
    assert_string_equal(group, "/a");
    assert_true(process_cgroup(text, "cpuacct", group, sizeof group));
    assert_string_equal(group, "/a");
    assert_true(process_cgroup(text, "memory", group, sizeof group));
    assert_string_equal(group, "/b:c");
    assert_true(process_cgroup(text, "", group, sizeof group));
    assert_string_equal(group, "/e");
    assert_false(process_cgroup(text, "acct", group, sizeof group));
    assert_string_equal(group, "/");
    assert_false(process_cgroup("", "", group, sizeof group));
    assert_false(process_cgroup("0:\n", "", group, sizeof group));
}

int main(int argc, char **argv) {
    (void)argc;
    if (getenv("PROCESS_TEST") == NULL) { /* /proc tells the environment that a process was executed with */
        (void)setenv("PROCESS_TEST", "token", 1);
        (void)execv("/proc/self/exe", argv);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stat_is_counted_from_behind_the_name),
        cmocka_unit_test(a_stat_that_is_not_whole_tells_nothing),
        cmocka_unit_test(this_process_and_its_children_are_told),
        cmocka_unit_test(the_walk_meets_this_process_once),
        cmocka_unit_test(entries_of_the_environment_are_whole),
        cmocka_unit_test(words_of_a_command_line_are_one_line),
        cmocka_unit_test(handlers_of_signals_are_seen),
        cmocka_unit_test(handlers_of_a_user_in_many_groups_are_seen),
        cmocka_unit_test(groups_are_found_by_their_controller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
