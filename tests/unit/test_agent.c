/* The agent as its controller sees it: agent_main runs in a process of its own, this test speaks frames with it, and this program
 * itself is also the worker (main with "worker" as first word). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "wire/frame.h"

enum { RANKS_MAX = 300, WAIT_MS = 60000 };

/* What the controller's side has heard of one rank. */
struct heard {
    bool started, ready, rendezvous, exited, gone, failed, stopped;
    int pid, wait_status;
    char text[512];
    struct buffer tail, output[2];
    uint64_t n_reports, last_number;
};

struct controller {
    int fd;
    pid_t agent;
    char run_path[64];
    struct buffer in;
    bool hello, bye, closed, clean;
    uint32_t leftovers, port, commit_channel;
    uint64_t commit_number, n_output;
    char address[64], last_metrics[256], last_files[256], log[512];
    bool answer_store; /* answers requests at once, by echo */
    uint32_t store_channel;
    char store_key[300];
    size_t store_value_size;
    int64_t store_timeout;
    unsigned n_store;
    struct heard ranks[RANKS_MAX];
};

static char self[256];

/* ---- speaking frames ---- */

static void send_message(struct controller *c, const Wire__Message *message) {
    struct buffer out = {0};
    assert_int_equal(frame_message(message, &out), 0);
    size_t sent = 0;
    while (sent < out.size) {
        ssize_t n = send(c->fd, out.data + sent, out.size - sent, MSG_NOSIGNAL);
        assert_true(n > 0);
        sent += (size_t)n;
    }
    buffer_done(&out);
}

static void reply_store(struct controller *c, uint32_t channel, Wire__StoreReply__Status status,
                        const char *value) {
    Wire__StoreReply reply = WIRE__STORE_REPLY__INIT;
    reply.channel = channel;
    reply.status = status;
    reply.value = (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)value};
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_STORE_REPLY;
    message.store_reply = &reply;
    send_message(c, &message);
}

static void hear_event(struct controller *c, const Wire__WorkerEvent *event) {
    assert_true(event->rank < RANKS_MAX);
    struct heard *heard = &c->ranks[event->rank];
    assert_false(heard->gone);
    switch (event->kind) {
    case WIRE__WORKER_EVENT__KIND__STARTED:
        assert_false(heard->started);
        heard->started = true;
        heard->pid = event->pid;
        break;
    case WIRE__WORKER_EVENT__KIND__READY:
        assert_true(heard->started && !heard->exited && !heard->ready);
        heard->ready = true;
        break;
    case WIRE__WORKER_EVENT__KIND__RENDEZVOUS:
        heard->rendezvous = true;
        break;
    case WIRE__WORKER_EVENT__KIND__EXITED:
        assert_true(heard->started && !heard->exited);
        heard->exited = true;
        heard->wait_status = event->wait_status;
        heard->stopped = event->stopped;
        buffer_append(&heard->tail, event->tail.data, event->tail.len);
        break;
    case WIRE__WORKER_EVENT__KIND__GONE:
        assert_true(heard->exited);
        heard->gone = true;
        break;
    default:
        heard->failed = heard->gone = true;
        heard->stopped = event->stopped;
    }
    assert_true(event->time > 0);
    if (event->text[0] != '\0') (void)snprintf(heard->text, sizeof heard->text, "%s", event->text);
}

static void hear_report(struct controller *c, const Wire__Report *report) {
    struct heard *heard = &c->ranks[report->rank];
    assert_true(heard->started && !heard->gone);
    const ProtobufCBinaryData *metrics = &report->metrics;
    switch (report->kind) {
    case WIRE__REPORT__KIND__METRICS:
    case WIRE__REPORT__KIND__BEGIN:
        heard->n_reports++;
        assert_int_equal(report->number, heard->last_number + 1);
        heard->last_number = report->number;
        (void)snprintf(c->last_metrics, sizeof c->last_metrics, "%.*s", (int)metrics->len,
                       (char *)metrics->data);
        break;
    default:
        c->commit_number = report->number;
        c->commit_channel = report->channel;
        (void)snprintf(c->last_files, sizeof c->last_files, "%.*s", (int)report->files.len,
                       (char *)report->files.data);
    }
}

