/* A drawing goes from stage to stage, each of which reads all reports: of lags, when each number was first
 * made; what x there is, and which ranks are drawn; the buckets. Where what x and which ranks can be guessed
 * the buckets are made in one go with that, and only what was guessed wrong is made again. From then on a
 * drawing grows: new points are buckets of their own, which are folded when there are too many, so that a
 * bucket's ends are no longer exactly where the range is divided; when the run is over it is made anew, once.
 * Rows of a heat map cannot be folded so, as ranks are no longer told apart in them: those of a run that goes
 * on reach some way beyond its end, and are made anew when it comes to theirs. Counts of values take one pass.
 *
 * Whoever asks grows what is ready; what is not ready is the background's, which works on all of that together
 * without the lock (`at_work`): reading takes longer than drawing does, so a piece is read once for all who
 * need it. */
#include "view/drawings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "view/heat_cells.h"
#include "view/index.h"
#include "view/plot_lines.h"

enum {
    DRAWINGS_MOST = 32,
    DRAWINGS_BYTES = 8 << 20,
    GUESSED_BYTES = 8 << 20,
    DRAWINGS_KEPT_S = 60,
    CELLS_AHEAD = 8
};

enum drawing_stage {
    DRAWING_NEW,
    DRAWING_FIRSTS,
    DRAWING_MEASURE,
    DRAWING_FILL,
    DRAWING_GROW,
    DRAWING_REFUSED
};

/* What came of it. Which of lines, cells and counts there are the query's `what` says. */
struct drawn {
    struct view_line *lines; /* n_lines, owned; not NULL once it is made */
    size_t n_lines, n_ranks;
    struct heat_cells cells;    /* of VIEW_ROWS */
    struct value_counts counts; /* of VIEW_COUNTS */
    struct drawing_told told;
    double from, to;
    int64_t last;
};

struct drawing {
    struct drawing *next;
    char *key; /* what is asked for, as text; owned */
    struct view_query query;
    char *metric, *x; /* of the query; owned */
    struct idset ranks;
    enum made made;
    nanoseconds asked; /* monotonic */
    size_t bytes;
    bool ready, at_work;
    enum drawing_stage stage;
    /* What it is of: */
    nanoseconds began;
    size_t n_attempts;
    char *named;              /* x; owned */
    int64_t after, end, have; /* ids: where the reports lie that are read; up to `have` there are no others */
    /* What was read: */
    struct drawn now, shown; /* shown: while it is made anew; without lines: nothing */
    struct points_before before;
    struct plot_means means;
    struct idset seen, chosen; /* ranks that have points, those that are drawn */
    struct plot_lines making;  /* by a guess, until the ranks and the range are known */
    bool guessed, grown;
};

/* What the background works on, and with. */
struct drawing_work {
    struct drawing *items[DRAWINGS_MOST]; /* n */
    size_t n;
    const char *run_path;
    const struct view_index *index;
    const struct view_facts *facts;
    struct scan_rows *rows;
};

static void drop_making(struct drawing *drawing) {
    size_t n = 0;
    if (drawing->making.items == NULL) return;
    struct view_line *lines = plot_lines_end(&drawing->making, &n);
    plot_lines_free(lines, n);
}

static void drawn_done(struct drawn *drawn) {
    plot_lines_free(drawn->lines, drawn->n_lines);
    heat_cells_done(&drawn->cells);
    value_counts_done(&drawn->counts);
    *drawn = (struct drawn){0};
}

static void forget(struct drawing *drawing) {
    drop_making(drawing);
    drawn_done(&drawing->now);
    points_before_done(&drawing->before);
    idset_done(&drawing->seen);
    idset_done(&drawing->chosen);
    free(drawing->means.items);
    free(drawing->named);
    drawing->named = NULL;
    drawing->means = (struct plot_means){0};
    drawing->stage = DRAWING_NEW;
    drawing->ready = drawing->guessed = drawing->grown = false;
}

static void free_drawing(struct drawing *drawing) {
    if (drawing == NULL) return;
    forget(drawing);
    drawn_done(&drawing->shown);
    idset_done(&drawing->ranks);
    free(drawing->metric);
    free(drawing->x);
    free(drawing->key);
    free(drawing);
}

void drawings_init(struct drawings *drawings) {
    *drawings = (struct drawings){0};
    (void)pthread_mutex_init(&drawings->lock, NULL);
}

void drawings_clear(struct drawings *drawings) {
    (void)pthread_mutex_lock(&drawings->lock);
    while (drawings->first != NULL) {
        struct drawing *next = drawings->first->next;
        free_drawing(drawings->first);
        drawings->first = next;
    }
    scan_rows_done(&drawings->rows);
    (void)pthread_mutex_unlock(&drawings->lock);
}

