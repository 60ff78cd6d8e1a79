/* What the controller says to its agent, message by message: each order goes to the part of the node's run that
 * carries it out. What names a rank that is not here is passed over, since the two sides hear of an end at
 * different times. */
#include "agent/node_run.h"
#include "base/log.h"

/* A launch may come while the attempt before it is still swept: it waits until that is over, and another one
 * takes its place, as the controller has given up the first by then. */
static void on_launch(struct node_run *run, const Wire__Launch *body) {
    if (run->ending) {
        attempt_refuse(run, body, "this node's agent is ending", true);
        return;
    }
    attempt_let_go(run);
    if (run->phase == NODE_RUN_BETWEEN) {
        attempt_begin(run, body);
    } else {
        wire__launch__free_unpacked(run->next, NULL);
        run->next = frame_copy(&body->base);
        if (run->next == NULL) attempt_refuse(run, body, "out of memory", false);
    }
}

static struct worker_process *find_worker(struct node_run *run, uint32_t rank) {
    for (size_t i = 0; i < run->n_workers; i++)
        if (run->workers[i].rank == rank) return &run->workers[i];
    return NULL;
}

static void on_stop(struct node_run *run, const Wire__Stop *stop) {
    enum worker_process_stop how = stop->kill ? STOP_KILLED : stop->interrupt ? STOP_INTERRUPTED : STOP_TOLD;
    if (stop->preemption[0] != '\0') signals_set_preemption(run, stop->preemption);
    if (stop->n_ranks == 0) {
        attempt_let_go(run);
        attempt_stop(run, how);
    }
    for (size_t i = 0; i < stop->n_ranks; i++) {
        struct worker_process *worker = find_worker(run, stop->ranks[i]);
        if (worker != NULL) worker_process_stop(worker, how, attempt_grace(run));
    }
}

void orders_take(void *context, const Wire__Message *message) {
    struct node_run *run = context;
    struct worker_process *worker;
    switch (message->body_case) {
    case WIRE__MESSAGE__BODY_LAUNCH:
        on_launch(run, message->launch);
        break;
    case WIRE__MESSAGE__BODY_STOP:
        on_stop(run, message->stop);
        break;
    case WIRE__MESSAGE__BODY_DISTURB:
        worker = find_worker(run, message->disturb->rank);
        if (worker != NULL) worker_process_disturb(worker, message->disturb->kind, message->disturb->length);
        break;
    case WIRE__MESSAGE__BODY_INPUT:
        worker = find_worker(run, message->input->rank);
        if (worker != NULL)
            feed_add(&worker->feed, message->input->bytes.data, message->input->bytes.len,
                     message->input->last);
        break;
    case WIRE__MESSAGE__BODY_RESIZE:
        for (size_t i = 0; i < run->n_workers; i++)
            if (run->workers[i].pty.outbox != NULL)
                pty_resize(run->workers[i].pty.master_fd, message->resize->rows, message->resize->columns);
        break;
    case WIRE__MESSAGE__BODY_STACKS:
        stacks_start(&run->stacks, &run->launch, run->workers, run->n_workers);
        break;
    case WIRE__MESSAGE__BODY_LOOK:
        looks_begin(&run->looks, message->look, run->workers, run->n_workers);
        break;
    case WIRE__MESSAGE__BODY_FINISH:
        run->keep = message->finish->keep;
        if (!run->keep) run->service->status = 0; /* else a dismissal says with what to end */
        node_run_end(run, STOP_TOLD);
        break;
    case WIRE__MESSAGE__BODY_DISMISSAL:
        run->service->status = message->dismissal->status;
        break;
    case WIRE__MESSAGE__BODY_ANSWER:
        worker_channels_answer(&run->channels, message->answer);
        break;
    case WIRE__MESSAGE__BODY_COMMITTED:
        worker_channels_committed(&run->channels, message->committed);
        node_storage_committed(&run->storage, message->committed->number);
        break;
    case WIRE__MESSAGE__BODY_FILE:
        node_storage_receive(&run->storage, message->file);
        break;
    case WIRE__MESSAGE__BODY_TAKEN:
        node_storage_taken(&run->storage, message->taken);
        break;
    default:
        outbox_log(&run->outbox, LOG_LEVEL_WARNING, "a message of kind %d came that an agent does not take",
                   (int)message->body_case);
    }
}
