/* Journals for the tests of view: written as a controller writes them. */
#ifndef VIEW_WORLD_H
#define VIEW_WORLD_H

#include <stdint.h>

#include "base/duration.h"
#include "journal/journal.h"

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

#endif
