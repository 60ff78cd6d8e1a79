/* Trials one after another, each with an agent of its own. */
#include "agent_want.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#include "failing_calls.h"
#include "failing_memory.h"

/* Each `every`th fails, from one that the seed draws: others at each commit (scripts/test). */
static long every = 1, first;
static pid_t agent; /* the last */

static long number_from(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

int want_init(void) {
    every = number_from("TRAINYARD_TEST_EVERY", 1);
    first = number_from("TRAINYARD_TEST_SEED", 0) % every;
    ssize_t n = readlink("/proc/self/exe", controller_worker, sizeof controller_worker - 1);
    json_set_alloc_funcs(malloc, free); /* those that fail */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return n < 0 || memory_fails_in_children() < 0 ? -1 : calls_fail_in_children();
}

static void arm(const struct want_lack *lack) {
    (void)(lack->want == WANT_MEMORY ? memory_fails_after : calls_fail_after)(lack->k, lack->for_good);
}

/* Whether it came to the failure. */
static bool disarm(const struct want_lack *lack) {
    long left = (lack->want == WANT_MEMORY ? memory_fails_after : calls_fail_after)(-1, false);
    return left <= (lack->for_good ? 0 : -1);
}

/* A launch that nothing fails in; the log of its own that an agent writes is open for moments. False when the
 * agent has ended, of what failed behind the last that it said. */
static bool go_on(const struct want_trial *trial, struct controller *c, unsigned descriptors) {
    trial->run(c);
    if (c->closed) return false;
    for (unsigned i = 0; i < trial->n; i++)
        assert_true(c->ranks[i].exited && c->ranks[i].wait_status == 0);
    unsigned open = count_descriptors_of(c->agent);
    for (int i = 0; i < 60000 && open != descriptors; i++) {
        (void)usleep(1000); /* the launch is let go of after its last word */
        open = count_descriptors_of(c->agent);
    }
    assert_int_equal(open, descriptors);
    return true;
}

/* All that it started ends with it, though nobody else ends them. */
static void end_with_agent(struct controller *c) {
    siginfo_t ended;
    char text[256] = "", *rest = text;
    controller_vanish(c);
    assert_int_equal(waitid(P_PID, (id_t)c->agent, &ended, WEXITED | WNOWAIT), 0);
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    for (char *word; (word = strsep(&rest, " ")) != NULL && word[0] != '\0';) {
        pid_t pid = (pid_t)strtol(word, NULL, 10);
        if (pid != c->agent) assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    if (ended.si_code != CLD_EXITED) /* libuv where it cannot watch, jansson where it cannot put back a byte */
        assert_int_equal(ended.si_status, SIGABRT);
    assert_int_not_equal(controller_end(c), AGENT_DAMAGED);
}

void want_expect_told(const struct controller *c, const struct want_lack *lack, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        const struct heard *heard = &c->ranks[i];
        if (!heard->failed) assert_int_equal(heard->wait_status, 0);
        if (!heard->failed) continue;
        assert_false(heard->exited);
        if (lack->want == WANT_CALLS || !lack->for_good) /* otherwise the reason may meet it, too */
            assert_true(heard->text[0] != '\0');
    }
}

/* False when it did not come to the failure. */
static bool try(const struct want_trial *trial, const struct want_lack *lack) {
    struct controller *c = controller_begin_with((struct begin_options){.log = true});
    agent = c->agent;
    unsigned descriptors = count_descriptors_of(c->agent) + trial->kept;
    arm(lack);
    trial->run(c);
    bool failed = disarm(lack);
    bool goes_on = !c->closed;
    if (goes_on) trial->expect(c, lack);
    if (goes_on) goes_on = go_on(trial, c, descriptors);
    assert_true(goes_on || failed);
    if (goes_on)
        assert_int_equal(controller_end(c), 0);
    else
        end_with_agent(c);
    return failed;
}

static struct want_lack tried;
static bool ended = true;

long want_count(const struct want_trial *trial, enum want want, bool for_good) {
    ended = false;
    tried = (struct want_lack){want, first, for_good};
    while (try(trial, &tried))
        tried.k += every;
    ended = true;
    return tried.k;
}

int want_told(void **state) {
    (void)state;
    if (ended) return 0;
    print_error("%s number %ld%s\n", tried.want == WANT_MEMORY ? "allocation" : "call", tried.k,
                tried.for_good ? " and all behind it" : "");
    if (waitpid(agent, NULL, WNOHANG) == 0) (void)kill(agent, SIGKILL);
    while (wait(NULL) > 0) /* the next test is to find nobody */
        continue;
    ended = true;
    return 0;
}
