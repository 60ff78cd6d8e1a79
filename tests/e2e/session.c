/* Runs that their owner steps (trainyard/run.h), with real agents and workers: events, stopping, closing early,
 * and every key of a request. After each test there is no child, and no descriptor more than before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

enum { QUIET_MS = 2000 };

static const char all_events[] = "\"events\": [\"output\", \"log\", \"report\", \"run\", \"wait\", \"plan\", "
                                 "\"attempt\", \"node\", \"node_lost\", "
                                 "\"launched\", \"started\", \"ready\", \"exited\", \"gone\", "
                                 "\"start_failed\", \"checkpoint\", \"stop\", \"clean\", "
                                 "\"attempt_end\", \"run_end\"], \"output\": \"events\", \"num_cpus\": 8";

static char place[] = "/tmp/trainyard-session-XXXXXX";

/* A run, and what was heard of it. */
struct session {
    ty_run *run;
    json_t *events; /* a list */
    ty_result *got; /* after close_run; NULL: none */
    json_t *result; /* the same as JSON */
    int code;
    ty_error err;
};

static size_t count_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    size_t n = 0;
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        n++;
    (void)closedir(directory);
    return n;
}

static bool has_children(void) {
    return waitpid(-1, NULL, WNOHANG | __WALL) >= 0 || errno != ECHILD;
}

/* Python would write a dict; here keys are added to the usual ones. */
static void open_run(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void open_run(struct session *session, const char *format, ...) {
    char *keys = NULL, *request = NULL;
    va_list args;
    va_start(args, format);
    assert_true(vasprintf(&keys, format, args) > 0);
    va_end(args);
    assert_true(asprintf(&request, "{\"storage_path\": \"%s\", %s, %s}", place, all_events, keys) > 0);
    *session = (struct session){.events = json_array()};
    if (ty_run_open(request, NULL, 0, &session->run, &session->err) < 0) fail_msg("%s", session->err.message);
    free(request);
    free(keys);
}

static void take_events(struct session *session) {
    char *text;
    while (ty_run_next_event(session->run, &text) == 1) {
        json_t *event = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(event);
        assert_int_equal(json_array_append_new(session->events, event), 0);
        free(text);
    }
}

static bool dispatch(struct session *session) {
    int result = ty_run_dispatch(session->run, &session->err);
    assert_true(result >= 0);
    return result > 0;
}

/* False when nothing happens for `limit_ms` (-1: waits on). */
static bool wait_for_news(struct session *session, int limit_ms) {
    int timeout = ty_run_timeout_ms(session->run);
    bool own = limit_ms >= 0 && (timeout < 0 || timeout > limit_ms);
    struct pollfd ready = {ty_run_fd(session->run), POLLIN, 0};
    return poll(&ready, 1, own ? limit_ms : timeout) != 0 || !own;
}

static const json_t *find(const struct session *session, const char *kind, size_t n) {
    size_t i;
    json_t *event;
    json_array_foreach(session->events, i, event) {
        if (strcmp(json_string_value(json_object_get(event, "event")), kind) == 0 && n-- == 0) return event;
    }
    return NULL;
}

/* Until the n-th event of a kind (from 0) has come. */
static void step_until(struct session *session, const char *kind, size_t n) {
    take_events(session);
    while (find(session, kind, n) == NULL) {
        (void)wait_for_news(session, -1);
        bool more = dispatch(session);
        take_events(session);
        if (!more && find(session, kind, n) == NULL) fail_msg("ended before %s", kind);
    }
}

static void step_to_end(struct session *session) {
    while (dispatch(session)) {
        take_events(session);
        (void)wait_for_news(session, -1);
    }
    take_events(session);
}

/* From its first output on, until its agents have nothing to say, or are not heard; false: until its end. */
static bool step_without_taking(struct session *session) {
    bool more;
    step_until(session, "output", 0);
    while ((more = dispatch(session)) && wait_for_news(session, QUIET_MS)) {
    }
    return more;
}

static void close_run(struct session *session) {
    session->code = ty_run_close(session->run, &session->got, &session->err);
    const char *json = session->got == NULL ? NULL : ty_result_json(session->got);
    session->result = json == NULL ? NULL : json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json == NULL || session->result != NULL);
}

static void done(struct session *session) {
    json_decref(session->events);
    json_decref(session->result);
    ty_result_free(session->got);
}

static json_int_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("%s is no whole number", key);
    return json_integer_value(value);
}

