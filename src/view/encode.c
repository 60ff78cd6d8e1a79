/* Numbers as JSON text, fast: most numbers of a series are whole or have few digits, and 17 tell any. A plot
 * has ten thousands of them, which printf would take most of the time for. Texts and objects are not written
 * here. */
#include "view/encode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE_MAX = 1000000000 };

#define INTEGERS_MAX 9007199254740992.0 /* 2^53 */

/* A number that is a whole one of up to 16 digits, divided by a power of ten up to 10^22: both are doubles, so
 * that their quotient is what these digits are read as. False: it is another. */
static bool encode_short(struct buffer *out, double number) {
    enum { TENS = 22 };
    double size = fabs(number), power = 1;
    int tens = 0;
    while (tens < TENS && size * power * 10 < INTEGERS_MAX) {
        power *= 10;
        tens++;
    }
    uint64_t whole = size < INTEGERS_MAX ? (uint64_t)llrint(size * power) : 0;
    if ((double)whole / power != size) return false;
    for (; tens > 0 && whole % 10 == 0; tens--)
        whole /= 10;
    char text[32], *at = text + sizeof text;
    for (; tens > 0 || at == text + sizeof text || whole > 0; tens--, whole /= 10) {
        *--at = (char)('0' + whole % 10);
        if (tens == 1) *--at = '.';
    }
    if (*at == '.') *--at = '0';
    if (number < 0) *--at = '-';
    buffer_append(out, at, (size_t)(text + sizeof text - at));
    return true;
}

void encode_number(struct buffer *out, double number) {
    char text[40];
    if (!isfinite(number)) {
        buffer_text(out, "null");
        return;
    }
    if (fabs(number) < WHOLE_MAX && number == (double)(int64_t)number) {
        encode_int(out, (int64_t)number);
        return;
    }
    if (encode_short(out, number)) return;
    (void)snprintf(text, sizeof text, "%.17g", number);
    char *comma = strchr(text, ','); /* of a program's locale */
    if (comma != NULL) *comma = '.';
    buffer_text(out, text);
}

void encode_number_if(struct buffer *out, bool known, double number) {
    encode_number(out, known ? number : (double)NAN);
}

void encode_rank(struct buffer *out, int rank) {
    if (rank < 0)
        buffer_text(out, "null");
    else
        encode_int(out, rank);
}

void encode_scanned(struct buffer *out, bool exact, double scanned) {
    buffer_printf(out, "\"exact\": %s, \"scanned\": ", exact ? "true" : "false");
    encode_number(out, scanned);
}

void encode_next(struct buffer *out, bool *any) {
    if (*any) buffer_text(out, ", ");
    *any = true;
}

/* RFC 4648, 4. */
void encode_base64(struct buffer *out, const unsigned char *bytes, size_t size) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = buffer_reserve(out, (size + 2) / 3 * 4);
    if (text == NULL) return;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16;
        if (i + 1 < size) three |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < size) three |= bytes[i + 2];
        *text++ = letters[three >> 18];
        *text++ = letters[(three >> 12) & 63];
        *text++ = i + 1 < size ? letters[(three >> 6) & 63] : '=';
        *text++ = i + 2 < size ? letters[three & 63] : '=';
    }
    out->size += (size + 2) / 3 * 4;
}

/* INT64_MIN has no positive counterpart: the sign is turned as an unsigned number. */
void encode_int(struct buffer *out, int64_t number) {
    char text[24], *at = text + sizeof text;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        *--at = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (number < 0) *--at = '-';
    buffer_append(out, at, (size_t)(text + sizeof text - at));
}
