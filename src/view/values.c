/* Values of a report's metrics, without a tree of them: one pass over the text. Names without escapes, and
 * numbers of up to 19 digits, are read in place; all else goes the slow way, through a copy and strtod.
 * Whatever the text is, nothing beyond it is read; a wrong one ends the pass. */
#include "view/values.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"

enum { NESTED_MAX = 16, TENS_MAX = 27 };

__extension__ typedef unsigned __int128 uint128;

struct values_walk {
    const char *at, *end;
    struct values_shape *shape; /* NULL: none */
    struct buffer path;         /* of the objects around, a slash behind each; then the name */
    bool (*each)(void *context, const struct value *value);
    void *context;
    bool stopped;
};

static void skip_blanks(struct values_walk *walk) {
    while (walk->at < walk->end &&
           (*walk->at == ' ' || *walk->at == '\t' || *walk->at == '\r' || *walk->at == '\n'))
        walk->at++;
}

static bool take(struct values_walk *walk, char c) {
    skip_blanks(walk);
    if (walk->at == walk->end || *walk->at != c) return false;
    walk->at++;
    return true;
}

/* Over a string, whose quote is next; the quotes are part of what it gives. */
static bool take_string(struct values_walk *walk, const char **text, size_t *size) {
    const char *at = walk->at + 1, *end = walk->end;
    *text = walk->at;
    while (at < end && *at != '"')
        at += *at == '\\' ? 2 : 1;
    walk->at = at;
    if (at >= end) return false;
    walk->at++;
    *size = (size_t)(walk->at - *text);
    return true;
}

/* -- names */

static int hex(const char *digits) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)digits[i])) return -1;
        int digit = digits[i] <= '9' ? digits[i] - '0' : (digits[i] | 32) - 'a' + 10;
        value = value * 16 + digit;
    }
    return value;
}

static void append_character(struct buffer *out, uint32_t c) {
    if (c < 0x80) {
        buffer_char(out, (char)c);
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
    buffer_char(out, (char)(heads[more] | (c >> (6 * more))));
    while (more-- > 0)
        buffer_char(out, (char)(0x80 | ((c >> (6 * more)) & 0x3f)));
}

/* What follows "\u"; a pair of surrogates is one character, half of one the replacement. */
static const char *append_escaped(struct buffer *out, const char *at, const char *end) {
    int first = end - at >= 4 ? hex(at) : -1;
    if (first < 0) return end;
    at += 4;
    uint32_t c = (uint32_t)first;
    int second = c >= 0xd800 && c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex(at + 2) : -1;
    if (second >= 0xdc00 && second < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)second - 0xdc00);
        at += 6;
    }
    append_character(out, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
    return at;
}

void values_text(const char *text, size_t size, struct buffer *out) {
    const char *at = text + 1, *end = text + size - 1;
    if (memchr(at, '\\', size - 2) == NULL) {
        buffer_append(out, at, size - 2);
        return;
    }
    static const char escapes[] = "bfnrt", meant[] = "\b\f\n\r\t";
    while (at < end) {
        if (*at != '\\' || at + 1 >= end) {
            buffer_char(out, *at++);
            continue;
        }
        const char *known = strchr(escapes, at[1]);
        at += 2;
        if (at[-1] == 'u')
            at = append_escaped(out, at, end);
        else
            buffer_char(out, known != NULL && *known != '\0' ? meant[known - escapes] : at[-1]);
    }
}

/* -- numbers */

/* strtod goes by the program's locale, which may have a comma for a point: so by one of its own. */
static double read_slowly(const char *text, size_t size) {
    char place[128];
    CLEANUP_FREE char *longer = size < sizeof place ? NULL : malloc(size + 1);
    char *copy = size < sizeof place ? place : longer;
    if (copy == NULL) return (double)NAN;
    memcpy(copy, text, size);
    copy[size] = '\0';
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) return (double)NAN;
    double number = strtod_l(copy, NULL, c_locale);
    freelocale(c_locale);
    return number;
}

/* mantissa / 10^tens, as a division by 5^tens and a shift. The quotient of whole numbers has 63 or 64 bits, and
 * the last one is set where there is a rest: that rounds to a double as the whole would. */
