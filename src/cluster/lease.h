/* Claims on this machine's devices across separate runs and users (docs/design.md 4, "Leases are file locks";
 * docs/leases.md).
 *
 * A lease is a file of its own in a directory that all users share and in which nobody can touch another's
 * files: /tmp itself, or $TRAINYARD_LEASE_DIR. The controller and its agents hold one open file of it, and a
 * lock that only the owner of the file can have: the lock goes when the last of them goes, by SIGKILL too. A
 * file without a lock is void and removed by whoever finds it.
 *
 * No lock of the directory keeps claims apart, since any user could hold that one for ever. Who wants devices
 * claims them first and then looks again (lease_fits): of two that claim the same at the same time at least the
 * later one sees the other, withdraws and tries again. So nothing that another user does can make a device
 * anybody's twice, and all that he can do is to claim it. */
#ifndef CLUSTER_LEASE_H
#define CLUSTER_LEASE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/error.h"
#include "base/quantity.h"
#include "cluster/cluster.h"

/* One device, or a part of it. */
struct lease_claim {
    char resource[32]; /* "GPU" */
    /* The device's UUID, else its PCI address, else its index: as far as known, masks do not matter; WHOLE/PART
     * of a part, which excludes the whole and is excluded by it. */
    char id[128];
    quantity amount; /* QUANTITY_ONE for a whole device */
};

enum { LEASE_RUN_SIZE = 256 }; /* of a run's name, which has 200 bytes at most */

/* A lease of somebody's, as read: the claims are believed, the user is the owner of the file. */
struct lease_holder {
    int pid; /* 0 unless it is that of a process of the user which lives, and can be seen from here */
    uid_t owner;
    char run[LEASE_RUN_SIZE];
    char user[64];
    nanoseconds since; /* wall clock */
    char file[64];     /* its name in the lease directory */
    struct lease_claim *claims;
    size_t n;
};

struct lease; /* opaque: a claim of ours */

/* The claim of `amount` of device `index`. */
void lease_claim_device(const struct node_devices *devices, size_t index, quantity amount,
                        struct lease_claim *claim);

/* All holders and what they hold now, but for `own` (may be NULL); void files are removed on the way. Owned by
 * the caller. A directory in which somebody else could remove leases is refused with what to do: -EPERM. */
int lease_holders(const struct lease *own, struct lease_holder **holders, size_t *n, ty_error *err);
void lease_holders_free(struct lease_holder *holders, size_t n);

/* All is free on the one node of `cluster` but what `holders` have, by UUID, PCI address or id; claims to other
 * devices are passed over. 0, or -ENOMEM. */
int lease_apply(const struct lease_holder *holders, size_t n, struct cluster *cluster, ty_error *err);

/* The same with all holders that there are now. */
int lease_apply_all(struct cluster *cluster, ty_error *err);

/* A lease that claims nothing yet. */
int lease_open(const char *run, struct lease **lease, ty_error *err);
/* What the lease claims from now on, whoever holds its descriptor; those that watch are woken. */
int lease_claim(const struct lease *lease, const struct lease_claim *claims, size_t n, ty_error *err);
/* To be asked after lease_claim and another lease_holders and lease_apply: false when somebody has claimed the
 * same meanwhile. Then the claim is to be withdrawn, and what is free looked for again after lease_pause, which
 * is longer and more random each time. */
bool lease_fits(const struct lease_claim *claims, size_t n, const struct cluster *cluster);
/* Between lease_apply and lease_fits: the first of the claims that does not fit, and who has its device. NULL:
 * all fit. */
const struct lease_holder *lease_in_the_way(const struct lease_claim *claims, size_t n,
                                            const struct lease_holder *holders, size_t n_holders,
                                            const struct cluster *cluster, const struct lease_claim **claim);
enum { LEASE_TRIES = 10 }; /* then somebody is at it on purpose; half a second of pauses, on average */
void lease_pause(int tries);
/* All of it, for a process whose claims are decided elsewhere: what the lease claims from now on. TY_EBUSY
 * names the device of `cluster`, this machine's, who has it, and what to do; nothing is claimed then. */
int lease_take(const struct lease *lease, const struct lease_claim *claims, size_t n, struct cluster *cluster,
               ty_error *err);
/* "run a of root (pid 4711) has held 2 GPU since 2026-01-31 12:00:00" */
void lease_describe(const struct lease_holder *holder, struct buffer *out);
enum { LEASE_HOLDERS_NAMED = 3 };        /* in one message */
int lease_fd(const struct lease *lease); /* to be handed on to agents; close-on-exec is set */
/* Unlinks and closes (agents that still have it keep it locked, but it counts no more); NULL is fine. */
void lease_release(struct lease *lease);

/* For a process that was handed lease_fd and outlives the holder, or whose lease others hold as well, at its
 * own end: removes the file, which would be void from then on. */
void lease_abandoned(int fd);

/* True when the lease behind `fd` is not what was read of `holder`. */
bool lease_changed(int fd, const struct lease_holder *holder);

/* A descriptor that turns readable when any of `holders` may have gone or claims something else, so that a run
 * that waits need not poll: then look again, and when it is still held, watch again with a new descriptor. The
 * caller closes. */
int lease_watch(const struct lease_holder *holders, size_t n, ty_error *err);

/* The lease directory: found or made, and refused where it is not safe. For lease.c and lease_watch.c. */

enum { LEASE_FILE_MAX = 1024 * 1024 }; /* bytes; a bigger file is not ours */

/* $TRAINYARD_LEASE_DIR, else /tmp. */
const char *lease_directory_path(void);

/* An open directory that exists and is safe; the caller closes. */
int lease_directory_open(ty_error *err);

/* Opens a lease file for reading; -1 when it is not a regular file or not to be had. */
int lease_file_open(int directory, const char *name);

/* A lease is locked by its owner's process with the whole file (OFD locks), which takes a descriptor for
 * writing: nobody else can hold or keep that lock. 0, or -1 with errno. */
int lease_file_lock(int fd);
/* True while some process holds the lease. The question takes no lock. */
bool lease_file_held(int fd);

#endif
