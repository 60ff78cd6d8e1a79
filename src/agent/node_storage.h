/* The storage of a node that joined over the network: is it the controller's? What stands in the file run.lock
 * of the run's directory tells. If it is, all that workers write is in its place. If not, the directory is made
 * on this node as well, and what is written there goes home over the channel: logs as they grow (logs.h), a
 * rank's files of a checkpoint before its commit; the checkpoint that an attempt begins with is fetched. When
 * the run is over here the directory goes again. */
#ifndef AGENT_NODE_STORAGE_H
#define AGENT_NODE_STORAGE_H

#include "agent/logs.h"
#include "agent/outbox.h"
#include "agent/worker_channel.h"

enum node_storage_state { STORAGE_UNKNOWN, STORAGE_SHARED, STORAGE_APART };

struct node_storage { /* zero-initialised but for the first five */
    struct outbox *outbox;
    struct logs *logs;
    struct worker_channels *channels;
    void (*ready)(void *context, const ty_error *err); /* workers can start, or why they cannot */
    void *context;

    enum node_storage_state state;
    const Wire__Launch *launch;  /* that waits to begin, or has begun; NULL: none; borrowed */
    char *path;                  /* the run's directory here; owned; NULL unless apart */
    int mark;                    /* with path: open while the directory is ours */
    struct carrying *carrying;   /* commits whose files are on their way */
    uint64_t carries;            /* numbers given to them, and to fetches */
    uint64_t fetch;              /* the number of the one under way; 0: none */
    char *fetched;               /* the checkpoint that lies here whole; NULL: none */
    struct preparing *preparing; /* the look is under way; NULL: it is not */
};

/* Looks at the storage before the first attempt, and fetches what the attempt begins with; `ready` comes
 * later. */
void node_storage_prepare(struct node_storage *storage, const Wire__Launch *launch);
/* The attempt is over, its launch goes. */
void node_storage_forget(struct node_storage *storage);

/* That a rank has written its files: to be told to the controller once they are there. -ENOMEM: it is told
 * nothing. No channel is answered from within. */
struct node_storage_commit {
    uint32_t rank, channel;
    uint64_t number;
    const char *files; /* JSON, of the worker's message */
};
int node_storage_commit(struct node_storage *storage, const struct node_storage_commit *commit);
void node_storage_committed(struct node_storage *storage, uint64_t number);

void node_storage_receive(struct node_storage *storage, Wire__File *file); /* whose bytes it takes over */
void node_storage_taken(struct node_storage *storage, const Wire__Taken *taken);

/* The run is over here: removes the directory, as the last thing that is done on the storage. */
void node_storage_leave(struct node_storage *storage);
void node_storage_done(struct node_storage *storage);

#endif
