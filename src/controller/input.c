/* Standard input on its way to workers. What can be opened anew is, as output is (sink.c), so that O_NONBLOCK
 * is ours alone. A file cannot be waited for: it is read whenever there is room. Which ranks get it, and how
 * far each has come, is kept here; their pipes are the agents' (agent/feed.c). */
#include "controller/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "controller/sink.h"
#include "run/settings.h"

enum { WINDOW = 256 << 10, PIECE = 64 << 10, ALL_WINDOWS = 16 << 20, WINDOW_MIN = 4 << 10 };

/* A rank as a reader: it gets none; its worker has not started; it reads; it reads no more. */
struct reader {
    enum { READER_NONE, READER_AWAITED, READER_OPEN, READER_LEFT } state;
    uint64_t under_way; /* bytes that its pipe has not taken */
};

/* How much may be read now; 0 while somebody is awaited, or when nobody reads. What one rank has not taken is
 * held for it, here and in its agent, so that the windows of many are small. */
static size_t room(const struct input *input) {
    size_t window = input->rank == RANK_ALL && input->n > 0 ? ALL_WINDOWS / input->n : WINDOW, least = 0;
    bool any = false;
    if (window > WINDOW) window = WINDOW;
    if (window < WINDOW_MIN) window = WINDOW_MIN;
    for (uint32_t rank = 0; rank < input->n; rank++) {
        const struct reader *reader = &input->readers[rank];
        if (reader->state == READER_AWAITED) return 0;
        if (reader->state != READER_OPEN) continue;
        size_t left = reader->under_way < window ? window - reader->under_way : 0;
        if (!any || left < least) least = left;
        any = true;
    }
    return least < PIECE ? least : PIECE;
}

static void send_to(struct input *input, uint32_t rank, const char *bytes, size_t size) {
    Wire__Input body = WIRE__INPUT__INIT;
    body.rank = rank;
    body.bytes = (ProtobufCBinaryData){size, (uint8_t *)bytes};
    body.last = input->ended;
    input->readers[rank].under_way += size;
    input->send(input->context, rank, &WIRE_MESSAGE(INPUT, input, &body));
}

static void go_on(struct input *input);

/* One piece a turn. */
static void read_piece(struct input *input) {
    char bytes[PIECE];
    size_t most = room(input);
    if (most == 0 || input->ended) return;
    /* One that could not be opened anew may block, and who shares it may have read what was there. */
    struct pollfd ready = {.fd = input->fd, .events = POLLIN};
    if (poll(&ready, 1, 0) == 0) return;
    ssize_t n = read(input->fd, bytes, most);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0)
        log_warning("controller", "cannot read standard input: %s; workers that read it see its end",
                    strerror(errno));
    input->ended = n <= 0;
    size_t size = n > 0 ? (size_t)n : 0;
    for (uint32_t rank = 0; rank < input->n; rank++)
        if (input->readers[rank].state == READER_OPEN) send_to(input, rank, bytes, size);
    input->passed += size;
}

static void on_readable(void *context, unsigned events) {
    (void)events;
    read_piece(context);
    go_on(context);
}

static void on_timer(void *context) {
    read_piece(context);
    go_on(context);
}

/* Waits for more to read, if there is room for it. A watch that was never started is not started to rest; a
 * file, which epoll refuses, gets the timer. */
static void go_on(struct input *input) {
    bool wanted = !input->ended && room(input) > 0;
    if (input->watch.state == NULL && !wanted) return;
    if (loop_watch_start(input->loop, &input->watch, input->fd, wanted ? LOOP_READABLE : 0) == 0 || !wanted)
        return;
    (void)loop_timer_start(input->loop, &input->timer, 0);
}

void input_open(struct input *input, struct loop *loop, int rank,
                void (*send)(void *context, uint32_t rank, const Wire__Message *message), void *context) {
    *input = (struct input){.loop = loop, .send = send, .context = context, .rank = rank, .fd = -1};
    if (rank == RANK_NONE) return;
    input->fd = sink_open_anew(STDIN_FILENO, O_RDONLY);
    input->owned = input->fd >= 0;
    descriptors_withhold(input->fd);
    if (!input->owned) input->fd = STDIN_FILENO;
    input->watch = (struct loop_watch){.callback = on_readable, .context = input};
    input->timer = (struct loop_timer){.callback = on_timer, .context = input};
}

