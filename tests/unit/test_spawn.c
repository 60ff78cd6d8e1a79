/* Starting one process: what it gets, and how every way of failing is told, without a process or descriptor
 * left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "base/cleanup.h"

static char directory[64];

static char *path_of(const char *name) {
    static char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size, mode_t mode) {
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static char *empty_environment[] = {"A=1", NULL};

/* Runs until its end; its output goes to `text`. The wait status, or the error. */
static int run(struct spawn spawn, char *text, size_t size, ty_error *err) {
    int ends[2], status;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid;
    static const int places[SPAWN_FDS] = {STDIN_FILENO, -1, -1, -1, -1};
    memcpy(spawn.fds, places, sizeof places);
    spawn.fds[1] = spawn.fds[2] = ends[1];
    int result = spawn_start(&spawn, &pid, err);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n; length + 1 < size && (n = read(ends[0], text + length, size - length - 1)) > 0;)
        length += (size_t)n;
    text[length] = '\0';
    close(ends[0]);
    if (result < 0) {
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        return result;
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void expect_failure(struct spawn spawn, const char *message) {
    char text[64];
    ty_error err = {0};
    assert_int_equal(run(spawn, text, sizeof text, &err), TY_ESTART);
    assert_string_equal(err.message, message);
}

static void failures_are_named(void **state) {
    (void)state;
    char *argv[] = {"x", NULL};
    char wanted[512];
    struct spawn spawn = {.path = "./train", .argv = argv, .envp = empty_environment, .directory = directory};
    expect_failure(spawn, "cannot execute ./train: No such file or directory");
    write_file("plain", "text", 4, 0644);
    spawn.path = "./plain";
    expect_failure(spawn, "cannot execute ./plain: Permission denied, as it is not executable; if it is a "
                          "program, `chmod +x ./plain`");
    write_file("plain.py", "text", 4, 0644);
    spawn.path = "./plain.py";
    expect_failure(spawn, "cannot execute ./plain.py: Permission denied, as it is not executable; say `python "
                          "./plain.py`");
    write_file("script", "#!/no/such/python3 -u\n", 22, 0755);
    spawn.path = "./script";
    expect_failure(spawn,
                   "cannot execute ./script: No such file or directory (its interpreter /no/such/python3)");
    static const char foreign[] = "\177ELF\2\1\1\0other machine";
    write_file("foreign", foreign, sizeof foreign, 0755);
    spawn.path = "./foreign";
    expect_failure(spawn, "cannot execute ./foreign: Exec format error");
    spawn.path = "/";
    expect_failure(spawn, "cannot execute /: it is a directory");
    spawn.directory = "/no/such";
    expect_failure(spawn, "cannot enter directory /no/such: No such file or directory");
    cpu_set_t none;
    CPU_ZERO(&none);
    spawn = (struct spawn){.path = "/bin/true", .argv = argv, .envp = empty_environment, .cpus = &none};
    expect_failure(spawn, "cannot bind a worker to its cores: Invalid argument");
    char *huge = malloc(1 << 20);
    memset(huge, 'x', (1 << 20) - 1);
    huge[(1 << 20) - 1] = '\0';
    char *long_argv[] = {"x", huge, NULL};
    spawn = (struct spawn){.path = "/bin/true", .argv = long_argv, .envp = empty_environment};
    (void)snprintf(wanted, sizeof wanted, "cannot execute /bin/true: %s", strerror(E2BIG));
    expect_failure(spawn, wanted);
    free(huge);
}

static void scripts_without_a_head_run(void **state) {
    (void)state;
    char text[256];
    char *argv[] = {"./bare", "one", "two words", NULL};
    write_file("bare", "echo \"$0|$1|$2|$A\"", 18, 0755);
    struct spawn spawn = {.path = "./bare", .argv = argv, .envp = empty_environment, .directory = directory};
    assert_int_equal(run(spawn, text, sizeof text, NULL), 0);
    assert_string_equal(text, "./bare|one|two words|1\n");
    write_file("headed", "#!/bin/sh\nexit 7\n", 17, 0755);
    spawn.path = "./headed";
    assert_int_equal(WEXITSTATUS(run(spawn, text, sizeof text, NULL)), 7);
}

static void descriptors_land_in_any_order(void **state) {
    (void)state;
    /* five pipes; the sources lie at 0 to 4 in a turned order, in a process of its own */
    pid_t tester = fork();
    if (tester == 0) {
        int ends[SPAWN_FDS][2], status;
        for (int i = 0; i < SPAWN_FDS; i++)
            if (pipe2(ends[i], O_CLOEXEC) < 0 || dup3(ends[i][1], 50 + i, O_CLOEXEC) < 0 ||
                dup3(ends[i][0], 60 + i, O_CLOEXEC) < 0)
                _exit(1);
        for (int i = 0; i < SPAWN_FDS; i++)
            if (dup3(50 + (i + 1) % SPAWN_FDS, i, O_CLOEXEC) < 0) _exit(2);
        char *argv[] = {"sh", "-c", "for i in 0 1 2 3 4; do echo $i >&$i; done", NULL};
        struct spawn spawn = {
            .path = "/bin/sh", .argv = argv, .envp = empty_environment, .fds = {4, 0, 1, 2, 3}};
        pid_t pid;
        if (spawn_start(&spawn, &pid, NULL) < 0) _exit(3);
        if (waitpid(pid, &status, 0) != pid || status != 0) _exit(4);
        for (int i = 0; i < SPAWN_FDS; i++) {
            char text[2];
            if (read(60 + i, text, 2) != 2 || text[0] != '0' + i) _exit(10 + i);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(tester, &status, 0), tester);
    assert_int_equal(status, 0);
}

static void the_pid_is_filled_in(void **state) {
    (void)state;
    char text[64];
    char entry[16] = "MYPID=";
    char *environment[] = {entry, NULL};
    char *argv[] = {"sh", "-c", "test $MYPID = $$ && echo same", NULL};
    struct spawn spawn = {.path = "/bin/sh", .argv = argv, .envp = environment, .pid_text = entry + 6};
    _Static_assert(sizeof entry >= 6 + SPAWN_PID_SIZE - 2, "room for the pid");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(run(spawn, text, sizeof text, NULL), 0);
        assert_string_equal(text, "same\n");
    }
}

static void signals_and_memory_are_left_alone(void **state) {
    (void)state;
    sigset_t before, after;
    char text[64];
    char *argv[] = {"true", NULL};
    signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_BLOCK, NULL, &before);
    struct spawn spawn = {.path = "/bin/true", .argv = argv, .envp = empty_environment};
    assert_int_equal(run(spawn, text, sizeof text, NULL), 0);
    sigprocmask(SIG_BLOCK, NULL, &after);
    for (int i = 1; i < 32; i++)
        assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    assert_ptr_equal(signal(SIGUSR1, SIG_DFL), SIG_IGN); /* the child's reset was its own */
}

