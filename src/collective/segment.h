/* The memory that the ranks of one machine share for a communicator. All calls are made in it: segment.c makes
 * it, waits, and has the streams of the messages; rounds.c does the collective calls.
 *
 * A memory file without a name, which rank 0 makes and the others open through /proc: nothing is left of it
 * when its processes are gone. Each rank writes its own seat only, but for the bells. A rank that waits looks
 * for a while, lets others run, and then sleeps on the bell of its seat, which is rung by the ranks for which
 * it waits; now and then it also looks whether those still live. Nothing moves but in calls: there is no
 * thread. */
#ifndef COLLECTIVE_SEGMENT_H
#define COLLECTIVE_SEGMENT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "collective/way.h"

enum { CACHE_LINE = 64, SEAT_BYTES = 24, SMALL_BYTES = 16 << 10 };

/* What a rank tells the others of a call, with its data where those are few. Two take turns: nobody makes the
 * call after the next before all have made the next, and so are done with this one. */
struct posting {
    alignas(CACHE_LINE) _Atomic uint32_t number; /* of the call, from 1; written last */
    struct comm_call call;
    char data[SEAT_BYTES];
};

struct seat {
    struct posting postings[2];
    alignas(CACHE_LINE) _Atomic uint32_t rounds; /* of calls with much data: how many this rank has done */
    alignas(CACHE_LINE) _Atomic uint32_t bell;   /* counts; slept upon */
    _Atomic uint32_t awaits;                     /* 0: awake; AWAITS_ANY, or a rank + AWAITS_RANK */
    _Atomic uint32_t left;                       /* 0, or why this rank takes part no longer: -code */
    uint32_t failed;                             /* with `left`: the number of the call that failed, or 0 */
    int32_t suspect;                             /* with `left`: for which rank it waited */
};

/* Bytes on their way from one rank to another. */
struct byte_stream {
    alignas(CACHE_LINE) _Atomic uint64_t head; /* written so far, by the sender */
    alignas(CACHE_LINE) _Atomic uint64_t tail; /* read so far, by the receiver */
};

struct segment {
    struct way way;
    int rank, size;
    nanoseconds timeout;
    int spins; /* looks before others are let run */
    char *map; /* seats, small data, slots, results, streams */
    size_t map_size;
    struct seat *seats;
    size_t slot_bytes, stream_bytes;
    size_t small_at, slots_at, results_at, streams_at; /* in the map */
    struct comrade {
        pid_t pid;
        uint64_t started;
    } * comrades;

    struct request_list calls; /* collective calls under way: the first one moves */
    uint32_t rounds;           /* done by this rank */
    struct messages messages;
};

enum { AWAITS_ANY = 1, AWAITS_RANK = 2 };
/* Wakes the ranks that sleep and wait for this one. */
void segment_ring_all(struct segment *segment);

/* rounds.c: true when it is done. `request->cursor` is the first rank that it waits for. */
bool rounds_advance(struct segment *segment, struct ty_request *request);
/* Whether it waits for the rank. */
bool rounds_await(const struct segment *segment, const struct ty_request *request, int rank);

#endif
