/* `trainyard attach`: this terminal for a rank that has one of its own (agent/pty.h).
 *
 * What stands between the two is a child of this process, so that whichever of the two is ended, by whatever
 * signal, the other one gives the terminal its modes back. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "agent/pty.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/command.h"
#include "controller/run_directory.h"

enum { DETACH_KEY = 0x1d, ANY_RANK = -1, TYPED_MOST = 1024 };

struct attach_options {
    int64_t rank;
};

static int set_rank(const struct option_spec *option, void *target, const char *value, ty_error *err) {
    (void)option;
    if (str_to_int64(value, 0, INT32_MAX, &((struct attach_options *)target)->rank)) return 0;
    return ty_fail(err, TY_EUSAGE, "must be a rank");
}

static const struct option_spec specs[] = {
    {"rank", 0, "RANK", "this one; it need not be said where only one has a terminal", set_rank, 0, NULL},
};
static const struct option_group attach_group = {"Options", specs, ARRAY_SIZE(specs)};

/* Each rank that has a terminal has a socket of its own in the run's directory. The list is looked at first, so
 * that nobody need name the only one, and the refusal can say whether there are any. */
static int connect_to(const char *name, const char *run_path, int64_t rank, ty_error *err) {
    CLEANUP_FREE char *path = str_format("%s/attach", run_path);
    int64_t found = rank;
    size_t n = 0; /* ranks that have a terminal */
    DIR *stream = path != NULL ? opendir(path) : NULL;
    for (const struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        const char *digits;
        int64_t seen;
        if (!str_prefix(entry->d_name, "rank-", &digits) || !str_to_int64(digits, 0, INT32_MAX, &seen))
            continue;
        if (rank == ANY_RANK) found = seen;
        n++;
    }
    if (stream != NULL) (void)closedir(stream);
    if (n == 0)
        return ty_fail(err, TY_EUSAGE,
                       "run %.100s has no worker with a terminal now: those of --pty have one, and that of "
                       "--debug RANK, while they live",
                       name);
    if (rank == ANY_RANK && n > 1)
        return ty_fail(err, TY_EUSAGE, "run %.100s has %zu workers with a terminal: which, --rank RANK?", name,
                       n);
    int fd = pty_connect(run_path, (uint32_t)found);
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        return ty_fail(err, TY_EUSAGE, "rank %lld of run %.100s has no terminal now", (long long)found, name);
    if (fd < 0)
        return ty_fail(err, fd, "cannot attach to rank %lld of run %.100s: %s", (long long)found, name,
                       strerror(-fd));
    return fd;
}

/* -- between the terminal and the socket */

static struct termios saved_modes;
static bool modes_saved;
static volatile sig_atomic_t resized = 1; /* the first size is told too */
static volatile pid_t other;

/* Both processes may call it, also in a handler: tcsetattr is safe there, and what it sets is the same each
 * time. */
static void restore(void) {
    if (modes_saved) (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved_modes);
}

static void on_resize(int signal_number) {
    (void)signal_number;
    resized = 1;
}

/* The child's: its parent was ended, or the child itself is asked to end. What is called is safe in a
 * handler. */
static void on_end(int signal_number) {
    restore();
    _exit(128 + signal_number);
}

static void pass_to_child(int signal_number) {
    (void)kill(other, signal_number);
}

/* The socket keeps the borders of packets: each begins with its kind, and needs no length. No more is read at
 * once than goes into one. */
static int send_packet(int fd, enum attach_kind kind, const void *bytes, size_t size) {
    char packet[1 + TYPED_MOST];
    packet[0] = (char)kind;
    memcpy(packet + 1, bytes, size);
    return send(fd, packet, 1 + size, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

enum passing { PASSING, DETACHED, INPUT_OVER, WORKER_OVER };

/* At a terminal Ctrl-] ends the talk, and so does the end of the terminal. What comes from a file or a pipe is
 * passed to its end, and the worker's answer is waited for. */
static enum passing pass_typed(int fd) {
    char bytes[TYPED_MOST];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) return PASSING;
    if (n <= 0) return modes_saved ? DETACHED : INPUT_OVER;
    const char *key = modes_saved ? memchr(bytes, DETACH_KEY, (size_t)n) : NULL;
    size_t size = key != NULL ? (size_t)(key - bytes) : (size_t)n;
    if (size > 0 && send_packet(fd, ATTACH_INPUT, bytes, size) < 0) return INPUT_OVER;
    return key != NULL ? DETACHED : PASSING;
}

static enum passing pass_shown(int fd) {
    char bytes[ATTACH_PACKET];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    /* A worker that ends with typed bytes unread resets the connection; its last words are still to come. */
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) return PASSING;
    if (n <= 0 || file_write_all(STDOUT_FILENO, bytes, (size_t)n) < 0) return WORKER_OVER;
    return PASSING;
}

