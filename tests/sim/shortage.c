/* What the simulation does for the controller, called from within its decisions, is left out: messages and
 * timers, and what it makes of events. */
#include "shortage.h"

#include <stddef.h>

#include "../unit/failing_memory.h"
#include "engine/sim_internal.h"
#include "run/replay.h"

static struct {
    long (*draw)(void *context, bool *for_good);
    void *context;
    bool for_good;
    uint64_t count;
} shortage;

void __real_sim_controller_hear(struct sim *sim, const struct sim_message *message);
void __real_run_timer_fired(struct run *run, enum run_timer timer);
void __real_run_published(struct run *run, uint64_t number, char *path, const char *error);
void __real_run_checked(struct run *run);
void __real_sim_send(struct sim *sim, const struct sim_message *message);
int __real_loop_timer_start(struct loop *loop, struct loop_timer *timer, nanoseconds delay);
void __wrap_sim_controller_hear(struct sim *sim, const struct sim_message *message);
void __wrap_run_timer_fired(struct run *run, enum run_timer timer);
void __wrap_run_published(struct run *run, uint64_t number, char *path, const char *error);
void __wrap_run_checked(struct run *run);
void __wrap_sim_send(struct sim *sim, const struct sim_message *message);
int __wrap_loop_timer_start(struct loop *loop, struct loop_timer *timer, nanoseconds delay);
void __real_replay_note(struct run_replay *replay, const struct run_event *event);
void __wrap_replay_note(struct run_replay *replay, const struct run_event *event);

void shortage_begin(long (*draw)(void *context, bool *for_good), void *context) {
    shortage.draw = draw;
    shortage.context = context;
    shortage.count = 0;
}

uint64_t shortage_count(void) {
    return shortage.count;
}

static long begin(void) {
    shortage.for_good = false;
    long left = shortage.draw == NULL ? -1 : shortage.draw(shortage.context, &shortage.for_good);
    (void)memory_fails_after(left, shortage.for_good);
    return left;
}

/* One that fails for good and was reached just so is not counted: it cannot be told from one that was not. */
static void end(long left) {
    shortage.count += left >= 0 && memory_fails_after(-1, false) < 0;
}

void __wrap_sim_controller_hear(struct sim *sim, const struct sim_message *message) {
    long left = begin();
    __real_sim_controller_hear(sim, message);
    end(left);
}

void __wrap_run_timer_fired(struct run *run, enum run_timer timer) {
    long left = begin();
    __real_run_timer_fired(run, timer);
    end(left);
}

void __wrap_run_published(struct run *run, uint64_t number, char *path, const char *error) {
    long left = begin();
    __real_run_published(run, number, path, error);
    end(left);
}

void __wrap_run_checked(struct run *run) {
    long left = begin();
    __real_run_checked(run);
    end(left);
}

void __wrap_sim_send(struct sim *sim, const struct sim_message *message) {
    long left = memory_fails_after(-1, false);
    __real_sim_send(sim, message);
    (void)memory_fails_after(left, shortage.for_good);
}

int __wrap_loop_timer_start(struct loop *loop, struct loop_timer *timer, nanoseconds delay) {
    long left = memory_fails_after(-1, false);
    int result = __real_loop_timer_start(loop, timer, delay);
    (void)memory_fails_after(left, shortage.for_good);
    return result;
}

void __wrap_replay_note(struct run_replay *replay, const struct run_event *event) {
    long left = memory_fails_after(-1, false);
    __real_replay_note(replay, event);
    (void)memory_fails_after(left, shortage.for_good);
}
