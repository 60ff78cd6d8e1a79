/* Text on a terminal: escapes, colour, columns. A worker's output, a metric's or a node's name may hold
 * anything. Whether something is shown at all is the caller's. What goes to standard error goes by way
 * of the run's sink, so that a pager that stands still holds no run (controller/sink.h). */
#include "cli/terminal.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "controller/sink.h"

/* no-color.org: NO_COLOR counts when it is not empty, whatever it says. */
bool terminal_colour(int fd) {
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no_colour != NULL && *no_colour != '\0') return false;
    return isatty(fd) != 0 && term != NULL && *term != '\0' && !str_equal(term, "dumb");
}

static void tell(const char *command, const char *kind, const char *message) {
    CLEANUP(buffer_done) struct buffer line = {0};
    buffer_text(&line, "trainyard");
    if (command != NULL) buffer_printf(&line, " %s", command);
    buffer_printf(&line, ": %s", kind);
    utf8_escape(message, strlen(message), &line);
    buffer_char(&line, '\n');
    sink_say(&line);
}

void terminal_error(const char *command, const char *message) {
    tell(command, "", message);
}

void terminal_warning(const char *command, const char *message) {
    tell(command, "warning: ", message);
}

void table_cell(struct text_table *table, const char *text) {
    utf8_escape(text, strlen(text), &table->cells);
    buffer_append(&table->cells, "", 1);
}

void table_head(struct text_table *table, const char *name) {
    table_cell(table, name);
    table->n_columns++;
}

void table_heads(struct text_table *table, const char *const *names) {
    for (; *names != NULL; names++)
        table_head(table, *names);
}

void table_done(struct text_table *table) {
    buffer_done(&table->cells);
}

size_t terminal_columns(uint32_t character) {
    static locale_t utf8; /* as the command is one thread here, and no locale may be set */
    if (character < 0x80) return 1;
    if (utf8 == (locale_t)0) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    int width = wcwidth((wchar_t)character);
    if (before != (locale_t)0) (void)uselocale(before);
    return width >= 0 ? (size_t)width : 1;
}

/* What is no UTF-8 takes a column a byte, as a terminal shows a mark for each. */
static size_t width(const char *text) {
    size_t n = 0;
    uint32_t character = 0;
    for (size_t at = 0, size = strlen(text); at < size;) {
        int length = utf8_sequence(text + at, size - at, &character);
        n += length > 0 ? terminal_columns(character) : 1;
        at += (size_t)(length > 0 ? length : -length);
    }
    return n;
}

enum { MAX_COLUMNS = 16 };

void table_take(struct text_table *table, struct buffer *text) {
    buffer_char(text, '\0');
    table_cell(table, text->data != NULL ? text->data : "");
    buffer_clear(text);
}

void table_format(const struct text_table *table, struct buffer *out) {
    size_t widest[MAX_COLUMNS] = {0}, column = 0;
    const char *end = table->cells.data + table->cells.size;
    for (const char *cell = table->cells.data; cell < end; cell += strlen(cell) + 1) {
        if (width(cell) > widest[column]) widest[column] = width(cell);
        column = (column + 1) % table->n_columns;
    }
    for (const char *cell = table->cells.data; cell < end; cell += strlen(cell) + 1) {
        bool last = column + 1 == table->n_columns;
        buffer_text(out, cell);
        if (!last) buffer_printf(out, "%*s", (int)(widest[column] - width(cell) + 2), "");
        while (last && out->size > 0 && out->data[out->size - 1] == ' ')
            out->size--;
        if (last) buffer_char(out, '\n');
        column = last ? 0 : column + 1;
    }
}
