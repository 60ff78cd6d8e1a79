/* Journals for the tests of view, written as a controller writes them, and how what is made of them is read. */
#ifndef VIEW_WORLD_H
#define VIEW_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "journal/journal.h"
#include "view/index.h"
#include "view/series.h"

/* When the first event of each was. */
#define VIEW_WORLD_BEGAN (INT64_C(1700000000) * NS_PER_S)

/* A directory for a run; it and what is in it go with view_world_remove. */
void view_world_make(char path[64]);
void view_world_remove(const char *path);

struct journal *view_world_open(const char *path, int workers);
void view_world_event(struct journal *journal, nanoseconds after, enum run_event_kind kind, int attempt,
                      int rank, const char *data);
void view_world_report(struct journal *journal, nanoseconds after, int attempt, int rank, uint64_t number,
                       const char *metrics);
void view_world_close(struct journal *journal);

/* A: one attempt of 8 ranks, 1,000 reports each; 99 at rank 5, number 500, NaN at rank 2, number 700, and rank
 * 3 is 40 ms late from 600 on. */
void view_world_a(const char *path);
/* B: 2 ranks; attempt 1 reports 150, its checkpoint 100 is committed; attempt 2 goes on from it with 151 to
 * 250. */
void view_world_b(const char *path);

/* A and B, for all tests of a file. */
extern char a_path[64], b_path[64];
int set_up(void **state);
int tear_down(void **state);

/* More reports than are read whole: 8 ranks, 10,000 numbers; 99 at every number that 1,000 divides, NaN behind
 * it. */
void write_large(const char *path, bool ends);

/* Two attempts, of which the second goes on from a checkpoint of the first. Half of the reports have a second
 * metric in front, some have it alone, some lack the epoch, and some values are no numbers. `expected` is what
 * "loss" comes to over each x: what counts, and what was lost. */
enum { UNLIKE_RANKS = 6, UNLIKE_NUMBERS = 6000, UNLIKE_KEPT = 4001, UNLIKE_XS = 5 };
extern const char *const unlike_xs[UNLIKE_XS];
void write_unlike(const char *path, struct view_bucket expected[2][UNLIKE_XS]);

void assert_near(double expected, double found);
struct view_series read_series(const char *path, const struct view_query *query);
/* "attempt 2@101 checkpoint_000100@100" */
void assert_marks(const struct view_query *query, const char *path, const char *expected);
/* All of it, drawings that are asked for too. */
void grow(struct view_index *index);

json_t *parse(const struct buffer *text);
double number_of(const json_t *tree, const char *key);
const char *text_of(const json_t *tree, const char *key);

#endif
