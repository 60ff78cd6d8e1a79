/* Stacks for `trainyard stacks` elsewhere: the controller's order, the process that carries it out (`trainyard
 * agent --looks`), and its answer. One order at a time; the agent's loop waits for none of it. What a look is,
 * and how it is taken, is in stack_sample.c. */
#include "agent/stacks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/spawn.h"
#include "agent/stack_save.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/str.h"

enum { WORDS = 5, PAIR_SIZE = 24 };

static void answer(struct looks *looks, uint32_t ticket, const struct buffer *seen) {
    Wire__Look body = WIRE__LOOK__INIT;
    body.ticket = ticket;
    body.seen = (ProtobufCBinaryData){seen->failed ? 0 : seen->size, (uint8_t *)seen->data};
    outbox_send(looks->outbox, &WIRE_MESSAGE(LOOK, look, &body));
}

/* The process is this very program; what it finds lies in memory, and is read when the process was reaped. */
static int start(struct looks *looks, const Wire__Look *order, const struct worker_process *workers, size_t n) {
    CLEANUP_FD int found = kernel_memory_file("trainyard-looks");
    CLEANUP_FREE char **argv = calloc(WORDS + n + 1, sizeof *argv);
    CLEANUP_FREE char(*words)[PAIR_SIZE] = calloc(n + 2, sizeof *words);
    size_t n_asked = 0;
    if (found < 0 || argv == NULL || words == NULL) return -ENOMEM;
    memcpy(argv, (char *[]){"trainyard", "agent", "--looks", words[0], words[1]}, WORDS * sizeof *argv);
    (void)snprintf(words[0], PAIR_SIZE, "%llu", (unsigned long long)order->length);
    (void)snprintf(words[1], PAIR_SIZE, "%llu", (unsigned long long)order->period);
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < order->n_ranks && order->ranks[at] != workers[i].rank)
            at++;
        if (at == order->n_ranks || workers[i].stage != PROCESS_RUNNING) continue;
        (void)snprintf(words[2 + n_asked], PAIR_SIZE, "%u:%d", workers[i].rank, workers[i].pid);
        argv[WORDS + n_asked] = words[2 + n_asked];
        n_asked++;
    }
    if (n_asked == 0) return -ESRCH;
    int result = spawn_own(argv, -1, found, &looks->pid, NULL);
    if (result < 0) return result;
    looks->fd = TAKE_FD(found);
    looks->ticket = order->ticket;
    return 0;
}

void looks_begin(struct looks *looks, const Wire__Look *order, const struct worker_process *workers, size_t n) {
    if (looks->pid > 0 || start(looks, order, workers, n) < 0)
        answer(looks, order->ticket, &(struct buffer){0});
}

bool looks_reaped(struct looks *looks, pid_t pid) {
    if (looks->pid == 0 || looks->pid != pid) return false;
    CLEANUP(buffer_done) struct buffer seen = {0};
    CLEANUP_FD int fd = looks->fd;
    looks->pid = 0;
    stack_found(fd, &seen);
    answer(looks, looks->ticket, &seen);
    return true;
}

void looks_end(struct looks *looks) {
    if (looks->pid > 0) (void)kill(looks->pid, SIGKILL);
}

bool looks_go_on(const struct looks *looks) {
    return looks->pid > 0;
}

/* -- the process */

static bool read_worker(const char *word, struct stack_sampled *worker) {
    const char *colon = strchr(word, ':');
    char rank[PAIR_SIZE];
    int64_t number, pid;
    size_t size = colon != NULL ? (size_t)(colon - word) : sizeof rank;
    if (size >= sizeof rank) return false;
    memcpy(rank, word, size);
    rank[size] = '\0';
    if (!str_to_int64(rank, 0, INT32_MAX, &number) || !str_to_int64(colon + 1, 1, INT32_MAX, &pid))
        return false;
    *worker = (struct stack_sampled){.rank = (int)number, .pid = (pid_t)pid};
    return true;
}

int looks_main(int argc, char **argv) {
    enum { FIRST = 3 };
    CLEANUP(buffer_done) struct buffer out = {0};
    CLEANUP_FREE struct stack_sampled *workers = calloc((size_t)argc, sizeof *workers);
    int64_t length, period;
    bool right = workers != NULL && argc > FIRST && str_to_int64(argv[1], 0, INT64_MAX, &length) &&
                 str_to_int64(argv[2], 1, INT64_MAX, &period);
    for (int i = FIRST; right && i < argc; i++)
        right = read_worker(argv[i], &workers[i - FIRST]);
    if (!right) return ty_error_exit_status(TY_EUSAGE);
    size_t n = (size_t)(argc - FIRST);
    int result = stack_sample(workers, n, length, period, NULL);
    if (result >= 0) stack_sample_folded(workers, n, &out);
    if (result >= 0 && !out.failed && out.size > 0) result = file_write_all(STDOUT_FILENO, out.data, out.size);
    stack_sample_done(workers, n);
    return result < 0 || out.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
