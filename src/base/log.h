/* One way to tell what goes on: level, subsystem, text; the program that holds the process decides where it
 * goes. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/error.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

typedef void log_sink(void *context, enum log_level level, const char *subsystem, const char *text);

/* Where messages of all threads go; NULL silences (the default: a library does not print). The level comes from
 * TRAINYARD_LOG=error|warning|info|debug, as it is at this call. */
void log_set_sink(log_sink *sink, void *context);

struct log_target {
    log_sink *sink; /* NULL: none of its own */
    void *context;
    enum log_level level;
};

/* A target with the level of the environment. */
struct log_target log_target(log_sink *sink, void *context);
/* Messages of this thread go to the target, in place of where those of all threads do, until what was before,
 * which is returned, is put back in the same way. */
struct log_target log_divert(struct log_target target);
/* TY_EUSAGE where TRAINYARD_LOG is none of these words; empty is unset. */
int log_check_level(ty_error *err);

void log_write(enum log_level level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(subsystem, ...) log_write(LOG_LEVEL_ERROR, subsystem, __VA_ARGS__)
#define log_warning(subsystem, ...) log_write(LOG_LEVEL_WARNING, subsystem, __VA_ARGS__)
#define log_info(subsystem, ...) log_write(LOG_LEVEL_INFO, subsystem, __VA_ARGS__)
#define log_debug(subsystem, ...) log_write(LOG_LEVEL_DEBUG, subsystem, __VA_ARGS__)

#endif