static double divide(uint64_t mantissa, int tens) {
    static const uint64_t fives[TENS_MAX + 1] = {1,
                                                 5,
                                                 25,
                                                 125,
                                                 625,
                                                 3125,
                                                 15625,
                                                 78125,
                                                 390625,
                                                 1953125,
                                                 9765625,
                                                 48828125,
                                                 244140625,
                                                 1220703125,
                                                 UINT64_C(6103515625),
                                                 UINT64_C(30517578125),
                                                 UINT64_C(152587890625),
                                                 UINT64_C(762939453125),
                                                 UINT64_C(3814697265625),
                                                 UINT64_C(19073486328125),
                                                 UINT64_C(95367431640625),
                                                 UINT64_C(476837158203125),
                                                 UINT64_C(2384185791015625),
                                                 UINT64_C(11920928955078125),
                                                 UINT64_C(59604644775390625),
                                                 UINT64_C(298023223876953125),
                                                 UINT64_C(1490116119384765625),
                                                 UINT64_C(7450580596923828125)};
    int up = __builtin_clzll(mantissa), down = __builtin_clzll(fives[tens]);
    uint128 dividend = (uint128)(mantissa << up) << 63;
    uint64_t divisor = fives[tens] << down, quotient = (uint64_t)(dividend / divisor);
    quotient |= (uint128)quotient * divisor != dividend;
    return ldexp((double)quotient, down - up - tens - 63);
}

/* A mantissa below 2^53 and a power of ten below 10^23 are both exact as doubles, so one operation rounds as
 * the whole should (W. D. Clinger, "How to Read Floating Point Numbers Accurately", 1990). A number that is
 * printed with all of its digits has a longer mantissa. */
static double scale(bool negative, uint64_t mantissa, int exponent, const char *text, size_t size) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool small = mantissa <= (UINT64_C(1) << 53);
    double number;
    if (small && exponent <= 0 && exponent >= -22)
        number = (double)mantissa / powers[-exponent];
    else if (small && exponent > 0 && exponent <= 22)
        number = (double)mantissa * powers[exponent];
    else if (mantissa > 0 && exponent <= 0 && exponent >= -TENS_MAX)
        number = divide(mantissa, -exponent);
    else
        return read_slowly(text, size);
    return negative ? -number : number;
}

/* Digits go into the mantissa while it has room for them; how many did not. */
static int take_digits(struct values_walk *walk, uint64_t *mantissa, int *n) {
    const char *at = walk->at, *end = walk->end;
    uint64_t number = *mantissa;
    while (at < end && *at >= '0' && *at <= '9' && number <= (UINT64_MAX - 9) / 10)
        number = number * 10 + (uint64_t)(*at++ - '0');
    const char *rest = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    *mantissa = number;
    *n += (int)(at - walk->at);
    walk->at = at;
    return (int)(at - rest);
}

/* Of an absurd exponent the value stops growing, so that it does not overflow; strtod then says what the number
 * is. */
static int take_exponent(struct values_walk *walk) {
    int value = 0;
    walk->at++;
    bool negative = walk->at < walk->end && *walk->at == '-';
    if (walk->at < walk->end && (*walk->at == '-' || *walk->at == '+')) walk->at++;
    for (; walk->at < walk->end && *walk->at >= '0' && *walk->at <= '9'; walk->at++)
        if (value < 100000) value = value * 10 + (*walk->at - '0');
    return negative ? -value : value;
}

/* Digits that had no room in the mantissa count as zeros in front of the point; with any the number goes the
 * slow way. */
static bool take_number(struct values_walk *walk, double *number) {
    const char *text = walk->at;
    uint64_t mantissa = 0;
    int n = 0, n_behind = 0;
    bool negative = *walk->at == '-';
    if (negative) walk->at++;
    int left_out = take_digits(walk, &mantissa, &n);
    int exponent = left_out;
    if (walk->at < walk->end && *walk->at == '.') {
        walk->at++;
        int lost = take_digits(walk, &mantissa, &n_behind);
        left_out += lost;
        exponent -= n_behind - lost;
    }
    if (n + n_behind == 0) return false;
    if (walk->at < walk->end && (*walk->at | 32) == 'e') exponent += take_exponent(walk);
    size_t size = (size_t)(walk->at - text);
    *number = left_out > 0 ? read_slowly(text, size) : scale(negative, mantissa, exponent, text, size);
    return true;
}

/* -- values */

static bool take_object(struct values_walk *walk, int depth);

