/* Calls in words, for the lines that tell what two ranks disagree about, and the sizes of their elements. Names
 * are those of the public header, since they are for whoever wrote the calls. What may be called with what is
 * checked in collective.c. */
#include <inttypes.h>

#include "base/cleanup.h"
#include "collective/collective.h"

static const struct {
    const char *name;
    size_t size;
} types[] = {
#define TY_X(name, text, bytes) {text, bytes},
    TY_DATA_TYPES(TY_X)
#undef TY_X
};

static const char *const reductions[] = {
#define TY_X(name, text) text,
    TY_REDUCTIONS(TY_X)
#undef TY_X
};

static const char *const operations[] = {
#define X(name, text) text,
    COMM_OPERATIONS(X)
#undef X
};

size_t comm_type_size(ty_data_type type) {
    return (size_t)type < ARRAY_SIZE(types) ? types[type].size : 0;
}

void comm_call_format(const struct comm_call *call, struct buffer *out) {
    const char *name = call->operation < ARRAY_SIZE(operations) ? operations[call->operation] : "?";
    if (call->operation == COMM_BARRIER || call->operation == COMM_SPLIT) {
        buffer_printf(out, "%s()", name);
        return;
    }
    buffer_printf(out, "%s(", name);
    if (call->operation != COMM_ALL_TO_ALL_V && call->operation != COMM_ALL_GATHER_V)
        buffer_printf(out, "count %" PRIu64 ", ", call->count);
    buffer_text(out, call->type < ARRAY_SIZE(types) ? types[call->type].name : "?");
    if (call->operation == COMM_ALL_REDUCE || call->operation == COMM_REDUCE_SCATTER)
        buffer_printf(out, ", %s",
                      call->reduction < ARRAY_SIZE(reductions) ? reductions[call->reduction] : "?");
    if (call->operation == COMM_BROADCAST || call->operation == COMM_GATHER || call->operation == COMM_SCATTER)
        buffer_printf(out, ", root %" PRId32, call->root);
    if (call->operation == COMM_SEND) buffer_printf(out, ", to %" PRId32, call->root);
    if (call->operation == COMM_RECEIVE) buffer_printf(out, ", from %" PRId32, call->root);
    if (call->tag > 0) buffer_printf(out, ", tag %" PRId32, call->tag);
    if (call->tag < 0) buffer_text(out, ", a part");
    buffer_text(out, call->device ? ", device)" : ")");
}
