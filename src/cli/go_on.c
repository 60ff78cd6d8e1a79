/* The line that goes on with a run, told to its user or written into a batch script. Words of the command line
 * are given again as they were; only what a shell would read otherwise is quoted. The name is said once, with
 * --resume; which other options are left out is the caller's to say. */
#include "cli/command.h"

#include <errno.h>
#include <string.h>

#include "base/shell.h"
#include "base/str.h"

static void add_word(const char *word, bool script, struct buffer *out) {
    buffer_char(out, ' ');
    shell_quote(word, script, out);
}

void go_on_format_line(const struct go_on_line *line, const struct arguments *arguments, const char *name,
                       struct buffer *out) {
    shell_quote(line->program, line->script, out);
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
    /* By the name that its user called it by, which works where that was typed. */
    const struct go_on_line line = {program_invocation_name, command, "", none, false};
    go_on_format_line(&line, arguments, name, out);
}
