/* A world of ranks for tests of the collectives: forked processes, and this process as the store in which they
 * find each other. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include "collective/collective.h"

enum { WORLD_MAX = 16 };

/* How each rank ended: what its function returned, and its last error. Shared memory. */
struct world_end {
    int code;
    ty_error error;
    nanoseconds elapsed;
    int status; /* of waitpid */
};

/* Runs in each rank with a config to which it may add before comm_create. */
typedef int world_function(struct comm_config *config, ty_error *err);

/* Runs `size` ranks to their end; the ends are valid until the next run. */
const struct world_end *world_run(int size, nanoseconds timeout, world_function *function);

/* In a rank: fails with the place unless `condition` holds. */
#define WORLD_CHECK(condition, err)                                                                    \
    do {                                                                                               \
        if (!(condition)) return ty_fail(err, TY_EFAULT, "%s:%d: %s", __FILE__, __LINE__, #condition); \
    } while (0)

/* Ranks of machines of their own go through Gloo: set for a test, and put into the config by each rank. */
extern bool world_apart;
void world_place(struct comm_config *config);
int world_set_apart(void **state);
int world_set_together(void **state);

#define TOGETHER_AND_APART(test)                                         \
    cmocka_unit_test(test), {                                            \
#test ", apart", test, world_set_apart, world_set_together, NULL \
    }

void world_assert_well(int size, const struct world_end *ends);
void world_assert_mentions(const char *text, const char *part);

#endif
