/* Before anything starts: the request is checked, the cluster looked at, every worker placed, devices
 * claimed. */
#ifndef CONTROLLER_PREPARE_H
#define CONTROLLER_PREPARE_H

#include "cluster/lease.h"
#include "controller/controller.h"
#include "engine/engine.h"
#include "framework/framework.h"
#include "placement/plan.h"

struct prepared {
    struct demand demand;
    const struct engine *engine;
    const struct framework *framework;
    struct rendezvous *rendezvous; /* where the engine's agents come over the network, else NULL */
    struct loop *loop;             /* that one's, until the run has a loop */
    struct cluster *cluster;
    struct plan *plan;
    nanoseconds outlive; /* how long workers go on where this controller dies; -1: they cannot */
    size_t most_nodes;   /* that workers are planned on, where others are spare; 0: any number */
    const char *left; /* the run of whose dead controller an agent is still here, with its lease; NULL: none */
    struct lease *lease;   /* on this machine; NULL: no device is needed, or the nodes are logical, or others */
    nanoseconds plan_time; /* what probing and planning took */
};

/* The runs that hold what another one wants. */
struct holder_list {
    struct lease_holder *items; /* owned */
    size_t n;
};

void holder_list_done(struct holder_list *list);

/* The engine that the request means. */
int prepare_engine(const struct run_request *request, const struct engine **engine, ty_error *err);

/* Checks all that can be checked without looking at nodes. */
int prepare_check(const struct run_request *request, struct prepared *prepared, ty_error *err);

/* Where agents come over the network: listens, has them started, and waits until as many are there as the user
 * wants. TY_ESTART names those that are missing. `run_path`: of a run that the caller has, and whose
 * workers may have gone on; NULL. */
int prepare_gather(const struct run_request *request, const char *run_path, struct prepared *prepared,
                   ty_error *err);

/* True when some worker holds a device, which other runs of this machine may hold as well. */
bool prepare_needs_devices(const struct demand *demand);

/* What the plan takes of the node of this rank, a claim for each of its devices. The caller frees. */
int prepare_claims(const struct prepared *prepared, size_t node_rank, struct lease_claim **claims, size_t *n,
                   ty_error *err);

/* Plans, and claims what it takes of this machine. TY_EINFEASIBLE, or TY_EBUSY: then `holders` (the caller's)
 * are the runs that hold what is short, none when nobody can be waited for. May be called again. */
int prepare_plan(const struct run_request *request, const char *run_name, struct prepared *prepared,
                 struct holder_list *holders, ty_error *err);

/* A plan for a run that goes on, with what is there now; what the run itself holds counts as free. */
struct prepare_again {
    /* Nodes that are not to be planned with; NULL: all are there. */
    bool (*away)(void *context, const char *node);
    void *context;
    /* The run's lease is changed to what the plan needs, or to nothing when nothing fits on all nodes. */
    bool claim;
    /* set by prepare_again: */
    struct prepared planned;    /* its cluster and its plan; the rest is borrowed from the run's */
    struct holder_list holders; /* other runs, when they hold what is short */
};

/* 0 with a plan; else as prepare_plan, with nobody's claims changed but for the run's own. */
int prepare_again(const struct run_request *request, const struct prepared *prepared,
                  struct prepare_again *again, ty_error *err);
void prepare_again_done(struct prepare_again *again);

void prepare_done(struct prepared *prepared);

/* That a node did not come may be the scheduler's doing, and is told with its reason (scheduler.c). */
void scheduler_explain(const struct engine *engine);

#endif
