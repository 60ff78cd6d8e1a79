/* The worker's side of docs/worker-protocol.md. The test plays the agent on the other end of the socket; each
 * worker is a forked process with an environment of its own, because a process is one worker for life. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/error.h"
#include "worker/driver.h"
#include "worker/link.h"
#include "worker/metrics.h"
#include "worker_agent.h"

static void body_context(void) {
    ty_worker *worker = worker_self();
    size_t n = 0;
    const int *devices = ty_devices(worker, &n);
    CHECK(ty_worker_self(NULL) == worker); /* "ready" is said once */
    CHECK(ty_world_rank(worker) == 3 && ty_world_size(worker) == 8);
    CHECK(ty_local_rank(worker) == 1 && ty_local_world_size(worker) == 2 && ty_node_rank(worker) == 1);
    CHECK(ty_attempt(worker) == 2);
    CHECK(strcmp(ty_run_name(worker), "r") == 0 && strcmp(ty_run_path(worker), "/runs/r") == 0);
    CHECK(n == 2 && devices[0] == 2 && devices[1] == 0);
    CHECK(ty_checkpoint_latest(worker) == NULL);
}

static void test_context(void **state) {
    (void)state;
    struct agent agent = worker_start(body_context);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "");
    worker_expect_end(&agent);
}

static void expect_refused(const char *name, const char *value, int code) {
    ty_error err = {0};
    (void)(value != NULL ? setenv(name, value, 1) : unsetenv(name));
    CHECK(ty_worker_self(&err) == NULL);
    CHECK(err.code == code);
    CHECK(MENTIONS(err.message, name));
}

static void body_bad_variables(void) {
    static const struct {
        const char *name, *value;
    } bad[] = {{"RANK", "8"},
               {"RANK", "-1"},
               {"RANK", "x"},
               {"WORLD_SIZE", "0"},
               {"WORLD_SIZE", NULL},
               {"LOCAL_RANK", "2"},
               {"LOCAL_WORLD_SIZE", "9"},
               {"NODE_RANK", ""},
               {"NODE_RANK", "8"},
               {"TRAINYARD_ATTEMPT", "0"},
               {"TRAINYARD_RUN", NULL},
               {"TRAINYARD_RUN_PATH", ""},
               {"TRAINYARD_DEVICES", "0,,1"},
               {"TRAINYARD_DEVICES", "0,GPU-1"}};
    int fd = atoi(getenv(WORKER_FD_VARIABLE));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        expect_refused(bad[i].name, bad[i].value, TY_EUSAGE);
        worker_set_environment(fd);
    }
    expect_refused(WORKER_PID_VARIABLE, NULL, TY_EUSAGE);
    worker_set_environment(fd);
    expect_refused(WORKER_FD_VARIABLE, "99", TY_EUSAGE); /* closed on the way */
    expect_refused(WORKER_FD_VARIABLE, "fd", TY_EUSAGE);
    expect_refused(WORKER_FD_VARIABLE, NULL, TY_EUNSUPPORTED); /* no worker at all */
    worker_set_environment(fd);
    CHECK(ty_worker_self(NULL) != NULL); /* no trace of the failures */
}

static void test_wrong_variables_are_named(void **state) {
    (void)state;
    struct agent agent = worker_start(body_bad_variables);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    worker_expect_end(&agent);
}

static const char *format(ty_metrics metrics) {
    static struct buffer out;
    ty_error err = {0};
    buffer_clear(&out);
    assert_int_equal(metrics_format(metrics, &out, &err), 0);
    return out.data;
}

static void test_metrics_are_shortest_json(void **state) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {-0.0, "-0"},
                 {40, "40"},
                 {-7, "-7"},
                 {0.1, "0.1"},
                 {0.25, "0.25"},
                 {1.0 / 3, "0.3333333333333333"},
                 {1e15, "1e+15"},
                 {999999999999999, "999999999999999"},
                 {1e300, "1e+300"},
                 {5e-324, "5e-324"},
                 {2.2250738585072014e-308, "2.2250738585072014e-308"},
                 {9007199254740994, "9007199254740994"},
                 {0.1 + 0.2, "0.30000000000000004"},
                 {NAN, "\"NaN\""},
                 {INFINITY, "\"Infinity\""},
                 {-INFINITY, "\"-Infinity\""}};
    char expected[128];
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)snprintf(expected, sizeof expected, "{\"x\":%s}", cases[i].text);
        assert_string_equal(format(TY_METRICS({"x", cases[i].value})), expected);
    }
    assert_string_equal(format((ty_metrics){0}), "{}");
    assert_string_equal(format(TY_METRICS({"a", 1}, {"b\"\\\n\xc3\xa9", 2})),
                        "{\"a\":1,\"b\\\"\\\\\\n\xc3\xa9\":2}");
}