void drawings_done(struct drawings *drawings) {
    drawings_clear(drawings);
    (void)pthread_mutex_destroy(&drawings->lock);
}

/* -- the list */

/* All that the drawing depends on, but for the run: names with their length in front, so that no two queries
 * have the same text, and numbers as the bits they are. */
static char *make_key(const struct view_query *query) {
    struct buffer key = {0};
    const char *x = query->x != NULL ? query->x : "";
    buffer_printf(&key, "%zu:%s %zu:%s %a %a %d %d %d %d ", strlen(query->metric), query->metric, strlen(x), x,
                  query->from, query->to, query->buckets, query->rows, (int)query->what, (int)query->history);
    if (query->ranks != NULL) {
        buffer_char(&key, '=');
        idset_format(query->ranks, &key);
    }
    if (!key.failed) return buffer_take(&key);
    buffer_done(&key);
    return NULL;
}

/* The drawing of the query, which comes to the front; NULL: there is none. */
static struct drawing *find(struct drawings *drawings, const char *key) {
    struct drawing **place = &drawings->first, *found;
    while (*place != NULL && !str_equal((*place)->key, key))
        place = &(*place)->next;
    found = *place;
    if (found == NULL) return NULL;
    *place = found->next;
    found->next = drawings->first;
    found->asked = clock_monotonic();
    drawings->first = found;
    return found;
}

static size_t most_buckets(const struct view_query *query) {
    return query->buckets > 0 ? (size_t)query->buckets : VIEW_BUCKETS;
}

/* The drawing that can best be done without: one that is not begun, or that nobody asked for lately. */
static struct drawing **find_old(struct drawings *drawings) {
    nanoseconds limit = clock_monotonic() - DRAWINGS_KEPT_S * NS_PER_S;
    struct drawing **old = NULL;
    for (struct drawing **place = &drawings->first; *place != NULL; place = &(*place)->next)
        if (!(*place)->at_work && ((*place)->stage == DRAWING_NEW || (*place)->asked < limit)) old = place;
    return old;
}

/* Drops drawings until there is room for one more. A single one may have more than all: else a run of very many
 * ranks would have none. */
static bool make_room(struct drawings *drawings, size_t bytes) {
    for (;;) {
        size_t n = 0, all = bytes;
        for (const struct drawing *drawing = drawings->first; drawing != NULL; drawing = drawing->next, n++)
            all += drawing->bytes;
        if (n == 0 || (n < DRAWINGS_MOST && all <= DRAWINGS_BYTES)) return true;
        struct drawing **old = find_old(drawings), *dropped = old != NULL ? *old : NULL;
        if (dropped == NULL) return false;
        *old = dropped->next;
        free_drawing(dropped);
    }
}

/* What lines take when all of their buckets are full. */
static size_t bytes_of(const struct view_query *query, size_t n_lines) {
    return n_lines * (query->history == VIEW_ALL ? 2 : 1) * most_buckets(query) * sizeof(struct view_bucket);
}

bool drawings_fit_cells(const struct view_query *query, size_t n_workers) {
    return bytes_of(query, n_workers) <= DRAWINGS_BYTES;
}

/* How much memory the drawing of a query takes. */
static size_t expect_bytes(const struct view_query *query, size_t n_workers) {
    if (query->what == VIEW_ROWS) return heat_cells_bytes(query, n_workers);
    if (query->what == VIEW_COUNTS) return VALUE_COUNTS_MAX * sizeof(struct value_count);
    size_t n = query->what == VIEW_BAND ? 1 : query->what == VIEW_RANKS ? VIEW_LINES_MAX : n_workers;
    if (query->ranks != NULL && idset_count(query->ranks) < n) n = idset_count(query->ranks);
    return bytes_of(query, n);
}

/* Takes the key. The query's texts and ranks are copied, as the drawing lives longer than who asked; its index
 * is not kept, as the work has it (drawing_work). */