static const char *text(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

static json_int_t exit_of(const struct session *session, size_t rank) {
    return json_integer_value(json_array_get(json_object_get(session->result, "exits"), rank));
}

static void assert_gone(const struct session *session) {
    size_t i;
    json_t *event;
    json_array_foreach(session->events, i, event) {
        if (strcmp(text(event, "event"), "started") != 0) continue;
        assert_int_equal(kill((pid_t)number(event, "pid"), 0), -1);
    }
}

static void a_run_is_stepped(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"scaling\": {\"num_workers\": 2}, \"name\": \"steps\", "
                       "\"argv\": [\"sh\", \"-c\", \"echo out $RANK; echo err >&2\"]");
    step_to_end(&session);
    static const char *const order[] = {"run",     "plan",   "attempt",     "node",  "launched",
                                        "started", "exited", "attempt_end", "clean", "run_end"};
    size_t at = 0, i;
    json_t *event;
    json_array_foreach(session.events, i, event) {
        if (at < sizeof order / sizeof order[0] && strcmp(text(event, "event"), order[at]) == 0) at++;
    }
    assert_int_equal(at, sizeof order / sizeof order[0]);
    assert_non_null(find(&session, "gone", 1));
    assert_int_equal(number(find(&session, "attempt", 0), "workers"), 2);
    assert_true(json_is_real(json_object_get(find(&session, "started", 0), "time")));
    assert_null(find(&session, "output", 4));
    const json_t *line = find(&session, "output", 3);
    assert_non_null(line);
    assert_non_null(strstr(text(line, "text"), number(line, "stream") == 1 ? "] out " : "] err\n"));
    close_run(&session);
    assert_int_equal(session.code, 0);
    assert_string_equal(text(session.result, "name"), "steps");
    assert_string_equal(text(session.result, "outcome"), "succeeded");
    assert_true(json_is_null(json_object_get(session.result, "error")));
    assert_int_equal(json_array_size(json_object_get(session.result, "failed")), 0);
    assert_int_equal(json_array_size(json_object_get(session.result, "workers")), 2);
    done(&session);
}

/* In a child: what each call with its parent's run comes to, and an end by exit. */
static _Noreturn void meddle(ty_run *run, pid_t parent) {
    char told[64], *event = NULL;
    ty_error err = {0};
    ty_result *result = (ty_result *)&err;
    (void)snprintf(told, sizeof told, "belongs to process %d,", (int)parent);
    bool refused = ty_run_dispatch(run, &err) == TY_EUSAGE && strstr(err.message, told) != NULL &&
                   ty_run_next_event(run, &event) == TY_EUSAGE && ty_run_stop(run, SIGKILL) == TY_EUSAGE &&
                   ty_run_fd(run) == -1 && ty_run_timeout_ms(run) == 0 &&
                   ty_run_close(run, &result, &err) == TY_EUSAGE && result == NULL;
#if defined(__SANITIZE_ADDRESS__)
    _exit(refused ? 0 : 1); /* what a thread of the parent's had in its hands would be taken for lost here */
#else
    exit(refused ? 0 : 1);
#endif
}

/* Two children that the process forks: one tries all calls and ends by exit, the other outlives the run. */
static void a_forked_child_has_no_part_in_the_run(void **state) {
    (void)state;
    struct session session;
    int status = -1;
    open_run(&session,
             "\"scaling\": {\"num_workers\": 2}, \"name\": \"forks\", "
             "\"argv\": [\"sh\", \"-c\", \"while [ ! -e %s/children ]; do sleep 0.01; done\"]",
             place);
    step_until(&session, "started", 1);
    pid_t parent = getpid(), children[2];
    for (size_t i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0 && i == 0) meddle(session.run, parent);
        if (children[i] == 0) {
            (void)pause();
            _exit(0);
        }
    }
    assert_int_equal(waitpid(children[0], &status, 0), children[0]);
    assert_int_equal(status, 0);
    char *path = NULL;
    assert_true(asprintf(&path, "%s/children", place) > 0);
    assert_int_equal(close(creat(path, 0600)), 0);
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, 0);
    assert_string_equal(text(session.result, "outcome"), "succeeded");
    assert_int_equal(unlink(path), 0);
    free(path);
    done(&session);
    open_run(&session, "\"scaling\": {\"num_workers\": 1}, \"name\": \"forks\", \"resume\": true, "
                       "\"argv\": [\"true\"]"); /* nobody holds the run any more */
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, 0);
    done(&session);
    assert_int_equal(kill(children[1], SIGKILL), 0);
    assert_int_equal(waitpid(children[1], &status, 0), children[1]);
}

static void a_failure_is_told(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"scaling\": {\"num_workers\": 3}, \"grace_s\": 60, "
                       "\"argv\": [\"sh\", \"-c\", \"[ $RANK = 1 ] && exit 7; exec sleep 1000\"]");
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, TY_EWORKER);
    assert_string_equal(text(session.result, "cause"), "rank 1 exited with code 7");
    assert_ptr_equal(strstr(session.err.message, "rank 1 exited with code 7, on node "), session.err.message);
    assert_non_null(strstr(session.err.message, text(session.result, "first_node")));
    assert_string_equal(text(json_object_get(session.result, "error"), "code"), "TY_EWORKER");
    assert_int_equal(number(session.result, "first_rank"), 1);
    assert_int_equal(number(session.result, "status"), 7);
    assert_int_equal(exit_of(&session, 1), 7);
    assert_int_equal(exit_of(&session, 0), 128 + SIGTERM);
    const json_t *failed = json_object_get(session.result, "failed");
    assert_int_equal(json_array_size(failed), 1);
    assert_int_equal(number(json_array_get(failed, 0), "rank"), 1);
    assert_true(json_is_true(
        json_object_get(json_array_get(json_object_get(session.result, "workers"), 2), "stopped")));
    assert_gone(&session);
    done(&session);
}

