/* A sorted list: there are seldom more lines than a screen has rows, and none where nothing is drawn. */
#include "controller/progress.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int compare(const struct live_line *line, uint32_t rank, uint32_t stream) {
    if (line->rank != rank) return line->rank < rank ? -1 : 1;
    return (line->stream > stream) - (line->stream < stream);
}

static struct live_line *put_in(struct live *live, size_t at) {
    if (ARRAY_GROW(live->lines, live->n) < 0) return NULL;
    memmove(live->lines + at + 1, live->lines + at, (live->n++ - at) * sizeof *live->lines);
    live->lines[at] = (struct live_line){0};
    return &live->lines[at];
}

void live_set(struct live *live, uint32_t rank, uint32_t stream, const void *text, size_t size) {
    size_t at = 0;
    while (at < live->n && compare(&live->lines[at], rank, stream) < 0)
        at++;
    bool there = at < live->n && compare(&live->lines[at], rank, stream) == 0;
    if (size == 0) {
        if (there) {
            buffer_done(&live->lines[at].text);
            memmove(live->lines + at, live->lines + at + 1, (--live->n - at) * sizeof *live->lines);
        }
        return;
    }
    struct live_line *line = there ? &live->lines[at] : put_in(live, at);
    if (line == NULL) return;
    line->rank = rank;
    line->stream = stream;
    buffer_clear(&line->text);
    buffer_append(&line->text, text, size);
}

void live_clear(struct live *live) {
    for (size_t i = 0; i < live->n; i++)
        buffer_done(&live->lines[i].text);
    free(live->lines);
    *live = (struct live){0};
}
