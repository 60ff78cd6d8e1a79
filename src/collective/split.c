/* Groups of a communicator's ranks. A group's ranks find each other by calls of the communicator that it is
 * part of; since other groups need other exchanges, each makes as many as the most of them. A group is a
 * communicator like any other then. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "collective/comm.h"

enum { EXCHANGES = 4 }; /* of comm_create: "places", "segment", and the addresses of Gloo and of "sockets" */

struct choice {
    int32_t color, key;
};

struct part {
    ty_comm *comm; /* of which it is a part */
    int *members;  /* ranks in `comm`, by their ranks in the part */
    int size, rank, exchanges;
};

/* Pieces of all ranks of the whole come one behind the other, each behind its size. */
static void take_member(const struct buffer *all, int member, struct buffer *out) {
    const unsigned char *piece = (const unsigned char *)all->data;
    for (int i = 0;; i++) {
        size_t size = COMM_PIECE_HEADER + comm_piece_size(piece);
        if (i == member) {
            buffer_append(out, piece, size);
            return;
        }
        piece += size;
    }
}

/* comm_exchange among the members. */
static int gather(void *context, const char *key, const void *value, size_t size, nanoseconds timeout,
                  struct buffer *all, ty_error *err) {
    struct part *part = context;
    CLEANUP(buffer_done) struct buffer pieces = {0};
    (void)key, (void)timeout;
    part->exchanges++;
    int rc = comm_gather(part->comm, value, size, &pieces, err);
    for (int i = 0; rc == 0 && i < part->size; i++)
        take_member(&pieces, part->members[i], all);
    return rc < 0 ? rc : all->failed ? ty_fail_memory(err) : 0;
}

/* Within a call: what was agreed before holds for all that follows. Members are sorted by key, and by rank
 * where keys are equal, in the order in which they are found. The exchange of the part ends with this function,
 * on whose stack it stands; later nothing of a part asks for one (is_part). */
static int split(ty_comm *comm, struct choice own, ty_comm **made, ty_error *err) {
    int n = comm->config.size;
    CLEANUP_FREE struct choice *choices = calloc((size_t)n, sizeof *choices);
    CLEANUP_FREE int *members = calloc((size_t)n, sizeof *members);
    if (choices == NULL || members == NULL) return ty_fail_memory(err);
    struct part part = {.comm = comm, .members = members};
    struct ty_request request = {
        .call = {.operation = COMM_SPLIT, .count = 2, .type = TY_INT32}, .input = &own, .output = choices};
    comm_begin(comm, &request);
    int rc = comm_finish(comm, &request, err);
    if (rc < 0) return rc;
    if (own.color >= 0) {
        for (int rank = 0; rank < n; rank++) {
            if (choices[rank].color != choices[comm->config.rank].color) continue;
            int place = part.size++;
            for (; place > 0 && choices[rank].key < choices[part.members[place - 1]].key; place--)
                part.members[place] = part.members[place - 1];
            part.members[place] = rank;
        }
        while (part.members[part.rank] != comm->config.rank)
            part.rank++;
        struct comm_config config = part.comm->config;
        config.rank = part.rank;
        config.size = part.size;
        config.exchange = (struct comm_exchange){.gather = gather, .context = &part};
        rc = comm_create(&config, made, err);
        if (rc == 0) (*made)->is_part = true;
    }
    /* A gather is a call of all ranks of `comm`: ranks of no part, or of one that needed fewer or failed early,
     * make the rest of theirs, or the others would wait for them. */
    while (comm->failure.code == 0 && part.exchanges < EXCHANGES) {
        CLEANUP(buffer_done) struct buffer ignored = {0};
        ty_error why;
        part.size = 0;
        if (gather(&part, "", "", 0, 0, &ignored, &why) < 0 && rc == 0) {
            if (err != NULL) *err = why;
            rc = why.code;
        }
    }
    if (rc < 0) comm_destroy(TAKE(*made));
    return rc;
}

int ty_comm_split(ty_comm *comm, int color, int key, ty_comm **part, ty_error *err) {
    if (part == NULL) return ty_fail(err, TY_EUSAGE, "there is no place for the communicator: it is NULL");
    *part = NULL;
    int rc = comm_enter(comm, err);
    if (rc < 0) return rc;
    rc = split(comm, (struct choice){.color = color, .key = key}, part, err);
    comm_leave(comm);
    return rc;
}

void ty_comm_free(ty_comm **comm) {
    if (comm == NULL || *comm == NULL || !(*comm)->is_part) return;
    comm_destroy(TAKE(*comm));
}
