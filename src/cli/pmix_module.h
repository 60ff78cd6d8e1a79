/* The PMIx server of a node, over libpmix: a module, as only programs of Open MPI and its kin need libpmix.
 * mpi_pmix.c is what surrounds it: which process it is in, how the ranks of a node hear of it, and how the
 * servers of several nodes reach each other. */
#ifndef CLI_PMIX_MODULE_H
#define CLI_PMIX_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/worker.h>

#include "base/buffer.h"
#include "base/error.h"

/* A node of the attempt. Its ranks follow each other. */
struct pmix_place {
    const char *name;
    uint32_t first_rank, n_ranks;
};

struct pmix_job {
    const char *name;      /* of the attempt, and of no other */
    const char *directory; /* for files of libpmix and its clients; exists */
    const struct pmix_place *places;
    uint32_t n_places, here; /* the server's own is places[here] */
    uint32_t world_size;
    /* Says of a rank of this node that it has begun with MPI, or has taken its leave. Does not wait. */
    void (*mark)(uint32_t rank, bool begun);
    /* Called by threads that may wait, and only where there are several places; negative on failure. Each of
     * `n` places gives `mine` under the key, and gets what all gave, in their order, which is rising. */
    int (*exchange)(const char *key, const uint32_t *places, size_t n, const struct buffer *mine,
                    struct buffer *all);
    /* What a rank has put for others, given once by its own server; who takes it waits for that. */
    int (*give)(uint32_t rank, const void *data, size_t size);
    int (*take)(uint32_t rank, struct buffer *out);
};

struct pmix_module {
    const char *build;
    /* `environment` gets what the first rank of this place is to find: "K=V", each with a NUL behind it; for
     * others PMIX_RANK is another. The job is borrowed for the life of the process; once in a process. */
    int (*start)(const struct pmix_job *job, struct buffer *environment, ty_error *err);
    /* Whether a client is connected; may be asked by a signal handler. */
    bool (*is_needed)(void);
    /* Returns when that is so no more. */
    void (*wait)(void);
};

extern const struct pmix_module trainyard_pmix;

/* -- what surrounds it (mpi_pmix.c) */

/* In the process that answers for the first rank of a node: starts the server, and tells the node's ranks what
 * they are to find, or why there is none (NULL). */
const struct pmix_module *mpi_pmix_serve(void);

/* In each rank, before its program: waits for that, and sets it. `why` says why there is no server; empty where
 * there is. */
int mpi_pmix_join(struct buffer *why, ty_error *err);

#endif