/* Over a list, or an object that is nested too deep: its brackets are counted, outside of strings. */
static bool skip_nested(struct values_walk *walk) {
    size_t open = 0, size;
    const char *text;
    do {
        if (walk->at >= walk->end) return false;
        char c = *walk->at;
        if (c == '"') {
            if (!take_string(walk, &text, &size)) return false;
            continue;
        }
        if (c == '[' || c == '{') open++;
        if (c == ']' || c == '}') open--;
        walk->at++;
    } while (open > 0);
    return true;
}

static enum value_type type_of_text(const char *text, size_t size, double *number) {
    static const struct {
        const char *text;
        double number;
    } words[] = {
        {"\"NaN\"", (double)NAN}, {"\"Infinity\"", (double)INFINITY}, {"\"-Infinity\"", -(double)INFINITY}};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (size == strlen(words[i].text) && memcmp(text, words[i].text, size) == 0) {
            *number = words[i].number;
            return VALUE_NONFINITE;
        }
    return VALUE_TEXT;
}

/* Any value: its type, its number or what stands for it, and its text. False for what is no JSON. */
static bool take_value(struct values_walk *walk, struct value *value) {
    skip_blanks(walk);
    if (walk->at == walk->end) return false;
    const char *word;
    bool right = true;
    value->text = walk->at;
    value->type = VALUE_OTHER;
    switch (*walk->at) {
    case '"':
        right = take_string(walk, &value->text, &value->text_size);
        if (right) value->type = type_of_text(value->text, value->text_size, &value->number);
        break;
    case '{':
    case '[':
        right = skip_nested(walk);
        break;
    case 't':
    case 'f':
    case 'n':
        value->flag = *walk->at != 'n';
        value->number = *walk->at == 't' ? 1 : 0;
        if (value->flag) value->type = VALUE_NUMBER;
        word = *walk->at == 't' ? "true" : value->flag ? "false" : "null";
        right = (size_t)(walk->end - walk->at) >= strlen(word) && memcmp(walk->at, word, strlen(word)) == 0;
        if (right) walk->at += strlen(word);
        break;
    default:
        right = take_number(walk, &value->number);
        value->type = isfinite(value->number) ? VALUE_NUMBER : VALUE_NONFINITE;
    }
    value->text_size = (size_t)(walk->at - value->text);
    return right;
}

/* What Python notes beside the metrics: their types, and how the checkpoint is validated. */
static bool is_note(const char *name, size_t size) {
    static const char types[] = "\"$types\"", validation[] = "\"$validation\"";
    return (size == sizeof types - 1 && memcmp(name, types, size) == 0) ||
           (size == sizeof validation - 1 && memcmp(name, validation, size) == 0);
}

/* Up to a value whose name stands where it stood before. An object is none: its members are the values. */
static bool take_known(struct values_walk *walk, size_t place, struct value *value) {
    if (walk->shape == NULL || place >= VALUES_MEMBERS) return false;
    const struct values_member *member = &walk->shape->members[place];
    if (member->size == 0 || (size_t)(walk->end - walk->at) <= member->size ||
        memcmp(walk->at, member->text, member->size) != 0)
        return false;
    unsigned char next = (unsigned char)walk->at[member->size];
    if (next <= ' ' || next == '{') return false;
    value->name = walk->at + member->name;
    value->name_size = member->name_size;
    value->member = place;
    value->same = true;
    walk->at += member->size;
    return true;
}

/* `begin`: behind the value before; the walk is at the value. Without a name nothing is known of the place. */
static void learn(struct values_walk *walk, size_t place, const char *begin, struct value *value) {
    size_t size = (size_t)(walk->at - begin);
    if (walk->shape == NULL || place >= VALUES_MEMBERS) return;
    struct values_member *member = &walk->shape->members[place];
    member->size = member->number_size = 0;
    member->passed = false;
    if (value == NULL || size > sizeof member->text) return;
    member->size = (uint8_t)size;
    member->name = (uint8_t)(value->name - begin);
    member->name_size = (uint8_t)value->name_size;
    memcpy(member->text, begin, size);
    value->member = place;
}

/* What stands behind a number ends it: a longer one begins like this one. */
static bool take_same_number(struct values_walk *walk, const struct values_member *member,
                             struct value *value) {
    size_t size = member->number_size;
    if (size == 0 || (size_t)(walk->end - walk->at) <= size || memcmp(walk->at, member->digits, size) != 0 ||
        (walk->at[size] != ',' && walk->at[size] != '}'))
        return false;
    value->type = VALUE_NUMBER;
    value->number = member->number;
    value->text = walk->at;
    value->text_size = size;
    walk->at += size;
    return true;
}