static void attempts_are_told(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"failure_config\": {\"max_failures\": 1}, \"argv\": [\"sh\", \"-c\", \"exit 3\"]");
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, TY_EWORKER);
    assert_int_equal(number(session.result, "attempts"), 2);
    assert_non_null(strstr(text(find(&session, "log", 0), "text"), "attempt 2"));
    assert_string_equal(text(find(&session, "log", 0), "level"), "warning");
    done(&session);
}

static void the_history_tells_how_each_attempt_ended(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"failure_config\": {\"max_failures\": 1}, \"argv\": [\"sh\", \"-c\", "
                       "\"[ $TRAINYARD_ATTEMPT = 2 ] || kill -KILL $$\"], \"scaling\": {\"num_workers\": 1}");
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, 0);
    assert_int_equal(ty_result_attempts(session.got), 2);
    const ty_attempt_info *first = ty_result_attempt(session.got, 0),
                          *second = ty_result_attempt(session.got, 1);
    assert_null(ty_result_attempt(session.got, 2));
    assert_null(ty_result_attempt(session.got, -1));
    assert_int_equal(first->attempt, 1);
    assert_int_equal(first->num_workers, 1);
    assert_string_equal(first->outcome, "failed");
    assert_int_equal(first->rank, 0);
    assert_non_null(first->node);
    assert_non_null(strstr(first->cause, "SIGKILL"));
    assert_null(first->checkpoint);
    assert_true(first->began <= first->ended && first->ended <= second->began &&
                second->began <= second->ended);
    assert_string_equal(second->outcome, "succeeded");
    assert_int_equal(second->rank, -1);
    assert_null(second->node);
    assert_null(second->cause);
    const json_t *history = json_object_get(session.result, "history");
    assert_int_equal(json_array_size(history), 2);
    assert_string_equal(text(json_array_get(history, 0), "node"), first->node);
    assert_string_equal(text(json_array_get(history, 0), "cause"), first->cause);
    assert_true(json_is_null(json_object_get(json_array_get(history, 1), "cause")));
    done(&session);
}

/* By whoever has the directory alone, before its end and behind it. */
static void a_result_is_read_from_its_directory(void **state) {
    (void)state;
    struct session session;
    ty_result *read = NULL;
    ty_error err = {0};
    open_run(
        &session,
        "\"failure_config\": {\"max_failures\": 1}, \"argv\": [\"sh\", \"-c\", "
        "\"echo 'report {\\\"loss\\\": 0.5}' >&$TRAINYARD_FD; [ $TRAINYARD_ATTEMPT = 2 ] || kill -KILL $$\"], "
        "\"scaling\": {\"num_workers\": 1}");
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, 0);
    const char *path = ty_result_path(session.got);
    assert_int_equal(ty_result_read(path, &read, &err), 0);
    assert_string_equal(ty_result_name(read), ty_result_name(session.got));
    assert_string_equal(ty_result_path(read), path);
    assert_string_equal(ty_result_metrics(read), ty_result_metrics(session.got));
    double loss = 0;
    assert_int_equal(ty_result_metric(read, "loss", &loss), 1);
    assert_true(loss == 0.5);
    assert_null(ty_result_checkpoint(read));
    assert_int_equal(ty_result_attempts(read), 2);
    assert_int_equal(ty_result_num_workers(read), 1);
    assert_int_equal(ty_result_exit(read, 0), -1);
    json_t *told = json_loads(ty_result_json(read), 0, NULL);
    assert_true(json_equal(json_object_get(told, "history"), json_object_get(session.result, "history")));
    assert_true(
        json_equal(json_object_get(told, "checkpoints"), json_object_get(session.result, "checkpoints")));
    assert_string_equal(text(told, "outcome"), "succeeded");
    json_decref(told);
    ty_result_free(read);
    assert_int_equal(ty_result_read("runs/r", &read, &err), TY_EUSAGE);
    assert_int_equal(ty_result_read(NULL, &read, &err), TY_EUSAGE);
    assert_true(ty_result_read("/nowhere/at/all", &read, &err) < 0);
    assert_non_null(strstr(err.message, "/nowhere/at/all/run.db"));
    done(&session);
}

