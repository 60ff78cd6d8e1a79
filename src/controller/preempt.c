/* Machines that are taken away: which signal says so, and what workers are told of it. */
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "controller/drive_internal.h"

int preempt_signal_of(const struct run_request *request) {
    return request->settings.preempt_signal > 0 ? request->settings.preempt_signal : SIGTERM;
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
    double deadline = (double)(clock_wall() + drive->config->request->settings.grace) / (double)NS_PER_S;
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