/* true and false are numbers too, and are not learned: that a value stands as one of them is told beside it. */
static void learn_number(struct values_member *member, const struct value *value) {
    bool fits = value->type == VALUE_NUMBER && !value->flag && value->text_size <= sizeof member->digits;
    member->number_size = fits ? (uint8_t)value->text_size : 0;
    if (fits) memcpy(member->digits, value->text, value->text_size);
    member->number = value->number;
}

/* Over a number that is wanted no more: what it comes to is not computed. False where take_number would find
 * none, and the walk stays. */
static bool pass_number(struct values_walk *walk) {
    const char *at = walk->at, *end = walk->end;
    size_t digits = 0;
    if (at < end && *at == '-') at++;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        digits++;
    if (at < end && *at == '.')
        for (at++; at < end && *at >= '0' && *at <= '9'; at++)
            digits++;
    if (digits == 0) return false;
    if (at < end && (*at | 32) == 'e') {
        at++;
        if (at < end && (*at == '-' || *at == '+')) at++;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
    }
    walk->at = at;
    return true;
}

/* A name stays where it stands, unless it lies in an object or has escapes. */
static bool take_member(struct values_walk *walk, int depth, size_t place, const char *begin) {
    const char *text;
    size_t size, before = walk->path.size;
    skip_blanks(walk);
    if (walk->at == walk->end || *walk->at != '"' || !take_string(walk, &text, &size) || !take(walk, ':'))
        return false;
    struct value value = {.name = text + 1, .name_size = size - 2, .member = VALUES_MEMBERS};
    bool note = depth == 0 && is_note(text, size);
    skip_blanks(walk);
    bool opens = walk->at < walk->end && *walk->at == '{' && depth < NESTED_MAX && !note;
    bool plain = !opens && depth == 0 && memchr(text, '\\', size) == NULL;
    if (!plain) {
        values_text(text, size, &walk->path);
        value.name = walk->path.data;
        value.name_size = walk->path.size;
    }
    if (depth == 0) learn(walk, place, begin, plain && !note ? &value : NULL);
    bool right;
    if (opens) {
        buffer_char(&walk->path, '/');
        right = take_object(walk, depth + 1);
    } else {
        right = take_value(walk, &value) && !walk->path.failed;
        if (right && !note) walk->stopped = !walk->each(walk->context, &value);
    }
    walk->path.size = before;
    return right;
}

/* Members of the outermost object are compared with those of the text before, each at its place: from the comma
 * in front of it to where its value begins. */
static bool take_object(struct values_walk *walk, int depth) {
    walk->at++;
    if (take(walk, '}')) return true;
    for (size_t place = 0; !walk->stopped; place++) {
        const char *begin = walk->at;
        struct value value = {0};
        if (depth == 0 && take_known(walk, place, &value)) {
            struct values_member *member = &walk->shape->members[place];
            if (member->passed && pass_number(walk)) continue;
            if (!take_same_number(walk, member, &value)) {
                if (!take_value(walk, &value)) return false;
                learn_number(member, &value);
            }
            walk->stopped = !walk->each(walk->context, &value);
        } else {
            if (place > 0 && !take(walk, ',')) return take(walk, '}');
            if (!take_member(walk, depth, place, begin)) return false;
        }
    }
    return true;
}

bool values_each_like(struct values_shape *shape, const char *json, size_t size,
                      bool (*each)(void *context, const struct value *value), void *context) {
    struct values_walk walk = {
        .at = json, .end = json + size, .shape = shape, .each = each, .context = context};
    skip_blanks(&walk);
    bool right = walk.at < walk.end && *walk.at == '{' && take_object(&walk, 0) && !walk.path.failed;
    buffer_done(&walk.path);
    return right;
}

void values_pass(struct values_shape *shape, const struct value *value) {
    if (value->member < VALUES_MEMBERS) shape->members[value->member].passed = true;
}

bool values_each(const char *json, size_t size, bool (*each)(void *context, const struct value *value),
                 void *context) {
    return values_each_like(NULL, json, size, each, context);
}

bool value_name(const struct value *value, char name[METRIC_NAME_BYTES + 1]) {
    if (value->name_size > METRIC_NAME_BYTES) return false;
    memcpy(name, value->name != NULL ? value->name : "", value->name_size);
    name[value->name_size] = '\0';
    return true;
}