static void hear_store(struct controller *c, const Wire__StoreRequest *request) {
    c->n_store++;
    c->store_channel = request->channel;
    c->store_value_size = request->value.len;
    c->store_timeout = request->timeout_ms;
    (void)snprintf(c->store_key, sizeof c->store_key, "%d %s", (int)request->operation, request->key);
    if (c->answer_store) reply_store(c, request->channel, WIRE__STORE_REPLY__STATUS__OK, request->key);
}

static void hear_message(struct controller *c, const Wire__Message *message) {
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_HELLO:
        c->hello = true;
        c->port = message->hello->port;
        (void)snprintf(c->address, sizeof c->address, "%s", message->hello->address);
        break;
    case WIRE__MESSAGE__BODY_EVENTS:
        for (size_t i = 0; i < message->events->n_events; i++)
            hear_event(c, message->events->events[i]);
        break;
    case WIRE__MESSAGE__BODY_REPORTS:
        for (size_t i = 0; i < message->reports->n_reports; i++)
            hear_report(c, message->reports->reports[i]);
        break;
    case WIRE__MESSAGE__BODY_STORE_REQUEST:
        hear_store(c, message->store_request);
        break;
    case WIRE__MESSAGE__BODY_BYE:
        c->bye = true;
        c->clean = message->bye->clean;
        c->leftovers = message->bye->leftovers;
        break;
    case WIRE__MESSAGE__BODY_LOG:
        (void)snprintf(c->log, sizeof c->log, "%s", message->log->text);
        break;
    default:
        fail_msg("unexpected message %d", (int)message->body_case);
    }
}

static void hear_frame(struct controller *c, const struct frame *frame) {
    if (frame->kind == FRAME_MESSAGE) {
        Wire__Message *message = frame_unpack(frame, NULL);
        assert_non_null(message);
        hear_message(c, message);
        wire__message__free_unpacked(message, NULL);
        return;
    }
    uint32_t rank;
    int stream;
    const uint8_t *bytes;
    size_t size;
    assert_int_equal(frame_output(frame, &rank, &stream, &bytes, &size), 0);
    assert_true(size > 0 && bytes[size - 1] == '\n');
    assert_false(c->ranks[rank].gone);
    c->n_output += size;
    if (c->ranks[rank].output[stream - 1].size < 1 << 20)
        buffer_append(&c->ranks[rank].output[stream - 1], bytes, size);
}

/* Waits for one read's worth of frames. */
static void hear(struct controller *c) {
    static char bytes[1 << 16];
    struct pollfd ready = {.fd = c->fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
        c->closed = true;
        return;
    }
    buffer_append(&c->in, bytes, (size_t)n);
    size_t at = 0;
    struct frame frame;
    for (int64_t used;
         (used = frame_next((uint8_t *)c->in.data + at, c->in.size - at, FRAME_MAX, &frame, NULL)) != 0;) {
        assert_true(used > 0);
        hear_frame(c, &frame);
        at += (size_t)used;
    }
    buffer_consume(&c->in, at);
}

#define HEAR_UNTIL(c, condition)       \
    do {                               \
        while (!(condition)) {         \
            assert_false((c)->closed); \
            hear(c);                   \
        }                              \
    } while (0)

static bool all_gone(const struct controller *c, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (!c->ranks[i].gone) return false;
    return true;
}

static unsigned count_descriptors(void) {
    unsigned n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory) != NULL)
        n++;
    closedir(directory);
    return n;
}

static unsigned descriptors_before;

static struct controller *begin(void) {
    struct controller *c = calloc(1, sizeof *c);
    assert_non_null(c);
    descriptors_before = count_descriptors();
    int ends[2];
    (void)snprintf(c->run_path, sizeof c->run_path, "/tmp/test-agent-XXXXXX");
    assert_non_null(mkdtemp(c->run_path));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    c->agent = fork();
    if (c->agent == 0) {
        close(ends[0]);
        struct agent_config config = {.channel_fd = ends[1], .lease_fd = -1, .node = 7, .node_name = "n7"};
        _exit(agent_main(&config));
    }
    close(ends[1]);
    c->fd = ends[0];
    HEAR_UNTIL(c, c->hello);
    return c;
}

