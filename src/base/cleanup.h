/* Scope-bound release: CLEANUP(free), CLEANUP_FD, and moving ownership out with TAKE. */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *pointer) {
    free(*(void **)pointer);
}

static inline void cleanup_fd(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

#define CLEANUP(function) __attribute__((cleanup(function)))
#define CLEANUP_FREE CLEANUP(cleanup_free)
#define CLEANUP_FD CLEANUP(cleanup_fd)

/* The value of a pointer variable, which becomes NULL. */
#define TAKE(pointer)                           \
    __extension__({                             \
        __typeof__(pointer) taken_ = (pointer); \
        (pointer) = NULL;                       \
        taken_;                                 \
    })

/* The value of a descriptor variable, which becomes -1. */
#define TAKE_FD(fd)        \
    __extension__({        \
        int taken_ = (fd); \
        (fd) = -1;         \
        taken_;            \
    })

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#endif