static void test_metrics_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        (void)setlocale(LC_ALL, "C.UTF-8"); /* the check then holds trivially */
    assert_string_equal(format(TY_METRICS({"x", 0.5})), "{\"x\":0.5}");
    (void)setlocale(LC_ALL, "C");
}

static void test_bad_names_are_refused(void **state) {
    char long_name[257];
    const char *const bad[] = {NULL, "", "\xff", "a\xc3", long_name};
    CLEANUP(buffer_done) struct buffer out = {0};
    (void)state;
    memset(long_name, 'a', 256);
    long_name[256] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ty_error err = {0};
        buffer_clear(&out);
        assert_int_equal(metrics_format(TY_METRICS({bad[i], 1}), &out, &err), TY_EUSAGE);
        assert_true(MENTIONS(err.message, "UTF-8"));
    }
    long_name[255] = '\0';
    (void)format(TY_METRICS({long_name, 1}, {"\xef\xbf\xbd", 1}));
    assert_int_equal(metrics_format((ty_metrics){NULL, 2}, &out, NULL), TY_EUSAGE);
}

static void body_report(void) {
    ty_worker *worker = worker_self();
    ty_error err = {0};
    CHECK(ty_report(NULL, TY_METRICS({"x", 1}), NULL, &err) == TY_EUSAGE);
    CHECK(ty_report(worker, TY_METRICS({"", 1}), NULL, &err) == TY_EUSAGE);
    CHECK(ty_report(worker, TY_METRICS({"x", 1}), "/nowhere", &err) == TY_EUSAGE);
    CHECK(ty_report(worker, TY_METRICS({"x", 1}), "/dev/null", &err) == TY_EUSAGE);
    for (int i = 0; i < 3; i++)
        CHECK(ty_report(worker, TY_METRICS({"i", i}), NULL, &err) == 0);
}

static void test_reports_in_order(void **state) {
    (void)state;
    struct agent agent = worker_start(body_report);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"i\":0}\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"i\":1}\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"i\":2}\n");
    assert_string_equal(agent_read_line(agent.fd), "");
    worker_expect_end(&agent);
}

