/* Both event loops: order of timers, ends of turns, watches that stop inside callbacks, signals, nothing left
 * behind; listeners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop/loop.h"

struct trace {
    struct loop *loop;
    char text[128];
    struct loop_timer again;
    int left;
};

struct named_timer {
    struct loop_timer timer;
    struct trace *trace;
    char name;
};

static void note(struct trace *trace, char c) {
    size_t size = strlen(trace->text);
    assert_true(size + 1 < sizeof trace->text);
    trace->text[size] = c;
    trace->text[size + 1] = '\0';
}

static void named_fired(void *context) {
    struct named_timer *timer = context;
    note(timer->trace, timer->name);
}

static void turn_ended(void *context) {
    note(context, '.');
}

static struct named_timer named(struct trace *trace, char name) {
    return (struct named_timer){.timer = {.callback = named_fired}, .trace = trace, .name = name};
}

static void start(struct named_timer *timer, nanoseconds delay) {
    timer->timer.context = timer;
    assert_int_equal(loop_timer_start(timer->trace->loop, &timer->timer, delay), 0);
}

static void timers_fire_in_order(struct loop *loop) {
    struct trace trace = {.loop = loop};
    struct named_timer a = named(&trace, 'a'), b = named(&trace, 'b'), c = named(&trace, 'c');
    struct named_timer stopped = named(&trace, 'x'), moved = named(&trace, 'm');
    start(&stopped, 0);
    start(&moved, 0);
    start(&c, 9 * NS_PER_MS);
    start(&a, 3 * NS_PER_MS);
    start(&b, 6 * NS_PER_MS);
    start(&moved, 15 * NS_PER_MS);
    loop_timer_stop(loop, &stopped.timer);
    loop_timer_stop(loop, &stopped.timer); /* twice is fine */
    nanoseconds before = loop_now(loop);
    loop_run(loop);
    assert_string_equal(trace.text, "abcm");
    assert_true(loop_now(loop) - before >= 15 * NS_PER_MS);
    assert_null(a.timer.state);
    start(&a, -5); /* as zero */
    (void)loop_turn(loop, true);
    assert_string_equal(trace.text, "abcma");
    assert_false(loop_turn(loop, true)); /* nothing is left */
    loop_destroy(loop);
}

static void real_timers(void **state) {
    (void)state;
    timers_fire_in_order(loop_create(NULL));
}

static void simulated_timers(void **state) {
    (void)state;
    timers_fire_in_order(loop_create_sim(NULL));
}

static void again_fired(void *context) {
    struct trace *trace = context;
    note(trace, 't');
    if (--trace->left > 0) assert_int_equal(loop_timer_start(trace->loop, &trace->again, 0), 0);
}

static void turns_end(struct loop *loop) {
    struct trace trace = {.loop = loop, .left = 3};
    trace.again = (struct loop_timer){.callback = again_fired, .context = &trace};
    loop_on_turn_end(loop, turn_ended, &trace);
    assert_int_equal(loop_timer_start(loop, &trace.again, 0), 0);
    loop_run(loop);
    assert_string_equal(trace.text, "t.t.t."); /* before each sleep, and only after callbacks */
    loop_destroy(loop);
}

static void real_turns_end(void **state) {
    (void)state;
    turns_end(loop_create(NULL));
}

static void simulated_turns_end(void **state) {
    (void)state;
    turns_end(loop_create_sim(NULL));
}

static void the_simulated_clock_stands_still(void **state) {
    (void)state;
    struct loop *loop = loop_create_sim(NULL);
    struct trace trace = {.loop = loop};
    struct named_timer timers[100];
    for (int i = 0; i < 100; i++) {
        timers[i] = named(&trace, (char)('0' + (i * 37) % 100 / 10));
        start(&timers[i], (i * 37) % 100 * 3600 * NS_PER_S);
    }
    assert_true(loop_turn(loop, false)); /* the one due now */
    assert_true(loop_turn(loop, false)); /* does not wait: nothing happens */
    assert_int_equal(strlen(trace.text), 1);
    loop_run(loop);
    assert_int_equal(loop_now(loop), 99 * 3600 * NS_PER_S);
    for (int i = 0; i < 100; i++)
        assert_int_equal(trace.text[i], '0' + i / 10);
    struct loop_watch watch = {0};
    assert_int_equal(loop_watch_start(loop, &watch, 0, LOOP_READABLE), TY_EUNSUPPORTED);
    loop_watch_stop(loop, &watch);
    struct loop_signal handle = {0};
    assert_int_equal(loop_signal_start(loop, &handle, SIGUSR1), TY_EUNSUPPORTED);
    loop_signal_stop(loop, &handle);
    loop_destroy(loop);
}

