/* An agent whose memory runs short, or to which the kernel refuses what it asks for (pipes, sockets, processes, watches): each
 * allocation and each such call of a launch with two workers fails once, and from there on. Each worker ends well, or why it did
 * not start is told, or the agent ends as a whole; no process is left, and no descriptor in an agent that goes on. Linked with
 * --wrap for the allocating functions; the calls below stand before libc's, for libuv as well. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_controller.h"
#include "agent_worker.h"
#include "failing_memory.h"

/* Shared with the agent, which alone meets failures. */
static struct faults {
    pid_t spared;
    long left; /* calls that still succeed; negative: all do */
    bool for_good;
    int error;
} * faults;

static bool fails(void) {
    if (faults == NULL || faults->left < 0 || getpid() == faults->spared) return false;
    errno = faults->error;
    if (faults->left > 0 || !faults->for_good) return faults->left-- == 0;
    return true;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))
#define INTERPOSED __attribute__((visibility("default")))

INTERPOSED int pipe2(int ends[2], int flags) {
    return fails() ? -1 : REAL(pipe2)(ends, flags);
}

INTERPOSED int socketpair(int domain, int type, int protocol, int ends[2]) {
    return fails() ? -1 : REAL(socketpair)(domain, type, protocol, ends);
}

INTERPOSED int memfd_create(const char *name, unsigned flags) {
    return fails() ? -1 : REAL(memfd_create)(name, flags);
}

INTERPOSED int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && fails()) return -1;
    return REAL(epoll_ctl)(epoll, operation, fd, event);
}

INTERPOSED int clone(int (*run)(void *), void *stack, int flags, void *argument, ...) {
    return fails() ? -1 : REAL(clone)(run, stack, flags, argument);
}

enum fault { MEMORY, CALLS };

static void arm(enum fault fault, long k, bool for_good) {
    if (fault == MEMORY) {
        (void)memory_fails_after(k, for_good);
        return;
    }
    faults->for_good = for_good;
    faults->left = k;
}

/* Whether it came to the failure. */
static bool disarm(enum fault fault, bool for_good) {
    long left = fault == MEMORY ? memory_fails_after(-1, false) : faults->left;
    faults->left = -1;
    return left <= (for_good ? 0 : -1);
}

static unsigned count_descriptors_of(pid_t pid) {
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        n++;
    closedir(directory);
    return n;
}

enum { WORKERS = 2 };

static void launch(struct controller *c) {
    controller_launch(c, (struct launch_options){.n = WORKERS, .mode = "nothing", .payload = "payload"});
    while (!c->closed && !controller_all_gone(c, WORKERS))
        controller_hear(c);
}

static void expect_told(const struct heard *heard) {
    if (heard->failed)
        assert_false(heard->exited); /* the cause may have met the shortage as well */
    else
        assert_int_equal(heard->wait_status, 0);
}

/* The agent's next launch is as good as any. */
static void go_on(struct controller *c, unsigned descriptors) {
    launch(c);
    assert_false(c->closed);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_true(c->ranks[i].exited && c->ranks[i].wait_status == 0);
    for (int i = 0; i < 5000 && count_descriptors_of(c->agent) != descriptors; i++)
        (void)usleep(1000); /* the launch is let go of after its last word */
    assert_int_equal(count_descriptors_of(c->agent), descriptors);
    assert_int_equal(controller_end(c), 0);
}

/* Its workers end with it, though nobody else ends them. */
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
    (void)controller_end(c);
}

/* False when it did not come to the failure. */
static bool launch_with(enum fault fault, long k, bool for_good) {
    struct controller *c = controller_begin();
    unsigned descriptors = count_descriptors_of(c->agent);
    arm(fault, k, for_good);
    launch(c);
    bool failed = disarm(fault, for_good);
    if (c->closed) {
        end_with_agent(c);
        return failed;
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        expect_told(&c->ranks[i]);
        if (fault == CALLS && c->ranks[i].failed) assert_true(c->ranks[i].text[0] != '\0');
    }
    go_on(c, descriptors);
    return failed;
}

static long count_failures(enum fault fault, bool for_good) {
    long k = 0;
    while (launch_with(fault, k, for_good))
        k++;
    return k;
}

static void each_allocation_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(count_failures(MEMORY, for_good), 20, 1000);
}

static void each_call_fails(void **state) {
    (void)state;
    for (int for_good = 0; for_good < 2; for_good++)
        assert_in_range(count_failures(CALLS, for_good), 10, 1000);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "worker") == 0) return agent_worker_run(argv[2]);
    ssize_t n = readlink("/proc/self/exe", controller_worker, sizeof controller_worker - 1);
    faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n < 0 || faults == MAP_FAILED || memory_fails_in_children() < 0) return 1;
    *faults = (struct faults){.spared = getpid(), .left = -1, .error = EMFILE};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_fails),
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
