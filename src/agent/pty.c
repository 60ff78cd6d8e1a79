/* The terminal of a worker, and the socket at which a client of `trainyard attach` is let in. Paths of sockets
 * are short (108 bytes), and runs may lie deep: a socket is made and reached through a descriptor of its
 * directory. An agent leaves that to the thread of the logs, as storage may hang. */
#include "agent/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/process.h"

enum { SHOWN_MAX = 1 << 20, TYPED_MAX = 64 << 10, DEFAULT_ROWS = 24, DEFAULT_COLUMNS = 80 };

void pty_resize(int fd, unsigned rows, unsigned columns) {
    struct winsize size = {.ws_row = (unsigned short)(rows > 0 ? rows : DEFAULT_ROWS),
                           .ws_col = (unsigned short)(columns > 0 ? columns : DEFAULT_COLUMNS)};
    (void)ioctl(fd, TIOCSWINSZ, &size);
}

int pty_make(unsigned rows, unsigned columns, int *master_fd, int *slave_fd, ty_error *err) {
    CLEANUP_FD int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char path[64];
    bool ready = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 &&
                 ptsname_r(master, path, sizeof path) == 0;
    CLEANUP_FD int slave = ready ? open(path, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    struct termios modes;
    if (slave < 0 || tcgetattr(slave, &modes) < 0)
        return ty_fail(err, TY_ESTART, "cannot make a terminal for a worker: %s", strerror(errno));
    /* A terminal puts CR before each NL: the log is to have what the worker wrote. */
    modes.c_oflag &= ~(tcflag_t)ONLCR;
    (void)tcsetattr(slave, TCSANOW, &modes);
    pty_resize(slave, rows, columns);
    *master_fd = TAKE_FD(master);
    *slave_fd = TAKE_FD(slave);
    return 0;
}

/* The name of a rank's socket below a directory that is open; "." before it: it does not listen yet. */
static void name_socket(int directory, const char *before, uint32_t rank, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%srank-%u", directory, before,
                   rank);
}

static int open_place(const char *directory) {
    return open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int pty_connect(const char *run_path, uint32_t rank) {
    CLEANUP_FREE char *path = NULL;
    struct sockaddr_un address;
    struct stat status;
    uid_t user;
    if (asprintf(&path, "%s/attach", run_path) < 0) return -ENOMEM;
    CLEANUP_FD int directory = open_place(path);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (directory < 0 || fd < 0 || fstat(directory, &status) < 0) return -errno;
    name_socket(directory, "", rank, &address);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) return -errno;
    (void)process_is_trusted(fd, NULL, &user);
    if (user != status.st_uid && user != 0) return -EPERM; /* what is typed is for the run alone */
    return TAKE_FD(fd);
}

/* The socket of a rank, on the storage of its run: the logs' thread makes it. */
struct pty_socket {
    struct storage_job job;
    struct pty *pty; /* NULL: the worker was gone first */
    char *directory; /* owned */
    uint32_t rank;
    int fd; /* it listens; -errno */
};

/* Only its owner can reach it; it gets its name when it listens, in place of what an agent that was killed left
 * there. */
static int listen_at(const char *path, uint32_t rank) {
    struct sockaddr_un name, hidden;
    struct stat status;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return -errno;
    CLEANUP_FD int directory = open_place(path);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (directory < 0 || fd < 0 || fstat(directory, &status) < 0) return -errno;
    if (status.st_uid != geteuid())
        return -EPERM; /* another's, who may put sockets of his own in place of ours */
    name_socket(directory, "", rank, &name);
    name_socket(directory, ".", rank, &hidden);
    (void)unlink(hidden.sun_path);
    if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&hidden, sizeof hidden) < 0 || listen(fd, 1) < 0 ||
        rename(hidden.sun_path, name.sun_path) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static void make_socket(struct storage_job *job) {
    struct pty_socket *made = (struct pty_socket *)job;
    made->fd = listen_at(made->directory, made->rank);
}

