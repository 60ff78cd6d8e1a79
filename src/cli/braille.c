/* A drawing in characters for `trainyard metrics`: a canvas of dots. A column of them shows the buckets whose x
 * fall into it, from the least to the greatest value, and their means are joined. What is drawn, and with which
 * axes, is the caller's. */
#include "cli/braille.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

enum { DOTS_ACROSS = 2, DOTS_DOWN = 4, SCALE_COLUMNS = 11 };

struct braille_canvas {
    size_t columns, rows;
    unsigned char *cells; /* bits of the pattern; owned */
};

struct braille_size braille_terminal(size_t rows) {
    struct winsize window = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    locale_t user = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    bool utf8 = user != (locale_t)0 && strcmp(nl_langinfo_l(CODESET, user), "UTF-8") == 0;
    if (user != (locale_t)0) freelocale(user);
    size_t columns = known ? window.ws_col : 80;
    return (struct braille_size){columns > 200 ? 200 : columns, rows, !utf8};
}

/* Unicode numbers the dots of a pattern down its columns, but for the lowest row, which came later: 1 2 3 7 and
 * 4 5 6 8; dot n is bit n - 1 behind U+2800. */
static void set_dot(struct braille_canvas *canvas, size_t x, size_t y) {
    static const unsigned char bits[DOTS_DOWN][DOTS_ACROSS] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x >= canvas->columns * DOTS_ACROSS || y >= canvas->rows * DOTS_DOWN) return;
    canvas->cells[y / DOTS_DOWN * canvas->columns + x / DOTS_ACROSS] |= bits[y % DOTS_DOWN][x % DOTS_ACROSS];
}

struct braille_scale {
    double min, max, from, to;
};

/* The place of a value among n dots from `from` to `to`; in the middle where these are one. */
static size_t dot_of(double value, double from, double to, size_t n) {
    double half = to / 2 - from / 2; /* of the range, which may be beyond a double */
    double at = half > 0 ? (value / 2 - from / 2) / half * (double)(n - 1) : (double)(n - 1) / 2;
    if (!(at > 0)) return 0; /* the mean of values at the ends of a double may be beyond one */
    return at < (double)(n - 1) ? (size_t)(at + 0.5) : n - 1;
}

/* Compared by !(a >= b), which takes the first number in place of NaN. Buckets without a number count for the
 * axis all the same: a curve that has gaps at its ends shows them. */
