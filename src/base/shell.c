/* What of a word a shell would read otherwise, and how quotes keep it from that. */
#include "base/shell.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

void shell_quote(const char *word, bool script, struct buffer *out) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    CLEANUP(buffer_done) struct buffer shown = {0};
    utf8_escape(word, strlen(word), &shown);
    bool harmless = !shown.failed && shown.size == strlen(word);
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        buffer_text(out, word);
    } else if (harmless || script) {
        /* The word stands in single quotes, outside of which its own single quotes stand. */
        buffer_char(out, '\'');
        for (; *word != '\0'; word++)
            buffer_printf(out, *word == '\'' ? "'\\%c'" : "%c", *word);
        buffer_char(out, '\'');
    } else {
        /* Bytes that are no text, or would break the line, are written as numbers. */
        buffer_text(out, "$'");
        for (; *word != '\0'; word++) {
            unsigned char byte = (unsigned char)*word;
            if (byte < ' ' || byte >= 127)
                buffer_printf(out, "\\%03o", byte);
            else
                buffer_printf(out, *word == '\'' || *word == '\\' ? "\\%c" : "%c", *word);
        }
        buffer_char(out, '\'');
    }
}