static void stopped_once_workers_end_politely(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"grace_s\": 60, \"argv\": [\"sh\", \"-c\", \"trap 'exit 9' TERM; echo up; while :; do "
                       "sleep 0.05; done\"]");
    step_until(&session, "output", 0);
    assert_int_equal(ty_run_stop(session.run, -1), TY_EUSAGE);
    assert_int_equal(ty_run_stop(session.run, 9999), TY_EUSAGE);
    assert_int_equal(ty_run_stop(session.run, SIGINT), 0);
    step_to_end(&session);
    assert_int_equal(ty_run_dispatch(session.run, NULL), 0);
    assert_int_equal(ty_run_stop(session.run, SIGINT), 0);
    close_run(&session);
    assert_int_equal(session.code, TY_EINTERRUPTED);
    assert_int_equal(number(session.result, "status"), 128 + SIGINT);
    assert_int_equal(exit_of(&session, 0), 9);
    assert_non_null(strstr(text(find(&session, "log", 0), "text"), "SIGINT"));
    done(&session);
}

/* No signal is named where none came. */
static void stopped_by_the_program_itself(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"grace_s\": 60, \"argv\": [\"sleep\", \"1000\"]");
    step_until(&session, "started", 0);
    assert_int_equal(ty_run_stop(session.run, 0), 0);
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, TY_EINTERRUPTED);
    assert_int_equal(number(session.result, "status"), 128 + SIGINT);
    assert_string_equal(session.err.message, "interrupted by the program that runs it");
    done(&session);
}

static double lasted(const struct session *session, size_t attempt) {
    return json_real_value(json_object_get(find(session, "attempt_end", attempt), "time")) -
           json_real_value(json_object_get(find(session, "attempt", attempt), "time"));
}

/* Before a further attempt there is no worker that could be given time. */
static void stopped_in_the_pause_before_an_attempt(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"failure_config\": {\"max_failures\": -1}, "
                       "\"argv\": [\"sh\", \"-c\", \"exit 3\"]");
    size_t n = 3; /* the pauses have grown; there is none behind an attempt that a busy machine made long */
    step_until(&session, "attempt_end", n);
    while (lasted(&session, n) > 4)
        step_until(&session, "attempt_end", ++n);
    assert_int_equal(ty_run_stop(session.run, SIGTERM), 0);
    step_to_end(&session);
    close_run(&session);
    bool told = false;
    const json_t *event;
    for (size_t i = 0; (event = find(&session, "log", i)) != NULL; i++) {
        assert_null(strstr(text(event, "text"), "to end"));
        told |= strstr(text(event, "text"), "no further attempt begins") != NULL;
    }
    assert_true(told);
    done(&session);
}

static void stopped_twice_workers_end_at_once(void **state) {
    (void)state;
    struct session session;
    open_run(&session,
             "\"grace_s\": 600, \"argv\": [\"sh\", \"-c\", \"trap '' TERM INT; echo up; exec sleep 1000\"]");
    step_until(&session, "output", 0);
    assert_int_equal(ty_run_stop(session.run, SIGINT), 0);
    step_until(&session, "stop", 0);
    assert_int_equal(ty_run_stop(session.run, SIGINT), 0);
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, TY_EINTERRUPTED);
    assert_int_equal(exit_of(&session, 0), 128 + SIGKILL);
    assert_gone(&session);
    done(&session);
}

/* Whenever it is closed, nothing is left. */
static void closed_early_nothing_is_left(void **state) {
    (void)state;
    static const char *const moments[] = {NULL, "node", "launched", "started", "output"};
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        struct session session;
        open_run(&session, "\"scaling\": {\"num_workers\": 2}, \"grace_s\": 600, \"argv\": [\"sh\", \"-c\", "
                           "\"trap '' TERM; (setsid sleep 1000 &); echo up; sleep 1000\"]");
        if (moments[i] != NULL) step_until(&session, moments[i], 0);
        close_run(&session);
        assert_int_equal(session.code, TY_EINTERRUPTED);
        assert_string_equal(text(session.result, "outcome"), "interrupted");
        assert_gone(&session);
        assert_false(has_children());
        done(&session);
    }
}

static void the_result_may_be_left(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"argv\": [\"sleep\", \"1000\"]");
    assert_int_equal(ty_run_close(session.run, NULL, NULL), TY_EINTERRUPTED);
    done(&session);
}

static void environment_and_payload_arrive(void **state) {
    (void)state;
    char request[1024];
    struct session session = {.events = json_array()};
    (void)snprintf(request, sizeof request,
                   "{\"storage_path\": \"%s\", %s, \"environment\": {\"PATH\": \"%s\", \"OWN\": \"value\"}, "
                   "\"argv\": [\"sh\", "
                   "\"-c\", \"echo $OWN-$HOME-$(eval cat \\\"<&$TRAINYARD_PAYLOAD_FD\\\")\"]}",
                   place, all_events, getenv("PATH"));
    assert_int_equal(ty_run_open(request, "the bytes", 9, &session.run, &session.err), 0);
    step_to_end(&session);
    assert_non_null(strstr(text(find(&session, "output", 0), "text"), "value--the bytes\n"));
    close_run(&session);
    assert_int_equal(session.code, 0);
    done(&session);
}

