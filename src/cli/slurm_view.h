/* What Slurm would be asked for, and on what it would be planned: for `plan` and `submit`. */
#ifndef CLI_SLURM_VIEW_H
#define CLI_SLURM_VIEW_H

#include "cli/scaling_options.h"
#include "engine/slurm.h"

struct slurm_view {
    struct slurm_site site;       /* the partition's nodes; inside an allocation what was granted */
    struct slurm_request request; /* of no lines inside an allocation */
    bool inside;
};

/* Looks at the nodes, then makes the request; `view` was zero-initialised, and is the caller's also after a
 * failure. */
int slurm_view_look(const struct cluster_options *options, const struct demand *demand, struct slurm_view *view,
                    ty_error *err);
int slurm_view_ask(const struct cluster_options *options, const struct demand *demand, struct slurm_view *view,
                   ty_error *err);
void slurm_view_done(struct slurm_view *view);

/* The request line by line, each with its reason. */
void slurm_view_text(const struct slurm_view *view, struct buffer *out);
/* Adds "request" to the object of a plan: a list of {"option", "value", "why"}. */
int slurm_view_json(const struct slurm_view *view, struct buffer *json, ty_error *err);

#endif
