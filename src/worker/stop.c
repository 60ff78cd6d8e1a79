/* Being asked to stop: the run sends SIGTERM. Until the program asks for the first time SIGTERM ends it, as in
 * any program. */
#include <signal.h>

#include "worker/worker.h"

static volatile sig_atomic_t stop_requested;

static void note_stop(int signal) {
    (void)signal;
    stop_requested = 1;
}

bool ty_stop_requested(ty_worker *worker) {
    static bool taken_over;
    (void)worker;
    if (!taken_over) {
        struct sigaction action = {.sa_handler = note_stop, .sa_flags = SA_RESTART};
        (void)sigemptyset(&action.sa_mask);
        taken_over = sigaction(SIGTERM, &action, NULL) == 0;
    }
    return stop_requested != 0;
}
