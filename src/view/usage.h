/* Samples of the hardware as people and programs look at them: what each node said last, and a series of one
 * thing. Counters are looked at by their rates. */
#ifndef VIEW_USAGE_H
#define VIEW_USAGE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"
#include "usage/usage.h"

/* Of one thing of one node. */
struct view_usage_last {
    enum usage_what what;
    int number;               /* rank or device; -1: the node */
    double value;             /* as sampled */
    double rate;              /* of a counter, per second; NAN where it was seen once, and of a gauge */
    nanoseconds time, before; /* of the last two samples, wall; 0: there was one */
    double first;             /* of a counter: what it stood at when the run began, or its node came */
};

struct view_usage_node {
    char *name; /* owned */
    nanoseconds at;
    bool stale;                    /* nothing came for three periods */
    struct view_usage_last *items; /* owned */
    size_t n;
    size_t likely; /* which item the next row is of: those of a time come in the same order each time */
};

struct view_usage {
    struct view_usage_node *nodes; /* owned; in the order of their names */
    size_t n;
};

/* `now`: by which a node is stale, as wall time; 0 for a run that has ended. -ENOENT where none were kept. */
int view_usage_read(const char *run_path, nanoseconds now, struct view_usage *usage, ty_error *err);
void view_usage_done(struct view_usage *usage);

/* What is looked at: the rate of a counter, the value of a gauge; NAN where it is not known. */
double view_usage_shown(const struct view_usage_last *last);
/* What a counter grew by in the run; 0 where it began anew, as the node did. */
double view_usage_total(const struct view_usage_last *last);
/* For people: "31 %", "58.2 GiB", "412 W", "12.4 MiB/s". */
void view_usage_text(enum usage_what what, double value, struct buffer *out);
/* {"nodes": [{"node", "name", "at", "stale", "last": [{"what", "number", "value", "unit", "text"}]}]} and, for
 * counters, "total" beside their rate; of `only` that node, NULL: of all. */
void view_usage_encode(const struct view_usage *usage, const char *only, struct buffer *out);

/* -- lines over time (usage_lines.c) */

/* What becomes one line. Of several nodes or devices it is a band: the least, mean and greatest of all. */
#define VIEW_USAGE_OVER(X)     \
    X(VIEW_USAGE_EACH, "each") \
    X(VIEW_USAGE_NODE, "node") \
    X(VIEW_USAGE_ALL, "all")   \
    X(VIEW_USAGE_OVER_N, NULL)

enum view_usage_over {
#define X(name, text) name,
    VIEW_USAGE_OVER(X)
#undef X
};

enum view_usage_over view_usage_over_of(const char *text); /* VIEW_USAGE_OVER_N: there is none of this name */

struct view_usage_query {
    const char *node; /* NULL: all */
    const char *what; /* a name of usage.h; a counter gives its rate */
    enum view_usage_over over;
    double from, to; /* wall seconds; NAN: any */
    int buckets;     /* 1 to VIEW_BUCKETS_MAX */
};

struct view_usage_point {
    double x, x_last, min, mean, max; /* wall seconds */
    int64_t n;
};

struct view_usage_line {
    char *node;                      /* owned; NULL: all nodes */
    int number;                      /* -1: the node, or all of it */
    struct view_usage_point *points; /* owned, by x */
    size_t n;
};

enum { VIEW_USAGE_LINES = 256 };

struct view_usage_lines {
    enum usage_what what;
    struct view_usage_line *items; /* owned; VIEW_USAGE_LINES at most */
    size_t n, n_all;               /* n_all: how many there would be */
};

/* -ENOENT where no samples were kept. */
int view_usage_lines_read(const char *run_path, const struct view_usage_query *query,
                          struct view_usage_lines *lines, ty_error *err);
void view_usage_lines_done(struct view_usage_lines *lines);
/* {"lines": how many there are, "series": [{"node", "what", "number", "unit", "x", "x_last", "n", "min",
 * "mean", "max"}]}, columns of numbers; node and number are null where the line is of all. */
void view_usage_lines_encode(const struct view_usage_lines *lines, struct buffer *out);

#endif
