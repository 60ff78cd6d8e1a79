/* Descriptors: handed to another process over a local stream socket; accepted; and those that this process
 * has for long, which no child is to have and which are known again.
 *
 * A program that drives a run shares its descriptors with the library, and may close what it has not
 * opened (`for fd in range(3, 1024): os.close(fd)`). The next files that it opens have those numbers. So
 * what was withheld is closed by descriptors_close, and is asked for (descriptors_intact) before it is used
 * where the program may have been at work. */
#ifndef BASE_DESCRIPTORS_H
#define BASE_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/duration.h"

enum { DESCRIPTORS_MAX = 8 };

/* Sends bytes, one at least, and with the first of them `n` descriptors, none to DESCRIPTORS_MAX, which remain
 * the caller's. `flags` as of sendmsg; a reader that is gone raises no signal. How many bytes it took (not
 * fewer than one), or -errno. */
ssize_t descriptors_send(int socket, const void *bytes, size_t size, const int *fds, size_t n, int flags);

/* From now on this process may have as many as the user can allow it. `before` receives the limit that was, for
 * programs that are executed. */
void descriptors_raise_limit(struct rlimit *before);

/* The address of a local socket that has no file: a name of the network's that the kernel keeps as long as the
 * socket is open, whoever made it. One that is too long is cut. Its size, for bind and connect. */
struct sockaddr_un;
socklen_t descriptors_name(struct sockaddr_un *address, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The next who waits at a listening socket that is non-blocking: a descriptor, close-on-exec and
 * non-blocking too. -EAGAIN: nobody waits. Any other -errno: whoever waits cannot be taken in now, as no
 * descriptor is left, and stays: the socket is to be left alone for DESCRIPTORS_REST, since it would say at
 * once that it is readable. */
int descriptors_accept(int listener);
#define DESCRIPTORS_REST (100 * NS_PER_MS)

/* The process has this descriptor for long, or its last close tells somebody something (a lock, the end of a
 * channel): every child that it forks closes its copy at once, and the number is known to stand for this
 * file until descriptors_close. Any thread may call these. */
void descriptors_withhold(int fd);
/* False: the number was withheld, and stands for nothing by now, or for another file. */
bool descriptors_intact(int fd);
/* Closes what is intact, and nothing else; `*fd` becomes -1. -1 is fine. */
void descriptors_close(int *fd);
/* Somebody else closes it, at once. */
void descriptors_let_go(int fd);

#endif