static void elastic_workers_start_as_many_as_fit(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"scaling\": {\"num_workers\": [1, 20]}, \"argv\": [\"true\"]");
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, 0);
    assert_int_equal(number(session.result, "num_workers"), 8);
    done(&session);
}

/* Of the events from this one on. */
static size_t size_from(const struct session *session, size_t first) {
    size_t size = 0;
    for (size_t i = first; i < json_array_size(session->events); i++) {
        char *text = json_dumps(json_array_get(session->events, i), JSON_COMPACT);
        size += strlen(text);
        free(text);
    }
    return size;
}

/* What is not taken is not asked for: agents wait, and nothing is lost. They may also be silent because the
 * machine is busy: then they are given more time. */
static void output_waits_until_it_is_taken(void **state) {
    (void)state;
    enum { TOTAL = 16 << 20 };
    struct session session;
    open_run(&session, "\"argv\": [\"sh\", \"-c\", \"yes 1234567890123456789 | head -c %d\"]", TOTAL);
    size_t held = 0, size = 0, i;
    for (bool more = true; more && held <= 1 << 20;) {
        size_t before = json_array_size(session.events);
        more = step_without_taking(&session);
        take_events(&session);
        held = size_from(&session, before);
    }
    assert_true(held > 1 << 20 && held < TOTAL / 2);
    step_to_end(&session);
    json_t *event;
    json_array_foreach(session.events, i, event) {
        if (strcmp(text(event, "event"), "output") == 0) size += strlen(text(event, "text"));
    }
    close_run(&session);
    assert_int_equal(session.code, 0);
    assert_int_equal(size, TOTAL / 20 * (20 + strlen("[rank 0] ")) + strlen("[rank 0] ") + TOTAL % 20 + 1);
    done(&session);
}

static void untaken_output_does_not_hold_up_the_end(void **state) {
    (void)state;
    struct session session;
    open_run(&session, "\"grace_s\": 1, \"argv\": [\"yes\"]");
    assert_true(step_without_taking(&session));
    close_run(&session);
    assert_int_equal(session.code, TY_EINTERRUPTED);
    assert_false(has_children());
    done(&session);
}

static void signals_stay_as_they_are(void **state) {
    (void)state;
    static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before[5], now;
    sigset_t mask, mask_now;
    int was = -1;
    struct session session;
    assert_int_equal(sigaction(SIGHUP, &ignore, NULL), 0);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(sigaction(watched[i], NULL, &before[i]), 0);
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &mask), 0);
    open_run(&session, "\"argv\": [\"true\"]");
    step_until(&session, "started", 0);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(sigaction(watched[i], NULL, &now), 0);
        assert_ptr_equal(now.sa_handler, before[i].sa_handler);
    }
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &mask_now), 0);
    assert_memory_equal(&mask, &mask_now, 8);
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(prctl(PR_GET_CHILD_SUBREAPER, &was), 0);
    assert_int_equal(was, 0);
    done(&session);
}

#define ON_THE_GPU "\"num_gpus\": 1, \"scaling\": {\"num_workers\": 1, \"use_gpu\": true}"

