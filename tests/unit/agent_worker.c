/* Workers that obey, flood, lie, hide and refuse to end. */
#include "agent_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/descriptors.h"

static void say(const char *text) {
    if (write(3, text, strlen(text)) < 0) _exit(99);
}

static void expect(const char *wanted) {
    char bytes[4096];
    size_t size = 0;
    while (size < strlen(wanted)) {
        ssize_t n = read(3, bytes + size, sizeof bytes - size);
        if (n <= 0) _exit(98);
        size += (size_t)n;
    }
    if (size == strlen(wanted) && memcmp(bytes, wanted, size) == 0) return;
    fprintf(stderr, "wanted \"%s\" got \"%.*s\"\n", wanted, (int)size, bytes);
    _exit(97);
}

/* So many, whatever they say. */
static void expect_errors(int n) {
    char bytes[512];
    for (size_t size = 0; n > 0;) {
        if (size == sizeof bytes || read(3, bytes + size, 1) != 1) _exit(98);
        if (bytes[size++] != '\n') continue;
        if (memcmp(bytes, "error ", 6) != 0) _exit(60);
        size = 0;
        n--;
    }
}

static void flood(size_t total, const char *line) {
    static char block[1 << 16];
    size_t size = 0;
    while (size + strlen(line) <= sizeof block) {
        memcpy(block + size, line, strlen(line));
        size += strlen(line);
    }
    for (size_t done = 0; done < total; done += size)
        if (write(1, block, size) < 0) _exit(96);
}

static void ignore_terminations(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

/* A process that leaves its parent, group and session, and ignores what it can. */
static void leave_daemon(bool stubborn) {
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            if (stubborn) ignore_terminations();
            for (;;)
                pause();
        }
        _exit(0);
    }
    while (wait(NULL) > 0) {
    }
}

static int check_set_up(void) {
    char text[64];
    struct rlimit limit;
    sigset_t mask;
    if (getpgrp() != getpid()) return 40;
    if (sigprocmask(SIG_BLOCK, NULL, &mask) < 0 || sigismember(&mask, SIGTERM) || sigismember(&mask, SIGUSR2))
        return 41;
    for (int i = 1; i <= SIGRTMAX; i++)
        if (signal(i, SIG_DFL) == SIG_IGN) return 42;
    if (read(0, text, 1) != 0) return 43;
    for (int fd = 5; fd < 1000; fd++)
        if (fcntl(fd, F_GETFD) >= 0) return 44;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur != 512) return 45;
    (void)snprintf(text, sizeof text, "%d", getpid());
    if (getenv("TRAINYARD_PID") == NULL || strcmp(getenv("TRAINYARD_PID"), text) != 0) return 46;
    if (strcmp(getenv("TRAINYARD_FD"), "3") != 0 || strcmp(getenv("TRAINYARD_TOKEN"), "token-of-test") != 0)
        return 47;
    if (strcmp(getenv("TRAINYARD_PAYLOAD_FD"), "4") != 0 || getenv("SHARED") != NULL) return 48;
    if (read(4, text, sizeof text) != 7 || memcmp(text, "payload", 7) != 0) return 49;
    if (write(4, "x", 1) >= 0) return 50;
    if (getcwd(text, sizeof text) == NULL || strcmp(text, "/usr") != 0) return 51;
    int death = 0;
    if (prctl(PR_GET_PDEATHSIG, &death) < 0 || death != SIGKILL) return 52;
    return 0;
}

static int speak(void) {
    say("ready\nready\nrendezvous\nreport {\"a\":1}\nreport {\"b\": NaN, \"c\": [-Infinity, 1e999, "
        "123456789012345678901234567890]}\n");
    say("nonsense\n");
    expect("error unknown word: report, ready, rendezvous, heartbeat, preemption, failure, checkpoint, "
           "checkpoints, "
           "reported, commit, abort, set, get, wait, add, "
           "gather and open are known\n");
    say("report [1]\nreport {\"a\"\n");
    expect_errors(2);
    say("set key 5\nhello");
    expect("ok\n");
    say("set bad\x01key 2\nxx");
    expect("error a key must be 1 to 255 bytes without blanks and control characters\n");
    say("set k -1\n");
    expect("error a size must be a whole number of at most 1048576 bytes\n");
    say("get key\nreport {\"d\":1}\nwait other 2500\nadd n -3\ngather g -1 3\nabc");
    expect("value 3\nkeyvalue 5\nothervalue 1\nnvalue 1\ng");
    say("wait k soon\n");
    expect("error a time-out must be a whole number of milliseconds, -1 for none\n");
    return 0;
}

static int begin_checkpoint(int number) {
    char bytes[512], wanted[64];
    say("checkpoint {\"loss\":2}\n");
    ssize_t n = read(3, bytes, sizeof bytes - 1);
    bytes[n > 0 ? n : 0] = '\0';
    int size = snprintf(wanted, sizeof wanted, "directory %d /tmp/test-agent-", number);
    return strncmp(bytes, wanted, (size_t)size) == 0 ? 0 : 61;
}

#define BAD_NUMBER \
    "error the number must be that of a checkpoint that was begun, and not committed or aborted yet\n"

