/* The two ways in which an error is told: a code, and one line of text in a struct that the caller owns.
 * Nothing here allocates, so that running out of memory can be told like any other failure. The codes are those
 * of include/trainyard/error.h. */
#include "base/error.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/str.h"

enum { LONGEST_LINE = 2 * PATH_MAX + TY_ERROR_MESSAGE_SIZE }; /* two paths and what is said of them */

static const char left_out[] = " ... ";

/* Of a line that is too long the middle is left out, so that its object stays at the beginning and its reason
 * at the end; never half a UTF-8 sequence. */
static void shorten(char *line, size_t *size) {
    size_t room = TY_ERROR_MESSAGE_SIZE - 1, gap = sizeof left_out - 1;
    if (*size <= room) return;
    size_t head = (room - gap) / 2, tail = *size - (room - gap - head);
    while (head > 0 && ((unsigned char)line[head] & 0xc0) == 0x80)
        head--;
    while (tail < *size && ((unsigned char)line[tail] & 0xc0) == 0x80)
        tail++;
    memcpy(line + head, left_out, gap);
    memmove(line + head + gap, line + tail, *size - tail);
    *size = head + gap + *size - tail;
}

/* "Too many open files" is said of a number that the user can raise. Once: the text may have another error's
 * in it. */
static void name_limit(char *text, size_t room) {
    const char *too_many = strstr(text, strerror(EMFILE)), *of_the_system = strerror(ENFILE);
    size_t size = strlen(text);
    struct rlimit limit;
    if (too_many == NULL || strncmp(too_many, of_the_system, strlen(of_the_system)) == 0) return;
    if (strstr(too_many, "ulimit") != NULL || getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    (void)snprintf(text + size, room - size, " (limit %llu: ulimit -n)", (unsigned long long)limit.rlim_cur);
}

int ty_vfail(ty_error *err, int code, const char *format, va_list args) {
    if (err == NULL) return code;
    int saved = errno;
    char text[LONGEST_LINE]; /* apart from err, whose old message may be among the arguments */
    if (str_vprint(text, sizeof text, format, args) < 0) text[0] = '\0';
    name_limit(text, sizeof text);
    err->code = code;
    /* One line: control characters become spaces, the ends are trimmed. */
    size_t size = 0;
    for (const char *from = text; *from != '\0'; from++) {
        unsigned char c = (unsigned char)*from;
        if (c < ' ' || c == 0x7f) c = ' ';
        if (c != ' ' || size > 0) text[size++] = (char)c;
    }
    while (size > 0 && text[size - 1] == ' ')
        size--;
    shorten(text, &size);
    memcpy(err->message, text, size);
    err->message[size] = '\0';
    errno = saved;
    return code;
}

int ty_fail(ty_error *err, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    (void)ty_vfail(err, code, format, args);
    va_end(args);
    return code;
}

int ty_wrap(ty_error *err, const char *format, ...) {
    if (err == NULL) return TY_EFAULT;
    ty_error outer;
    va_list args;
    va_start(args, format);
    (void)ty_vfail(&outer, err->code, format, args);
    va_end(args);
    if (err->code == 0) return ty_fail(err, TY_EFAULT, "%s", outer.message);
    return ty_fail(err, err->code, "%s: %s", outer.message, err->message);
}

int ty_fail_memory(ty_error *err) {
    return ty_fail(err, -ENOMEM, "out of memory");
}

const char *ty_error_name(int code) {
    if (code >= 0) return "success";
    switch (code) {
#define TY_X(name, number, status, meaning) \
    case name:                              \
        return #name;
        TY_ERROR_CODES(TY_X)
#undef TY_X
    }
    const char *name = code > -INT_MAX ? str_errno_name(-code) : NULL;
    return name != NULL ? name : "unknown";
}

int ty_error_exit_status(int code) {
    if (code >= 0) return 0;
    switch (code) {
#define TY_X(name, number, status, meaning) \
    case name:                              \
        return status;
        TY_ERROR_CODES(TY_X)
#undef TY_X
    }
    return 1;
}

bool error_may_pass(int code) {
    if (code == TY_ECOMM) return true;
    switch (-code) {
    case EAGAIN:
    case EINTR:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ETXTBSY:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}