/* Another process, whose run "holder" has the only GPU until `*release` is closed. */
static pid_t hold_the_gpu(int *release) {
    int told[2], ends[2];
    char byte;
    assert_true(pipe(told) == 0 && pipe(ends) == 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct session holder;
        (void)alarm(600); /* whatever becomes of the test */
        (void)close(ends[1]);
        open_run(&holder, ON_THE_GPU ", \"name\": \"holder-%d\", \"argv\": [\"sleep\", \"1000\"]",
                 (int)getpid());
        step_until(&holder, "started", 0);
        bool held = write(told[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 0;
        (void)ty_run_stop(holder.run, SIGTERM);
        step_to_end(&holder);
        close_run(&holder);
        _exit(held ? 0 : 1);
    }
    (void)close(told[1]);
    (void)close(ends[0]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    (void)close(told[0]);
    *release = ends[1];
    return pid;
}

static void let_go(pid_t holder, int *release) {
    int status = -1;
    if (*release >= 0) (void)close(*release);
    *release = -1;
    assert_int_equal(waitpid(holder, &status, 0), holder);
    assert_int_equal(status, 0);
}

static void devices_that_others_hold_are_waited_for(void **state) {
    (void)state;
    struct session session;
    int release;
    pid_t holder = hold_the_gpu(&release);
    open_run(&session, ON_THE_GPU ", \"argv\": [\"true\"]");
    step_until(&session, "wait", 0);
    const json_t *wait = find(&session, "wait", 0);
    assert_int_equal(number(json_array_get(json_object_get(wait, "holders"), 0), "pid"), holder);
    assert_non_null(strstr(text(wait, "reason"), "holder-"));
    let_go(holder, &release);
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, 0);
    done(&session);
}

static void a_run_that_waits_can_be_stopped(void **state) {
    (void)state;
    struct session session;
    int release;
    pid_t holder = hold_the_gpu(&release);
    open_run(&session, ON_THE_GPU ", \"argv\": [\"true\"]");
    step_until(&session, "wait", 0);
    assert_int_equal(ty_run_stop(session.run, SIGINT), 0);
    step_to_end(&session);
    close_run(&session);
    assert_int_equal(session.code, TY_EINTERRUPTED);
    assert_int_equal(number(session.result, "status"), 128 + SIGINT);
    assert_int_equal(json_array_size(json_object_get(session.result, "history")), 0);
    assert_null(ty_result_attempt(session.got, 0));
    let_go(holder, &release);
    done(&session);
}

static void no_wait_refuses_what_others_hold(void **state) {
    (void)state;
    char request[512];
    ty_run *run = NULL;
    ty_error err = {0};
    int release;
    pid_t holder = hold_the_gpu(&release);
    (void)snprintf(
        request, sizeof request,
        "{\"storage_path\": \"%s\", \"name\": \"refused\", \"num_cpus\": 8, \"no_wait\": true, " ON_THE_GPU
        ", \"argv\": [\"true\"]}",
        place);
    assert_int_equal(ty_run_open(request, NULL, 0, &run, &err), TY_EBUSY);
    assert_null(run);
    assert_non_null(strstr(err.message, "holder-"));
    (void)snprintf(request, sizeof request, "%s/refused", place);
    assert_int_equal(access(request, F_OK), -1);
    let_go(holder, &release);
}

/* Whoever read our output has gone, and SIGPIPE would end us. */
static void a_closed_output_is_no_end(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)close(ends[0]);
    int saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0 && dup2(ends[1], STDOUT_FILENO) >= 0);
    (void)close(ends[1]);
    char request[512];
    struct session session = {.events = json_array()};
    (void)snprintf(
        request, sizeof request,
        "{\"storage_path\": \"%s\", \"num_cpus\": 1, \"argv\": [\"seq\", \"1000\"], \"progress\": \"none\"}",
        place);
    int code = ty_run_open(request, NULL, 0, &session.run, &session.err);
    if (code == 0) step_to_end(&session);
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    assert_int_equal(code, 0);
    assert_int_equal(json_array_size(session.events), 0);
    close_run(&session);
    assert_int_equal(session.code, 0);
    done(&session);
}

static void a_kept_agent_serves_the_next_run(void **state) {
    (void)state;
    json_int_t pids[3];
    for (int i = 0; i < 3; i++) {
        struct session session;
        open_run(&session, "\"keep_agents\": true, \"argv\": [\"sh\", \"-c\", \"exit %d\"]", i);
        step_to_end(&session);
        pids[i] = number(find(&session, "node", 0), "pid");
        close_run(&session);
        assert_int_equal(session.code, i == 0 ? 0 : TY_EWORKER);
        done(&session);
    }
    assert_int_equal(pids[0], pids[1]);
    assert_int_equal(pids[0], pids[2]);
}

