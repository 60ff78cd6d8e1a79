/* Their words are read from /proc, and cut: a line is to be read by a person. */
#include "agent/leftovers.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/process.h"

enum { NAMED_MAX = 4, WORDS_SHOWN = 60 };

static void add_words(pid_t pid, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer words = {0};
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    if (file_read(path, 4096, &words, NULL) < 0 || words.size == 0) {
        buffer_printf(out, "process %d", pid);
        return;
    }
    size_t size = words.data[words.size - 1] == '\0' ? words.size - 1 : words.size;
    for (size_t i = 0; i < size && i < WORDS_SHOWN; i++) {
        char byte = words.data[i];
        buffer_char(out, byte == '\0' ? ' ' : byte >= 0x20 && byte < 0x7f ? byte : '?');
    }
    if (size > WORDS_SHOWN) buffer_text(out, "...");
}

size_t leftovers_describe(pid_t group, struct buffer *out) {
    CLEANUP(buffer_done) struct buffer names = {0};
    size_t n = 0;
    DIR *proc = opendir("/proc");
    for (pid_t pid; proc != NULL && (pid = process_next(proc)) > 0;) {
        struct process process;
        if (!process_read(pid, &process) || process.group != group || process.state == 'Z' || process.ending)
            continue;
        if (n > 0 && n < NAMED_MAX) buffer_text(&names, ", ");
        if (n < NAMED_MAX) add_words(pid, &names);
        n++;
    }
    if (proc != NULL) (void)closedir(proc);
    buffer_printf(out, "%zu process%s: %s%s", n, n == 1 ? "" : "es", names.failed || n == 0 ? "?" : names.data,
                  n > NAMED_MAX ? ", ..." : "");
    return n;
}
