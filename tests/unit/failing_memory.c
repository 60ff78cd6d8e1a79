/* The allocating functions as the linker wraps them. */
#include "failing_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "countdown.h"

static struct countdown countdown = COUNTDOWN;

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
    return countdown_set(&countdown, n, for_good);
}

int memory_fails_in_children(void) {
    return countdown_share(&countdown);
}

static bool fails_now(void) {
    bool fails = countdown_strikes(&countdown);
    if (fails) errno = ENOMEM;
    return fails;
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
