/* A stand-still in which every rank waits for the others. Looks now and then, and counts looks rather than
 * time: after a while in which this process was stopped, the first look tells nothing, as what the ranks
 * said meanwhile has not been read. */
#include "base/cleanup.h"
#include "controller/ty_run.h"

enum { LOOKS = 4 }; /* in a row, a quarter of the limit apart */

/* Stuck at each of LOOKS looks in a row, and nobody has asked, answered or said anything in between. The rank
 * that is told is the one that the store names (store_is_stuck). */
static void look(void *context) {
    struct stall *stall = context;
    struct ty_run *run = stall->run;
    CLEANUP(buffer_done) struct buffer waits = {0}, elsewhere = {0};
    CLEANUP(idset_done) struct idset ranks = {0};
    uint64_t turn = 0, words = 0;
    uint32_t rank = 0;
    run_list_waiting(run->core, &ranks, &words, &elsewhere);
    bool stuck = run->launched.store != NULL && run_state_of(run->core) == RUN_RUNNING &&
                 store_is_stuck(run->launched.store, &ranks, &turn, &rank, &waits);
    turn += words; /* neither ever goes back */
    stall->n_looks = !stuck ? 0 : turn == stall->turn ? stall->n_looks + 1 : 0;
    stall->turn = turn;
    if (elsewhere.size > 0) buffer_text(&waits, elsewhere.data);
    if (stall->n_looks == LOOKS) {
        CLEANUP(buffer_done) struct buffer how = {0};
        buffer_printf(&how, "all ranks have waited for each other in the store%s for ",
                      idset_count(&ranks) > 0 ? " and for checkpoints" : "");
        duration_format(stall->limit, &how);
        buffer_printf(&how, ": %s", waits.failed ? "?" : waits.data);
        run_worker_hung(stall->run->core, rank, how.failed ? "all ranks wait in the store" : how.data,
                        clock_wall());
    }
    (void)loop_timer_start(run->loop, &stall->timer, stall->limit / LOOKS);
}

void stall_watch(struct ty_run *run, nanoseconds limit) {
    struct stall *stall = &run->stall;
    if (limit <= 0) return;
    stall_end(run);
    *stall = (struct stall){.run = run, .limit = limit, .timer = {.callback = look, .context = stall}};
    (void)loop_timer_start(run->loop, &stall->timer, limit / LOOKS);
}

void stall_end(struct ty_run *run) {
    if (run->stall.run != NULL) loop_timer_stop(run->loop, &run->stall.timer);
    run->stall.run = NULL;
}