static bool add(struct drawings *drawings, const struct view_query *query, size_t n_workers, char *key) {
    size_t bytes = expect_bytes(query, n_workers);
    struct drawing *drawing = make_room(drawings, bytes) ? calloc(1, sizeof *drawing) : NULL;
    CLEANUP(buffer_done) struct buffer ranks = {0};
    if (drawing == NULL) {
        free(key);
        return false;
    }
    drawing->key = key;
    drawing->bytes = bytes;
    drawing->asked = clock_monotonic();
    drawing->made = points_made(query->metric);
    drawing->query = *query;
    drawing->query.index = NULL;
    drawing->query.metric = drawing->metric = strdup(query->metric);
    if (query->x != NULL) drawing->query.x = drawing->x = strdup(query->x);
    bool copied = drawing->metric != NULL && (query->x == NULL || drawing->x != NULL);
    if (query->ranks != NULL) {
        buffer_text(&ranks, "");
        idset_format(query->ranks, &ranks);
        copied = copied && !ranks.failed && idset_parse(&drawing->ranks, ranks.data, NULL) == 0;
        drawing->query.ranks = &drawing->ranks;
    }
    if (!copied) {
        free_drawing(drawing);
        return false;
    }
    drawing->next = drawings->first;
    drawings->first = drawing;
    return true;
}

/* -- what is read */

/* Whether it is of the run as it stands now. */
static bool is_of(const struct drawing *drawing, const struct view_facts *facts, const char *x) {
    return drawing->began == facts->first && drawing->n_attempts == facts->n_attempts &&
           drawing->now.last <= (int64_t)facts->reports && str_equal(drawing->named, x);
}

static bool is_over(const struct view_facts *facts) {
    return facts->replay.end.event.time != 0;
}

/* What is not finite is told of what counts. */
static void note_nonfinite(struct drawing_told *told, const struct points *points) {
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (isfinite(point->value) || point->lost) continue;
        if (told->n_nonfinite++ == 0 || point->id < told->nonfinite.id) told->nonfinite = *point;
    }
}

/* Ends of the range that the query leaves open are those of all points. */
static void widen(struct drawing *drawing, const struct points *points) {
    if (points->n == 0) return;
    if (isnan(drawing->query.from) && !(points->from >= drawing->now.from)) drawing->now.from = points->from;
    if (isnan(drawing->query.to) && !(points->to <= drawing->now.to)) drawing->now.to = points->to;
}

/* Whether there is memory for lines of so many ranks: of more than are drawn no others have as many. */
static bool has_room(const struct drawing_work *work, const struct drawing *drawing, size_t n_ranks) {
    size_t bytes = bytes_of(&drawing->query, n_ranks);
    if (n_ranks <= VIEW_LINES_MAX || drawing->query.what == VIEW_CELLS) return true;
    for (size_t i = 0; i < work->n; i++)
        bytes += work->items[i]->making.n * work->items[i]->making.most * sizeof(struct view_bucket);
    return bytes <= GUESSED_BYTES;
}

/* Of a run that goes on, with some room behind its end. */
static int begin_cells(const struct drawing_work *work, struct drawing *drawing, size_t n_ranks, double to) {
    double from = drawing->now.from;
    if (!is_over(work->facts) && isnan(drawing->query.to)) to += (to - from) / CELLS_AHEAD;
    return heat_cells_begin(&drawing->now.cells, &drawing->query, n_ranks, from, to);
}

/* Lines of all ranks that there may be, from the lowest x of the first piece on to the highest that there is:
 * reports mostly come by rising x, and the ranks of a run end at the same. */
static int guess(const struct drawing_work *work, struct drawing *drawing) {
    const struct view_query *query = &drawing->query;
    double to = query->to;
    drawing->guessed = true;
    if (isnan(to) && drawing->made == MADE_LAG) to = drawing->now.to; /* which was measured with the firsts */
    if (isnan(to) && !index_end(work->index, query, drawing->made != MADE_NONE, &to)) return 0;
    if (query->what == VIEW_BAND) return plot_lines_begin(&drawing->making, query, NULL, drawing->now.from, to);
    if (query->what == VIEW_ROWS) return begin_cells(work, drawing, work->facts->replay.n_workers, to);
    size_t n = query->ranks != NULL ? idset_count(query->ranks) : work->facts->replay.n_workers;
    if (!has_room(work, drawing, n)) return 0;
    struct plot_means all = {.items = calloc(n + 1, sizeof *all.items), .n = n};
    int64_t rank = -1;
    if (all.items == NULL) return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        rank = query->ranks != NULL ? idset_next(query->ranks, rank) : (int64_t)i;
        all.items[i].rank = (int)rank;
    }
    int result = plot_lines_begin(&drawing->making, query, &all, drawing->now.from, to);
    free(all.items);
    return result;
}

/* False: not all of the points are in them: one came too late for its column, or lies out of the range that was
 * guessed. */
static bool add_cells(struct heat_cells *cells, const struct points *points) {
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (point->x < cells->from || point->x > cells->to) return false;
        if (isfinite(point->value) && !heat_cells_add(cells, point->rank, point->x, point->value, 1))
            return false;
    }
    return true;
}

