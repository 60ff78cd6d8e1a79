/* The live line: how a run stands, and workers' own progress bars above it. Written to standard error, the
 * progress line last. Redrawn when something changed, at most ten times a second, and once a second for the
 * clock; the timer runs only while something is shown. */
#include "controller/progress.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/metrics.h"
#include "base/str.h"
#include "controller/sink.h"

static const nanoseconds PLAIN_INTERVAL = 10 * NS_PER_S;
static const nanoseconds REDRAW_INTERVAL = 100 * NS_PER_MS;
enum { METRICS_WIDTH = 100 };

static void tick(void *context);

/* The live lines need to erase, and to go up. */
bool progress_draws_on(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && (term == NULL || !str_equal(term, "dumb"));
}

void progress_open(struct progress *progress, struct loop *loop, const struct run *run, const char *name,
                   enum progress_mode mode) {
    *progress = (struct progress){.loop = loop, .run = run, .name = name, .started = clock_monotonic()};
    progress->timer = (struct loop_timer){.callback = tick, .context = progress};
    if (mode == PROGRESS_PLAIN) progress->style = PROGRESS_STYLE_PLAIN;
    if (mode == PROGRESS_AUTO && progress_draws_on(STDERR_FILENO)) progress->style = PROGRESS_STYLE_LINE;
}

/* Names and values are a worker's: what could reach out of the line shows as '?'. */
static void add_name(const char *name, struct buffer *out) {
    size_t size = strlen(name);
    for (size_t at = 0; at < size;) {
        uint32_t character;
        int length = utf8_sequence(name + at, size - at, &character);
        if (length > 0 && utf8_is_harmless(character) && character != '\t')
            buffer_append(out, name + at, (size_t)length);
        else
            buffer_char(out, '?');
        at += length > 0 ? (size_t)length : 1;
    }
}

/* Columns of the character that begins there. Those from U+3000 on are counted as wide ones. */
static size_t take_character(const char *text, size_t size, size_t *at) {
    size_t wide = (unsigned char)text[*at] >= 0xe3 ? 2 : 1;
    for (++*at; *at < size && ((unsigned char)text[*at] & 0xc0) == 0x80;)
        ++*at;
    return wide;
}

/* Bytes of the text that fit into so many columns. */
static size_t fitting_size(const char *text, size_t size, size_t columns) {
    for (size_t at = 0, next = 0; at < size; at = next) {
        size_t wide = take_character(text, size, &next);
        if (columns < wide) return at;
        columns -= wide;
    }
    return size;
}

void progress_words(const char *metrics, size_t size, struct buffer *out) {
    json_t *object = metrics_read(metrics, size), *value;
    const char *key;
    size_t begin = out->size;
    json_object_foreach(object, key, value) {
        if (out->size - begin > METRICS_WIDTH) break;
        if (!json_is_number(value) && !json_is_string(value)) continue;
        buffer_text(out, out->size > begin ? "  " : "");
        add_name(key, out);
        buffer_char(out, ' ');
        if (json_is_string(value))
            add_name(json_string_value(value), out);
        else if (json_is_integer(value))
            buffer_printf(out, "%lld", (long long)json_integer_value(value));
        else
            buffer_printf(out, "%.4g", json_number_value(value));
    }
    json_decref(object);
}

void progress_metrics(struct progress *progress, const char *metrics, size_t size) {
    if (progress->style == PROGRESS_STYLE_QUIET) return;
    struct buffer text = {0};
    progress_words(metrics, size, &text);
    size_t shown = fitting_size(text.data, text.size, METRICS_WIDTH);
    (void)snprintf(progress->metrics, sizeof progress->metrics, "%.*s", (int)shown, shown > 0 ? text.data : "");
    buffer_done(&text);
}

void progress_report(struct progress *progress, uint32_t rank, uint32_t n_ranks, nanoseconds time) {
    if (progress->style == PROGRESS_STYLE_QUIET) return;
    /* A new attempt is perhaps of another size. */
    if (progress->pace == NULL || progress->attempt != run_attempt(progress->run)) {
        pace_destroy(progress->pace);
        progress->pace = pace_create(n_ranks);
    }
    if (progress->pace == NULL) return;
    progress->attempt = run_attempt(progress->run);
    pace_note(progress->pace, rank, time);
}

