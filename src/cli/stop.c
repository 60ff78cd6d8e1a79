/* `trainyard stop`: ends a run from outside, as Ctrl-C ends it at its own terminal: a signal for the process
 * that holds the run's lock, on this machine. It returns when nobody holds that lock any more, the one sign of
 * an end that crosses users and containers; what the run makes of the signal is the run's
 * (controller/interruption.c). */
#include <time.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/duration.h"
#include "base/shell.h"
#include "cli/command.h"
#include "controller/run_lock.h"

struct stop_options {
    bool now;
    nanoseconds timeout; /* 0: as long as it takes */
};

static const struct option_spec specs[] = {
    {"now", 0, NULL, "by force: as a second Ctrl-C, workers are killed", option_flag,
     offsetof(struct stop_options, now), NULL},
    {"timeout", 0, "DURATION", "wait no longer for its end (status 124); it goes on ending (default: no limit)",
     option_duration, offsetof(struct stop_options, timeout), NULL},
};
static const struct option_group stop_group = {"Options", specs, ARRAY_SIZE(specs)};

static int command_stop_run(const struct arguments *arguments, ty_error *err) {
    const struct timespec between = {.tv_nsec = 50 * NS_PER_MS}; /* of two signals at once one is lost */
    const struct timespec moment = {.tv_nsec = 20 * NS_PER_MS};
    struct stop_options options = {0};
    struct storage_options storage = {0};
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    for (size_t i = 0; result >= 0 && i < arguments->n_words; i++) {
        const char *name = arguments->words[i];
        CLEANUP_FREE char *path = submitted_find_run(storage.storage_path, name, err);
        if (path == NULL) return err->code;
        result = run_lock_interrupt(path, err);
        if (result > 0 && options.now) {
            (void)nanosleep(&between, NULL);
            result = run_lock_interrupt(path, err) < 0 ? err->code : 1;
        }
        if (result < 0) return result;
        bool ran = result > 0;
        nanoseconds end = clock_monotonic() + options.timeout;
        /* Asked again and again: to wait for the lock would be to take it. */
        while (ran && run_lock_is_held(path)) {
            if (options.timeout > 0 && clock_monotonic() >= end)
                return ty_fail(err, TY_ETIMEOUT,
                               "%s has been told, and is still ending; --now ends it by force", name);
            (void)nanosleep(&moment, NULL);
        }
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_text(&text, name);
        buffer_text(&text,
                    ran ? " has ended; it goes on when its command is given --resume " : " is not running");
        if (ran) shell_quote(name, false, &text);
        buffer_char(&text, '\n');
        result = cli_print(&text, err);
    }
    return result;
}

const struct command command_stop = {
    .name = "stop",
    .summary = "end a run that goes on",
    .usage = (const char *const[]){"NAME... [OPTION...]", NULL},
    .description =
        "Tells the run's controller, on this machine, as Ctrl-C does: workers are told and have the grace of "
        "the run (--grace) to end, checkpoints that are being committed are, and the run can be resumed. "
        "Returns when the run has ended. A program that drives a run in its own process (Python's fit(), "
        "ty_fit) is told the same way, and does with the signal what it does with any.",
    .groups = (const struct option_group *const[]){&stop_group, &storage_group, NULL},
    .min_words = 1,
    .max_words = SIZE_MAX,
    .missing = "which run? `trainyard status` lists them",
    .run = command_stop_run,
};
