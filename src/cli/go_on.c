/* The line that goes on with a run, told to its user or written into a batch script. Words of the command line
 * are given again as they were; only what a shell would read otherwise is quoted. The name is said once, with
 * --resume; which other options are left out is the caller's to say. */
#include "cli/command.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

void cli_quote(const char *word, bool script, struct buffer *out) {
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
        /* Bytes that are no text, or would break the line, are written as numbers, for bash and its kin. */
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

static void add_word(const char *word, bool script, struct buffer *out) {
    buffer_char(out, ' ');
    cli_quote(word, script, out);
}

void go_on_format_line(const struct go_on_line *line, const struct arguments *arguments, const char *name,
                       struct buffer *out) {
    cli_quote(line->program, line->script, out);
    buffer_printf(out, " %s%s", line->command, line->more);
    for (size_t i = 0; i < arguments->n_given; i++) {
        const struct option_given *given = &arguments->given[i];
        const char *option = given->option->name;
        bool left_out = str_equal(option, "name") || str_equal(option, "resume");
        for (size_t l = 0; line->less[l] != NULL; l++)
            left_out = left_out || str_equal(line->less[l], option);
        if (left_out) continue;
        if (given->option->letter != 0)
            buffer_printf(out, " -%c", given->option->letter);
        else
            buffer_printf(out, " --%s", option);
        if (given->value != NULL) add_word(given->value, line->script, out);
    }
    buffer_text(out, " --resume");
    add_word(name, line->script, out);
    buffer_text(out, " --");
    for (size_t i = 0; i < arguments->n_words; i++)
        add_word(arguments->words[i], line->script, out);
}

void go_on_format(const char *command, const struct arguments *arguments, const char *name,
                  struct buffer *out) {
    static const char *const none[] = {NULL};
    const struct go_on_line line = {program_invocation_name, command, "", none, false};
    go_on_format_line(&line, arguments, name, out);
}
