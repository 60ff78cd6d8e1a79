/* subject FILE MODE: a worker that things are done to. It waits, and tells through FILE, shared with the bench,
 * who it is and when it was told to stop: for each rank 64 bytes, see struct entry. SIGUSR1 ends it with status
 * 3, SIGUSR2 with 0.
 *   obey    SIGTERM ends it, at once
 *   ignore  it ignores SIGTERM, SIGINT and SIGHUP
 *   daemon  as obey; rank 0 leaves a daemon behind, forked twice, in a session of its own, with an empty
 *           environment */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct entry {
    int64_t told_ns; /* CLOCK_MONOTONIC */
    int32_t signal, pid, daemon, ready;
    char pad[40];
};

enum { RANKS = 1024 };

static struct entry *self;

static void stop(int number) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    self->told_ns = t.tv_sec * 1000000000L + t.tv_nsec;
    self->signal = number;
    _exit(number == SIGUSR1 ? 3 : number == SIGUSR2 ? 0 : 128 + number);
}

static int find_rank(void) {
    static const char *const names[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL) return atoi(text) % RANKS;
    }
    return 0;
}

static void leave_daemon(const char *program) {
    pid_t child = fork();
    if (child > 0) (void)waitpid(child, NULL, 0);
    if (child != 0) return;
    (void)setsid();
    if (fork() != 0) _exit(0);
    self->daemon = getpid();
    (void)execle(program, "subject", (char *)NULL, (char *[]){NULL});
    _exit(127);
}

static void take_signals(bool ignore) {
    static const int stopping[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        (void)signal(stopping[i], ignore ? SIG_IGN : stop);
    (void)signal(SIGUSR1, stop);
    (void)signal(SIGUSR2, stop);
}

int main(int argc, char **argv) {
    if (argc < 3)
        for (;;)
            (void)pause();
    int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    void *file = mmap(NULL, RANKS * sizeof(struct entry), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) return 2;
    int rank = find_rank();
    self = (struct entry *)file + rank;
    self->pid = getpid();
    take_signals(strcmp(argv[2], "ignore") == 0);
    if (strcmp(argv[2], "daemon") == 0 && rank == 0) leave_daemon("/proc/self/exe");
    self->ready = 1;
    for (;;)
        (void)pause();
}
