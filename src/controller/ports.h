/* Ports for the workers of this machine, free when an attempt begins: MASTER_PORT, and one for each rank
 * (docs/design.md 4, "Ports cannot collide"). They lie outside of what the kernel gives to those who ask for
 * any port, and nothing of ours is bound to them, so that a worker may bind its port in whatever way. Runs keep
 * clear of each other by names in the network namespace, which the kernel drops with their holder. */
#ifndef CONTROLLER_PORTS_H
#define CONTROLLER_PORTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zero-initialised holds none. */
struct ports {
    int *locks; /* owned: a descriptor for each block that is held */
    uint16_t *blocks;
    size_t n;
};

/* `count` ports on which nobody listens, and no connection of an earlier attempt lingers; 0 for those that are
 * not to be had, but the first is, or this fails. */
int ports_find(struct ports *ports, size_t count, uint16_t *found, ty_error *err);
void ports_done(struct ports *ports);

#endif
