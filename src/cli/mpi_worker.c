/* `trainyard mpi-worker PROG ARG...`, what the agent executes for a worker of `--framework mpi`; not for
 * people. This process becomes the program, and finds a socket in PMI_FD, over which MPICH and its kin ask with
 * the lines of PMI-1 who is there and where. A child of it answers them out of the run's store, and ends with
 * it. That of the first rank of a node is also the PMIx server of the node, where Open MPI and its kin ask. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <trainyard/worker.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/kernel.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/pmix_module.h"
#include "cli/terminal.h"
#include "worker/link.h"

/* What clients are told of the size of names, keys and values: MPICH's own, where others take them from it. */
enum { PMI_NAME_SIZE = 256, PMI_KEY_SIZE = 64, PMI_VALUE_SIZE = 1024, PMI_LINE_SIZE = 4096 };

struct server {
    ty_worker *worker;
    int fd;
    unsigned barriers;
    struct buffer in;
};

static int reply(const struct server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A client reads lines: what does not fit into one is an end of the talk, and never half a line. */
static int reply(const struct server *server, const char *format, ...) {
    char line[PMI_LINE_SIZE];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return size < 0 || size >= (int)sizeof line ? -EMSGSIZE : file_write_all(server->fd, line, (size_t)size);
}

/* The value of ` name=` in a line; that of `value` goes to its end, others to the next blank. "" without. */
static void take_field(const char *line, const char *name, char *out, size_t room) {
    char mark[32];
    (void)snprintf(mark, sizeof mark, "%s=", name);
    const char *at = strstr(line, mark);
    while (at != NULL && at != line && at[-1] != ' ')
        at = strstr(at + 1, mark);
    const char *value = at == NULL ? "" : at + strlen(mark);
    size_t size = str_equal(name, "value") ? strlen(value) : strcspn(value, " ");
    (void)snprintf(out, room, "%.*s", (int)size, value);
}

/* Keys of the store know no blanks, and are the run's: ours begin alike. */
static void name_key(const char *line, char *out, size_t room) {
    char key[PMI_KEY_SIZE + 1];
    take_field(line, "key", key, sizeof key);
    (void)snprintf(out, room, "pmi/%s", key);
}

/* The other ranks count on a rank from its first word of MPI until it has taken its leave. */
static int mark(bool begun) {
    int64_t rank = 0;
    (void)str_to_int64(getenv("RANK"), 0, INT32_MAX, &rank);
    return worker_files_mark(getenv(WORKER_TOKEN_VARIABLE), (uint32_t)rank, begun);
}

static int on_init(struct server *server, const char *line) {
    (void)line;
    if (mark(true) < 0) return reply(server, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
    return reply(server, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
}

static int on_maxes(struct server *server, const char *line) {
    (void)line;
    return reply(server, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n", PMI_NAME_SIZE, PMI_KEY_SIZE,
                 PMI_VALUE_SIZE);
}

static int on_universe(struct server *server, const char *line) {
    (void)line;
    return reply(server, "cmd=universe_size size=%s\n", getenv("WORLD_SIZE"));
}

static int on_put(struct server *server, const char *line) {
    char key[PMI_KEY_SIZE + 8], value[PMI_VALUE_SIZE + 1];
    name_key(line, key, sizeof key);
    take_field(line, "value", value, sizeof value);
    int result = ty_store_set(server->worker, key, value, strlen(value), NULL);
    return result < 0 ? reply(server, "cmd=put_result rc=-1 msg=failed\n")
                      : reply(server, "cmd=put_result rc=0 msg=success\n");
}

/* Which ranks share a machine is known without asking where there is only one. */
static int on_get(struct server *server, const char *line) {
    char key[PMI_KEY_SIZE + 8];
    CLEANUP_FREE void *value = NULL;
    size_t size;
    name_key(line, key, sizeof key);
    if (str_equal(key, "pmi/PMI_process_mapping") && str_equal(getenv("GROUP_WORLD_SIZE"), "1"))
        return reply(server, "cmd=get_result rc=0 msg=success value=(vector,(0,1,%s))\n", getenv("WORLD_SIZE"));
    int result = ty_store_get(server->worker, key, &value, &size, NULL);
    if (result <= 0) return reply(server, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    return reply(server, "cmd=get_result rc=0 msg=success value=%s\n", (const char *)value);
}

/* Barriers are numbered, alike on all ranks, as each rank meets all of them in one order. The store gathers
 * nothing but that all are there. */
static int on_barrier(struct server *server, const char *line) {
    char key[48];
    CLEANUP_FREE void *all = NULL;
    size_t size;
    (void)line;
    (void)snprintf(key, sizeof key, "pmi-barrier/%u", server->barriers++);
    int result = ty_store_gather(server->worker, key, "", 0, -1, &all, &size, NULL);
    return result < 0 ? result : reply(server, "cmd=barrier_out\n");
}

static int on_finalize(struct server *server, const char *line) {
    (void)line;
    (void)mark(false);
    return reply(server, "cmd=finalize_ack\n");
}

/* The program, left to end by itself, would first wait for the other ranks, which wait for this one. */
static int on_abort(struct server *server, const char *line) {
    (void)server, (void)line;
    return kill(getppid(), SIGKILL) < 0 ? -errno : 0;
}

/* The only command of several lines: its last one is answered. */
static int on_spawn(struct server *server, const char *line) {
    return str_equal(line, "endcmd") ? reply(server, "cmd=spawn_result rc=-1 msg=not_supported\n") : 0;
}

static const struct {
    const char *begins; /* how its line does */
    int (*act)(struct server *server, const char *line);
    const char *reply; /* where there is nothing to do for it */
} commands[] = {
    {"cmd=init ", on_init, NULL},
    {"cmd=get_maxes", on_maxes, NULL},
    {"cmd=get_appnum", NULL, "cmd=appnum appnum=0\n"},
    {"cmd=get_universe_size", on_universe, NULL},
    {"cmd=get_my_kvsname", NULL, "cmd=my_kvsname kvsname=trainyard\n"},
    {"cmd=put ", on_put, NULL},
    {"cmd=get ", on_get, NULL},
    {"cmd=barrier_in", on_barrier, NULL},
    {"cmd=finalize", on_finalize, NULL},
    {"cmd=abort", on_abort, NULL},
    {"cmd=publish_name", NULL, "cmd=publish_result rc=-1 msg=not_supported\n"},
    {"cmd=unpublish_name", NULL, "cmd=unpublish_result rc=-1 msg=not_supported\n"},
    {"cmd=lookup_name", NULL, "cmd=lookup_result rc=-1 msg=not_supported\n"},
    {"mcmd=spawn", on_spawn, NULL},
    {"endcmd", on_spawn, NULL},
};

/* Answers the lines that have come. False when the talk is over. */
static bool talk(struct server *server) {
    char bytes[PMI_LINE_SIZE], *newline;
    ssize_t n = read(server->fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) return true;
    if (n > 0) buffer_append(&server->in, bytes, (size_t)n);
    if (n <= 0 || server->in.failed) return false;
    while (server->in.size > 0 && (newline = memchr(server->in.data, '\n', server->in.size)) != NULL) {
        const char *line = server->in.data;
        size_t i = 0;
        *newline = '\0';
        if (newline > line && newline[-1] == ' ') newline[-1] = '\0';
        while (i < ARRAY_SIZE(commands) && !str_prefix(line, commands[i].begins, NULL))
            i++;
        /* A line that is none of these belongs to a spawn that is refused at its end. */
        int result = i == ARRAY_SIZE(commands)   ? (str_prefix(line, "cmd=", NULL) ? -EPROTO : 0)
                     : commands[i].reply != NULL ? reply(server, "%s", commands[i].reply)
                                                 : commands[i].act(server, line);
        if (result < 0) return false;
        buffer_consume(&server->in, (size_t)(newline + 1 - line));
    }
    /* Without an end in so many bytes it is no line of PMI. */
    return server->in.size < PMI_LINE_SIZE;
}

static const struct pmix_module *pmix; /* NULL: this process is no server of it */

/* The program has ended. What this process asks the others in its name nobody waits for, and they may never
 * come. */
static void on_orphaned(int number) {
    (void)number;
    if (pmix == NULL || !pmix->is_needed()) _exit(0);
}

/* The child has nothing to say, lives as long as the program, and hears of no stop: a program that is told to
 * end may still have to meet the others. The child answers until the talk is over; the first of a node, the
 * server of PMIx, is needed until the program has ended, and perhaps a moment longer. */
static _Noreturn void serve(int fd, pid_t program) {
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool first = str_equal(getenv("LOCAL_RANK"), "0");
    int held = first ? kernel_hold(program) : -1;
    (void)signal(SIGUSR1, on_orphaned);
    (void)prctl(PR_SET_PDEATHSIG, first ? SIGUSR1 : SIGKILL);
    if (getppid() != program) _exit(0);
    const int stops[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for (size_t i = 0; i < ARRAY_SIZE(stops); i++)
        (void)signal(stops[i], SIG_IGN);
    for (int i = 0; i <= STDERR_FILENO && null >= 0; i++)
        (void)dup2(null, i);
    pmix = first ? mpi_pmix_serve() : NULL;
    struct server server = {.fd = fd, .worker = ty_worker_self(NULL)};
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = held, .events = POLLIN}};
    while (fds[0].fd >= 0 || (pmix != NULL && held >= 0)) {
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR) break;
        if (fds[1].revents != 0) break;
        if (fds[0].revents == 0 || (server.worker != NULL && talk(&server))) continue;
        (void)close(fd);
        fds[0].fd = -1;
    }
    if (pmix != NULL) pmix->wait();
    _exit(0);
}

/* 127, as a shell has it for a command that it does not find. */
static int fail(const char *what, const char *why) {
    CLEANUP(buffer_done) struct buffer text = {0};
    buffer_printf(&text, "%s: %s", what, why);
    terminal_error("run", text.failed ? why : text.data);
    return 127;
}

/* The parent is the program, whose pid the agent knows, and the child serves: so an end, a signal or a status
 * of the program is the worker's. Its end of the socket stays open over exec. */
static int offer_pmi(void) {
    int ends[2];
    char text[16];
    pid_t program = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return -errno;
    pid_t child = fork();
    if (child < 0) return -errno;
    if (child == 0) {
        (void)close(ends[1]);
        serve(ends[0], program);
    }
    (void)close(ends[0]);
    (void)snprintf(text, sizeof text, "%d", ends[1]);
    if (setenv("PMI_FD", text, 1) < 0 || setenv("PMI_RANK", getenv("RANK"), 1) < 0 ||
        setenv("PMI_SIZE", getenv("WORLD_SIZE"), 1) < 0)
        return -ENOMEM;
    return unsetenv("PMI_PORT");
}

int command_mpi_worker_main(int argc, char **argv) {
    CLEANUP(buffer_done) struct buffer why = {0};
    ty_error err = {0};
    if (argc < 2 || getenv("RANK") == NULL || getenv("WORLD_SIZE") == NULL)
        return fail("mpi-worker", "`trainyard run --framework mpi` starts it");
    int result = offer_pmi();
    if (result < 0) return fail("cannot serve MPI", strerror(-result));
    if (mpi_pmix_join(&why, &err) < 0) return fail("cannot serve MPI", err.message);
    if (why.size > 0 && elf_needs(argv[1], "libmpi.so")) {
        CLEANUP(buffer_done) struct buffer text = {0};
        buffer_printf(&text, "is linked to Open MPI, which wants PMIx, and there is none: %.*s", (int)why.size,
                      why.data);
        return fail(argv[1], text.failed ? "is linked to Open MPI, which wants PMIx" : text.data);
    }
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execvp(argv[1], argv + 1);
    return fail(argv[1], strerror(errno));
}
