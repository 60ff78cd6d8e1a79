/* Bundles of one kind, seen from the planner: what they want as places in a node's amounts, which nodes they
 * fit, and the best of these (docs/spec/placement.md 3.2 step 4 and 3.6). Kinds are remembered from decision to
 * decision, each with a tournament over the classes that follows their log, so that the best class is known
 * without looking at all of them. */
#ifndef PLACEMENT_KIND_H
#define PLACEMENT_KIND_H

#include "placement/classes.h"
#include "placement/planner.h"

struct wanted {
    char *name;
    quantity amount;
    bool device;
};

/* What a class is worth to a kind; the tournament compares these alone, for the classes themselves lie far
 * apart. */
struct score {
    double score;   /* negative: does not fit */
    uint32_t tier;  /* of the class */
    uint32_t first; /* its lowest node */
};

struct kind {
    uint64_t hash;
    struct kind *chain;
    struct wanted *wanted; /* by name, no zeros */
    size_t n_wanted;
    struct label_selector selector;
    int64_t times; /* that many on one node at once: STRICT_PACK of alike bundles */
    bool loose;    /* a sum of unlike bundles: devices are compared by their sum only */

    uint32_t *shapes; /* those whose totals and labels suffice, ascending */
    uint16_t *bound;  /* for each of them, n_wanted indices into the shape's total */
    uint32_t n_shapes, n_all_shapes;

    struct score *scores; /* of each class, by slot */
    uint32_t *winner;     /* tournament, leaves from `leaves` on; NONE where nothing fits */
    uint32_t leaves;
    uint64_t seen; /* how far of the classes' log is in it */
};

enum { KIND_BUCKETS = 1024 };

struct kind_table {
    struct kind *buckets[KIND_BUCKETS];
    size_t n;
    size_t bytes; /* of all tournaments */
};

void kind_table_done(struct kind_table *table);
/* Forgets all kinds when there are many of them; those in use must not be needed any more. */
void kind_table_trim(struct kind_table *table);

/* The kind, found again or made; NULL when memory is short. */
struct kind *kind_find(struct kind_table *table, const struct classes *classes,
                       const struct bundle_kind *bundle, int64_t times, bool loose);

/* Order of placing (3.2 step 3): negative when `a` goes first, 0 when they want the same. */
int kind_order(const struct kind *a, const struct kind *b);

/* Indices into the shape's total, or NULL when nodes of the shape never fit. */
const uint16_t *kind_bound(const struct kind *kind, uint32_t shape);

/* How many such bundles fit a node of this class, at most `limit`. */
int64_t kind_count(const struct kind *kind, const struct classes *classes, uint32_t slot, int64_t limit);

/* The same for a node in some state. */
struct node_view {
    uint32_t shape;
    const quantity *amounts;
    const uint16_t *devices;
};
int64_t kind_count_on(const struct kind *kind, const struct classes *classes, const struct node_view *state,
                      int64_t limit);

/* Index in a shape's total of the resource that serves `want` (the same name, or another name of the same
 * accelerator type); total->n for none. */
size_t kind_resource_index(const struct resources *total, const char *want);

/* The node that is the best for the kind, unused ones first; NONE when nothing fits. -ENOMEM is answered in
 * `*failed`. `keep` is false for one of very many kinds, for which a tournament does not pay. */
uint32_t kind_best(struct kind *kind, struct kind_table *table, const struct classes *classes, bool keep,
                   int *failed);

/* The open node: whether one more bundle fits, the grant of one (positions of its devices, in order of the
 * resources' names), and its return. */
bool open_node_fits(const struct classes *classes, const struct kind *kind);
void open_node_grant(struct classes *classes, const struct kind *kind, uint16_t *positions);
void open_node_return(struct classes *classes, const struct kind *kind, const uint16_t *positions);

/* How many device positions a bundle of these resources is granted, and a return that needs no kind, so that it
 * cannot fail. */
size_t resources_positions(const struct resources *resources);
void open_node_return_resources(struct classes *classes, const struct resources *resources,
                                const uint16_t *positions);

#endif
