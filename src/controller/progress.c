/* Written to standard error. Redrawn when something changed, at most ten times a second, and once a second for
 * the clock; the timer runs only while a line is shown. */
#include "controller/progress.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/utf8.h"

static const nanoseconds PLAIN_INTERVAL = 10 * NS_PER_S;
static const nanoseconds REDRAW_INTERVAL = 100 * NS_PER_MS;
enum { METRICS_WIDTH = 100 };

static void tick(void *context);

void progress_open(struct progress *progress, struct loop *loop, const struct run *run, const char *name,
                   enum progress_mode mode) {
    *progress = (struct progress){.loop = loop, .run = run, .name = name, .started = clock_monotonic()};
    progress->timer = (struct loop_timer){.callback = tick, .context = progress};
    if (mode == PROGRESS_PLAIN) progress->style = PROGRESS_STYLE_PLAIN;
    if (mode == PROGRESS_AUTO && isatty(STDERR_FILENO)) progress->style = PROGRESS_STYLE_LINE;
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

/* "loss 0.31  step 40" */
static void format_metrics(const json_t *object, struct buffer *out) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (out->size > METRICS_WIDTH) break;
        if (!json_is_number(value) && !json_is_string(value)) continue;
        buffer_text(out, out->size > 0 ? "  " : "");
        add_name(key, out);
        buffer_char(out, ' ');
        if (json_is_string(value))
            add_name(json_string_value(value), out);
        else
            buffer_printf(out, "%.4g", json_number_value(value));
    }
}

/* Bytes of the text that fit into so many columns. Characters from U+3000 on are counted as wide ones. */
static size_t fitting_size(const char *text, size_t size, size_t columns) {
    size_t at = 0;
    while (at < size) {
        size_t wide = (unsigned char)text[at] >= 0xe3 ? 2 : 1;
        size_t next = at + 1;
        while (next < size && ((unsigned char)text[next] & 0xc0) == 0x80)
            next++;
        if (columns < wide) break;
        columns -= wide;
        at = next;
    }
    return at;
}

void progress_metrics(struct progress *progress, const char *metrics, size_t size) {
    if (progress->style == PROGRESS_STYLE_QUIET) return;
    struct buffer text = {0};
    json_t *object = json_loadb(metrics, size, 0, NULL);
    if (object != NULL) format_metrics(object, &text);
    json_decref(object);
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

/* "slowest: rank 3 (2.1x)" */
static void format_straggler(const struct progress *progress, struct buffer *out) {
    struct pace_straggler straggler;
    if (progress->pace == NULL || !pace_straggler(progress->pace, &straggler)) return;
    nanoseconds usual = straggler.usual > 0 ? straggler.usual : 1;
    buffer_printf(out, "  slowest: rank %u (%.1fx)", straggler.rank,
                  (double)straggler.interval / (double)usual);
}

static void format_states(const struct progress *progress, struct buffer *out) {
    uint32_t counts[WORKER_STATE_COUNT];
    run_count(progress->run, counts);
    const char *separator = "";
    for (int state = 0; state < WORKER_STATE_COUNT; state++) {
        if (counts[state] == 0) continue;
        buffer_printf(out, "%s%u %s", separator, counts[state], worker_state_name((enum worker_state)state));
        separator = ", ";
    }
}

static void format_line(const struct progress *progress, struct buffer *out) {
    nanoseconds elapsed = (clock_monotonic() - progress->started) / NS_PER_S;
    add_name(progress->name, out);
    buffer_printf(out, "  %02lld:%02lld  ", (long long)elapsed / 60, (long long)elapsed % 60);
    format_states(progress, out);
    if (run_attempt(progress->run) > 1) buffer_printf(out, "  attempt %d", run_attempt(progress->run));
    format_straggler(progress, out);
    if (progress->metrics[0] != '\0') buffer_printf(out, "  %s", progress->metrics);
}

static size_t terminal_width(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

static void write_text(struct buffer *text) {
    if (!text->failed) (void)file_write_all(STDERR_FILENO, text->data, text->size);
    buffer_done(text);
}

static void draw_line(struct progress *progress) {
    struct buffer text = {0};
    buffer_text(&text, "\r\033[2K");
    size_t begin = text.size;
    format_line(progress, &text);
    if (!text.failed)
        text.size = begin + fitting_size(text.data + begin, text.size - begin, terminal_width() - 1);
    write_text(&text);
    progress->visible = true;
    progress->shown = clock_monotonic();
    (void)loop_timer_start(progress->loop, &progress->timer, NS_PER_S);
}

static void print_line(struct progress *progress) {
    struct buffer text = {0};
    buffer_text(&text, "trainyard: ");
    format_line(progress, &text);
    buffer_char(&text, '\n');
    write_text(&text);
    progress->shown = clock_monotonic();
}

void progress_show(struct progress *progress) {
    nanoseconds since = clock_monotonic() - progress->shown;
    switch (progress->style) {
    case PROGRESS_STYLE_LINE:
        if (!progress->visible || since >= REDRAW_INTERVAL) draw_line(progress);
        break;
    case PROGRESS_STYLE_PLAIN:
        if (progress->shown == 0 || since >= PLAIN_INTERVAL) print_line(progress);
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
    static const char erase[] = "\r\033[2K";
    if (!progress->visible) return;
    (void)file_write_all(STDERR_FILENO, erase, sizeof erase - 1);
    progress->visible = false;
}

void progress_close(struct progress *progress) {
    progress_hide(progress);
    loop_timer_stop(progress->loop, &progress->timer);
    pace_destroy(progress->pace);
    progress->pace = NULL;
}
