/* Machines that are taken away: which signal says so, and what workers are told of it. */
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "controller/drive_internal.h"

int preempt_signal_of(const struct run_request *request) {
    return request->preempt_signal > 0 ? request->preempt_signal : SIGTERM;
}

/* By which the run is stopped for other reasons, a process is ended or stopped whatever it does, or the loop lives. */
static bool is_reserved(int number) {
    static const int reserved[] = {SIGKILL, SIGSTOP, SIGINT, SIGCHLD, SIGPIPE, SIGSEGV,
                                   SIGBUS,  SIGFPE,  SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    bool found = false;
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        found |= reserved[i] == number;
    return found;
}

static int number_of(const char *text) {
    const char *name = text;
    int64_t number;
    (void)str_prefix(text, "SIG", &name);
    for (int i = 1; i < NSIG; i++)
        if (str_equal(sigabbrev_np(i), name)) return i;
    return str_to_int64(text, 1, SIGSYS, &number) ? (int)number : 0;
}

int preempt_signal_parse(const char *text, int *number, ty_error *err) {
    int found = number_of(text);
    if (found == 0 || is_reserved(found))
        return ty_fail(err, TY_EUSAGE,
                       "\"%.40s\" is no signal of a preemption: TERM, USR1, USR2, HUP, XCPU and the like",
                       text);
    *number = found;
    return 0;
}

static void add_ranks(const struct drive *drive, int node, struct buffer *out) {
    const char *comma = "";
    for (size_t rank = 0; rank < drive->config->prepared->plan->n_workers; rank++) {
        if (node >= 0 && drive->node_of[rank] != (uint32_t)node) continue;
        buffer_printf(out, "%s%zu", comma, rank);
        comma = ", ";
    }
}

static void add_nodes(const struct drive *drive, int node, struct buffer *out) {
    const char *comma = "";
    for (uint32_t i = 0; i < drive->n_peers; i++) {
        if (node >= 0 ? i != (uint32_t)node : drive->peers[i].node_rank == NODE_UNUSED) continue;
        buffer_text(out, comma);
        buffer_json_text(out, drive_node_name(drive, i));
        comma = ", ";
    }
}

void preempt_describe(struct drive *drive, int node) {
    struct buffer *out = &drive->preemption;
    double deadline = (double)(clock_wall() + drive->config->request->grace) / (double)NS_PER_S;
    buffer_clear(out);
    buffer_printf(out, "{\"deadline\": %.3f, \"ranks\": [", deadline);
    add_ranks(drive, node, out);
    buffer_text(out, "], \"nodes\": [");
    add_nodes(drive, node, out);
    buffer_text(out, "]}");
    if (out->failed) buffer_done(out);
}

void preempt_node(struct drive *drive, uint32_t node, int signal_number) {
    bool preempted = signal_number == preempt_signal_of(drive->config->request);
    if (preempted && drive->interrupted == 0) preempt_describe(drive, (int)node);
    run_node_leaving(drive->run, node, preempted ? signal_number : 0, clock_wall());
}