/* Of lags that are not known yet, all but the values. */
static int measure(const struct drawing_work *work, struct drawing *drawing, const struct points *points) {
    enum view_what what = drawing->query.what;
    struct drawn *now = &drawing->now;
    widen(drawing, points);
    bool of_ranks = what != VIEW_BAND && what != VIEW_COUNTS;
    int result = of_ranks ? plot_means_add(&drawing->means, points) : 0;
    if (result < 0 || drawing->stage == DRAWING_FIRSTS) return result;
    note_nonfinite(&now->told, points);
    if (what == VIEW_COUNTS) return value_counts_add(&now->counts, points, drawing->query.ranks);
    if (!drawing->guessed && points->n > 0) result = guess(work, drawing);
    if (now->cells.means != NULL && !add_cells(&now->cells, points)) heat_cells_done(&now->cells);
    if (result < 0 || drawing->making.items == NULL) return result;
    return plot_lines_add(&drawing->making, points);
}

/* The line that takes the point; NULL: none does. */
static struct view_line *line_of(const struct drawing *drawing, const struct point *point) {
    for (size_t i = 0; i < drawing->now.n_lines; i++) {
        struct view_line *line = &drawing->now.lines[i];
        if (line->lost == point->lost && (line->rank < 0 || line->rank == point->rank)) return line;
    }
    return NULL;
}

/* Whether it is known that no line takes the point: its rank was not chosen. */
static bool is_left_out(const struct drawing *drawing, const struct point *point) {
    for (size_t i = 0; i < drawing->now.n_lines; i++)
        if (drawing->now.lines[i].rank == point->rank) return false;
    return idset_has(&drawing->seen, point->rank);
}

/* Each point becomes a bucket; those of one x are one. Twice as many buckets as are asked for are borne until
 * they are folded, so that this is not done for every few points. */
static int grow_line(struct drawing *drawing, struct view_line *line, const struct points *points) {
    size_t before = line->n;
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        if (line_of(drawing, point) != line) continue;
        struct view_bucket *bucket = plot_line_add(line);
        if (bucket == NULL) return -ENOMEM;
        view_bucket_add(bucket, point->x, point->value, point->rank, point->id);
    }
    if (line->n == before) return 0;
    plot_line_fold(line, drawing->now.from, drawing->now.to, SIZE_MAX);
    if (line->n > 2 * most_buckets(&drawing->query))
        plot_line_fold(line, drawing->now.from, drawing->now.to, most_buckets(&drawing->query));
    (void)ARRAY_RESIZE(line->buckets, line->n);
    return 0;
}

static int grow_counts(struct drawing *drawing, const struct points *points) {
    /* They are what they would be when made anew, but for lags, whose firsts may come later. */
    drawing->grown = drawing->grown || (points->n > 0 && drawing->made == MADE_LAG);
    return value_counts_add(&drawing->now.counts, points, drawing->query.ranks);
}

static int grow_cells(struct drawing *drawing, const struct points *points) {
    widen(drawing, points);
    drawing->grown = drawing->grown || points->n > 0;
    return add_cells(&drawing->now.cells, points) ? 0 : -EAGAIN;
}

/* -EAGAIN: the lines are no longer those that are to be drawn. */
static int grow(struct drawing *drawing, const struct points *points) {
    int result = 0;
    if (drawing->query.what == VIEW_COUNTS) return grow_counts(drawing, points);
    if (drawing->query.what == VIEW_ROWS) return grow_cells(drawing, points);
    for (size_t i = 0; i < points->n; i++)
        if (line_of(drawing, &points->items[i]) == NULL && !is_left_out(drawing, &points->items[i]))
            return -EAGAIN;
    widen(drawing, points);
    note_nonfinite(&drawing->now.told, points);
    for (size_t i = 0; i < drawing->now.n_lines && result == 0; i++)
        result = grow_line(drawing, &drawing->now.lines[i], points);
    drawing->grown = drawing->grown || points->n > 0;
    return result;
}

/* What a stage makes of the points of a piece. */
static int take_points(const struct drawing_work *work, struct drawing *drawing, const struct points *points) {
    switch (drawing->stage) {
    case DRAWING_FIRSTS:
    case DRAWING_MEASURE:
        return measure(work, drawing, points);
    case DRAWING_FILL:
        if (drawing->query.what == VIEW_ROWS) return add_cells(&drawing->now.cells, points) ? 0 : -E2BIG;
        return plot_lines_add(&drawing->making, points);
    case DRAWING_GROW:
        return grow(drawing, points);
    default:
        return 0;
    }
}

