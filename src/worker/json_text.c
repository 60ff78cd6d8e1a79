/* A scanner for RFC 8259, and for what the agent refuses beyond it: text that is not UTF-8, "\u0000" and halves
 * of surrogate pairs. No tree is made: the text goes on as it is, but on one line. */
#include "worker/metrics.h"

#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

struct scan {
    const char *at;
    int depth;
};

static void skip_blanks(struct scan *scan) {
    scan->at += strspn(scan->at, " \t\r\n");
}

/* Steps over `text` where it stands. */
static bool take(struct scan *scan, const char *text) {
    return str_prefix(scan->at, text, &scan->at);
}

static size_t skip_digits(struct scan *scan) {
    size_t n = strspn(scan->at, "0123456789");
    scan->at += n;
    return n;
}

static bool scan_number(struct scan *scan) {
    (void)take(scan, "-");
    if (!take(scan, "0") && skip_digits(scan) == 0) return false;
    if (take(scan, ".") && skip_digits(scan) == 0) return false;
    if (!take(scan, "e") && !take(scan, "E")) return true;
    if (!take(scan, "+")) (void)take(scan, "-");
    return skip_digits(scan) > 0;
}

/* Four hex digits, -1 for anything else. */
static int scan_unit(struct scan *scan) {
    int unit = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = *scan->at != '\0' ? strchr(digits, *scan->at) : NULL;
        if (digit == NULL) return -1;
        unit = unit << 4 | ((int)(digit - digits) & 15);
    }
    return unit;
}

/* Behind a backslash. Of "\u" two halves of a pair are taken together, and half of one is refused, as no UTF-8
 * can say it; so is "\u0000", which would end the text for whoever reads it in C. */
static bool scan_escape(struct scan *scan) {
    if (take(scan, "u")) {
        int unit = scan_unit(scan);
        if (unit < 0xd800 || unit > 0xdfff) return unit > 0;
        int low = unit < 0xdc00 && take(scan, "\\u") ? scan_unit(scan) : -1;
        return low >= 0xdc00 && low <= 0xdfff;
    }
    return *scan->at != '\0' && strchr("\"\\/bfnrt", *scan->at++) != NULL;
}

static bool scan_string(struct scan *scan) {
    if (!take(scan, "\"")) return false;
    while (!take(scan, "\"")) {
        if ((unsigned char)*scan->at < ' ') return false;
        if (*scan->at++ == '\\' && !scan_escape(scan)) return false;
    }
    return true;
}

static bool scan_value(struct scan *scan);

static bool scan_member(struct scan *scan) {
    skip_blanks(scan);
    if (!scan_string(scan)) return false;
    skip_blanks(scan);
    return take(scan, ":") && scan_value(scan);
}

/* Behind the bracket that opens it. */
static bool scan_items(struct scan *scan, bool (*scan_item)(struct scan *), const char *end) {
    if (++scan->depth > JSON_TEXT_DEPTH) return false;
    skip_blanks(scan);
    bool more = !take(scan, end);
    while (more) {
        if (!scan_item(scan)) return false;
        more = take(scan, ",");
        if (!more && !take(scan, end)) return false;
    }
    scan->depth--;
    return true;
}

static bool scan_word(struct scan *scan) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (take(scan, words[i])) return true;
    return false;
}

/* With the blanks around it. */
static bool scan_value(struct scan *scan) {
    skip_blanks(scan);
    bool good = *scan->at == '"'  ? scan_string(scan)
                : take(scan, "{") ? scan_items(scan, scan_member, "}")
                : take(scan, "[") ? scan_items(scan, scan_value, "]")
                                  : scan_word(scan) || scan_number(scan);
    skip_blanks(scan);
    return good;
}

int json_text_append_object(const char *name, const char *text, struct buffer *out, ty_error *err) {
    struct scan scan = {.at = text};
    size_t size = strlen(text), begin = out->size;
    bool object = text[strspn(text, " \t\r\n")] == '{';
    if (!object || !scan_value(&scan) || *scan.at != '\0')
        return ty_fail(err, TY_EUSAGE, "%s must be a JSON object: not understood at byte %zu, \"%.40s\"", name,
                       (size_t)(scan.at - text), scan.at);
    if (!utf8_valid(text, size)) return ty_fail(err, TY_EUSAGE, "%s must be UTF-8", name);
    buffer_append(out, text, size);
    if (out->failed) return ty_fail_memory(err);
    /* Outside of strings, where it may not stand, a line break is as good as a blank. */
    for (char *at = out->data + begin; at < out->data + out->size; at++)
        if (*at == '\n' || *at == '\r') *at = ' ';
    return 0;
}
