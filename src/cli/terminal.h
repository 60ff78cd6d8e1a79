/* What the command does with a terminal: colour only where it is wanted, text of programs made harmless, tables
 * in columns as a terminal counts them, and output that a file cannot hold up. What is printed is each
 * command's. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* True when `fd` is a terminal that takes colour, and NO_COLOR does not forbid it. */
bool terminal_colour(int fd);

/* Columns that a character takes on one that knows it: two for those of East Asia and for most pictures, none
 * for those that join others. */
size_t terminal_columns(uint32_t character);

/* "trainyard run: message" on standard error, one line; `command` may be NULL. */
void terminal_error(const char *command, const char *message);
/* "trainyard run: warning: message". */
void terminal_warning(const char *command, const char *message);

/* Files in place of standard output and error are written by processes of their own from here on, so that
 * storage that hangs under them holds no signal (outlet.c). At the end they are waited for, 30 s at most, or 5
 * s where the command is to end soon; what is not written yet by then is told, and will be. */
void outlets_open(void);
void outlets_close(bool hurried);

/* Rows of cells set in columns, as many as there are heads; every cell is escaped. The last column is not
 * padded. Zero-initialised is empty. */
struct text_table {
    size_t n_columns;
    struct buffer cells; /* NUL-terminated texts, row by row */
};
void table_head(struct text_table *table, const char *name); /* of one more column */
#define TABLE_HEADS(table, ...) table_heads(table, (const char *const[]){__VA_ARGS__, NULL})
void table_heads(struct text_table *table, const char *const *names); /* NULL-terminated */
void table_cell(struct text_table *table, const char *text);
/* A cell of what `text` holds, which is empty then. */
void table_take(struct text_table *table, struct buffer *text);
void table_format(const struct text_table *table, struct buffer *out);
void table_done(struct text_table *table);

#endif
