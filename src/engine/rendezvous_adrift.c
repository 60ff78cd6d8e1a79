/* Agents that have outlived their controller (agent/adrift.h), and come to this one: those elsewhere by a Join
 * that tells of it, the one of this machine is looked for, since it listens and does not join. Whether they are
 * adopted or sent away is decided once, for all of them. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/adrift.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/module.h"
#include "base/process.h"
#include "base/str.h"
#include "engine/rendezvous_internal.h"

#define GREETING_LIMIT (5 * NS_PER_S)
#define KNOCK_EACH (50 * NS_PER_MS)

void slot_forget_adrift(struct slot *slot) {
    if (slot->adrift != NULL) wire__adrift__free_unpacked(TAKE(slot->adrift), NULL);
}

const Wire__Adrift *rendezvous_adrift(const struct rendezvous *rendezvous, const char *node_name) {
    const struct slot *slot = rendezvous_slot_of(rendezvous, node_name);
    return slot != NULL && slot->channel != NULL ? slot->adrift : NULL;
}

bool rendezvous_has_left(const struct rendezvous *rendezvous) {
    return rendezvous->config.local && (rendezvous->slots[0].channel != NULL || rendezvous->left.unproven);
}

bool rendezvous_is_undecided(const struct rendezvous *rendezvous) {
    bool adrift = false;
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++)
        adrift |= rendezvous->slots[rank].adrift != NULL;
    return adrift && !rendezvous->begins_anew;
}

/* -- adopted, or sent away */

int rendezvous_adopt(struct rendezvous *rendezvous, const char *node_name, const Wire__Start *start,
                     struct channel **channel, ty_error *err) {
    struct slot *slot = rendezvous_slot_of(rendezvous, node_name);
    if (slot == NULL || slot->adrift == NULL || slot->channel == NULL ||
        channel_send(slot->channel, &WIRE_MESSAGE(START, start, (Wire__Start *)start)) < 0)
        return ty_fail(err, TY_ENODE, "node %s, whose workers had gone on, is gone", node_name);
    channel_flush(slot->channel);
    if (slot->state != SLOT_ABSENT) slot_set_state(slot, SLOT_TAKEN);
    slot_forget_adrift(slot);
    *channel = TAKE(slot->channel);
    return 0;
}

/* Kills the agent of this machine; true: it is at its end. Nobody sees to the end of what it leaves then. */
static bool kill_left(struct left *left) {
    left->unproven = true;
    CLEANUP_FD int held = left->pid > 0 ? kernel_hold(left->pid) : -1;
    return left->pid > 0 && left->user == geteuid() && kernel_signal(held, left->pid, SIGKILL) == 0;
}

/* The agent of this machine has had the time of a lease for its end. */
static void on_left_limit(void *context) {
    struct rendezvous *rendezvous = context;
    if (rendezvous->slots[0].channel == NULL) return;
    bool killed = kill_left(&rendezvous->left);
    log_warning("join", "the agent of this node that the controller before this one left, process %d, %s",
                rendezvous->left.pid, killed ? "did not end, and was killed" : "does not end");
}

/* This machine's is waited for until its channel's end, which is its own. */
nanoseconds rendezvous_send_away(struct rendezvous *rendezvous) {
    static const char why[] = "a controller begins anew";
    rendezvous->begins_anew = true;
    for (uint32_t rank = 0; rank < rendezvous->config.max_nodes; rank++) {
        struct slot *slot = &rendezvous->slots[rank];
        if (slot->adrift == NULL) continue;
        slot_forget_adrift(slot);
        rendezvous->adrift_at = clock_boot();
        if (slot->state != SLOT_ABSENT) {
            rendezvous_dismiss(rendezvous, slot->name, TAKE(slot->channel), why);
            continue;
        }
        rendezvous_say_goodbye(slot->channel, ty_error_exit_status(TY_ENODE), why);
        rendezvous->left.limit = (struct loop_timer){.callback = on_left_limit, .context = rendezvous};
        (void)loop_timer_start(rendezvous->config.loop, &rendezvous->left.limit, CHANNEL_LEASE);
    }
    return rendezvous->adrift_at;
}

