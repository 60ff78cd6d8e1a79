/* An agent in want, of memory or of what the kernel gives: each allocation, or each call of failing_calls.h, of
 * what it is asked to do fails once, and from there on. It then goes on as if nothing had been, or ends as a
 * whole; no process, descriptor or memory is left. For programs linked with failing_memory.c and
 * failing_calls.c. */
#ifndef UNIT_AGENT_WANT_H
#define UNIT_AGENT_WANT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_controller.h"

enum want { WANT_MEMORY, WANT_CALLS };

/* One of a kind fails: number k, counted from 0, or that and all behind it. */
struct want_lack {
    enum want want;
    long k;
    bool for_good;
};

/* What is tried. */
struct want_trial {
    unsigned n; /* workers */
    void (*run)(
        struct controller *c); /* launches them, and hears until they are gone, or the channel is closed */
    /* Fails unless each worker ended well, or why it did not was told. */
    void (*expect)(const struct controller *c, const struct want_lack *lack);
    unsigned kept; /* descriptors that the agent has more from then on */
};

/* In `main`, before the tests: this process is spared. -1: no memory for that. */
int want_init(void);

/* For `expect`: fails unless each of the first n workers ended with code 0, or its start failed and the reason
 * was told. */
void want_expect_told(const struct controller *c, const struct want_lack *lack, unsigned n);

/* After how many failures nothing more fails; TRAINYARD_TEST_EVERY=3 tries each third of them. */
long want_count(const struct want_trial *trial, enum want want, bool for_good);
/* Behind each test: tells what failed when it did. */
int want_told(void **state);
#define WANT_TEST(test) cmocka_unit_test_teardown(test, want_told)

#endif
