/* SIGWINCH tells of another size. */
#include "controller/window.h"

#include <sys/ioctl.h>
#include <unistd.h>

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

static void on_change(void *context, int signal_number) {
    (void)signal_number;
    const struct window *window = context;
    Wire__Resize body = WIRE__RESIZE__INIT;
    window_measure(&body.rows, &body.columns);
    if (body.columns > 0) window->send(window->context, &WIRE_MESSAGE(RESIZE, resize, &body));
}

void window_open(struct window *window, struct loop *loop,
                 void (*send)(void *context, const Wire__Message *message), void *context) {
    *window = (struct window){.loop = loop, .send = send, .context = context};
    window->signal = (struct loop_signal){.callback = on_change, .context = window};
    (void)sigaction(SIGWINCH, NULL, &window->saved);
    (void)loop_signal_start(loop, &window->signal, SIGWINCH);
}

void window_close(struct window *window) {
    if (window->loop == NULL) return;
    loop_signal_stop(window->loop, &window->signal);
    (void)sigaction(SIGWINCH, &window->saved, NULL);
    window->loop = NULL;
}