/* Up to `last`: of the rows that were read, or (NULL) as far as a piece goes. */
static int read_piece(const struct drawing_work *work, struct drawing *drawing, int64_t last, ty_error *err) {
    struct points points;
    struct view_query query = drawing->query;
    struct points_pass pass = {.run_path = work->run_path,
                               .query = &query,
                               .x = drawing->named,
                               .facts = work->facts,
                               .after = drawing->now.last,
                               .last = last,
                               .rows = work->rows,
                               .before = drawing->made != MADE_NONE ? &drawing->before : NULL};
    bool chosen = query.what == VIEW_RANKS || query.what == VIEW_CELLS;
    if (drawing->stage == DRAWING_FILL && chosen) query.ranks = &drawing->chosen;
    if (query.what == VIEW_COUNTS) query.ranks = NULL; /* which are counted beside all */
    int result = points_gather_next(&pass, &points, err);
    if (result < 0) return result;
    result = take_points(work, drawing, &points);
    points_done(&points);
    if (result == 0) drawing->now.last = pass.after;
    return result == -ENOMEM ? ty_fail_memory(err) : result;
}

/* -- stages */

/* A stage that reads all begins in front again, and of what was last of each rank nothing is known there; one
 * that grows goes on where the buckets end. */
static void begin_stage(struct drawing *drawing, enum drawing_stage stage) {
    drawing->stage = stage;
    if (stage < DRAWING_GROW) drawing->now.last = drawing->after;
    drawing->before.notes = stage == DRAWING_FIRSTS || stage == DRAWING_GROW;
    drawing->before.tells = stage != DRAWING_FIRSTS;
    for (size_t i = 0; i < drawing->before.n_last && stage < DRAWING_GROW; i++)
        drawing->before.last[i].rank = -1;
}

/* Of a range only the reports are read in which the index knows it to lie; made metrics need all. */
static int begin(const struct drawing_work *work, struct drawing *drawing, const char *x, ty_error *err) {
    const struct view_facts *facts = work->facts;
    struct index_span span;
    struct view_query query = drawing->query;
    forget(drawing);
    drawing->named = strdup(x);
    if (drawing->named == NULL) return ty_fail_memory(err);
    drawing->began = facts->first;
    drawing->n_attempts = facts->n_attempts;
    drawing->now.from = query.from;
    drawing->now.to = query.to;
    drawing->after = 0;
    drawing->end = drawing->have = (int64_t)facts->reports;
    bool zoomed = !isnan(query.from) || !isnan(query.to);
    if (zoomed && drawing->made == MADE_NONE && index_find(work->index, &query, &span) &&
        span.first <= span.last) {
        if (span.first > INDEX_MARGIN) drawing->after = span.first - INDEX_MARGIN;
        if (span.last + INDEX_MARGIN < span.have) {
            drawing->end = span.last + INDEX_MARGIN;
            drawing->have = span.have;
        }
    }
    begin_stage(drawing, drawing->made == MADE_LAG ? DRAWING_FIRSTS : DRAWING_MEASURE);
    return 0;
}

/* Lags have values only in a second pass, which is the last where these do not choose the ranks. */
static int end_firsts(struct drawing *drawing) {
    size_t n = 0;
    bool counts = drawing->query.what == VIEW_COUNTS;
    for (size_t rank = 0; rank < drawing->means.n; rank++)
        n += drawing->means.items[rank].there;
    if (!counts && (n <= VIEW_LINES_MAX || drawing->query.what != VIEW_RANKS)) return 1;
    free(drawing->means.items);
    drawing->means = (struct plot_means){0};
    begin_stage(drawing, DRAWING_MEASURE);
    return 0;
}

/* From now on it grows, from the last report on that there was when the passes began. */
static int end_fill(struct drawing *drawing) {
    drawing->now.lines = plot_lines_end(&drawing->making, &drawing->now.n_lines);
    if (drawing->now.lines == NULL) return -ENOMEM;
    begin_stage(drawing, DRAWING_GROW);
    drawing->now.last = drawing->have;
    return 0;
}

/* Whether the lines that were made by a guess are those that are to be drawn. */
static bool guessed_right(struct drawing *drawing) {
    struct plot_lines *making = &drawing->making;
    bool same = making->from <= drawing->now.from && making->from >= drawing->now.from &&
                making->to <= drawing->now.to && making->to >= drawing->now.to;
    if (making->items == NULL || (making->divided && !same)) return false;
    return drawing->query.what == VIEW_BAND || plot_lines_keep(making, &drawing->means);
}

