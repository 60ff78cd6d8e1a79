/* Hands every message to the one sink of this process. The sink and the level are set once, before threads
 * start. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static struct {
    log_sink *sink;
    void *context;
    enum log_level level;
} state;

static enum log_level level_of_environment(void) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    const char *wanted = getenv("TRAINYARD_LOG");
    for (size_t i = 0; wanted != NULL && i < ARRAY_SIZE(names); i++)
        if (strcmp(wanted, names[i]) == 0) return (enum log_level)i;
    return LOG_LEVEL_WARNING;
}

void log_set_sink(log_sink *sink, void *context) {
    state.sink = sink;
    state.context = context;
    state.level = level_of_environment();
}

void log_write(enum log_level level, const char *subsystem, const char *format, ...) {
    if (state.sink == NULL || level > state.level) return;
    int saved = errno;
    char text[1024]; /* longer messages are cut; logging never allocates */
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size >= 0) state.sink(state.context, level, subsystem, text);
    errno = saved;
}
