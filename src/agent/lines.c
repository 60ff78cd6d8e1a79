/* The text half of the output relay. Nearly all output is plain lines: these are found with memchr, checked
 * eight bytes at a time, and copied whole; only what needs an escape is looked at byte by byte. Where lines go,
 * and whether a stream may be read, is relay.c's. */
#include "agent/lines.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define COLOUR_END "\033[0m"

void lines_init(struct lines *lines, long rank, bool escape) {
    *lines = (struct lines){.escape = escape};
    if (rank >= 0)
        lines->prefix_size = (size_t)snprintf(lines->prefix, sizeof lines->prefix, "[rank %ld] ", rank);
}

void lines_done(struct lines *lines) {
    buffer_done(&lines->partial);
    for (unsigned row = 0; row < lines->n_rows; row++)
        buffer_done(&lines->rows[row]);
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

/* Length of the sequence at the front that sets a colour, or 0: ESC [ 1;31 m. */
static size_t colour_size(const char *bytes, size_t size) {
    size_t at = 2;
    if (size < 3 || bytes[0] != '\033' || bytes[1] != '[') return 0;
    while (at < size && ((bytes[at] >= '0' && bytes[at] <= '9') || bytes[at] == ';' || bytes[at] == ':'))
        at++;
    return at < size && bytes[at] == 'm' ? at + 1 : 0;
}

/* Appends the bytes, with escapes where needed, through `to`, which has room for four times `size`. */
static char *escape_bytes(char *to, const char *bytes, size_t size, bool colour) {
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    while (at < size) {
        size_t plain = plain_size(bytes + at, size - at);
        if (plain == 0) {
            uint32_t character;
            int length = utf8_sequence(bytes + at, size - at, &character);
            if (length > 1 && utf8_is_harmless(character)) plain = (size_t)length;
        }
        if (plain == 0 && colour) plain = colour_size(bytes + at, size - at);
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
    bool coloured = lines->colour && size > 0 && memchr(bytes, '\033', size) != NULL;
    char *start = buffer_reserve(out, (plain ? room : room + 3 * size) + sizeof COLOUR_END);
    if (start == NULL) return;
    char *to = mempcpy(start, lines->prefix, lines->prefix_size);
    to = plain ? mempcpy(to, bytes, size) : escape_bytes(to, bytes, size, lines->colour);
    if (coloured) to = mempcpy(to, COLOUR_END, sizeof COLOUR_END - 1);
    to = mempcpy(to, end, strlen(end));
    *to = '\0';
    out->size += (size_t)(to - start);
}

static bool is_verbatim(const struct lines *lines) {
    return !lines->escape && lines->prefix_size == 0;
}

/* Where a piece of a long line may end: not inside a UTF-8 sequence. */
static size_t cut_size(const char *bytes, size_t most) {
    size_t size = most;
    while (size > most - 4 && ((unsigned char)bytes[size] & 0xc0) == 0x80)
        size--;
    return size > most - 4 ? size : most;
}

/* Shows what is above LINES_MAX in pieces; returns the size of what remains. */
static size_t show_pieces(const struct lines *lines, const char **bytes, size_t size, struct buffer *out) {
    const char *end = is_verbatim(lines) ? "" : LINES_CUT "\n";
    while (size > LINES_MAX) {
        size_t piece = cut_size(*bytes, LINES_MAX);
        show(lines, *bytes, piece, end, out);
        *bytes += piece;
        size -= piece;
    }
    return size;
}

/* The size of a sequence at the front that erases (a part of) the line, or 0: ESC [ K, with 0, 1 or 2. */
static size_t erasure_size(const char *bytes, size_t size) {
    size_t digit = size > 2 && bytes[2] >= '0' && bytes[2] <= '2';
    bool erases = size > 2 + digit && bytes[0] == '\033' && bytes[1] == '[' && bytes[2 + digit] == 'K';
    return erases ? 3 + digit : 0;
}

/* A drawing without what programs erase the one before it with. */
static void trim_drawing(const char **bytes, size_t *size) {
    for (size_t n; (n = erasure_size(*bytes, *size)) > 0; *size -= n)
        *bytes += n;
    for (size_t n = 3; n <= 4 && n <= *size; n++)
        if (erasure_size(*bytes + *size - n, n) == n) *size -= n;
}

static bool is_blank(const char *bytes, size_t size) {
    trim_drawing(&bytes, &size);
    for (size_t at = 0; at < size; at++)
        if (bytes[at] != ' ') return false;
    return true;
}

/* A whole line that begins with what is in `partial`. */
static void show_line(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    lines->settled = lines->settled || lines->redrawn || lines->partial.size > 0;
    if (lines->partial.size > 0) {
        buffer_append(&lines->partial, bytes, size);
        bytes = lines->partial.data;
        size = lines->partial.size;
    }
    if (lines->redrawn) trim_drawing(&bytes, &size);
    size = show_pieces(lines, &bytes, size, out);
    show(lines, bytes, size, "\n", out);
    if (lines->partial.size > 0) buffer_done(&lines->partial);
    lines->redrawn = lines->returned = false;
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

/* -- bars below each other */

#define UP "\033[A"
enum { UP_SIZE = sizeof UP - 1 };

static struct buffer take_buffer(struct buffer *buffer) {
    struct buffer taken = *buffer;
    *buffer = (struct buffer){0};
    return taken;
}

/* `partial` is always the row in which the program writes: the row that is left is put away, and the other one
 * is taken out, where the next drawing takes the place of what stands there. */
static void go_to_row(struct lines *lines, unsigned row) {
    lines->rows[lines->row] = take_buffer(&lines->partial);
    lines->partial = take_buffer(&lines->rows[row]);
    lines->row = row;
    lines->redrawn = true;
}

/* Takes the movements upwards off the end of what was drawn, and goes up as many rows. Above LINES_ROWS of them
 * rows are no longer told apart: the first one is drawn over. */
static void take_ups(struct lines *lines) {
    unsigned n = 0;
    if (!lines->redrawn && lines->n_rows == 0) return; /* no bar: the bytes are what they are */
    struct buffer *text = &lines->partial;
    for (; text->size >= UP_SIZE && memcmp(text->data + text->size - UP_SIZE, UP, UP_SIZE) == 0; n++)
        text->size -= UP_SIZE;
    while (n-- > 0) {
        if (lines->n_rows == 0) lines->n_rows = 1;
        /* Above the first row is one of which nothing was seen: what stood there has ended as a line. */
        if (lines->row == 0 && lines->n_rows < LINES_ROWS) {
            memmove(&lines->rows[1], &lines->rows[0], lines->n_rows * sizeof *lines->rows);
            lines->rows[0] = (struct buffer){0};
            lines->n_rows++;
            lines->row = 1;
        }
        if (lines->row > 0) go_to_row(lines, lines->row - 1);
    }
}

/* Every row becomes a line, from the first on, but for those that were erased. */
static void end_rows(struct lines *lines, struct buffer *out) {
    unsigned n = lines->n_rows;
    lines->rows[lines->row] = take_buffer(&lines->partial);
    lines->n_rows = lines->row = 0;
    for (unsigned row = 0; row < n; row++) {
        lines->partial = take_buffer(&lines->rows[row]);
        lines->redrawn = true;
        if (is_blank(lines->partial.data, lines->partial.size))
            buffer_done(&lines->partial);
        else
            show_line(lines, "", 0, out);
    }
    lines->redrawn = lines->returned = false;
}

/* What comes next stands in place of what stood there. */
static void begin_drawing(struct lines *lines) {
    if (!lines->returned) return;
    buffer_clear(&lines->partial);
    lines->returned = false;
    lines->redrawn = true;
}

/* One line's bytes, without their LF (`ended`) or not yet ended, may hold CRs. */
static void add_with_cr(struct lines *lines, const char *bytes, size_t size, bool ended, struct buffer *out) {
    for (const char *cr; (cr = memchr(bytes, '\r', size)) != NULL;) {
        size_t before = (size_t)(cr - bytes);
        if (before > 0) begin_drawing(lines);
        keep(lines, bytes, before, out);
        take_ups(lines);
        /* A drawing that only erased the one before it leaves a line on which nothing was written yet. */
        if (lines->redrawn && is_blank(lines->partial.data, lines->partial.size)) {
            buffer_clear(&lines->partial);
            lines->redrawn = false;
        }
        lines->returned = true;
        bytes = cr + 1;
        size -= before + 1;
    }
    if (size > 0) begin_drawing(lines);
    if (!ended) {
        keep(lines, bytes, size, out);
    } else if (lines->n_rows == 0 && !lines->redrawn) {
        show_line(lines, bytes, size, out);
    } else {
        keep(lines, bytes, size, out);
        take_ups(lines);
        if (lines->row + 1 < lines->n_rows) { /* a LF goes to the next row, or behind all of them */
            go_to_row(lines, lines->row + 1);
            lines->returned = true;
        } else if (lines->n_rows > 0) {
            end_rows(lines, out);
        } else {
            show_line(lines, "", 0, out);
        }
    }
}

/* The way of plain lines has one look for a CR in all the bytes, and none a line. */
static void add_text(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    const char *end = bytes + size;
    bool has_cr = !is_verbatim(lines) && size > 0 &&
                  (lines->returned || lines->redrawn || lines->n_rows > 0 || memchr(bytes, '\r', size) != NULL);
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

/* A byte of an escape sequence; what follows ESC [ up to a letter, or ESC ] up to BEL or ESC \. */
static void take_sequence(struct lines *lines, char c, struct buffer *text) {
    if (lines->sequence_size < sizeof lines->sequence) lines->sequence[lines->sequence_size] = c;
    lines->sequence_size++;
    bool ends = c >= '@' && c <= '~';
    if (lines->text == TEXT_ESCAPE)
        lines->text = c == '[' ? TEXT_SEQUENCE : c == ']' ? TEXT_COMMAND : TEXT_PLAIN;
    else if (lines->text == TEXT_COMMAND && (c == '\a' || c == '\\'))
        lines->text = TEXT_PLAIN;
    else if (lines->text == TEXT_SEQUENCE && ends)
        lines->text = TEXT_PLAIN;
    bool whole = lines->text == TEXT_PLAIN && lines->sequence_size <= sizeof lines->sequence;
    if (whole && c == 'm' && lines->colour) {
        buffer_text(text, "\033");
        buffer_append(text, lines->sequence, lines->sequence_size);
    }
    if (whole && lines->sequence_size == UP_SIZE - 1 && c == 'A')
        buffer_text(text, UP); /* told from the text below */
}

/* What a program says to its terminal, without what only that would understand. */
static void add_from_terminal(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer text = {0};
    for (size_t at = 0; at < size; at++) {
        char c = bytes[at];
        if (lines->text != TEXT_PLAIN) {
            take_sequence(lines, c, &text);
        } else if (c == '\033') {
            lines->text = TEXT_ESCAPE;
            lines->sequence_size = 0;
        } else if (c == '\b') {
            add_text(lines, text.data, text.size, out);
            buffer_clear(&text);
            /* The last character of the line is taken back. */
            struct buffer *partial = &lines->partial;
            while (partial->size > 0 && ((unsigned char)partial->data[partial->size - 1] & 0xc0) == 0x80)
                partial->size--;
            if (partial->size > 0) partial->size--;
        } else if (c != '\a') {
            buffer_char(&text, c);
        }
    }
    add_text(lines, text.data, text.size, out);
}

void lines_add(struct lines *lines, const char *bytes, size_t size, struct buffer *out) {
    if (lines->pass) {
        buffer_append(out, bytes, size);
        if (size > 0) lines->within = bytes[size - 1] != '\n';
    } else if (lines->terminal) {
        add_from_terminal(lines, bytes, size, out);
    } else {
        add_text(lines, bytes, size, out);
    }
}

void lines_end(struct lines *lines, struct buffer *out) {
    take_ups(lines);
    if (lines->n_rows > 0) end_rows(lines, out);
    bool erased = lines->redrawn && is_blank(lines->partial.data, lines->partial.size);
    if (lines->partial.size > 0 && !erased) show_line(lines, "", 0, out);
    lines->redrawn = lines->returned = false;
    if (lines->within) buffer_char(out, '\n');
    lines->within = false;
}

/* All rows, from the first one on. */
static void join_rows(const struct lines *lines, struct buffer *out) {
    for (unsigned row = 0; row < lines->n_rows; row++) {
        const struct buffer *text = row == lines->row ? &lines->partial : &lines->rows[row];
        const char *bytes = text->data;
        size_t size = text->size;
        while (size >= UP_SIZE && memcmp(bytes + size - UP_SIZE, UP, UP_SIZE) == 0)
            size -= UP_SIZE;
        if (size == 0 || is_blank(bytes, size)) continue;
        trim_drawing(&bytes, &size);
        while (size > 0 && bytes[size - 1] == ' ')
            size--;
        if (out->size > 0) buffer_text(out, " | ");
        buffer_append(out, bytes, size);
    }
}

void lines_live(const struct lines *lines, struct buffer *out) {
    struct lines view = *lines; /* whatever the lines are like: this is for a terminal, which cuts them */
    CLEANUP(buffer_done) struct buffer plain = {0};
    CLEANUP(buffer_done) struct buffer joined = {0};
    join_rows(lines, &joined);
    const char *bytes = lines->n_rows > 0 ? joined.data : lines->partial.data;
    size_t size = lines->n_rows > 0 ? joined.size : lines->partial.size;
    while (lines->redrawn && size >= UP_SIZE && memcmp(bytes + size - UP_SIZE, UP, UP_SIZE) == 0)
        size -= UP_SIZE;
    view.escape = true;
    view.colour = false;
    if (lines->colour) {
        for (size_t at = 0; at < size;) {
            size_t colour = colour_size(bytes + at, size - at);
            if (colour == 0) buffer_char(&plain, bytes[at]);
            at += colour > 0 ? colour : 1;
        }
        bytes = plain.data;
        size = plain.size;
    }
    if (size == 0 || is_blank(bytes, size)) return;
    if (lines->redrawn) trim_drawing(&bytes, &size);
    if (size > LINES_LIVE_MAX) size = cut_size(bytes, LINES_LIVE_MAX);
    show(&view, bytes, size, "", out);
}