/* Rows of all ranks are to be filled, unless they were by a guess that was right. */
static int end_measure_rows(const struct drawing_work *work, struct drawing *drawing) {
    struct heat_cells *cells = &drawing->now.cells;
    size_t n = drawing->means.n;
    double from = drawing->now.from, to = drawing->now.to;
    double ahead = is_over(work->facts) ? 0 : 2 * (to - from) / CELLS_AHEAD;
    bool right = cells->means != NULL && cells->n_ranks == n && cells->to - to <= ahead;
    free(drawing->means.items);
    drawing->means = (struct plot_means){0};
    if (right) return end_fill(drawing);
    heat_cells_done(cells);
    begin_stage(drawing, DRAWING_FILL);
    return begin_cells(work, drawing, n, to);
}

/* Which lines there are. */
static int end_measure(const struct drawing_work *work, struct drawing *drawing) {
    enum view_what what = drawing->query.what;
    int n = 0;
    if (what == VIEW_COUNTS) return end_fill(drawing);
    if (what == VIEW_ROWS) return end_measure_rows(work, drawing);
    for (size_t rank = 0; rank < drawing->means.n; rank++)
        if (drawing->means.items[rank].there && idset_add(&drawing->seen, (int64_t)rank) < 0) return -ENOMEM;
    if (what != VIEW_BAND)
        n = plot_means_choose(&drawing->means, what == VIEW_RANKS ? VIEW_LINES_MAX : SIZE_MAX);
    if (what == VIEW_CELLS && n > 0 && bytes_of(&drawing->query, (size_t)n) > DRAWINGS_BYTES) return -E2BIG;
    for (size_t i = 0; i < drawing->means.n && n >= 0; i++)
        if (idset_add(&drawing->chosen, drawing->means.items[i].rank) < 0) n = -ENOMEM;
    if (n < 0) return n;
    drawing->now.n_ranks = (size_t)n;
    int result = 1;
    if (!guessed_right(drawing)) {
        drop_making(drawing);
        result = plot_lines_begin(&drawing->making, &drawing->query, what != VIEW_BAND ? &drawing->means : NULL,
                                  drawing->now.from, drawing->now.to);
        begin_stage(drawing, DRAWING_FILL);
    }
    free(drawing->means.items);
    drawing->means = (struct plot_means){0};
    return result > 0 ? end_fill(drawing) : result;
}

/* -- in the background */

static bool is_wanted(const struct drawing *drawing, const struct view_facts *facts) {
    return drawing->ready ? drawing->grown && is_over(facts) : drawing->stage != DRAWING_REFUSED;
}

/* Those that are worked on together: what only has to catch up comes first; and of each made metric a few, as
 * these have memory that is not counted yet. */
static void choose(const struct drawings *drawings, struct drawing_work *work) {
    enum { MADE_TOGETHER = 3 };
    bool catches_up = false;
    size_t n_made[MADE] = {0};
    for (const struct drawing *drawing = drawings->first; drawing != NULL; drawing = drawing->next)
        catches_up = catches_up || (!drawing->ready && drawing->stage == DRAWING_GROW);
    for (int begun = 1; begun >= 0; begun--)
        for (struct drawing *drawing = drawings->first; drawing != NULL; drawing = drawing->next) {
            bool is_begun = !drawing->ready && drawing->stage != DRAWING_NEW, made = drawing->made != MADE_NONE;
            if (!is_wanted(drawing, work->facts) || is_begun != (begun > 0) || work->n == DRAWINGS_MOST ||
                (catches_up && (drawing->ready || drawing->stage != DRAWING_GROW)) ||
                (made && n_made[drawing->made] == MADE_TOGETHER))
                continue;
            if (made) n_made[drawing->made]++;
            work->items[work->n++] = drawing;
            if (!drawing->ready) continue;
            drawing->shown = drawing->now; /* until it is made anew */
            drawing->now = (struct drawn){0};
            forget(drawing);
        }
}

/* Up to which report its stage reads. */
static int64_t end_of(const struct drawing *drawing, const struct view_facts *facts) {
    return drawing->stage == DRAWING_GROW ? (int64_t)facts->reports : drawing->end;
}

/* By the rows up to `last`. */
static int go_on(const struct drawing_work *work, struct drawing *drawing, int64_t last, ty_error *err) {
    int64_t end = end_of(drawing, work->facts);
    int result = 0;
    if (drawing->stage == DRAWING_REFUSED) return 0;
    if (last > end) last = end;
    if (drawing->now.last < last) result = read_piece(work, drawing, last, err);
    if (result == 0 && drawing->now.last >= end && drawing->stage < DRAWING_GROW) {
        bool fills = drawing->stage == DRAWING_FILL;
        result = drawing->stage == DRAWING_FIRSTS ? end_firsts(drawing) : 1;
        if (result > 0) result = fills ? end_fill(drawing) : end_measure(work, drawing);
    }
    if (result < 0) forget(drawing); /* some of the points may have been taken */
    if (result == -E2BIG) drawing->stage = DRAWING_REFUSED;
    return result == -ENOMEM ? ty_fail_memory(err) : 0;
}