/* Ends the agent, whose exit status is returned; nothing of it is left. */
static int end(struct controller *c) {
    int status;
    if (c->fd >= 0) {
        Wire__Finish finish = WIRE__FINISH__INIT;
        Wire__Message message = WIRE__MESSAGE__INIT;
        message.body_case = WIRE__MESSAGE__BODY_FINISH;
        message.finish = &finish;
        if (!c->bye) send_message(c, &message);
        HEAR_UNTIL(c, c->bye);
        close(c->fd);
    }
    assert_int_equal(waitpid(c->agent, &status, 0), c->agent);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* this test adopts what an agent leaves: nothing */
    assert_int_equal(errno, ECHILD);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", c->run_path);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < RANKS_MAX; i++) {
        buffer_done(&c->ranks[i].tail);
        buffer_done(&c->ranks[i].output[0]);
        buffer_done(&c->ranks[i].output[1]);
    }
    buffer_done(&c->in);
    free(c);
    assert_int_equal(count_descriptors(), descriptors_before);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct launch_options {
    unsigned n;
    const char *mode; /* of this program as worker; or argv */
    char **argv;
    char **environment;
    const char *worker_environment, *working_directory, *payload;
    unsigned grace_ms;
    bool prefix, escape, quiet, release_port;
    uint64_t report_base;
};

/* A worker built with sanitizers must still die of its signals. */
static char sanitizers[] =
    "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:handle_abort=0";
static char *plain_environment[] = {"PATH=/usr/bin:/bin", "LANG=C",   "TRAINYARD_PAYLOAD_FD=99",
                                    "SHARED=1",           sanitizers, NULL};

static void launch(struct controller *c, struct launch_options options) {
    Wire__Launch body = WIRE__LAUNCH__INIT;
    char rank_text[RANKS_MAX][16];
    char *rank_environment[RANKS_MAX][2];
    Wire__LaunchWorker workers[RANKS_MAX], *pointers[RANKS_MAX];
    char *own[] = {self, "worker", (char *)options.mode, NULL};
    char **argv = options.argv != NULL ? options.argv : own;
    char **environment = options.environment != NULL ? options.environment : plain_environment;
    for (unsigned i = 0; i < options.n; i++) {
        wire__launch_worker__init(&workers[i]);
        (void)snprintf(rank_text[i], sizeof rank_text[i], "RANK=%u", i);
        rank_environment[i][0] = rank_text[i];
        rank_environment[i][1] = (char *)options.worker_environment;
        workers[i].rank = i;
        workers[i].environment = rank_environment[i];
        workers[i].n_environment = options.worker_environment != NULL ? 2 : 1;
        pointers[i] = &workers[i];
    }
    body.run = "test";
    body.attempt = 1;
    body.token = "token-of-test";
    body.run_path = c->run_path;
    body.working_directory = options.working_directory != NULL ? (char *)options.working_directory : "/";
    body.argv = argv;
    while (argv[body.n_argv] != NULL)
        body.n_argv++;
    body.environment = environment;
    while (environment[body.n_environment] != NULL)
        body.n_environment++;
    if (options.payload != NULL)
        body.payload =
            (ProtobufCBinaryData){.len = strlen(options.payload), .data = (uint8_t *)options.payload};
    body.workers = pointers;
    body.n_workers = options.n;
    body.grace_ms = options.grace_ms > 0 ? options.grace_ms : 5000;
    body.prefix = options.prefix;
    body.escape = options.escape;
    body.quiet = options.quiet;
    body.hold_port = !options.release_port;
    body.report_base = options.report_base;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_LAUNCH;
    message.launch = &body;
    for (unsigned i = 0; i < options.n; i++) {
        struct heard *heard = &c->ranks[i];
        buffer_done(&heard->tail);
        buffer_done(&heard->output[0]);
        buffer_done(&heard->output[1]);
        *heard = (struct heard){.last_number = options.report_base};
    }
    send_message(c, &message);
}

