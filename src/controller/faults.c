/* Faults of devices, as the samplers of nodes tell them: in words, with the ranks that use the device, to the
 * core, which records them. Above a bound they are left to the counts in usage.db. Which end of a worker a
 * fault explains is decided in run/fault.c. */
#include <errno.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "controller/ty_run.h"
#include "usage/usage.h"

enum { FAULTS_MAX = 1000 };

/* The ranks of this attempt that use the device of the node. */
static int list_ranks(const struct ty_run *run, const struct peer *peer, int64_t device, struct idset *ranks) {
    const struct prepared *prepared = &run->prepared;
    for (uint32_t rank = 0; rank < run_size(run->core) && rank < prepared->plan->n_workers; rank++) {
        CLEANUP(buffer_done) struct buffer text = {0};
        struct idset devices = {0};
        if (run->agents.node_of[rank] != peer->node) continue;
        plan_worker_devices(prepared->plan, prepared->cluster, rank, false, &text);
        bool own = !text.failed && text.size > 0 && idset_parse(&devices, text.data, NULL) == 0 &&
                   idset_has(&devices, device);
        idset_done(&devices);
        if (own && idset_add(ranks, rank) < 0) return -ENOMEM;
    }
    return 0;
}

/* Puts a fault on record and before the user: "GPU 1 of node n1 (rank 3): Xid 79, it has fallen off the
 * bus". */
static void take(struct peer *peer, const struct usage_fault *fault, nanoseconds time) {
    static const enum run_fault_weight weights[] = {[USAGE_NOTED] = RUN_FAULT_NOTED,
                                                    [USAGE_OF_PROGRAM] = RUN_FAULT_OF_PROGRAM,
                                                    [USAGE_OF_HARDWARE] = RUN_FAULT_OF_HARDWARE};
    CLEANUP(buffer_done) struct buffer list = {0}, text = {0};
    CLEANUP(idset_done) struct idset ranks = {0};
    struct ty_run *run = peer->run;
    if (list_ranks(run, peer, fault->device, &ranks) < 0) return;
    size_t n = idset_count(&ranks);
    idset_format(&ranks, &list);
    buffer_printf(&text, "GPU %d of node %s", fault->device, peer->name);
    if (n > 0) buffer_printf(&text, " (rank%s %s)", n == 1 ? "" : "s", list.data);
    buffer_text(&text, ": ");
    usage_fault_text(fault, &text);
    if (list.failed || text.failed) return;
    bool counts = fault->kind == USAGE_FAULT_XID || fault->kind == USAGE_FAULT_ECC;
    const struct event_hardware told = {.fault = usage_fault_name((enum usage_fault_kind)fault->kind),
                                        .device = fault->device,
                                        .code = counts && fault->code <= INT64_MAX ? (int64_t)fault->code
                                                                                   : EVENT_UNKNOWN,
                                        .ranks = list.size > 0 ? list.data : NULL,
                                        .cause = text.data};
    run_device_fault(run->core, &(struct run_fault){.node = peer->node,
                                                    .weight = weights[usage_fault_weight(fault)],
                                                    .told = &told,
                                                    .ranks = &ranks,
                                                    .time = time});
}

void faults_take(struct peer *peer, const Wire__Usage *usage, nanoseconds time) {
    struct ty_run *run = peer->run;
    for (size_t i = 0; i < usage->n_faults; i++) {
        const Wire__UsageFault *one = usage->faults[i];
        if (one->kind >= USAGE_FAULTS_N || one->device >= USAGE_DEVICES_MAX) continue;
        if (run->n_faults == FAULTS_MAX) return;
        if (++run->n_faults == FAULTS_MAX) {
            progress_hide(&run->output.progress);
            log_warning("controller", "%d faults of devices are on record; more are counted in usage.db alone",
                        FAULTS_MAX);
        }
        const struct usage_fault fault = {one->kind, (int32_t)one->device, one->code};
        take(peer, &fault, time);
    }
}
