/* The controller's side of an agent under test: starts agent_main in a process of its own, speaks frames with
 * it, and keeps what it hears of each rank. What it hears out of order fails the test. */
#ifndef TESTS_AGENT_CONTROLLER_H
#define TESTS_AGENT_CONTROLLER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "wire/frame.h"

enum { RANKS_MAX = 300 };

/* What the controller's side has heard of one rank. */
struct heard {
    bool started, ready, rendezvous, exited, gone, failed, stopped, told_failure;
    int pid, wait_status;
    char text[512];
    struct buffer tail, output[2];
    uint64_t n_reports, last_number;
};

struct controller {
    int fd;
    pid_t agent;
    char run_path[64], log_path[80];
    struct buffer in;
    bool hello, bye, closed, clean, stacks, leaving;
    uint32_t leftovers, commit_channel;
    Wire__Report__Kind commit_kind;
    unsigned n_begun, n_ended,
        n_lists; /* checkpoints that are written; those committed or aborted; lists asked for */
    uint64_t commit_number, n_output;
    char address[64], last_metrics[256], last_files[256], log[512];
    bool answer_store; /* answers requests at once, by echo */
    uint32_t store_channel;
    char store_key[300];
    size_t store_value_size;
    int64_t store_timeout;
    unsigned n_store;
    struct heard ranks[RANKS_MAX];
};

/* How an agent is begun. */
struct begin_options {
    unsigned descriptors; /* its limit; 0: as it is */
    const char *cgroup;   /* directory of one that it joins, or NULL */
    bool log;             /* it writes the run's agent.log */
};

/* What is launched. */
struct launch_options {
    unsigned n;
    const char *mode; /* of this program as worker; or argv */
    char **argv;
    char **environment;
    const char *worker_environment, *working_directory, *payload;
    unsigned grace_ms;
    bool prefix, escape, quiet;
    uint64_t report_base;
    const char *start_method; /* NULL: executed */
    char **template_argv;
};

extern char controller_worker[256]; /* path of the program that `mode` is a mode of */

struct controller *controller_begin(void);
struct controller *controller_begin_with(struct begin_options options);
/* Another run, on an agent that rests: hears hello, or that the channel is closed. */
void controller_start(struct controller *c, int lease_fd);
/* Says finish, and that it is kept: hears bye, or that the channel is closed. */
void controller_rest(struct controller *c);
void controller_launch(struct controller *c, struct launch_options options);
void controller_stop(struct controller *c, bool kill);
void controller_send(struct controller *c, const Wire__Message *message);
void controller_reply_store(struct controller *c, uint32_t channel, Wire__Answer__Status status,
                            const char *value);
/* To the commit that was heard last; an empty text is left out. */
void controller_reply_commit(struct controller *c, const char *path, const char *error);
/* To the question for the list that was heard last. */
void controller_reply_list(struct controller *c, const char *list);
bool controller_all_gone(const struct controller *c, unsigned n); /* ranks 0 to n - 1 */
void controller_finish(struct controller *c);                     /* says finish, hears bye */
void controller_vanish(struct controller *c);                     /* closes the channel */

/* The exit status of an agent that lost memory, or used what is not its own (as builds with AddressSanitizer
 * see). */
#define AGENT_DAMAGED 77
#define AGENT_DAMAGED_TEXT "77"

/* Ends the agent, if it was not; its exit status. Fails when a process or a descriptor is left. */
int controller_end(struct controller *c);

/* Waits for one read's worth of frames. */
void controller_hear(struct controller *c);
#define HEAR_UNTIL(c, condition)       \
    do {                               \
        while (!(condition)) {         \
            assert_false((c)->closed); \
            controller_hear(c);        \
        }                              \
    } while (0)

#endif