static void stop(struct controller *c, bool kill) {
    Wire__Stop body = WIRE__STOP__INIT;
    body.kill = kill;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_STOP;
    message.stop = &body;
    send_message(c, &message);
}

static char **shell(char *script) {
    static char *argv[4];
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    return argv;
}

/* ---- the worker ---- */

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
    for (int i = 1; i < 31; i++)
        if (i != SIGKILL && i != SIGSTOP && signal(i, SIG_DFL) != SIG_DFL) return 42;
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
    expect("error unknown word: report, ready, rendezvous, checkpoint, commit, abort, set, get, wait, add, "
           "gather and open are known\n");
    say("report [1]\nreport {\"a\"\n");
    char bytes[512];
    if (read(3, bytes, sizeof bytes) < 6 || memcmp(bytes, "error ", 6) != 0) return 60;
    usleep(20000);
    (void)recv(3, bytes, sizeof bytes, MSG_DONTWAIT);
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

static int write_checkpoint(void) {
    char bytes[512];
    say("report {}\ncheckpoint {\"loss\":2}\n");
    ssize_t n = read(3, bytes, sizeof bytes - 1);
    bytes[n > 0 ? n : 0] = '\0';
    if (strncmp(bytes, "directory 12 /tmp/test-agent-", 29) != 0) return 61;
    say("commit 13 []\n");
    expect("error the number must be that of a checkpoint that was begun\n");
    say("commit 12 {}\n");
    expect("error files must be a JSON list on one line\n");
    say("commit 12 [{\"path\":\"a\"}]\n");
    expect("ok /some/where\n");
    say("commit 12 []\n");
    expect("error disk full\n");
    say("abort 12 no space\n");
    expect("ok\n");
    return 0;
}

/* Another process of the worker opens a channel of its own while the worker's waits. */
static int open_second(void) {
    int pair[2];
    say("wait never -1\n");
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return 62;
    struct iovec bytes = {.iov_base = "open\n", .iov_len = 5};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &pair[1], sizeof(int));
    if (sendmsg(3, &message, 0) != 5) return 63;
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

static int run_worker(const char *mode) {
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
        close_range(0, ~0U, 0);
        usleep(20000);
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

/* ---- the tests ---- */

static void launches_nothing_and_ends(void **state) {
    (void)state;
    struct controller *c = begin();
    assert_true(c->port > 0);
    assert_true(strcmp(c->address, "127.0.0.1") == 0 || strcmp(c->address, "::1") == 0);
    launch(c, (struct launch_options){.n = 0, .mode = "nothing"});
    assert_int_equal(end(c), 0);
}

static void sixty_four_workers_end(void **state) {
    (void)state;
    struct controller *c = begin();
    for (int attempt = 0; attempt < 3; attempt++) {
        launch(c, (struct launch_options){.n = 64, .mode = "nothing"});
        HEAR_UNTIL(c, all_gone(c, 64));
        for (int i = 0; i < 64; i++)
            assert_true(c->ranks[i].started && c->ranks[i].exited && c->ranks[i].wait_status == 0);
    }
    assert_int_equal(end(c), 0);
}

static void every_exit_code_arrives(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 256, .mode = "rank-status"});
    HEAR_UNTIL(c, all_gone(c, 256));
    for (int i = 0; i < 256; i++) {
        assert_true(WIFEXITED(c->ranks[i].wait_status));
        assert_int_equal(WEXITSTATUS(c->ranks[i].wait_status), i);
        assert_false(c->ranks[i].stopped);
    }
    assert_int_equal(end(c), 0);
}

static void deadly_signals_arrive(void **state) {
    (void)state;
    static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 31, .mode = "signal"});
    unsigned others = 0;
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        others |= 1u << harmless[i];
    for (int i = 1; i <= 31; i++)
        if ((others & 1u << i) == 0) HEAR_UNTIL(c, c->ranks[i - 1].gone);
    stop(c, true);
    HEAR_UNTIL(c, all_gone(c, 31));
    for (int i = 1; i <= 31; i++)
        if ((others & 1u << i) == 0) assert_int_equal(WTERMSIG(c->ranks[i - 1].wait_status), i);
    assert_int_equal(end(c), 0);
}