/* A program that closes what is not its own, and whose own connection gets the number. */
static void body_reuse_number(void) {
    ty_worker *worker = worker_self();
    ty_error err = {0};
    int fd = atoi(getenv(WORKER_FD_VARIABLE)), pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(dup2(pair[0], fd) == fd);
    CHECK(ty_report(worker, TY_METRICS({"x", 1}), NULL, &err) == TY_ECOMM);
    CHECK(MENTIONS(err.message, "closed its descriptor"));
    CHECK(ty_report_json(worker, "{}", NULL, &err) == TY_ECOMM);
    CHECK(recv(pair[1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static void test_another_file_hears_nothing(void **state) {
    (void)state;
    struct agent agent = worker_start(body_reuse_number);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "");
    worker_expect_end(&agent);
}

static void body_report_json(void) {
    static const char *const no_objects[] = {
        "", "1", "[1]", "null", "{\"a\": }", "{\"a\": 1} {}", "{\"a\": nan}"};
    ty_worker *worker = worker_self();
    ty_error err = {0};
    CHECK(ty_report_json(NULL, "{}", NULL, &err) == TY_EUSAGE);
    CHECK(ty_report_json(worker, NULL, NULL, &err) == TY_EUSAGE);
    for (size_t i = 0; i < ARRAY_SIZE(no_objects); i++)
        CHECK(ty_report_json(worker, no_objects[i], NULL, &err) == TY_EUSAGE &&
              MENTIONS(err.message, "object"));
    CHECK(ty_report_json(worker, "{}", NULL, NULL) == 0);
    CHECK(ty_report_json(worker, "{\n \"text\": \"a\\nb\",\r\n \"list\": [1, {\"x\": null}]}", NULL, NULL) ==
          0);
    CHECK(ty_report_json(worker, "{\"bad\": NaN, \"big\": 1e999, \"s\": \"NaN\"}", NULL, NULL) == 0);
    char *large = malloc(WORKER_LINE_MAX + 64);
    CHECK(large != NULL);
    (void)snprintf(large, WORKER_LINE_MAX + 64, "{\"x\": \"%0*d\"}", WORKER_LINE_MAX, 0);
    CHECK(ty_report_json(worker, large, NULL, &err) == TY_EUSAGE && MENTIONS(err.message, "1048576"));
    free(large);
}

static void test_metrics_as_json(void **state) {
    (void)state;
    struct agent agent = worker_start(body_report_json);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "report {}\n");
    assert_string_equal(agent_read_line(agent.fd),
                        "report {  \"text\": \"a\\nb\",   \"list\": [1, {\"x\": null}]}\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"bad\": NaN, \"big\": 1e999, \"s\": \"NaN\"}\n");
    assert_string_equal(agent_read_line(agent.fd), "");
    worker_expect_end(&agent);
}

enum { FLOOD = 200000 };

static void body_flood(void) {
    ty_worker *worker = worker_self();
    for (int i = 0; i < FLOOD; i++)
        CHECK(ty_report(worker, TY_METRICS({"i", i}), NULL, NULL) == 0);
    exit(0); /* with reports still queued */
}

/* An agent that does not read at first: the worker queues, then waits, and nothing is lost. */
static void test_flood_is_not_lost(void **state) {
    (void)state;
    struct agent agent = worker_start(body_flood);
    struct pollfd ended = {.fd = agent.fd, .events = 0};
    (void)poll(&ended, 1, 200);
    assert_int_equal(waitpid(agent.pid, NULL, WNOHANG), 0); /* it waits: more than the queue takes */
    FILE *lines = fdopen(dup(agent.fd), "r");
    char line[128], expected[128];
    assert_string_equal(fgets(line, sizeof line, lines), "ready\n");
    for (int i = 0; i < FLOOD; i++) {
        (void)snprintf(expected, sizeof expected, "report {\"i\":%d}\n", i);
        assert_non_null(fgets(line, sizeof line, lines));
        assert_string_equal(line, expected);
    }
    assert_null(fgets(line, sizeof line, lines));
    (void)fclose(lines);
    worker_expect_end(&agent);
}

static void body_agent_gone(void) {
    ty_worker *worker = worker_self();
    ty_error err = {0};
    while (ty_report(worker, TY_METRICS({"x", 1}), NULL, &err) == 0)
        (void)usleep(1000);
    CHECK(err.code == TY_ECOMM);
    CHECK(MENTIONS(err.message, "agent"));
    CHECK(ty_store_set(worker, "k", "v", 1, &err) == TY_ECOMM);
}

static void test_agent_that_is_gone(void **state) {
    (void)state;
    struct agent agent = worker_start(body_agent_gone);
    (void)agent_read_line(agent.fd);
    (void)shutdown(agent.fd, SHUT_RDWR);
    worker_expect_end(&agent);
}

static char checkpoint_source[] = "/tmp/trainyard-test-XXXXXX";

static void body_checkpoint(void) {
    ty_worker *worker = worker_self();
    ty_error err = {0};
    CHECK(ty_report(worker, TY_METRICS({"loss", 0.5}), checkpoint_source, &err) == 0);
    CHECK(strcmp(ty_checkpoint_latest(worker), "/runs/r/checkpoint_000007") == 0);
    CHECK(ty_report(worker, TY_METRICS({"loss", 0.25}), checkpoint_source, &err) == TY_EWORKER);
    CHECK(MENTIONS(err.message, "rank 2 gave up"));
    CHECK(strcmp(ty_checkpoint_latest(worker), "/runs/r/checkpoint_000007") == 0);
    CHECK(ty_report(worker, TY_METRICS({"loss", 0.25}), checkpoint_source, &err) < 0); /* nowhere to write */
}

static void test_checkpoint_is_copied_and_committed(void **state) {
    char path[256], staging[128], answer[256];
    (void)state;
    assert_non_null(mkdtemp(checkpoint_source));
    (void)snprintf(path, sizeof path, "%s/weights", checkpoint_source);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("abc", file);
    (void)fclose(file);
    (void)snprintf(staging, sizeof staging, "%s.staging", checkpoint_source);
    (void)snprintf(answer, sizeof answer, "directory 7 %s\n", staging);

    struct agent agent = worker_start(body_checkpoint);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "checkpoint {\"loss\":0.5}\n");
    agent_say(agent.fd, answer);
    const char *commit = agent_read_line(agent.fd);
    assert_memory_equal(commit, "commit 7 [", 10);
    assert_true(MENTIONS(commit, "\"weights\""));
    (void)snprintf(path, sizeof path, "%s/weights", staging);
    assert_int_equal(access(path, R_OK), 0);
    agent_say(agent.fd, "ok /runs/r/checkpoint_000007\n");

    assert_string_equal(agent_read_line(agent.fd), "checkpoint {\"loss\":0.25}\n");
    agent_say(agent.fd, answer);
    assert_memory_equal(agent_read_line(agent.fd), "commit 7 [", 10);
    agent_say(agent.fd, "failed rank 2 gave up\n");

    assert_string_equal(agent_read_line(agent.fd), "checkpoint {\"loss\":0.25}\n");
    agent_say(agent.fd, "directory 8 /dev/null/nowhere\n");
    assert_memory_equal(agent_read_line(agent.fd), "abort 8 ", 8);
    agent_say(agent.fd, "ok\n");
    worker_expect_end(&agent);
    (void)unlink(path);
    (void)rmdir(staging);
    (void)snprintf(path, sizeof path, "%s/weights", checkpoint_source);
    (void)unlink(path);
    (void)rmdir(checkpoint_source);
}

static void body_store_refusals(ty_worker *worker) {
    char key[257];
    ty_error err = {0};
    memset(key, 'k', 256);
    key[256] = '\0';
    const char *const bad[] = {NULL, "", "a b", "a\nb", "\x7f", key};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(ty_store_set(worker, bad[i], "v", 1, &err) == TY_EUSAGE);
        CHECK(MENTIONS(err.message, "key"));
    }
    CHECK(ty_store_set(NULL, "k", "v", 1, &err) == TY_EUSAGE);
    CHECK(ty_store_set(worker, "k", NULL, 1, &err) == TY_EUSAGE);
    CHECK(ty_store_set(worker, "k", "v", (1 << 20) + 1, &err) == TY_EUSAGE);
    CHECK(ty_store_wait(worker, "k", -1, NULL, NULL, &err) == TY_EUSAGE);
    CHECK(ty_store_wait(worker, "k", NAN, NULL, NULL, &err) == TY_EUSAGE);
}

