/* Descriptors that are handed to another process over a local stream socket, and those that no child is to
 * have. */
#ifndef BASE_DESCRIPTORS_H
#define BASE_DESCRIPTORS_H

#include <stddef.h>
#include <sys/types.h>

enum { DESCRIPTORS_MAX = 8 };

/* Sends bytes, one at least, and with the first of them `n` descriptors, none to DESCRIPTORS_MAX, which remain
 * the caller's. `flags` as of sendmsg; a reader that is gone raises no signal. How many bytes it took (not
 * fewer than one), or -errno. */
ssize_t descriptors_send(int socket, const void *bytes, size_t size, const int *fds, size_t n, int flags);

/* For a descriptor whose last close tells somebody something: a lock, the end of a channel. Every child that
 * this process forks closes its copy at once, or what is told would wait for the end of a child that knows
 * nothing of it. Nothing is to be done when the descriptor is closed. Any thread may call it. */
void descriptors_withhold(int fd);

#endif
