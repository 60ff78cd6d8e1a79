/* What the controller asked an agent to start, kept for the length of the attempt, and how one worker of it
 * is executed. */
#ifndef AGENT_NODE_LAUNCH_H
#define AGENT_NODE_LAUNCH_H

#include <stdbool.h>
#include <sys/resource.h>

#include "agent/spawn.h"
#include "base/error.h"
#include "wire/trainyard.pb-c.h"

struct node_launch {
    Wire__Launch *body; /* owned */
    char *constants[6]; /* owned: variables that are the same for all workers */
    char **base;        /* owned list of borrowed entries: the environment that all share */
    size_t n_base;
    char **argv;          /* owned list of borrowed words */
    char *program;        /* owned: what was found last, in `search` */
    const char *search;   /* the PATH that it was found in; borrowed */
    int payload_fd;       /* -1: none */
    int no_input_fd;      /* the standard input of workers that get none: an empty file, at its end */
    struct rlimit nofile; /* of workers */
};

/* Copies `body`. `nofile` is the limit that workers get. */
int node_launch_init(struct node_launch *launch, const Wire__Launch *body, const struct rlimit *nofile,
                     ty_error *err);
void node_launch_done(struct node_launch *launch); /* a zeroed one is fine */

/* The environment that all workers share, with these changes ("K=V" sets, "K" removes) and behind them
 * `last` (NULL: nothing): a list for execve, the caller's to free, of borrowed entries. NULL when memory is
 * short. */
char **node_launch_environment(const struct node_launch *launch, char *const *changes, size_t n, char *last);
/* The value of a shared variable, borrowed, or NULL. */
const char *node_launch_variable(const struct node_launch *launch, const char *name);
/* In whose words messages about the run are. */
enum face node_launch_face(const struct node_launch *launch);
/* The working directory, NULL for the agent's own. */
const char *node_launch_directory(const struct node_launch *launch);

/* A descriptor of its own of the payload, for one worker: -1 when there is no payload. */
int node_launch_open_payload(const struct node_launch *launch, int *fd, ty_error *err);

/* True once, when a worker has read its standard input though it gets none. */
bool node_launch_was_read(const struct node_launch *launch);

/* Executes worker number `index` of the launch with these descriptors: standard input (-1: it gets none),
 * output and error, and its socket. */
int node_launch_worker(struct node_launch *launch, size_t index, const int fds[4], pid_t *pid, ty_error *err);

#endif