static void format_line(const struct progress *progress, struct buffer *out) {
    add_name(progress->name, out);
    buffer_text(out, "  ");
    duration_format_clock(clock_monotonic() - progress->started, out);
    buffer_text(out, "  ");
    uint32_t counts[WORKER_STATE_COUNT];
    run_count(progress->run, counts);
    const char *separator = "";
    for (int state = 0; state < WORKER_STATE_COUNT; state++) {
        if (counts[state] == 0) continue;
        buffer_printf(out, "%s%u %s", separator, counts[state], worker_state_name((enum worker_state)state));
        separator = ", ";
    }
    if (run_attempt(progress->run) > 1) buffer_printf(out, "  attempt %d", run_attempt(progress->run));
    /* "slowest: rank 3 (2.1x)" */
    struct pace_straggler straggler;
    if (progress->pace != NULL && pace_straggler(progress->pace, &straggler)) {
        nanoseconds usual = straggler.usual > 0 ? straggler.usual : 1;
        buffer_printf(out, "  slowest: rank %u (%.1fx)", straggler.rank,
                      (double)straggler.interval / (double)usual);
    }
    if (progress->metrics[0] != '\0') buffer_printf(out, "  %s", progress->metrics);
}

struct screen {
    size_t rows, columns;
};

static struct screen measure(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0) size = (struct winsize){0};
    return (struct screen){size.ws_row > 0 ? size.ws_row : 24, size.ws_col > 1 ? size.ws_col : 80};
}

/* Takes away what was drawn, from the bottom up. A terminal that has become narrower has broken lines since. */
static void add_erasure(struct progress *progress, size_t columns, struct buffer *out) {
    const size_t *widths = (const size_t *)(const void *)progress->widths.data;
    size_t rows = 0;
    for (size_t i = 0; i < progress->widths.size / sizeof *widths; i++)
        rows += widths[i] > columns ? (widths[i] + columns - 1) / columns : 1;
    buffer_text(out, "\r\033[2K");
    for (size_t i = 1; i < rows; i++)
        buffer_text(out, "\033[A\033[2K");
    buffer_clear(&progress->widths);
}

/* Cuts the line that begins there to one column less than there are, so that no terminal breaks it. */
static void end_drawn(struct progress *progress, size_t begin, size_t columns, struct buffer *out) {
    if (out->failed) return;
    for (size_t at = begin; at < out->size; at++)
        if (out->data[at] == '\t') out->data[at] = ' ';
    out->size = begin + fitting_size(out->data + begin, out->size - begin, columns - 1);
    size_t width = 0;
    for (size_t at = begin; at < out->size;)
        width += take_character(out->data, out->size, &at);
    buffer_append(&progress->widths, &width, sizeof width);
}

static void draw(struct progress *progress) {
    CLEANUP(buffer_done) struct buffer text = {0};
    struct screen screen = measure();
    const struct live *live = &progress->live;
    /* Workers' lines take at most half of the screen; how many there are beyond that is told. */
    size_t most = screen.rows / 2 > 0 ? screen.rows / 2 : 1;
    size_t shown = live->n <= most ? live->n : most - 1;
    add_erasure(progress, screen.columns, &text);
    for (size_t i = live->n - shown; i < live->n; i++) {
        size_t begin = text.size;
        buffer_append(&text, live->lines[i].text.data, live->lines[i].text.size);
        end_drawn(progress, begin, screen.columns, &text);
        buffer_char(&text, '\n');
    }
    size_t begin = text.size;
    if (shown < live->n) {
        buffer_printf(&text, "(%zu more lines of workers)", live->n - shown);
        end_drawn(progress, begin, screen.columns, &text);
        buffer_char(&text, '\n');
        begin = text.size;
    }
    format_line(progress, &text);
    end_drawn(progress, begin, screen.columns, &text);
    sink_say(&text);
    progress->visible = true;
    progress->shown = clock_monotonic();
    (void)loop_timer_start(progress->loop, &progress->timer, NS_PER_S);
}