static void body_store(void) {
    ty_worker *worker = worker_self();
    ty_error err = {0};
    void *value = NULL;
    size_t size = 99;
    int64_t sum = 0;
    body_store_refusals(worker);
    CHECK(ty_store_set(worker, "k", "a\nb", 3, &err) == 0);
    CHECK(ty_store_get(worker, "none", &value, &size, &err) == 0 && value == NULL && size == 99);
    CHECK(ty_store_get(worker, "k", &value, &size, &err) == 1);
    CHECK(size == 3 && memcmp(value, "a\nb", 4) == 0);
    free(value);
    CHECK(ty_store_wait(worker, "late", 0.0105, &value, &size, &err) == TY_ETIMEOUT);
    CHECK(MENTIONS(err.message, "late"));
    CHECK(ty_store_wait(worker, "empty", 1e300, &value, &size, &err) == 1 && size == 0);
    CHECK(((char *)value)[0] == '\0');
    free(value);
    CHECK(ty_store_add(worker, "n", -5, &sum, &err) == 0 && sum == 37);
    CHECK(ty_store_add(worker, "text", 1, &sum, &err) == TY_EUSAGE && sum == 37);
    CHECK(MENTIONS(err.message, "not a number"));
    CHECK(ty_store_get(worker, "odd", &value, &size, &err) == TY_EPROTOCOL);
}