static void workers_are_set_up(void **state) {
    (void)state;
    struct rlimit before, small = {.rlim_cur = 512, .rlim_max = 1024};
    getrlimit(RLIMIT_NOFILE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &small);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); /* as some parents do */
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    struct controller *c = begin();
    setrlimit(RLIMIT_NOFILE, &before);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    launch(c, (struct launch_options){.n = 3,
                                      .mode = "set-up",
                                      .working_directory = "/usr",
                                      .payload = "payload",
                                      .worker_environment = "SHARED"});
    HEAR_UNTIL(c, all_gone(c, 3));
    for (int i = 0; i < 3; i++)
        assert_int_equal(c->ranks[i].wait_status, 0);
    assert_int_equal(end(c), 0);
}

static void a_program_that_is_not_there_is_named(void **state) {
    (void)state;
    struct controller *c = begin();
    char *missing[] = {"./train", NULL}, *nowhere[] = {"no-such-program", NULL};
    launch(c, (struct launch_options){.n = 2, .argv = missing});
    HEAR_UNTIL(c, all_gone(c, 2));
    assert_true(c->ranks[0].failed && !c->ranks[0].started);
    assert_string_equal(c->ranks[1].text, "cannot execute ./train: No such file or directory");
    launch(c, (struct launch_options){.n = 1, .argv = nowhere});
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_string_equal(c->ranks[0].text,
                        "cannot execute no-such-program: No such file or directory in PATH=/usr/bin:/bin");
    launch(c, (struct launch_options){.n = 1, .mode = "nothing", .working_directory = "/no/such"});
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_string_equal(c->ranks[0].text, "cannot enter directory /no/such: No such file or directory");
    assert_int_equal(end(c), 0);
}

static void assert_file(const struct controller *c, int rank, const char *wanted) {
    char path[128], bytes[4096];
    (void)snprintf(path, sizeof path, "%s/logs/rank-%d.log", c->run_path, rank);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(bytes, wanted, strlen(wanted));
}

static void output_is_relayed(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 2,
                                      .argv = shell("printf 'one\\r\\ntwo\\033[1m'; printf err >&2; exit 3"),
                                      .prefix = true,
                                      .escape = true});
    HEAR_UNTIL(c, all_gone(c, 2));
    assert_string_equal(c->ranks[1].output[0].data, "[rank 1] one\n[rank 1] two\\x1b[1m\n");
    assert_string_equal(c->ranks[0].output[1].data, "[rank 0] err\n");
    assert_non_null(strstr(c->ranks[0].tail.data, "two\\x1b[1m"));
    assert_non_null(strstr(c->ranks[0].tail.data, "err"));
    assert_file(c, 0, "one\r\ntwo\033[1merr");
    launch(c, (struct launch_options){.n = 1, .argv = shell("echo quiet"), .quiet = true});
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_null(c->ranks[0].output[0].data);
    assert_file(c, 0, "one\r\ntwo\033[1merrquiet\n");
    assert_int_equal(c->ranks[0].tail.size, 0); /* it did not fail */
    assert_int_equal(end(c), 0);
}

