/* Descriptors that are known again, or are another file by now; those of whom waits at a socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/descriptors.h"

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

/* Whoever has `fd` withheld finds `other` in its place. */
static void put_in_place(int other, int fd) {
    assert_int_equal(dup2(other, fd), fd);
    (void)close(other);
}

static void what_is_intact_is_closed(void **state) {
    (void)state;
    int fd = open("/dev/null", O_RDONLY), number = fd, none = -1;
    assert_true(descriptors_intact(fd)); /* nobody knows better */
    descriptors_withhold(fd);
    assert_true(descriptors_intact(fd));
    descriptors_close(&fd);
    assert_int_equal(fd, -1);
    assert_false(is_open(number));
    descriptors_close(&none);
    descriptors_withhold(-1);
    int again = open("/dev/zero", O_RDONLY); /* the number is free for anybody's file */
    assert_int_equal(again, number);
    assert_true(descriptors_intact(again));
    (void)close(again);
}

static void another_file_stays_open(void **state) {
    (void)state;
    int fd = open("/dev/null", O_RDONLY), number = fd;
    descriptors_withhold(fd);
    put_in_place(open("/dev/zero", O_RDONLY), fd);
    assert_false(descriptors_intact(fd));
    descriptors_close(&fd);
    assert_int_equal(fd, -1);
    assert_true(is_open(number));
    (void)close(number);
}

static void a_closed_one_is_not_intact(void **state) {
    (void)state;
    int fd = open("/dev/null", O_RDONLY);
    descriptors_withhold(fd);
    (void)close(fd);
    assert_false(descriptors_intact(fd));
    int number = open("/dev/null", O_RDONLY), mine = number; /* the same file, and ours anew */
    assert_int_equal(number, fd);
    descriptors_withhold(mine);
    assert_true(descriptors_intact(mine));
    descriptors_close(&mine);
    assert_false(is_open(number));
}

/* All of these have one inode. */
static void another_eventfd_is_told_apart(void **state) {
    (void)state;
    const int others[] = {eventfd(0, 0), epoll_create1(0)};
    for (int i = 0; i < 2; i++) {
        int fd = i == 0 ? eventfd(0, EFD_CLOEXEC) : epoll_create1(EPOLL_CLOEXEC), number = fd;
        descriptors_withhold(fd);
        assert_true(descriptors_intact(fd));
        put_in_place(others[i], fd);
        assert_false(descriptors_intact(fd));
        descriptors_close(&fd);
        assert_true(is_open(number));
        (void)close(number);
    }
}

/* What the child opens under such a number is the child's. */
static void a_child_has_none_of_them(void **state) {
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    descriptors_withhold(ends[1]);
    pid_t child = fork();
    if (child == 0) {
        if (is_open(ends[1]) || descriptors_intact(ends[1])) _exit(1);
        int own = dup2(ends[0], ends[1]);
        descriptors_close(&ends[1]);
        _exit(is_open(own) ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(descriptors_intact(ends[1]));
    descriptors_close(&ends[1]);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 0); /* it was the last */
    (void)close(ends[0]);
}

static void who_waits_is_taken_in(void **state) {
    (void)state;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name.sun_family;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, size), 0); /* the kernel names it */
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(descriptors_accept(listener), -EAGAIN);
    size = sizeof name;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&name, size), 0);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int refused = descriptors_accept(listener);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(refused, -EMFILE);
    int fd = descriptors_accept(listener);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    (void)close(fd);
    (void)close(client);
    (void)close(listener);
}

static void a_name_has_one_holder(void **state) {
    (void)state;
    struct sockaddr_un name, same, longest;
    char text[2 * sizeof name.sun_path];
    int one = socket(AF_UNIX, SOCK_STREAM, 0), other = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t size = descriptors_name(&name, "trainyard-test-%d", (int)getpid());
    assert_int_equal(bind(one, (struct sockaddr *)&name, size), 0);
    assert_int_equal(descriptors_name(&same, "trainyard-test-%d", (int)getpid()), size);
    assert_int_equal(bind(other, (struct sockaddr *)&same, size), -1);
    assert_int_equal(errno, EADDRINUSE);
    (void)close(one);
    assert_int_equal(bind(other, (struct sockaddr *)&same, size), 0); /* it went with the first */
    (void)close(other);
    memset(text, 'n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_true(descriptors_name(&longest, "%s", text) <= sizeof longest);
    assert_int_equal(longest.sun_path[0], '\0');
    assert_int_equal(longest.sun_path[1], 'n');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_intact_is_closed),   cmocka_unit_test(another_file_stays_open),
        cmocka_unit_test(a_closed_one_is_not_intact), cmocka_unit_test(another_eventfd_is_told_apart),
        cmocka_unit_test(a_child_has_none_of_them),   cmocka_unit_test(who_waits_is_taken_in),
        cmocka_unit_test(a_name_has_one_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
