/* The two ways in which an error is told: a code, and one line of text in a struct that the caller owns.
 * Nothing here allocates, so that running out of memory can be told like any other failure. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One line: control characters become spaces, the ends are trimmed, and a cut never leaves half a UTF-8
 * sequence. */
static void store_line(char *to, const char *text) {
    size_t size = 0;
    for (; *text != '\0' && size < TY_ERROR_MESSAGE_SIZE - 1; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 0x7f) c = ' ';
        if (c != ' ' || size > 0) to[size++] = (char)c;
    }
    if (((unsigned char)*text & 0xc0) == 0x80) {
        while (size > 0 && ((unsigned char)to[size - 1] & 0xc0) == 0x80)
            size--;
        if (size > 0) size--;
    }
    while (size > 0 && to[size - 1] == ' ')
        size--;
    to[size] = '\0';
}

int ty_vfail(ty_error *err, int code, const char *format, va_list args) {
    if (err == NULL) return code;
    int saved = errno;
    char text[2 * TY_ERROR_MESSAGE_SIZE]; /* apart from err, whose old message may be among the arguments */
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    err->code = code;
    store_line(err->message, text);
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
    const char *name = code > -4096 ? strerrorname_np(-code) : NULL; /* the kernel has no errno above 4095 */
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
