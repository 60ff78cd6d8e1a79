/* Claims on this machine's devices across separate runs and users (docs/design.md 4, "Leases are file locks").
 *
 * A lease is a file of its own in the lease directory ($TRAINYARD_LEASE_DIR, else /tmp/trainyard-leases, mode 1777), locked
 * (flock) by an open file that the controller and its agents hold: the lock goes when the last of them goes, by
 * SIGKILL too, and a file without a lock is void and removed by whoever finds it. The file names the holder and its claims. */
#ifndef CLUSTER_LEASE_H
#define CLUSTER_LEASE_H

#include "base/duration.h"
#include "base/quantity.h"
#include "cluster/cluster.h"

/* One device, or a part of it. */
struct lease_claim {
    char resource[32]; /* "GPU" */
    char id[80];       /* the device's id on this machine; UUID where known, so that masks do not matter */
    quantity amount;   /* QUANTITY_ONE for a whole device */
};

/* A lease of somebody's, as read: the claims are believed, the user is the owner of the file. */
struct lease_holder {
    int pid; /* as the holder sees itself; another one in another container */
    char run[128];
    char user[64];
    nanoseconds since; /* wall clock */
    char file[64];     /* its name in the lease directory */
    struct lease_claim *claims;
    size_t n;
};

struct lease; /* opaque: a claim of ours */

/* The claim of `amount` of device `index`, by its UUID where known. */
void lease_claim_device(const struct node_devices *devices, size_t index, quantity amount,
                        struct lease_claim *claim);

/* One process at a time looks and claims: between lease_begin and lease_end the directory is locked (short). Waits ten
 * seconds at most: -ETIMEDOUT. A directory that somebody else could tamper with is refused: -EPERM. */
int lease_begin(int *directory, ty_error *err);
void lease_end(int directory);

/* Who holds what now, but for `own` (may be NULL); void files are removed on the way. Owned by the caller. */
int lease_holders(int directory, const struct lease *own, struct lease_holder **holders, size_t *n,
                  ty_error *err);
void lease_holders_free(struct lease_holder *holders, size_t n);

/* Takes what `holders` have off what is free on the one node of `cluster`, by device id or UUID; claims to other devices are
 * passed over. 0, or -ENOMEM. */
int lease_apply(const struct lease_holder *holders, size_t n, struct cluster *cluster, ty_error *err);

/* Claims; to be called between begin and end, after a look at the holders. */
int lease_claim(int directory, const char *run, const struct lease_claim *claims, size_t n,
                struct lease **lease, ty_error *err);
/* What it claims from now on, whoever holds its descriptor; those that watch are woken. To be called as lease_claim. */
int lease_change(const struct lease *lease, const char *run, const struct lease_claim *claims, size_t n,
                 ty_error *err);
int lease_fd(const struct lease *lease); /* to be handed on to agents; close-on-exec is set */
void lease_release(
    struct lease *lease); /* unlinks and closes (agents that still have it keep it locked, but it counts no
                                          * more); NULL is fine */

/* For a process that was handed lease_fd and outlives the holder, at its own end: removes the file, which would be void from then on. */
void lease_abandoned(int fd);

/* True when the lease behind `fd` is not what was read of `holder`. */
bool lease_changed(int fd, const struct lease_holder *holder);

/* A descriptor that turns readable when any of `holders` may have gone or claims something else, so that a run that waits need not poll: then look
 * again, and when it is still held, watch again with a new descriptor. The caller closes. */
int lease_watch(const struct lease_holder *holders, size_t n, ty_error *err);

#endif
