/* without_calls NAME[,NAME...] PROGRAM [ARGUMENT...]: runs a program that has no such system calls, as on an
 * old kernel or under the seccomp filter of a container: each of them fails with ENOSYS, in the program and in
 * all that it starts. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS_MAX = 16, FAILURE = 120 };

static const struct {
    const char *name;
    unsigned number;
} known[] = {
    {"clone3", SYS_clone3},
    {"close_range", SYS_close_range},
    {"memfd_create", SYS_memfd_create},
    {"pidfd_open", SYS_pidfd_open},
    {"pidfd_send_signal", SYS_pidfd_send_signal},
    {"renameat2", SYS_renameat2},
    {"linkat", SYS_linkat},
    {"inotify_init1", SYS_inotify_init1},
};

/* The number of a call, -1 of an unknown one. */
static int find_call(const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0) return (int)known[i].number;
    return -1;
}

static int install(const unsigned *calls, size_t n) {
    struct sock_filter code[CALLS_MAX + 3] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    for (size_t i = 0; i < n; i++)
        code[i + 1] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], (unsigned char)(n - i), 0);
    code[n + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    struct sock_fprog filter = {.len = (unsigned short)(n + 3), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

int main(int argc, char **argv) {
    unsigned calls[CALLS_MAX];
    size_t n = 0;
    if (argc < 3) return FAILURE;
    for (char *name = strtok(argv[1], ","); name != NULL && n < CALLS_MAX; name = strtok(NULL, ",")) {
        int number = find_call(name);
        if (number < 0) return fprintf(stderr, "%s: unknown\n", name), FAILURE;
        calls[n++] = (unsigned)number;
    }
    if (install(calls, n) < 0) return perror("seccomp"), FAILURE;
    (void)execvp(argv[2], argv + 2);
    perror(argv[2]);
    return FAILURE;
}