static long resident_kib(pid_t pid) {
    char path[64];
    long pages = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

#ifdef __SANITIZE_ADDRESS__
enum { RESIDENT_LIMIT_KIB = 1 << 20 };
#else
enum { RESIDENT_LIMIT_KIB = 32 << 10 };
#endif

static void a_flood_meets_a_slow_reader(void **state) {
    (void)state;
    struct controller *c = begin();
    for (int lines = 1; lines >= 0; lines--) {
        launch(c, (struct launch_options){
                      .n = 64, .mode = lines ? "flood" : "flood-no-newline", .prefix = true, .escape = true});
        usleep(300000); /* reads nothing */
        assert_in_range(resident_kib(c->agent), 1, RESIDENT_LIMIT_KIB);
        HEAR_UNTIL(c, all_gone(c, 64));
        assert_in_range(resident_kib(c->agent), 1, RESIDENT_LIMIT_KIB);
    }
    assert_true(c->n_output > 2ul * 64 * (4 << 20)); /* nothing was dropped */
    assert_int_equal(end(c), 0);
}

static void workers_speak(void **state) {
    (void)state;
    struct controller *c = begin();
    c->answer_store = true;
    launch(c, (struct launch_options){.n = 4, .mode = "speak"});
    HEAR_UNTIL(c, all_gone(c, 4));
    for (int i = 0; i < 4; i++) {
        if (c->ranks[i].wait_status != 0)
            fail_msg("rank %d: %d %s", i, c->ranks[i].wait_status, c->ranks[i].tail.data);
        assert_true(c->ranks[i].ready && c->ranks[i].rendezvous);
        assert_int_equal(c->ranks[i].n_reports, 3);
    }
    assert_string_equal(c->last_metrics, "{\"d\":1}");
    assert_int_equal(c->n_store, 4 * 5);
    assert_int_equal(end(c), 0);
}

static void strange_numbers_become_strings(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c,
           (struct launch_options){
               .n = 1,
               .argv = shell("echo 'report {\"b\": NaN, \"c\": [-Infinity, 1e999], \"NaN\": \"a NaN\"}' >&3")});
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_string_equal(c->last_metrics,
                        "{\"b\": \"NaN\", \"c\": [\"-Infinity\", \"Infinity\"], \"NaN\": \"a NaN\"}");
    assert_int_equal(end(c), 0);
}

static void answer_commit(struct controller *c, const char *path, const char *error) {
    Wire__Committed committed = WIRE__COMMITTED__INIT;
    committed.channel = c->commit_channel;
    committed.number = c->commit_number;
    committed.path = (char *)path;
    committed.error = (char *)error;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_COMMITTED;
    message.committed = &committed;
    c->commit_number = 0;
    send_message(c, &message);
}

static void checkpoints_are_committed(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 1, .mode = "checkpoint", .report_base = 10});
    HEAR_UNTIL(c, c->commit_number == 12);
    assert_string_equal(c->last_files, "[{\"path\":\"a\"}]");
    assert_string_equal(c->last_metrics, "{\"loss\":2}");
    answer_commit(c, "/some/where", "");
    HEAR_UNTIL(c, c->commit_number == 12);
    answer_commit(c, "", "disk full");
    HEAR_UNTIL(c, c->commit_number == 12);
    assert_string_equal(c->last_files, "no space");
    HEAR_UNTIL(c, all_gone(c, 1));
    if (c->ranks[0].wait_status != 0) fail_msg("%d %s", c->ranks[0].wait_status, c->ranks[0].tail.data);
    assert_int_equal(end(c), 0);
}

static void a_second_channel_is_not_held_up(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 1, .mode = "second"});
    HEAR_UNTIL(c, c->n_store == 2); /* the wait, then the get behind it */
    assert_string_equal(c->store_key, "1 key");
    uint32_t second = c->store_channel;
    reply_store(c, second, WIRE__STORE_REPLY__STATUS__OK, "key");
    reply_store(c, second + 1000, WIRE__STORE_REPLY__STATUS__OK, "stray");
    for (uint32_t slot = 0; slot < 4; slot++) /* the first channel's number is not known here: one of these */
        for (uint32_t age = 0; age < 4; age++)
            if ((slot | age << 16) != second)
                reply_store(c, slot | age << 16, WIRE__STORE_REPLY__STATUS__OK, "never");
    HEAR_UNTIL(c, all_gone(c, 1));
    if (c->ranks[0].wait_status != 0) fail_msg("%d %s", c->ranks[0].wait_status, c->ranks[0].tail.data);
    assert_int_equal(end(c), 0);
}

static void many_reports_keep_their_order(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 8, .mode = "report"});
    HEAR_UNTIL(c, all_gone(c, 8));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(c->ranks[i].wait_status, 0);
        assert_int_equal(c->ranks[i].n_reports, 50000);
    }
    assert_int_equal(end(c), 0);
}

static void closed_descriptors_do_no_harm(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 8, .mode = "close-all"});
    HEAR_UNTIL(c, all_gone(c, 8));
    for (int i = 0; i < 8; i++)
        assert_int_equal(WEXITSTATUS(c->ranks[i].wait_status), 5);
    assert_int_equal(end(c), 0);
}