static bool find_scale(const struct view_line *line, struct braille_scale *scale) {
    *scale = (struct braille_scale){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    for (size_t i = 0; i < line->n; i++) {
        const struct view_bucket *bucket = &line->buckets[i];
        if (isnan(scale->from)) scale->from = bucket->x;
        scale->to = bucket->x_last;
        if (bucket->n == 0) continue;
        if (!(bucket->min >= scale->min)) scale->min = bucket->min;
        if (!(bucket->max <= scale->max)) scale->max = bucket->max;
    }
    return !isnan(scale->min);
}

/* In each column the line of the means is drawn from the mean before to its own, so that a steep curve has no
 * gaps; the least and the greatest value are a dot each. */
static void draw(struct braille_canvas *canvas, const struct view_line *line,
                 const struct braille_scale *scale) {
    size_t width = canvas->columns * DOTS_ACROSS, height = canvas->rows * DOTS_DOWN, before = SIZE_MAX;
    for (size_t i = 0; i < line->n; i++) {
        const struct view_bucket *bucket = &line->buckets[i];
        if (bucket->n == 0) continue;
        size_t x = dot_of(bucket->x, scale->from, scale->to, width);
        size_t mean = height - 1 - dot_of(bucket->sum / (double)bucket->n, scale->min, scale->max, height);
        size_t low = before == SIZE_MAX || before > mean ? mean : before;
        size_t high = before == SIZE_MAX || before < mean ? mean : before;
        for (size_t y = low; y <= high; y++)
            set_dot(canvas, x, y);
        set_dot(canvas, x, height - 1 - dot_of(bucket->min, scale->min, scale->max, height));
        set_dot(canvas, x, height - 1 - dot_of(bucket->max, scale->min, scale->max, height));
        before = mean;
    }
}

/* An end of the axis: of wall time as the clock of this machine shows it. */
static void format_end(const char *x, double value, bool same_day, char text[32]) {
    time_t seconds = fabs(value) < 0x1p62 ? (time_t)value : 0;
    struct tm local;
    if (!str_equal(x, "time") || localtime_r(&seconds, &local) == NULL)
        (void)snprintf(text, 32, "%.6g", value);
    else
        (void)strftime(text, 32, same_day ? "%H:%M:%S" : "%Y-%m-%d %H:%M", &local);
}

void braille_plot(const struct view_line *line, const char *title, const char *x, struct braille_size size,
                  struct buffer *out) {
    struct braille_scale scale;
    utf8_escape(title, strlen(title), out);
    buffer_char(out, '\n');
    if (!find_scale(line, &scale)) {
        buffer_text(out, "  no numbers\n");
        return;
    }
    struct braille_canvas canvas = {
        .columns = size.columns > SCALE_COLUMNS + 10 ? size.columns - SCALE_COLUMNS - 1 : 10,
        .rows = size.rows > 2 ? size.rows - 2 : 1};
    canvas.cells = calloc(canvas.columns * canvas.rows, 1);
    if (canvas.cells == NULL) {
        out->failed = true;
        return;
    }
    draw(&canvas, line, &scale);
    const unsigned char upper = 0x01 | 0x08 | 0x02 | 0x10;
    for (size_t row = 0; row < canvas.rows; row++) {
        bool first = row == 0, last = row + 1 == canvas.rows;
        if (first || last)
            buffer_printf(out, "%10.4g ", first ? scale.max : scale.min);
        else
            buffer_printf(out, "%*s", SCALE_COLUMNS, "");
        for (size_t column = 0; column < canvas.columns; column++) {
            unsigned char bits = canvas.cells[row * canvas.columns + column];
            const char plain = bits == 0                ? ' '
                               : (bits & upper) == bits ? '\''
                               : (bits & upper) == 0    ? '.'
                                                        : ':';
            const char pattern[] = {(char)0xe2, (char)(0xa0 | bits >> 6), (char)(0x80 | (bits & 0x3f))};
            buffer_append(out, size.ascii ? &plain : pattern, size.ascii ? 1 : sizeof pattern);
        }
        buffer_char(out, '\n');
    }
    enum { DAY = 24 * 60 * 60 };
    char from[32], last[32], to[96];
    format_end(x, scale.from, scale.to - scale.from < DAY, from);
    format_end(x, scale.to, scale.to - scale.from < DAY, last);
    (void)snprintf(to, sizeof to, "%.40s %s", x, last);
    buffer_printf(out, "%*s%s%*s\n", SCALE_COLUMNS, "", from, (int)(canvas.columns - strlen(from)), to);
    free(canvas.cells);
}

void braille_sparkline(const struct view_line *line, size_t columns, bool ascii, struct buffer *out) {
    static const char *const bars[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char plain[] = "_.-=*%#@";
    struct braille_scale scale = {(double)NAN, (double)NAN, 0, 0};
    CLEANUP_FREE double *means = calloc(columns + 1, sizeof *means);
    for (size_t i = 0; means != NULL && i < columns; i++)
        means[i] = (double)NAN;
    for (size_t i = 0; means != NULL && i < line->n; i++) {
        const struct view_bucket *bucket = &line->buckets[i];
        if (bucket->n == 0) continue;
        double mean = bucket->sum / (double)bucket->n;
        means[i * columns / line->n] = mean;
        if (!(mean >= scale.min)) scale.min = mean;
        if (!(mean <= scale.max)) scale.max = mean;
    }
    for (size_t i = 0; means != NULL && i < columns; i++) {
        size_t level = isnan(means[i]) ? 0 : dot_of(means[i], scale.min, scale.max, 8);
        if (isnan(means[i]))
            buffer_char(out, ' ');
        else if (ascii)
            buffer_char(out, plain[level]);
        else
            buffer_text(out, bars[level]);
    }
}