/* -- the agent of this machine is looked for */

static void on_greeting(void *context, const Wire__Message *message) {
    struct slot *slot = context;
    const Wire__Join *join = message->body_case == WIRE__MESSAGE__BODY_JOIN ? message->join : NULL;
    slot->rendezvous->left.awaited = false;
    slot_forget_adrift(slot);
    if (join != NULL && join->adrift != NULL && join->protocol == FRAME_PROTOCOL &&
        str_equal(join->version, base_build))
        slot->adrift = frame_copy(&join->adrift->base);
    if (slot->adrift == NULL) {
        rendezvous_say_goodbye(slot->channel, ty_error_exit_status(TY_EVERSION), "it cannot be adopted");
        return;
    }
    /* It hears that there is a controller. */
    frame_beat(&(struct frame_beat){.sent = clock_boot()}, channel_out(slot->channel));
    channel_flush(slot->channel);
}

/* Until the agent has said something or hung up, which is true, or the time is over. */
static bool await_greeting(struct rendezvous *rendezvous, nanoseconds time) {
    struct left *left = &rendezvous->left;
    struct loop *loop = rendezvous->config.loop;
    bool late = false;
    struct loop_timer limit = {.callback = rendezvous_note_time, .context = &late};
    left->awaited = true;
    if (loop_timer_start(loop, &limit, time) < 0) late = true;
    while (left->awaited && !late)
        (void)loop_turn(loop, true);
    loop_timer_stop(loop, &limit);
    bool heard = !left->awaited;
    left->awaited = false;
    return heard;
}

/* 0: there is a channel to whoever listens in the name of the agent. */
static int knock(struct rendezvous *rendezvous) {
    static const struct channel_events events = {.message = on_greeting, .closed = slot_closed};
    struct slot *slot = &rendezvous->slots[0];
    CLEANUP_FD int fd = adrift_connect(rendezvous->config.run_path, rendezvous->local->nodes[0].name);
    if (fd < 0) return fd;
    if (!process_is_trusted(fd, &rendezvous->left.pid, &rendezvous->left.user)) return -EPERM;
    int result = channel_create(rendezvous->config.loop, fd, &events, slot, &slot->channel, NULL);
    if (result == 0) (void)TAKE_FD(fd);
    return result;
}

/* An agent that is adrift, or ends, is found. Nothing is left of one only where nobody listens: one that hangs
 * up is at its end, and one that does not answer is ended. */
void rendezvous_find_left(struct rendezvous *rendezvous) {
    struct left *left = &rendezvous->left;
    const struct slot *slot = &rendezvous->slots[0];
    nanoseconds end = clock_monotonic() + GREETING_LIMIT;
    int result = 0;
    char why[128];
    for (nanoseconds time = GREETING_LIMIT; time > 0 && slot->channel == NULL; time = end - clock_monotonic()) {
        result = knock(rendezvous);
        if (result == -ECONNREFUSED || result == -ENOENT) return;
        if (result == -EPERM) break;
        if (result == 0 && await_greeting(rendezvous, time) && slot->channel != NULL) return;
        if (slot->channel == NULL) (void)await_greeting(rendezvous, KNOCK_EACH);
    }
    left->unproven = true;
    if (slot->channel != NULL) {
        bool killed = kill_left(left);
        (void)snprintf(why, sizeof why, "its agent, process %d, does not answer%s", left->pid,
                       killed ? " and was killed" : "");
    } else if (result == -EPERM) {
        (void)snprintf(why, sizeof why, "process %d of user %u listens in the place of its agent", left->pid,
                       (unsigned)left->user);
    } else {
        (void)snprintf(why, sizeof why, "its agent cannot be reached: %s",
                       result < 0 ? strerror(-result) : "it hangs up");
    }
    log_warning("join", "what the controller before this one left on this node may go on: %s", why);
}
