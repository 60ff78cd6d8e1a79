/* Descriptors that belong to this process alone: a child that it forks closes them at once, and so holds no lock of theirs on when
 * the process is gone. */
#ifndef BASE_OWN_FD_H
#define BASE_OWN_FD_H

/* `*fd` stays where it is until own_fd_close; in a child it becomes -1. One that is negative is passed over. */
void own_fd_add(int *fd);
/* Closes it, and sets it to -1. One that was never added is closed as well. */
void own_fd_close(int *fd);

#endif
