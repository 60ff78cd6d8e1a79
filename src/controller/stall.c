/* Looks now and then, and counts looks rather than time: after a while in which this process was stopped, the
 * first look tells nothing, as what the ranks said meanwhile has not been read. */
#include "controller/stall.h"

#include "base/cleanup.h"
#include "controller/drive_internal.h"

enum { LOOKS = 4 }; /* in a row, a quarter of the limit apart */

static void tell(const struct stall *stall, uint32_t rank, bool mixed, const struct buffer *waits) {
    CLEANUP(buffer_done) struct buffer how = {0};
    buffer_printf(&how, "all ranks have waited for each other in the store%s for ",
                  mixed ? " and for checkpoints" : "");
    duration_format(stall->limit, &how);
    buffer_printf(&how, ": %s", waits->failed ? "?" : waits->data);
    run_worker_hung(stall->drive->run, rank, how.failed ? "all ranks wait in the store" : how.data,
                    clock_wall());
}

static void look(void *context) {
    struct stall *stall = context;
    struct drive *drive = stall->drive;
    CLEANUP(buffer_done) struct buffer waits = {0}, elsewhere = {0};
    CLEANUP(idset_done) struct idset ranks = {0};
    uint64_t turn = 0, words = 0;
    uint32_t rank = 0;
    run_list_waiting(drive->run, &ranks, &words, &elsewhere);
    bool stuck = drive->store != NULL && run_state_of(drive->run) == RUN_RUNNING &&
                 store_is_stuck(drive->store, &ranks, &turn, &rank, &waits);
    turn += words; /* neither ever goes back */
    stall->n_looks = !stuck ? 0 : turn == stall->turn ? stall->n_looks + 1 : 0;
    stall->turn = turn;
    if (elsewhere.size > 0) buffer_text(&waits, elsewhere.data);
    if (stall->n_looks == LOOKS) tell(stall, rank, idset_count(&ranks) > 0, &waits);
    (void)loop_timer_start(drive->loop, &stall->timer, stall->limit / LOOKS);
}

void stall_watch(struct stall *stall, struct drive *drive, nanoseconds limit) {
    if (limit <= 0) return;
    stall_end(stall);
    *stall = (struct stall){.drive = drive, .limit = limit, .timer = {.callback = look, .context = stall}};
    (void)loop_timer_start(drive->loop, &stall->timer, limit / LOOKS);
}

void stall_end(struct stall *stall) {
    if (stall->drive != NULL) loop_timer_stop(stall->drive->loop, &stall->timer);
    stall->drive = NULL;
}
