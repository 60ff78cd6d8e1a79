/* Durations in the text form of Flux RFC 23: a number and one of ms, s, m, h, d ("1.5h", "500ms", "90"; seconds
 * when there is no unit); also several in a row ("1h30m"), "min" for "m", and hours, minutes and seconds as
 * Slurm writes them ("01:30:00", "90:00", "2-12:00:00"). One time type in all of Trainyard: nanoseconds in an
 * int64_t. */
#ifndef BASE_DURATION_H
#define BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/buffer.h"
#include "base/error.h"

typedef int64_t nanoseconds;

#define NS_PER_US ((nanoseconds)1000)
#define NS_PER_MS ((nanoseconds)1000000)
#define NS_PER_S ((nanoseconds)1000000000)

/* Refuses negatives, NaN, "infinity", and more than 100 years. */
int duration_parse(const char *text, nanoseconds *duration, ty_error *err);
/* The same of a variable of the environment, 1 ms at least, named in the error; unset or empty leaves
 * `*duration`. */
int duration_of_variable(const char *name, const char *text, nanoseconds *duration, ty_error *err);

/* For people, three significant figures: "1.25 s", "340 us", "2.1 min", "3.5 h". */
void duration_format(nanoseconds duration, struct buffer *out);
/* As a clock that runs, in whole seconds: "05:12", "3:05:12", "2d 03:05:12". */
void duration_format_clock(nanoseconds duration, struct buffer *out);

/* The largest there is for what does not fit. */
nanoseconds duration_of_ms(int64_t ms);

static inline double duration_seconds(nanoseconds duration) {
    return (double)duration / (double)NS_PER_S;
}

nanoseconds clock_monotonic(void); /* CLOCK_MONOTONIC; drives every decision */
nanoseconds clock_boot(void);      /* CLOCK_BOOTTIME: goes on while the machine is suspended; for leases */
nanoseconds clock_wall(void);      /* CLOCK_REALTIME since the epoch; only stored and shown */
nanoseconds clock_thread(void);    /* CLOCK_THREAD_CPUTIME_ID: what the calling thread has used of processors */

/* "2026-01-31 23:59:59", by the clock of this place. False, with "", for a time that has no date. */
enum { CLOCK_TEXT = 32 };
bool clock_format(time_t seconds, char text[CLOCK_TEXT]);

#endif