/* Not from the background, where to change a terminal would stop us. */
void input_by_key(struct input *input) {
    if (input->fd < 0 || tcgetpgrp(input->fd) != getpgrp() || tcgetattr(input->fd, &input->modes) < 0) return;
    struct termios by_key = input->modes;
    by_key.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    by_key.c_cc[VMIN] = 1;
    by_key.c_cc[VTIME] = 0;
    input->by_key = tcsetattr(input->fd, TCSADRAIN, &by_key) == 0;
}

void input_close(struct input *input) {
    if (input->loop == NULL || input->fd < 0) return;
    if (input->by_key) (void)tcsetattr(input->fd, TCSADRAIN, &input->modes);
    loop_watch_stop(input->loop, &input->watch);
    loop_timer_stop(input->loop, &input->timer);
    if (input->owned) descriptors_close(&input->fd);
    input->fd = -1;
    free(TAKE(input->readers));
    input->n = 0;
}

/* Until each of its readers has started nothing is read (room): what is read before would be lost to the
 * last. */
void input_begin(struct input *input, uint32_t n, int attempt) {
    if (input->fd < 0) return;
    free(TAKE(input->readers));
    input->readers = calloc(n, sizeof *input->readers);
    input->n = input->readers != NULL ? n : 0;
    for (uint32_t rank = 0; rank < input->n; rank++)
        if (input->rank == RANK_ALL || (uint32_t)input->rank == rank)
            input->readers[rank].state = READER_AWAITED;
    if (input->passed > 0)
        log_warning(
            "controller",
            "attempt %d reads on where the one before it stopped: %llu bytes of standard input are gone",
            attempt, (unsigned long long)input->passed);
}

void input_started(struct input *input, uint32_t rank) {
    if (rank >= input->n || input->readers[rank].state != READER_AWAITED) return;
    input->readers[rank].state = READER_OPEN;
    if (input->ended) send_to(input, rank, "", 0);
    go_on(input);
}

void input_left(struct input *input, uint32_t rank) {
    if (rank >= input->n || input->readers[rank].state == READER_NONE) return;
    input->readers[rank].state = READER_LEFT;
    go_on(input);
}

void input_taken(struct input *input, const Wire__Fed *fed) {
    if (fed->rank < input->n && input->readers[fed->rank].under_way >= fed->size) {
        input->readers[fed->rank].under_way -= fed->size;
        go_on(input);
    }
    if (fed->closed) input_left(input, fed->rank);
}

/* -- the size of the terminal */

void window_measure(uint32_t *rows, uint32_t *columns) {
    static const int fds[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
    struct winsize size;
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (ioctl(fds[i], TIOCGWINSZ, &size) < 0) continue;
        *rows = size.ws_row;
        *columns = size.ws_col;
        return;
    }
    *rows = *columns = 0;
}

static void on_resize(void *context, int signal_number) {
    (void)signal_number;
    const struct window *window = context;
    Wire__Resize body = WIRE__RESIZE__INIT;
    window_measure(&body.rows, &body.columns);
    if (body.columns > 0) window->send(window->context, &WIRE_MESSAGE(RESIZE, resize, &body));
}

void window_open(struct window *window, struct loop *loop,
                 void (*send)(void *context, const Wire__Message *message), void *context) {
    *window = (struct window){.loop = loop, .send = send, .context = context};
    window->signal = (struct loop_signal){.callback = on_resize, .context = window};
    (void)sigaction(SIGWINCH, NULL, &window->saved);
    (void)loop_signal_start(loop, &window->signal, SIGWINCH);
}

void window_close(struct window *window) {
    if (window->loop == NULL) return;
    loop_signal_stop(window->loop, &window->signal);
    (void)sigaction(SIGWINCH, &window->saved, NULL);
    window->loop = NULL;
}