/* Called at the end of every turn: mostly it finds that it is too early. The first line comes at once (shown
 * 0), and so does the next one after a tick of the clock. */
void progress_show(struct progress *progress) {
    nanoseconds since = clock_monotonic() - progress->shown;
    switch (progress->style) {
    case PROGRESS_STYLE_LINE:
        if (progress->within_line) break;
        if (since >= REDRAW_INTERVAL)
            draw(progress);
        else if (!progress->visible)
            (void)loop_timer_start(progress->loop, &progress->timer, REDRAW_INTERVAL - since);
        break;
    case PROGRESS_STYLE_PLAIN:
        if (progress->shown == 0 || since >= PLAIN_INTERVAL) {
            CLEANUP(buffer_done) struct buffer text = {0};
            buffer_text(&text, "trainyard: ");
            format_line(progress, &text);
            buffer_char(&text, '\n');
            sink_say(&text);
            progress->shown = clock_monotonic();
        }
        (void)loop_timer_start(progress->loop, &progress->timer, PLAIN_INTERVAL);
        break;
    default:
        break;
    }
}

static void tick(void *context) {
    struct progress *progress = context;
    progress->shown = 0;
    progress_show(progress);
}

void progress_hide(struct progress *progress) {
    if (!progress->visible) return;
    CLEANUP(buffer_done) struct buffer text = {0};
    add_erasure(progress, measure().columns, &text);
    sink_say(&text);
    progress->visible = false;
}

uint32_t progress_streams(const struct progress *progress) {
    if (progress->style != PROGRESS_STYLE_LINE) return 0;
    return (isatty(STDOUT_FILENO) ? 1U : 0U) | 2U;
}

/* The list is sorted: there are seldom more lines than a screen has rows. */
void progress_live(struct progress *progress, uint32_t rank, uint32_t stream, const void *text, size_t size) {
    if (progress->style != PROGRESS_STYLE_LINE) return;
    struct live *live = &progress->live;
    size_t at = 0;
    while (at < live->n &&
           (live->lines[at].rank < rank || (live->lines[at].rank == rank && live->lines[at].stream < stream)))
        at++;
    bool there = at < live->n && live->lines[at].rank == rank && live->lines[at].stream == stream;
    if (size == 0 && there) {
        buffer_done(&live->lines[at].text);
        memmove(live->lines + at, live->lines + at + 1, (--live->n - at) * sizeof *live->lines);
    }
    if (size > 0 && !there && ARRAY_GROW(live->lines, live->n) == 0) {
        memmove(live->lines + at + 1, live->lines + at, (live->n++ - at) * sizeof *live->lines);
        live->lines[at] = (struct live_line){.rank = rank, .stream = stream};
        there = true;
    }
    if (size > 0 && there) {
        buffer_clear(&live->lines[at].text);
        buffer_append(&live->lines[at].text, text, size);
    }
    nanoseconds since = clock_monotonic() - progress->shown;
    if (progress->visible && since < REDRAW_INTERVAL)
        (void)loop_timer_start(progress->loop, &progress->timer, REDRAW_INTERVAL - since);
}

/* A line of output that has not ended would be erased with the live lines: nothing is drawn until it has. */
void progress_wrote(struct progress *progress, int stream, uint8_t last) {
    if ((progress_streams(progress) >> (stream - 1) & 1) != 0) progress->within_line = last != '\n';
}

void progress_close(struct progress *progress) {
    progress_hide(progress);
    loop_timer_stop(progress->loop, &progress->timer);
    pace_destroy(progress->pace);
    progress->pace = NULL;
    for (size_t i = 0; i < progress->live.n; i++)
        buffer_done(&progress->live.lines[i].text);
    free(progress->live.lines);
    progress->live = (struct live){0};
    buffer_done(&progress->widths);
}