struct pair {
    struct loop *loop;
    struct loop_watch ends[2];
    int fds[2];
    int calls;
    unsigned events;
};

static void stop_both(void *context, unsigned events) {
    struct pair *pair = context;
    pair->calls++;
    pair->events = events;
    for (int i = 0; i < 2; i++)
        loop_watch_stop(pair->loop, &pair->ends[i]);
}

static void stopping_drops_the_event_of_this_turn(void **state) {
    (void)state;
    struct pair pair = {.loop = loop_create(NULL)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.fds), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(pair.fds[i], "x", 1), 1);
        pair.ends[i] = (struct loop_watch){.callback = stop_both, .context = &pair};
        assert_int_equal(loop_watch_start(pair.loop, &pair.ends[i], pair.fds[i], LOOP_READABLE), 0);
    }
    loop_run(pair.loop); /* ends: nothing is watched any more */
    assert_int_equal(pair.calls, 1);
    assert_int_equal(pair.events, LOOP_READABLE);
    close(pair.fds[0]);
    close(pair.fds[1]);
    loop_destroy(pair.loop);
}

static void count_events(void *context, unsigned events) {
    struct pair *pair = context;
    pair->calls++;
    pair->events = events;
}

static void events_change_and_rest(void **state) {
    (void)state;
    struct pair pair = {.loop = loop_create(NULL)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.fds), 0);
    struct loop_watch *watch = &pair.ends[0];
    *watch = (struct loop_watch){.callback = count_events, .context = &pair};
    assert_int_equal(loop_watch_start(pair.loop, watch, pair.fds[0], LOOP_WRITABLE), 0);
    (void)loop_turn(pair.loop, true);
    assert_int_equal(pair.events, LOOP_WRITABLE);
    assert_int_equal(loop_watch_start(pair.loop, watch, pair.fds[0], 0), 0);
    assert_int_equal(write(pair.fds[1], "x", 1), 1);
    (void)loop_turn(pair.loop, false);
    assert_int_equal(pair.calls, 1);
    assert_int_equal(loop_watch_start(pair.loop, watch, pair.fds[0], LOOP_READABLE | LOOP_WRITABLE), 0);
    (void)loop_turn(pair.loop, true);
    assert_int_equal(pair.events, LOOP_READABLE | LOOP_WRITABLE);
    char byte;
    assert_int_equal(read(pair.fds[0], &byte, 1), 1);
    assert_int_equal(loop_watch_start(pair.loop, watch, pair.fds[0], LOOP_READABLE), 0);
    close(pair.fds[1]); /* the end of file counts as readable */
    (void)loop_turn(pair.loop, true);
    assert_int_equal(pair.events, LOOP_READABLE);
    loop_watch_stop(pair.loop, watch);
    close(pair.fds[0]);
    loop_destroy(pair.loop);
}

static void a_file_cannot_be_watched(void **state) {
    (void)state;
    struct loop *loop = loop_create(NULL);
    struct loop_watch watch = {0};
    FILE *file = tmpfile();
    assert_true(loop_watch_start(loop, &watch, fileno(file), LOOP_READABLE) < 0);
    assert_null(watch.state);
    assert_true(loop_watch_start(loop, &watch, -1, LOOP_READABLE) < 0);
    fclose(file);
    loop_destroy(loop);
}

static void signal_arrived(void *context, int signal_number) {
    struct trace *trace = context;
    note(trace, signal_number == SIGUSR1 ? 'u' : '?');
    if (--trace->left == 0) loop_stop(trace->loop);
}

static void signals_arrive(void **state) {
    (void)state;
    struct trace trace = {.loop = loop_create(NULL), .left = 1};
    struct loop_signal handle = {.callback = signal_arrived, .context = &trace};
    assert_true(loop_signal_start(trace.loop, &handle, 0) < 0);
    assert_int_equal(loop_signal_start(trace.loop, &handle, SIGUSR1), 0);
    raise(SIGUSR1);
    loop_run(trace.loop);
    assert_string_equal(trace.text, "u");
    loop_signal_stop(trace.loop, &handle);
    loop_destroy(trace.loop);
}

