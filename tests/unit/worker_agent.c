/* The agent's end of a worker's socket, and how that worker is begun and ended. */
#include "worker_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "worker/link.h"

void worker_fail(const char *file, int line, const char *condition) {
    (void)fprintf(stderr, "%s:%d: %s\n", file, line, condition);
    _exit(1);
}

static const char *const variables[][2] = {
    {"RANK", "3"},
    {"WORLD_SIZE", "8"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "2"},
    {"NODE_RANK", "1"},
    {"TRAINYARD_ATTEMPT", "2"},
    {"TRAINYARD_RUN", "r"},
    {"TRAINYARD_RUN_PATH", "/runs/r"},
    {"TRAINYARD_DEVICES", "2,0"},
};

void worker_set_environment(int fd) {
    char text[32];
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
        (void)setenv(variables[i][0], variables[i][1], 1);
    (void)snprintf(text, sizeof text, "%d", fd);
    (void)setenv(WORKER_FD_VARIABLE, text, 1);
    (void)snprintf(text, sizeof text, "%d", getpid());
    (void)setenv(WORKER_PID_VARIABLE, text, 1);
}

struct agent worker_start(void (*body)(void)) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        worker_set_environment(pair[1]);
        body();
        exit(0);
    }
    (void)close(pair[1]);
    return (struct agent){pair[0], pid};
}

void worker_expect_end(struct agent *agent) {
    int status = -1;
    assert_int_equal(waitpid(agent->pid, &status, 0), agent->pid);
    assert_int_equal(status, 0);
    (void)close(agent->fd);
}

const char *agent_read_line(int fd) {
    static char line[4096];
    size_t n = 0;
    while (n < sizeof line - 1 && read(fd, line + n, 1) == 1)
        if (line[n++] == '\n') break;
    line[n] = '\0';
    return line;
}

void agent_say(int fd, const char *text) {
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

int agent_receive_descriptor(int fd, char *byte) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    assert_int_equal(recvmsg(fd, &message, 0), 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    assert_non_null(header);
    int passed;
    memcpy(&passed, CMSG_DATA(header), sizeof passed);
    return passed;
}

int agent_expect_open(int fd) {
    char byte = 0;
    int channel = agent_receive_descriptor(fd, &byte);
    assert_int_equal(byte, 'o');
    assert_string_equal(agent_read_line(fd), "pen\n");
    return channel;
}

ty_worker *worker_self(void) {
    ty_error err = {0};
    ty_worker *worker = ty_worker_self(&err);
    if (worker == NULL) (void)fprintf(stderr, "%s\n", err.message);
    CHECK(worker != NULL);
    return worker;
}