/* The piece that the last of them needs next, and who else needs some of it. */
static int make_pieces(const struct drawing_work *work, ty_error *err) {
    struct view_scan scan = {.after = INT64_MAX, .piece = true, .rows = work->rows};
    int result = 0;
    for (size_t i = 0; i < work->n && result == 0; i++) {
        struct drawing *drawing = work->items[i];
        const char *x = index_x(work->index, drawing->query.x);
        if (x == NULL) {
            forget(drawing);
            drawing->stage = DRAWING_REFUSED; /* no report of the run could be read */
        } else if (drawing->stage == DRAWING_NEW || drawing->ready || !is_of(drawing, work->facts, x)) {
            result = begin(work, drawing, x, err);
            if (result < 0) forget(drawing);
        }
        int64_t end = end_of(drawing, work->facts);
        if (drawing->stage == DRAWING_REFUSED || drawing->now.last >= end) continue;
        if (drawing->now.last < scan.after) scan.after = drawing->now.last;
        if (end > scan.last) scan.last = end;
    }
    if (result == 0 && scan.after < scan.last) result = view_scan(work->run_path, &scan, NULL, NULL, err);
    for (size_t i = 0; i < work->n && result == 0; i++)
        result = go_on(work, work->items[i], scan.last, err);
    return result;
}

/* `there`: how many reports there are. */
static double share_of(const struct drawing *drawing, uint64_t there) {
    int first = drawing->made == MADE_LAG ? DRAWING_FIRSTS : DRAWING_MEASURE,
        stage = (int)drawing->stage - first;
    double all = (double)(drawing->end - drawing->after), done = (double)(drawing->now.last - drawing->after);
    if (drawing->stage == DRAWING_GROW) return (double)drawing->now.last / (double)there;
    if (stage < 0 || drawing->stage > DRAWING_GROW) return 0;
    return ((double)stage + (all > 0 ? done / all : 0)) / (double)(DRAWING_GROW - first);
}

static size_t count_bytes(const struct drawing *drawing) {
    size_t n = drawing->before.n_last * sizeof *drawing->before.last +
               drawing->before.n_times * sizeof *drawing->before.firsts->times +
               drawing->now.counts.n * sizeof *drawing->now.counts.items;
    if (drawing->now.cells.means != NULL) n += heat_cells_bytes(&drawing->query, drawing->now.cells.n_ranks);
    for (size_t i = 0; i < drawing->now.n_lines; i++)
        n += drawing->now.lines[i].n * sizeof *drawing->now.lines[i].buckets;
    return n;
}

/* The lock is held while the list is looked through, before and behind the work: a drawing that is `at_work` is
 * the background's alone, and neither grown, dropped nor copied by others meanwhile. */
int drawings_step(struct drawings *drawings, const char *run_path, const struct view_index *index,
                  const struct view_facts *facts, double *share, ty_error *err) {
    struct drawing_work work = {.run_path = run_path, .index = index, .facts = facts, .rows = &drawings->rows};
    size_t n_ready = 0;
    (void)pthread_mutex_lock(&drawings->lock);
    choose(drawings, &work);
    for (size_t i = 0; i < work.n; i++)
        work.items[i]->at_work = true;
    (void)pthread_mutex_unlock(&drawings->lock);
    int result = make_pieces(&work, err);
    (void)pthread_mutex_lock(&drawings->lock);
    *share = 1;
    for (size_t i = 0; i < work.n; i++) {
        struct drawing *drawing = work.items[i];
        drawing->at_work = false;
        drawing->ready = drawing->stage == DRAWING_GROW && drawing->now.last >= (int64_t)facts->reports;
        n_ready += drawing->ready;
        if (drawing->ready) {
            drawing->bytes = count_bytes(drawing);
            drawn_done(&drawing->shown);
        }
        double own = share_of(drawing, facts->reports);
        if (drawing->stage != DRAWING_REFUSED && own < *share) *share = own;
    }
    if (n_ready > 0) *share = 1;
    bool more = false;
    for (const struct drawing *drawing = drawings->first; drawing != NULL && result >= 0 && !more;
         drawing = drawing->next)
        more = is_wanted(drawing, facts);
    (void)pthread_mutex_unlock(&drawings->lock);
    if (!more) scan_rows_done(&drawings->rows);
    return result < 0 ? result : more;
}