/* Signals come only during ppoll. */
static enum passing pass_all(int fd, const sigset_t *open_mask) {
    struct pollfd watched[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    for (enum passing passing = PASSING;;) {
        struct winsize size;
        if (resized && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
            (void)send_packet(fd, ATTACH_SIZE, (uint16_t[]){size.ws_row, size.ws_col}, 2 * sizeof(uint16_t));
        resized = 0;
        if (ppoll(watched, ARRAY_SIZE(watched), NULL, open_mask) < 0) continue;
        if (watched[1].revents != 0) passing = pass_shown(fd);
        if (passing == PASSING && watched[0].revents != 0) passing = pass_typed(fd);
        if (passing == INPUT_OVER) watched[0].fd = -1; /* what the worker says is shown on, to its end */
        if (passing == DETACHED || passing == WORKER_OVER) return passing;
        passing = PASSING;
    }
}

/* Without SA_RESTART: a signal ends the wait of the process that has it. */
static void handle(int signal_number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    (void)sigaction(signal_number, &action, NULL);
}

/* What ends this command: the parent passes it on, and ends when the child has. */
static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static int pass_in_child(int fd, ty_error *err) {
    sigset_t held, before;
    int status = 0;
    pid_t parent = getpid();
    /* Until both processes have their handlers no signal comes through: one that ended this process in between
     * would leave the terminal raw. */
    (void)sigfillset(&held);
    (void)sigprocmask(SIG_BLOCK, &held, &before);
    /* What the terminal does with what is typed is for the worker's; what is shown ends its lines with LF
     * alone. */
    if (tcgetattr(STDIN_FILENO, &saved_modes) == 0) {
        modes_saved = true;
        struct termios raw = saved_modes;
        cfmakeraw(&raw);
        raw.c_oflag = saved_modes.c_oflag;
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    }
    other = fork();
    if (other == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        handle(SIGWINCH, on_resize);
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
            handle(ends[i], on_end);
        if (getppid() != parent) on_end(SIGTERM); /* it ended before prctl, which tells of ends to come alone */
        _exit(pass_all(fd, &before) == DETACHED ? 0 : 1);
    }
    int code = errno;
    for (size_t i = 0; other > 0 && i < ARRAY_SIZE(ends); i++)
        handle(ends[i], pass_to_child);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (other > 0)
        while (waitpid(other, &status, 0) < 0 && errno == EINTR) {
        }
    restore();
    if (other < 0) return ty_fail(err, -code, "cannot start another process: %s", strerror(code));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int attach_run(const struct arguments *arguments, ty_error *err) {
    struct attach_options options = {.rank = ANY_RANK};
    struct storage_options storage = {0};
    int result = options_apply(arguments, (void *[]){&options, &storage}, err);
    if (result < 0) return result;
    CLEANUP_FREE char *latest = NULL;
    const char *name = arguments->words[0];
    if (name == NULL) name = latest = run_directory_latest(storage.storage_path, err);
    if (name == NULL) return err->code;
    CLEANUP_FREE char *path = run_directory_find(storage.storage_path, name, err);
    if (path == NULL) return err->code;
    CLEANUP_FD int fd = connect_to(name, path, options.rank, err);
    if (fd < 0) return fd;
    bool typed = isatty(STDIN_FILENO);
    /* To standard error: the output is the rank's alone. */
    if (typed) (void)fprintf(stderr, "trainyard attach: Ctrl-] leaves the rank as it is\n");
    int status = pass_in_child(fd, err);
    if (status < 0 || status > 1) return status;
    if (typed)
        (void)fprintf(stderr, "\ntrainyard attach: %s\n", status == 0 ? "detached" : "the rank has ended");
    return 0;
}

const struct command command_attach = {
    .name = "attach",
    .summary = "give your terminal to a rank, as for breakpoint()",
    .usage = (const char *const[]){"[NAME] [OPTION...]", NULL},
    .description =
        "Without NAME: of the run that was begun last. What is typed goes to the rank, Ctrl-C included, and "
        "what the rank prints is shown, from its last lines on. Ctrl-] leaves the rank as it is. The rank must "
        "have a terminal: its run was started with --pty, or with --debug RANK.",
    .examples = (const char *const[]){"trainyard attach my-run --rank 3",
                                      "the debugger at a breakpoint() in rank 3", NULL},
    .groups = (const struct option_group *const[]){&attach_group, &storage_group, NULL},
    .max_words = 1,
    .run = attach_run,
};
