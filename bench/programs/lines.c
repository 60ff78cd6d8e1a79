/* lines BYTES [at-once]: that many bytes in numbered lines of 128, through stdio as most programs write; with
 * `at-once` one write a line, as a program that flushes does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 128 };

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    long n = atol(argv[1]) / LINE;
    char line[LINE + 1];
    (void)memset(line, 'x', LINE);
    if (argc > 2) (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    for (long i = 0; i < n; i++) {
        int size = snprintf(line, sizeof line, "%ld ", i);
        line[size] = 'x';
        line[LINE - 1] = '\n';
        if (fwrite(line, LINE, 1, stdout) != 1) return 1;
    }
    return fflush(stdout) != 0;
}
