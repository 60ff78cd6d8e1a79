/* The communicator of all workers of the attempt, made when first asked for; the ranks find each other through
 * the run's store. How they call each other is the room collective's. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "collective/collective.h"
#include "worker/worker.h"

/* comm_exchange over the link. */
static int gather(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                  struct buffer *all, ty_error *err) {
    return worker_gather(context, key, value, size, (timeout + NS_PER_MS - 1) / NS_PER_MS, all, err);
}

/* A failure of the ranks to find each other is kept, as the others have given up as well. */
static int create(ty_worker *worker, ty_error *err) {
    struct comm_config config = {
        .rank = worker->rank,
        .size = worker->world_size,
        .backend = getenv(WORKER_BACKEND_VARIABLE),
        .devices = worker->devices,
        .n_devices = worker->n_devices,
        .address = getenv(WORKER_ADDRESS_VARIABLE),
        .exchange = {.gather = gather, .context = worker},
    };
    config.timeout = 30 * 60 * NS_PER_S;
    const char *given = getenv(WORKER_COLLECTIVE_VARIABLE);
    int rc = duration_of_variable(WORKER_COLLECTIVE_VARIABLE, given, &config.timeout, err);
    if (rc < 0) return rc;
    rc = comm_create(&config, &worker->comm, &worker->comm_failure);
    if (rc < 0) {
        (void)ty_wrap(&worker->comm_failure, "rank %d: no communicator", worker->rank);
        if (err != NULL) *err = worker->comm_failure;
        return rc;
    }
    rc = ty_rendezvous(worker, err);
    if (rc < 0) comm_destroy(TAKE(worker->comm));
    return rc;
}

ty_comm *ty_comm_get(ty_worker *worker, ty_error *err) {
    ty_error why = {0};
    if (worker == NULL) {
        (void)ty_fail(err, TY_EUSAGE, "the worker is NULL: take it from ty_worker_self");
        return NULL;
    }
    if (worker->comm_failure.code != 0) why = worker->comm_failure;
    if (why.code != 0 || (worker->comm == NULL && create(worker, &why) < 0)) {
        if (err != NULL) *err = why;
        return NULL;
    }
    return worker->comm;
}

ty_comm *ty_comm_of(ty_worker *worker) {
    ty_error why = {0};
    ty_comm *comm = ty_comm_get(worker, &why);
    return comm != NULL ? comm : comm_unusable(&why);
}
