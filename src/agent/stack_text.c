/* Finds its way in what faulthandler, gdb and eu-stack print, to make of it the frames of one thread, the place
 * where a rank stands, and frames in a row for a flame graph. Text that looks otherwise gives less, and never
 * an error: versions of these programs differ. */
#include "agent/stack_save.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { FRAMES_MAX = 6, LINE_MAX_SHOWN = 200 };

struct span {
    const char *at, *end;
};

/* The next line, without its end; false behind the last one. */
static bool next_line(struct span *rest, struct span *line) {
    if (rest->at >= rest->end) return false;
    const char *newline = memchr(rest->at, '\n', (size_t)(rest->end - rest->at));
    *line = (struct span){rest->at, newline != NULL ? newline : rest->end};
    rest->at = newline != NULL ? newline + 1 : rest->end;
    return true;
}

static bool begins(struct span line, const char *with) {
    size_t size = strlen(with);
    return (size_t)(line.end - line.at) >= size && memcmp(line.at, with, size) == 0;
}

static struct span without_blanks(struct span line) {
    while (line.at < line.end && (*line.at == ' ' || *line.at == '\t'))
        line.at++;
    return line;
}

/* The first part of that kind, up to the next part; empty without. */
static struct span find_part(struct span text, const char *head) {
    struct span line, found = {text.end, text.end};
    bool inside = false;
    while (next_line(&text, &line)) {
        if (inside && begins(line, "== ")) return (struct span){found.at, line.at};
        if (inside || !begins(line, head)) continue;
        inside = true;
        found.at = text.at;
    }
    return found;
}

/* The thread that a dump of Python's calls current, else the last one, which is the main thread. */
static struct span python_thread(struct span part) {
    struct span line, rest = part, found = {part.end, part.end};
    while (next_line(&rest, &line)) {
        if (!begins(line, "Current thread") && !begins(line, "Thread")) continue;
        found.at = rest.at;
        if (begins(line, "Current thread")) return found;
    }
    return found;
}

/* Lines that begin so, up to the first other one behind them. */
static bool add_frames(struct span rest, const char *with, struct buffer *out) {
    struct span line;
    int n = 0;
    while (n < FRAMES_MAX && next_line(&rest, &line)) {
        line = without_blanks(line);
        if (!begins(line, with)) {
            if (n > 0) break;
            continue;
        }
        for (int shown = 0; line.at < line.end && shown < LINE_MAX_SHOWN; line.at++, shown++)
            buffer_char(out, iscntrl((unsigned char)*line.at) ? '?' : *line.at);
        buffer_char(out, '\n');
        n++;
    }
    return n > 0;
}

void stack_text_frames(const char *text, size_t size, struct buffer *out) {
    struct span all = {text, text + size};
    if (add_frames(python_thread(find_part(all, STACK_PART_PYTHON)), "File ", out)) return;
    /* gdb counts threads from the main one on and shows that last; eu-stack shows it first. */
    struct span native = find_part(all, STACK_PART_NATIVE), rest = native, line;
    while (next_line(&rest, &line))
        if (begins(line, "Thread 1 ")) {
            native = rest;
            break;
        }
    if (add_frames(native, "#", out)) return;
    (void)add_frames(find_part(all, STACK_PART_FACTS), "thread ", out);
}

void stack_text_place_key(const char *frames, struct buffer *out) {
    static const char digits[] = "0123456789abcdefABCDEF";
    struct span rest = {frames, frames + strlen(frames)}, line;
    while (next_line(&rest, &line)) {
        bool native = begins(without_blanks(line), "#");
        int depth = 0; /* of parentheses */
        for (const char *at = line.at; at < line.end; at++) {
            if (native && *at == '(') depth++;
            if (native && *at == ')' && depth > 0) depth--;
            if (depth > 0) continue;
            buffer_char(out, *at);
            if (at + 1 < line.end && at[0] == '0' && at[1] == 'x') at += 1 + strspn(at + 2, digits);
        }
        buffer_char(out, '\n');
    }
}

/* -- frames as words of one line */

/* `File "/x/a.py", line 3 in f`: the file without its folders, the line's digits, the function. */
static bool split_frame(struct span line, struct span *file, struct span *number, struct span *function) {
    static const char middle[] = "\", line ", in[] = " in ";
    line = without_blanks(line);
    if (!begins(line, "File \"")) return false;
    line.at += strlen("File \"");
    const char *end = memmem(line.at, (size_t)(line.end - line.at), middle, strlen(middle));
    if (end == NULL) return false;
    *file = (struct span){line.at, end};
    for (const char *at = line.at; at < end; at++)
        if (*at == '/') file->at = at + 1;
    number->at = number->end = end + strlen(middle);
    while (number->end < line.end && isdigit((unsigned char)*number->end))
        number->end++;
    *function = (struct span){number->end, line.end};
    if (!begins(*function, in)) return false;
    function->at += strlen(in);
    return true;
}

/* What would end a frame or the line does not. */
static void add_word(struct span word, struct buffer *out) {
    for (int shown = 0; word.at < word.end && shown < LINE_MAX_SHOWN; word.at++, shown++)
        buffer_char(out, iscntrl((unsigned char)*word.at) || *word.at == ';' ? '?' : *word.at);
}

void stack_text_place(const char *line, size_t size, struct buffer *out) {
    struct span text = {line, line + size}, file, number, function;
    if (!split_frame(text, &file, &number, &function)) {
        add_word(text, out);
        return;
    }
    add_word(function, out);
    buffer_char(out, ' ');
    add_word(file, out);
    buffer_char(out, ':');
    add_word(number, out);
}

/* The text has the innermost frame first, a folded line the outermost. */
void stack_text_folded(const char *text, size_t size, struct buffer *out) {
    enum { FOLDED_FRAMES = 128 };
    struct span rest = python_thread((struct span){text, text + size}), frames[FOLDED_FRAMES], line;
    size_t n = 0;
    while (n < FOLDED_FRAMES && next_line(&rest, &line)) {
        line = without_blanks(line);
        if (!begins(line, "File ") && !begins(line, "...")) break;
        frames[n++] = line;
    }
    for (size_t i = n; i-- > 0;) {
        struct span file, number, function;
        if (i + 1 < n) buffer_char(out, ';');
        if (!split_frame(frames[i], &file, &number, &function)) {
            add_word(frames[i], out);
            continue;
        }
        add_word(function, out);
        buffer_text(out, " (");
        add_word(file, out);
        buffer_char(out, ':');
        add_word(number, out);
        buffer_char(out, ')');
    }
}