static void test_store(void **state) {
    static const char *const talk[][2] = {
        {"set k 3\n", ""},
        {"a\n", ""},
        {"get none\n", "none\n"},
        {"get k\n", "value 3\na\nb"},
        {"wait late 11\n", "timeout\n"},
        {"wait empty -1\n", "value 0\n"},
        {"add n -5\n", "value 2\n37"},
        {"add text 1\n", "error text is not a number\n"},
        {"get odd\n", "what?\n"},
    };
    (void)state;
    struct agent agent = worker_start(body_store);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    for (size_t i = 0; i < ARRAY_SIZE(talk); i++) {
        assert_string_equal(agent_read_line(agent.fd), talk[i][0]);
        char byte;
        if (i == 1) assert_int_equal(read(agent.fd, &byte, 1), 1); /* the "b" behind the newline */
        if (i == 1) agent_say(agent.fd, "ok\n");
        agent_say(agent.fd, talk[i][1]);
    }
    worker_expect_end(&agent);
}

static void body_child_reports(void) {
    ty_worker *worker = worker_self();
    pid_t child = fork();
    if (child == 0) {
        int rc = ty_report(worker, TY_METRICS({"child", 1}), NULL, NULL);
        exit(rc == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(ty_report(worker, TY_METRICS({"parent", 1}), NULL, NULL) == 0);
}

static void test_child_has_a_channel_of_its_own(void **state) {
    (void)state;
    struct agent agent = worker_start(body_child_reports);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    int channel = agent_expect_open(agent.fd);
    assert_string_equal(agent_read_line(channel), "report {\"child\":1}\n");
    assert_string_equal(agent_read_line(channel), "");
    assert_string_equal(agent_read_line(agent.fd), "report {\"parent\":1}\n");
    (void)close(channel);
    worker_expect_end(&agent);
}

static void body_long_value(void) {
    ty_worker *worker = worker_self();
    static char value[1 << 20];
    memset(value, 'v', sizeof value);
    CHECK(ty_report(worker, TY_METRICS({"x", 1}), NULL, NULL) == 0);
    CHECK(ty_store_set(worker, "long", value, sizeof value, NULL) == 0);
    CHECK(ty_report(worker, TY_METRICS({"x", 2}), NULL, NULL) == 0);
}

/* What does not pass the shared socket in one piece goes over a channel that nobody else can write into. */
static void test_long_messages_leave_the_shared_socket(void **state) {
    static char value[1 << 20];
    (void)state;
    struct agent agent = worker_start(body_long_value);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"x\":1}\n");
    int channel = agent_expect_open(agent.fd);
    assert_string_equal(agent_read_line(channel), "set long 1048576\n");
    assert_int_equal(recv(channel, value, sizeof value, MSG_WAITALL), sizeof value);
    agent_say(channel, "ok\n");
    assert_string_equal(agent_read_line(channel), "report {\"x\":2}\n");
    (void)close(channel);
    worker_expect_end(&agent);
}

static void body_stop(void) {
    ty_worker *worker = worker_self();
    CHECK(!ty_stop_requested(worker));
    CHECK(ty_report(worker, TY_METRICS({"x", 1}), NULL, NULL) == 0);
    while (!ty_stop_requested(worker))
        (void)usleep(1000);
}

static void test_stop(void **state) {
    (void)state;
    struct agent agent = worker_start(body_stop);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"x\":1}\n");
    assert_int_equal(kill(agent.pid, SIGTERM), 0);
    worker_expect_end(&agent);
}

/* Nothing is asked for, and nothing that is NULL is read or written. */
static void body_nulls(void) {
    ty_worker *worker = worker_self();
    ty_error err = {0};
    uint64_t number;
    char *json;
    CHECK(ty_heartbeat(NULL, &err) == TY_EUSAGE && MENTIONS(err.message, "the worker is NULL"));
    CHECK(ty_rendezvous(NULL, &err) == TY_EUSAGE && MENTIONS(err.message, "the worker is NULL"));
    CHECK(ty_preemption(NULL, &json, &err) == TY_EUSAGE && MENTIONS(err.message, "the worker is NULL"));
    CHECK(ty_preemption(worker, NULL, &err) == TY_EUSAGE && MENTIONS(err.message, "place"));
    CHECK(ty_checkpoints_reported(worker, 0, NULL, &err) == TY_EUSAGE && MENTIONS(err.message, "the list"));
    CHECK(ty_report_begin(worker, "{}", NULL, NULL, &json, &err) == TY_EUSAGE &&
          MENTIONS(err.message, "number"));
    CHECK(ty_report_begin(worker, "{}", NULL, &number, NULL, &err) == TY_EUSAGE &&
          MENTIONS(err.message, "path"));
    CHECK(ty_devices(worker, NULL) != NULL);
}

