/* What `trainyard agent --stacks` does, in a process of its own: it gathers all that is told of a worker and of
 * the first others of its group. It runs alone, and may wait: for the worker, and for debuggers, but for no
 * storage, as its output is a file in memory that the agent hands on. */
#include "agent/stack_save.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/process.h"
#include "base/str.h"

enum { PROCESSES_MAX = 4, STEP_MS = 20, DUMP_LIMIT_MS = 2000, DUMP_QUIET_LOOKS = 4, FOUND_MAX = 8 << 20 };
#define NATIVE_LIMIT_MS 8000

struct saving {
    int fd;
    bool hung;
};

static void say(const struct saving *saving, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct saving *saving, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)vdprintf(saving->fd, format, args);
    va_end(args);
}

static void add_text(const struct saving *saving, const struct buffer *text) {
    if (!text->failed) (void)file_write_all(saving->fd, text->data, text->size);
}

/* -- Python's own dump */

/* True when it could be read where Python is. */
static bool add_cpython(const struct saving *saving, pid_t pid) {
    CLEANUP(buffer_done) struct buffer lines = {0};
    struct stack_cpython python = {.pid = pid};
    if (!stack_cpython_open(&python) || !stack_cpython_read(&python, &lines)) return false;
    say(saving, STACK_PART_PYTHON ", process %d\n", pid);
    add_text(saving, &lines);
    return true;
}

/* True when Python told where it is. */
static bool add_python(const struct saving *saving, pid_t pid) {
    CLEANUP(buffer_done) struct buffer dump = {0};
    struct stack_python python = {.pid = pid};
    ty_error err = {0};
    if (!stack_python_open(&python)) return add_cpython(saving, pid);
    say(saving, STACK_PART_PYTHON " (faulthandler), process %d\n", pid);
    int result = stack_python_ask(&python, &err);
    for (int waited = 0; result == 0 && waited < DUMP_LIMIT_MS; waited += STEP_MS) {
        (void)nanosleep(&(struct timespec){.tv_nsec = STEP_MS * NS_PER_MS}, NULL);
        if (stack_python_take(&python, DUMP_QUIET_LOOKS, &dump)) break;
    }
    if (result == 0 && dump.size == 0)
        result = ty_fail(&err, -ETIMEDOUT, "the process did not take signal %d within %d ms", STACK_SIGNAL,
                         DUMP_LIMIT_MS);
    if (result < 0) say(saving, "none: %s\n", err.message);
    add_text(saving, &dump);
    stack_python_close(&python);
    return result == 0;
}

/* -- debuggers */

/* Executes a program with the file as its output; false when there is no such program. */
static bool run(const struct saving *saving, const char *const *argv) {
    int status = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);
        (void)dup2(saving->fd, STDOUT_FILENO);
        (void)execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (pid < 0) return false;
    CLEANUP_FD int held = kernel_hold(pid);
    bool in_time = kernel_await(held, pid, NATIVE_LIMIT_MS);
    (void)kernel_reap(held, pid, 0, &status);
    if (!in_time) say(saving, "\n%s did not end within %d s\n", argv[0], NATIVE_LIMIT_MS / 1000);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 127;
}

static void add_native(const struct saving *saving, pid_t pid) {
    char text[16];
    (void)snprintf(text, sizeof text, "%d", pid);
    const char *const gdb[] = {"gdb", "-nx", "-batch", "-p", text, "-ex", "thread apply all bt 64", NULL};
    const char *const eu_stack[] = {"eu-stack", "-p", text, NULL};
    say(saving, STACK_PART_NATIVE ", process %d\n", pid);
    if (run(saving, gdb) || run(saving, eu_stack)) return;
    say(saving, "none: neither gdb nor eu-stack is installed on this node\n");
}

/* Of a worker that hangs the debugger comes first, and always; of others it is asked only where Python says
 * nothing, as it stops the process for a moment. */
void stack_save(int fd, pid_t worker, const char *rank, const char *attempt, bool hung) {
    const struct saving asked = {.fd = fd, .hung = hung}, *saving = &asked;
    char when[CLOCK_TEXT];
    (void)clock_format(time(NULL), when);
    say(saving, "==== %s, attempt %s: rank %s%s\n", when, attempt, rank, hung ? ", which hangs" : "");
    (void)setenv("DEBUGINFOD_URLS", "", 1); /* a debugger is to ask nobody */
    pid_t pids[PROCESSES_MAX];
    size_t n = stack_facts_group(worker, pids, PROCESSES_MAX);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(buffer_done) struct buffer facts = {0}, words = {0};
        say(saving, STACK_PART_FACTS " %d\n", pids[i]);
        stack_facts(pids[i], &facts);
        add_text(saving, &facts);
        buffer_text(&words, "  command: ");
        process_words(pids[i], &words); /* apart, as it may wait */
        buffer_char(&words, '\n');
        add_text(saving, &words);
        if (saving->hung) add_native(saving, pids[i]); /* first: a signal ends the wait that it hangs in */
        if (!add_python(saving, pids[i]) && !saving->hung) add_native(saving, pids[i]);
    }
}

void stack_found(int fd, struct buffer *out) {
    struct stat status;
    size_t most =
        fstat(fd, &status) < 0 ? 0 : (size_t)(status.st_size < FOUND_MAX ? status.st_size : FOUND_MAX);
    char *room = buffer_reserve(out, most);
    ssize_t size = room == NULL ? -1 : pread(fd, room, most, 0);
    if (size > 0) out->size += (size_t)size;
}

int stack_save_main(int argc, char **argv) {
    int64_t pid;
    if (argc != 5 || !str_to_int64(argv[1], 1, INT32_MAX, &pid)) return ty_error_exit_status(TY_EUSAGE);
    stack_save(STDOUT_FILENO, (pid_t)pid, argv[2], argv[3], str_equal(argv[4], "hung"));
    return EXIT_SUCCESS;
}