/* The program has closed the loop's descriptor, and has an epoll descriptor of its own under the number. */
static void what_has_its_number_by_now_is_left_alone(void **state) {
    (void)state;
    struct loop *loop = loop_create(NULL);
    int fd = loop_fd(loop), own = epoll_create1(EPOLL_CLOEXEC);
    assert_true(loop_intact(loop));
    assert_int_equal(dup2(own, fd), fd);
    assert_false(loop_intact(loop));
    loop_destroy(loop);
    assert_int_equal(close(fd), 0);
    (void)close(own);
}

static void an_abandoned_loop_is_not_intact(void **state) {
    (void)state;
    struct loop *loop = loop_create(NULL);
    loop_abandon(loop);
    assert_false(loop_intact(loop));
    loop_destroy(loop);
}

/* -- listeners */

struct loop_host {
    struct loop_listener listener;
    struct loop *loop;
    int fd, clients[3], n_connected, spare;
    bool stops;
};

static void allow(rlim_t descriptors) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = descriptors;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void take_in(void *context, int fd) {
    struct loop_host *host = context;
    host->n_connected++;
    (void)close(fd);
    if (host->stops) loop_listener_stop(&host->listener);
}

static bool give_up_spare(void *context) {
    struct loop_host *host = context;
    if (host->spare < 0) return false;
    (void)close(host->spare);
    host->spare = -1;
    return true;
}

static void host_open(struct loop_host *host, int n_clients) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name.sun_family;
    *host = (struct loop_host){.loop = loop_create(NULL), .spare = -1};
    host->listener = (struct loop_listener){.connected = take_in, .make_room = give_up_spare, .context = host};
    host->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(host->fd, (struct sockaddr *)&name, size), 0); /* the kernel names it */
    assert_int_equal(listen(host->fd, 8), 0);
    size = sizeof name;
    assert_int_equal(getsockname(host->fd, (struct sockaddr *)&name, &size), 0);
    for (int i = 0; i < n_clients; i++) {
        host->clients[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(host->clients[i], (struct sockaddr *)&name, size), 0);
    }
    assert_int_equal(loop_listener_start(host->loop, &host->listener, host->fd), 0);
}

static void host_close(struct loop_host *host, int n_clients) {
    loop_listener_stop(&host->listener);
    loop_listener_stop(&host->listener); /* twice is fine */
    for (int i = 0; i < n_clients; i++)
        (void)close(host->clients[i]);
    (void)close(host->fd);
    loop_destroy(host->loop);
}

static void a_listener_rests_without_descriptors(void **state) {
    (void)state;
    struct loop_host host;
    struct rlimit before;
    host_open(&host, 2);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    allow(0);
    (void)loop_turn(host.loop, true);
    struct pollfd woken = {.fd = loop_fd(host.loop), .events = POLLIN};
    int wait_ms = loop_timeout_ms(host.loop);
    allow(before.rlim_cur);
    assert_int_not_equal(wait_ms, 0);
    assert_int_equal(poll(&woken, 1, 0), 0); /* it is not woken again and again */
    assert_int_equal(host.n_connected, 0);
    while (host.n_connected < 2)
        (void)loop_turn(host.loop, true);
    host_close(&host, 2);
}

static void room_is_made_first(void **state) {
    (void)state;
    struct loop_host host;
    struct rlimit before;
    host_open(&host, 1);
    host.spare = dup(STDIN_FILENO);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    allow((rlim_t)host.spare + 1);
    (void)loop_turn(host.loop, true);
    allow(before.rlim_cur);
    assert_int_equal(host.spare, -1);
    assert_int_equal(host.n_connected, 1);
    host_close(&host, 1);
}

static void a_listener_may_be_stopped_by_who_connects(void **state) {
    (void)state;
    struct loop_host host;
    host_open(&host, 3);
    host.stops = true;
    while (loop_turn(host.loop, true)) {
    }
    assert_int_equal(host.n_connected, 1);
    host_close(&host, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_timers),
        cmocka_unit_test(simulated_timers),
        cmocka_unit_test(real_turns_end),
        cmocka_unit_test(simulated_turns_end),
        cmocka_unit_test(the_simulated_clock_stands_still),
        cmocka_unit_test(stopping_drops_the_event_of_this_turn),
        cmocka_unit_test(events_change_and_rest),
        cmocka_unit_test(a_file_cannot_be_watched),
        cmocka_unit_test(signals_arrive),
        cmocka_unit_test(what_has_its_number_by_now_is_left_alone),
        cmocka_unit_test(an_abandoned_loop_is_not_intact),
        cmocka_unit_test(a_listener_rests_without_descriptors),
        cmocka_unit_test(room_is_made_first),
        cmocka_unit_test(a_listener_may_be_stopped_by_who_connects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
