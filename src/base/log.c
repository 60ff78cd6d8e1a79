/* Hands every message to one sink: that of the thread, as several runs of a process may be driven by a thread
 * each, or one within another; else that of the process, which is set once, before threads start. Lines of
 * workers do not come this way: those are the agent's relay. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

static struct log_target of_process;
static _Thread_local struct log_target of_thread;

/* -1: what is wanted is no level. */
static int level_of_environment(void) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    const char *wanted = getenv("TRAINYARD_LOG");
    if (wanted == NULL || wanted[0] == '\0') return LOG_LEVEL_WARNING;
    return str_find(wanted, names, ARRAY_SIZE(names));
}

int log_check_level(ty_error *err) {
    if (level_of_environment() >= 0) return 0;
    return ty_fail(err, TY_EUSAGE, "TRAINYARD_LOG is \"%.40s\", but must be error, warning, info or debug",
                   getenv("TRAINYARD_LOG"));
}

struct log_target log_target(log_sink *sink, void *context) {
    int level = level_of_environment();
    return (struct log_target){sink, context, level < 0 ? LOG_LEVEL_WARNING : (enum log_level)level};
}

void log_set_sink(log_sink *sink, void *context) {
    of_process = log_target(sink, context);
}

struct log_target log_divert(struct log_target target) {
    struct log_target before = of_thread;
    of_thread = target;
    return before;
}

void log_write(enum log_level level, const char *subsystem, const char *format, ...) {
    const struct log_target *target = of_thread.sink != NULL ? &of_thread : &of_process;
    if (target->sink == NULL || level > target->level) return;
    int saved = errno;
    char text[1024]; /* longer messages are cut; logging never allocates */
    va_list args;
    va_start(args, format);
    int size = str_vprint(text, sizeof text, format, args);
    va_end(args);
    if (size >= 0) target->sink(target->context, level, subsystem, text);
    errno = saved;
}