static bool all_ready(const struct controller *c, int n) {
    for (int i = 0; i < n; i++)
        if (!c->ranks[i].ready) return false;
    return true;
}

static void those_that_obey_are_stopped(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 64, .mode = "wait", .grace_ms = 60000});
    HEAR_UNTIL(c, all_ready(c, 64));
    kill(c->ranks[10].pid, SIGKILL);
    HEAR_UNTIL(c, c->ranks[10].exited);
    stop(c, false);
    HEAR_UNTIL(c, all_gone(c, 64));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(WTERMSIG(c->ranks[i].wait_status), i == 10 ? SIGKILL : SIGTERM);
        assert_int_equal(c->ranks[i].stopped, i != 10);
    }
    assert_int_equal(end(c), 0);
}

static void those_that_do_not_are_killed(void **state) {
    (void)state;
    struct controller *c = begin();
    for (int at_once = 0; at_once < 2; at_once++) {
        launch(c, (struct launch_options){.n = 16, .mode = "stubborn", .grace_ms = at_once ? 60000 : 100});
        HEAR_UNTIL(c, all_ready(c, 16));
        stop(c, at_once);
        HEAR_UNTIL(c, all_gone(c, 16));
        for (int i = 0; i < 16; i++)
            assert_int_equal(WTERMSIG(c->ranks[i].wait_status), SIGKILL);
    }
    assert_int_equal(end(c), 0);
}

static void a_launch_waits_for_the_one_before(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 4, .mode = "daemon", .grace_ms = 50});
    HEAR_UNTIL(c, all_gone(c, 4));
    launch(c, (struct launch_options){.n = 4, .mode = "nothing"}); /* while the daemons are swept */
    HEAR_UNTIL(c, all_gone(c, 4));
    assert_int_equal(c->ranks[3].wait_status, 0);
    HEAR_UNTIL(c, true);
    Wire__Finish finish = WIRE__FINISH__INIT;
    Wire__Message message = WIRE__MESSAGE__INIT;
    message.body_case = WIRE__MESSAGE__BODY_FINISH;
    message.finish = &finish;
    send_message(c, &message);
    HEAR_UNTIL(c, c->bye);
    assert_true(c->clean);
    assert_int_equal(c->leftovers, 4);
    assert_int_equal(end(c), 0);
}

static void background_jobs_end_with_their_worker(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 2, .argv = shell("sleep 1000 & echo $!; exit 0")});
    HEAR_UNTIL(c, all_gone(c, 2));
    assert_int_equal(c->ranks[0].wait_status, 0);
    assert_int_equal(kill(atoi(c->ranks[0].output[0].data), 0), -1);
    assert_int_equal(end(c), 0);
}

static void a_stranger_with_the_pipe_does_not_hold_the_end(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){
                  .n = 1,
                  .argv = shell("echo before; setsid sh -c 'sleep 0.1; sleep 1000' & sleep 0.05"),
                  .grace_ms = 60000});
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_string_equal(c->ranks[0].output[0].data, "before\n");
    assert_int_equal(end(c), 0);
}

static void many_processes_are_swept(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 2, .mode = "bomb", .grace_ms = 50});
    HEAR_UNTIL(c, c->ranks[1].started);
    usleep(100000);
    stop(c, false);
    HEAR_UNTIL(c, all_gone(c, 2));
    assert_int_equal(end(c), 0);
}

static void zombies_are_reaped(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 1, .mode = "zombies"});
    HEAR_UNTIL(c, c->ranks[0].ready);
    char path[64], text[4096] = "";
    for (int tries = 0; tries < 1000; tries++) { /* until no child of the agent but the worker is left */
        unsigned children = 0;
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
            (void)snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
            int fd = open(path, O_RDONLY);
            if (fd < 0) continue;
            ssize_t n = read(fd, text, sizeof text - 1);
            close(fd);
            text[n > 0 ? n : 0] = '\0';
            const char *end_of_name = strrchr(text, ')');
            if (end_of_name != NULL && atoi(end_of_name + 3) == c->agent) children++;
        }
        closedir(proc);
        if (children == 1) break;
        assert_true(tries < 999);
        usleep(1000);
    }
    stop(c, true);
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_int_equal(end(c), 0);
}

