/* One sequence at a time: the first byte tells how many follow, and the range of the second. Overlong forms,
 * halves of surrogate pairs and what is beyond U+10FFFF are no UTF-8. Characters that change how a terminal
 * shows others (controls, reversals of direction) are told from harmless ones. */
#include "base/str.h"

int utf8_sequence(const char *text, size_t size, uint32_t *character) {
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char lead = bytes[0];
    int length = lead < 0x80                    ? 1
                 : lead >= 0xc2 && lead <= 0xdf ? 2
                 : lead >= 0xe0 && lead <= 0xef ? 3
                 : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                : 0;
    if (length == 0) return -1;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    uint32_t value = length == 1 ? lead : lead & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= size || bytes[i] < low || bytes[i] > high) return -i;
        value = value << 6 | (bytes[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    if (character != NULL) *character = value;
    return length;
}

bool utf8_valid(const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        int length = utf8_sequence(text + at, size - at, NULL);
        if (length < 0) return false;
        at += (size_t)length;
    }
    return true;
}

bool utf8_is_harmless(uint32_t character) {
    bool control = (character < ' ' && character != '\t') || (character >= 0x7f && character <= 0x9f);
    bool turns = (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
    return !control && !turns;
}

void utf8_escape(const char *text, size_t size, struct buffer *out) {
    for (size_t at = 0; at < size;) {
        uint32_t character = 0;
        int length = utf8_sequence(text + at, size - at, &character);
        bool harmless = length > 0 && utf8_is_harmless(character);
        if (harmless)
            buffer_append(out, text + at, (size_t)length);
        else if (length > 1)
            buffer_printf(out, "\\u%04x", character);
        else
            buffer_printf(out, "\\x%02x", (unsigned char)text[at]);
        at += length < 0 ? 1 : (size_t)length;
    }
}