static int write_checkpoint(void) {
    say("report {}\n");
    if (begin_checkpoint(12) != 0) return 61;
    say("commit 13 []\n");
    expect(BAD_NUMBER);
    say("commit 12 {}\n");
    expect("error files must be a JSON list, or a path or address as a JSON string, on one line\n");
    say("commit 12 \"relative\"\n");
    expect("error files must be a JSON list, or a path or address as a JSON string, on one line\n");
    say("checkpoint \"a/b\" {}\n");
    expect("error the checkpoint name \"a/b\" is not usable: 1 to 200 bytes of UTF-8, no '/', no control "
           "characters, no '.' first\n");
    say("commit 12 [{\"path\":\"a\"}]\n");
    expect("ok /some/where\n");
    say("commit 12 []\n");
    expect(BAD_NUMBER);
    if (begin_checkpoint(13) != 0) return 61;
    say("commit 13 []\n");
    expect("failed disk full\n");
    if (begin_checkpoint(14) != 0) return 61;
    say("abort 14 no space\n");
    expect("ok\n");
    say("abort 14 no space\n");
    expect(BAD_NUMBER);
    say("get pause\n"); /* until the test has seen the abort */
    expect("none\n");
    if (begin_checkpoint(15) != 0) return 61; /* given up with the channel */
    return 0;
}

bool agent_worker_open(int socket) {
    return descriptors_send(3, "open\n", 5, &socket, 1, 0) == 5;
}

/* Another process of the worker opens a channel of its own while the worker's waits. */
static int open_second(void) {
    int pair[2];
    say("wait never -1\n");
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return 62;
    if (!agent_worker_open(pair[1])) return 63;
    close(pair[1]);
    if (write(pair[0], "get key\n", 8) != 8) return 64;
    char answer[64];
    ssize_t n = read(pair[0], answer, sizeof answer);
    if (n != 11 || memcmp(answer, "value 3\nkey", 11) != 0) return 65;
    close(pair[0]);
    expect("value 5\nnever");
    say("open\n"); /* without a socket */
    expect("error a socket must come with an open\n");
    return 0;
}

static int report_many(void) {
    enum { LINES = 500, BLOCKS = 100 };
    struct buffer block = {0};
    for (int i = 0; i < LINES; i++)
        buffer_printf(&block, "report {\"loss\": %d.%03d, \"step\": %d}\n", i % 7, i, i);
    for (int i = 0; i < BLOCKS; i++)
        for (size_t sent = 0; sent < block.size;) {
            ssize_t n = write(3, block.data + sent, block.size - sent);
            if (n < 0) return 66;
            sent += (size_t)n;
        }
    return 0;
}

static int take_memory(size_t size) {
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, size);
    return memory[size / 2];
}

int agent_worker_run(const char *mode) {
    int rank = atoi(getenv("RANK"));
    if (strcmp(mode, "nothing") == 0) return 0;
    if (strcmp(mode, "rank-status") == 0) return rank;
    if (strcmp(mode, "set-up") == 0) return check_set_up();
    if (strcmp(mode, "speak") == 0) return speak();
    if (strcmp(mode, "checkpoint") == 0) return write_checkpoint();
    if (strcmp(mode, "second") == 0) return open_second();
    if (strcmp(mode, "report") == 0) return report_many();
    if (strcmp(mode, "flood") == 0)
        return flood(4 << 20, "0123456789012345678901234567890123456789012345678901234567890\n"), 0;
    if (strcmp(mode, "flood-no-newline") == 0) return flood(4 << 20, "0123456789"), 0;
    if (strcmp(mode, "signal") == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        raise(rank + 1);
        return 0;
    }
    if (strcmp(mode, "close-all") == 0) {
        sigset_t told;
        int number;
        sigemptyset(&told);
        sigaddset(&told, SIGUSR1);
        sigprocmask(SIG_BLOCK, &told, NULL);
        say("ready\n");
        sigwait(&told, &number);
        close_range(0, ~0U, 0);
        sigwait(&told, &number);
        return 5;
    }
    if (strcmp(mode, "stubborn") == 0) {
        ignore_terminations();
        if (rank % 4 == 1) setpgid(0, getppid()); /* into another group */
        if (rank % 4 == 2) leave_daemon(true);
        if (rank % 4 == 3 && fork() == 0) setsid();
        say("ready\n");
        if (rank % 8 == 4) raise(SIGSTOP);
    }
    if (strcmp(mode, "hog") == 0 && rank == 0) return take_memory((size_t)1 << 30);
    if (strcmp(mode, "daemon") == 0) return leave_daemon(rank % 2 != 0), 0;
    if (strcmp(mode, "bomb") == 0) {
        for (int i = 0; i < 5; i++) {
            pid_t child = fork();
            if (child == 0 && i % 2 != 0) setsid();
        }
        ignore_terminations();
    }
    if (strcmp(mode, "zombies") == 0) {
        for (int i = 0; i < 50; i++)
            if (fork() == 0) {
                if (fork() == 0) _exit(7);
                _exit(0);
            }
        while (wait(NULL) > 0) {
        }
        say("ready\n");
    }
    if (strcmp(mode, "wait") == 0) say("ready\n");
    for (;;)
        pause();
}
