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
    double first;             /* of a counter: its least in the whole run */
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
/* For people: "31 %", "58.2 GiB", "412 W", "12.4 MiB/s". */
void view_usage_text(enum usage_what what, double value, struct buffer *out);
/* {"nodes": [{"node", "name", "at", "stale", "last": [{"what", "number", "value", "unit", "text"}]}]} and, for
 * counters, "total" beside their rate; of `only` that node, NULL: of all. */
void view_usage_encode(const struct view_usage *usage, const char *only, struct buffer *out);

struct view_usage_query {
    const char *node; /* NULL: all */
    const char *what; /* a name of usage.h; a counter gives its rate */
    double from, to;  /* wall seconds; NAN: any */
    int buckets;      /* 1 to VIEW_BUCKETS_MAX */
};

/* {"series": [{"node", "what", "number", "unit", "x", "x_last", "n", "min", "mean", "max"}]}, columns of
 * numbers; buckets as those of view/series.h, by wall seconds. */
int view_usage_series(const char *run_path, const struct view_usage_query *query, struct buffer *out,
                      ty_error *err);

#endif
