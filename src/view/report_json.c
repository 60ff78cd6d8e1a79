/* Metrics are copied as text, so what is no JSON would make a whole file unreadable. A journal may be damaged,
 * or somebody else's: each text is checked on its way out, without a tree of it, as ten million of them would
 * take longer than all else. What this pass does not take (JSON that is nested very deep, or a bare NaN) goes
 * the way of an agent, which checks and corrects what workers send. */
#include "view/report_json.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/str.h"

enum { CHECKED_DEPTH = 128 };

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at;
}

static const char *skip_digits(const char *at, const char *end) {
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Each of these gives where the text goes on, or NULL where it is no JSON. */
static const char *pass_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++) {
        if ((unsigned char)*at < ' ') return NULL;
        if (*at != '\\') continue;
        if (++at == end || strchr("\"\\/bfnrtu", *at) == NULL || *at == '\0') return NULL;
        for (int digits = *at == 'u' ? 4 : 0; digits > 0; digits--)
            if (++at == end || !isxdigit((unsigned char)*at)) return NULL;
    }
    return at < end ? at + 1 : NULL;
}

static const char *pass_number(const char *at, const char *end) {
    if (*at == '-') at++;
    const char *whole = at;
    at = skip_digits(at, end);
    if (at == whole || (*whole == '0' && at > whole + 1)) return NULL;
    if (at < end && *at == '.') {
        const char *part = at + 1;
        at = skip_digits(part, end);
        if (at == part) return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '-' || *at == '+')) at++;
        const char *exponent = at;
        at = skip_digits(exponent, end);
        if (at == exponent) return NULL;
    }
    return at;
}

static const char *pass_value(const char *at, const char *end, int depth);

/* An object, or a list. */
static const char *pass_members(const char *at, const char *end, int depth) {
    bool object = *at == '{';
    const char last = object ? '}' : ']';
    at = skip_blanks(at + 1, end);
    if (at < end && *at == last) return at + 1;
    while (at != NULL && at < end && depth < CHECKED_DEPTH) {
        if (object) {
            at = *at == '"' ? pass_string(at, end) : NULL;
            at = at != NULL ? skip_blanks(at, end) : end;
            if (at == end || *at != ':') return NULL;
            at = skip_blanks(at + 1, end);
        }
        at = pass_value(at, end, depth + 1);
        at = at != NULL ? skip_blanks(at, end) : end;
        if (at == end) return NULL;
        if (*at == last) return at + 1;
        if (*at != ',') return NULL;
        at = skip_blanks(at + 1, end);
    }
    return NULL;
}

static const char *pass_value(const char *at, const char *end, int depth) {
    static const char *const words[] = {"true", "false", "null"};
    if (at == end) return NULL;
    if (*at == '"') return pass_string(at, end);
    if (*at == '{' || *at == '[') return pass_members(at, end, depth);
    if (*at == '-' || (*at >= '0' && *at <= '9')) return pass_number(at, end);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(end - at) >= size && memcmp(at, words[i], size) == 0) return at + size;
    }
    return NULL;
}

static bool is_object(const char *text, size_t size) {
    const char *end = text + size, *at = skip_blanks(text, end);
    if (at == end || *at != '{') return false;
    at = pass_members(at, end, 0);
    return at != NULL && skip_blanks(at, end) == end;
}

/* Whether a character has several bytes, and whether a line ends. */
static void look_through(const char *text, size_t size, bool *wide, bool *ends) {
    unsigned char high = 0, end = 0;
    for (size_t i = 0; i < size; i++) {
        high |= (unsigned char)text[i];
        end |= (unsigned char)(text[i] == '\n') | (unsigned char)(text[i] == '\r');
    }
    *wide = high >= 0x80;
    *ends = end != 0;
}

/* The end of a line stands outside of strings, where it is a blank like any other. */
bool report_json_append(const struct journal_report *report, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer corrected = {0};
    const char *text = report->metrics;
    size_t size = report->metrics_size, from = out->size;
    bool wide, ends;
    look_through(text, size, &wide, &ends);
    bool right = is_object(text, size) && (!wide || utf8_valid(text, size));
    int result = right ? 0 : metrics_check(text, size, &corrected, NULL);
    out->failed |= result == -ENOMEM;
    if (result < 0)
        buffer_text(out, "{}");
    else if (result > 0)
        buffer_append(out, corrected.data, corrected.size);
    else
        buffer_append(out, text, size);
    for (size_t i = from; ends && !out->failed && i < out->size; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r') out->data[i] = ' ';
    return result >= 0;
}