static const struct bad_request {
    const char *request, *message; /* a part of it */
} bad_requests[] = {
    {"", "the request is no JSON"},
    {"{", "the request is no JSON"},
    {"[]", "the request"},
    {"{\"argv\": [\"true\"], \"argv\": [\"true\"]}", "duplicate"},
    {"{}", "`argv` is missing"},
    {"{\"argv\": null}", "`argv` is missing"},
    {"{\"argvs\": []}", "did you mean \"argv\"?"},
    {"{\"argv\": []}", "`argv` must be a list of texts"},
    {"{\"argv\": [\"\"]}", "`argv` must be a list of texts"},
    {"{\"argv\": [\"true\"], \"chaos\": 1}", "`chaos` must be a text SEED[:EVERY], not 1"},
    {"{\"argv\": [\"true\"], \"chaos\": \"soon\"}", "`chaos`: the seed must be a whole number"},
    {"{\"argv\": [\"true\"], \"chaos\": \"1:1ms\"}", "`chaos`: faults cannot come more often"},
    {"{\"argv\": \"true\"}", "`argv` must be a list of texts"},
    {"{\"argv\": [\"true\", 1]}", "`argv` must be a list of texts, not 1"},
    {"{\"scaling\": 4}", "a map of fields, not 4"},
    {"{\"scaling\": {\"num_worker\": 4}}", "did you mean \"num_workers\"?"},
    {"{\"scaling\": {\"num_workers\": \"4\"}}", "`num_workers` must be"},
    {"{\"argv\": [\"true\"], \"scaling\": {\"num_workers\": 0}}", "num_workers must be at least 1"},
    {"{\"argv\": [\"true\"], \"scaling\": {\"num_workers\": -1}}", "num_workers"},
    {"{\"name\": 5}", "`name` must be a text that is not empty, not 5"},
    {"{\"name\": \"\"}", "`name` must be a text that is not empty"},
    {"{\"argv\": [\"true\"], \"name\": \"a/b\"}", "the run name \"a/b\" is not usable"},
    {"{\"storage_path\": false}", "`storage_path` must be a text"},
    {"{\"resume\": 1}", "`resume` must be true or false, not 1"},
    {"{\"engine\": []}", "`engine` must be a text"},
    {"{\"argv\": [\"true\"], \"engine\": \"moon\"}", "engine \"moon\" is unknown"},
    {"{\"cluster\": {}}", "`cluster` must be a text"},
    {"{\"argv\": [\"true\"], \"cluster\": \"/nowhere.yaml\"}", "/nowhere.yaml"},
    {"{\"argv\": [\"true\"], \"cluster\": \"x\", \"num_cpus\": 1}", "give one of the two"},
    {"{\"num_cpus\": -1}", "`num_cpus` must be a number from 0 on, not -1"},
    {"{\"num_gpus\": \"two\"}", "`num_gpus` must be a number from 0 on, not \"two\""},
    {"{\"node_resources\": [1]}", "`node_resources` must be a map"},
    {"{\"node_resources\": {\"disk\": \"x\"}}", "`node_resources`: the amount of disk must be a number"},
    {"{\"node_resources\": {\"disk\": -1}}", "`node_resources`"},
    {"{\"environment\": [\"A=B\"]}", "`environment` must be a map"},
    {"{\"environment\": {\"A\": 1}}", "the value of A must be a text"},
    {"{\"environment\": {\"A=B\": \"\"}}", "\"A=B\" is no name of a variable"},
    {"{\"environment\": {\"\": \"\"}}", "is no name of a variable"},
    {"{\"framework\": 1}", "`framework` must be a text"},
    {"{\"argv\": [\"true\"], \"framework\": \"mxnet\"}", "mxnet"},
    {"{\"backend\": \"mpi\"}", "`backend` must be one of auto|gloo|nccl, not \"mpi\""},
    {"{\"isolate_devices\": \"yes\"}", "`isolate_devices` must be true or false"},
    {"{\"grace_s\": -1}", "`grace_s` must be a number of seconds from 0 to 3000000000, not -1"},
    {"{\"grace_s\": \"5s\"}", "`grace_s` must be a number of seconds"},
    {"{\"time_limit_s\": 1e10}", "`time_limit_s` must be a number of seconds"},
    {"{\"quiet\": 0}", "`quiet` must be true or false"},
    {"{\"no_wait\": \"\"}", "`no_wait` must be true or false"},
    {"{\"progress\": \"bar\"}", "`progress` must be one of auto|plain|none, not \"bar\""},
    {"{\"output\": true}", "`output` must be one of inherit|events, not true"},
    {"{\"events\": \"log\"}", "`events` must be a list of kinds of events"},
    {"{\"events\": [1]}", "`events` must be a list of kinds of events, not 1"},
    {"{\"events\": [\"start\"]}", "\"start\" is no kind of event"},
    {"{\"events\": [\"reports\"]}", "did you mean report?"},
    {"{\"start_method\": \"thread\"}",
     "`start_method` must be one of spawn|template|auto|fork, not \"thread\""},
    {"{\"argv\": [\"true\"], \"start_method\": \"auto\"}", "`template_argv` is missing"},
    {"{\"template_argv\": {}}", "`template_argv` must be a list of texts"},
    {"{\"failure_config\": 3}", "failure_config must be a map"},
    {"{\"failure_config\": {\"max_failure\": 3}}", "did you mean \"max_failures\"?"},
    {"{\"failure_config\": {\"max_failures\": -2}}", "`max_failures` must be a whole number from 0 to 1000000"},
    {"{\"failure_config\": {\"max_failures\": 1.5}}", "not 1.5"},
    {"{\"failure_config\": {\"controller_failure_limit\": true}}", "`controller_failure_limit` must be"},
    {"{\"failure_config\": {\"max_preemption_failures\": \"\"}}", "`max_preemption_failures` must be"},
    {"{\"checkpoint_config\": []}", "checkpoint_config must be a map"},
    {"{\"checkpoint_config\": {\"keep\": 1}}", "checkpoint_config has no key \"keep\""},
    {"{\"checkpoint_config\": {\"num_to_keep\": 0}}", "`num_to_keep` must be a whole number from 1"},
    {"{\"checkpoint_config\": {\"checkpoint_score_attribute\": 1}}",
     "`checkpoint_score_attribute` must be a text"},
    {"{\"checkpoint_config\": {\"checkpoint_score_order\": \"best\"}}", "must be one of max|min, not \"best\""},
    {"{\"checkpoint_config\": {\"on_checkpoint_error\": 1}}", "must be one of fail|continue, not 1"},
    {"{\"keep_agents\": \"no\"}", "`keep_agents` must be true or false"},
    {"{\"argv\": [\"true\"], \"num_cpus\": 1, \"scaling\": {\"num_workers\": 2}}", "CPU"},
};