/* -- asked */

struct drawing_request drawings_request(const char *run_path, const struct view_query *query,
                                        const struct view_facts *facts) {
    return (struct drawing_request){run_path, query, facts,
                                    query->index != NULL ? index_x(query->index, query->x) : NULL};
}

static int copy_rest(const struct drawing *drawing, const struct drawn *drawn, struct drawing_answer *answer) {
    answer->told = drawn->told;
    if (drawing->query.what == VIEW_COUNTS) return value_counts_copy(&drawn->counts, &answer->counts);
    return drawing->query.what == VIEW_ROWS ? heat_cells_draw(&drawn->cells, drawn->to, &answer->heat) : 0;
}

/* A copy, as the drawing goes on to grow; with no more buckets than are asked for. */
static int copy_lines(const struct drawing *drawing, const struct drawn *drawn, struct view_series *series) {
    series->lines = calloc(drawn->n_lines + 1, sizeof *series->lines);
    if (series->lines == NULL) return -ENOMEM;
    for (size_t i = 0; i < drawn->n_lines; i++) {
        const struct view_line *from = &drawn->lines[i];
        struct view_line *line = &series->lines[series->n_lines++];
        *line = *from;
        line->buckets = calloc(from->n + 1, sizeof *line->buckets);
        if (line->buckets == NULL) return -ENOMEM;
        if (from->n > 0) memcpy(line->buckets, from->buckets, from->n * sizeof *line->buckets);
        plot_line_fold(line, drawn->from, drawn->to, most_buckets(&drawing->query));
    }
    return 0;
}

/* Grows one that is ready up to the newest report. 0: it is not to be gone by. */
static int renew(struct drawing *drawing, const struct drawing_request *request, ty_error *err) {
    int64_t there = (int64_t)request->facts->reports;
    int result = 0;
    if (!is_of(drawing, request->facts, request->x) || there - drawing->now.last > VIEW_WHOLE) {
        drawing->ready = false; /* it is the background's again */
        return 0;
    }
    const struct drawing_work work = {.run_path = request->run_path, .facts = request->facts};
    while (drawing->now.last < there && result == 0)
        result = read_piece(&work, drawing, there, err);
    if (result == 0) {
        drawing->bytes = count_bytes(drawing);
        return 1;
    }
    bool changed = result == -EAGAIN || result == -E2BIG;
    if (changed || result == -ENOMEM) forget(drawing); /* some of the points may have been taken */
    return changed ? 0 : result;
}

/* What is ready is grown under the lock: the next who asks for it waits, and need not read the same again.
 * While it is made anew what it was before is shown, unless there are newer reports. */
int drawings_take(struct drawings *drawings, const struct drawing_request *request, struct view_series *series,
                  struct drawing_answer *answer, ty_error *err) {
    CLEANUP_FREE char *key = make_key(request->query);
    int result = 0;
    if (key == NULL) return ty_fail_memory(err);
    (void)pthread_mutex_lock(&drawings->lock);
    struct drawing *drawing = find(drawings, key);
    const struct drawn *drawn = NULL;
    if (drawing != NULL && !drawing->at_work && drawing->ready) {
        result = renew(drawing, request, err);
        drawn = &drawing->now;
    } else if (drawing != NULL && drawing->shown.lines != NULL &&
               drawing->shown.last == (int64_t)request->facts->reports) {
        result = 1;
        drawn = &drawing->shown;
    }
    if (result > 0) {
        bool grown = drawn == &drawing->shown || drawing->grown;
        series->exact = !(grown && drawing->made == MADE_LAG); /* a number's first may still come */
        series->scanned = 1;
        series->x = request->x;
        series->n_ranks = drawn->n_ranks;
        series->behind = drawn == &drawing->shown || is_wanted(drawing, request->facts);
        if (copy_lines(drawing, drawn, series) < 0 || copy_rest(drawing, drawn, answer) < 0)
            result = ty_fail_memory(err);
    }
    (void)pthread_mutex_unlock(&drawings->lock);
    return result;
}

bool drawings_want(struct drawings *drawings, const struct drawing_request *request) {
    char *key = make_key(request->query);
    if (key == NULL) return false;
    (void)pthread_mutex_lock(&drawings->lock);
    const struct drawing *drawing = find(drawings, key);
    bool wanted = drawing == NULL ? add(drawings, request->query, request->facts->replay.n_workers, key)
                                  : drawing->at_work || drawing->stage != DRAWING_REFUSED;
    (void)pthread_mutex_unlock(&drawings->lock);
    if (drawing != NULL) free(key);
    return wanted;
}