static void test_what_is_null_is_told(void **state) {
    (void)state;
    struct agent agent = worker_start(body_nulls);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    worker_expect_end(&agent);
}

static int train(ty_worker *worker, const void *config, size_t size) {
    if (config == NULL) return size == 0 ? 256 : 1; /* a failure whose low bits are 0 */
    if (getenv(WORKER_FUNCTION_VARIABLE) != NULL) return 2;
    if (ty_report(worker, TY_METRICS({"size", (double)size}), NULL, NULL) < 0) return 3;
    return memcmp(config, "config", size) == 0 ? -1 : 4;
}

static void call_init(const char *payload) {
    static char name[WORKER_FUNCTION_SIZE], text[16];
    CHECK(worker_function_name(train, name, NULL) == 0);
    (void)setenv(WORKER_FUNCTION_VARIABLE, name, 1);
    if (payload != NULL) {
        int fd = memfd_create("payload", 0);
        CHECK(write(fd, payload, strlen(payload)) == (ssize_t)strlen(payload));
        (void)snprintf(text, sizeof text, "%d", fd);
        (void)setenv(WORKER_PAYLOAD_VARIABLE, text, 1);
    }
    ty_init(NULL, NULL);
    _exit(99); /* not reached in a worker */
}

static void body_init(void) {
    call_init("config");
}

static void body_init_without_config(void) {
    call_init(NULL);
}

