/* Faults of devices. A worker whose device breaks ends as if its program were at fault, and others end for want
 * of it: what the driver told shortly before, or while the attempt was stopped, is then the first cause. What
 * samplers see of devices is the room usage's. */
#include <stdio.h>

#include "run/internal.h"

/* Collective calls wait that long for a rank that is gone. */
static const nanoseconds HARDWARE_WITHIN = 1800 * NS_PER_S;
static const nanoseconds PROGRAM_WITHIN = 60 * NS_PER_S;
/* An end is heard before the fault that it came from; much later ones are of the processes' own end. */
static const nanoseconds PROGRAM_AFTER = 1 * NS_PER_S;

/* Only failures of workers are explained, and those of a program's own fault only for the ranks that use the
 * device. `since` is negative for a fault that was told after the end which it brought about. */
static bool explains(const struct run *run, const struct run_suspect *suspect) {
    const struct run_failure *failure = &run->failure;
    nanoseconds since = run->failed_at - suspect->at;
    if (!suspect->any || failure->outcome != OUTCOME_FAILED || failure->rank < 0) return false;
    if (suspect->hardware) return since <= HARDWARE_WITHIN;
    return since <= PROGRAM_WITHIN && -since <= PROGRAM_AFTER && idset_has(&suspect->ranks, failure->rank);
}

void run_on_fault(struct run *run, const struct run_input *input) {
    const struct run_fault *fault = input->fault;
    struct run_suspect *suspect = &run->suspect;
    nanoseconds now = run->ops->now(run->context);
    run_record_fault(run, fault);
    if (fault->weight == RUN_FAULT_NOTED) return;
    bool explained = run->failure.outcome != OUTCOME_NONE && explains(run, suspect);
    bool earlier = suspect->any && suspect->hardware && now - suspect->at <= HARDWARE_WITHIN;
    if (explained || earlier) return; /* what came first counts */
    suspect->any = true;
    idset_done(&suspect->ranks);
    /* Without memory for its ranks nobody is suspected: better no cause than a wrong one. */
    for (int64_t rank = -1; suspect->any && (rank = idset_next(fault->ranks, rank)) != IDSET_END;)
        suspect->any = idset_add(&suspect->ranks, rank) >= 0;
    suspect->hardware = fault->weight == RUN_FAULT_OF_HARDWARE;
    suspect->at = now;
    (void)snprintf(suspect->text, sizeof suspect->text, "%s", fault->told->cause);
}

void run_suspect_forget(struct run *run) {
    idset_done(&run->suspect.ranks);
    run->suspect = (struct run_suspect){0};
}

void run_suspect_blame(struct run *run) {
    char failed[sizeof run->failure.text];
    if (!explains(run, &run->suspect)) return;
    (void)snprintf(failed, sizeof failed, "%s", run->failure.text);
    run_failure_text(&run->failure, "%s; then %s", run->suspect.text, failed);
}
