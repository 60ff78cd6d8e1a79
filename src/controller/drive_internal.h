/* What the files of a drive share: the drive itself, its agents, its timers. */
#ifndef CONTROLLER_DRIVE_INTERNAL_H
#define CONTROLLER_DRIVE_INTERNAL_H

#include "controller/answers.h"
#include "controller/chaos.h"
#include "controller/drive.h"
#include "controller/launch.h"
#include "controller/progress.h"
#include "controller/signals.h"
#include "controller/sink.h"
#include "controller/stall.h"
#include "run/store.h"
#include "wire/channel.h"

enum { NODE_UNUSED = UINT32_MAX }; /* the node rank of a node without workers */

/* A node of the run: its agent and our end of the channel. */
struct peer {
    struct drive *drive;
    uint32_t node;         /* its number, for the run's life */
    uint32_t node_rank;    /* in the current attempt */
    uint32_t cluster_node; /* its index in the cluster when it was last planned for */
    char *name;            /* owned */
    struct channel *channel;
    struct answers answers; /* that the channel has no room for yet */
    struct engine_handle handle;
    char address[64];
    uint16_t port;
    uint64_t held_for;  /* rows that must be written before what the channel holds may go */
    bool storage_hangs; /* under its logs: that was its last word of it */
};

struct timer_slot {
    struct drive *drive;
    enum run_timer timer;
    struct loop_timer handle;
};

/* A thread at work on the storage. */
struct storage_watch {
    struct storage *storage;
    struct loop_watch watch;
    bool watched; /* while something is under way there */
};

struct drive {
    const struct drive_config *config;
    struct loop *loop;
    struct run *run;
    struct store *store;
    size_t store_bytes;  /* of its values, and of those on their way to agents */
    struct shared *list; /* the checkpoints as they were told last; NULL at first */
    struct launch *launch;
    int launched_attempt; /* that `launch` and `store` are of */
    struct peer *peers;   /* max_peers of them, so that none moves; n_peers are known */
    uint32_t n_peers, max_peers;
    uint64_t since;      /* sweep_clock before the first agent */
    uint32_t *node_of;   /* node of each rank, with room for the most workers */
    uint32_t *looked_at; /* the same, of a plan that is only looked at */
    uint32_t size_told;  /* workers of the last attempt that began */
    struct timer_slot timers[RUN_TIMERS];
    struct loop_timer store_timer;
    struct chaos_timer chaos;
    struct stall stall;
    struct signals signals;
    struct loop_watch lease_watch;
    struct loop_timer wait_timer;
    int lease_fd;          /* readable when a holder may have gone; -1 unless the run waits */
    struct sink output[2]; /* standard output, standard error */
    bool output_told;      /* that it cannot be written */
    struct progress progress;
    char token[33];
    struct buffer metrics;               /* of rank 0 */
    nanoseconds launched, failed, ended; /* wall, monotonic, monotonic */
    int interrupted;                     /* the last signal that came; 0 */
    bool hurried;                        /* more than one came */
    bool unsignalled;                    /* the first stop was the program's own */
    struct buffer preemption;            /* JSON for workers, empty: there is none */
    int was_subreaper;                   /* this process, before */
    bool over;                           /* nothing more is to be done */
    struct storage_watch watches[2];     /* files, and the journal */
    struct loop_timer storage_timer;     /* to tell of what hangs */
    struct loop_timer linger_timer;      /* the run has ended, and waits no longer for its storage */
    bool held;                           /* an agent's logs hang, and so the storage is kept clear of */
    bool lingers;                        /* until then, or until the storage is idle */
    bool opening;              /* what an earlier controller left is looked at, before anything else */
    bool unopened;             /* the run ended meanwhile */
    struct published *awaited; /* the end of a commit goes there, while somebody waits for it */
    bool paused;               /* agents are not heard, until the output is taken */
    int beginning;             /* 0, or why it is not known which checkpoint the next attempt begins from */
    bool unrecorded;           /* the journal failed, which was told */
    ty_error error;            /* what ended the run from outside of run/: the launch, a wait */
};

