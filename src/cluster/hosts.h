/* The hosts that a user names, in order, with the slots of each: --hosts a,b:8,gpu[01-04] and host files, in
 * the forms of Open MPI ("a slots=8 max_slots=16"), DeepSpeed ("a slots=8") and MPICH ("a:8"). Names alone:
 * what the hosts have is known when their agents have joined (engine/rendezvous.h). */
#ifndef CLUSTER_HOSTS_H
#define CLUSTER_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct host {
    char *name;     /* as ssh takes it: a name, an address, USER@NAME */
    uint32_t slots; /* for how many workers; 0: not said */
};

struct hosts {
    struct host *items;
    size_t n;
};

enum { HOSTS_MAX = 100000, HOST_SLOTS_MAX = 1000000 };

void hosts_done(struct hosts *hosts);

/* Both refuse with TY_EUSAGE, and leave `*hosts` (empty before) as it was. A host that is named again has
 * the slots of all its places, each at least one. A file's errors name the line. */
int hosts_parse(const char *text, struct hosts *hosts, ty_error *err);
int hosts_read(const char *path, struct hosts *hosts, ty_error *err);

#endif
