/* The allocating functions as the linker wraps them. */
#include "failing_memory.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static struct shortage {
    long until_failure; /* allocations that still succeed; negative: all of them */
    bool stays_short;
} own = {.until_failure = -1}, *shortage = &own;

static pid_t spared; /* never short; 0: no process is spared */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));

long memory_fails_after(long n, bool for_good) {
    long left = shortage->until_failure;
    *shortage = (struct shortage){n, for_good};
    return left;
}

int memory_fails_in_children(void) {
    void *shared = mmap(NULL, sizeof *shortage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return -1;
    shortage = shared;
    shortage->until_failure = -1;
    spared = getpid();
    return 0;
}

static bool fails_now(void) {
    if (shortage->until_failure < 0 || (spared > 0 && getpid() == spared)) return false;
    if (shortage->until_failure > 0 || !shortage->stays_short) return shortage->until_failure-- == 0;
    return true;
}

void *__wrap_malloc(size_t size) {
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return fails_now() ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size) {
    return fails_now() ? NULL : __real_reallocarray(old, n, size);
}

char *__wrap_strdup(const char *text) {
    return fails_now() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size) {
    return fails_now() ? NULL : __real_strndup(text, size);
}

int __wrap_asprintf(char **out, const char *format, ...) {
    va_list args;
    if (fails_now()) return -1;
    va_start(args, format);
    int size = vasprintf(out, format, args);
    va_end(args);
    return size;
}
