/* An agent that a test plays, for a worker that is a forked process with an environment of its own: a process
 * is one worker for life. */
#ifndef UNIT_WORKER_AGENT_H
#define UNIT_WORKER_AGENT_H

#include <stdbool.h>
#include <sys/types.h>
#include <trainyard/trainyard.h>

/* In a worker: ends it with the line number unless `condition` holds. */
#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) worker_fail(__FILE__, __LINE__, #condition); \
    } while (0)

#define MENTIONS(text, part) (strstr(text, part) != NULL)

_Noreturn void worker_fail(const char *file, int line, const char *condition);

struct agent {
    int fd;
    pid_t pid;
};

/* Starts a worker that runs `body` and exits with 0; by `exit`, so that queued reports are flushed. */
struct agent worker_start(void (*body)(void));
void worker_expect_end(struct agent *agent); /* with 0 */

/* In the worker: what the agent sets for it, and its own handle. */
void worker_set_environment(int fd);
ty_worker *worker_self(void);

/* One line, newline included, borrowed until the next; "" at the end of the stream. */
const char *agent_read_line(int fd);
void agent_say(int fd, const char *text);
/* Another channel is asked for on this one: its descriptor. */
int agent_expect_open(int fd);
/* The descriptor that comes with the next byte, which is read too. */
int agent_receive_descriptor(int fd, char *byte);

#endif
