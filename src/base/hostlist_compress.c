/* The way back from names to a host list: neighbours that differ in one number are joined into one bracket,
 * pass after pass from the right to the left of the names, because the rightmost bracket is the one that turns
 * fastest. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hostlist.h"

/* How the names of a run are alike: the first `prefix` characters, then a number, then `suffix`. */
struct shape {
    const char *model;
    size_t prefix;
    const char *suffix;
};

static size_t count_digits(const char *text) {
    return strspn(text, "0123456789");
}

static bool has_shape(const char *name, const struct shape *shape) {
    if (strncmp(name, shape->model, shape->prefix) != 0) return false;
    size_t digits = count_digits(name + shape->prefix);
    return digits > 0 && digits <= HOSTLIST_DIGITS && strcmp(name + shape->prefix + digits, shape->suffix) == 0;
}

/* The shape that two names share, when they differ in one number that no bracket stands before. */
static bool find_shape(const char *a, const char *b, struct shape *shape) {
    size_t at = 0;
    while (a[at] != '\0' && a[at] == b[at])
        at++;
    while (at > 0 && count_digits(a + at - 1) > 0)
        at--;
    if (memchr(a, '[', at) != NULL) return false;
    *shape = (struct shape){a, at, a + at + count_digits(a + at)};
    return has_shape(a, shape) && has_shape(b, shape);
}

/* True when "from-NUMBER" would read back as a range that ends with the very text of `number`. */
static bool continues(const char *from, const char *last, const char *number) {
    size_t width = count_digits(from), size = count_digits(number);
    if (strtoull(number, NULL, 10) != strtoull(last, NULL, 10) + 1) return false;
    return size == width || (size > width && number[0] != '0');
}

static void append_digits(struct buffer *out, const char *number) {
    buffer_append(out, number, count_digits(number));
}

/* Names of one shape as "prefix[ranges]suffix". */
static void write_run(const char *const *names, size_t n, const struct shape *shape, struct buffer *out) {
    size_t prefix = shape->prefix;
    buffer_append(out, names[0], prefix);
    buffer_char(out, '[');
    for (size_t i = 0; i < n;) {
        size_t last = i;
        while (last + 1 < n && continues(names[i] + prefix, names[last] + prefix, names[last + 1] + prefix))
            last++;
        if (i > 0) buffer_char(out, ',');
        append_digits(out, names[i] + prefix);
        if (last > i) buffer_char(out, '-');
        if (last > i) append_digits(out, names[last] + prefix);
        i = last + 1;
    }
    buffer_char(out, ']');
    buffer_text(out, shape->suffix);
}

/* One pass: writes the joined names to `out`, a NUL behind each, and returns how many there are. */
static size_t join(const char *const *names, size_t n, struct buffer *out) {
    size_t joined = 0;
    for (size_t i = 0; i < n; joined++) {
        size_t end = i + 1;
        struct shape shape;
        if (end < n && find_shape(names[i], names[end], &shape)) {
            while (end < n && has_shape(names[end], &shape))
                end++;
            write_run(names + i, end - i, &shape, out);
        } else {
            buffer_text(out, names[i]);
        }
        buffer_char(out, '\0');
        i = end;
    }
    return joined;
}

void hostlist_compress(const char *const *names, size_t n, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer text = {0};
    CLEANUP_FREE const char **pieces = n == 0 ? NULL : malloc(n * sizeof *pieces);
    if (n > 0 && pieces == NULL) out->failed = true;
    if (pieces == NULL) return;
    memcpy(pieces, names, n * sizeof *pieces);
    for (size_t before = n + 1; n < before;) {
        struct buffer joined = {0};
        before = n;
        n = join(pieces, n, &joined);
        buffer_done(&text);
        text = joined;
        if (text.failed) out->failed = true;
        if (out->failed) return;
        const char *at = text.data;
        for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
            pieces[i] = at;
    }
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buffer_char(out, ',');
        buffer_text(out, pieces[i]);
    }
}
