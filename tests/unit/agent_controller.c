/* A controller that hears everything, and decides nothing. */
#include "agent_controller.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/duration.h"
#include "descriptors.h"
#include "wire/channel.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

enum { WAIT_MS = 60000 };

char controller_worker[256];

void controller_send(struct controller *c, const Wire__Message *message) {
    struct buffer out = {0};
    assert_int_equal(frame_message(message, &out), 0);
    size_t sent = 0;
    while (sent < out.size) {
        ssize_t n = send(c->fd, out.data + sent, out.size - sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) break; /* that the agent ended is heard */
        assert_true(n > 0);
        sent += (size_t)n;
    }
    buffer_done(&out);
}

void controller_reply_store(struct controller *c, uint32_t channel, Wire__Answer__Status status,
                            const char *value) {
    Wire__Answer answer = WIRE__ANSWER__INIT;
    answer.channels = &channel;
    answer.n_channels = 1;
    answer.status = status;
    answer.size = strlen(value);
    answer.value = (ProtobufCBinaryData){.len = answer.size, .data = (uint8_t *)value};
    controller_send(c, &WIRE_MESSAGE(ANSWER, answer, &answer));
}

void controller_reply_commit(struct controller *c, const char *path, const char *error) {
    Wire__Committed committed = WIRE__COMMITTED__INIT;
    committed.channel = c->commit_channel;
    committed.number = c->commit_number;
    committed.path = (char *)path;
    committed.error = (char *)error;
    c->commit_number = c->commit_channel = 0;
    controller_send(c, &WIRE_MESSAGE(COMMITTED, committed, &committed));
}

void controller_reply_list(struct controller *c, const char *list) {
    controller_reply_store(c, c->commit_channel, WIRE__ANSWER__STATUS__OK, list);
    c->commit_channel = 0;
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
    case WIRE__WORKER_EVENT__KIND__FAILED:
        heard->told_failure = true;
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
        c->n_begun += report->kind == WIRE__REPORT__KIND__BEGIN;
        break;
    default:
        c->n_lists += report->kind == WIRE__REPORT__KIND__LIST;
        c->n_ended += report->kind != WIRE__REPORT__KIND__LIST;
        c->commit_kind = report->kind;
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
    if (c->answer_store) controller_reply_store(c, request->channel, WIRE__ANSWER__STATUS__OK, request->key);
}

/* All that is told, one behind the other. */
static void add_log(struct controller *c, const char *text) {
    size_t size = strlen(c->log);
    (void)snprintf(c->log + size, sizeof c->log - size, "%s\n", text);
}

static void hear_message(struct controller *c, const Wire__Message *message) {
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_HELLO:
        c->hello = true;
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
    case WIRE__MESSAGE__BODY_LEAVING:
        c->leaving = true;
        break;
    case WIRE__MESSAGE__BODY_STACKS:
        c->stacks = true;
        break;
    case WIRE__MESSAGE__BODY_LOG:
        add_log(c, message->log->text);
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

void controller_hear(struct controller *c) {
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

bool controller_all_gone(const struct controller *c, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (!c->ranks[i].gone) return false;
    return true;
}

static unsigned descriptors_before;

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "exitcode=" AGENT_DAMAGED_TEXT;
}

static bool has_leaks(void) {
    return __lsan_do_recoverable_leak_check() != 0;
}
#else
static bool has_leaks(void) {
    return false;
}
#endif

/* In the agent's process, before it begins. */
static void set_up_agent(const struct begin_options *options) {
    struct rlimit limit = {.rlim_cur = options->descriptors, .rlim_max = options->descriptors};
    if (options->descriptors > 0 && setrlimit(RLIMIT_NOFILE, &limit) < 0) _exit(100);
    if (options->cgroup == NULL) return;
    char path[300];
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", options->cgroup);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%d", getpid()) < 0) _exit(101);
    close(fd);
}

struct controller *controller_begin_with(struct begin_options options) {
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
        set_up_agent(&options);
        int status = agent_main(ends[1], 0);
        _exit(has_leaks() ? AGENT_DAMAGED : status);
    }
    close(ends[1]);
    c->fd = ends[0];
    if (options.log) (void)snprintf(c->log_path, sizeof c->log_path, "%s/agent.log", c->run_path);
    controller_start(c, -1);
    assert_false(c->closed);
    return c;
}

void controller_start(struct controller *c, int lease_fd) {
    Wire__Start start = WIRE__START__INIT;
    start.node = 7;
    start.node_name = "n7";
    start.log_path = c->log_path;
    start.has_lease = lease_fd >= 0;
    c->hello = c->bye = false;
    c->closed |= start_send(c->fd, &start, lease_fd, NULL) < 0;
    while (!c->hello && !c->closed)
        controller_hear(c);
}

struct controller *controller_begin(void) {
    return controller_begin_with((struct begin_options){0});
}

static void send_finish(struct controller *c, bool keep) {
    Wire__Finish finish = WIRE__FINISH__INIT;
    finish.keep = keep;
    controller_send(c, &WIRE_MESSAGE(FINISH, finish, &finish));
}

void controller_finish(struct controller *c) {
    if (!c->bye) send_finish(c, false);
    HEAR_UNTIL(c, c->bye);
}

void controller_rest(struct controller *c) {
    send_finish(c, true);
    while (!c->bye && !c->closed)
        controller_hear(c);
}

void controller_vanish(struct controller *c) {
    close(c->fd);
    c->fd = -1;
}

int controller_end(struct controller *c) {
    int status;
    if (c->fd >= 0) {
        controller_finish(c);
        controller_vanish(c);
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

/* A worker built with sanitizers must still die of its signals. */
static char sanitizers[] =
    "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:handle_abort=0";
static char *plain_environment[] = {"PATH=/usr/bin:/bin", "LANG=C",   "TRAINYARD_PAYLOAD_FD=99",
                                    "SHARED=1",           sanitizers, NULL};

void controller_launch(struct controller *c, struct launch_options options) {
    Wire__Launch body = WIRE__LAUNCH__INIT;
    char rank_text[RANKS_MAX][16];
    char *rank_environment[RANKS_MAX][2];
    Wire__LaunchWorker workers[RANKS_MAX], *pointers[RANKS_MAX];
    char *own[] = {controller_worker, "worker", (char *)options.mode, NULL};
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
    body.grace = (options.grace_ms > 0 ? options.grace_ms : 5000) * NS_PER_MS;
    body.prefix = options.prefix;
    body.escape = options.escape;
    body.quiet = options.quiet;
    body.report_base = options.report_base;
    if (options.start_method != NULL) body.start_method = (char *)options.start_method;
    body.template_argv = options.template_argv;
    while (options.template_argv != NULL && options.template_argv[body.n_template_argv] != NULL)
        body.n_template_argv++;
    for (unsigned i = 0; i < options.n; i++) {
        struct heard *heard = &c->ranks[i];
        buffer_done(&heard->tail);
        buffer_done(&heard->output[0]);
        buffer_done(&heard->output[1]);
        *heard = (struct heard){.last_number = options.report_base};
    }
    c->log[0] = '\0';
    controller_send(c, &WIRE_MESSAGE(LAUNCH, launch, &body));
}

void controller_stop(struct controller *c, bool kill) {
    Wire__Stop body = WIRE__STOP__INIT;
    body.kill = kill;
    controller_send(c, &WIRE_MESSAGE(STOP, stop, &body));
}