static void free_socket(struct storage_job *job) {
    struct pty_socket *made = (struct pty_socket *)job;
    cleanup_fd(&made->fd);
    free(made->directory);
    free(made);
}

static void remove_socket(struct errand *errand) {
    struct sockaddr_un address;
    CLEANUP_FD int directory = open_place(errand->path);
    name_socket(directory, "", errand->rank, &address);
    (void)unlink(address.sun_path);
    (void)rmdir(errand->path); /* the last one */
}

static void drop(struct pty *pty, struct loop_watch *watch, int *fd) {
    if (*fd < 0) return;
    loop_watch_stop(pty->outbox->loop, watch);
    (void)close(*fd);
    *fd = -1;
}

static void let_go(struct pty *pty) {
    drop(pty, &pty->client, &pty->client_fd);
    buffer_done(&pty->shown);
}

/* What the client waits for: room for what it types, and for what is shown to it. */
static void watch_client(struct pty *pty) {
    unsigned events = pty->typed.size < TYPED_MAX ? LOOP_READABLE : 0;
    if (pty->shown.size > 0) events |= LOOP_WRITABLE;
    if (pty->client_fd >= 0) (void)loop_watch_start(pty->outbox->loop, &pty->client, pty->client_fd, events);
}

/* A program that does not read lets what is typed pile up, to TYPED_MAX; then the client is not read either. */
static void write_typed(struct pty *pty) {
    while (pty->typed.size > 0) {
        ssize_t n = write(pty->master_fd, pty->typed.data, pty->typed.size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        /* Where nobody has the other end open any more what was typed is nobody's. */
        buffer_consume(&pty->typed, n < 0 ? pty->typed.size : (size_t)n);
    }
    (void)loop_watch_start(pty->outbox->loop, &pty->master, pty->master_fd,
                           pty->typed.size > 0 ? LOOP_WRITABLE : 0);
}

static void on_master(void *context, unsigned events) {
    struct pty *pty = context;
    (void)events;
    write_typed(pty);
    watch_client(pty);
}

static void write_shown(struct pty *pty) {
    while (pty->shown.size > 0) {
        size_t size = pty->shown.size < ATTACH_PACKET ? pty->shown.size : ATTACH_PACKET;
        ssize_t n = send(pty->client_fd, pty->shown.data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            let_go(pty);
            return;
        }
        buffer_consume(&pty->shown, (size_t)n);
    }
    watch_client(pty);
}

/* A packet is whole, by the kind of the socket: a size, or keys. What is neither is passed over. */
static void on_client(void *context, unsigned events) {
    struct pty *pty = context;
    char packet[ATTACH_PACKET];
    if ((events & LOOP_WRITABLE) != 0) write_shown(pty);
    if ((events & LOOP_READABLE) == 0 || pty->client_fd < 0) return;
    ssize_t n = recv(pty->client_fd, packet, sizeof packet, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        let_go(pty);
        return;
    }
    size_t size = (size_t)n;
    uint16_t measures[2];
    if (packet[0] == ATTACH_SIZE && size == 1 + sizeof measures) {
        memcpy(measures, packet + 1, sizeof measures);
        pty_resize(pty->master_fd, measures[0], measures[1]);
    } else if (packet[0] == ATTACH_INPUT) {
        buffer_append(&pty->typed, packet + 1, size - 1);
        write_typed(pty);
    }
    watch_client(pty);
}

static void on_connection(void *context, int connected) {
    static const char taken[] = "trainyard: somebody is attached to this rank already\r\n";
    struct pty *pty = context;
    CLEANUP_FD int fd = connected;
    if (!process_is_trusted(fd, NULL, NULL)) return; /* for storage that knows no modes */
    if (pty->client_fd >= 0) {
        (void)!send(fd, taken, sizeof taken - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    pty->client_fd = TAKE_FD(fd);
    pty->client = (struct loop_watch){.callback = on_client, .context = pty};
    pty->attached(pty->context, &pty->shown);
    write_shown(pty);
}

static void on_socket(struct storage_job *job) {
    struct pty_socket *made = (struct pty_socket *)job;
    struct pty *pty = made->pty;
    if (pty == NULL) return;
    pty->socket = NULL;
    if (made->fd < 0) {
        outbox_log(pty->outbox, LOG_LEVEL_WARNING,
                   "nobody can attach to rank %u: no socket can be made in %s: %s", pty->rank, made->directory,
                   strerror(-made->fd));
        return;
    }
    pty->listen.fd = TAKE_FD(made->fd);
    (void)loop_listener_start(pty->outbox->loop, &pty->listen, pty->listen.fd);
}

/* The descriptors are copies, as the worker's start closes its own. The socket is made by the storage's thread:
 * the directory may be on storage that hangs, and until it is made nobody can attach. */
int pty_start(struct pty *pty, const struct pty_config *config, ty_error *err) {
    *pty = (struct pty){.outbox = config->outbox,
                        .logs = config->logs,
                        .rank = config->rank,
                        .attached = config->attached,
                        .context = config->context,
                        .master_fd = fcntl(config->master_fd, F_DUPFD_CLOEXEC, 0),
                        .slave_fd = fcntl(config->slave_fd, F_DUPFD_CLOEXEC, 0),
                        .client_fd = -1};
    pty->master = (struct loop_watch){.callback = on_master, .context = pty};
    pty->listen = (struct loop_listener){.connected = on_connection, .context = pty, .fd = -1};
    if (pty->master_fd < 0 || pty->slave_fd < 0)
        return ty_fail(err, TY_ESTART, "this node's agent has no descriptor left for a terminal: %s",
                       strerror(errno));
    if (config->run_path[0] == '\0') return 0;
    struct pty_socket *wanted = calloc(1, sizeof *wanted);
    if (wanted == NULL || asprintf(&wanted->directory, "%s/attach", config->run_path) < 0 ||
        (pty->directory = strdup(wanted->directory)) == NULL) {
        if (wanted != NULL) free_socket(&wanted->job);
        return ty_fail_memory(err);
    }
    wanted->job = (struct storage_job){.work = make_socket,
                                       .done = on_socket,
                                       .release = free_socket,
                                       .what = "making",
                                       .path = wanted->directory};
    wanted->pty = pty;
    wanted->rank = pty->rank;
    wanted->fd = -1;
    pty->socket = wanted;
    logs_post(pty->logs, &wanted->job);
    return 0;
}

void pty_show(struct pty *pty, const void *bytes, size_t size) {
    if (pty->outbox == NULL || pty->client_fd < 0) return;
    buffer_append(&pty->shown, bytes, size);
    if (pty->shown.size > SHOWN_MAX || pty->shown.failed)
        let_go(pty);
    else
        write_shown(pty);
}

/* A master whose slave nobody has open is at its end (EIO), be it only between two processes of the worker: so
 * the agent has the slave open as well, and lets go of it when nothing of the worker is left. */
void pty_hang_up(struct pty *pty) {
    if (pty->outbox == NULL || pty->slave_fd < 0) return;
    (void)close(TAKE_FD(pty->slave_fd));
}

void pty_end(struct pty *pty) {
    if (pty->outbox == NULL) return;
    pty_hang_up(pty);
    if (pty->client_fd >= 0) write_shown(pty);
    let_go(pty);
    if (pty->socket != NULL) TAKE(pty->socket)->pty = NULL;
    if (pty->directory != NULL)
        logs_leave_to(pty->logs,
                      (struct errand){
                          .act = remove_socket, .what = "removing", .path = pty->directory, .rank = pty->rank});
    loop_listener_stop(&pty->listen);
    cleanup_fd(&pty->listen.fd);
    drop(pty, &pty->master, &pty->master_fd);
    buffer_done(&pty->typed);
    free(pty->directory);
    pty->outbox = NULL;
}
