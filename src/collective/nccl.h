/* NCCL for device buffers, found at run time. */
#ifndef COLLECTIVE_NCCL_H
#define COLLECTIVE_NCCL_H

#include "collective/collective.h"

/* Finds the libraries (TRAINYARD_NCCL_LIBRARY and TRAINYARD_CUDA_LIBRARY name others than libnccl.so.2 and
 * libcuda.so.1). TY_EUNSUPPORTED says what is missing. */
int nccl_load(ty_error *err);

/* True for memory of a CUDA device. Costs nothing in a process that has not loaded CUDA. */
bool nccl_is_device_memory(const void *buffer);

/* `create` makes the communicator on the calling thread's device; the ranks find each other by exchange.gather.
 * It has no `agree`. */
extern const struct comm_backend nccl_backend;

#endif