static void expect_found(const char *name, const char *search, const char *wanted) {
    ty_error err = {0};
    CLEANUP_FREE char *found = spawn_find(name, search, directory, &err);
    if (found != NULL)
        assert_string_equal(found, wanted);
    else
        assert_string_equal(err.message, wanted);
}

static void programs_are_found_as_execvp_does(void **state) {
    (void)state;
    char wanted[256];
    expect_found("", "/bin", "cannot execute a program without a name");
    expect_found("./x", "/bin", "./x");
    expect_found("/no/such", "/bin", "/no/such");
    expect_found("sh", "/no/such:/bin:/usr/bin", "/bin/sh");
    expect_found("sh", NULL, "/usr/bin/sh");
    expect_found("no-such", "/bin", "cannot execute no-such: No such file or directory in PATH=/bin");
    write_file("mine", "", 0, 0755);
    write_file("readme", "", 0, 0644);
    (void)snprintf(wanted, sizeof wanted, "%s/mine", directory);
    expect_found("mine", "/bin:", wanted);
    expect_found("mine", directory, wanted);
    (void)snprintf(wanted, sizeof wanted, "%s/sub/inner", directory);
    assert_int_equal(mkdir(path_of("sub"), 0755), 0);
    write_file("sub/inner", "", 0, 0755);
    expect_found("inner", "sub:/bin", wanted);
    CLEANUP_FREE char *readme = NULL;
    assert_true(asprintf(&readme,
                         "cannot execute %s/readme: Permission denied, as it is not executable; if it is a "
                         "program, `chmod +x %s/readme`",
                         directory, directory) > 0);
    expect_found("readme", directory, readme);
    (void)snprintf(wanted, sizeof wanted, "cannot execute %s/sub: it is a directory", directory);
    expect_found("sub", directory, wanted);
    expect_found("sub", "/bin", "cannot execute sub: it is a directory");
    expect_found("readme", "/bin",
                 "cannot execute readme: No such file or directory in PATH; for the file here "
                 "say ./readme, once it is executable (chmod +x)");
    expect_found("mine", "/bin",
                 "cannot execute mine: No such file or directory in PATH; for the file here say "
                 "./mine");
    write_file("train.py", "", 0, 0644);
    expect_found("train.py", "/bin",
                 "cannot execute train.py: No such file or directory in PATH; for the file "
                 "here say `python train.py`, or ./train.py, once it is executable (chmod +x)");
    assert_int_equal(chmod(path_of("train.py"), 0755), 0);
    expect_found("train.py", "/bin",
                 "cannot execute train.py: No such file or directory in PATH; for the file "
                 "here say `python train.py`, or ./train.py");
}

static int make_directory(void **state) {
    (void)state;
    (void)strcpy(directory, "/tmp/test-spawn-XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int remove_directory(void **state) {
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(scripts_without_a_head_run),
        cmocka_unit_test(descriptors_land_in_any_order),
        cmocka_unit_test(the_pid_is_filled_in),
        cmocka_unit_test(signals_and_memory_are_left_alone),
        cmocka_unit_test(programs_are_found_as_execvp_does),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
