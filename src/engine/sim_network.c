/* Messages on their way. Those that take no time go through a ring, which makes a calm cluster of many nodes
 * cheap; the others have a timer each, keep the order of their node, and wait where a partition cuts it off, or
 * its agent is stopped. A doubled message comes again later, out of order. */
#include <stdlib.h>

#include "engine/sim_internal.h"

static bool to_agent(const struct sim_message *message) {
    return message->kind < SIM_HELLO;
}

static void deliver(struct sim *sim, const struct sim_message *message) {
    struct sim_agent *agent = &sim->agents[message->node];
    if (!to_agent(message))
        sim_controller_hear(sim, message);
    else if (agent->alive && agent->life == message->life)
        sim_agent_hear(agent, message);
}

static void enqueue(struct sim *sim, const struct sim_message *message) {
    if (sim->queue_size == sim->queue_capacity) {
        size_t capacity = sim->queue_capacity > 0 ? 2 * sim->queue_capacity : 1024;
        struct sim_message *queue = calloc(capacity, sizeof *queue);
        if (queue == NULL) {
            sim->out_of_memory = true;
            return;
        }
        for (size_t i = 0; i < sim->queue_size; i++)
            queue[i] = sim->queue[(sim->queue_first + i) & (sim->queue_capacity - 1)];
        free(sim->queue);
        sim->queue = queue;
        sim->queue_capacity = capacity;
        sim->queue_first = 0;
    }
    sim->queue[(sim->queue_first + sim->queue_size++) & (sim->queue_capacity - 1)] = *message;
}

bool sim_deliver_next(struct sim *sim) {
    if (sim->queue_size == 0) return false;
    struct sim_message message = sim->queue[sim->queue_first];
    sim->queue_first = (sim->queue_first + 1) & (sim->queue_capacity - 1);
    sim->queue_size--;
    deliver(sim, &message);
    return true;
}

static void free_parcel(struct sim_parcel *parcel) {
    struct sim *sim = parcel->sim;
    loop_timer_stop(sim->loop, &parcel->arrival);
    *(parcel->previous != NULL ? &parcel->previous->next : &sim->parcels) = parcel->next;
    *(parcel->next != NULL ? &parcel->next->previous : &sim->last_parcel) = parcel->previous;
    free(parcel);
}

static void arrive(void *context) {
    struct sim_parcel *parcel = context;
    struct sim *sim = parcel->sim;
    nanoseconds busy = sim->busy_until - loop_now(sim->loop);
    const struct sim_agent *agent = &sim->agents[parcel->message.node];
    if (agent->frozen || agent->cut & (to_agent(&parcel->message) ? SIM_CUT_TO_AGENT : SIM_CUT_FROM_AGENT))
        return;
    if (!to_agent(&parcel->message) && busy > 0) {
        (void)loop_timer_start(sim->loop, &parcel->arrival, busy);
        return;
    }
    struct sim_message message = parcel->message;
    free_parcel(parcel);
    deliver(sim, &message);
}

static void dispatch(struct sim *sim, const struct sim_message *message, nanoseconds delay) {
    struct sim_parcel *parcel = calloc(1, sizeof *parcel);
    if (parcel == NULL) {
        sim->out_of_memory = true;
        return;
    }
    *parcel = (struct sim_parcel){.sim = sim,
                                  .previous = sim->last_parcel,
                                  .arrival = {.callback = arrive, .context = parcel},
                                  .message = *message};
    *(sim->last_parcel != NULL ? &sim->last_parcel->next : &sim->parcels) = parcel;
    sim->last_parcel = parcel;
    if (loop_timer_start(sim->loop, &parcel->arrival, delay) < 0) sim->out_of_memory = true;
}

void sim_send(struct sim *sim, const struct sim_message *message) {
    const struct sim_hooks *hooks = sim->hooks;
    struct sim_agent *agent = &sim->agents[message->node];
    bool there = to_agent(message);
    if (hooks->message == NULL && !agent->cut && !agent->frozen) {
        if (there) /* nothing that an agent does reaches the run before its op has returned */
            deliver(sim, message);
        else
            enqueue(sim, message);
        return;
    }
    nanoseconds now = loop_now(sim->loop);
    nanoseconds takes = hooks->message == NULL ? 0 : hooks->message(sim->context, message->node, there);
    nanoseconds due = now + takes > agent->last[there] ? now + takes : agent->last[there];
    agent->last[there] = due;
    dispatch(sim, message, due - now);
    if (hooks->message != NULL && hooks->doubled != NULL && hooks->doubled(sim->context, message->node))
        dispatch(sim, message, due - now + hooks->message(sim->context, message->node, there));
}

void sim_network_heal(struct sim *sim, uint32_t node) {
    for (struct sim_parcel *parcel = sim->parcels; parcel != NULL; parcel = parcel->next)
        if (parcel->message.node == node && parcel->arrival.state == NULL)
            (void)loop_timer_start(sim->loop, &parcel->arrival, 0);
}

void sim_network_drop(struct sim *sim) {
    while (sim->parcels != NULL)
        free_parcel(sim->parcels);
    sim->queue_size = 0;
}

void sim_network_done(struct sim *sim) {
    sim_network_drop(sim);
    free(sim->queue);
}
