/* forkexec N PROG [ARG...]: starts PROG N times by fork and exec, then waits for all; the floor below any
 * launcher. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int n = atoi(argv[1]), failed = 0, status;
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0) return 1;
        if (pid > 0) continue;
        (void)execve(argv[2], argv + 2, environ);
        _exit(127);
    }
    for (int i = 0; i < n; i++)
        failed |= wait(&status) < 0 || status != 0;
    return failed;
}