/* An environment that no launch can carry. */
static void large_request_starts_nothing(void) {
    enum { SIZE = 50 << 20 };
    static const char head[] = "{\"argv\": [\"true\"], \"environment\": {\"A\": \"", tail[] = "\"}}";
    char *request = malloc(sizeof head + SIZE + sizeof tail);
    ty_run *run = NULL;
    ty_error err = {0};
    assert_non_null(request);
    memcpy(request, head, sizeof head - 1);
    memset(request + sizeof head - 1, 'x', SIZE);
    memcpy(request + sizeof head - 1 + SIZE, tail, sizeof tail);
    int code = ty_run_open(request, NULL, 0, &run, &err);
    free(request);
    assert_int_equal(code, TY_EUSAGE);
    assert_string_equal(err.message,
                        "a run of 52428808 bytes (arguments 5, environment 52428803, config 0) is over "
                        "the limit of 50331648: put what is large into a file");
    assert_null(run);
}

static void bad_requests_start_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_requests / sizeof bad_requests[0]; i++) {
        const struct bad_request *bad = &bad_requests[i];
        ty_run *run = NULL;
        ty_error err = {0};
        int code = ty_run_open(bad->request, NULL, 0, &run, &err);
        if (code != TY_EUSAGE && code != TY_EINFEASIBLE) fail_msg("%s gave %d", bad->request, code);
        if (err.code != code || strstr(err.message, bad->message) == NULL)
            fail_msg("%s gave \"%s\", which lacks \"%s\"", bad->request, err.message, bad->message);
        assert_null(run);
    }
    ty_run *run = NULL;
    assert_int_equal(ty_run_open(NULL, NULL, 0, &run, NULL), TY_EUSAGE);
    large_request_starts_nothing();
    assert_int_equal(ty_run_open("{}", NULL, 0, NULL, NULL), TY_EUSAGE);
    assert_int_equal(ty_run_open("{}", NULL, 1, &run, NULL), TY_EUSAGE);
    assert_int_equal(ty_run_open("{}", "", (size_t)1 << 40, &run, NULL), TY_EUSAGE);
    assert_int_equal(ty_run_open("{}", NULL, 0, &run, NULL), TY_EUSAGE);
}

/* What the first call loads stays: modules, the lists of the C library. */
static int make_place(void **state) {
    (void)state;
    struct session session;
    if (mkdtemp(place) == NULL || setenv("HOME", place, 1) < 0 || setenv("TRAINYARD_LEASE_DIR", place, 1) < 0)
        return -1;
    open_run(&session, "\"argv\": [\"true\"]");
    close_run(&session);
    done(&session);
    return 0;
}

static int remove_place(void **state) {
    (void)state;
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", place);
    return system(command);
}

static int count_before(void **state) {
    static size_t descriptors;
    descriptors = count_descriptors();
    *state = &descriptors;
    return 0;
}

static int check_after(void **state) {
    return count_descriptors() == *(size_t *)*state && !has_children() ? 0 : -1;
}

#define CLEAN_TEST(test) cmocka_unit_test_setup_teardown(test, count_before, check_after)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLEAN_TEST(bad_requests_start_nothing),
        CLEAN_TEST(a_run_is_stepped),
        CLEAN_TEST(a_failure_is_told),
        CLEAN_TEST(a_forked_child_has_no_part_in_the_run),
        CLEAN_TEST(attempts_are_told),
        CLEAN_TEST(the_history_tells_how_each_attempt_ended),
        CLEAN_TEST(a_result_is_read_from_its_directory),
        CLEAN_TEST(stopped_once_workers_end_politely),
        CLEAN_TEST(stopped_by_the_program_itself),
        CLEAN_TEST(stopped_in_the_pause_before_an_attempt),
        CLEAN_TEST(stopped_twice_workers_end_at_once),
        CLEAN_TEST(closed_early_nothing_is_left),
        CLEAN_TEST(the_result_may_be_left),
        CLEAN_TEST(environment_and_payload_arrive),
        CLEAN_TEST(elastic_workers_start_as_many_as_fit),
        CLEAN_TEST(output_waits_until_it_is_taken),
        CLEAN_TEST(untaken_output_does_not_hold_up_the_end),
        CLEAN_TEST(devices_that_others_hold_are_waited_for),
        CLEAN_TEST(a_run_that_waits_can_be_stopped),
        CLEAN_TEST(no_wait_refuses_what_others_hold),
        CLEAN_TEST(signals_stay_as_they_are),
        CLEAN_TEST(a_closed_output_is_no_end),
        cmocka_unit_test(a_kept_agent_serves_the_next_run), /* it rests until this process ends */
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
