/* The launch messages of an attempt: all that the workers of each node need. */
#ifndef CONTROLLER_LAUNCH_H
#define CONTROLLER_LAUNCH_H

#include "base/environment.h"
#include "controller/prepare.h"
#include "wire/frame.h"

struct launch_context {
    const struct run_request *request;
    const struct prepared *prepared;
    const char *name, *path, *token;
    int attempt;
    uint64_t report_base;
    const char *checkpoint; /* NULL without */
    const char *master_address;
    uint16_t master_port;
};

enum { NODE_TOKEN_SIZE = 48 };
/* What marks the processes of a node: the token of the run and the node's number. */
void node_token(const char *run_token, uint32_t node, char token[NODE_TOKEN_SIZE]);

struct launch; /* opaque: what is alike for all nodes */

int launch_create(const struct launch_context *context, struct launch **out, ty_error *err);
void launch_destroy(struct launch *launch);

/* The frame for a node, appended to `out`. `node` is its number, which marks its processes. */
int launch_frame(const struct launch *launch, uint32_t node_rank, uint32_t node, struct buffer *out,
                 ty_error *err);

#endif