static void without_a_controller_all_ends(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 16, .mode = "stubborn", .grace_ms = 60000});
    HEAR_UNTIL(c, all_ready(c, 16));
    close(c->fd);
    c->fd = -1;
    assert_int_equal(end(c), 1);
}

static void a_controller_that_is_killed_in_a_flood(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 16, .mode = "flood", .prefix = true});
    HEAR_UNTIL(c, c->n_output > 1 << 20);
    close(c->fd);
    c->fd = -1;
    assert_int_equal(end(c), 1);
}

static void signals_end_the_agent(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        struct controller *c = begin();
        launch(c, (struct launch_options){.n = 8, .mode = "wait"});
        HEAR_UNTIL(c, all_ready(c, 8));
        kill(c->agent, SIGHUP); /* ignored */
        kill(c->agent, signals[i]);
        HEAR_UNTIL(c, c->bye);
        assert_true(all_gone(c, 8));
        assert_true(c->ranks[0].stopped);
        assert_int_equal(end(c), 0);
    }
}

static void workers_die_with_a_killed_agent(void **state) {
    (void)state;
    struct controller *c = begin();
    launch(c, (struct launch_options){.n = 8, .mode = "wait"});
    HEAR_UNTIL(c, all_ready(c, 8));
    kill(c->agent, SIGKILL);
    int status, reaped = 0;
    while (wait(&status) > 0) /* this process adopts them */
        reaped++;
    assert_int_equal(reaped, 9);
    close(c->fd);
    c->fd = -1;
    c->agent = fork();
    if (c->agent == 0) _exit(0);
    assert_int_equal(end(c), 0);
}

static int bind_port(int family, unsigned port, bool reuse) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (reuse) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool six = family == AF_INET6;
    int code = bind(fd, six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4, six ? sizeof v6 : sizeof v4);
    if (code == 0) code = listen(fd, 5);
    close(fd);
    return code;
}

static void the_port_is_held(void **state) {
    (void)state;
    struct controller *c = begin();
    assert_int_equal(bind_port(AF_INET, c->port, false), -1);
    assert_int_equal(bind_port(AF_INET, c->port, true), 0);
    assert_int_equal(bind_port(AF_INET6, c->port, true), 0);
    launch(c, (struct launch_options){.n = 1, .mode = "nothing", .release_port = true});
    HEAR_UNTIL(c, all_gone(c, 1));
    assert_int_equal(bind_port(AF_INET, c->port, false), 0);
    assert_int_equal(end(c), 0);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return run_worker(argv[2]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_nothing_and_ends),
        cmocka_unit_test(sixty_four_workers_end),
        cmocka_unit_test(every_exit_code_arrives),
        cmocka_unit_test(deadly_signals_arrive),
        cmocka_unit_test(workers_are_set_up),
        cmocka_unit_test(a_program_that_is_not_there_is_named),
        cmocka_unit_test(output_is_relayed),
        cmocka_unit_test(a_flood_meets_a_slow_reader),
        cmocka_unit_test(workers_speak),
        cmocka_unit_test(strange_numbers_become_strings),
        cmocka_unit_test(checkpoints_are_committed),
        cmocka_unit_test(a_second_channel_is_not_held_up),
        cmocka_unit_test(many_reports_keep_their_order),
        cmocka_unit_test(closed_descriptors_do_no_harm),
        cmocka_unit_test(those_that_obey_are_stopped),
        cmocka_unit_test(those_that_do_not_are_killed),
        cmocka_unit_test(a_launch_waits_for_the_one_before),
        cmocka_unit_test(background_jobs_end_with_their_worker),
        cmocka_unit_test(a_stranger_with_the_pipe_does_not_hold_the_end),
        cmocka_unit_test(many_processes_are_swept),
        cmocka_unit_test(zombies_are_reaped),
        cmocka_unit_test(without_a_controller_all_ends),
        cmocka_unit_test(a_controller_that_is_killed_in_a_flood),
        cmocka_unit_test(signals_end_the_agent),
        cmocka_unit_test(workers_die_with_a_killed_agent),
        cmocka_unit_test(the_port_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