static int exit_code(struct agent *agent) {
    int status = 0;
    assert_int_equal(waitpid(agent->pid, &status, 0), agent->pid);
    (void)close(agent->fd);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_init_runs_the_function(void **state) {
    (void)state;
    struct agent agent = worker_start(body_init);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    assert_string_equal(agent_read_line(agent.fd), "report {\"size\":6}\n");
    assert_int_equal(exit_code(&agent), 255);
    agent = worker_start(body_init_without_config);
    assert_int_equal(exit_code(&agent), 1);
}

static void test_function_names(void **state) {
    char name[WORKER_FUNCTION_SIZE], other[WORKER_FUNCTION_SIZE + 32];
    ty_train_function *function = NULL;
    ty_error err = {0};
    int on_stack = 0;
    (void)state;
    assert_int_equal(worker_function_name(train, name, &err), 0);
    assert_int_equal(worker_function_find(name, &function, &err), 0);
    assert_ptr_equal(function, train);
    assert_int_equal(worker_function_name(NULL, other, &err), TY_EUSAGE);
    assert_int_equal(worker_function_name((ty_train_function *)(uintptr_t)&on_stack, other, &err), TY_EUSAGE);
    (void)snprintf(other, sizeof other, "00ff%s", name);
    assert_int_equal(worker_function_find(other, &function, &err), TY_EVERSION);
    *strchr(name, ':') = '\0';
    assert_true(MENTIONS(err.message, "00ff"));
    assert_true(MENTIONS(strchr(err.message, ','), name)); /* both builds */
    (void)snprintf(other, sizeof other, "%s:ffffffffffff", name);
    assert_int_equal(worker_function_find(other, &function, &err), TY_EUSAGE);
    static const char *const malformed[] = {"", ":", "abc", ":12", "abc:xyz"};
    for (size_t i = 0; i < ARRAY_SIZE(malformed); i++)
        assert_int_equal(worker_function_find(malformed[i], &function, &err), TY_EUSAGE);
}

static void test_fit_checks_its_arguments(void **state) {
    ty_result *result = NULL;
    ty_error err = {0};
    ty_trainer_config trainer = {0};
    (void)state;
    assert_int_equal(ty_fit(NULL, &result, &err), TY_EUSAGE);
    assert_int_equal(ty_fit(&trainer, NULL, &err), TY_EUSAGE);
    assert_int_equal(ty_fit(&trainer, &result, &err), TY_EUSAGE);
    assert_true(MENTIONS(err.message, "train is NULL"));
    trainer.train = train;
    trainer.config_size = 3;
    assert_int_equal(ty_fit(&trainer, &result, &err), TY_EUSAGE);
    assert_true(MENTIONS(err.message, "config is NULL"));
    trainer.config = "";
    trainer.config_size = (32 << 20) + 1;
    assert_int_equal(ty_fit(&trainer, &result, &err), TY_EUSAGE);
    assert_true(MENTIONS(err.message, "33554433"));
    trainer.config_size = 32 << 20;
    assert_int_equal(ty_fit(&trainer, &result, &err), TY_EUSAGE);
    assert_true(MENTIONS(err.message, "ty_init"));
    assert_int_equal(ty_scaling_resolve(NULL, NULL, &err), TY_EUSAGE);
    assert_null(result);
}

static void test_result_getters(void **state) {
    ty_result *result = calloc(1, sizeof *result);
    double value = 7;
    (void)state;
    result->name = strdup("r");
    result->values = calloc(1, sizeof *result->values);
    result->values[0].name = strdup("loss");
    result->values[0].value = 0.5;
    result->n_values = 1;
    result->num_workers = 2;
    result->exits = calloc(2, sizeof *result->exits);
    result->exits[1] = 137;
    assert_string_equal(ty_result_name(result), "r");
    assert_null(ty_result_metrics(result));
    assert_int_equal(ty_result_metric(result, "accuracy", &value), 0);
    assert_true(value == 7);
    assert_int_equal(ty_result_metric(result, "loss", &value), 1);
    assert_true(value == 0.5);
    assert_int_equal(ty_result_exit(result, 1), 137);
    assert_int_equal(ty_result_exit(result, 2), -1);
    assert_int_equal(ty_result_exit(result, -1), -1);
    ty_result_free(result);
    ty_result_free(NULL);
}

static void body_comm(void) {
    ty_error err = {0};
    (void)setenv("TRAINYARD_COLLECTIVE_TIMEOUT_S", "never", 1);
    ty_worker *worker = worker_self();
    CHECK(ty_comm_get(NULL, &err) == NULL && err.code == TY_EUSAGE);
    CHECK(ty_comm_get(worker, &err) == NULL && err.code == TY_EUSAGE);
    CHECK(MENTIONS(err.message, "TRAINYARD_COLLECTIVE_TIMEOUT_S"));
    (void)setenv("TRAINYARD_COLLECTIVE_TIMEOUT_S", "2.5", 1);
    CHECK(ty_barrier(ty_comm(worker), &err) == TY_ETIMEOUT); /* the failure shows in the call */
    CHECK(MENTIONS(err.message, "ranks 0-2,4-7 did not come"));
}

static void test_communicator_asks_the_store(void **state) {
    char bytes[4096];
    int size = 0;
    (void)state;
    struct agent agent = worker_start(body_comm);
    assert_string_equal(agent_read_line(agent.fd), "ready\n");
    const char *line = agent_read_line(agent.fd);
    assert_int_equal(sscanf(line, "gather trainyard/2/places 2500 %d\n", &size), 1);
    assert_true(size > 0 && size < (int)sizeof bytes);
    assert_int_equal(recv(agent.fd, bytes, (size_t)size, MSG_WAITALL), size);
    agent_say(agent.fd, "timeout 0-2,4-7\n");
    worker_expect_end(&agent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_wrong_variables_are_named),
        cmocka_unit_test(test_metrics_are_shortest_json),
        cmocka_unit_test(test_metrics_ignore_the_locale),
        cmocka_unit_test(test_bad_names_are_refused),
        cmocka_unit_test(test_reports_in_order),
        cmocka_unit_test(test_another_file_hears_nothing),
        cmocka_unit_test(test_metrics_as_json),
        cmocka_unit_test(test_flood_is_not_lost),
        cmocka_unit_test(test_agent_that_is_gone),
        cmocka_unit_test(test_checkpoint_is_copied_and_committed),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_child_has_a_channel_of_its_own),
        cmocka_unit_test(test_long_messages_leave_the_shared_socket),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_what_is_null_is_told),
        cmocka_unit_test(test_function_names),
        cmocka_unit_test(test_fit_checks_its_arguments),
        cmocka_unit_test(test_init_runs_the_function),
        cmocka_unit_test(test_result_getters),
        cmocka_unit_test(test_communicator_asks_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
