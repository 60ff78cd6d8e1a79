/* What the controller says to its agent, message by message. */
#include "agent/serving.h"
#include "base/log.h"

static void on_launch(struct serving *serving, const Wire__Launch *body) {
    if (serving->ending) {
        attempt_refuse(serving, body, "this node's agent is ending", true);
    } else if (!serving->active) {
        attempt_begin(serving, body);
    } else {
        wire__launch__free_unpacked(serving->next, NULL);
        serving->next = launch_copy(body);
        if (serving->next == NULL) attempt_refuse(serving, body, "out of memory", false);
    }
}

static void on_stop(struct serving *serving, const Wire__Stop *stop) {
    if (stop->preemption[0] != '\0') signals_set_preemption(serving, stop->preemption);
    if (stop->n_ranks == 0) {
        attempt_stop(serving, stop->kill);
        return;
    }
    for (size_t r = 0; r < stop->n_ranks; r++)
        for (size_t i = 0; i < serving->n_children; i++)
            if (serving->children[i].rank == stop->ranks[r])
                child_stop(&serving->children[i], stop->kill, attempt_grace(serving));
}

static void on_disturb(struct serving *serving, const Wire__Disturb *body) {
    for (size_t i = 0; i < serving->n_children; i++)
        if (serving->children[i].rank == body->rank)
            child_disturb(&serving->children[i], body->kind, body->length);
}

void orders_take(void *context, const Wire__Message *message) {
    struct serving *serving = context;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_LAUNCH:
        on_launch(serving, message->launch);
        break;
    case WIRE__MESSAGE__BODY_STOP:
        on_stop(serving, message->stop);
        break;
    case WIRE__MESSAGE__BODY_DISTURB:
        on_disturb(serving, message->disturb);
        break;
    case WIRE__MESSAGE__BODY_STACKS:
        stacks_start(&serving->stacks, &serving->launch, serving->children, serving->n_children);
        break;
    case WIRE__MESSAGE__BODY_FINISH:
        serving->keep = message->finish->keep;
        serving_end(serving, false);
        break;
    case WIRE__MESSAGE__BODY_ANSWER:
        worker_channels_answer(&serving->channels, message->answer);
        break;
    case WIRE__MESSAGE__BODY_COMMITTED:
        worker_channels_committed(&serving->channels, message->committed);
        break;
    default:
        outbox_log(&serving->outbox, LOG_LEVEL_WARNING, "a message of kind %d came that an agent does not take",
                   (int)message->body_case);
    }
}