/* Name of the node with this number. */
const char *drive_node_name(const struct drive *drive, uint32_t node);

/* Name of the node of the attempt's failure; NULL without. */
const char *drive_failed_node(const struct drive *drive);

bool drive_keeps_agents(const struct drive *drive);

/* Puts an event on record: the journal, the history, those who listen. `metrics`: JSON that only the last hear;
 * NULL without. */
void drive_note(struct drive *drive, const struct run_event *event, const char *metrics);
/* Records an event of the whole run with the JSON text in `data`, which is freed. */
void drive_record(struct drive *drive, enum run_event_kind kind, struct buffer *data);

/* The run's storage has something to do that is waited for. */
bool drive_writes(const struct drive *drive);
/* How long a run that has ended waits for its storage: what hangs must not keep it from its end. */
nanoseconds drive_storage_limit(const struct drive *drive);
/* All is done but for what the storage still has to do: that is waited for, with an ear for signals. */
void drive_linger(struct drive *drive);
/* From now on the run hears of commits (act.c). */
void drive_listen(struct drive *drive);

/* Records the plan of an attempt (0: the first). */
void drive_record_plan(struct drive *drive, int attempt);

/* -- resize.c: who runs where, anew for each attempt of an elastic run */
int resize_open(struct drive *drive, ty_error *err);       /* peers and ranks of the first plan */
void resize_close(struct drive *drive);                    /* frees them; a half-opened one is fine */
nanoseconds resize_interval_of(const struct drive *drive); /* 0: the size is fixed */
void resize_layout(void *context, unsigned flags, struct run_layout *layout); /* the op of run/ */
void resize_tell(struct drive *drive, const struct run_event *event);

/* -- act.c: what run/ asks for */
extern const struct run_ops drive_ops;

/* -- peer.c: agents */
int peer_start(struct peer *peer, ty_error *err);
void peer_send(struct peer *peer, const Wire__Message *message);
/* What is sent from now on waits until all rows before it are written, or for peer_let_go. */
void peer_hold(struct peer *peer);
void peer_let_go(struct peer *peer);
/* Ends the agent, by force when `by_force` or when it takes too long; its wait status, or 0. */
int peer_reap(struct peer *peer, bool by_force);
void peer_on_store_timer(void *context); /* context: the drive */
/* Ends an agent that does not answer, and all that ran there. */
void peer_abandon(struct peer *peer);
/* The same, when its descriptors are not ours any more. */
void peer_lose(struct peer *peer);
/* An answer for whoever waits on that channel of an agent, with a value (NULL: none) that it holds; context:
 * the drive. */
void peer_answer(void *context, uint32_t node, uint32_t channel, enum store_status status,
                 struct shared *value);
void peer_flush(struct peer *peer); /* at the end of a turn */
/* What agents told of storage that hangs holds no longer. */
void peer_forget_storage(struct drive *drive);
/* False when the output flows; else what nobody takes is dropped, so that agents are heard again. */
bool peer_drop_output(struct drive *drive);
void peer_tell_dropped(const struct drive *drive);
void peer_on_drained(void *context); /* a sink took what it had; context: the drive */

/* -- preempt.c: machines that are taken away */
/* Notes what workers are to be told: all ranks and nodes, or those of one node (its rank, else -1). */
void preempt_describe(struct drive *drive, int node);
/* The agent of a node was told to end by that signal. */
void preempt_node(struct drive *drive, uint32_t node, int signal_number);

/* -- wait.c: devices that others hold. drive_begin is called when they are ours. */
int wait_begin(struct drive *drive, const char *reason, const struct lease_holder *holders, size_t n,
               ty_error *err);
void wait_end(struct drive *drive);
int drive_begin(struct drive *drive, ty_error *err);

#endif
