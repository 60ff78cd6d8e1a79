/* The text half of the output relay. Nearly all output is plain lines: these are found with memchr, checked
 * eight bytes at a time, and copied whole; only what needs an escape is looked at byte by byte. */
#include "agent/lines.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void lines_init(struct lines *lines, long rank, bool escape) {
    *lines = (struct lines){.escape = escape};
    if (rank >= 0)
        lines->prefix_size = (size_t)snprintf(lines->prefix, sizeof lines->prefix, "[rank %ld] ", rank);
}

void lines_done(struct lines *lines) {
    buffer_done(&lines->partial);
}

/* A bit is set for each byte of `word` that is a control character, DEL or not ASCII. Borrows can only mark
 * bytes behind one that is marked by right, so zero is exact. */
static uint64_t unusual(uint64_t word) {
    const uint64_t ones = 0x0101010101010101, highs = 0x8080808080808080;
    uint64_t below_space = (word - ones * 0x20) & ~word;
    uint64_t from_delete = (word + ones) | word;
    return (below_space | from_delete) & highs;
}

/* Number of bytes at the front that can be shown as they are. */
static size_t plain_size(const char *bytes, size_t size) {
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= size; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (unusual(word) != 0) break;
    }
    for (; at < size; at++) {
        unsigned char c = (unsigned char)bytes[at];
        if ((c < ' ' && c != '\t') || c >= 0x7f) break;
    }
    return at;
}

/* Length of the UTF-8 sequence of several bytes at the front that can be shown, or 0. */
static size_t sequence_size(const char *bytes, size_t size) {
    uint32_t character;
    int length = utf8_sequence(bytes, size, &character);
    return length > 1 && utf8_is_harmless(character) ? (size_t)length : 0;
}

/* Appends the bytes, with escapes where needed, through `to`, which has room for four times `size`. */
static char *escape_bytes(char *to, const char *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    while (at < size) {
        size_t plain = plain_size(bytes + at, size - at);
        if (plain == 0) plain = sequence_size(bytes + at, size - at);
        memcpy(to, bytes + at, plain);
        to += plain;
        at += plain;
        if (plain > 0 || at == size) continue;
        unsigned char c = (unsigned char)bytes[at++];
        *to++ = '\\';
        *to++ = 'x';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    return to;
}

/* Appends a line, or a piece of one, with its prefix and its end. */
static void show(const struct lines *lines, const char *bytes, size_t size, const char *end,
                 struct buffer *out) {
    size_t room = lines->prefix_size + size + strlen(end);
    bool plain = !lines->escape || plain_size(bytes, size) == size;
    char *start = buffer_reserve(out, plain ? room : room + 3 * size);
    if (start == NULL) return;
    char *to = mempcpy(start, lines->prefix, lines->prefix_size);
    to = plain ? mempcpy(to, bytes, size) : escape_bytes(to, bytes, size);
    to = mempcpy(to, end, strlen(end));
    *to = '\0';
    out->size += (size_t)(to - start);
}

static bool is_verbatim(const struct lines *lines) {
    return !lines->escape && lines->prefix_size == 0;
}

/* Where a piece of a long line may end: not inside a UTF-8 sequence. */
static size_t cut_size(const char *bytes) {
    size_t size = LINES_MAX;
    while (size > LINES_MAX - 4 && ((unsigned char)bytes[size] & 0xc0) == 0x80)
        size--;
    return size > LINES_MAX - 4 ? size : LINES_MAX;
}

/* Shows what is above LINES_MAX in pieces; returns the size of what remains. */
static size_t show_pieces(const struct lines *lines, const char **bytes, size_t size, struct buffer *out) {
    const char *end = is_verbatim(lines) ? "" : LINES_CUT "\n";
    while (size > LINES_MAX) {
        size_t piece = cut_size(*bytes);
        show(lines, *bytes, piece, end, out);
        *bytes += piece;
        size -= piece;
    }
    return size;
}

/* A whole line that begins with what is in `partial`. */
static void show_line(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    if (lines->partial.size > 0) {
        buffer_append(&lines->partial, bytes, size);
        bytes = lines->partial.data;
        size = lines->partial.size;
    }
    size = show_pieces(lines, &bytes, size, out);
    show(lines, bytes, size, "\n", out);
    if (lines->partial.size > 0) buffer_done(&lines->partial);
}

/* Keeps the begin of a line until its end comes, never much more than one piece of it. */
static void keep(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    struct buffer *partial = &lines->partial;
    while (size > 0 && !partial->failed) {
        if (partial->size == 0) size = show_pieces(lines, &bytes, size, out);
        size_t room = LINES_MAX + 4 - partial->size;
        size_t taken = size < room ? size : room;
        buffer_append(partial, bytes, taken);
        bytes += taken;
        size -= taken;
        const char *rest = partial->data;
        size_t left = show_pieces(lines, &rest, partial->size, out);
        buffer_consume(partial, partial->size - left);
    }
}

/* A CR within a line, or at the end of what has come: `size` bytes stand before it. */
static void end_with_cr(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    if (size + lines->partial.size == 0) {
        lines->after_empty_cr = true;
        return;
    }
    show_line(lines, bytes, size, out);
    lines->after_cr = true;
}

/* The first byte decides what a CR before it meant. True when it was the LF of that CR. */
static bool settle_cr(struct lines *lines, char first, struct buffer *out) {
    bool lf = first == '\n' && (lines->after_cr || lines->after_empty_cr);
    if (lf && lines->after_empty_cr) show_line(lines, "", 0, out);
    lines->after_cr = lines->after_empty_cr = false;
    return lf;
}

/* One line's bytes, without their LF (`ended`) or not yet ended, may hold lone CRs. */
static void add_with_cr(struct lines *lines, const char *bytes, size_t size, bool ended, struct buffer *out) {
    for (const char *cr; (cr = memchr(bytes, '\r', size)) != NULL;) {
        size_t before = (size_t)(cr - bytes);
        if (ended && before + 1 == size) {
            show_line(lines, bytes, before, out); /* CR LF */
            return;
        }
        end_with_cr(lines, bytes, before, out);
        bytes = cr + 1;
        size -= before + 1;
        if (size > 0 || ended) lines->after_cr = lines->after_empty_cr = false;
    }
    if (ended)
        show_line(lines, bytes, size, out);
    else
        keep(lines, bytes, size, out);
}

void lines_add(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    const char *end = bytes + size;
    bool has_cr = !is_verbatim(lines) && size > 0 && memchr(bytes, '\r', size) != NULL;
    if (size > 0 && settle_cr(lines, *bytes, out)) bytes++;
    while (bytes < end) {
        const char *lf = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t length = (size_t)((lf != NULL ? lf : end) - bytes);
        if (has_cr)
            add_with_cr(lines, bytes, length, lf != NULL, out);
        else if (lf != NULL)
            show_line(lines, bytes, length, out);
        else
            keep(lines, bytes, length, out);
        bytes += length + (lf != NULL);
    }
}

void lines_end(struct lines *lines, struct buffer *out) {
    if (lines->partial.size > 0) show_line(lines, "", 0, out);
    lines->after_cr = lines->after_empty_cr = false;
}
